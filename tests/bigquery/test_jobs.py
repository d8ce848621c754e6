"""A job exists at most once, is found again, and says where it runs, who pays and what it is for."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import date
from typing import Any

import ibis
import ibis.expr.types as ir
import pytest

import segmentstream.dagster as dg
from bigquery.cases import OPERATIONS, Server, new_rows, patience
from bigquery.emulator import Emulator
from bigquery.proxy import Fault, Proxy, Request, cut_after, cut_before, hold, refuse
from segmentstream import (
    WAREHOUSE_IO_MANAGER_KEY,
    WarehouseResource,
    warehouse_asset_metadata,
    warehouse_resources,
)
from segmentstream._core.errors import WarehouseConnectionError
from segmentstream._core.names import EMULATOR_VARIABLE
from segmentstream._warehouse.engine import WarehouseEngine, WriteResult
from segmentstream._warehouse.registry import create_engine
from segmentstream._warehouse.settings import WarehouseSettings
from segmentstream._warehouse.tables import TableRef

type Engines = Callable[..., WarehouseEngine]

_TABLE = TableRef(catalog="", namespace="shop", name="target")
_MEMORY = OPERATIONS["write of rows in memory"]
_NOT_FOUND = refuse(404, "notFound", "Not found: Job p:US.j")


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with patience(monkeypatch):
        yield


@pytest.fixture
def engines(settings: WarehouseSettings, proxy: Proxy) -> Iterator[Engines]:
    """Makes engines by way of the proxy, with other settings than usual."""
    made: list[WarehouseEngine] = []

    def make(**changes: Any) -> WarehouseEngine:
        made.append(create_engine(replace(settings, endpoint=proxy.url, **changes)))
        return made[-1]

    yield make
    for engine in made:
        engine.close()


@pytest.fixture
def server(emulator: Emulator, settings: WarehouseSettings) -> Server:
    """The project of the test, past the proxy and the SDK."""
    return Server(emulator.url, settings.catalog)


def write(engine: WarehouseEngine) -> WriteResult:
    """Replaces the second of May by two rows in memory: an upload, a staging query, a commit."""
    return _MEMORY.write(engine, ibis.table({"n": "int64"}), _TABLE)


def jobs_of(proxy: Proxy) -> list[Request]:
    """What started jobs, uploads included."""
    return [request for request in proxy.requests() if request.starts_job]


def stored(server: Server) -> object:
    """The rows of the target."""
    return server.state(replace(_TABLE, catalog=server.project))


@pytest.mark.parametrize("kind", ["jobs.insert", "upload"])
def test_a_lost_answer_is_found_under_its_own_id(
    engines: Engines, proxy: Proxy, server: Server, kind: str
) -> None:
    """The job is sent once more, refused as there already, and looked up, just made or not."""
    proxy.inject(cut_after, on=kind)
    for at in (1, 2, 3):
        proxy.inject(_NOT_FOUND, on="jobs.get", at=at)
    assert write(engines()).rows == 2
    first, again, *_ = proxy.requests(kind)
    assert (first.job_id, first.status, again.status) == (again.job_id, None, 409)
    looks = proxy.requests("jobs.get")
    assert [look.job_id for look in looks] == [first.job_id] * 4
    assert stored(server) == new_rows(2)


def test_a_job_that_was_taken_is_found_though_the_next_attempt_is_refused(
    engines: Engines, proxy: Proxy, server: Server
) -> None:
    """A refusal after a lost answer does not hide that the first attempt has committed."""
    engine = engines()
    write(engine)
    proxy.inject(cut_after, on="jobs.insert")
    proxy.inject(refuse(403, "quotaExceeded"), on="jobs.insert", at=2)
    assert write(engine).rows == 2
    assert stored(server) == new_rows(2)


@pytest.mark.parametrize("fault", [cut_before, "late"], ids=["cut", "late"])
def test_a_job_that_never_arrived_cannot_arrive_later(
    engines: Engines,
    proxy: Proxy,
    server: Server,
    monkeypatch: pytest.MonkeyPatch,
    fault: Fault | str,
) -> None:
    """Where the write says that BigQuery was not reached, a request still on its way does nothing."""
    write(engines())
    server.insert(replace(_TABLE, catalog=server.project), new_rows(1))
    before = stored(server)
    engine, arrival = engines(wait_seconds=0.5), threading.Event()
    proxy.inject(hold(arrival) if isinstance(fault, str) else fault, on=_merges, always=True)
    proxy.clear()
    with (
        patience(monkeypatch, request_seconds=0.2),
        pytest.raises(WarehouseConnectionError, match="could not be reached") as refused,
    ):
        write(engine)
    arrival.set()
    assert "may have finished" not in str(refused.value)
    assert [r.status for r in jobs_of(proxy) if r.sql == "SELECT 1"] == [200]
    wanted = 409 if isinstance(fault, str) else None
    _until(lambda: {each.status for each in jobs_of(proxy) if _merges(each)} == {wanted})
    assert stored(server) == before


def test_a_job_that_runs_for_longer_than_one_may_wait_is_waited_for(
    engines: Engines, proxy: Proxy, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The time to wait limits how long BigQuery gives no answer, not how long it works."""
    engine, start = engines(wait_seconds=0.3), threading.Event()
    with (
        patience(monkeypatch, request_seconds=0.2),
        proxy.background_jobs(start),
        ThreadPoolExecutor(1) as pool,
    ):
        written = pool.submit(write, engine)
        try:
            proxy.wait_for("jobs.get", count=12)
            assert not written.done()
        finally:
            start.set()
        assert written.result(30).rows == 2
    assert stored(server) == new_rows(2)


