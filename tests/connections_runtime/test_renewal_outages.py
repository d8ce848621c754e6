"""Renewals during which the store goes away, loses a hold, or is written by somebody else."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import pytest

from connections_runtime.provider import PATIENCE, Provider
from connections_runtime.renewals import (
    Host,
    Place,
    Rotation,
    callback_of,
    rotate_keys,
    with_key_file,
)
from postgres import URL_VARIABLE, OwnPostgres, Postgres
from segmentstream_connections_runtime.refreshing import LEASE_SECONDS, REVOKED

LATE = 3400  # a token that lives for 3600 seconds is renewed from 3300 on
UNAVAILABLE = "credential_store_unavailable"


class Outage(Protocol):
    """Is how a store goes away and comes back as it was."""

    def begin(self) -> None:
        """Lets nobody reach it."""

    def end(self) -> None:
        """Brings it back."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unmounted:
    """Is the file of a store, on a disk that goes away."""

    file: Path

    @property
    def away(self) -> Path:
        """Where it is meanwhile."""
        return self.file.with_name("elsewhere.db")

    def begin(self) -> None:
        self.file.rename(self.away)

    def end(self) -> None:
        self.away.rename(self.file)


@dataclass(frozen=True, slots=True, kw_only=True)
class Crashed:
    """Is a server that is killed and started again."""

    postgres: OwnPostgres

    def begin(self) -> None:
        self.postgres.stop()

    def end(self) -> None:
        self.postgres.start()


@pytest.fixture
def rotation(provider: Provider) -> Rotation:
    """The tokens of a provider that revokes a grant whose refresh token comes twice."""
    return Rotation(provider=provider)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """The file of a store."""
    return tmp_path / "store" / "credentials.db"


@pytest.fixture
def place(rotation: Rotation, file: Path, authority_file: Path) -> Place:
    """A credential in SQLite."""
    return rotation.place(file.parents[1], f"sqlite:///{file}", authority_file)


@pytest.fixture
def place_in_postgres(
    rotation: Rotation, postgres: Postgres, tmp_path: Path, authority_file: Path
) -> Iterator[Place]:
    """A credential in Postgres."""
    with postgres.database() as url:
        yield rotation.place(tmp_path, url, authority_file)


@pytest.fixture
def stored_in_postgres(place_in_postgres: Place, postgres: Postgres) -> tuple[Place, Outage]:
    """A credential in Postgres, and how that goes away."""
    if not isinstance(postgres, OwnPostgres):
        pytest.skip(f"stops the server, so {URL_VARIABLE} must not name it")
    return place_in_postgres, Crashed(postgres=postgres)


@pytest.fixture
def stored_in_sqlite(place: Place, file: Path) -> tuple[Place, Outage]:
    """A credential in SQLite, and how that goes away."""
    return place, Unmounted(file=file)


@pytest.fixture(params=["sqlite", "postgres"])
def stored(request: pytest.FixtureRequest) -> tuple[Place, Outage]:
    """A credential in either store, and how that store goes away."""
    found: tuple[Place, Outage] = request.getfixturevalue(f"stored_in_{request.param}")
    return found


def wait_until(host: Host, **wanted: Any) -> None:
    """Waits until that is stored, only looking."""
    ends = time.monotonic() + PATIENCE
    while not (found := host.ask("look")).items() >= wanted.items():
        assert time.monotonic() < ends, found


def test_tokens_outlive_an_outage(stored: tuple[Place, Outage], rotation: Rotation) -> None:
    """A pair that comes when the store is gone is used, is the last, and is stored when it is back.

    Nobody has to ask for it, and the renewal after that works.
    """
    place, outage = stored
    with place.host() as host, place.host() as other:
        rotation.connect(host)
        answer = rotation.in_flight(host, want={"is_forced": True})
        outage.begin()
        try:
            answer.set()
            unsaved = {"number": 2, "token": "access-2", "is_persisted": False}
            assert host.answer() == [unsaved]
            assert host.access() == [unsaved]
            assert host.access(rejected=1) == [unsaved]
            for want in ({"is_forced": True}, {"rejected": 2}):
                [refused] = host.access(ahead=20, **want)
                assert refused["error"] == UNAVAILABLE
        finally:
            outage.end()
        wait_until(other, number=2, token="access-2", has_intent=False)
        [renewed] = other.access(is_forced=True)
        assert renewed == {"number": 3, "token": "access-3", "is_persisted": True}
    assert rotation.refreshes == 2


