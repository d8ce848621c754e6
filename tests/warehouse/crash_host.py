"""Writes to a DuckDB file in children that are killed, for `test_duckdb_crashes.py`.

Run as a process of its own: it imports everything once, opens no database, and forks a child for
each command on its standard input, so that fifty crashes take seconds:

    dates|table VERSION boundary N     the child kills itself before its N-th call of DuckDB
    dates|table VERSION moment S       the child is killed S seconds after it was started
    dates|table VERSION interrupt S    the child gets SIGTERM, whose handler raises

It answers with one line: `finished SECONDS`, `killed`, or `raised NAME`.
"""

from __future__ import annotations

import os
import signal
import sys
import time
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


class Interrupted(BaseException):
    """What the handler of SIGTERM raises, as Dagster's does: no `Exception`."""


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


class KillsItself:
    """A DuckDB connection that ends the process before one of its calls."""

    calls_left = sys.maxsize

    def __init__(self, connection: duckdb.DuckDBPyConnection) -> None:
        self._connection = connection

    # Any call of any signature is passed on.
    def __getattr__(self, name: str) -> Any:
        KillsItself.calls_left -= 1
        if KillsItself.calls_left <= 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return getattr(self._connection, name)


def kill_at_boundary(number: int) -> None:
    """Makes the process end before its `number`-th call of DuckDB, opening the file included."""
    KillsItself.calls_left = number
    connect = duckdb.connect

    def connecting(*args: Any, **options: Any) -> KillsItself:
        KillsItself.calls_left -= 1
        if KillsItself.calls_left <= 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return KillsItself(connect(*args, **options))

    duckdb.connect = connecting  # type: ignore[assignment]  # a stand-in that counts


def child(catalog: str, kind: str, version: int, how: str, number: int) -> NoReturn:
    """Writes, and says by the exit code how it ended."""
    if how == "boundary":
        kill_at_boundary(number)
    if how == "interrupt":
        signal.signal(signal.SIGTERM, interrupt)
    try:
        write(open_engine(catalog), kind, version)
    except Interrupted:
        os._exit(42)
    except BaseException as error:  # noqa: BLE001 - the exit code tells the test
        print(repr(error), file=sys.stderr, flush=True)
        os._exit(1)
    os._exit(0)


def interrupt(_number: int, _frame: FrameType | None) -> NoReturn:
    """Handles SIGTERM."""
    raise Interrupted


def main(catalog: str) -> None:
    """Serves commands until the input ends."""
    for line in sys.stdin:
        kind, version, how, number = line.split()
        started = time.monotonic()
        pid = os.fork()
        if pid == 0:
            child(catalog, kind, int(version), how, int(float(number)))
        if how in {"moment", "interrupt"}:
            time.sleep(float(number))
            os.kill(pid, signal.SIGKILL if how == "moment" else signal.SIGTERM)
        _, status = os.waitpid(pid, 0)
        if os.WIFSIGNALED(status):
            answer = "killed"
        elif os.WEXITSTATUS(status) == 0:
            answer = f"finished {time.monotonic() - started:.3f}"
        else:
            answer = "raised " + {42: "Interrupted"}.get(os.WEXITSTATUS(status), "another error")
        print(answer, flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
