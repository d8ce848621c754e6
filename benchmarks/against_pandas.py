"""What two daily assets cost as Ibis expressions here, and as pandas frames in the peer.

The peer is Dagster's own DuckDB IO manager for pandas; both write and load the same rows.

Run as a script it is the child: it makes the input, or materializes days in one of the ways.
Annotations are not postponed here: Dagster reads those of the assets as objects.
"""

import shutil
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from peers import PEERS_PYTHON
from processes import PROJECT_PYTHON, WORK, Child, answer, in_turn, run_child
from report import Benchmark, Goal

TITLE = "c. The same assets with dagster-duckdb-pandas"

_SIZES = (1_000_000, 5_000_000)
_ROUNDS = 5
_FIRST_DAY = "2024-01-01"
_END = "2024-01-04"
_SMALL_DAY, _OTHER_DAY, _DAY = "2024-01-01", "2024-01-02", "2024-01-03"
_SMALL_DAY_ROWS = 1_000

_WAYS = {
    "SQL transactions": ("sql", PROJECT_PYTHON),
    "this SDK": ("ours", PROJECT_PYTHON),
    "dagster-duckdb-pandas": ("pandas", PEERS_PYTHON),
}


def measure() -> Benchmark:
    """Replaces one day in all ways in turn, each in a file and a process of its own."""
    print("  running empty assets", flush=True)
    empty = [_materialize("empty", PROJECT_PYTHON, WORK / "none") for _ in range(_ROUNDS)]
    rows: list[tuple[str, ...]] = [("", "empty Dagster run", *_cells(empty))]
    goals: list[Goal] = []
    for size in _SIZES:
        taken = _compare(size)
        rows += [(f"{size:,} rows", way, *_cells(children)) for way, children in taken.items()]
        goals += _goals(size, empty, *taken.values())
    return Benchmark(
        title=TITLE,
        method="A run of two daily assets replaces one day that exists: `silver.purchases` "
        "computes as many rows as its input `bronze.events` has for the day, and `gold.revenue` "
        "loads that day of `silver.purchases` and groups it. One day is the time of `materialize` "
        f"inside of the process ({_ROUNDS} processes each, in turn) after a first run of a day of "
        f"{_SMALL_DAY_ROWS:,} rows, which loads whatever is loaded late; memory is the peak of "
        "the whole process. The SQL transactions write the same two tables; the empty run has two "
        "assets that do nothing.",
        columns=(
            "Rows a day",
            "What",
            "One day",
            "CPU of it",
            "Peak memory",
            "First run, small day",
        ),
        rows=rows,
        goals=goals,
    )


def _goals(
    size: int,
    empty: Sequence[Child],
    sql: Sequence[Child],
    ours: Sequence[Child],
    pandas: Sequence[Child],
) -> list[Goal]:
    rounds = list(zip(empty, sql, ours, pandas, strict=True))
    beyond = [_seconds(o) - _seconds(s) - _seconds(e) for e, s, o, _ in rounds]
    goals = [
        Goal(
            name=f"A day of {size:,} rows, beyond the SQL transactions plus an empty run",
            figure=median(beyond),
            limit=0.3,
            unit=" s",
        ),
        Goal(
            name=f"Peak memory at {size:,} rows against dagster-duckdb-pandas",
            figure=median(o.peak_bytes / p.peak_bytes for *_, o, p in rounds),
            limit=0.5,
        ),
    ]
    if size == max(_SIZES):
        time_goal = Goal(
            name=f"Time at {size:,} rows against dagster-duckdb-pandas",
            figure=median(_seconds(o) / _seconds(p) for *_, o, p in rounds),
            limit=0.5,
        )
        goals.insert(1, time_goal)
    return goals


def _seconds(child: Child) -> float:
    return float(child.answer["seconds"])


def _cells(children: Sequence[Child]) -> tuple[str, ...]:
    answers = [child.answer for child in children]
    return (
        f"{median(map(_seconds, children)):.2f} s",
        f"{median(said['cpu_seconds'] for said in answers):.2f} s",
        f"{median(child.peak_bytes for child in children) / 10**6:,.0f} MB",
        f"{median(said['first_seconds'] for said in answers):.2f} s",
    )


def _compare(size: int) -> dict[str, list[Child]]:
    seed = WORK / f"events_{size}.duckdb"
    files = {way: WORK / f"{name}_{size}.duckdb" for way, (name, _) in _WAYS.items()}
    try:
        print(f"  making days of {size:,} rows, and the tables to replace", flush=True)
        run_child([__file__, "make", seed, str(size)])
        for way, (name, python) in _WAYS.items():
            shutil.copyfile(seed, files[way])
            _materialize(name, python, files[way], _OTHER_DAY, _DAY)
        print("  replacing one of them in every way", flush=True)
        taken = in_turn(
            {
                way: lambda name=name, python=python, path=files[way]: _materialize(
                    name, python, path, _DAY
                )
                for way, (name, python) in _WAYS.items()
            },
            rounds=_ROUNDS,
        )
        _check(files)
    finally:
        for path in (seed, *files.values()):
            path.unlink(missing_ok=True)
    return taken


