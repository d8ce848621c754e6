"""Writes to a DuckDB file in children that are killed, for `test_duckdb_crashes.py`.

Run as a process of its own: it imports everything once, opens no database, and forks a child for
each command on its standard input, so that fifty crashes take seconds:

    dates|table VERSION boundary N     the child kills itself before its N-th call of DuckDB
    dates|table VERSION moment S       the child is killed S seconds after it was started
    dates|table VERSION interrupt N    a signal whose handler raises comes during the N-th call

It answers with one line: `finished SECONDS`, `killed`, `raised NAME`, or `swallowed` where a
handler raised and the write went on as if nothing had been.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable
from datetime import date, timedelta
from types import FrameType
from typing import Any, NoReturn

import duckdb
import ibis

from segmentstream._warehouse.engine import WarehouseEngine
from segmentstream._warehouse.registry import create_engine
from segmentstream._warehouse.settings import WarehouseSettings
from segmentstream._warehouse.tables import TableRef

DATES = [date(2024, 5, 1) + timedelta(days=step) for step in range(10)]
ROWS_PER_DATE = 30_000
TABLES = {
    kind: TableRef(catalog="", namespace="crash", name=kind)
    for kind in ("source", "dates", "table")
}


_INTERRUPTED, _SWALLOWED = 42, 43
_ANSWERS = {_INTERRUPTED: "raised Interrupted", _SWALLOWED: "swallowed"}

interrupted: list[bool] = []  # filled by the handler, in the child


class Interrupted(BaseException):
    """What a signal handler raises, as Dagster's does: no `Exception`."""


def open_engine(catalog: str) -> WarehouseEngine:
    """An engine on the file of the test."""
    return create_engine(
        WarehouseSettings(engine="duckdb", catalog=catalog, default_namespace="main")
    )


def write(engine: WarehouseEngine, kind: str, version: int) -> None:
    """Replaces a table, or all of its dates, by rows that carry `version`."""
    rows = engine.read(TABLES["source"]).mutate(version=ibis.literal(version).cast("int64"))
    if kind == "dates":
        engine.replace_partitions(TABLES["dates"], rows, "day", DATES)
    else:
        engine.replace(TABLES["table"], rows)


class Counting:
    """A DuckDB connection that does something before one of its calls."""

    calls_left = sys.maxsize
    then: Callable[[], None]

    def __init__(self, connection: duckdb.DuckDBPyConnection) -> None:
        self._connection = connection

    # Any call of any signature is passed on.
    def __getattr__(self, name: str) -> Any:
        Counting.count()
        return getattr(self._connection, name)

    @classmethod
    def count(cls) -> None:
        cls.calls_left -= 1
        if cls.calls_left == 0:
            cls.then()


def before_call(number: int, then: Callable[[], None]) -> None:
    """Arranges for `then` before the `number`-th call of DuckDB, opening the file included."""
    Counting.calls_left, Counting.then = number, then
    connect = duckdb.connect

    def connecting(*args: Any, **options: Any) -> Counting:
        Counting.count()
        return Counting(connect(*args, **options))

    duckdb.connect = connecting  # type: ignore[assignment]  # a stand-in that counts


def kill_itself() -> None:
    """Ends the process as a crash does."""
    os.kill(os.getpid(), signal.SIGKILL)


def interrupt_soon() -> None:
    """Lets a signal arrive while the call that follows is at work."""
    signal.setitimer(signal.ITIMER_REAL, 0.005)


def child(catalog: str, kind: str, version: int, how: str, number: int) -> NoReturn:
    """Writes, and says by the exit code how it ended."""
    if how == "boundary":
        before_call(number, kill_itself)
    if how == "interrupt":
        signal.signal(signal.SIGALRM, interrupt)
        before_call(number, interrupt_soon)
    try:
        write(open_engine(catalog), kind, version)
        os._exit(_SWALLOWED if interrupted else 0)
    except Interrupted:
        os._exit(_INTERRUPTED)
    except BaseException as error:  # noqa: BLE001 - the exit code tells the test
        print(repr(error), file=sys.stderr, flush=True)
        os._exit(1)


def interrupt(_number: int, _frame: FrameType | None) -> NoReturn:
    """Handles the signal."""
    interrupted.append(True)
    raise Interrupted


def wait(pid: int, kill_after_seconds: float | None) -> int:
    """Waits for a child, which is killed when it takes longer; gives how it ended."""
    if kill_after_seconds is not None:
        deadline = time.monotonic() + kill_after_seconds
        while time.monotonic() < deadline:
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                return status
            time.sleep(0.001)
        os.kill(pid, signal.SIGKILL)
    return os.waitpid(pid, 0)[1]


def main(catalog: str) -> None:
    """Serves commands until the input ends."""
    for line in sys.stdin:
        kind, version, how, number = line.split()
        started = time.monotonic()
        pid = os.fork()
        if pid == 0:
            child(catalog, kind, int(version), how, int(float(number)))
        status = wait(pid, float(number) if how == "moment" else None)
        if os.WIFSIGNALED(status):
            answer = "killed"
        elif os.WEXITSTATUS(status) == 0:
            answer = f"finished {time.monotonic() - started:.3f}"
        else:
            answer = _ANSWERS.get(os.WEXITSTATUS(status), "raised another error")
        print(answer, flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
