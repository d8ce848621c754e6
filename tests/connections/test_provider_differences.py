from __future__ import annotations

import copy
import dataclasses
import pickle
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from connections.declarations import declared, fields_of, refusal
from segmentstream.connections import ConnectionDeclarationError, OAuth2Connection

patient = settings(deadline=None)  # a busy machine is no failure

SHOP: dict[str, Any] = {
    "authorization_url": "https://{shop}.myshopify.com/admin/oauth/authorize",
    "token_url": "https://{shop}.myshopify.com/admin/oauth/access_token",
    "url_variables": ["shop"],
}


def public(**changes: object) -> dict[str, Any]:
    """Gives the fields of a client without a secret."""
    fields = fields_of(client_authentication="none", **changes)
    del fields["client_secret"]
    return fields


def refusal_of_value(connection: OAuth2Connection, values: Any) -> ConnectionDeclarationError:
    with pytest.raises(ConnectionDeclarationError) as caught:
        connection.with_variables(values)
    return caught.value


def test_the_defaults_are_those_of_a_standard_server() -> None:
    """A declaration that says nothing about a provider describes a server that keeps to RFC 6749."""
    connection = declared()

    assert connection.basic_encoding == "form"
    assert connection.client_id_parameter == "client_id"
    assert connection.code_parameter == "code"
    assert connection.scope_separator == " "
    assert connection.implied_scopes == {}
    assert connection.resource == ()
    assert connection.token_request_format == "form"
    assert connection.refresh_url is None
    assert connection.refresh_parameters == {}
    assert connection.url_variables == ()
    assert connection.token_path == ()
    assert connection.bearer_types == ()
    assert connection.success_field is None
    assert connection.success_value is True
    assert connection.zero_expiry == "expired"
    assert connection.expiry_unit == "seconds"
    assert connection.default_lifetime_seconds is None
    assert connection.metadata_fields == ()


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("client_id_parameter", "client_key"),
        ("client_id_parameter", "app_id"),
        ("code_parameter", "spapi_oauth_code"),
        ("scope_separator", ","),
        ("scope_separator", "+"),
        ("implied_scopes", {}),
        ("implied_scopes", {"write_orders": ("read_orders",)}),
        ("resource", ["https://api.example/v1", "urn:example:files"]),
        ("resource", ["https://api.example/?tenant=a"]),
        ("token_request_format", "json"),
        ("refresh_url", None),
        ("refresh_url", "https://provider.example/refresh"),
        ("refresh_url", "http://127.0.0.1:9000/refresh"),
        ("refresh_parameters", {"scope": "read write", "expiring": "1"}),
        ("token_path", ["data"]),
        ("token_path", ["authed_user", "authed_user"]),
        ("bearer_types", ["bot", "user"]),
        ("success_field", "ok"),
        ("zero_expiry", "never"),
        ("expiry_unit", "milliseconds"),
        ("default_lifetime_seconds", None),
        ("default_lifetime_seconds", 1),
        ("default_lifetime_seconds", 7200),
        ("metadata_fields", ["instance_url", "team.id", "id_token"]),
    ],
)
def test_what_the_rules_allow_is_kept_as_written(field: str, value: object) -> None:
    """A value within the rules is accepted and read back unchanged."""
    stored = getattr(declared(**{field: value}), field)

    assert stored == (tuple(value) if isinstance(value, list) else value)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("basic_encoding", "RAW"),
        ("basic_encoding", None),
        ("basic_encoding", True),
        ("client_id_parameter", ""),
        ("client_id_parameter", "client id"),
        ("client_id_parameter", "client_id\r\n"),
        ("client_id_parameter", "a&b"),
        ("client_id_parameter", "state"),
        ("client_id_parameter", "Scope"),
        ("client_id_parameter", "resource"),
        ("client_id_parameter", "a" * 65),
        ("client_id_parameter", None),
        ("code_parameter", ""),
        ("code_parameter", "state"),
        ("code_parameter", "iss"),
        ("code_parameter", "error"),
        ("code_parameter", "co\nde"),
        ("code_parameter", 1),
        ("scope_separator", ""),
        ("scope_separator", "  "),
        ("scope_separator", ", "),
        ("scope_separator", "\n"),
        ("scope_separator", "\t"),
        ("scope_separator", "a"),
        ("scope_separator", "%20"),
        ("scope_separator", None),
        ("implied_scopes", None),
        ("implied_scopes", ["write"]),
        ("implied_scopes", {"write": "read"}),
        ("implied_scopes", {"write": []}),
        ("implied_scopes", {"write": ["re ad"]}),
        ("implied_scopes", {"wr ite": ["read"]}),
        ("implied_scopes", {7: ["read"]}),
        ("implied_scopes", {"write": ["read", "read"]}),
        ("implied_scopes", {"write": {"read"}}),
        ("resource", "https://api.example"),
        ("resource", ["api.example"]),
        ("resource", ["/v1"]),
        ("resource", ["https://api.example/#top"]),
        ("resource", ["https://api.example/\r\nx"]),
        ("resource", ["https://api example/"]),
        ("resource", ["https://{shop}.api.example/"]),
        ("resource", ["https://api.example/", "https://api.example/"]),
        ("resource", [7]),
        ("resource", None),
        ("token_request_format", "xml"),
        ("token_request_format", None),
        ("refresh_url", ""),
        ("refresh_url", "http://provider.example/refresh"),
        ("refresh_url", "https://provider.example:99999/refresh"),
        ("refresh_url", "https://provider.example/refresh\r\n"),
        ("refresh_url", "https://provider.example/re fresh"),
        ("refresh_url", "https://provider.example/refresh?grant_type=x"),
        ("refresh_url", "https://provider.example/refresh?scope=x"),
        ("refresh_url", "https://{shop}.provider.example/refresh"),
        ("refresh_url", 1),
        ("refresh_parameters", None),
        ("refresh_parameters", {"grant_type": "x"}),
        ("refresh_parameters", {"refresh_token": "x"}),
        ("refresh_parameters", {"a": True}),
        ("refresh_parameters", {"scope": ["read"]}),
        ("refresh_parameters", {"scope": "read\r\n"}),
        ("url_variables", "shop"),
        ("url_variables", ["Shop"]),
        ("url_variables", ["{shop}"]),
        ("url_variables", [""]),
        ("url_variables", ["shop"]),
        ("url_variables", None),
        ("token_path", "data"),
        ("token_path", [""]),
        ("token_path", ["da ta"]),
        ("token_path", [0]),
        ("token_path", ["a"] * 11),
        ("token_path", None),
        ("bearer_types", "bot"),
        ("bearer_types", ["bot", "bot"]),
        ("bearer_types", ["b ot"]),
        ("bearer_types", ["DPoP"]),
        ("bearer_types", [None]),
        ("success_field", ""),
        ("success_field", "o k"),
        ("success_field", True),
        ("success_value", None),
        ("success_value", 1.5),
        ("success_value", [True]),
        ("success_value", "o\nk"),
        ("success_value", 0),
        ("zero_expiry", "NEVER"),
        ("zero_expiry", True),
        ("expiry_unit", "minutes"),
        ("expiry_unit", None),
        ("default_lifetime_seconds", 0),
        ("default_lifetime_seconds", -1),
        ("default_lifetime_seconds", True),
        ("default_lifetime_seconds", 3600.0),
        ("default_lifetime_seconds", "3600"),
        ("default_lifetime_seconds", 10**30),
        ("metadata_fields", "instance_url"),
        ("metadata_fields", [""]),
        ("metadata_fields", ["a..b"]),
        ("metadata_fields", [".a"]),
        ("metadata_fields", ["a b"]),
        ("metadata_fields", ["id", "id"]),
        ("metadata_fields", ["access_token"]),
        ("metadata_fields", ["authed_user.refresh_token"]),
        ("metadata_fields", [f"field_{number}" for number in range(51)]),
        ("metadata_fields", None),
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


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"client_authentication": "none"}, "client_authentication"),
        ({"client_secret": None}, "client_secret"),
        ({"basic_encoding": "raw"}, "basic_encoding"),
        ({"scopes": ["read,write"], "scope_separator": ","}, "scopes"),
        (
            {"token_request_format": "json", "resource": ["urn:a:1", "urn:a:2"]},
            "resource",
        ),
        ({"success_value": "success"}, "success_value"),
        ({"success_value": False}, "success_value"),
        (
            {"client_id_parameter": "client_key", "token_parameters": {"Client_Key": "s3cr3t"}},
            "token_parameters",
        ),
        (
            {"client_id_parameter": "app", "token_url": "https://provider.example/t?app=s3cr3t"},
            "token_url",
        ),
        (
            {"resource": ["urn:a:1"], "authorization_parameters": {"resource": "s3cr3t"}},
            "authorization_parameters",
        ),
        (
            {"resource": ["urn:a:1"], "refresh_url": "https://provider.example/r?resource=s3cr3t"},
            "refresh_url",
        ),
        (
            {"refresh_parameters": {"a": "s3cr3t"}, "token_url": "https://provider.example/t?A=1"},
            "refresh_parameters",
        ),
        (
            {"refresh_parameters": {"a": "1"}, "refresh_url": "https://provider.example/t?a=1"},
            "refresh_parameters",
        ),
        (
            {"token_parameters": {"Mode": "s3cr3t"}, "refresh_parameters": {"mode": "s3cr3t"}},
            "refresh_parameters",
        ),
        (
            {"token_parameters": {"a": "1"}, "refresh_url": "https://provider.example/t?a=1"},
            "token_parameters",
        ),
    ],
)
def test_what_cannot_work_together_is_refused(changes: dict[str, object], field: str) -> None:
    """Two fields that exclude each other raise our error, which names the one to change."""
    error = refusal(**changes)

    assert error.field == field
    assert "s3cr3t" not in str(error)