def unsaved_pair(place: Place, outage: Outage, rotation: Rotation, host: Host) -> None:
    """Leaves the second pair of a credential in memory for an hour, though the store is back."""
    rotation.connect(host)
    answer = rotation.in_flight(host, want={"is_forced": True}, backoff=3600)
    outage.begin()
    try:
        answer.set()
        assert host.answer() == [{"number": 2, "token": "access-2", "is_persisted": False}]
    finally:
        outage.end()


def test_tokens_are_stored_before_the_end(stored: tuple[Place, Outage], rotation: Rotation) -> None:
    """A process that ends tries once more to store what it keeps, whenever it would have tried."""
    place, outage = stored
    with place.host() as host, place.host() as other:
        unsaved_pair(place, outage, rotation, host)
        assert host.process.stdin
        host.process.stdin.close()
        host.process.wait(PATIENCE)
        assert other.access() == [{"number": 2, "token": "access-2", "is_persisted": True}]


def test_who_looks_sees_what_is_not_stored_yet(
    stored: tuple[Place, Outage], rotation: Rotation
) -> None:
    """The list of credentials says that the newest pair of one is in memory only."""
    place, outage = stored
    with place.host() as host:
        unsaved_pair(place, outage, rotation, host)
        assert host.ask("statuses") == [{"number": 2, "is_persisted": False}]


def test_a_newer_grant_takes_the_place_of_an_unsaved_pair(
    stored_in_postgres: tuple[Place, Outage], rotation: Rotation
) -> None:
    """A process that lost its hold in the outage stores what a person authorizes, and lets it go."""
    place, outage = stored_in_postgres
    with place.host() as host, place.host() as other:
        unsaved_pair(place, outage, rotation, host)
        rotation.connect(host)
        newest = {"number": 2, "token": "access-3", "is_persisted": True}
        assert host.access() == other.access() == [newest]
        assert other.access(is_forced=True)[0]["token"] == "access-4"


def test_who_disconnects_ends_an_unsaved_pair(
    stored_in_postgres: tuple[Place, Outage], rotation: Rotation
) -> None:
    """The provider hears of the newest tokens, and they are given to nobody any more."""
    place, outage = stored_in_postgres
    with place.host() as host:
        unsaved_pair(place, outage, rotation, host)
        assert host.ask("disconnect") == {"was_revoked": True}
        assert rotation.revoked == ["refresh-2"]
        assert host.access()[0]["error"] == "credential_not_found"


@pytest.mark.slow
def test_tokens_outlive_a_locked_file(place: Place, file: Path, rotation: Rotation) -> None:
    """A pair that comes while another process keeps the file locked is stored once it lets go."""
    import sqlite3

    with place.host() as host, place.host() as other:
        rotation.connect(host)
        answer = rotation.in_flight(host, want={"is_forced": True})
        locking = sqlite3.connect(file, isolation_level=None)
        locking.execute("BEGIN IMMEDIATE")
        answer.set()
        [unsaved] = host.answer()
        assert (unsaved["number"], unsaved["is_persisted"]) == (2, False)
        locking.execute("ROLLBACK")
        locking.close()
        wait_until(other, number=2, has_intent=False)
        assert other.access(is_forced=True)[0]["number"] == 3


