"""Every request of every kind of write fails in every way: the table holds old rows or new ones."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field

import ibis.expr.types as ir
import pytest

from bigquery.cases import (
    OPERATIONS,
    SOURCE,
    Ending,
    Operation,
    Server,
    ending_of,
    make_source,
    patience,
    tells_doubt,
    tells_success,
    violations,
)
from bigquery.emulator import Emulator
from bigquery.fixtures import new_settings
from bigquery.proxy import (
    Answer,
    Call,
    Fault,
    Proxy,
    Request,
    cut_after,
    cut_before,
    fail_job,
    hold,
    hold_answer,
    refuse,
)
from segmentstream._core.errors import SegmentStreamError
from segmentstream._warehouse.engine import WarehouseEngine
from segmentstream._warehouse.registry import create_engine
from segmentstream._warehouse.tables import TableRef

pytestmark = pytest.mark.slow

type Count = Callable[..., None]

_SECONDS_TO_GIVE_UP = 10
_LATE_SECONDS = 0.5
_REQUEST_SECONDS = 0.25  # less: the client has given up when the request, or its answer, arrives

_OF_ANY_REQUEST: Mapping[str, Fault] = {
    "cut before the server": cut_before,
    "cut after the server": cut_after,
    "500 backendError": refuse(500, "backendError"),
    "503 backendError": refuse(503, "backendError"),
    "429 rateLimitExceeded": refuse(429, "rateLimitExceeded"),
    "403 rateLimitExceeded": refuse(403, "rateLimitExceeded"),
    "500 after the server": lambda call: (call.forward(), refuse(500, "backendError")(call))[1],
}
_OF_JOBS: Mapping[str, Fault] = {
    "job: rateLimitExceeded": fail_job("rateLimitExceeded"),
    "job: backendError": fail_job("backendError"),
    "job: could not serialize": fail_job(
        "invalidQuery", "Could not serialize access to table p:d.t due to concurrent update"
    ),
    "job: transaction is aborted": fail_job(
        "invalidQuery", "Transaction is aborted due to concurrent update against table p:d.t"
    ),
    "job: too many DML statements": fail_job(
        "invalidQuery", "Too many DML statements outstanding against table p:d.t, limit is 20."
    ),
}
_TOO_LATE: Mapping[str, Fault] = {
    "request after the client's patience": hold(_LATE_SECONDS),
    "answer after the client's patience": hold_answer(_LATE_SECONDS),
}


@dataclass(slots=True, kw_only=True)
class Bench:
    """Runs writes through the proxy and counts what was tried and what went wrong."""

    server: Server
    proxy: Proxy
    engine: WarehouseEngine
    source: ir.Table
    tried: int = 0
    wrong: list[str] = field(default_factory=list)

    def run(self, operation: Operation) -> tuple[TableRef, Ending]:
        """Writes into a table of its own."""
        table = operation.prepare(self.server)
        self.proxy.clear()
        return table, ending_of(lambda: operation.write(self.engine, self.source, table))

    def requests(self, operation: Operation) -> list[Request]:
        """What a write asks for when nothing fails."""
        table, ending = self.run(operation)
        assert not list(violations(operation, self.server, table, ending, may_be_unknown=False)), (
            operation.name
        )
        assert ending.result is not None
        return self.proxy.requests()

    def breaks(
        self,
        operation: Operation,
        name: str,
        fault: Fault,
        *,
        at: int = 1,
        on: str | Callable[[Request], bool] = "",
        always: bool = False,
        must_succeed: bool = False,
    ) -> Ending | None:
        """Tries one case; gives the ending, or None when the request that was to fail never came."""
        fired = False

        def firing(call: Call) -> Answer | None:
            nonlocal fired
            fired = True
            return fault(call)

        self.proxy.inject(firing, at=at, on=on, always=always)
        table, ending = self.run(operation)
        self.proxy.heal()
        if not fired:
            return None
        self.tried += 1
        case = f"{operation.name}: {name} at {on or at}"
        found = violations(operation, self.server, table, ending, may_be_unknown=always)
        self.wrong += [f"{case}: {problem}" for problem in found]
        if must_succeed and ending.error is not None:
            self.wrong.append(f"{case}: did not succeed: {ending.error!r}")
        return ending


@pytest.fixture
def count(record_property: Callable[[str, object], None]) -> Count:
    """Tells the summary of the test run how many cases there were, and fails on any violation."""

    def tell(bench: Bench, *, at_least: int) -> None:
        record_property("fault matrix", [bench.tried, len(bench.wrong)])
        assert not bench.wrong, "\n".join(bench.wrong)
        assert bench.tried >= at_least

    return tell


@pytest.fixture
def make_bench(
    emulator: Emulator, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[..., Bench]]:
    """Makes a bench on a project of its own, with an engine that waits as long as is said."""
    with ExitStack() as ending:

        def make(*, wait_seconds: float = 30, request_seconds: float = 60) -> Bench:
            ending.enter_context(patience(monkeypatch, request_seconds=request_seconds))
            settings = new_settings(proxy.url, wait_seconds=wait_seconds)
            server = Server(emulator.url, settings.catalog)
            make_source(server)
            engine = create_engine(settings)
            ending.callback(engine.close)
            source = engine.read(TableRef(catalog="", namespace=SOURCE[0], name=SOURCE[1]))
            return Bench(server=server, proxy=proxy, engine=engine, source=source)

        yield make


every_operation = pytest.mark.parametrize("operation", OPERATIONS.values(), ids=lambda op: op.name)


@every_operation
def test_a_passing_fault_of_any_request_is_survived(
    make_bench: Callable[..., Bench], count: Count, operation: Operation
) -> None:
    """Whatever fails once, the write succeeds, tells the truth and leaves no staging behind."""
    bench = make_bench()
    for number, request in enumerate(bench.requests(operation), 1):
        faults = {**_OF_ANY_REQUEST, **(_OF_JOBS if request.starts_job else {})}
        for name, fault in faults.items():
            told = f"{name} ({request.kind})"
            bench.breaks(operation, told, fault, at=number, must_succeed=True)
    count(bench, at_least=len(_OF_ANY_REQUEST) * 2 + len(_OF_JOBS))


@pytest.mark.parametrize(
    ("name", "kinds"),
    [
        ("replace of one date", ("jobs.insert", "jobs.get", "queries.get")),
        ("replace of a table", ("jobs.insert", "jobs.get", "queries.get")),
        ("write of rows in memory", ("jobs.get",)),
    ],
)
def test_a_passing_fault_while_a_job_is_waited_for_is_survived(
    make_bench: Callable[..., Bench], count: Count, name: str, kinds: tuple[str, ...]
) -> None:
    """Whatever fails once while jobs run, the write succeeds and tells the truth."""
    bench = make_bench()
    with bench.proxy.background_jobs():
        for on in kinds:
            for at in (1, 2):
                for told, fault in _OF_ANY_REQUEST.items():
                    bench.breaks(OPERATIONS[name], told, fault, on=on, at=at, must_succeed=True)
    count(bench, at_least=len(_OF_ANY_REQUEST) * 2)


@every_operation
def test_a_request_that_arrives_after_it_was_given_up_does_no_harm(
    make_bench: Callable[..., Bench], count: Count, operation: Operation
) -> None:
    """A request, or its answer, that is later than the client waits changes nothing twice."""
    bench = make_bench(request_seconds=_REQUEST_SECONDS)
    for number, request in enumerate(bench.requests(operation), 1):
        for name, fault in _TOO_LATE.items():
            told = f"{name} ({request.kind})"
            bench.breaks(operation, told, fault, at=number, must_succeed=True)
    count(bench, at_least=2 * 2)


@every_operation
def test_a_failure_that_lasts_is_told_truly(
    make_bench: Callable[..., Bench],
    count: Count,
    monkeypatch: pytest.MonkeyPatch,
    operation: Operation,
) -> None:
    """From any request on nothing works: the error says what is known of the rows, and no more."""
    monkeypatch.setattr("segmentstream._warehouse.engines.bigquery.staging._DROP_SECONDS", 0.1)
    monkeypatch.setattr("segmentstream._warehouse.engines.bigquery.jobs._CANCEL_SECONDS", 0.2)
    bench = make_bench(wait_seconds=0.3)
    started = time.monotonic()
    for number, request in enumerate(bench.requests(operation), 1):
        for name in ("500 backendError", "cut after the server"):
            fault, told = _OF_ANY_REQUEST[name], f"always {name} ({request.kind})"
            bench.breaks(operation, told, fault, at=number, always=True)
            assert time.monotonic() - started < _SECONDS_TO_GIVE_UP * bench.tried
    count(bench, at_least=2 * 2)


@every_operation
def test_a_job_that_always_fails_changes_nothing(
    make_bench: Callable[..., Bench], count: Count, operation: Operation
) -> None:
    """After the last attempt the error is that of the job, can be retried, and the rows are old."""
    bench = make_bench(wait_seconds=0.1)
    for name, fault in _OF_JOBS.items():
        ending = bench.breaks(operation, name, fault, on=_commits, always=True)
        assert ending is not None
        assert isinstance(ending.error, SegmentStreamError), name
        assert ending.error.retryable
        assert not tells_doubt(ending.text)
        assert not tells_success(ending.text)
    count(bench, at_least=len(_OF_JOBS))


@every_operation
def test_what_fails_after_the_commit_does_not_deny_it(
    make_bench: Callable[..., Bench],
    count: Count,
    monkeypatch: pytest.MonkeyPatch,
    operation: Operation,
) -> None:
    """When nothing works once the rows are there, the write succeeds or says that they are."""
    monkeypatch.setattr("segmentstream._warehouse.engines.bigquery.staging._DROP_SECONDS", 0.1)
    monkeypatch.setattr("segmentstream._warehouse.engines.bigquery.jobs._CANCEL_SECONDS", 0.2)
    bench = make_bench(wait_seconds=0.3)
    committed = threading.Event()

    def after_the_commit(request: Request) -> bool:
        if committed.is_set():
            return True
        if _commits(request):
            committed.set()
        return False

    for name in ("500 backendError", "cut before the server"):
        committed.clear()
        ending = bench.breaks(
            operation, name, _OF_ANY_REQUEST[name], on=after_the_commit, always=True
        )
        if ending is not None:
            assert ending.result is not None or tells_success(ending.text), ending.text
    count(bench, at_least=0)


@pytest.mark.parametrize("name", ["first write of dates", "write of rows in memory"])
def test_staging_that_cannot_be_dropped_neither_fails_nor_holds_up_a_write(
    make_bench: Callable[..., Bench], caplog: pytest.LogCaptureFixture, name: str
) -> None:
    """The write succeeds within seconds, says which table is left, and that table expires."""
    bench, operation = make_bench(), OPERATIONS[name]
    bench.proxy.inject(refuse(500, "backendError"), on="tables.delete", always=True)
    started = time.monotonic()
    table, ending = bench.run(operation)
    assert time.monotonic() - started < 15
    assert ending.error is None
    assert not list(violations(operation, bench.server, table, ending, may_be_unknown=False))
    (left,) = bench.server.staging(table.namespace)
    assert f"{left} could not be dropped" in caplog.text
    bench.proxy.heal()


def _commits(request: Request) -> bool:
    return request.starts_job and "_commit" in (request.job_id or "")