def _materialize(way: str, python: Path, path: Path, *days: str) -> Child:
    return run_child([__file__, way, path, *(days or (_DAY,))], python=python)


def _check(files: dict[str, Path]) -> None:
    sums = {way: run_child([__file__, "sums", path]).answer for way, path in files.items()}
    if len({str(found) for found in sums.values()}) != 1:
        sys.exit(f"The tables differ: {sums}")


# The child's side.


def _make(path: Path, size: int) -> None:
    """Makes the input: one small day and two of `size` rows."""
    import duckdb

    small = f"DATE '{_SMALL_DAY}'"
    path.unlink(missing_ok=True)
    with duckdb.connect(path) as connection:
        connection.execute("CREATE SCHEMA bronze")
        connection.execute(
            f"""
            CREATE TABLE bronze.events AS
            SELECT CASE WHEN i < {_SMALL_DAY_ROWS} THEN {small}
                        ELSE {small} + 1 + ((i - {_SMALL_DAY_ROWS}) // {size})::INTEGER
                   END AS event_date,
                   i AS event_id,
                   (i * 7919 % 50000) AS user_id,
                   event_date + INTERVAL 1 SECOND * (i * 31 % 86400) AS happened_at,
                   ['search', 'email', 'social', 'direct', 'partner'][1 + i % 5] AS channel,
                   '/products/' || (i * 13 % 5000) AS page,
                   i % 7 AS quantity,
                   i * 17 % 10000 AS price_cents
            FROM range({_SMALL_DAY_ROWS + 2 * size}) AS numbers(i)
            """
        )


def _sums(path: Path) -> list[list[int]]:
    """Adds up both tables, so that those of different ways can be compared."""
    import duckdb

    with duckdb.connect(path, read_only=True) as connection:
        return [
            list(connection.execute(query).fetchall()[0])
            for query in (
                """
                SELECT count(*), count(DISTINCT event_date::DATE), sum(event_id), sum(user_id),
                       sum(hour), sum(length(channel)), sum(length(page)), sum(revenue_cents)
                FROM silver.purchases
                """,
                """
                SELECT count(*), count(DISTINCT event_date::DATE), sum(hour),
                       sum(length(channel)), sum(purchases), sum(revenue_cents)
                FROM gold.revenue
                """,
            )
        ]


def _run(way: str, path: Path, days: Sequence[str]) -> dict[str, float]:
    """Writes the small day first, then each of `days`; times the first and the last of all."""
    write_day = _WRITERS[way](path)
    costs = [_timed(write_day, day) for day in (_SMALL_DAY, *days)]
    return {
        "first_seconds": costs[0][0],
        "seconds": costs[-1][0],
        "cpu_seconds": costs[-1][1],
    }


def _timed(write_day: Callable[[str], None], day: str) -> tuple[float, float]:
    wall, cpu = time.perf_counter(), time.process_time()
    write_day(day)
    return time.perf_counter() - wall, time.process_time() - cpu


def _by_sql(path: Path) -> Callable[[str], None]:
    import duckdb

    purchases = """
        SELECT event_date, event_id, user_id, channel, page, hour(happened_at) AS hour,
               quantity * price_cents AS revenue_cents
        FROM bronze.events WHERE event_date = {day}
    """
    revenue = """
        SELECT event_date, channel, hour, count(*) AS purchases,
               sum(revenue_cents)::BIGINT AS revenue_cents
        FROM silver.purchases WHERE event_date = {day} GROUP BY ALL
    """

    def write(table: str, query: str, day: str) -> None:
        connection = duckdb.connect(path)
        connection.execute("BEGIN")
        connection.execute(f"DELETE FROM {table} WHERE event_date = {day}")
        connection.execute(f"INSERT INTO {table} {query.format(day=day)}")
        connection.execute("COMMIT")
        connection.close()

    # The day stands in the text: DuckDB imports pandas when it is given a parameter.
    def write_day(day: str) -> None:
        write("silver.purchases", purchases, f"DATE '{day}'")
        write("gold.revenue", revenue, f"DATE '{day}'")

    with duckdb.connect(path) as connection:
        for table, query in (("silver.purchases", purchases), ("gold.revenue", revenue)):
            connection.execute(f"CREATE SCHEMA IF NOT EXISTS {table.partition('.')[0]}")
            connection.execute(f"CREATE TABLE IF NOT EXISTS {table} AS {query.format(day='NULL')}")
    return write_day


