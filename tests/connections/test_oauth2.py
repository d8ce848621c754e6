from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from connections.declarations import declared, fields_of, refusal
from segmentstream._core.errors import SegmentStreamError
from segmentstream.connections import ConnectionDeclarationError, OAuth2Connection, SecretReference
from segmentstream.connections._oauth2 import _RULES, check_unique_keys

patient = settings(deadline=None)  # a busy machine is no failure

RUNTIME_FIELDS = [
    "client_id",
    "client_secret",
    "redirect_uri",
    "response_type",
    "state",
    "scope",
    "code",
    "code_challenge",
    "code_challenge_method",
    "code_verifier",
    "grant_type",
    "refresh_token",
    "nonce",
    "client_assertion",
    "client_assertion_type",
    "request",
    "request_uri",
    "State",
    "CLIENT_ID",
]


def kept_or_refused(*, token_url: str) -> str:
    try:
        return declared(token_url=token_url).token_url
    except ConnectionDeclarationError as error:
        return error.field


def test_the_declaration_of_the_specification_is_accepted() -> None:
    """Every field reads back as written, and the fields left out have the stated defaults."""
    connection = declared()

    assert connection.key == "google_ads"
    assert connection.client_id == SecretReference(name="google-oauth-client-id")
    assert connection.scopes == ("https://www.googleapis.com/auth/adwords",)
    assert connection.authorization_parameters == {"access_type": "offline", "prompt": "consent"}
    assert connection.token_parameters == {}
    assert connection.client_authentication == "client_secret_post"
    assert connection.pkce is True
    assert connection.require_refresh_token is True


def test_every_field_has_a_rule() -> None:
    """The table of rules and the fields of the declaration are the same, in the same order."""
    assert list(_RULES) == [field.name for field in dataclasses.fields(OAuth2Connection)]


def test_every_rule_says_what_it_accepts() -> None:
    """No rule stands without a sentence on what it lets through."""
    assert all(inspect.getdoc(rule) for rule in _RULES.values())


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("key", "a"),
        ("key", "a" + "_9" * 31 + "z"),
        ("name", "Ad"),
        ("name", "Яндекс Директ, 広告"),
        ("name", "x" * 80),
        ("provider", "google-ads-2"),
        ("scopes", []),
        ("scopes", ("read", "write:all", "a,b")),
        ("authorization_parameters", {"grant_options[]": "per-user", "hint": "Zoë & co"}),
        ("token_parameters", {"expiring": "1"}),
        ("client_authentication", "client_secret_basic"),
        ("pkce", False),
        ("require_refresh_token", False),
    ],
)
def test_what_the_rules_allow_is_kept_as_written(field: str, value: object) -> None:
    """A value within the rules is accepted and read back unchanged."""
    stored = getattr(declared(**{field: value}), field)

    assert stored == (tuple(value) if isinstance(value, list) else value)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("key", ""),
        ("key", "Google"),
        ("key", "1st"),
        ("key", "_x"),
        ("key", "google-ads"),
        ("key", "google_ads\n"),
        ("key", "a" * 65),
        ("key", "schlüssel"),
        ("key", None),
        ("name", "x"),
        ("name", "x" * 81),
        ("name", "  "),
        ("name", " Google"),
        ("name", "Google\nAds"),
        ("name", "Google\N{RIGHT-TO-LEFT OVERRIDE}Ads"),
        ("name", 12),
        ("provider", ""),
        ("provider", "Google"),
        ("provider", "google_ads"),
        ("provider", "g" * 65),
        ("provider", b"google"),
        ("scopes", None),
        ("scopes", "read write"),
        ("scopes", b"read"),
        ("scopes", {"read", "write"}),
        ("scopes", ["read write"]),
        ("scopes", ["read", ""]),
        ("scopes", ["read\n"]),
        ("scopes", ["re\x00ad"]),
        ("scopes", ["le\N{NO-BREAK SPACE}se"]),
        ("scopes", ["read", 7]),
        ("scopes", ["read", "write", "read"]),
        ("authorization_parameters", None),
        ("authorization_parameters", [("prompt", "consent")]),
        ("authorization_parameters", {"": "x"}),
        ("authorization_parameters", {"a b": "x"}),
        ("authorization_parameters", {"a\r\nb": "x"}),
        ("authorization_parameters", {7: "x"}),
        ("authorization_parameters", {"a": True}),
        ("authorization_parameters", {"a": None}),
        ("authorization_parameters", {"a": ["x", "y"]}),
        ("authorization_parameters", {"a": "x\r\ny"}),
        ("token_parameters", {"a": 1}),
        ("token_parameters", {"a": "\ud800"}),
        ("client_authentication", "none"),
        ("client_authentication", "CLIENT_SECRET_POST"),
        ("client_authentication", None),
        ("client_authentication", ["client_secret_post"]),
        ("pkce", "false"),
        ("pkce", 1),
        ("pkce", None),
        ("require_refresh_token", 0),
    ],
)
def test_what_the_rules_forbid_is_refused_by_the_name_of_its_field(
    field: str, value: object
) -> None:
    """A value outside the rules raises our error, which names the field and what to do."""
    error = refusal(**{field: value})

    assert isinstance(error, SegmentStreamError)
    assert error.field == field
    assert field in error.problem
    assert error.problem.endswith(".")
    assert error.remedy.endswith(".")


