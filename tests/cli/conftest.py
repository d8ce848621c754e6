from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from cli.workspaces import Workspace, make_workspace
from connections_runtime.authority import Authority, make_authority
from connections_runtime.oidc_server import OidcServer, missing, running_oidc_server
from connections_runtime.running import free_port


@pytest.fixture(scope="session")
def cli_authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """The certificate authority that the tests trust."""
    return make_authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="session")
def web_port() -> int:
    """The port at which the server's client `web` is registered to receive browsers."""
    return free_port()


@pytest.fixture(scope="session")
def server(cli_authority: Authority, web_port: int) -> Iterator[OidcServer]:
    """The authorization server."""
    if (reason := missing()) is not None:
        pytest.skip(reason)
    cli_authority.server_context("localhost", "127.0.0.1")
    pem = cli_authority.folder / "localhost-127.0.0.1.pem"
    redirects = [f"https://{host}:{web_port}/callback" for host in ("127.0.0.1", "localhost")]
    with running_oidc_server(pem, cli_authority.ca_file, redirects=redirects) as running:
        yield running


@pytest.fixture
def workspace(tmp_path: Path, server: OidcServer) -> Workspace:
    """A workspace with connections to the server; nothing is connected yet."""
    return make_workspace(tmp_path / "workspace", server)
