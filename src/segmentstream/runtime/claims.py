"""Lets one process at a time do a thing, by a lock in Postgres; imports SQLAlchemy only.

The lock belongs to a transaction that stays open: it ends with its process however that ends, and
it also works behind a pooler that hands connections out by transaction. Processes that are forked
meanwhile share the socket, so the lock outlives its owner until they are gone too.
"""

from __future__ import annotations

import hashlib
from enum import Enum

import sqlalchemy
from sqlalchemy.engine import Connection
from sqlalchemy.exc import DBAPIError
from sqlalchemy.pool import NullPool


class Held(Enum):
    """Says whether a claim is still ours."""

    YES = "yes"
    NO = "no"  # another process has it
    UNKNOWN = "unknown"  # Postgres cannot be asked now


class Claim:
    """Is the right to do what has that name, for one process at a time."""

    def __init__(self, url: str, name: str) -> None:
        self._engine = sqlalchemy.create_engine(url, poolclass=NullPool)
        self._key = int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], signed=True)
        self._connection: Connection | None = None

    def take(self) -> bool:
        """Takes it if nobody has it; says whether it is ours.

        Raises:
            DBAPIError: Postgres cannot be asked.
        """
        connection = self._engine.connect()
        statement = sqlalchemy.text("SELECT pg_try_advisory_xact_lock(:key)")
        try:
            is_ours = bool(connection.execute(statement, {"key": self._key}).scalar())
        except DBAPIError:
            connection.invalidate()
            connection.close()
            raise
        if is_ours:
            self._connection = connection
        else:
            connection.close()
        return is_ours

    def check(self) -> Held:
        """Says whether it is still ours; takes it again after an outage of Postgres."""
        try:
            if self._connection is not None:
                self._connection.execute(sqlalchemy.text("SELECT 1"))
                return Held.YES
            return Held.YES if self.take() else Held.NO
        except DBAPIError:
            self._drop()
            return Held.UNKNOWN

    def release(self) -> None:
        """Gives it back."""
        if self._connection is not None:
            try:
                self._connection.close()
            except DBAPIError:
                self._drop()
            self._connection = None

    def _drop(self) -> None:
        if self._connection is not None:
            self._connection.invalidate()
            self._connection.close()
            self._connection = None
