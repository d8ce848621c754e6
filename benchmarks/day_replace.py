"""What replacing one day costs in the engine, against the plain SQL transaction on the same file.

Run as a script it is the child: it makes a table or replaces days of it.
"""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Callable
from datetime import date, timedelta
from pathlib import Path
from statistics import median
from typing import Any

from processes import WORK, answer, in_turn, median_ratio, run_child
from report import Benchmark, Goal

TITLE = "b. Replacing one day of a large table"

_DAYS = 365
_FIRST_DAY = date(2024, 1, 1)
_TABLE_ROWS = 36_500_000
_DAY_ROWS = 100_000
_ROOM_BYTES = 8 * 10**9
_ROUNDS = 25


def measure() -> Benchmark:
    """Replaces days of two tables, one ten times larger, in turn by the engine and by SQL."""
    large_rows = _TABLE_ROWS * 10
    if shutil.disk_usage(WORK).free < _ROOM_BYTES:
        print("  less than 8 GB of disk are free: the growth is taken from a tenth", flush=True)
        large_rows = _TABLE_ROWS
    small_rows = large_rows // 10
    taken = {rows: _replace_days(rows) for rows in (small_rows, large_rows)}
    of_goal = taken[_TABLE_ROWS]
    growth = {
        way: median(taken[large_rows][way]["wall"]) / median(taken[small_rows][way]["wall"])
        for way in ("engine", "sql")
    }
    return Benchmark(
        title=TITLE,
        method=f"Each replaces a day of {_DAY_ROWS:,} rows that was not touched before, computed "
        "from another table of the file, in turn with the other, connections opened and closed "
        f"({_ROUNDS} rounds in one process). The table has {_DAYS} days and four narrow columns, "
        "so that the transaction itself is short. The engine's time includes the compilation of "
        "the Ibis expression; `read` opens the file once more, to look the source up.",
        columns=("Table", "What", "Wall", "CPU", "Wall against SQL"),
        rows=[row for rows, ways in taken.items() for row in _rows_of(rows, ways)],
        goals=[
            Goal(
                name="Replacing a day in 36,500,000 rows against the SQL transaction",
                figure=median_ratio(of_goal["engine"]["wall"], of_goal["sql"]["wall"]),
                limit=1.2,
            ),
            Goal(
                name=f"Growth from {small_rows:,} to {large_rows:,} rows, against that of SQL",
                figure=growth["engine"] / growth["sql"],
                limit=1.0,
            ),
        ],
    )


def _rows_of(rows: int, ways: dict[str, dict[str, list[float]]]) -> list[tuple[str, ...]]:
    sql = ways["sql"]["wall"]
    engine, read = ways["engine"]["wall"], ways["read"]["wall"]
    both = [a + b for a, b in zip(read, engine, strict=True)]
    size = f"{rows:,} rows"
    return [
        (size, "SQL transaction", _ms(sql), _ms(ways["sql"]["cpu"]), ""),
        (size, "engine", _ms(engine), _ms(ways["engine"]["cpu"]), _times(engine, sql)),
        (size, "engine and `read`", _ms(both), "", _times(both, sql)),
    ]


def _ms(seconds: list[float]) -> str:
    return f"{median(seconds) * 1000:.0f} ms"


def _times(ours: list[float], base: list[float]) -> str:
    return f"{median_ratio(ours, base):.2f}"


def _replace_days(rows: int) -> dict[str, dict[str, list[float]]]:
    path = WORK / f"sessions_{rows}.duckdb"
    print(f"  making a table of {rows:,} rows", flush=True)
    try:
        run_child([__file__, "make", path, str(rows)])
        print(f"  replacing days of {_DAY_ROWS:,} rows", flush=True)
        ways: dict[str, dict[str, list[float]]] = run_child([__file__, "replace", path]).answer
    finally:
        path.unlink(missing_ok=True)
    return ways


# The child's side: DuckDB, and the engine.


def _make(path: Path, rows: int) -> None:
    """Makes a table of 365 days in order, and a smaller one that days are computed from.

    Every day that is replaced has `_DAY_ROWS` new rows, also where the table is so small that its
    other days have fewer.
    """
    import duckdb

    path.unlink(missing_ok=True)
    with duckdb.connect(path) as connection:
        connection.execute("CREATE SCHEMA bronze")
        connection.execute("CREATE SCHEMA silver")
        connection.execute(
            f"""
            CREATE TABLE silver.sessions AS
            SELECT DATE '{_FIRST_DAY}' + (i // {rows // _DAYS})::INTEGER AS session_date,
                   i AS session_id,
                   (i * 7919 % 50000)::INTEGER AS user_id,
                   (i * 31 % 1000)::INTEGER AS revenue_cents
            FROM range({rows}) AS numbers(i)
            """
        )
        connection.execute(
            f"""
            CREATE TABLE bronze.events AS
            SELECT DATE '{_FIRST_DAY}' + (i // {_DAY_ROWS})::INTEGER AS event_date,
                   1000000000 + i AS event_id,
                   (i * 7919 % 50000)::INTEGER AS user_id,
                   (i % 5)::SMALLINT AS quantity,
                   (i * 31 % 1000)::SMALLINT AS price_cents
            FROM range({_DAYS * _DAY_ROWS}) AS numbers(i)
            """
        )


