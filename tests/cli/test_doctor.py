"""What `segmentstream connections doctor` finds, each thing broken for real."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from cli.workspaces import Workspace, make_workspace
from connections_runtime.authority import Authority
from connections_runtime.oidc_server import OidcServer
from segmentstream.cli.connect import DEFAULT_PORT


def problems(workspace: Workspace, *arguments: str, **variables: str) -> dict[str, str]:
    """Gives the problems that are found: what they are by what was checked."""
    return found(workspace, "problem", *arguments, **variables)


def found(workspace: Workspace, outcome: str, *arguments: str, **variables: str) -> dict[str, str]:
    """Gives what is found of a kind."""
    told: dict[str, Any] = workspace.json("connections", "doctor", *arguments, **variables)
    assert told["problems"] == sum(each["outcome"] == "problem" for each in told["checks"])
    lacking = [each for each in told["checks"] if each["outcome"] != "ok" and not each["remedy"]]
    assert [each for each in lacking if each["check"] not in {"variables", "store"}] == []
    return {each["check"]: each["text"] for each in told["checks"] if each["outcome"] == outcome}


def without_redirect(problems: dict[str, str]) -> dict[str, str]:
    """Leaves out the one problem that other tests, running now, can cause."""
    return {check: text for check, text in problems.items() if "redirect" not in check}


def test_nothing_is_wrong_with_what_works(workspace: Workspace, server: OidcServer) -> None:
    """A workspace that works has no problem; what is not connected is pointed out."""
    workspace.connect(server, "basic")
    assert without_redirect(problems(workspace)) == {}
    warnings = found(workspace, "warning")
    assert warnings == {
        "asking: credential default": "not connected",
        "web: credential default": "not connected",
    }


def test_a_missing_secret_is_named(workspace: Workspace) -> None:
    """Each connection that needs it says which variable is not set."""
    told = without_redirect(problems(workspace, SEGMENTSTREAM_CONNECTION_SECRET_WEB=""))
    assert list(told) == ["web: secrets"]
    assert "SEGMENTSTREAM_CONNECTION_SECRET_WEB" in told["web: secrets"]


def test_one_connection_can_be_looked_at(workspace: Workspace) -> None:
    """With a key, problems of the others are left out; a wrong key is a wrong call."""
    variables = {"SEGMENTSTREAM_CONNECTION_SECRET_WEB": ""}
    assert without_redirect(problems(workspace, "basic", **variables)) == {}
    assert workspace.run("connections", "doctor", "nothing").returncode == 2


def test_a_certificate_that_is_not_trusted_is_told(
    workspace: Workspace, server: OidcServer, tmp_path: Path
) -> None:
    """An address whose certificate nobody vouches for is a problem of its own kind."""
    from connections_runtime.authority import make_authority

    (tmp_path / "other").mkdir()
    other = make_authority(tmp_path / "other")
    told = without_redirect(
        problems(workspace, SEGMENTSTREAM_CONNECTIONS_CA_FILE=str(other.ca_file))
    )
    assert told
    assert all("not trusted" in text for text in told.values())


def test_a_private_address_is_told(workspace: Workspace) -> None:
    """An address that is refused for being local says how to allow it."""
    told = without_redirect(
        problems(workspace, SEGMENTSTREAM_CONNECTIONS_ALLOW_PRIVATE_PROVIDERS="no")
    )
    assert told
    assert all("private" in text for text in told.values())


@pytest.mark.parametrize(("seconds", "way"), [(90, "behind"), (-90, "ahead of"), (20, None)])
def test_a_wrong_clock_is_told(
    tmp_path: Path,
    server: OidcServer,
    cli_authority: Authority,
    seconds: int,
    way: str | None,
) -> None:
    """A clock that differs from the providers' by more than a minute is a problem."""
    import time
    from email.utils import formatdate

    with https_server(cli_authority, lambda: formatdate(time.time() + seconds)) as url:
        more = f'declared("clock", "public", authorization_url="{url}/auth", token_url="{url}/token", revocation_url=None),'
        workspace = make_workspace(tmp_path / "clocked", server, more=more)
        told = problems(workspace, "clock").get("clock")
    assert (told is None) == (way is None)
    assert told is None or f"{way} that of localhost" in told


