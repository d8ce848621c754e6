from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable

import pytest

from connections.declarations import declared, refusal
from segmentstream.connections import ConnectionDeclarationError, _renewal
from segmentstream.connections._rules import FieldPlace

MONTH = 30 * 24 * 3600
SHOP = {
    "authorization_url": "https://{shop}.example.com/authorize",
    "token_url": "https://{shop}.example.com/token",
    "url_variables": ["shop"],
}


def test_the_defaults_are_those_of_a_standard_server() -> None:
    """Without a word a refresh may use its token up, and 401 says that a token is dead."""
    connection = declared()

    assert connection.issuer is None
    assert connection.revocation_url is None
    assert connection.refresh_token_rotation is True
    assert connection.replay_window_seconds == 0
    assert connection.callback_metadata_fields == ()
    assert connection.refresh_margin_seconds == 300
    assert connection.refresh_statuses == (401,)
    assert connection.https_redirect is False


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("issuer", None),
        ("issuer", "https://login.example"),
        ("issuer", "https://Login.Example:8443/tenants/a%20b/"),
        ("issuer", "http://127.0.0.1:9000/op"),
        ("revocation_url", None),
        ("revocation_url", "https://provider.example/revoke?tenant=a"),
        ("revocation_url", "http://localhost:9000/revoke"),
        ("refresh_token_rotation", False),
        ("replay_window_seconds", 0),
        ("replay_window_seconds", 1800),
        ("replay_window_seconds", MONTH),
        ("callback_metadata_fields", []),
        ("callback_metadata_fields", ["realmId", "accounts-server", "location"]),
        ("callback_metadata_fields", [f"field_{number}" for number in range(50)]),
        ("refresh_margin_seconds", 0),
        ("refresh_margin_seconds", 86400),
        ("refresh_statuses", []),
        ("refresh_statuses", [401, 403]),
        ("refresh_statuses", (400, 499)),
        ("https_redirect", True),
    ],
)
def test_what_the_rules_allow_is_kept_as_written(field: str, value: object) -> None:
    """A value within the rules is accepted and read back unchanged."""
    stored = getattr(declared(**{field: value}), field)

    assert stored == (tuple(value) if isinstance(value, list) else value)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("issuer", ""),
        ("issuer", "login.example"),
        ("issuer", "http://login.example"),
        ("issuer", "https://login.example?tenant=a"),
        ("issuer", "https://login.example?"),
        ("issuer", "https://login.example#a"),
        ("issuer", "https://login.example#"),
        ("issuer", "https://user@login.example"),
        ("issuer", "https://{tenant}.login.example"),
        ("issuer", "https://login.example\n"),
        ("issuer", 7),
        ("revocation_url", ""),
        ("revocation_url", "http://provider.example/revoke"),
        ("revocation_url", "https://provider.example/revoke#"),
        ("revocation_url", "https://user:s3cr3t@provider.example/revoke"),
        ("revocation_url", "https://provider.example/revoke?client_id=a"),
        ("revocation_url", "https://provider.example/revoke?Token=a"),
        ("revocation_url", "https://provider.example/revoke?token_type_hint=a"),
        ("revocation_url", "https://{tenant}.provider.example/revoke"),
        ("revocation_url", ["https://provider.example/revoke"]),
        ("refresh_token_rotation", None),
        ("refresh_token_rotation", 0),
        ("refresh_token_rotation", "false"),
        ("replay_window_seconds", -1),
        ("replay_window_seconds", MONTH + 1),
        ("replay_window_seconds", 10**30),
        ("replay_window_seconds", 30.0),
        ("replay_window_seconds", "30"),
        ("replay_window_seconds", True),
        ("replay_window_seconds", None),
        ("callback_metadata_fields", None),
        ("callback_metadata_fields", "realmId"),
        ("callback_metadata_fields", [""]),
        ("callback_metadata_fields", ["realm id"]),
        ("callback_metadata_fields", ["realmId\n"]),
        ("callback_metadata_fields", ["realmId", "realmId"]),
        ("callback_metadata_fields", [7]),
        ("callback_metadata_fields", ["code"]),
        ("callback_metadata_fields", ["State"]),
        ("callback_metadata_fields", ["iss"]),
        ("callback_metadata_fields", ["error"]),
        ("callback_metadata_fields", ["error_description"]),
        ("callback_metadata_fields", ["error_uri"]),
        ("callback_metadata_fields", ["response"]),
        ("callback_metadata_fields", ["access_token"]),
        ("callback_metadata_fields", ["a" * 65]),
        ("callback_metadata_fields", [f"field_{number}" for number in range(51)]),
        ("refresh_margin_seconds", -1),
        ("refresh_margin_seconds", 86401),
        ("refresh_margin_seconds", 300.0),
        ("refresh_margin_seconds", False),
        ("refresh_margin_seconds", None),
        ("refresh_statuses", None),
        ("refresh_statuses", 401),
        ("refresh_statuses", "401"),
        ("refresh_statuses", {401}),
        ("refresh_statuses", ["401"]),
        ("refresh_statuses", [401.0]),
        ("refresh_statuses", [True]),
        ("refresh_statuses", [200]),
        ("refresh_statuses", [399]),
        ("refresh_statuses", [500]),
        ("refresh_statuses", [401, 429]),
        ("refresh_statuses", [401, 401]),
        ("https_redirect", None),
        ("https_redirect", 1),
        ("https_redirect", "yes"),
    ],
)
def test_what_the_rules_forbid_is_refused_by_the_name_of_its_field(
    field: str, value: object
) -> None:
    """A value outside the rules raises our error, which names the field and what to do."""
    error = refusal(**{field: value})

    assert error.field == field
    assert field in error.problem
    assert error.problem.endswith(".")
    assert error.remedy.endswith(".")
    assert "s3cr3t" not in str(error)


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        (
            {"refresh_token_rotation": False, "replay_window_seconds": 1},
            "replay_window_seconds",
        ),
        (
            {"code_parameter": "auth_code", "callback_metadata_fields": ["Auth_Code"]},
            "callback_metadata_fields",
        ),
        (
            {"metadata_fields": ["team", "id"], "callback_metadata_fields": ["id"]},
            "callback_metadata_fields",
        ),
        (
            {
                "client_id_parameter": "client_key",
                "revocation_url": "https://provider.example/revoke?Client_Key=s3cr3t",
            },
            "revocation_url",
        ),
        (
            {**SHOP, "revocation_url": "https://{store}.example.com/revoke"},
            "revocation_url",
        ),
    ],
)
def test_what_cannot_work_together_is_refused(changes: dict[str, object], field: str) -> None:
    """Two fields that exclude each other raise our error, which names the one to change."""
    error = refusal(**changes)

    assert error.field == field
    assert "s3cr3t" not in str(error)


