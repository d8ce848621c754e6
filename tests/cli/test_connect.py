"""`segmentstream connect` as a process, with a person who logs in at a strict server."""

from __future__ import annotations

import asyncio
import json
import os
import pty
import select
import socket
import subprocess
import time
from pathlib import Path

import httpx
import pytest

from cli.workspaces import COMMAND, Browser, Workspace
from connections_runtime.oidc_server import OidcServer
from connections_runtime.provider import PATIENCE
from segmentstream.cli.workspace import Workspace as Opening
from segmentstream.cli.workspace import opened
from segmentstream_connections_runtime.credentials.records import Attempt


def test_a_login_is_stored_and_told(workspace: Workspace, server: OidcServer) -> None:
    """From the address to the stored credential: what was granted is told, and no secret."""
    with workspace.connecting("basic", "--no-browser", "--port=0") as login:
        browser = Browser(server)
        page = browser.get(login.url())
        assert login.end() == 0
    assert page.status_code == 200
    assert "The basic &lt;one&gt; is connected" in page.text
    assert browser.history[-1] == login.redirect_uri().replace("/callback", "/done")
    assert "openid, offline_access, read" in login.output
    assert str(workspace.store) in login.output
    [basic] = [each for each in workspace.json("connections", "list") if each["number"]]
    assert basic["state"] == "connected"
    code = httpx.URL(browser.history[-2]).params["code"]
    for secret in (code, server.secret):
        assert secret not in login.said + login.output + page.text


def test_the_result_is_one_document(workspace: Workspace, server: OidcServer) -> None:
    """With --json standard output is one document, whatever a person is told meanwhile."""
    with workspace.connecting("basic", "--no-browser", "--port=0", "--json") as login:
        Browser(server).get(login.url())
        assert login.end() == 0
    told = json.loads(login.output)
    assert told["connection"] == "basic"
    assert told["scopes"] == ["openid", "offline_access", "read"]
    assert told["store"] == str(workspace.store)


def test_a_browser_is_opened(workspace: Workspace, server: OidcServer, tmp_path: Path) -> None:
    """The person's browser, here a program of our own, is sent to the address."""
    opened = tmp_path / "opened"
    program = tmp_path / "browser"
    program.write_text(f'#!/bin/sh\nprintf %s "$1" > {opened}\n')
    program.chmod(0o755)
    with workspace.connecting("basic", "--port=0", BROWSER=str(program)) as login:
        login.wait_for("A browser was opened")
        assert opened.read_text() == login.url()
        Browser(server).get(login.url())
        assert login.end() == 0


def test_report_23_the_redirect_address_is_one_string_from_end_to_end(
    workspace: Workspace, server: OidcServer
) -> None:
    """A server that compares byte for byte gets at the exchange what it got at the beginning."""
    with workspace.connecting("basic", "--no-browser", "--port=0") as login:
        uri = login.redirect_uri()
        assert uri.startswith("http://127.0.0.1:")
        assert f"back to {uri}" in login.said
        Browser(server).get(login.url())
        assert login.end() == 0  # oidc-provider compares them


def test_report_22_a_browser_that_comes_three_times_exchanges_once(
    workspace: Workspace, server: OidcServer
) -> None:
    """A look ahead of time and repeats of the same address end at one page and one credential."""
    with workspace.connecting("basic", "--no-browser", "--port=0") as login:
        browser = Browser(server)
        callback = browser.callback(login.url())
        for headers in ({"Sec-Purpose": "prefetch;prerender"}, {"Purpose": "prefetch"}):
            assert browser.get(callback, **headers).status_code == 503
        pages = [browser.get(callback) for _ in range(3)]
        assert login.end() == 0
    assert {page.status_code for page in pages} == {200}
    assert len({page.text for page in pages}) == 1
    [basic] = [each for each in workspace.json("connections", "list") if each["number"]]
    assert basic["number"] == 1
    # A code that had been sent twice would have cost the grant (RFC 6749 section 4.1.2).
    assert workspace.run("connections", "refresh", "basic").returncode == 0


def test_a_strangers_callback_does_not_end_a_login(
    workspace: Workspace, server: OidcServer
) -> None:
    """A wrong state, or none, is turned away and the person can still log in."""
    with workspace.connecting("basic", "--no-browser", "--port=0") as login:
        uri = login.redirect_uri()
        for query in ("", "?code=x", "?code=x&state=wrong", "?error=access_denied&state=wrong"):
            answer = httpx.get(uri + query, trust_env=False)
            assert answer.status_code == 400
            assert "not under way" in answer.text
        Browser(server).get(login.url())
        assert login.end() == 0


