"""The credential store in a real Postgres."""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from threading import Barrier
from urllib.parse import urlsplit
from uuid import uuid4

import pytest

from connections_runtime.credentials.store_contract import Outage, StoreContract
from postgres import URL_VARIABLE, OwnPostgres, Postgres
from segmentstream_connections_runtime.credentials.base import CredentialStore, Record, StoreError
from segmentstream_connections_runtime.credentials.database import DatabaseStore
from segmentstream_connections_runtime.credentials.postgres import PostgresServer
from segmentstream_connections_runtime.credentials.registry import open_store


@pytest.fixture
def url(postgres: Postgres) -> Iterator[str]:
    """The address of an empty database."""
    with postgres.database() as address:
        yield address


class TestPostgres(StoreContract):
    @pytest.fixture
    def outage(self, postgres: Postgres) -> Outage:
        """The server is stopped as by a crash, and started again."""
        if not isinstance(postgres, OwnPostgres):
            pytest.skip(f"stops the server, so {URL_VARIABLE} must not name it")

        @contextmanager
        def stopped() -> Iterator[None]:
            postgres.stop()
            try:
                yield
            finally:
                postgres.start()

        return stopped


@pytest.fixture
def store(url: str) -> Iterator[CredentialStore]:
    """The store under test."""
    made = open_store(url)
    yield made
    made.close()


def test_a_cut_connection_is_mended_by_the_next_call(
    postgres: Postgres, url: str, store: CredentialStore
) -> None:
    """A failover between two calls is not noticed."""
    store.write("a", b"1", expected=0)
    for generation in range(1, 4):
        postgres.cut(url)
        assert store.write("a", b"2", expected=generation) == generation + 1
    postgres.cut(url)
    hold = store.try_hold("a")
    assert hold
    hold.release()
    postgres.cut(url)
    again = store.try_hold("a")
    assert again
    again.release()


def test_a_hold_that_was_cut_is_lost(postgres: Postgres, url: str, store: CredentialStore) -> None:
    """Its holder goes on without it, which is why a hold proves nothing here."""
    hold = store.try_hold("a")
    assert hold
    postgres.cut(url)
    other = open_store(url)
    taken = other.try_hold("a")
    assert taken
    hold.release()
    assert store.try_hold("a") is None
    taken.release()
    other.close()
    assert not store.hold_proves_end


def test_holds_take_no_connection_from_reads_and_writes(store: CredentialStore) -> None:
    """As many holds as a process has connections otherwise, and more, leave those free."""
    holds = [store.try_hold(str(number)) for number in range(10)]
    assert store.write("a", b"1", expected=0) == 1
    assert store.read("a") == Record(content=b"1", generation=1)
    for hold in holds:
        assert hold
        hold.release()


def test_a_hold_is_a_transaction_which_a_pooler_keeps_together(
    postgres: Postgres, url: str, store: CredentialStore
) -> None:
    """The lock is that of a transaction that stays open, and goes with it; no session keeps any."""
    hold = store.try_hold("a")
    assert hold
    held = (
        "SELECT state FROM pg_locks JOIN pg_stat_activity USING (pid) WHERE locktype = 'advisory'"
        " AND pg_locks.database = (SELECT oid FROM pg_database WHERE datname = current_database())"
    )
    assert postgres.run(held, url=url) == [("idle in transaction",)]
    hold.release()
    assert postgres.run(held, url=url) == []


def test_an_error_shows_neither_user_nor_password(postgres: Postgres) -> None:
    """Whatever the driver says of an address stays with the driver."""
    split = urlsplit(postgres.url)
    database = split.path.removeprefix("/")
    for address in (
        f"postgresql://nobody-user:hunter2@/{database}?{split.query}",
        "postgresql://nobody-user:hunter2@127.0.0.1:1/x",
        "postgresql://nobody-user:hunter2@127.0.0.1:port/x",
        "postgresql://nobody-user:hunter2@127.0.0.1/x?nonsense=hunter2",
        f"postgresql://nobody-user:hunter2@/missing?{split.query}",
    ):
        store = open_store(address)
        for call in (store.read, store.try_hold):
            with pytest.raises(StoreError) as failed:
                call("a")
            told = "".join(traceback.format_exception(failed.value)) + repr(store)
            assert "hunter2" not in told
            assert "nobody-user" not in told


