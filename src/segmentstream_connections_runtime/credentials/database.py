"""Records in a database, SQLite or Postgres; imports its port and, with the first call, `tables`.

What the two databases do differently, `sqlite` and `postgres` say: how to connect, how to hold a
name, and what an error means.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Lock
from typing import TYPE_CHECKING, Protocol

from segmentstream_connections_runtime.credentials.base import (
    CredentialStore,
    GenerationMovedError,
    Hold,
    Record,
    StoreError,
)

if TYPE_CHECKING:
    import sqlalchemy as sa

_SECONDS_BETWEEN_SWEEPS = 600.0


class Database(Protocol):
    """Is the database of a store.

    Attributes:
        hold_proves_end: As that of the store.
        is_shared: Whether others keep tables in it too.
    """

    hold_proves_end: bool
    is_shared: bool

    def make_engine(self) -> sa.Engine:
        """Makes the engine, whose statements commit by themselves.

        Raises:
            StoreError: Its driver is missing, or its address is none.
        """

    def begin_creating(self, connection: sa.Connection) -> None:
        """Begins a transaction in which nobody else creates the tables."""

    def try_hold(self, name: str) -> Hold | None:
        """As `CredentialStore.try_hold`; an error of the driver may come as it is."""

    def reason(self, error: BaseException) -> str:
        """Says what an error of its driver means and what to do, without what the error says."""

    def close(self) -> None:
        """Lets go of what `try_hold` keeps open beside the holds."""


class DatabaseStore(CredentialStore):
    """Keeps each record in a row.

    Expired records are removed by writes, every ten minutes at most.
    """

    def __init__(self, database: Database, *, clock: Callable[[], float] = time.time) -> None:
        self.hold_proves_end = database.hold_proves_end
        self._database = database
        self._clock = clock
        self._engine: sa.Engine | None = None
        self._making = Lock()
        self._is_ready = False
        self._sweep_at = 0.0

    def read(self, name: str) -> Record | None:
        """As `CredentialStore.read`."""
        from segmentstream_connections_runtime.credentials import tables  # noqa: PLC0415

        with self._connected() as connection:
            return tables.read(connection, name)

    def write(
        self, name: str, content: bytes, *, expected: int, expires_at: float | None = None
    ) -> int:
        """As `CredentialStore.write`."""
        from segmentstream_connections_runtime.credentials import tables  # noqa: PLC0415

        now = self._clock()
        with self._connected() as connection:
            self._sweep(connection, now)
            written = (
                tables.update(
                    connection, name, content, expected=expected, expires_at=expires_at, now=now
                )
                if expected
                else tables.insert(connection, name, content, expires_at=expires_at, now=now)
            )
        if not written:
            raise _moved(name)
        return expected + 1

    def delete(self, name: str, *, expected: int) -> None:
        """As `CredentialStore.delete`."""
        from segmentstream_connections_runtime.credentials import tables  # noqa: PLC0415

        with self._connected() as connection:
            deleted = tables.delete(connection, name, expected)
        if not deleted:
            raise _moved(name)

    def names(self, prefix: str) -> list[str]:
        """As `CredentialStore.names`."""
        from segmentstream_connections_runtime.credentials import tables  # noqa: PLC0415

        with self._connected() as connection:
            return tables.names(connection, prefix)

    def try_hold(self, name: str) -> Hold | None:
        """As `CredentialStore.try_hold`."""
        with self._translated():
            return self._database.try_hold(name)

    def check(self) -> None:
        """As `CredentialStore.check`."""
        from segmentstream_connections_runtime.credentials import tables  # noqa: PLC0415

        with self._connected() as connection:
            tables.touch(connection)

    def close(self) -> None:
        """As `CredentialStore.close`."""
        self._database.close()
        if self._engine is not None:
            self._engine.dispose()

    @contextmanager
    def _connected(self) -> Iterator[sa.Connection]:
        with self._translated(), self._made_engine().connect() as connection:
            if not self._is_ready:
                self._prepare(connection)
            yield connection

    def _made_engine(self) -> sa.Engine:
        with self._making:
            if self._engine is None:
                self._engine = self._database.make_engine()
            return self._engine

    @contextmanager
    def _translated(self) -> Iterator[None]:
        import sqlalchemy as sa  # noqa: PLC0415 - as `tables`

        try:
            yield
        except sa.exc.SQLAlchemyError as error:
            self._is_ready = False  # somebody may have put another database in its place
            # Texts of drivers and of SQLAlchemy hold addresses, users and contents.
            raise StoreError(self._database.reason(getattr(error, "orig", error))) from None

    def _prepare(self, connection: sa.Connection) -> None:
        from segmentstream_connections_runtime.credentials import tables  # noqa: PLC0415

        found = tables.version(connection)
        if found is None:
            self._create(connection)
        elif found > tables.VERSION:
            raise StoreError(
                f"The credential store is of version {found}, and this release reads up to "
                f"{tables.VERSION}. Upgrade segmentstream-pipeline."
            )
        self._is_ready = True

    def _create(self, connection: sa.Connection) -> None:
        from segmentstream_connections_runtime.credentials import tables  # noqa: PLC0415

        try:
            self._database.begin_creating(connection)
            self._refuse_foreign(connection)
            tables.create(connection)
            connection.exec_driver_sql("COMMIT")
        except BaseException:
            connection.invalidate()  # which ends the transaction, wherever it broke
            raise

    def _refuse_foreign(self, connection: sa.Connection) -> None:
        from segmentstream_connections_runtime.credentials import tables  # noqa: PLC0415

        if not self._database.is_shared and tables.are_of_others(connection):
            raise StoreError(
                "The file of the credential store is the database of something else. It is left "
                "as it is; name another file."
            )

    def _sweep(self, connection: sa.Connection, now: float) -> None:
        from segmentstream_connections_runtime.credentials import tables  # noqa: PLC0415

        if now >= self._sweep_at:
            tables.delete_expired(connection, now)
            self._sweep_at = now + _SECONDS_BETWEEN_SWEEPS


def _moved(name: str) -> GenerationMovedError:
    return GenerationMovedError(
        f"The record {name} was changed by somebody else. Read it again and decide anew."
    )
