"""What seals records, where the keys come from, and what a wrong one does."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from connections_runtime.authority import Authority
from connections_runtime.keeping import EXPIRED, Keeping, keeping
from segmentstream_connections_runtime.credentials.keys import GivenKeys, KeyFile
from segmentstream_connections_runtime.credentials.sealing import (
    KeyRing,
    KeyRingError,
    WrongKeyError,
)
from segmentstream_connections_runtime.errors import Code

PLACE = "default/it/default"

type Made = Callable[..., Keeping]


# --- Sealing ---------------------------------------------------------------------------------------


@given(content=st.binary(max_size=1000), place=st.text(max_size=80))
def test_what_was_sealed_opens_again(content: bytes, place: str) -> None:
    """Any bytes, for any place, also through the text of the ring."""
    ring = KeyRing.new()
    sealed = ring.seal(content, belonging_to=place)
    assert KeyRing.from_text(ring.to_text()).open(sealed, belonging_to=place) == content


def test_nothing_is_sealed_alike_twice() -> None:
    """A nonce is random: equal tokens do not show as equal records."""
    ring = KeyRing.new()
    assert len({ring.seal(b"same", belonging_to=PLACE) for _ in range(100)}) == 100


@pytest.mark.parametrize("place", ["default/it/other", "other/it/default", "default/it2/default"])
def test_a_record_opens_at_its_own_place_alone(place: str) -> None:
    """Rows cannot be swapped between workspaces, connections and accounts."""
    ring = KeyRing.new()
    with pytest.raises(WrongKeyError):
        ring.open(ring.seal(b"secret", belonging_to=PLACE), belonging_to=place)


@given(data=st.data())
def test_a_record_that_was_changed_does_not_open(data: st.DataObject) -> None:
    """Not one byte of it: version, key id, nonce, content and tag are all authenticated."""
    ring = KeyRing.new()
    sealed = ring.seal(b"secret", belonging_to=PLACE)
    at = data.draw(st.integers(0, len(sealed) - 1))
    other = data.draw(st.integers(0, 255).filter(lambda byte: byte != sealed[at]))
    changed = sealed[:at] + bytes([other]) + sealed[at + 1 :]
    try:
        opened = ring.open(changed, belonging_to=PLACE)
    except WrongKeyError:
        return
    # The last character of base64 has bits that mean nothing.
    assert (opened, at) == (b"secret", len(sealed) - 1)


@pytest.mark.parametrize("sealed", [b"", b"ss1", b"ss1..", b"ss2.k.AAAA", b"\xff\xfe.\x00.\x00"])
def test_what_is_no_record_is_refused_as_such(sealed: bytes) -> None:
    """Whatever lies in the store, the answer is the same typed refusal."""
    with pytest.raises(WrongKeyError):
        KeyRing.new().open(sealed, belonging_to=PLACE)


def test_old_keys_open_and_the_first_seals() -> None:
    """After a new key was put first, old records open, and are known to be sealed with another."""
    old = KeyRing.new()
    sealed = old.seal(b"secret", belonging_to=PLACE)
    ring = old.with_new_key()
    assert ring.open(sealed, belonging_to=PLACE) == b"secret"
    assert not ring.seals_like(sealed)
    again = ring.seal(b"secret", belonging_to=PLACE)
    assert ring.seals_like(again)
    assert ring.with_first_key_only().open(again, belonging_to=PLACE) == b"secret"
    with pytest.raises(WrongKeyError) as refused:
        ring.with_first_key_only().open(sealed, belonging_to=PLACE)
    assert refused.value.key_id == old.key_id


@pytest.mark.parametrize(
    "text",
    [
        "",
        "secret",
        "[]",
        '{"keys": []}',
        '{"keys": [{"kid": "a", "k": "c2hvcnQ"}]}',
        '{"keys": [{"kid": "a b", "k": "' + "A" * 43 + '"}]}',
        '{"keys": [{"kid": "a", "k": "' + "A" * 43 + '"}, {"kid": "a", "k": "' + "A" * 43 + '"}]}',
        '{"keys": [{"k": "' + "A" * 43 + '"}]}',
        '{"keys": {"kid": 1}}',
    ],
)
def test_keys_that_cannot_be_used_are_refused_and_not_shown(text: str) -> None:
    """No key, short keys, keys without a name or with one twice."""
    with pytest.raises(KeyRingError) as refused:
        GivenKeys(text)
    assert "A" * 43 not in str(refused.value)
    assert "secret" not in str(refused.value)


# --- The file of the keys ----------------------------------------------------------------------------


def test_a_key_file_is_made_once_and_for_its_owner_alone(tmp_path: Path) -> None:
    """Made on first use in folders that are made too; later ones read what is there."""
    path = tmp_path / "a" / "b" / "keys.json"
    ring = KeyFile(path, may_make=lambda: True).ring()
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700
    assert KeyFile(path).ring().keys == ring.keys
    assert [each.name for each in path.parent.iterdir()] == ["keys.json"]


def test_a_key_file_that_others_may_read_is_tightened(tmp_path: Path) -> None:
    """As after a careless copy."""
    path = tmp_path / "keys.json"
    KeyFile(path, may_make=lambda: True).ring()
    path.chmod(0o644)
    KeyFile(path).ring()
    assert path.stat().st_mode & 0o777 == 0o600


def test_processes_that_make_the_file_at_once_agree(tmp_path: Path) -> None:
    """Ten processes on an empty folder end with one key, each with the same."""
    program = (
        "import sys; from pathlib import Path;"
        "from segmentstream_connections_runtime.credentials.keys import KeyFile;"
        "print(KeyFile(Path(sys.argv[1]), may_make=lambda: True).ring().key_id)"
    )
    started = [
        subprocess.Popen(
            [sys.executable, "-c", program, str(tmp_path / "keys.json")],
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(10)
    ]
    names = {process.communicate()[0] for process in started}
    assert len(names) == 1
    assert all(process.returncode == 0 for process in started)


def test_a_file_is_replaced_whole_also_behind_a_link(tmp_path: Path) -> None:
    """A rotation writes the target of a link, keeps the link, and leaves nothing beside it."""
    (tmp_path / "real").mkdir()
    path, link = tmp_path / "real" / "keys.json", tmp_path / "keys.json"
    KeyFile(path, may_make=lambda: True).ring()
    link.symlink_to(path)
    keys = KeyFile(link)
    keys.write(keys.ring().with_new_key())
    assert link.is_symlink()
    assert len(json.loads(path.read_text())["keys"]) == 2
    assert [each.name for each in path.parent.iterdir()] == ["keys.json"]


# --- The wrong key -------------------------------------------------------------------------------------


@pytest.fixture
def it(tmp_path: Path, authority: Authority) -> Keeping:
    """A store with one credential."""
    made = keeping(tmp_path, authority.ca_file, "https://localhost:1/token")
    made.put(expires_at=None)
    return made


def given_keys(it: Keeping, ring: KeyRing) -> Keeping:
    it.environment = {"SEGMENTSTREAM_CREDENTIAL_KEYS": ring.to_text()}
    return it


def files(it: Keeping) -> dict[str, bytes]:
    folder = it.folder / ".segmentstream"
    return {each.name: each.read_bytes() for each in folder.iterdir() if each.is_file()}


def test_report_26_a_wrong_key_refuses_and_changes_nothing(it: Keeping) -> None:
    """mnfst/llm-gateway#2818: nothing is read, renewed, written or begun; the old key works on."""
    before = files(it)
    given_keys(it, KeyRing.new())
    refused = it.refused()
    assert refused.code is Code.STORE_UNAVAILABLE
    assert "k-" in refused.detail
    with pytest.raises(Exception, match="key ring"):
        it.run(
            lambda durable: durable.start(
                "it", account="default", redirect_uri="http://127.0.0.1/", variables={}
            )
        )
    assert files(it) == before
    it.environment = {}
    assert it.access().access_token == EXPIRED


