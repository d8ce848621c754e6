"""Which address means which store; imports the port, and of the stores the one that is meant."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from segmentstream_connections_runtime.credentials.base import CredentialStore, StoreError

_PROJECT = re.compile(r"[a-z0-9.:-]{1,60}")
_PREFIX = re.compile(r"[a-z0-9_-]{1,60}")
_LOCATION = re.compile(r"[a-z0-9-]{1,60}")
_ENDPOINT = re.compile(r"127\.0\.0\.1:[0-9]{1,5}")
_NO_PROJECT = (
    "The address of the credential store names no project of Secret Manager. Write "
    "secretmanager://PROJECT, or secretmanager://PROJECT/PREFIX?location=LOCATION with a prefix of "
    "up to 60 small letters, digits, `_` and `-`."
)
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
        case "secretmanager":
            return _secret_manager(url)
        case _:
            raise StoreError(f"The address of the credential store names no known kind. {_KNOWN}")


def _sqlite(url: str) -> CredentialStore:
    from segmentstream_connections_runtime.credentials.database import (  # noqa: PLC0415
        DatabaseStore,
    )
    from segmentstream_connections_runtime.credentials.sqlite import SqliteFile  # noqa: PLC0415

    path = url.removeprefix("sqlite:///")
    if path in {url, "", ":memory:"} or path.endswith("/") or "?" in path:
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


def _secret_manager(url: str) -> CredentialStore:
    from segmentstream_connections_runtime.credentials.secret_api import SecretApi  # noqa: PLC0415
    from segmentstream_connections_runtime.credentials.secret_manager import (  # noqa: PLC0415
        SecretManagerStore,
    )

    try:
        parts = urlsplit(url)
    except ValueError:
        raise StoreError(_NO_PROJECT) from None
    query = parse_qs(parts.query, keep_blank_values=True)
    prefix = parts.path.removeprefix("/") or "segmentstream"
    locations = tuple(query.pop("location", ()))
    # A server on this machine, for tests; it is sent no Google credentials.
    endpoints = query.pop("endpoint", [])
    if (
        not _PROJECT.fullmatch(parts.netloc)
        or not _PREFIX.fullmatch(prefix)
        or not all(_LOCATION.fullmatch(each) for each in locations)
        or not all(_ENDPOINT.fullmatch(each) for each in endpoints)
        or query
        or parts.fragment
    ):
        raise StoreError(_NO_PROJECT)
    api = SecretApi(parts.netloc, locations=locations, endpoint=(*endpoints, None)[0])
    return SecretManagerStore(api, prefix=prefix)
