"""Which address means which store; imports the port, and of the stores the one that is meant."""

from __future__ import annotations

from pathlib import Path

from segmentstream_connections_runtime.credentials.base import CredentialStore, StoreError

_KNOWN = (
    "Known are sqlite:///PATH, postgresql://USER:PASSWORD@HOST/DATABASE and "
    "secretmanager://PROJECT[/PREFIX][?location=LOCATION]."
)


def open_store(url: str) -> CredentialStore:
    """Gives the store of an address; it connects with the first call.

    Args:
        url: `sqlite:///relative/path`, `sqlite:////absolute/path`, `postgresql://...`, which may
            also begin with `postgres` or `postgresql+psycopg2`, or `secretmanager://project`,
            which may name a prefix of secrets and several `location`s.

    Raises:
        StoreError: It is no address of a store. The text does not repeat it.
    """
    match url.partition("://")[0]:
        case "sqlite":
            return _sqlite(url)
        case "postgresql" | "postgres" | "postgresql+psycopg2":
            return _postgres(url)
        case _:
            raise StoreError(f"The address of the credential store names no known kind. {_KNOWN}")


def _sqlite(url: str) -> CredentialStore:
    from segmentstream_connections_runtime.credentials.database import (  # noqa: PLC0415
        DatabaseStore,
    )
    from segmentstream_connections_runtime.credentials.sqlite import SqliteFile  # noqa: PLC0415

    path = url.removeprefix("sqlite:///")
    if path in {url, ""} or path.endswith("/") or "?" in path:
        raise StoreError(
            "The address of the credential store names no file. Write sqlite:///relative/path or "
            "sqlite:////absolute/path, and nothing after it."
        )
    return DatabaseStore(SqliteFile(Path(path).expanduser()))


def _postgres(url: str) -> CredentialStore:
    from segmentstream_connections_runtime.credentials.database import (  # noqa: PLC0415
        DatabaseStore,
    )
    from segmentstream_connections_runtime.credentials.postgres import (  # noqa: PLC0415
        PostgresServer,
    )

    return DatabaseStore(PostgresServer(url))
