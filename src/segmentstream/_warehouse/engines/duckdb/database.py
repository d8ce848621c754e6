"""Access to one DuckDB database for many threads and processes; imports duckdb and `_core`.

DuckDB locks its file for a whole process: one that writes keeps every other process out, and one
process cannot hold a reading and a writing connection at once. So a connection is held only while
it works, readers open the file without the write lock, and whoever has to wait does so for a
bounded time.
"""

from __future__ import annotations

import logging
import multiprocessing
import random
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import duckdb

from segmentstream._core.errors import WarehouseConfigurationError, WarehouseConnectionError
from segmentstream._core.names import CATALOG_VARIABLE
from segmentstream._warehouse.engines.duckdb.errors import (
    holder_of,
    is_held_elsewhere,
    is_no_database,
)

_FIRST_PAUSE_SECONDS = 0.01
_LONGEST_PAUSE_SECONDS = 0.5
_SECONDS_TO_BE_MADE = 10.0
_MAGIC = slice(8, 12), b"DUCK"  # after a checksum
_IN_MEMORY = ":memory:"

_log = logging.getLogger(__name__)
_databases: dict[str, Database] = {}
_databases_lock = threading.Lock()


class Database(ABC):
    """Lends connections to one database, each for as long as one piece of work takes.

    Attributes:
        identity: The same for every object that reaches the same data.
        uri: Where a person finds the database.
    """

    identity: str
    uri: str

    @abstractmethod
    def exists(self) -> bool:
        """Says whether there is anything to read yet.

        Raises:
            WarehouseConnectionError: It cannot be told.
        """

    @abstractmethod
    def session(
        self, *, write: bool, wait_seconds: float
    ) -> AbstractContextManager[duckdb.DuckDBPyConnection]:
        """Lends a connection within a `with` block.

        Raises:
            WarehouseConnectionError: The file cannot be opened, or others held it for longer
                than `wait_seconds`; the message names the file and the holder.
        """


def find_database(catalog: str) -> Database:
    """Gives the database of a catalog: one object a process, however many resources name it.

    Args:
        catalog: A path, or `:memory:`, optionally with a name (`:memory:tests`) for one of its
            own. A relative path starts at the workspace: the nearest folder at or above the
            working directory that holds a `pyproject.toml`, or the working directory itself
            where no folder does.

    Raises:
        WarehouseConfigurationError: The catalog is no local path, or it is in memory and this
            process was started by another one, whose data it could not see.
    """
    in_memory = catalog.startswith(_IN_MEMORY)
    if in_memory and multiprocessing.parent_process() is not None:
        raise WarehouseConfigurationError(
            f"{CATALOG_VARIABLE} is {catalog!r}, but this run spreads over several processes, "
            "and a database in memory is seen by one process only.",
            "Name a file, or run everything in one process: dg.materialize(...) or "
            "execute_in_process().",
        )
    identity = catalog if in_memory else str(_resolve_path(catalog))
    with _databases_lock:
        if identity not in _databases:
            _databases[identity] = (
                _MemoryDatabase(identity) if in_memory else _FileDatabase(Path(identity))
            )
        return _databases[identity]


def _resolve_path(catalog: str) -> Path:
    if "://" in catalog or catalog.startswith("md:"):
        raise WarehouseConfigurationError(
            f"{CATALOG_VARIABLE} is {catalog!r}, which is no file of this machine.",
            "Give the path of a local DuckDB file, such as warehouse.duckdb.",
        )
    path = Path(catalog).expanduser()
    if path.is_absolute():
        return path.resolve()
    here = Path.cwd()
    workspace = next(
        (folder for folder in (here, *here.parents) if (folder / "pyproject.toml").is_file()), here
    )
    return (workspace / path).resolve()


