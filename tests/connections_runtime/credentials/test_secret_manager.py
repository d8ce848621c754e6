"""The credential store in Secret Manager, on a server that keeps to Google's documents."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from functools import partial

import pytest

from connections_runtime.credentials.store_contract import (
    SENTINEL,
    Outage,
    StoreContract,
    running_host,
)
from connections_runtime.secret_manager_server import (
    PROJECT,
    SecretManagerServer,
    running_secret_manager,
)
from segmentstream_connections_runtime.credentials.base import (
    CredentialStore,
    GenerationMovedError,
    Record,
    StoreError,
)
from segmentstream_connections_runtime.credentials.registry import open_store
from segmentstream_connections_runtime.credentials.secret_api import SecretApi
from segmentstream_connections_runtime.credentials.secret_manager import (
    HOLD_SECONDS,
    SecretManagerStore,
)


@pytest.fixture
def server() -> Iterator[SecretManagerServer]:
    """A project without secrets."""
    with running_secret_manager() as running:
        yield running


@pytest.fixture
def url(server: SecretManagerServer) -> str:
    """The address of the store."""
    return server.url


class TestSecretManager(StoreContract):
    times = 3
    model_examples = 10

    @pytest.fixture
    def outage(self, server: SecretManagerServer) -> Outage:
        """Every call is refused as by a server that is overloaded."""

        @contextmanager
        def unavailable() -> Iterator[None]:
            server.refuses["*"] = "UNAVAILABLE"
            try:
                yield
            finally:
                server.refuses.clear()

        return unavailable

    def test_a_hold_ends_with_its_process(self, store: CredentialStore, url: str) -> None:
        """Google is not told that a process was killed: its hold ends with its time."""
        with running_host(url) as host:
            assert host.ask("hold a") == "held"
            host.kill()
        assert store.try_hold("a") is None
        before = opened(url, at=time.time() + HOLD_SECONDS - 5)
        assert before.try_hold("a") is None
        after = opened(url, at=time.time() + HOLD_SECONDS + 1)
        hold = after.try_hold("a")
        assert hold
        hold.release()


def opened(url: str, at: float | None = None) -> SecretManagerStore:
    """The store as somebody sees it whose clock shows a time; the right one where none is given."""
    endpoint = url.partition("endpoint=")[2]
    api = SecretApi(PROJECT, endpoint=endpoint)
    return SecretManagerStore(api, prefix="test", clock=lambda: at or time.time())


@pytest.fixture
def store(url: str) -> Iterator[CredentialStore]:
    """The store under test."""
    made = open_store(url)
    yield made
    made.close()


def test_only_the_content_that_counts_is_kept(
    server: SecretManagerServer, store: CredentialStore
) -> None:
    """A version goes as soon as it is superseded, and all of them when the record is deleted."""
    for generation in range(5):
        store.write("a", b"x", expected=generation)
        assert server.enabled("testSa") == [generation + 1]
    hold = store.try_hold("a")
    store.delete("a", expected=5)
    assert server.enabled("testSa") == []
    assert hold
    hold.release()
    assert server.secrets == {}


def test_the_loser_of_a_race_leaves_nothing(
    server: SecretManagerServer, store: CredentialStore
) -> None:
    """Who comes second is told so, and the version that it had added is destroyed."""
    store.write("a", b"1", expected=0)
    winner = opened(server.url)

    def overtake(call: str) -> None:
        if call == "update":
            server.before = lambda _call: None
            winner.write("a", b"winner", expected=1)

    server.before = overtake
    with pytest.raises(GenerationMovedError):
        store.write("a", SENTINEL, expected=1)
    assert store.read("a") == Record(content=b"winner", generation=2)
    assert server.enabled("testSa") == [3]


def test_a_hold_taken_meanwhile_does_not_fail_a_write(
    server: SecretManagerServer, store: CredentialStore
) -> None:
    """An etag that moved for another reason than a write is read again."""
    store.write("a", b"1", expected=0)
    other = opened(server.url)

    def hold(call: str) -> None:
        if call == "update":
            server.before = lambda _call: None
            assert other.try_hold("a")

    server.before = hold
    assert store.write("a", b"2", expected=1) == 2
    assert store.try_hold("a") is None


@pytest.mark.parametrize("again", [1, 2])
def test_a_record_made_anew_is_no_older_one(
    server: SecretManagerServer, store: CredentialStore, again: int
) -> None:
    """A write that began before its record was deleted and made again touches nothing of that."""
    store.write("a", b"1", expected=0)
    other = opened(server.url)

    def replace(call: str) -> None:
        if call == "update":
            server.before = lambda _call: None
            other.delete("a", expected=1)
            for generation in range(again):
                other.write("a", b"anew", expected=generation)

    server.before = replace
    with pytest.raises(GenerationMovedError):
        store.write("a", SENTINEL, expected=1)
    assert store.read("a") == Record(content=b"anew", generation=again)
    assert server.enabled("testSa") == [again]


def test_a_hold_that_goes_with_its_secret_does_not_fail_a_write(
    server: SecretManagerServer, store: CredentialStore
) -> None:
    """The first write goes on where a released hold took away the secret that it had found."""
    hold = store.try_hold("a")
    assert hold

    def release(call: str) -> None:
        if call == "update":
            server.before = lambda _call: None
            hold.release()
            opened(server.url).try_hold("a")

    server.before = release
    assert opened(server.url).write("a", b"1", expected=0) == 1
    assert store.read("a") == Record(content=b"1", generation=1)
    assert server.enabled("testSa") == [1]


def test_cleaning_up_spares_a_record_made_anew(
    server: SecretManagerServer, store: CredentialStore
) -> None:
    """A version with a smaller number that is younger belongs to another secret of that name."""
    store.write("a", b"1", expected=0)
    other = opened(server.url)

    def replace(call: str) -> None:
        if call == "versions_of":
            server.before = lambda _call: None
            other.delete("a", expected=2)
            other.write("a", b"anew", expected=0)

    server.before = replace
    assert store.write("a", b"2", expected=1) == 2
    assert other.read("a") == Record(content=b"anew", generation=1)


@pytest.mark.parametrize("call", ["create", "add", "update", "delete"])
def test_a_lost_answer_is_an_outage_and_the_record_is_whole(
    server: SecretManagerServer, store: CredentialStore, call: str
) -> None:
    """Whether it was carried out or not, a read tells, and the next write cleans up."""
    if call != "create":
        store.write("a", b"1", expected=0)
    server.loses.add(call)
    before = store.read("a")
    generation = before.generation if before else 0
    change: Callable[[], object] = (
        partial(store.delete, "a", expected=1)
        if call == "delete"
        else partial(store.write, "a", b"2", expected=generation)
    )
    with pytest.raises(StoreError) as lost:
        change()
    assert not isinstance(lost.value, GenerationMovedError)
    found = store.read("a")
    carried_out = {"update": Record(content=b"2", generation=2), "delete": None}
    assert found == carried_out.get(call, before)
    generation = store.write("a", b"3", expected=found.generation if found else 0)
    assert store.read("a") == Record(content=b"3", generation=generation)
    assert len(server.enabled("testSa")) == 1


def test_what_could_not_be_destroyed_goes_with_the_next_write(
    server: SecretManagerServer, store: CredentialStore
) -> None:
    """A write is done once the annotations are; failing to clean up is no failure of it."""
    store.write("a", b"1", expected=0)
    server.refuses["destroy"] = "UNAVAILABLE"
    store.write("a", b"2", expected=1)
    assert server.enabled("testSa") == [1, 2]
    server.refuses.clear()
    store.write("a", b"3", expected=2)
    assert server.enabled("testSa") == [3]


def test_a_lagging_read_is_never_taken_for_the_record(
    server: SecretManagerServer, store: CredentialStore
) -> None:
    """Who wrote knows better; anybody else is told that the state is not known, and writes nothing."""
    store.write("a", b"1", expected=0)
    server.lags = True
    assert store.write("a", b"2", expected=1) == 2
    assert store.read("a") == Record(content=b"2", generation=2)
    stranger = opened(server.url)
    with pytest.raises(StoreError, match="Try again"):
        stranger.read("a")
    with pytest.raises(StoreError):
        stranger.write("a", SENTINEL, expected=1)
    with pytest.raises(StoreError):
        stranger.try_hold("a")
    server.lags = False
    assert stranger.read("a") == Record(content=b"2", generation=2)


def test_an_expiry_is_googles_to_keep(server: SecretManagerServer, store: CredentialStore) -> None:
    """It is set, moved and taken away with the record, and one in the past is put off."""
    now = time.time()
    store.write("a", b"1", expected=0, expires_at=now + 86_400)
    first = server.secrets["testSa"]["expireTime"]
    store.write("a", b"2", expected=1, expires_at=now - 5)
    assert now < datetime.fromisoformat(server.secrets["testSa"]["expireTime"]).timestamp()
    assert server.secrets["testSa"]["expireTime"] < first
    hold = store.try_hold("a")
    assert hold
    hold.release()
    assert "expireTime" in server.secrets["testSa"]
    store.write("a", b"3", expected=2)
    assert "expireTime" not in server.secrets["testSa"]


def test_stores_of_other_prefixes_are_apart(
    server: SecretManagerServer, store: CredentialStore
) -> None:
    """One project may hold several stores, and secrets of others."""
    other = open_store(server.url.replace("/test?", "/test-two?"))
    store.write("two/a", b"1", expected=0)
    other.write("a", b"2", expected=0)
    assert (store.names(""), other.names("")) == (["two/a"], ["a"])
    other.close()


@pytest.mark.parametrize(
    ("status", "told"),
    [
        ("PERMISSION_DENIED", "roles/secretmanager.admin"),
        ("UNAUTHENTICATED", "gcloud auth"),
        ("RESOURCE_EXHAUSTED", "quota"),
        ("NOT_FOUND", "no such project"),
        ("INTERNAL", "cannot be reached"),
    ],
)
def test_a_refusal_says_what_to_do(
    server: SecretManagerServer, store: CredentialStore, status: str, told: str
) -> None:
    """Each status that a person can act on has its own text."""
    server.refuses["list"] = status
    with pytest.raises(StoreError, match=told):
        store.names("")


def test_checking_names_a_permission_that_is_missing(
    server: SecretManagerServer, store: CredentialStore
) -> None:
    """A store that can be read and not written is not ready."""
    store.write("a", b"1", expected=0)
    server.granted = {"secretmanager.secrets.get", "secretmanager.versions.access"}
    with pytest.raises(StoreError, match=r"lacks .*secretmanager\.versions\.add"):
        store.check()
    assert not {"update", "add"} & set(server.calls[server.calls.index("permissions") :])


def test_a_call_is_tried_once(server: SecretManagerServer, store: CredentialStore) -> None:
    """Google's own repetition, which goes on for a minute, is switched off."""
    store.write("a", b"1", expected=0)
    server.refuses["access"] = "UNAVAILABLE"
    with pytest.raises(StoreError):
        store.read("a")
    assert server.calls.count("access") == 1


def test_annotations_that_somebody_changed_are_told(
    server: SecretManagerServer, store: CredentialStore
) -> None:
    """A number that is none is an error of the store, not of Python."""
    store.write("a", b"1", expected=0)
    server.secrets["testSa"]["annotations"]["segmentstream-generation"] = "many"
    with pytest.raises(StoreError, match="annotations of the secret testSa"):
        store.read("a")


def test_a_server_that_is_gone_is_an_outage() -> None:
    """A refused connection is told in the store's own words."""
    with running_secret_manager() as server:
        url = server.url
    gone = open_store(url)
    with pytest.raises(StoreError, match="cannot be reached"):
        gone.read("a")
    gone.close()
