"""What replacing tables of BigQuery asks of its API and costs, here and in the peer.

The API is the server of the tests, so times are those of the clients and of a small local server;
requests and jobs are the same on Google's. The peer is Dagster's own BigQuery IO manager for
pandas.

Run as a script it is the child: it makes the input, or writes the tables of one side. Annotations
are not postponed here: Dagster reads those of the assets as objects.
"""

import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date, timedelta
from itertools import groupby
from pathlib import Path
from statistics import median
from typing import Any

from peers import PEERS_PYTHON
from processes import HERE, PROJECT_PYTHON, WORK, answer, in_turn, median_ratio, run_child
from report import Benchmark, Goal

TITLE = "e. Replacing tables of BigQuery, and the same with dagster-gcp-pandas"

_TESTS = HERE.parent / "tests" / "bigquery"
_ROUNDS = 3  # of processes
_REPEATS = 5  # of each case in a process, after one that is not counted
_FIRST_DAY = date(2024, 1, 1)
_DAYS = 60
_LARGE_DAYS = 2
_SIZES = {"events": 1_000, "large": 100_000}  # rows of a day
_WITHOUT_STATISTICS = "TEST_SERVER_WITHOUT_DML_STATS"
_ENDPOINT = "BIGQUERY_EMULATOR_HOST"
_SIDES = {"ours": PROJECT_PYTHON, "pandas": PEERS_PYTHON}
_SECONDS_BEYOND = 0.08

_DAY, _LONG, _LARGE = "one day replaced", f"{_DAYS} days replaced in one run", "large day replaced"
_EMPTY, _EMPTY_LONG = "empty", f"empty, {_DAYS} days"
_BARE = "one MERGE of a day"
_MERGE, _STAGED, _TRANSACTION = "MERGE", "staging table, then MERGE", "transaction"
_FORMS = (_MERGE, _STAGED, _TRANSACTION)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Case:
    """Is something to be measured.

    Attributes:
        run: Does it.
        prepare: What must be so before, not measured.
    """

    run: Callable[[], object]
    prepare: Callable[[], None] = lambda: None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Found:
    """Is what a server was asked, and how long it took.

    Attributes:
        kinds: The requests of each case in order, by side.
        rounds: The median time of each case in each round, by side.
    """

    kinds: Mapping[str, Mapping[str, Sequence[str]]]
    rounds: Mapping[str, Sequence[Mapping[str, float]]]

    def seconds(self, side: str, case: str) -> list[float]:
        """Gives the times of a case, one of each round."""
        return [of_round[case] for of_round in self.rounds[side]]

    def beyond(self, side: str, case: str) -> list[float]:
        """Gives how much longer a case took than a run of the same days that does nothing."""
        empty = self.seconds(side, _EMPTY_LONG if case == _LONG else _EMPTY)
        return [a - b for a, b in zip(self.seconds(side, case), empty, strict=True)]

    def jobs(self, side: str, case: str) -> int:
        """Counts the query jobs of a case."""
        return sum("query" in kind.split(".")[-1] for kind in self.kinds[side][case])


