from __future__ import annotations

import dataclasses
import json
from pathlib import Path

from connections.declarations import declared
from segmentstream.connections import OAuth2Connection, secret_ref
from segmentstream.connections._manifest import MANIFEST_VERSION, manifest_of

GOLDEN = Path(__file__).with_name("manifest.json")

# Every field of this one differs from its default, but for what goes with none of the others.
DIFFERENT = OAuth2Connection(
    key="different",
    name="Different",
    provider="different",
    authorization_url="https://{shop}.example.com/authorize",
    token_url="https://{shop}.example.com/token",
    client_id=secret_ref("different-id"),
    client_secret=secret_ref("different-secret"),
    scopes=["read", "write"],
    authorization_parameters={"prompt": "consent"},
    token_parameters={"expiring": "1"},
    client_authentication="client_secret_basic",
    pkce=False,
    require_refresh_token=False,
    basic_encoding="raw",
    client_id_parameter="client_key",
    code_parameter="auth_code",
    scope_separator=",",
    implied_scopes={"write": ["read"]},
    resource=["https://api.example.com/"],
    token_request_format="json",
    refresh_url="https://{shop}.example.com/refresh",
    refresh_parameters={"scope": "read"},
    url_variables=["shop"],
    token_path=["data"],
    bearer_types=["bot"],
    success_field="code",
    success_value=0,
    zero_expiry="never",
    expiry_unit="milliseconds",
    default_lifetime_seconds=7200,
    metadata_fields=["team.id"],
    issuer="https://login.example.com",
    revocation_url="https://{shop}.example.com/revoke",
    replay_window_seconds=1800,
    callback_metadata_fields=["realmId"],
    refresh_margin_seconds=60,
    refresh_statuses=[401, 403],
    api_base_url="https://{shop}.api.example.com/{team.id}/{realmId}",
    api_header="X-Access-Token",
    api_scheme="",
    https_redirect=True,
)
PUBLIC = dataclasses.replace(
    declared(),
    key="public",
    client_secret=None,
    client_authentication="none",
    refresh_token_rotation=False,
)


def test_the_manifest_is_the_golden_file() -> None:
    """Whoever reads manifests gets exactly this form; a change of it is a change for them."""
    assert manifest_of([declared(), DIFFERENT, PUBLIC]) == GOLDEN.read_text()


def test_every_field_is_in_the_golden_file() -> None:
    """The golden file shows each field once with its default and once with another value."""
    default, different, public = json.loads(GOLDEN.read_text())["connections"]

    assert len(default) == len(dataclasses.fields(OAuth2Connection))
    assert [name for name in default if default[name] == different[name] == public[name]] == []


def test_a_manifest_says_its_version() -> None:
    """Even a manifest of no connection says which form it has."""
    assert json.loads(manifest_of([])) == {"version": MANIFEST_VERSION, "connections": []}