def test_a_user_without_rights_is_told_so(
    postgres: Postgres, url: str, store: CredentialStore
) -> None:
    """A store that can be read and not written is not ready, and says what is missing."""
    if not isinstance(postgres, OwnPostgres):
        pytest.skip(f"needs a server that trusts its users, so {URL_VARIABLE} must not name one")
    store.write("a", b"1", expected=0)
    reader = f"reader_{uuid4().hex}"
    postgres.run(f"CREATE ROLE {reader} LOGIN", url=url)
    tables = "segmentstream_credentials, segmentstream_credentials_schema"
    postgres.run(f"GRANT SELECT ON {tables} TO {reader}", url=url)
    try:
        reading = open_store(url.replace("//postgres@", f"//{reader}@"))
        assert reading.read("a") == Record(content=b"1", generation=1)
        with pytest.raises(StoreError, match="Let its user"):
            reading.check()
        reading.close()
    finally:
        postgres.run(f"DROP OWNED BY {reader}", url=url)
        postgres.run(f"DROP ROLE {reader}", url=url)


def test_a_server_that_only_reads_is_not_ready(
    postgres: Postgres, url: str, store: CredentialStore
) -> None:
    """A standby is told as one."""
    store.write("a", b"1", expected=0)
    database = postgres.run("SELECT current_database()", url=url)[0][0]
    postgres.run(f"ALTER DATABASE {database} SET default_transaction_read_only = on")
    postgres.cut(url)
    with pytest.raises(StoreError, match="read-only"):
        store.check()
    assert store.read("a") == Record(content=b"1", generation=1)


def test_a_database_of_others_is_shared(
    postgres: Postgres, url: str, store: CredentialStore
) -> None:
    """Tables that are there stay, and those of the store come beside them."""
    postgres.run("CREATE TABLE runs (id integer)", url=url)
    store.write("a", b"1", expected=0)
    tables = postgres.run(
        "SELECT tablename FROM pg_tables WHERE schemaname = 'public' ORDER BY 1", url=url
    )
    assert [name for (name,) in tables] == [
        "runs", "segmentstream_credentials", "segmentstream_credentials_schema",
    ]  # fmt: skip


def test_many_may_make_the_tables_at_once(url: str) -> None:
    """Eight stores that all find an empty database agree on who makes the tables."""
    stores = [open_store(url) for _ in range(8)]
    together = Barrier(8)

    def write(number: int) -> int:
        together.wait()
        return stores[number].write(str(number), b"x", expected=0)

    with ThreadPoolExecutor(8) as threads:
        assert list(threads.map(write, range(8))) == [1] * 8
    for store in stores:
        store.close()


def test_a_store_of_a_newer_release_is_refused(
    postgres: Postgres, url: str, store: CredentialStore
) -> None:
    """A layout that this release does not know is not written over."""
    store.write("a", b"1", expected=0)
    postgres.run("UPDATE segmentstream_credentials_schema SET version = 2", url=url)
    newer = open_store(url)
    with pytest.raises(StoreError, match="Upgrade"):
        newer.read("a")
    newer.close()


def test_writes_remove_what_has_expired(url: str) -> None:
    """Every ten minutes at most, and never a record that has no end."""
    now = 1_000_000.0
    store = DatabaseStore(PostgresServer(url), clock=lambda: now)
    store.write("endless", b"x", expected=0)
    store.write("short", b"x", expected=0, expires_at=now + 1)
    now += 601
    store.write("endless", b"x", expected=1)
    assert store.names("") == ["endless"]
    store.close()
