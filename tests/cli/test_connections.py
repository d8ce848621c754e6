"""`segmentstream connections`: what becomes of a credential after a person has logged in."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cli.workspaces import Workspace, make_workspace
from connections_runtime.oidc_server import OidcServer


@pytest.fixture
def connected(workspace: Workspace, server: OidcServer) -> Workspace:
    """The workspace with one connection connected."""
    workspace.connect(server, "basic")
    return workspace


def state(workspace: Workspace, key: str = "basic") -> str:
    """Gives the state of a credential."""
    told = workspace.json("connections", "show", key)
    assert isinstance(told["state"], str)
    return told["state"]


def test_the_list_is_an_aligned_table(connected: Workspace) -> None:
    """Every connection has a line, and every column its place."""
    ended = connected.run("connections", "list")
    header, *lines = ended.stdout.splitlines()
    assert [line.split()[0] for line in lines] == ["asking", "basic", "web"]
    place = header.index("STATE")
    assert {line[place - 2 : place] for line in lines} == {"  "}
    assert lines[1][place:].startswith("connected")
    assert "by itself; the token at hand ends in" in lines[1]


def test_no_command_shows_a_token(connected: Workspace) -> None:
    """Whatever is printed, for people or programs, no secret is in it."""
    import asyncio

    from segmentstream.cli.workspace import Workspace as Opening
    from segmentstream.cli.workspace import opened

    async def tokens() -> list[str]:
        variables = {"SEGMENTSTREAM_CREDENTIAL_KEYS_FILE": str(connected.keys_file)}
        async with opened(Opening.found(connected.folder, variables)) as work:
            held = await work.durable.custody.credential("basic", "default")
            assert held is not None
            assert held.record.tokens is not None
            kept = held.record.tokens
            return [kept.access_token, str(kept.refresh_token)]

    secrets = [*asyncio.run(tokens()), "a+b/c==: %~"]
    for arguments in (["list"], ["show", "basic"], ["test", "basic"], ["doctor"], ["rotate-key"]):
        for more in ([], ["--json"]):
            ended = connected.run("connections", *arguments, *more)
            assert ended.returncode == 0, ended
            for secret in secrets:
                assert secret not in ended.stdout + ended.stderr


def test_a_token_can_be_had_and_the_interface_takes_it(connected: Workspace) -> None:
    """`test` says so, and with a path what the provider's own interface answers."""
    assert connected.run("connections", "test", "basic").returncode == 0
    asked = connected.run("connections", "test", "basic", "--request", "/me")
    assert asked.returncode == 0
    assert "GET /me: 200 OK" in asked.stdout
    wrong = connected.run("connections", "test", "basic", "--request", "nothing", "--json")
    assert wrong.returncode == 1
    assert json.loads(wrong.stdout)["requestStatus"] == 404


@pytest.mark.parametrize("path", ["//evil.example/x", "https://evil.example/", "@evil.example/"])
def test_a_token_goes_to_no_other_host(connected: Workspace, path: str) -> None:
    """Whatever the path, the request goes under the declared address."""
    told = connected.json("connections", "test", "basic", "--request", path)
    assert told["requestStatus"] == 404


def test_a_refresh_renews(connected: Workspace) -> None:
    """`refresh` gives the next pair of tokens."""
    assert connected.json("connections", "refresh", "basic")["number"] == 2
    assert connected.json("connections", "show", "basic")["number"] == 2


def test_what_nobody_has_connected_needs_a_person(workspace: Workspace) -> None:
    """The exit code is 3, and the message names the command."""
    for name in ("test", "refresh"):
        ended = workspace.run("connections", name, "web", "--account", "second")
        assert ended.returncode == 3
        assert "segmentstream connect web --account second" in ended.stderr


def test_a_grant_that_has_ended_needs_a_person(connected: Workspace, server: OidcServer) -> None:
    """After the provider has taken the grant back, a refresh says who has to act."""
    before = connected.store.read_bytes()
    assert connected.run("connections", "disconnect", "basic").returncode == 0
    connected.store.write_bytes(before)  # as if another machine had taken it back
    ended = connected.run("connections", "refresh", "basic")
    assert ended.returncode == 3
    assert "segmentstream connect basic" in ended.stderr
    assert state(connected) == "reauthorize"
    doctor = connected.run("connections", "doctor", "basic")
    assert doctor.returncode == 1
    assert "segmentstream connect basic" in doctor.stdout


def test_a_disconnect_revokes_and_wipes(connected: Workspace) -> None:
    """The provider takes the grant back, nothing of it is kept, and a second one finds nothing."""
    ended = connected.run("connections", "disconnect", "basic")
    assert ended.returncode == 0
    assert "taken back by the provider" in ended.stdout
    assert state(connected) == "disconnected"
    again = connected.run("connections", "disconnect", "basic")
    assert again.returncode == 1
    assert "There is no credential" in again.stderr