def measure() -> Benchmark:
    """Writes the tables of both sides in turn, on a server that each shares with the other."""
    print("  on the server as it is", flush=True)
    with _server():
        found = _compare(_SIDES)
    print("  on a server that tells no statistics of a MERGE", flush=True)
    with _server({_WITHOUT_STATISTICS: "1"}):
        silent = _compare({"silent": PROJECT_PYTHON})
    large, small = f"{_SIZES['large']:,}", f"{_SIZES['events']:,}"
    return Benchmark(
        title=TITLE,
        method="Each is `materialize` of one asset inside of a process, on the BigQuery server of "
        f"the tests (`tests/bigquery/README.md`): {_ROUNDS} processes of each side in turn, with "
        f"{_REPEATS} runs of each case. `silver.purchases` has as many rows as `bronze.events` of "
        "those days, which it is computed from: as SQL here, as a frame that is loaded and stored "
        "in the peer. Times are those of this server, where a job starts at once, as in BigQuery "
        "it does not. Requests were counted by a proxy in a pass of their own. The "
        "peer's rows come as JSON, which this server is slow to write. The test server "
        "is mended to tell how many rows a MERGE inserted and deleted, as BigQuery does; without, "
        "a written day is counted by one more job.",
        columns=(
            "Rows a day",
            "What",
            "Wall",
            "Beyond an empty run",
            "Requests",
            "Query jobs",
            "Requests in order",
        ),
        rows=[
            *(_row(found, "ours", case, f"this SDK: {case}", small) for case in _SDK_CASES),
            _row(found, "ours", _BARE, f"Google's client: {_BARE}", small),
            _row(silent, "silent", _DAY, f"this SDK: {_DAY}, no statistics", small),
            *(
                _row(found, "pandas", case, f"dagster-gcp-pandas: {case}", small)
                for case in _PEER_CASES
            ),
            _row(found, "ours", _LARGE, "this SDK: one day replaced", large),
            _row(found, "pandas", _LARGE, "dagster-gcp-pandas: one day replaced", large),
            *(_row(found, "ours", form, f"engine alone: {form}", large) for form in _FORMS),
        ],
        goals=_goals(found),
    )


_SDK_CASES = (_EMPTY, "whole table", "first day", _DAY, _LONG, _EMPTY_LONG)
_PEER_CASES = ("whole table", "first day", _DAY, _LONG)


def _goals(found: _Found) -> list[Goal]:
    kinds = found.kinds["ours"]
    return [
        Goal(name="Requests of a replaced day on BigQuery", figure=len(kinds[_DAY]), limit=5),
        Goal(name="Query jobs of a replaced day", figure=found.jobs("ours", _DAY), limit=2),
        Goal(
            name=f"Requests of {_DAYS} days in one run, beyond those of one day",
            figure=len(kinds[_LONG]) - len(kinds[_DAY]),
            limit=0,
        ),
        Goal(
            name="A replaced day on BigQuery, beyond an empty run",
            figure=median(found.beyond("ours", _DAY)),
            limit=_SECONDS_BEYOND,
            unit=" s",
        ),
        Goal(
            name=f"Time of a day of {_SIZES['large']:,} rows against dagster-gcp-pandas",
            figure=median_ratio(found.seconds("ours", _LARGE), found.seconds("pandas", _LARGE)),
            limit=0.5,
        ),
    ]


def _row(found: _Found, side: str, case: str, what: str, size: str) -> tuple[str, ...]:
    kinds = found.kinds[side][case]
    is_run = case not in {*_FORMS, _BARE, _EMPTY, _EMPTY_LONG}
    return (
        "" if case in {_EMPTY, _EMPTY_LONG} else size,
        what.replace("this SDK: empty", "empty Dagster run"),
        f"{median(found.seconds(side, case)):.3f} s",
        f"{median(found.beyond(side, case)):.3f} s" if is_run else "",
        str(len(kinds)),
        str(found.jobs(side, case)),
        _in_order(kinds),
    )


def _in_order(kinds: Sequence[str]) -> str:
    counted = [(kind, len(list(same))) for kind, same in groupby(kinds)]
    return ", ".join(kind if times == 1 else f"{times} {kind}" for kind, times in counted)


def _compare(sides: Mapping[str, Path]) -> _Found:
    for side in sides:
        run_child([__file__, "make", side])
    # The first pass also makes the tables that the others replace.
    kinds = {
        side: run_child([__file__, "log", side], python=python).answer
        for side, python in sides.items()
    }
    taken = in_turn(
        {
            side: lambda side=side, python=python: (
                run_child([__file__, "time", side], python=python).answer
            )
            for side, python in sides.items()
        },
        rounds=_ROUNDS,
    )
    if len(sides) > 1:
        sums = {side: run_child([__file__, "sums", side]).answer for side in sides}
        if len({str(found) for found in sums.values()}) != 1:
            sys.exit(f"The tables differ: {sums}")
    return _Found(kinds=kinds, rounds=taken)


