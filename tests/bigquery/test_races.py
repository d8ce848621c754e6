"""Writers of one table at the same moment: one version of each day is left, and all end truly."""

from __future__ import annotations

import itertools
import re
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import Any
from uuid import uuid4

import ibis
import ibis.expr.types as ir
import pytest

from bigquery.cases import (
    OPERATIONS,
    SOURCE,
    Row,
    Server,
    ending_of,
    make_source,
    may,
    old_rows,
    patience,
    row,
)
from bigquery.emulator import Emulator
from bigquery.fixtures import new_settings
from bigquery.proxy import Answer, Call, Fault, Proxy, Request, fail_job
from bigquery.writers import running_writers
from segmentstream._core.errors import (
    SegmentStreamError,
    WarehouseConnectionError,
    WarehouseMaterializationError,
)
from segmentstream._warehouse.engine import WarehouseEngine, WriteResult
from segmentstream._warehouse.engines.bigquery import writing
from segmentstream._warehouse.registry import create_engine
from segmentstream._warehouse.settings import WarehouseSettings
from segmentstream._warehouse.tables import TableRef

pytestmark = pytest.mark.slow

_SECONDS = 60
_SERIALIZE = "Could not serialize access to table p:d.t due to concurrent update"


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with patience(monkeypatch):
        yield


@pytest.fixture
def server(emulator: Emulator, settings: WarehouseSettings) -> Server:
    """The project of the test, with the source of the writes."""
    server = Server(emulator.url, settings.catalog)
    make_source(server)
    return server


@pytest.fixture
def engines(proxy: Proxy, server: Server) -> Iterator[Callable[[], WarehouseEngine]]:
    """Makes engines by way of the proxy, each with a client of its own."""
    made: list[WarehouseEngine] = []

    def make() -> WarehouseEngine:
        made.append(create_engine(new_settings(proxy.url, catalog=server.project)))
        return made[-1]

    yield make
    for engine in made:
        engine.close()


def new_table(server: Server) -> TableRef:
    """Names a table in a dataset of its own, which does not exist yet."""
    return TableRef(catalog=server.project, namespace=f"d{uuid4().hex[:10]}", name="target")


def source_of(engine: WarehouseEngine, *, plus: int = 0) -> ir.Table:
    """The rows of the source, told apart by what is added to their number."""
    source = engine.read(TableRef(catalog="", namespace=SOURCE[0], name=SOURCE[1]))
    return source.select("day", n=source.n + plus)


def rows_of(*days: int, plus: int = 0) -> list[Row]:
    """The same as they are stored."""
    return [row(day=may(day), n=100 * day + i + plus) for day in days for i in range(2)]


def commits(request: Request) -> bool:
    """Whether a request starts a job that commits."""
    return request.starts_job and "_commit" in str(request.job_id)


def is_first(request: Request) -> bool:
    """Whether a request starts the first job of a write that commits."""
    return commits(request) and str(request.job_id).endswith("_commit1_1")


def meeting(parties: int, fault: Fault = lambda call: call.forward()) -> Fault:
    """Holds each answer back until so many have been computed."""
    barrier = threading.Barrier(parties)

    def meet(call: Call) -> Answer | None:
        answer = fault(call)
        with suppress(threading.BrokenBarrierError):
            barrier.wait(_SECONDS)
        return answer

    return meet


def finding_nothing(server: Server) -> Fault:
    """Runs a commit as BigQuery does whose snapshot was taken before the other one's: no deletes."""

    def fault(call: Call) -> Answer:
        body: dict[str, Any] = dict(call.request.body)
        text = str(call.request.sql).replace("THEN DELETE", "AND FALSE THEN DELETE")
        text = re.sub(r"(TRUNCATE TABLE|DELETE FROM) [^;]+", "SELECT 1", text)
        assert text != call.request.sql
        query = {**body["configuration"]["query"], "query": text}
        body["configuration"] = {**body["configuration"], "query": query}
        status, answer = server.ask("POST", "/jobs", body)
        return Answer.of(status, answer)

    return fault