def test_a_lost_hold_is_no_second_refresh(
    place_in_postgres: Place, postgres: Postgres, rotation: Rotation
) -> None:
    """Where the connection that holds a credential is cut, its renewal still is the only one.

    The next process gets the hold at once, reads that a refresh is under way, and waits for it.
    """
    url = place_in_postgres.environ["SEGMENTSTREAM_CREDENTIAL_STORE"]
    with place_in_postgres.host() as one, place_in_postgres.host() as other:
        rotation.connect(one)
        answer = rotation.in_flight(one, ahead=20, want={"rejected": 1})
        postgres.cut(url)
        other.send("access", ahead=20, want={"rejected": 1})
        wait_for_hold(postgres, url)
        answer.set()
        renewed = [{"number": 2, "token": "access-2", "is_persisted": True}]
        assert one.answer() == other.answer() == renewed
        assert rotation.refreshes == 1
        assert other.access(is_forced=True)[0]["number"] == 3


def wait_for_hold(postgres: Postgres, url: str) -> None:
    """Waits until somebody holds a credential."""
    ends = time.monotonic() + PATIENCE
    while not postgres.run(
        "SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND granted", url=url
    ):
        assert time.monotonic() < ends


def test_a_lost_hold_is_no_second_refresh_ahead_of_time(
    place_in_postgres: Place, postgres: Postgres, rotation: Rotation
) -> None:
    """Nor is it where a token is renewed early: the next process uses the old one for now."""
    url = place_in_postgres.environ["SEGMENTSTREAM_CREDENTIAL_STORE"]
    with place_in_postgres.host() as one, place_in_postgres.host() as other:
        rotation.connect(one)
        answer = rotation.in_flight(one, ahead=LATE)
        postgres.cut(url)
        [early] = other.access(ahead=LATE)
        answer.set()
        [renewed] = one.answer()
        assert (early["token"], renewed["token"]) == ("access-1", "access-2")
        assert other.access(ahead=LATE) == [renewed]
    assert rotation.refreshes == 1


def test_an_outage_longer_than_a_lease_is_no_second_refresh(
    stored_in_postgres: tuple[Place, Outage], rotation: Rotation
) -> None:
    """Who finds the store back first gives the pair that waits for it time to be stored."""
    place, outage = stored_in_postgres
    later = LEASE_SECONDS + 1
    with place.host() as host, place.host() as other:
        rotation.connect(host)
        answer = rotation.in_flight(host, want={"rejected": 1}, ahead=20, backoff=4)
        outage.begin()
        try:
            answer.set()
            assert host.answer()[0]["is_persisted"] is False
        finally:
            outage.end()
        [told] = other.access(ahead=20 + later, rejected=1)
        assert told == {"number": 2, "token": "access-2", "is_persisted": True}
    assert rotation.refreshes == 1


# While the old token is still good


def test_who_needs_no_new_token_does_without(place: Place, rotation: Rotation) -> None:
    """Callers who share a renewal that fails for one of them get the old token where it does."""
    with place.host() as host:
        rotation.connect(host)
        rotation.is_down = True
        wants = [{"is_forced": True}, {}, {"rejected": 1}, {"min_ttl_seconds": 900}]
        forced, plain, rejected, long = host.ask("access", ahead=LATE, wants=wants)
        assert plain["token"] == "access-1"
        assert {each["error"] for each in (forced, rejected, long)} == {
            "oauth_provider_unavailable"
        }
    assert rotation.refreshes == 1


def test_a_store_that_takes_nothing_leaves_the_old_token(
    place: Place, file: Path, rotation: Rotation
) -> None:
    """What cannot be written down is not begun, and the token is used for as long as it lives."""
    import sqlite3

    with place.host() as host:
        rotation.connect(host)
        with sqlite3.connect(file) as full:
            full.execute(
                "CREATE TRIGGER full BEFORE UPDATE ON segmentstream_credentials"
                " BEGIN SELECT RAISE(ABORT, 'full'); END"
            )
        full.close()
        assert host.access(ahead=LATE)[0]["token"] == "access-1"
        assert host.access(ahead=3600)[0]["error"] == UNAVAILABLE
    assert rotation.refreshes == 0


