"""A credential store's SQLite file: private, whole, held by file locks; imports SQLAlchemy late.

The journal is SQLite's own rollback journal, with `synchronous=EXTRA`. Writes are rare and small,
so write-ahead logging would gain nothing, and would need shared memory that network folders lack
and leave two more files whose loss loses records. EXTRA also makes sure, unlike FULL, that
a journal once removed stays removed when the power fails.

Every call opens the file anew. That costs less than a millisecond, and what has become of the file
meanwhile is seen by the next call; no connection is ever carried into a forked process.
"""

from __future__ import annotations

import os
import sqlite3
import stat
import sys
import tempfile
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

from segmentstream_connections_runtime.credentials.base import Hold, StoreError

if TYPE_CHECKING:
    import sqlalchemy as sa
    from filelock import BaseFileLock

_OTHERS = stat.S_IRWXG | stat.S_IRWXO
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
_DAMAGED = (
    "The file of the credential store is damaged, or no credential store. It is left as it is; "
    "move it away, or name another file, and authorize again."
)
_DENIED = (
    "The file of the credential store cannot be opened or written. Check who owns it and its "
    "folder, and that the disk is not read-only."
)
_GONE = (  # not made anew: a disk that is not mounted is no empty store
    "The file of the credential store has gone. Bring it back; if it was removed on purpose, start "
    "again, which makes it anew."
)
# https://www.sqlite.org/rescode.html
_REASONS = {
    sqlite3.SQLITE_BUSY: "The credential store is in use by another process. Try again.",
    sqlite3.SQLITE_LOCKED: "The credential store is in use by another process. Try again.",
    sqlite3.SQLITE_PERM: _DENIED,
    sqlite3.SQLITE_READONLY: _DENIED,
    sqlite3.SQLITE_CANTOPEN: _DENIED,
    sqlite3.SQLITE_AUTH: _DENIED,
    sqlite3.SQLITE_CORRUPT: _DAMAGED,
    sqlite3.SQLITE_NOTADB: _DAMAGED,
    sqlite3.SQLITE_FULL: "The disk of the credential store is full. Make room and try again.",
    sqlite3.SQLITE_IOERR: "The credential store's disk failed to read or write. Check the disk.",
}


class SqliteFile:
    """Is the file of a store; see `Database`."""

    hold_proves_end = True
    is_shared = False

    def __init__(self, path: Path, *, wait_seconds: float = 10.0) -> None:
        self._path = path.absolute()
        self._wait_seconds = wait_seconds
        self._was_there = False

    def make_engine(self) -> sa.Engine:
        """As `Database.make_engine`."""
        import sqlalchemy as sa  # noqa: PLC0415 - as `tables`

        return sa.create_engine(
            "sqlite+pysqlite://",
            creator=self._connect,
            poolclass=sa.NullPool,
            isolation_level="AUTOCOMMIT",
            hide_parameters=True,
        )

    def begin_creating(self, connection: sa.Connection) -> None:
        """As `Database.begin_creating`."""
        connection.exec_driver_sql("BEGIN IMMEDIATE")

    def try_hold(self, name: str) -> Hold | None:
        """Locks a file of that name's hash: the kernel unlocks it when the process ends."""
        from filelock import FileLock, Timeout  # noqa: PLC0415 - as `tables`

        path = self._ready_path()
        folder = path.with_name(path.name + "-holds")
        try:
            folder.mkdir(mode=0o700, exist_ok=True)
            lock = FileLock(
                folder / sha256(name.encode()).hexdigest(), mode=0o600, thread_local=False
            )
            lock.acquire(blocking=False)
        except Timeout:
            return None
        except OSError:
            raise StoreError(_DENIED) from None
        return _FileHold(lock)

    def reason(self, error: BaseException) -> str:
        """As `Database.reason`."""
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        return _REASONS.get(code, "The credential store failed. Try again.")

    def close(self) -> None:
        """Does nothing: nothing is open."""

    def _ready_path(self) -> Path:
        # Where a link leads: its journal and its locks lie beside the file itself, for all who use
        # it, whichever way they come.
        path = Path(os.path.realpath(self._path))
        try:
            if self._was_there and not path.exists():
                raise StoreError(_GONE)
            _make_private(path)
        except OSError:
            raise StoreError(_DENIED) from None
        self._was_there = True
        return path

    def _connect(self) -> sqlite3.Connection:
        path = self._ready_path()
        connection = sqlite3.connect(
            f"{path.as_uri()}?mode=rw",
            uri=True,
            timeout=self._wait_seconds,
            isolation_level=None,
            check_same_thread=False,
        )
        connection.execute("PRAGMA synchronous=EXTRA")
        connection.execute("PRAGMA secure_delete=ON")
        return connection


class _FileHold:
    """Is a locked file."""

    def __init__(self, lock: BaseFileLock) -> None:
        self._lock = lock

    def release(self) -> None:
        """As `Hold.release`."""
        with suppress(OSError):
            self._lock.release()


def _make_private(path: Path) -> None:
    """Makes sure that the file exists, and that nobody else reads it or takes its place."""
    _make_folder_private(path)
    if not path.exists():
        _create(path)
    found = path.stat()
    if not stat.S_ISREG(found.st_mode):
        raise StoreError(f"{path} is no file. Name a file for the credential store.")
    if sys.platform != "win32":
        _refuse_of_others(found, f"The file {path}")
        # By its path: closing a descriptor of the file would drop SQLite's locks on it.
        if found.st_mode & _OTHERS:
            path.chmod(0o600)


def _make_folder_private(path: Path) -> None:
    folder = path.parent
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    is_own = all(
        each.name in {".gitignore", path.name} or each.name.startswith(f"{path.name}-")
        for each in folder.iterdir()
    )
    if sys.platform != "win32":
        found = folder.stat()
        _refuse_of_others(found, f"The folder {folder}")
        if is_own and found.st_mode & _OTHERS:
            folder.chmod(0o700)
        elif found.st_mode & _OTHERS_WRITE:
            raise StoreError(
                f"Others may write to the folder {folder}, and so put another file in the place of "
                "the credential store. Name a file in a folder of its own, which is made for it."
            )
    if is_own:
        with suppress(FileExistsError), (folder / ".gitignore").open("x") as ignored:
            ignored.write("*\n")


def _create(path: Path) -> None:
    # Made elsewhere and linked, so that no other process meets it with other rights, and no
    # descriptor of it is closed once SQLite may have locked it.
    descriptor, made = tempfile.mkstemp(prefix=f"{path.name}-", dir=path.parent)
    os.close(descriptor)
    try:
        with suppress(FileExistsError):
            os.link(made, path)
    finally:
        Path(made).unlink()


def _refuse_of_others(found: os.stat_result, what: str) -> None:
    if sys.platform != "win32" and found.st_uid != os.geteuid():
        raise StoreError(
            f"{what} belongs to somebody else, who could read or change the credentials. Name a "
            "file in a folder of your own."
        )
