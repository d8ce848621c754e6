"""Which address opens which store."""

from __future__ import annotations

import subprocess
import sys
import traceback
from pathlib import Path

import pytest

from segmentstream_connections_runtime.credentials.base import StoreError
from segmentstream_connections_runtime.credentials.database import DatabaseStore
from segmentstream_connections_runtime.credentials.registry import open_store
from segmentstream_connections_runtime.credentials.secret_manager import SecretManagerStore


@pytest.mark.parametrize(
    ("url", "kind", "proves_end"),
    [
        ("sqlite:///credentials.db", DatabaseStore, True),
        ("sqlite:////var/lib/credentials.db", DatabaseStore, True),
        ("postgresql://user:password@host/database", DatabaseStore, False),
        ("postgres://user@host:5432/database?sslmode=require", DatabaseStore, False),
        ("postgresql+psycopg2://user@/database?host=/cloudsql/a:b:c", DatabaseStore, False),
        ("secretmanager://project", SecretManagerStore, False),
        ("secretmanager://project/prefix?location=europe-west1", SecretManagerStore, False),
        ("secretmanager://p/x?location=europe-west1&location=us-east1", SecretManagerStore, False),
    ],
)
def test_an_address_opens_its_store(url: str, kind: type, proves_end: bool) -> None:
    """Opening needs nothing to be there, and makes nothing."""
    store = open_store(url)
    assert isinstance(store, kind)
    assert store.hold_proves_end is proves_end


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("", "Known are sqlite.*postgresql.*secretmanager"),
        ("credentials.db", "Known are"),
        ("mysql://user:hunter2@host/database", "Known are"),
        ("hunter2", "Known are"),
        ("sqlite://", "names no file"),
        ("sqlite:///", "names no file"),
        ("sqlite:///folder/", "names no file"),
        ("sqlite:///:memory:", "names no file"),
        ("sqlite:///a.db?key=hunter2", "names no file"),
        ("sqlite://user:hunter2@host/a.db", "names no file"),
        ("secretmanager://", "names no project"),
        ("secretmanager://user:hunter2@project", "names no project"),
        ("secretmanager://project/Prefix", "names no project"),
        ("secretmanager://project/a/b", "names no project"),
        ("secretmanager://project?key=hunter2", "names no project"),
        ("secretmanager://project?location=", "names no project"),
        ("secretmanager://project?endpoint=hunter2.example:80", "names no project"),
        ("secretmanager://[hunter2", "names no project"),
    ],
)
def test_what_is_no_address_is_refused_and_not_repeated(url: str, told: str) -> None:
    """The text says what is known; whatever was written may be a password in the wrong place."""
    with pytest.raises(StoreError, match=told) as refused:
        open_store(url)
    assert "hunter2" not in "".join(traceback.format_exception(refused.value))


def test_opening_a_store_loads_no_driver() -> None:
    """The service starts without SQLAlchemy, Google's client and the drivers."""
    snippet = """
import sys
from segmentstream_connections_runtime.credentials.registry import open_store
open_store("sqlite:///a.db"), open_store("postgresql://h/d"), open_store("secretmanager://p")
print([name for name in ("sqlalchemy", "filelock", "psycopg2", "google", "requests") if name in sys.modules])
"""
    told = subprocess.run(
        [sys.executable, "-c", snippet], capture_output=True, text=True, check=True
    )
    assert told.stdout == "[]\n"


@pytest.mark.parametrize(
    ("url", "missing", "told"),
    [
        ("secretmanager://p", "google.cloud.secretmanager_v1", "pipeline[secret-manager]"),
        ("postgresql://h/d", "psycopg2", "psycopg2-binary"),
    ],
)
def test_a_missing_driver_is_named(url: str, missing: str, told: str, tmp_path: Path) -> None:
    """Where the library of a store is not installed, the first call says what to install."""
    snippet = f"""
import sys
sys.modules[{missing!r}] = None
from segmentstream_connections_runtime.credentials.base import StoreError
from segmentstream_connections_runtime.credentials.registry import open_store
for call in (open_store({url!r}).read, open_store({url!r}).try_hold):
    try:
        call("a")
    except StoreError as error:
        print(error)
"""
    lines = subprocess.run(
        [sys.executable, "-c", snippet], capture_output=True, text=True, check=True
    ).stdout.splitlines()
    assert [told in line for line in lines] == [True, True]