@contextmanager
def _server(variables: Mapping[str, str] | None = None) -> Iterator[None]:
    """Runs a server; children find it, and what it was started with, in their variables."""
    sys.path.append(str(_TESTS))
    from emulator import running_emulator

    variables = variables or {}
    os.environ.update(variables)
    try:
        with running_emulator(WORK / "server.log") as server:
            os.environ[_ENDPOINT] = server.url
            yield
    finally:
        for name in (*variables, _ENDPOINT):
            os.environ.pop(name, None)


# The child's side.


def _project(side: str) -> str:
    return f"benchmark-{side}"


def _client(side: str) -> Any:
    """Makes a client that is not measured, which reaches the server without the proxy."""
    from google.auth.credentials import AnonymousCredentials
    from google.cloud import bigquery

    return bigquery.Client(project=_project(side), credentials=AnonymousCredentials())


def _make(side: str) -> None:
    """Makes the two tables of input."""
    client = _client(side)
    client.create_dataset("bronze")
    client.create_dataset("silver")
    for table, size in _SIZES.items():
        days = _DAYS if table == "events" else _LARGE_DAYS
        client.query(
            f"""
            CREATE TABLE bronze.{table} PARTITION BY event_date AS
            SELECT DATE_ADD(DATE '{_FIRST_DAY}', INTERVAL DIV(i, {size}) DAY) AS event_date,
                   i AS event_id,
                   MOD(i * 7919, 50000) AS user_id,
                   CONCAT('channel ', MOD(i, 5)) AS channel,
                   CONCAT('/products/', MOD(i * 13, 5000)) AS page,
                   MOD(i, 7) AS quantity,
                   MOD(i * 17, 10000) AS price_cents
            FROM UNNEST(GENERATE_ARRAY(0, {days * size - 1})) AS i
            """
        ).result()


def _sums(side: str) -> list[list[Any]]:
    """Adds up what was written, so that both sides can be compared."""
    client = _client(side)
    tables = ("purchases", "purchases_of_day", "large_purchases", "first")
    return [
        [
            list(row.values())
            for row in client.query(
                "SELECT COUNT(*) AS n, COUNT(DISTINCT event_date) AS days, SUM(event_id) AS ids, "
                "SUM(user_id) AS users, SUM(LENGTH(channel)) AS channels, "
                f"SUM(revenue_cents) AS revenue FROM silver.{table}"
            ).result()
        ]
        for table in tables
    ]


def _log(side: str) -> dict[str, list[str]]:
    """Does each case twice through a proxy and tells what the second one asked for."""
    sys.path.append(str(_TESTS))
    from proxy import Proxy

    cases = _CASES[side](side)
    kinds = {}
    with Proxy(os.environ[_ENDPOINT]) as proxy:
        os.environ[_ENDPOINT] = proxy.url
        for name, case in cases.items():
            for _ in range(2):
                case.prepare()
                proxy.clear()
                case.run()
            kinds[name] = proxy.kinds()
    return kinds


def _time(side: str) -> dict[str, float]:
    """Does the cases in turn; gives the median time of each."""
    times: dict[str, list[float]] = {}
    cases = _CASES[side](side)
    for number in range(_REPEATS + 1):
        for name, case in cases.items():
            case.prepare()
            started = time.perf_counter()
            case.run()
            if number:
                times.setdefault(name, []).append(time.perf_counter() - started)
    return {name: median(taken) for name, taken in times.items()}


