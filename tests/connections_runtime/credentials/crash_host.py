"""Writes to a credential store in children that can be killed, for `test_sqlite.py`.

Run as a process of its own: it imports everything once, and forks a child for each line on its
standard input, so that hundreds of crashes take seconds.

    PATH EXPECTED VERSION    a child, whose pid is answered, waits for an empty line, then writes
                             what `content_of` gives; `written` or `killed` says how it ended
"""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

import sqlalchemy.dialects.sqlite.pysqlite  # noqa: F401 - all is loaded before anything is forked

from segmentstream_connections_runtime.credentials import tables  # noqa: F401
from segmentstream_connections_runtime.credentials.database import DatabaseStore
from segmentstream_connections_runtime.credentials.sqlite import SqliteFile

_PR_SET_PTRACER = 0x59616D61


def content_of(version: int) -> bytes:
    """A content of several pages that shows whether it is whole."""
    return f"{version} ".encode() * 3000


def _line() -> list[str]:
    """Reads a line without reading ahead: parent and child share the input."""
    found = b""
    while not found.endswith(b"\n"):
        got = os.read(0, 1)
        if not got:
            break
        found += got
    return found.decode().split()


def main() -> None:
    """Serves lines until the input ends."""
    while asked := _line():
        path, expected, version = asked
        pid = os.fork()
        if pid == 0:
            ctypes.CDLL(None).prctl(_PR_SET_PTRACER, -1)  # lets strace in where Linux is strict
            print(os.getpid(), flush=True)
            _line()
            store = DatabaseStore(SqliteFile(Path(path)))
            store.write("a", content_of(int(version)), expected=int(expected))
            os._exit(0)
        status = os.waitpid(pid, 0)[1]
        print("killed" if os.WIFSIGNALED(status) else "written", flush=True)


if __name__ == "__main__":
    main()