def test_a_public_client_has_no_secret() -> None:
    """With client_authentication="none" the secret is left out, and reads back as None."""
    connection = OAuth2Connection(**public())

    assert connection.client_secret is None
    assert connection.client_authentication == "none"


def test_a_public_client_uses_pkce() -> None:
    """Nothing else would protect the code of a client without a secret."""
    with pytest.raises(ConnectionDeclarationError) as caught:
        OAuth2Connection(**public(pkce=False))

    assert caught.value.field == "pkce"


def test_a_client_that_is_no_longer_public_needs_a_secret() -> None:
    """The rule about the secret holds for a replaced field too."""
    connection = OAuth2Connection(**public())

    with pytest.raises(ConnectionDeclarationError) as caught:
        dataclasses.replace(connection, client_authentication="client_secret_post")

    assert caught.value.field == "client_secret"


def test_a_basic_header_may_be_raw() -> None:
    """Some providers want id and secret in the header as they are."""
    connection = declared(client_authentication="client_secret_basic", basic_encoding="raw")

    assert connection.basic_encoding == "raw"


@pytest.mark.parametrize("authentication", ["client_secret_basic", "client_secret_post"])
def test_a_json_body_goes_with_either_way_to_show_the_secret(authentication: str) -> None:
    """Notion takes a JSON body beside a Basic header, others the secret in the body."""
    connection = declared(token_request_format="json", client_authentication=authentication)

    assert connection.token_request_format == "json"