# Persons, and keys, in the middle of a renewal


@pytest.mark.parametrize("is_cut", [False, True])
def test_who_disconnects_during_a_renewal_wins(
    place_in_postgres: Place, postgres: Postgres, rotation: Rotation, is_cut: bool
) -> None:
    """Whether or not the renewal's hold lasts, its tokens do not come back to life."""
    url = place_in_postgres.environ["SEGMENTSTREAM_CREDENTIAL_STORE"]
    with place_in_postgres.host() as one, place_in_postgres.host() as other:
        rotation.connect(one)
        answer = rotation.in_flight(one, want={"is_forced": True})
        if is_cut:
            postgres.cut(url)
            assert other.ask("disconnect") == {"was_revoked": True}
            answer.set()
            assert one.answer()[0]["error"] == "credential_not_found"
            assert rotation.revoked == ["refresh-1"]
        else:
            other.send("disconnect")
            answer.set()
            assert one.answer()[0]["number"] == 2
            assert other.answer() == {"was_revoked": True}
            assert rotation.revoked == ["refresh-2"]
        assert one.ask("look")["state"] == "disconnected"
        assert one.access()[0]["error"] == "credential_not_found"


@pytest.mark.parametrize("is_cut", [False, True])
def test_who_connects_anew_during_a_renewal_wins(
    place_in_postgres: Place, postgres: Postgres, rotation: Rotation, is_cut: bool
) -> None:
    """Whether or not the renewal's hold lasts, the newer grant is what everybody uses."""
    url = place_in_postgres.environ["SEGMENTSTREAM_CREDENTIAL_STORE"]
    with place_in_postgres.host() as one, place_in_postgres.host() as other:
        rotation.connect(one)
        answer = rotation.in_flight(one, want={"is_forced": True})
        begun = other.ask("start")
        if is_cut:
            postgres.cut(url)
        other.send("complete", callback=callback_of(begun["url"]), binding=begun["binding"])
        if is_cut:
            assert other.answer()["state"] == "connected"
        answer.set()
        if not is_cut:
            assert other.answer()["state"] == "connected"
        [told] = one.answer()
        assert "error" not in told
        [newest] = one.access()
        assert newest["token"] == "access-3"
        assert other.access() == [newest]
        assert one.access(is_forced=True)[0]["token"] == "access-4"


def test_keys_rotated_during_a_renewal_lose_nothing(
    place: Place, tmp_path: Path, rotation: Rotation
) -> None:
    """The new pair is stored over the record that was sealed anew, with the new key."""
    keys = tmp_path / "keys.json"
    place = with_key_file(place, keys)
    with place.host() as host:
        rotation.connect(host)
        answer = rotation.in_flight(host, want={"is_forced": True})
        rotate_keys(keys, place)
        answer.set()
        assert host.answer() == [{"number": 2, "token": "access-2", "is_persisted": True}]
    with place.host() as fresh:
        assert fresh.access(is_forced=True)[0]["number"] == 3


def test_keys_rotated_during_an_outage_lose_nothing(
    place: Place, file: Path, tmp_path: Path, rotation: Rotation
) -> None:
    """A pair that waits for the store is stored over a record that was sealed anew meanwhile."""
    keys, outage = tmp_path / "keys.json", Unmounted(file=file)
    place = with_key_file(place, keys)
    with place.host() as host:
        rotation.connect(host)
        answer = rotation.in_flight(host, want={"is_forced": True})
        outage.begin()
        answer.set()
        assert host.answer()[0]["is_persisted"] is False
        rotate_keys(keys, elsewhere(place, outage))
        outage.end()
        with place.host() as fresh:
            wait_until(fresh, number=2, token="access-2")
            assert fresh.access(is_forced=True)[0]["number"] == 3


def elsewhere(place: Place, outage: Unmounted) -> Place:
    """Gives the place as those see it who still reach the file."""
    store = {"SEGMENTSTREAM_CREDENTIAL_STORE": f"sqlite:///{outage.away}"}
    return replace(place, environ=dict(place.environ) | store)