def test_a_refusal_is_told_without_the_providers_words(
    workspace: Workspace, server: OidcServer
) -> None:
    """What stands in the address is neither shown on the page nor in the terminal."""
    with workspace.connecting("basic", "--no-browser", "--port=0") as login:
        state = str(httpx.URL(login.url()).params["state"])
        page = Browser(server).get(
            f"{login.redirect_uri()}?error=access_denied&error_description=%3Cb%3Ehow%3C/b%3E"
            f"&state={state}&iss={server.issuer}"
        )
        assert login.end() == 1
    assert "Access was not granted" in page.text
    assert "how" not in page.text.partition("<body>")[2]
    assert "said no" in login.said
    assert "<b>" not in login.said


def test_another_servers_answer_is_not_taken(workspace: Workspace, server: OidcServer) -> None:
    """A callback with the right state and no `iss` of the declared issuer is refused."""
    with workspace.connecting("basic", "--no-browser", "--port=0") as login:
        state = str(httpx.URL(login.url()).params["state"])
        page = Browser(server).get(f"{login.redirect_uri()}?code=x&state={state}&iss=https://other")
        assert login.end() == 1
    assert "could not be connected" in page.text
    assert "issuer" in login.said


def test_a_login_that_nobody_makes_ends(workspace: Workspace) -> None:
    """After the time that was given the command ends, and the login cannot be made any more."""
    ended = workspace.run("connect", "basic", "--no-browser", "--port=0", "--timeout=1")
    assert ended.returncode == 1
    assert "within 1 seconds" in ended.stderr


@pytest.mark.parametrize("is_pasted", [False, True], ids=["loopback", "paste"])
def test_an_interrupt_leaves_nothing_behind(
    workspace: Workspace, server: OidcServer, is_pasted: bool
) -> None:
    """After Ctrl-C nobody listens, nothing is connected, and what completes the login is gone."""
    options = ["--paste"] if is_pasted else ["--port=0"]
    with workspace.connecting("basic", "--no-browser", *options) as login:
        callback = Browser(server).callback(login.url())
        if is_pasted:
            login.wait_for("is not shown")
        login.interrupt()
        assert login.end() == 130
    assert "Traceback" not in login.said
    with pytest.raises(httpx.ConnectError):
        httpx.get(callback, trust_env=False)
    assert {each["state"] for each in workspace.json("connections", "list")} == {"not_connected"}
    attempt = asyncio.run(_attempt(workspace, str(httpx.URL(callback).params["state"])))
    assert attempt.progress == "failed"
    assert attempt.verifier is None