def test_every_job_carries_the_labels_of_its_run(
    proxy: Proxy, settings: WarehouseSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Uploads, staging, commit and count can be billed to a run and to an asset."""

    @dg.asset(
        key=["shop", "target"],
        partitions_def=dg.DailyPartitionsDefinition(start_date="2024-05-01"),
        metadata=warehouse_asset_metadata(partition_by_date="day"),
        io_manager_key=WAREHOUSE_IO_MANAGER_KEY,
    )
    def target() -> ir.Table:
        return ibis.memtable(
            [{"day": date(2024, 5, 2), "n": 1}], schema={"day": "date", "n": "int64"}
        )

    monkeypatch.setenv(EMULATOR_VARIABLE, proxy.url)
    resource = WarehouseResource(
        engine="bigquery", catalog=settings.catalog, default_namespace="main"
    )
    result = dg.materialize(
        [target],
        partition_key="2024-05-02",
        resources=warehouse_resources(warehouse=resource),
    )
    labels = [(r.labels["dagster_run_id"], r.labels["dagster_asset"]) for r in jobs_of(proxy)]
    assert len(labels) >= 4
    assert set(labels) == {(result.run_id, "shop-target")}


def test_every_job_runs_and_is_asked_for_where_the_settings_say(
    engines: Engines, proxy: Proxy
) -> None:
    """Jobs elsewhere than in the US are found only with their location."""
    with proxy.background_jobs():
        assert write(engines(location="EU")).rows == 2
    assert [r.body["jobReference"]["location"] for r in jobs_of(proxy)] == ["EU"] * 4
    asked = [r for kind in ("jobs.get", "queries.get") for r in proxy.requests(kind)]
    assert {r.parameters.get("location") for r in asked} == {"EU"}
    (dataset,) = proxy.requests("datasets.insert")
    assert dataset.body["location"] == "EU"


def test_jobs_are_paid_by_the_billing_project_and_tables_stay_in_the_other(
    engines: Engines, proxy: Proxy, server: Server
) -> None:
    """Every job, and every question about one, goes to the project that pays; no table does."""
    assert write(engines(billing_project="the-one-that-pays")).rows == 2
    projects: dict[str, set[str]] = {}
    for request in proxy.requests():
        kind = "jobs" if request.kind == "upload" else request.kind.split(".")[0]
        projects.setdefault(kind, set()).add(request.project)
    pays, holds = {"the-one-that-pays"}, {server.project}
    assert projects == {"jobs": pays, "queries": pays, "tables": holds, "datasets": holds}
    assert stored(server) == new_rows(2)


def _merges(request: Request) -> bool:
    return "MERGE" in str(request.sql)


def _until(condition: Callable[[], bool]) -> None:
    ticking = threading.Event()
    for _ in range(3000):
        if condition():
            return
        ticking.wait(0.01)
    pytest.fail("it never came true")