def _by_this_sdk(path: Path) -> Callable[[str], None]:
    import ibis.expr.types as ir

    import segmentstream.dagster as dg
    from segmentstream import (
        WAREHOUSE_IO_MANAGER_KEY,
        WarehouseResource,
        external_table_asset,
        warehouse_asset_metadata,
        warehouse_resources,
    )

    daily = dg.DailyPartitionsDefinition(start_date=_FIRST_DAY, end_date=_END)
    by_date = warehouse_asset_metadata(partition_by_date="event_date")
    events = external_table_asset(
        key=["bronze", "events"], partitions_def=daily, partition_by_date="event_date"
    )

    @dg.asset(
        key=["silver", "purchases"],
        partitions_def=daily,
        metadata=by_date,
        ins={"events": dg.AssetIn(key=["bronze", "events"])},
        io_manager_key=WAREHOUSE_IO_MANAGER_KEY,
    )
    def purchases(events: ir.Table) -> ir.Table:
        return events.select(
            "event_date",
            "event_id",
            "user_id",
            "channel",
            "page",
            hour=events.happened_at.hour(),
            revenue_cents=events.quantity * events.price_cents,
        )

    @dg.asset(
        key=["gold", "revenue"],
        partitions_def=daily,
        metadata=by_date,
        ins={"purchases": dg.AssetIn(key=["silver", "purchases"])},
        io_manager_key=WAREHOUSE_IO_MANAGER_KEY,
    )
    def revenue(purchases: ir.Table) -> ir.Table:
        return purchases.group_by("event_date", "channel", "hour").agg(
            purchases=purchases.count(), revenue_cents=purchases.revenue_cents.sum()
        )

    warehouse = WarehouseResource(engine="duckdb", catalog=str(path), default_namespace="main")
    resources = warehouse_resources(warehouse=warehouse)
    return _materializer(dg, [events, purchases, revenue], resources)


def _by_pandas(path: Path) -> Callable[[str], None]:
    import dagster as dg
    import pandas as pd
    from dagster_duckdb_pandas import DuckDBPandasIOManager

    daily = dg.DailyPartitionsDefinition(start_date=_FIRST_DAY, end_date=_END)
    by_date = {"partition_expr": "event_date"}
    events = dg.AssetSpec(["bronze", "events"], partitions_def=daily, metadata=by_date)

    @dg.asset(
        key=["silver", "purchases"],
        partitions_def=daily,
        metadata=by_date,
        ins={"events": dg.AssetIn(key=["bronze", "events"])},
    )
    def purchases(events: pd.DataFrame) -> pd.DataFrame:
        return pd.DataFrame(
            {
                "event_date": events["event_date"],
                "event_id": events["event_id"],
                "user_id": events["user_id"],
                "channel": events["channel"],
                "page": events["page"],
                "hour": events["happened_at"].dt.hour,
                "revenue_cents": events["quantity"] * events["price_cents"],
            }
        )

    @dg.asset(
        key=["gold", "revenue"],
        partitions_def=daily,
        metadata=by_date,
        ins={"purchases": dg.AssetIn(key=["silver", "purchases"])},
    )
    def revenue(purchases: pd.DataFrame) -> pd.DataFrame:
        groups = purchases.groupby(["event_date", "channel", "hour"], as_index=False)
        return groups.agg(purchases=("event_id", "size"), revenue_cents=("revenue_cents", "sum"))

    resources = {"io_manager": DuckDBPandasIOManager(database=str(path))}
    return _materializer(dg, [events, purchases, revenue], resources)


def _by_empty_assets(_path: Path) -> Callable[[str], None]:
    import dagster as dg

    daily = dg.DailyPartitionsDefinition(start_date=_FIRST_DAY, end_date=_END)

    @dg.asset(key=["silver", "purchases"], partitions_def=daily)
    def purchases() -> None: ...

    @dg.asset(key=["gold", "revenue"], partitions_def=daily, deps=[purchases])
    def revenue() -> None: ...

    return _materializer(dg, [purchases, revenue], {})


# `dagster` is the module of either environment, and the assets are what it made.
def _materializer(
    dagster: Any, assets: Sequence[Any], resources: dict[str, Any]
) -> Callable[[str], None]:
    def write_day(day: str) -> None:
        dagster.materialize(assets, partition_key=day, resources=resources)

    return write_day


_WRITERS = {
    "sql": _by_sql,
    "ours": _by_this_sdk,
    "pandas": _by_pandas,
    "empty": _by_empty_assets,
}

if __name__ == "__main__":
    command, file = sys.argv[1], Path(sys.argv[2])
    if command == "make":
        _make(file, int(sys.argv[3]))
    elif command == "sums":
        answer(_sums(file))
    else:
        answer(_run(command, file, sys.argv[3:]))
