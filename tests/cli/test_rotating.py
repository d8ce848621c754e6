"""How keys are changed: nothing is lost on the way, and no key is shown by accident."""

from __future__ import annotations

import json
import os
import pty
import subprocess
from concurrent.futures import ThreadPoolExecutor

import pytest

from cli.workspaces import COMMAND, Workspace
from connections_runtime.oidc_server import OidcServer
from connections_runtime.provider import PATIENCE

_ROTATE = ("connections", "rotate-key")


@pytest.fixture
def connected(workspace: Workspace, server: OidcServer) -> Workspace:
    """The workspace with one connection connected."""
    workspace.connect(server, "basic")
    return workspace


def key_ids(text: str) -> list[str]:
    """Gives the ids of keys, the one to seal with first."""
    return [key["kid"] for key in json.loads(text)["keys"]]


def test_a_rotation_seals_everything_with_a_new_key(connected: Workspace) -> None:
    """The new key comes first, the old one stays, and credentials still open."""
    [old] = key_ids(connected.keys_file.read_text())
    told = connected.json(*_ROTATE)
    assert key_ids(connected.keys_file.read_text()) == [told["keyId"], old]
    assert told["resealed"] == told["records"] > 0
    assert connected.keys_file.stat().st_mode & 0o777 == 0o600
    assert connected.run("connections", "refresh", "basic").returncode == 0


def test_old_keys_go_when_that_is_asked_for(connected: Workspace) -> None:
    """After a rotation the old key can be dropped, once somebody is sure."""
    connected.run(*_ROTATE)
    new, _ = key_ids(connected.keys_file.read_text())
    unsure = connected.run(*_ROTATE, "--drop-old")
    assert unsure.returncode == 2
    assert "other workspaces" in unsure.stderr
    assert len(key_ids(connected.keys_file.read_text())) == 2
    assert connected.run(*_ROTATE, "--drop-old", "--yes").returncode == 0
    assert key_ids(connected.keys_file.read_text()) == [new]
    assert connected.run("connections", "refresh", "basic").returncode == 0


def test_a_record_that_does_not_open_keeps_the_old_keys(connected: Workspace) -> None:
    """No key is dropped while a record is not sealed with the first."""
    connected.keys_file.rename(connected.keys_file.with_suffix(".lost"))
    connected.keys_file.write_text(connected.run(*_ROTATE, "--print-new").stdout)
    connected.run(*_ROTATE)
    before = connected.keys_file.read_text()
    ended = connected.run(*_ROTATE, "--drop-old", "--yes")
    assert ended.returncode == 4
    assert connected.keys_file.read_text() == before
    connected.keys_file.with_suffix(".lost").rename(connected.keys_file)
    assert connected.run("connections", "refresh", "basic").returncode == 0


def test_two_rotations_at_once_lose_no_key(connected: Workspace) -> None:
    """Each adds its key to what the other has written."""
    with ThreadPoolExecutor() as pool:
        ended = list(pool.map(lambda _: connected.run(*_ROTATE), range(2)))
    assert [each.returncode for each in ended] == [0, 0]
    assert len(key_ids(connected.keys_file.read_text())) == 3
    assert connected.run("connections", "refresh", "basic").returncode == 0


def test_keys_of_a_variable_are_the_persons_to_change(connected: Workspace) -> None:
    """What --print-new prints, set as the variable, opens everything, and a rotation uses it."""
    printed = connected.run(*_ROTATE, "--print-new")
    assert printed.returncode == 0
    new, old = key_ids(printed.stdout)
    assert json.loads(printed.stdout)["keys"][0]["k"] not in printed.stderr
    variable = {"SEGMENTSTREAM_CREDENTIAL_KEYS": printed.stdout}
    before = connected.keys_file.read_bytes()
    told = connected.json(*_ROTATE, **variable)
    assert told["keyId"] == new
    assert told["resealed"] > 0
    assert connected.keys_file.read_bytes() == before
    connected.keys_file.unlink()
    assert connected.run("connections", "refresh", "basic", **variable).returncode == 0
    refused = connected.run(*_ROTATE, "--drop-old", "--yes", **variable)
    assert refused.returncode == 2
    assert old not in told.values()


@pytest.mark.parametrize("may_show", [False, True])
def test_a_terminal_shows_keys_only_where_that_is_asked_for(
    workspace: Workspace, may_show: bool
) -> None:
    """Without --show-keys nothing of a key is written to a terminal."""
    master, terminal = pty.openpty()
    ended = subprocess.run(
        [COMMAND, *_ROTATE, "--print-new", *(["--show-keys"] if may_show else [])],
        cwd=workspace.folder,
        env=dict(workspace.environ),
        stdout=terminal,
        stderr=subprocess.PIPE,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    os.close(terminal)
    assert ended.returncode == (0 if may_show else 2)
    if may_show:
        assert b'"k":' in os.read(master, 4096)
    else:
        assert "--show-keys" in ended.stderr
    os.close(master)


def test_keys_that_cannot_be_used_are_named_and_not_shown(workspace: Workspace) -> None:
    """A variable that holds no keys is told without what it holds."""
    variable = {"SEGMENTSTREAM_CREDENTIAL_KEYS": "hunter2"}
    for arguments in ([], ["--print-new"]):
        ended = workspace.run(*_ROTATE, *arguments, **variable)
        assert ended.returncode in {4, 5}
        assert "JSON Web Key Set" in ended.stderr
        assert "hunter2" not in ended.stderr