@pytest.mark.parametrize("field", ["authorization_url", "token_url"])
@pytest.mark.parametrize(
    "url",
    [
        "https://provider.example",
        "https://provider.example:8443/oauth/token/",
        "HTTPS://Provider.Example/token",
        "https://provider.example/token?tenant=a%20b&grant_options[]=x",
        "https://xn--mnchen-3ya.example/token",
        "https://192.0.2.7/token",
        "https://[2001:db8::1]:8443/token",
        "http://localhost:9000/token",
        "http://127.0.0.1/token",
        "http://127.8.9.10:1/token",
        "http://[::1]:9000/token",
    ],
)
def test_an_absolute_https_address_is_an_endpoint(field: str, url: str) -> None:
    """An https address, or an http one on a loopback host, is accepted and kept as written."""
    assert getattr(declared(**{field: url}), field) == url


@pytest.mark.parametrize("field", ["authorization_url", "token_url"])
@pytest.mark.parametrize(
    "url",
    [
        "",
        None,
        b"https://provider.example/token",
        "provider.example/token",
        "/token",
        "//provider.example/token",
        "https:",
        "https:provider.example",
        "https:///token",
        "https://:443/token",
        "ftp://provider.example/token",
        "javascript:alert(1)",
        "file:///etc/passwd",
        "http://provider.example/token",
        "http://localhost.example/token",
        "http://localhost@provider.example/token",
        "http://127.1/token",
        "http://0x7f000001/token",
        "http://0.0.0.0/token",
        "http://192.168.0.1/token",
        "https://127.1/token",
        "https://2130706433/token",
        "https://1.2.3.4.5/token",
        "https://user@provider.example/token",
        "https://user:password@provider.example/token",
        "https://@provider.example/token",
        "https://provider.example/token#",
        "https://provider.example/token#top",
        "https://provider.example:0/token",
        "https://provider.example:65536/token",
        "https://provider.example:99999/token",
        "https://provider.example:-1/token",
        "https://provider.example:https/token",
        "https://provider example/token",
        "https://provider.example/to ken",
        " https://provider.example/token",
        "https://provider.example/token\t",
        "https://provider.example/token\N{NO-BREAK SPACE}",
        "https://provider.example/%0d%0aHost:evil",
        "https://provider.example/%zz",
        "https://provider.example\\@evil.example/token",
        "https://{shop}.example/token",
        "https://münchen.example/token",
        "https://-provider.example/token",
        "https://provider..example/token",
        "https://pro%76ider.example/token",
        "https://[::1/token",
        "https://[::zz]/token",
        "https://[fe80::1%25eth0]/token",
        "https://" + "a" * 64 + ".example/token",
    ],
)
def test_any_other_address_is_refused(field: str, url: object) -> None:
    """What is relative, insecure, ambiguous or malformed is no endpoint."""
    assert refusal(**{field: url}).field == field