def statements_told(first: tuple[int, int], later: tuple[int, int]) -> Fault:
    """Tells what the statements of a script did, which the test server does not: inserted, deleted."""

    def fault(call: Call) -> Answer:
        parent = call.request.parameters["parentJobId"]
        inserted, deleted = first if "_commit1_" in parent else later
        statements = {
            "INSERT": {"insertedRowCount": str(inserted)},
            "TRUNCATE_TABLE": {"deletedRowCount": str(deleted)},
        }
        children = [
            {
                "jobReference": {"projectId": "p", "jobId": f"child_{kind}", "location": "US"},
                "configuration": {"query": {"query": kind}},
                "statistics": {"query": {"statementType": kind, "dmlStats": told}},
                "status": {"state": "DONE"},
            }
            for kind, told in statements.items()
        ]
        return Answer.of(200, {"jobs": children})

    return fault


def at_once[T](*calls: Callable[[], T]) -> list[T]:
    """Runs functions in threads and gives what they return."""
    with ThreadPoolExecutor(len(calls)) as pool:
        return [future.result(_SECONDS) for future in [pool.submit(call) for call in calls]]


def find_nothing_at_once(proxy: Proxy, server: Server) -> None:
    """Arranges that two writers both find no table, and that both commits land beside each other."""
    looks = meeting(2)
    for at in (1, 2):
        proxy.inject(looks, on="tables.get", at=at)
    proxy.inject(meeting(2, finding_nothing(server)), on=is_first, always=True)


def attempts(proxy: Proxy) -> list[int]:
    """How often the writes committed, and all in all with what number of the attempt."""
    found = [re.search(r"_commit(\d)_1$", str(r.job_id)) for r in proxy.requests() if r.starts_job]
    return sorted(int(each[1]) for each in found if each)


def test_two_first_writers_of_a_day_leave_one_version(
    proxy: Proxy, server: Server, engines: Callable[[], WarehouseEngine]
) -> None:
    """Both find the day empty and both insert; each notices, and one of the two versions is left."""
    writers = [(engine := engines(), source_of(engine, plus=plus)) for plus in (0, 10)]
    for _ in range(20):
        table = new_table(server)
        find_nothing_at_once(proxy, server)
        proxy.clear()
        results = at_once(*(partial(write_day, *writer, table) for writer in writers))
        proxy.heal()
        assert [dict(result.rows_by_date or {}) for result in results] == [{may(2): 2}] * 2
        assert server.state(table) in (rows_of(2), rows_of(2, plus=10))
        assert attempts(proxy)[:3] == [1, 1, 2]
        assert not server.staging(table.namespace)


def test_two_first_writers_of_a_whole_table_leave_one_version(
    proxy: Proxy, server: Server, engines: Callable[[], WarehouseEngine]
) -> None:
    """The same for tables without dates: neither TRUNCATE found the other's rows."""
    writers = [(engine := engines(), source_of(engine, plus=plus)) for plus in (0, 10)]
    for _ in range(5):
        table = new_table(server)
        find_nothing_at_once(proxy, server)
        proxy.inject(statements_told((8, 0), (8, 16)), on="jobs.list", always=True)
        proxy.clear()
        results = at_once(*(partial(engine.replace, table, rows) for engine, rows in writers))
        proxy.heal()
        assert [result.rows for result in results] == [8, 8]
        assert server.state(table) in (rows_of(1, 2, 3, 4), rows_of(1, 2, 3, 4, plus=10))
        assert attempts(proxy)[:3] == [1, 1, 2]