def test_report_26_the_old_key_works_in_a_ring(it: Keeping) -> None:
    """With the old key behind a new one everything opens, and the next write seals with the new."""
    old = KeyRing.from_text(
        (it.folder / "configuration/segmentstream/credential-keys.json").read_text()
    )
    ring = old.with_new_key()
    given_keys(it, ring)
    assert it.access().access_token == EXPIRED
    it.put(expires_at=None, number=2)
    given_keys(it, ring.with_first_key_only())
    assert it.access().number == 2


def test_a_lost_key_file_is_not_replaced_by_a_new_one(it: Keeping) -> None:
    """n8n-io/n8n#17816: where records are, no key is made that could not open them."""
    path = it.folder / "configuration/segmentstream/credential-keys.json"
    path.unlink()
    assert it.refused().code is Code.STORE_UNAVAILABLE
    assert not path.exists()


def test_a_key_that_another_process_added_is_read_anew(it: Keeping) -> None:
    """A rotation elsewhere does not break a process that goes on running."""
    path = it.folder / "configuration/segmentstream/credential-keys.json"

    async def work(durable: Any) -> None:
        from segmentstream_connections_runtime.freshness import Want

        assert (await durable.access("it", account="default", want=Want())).number == 1
        keys = KeyFile(path)
        keys.write(keys.ring().with_new_key())
        other = it.custody()
        assert await other.reseal() == (1, 1)
        await other.close()
        assert (await durable.access("it", account="default", want=Want())).number == 1

    it.run(work)