def _by_this_sdk(side: str) -> dict[str, _Case]:
    import ibis.expr.types as ir

    import segmentstream.dagster as dg
    from segmentstream import (
        WAREHOUSE_IO_MANAGER_KEY,
        WarehouseResource,
        external_table_asset,
        warehouse_asset_metadata,
        warehouse_resources,
    )

    daily = dg.DailyPartitionsDefinition(start_date=str(_FIRST_DAY), end_date=str(_day(_DAYS)))

    def source(name: str) -> Any:
        return external_table_asset(
            key=["bronze", name], partitions_def=daily, partition_by_date="event_date"
        )

    def purchases_of(events: ir.Table) -> ir.Table:
        return events.select(
            "event_date",
            "event_id",
            "user_id",
            "channel",
            "page",
            revenue_cents=events.quantity * events.price_cents,
        )

    def asset(name: str, events: str, *, is_daily: bool = True) -> Any:
        @dg.asset(
            key=["silver", name],
            partitions_def=daily if is_daily else None,
            metadata=warehouse_asset_metadata(partition_by_date="event_date") if is_daily else {},
            backfill_policy=dg.BackfillPolicy.single_run() if is_daily else None,
            ins={"events": dg.AssetIn(key=["bronze", events])},
            io_manager_key=WAREHOUSE_IO_MANAGER_KEY,
        )
        def purchases(events: ir.Table) -> ir.Table:
            return purchases_of(events)

        return purchases

    def resources() -> dict[str, Any]:
        warehouse = WarehouseResource(
            engine="bigquery", catalog=_project(side), default_namespace="main"
        )
        return warehouse_resources(warehouse=warehouse)

    cases = _cases(dg, side, asset, source, resources)
    if side == "silent":
        return {name: cases[name] for name in (_EMPTY, _DAY)}
    return cases | {_BARE: _Case(run=lambda: _merge_day(side))} | _commits(side, purchases_of)


def _merge_day(side: str) -> None:
    """Replaces the day as the SDK does, with nothing but Google's client."""
    names = "event_date, event_id, user_id, channel, page, revenue_cents"
    day = f"DATE '{_day(1)}'"
    with _client(side) as client:
        client.query(
            f"""
            MERGE silver.purchases_of_day AS target
            USING (
              SELECT * EXCEPT (quantity, price_cents), quantity * price_cents AS revenue_cents
              FROM bronze.events WHERE event_date = {day}
            ) AS source ON FALSE
            WHEN NOT MATCHED BY SOURCE AND target.event_date = {day} THEN DELETE
            WHEN NOT MATCHED THEN INSERT ({names}) VALUES ({names})
            """
        ).result()


def _commits(side: str, purchases_of: Callable[[Any], Any]) -> dict[str, _Case]:
    """Gives the ways to commit a large day, without Dagster; one of them the engine never takes."""
    from segmentstream._warehouse.engines.bigquery.engine import BigQueryEngine
    from segmentstream._warehouse.options import TableOptions
    from segmentstream._warehouse.settings import WarehouseSettings
    from segmentstream._warehouse.tables import TableRef

    class StagingEngine(BigQueryEngine):
        """Computes every result into a staging table before the commit."""

        def _prepare_dates(self, write: Any, rows: Any, plan: Any, *rest: Any) -> Any:
            found, query = super()._prepare_dates(write, rows, plan, *rest)
            if write.found is None:  # a new table is staged anyway
                return found, query
            return found, write.stage([], query, plan.columns)

    project = _project(side)
    source = TableRef(catalog=project, namespace="bronze", name="large")

    def case(name: str, kind: type[BigQueryEngine], options: TableOptions) -> _Case:
        target = TableRef(catalog=project, namespace="silver", name=name)

        def run() -> None:
            settings = WarehouseSettings.from_environ(
                os.environ, engine="bigquery", catalog=project, default_namespace="main"
            )
            engine = kind(settings)
            events = engine.read(source)
            rows = purchases_of(events.filter(events.event_date == _day(1)))
            engine.replace_partitions(target, rows, "event_date", [_day(1)], options=options)
            engine.close()

        return _Case(run=run)

    return {
        _MERGE: case("merged", BigQueryEngine, TableOptions()),
        _STAGED: case("staged", StagingEngine, TableOptions()),
        _TRANSACTION: case("transacted", BigQueryEngine, TableOptions(commit="transaction")),
    }