def test_a_failed_revoke_is_told_and_wipes_all_the_same(connected: Workspace) -> None:
    """Where the provider is not reached the exit code says so, and here nothing is kept."""
    ended = connected.run(
        "connections", "disconnect", "basic", SEGMENTSTREAM_CONNECTIONS_ALLOW_PRIVATE_PROVIDERS="no"
    )
    assert ended.returncode == 1
    assert "wiped here, but the provider was not told" in ended.stderr
    assert state(connected) == "disconnected"


def test_a_record_that_no_key_opens_is_named_and_can_be_forgotten(connected: Workspace) -> None:
    """With the keys lost nothing is overwritten; `doctor` names the record, `--forget` ends it."""
    connected.keys_file.unlink()
    for name in (["list"], ["refresh", "basic"], ["disconnect", "basic"]):
        ended = connected.run("connections", *name)
        assert ended.returncode == 4, ended
        assert str(connected.keys_file) in ended.stderr
    doctor = connected.run("connections", "doctor")
    assert doctor.returncode == 1
    command = "segmentstream connections disconnect basic --account default --forget"
    assert command in doctor.stdout
    assert connected.run(*command.split()[1:]).returncode == 0
    assert not connected.keys_file.exists()


def test_what_is_no_longer_declared_is_listed_and_can_be_ended(connected: Workspace) -> None:
    """A declaration that was removed leaves a credential, which is shown as such."""
    file = connected.folder / "connections/connections.py"
    file.write_text(file.read_text().replace('    declared("basic", "by-basic"),\n', ""))
    assert "connected, not declared" in connected.run("connections", "list").stdout
    assert connected.run("connections", "refresh", "basic").returncode == 2
    ended = connected.run("connections", "disconnect", "basic")
    assert ended.returncode == 0
    assert "take the access back" in ended.stdout


def test_a_store_of_a_relative_path_is_the_workspaces(connected: Workspace) -> None:
    """From wherever the command runs in a workspace, it finds the same store."""
    variables = {"SEGMENTSTREAM_CREDENTIAL_STORE": "sqlite:///.segmentstream/credentials.db"}
    for folder in (connected.folder, connected.folder / "connections"):
        inside = Workspace(folder=folder, environ=connected.environ)
        told = inside.json("connections", "list", **variables)
        assert [each["state"] for each in told if each["connection"] == "basic"] == ["connected"]


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("connections = (", "SyntaxError in"),
        ("import os\npassword = 'hunter2'\nos.environ[password]", "line 3"),
        ("", "declares no `connections`"),
        ("connections = (1,)", "declares no `connections`"),
    ],
)
def test_declarations_that_fail_are_placed(workspace: Workspace, content: str, says: str) -> None:
    """The file and the line are told, and no value; what the file prints stays out of the way."""
    file = workspace.folder / "connections/connections.py"
    file.write_text(f"print('loading'); {content}" if not content.startswith("import") else content)
    ended = workspace.run("connections", "list", "--json")
    assert ended.returncode == 5
    assert says in json.loads(ended.stdout)["error"]["problem"]
    assert "hunter2" not in ended.stdout + ended.stderr


def test_a_terminal_gets_no_control_characters(tmp_path: Path, server: OidcServer) -> None:
    """What a provider wrote cannot move a cursor or colour a line."""
    from segmentstream.cli.telling import aligned

    assert "\x1b" not in aligned([("name", "\x1b[2Jgone"), ("more", "\u202eevil")])
    assert "\u202e" not in aligned([("more", "\u202eevil")])


def test_whoever_uses_a_service_hears_which_store_this_is(workspace: Workspace) -> None:
    """The command does not ask the service, and says so where pipelines do."""
    url = "https://connections.example"
    ended = workspace.run("connections", "list", "--json", SEGMENTSTREAM_CONNECTIONS_URL=url)
    assert "SEGMENTSTREAM_CONNECTIONS_URL is set" in ended.stderr
    assert str(workspace.store) in ended.stderr
    assert len(json.loads(ended.stdout)) == 3


def test_a_workspace_is_named_or_found(
    workspace: Workspace, server: OidcServer, tmp_path: Path
) -> None:
    """`--workspace` names another than the nearest, and its `.env` goes with it."""
    other = make_workspace(tmp_path / "other", server, more='declared("more", "public"),')
    told = workspace.json("--workspace", str(other.folder), "connections", "list")
    assert "more" in {each["connection"] for each in told}
