"""The command with the provider that users test with: the way a newcomer goes first."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from cli.workspaces import Workspace
from segmentstream.testing import FakeProvider

_DECLARED = """
from segmentstream.connections import OAuth2Connection, secret_ref

connections = (
    OAuth2Connection(
        key="fake", name="Fake provider", provider="fake",
        authorization_url="{url}/authorize", token_url="{url}/token", revocation_url="{url}/revoke",
        client_id=secret_ref("fake-client-id"), client_secret=secret_ref("fake-client-secret"),
        scopes=["read", "offline_access"], api_base_url="{url}/api",
    ),
)
"""


@pytest.fixture
def provider() -> Iterator[FakeProvider]:
    """The provider; its person says yes."""
    with FakeProvider(consent="automatic") as running:
        running.serve("/customers", [{"id": 1}])
        yield running


@pytest.fixture
def fake(tmp_path: Path, provider: FakeProvider) -> Workspace:
    """A workspace with a connection to it."""
    folder = tmp_path / "workspace"
    (folder / "connections").mkdir(parents=True)
    (folder / "connections/connections.py").write_text(_DECLARED.format(url=provider.url))
    lines = (f"{name}={shlex.quote(value)}\n" for name, value in provider.environment.items())
    (folder / ".env").write_text("".join(lines))
    return Workspace(
        folder=folder,
        environ={"PATH": os.environ["PATH"], "HOME": str(tmp_path), "BROWSER": "false"},
    )


def test_from_a_declaration_to_an_answer_of_the_interface(
    fake: Workspace, provider: FakeProvider
) -> None:
    """Connect, test, renew and disconnect: each says what it should, without a hint of a token."""
    with fake.connecting("fake", "--no-browser", "--port=0") as login:
        page = httpx.get(login.url(), follow_redirects=True, trust_env=False)
        assert "Fake provider is connected" in page.text
        assert login.end() == 0
    asked = fake.run("connections", "test", "fake", "--request", "/customers")
    assert asked.stdout.endswith("GET /customers: 200 OK\n")
    assert fake.run("connections", "refresh", "fake").returncode == 0
    assert provider.refreshes == 1
    assert fake.run("connections", "disconnect", "fake").returncode == 0
    assert fake.run("connections", "test", "fake").returncode == 3


def test_report_22_a_repeated_callback_is_one_exchange(
    fake: Workspace, provider: FakeProvider
) -> None:
    """A provider that counts sees one exchange, and no refresh, for three visits."""
    with fake.connecting("fake", "--no-browser", "--port=0") as login:
        callback = httpx.get(login.url(), trust_env=False).headers["location"]
        for headers in ({"Sec-Purpose": "prefetch"}, {}, {}, {}):
            httpx.get(callback, headers=headers, trust_env=False, follow_redirects=True)
        assert login.end() == 0
    asked = [request.path for request in provider.requests]
    assert asked.count("/token") == 1