@pytest.mark.parametrize("field", ["authorization_url", "token_url"])
@patient
@given(position=st.integers(0, 60), line_break=st.sampled_from(["\r", "\n", "\r\n"]))
def test_a_line_break_anywhere_in_an_address_is_refused(
    field: str, position: int, line_break: str
) -> None:
    """No place in an address, its ends included, can hold a line break."""
    url = "https://provider.example:8443/oauth/token?tenant=a&mode=b"

    assert refusal(**{field: url[:position] + line_break + url[position:]}).field == field


@patient
@given(url=st.text(alphabet=st.characters(codec="ascii"), max_size=40))
def test_no_address_breaks_the_check_itself(url: str) -> None:
    """Whatever text stands for an address, it is kept or refused with our error, never a crash."""
    assert kept_or_refused(token_url="https://" + url) in {"https://" + url, "token_url"}


@pytest.mark.parametrize("name", RUNTIME_FIELDS)
@pytest.mark.parametrize("field", ["authorization_parameters", "token_parameters"])
def test_parameters_cannot_set_what_the_service_sets(field: str, name: str) -> None:
    """A runtime field of the protocol is refused among the parameters, in any case of letters."""
    error = refusal(**{field: {"prompt": "consent", name: "s3cr3t"}})

    assert error.field == field
    assert name.lower() in error.problem
    assert "s3cr3t" not in str(error)


@pytest.mark.parametrize("name", RUNTIME_FIELDS)
@pytest.mark.parametrize("field", ["authorization_url", "token_url"])
@pytest.mark.parametrize("query", ["{}=s3cr3t", "tenant=a&{}=s3cr3t", "a=b;{}=s3cr3t", "{}"])
def test_an_address_cannot_set_what_the_service_sets(field: str, name: str, query: str) -> None:
    """A runtime field of the protocol is refused in the query of either address."""
    error = refusal(**{field: "https://provider.example/oauth?" + query.format(name)})

    assert error.field == field
    assert name.lower() in error.problem
    assert "s3cr3t" not in str(error)


def test_an_escaped_name_in_a_query_is_read_as_the_provider_reads_it() -> None:
    """Percent escapes hide no runtime field."""
    error = refusal(authorization_url="https://provider.example/auth?%73tate=x")

    assert error.field == "authorization_url"


@pytest.mark.parametrize(
    ("url_field", "parameters_field"),
    [("authorization_url", "authorization_parameters"), ("token_url", "token_parameters")],
)
def test_a_parameter_is_sent_once(url_field: str, parameters_field: str) -> None:
    """A parameter may stand in the query of its endpoint or among the parameters, not in both."""
    error = refusal(
        **{url_field: "https://provider.example/x?prompt=none", parameters_field: {"Prompt": "a"}}
    )

    assert error.field == parameters_field


@pytest.mark.parametrize("field", ["client_id", "client_secret"])
@pytest.mark.parametrize("value", ["GOCSPX-s3cr3t", b"s3cr3t", {"value": "s3cr3t"}, ["s3cr3t"]])
def test_a_secret_itself_is_refused_and_never_repeated(field: str, value: object) -> None:
    """A plain value in place of a reference is refused, and no text of the error shows it."""
    error = refusal(**{field: value})

    assert error.field == field
    assert f"{field}=secret_ref(" in error.remedy
    assert "s3cr3t" not in str(error) + repr(error) + repr(error.args) + repr(vars(error))
    assert error.__cause__ is None
    assert error.__context__ is None


@pytest.mark.parametrize("field", sorted(set(_RULES) - {"client_id", "client_secret"}))
@pytest.mark.parametrize(
    "value", ["\ns3cr3t", ["\ns3cr3t"], {"\ns3cr3t": "a"}, {"a": "\ns3cr3t"}, {"a": {"s3cr3t"}}]
)
def test_a_secret_in_the_wrong_field_is_not_repeated_either(field: str, value: object) -> None:
    """Whatever a field is refused for, the error does not show what stood in it."""
    error = refusal(**{field: value})

    assert error.field == field
    assert "s3cr3t" not in str(error) + repr(error)


@pytest.mark.parametrize("field", ["client_sceret", "scope", "redirect_uri", "model_config"])
def test_an_unknown_field_is_refused(field: str) -> None:
    """A field that does not exist is named, and the error lists those that do."""
    error = refusal(**{field: "s3cr3t"})

    assert error.field == field
    assert all(known in error.remedy for known in _RULES)
    assert "s3cr3t" not in str(error)