class _FileDatabase(Database):
    """Shares a file: threads through the counters here, processes through DuckDB's own lock."""

    def __init__(self, path: Path) -> None:
        self.identity = str(path)
        self.uri = path.as_uri().replace("file:", "duckdb:", 1)
        self._path = path
        self._changed = threading.Condition()
        self._sessions = 0
        self._sessions_are_writing = False  # how the file is open while there are sessions
        self._writer_at_work = False
        self._writers_waiting = 0
        self._own = threading.local()
        # DuckDB 1.5 can lose the file when one thread opens it while another closes it. Held for
        # one call of DuckDB at a time, never while waiting for another process.
        self._opening_or_closing = threading.Lock()

    def exists(self) -> bool:
        try:
            self._path.stat()
        except FileNotFoundError:
            return False
        except OSError as error:
            raise WarehouseConnectionError(
                f"The DuckDB file {self._path} cannot be looked up: {error.strerror}.",
                f"Check {CATALOG_VARIABLE} and the permissions of the folder.",
            ) from error
        return True

    @contextmanager
    def session(self, *, write: bool, wait_seconds: float) -> Iterator[duckdb.DuckDBPyConnection]:
        deadline = time.monotonic() + wait_seconds
        self._enter(write=write, deadline=deadline)
        try:
            connection = self._connect(deadline)
            try:
                yield connection
            finally:
                with self._opening_or_closing:
                    _close(connection)
        finally:
            self._leave(write=write)

    def _enter(self, *, write: bool, deadline: float) -> None:
        with self._changed:
            self._writers_waiting += write
            try:
                entered = self._changed.wait_for(
                    self._may_write if write else self._may_read, deadline - time.monotonic()
                )
            finally:
                self._writers_waiting -= write
            if not entered:
                raise self._held_too_long("another thread of this process")
            if not self._sessions:
                self._sessions_are_writing = write
            self._sessions += 1
            self._writer_at_work = self._writer_at_work or write
            self._own.sessions = self._sessions_of_this_thread() + 1

    def _may_write(self) -> bool:
        return not self._sessions or (self._sessions_are_writing and not self._writer_at_work)

    def _may_read(self) -> bool:
        # A thread that already reads goes on: made to wait behind a writer, it would wait for
        # itself. Any other lets a waiting writer go first.
        return (
            self._sessions_are_writing
            or not self._writers_waiting
            or not self._sessions
            or self._sessions_of_this_thread() > 0
        )

    def _sessions_of_this_thread(self) -> int:
        return getattr(self._own, "sessions", 0)

    def _leave(self, *, write: bool) -> None:
        with self._changed:
            self._sessions -= 1
            self._own.sessions -= 1
            if write:
                self._writer_at_work = False
            self._changed.notify_all()

    def _connect(self, deadline: float) -> duckdb.DuckDBPyConnection:
        if self._sessions_are_writing:
            self._create_folder()
        pause_seconds = _FIRST_PAUSE_SECONDS
        made_until = min(deadline, time.monotonic() + _SECONDS_TO_BE_MADE)
        while True:
            try:
                with self._opening_or_closing:
                    return _prepare(
                        duckdb.connect(self._path, read_only=not self._sessions_are_writing)
                    )
            except duckdb.Error as error:
                is_being_made = is_no_database(error) and self._may_be_being_made(made_until)
                if not is_held_elsewhere(error) and not is_being_made:
                    raise WarehouseConnectionError(
                        f"The DuckDB file {self._path} cannot be opened: {error}",
                        f"Check {CATALOG_VARIABLE}, the permissions of the file and its folder, "
                        "and that no newer DuckDB made it.",
                    ) from error
                if time.monotonic() + pause_seconds > deadline:
                    raise self._held_too_long(holder_of(error)) from error
            time.sleep(pause_seconds * random.uniform(0.5, 1.5))  # noqa: S311 - spreads waiters
            pause_seconds = min(pause_seconds * 2, _LONGEST_PAUSE_SECONDS)

    def _may_be_being_made(self, until: float) -> bool:
        """Says whether another process may have made the file just now, and not yet written to it.

        DuckDB locks a new file only after it has made it, so others can find it empty.
        """
        place, magic = _MAGIC
        try:
            with self._path.open("rb") as file:
                begin = file.read(place.stop)
        except OSError:
            return False
        return time.monotonic() < until and (not begin or begin[place] == magic)

    def _create_folder(self) -> None:
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise WarehouseConnectionError(
                f"The folder of the DuckDB file {self._path} cannot be made: {error.strerror}.",
                f"Check {CATALOG_VARIABLE} and the permissions of the folder.",
            ) from error

    def _held_too_long(self, holder: str) -> WarehouseConnectionError:
        return WarehouseConnectionError(
            f"The DuckDB file {self._path} is held by {holder}, and the time to wait for it "
            "ran out.",
            "Close that process (a notebook, a SQL client, another run), or give "
            "WarehouseResource(wait_seconds=...) more time.",
            retryable=True,
        )


class _MemoryDatabase(Database):
    """Keeps a database in the memory of this process, for as long as the process lives."""

    def __init__(self, identity: str) -> None:
        self.identity = identity
        self.uri = f"duckdb:{identity}"
        self._anchor = _prepare(duckdb.connect(_IN_MEMORY))
        self._writing = threading.Lock()
        self._lending = threading.Lock()

    def exists(self) -> bool:
        return True

    @contextmanager
    def session(self, *, write: bool, wait_seconds: float) -> Iterator[duckdb.DuckDBPyConnection]:
        if write and not self._writing.acquire(timeout=wait_seconds):
            raise WarehouseConnectionError(
                f"The DuckDB database {self.identity} is held by another thread of this process, "
                "and the time to wait for it ran out.",
                "Give WarehouseResource(wait_seconds=...) more time.",
                retryable=True,
            )
        try:
            with self._lending:
                connection = _prepare(self._anchor.cursor())
            try:
                yield connection
            finally:
                _close(connection)
        finally:
            if write:
                self._writing.release()


def _prepare(connection: duckdb.DuckDBPyConnection) -> duckdb.DuckDBPyConnection:
    # The result of a query must not depend on the machine's time zone, nor a table's name on the
    # variables of whoever runs it.
    connection.execute("SET TimeZone = 'UTC'")
    connection.execute("SET python_enable_replacements = false")
    return connection


def _close(connection: duckdb.DuckDBPyConnection) -> None:
    # Closing folds the log into the file. What was committed is safe in the log already, so a
    # failure here must not turn a committed write into a failed one.
    try:
        connection.close()
    except duckdb.Error:
        _log.warning("A DuckDB connection could not be closed cleanly.", exc_info=True)