def test_an_issuer_keeps_every_byte() -> None:
    """Neither case, nor port, nor a final slash is changed, since the comparison is of bytes."""
    written = "HTTPS://Login.Example:443/op/"

    assert declared(issuer=written).issuer == written


def test_the_address_for_revoking_is_filled_like_the_others() -> None:
    """A variable of the host gets its value there too, also where no other address has it."""
    everywhere = declared(**SHOP, revocation_url="https://{shop}.example.com/revoke")
    there_only = declared(
        revocation_url="https://{shop}.example.com/revoke", url_variables=["shop"]
    )

    for connection in (everywhere, there_only):
        filled = connection.with_variables({"shop": "acme"})
        assert filled.revocation_url == "https://acme.example.com/revoke"
        assert filled.url_variables == ()


def test_a_window_goes_when_rotation_does() -> None:
    """Replacing one field checks it against the other again."""
    connection = declared(replay_window_seconds=1800)

    with pytest.raises(ConnectionDeclarationError, match="replay_window_seconds"):
        dataclasses.replace(connection, refresh_token_rotation=False)


def test_later_changes_of_a_list_do_not_reach_the_declaration() -> None:
    """The statuses are copied when the declaration is made."""
    statuses = [401]
    connection = declared(refresh_statuses=statuses)

    statuses.append(500)

    assert connection.refresh_statuses == (401,)


@pytest.mark.parametrize(
    ("rule", "most"),
    [(_renewal.replay_window_seconds, MONTH), (_renewal.refresh_margin_seconds, 86400)],
)
def test_the_longest_time_is_the_one_that_is_told(
    rule: Callable[[FieldPlace, object], int], most: int
) -> None:
    """The limit itself is accepted, one second more is not, and the rule says what it is for."""
    place = FieldPlace(connection="a connection", field="it")

    assert rule(place, most) == most
    with pytest.raises(ConnectionDeclarationError, match="seconds between 0 and"):
        rule(place, most + 1)
    assert inspect.getdoc(rule)
