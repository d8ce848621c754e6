from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import segmentstream
from segmentstream import Connection, ReauthorizationRequiredError
from segmentstream.testing import FakeProvider
from testing import flows

_USERS_TEST = """
import segmentstream

pytest_plugins = ["segmentstream.testing.fixtures"]


def customers():
    with segmentstream.get_connection("fake").client() as http:
        return http.get("/customers").json()


def test_customers(fake_provider, fake_connection):
    fake_provider.serve("/customers", [{"id": 1}])
    assert customers() == [{"id": 1}]
"""


def test_a_connection_works_offline(
    fake_provider: FakeProvider, fake_connection: Connection
) -> None:
    """With the fixture alone an asset's own call gives a client that the API answers."""
    fake_provider.serve("/me", {"id": 1})
    with segmentstream.get_connection("fake").client() as http:
        assert http.get("/me").json() == {"id": 1}
    assert fake_connection.scopes == ("read", "offline_access")
    assert fake_provider.refreshes == 0


def test_a_token_that_ends_is_renewed(
    fake_provider: FakeProvider, fake_connection: Connection
) -> None:
    """Each time the tokens expire the next request succeeds after one refresh."""
    fake_provider.serve("/me", {"id": 1})
    with fake_connection.client() as http:
        for refreshes in (1, 2, 3):
            fake_provider.expire_tokens()
            assert http.get("/me").status_code == 200
            assert fake_provider.refreshes == refreshes


def test_a_grant_that_is_revoked_says_what_to_do(
    fake_provider: FakeProvider, fake_connection: Connection
) -> None:
    """Once the person has taken the grant back, the error names the command that helps."""
    fake_provider.serve("/me", {"id": 1})
    with fake_connection.client() as http:
        assert http.get("/me").status_code == 200
        fake_provider.expire_tokens()
        fake_provider.revoke_grants()
        with pytest.raises(ReauthorizationRequiredError, match="`segmentstream connect fake`"):
            http.get("/me")


def test_several_connections_of_other_names(fake_provider: FakeProvider) -> None:
    """Assets that ask for their own keys can be tested too."""
    fake_provider.serve("/me", {"id": 1})
    with fake_provider.connected(
        fake_provider.connection("google_ads"), fake_provider.connection("hubspot", scopes=["x"])
    ):
        for key in ("google_ads", "hubspot"):
            with segmentstream.get_connection(key).client() as http:
                assert http.get("/me").status_code == 200
        assert segmentstream.get_connection("hubspot").scopes == ("x",)


def test_a_request_that_the_provider_refuses_is_not_allowed(fake_provider: FakeProvider) -> None:
    """Saying yes by hand follows the same rules as the page."""
    good = "&".join(f"{name}={value}" for name, value in flows.ASKED.items())
    assert "code" in fake_provider.allow(f"{fake_provider.url}/authorize?{good}")
    with pytest.raises(ValueError, match="PKCE"):
        fake_provider.allow(f"{fake_provider.url}/authorize?{good.replace('S256', 'plain')}")


def test_a_users_test_needs_one_line(tmp_path: Path) -> None:
    """In a project of its own the plugin is named once, and nothing is written to the folder."""
    (tmp_path / "test_asset.py").write_text(_USERS_TEST)
    variables = {
        name: value for name, value in os.environ.items() if not name.startswith("SEGMENTSTREAM_")
    }
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-W", "error"],
        cwd=tmp_path,
        env={
            **variables,
            "HOME": str(tmp_path),
            "PYTHONDONTWRITEBYTECODE": "1",
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        },
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout
    assert [file.name for file in tmp_path.iterdir()] == ["test_asset.py"]