@pytest.mark.parametrize(
    "field",
    [
        "key",
        "name",
        "provider",
        "authorization_url",
        "token_url",
        "client_id",
        "client_secret",
        "scopes",
    ],
)
def test_a_missing_field_is_named(field: str) -> None:
    """A declaration without a field that has no default raises our error about that field."""
    fields = fields_of()
    del fields[field]

    with pytest.raises(ConnectionDeclarationError) as caught:
        OAuth2Connection(**fields)

    assert caught.value.field == field


def test_all_missing_fields_are_listed_at_once() -> None:
    """One attempt tells everything that a declaration still lacks."""
    with pytest.raises(ConnectionDeclarationError) as caught:
        OAuth2Connection()  # type: ignore[call-arg]  # the point of the test

    assert caught.value.field == "key"
    assert "token_url, client_id, client_secret, scopes" in caught.value.problem


def test_fields_are_given_by_name_only() -> None:
    """A field without its name is refused by Python itself."""
    untyped: Any = OAuth2Connection  # mypy refuses the call too

    with pytest.raises(TypeError, match="positional"):
        untyped("google_ads", **fields_of())


def test_an_error_says_which_connection_it_is_about() -> None:
    """Among many declarations, the error names the key of the wrong one."""
    assert "connection 'google_ads'" in refusal(token_url="http://provider.example").problem


def test_a_declaration_cannot_be_changed() -> None:
    """No field can be set or deleted, and none can be added."""
    connection = declared()

    with pytest.raises(dataclasses.FrozenInstanceError):
        connection.pkce = False  # type: ignore[misc]  # the point of the test
    with pytest.raises(dataclasses.FrozenInstanceError):
        del connection.key
    with pytest.raises((AttributeError, TypeError)):
        connection.extra = 1  # type: ignore[attr-defined]  # the point of the test
    with pytest.raises(TypeError):
        connection.token_parameters["a"] = "b"  # type: ignore[index]  # the point of the test


def test_later_changes_of_what_was_passed_in_do_not_reach_the_declaration() -> None:
    """Lists and dicts are copied when the declaration is made."""
    scopes = ["read"]
    parameters = {"prompt": "consent"}
    connection = declared(scopes=scopes, authorization_parameters=parameters)

    scopes.append("write")
    parameters["state"] = "forged"

    assert connection.scopes == ("read",)
    assert connection.authorization_parameters == {"prompt": "consent"}


def test_a_declaration_is_a_value() -> None:
    """Equal declarations are equal and hash alike, also as deep copies and after pickling."""
    connection = declared(token_parameters={"a": "1", "b": "2"})
    same = declared(token_parameters={"b": "2", "a": "1"})

    copies = [same, copy.deepcopy(connection), pickle.loads(pickle.dumps(connection))]

    assert {connection, *copies} == {connection}
    assert declared(pkce=False) != connection


def test_a_replaced_field_is_checked_again() -> None:
    """dataclasses.replace is no way around the rules."""
    connection = declared()

    assert dataclasses.replace(connection, pkce=False).pkce is False
    with pytest.raises(ConnectionDeclarationError):
        dataclasses.replace(connection, token_url="http://provider.example/token")


def test_the_repr_shows_names_of_secrets() -> None:
    """A printed declaration can be read, and holds references where the secrets would be."""
    assert "client_secret=SecretReference(name='google-oauth-client-secret')" in repr(declared())
    assert "{'access_type': 'offline', 'prompt': 'consent'}" in repr(declared())


def test_duplicate_keys_are_refused() -> None:
    """Two connections with one key are refused, and the error names the key."""
    first, second = declared(), declared(name="Google Ads 2")

    with pytest.raises(ConnectionDeclarationError, match="'google_ads'") as caught:
        check_unique_keys([first, declared(key="hubspot"), second])

    assert caught.value.field == "key"


def test_different_keys_are_accepted() -> None:
    """Connections that differ only in their keys may stand side by side."""
    check_unique_keys(iter([declared(), declared(key="google_ads_2")]))
    check_unique_keys([])