def test_an_address_that_is_taken_is_named(workspace: Workspace) -> None:
    """Where something else listens, nobody is sent to the provider."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        ended = workspace.run("connect", "basic", "--no-browser", f"--port={port}")
    assert ended.returncode == 1
    assert f"port {port}" in ended.stderr
    assert "state=" not in ended.stderr


def test_nobody_logs_in_while_a_secret_is_missing(workspace: Workspace) -> None:
    """What the exchange needs is there before a person is sent away; else the variable is named."""
    ended = workspace.run("connect", "basic", "--port=0", SEGMENTSTREAM_CONNECTION_SECRET_SECRET="")
    assert ended.returncode == 5
    assert "SEGMENTSTREAM_CONNECTION_SECRET_SECRET" in ended.stderr
    assert not workspace.store.exists()


def test_variables_of_the_process_win_over_the_file(
    workspace: Workspace, server: OidcServer
) -> None:
    """What is set where the command runs is used, and not what `.env` says."""
    with workspace.connecting(
        "basic",
        "--no-browser",
        "--port=0",
        SEGMENTSTREAM_CONNECTION_SECRET_SECRET="another",
    ) as login:
        Browser(server).get(login.url())
        assert login.end() == 1
    assert "did not accept the client" in login.said


def test_a_pasted_address_connects(workspace: Workspace, server: OidcServer) -> None:
    """Without a server the address is read from standard input, also a pipe."""
    with workspace.connecting("basic", "--paste", "--no-browser") as login:
        assert login.redirect_uri() == "http://127.0.0.1:8737/callback"
        assert login.process.stdin is not None
        login.process.stdin.write(Browser(server).callback(login.url()) + "#_=_\n")
        login.process.stdin.close()
        assert login.end() == 0
    assert "is connected" in login.output


def test_a_pasted_address_can_be_one_of_the_persons_own(
    workspace: Workspace, server: OidcServer
) -> None:
    """Providers that know no loopback address send the browser to any that is registered."""
    uri = "https://app.example/callback"
    with workspace.connecting("basic", "--paste", "--no-browser", "--redirect-uri", uri) as login:
        assert login.process.stdin is not None
        login.process.stdin.write(Browser(server).callback(login.url()) + "\n")
        login.process.stdin.close()
        assert login.end() == 0


@pytest.mark.parametrize(
    "pasted",
    ["", "nonsense", "https://elsewhere/callback?code=x&state=y", "http://127.0.0.1:8737/callback"],
)
def test_what_is_no_such_address_is_refused(workspace: Workspace, pasted: str) -> None:
    """Another address is not taken, and not repeated."""
    ended = workspace.run("connect", "basic", "--paste", "--no-browser", text=pasted)
    assert ended.returncode == 1
    assert "What was pasted" in ended.stderr
    assert "elsewhere" not in ended.stderr


def test_a_terminal_does_not_show_what_is_pasted(workspace: Workspace, server: OidcServer) -> None:
    """A long address is read whole and never echoed, and the terminal is as it was afterwards."""
    master, terminal = pty.openpty()
    before = subprocess.run(["stty", "-g"], stdin=terminal, capture_output=True, check=True).stdout
    with subprocess.Popen(
        [COMMAND, "connect", "basic", "--paste", "--no-browser"],
        cwd=workspace.folder,
        env=dict(workspace.environ),
        stdin=terminal,
        stdout=terminal,
        stderr=terminal,
        start_new_session=True,
    ) as process:
        said = _read_until(master, "is not shown")
        url = next(word for word in said.split() if "&state=" in word)
        callback = Browser(server).callback(url)
        _read_until_hidden(terminal)
        typed = f"{callback}&more={'x' * 6000}\x7fy\n"  # more than a line of a terminal holds
        for start in range(0, len(typed), 1000):
            os.write(master, typed[start : start + 1000].encode())
        said = _read_until(master, "sealed")
        assert process.wait(PATIENCE) == 0
    assert "is connected" in said
    assert str(httpx.URL(callback).params["code"]) not in said
    assert "xxx" not in said
    after = subprocess.run(["stty", "-g"], stdin=terminal, capture_output=True, check=True).stdout
    assert after == before
    os.close(master)
    os.close(terminal)


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_https_where_the_declaration_asks_for_it(
    workspace: Workspace, server: OidcServer, web_port: int, host: str
) -> None:
    """The loopback server speaks TLS, with a certificate that its own authority vouches for."""
    options = ["--no-browser", f"--port={web_port}", f"--callback-host={host}"]
    with workspace.connecting("web", *options) as login:
        assert login.redirect_uri() == f"https://{host}:{web_port}/callback"
        assert "warn" in login.said
        authority = workspace.folder / ".segmentstream/loopback-authority.crt"
        page = Browser(server, trusts=authority).get(login.url())
        assert login.end() == 0
    assert "is connected" in page.text
    private = [path for path in authority.parent.iterdir() if path.suffix == ".pem"]
    assert private
    assert {path.stat().st_mode & 0o777 for path in private} == {0o600}


def test_a_second_account_is_another_credential(workspace: Workspace, server: OidcServer) -> None:
    """Logins of one connection are kept by account."""
    workspace.connect(server, "basic")
    workspace.connect(server, "basic", "--account=second")
    told = workspace.json("connections", "list")
    assert [each["account"] for each in told if each["connection"] == "basic"] == [
        "default",
        "second",
    ]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["connect", "nothing"], "Declared are: asking, basic, web"),
        (["connect", "basic", "--account", "A B"], "account"),
        (["connect", "basic", "--variable", "shop=acme"], "variables"),
        (["connect", "basic", "--variable", "shop"], "NAME=VALUE"),
        (["connect", "basic", "--redirect-uri", "https://app.example"], "--paste"),
        (["--workspace", "/", "connect", "basic"], "no workspace"),
    ],
)
def test_a_wrong_call_is_a_wrong_call(
    workspace: Workspace, arguments: list[str], says: str
) -> None:
    """What cannot be meant ends with 2 and says what to write."""
    ended = workspace.run(*arguments)
    assert ended.returncode == 2
    assert says in ended.stderr


async def _attempt(workspace: Workspace, state: str) -> Attempt:
    variables = {"SEGMENTSTREAM_CREDENTIAL_KEYS_FILE": str(workspace.keys_file)}
    async with opened(Opening.found(workspace.folder, variables)) as work:
        held = await work.durable.custody.attempt(state)
        assert held is not None
        return held.record


def _read_until(master: int, text: str) -> str:
    said = ""
    end = time.monotonic() + PATIENCE
    while text not in said:
        assert select.select([master], [], [], max(0, end - time.monotonic()))[0], said
        said += os.read(master, 65536).decode()
    return said


def _read_until_hidden(terminal: int) -> None:
    import termios

    end = time.monotonic() + PATIENCE
    while termios.tcgetattr(terminal)[3] & termios.ECHO:
        assert time.monotonic() < end
