"""Processes that share credentials and the keys that seal them."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from connections_runtime.provider import Provider
from connections_runtime.renewals import Host, Place, Rotation, rotate_keys, with_key_file
from segmentstream_connections_runtime.credentials.sealing import KeyRing

UNAVAILABLE = "credential_store_unavailable"
_KEYS = "SEGMENTSTREAM_CREDENTIAL_KEYS"


@pytest.fixture
def rotation(provider: Provider) -> Rotation:
    """The tokens of a provider that revokes a grant whose refresh token comes twice."""
    return Rotation(provider=provider)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """The file of a store."""
    return tmp_path / "store" / "credentials.db"


@pytest.fixture
def key_file(tmp_path: Path) -> Path:
    """The file of its keys; it does not exist yet."""
    return tmp_path / "keys" / "keys.json"


@pytest.fixture
def place(rotation: Rotation, file: Path, authority_file: Path) -> Place:
    """A credential in SQLite."""
    return rotation.place(file.parents[1], f"sqlite:///{file}", authority_file)


def refuses_everything(host: Host) -> bool:
    """Says whether a process neither gives, renews, replaces nor ends a credential."""
    answers = [
        *host.access(),
        *host.access(is_forced=True),
        host.ask("start"),
        host.ask("disconnect"),
        host.ask("reseal"),
    ]
    return {answer["error"] for answer in answers} == {UNAVAILABLE}


def test_the_wrong_key_opens_and_changes_nothing(
    place: Place, file: Path, rotation: Rotation
) -> None:
    """A process with another key refuses, and says which it lacks; with the old one too it works.

    https://github.com/mnfst/llm-gateway/issues/2818: there the record was written over.
    """
    old = KeyRing.from_text(place.environ[_KEYS])
    with place.host() as host:
        rotation.connect(host)
    before = file.read_bytes()
    with with_keys(place, KeyRing.new()).host() as host:
        assert old.key_id in host.access()[0]["detail"]
        assert refuses_everything(host)
    assert file.read_bytes() == before
    assert rotation.refreshes == 0
    with with_keys(place, old.with_new_key()).host() as host:
        assert host.access(is_forced=True)[0]["number"] == 2


def with_keys(place: Place, keys: KeyRing) -> Place:
    """Gives the place as a process with these keys sees it."""
    return replace(place, environ=dict(place.environ) | {_KEYS: keys.to_text()})


def test_lost_keys_are_not_replaced(
    place: Place, file: Path, key_file: Path, rotation: Rotation
) -> None:
    """Where there are records but no file of keys, nothing is done, and no new keys are made."""
    place = with_key_file(place, key_file)
    with place.host() as host:
        rotation.connect(host)
    kept = key_file.rename(key_file.with_name("kept.json"))
    before = file.read_bytes()
    with place.host() as host:
        assert refuses_everything(host)
    assert not key_file.exists()
    assert file.read_bytes() == before
    kept.rename(key_file)
    with place.host() as host:
        assert host.access(is_forced=True)[0]["number"] == 2


def test_two_processes_that_make_keys_agree(place: Place, key_file: Path) -> None:
    """Of processes that need keys at the same time one makes them, and all seal with those."""
    place = with_key_file(place, key_file)
    with ExitStack() as stack:
        hosts = [stack.enter_context(place.host()) for _ in range(4)]
        # All of them run, and none has needed a key yet.
        assert all(host.ask("look") == {"state": "none"} for host in hosts)
        for number, host in enumerate(hosts):
            host.send("start", account=f"account-{number}")
        assert all("url" in host.answer() for host in hosts)
        # Each opens what all of them have sealed.
        assert all(host.ask("reseal") == {"total": 4, "changed": 0} for host in hosts)
    with place.host() as fresh:
        assert fresh.ask("reseal") == {"total": 4, "changed": 0}


def test_a_process_seals_with_new_keys_at_once(
    place: Place, key_file: Path, rotation: Rotation
) -> None:
    """What a process writes after the keys were rotated opens without the old ones.

    Also where it has read nothing since that would have told it of the new ones.
    """
    place = with_key_file(place, key_file)
    with place.host() as host:
        rotation.connect(host)
        rotate_keys(key_file, place)
        rotation.connect(host, account="other")
    with place.host() as fresh:
        [opened] = fresh.ask("access", account="other", want={"is_forced": True})
        assert opened["number"] == 2
        assert fresh.access()[0]["number"] == 1