def test_a_newer_grant_outlives_an_unsaved_pair(
    place: Place, file: Path, rotation: Rotation
) -> None:
    """A pair that waits for the store gives way to what a person has authorized meanwhile."""
    outage = Unmounted(file=file)
    with place.host() as host, elsewhere(place, outage).host() as other:
        rotation.connect(host)
        answer = rotation.in_flight(host, want={"is_forced": True})
        outage.begin()
        answer.set()
        assert host.answer()[0]["is_persisted"] is False
        assert rotation.connect(other)["state"] == "connected"
        outage.end()
        wait_until(host, token="access-3")
        wait_for_settled(host)
        assert host.access(is_forced=True)[0]["token"] == "access-4"


def wait_for_settled(host: Host) -> None:
    """Waits until no pair waits for the store any more."""
    ends = time.monotonic() + PATIENCE
    while not host.access()[0]["is_persisted"]:
        assert time.monotonic() < ends


def test_a_grant_outlives_an_outage(stored: tuple[Place, Outage], rotation: Rotation) -> None:
    """What a person has authorized when the store is gone is used, and stored when it is back."""
    place, outage = stored
    with place.host() as host, place.host() as other:
        begun = host.ask("start")
        answer = rotation.in_flight(
            host,
            "complete",
            callback=callback_of(begun["url"]),
            binding=begun["binding"],
        )
        outage.begin()
        try:
            answer.set()
            assert host.answer() == {"state": "connected", "number": 1, "is_persisted": False}
            assert host.access()[0]["token"] == "access-1"
        finally:
            outage.end()
        wait_until(other, number=1, token="access-1")
        assert other.access(is_forced=True)[0]["number"] == 2


def test_a_newer_grant_outlives_an_outage_with_new_keys(
    place: Place, file: Path, tmp_path: Path, rotation: Rotation
) -> None:
    """Who authorizes again, and whose grant waits for the store, does not get the old one back."""
    keys, outage = tmp_path / "keys.json", Unmounted(file=file)
    place = with_key_file(place, keys)
    with place.host() as host:
        rotation.connect(host)
        begun = host.ask("start")
        answer = rotation.in_flight(
            host,
            "complete",
            callback=callback_of(begun["url"]),
            binding=begun["binding"],
        )
        outage.begin()
        answer.set()
        assert host.answer() == {"state": "connected", "number": 2, "is_persisted": False}
        rotate_keys(keys, elsewhere(place, outage))
        outage.end()
        with place.host() as fresh:
            wait_until(fresh, number=2, token="access-2")
            assert fresh.access(is_forced=True)[0]["number"] == 3


def test_keys_rotated_during_a_revocation_do_not_stop_the_end(
    place: Place, tmp_path: Path, rotation: Rotation
) -> None:
    """A credential that was sealed anew while the provider was told is wiped all the same."""
    keys = tmp_path / "keys.json"
    place = with_key_file(place, keys)
    with place.host() as host:
        rotation.connect(host)
        answer = rotation.in_flight(host, "disconnect")
        rotate_keys(keys, place)
        answer.set()
        assert host.answer() == {"was_revoked": True}
        assert host.ask("look")["state"] == "disconnected"


def test_keys_rotated_during_a_refusal_do_not_hide_it(
    place: Place, tmp_path: Path, rotation: Rotation
) -> None:
    """That the grant is over is noted over a record that was sealed anew, and told for what it is.

    Not as a lost answer: none was lost.
    """
    keys = tmp_path / "keys.json"
    place = with_key_file(place, keys)
    with place.host() as host:
        rotation.connect(host)
        rotation.end_grant()
        answer = rotation.in_flight(host, want={"is_forced": True})
        rotate_keys(keys, place)
        answer.set()
        refused = {"error": "oauth_reauthorization_required", "detail": REVOKED}
        assert host.answer() == [refused]
        assert host.ask("look")["state"] == "reauthorize"
        assert host.access() == [refused]
