"""A process that is killed or interrupted while it writes leaves old rows or new ones, truly told."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from typing import Any

import pytest

from bigquery.cases import (
    OPERATIONS,
    SOURCE,
    Operation,
    Server,
    ending_of,
    make_source,
    violations,
)
from bigquery.emulator import Emulator
from bigquery.fixtures import new_settings
from bigquery.proxy import Answer, Call, Fault, Proxy, Request, hold, hold_answer
from bigquery.writers import Writers, running_writers
from segmentstream._core.errors import WarehouseConnectionError
from segmentstream._warehouse.registry import create_engine
from segmentstream._warehouse.settings import WarehouseSettings
from segmentstream._warehouse.tables import TableRef

pytestmark = pytest.mark.slow

_KILLED = WarehouseConnectionError("It may have finished.", "It was killed.")
_ONE_DATE = OPERATIONS["replace of one date"]
_BROKEN = ("first write of dates", "replace of one date", "replace of a table")


@pytest.fixture(scope="module")
def writers() -> Iterator[Writers]:
    """Processes that write."""
    with running_writers() as running:
        yield running


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """Is what a test of a crash needs: who writes, the way to the server and the way past it."""

    writers: Writers
    proxy: Proxy
    server: Server
    url: str

    def start(self, kind: str, table: TableRef) -> int:
        """Starts a write in another process, by way of the proxy; gives the id of the process."""
        place = {"url": self.proxy.url, "project": self.server.project}
        (pid,) = self.writers.start(place | {"dataset": table.namespace, "kind": kind})
        return pid

    def requests_of(self, operation: Operation) -> int:
        """How many requests a whole write makes in a process of its own."""
        self.proxy.clear()
        self.start(operation.name, operation.prepare(self.server))
        assert self.writers.endings() == [{"rows": operation.rows, "error": None}]
        return len(self.proxy.requests())


@pytest.fixture
def scene(writers: Writers, proxy: Proxy, emulator: Emulator, settings: WarehouseSettings) -> Scene:
    """A project of the test, with the source of the writes."""
    server = Server(emulator.url, settings.catalog)
    make_source(server)
    return Scene(writers=writers, proxy=proxy, server=server, url=emulator.url)


def write_again(operation: Operation, server: Server, url: str, table: TableRef) -> list[str]:
    """Writes once more, as the next run does; gives what is wrong afterwards."""
    engine = create_engine(new_settings(url, catalog=server.project))
    source = engine.read(TableRef(catalog="", namespace=SOURCE[0], name=SOURCE[1]))
    ending = ending_of(lambda: operation.write(engine, source, table))
    engine.close()
    found = list(violations(operation, server, table, ending, may_be_unknown=False))
    return [*found, *([repr(ending.error)] if ending.error else [])]


def left_over(operation: Operation, server: Server, table: TableRef) -> list[str]:
    """Gives what is wrong after a kill, of which nothing can be told."""
    ending = ending_of(_killed)
    return list(violations(operation, server, table, ending, may_be_unknown=True))


def _killed() -> Any:
    raise _KILLED


@contextmanager
def released() -> Iterator[threading.Event]:
    """Lends an event, which is set in the end so that nobody waits for it."""
    event = threading.Event()
    try:
        yield event
    finally:
        event.set()


@pytest.mark.parametrize("name", _BROKEN)
@pytest.mark.parametrize("holding", [hold, hold_answer], ids=["request", "answer"])
def test_killed_at_any_request(
    scene: Scene,
    name: str,
    holding: Callable[[threading.Event], Fault],
) -> None:
    """Killed before a request arrives or before its answer does, the table is whole and writable."""
    operation = OPERATIONS[name]
    for number in range(1, scene.requests_of(operation) + 1):
        table = operation.prepare(scene.server)
        scene.proxy.clear()
        with released() as event:
            scene.proxy.inject(holding(event), at=number)
            pid = scene.start(name, table)
            scene.proxy.wait_for("", count=number)
            os.kill(pid, signal.SIGKILL)
            assert scene.writers.endings() == [None]
        scene.proxy.heal()
        settle(scene.proxy, scene.server)
        assert not left_over(operation, scene.server, table), number
        assert not write_again(operation, scene.server, scene.url, table), number


@pytest.mark.parametrize("runs", ["at once", "in the background"])
def test_killed_at_any_moment(
    scene: Scene,
    runs: str,
) -> None:
    """Fifteen kills spread over a first write leave a whole table that can be written."""
    operation, kills = OPERATIONS["first write of dates"], 0
    with scene.proxy.background_jobs() if runs == "in the background" else nullcontext():
        started = time.monotonic()
        scene.requests_of(operation)
        seconds = time.monotonic() - started
        for _ in range(15):
            table = operation.prepare(scene.server)
            pid = scene.start(operation.name, table)
            threading.Event().wait(random.uniform(0, seconds))
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            kills += scene.writers.endings() == [None]
            settle(scene.proxy, scene.server)
            assert not left_over(operation, scene.server, table)
            assert not write_again(operation, scene.server, scene.url, table)
    assert kills >= 3


_INTERRUPTS = pytest.mark.parametrize(
    ("kind", "number", "error"),
    [
        (_ONE_DATE.name, signal.SIGINT, "KeyboardInterrupt"),
        ("dagster", signal.SIGTERM, "DagsterExecutionInterruptedError"),
    ],
    ids=["KeyboardInterrupt", "SIGTERM of a Dagster run"],
)


@_INTERRUPTS
def test_an_interrupted_run_cancels_its_job(
    scene: Scene,
    kind: str,
    number: int,
    error: str,
) -> None:
    """The job that is waited for is cancelled, and nothing has changed, as the interrupt says."""
    table = _ONE_DATE.prepare(scene.server)
    with released() as start, scene.proxy.background_jobs(start):
        pid = scene.start(kind, table)
        scene.proxy.wait_for("queries.get")
        os.kill(pid, number)
        (told,) = scene.writers.endings()
    assert told is not None
    assert told["error"] == error
    assert "was cancelled, and it changed nothing" in told["text"]
    assert scene.proxy.requests("jobs.cancel")
    assert scene.server.state(table) == _ONE_DATE.old


@_INTERRUPTS
def test_an_interrupt_that_comes_too_late_says_that_the_rows_are_there(
    scene: Scene,
    kind: str,
    number: int,
    error: str,
) -> None:
    """A job that finishes before it can be cancelled has committed, and the interrupt says so."""
    table = _ONE_DATE.prepare(scene.server)
    with released() as start, scene.proxy.background_jobs(start):

        def too_late(call: Call) -> Answer:
            start.set()
            settle(scene.proxy, scene.server)
            return call.forward()

        scene.proxy.inject(too_late, on="jobs.cancel")
        pid = scene.start(kind, table)
        scene.proxy.wait_for("queries.get")
        os.kill(pid, number)
        (told,) = scene.writers.endings()
    assert told is not None
    assert told["error"] == error
    assert "had finished, and what it wrote stays" in told["text"]
    assert scene.server.state(table) == sorted(_ONE_DATE.new)


def test_a_job_whose_request_is_on_its_way_never_starts_after_an_interrupt(
    scene: Scene,
) -> None:
    """Interrupted while it submits, the write says that nothing changed, and that stays true."""
    table = _ONE_DATE.prepare(scene.server)
    with released() as event:
        scene.proxy.inject(hold(event), on="jobs.insert")
        pid = scene.start(_ONE_DATE.name, table)
        scene.proxy.wait_for("jobs.insert")
        os.kill(pid, signal.SIGINT)
        (told,) = scene.writers.endings()
    settle(scene.proxy, scene.server)
    assert told is not None
    assert told["error"] == "KeyboardInterrupt"
    assert "had not been taken, and it changed nothing" in told["text"]
    assert [each.status for each in scene.proxy.requests("jobs.insert")] == [409, 200]
    assert scene.server.state(table) == _ONE_DATE.old


def test_an_interrupt_after_the_commit_says_that_the_rows_are_there(
    scene: Scene,
) -> None:
    """A count that is cancelled is no word about the rows it was to count."""
    operation = OPERATIONS["replace of several dates"]
    table = operation.prepare(scene.server)
    with released() as event:
        scene.proxy.inject(hold(event), on=lambda request: "_count" in str(request.job_id))
        pid = scene.start(operation.name, table)
        scene.proxy.wait_for("jobs.insert", count=2)
        os.kill(pid, signal.SIGINT)
        (told,) = scene.writers.endings()
    assert told is not None
    assert told["error"] == "KeyboardInterrupt"
    assert "had committed before, and what it wrote stays" in told["text"]
    assert scene.server.state(table) == sorted(operation.new)


def settle(proxy: Proxy, server: Server) -> None:
    """Waits until every job that was sent has ended, as a killed client leaves it."""
    asking = Server(proxy.url, server.project)
    for request in proxy.requests():
        if request.starts_job:
            deadline = time.monotonic() + 30
            while _is_under_way(asking, proxy, request):
                assert time.monotonic() < deadline, request
                threading.Event().wait(0.01)


def _is_under_way(asking: Server, proxy: Proxy, request: Request) -> bool:
    now = next((each for each in proxy.requests() if each.number == request.number), request)
    if now.status is None:
        return True
    _, job = asking.ask("GET", f"/jobs/{request.job_id}")
    return bool(job.get("status", {}).get("state") in ("PENDING", "RUNNING"))