@pytest.mark.parametrize("value", ["success", 0, False, True])
def test_a_success_rule_names_a_field_and_its_value(value: object) -> None:
    """Whatever simple value a provider documents for success can be declared."""
    connection = declared(success_field="code", success_value=value)

    assert connection.success_value is value


def test_a_parameter_of_one_request_may_stand_in_the_address_of_another() -> None:
    """Only the query of the address that a request goes to counts."""
    connection = declared(
        token_url="https://provider.example/token?mode=a",
        refresh_url="https://provider.example/refresh",
        refresh_parameters={"mode": "b"},
    )

    assert connection.refresh_parameters == {"mode": "b"}


def test_a_declaration_with_every_difference_is_a_value() -> None:
    """It is equal to its copies and hashes alike, and pickling keeps it."""
    connection = declared(
        **SHOP,
        implied_scopes={"write": ["read"]},
        refresh_parameters={"scope": "read"},
        metadata_fields=["shop"],
    )

    assert {connection, copy.deepcopy(connection), pickle.loads(pickle.dumps(connection))} == {
        connection
    }


def test_later_changes_of_implied_scopes_do_not_reach_the_declaration() -> None:
    """The mapping and its lists are copied when the declaration is made."""
    implied = {"write": ["read"]}
    connection = declared(implied_scopes=implied)

    implied["write"].append("delete")
    implied["admin"] = ["write"]

    assert connection.implied_scopes == {"write": ("read",)}


@pytest.mark.parametrize(
    ("url", "variables"),
    [
        ("https://{shop}.myshopify.com/admin", ["shop"]),
        ("HTTPS://{shop}.myshopify.com:8443/admin?a=b", ["shop"]),
        ("https://login.{region}.{cell}.example.com", ["region", "cell"]),
        ("https://{a}.{a}.example.com/", ["a"]),
    ],
)
def test_a_variable_stands_for_one_label_of_a_host(url: str, variables: list[str]) -> None:
    """A host may have variables in place of whole labels, when they are declared."""
    assert declared(token_url=url, url_variables=variables).token_url == url