def test_a_store_that_cannot_be_used_is_told(workspace: Workspace) -> None:
    """A store that is no database is a problem, and other checks go on."""
    workspace.store.parent.mkdir(mode=0o700)
    workspace.store.write_text("no database at all, however long it is" * 100)
    workspace.store.chmod(0o600)
    told = without_redirect(problems(workspace))
    assert list(told) == ["store"]


def test_keys_that_others_may_read_are_told(workspace: Workspace, server: OidcServer) -> None:
    """The mode of the key file is looked at before anything mends it."""
    workspace.connect(server, "basic")
    workspace.keys_file.chmod(0o644)
    told = without_redirect(problems(workspace))
    assert list(told) == ["keys"]


def test_a_lost_key_file_is_told(workspace: Workspace, server: OidcServer) -> None:
    """The file is named, and so is each record that does not open without it."""
    workspace.connect(server, "basic")
    workspace.keys_file.unlink()
    told = without_redirect(problems(workspace))
    assert list(told) == ["keys", "basic: credential default"]


def test_report_50_connections_that_share_a_client_are_told(
    tmp_path: Path, server: OidcServer
) -> None:
    """Two logins of one client may end each other, whichever variables its id is in."""
    workspace = make_workspace(tmp_path / "shared", server, more='declared("twin", "by-basic"),')
    assert "basic, twin: client" in found(workspace, "warning")


def test_a_proxy_that_is_not_used_is_told(workspace: Workspace) -> None:
    """Whoever counts on a proxy hears that requests go without."""
    warnings = found(workspace, "warning", HTTPS_PROXY="http://user:hunter2@proxy.example:1")
    assert "HTTPS_PROXY" in warnings["proxies"]
    assert "hunter2" not in str(warnings)


def test_a_taken_redirect_address_is_told(workspace: Workspace) -> None:
    """What listens where browsers come back is a problem before a login, not during one."""
    try:
        listening = socket.create_server(("127.0.0.1", DEFAULT_PORT))
    except OSError:
        pytest.skip(f"needs port {DEFAULT_PORT} for a moment")
    with listening:
        assert f"redirect address 127.0.0.1:{DEFAULT_PORT}" in problems(workspace)


def test_declarations_that_fail_are_told(workspace: Workspace) -> None:
    """Where nothing can be loaded, that is the problem."""
    (workspace.folder / "connections/connections.py").write_text("1 / 0")
    told = without_redirect(problems(workspace))
    assert "ZeroDivisionError" in told["declarations"]


def test_a_variable_that_cannot_work_is_told(workspace: Workspace) -> None:
    """Settings that are refused are a finding like others."""
    told = without_redirect(problems(workspace, SEGMENTSTREAM_WORKSPACE_NAME="No Name"))
    assert "SEGMENTSTREAM_WORKSPACE_NAME" in told["variables"]


def test_hosts_with_variables_are_asked_once_they_are_known(
    tmp_path: Path, server: OidcServer
) -> None:
    """An address of each customer's own is skipped, with the reason, until somebody connects."""
    more = (
        'declared("shops", "public", authorization_url="https://{{shop}}.shops.example/auth", '
        'token_url="https://{{shop}}.shops.example/token", revocation_url=None, '
        'url_variables=["shop"]),'
    )
    workspace = make_workspace(
        tmp_path / "shops", server, more=more.replace("{{", "{").replace("}}", "}")
    )
    assert "shop" in found(workspace, "ok", "shops")["shops: addresses"]


@contextmanager
def https_server(authority: Authority, date: Callable[[], str]) -> Iterator[str]:
    """Serves on this machine, with that time of day."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(204)
            self.end_headers()

        def date_time_string(self, timestamp: float | None = None) -> str:  # noqa: ARG002
            return date()

        def log_message(self, *arguments: object) -> None:
            """Says nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as serving:
        context = authority.server_context("localhost", "127.0.0.1")
        serving.socket = context.wrap_socket(serving.socket, server_side=True)
        threading.Thread(target=serving.serve_forever).start()
        yield f"https://localhost:{serving.server_port}"
        serving.shutdown()