def _replace(path: Path) -> dict[str, dict[str, list[float]]]:
    ways = _Ways(path)
    for warm_up in (ways.by_engine, ways.by_sql):
        warm_up()
    taken = in_turn({"engine": ways.by_engine, "sql": ways.by_sql}, rounds=_ROUNDS)
    ways.check()
    costs = {"read": [cost["read"] for cost in taken["engine"]]}
    costs["engine"] = [cost["write"] for cost in taken["engine"]]
    costs["sql"] = [cost["write"] for cost in taken["sql"]]
    return {
        way: {"wall": [wall for wall, _ in pairs], "cpu": [cpu for _, cpu in pairs]}
        for way, pairs in costs.items()
    }


class _Ways:
    """Replaces one day after another, each once, in either way."""

    def __init__(self, path: Path) -> None:
        from segmentstream._warehouse.registry import create_engine
        from segmentstream._warehouse.settings import WarehouseSettings
        from segmentstream._warehouse.tables import TableRef

        self._path = path
        self._engine = create_engine(
            WarehouseSettings(engine="duckdb", catalog=str(path), default_namespace="main")
        )
        self._events = TableRef(catalog=str(path), namespace="bronze", name="events")
        self._sessions = TableRef(catalog=str(path), namespace="silver", name="sessions")
        # Each day lies in other blocks of the file than those before it.
        self._days = (_FIRST_DAY + timedelta(days=7 + 6 * number) for number in range(59))
        self._replaced: list[date] = []

    def by_engine(self) -> dict[str, tuple[float, float]]:
        day = self._next_day()
        events, read = _timed(lambda: self._engine.read(self._events))
        rows = _sessions_of(events, day)
        _, write = _timed(
            lambda: self._engine.replace_partitions(self._sessions, rows, "session_date", [day])
        )
        return {"read": read, "write": write}

    def by_sql(self) -> dict[str, tuple[float, float]]:
        import ibis

        day = self._next_day()
        query = str(ibis.to_sql(_sessions_of(self._engine.read(self._events), day)))
        _, write = _timed(lambda: self._transact(query, day))
        return {"write": write}

    def _transact(self, query: str, day: date) -> None:
        import duckdb

        connection = duckdb.connect(self._path)
        connection.execute("BEGIN")
        connection.execute(f"DELETE FROM silver.sessions WHERE session_date = DATE '{day}'")
        connection.execute(f"INSERT INTO silver.sessions {query}")
        connection.execute("COMMIT")
        connection.close()

    def _next_day(self) -> date:
        self._replaced.append(next(self._days))
        return self._replaced[-1]

    def check(self) -> None:
        """Sees to it that every day replaced holds the new rows and nothing else."""
        import duckdb

        with duckdb.connect(self._path, read_only=True) as connection:
            found = connection.execute(
                "SELECT session_date, count(*), min(session_id) FROM silver.sessions "
                "WHERE list_contains($1, session_date) GROUP BY 1 ORDER BY 1",
                [self._replaced],
            ).fetchall()
        if [day for day, rows, _ in found if rows == _DAY_ROWS] != self._replaced or any(
            lowest < 1_000_000_000 for *_, lowest in found
        ):
            sys.exit(f"A day does not hold what was written: {found}")


def _sessions_of(events: Any, day: date) -> Any:
    """The asset: Ibis ships no types, and its tables are not imported by who measures."""
    import ibis

    rows = events.filter(events.event_date == ibis.literal(day))
    return rows.select(
        session_date=rows.event_date,
        session_id=rows.event_id,
        user_id=rows.user_id,
        revenue_cents=(rows.quantity * rows.price_cents).cast("int32"),
    )


def _timed[T](work: Callable[[], T]) -> tuple[T, tuple[float, float]]:
    wall, cpu = time.perf_counter(), time.process_time()
    result = work()
    return result, (time.perf_counter() - wall, time.process_time() - cpu)


if __name__ == "__main__":
    if sys.argv[1] == "make":
        _make(Path(sys.argv[2]), int(sys.argv[3]))
    else:
        answer(_replace(Path(sys.argv[2])))