@pytest.mark.parametrize("name", ["first write of dates", "first write of a table"])
def test_rows_that_keep_coming_end_the_write_with_an_error_that_can_be_retried(
    proxy: Proxy, server: Server, engines: Callable[[], WarehouseEngine], name: str
) -> None:
    """After some commits, each with rows of someone else beside it, the write gives up and says so."""
    engine, table = engines(), new_table(server)

    def beside(call: Call) -> Answer:
        answer = call.forward()
        server.insert(table, rows_of(1, plus=50))
        return answer

    proxy.inject(beside, on=commits, always=True)
    proxy.inject(statements_told((8, 0), (8, 0)), on="jobs.list", always=True)
    ending = ending_of(lambda: OPERATIONS[name].write(engine, source_of(engine), table))
    assert isinstance(ending.error, WarehouseMaterializationError)
    assert ending.error.retryable
    assert "was written 4 times" in ending.text
    assert attempts(proxy) == [1, 2, 3, 4]
    proxy.heal()
    assert OPERATIONS[name].write(engine, source_of(engine), table).rows
    assert server.state(table) == sorted(OPERATIONS[name].new)


def test_a_script_whose_statements_are_not_listed_is_never_taken_for_alone(
    proxy: Proxy,
    server: Server,
    engines: Callable[[], WarehouseEngine],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Without the numbers of its statements a commit proves nothing, and a doubled table is not told as one."""
    monkeypatch.setattr(writing, "_LISTING_PAUSE_SECONDS", 0.01)
    engine, table = engines(), new_table(server)
    proxy.inject(lambda _: Answer.of(200, {"jobs": []}), on="jobs.list", always=True)
    first = OPERATIONS["first write of a table"]
    ending = ending_of(lambda: first.write(engine, source_of(engine), table))
    assert isinstance(ending.error, WarehouseConnectionError)
    assert "was written, and it could not be checked" in ending.text
    assert server.state(table) == sorted(first.new)


def test_a_second_commit_that_fails_tells_that_rows_are_there(
    proxy: Proxy, server: Server, engines: Callable[[], WarehouseEngine]
) -> None:
    """Once a first commit stands beside another writer's, an error does not say it was nothing."""
    engine, table = engines(), new_table(server)

    def beside(call: Call) -> Answer:
        answer = call.forward()
        server.insert(table, rows_of(2, plus=10))
        return answer

    proxy.inject(beside, on=is_first)
    second = fail_job("accessDenied", "Not allowed any more")
    proxy.inject(second, on=lambda r: commits(r) and "_commit2_" in str(r.job_id), always=True)
    ending = ending_of(lambda: write_day(engine, source_of(engine), table))
    assert isinstance(ending.error, SegmentStreamError)
    assert "was written" in ending.text
    assert "Not allowed any more" in ending.text
    assert server.state(table) == sorted(rows_of(2) + rows_of(2, plus=10))


def test_five_runs_of_five_dates_of_one_table_all_succeed(
    proxy: Proxy, server: Server, engines: Callable[[], WarehouseEngine]
) -> None:
    """Every second commit is refused once; all five succeed and each date is right."""
    table, numbers, refused = new_table(server), itertools.count(), []

    def every_second(call: Call) -> Answer:
        if next(numbers) % 2:
            return call.forward()
        refused.append(call.request.job_id)
        return call.fail_job("invalidQuery", _SERIALIZE)

    proxy.inject(every_second, on=is_first, always=True)

    def write(first: int) -> WriteResult:
        dates = [may(first + i) for i in range(5)]
        rows = [{"day": day, "n": 100 * day.day + i} for day in dates for i in range(2)]
        data = ibis.memtable(rows, schema={"day": "date", "n": "int64"})
        return engines().replace_partitions(table, data, "day", dates)

    results = at_once(*(partial(write, first) for first in range(1, 26, 5)))
    assert [result.rows for result in results] == [10] * 5
    assert server.state(table) == sorted(rows_of(*range(1, 26)))
    assert len(refused) == 3
    assert not server.staging(table.namespace)


def test_thirty_dates_by_four_processes_at_once(proxy: Proxy, server: Server) -> None:
    """Processes that make one table and write a date each, over and over, leave every date whole."""
    table = new_table(server)
    days = [may(day).isoformat() for day in range(1, 31)]
    place = {"url": proxy.url, "project": server.project, "dataset": table.namespace}
    with running_writers() as writers:
        told = []
        for start in range(0, 30, 4):
            tasks = [place | {"kind": "dates", "days": [day]} for day in days[start : start + 4]]
            told += writers.run(*tasks)
    assert told == [{"rows": 2, "error": None}] * 30
    assert server.state(table) == sorted(rows_of(*range(1, 31)))
    assert not server.staging(table.namespace)


def test_two_processes_that_make_one_table_at_once_both_succeed(
    proxy: Proxy, server: Server
) -> None:
    """The one whose table is there already takes the other's."""
    table = new_table(server)
    looks = meeting(2)
    for at in (1, 2):
        proxy.inject(looks, on="tables.get", at=at)
    place = {"url": proxy.url, "project": server.project, "dataset": table.namespace}
    with running_writers() as writers:
        tasks = [place | {"kind": "dates", "days": [f"2024-05-0{day}"]} for day in (1, 2)]
        told = writers.run(*tasks)
    assert told == [{"rows": 2, "error": None}] * 2
    statuses = [r.status for r in proxy.requests("tables.insert") if _is_of(r, table)]
    assert sorted(statuses, key=str) == [200, 409]
    assert server.state(table) == sorted(rows_of(1, 2))


@pytest.mark.parametrize(
    "case",
    [
        (
            "first write of dates",
            "CREATE TABLE {table} (day DATE, n INT64, more STRING) PARTITION BY day",
            "other columns",
        ),
        ("first write of dates", "CREATE TABLE {table} (day DATE, n INT64)", "not partitioned"),
        (
            "first write of dates",
            "CREATE TABLE {table} (day DATE, n INT64, d DATE) PARTITION BY d",
            "partitioned by DAY on 'd'",
        ),
        (
            "first write of a table",
            "CREATE TABLE {table} (day DATE, n STRING)",
            "other columns",
        ),
        (
            "first write of a table",
            "CREATE TABLE {table} (day DATE, n INT64) PARTITION BY day",
            "remove every day",
        ),
        (
            "first write of a table",
            "CREATE VIEW {table} AS SELECT DATE '2024-05-09' AS day, 1 AS n",
            "view",
        ),
    ],
)
def test_a_table_that_is_made_meanwhile_in_another_way_is_refused(
    proxy: Proxy, server: Server, engines: Callable[[], WarehouseEngine], case: tuple[str, str, str]
) -> None:
    """What someone else made between the look and the making is neither filled nor emptied."""
    (name, sql, told), engine, table = case, engines(), new_table(server)

    def meanwhile(call: Call) -> Answer:
        server.sql(sql.format(table=server.name(table)))
        if "VIEW" not in sql and "STRING)" not in sql:
            server.insert(table, old_rows(9))
        return call.forward()

    proxy.inject(meanwhile, on=lambda request: request.kind == "tables.insert")
    ending = ending_of(lambda: OPERATIONS[name].write(engine, source_of(engine), table))
    assert isinstance(ending.error, WarehouseMaterializationError)
    assert told in ending.text
    assert server.sql(f"SELECT * FROM {server.name(table)} WHERE day <> DATE '2024-05-09'") == []
    if "VIEW" not in sql and "STRING)" not in sql:
        assert server.state(table) == old_rows(9)


def write_day(engine: WarehouseEngine, rows: ir.Table, table: TableRef) -> WriteResult:
    """Replaces the second of May."""
    return engine.replace_partitions(table, rows.filter(rows.day == may(2)), "day", {may(2)})


def _is_of(request: Request, table: TableRef) -> bool:
    return bool(request.body["tableReference"]["tableId"] == table.name)