def _by_pandas(side: str) -> dict[str, _Case]:
    import dagster as dg
    import google.auth
    import pandas as pd
    from dagster_gcp_pandas import BigQueryPandasIOManager
    from google.auth.credentials import AnonymousCredentials

    # The IO manager makes its clients with Google's default credentials; there are none here.
    google.auth.default = lambda *_, **__: (AnonymousCredentials(), None)
    daily = dg.DailyPartitionsDefinition(start_date=str(_FIRST_DAY), end_date=str(_day(_DAYS)))
    # It compares with text that holds a time, which no DATE is compared with.
    by_date = {"partition_expr": "DATETIME(event_date)"}

    def source(name: str) -> Any:
        return dg.AssetSpec(["bronze", name], partitions_def=daily, metadata=by_date)

    def asset(name: str, events: str, *, is_daily: bool = True) -> Any:
        @dg.asset(
            key=["silver", name],
            partitions_def=daily if is_daily else None,
            metadata=by_date if is_daily else {},
            backfill_policy=dg.BackfillPolicy.single_run() if is_daily else None,
            ins={"events": dg.AssetIn(key=["bronze", events])},
        )
        def purchases(events: pd.DataFrame) -> pd.DataFrame:
            return pd.DataFrame(
                {
                    "event_date": events["event_date"],
                    "event_id": events["event_id"],
                    "user_id": events["user_id"],
                    "channel": events["channel"],
                    "page": events["page"],
                    "revenue_cents": events["quantity"] * events["price_cents"],
                }
            )

        return purchases

    def resources() -> dict[str, Any]:
        return {"io_manager": BigQueryPandasIOManager(project=_project(side))}

    return _cases(dg, side, asset, source, resources)


# `dg` is the module of either environment, and the assets are what it made.
def _cases(
    dg: Any,
    side: str,
    asset: Callable[..., Any],
    source: Callable[[str], Any],
    resources: Callable[[], dict[str, Any]],
) -> dict[str, _Case]:
    """Gives what both sides do with their own assets and IO managers."""
    client = _client(side)
    daily = dg.DailyPartitionsDefinition(start_date=str(_FIRST_DAY), end_date=str(_day(_DAYS)))

    @dg.asset(
        key=["silver", "nothing"],
        partitions_def=daily,
        backfill_policy=dg.BackfillPolicy.single_run(),
    )
    def nothing() -> None: ...

    events, large = source("events"), source("large")
    purchases, of_day = asset("purchases", "events"), asset("purchases_of_day", "events")
    first = asset("first", "events")
    large_purchases = asset("large_purchases", "large")
    whole = asset("whole", "events", is_daily=False)
    one = {"partition_key": str(_day(1))}
    many = {
        "tags": {
            "dagster/asset_partition_range_start": str(_FIRST_DAY),
            "dagster/asset_partition_range_end": str(_day(_DAYS - 1)),
        }
    }

    def case(assets: Sequence[Any], how: Mapping[str, Any], **others: Any) -> _Case:
        given = {} if assets == [nothing] else resources()
        return _Case(run=lambda: dg.materialize(assets, resources=given, **how), **others)

    def drop_first() -> None:
        client.delete_table("silver.first", not_found_ok=True)

    return {
        _EMPTY: case([nothing], one),
        _EMPTY_LONG: case([nothing], many),
        "whole table": case([events, whole], {}),
        "first day": case([events, first], one, prepare=drop_first),
        _LONG: case([events, purchases], many),
        _DAY: case([events, of_day], one),
        _LARGE: case([large, large_purchases], one),
    }


def _day(number: int) -> date:
    return _FIRST_DAY + timedelta(days=number)


_CASES = {"ours": _by_this_sdk, "silent": _by_this_sdk, "pandas": _by_pandas}
_COMMANDS = {"make": _make, "log": _log, "time": _time, "sums": _sums}

if __name__ == "__main__":
    answer(_COMMANDS[sys.argv[1]](sys.argv[2]))
