"""A credential store's Postgres: addresses, connections, advisory locks; imports SQLAlchemy late.

Every statement commits by itself and a hold is one transaction, so a pooler such as PgBouncer may
stand between, in its transaction mode.
"""

from __future__ import annotations

from contextlib import suppress
from hashlib import sha256
from threading import Lock
from typing import TYPE_CHECKING

from segmentstream_connections_runtime.credentials.base import Hold, StoreError

if TYPE_CHECKING:
    import sqlalchemy as sa

_CONNECTIONS = 4
_HOLDS = 20
_WAIT_SECONDS = 10
# A peer that is gone without a word is noticed within about half a minute; see
# https://www.postgresql.org/docs/current/libpq-connect.html#LIBPQ-PARAMKEYWORDS
_NETWORK = {
    "connect_timeout": "5",
    "keepalives_idle": "10",
    "keepalives_interval": "5",
    "keepalives_count": "3",
    "tcp_user_timeout": "20000",
    "application_name": "segmentstream-connections",
}
_NO_ADDRESS = (
    "The address of the credential store is no address of Postgres. Write "
    "postgresql://user:password@host/database, with % codes for special characters."
)
_UNREACHABLE = (
    "The Postgres of the credential store cannot be reached, or ended the connection. Check host, "
    "port, database, user and password of its address, and that it runs."
)
# By the class of the SQLSTATE: https://www.postgresql.org/docs/current/errcodes-appendix.html
_REASONS = {
    "08": _UNREACHABLE,
    "22": "The credential store refused a record as too long. Report this.",
    "25": "The Postgres of the credential store is read-only. Name the primary server.",
    "28": "The Postgres of the credential store refused the login. Check user and password.",
    "3D": "The Postgres of the credential store has no such database. Create it.",
    "40": "The Postgres of the credential store gave way to another transaction. Try again.",
    "42": "The credential store's tables cannot be used or made. Let its user create tables.",
    "53": "The Postgres of the credential store lacks connections, memory or disk. Make room.",
    "57": _UNREACHABLE,
}


class PostgresServer:
    """Is the server of a store; see `Database`. Its repr shows no address."""

    hold_proves_end = False
    is_shared = True

    def __init__(self, address: str) -> None:
        self._address = address
        self._holding: sa.Engine | None = None
        self._making = Lock()

    def make_engine(self) -> sa.Engine:
        """As `Database.make_engine`."""
        return self._make_engine(
            pool_size=_CONNECTIONS,
            max_overflow=0,
            pool_timeout=_WAIT_SECONDS,
            isolation_level="AUTOCOMMIT",
        )

    def begin_creating(self, connection: sa.Connection) -> None:
        """As `Database.begin_creating`; CREATE TABLE IF NOT EXISTS alone fails for the second."""
        import sqlalchemy as sa  # noqa: PLC0415 - as `tables`

        connection.exec_driver_sql("BEGIN")
        connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_key("create tables", ""))))

    def try_hold(self, name: str) -> Hold | None:
        """Takes an advisory lock in a transaction that stays open while it is held."""
        import sqlalchemy as sa  # noqa: PLC0415 - as `tables`

        with self._making:
            if self._holding is None:
                # Apart from the others, which whoever holds a name goes on to need.
                self._holding = self._make_engine(
                    pool_size=1, max_overflow=_HOLDS - 1, pool_timeout=0
                )
        try:
            connection = self._holding.connect()
        except sa.exc.TimeoutError:
            # Each of them holds something. Waiting here would keep a thread from whoever goes on.
            return None
        try:
            if connection.scalar(sa.select(sa.func.pg_try_advisory_xact_lock(_key("hold", name)))):
                return _TransactionHold(connection)
        except BaseException:  # an interrupt too: an open transaction would keep the lock
            connection.close()
            raise
        connection.close()
        return None

    def reason(self, error: BaseException) -> str:
        """As `Database.reason`."""
        state = getattr(error, "pgcode", None)
        if state is None:
            return _UNREACHABLE
        return _REASONS.get(state[:2], f"The credential store failed ({state}). Try again.")

    def close(self) -> None:
        """As `Database.close`."""
        if self._holding is not None:
            self._holding.dispose()

    # What create_engine takes.
    def _make_engine(self, **options: object) -> sa.Engine:
        import sqlalchemy as sa  # noqa: PLC0415 - as `tables`

        try:
            url = sa.make_url(self._address)
            url = url.set(drivername="postgresql+psycopg2").update_query_dict(
                {key: value for key, value in _NETWORK.items() if key not in url.query}
            )
            return sa.create_engine(
                url,
                pool_pre_ping=True,
                hide_parameters=True,
                **options,
            )
        except (sa.exc.ArgumentError, ValueError):
            raise StoreError(_NO_ADDRESS) from None
        except ModuleNotFoundError:
            raise StoreError(
                "A credential store in Postgres needs a driver. Install psycopg2-binary."
            ) from None


class _TransactionHold:
    """Is an advisory lock and the transaction that has it."""

    def __init__(self, connection: sa.Connection) -> None:
        self._connection = connection

    def release(self) -> None:
        """As `Hold.release`."""
        import sqlalchemy as sa  # noqa: PLC0415 - as `tables`

        with suppress(sa.exc.SQLAlchemyError):
            self._connection.close()


def _key(purpose: str, name: str) -> int:
    digest = sha256(f"segmentstream credentials\n{purpose}\n{name}".encode()).digest()
    return int.from_bytes(digest[:8], signed=True)