@pytest.mark.parametrize(
    "url",
    [
        "https://{shop}.example/token",
        "https://api.{shop}/token",
        "https://{shop}/token",
        "https://api.{shop}.com/token",
        "https://shop-{shop}.example.com/token",
        "https://{shop}{shop}.example.com/token",
        "https://{}.example.com/token",
        "https://{Shop}.example.com/token",
        "https://{shop.example.com/token",
        "https://{shop:a}.example.com/token",
        "https://{shop}.example.com:{shop}/token",
        "https://{shop}.example.com:99999/token",
        "https://{shop}@example.com/token",
        "https://{shop}:x@example.com/token",
        "https://x{shop}@a.example.com/token",
        "https://a.example.com/{shop}",
        "https://a.example.com/?shop={shop}",
        "http://{shop}.example.com/token",
        "http://{shop}.localhost/token",
        "{scheme}://a.example.com/token",
    ],
)
@pytest.mark.parametrize("field", ["authorization_url", "token_url", "refresh_url"])
def test_a_variable_stands_nowhere_else(field: str, url: str) -> None:
    """Braces outside whole labels of an https host, or in its last two labels, are refused."""
    fields = {**SHOP, field: url}

    assert refusal(**fields).field == field


@pytest.mark.parametrize("field", ["authorization_url", "token_url", "refresh_url"])
def test_an_undeclared_variable_is_refused(field: str) -> None:
    """A variable in an address that url_variables does not have is an error of the address."""
    error = refusal(**{**SHOP, field: "https://{tenant}.example.com/oauth"})

    assert error.field == field


def test_an_unused_variable_is_refused() -> None:
    """A variable that no address has is an error of url_variables."""
    error = refusal(**{**SHOP, "url_variables": ["shop", "tenant"]})

    assert error.field == "url_variables"


def test_variables_are_filled() -> None:
    """Each address gets the value, the declaration keeps its variables, and all else stays."""
    template = declared(**SHOP, refresh_url="https://{shop}.example.com:8443/r?a=%7Bshop%7D")

    filled = template.with_variables({"shop": "acme--dev-1"})

    assert filled.authorization_url == "https://acme--dev-1.myshopify.com/admin/oauth/authorize"
    assert filled.token_url == "https://acme--dev-1.myshopify.com/admin/oauth/access_token"
    assert filled.refresh_url == "https://acme--dev-1.example.com:8443/r?a=%7Bshop%7D"
    assert filled.url_variables == ()
    assert filled.scopes == template.scopes
    assert template.url_variables == ("shop",)


def test_nothing_is_filled_where_there_is_no_variable() -> None:
    """A declaration without variables is its own filled form."""
    connection = declared()

    assert connection.with_variables({}) is connection


@pytest.mark.parametrize(
    "value",
    [
        "",
        "s3cr3t.evil",
        "evil.example/s3cr3t",
        "s3cr3t@evil",
        "s3cr3t:443",
        "s3cr3t#",
        "s3cr3t?",
        "s3cr3t/..",
        "s3cr3t\\",
        "s3cr3t%2e",
        "s3cr3t\r\n",
        " s3cr3t",
        "-s3cr3t",
        "s3cr3t-",
        "S3cr3t",
        "s3cr3t_",
        "{s3cr3t}",
        "s3cr3t\N{FULLWIDTH FULL STOP}evil",
        "\N{LATIN SMALL LETTER E WITH ACUTE}",
        "a" * 64,
        None,
        7,
        ["s3cr3t"],
    ],
)
def test_a_value_that_is_no_label_is_refused(value: object) -> None:
    """Whatever could leave the place of one label of the host is refused and not repeated."""
    error = refusal_of_value(declared(**SHOP), {"shop": value})

    assert error.field == "url_variables"
    assert "shop" in error.problem
    assert "s3cr3t" not in str(error)


@pytest.mark.parametrize("values", [{}, {"store": "a"}, {"shop": "a", "store": "s3cr3t"}])
def test_the_values_are_those_of_the_declared_variables(values: dict[str, str]) -> None:
    """A value that is missing or one too many is refused, and the wanted names are told."""
    error = refusal_of_value(declared(**SHOP), values)

    assert error.field == "url_variables"
    assert "shop" in error.remedy
    assert "s3cr3t" not in str(error)


def test_a_host_that_becomes_too_long_is_refused() -> None:
    """Labels that are right by themselves can still make no host (RFC 1035 section 2.3.4)."""
    names = ["a", "b", "c", "d"]
    host = ".".join(f"{{{name}}}" for name in names)
    connection = declared(token_url=f"https://{host}.example.com/", url_variables=names)

    with pytest.raises(ConnectionDeclarationError) as caught:
        connection.with_variables(dict.fromkeys(names, "x" * 63))

    assert caught.value.field == "token_url"


@patient
@given(value=st.text(max_size=12))
def test_no_value_changes_the_domain(value: str) -> None:
    """Whatever fills a variable, it is refused, or the host still ends as it was declared."""
    try:
        url = declared(**SHOP).with_variables({"shop": value}).token_url
    except ConnectionDeclarationError:
        return
    assert url == f"https://{value}.myshopify.com/admin/oauth/access_token"
    assert "." not in value
