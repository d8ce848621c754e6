from __future__ import annotations

import copy
import pickle
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from connections.declarations import declared, refusal
from segmentstream.connections import ConnectionDeclarationError

patient = settings(deadline=None)  # a busy machine is no failure

NAMES: dict[str, Any] = {
    "metadata_fields": ["instance_url", "api_domain", "team.id"],
    "callback_metadata_fields": ["realmId"],
}


def address(api_base_url: str, **metadata: object) -> str | None:
    untyped: Any = metadata  # what came from a file may be of any type
    return declared(**NAMES, api_base_url=api_base_url).api_address(untyped)


def refusal_of_metadata(api_base_url: str, **metadata: object) -> ConnectionDeclarationError:
    with pytest.raises(ConnectionDeclarationError) as caught:
        address(api_base_url, **metadata)
    return caught.value


def kept_or_refused(api_base_url: str) -> str | None:
    try:
        return declared(metadata_fields=["a", "x"], api_base_url=api_base_url).api_base_url
    except ConnectionDeclarationError as error:
        return error.field


def test_the_defaults_are_those_of_a_standard_server() -> None:
    """Without a word a token goes into the Authorization header as a bearer token (RFC 6750)."""
    connection = declared()

    assert connection.api_base_url is None
    assert connection.api_header == "Authorization"
    assert connection.api_scheme == "Bearer"
    assert connection.api_address({"instance_url": "https://api.example"}) is None


@pytest.mark.parametrize(
    "url",
    [
        "https://api.example",
        "https://api.example:8443/v1/",
        "HTTPS://Api.Example/a%20b",
        "https://192.0.2.7/v1",
        "https://[2001:db8::1]:8443/v1",
        "http://localhost:9000/v1",
        "http://[::1]:9000",
    ],
)
def test_an_address_without_names_is_the_address(url: str) -> None:
    """An https address, or http on loopback, is kept as written and needs no metadata."""
    connection = declared(api_base_url=url)

    assert connection.api_base_url == url
    assert connection.api_address({}) == url


@pytest.mark.parametrize(
    "url",
    [
        "",
        b"https://api.example",
        7,
        "api.example/v1",
        "/v1",
        "ftp://api.example",
        "http://api.example",
        "https://user@api.example",
        "https://api.example/v1?a=b",
        "https://api.example/v1?",
        "https://api.example/v1#",
        "https://api.example/v 1",
        "https://api.example/v1\r\nHost: evil",
        "https://api.example/%0d%0a",
        "https://api.example/a/../b",
        "https://api.example/a/%2E%2e",
        "https://api.example/.",
        "https://api.example:0",
        "https://api.example:99999",
        "https://127.1/v1",
        "https://{}/v1",
        "https://{api_domain/v1",
        "https://api_domain}/v1",
        "https://{api domain}/v1",
        "https://{{api_domain}}/v1",
        "https://api-{api_domain}/v1",
        "https://{api_domain}{team.id}/v1",
        "https://{api_domain}:{team.id}/v1",
        "https://{api_domain}@api.example/v1",
        "https://[{api_domain}]/v1",
        "http://{api_domain}/v1",
        "http://{api_domain}.localhost/v1",
        "http://localhost.{api_domain}/v1",
        "{instance_url}.evil.example/v1",
        "{instance_url}@evil.example/v1",
        "{instance_url}{team.id}",
        "{instance_url}?a=b",
        "{instance_url}/v1?a=b",
        "{instance_url}/v1#",
        "{instance_url}/../v1",
        " {instance_url}",
        "{instance_url}://api.example",
        # Whoever fills these could choose who gets the token.
        "{realmId}",
        "{realmId}/v1",
        "https://{realmId}/v1",
        "https://{realmId}.example/v1",
        "https://api.{realmId}/v1",
        "https://api.{realmId}.com/v1",
        "{shop}/v1",
        "https://{shop}.example/v1",
        "https://api.{shop}.com/v1",
        "https://api.example.com/{shop}",
        # Declared nowhere, and declared twice.
        "https://{tenant}.api.example.com/v1",
        "https://api.example.com/{client_secret}",
        "https://{team}.api.example.com",
        "https://{both}.api.example.com",
    ],
)
def test_any_other_address_is_refused(url: object) -> None:
    """What is insecure, ambiguous, or leaves the host to the wrong people is refused by name."""
    fields: dict[str, Any] = {
        "token_url": "https://{shop}.{both}.example.com/token",
        "url_variables": ["shop", "both"],
        "metadata_fields": [*NAMES["metadata_fields"], "both"],
        "callback_metadata_fields": NAMES["callback_metadata_fields"],
    }
    error = refusal(**fields, api_base_url=url)

    assert error.field == "api_base_url"
    assert error.problem.endswith(".")
    assert error.remedy.endswith(".")


@pytest.mark.parametrize(
    ("url", "metadata", "filled"),
    [
        (
            "{instance_url}",
            {"instance_url": "https://acme.my.salesforce.com"},
            "https://acme.my.salesforce.com",
        ),
        (
            "{instance_url}/services/data",
            {"instance_url": "https://acme.my.salesforce.com:8443/a/"},
            "https://acme.my.salesforce.com:8443/a/services/data",
        ),
        ("https://{api_domain}/v1", {"api_domain": "eu.api.example"}, "https://eu.api.example/v1"),
        ("https://{team.id}.api.example", {"team.id": "t1"}, "https://t1.api.example"),
        ("https://{team.id}.api.example", {"team.id": 7}, "https://7.api.example"),
        ("https://x.{api_domain}:8443", {"api_domain": "a.example"}, "https://x.a.example:8443"),
        ("https://api.example/{realmId}/x", {"realmId": "123145"}, "https://api.example/123145/x"),
        ("https://api.example/{realmId}", {"realmId": -7}, "https://api.example/-7"),
        (
            "https://{realmId}.api.example.com/v{team.id}",
            {"realmId": "acme", "team.id": "2.0"},
            "https://acme.api.example.com/v2.0",
        ),
        ("http://127.0.0.1:9000/{realmId}", {"realmId": "a"}, "http://127.0.0.1:9000/a"),
        (
            "https://api.example/{realmId}",
            {"realmId": "a/b?c#d%2e é"},
            "https://api.example/a%2Fb%3Fc%23d%252e%20%C3%A9",
        ),
    ],
)
def test_names_are_filled_from_the_login(url: str, metadata: dict[str, Any], filled: str) -> None:
    """A value is an address where it leads, a host or a label in a host, a segment in a path."""
    assert address(url, **metadata, other="https://evil.example") == filled


@pytest.mark.parametrize(
    "value",
    [
        None,
        "",
        True,
        7,
        1.5,
        ["https://s3cr3t.example"],
        "s3cr3t.example",
        "//s3cr3t.example",
        "http://s3cr3t.example",
        "http://127.0.0.1/s3cr3t",
        "http://localhost/s3cr3t",
        "https://user:s3cr3t@api.example",
        "https://api.example?s3cr3t",
        "https://api.example?",
        "https://api.example#s3cr3t",
        "https://api.example/s3cr3t\r\nHost: evil",
        "https://api.example/s3cr3t/../..",
        "https://api.example\\@s3cr3t.example",
        "https://s3cr3t..example",
        "https://127.1/s3cr3t",
        "https://api.example:0/s3cr3t",
        "https://{s3cr3t}.example",
        " https://s3cr3t.example",
    ],
)
def test_a_value_that_is_no_address_is_refused(value: object) -> None:
    """What stands for scheme and host must be a whole https address, also on loopback."""
    error = refusal_of_metadata("{instance_url}/v1", instance_url=value)

    assert error.field == "api_base_url"
    assert "instance_url" in error.problem
    assert "s3cr3t" not in str(error)
    assert error.__cause__ is None
    assert error.__context__ is None or error.__suppress_context__


@pytest.mark.parametrize("name", ["api_domain", "realmId"])
@pytest.mark.parametrize(
    "value",
    [
        None,
        "",
        False,
        "s3cr3t.example/",
        "s3cr3t.example:443",
        "user@s3cr3t.example",
        "s3cr3t.example#",
        "s3cr3t.example?",
        "S3cr3t.example",
        "s3cr3t..example",
        ".s3cr3t",
        "-s3cr3t",
        "s3cr3t\r\n",
        "s3cr3t%2e",
        "127.0.0.1",
        "[::1]",
        "{s3cr3t}",
        "s3cr3t\N{FULLWIDTH FULL STOP}example",
        "a" * 64,
    ],
)
def test_a_value_that_is_no_host_is_refused(name: str, value: object) -> None:
    """What stands in a host is a name of a host, and cannot end it."""
    error = refusal_of_metadata(f"https://{{{name}}}.api.example.com/v1", **{name: value})

    assert error.field == "api_base_url"
    assert name in error.problem
    assert "s3cr3t" not in str(error)


def test_a_callback_chooses_one_label_at_most() -> None:
    """Where the provider's answer may bring a host of several labels, a callback may not."""
    url = "https://{}.api.example.com"

    assert address(url.format("{api_domain}"), api_domain="a.b") == "https://a.b.api.example.com"
    assert refusal_of_metadata(url.format("{realmId}"), realmId="a.b").field == "api_base_url"


@pytest.mark.parametrize(
    "value", [None, "", ".", "..", True, 1.5, {}, "s3cr3t\r\n", "s3cr3t\x00", "s3cr3t\ud800"]
)
def test_a_value_that_is_no_segment_is_refused(value: object) -> None:
    """What stands in a path is one segment that no client resolves away."""
    error = refusal_of_metadata("https://api.example/v3/{realmId}/x", realmId=value)

    assert error.field == "api_base_url"
    assert "s3cr3t" not in str(error)


def test_a_segment_cannot_be_put_together_from_dots() -> None:
    """Two values that are harmless alone make no step to another folder."""
    error = refusal_of_metadata(
        "https://api.example/{realmId}{team.id}/x", **{"realmId": ".", "team.id": "."}
    )

    assert error.field == "api_base_url"


@pytest.mark.parametrize("value", ["5", "2130706433", "0x7f000001"])
def test_a_number_is_no_host_by_itself(value: str) -> None:
    """Clients read such a host as an IPv4 address, so it stands before a domain only."""
    assert refusal_of_metadata("https://{api_domain}/v1", api_domain=value).field == "api_base_url"
    assert address("https://{api_domain}.a.example", api_domain=value) == (
        f"https://{value}.a.example"
    )


def test_variables_are_filled_before_the_rest() -> None:
    """Variables of the host come from whoever uses the declaration, and never from metadata."""
    template = declared(
        **NAMES,
        url_variables=["shop"],
        api_base_url="https://{shop}.{team.id}.example.com/{realmId}",
    )

    with pytest.raises(ConnectionDeclarationError, match="with_variables") as caught:
        template.api_address({"shop": "evil", "team.id": "eu", "realmId": "1"})
    assert caught.value.field == "api_base_url"

    filled = template.with_variables({"shop": "acme"})
    assert filled.api_base_url == "https://acme.{team.id}.example.com/{realmId}"
    assert filled.api_address({"team.id": "eu", "realmId": "1"}) == (
        "https://acme.eu.example.com/1"
    )
    with pytest.raises(ConnectionDeclarationError, match="url_variables"):
        template.with_variables({"shop": "acme.evil"})


def test_a_host_that_becomes_too_long_is_refused() -> None:
    """Labels that are right by themselves can still make no host (RFC 1035 section 2.3.4)."""
    error = refusal_of_metadata(
        "https://{api_domain}.api.example", api_domain=".".join(["x" * 60] * 4)
    )

    assert error.field == "api_base_url"


@patient
@given(value=st.text(max_size=16))
@example("..")
@example("a/../b")
@example("%2e%2e")
@example("\r\n")
def test_no_value_leaves_its_segment(value: str) -> None:
    """Whatever stands in a path, it is refused, or it is read back as that one segment."""
    try:
        filled = address("https://api.example/v3/{realmId}/x", realmId=value)
    except ConnectionDeclarationError:
        return
    assert filled is not None
    parts = urlsplit(filled)
    assert (parts.scheme, parts.netloc, parts.query, parts.fragment) == (
        "https",
        "api.example",
        "",
        "",
    )
    assert [unquote(part) for part in parts.path.split("/")] == ["", "v3", value, "x"]


@patient
@given(value=st.text(max_size=16))
def test_no_value_changes_the_domain(value: str) -> None:
    """Whatever stands in a host, it is refused, or the host still ends as it was declared."""
    try:
        filled = address("https://{api_domain}.api.example/v1", api_domain=value)
    except ConnectionDeclarationError:
        return
    assert filled == f"https://{value}.api.example/v1"
    assert urlsplit(filled).hostname == f"{value}.api.example"


@patient
@given(value=st.text(alphabet=st.characters(codec="ascii"), max_size=24))
def test_no_value_breaks_the_check_itself(value: str) -> None:
    """Whatever stands for a whole address, the result is an https address without more."""
    try:
        filled = address("{instance_url}/v1", instance_url="https://" + value)
    except ConnectionDeclarationError:
        return
    assert filled is not None
    parts = urlsplit(filled)
    assert parts.scheme == "https"
    assert parts.hostname
    assert "@" not in parts.netloc
    assert (parts.query, parts.fragment) == ("", "")
    assert parts.path.endswith("/v1")


@patient
@given(url=st.text(alphabet="{}:/.?#@ax%2e", max_size=24))
def test_no_declared_address_breaks_the_check_itself(url: str) -> None:
    """Whatever is declared, it is kept or refused with our error, never a crash."""
    assert kept_or_refused(url) in {url, "api_base_url"}


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("api_header", "X-Shopify-Access-Token"),
        ("api_header", "authorization"),
        ("api_header", "PRIVATE-TOKEN"),
        ("api_scheme", ""),
        ("api_scheme", "Zoho-oauthtoken"),
        ("api_scheme", "token"),
    ],
)
def test_a_token_may_go_into_another_header_or_stand_alone(field: str, value: str) -> None:
    """A name of a header, and a scheme or none, are kept as written."""
    assert getattr(declared(**{field: value}), field) == value


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("api_header", ""),
        ("api_header", None),
        ("api_header", b"Authorization"),
        ("api_header", "X Token"),
        ("api_header", "X-Token:"),
        ("api_header", "X-Token\r\nHost"),
        ("api_header", "X-Tokén"),
        ("api_header", "X" * 65),
        ("api_header", "Host"),
        ("api_header", "cookie"),
        ("api_header", "Set-Cookie"),
        ("api_header", "Content-Length"),
        ("api_header", "content-type"),
        ("api_header", "Transfer-Encoding"),
        ("api_header", "Connection"),
        ("api_header", "Proxy-Authorization"),
        ("api_header", "TE"),
        ("api_header", "Upgrade"),
        ("api_header", "Expect"),
        ("api_scheme", None),
        ("api_scheme", " "),
        ("api_scheme", "Bearer "),
        ("api_scheme", "Bearer:"),
        ("api_scheme", "Bearer\n"),
        ("api_scheme", "B" * 65),
        ("api_scheme", "DPoP"),
        ("api_scheme", "mac"),
    ],
)
def test_what_is_no_header_or_scheme_is_refused(field: str, value: object) -> None:
    """What could end a header, or say where a request goes, raises our error by its name."""
    error = refusal(**{field: value})

    assert error.field == field
    assert field in error.problem
    assert error.remedy.endswith(".")


def test_a_declaration_with_every_name_is_a_value() -> None:
    """It is equal to its copies and hashes alike, and pickling keeps it."""
    connection = declared(
        **NAMES, api_base_url="https://{team.id}.api.example.com/{realmId}", api_scheme=""
    )

    assert {connection, copy.deepcopy(connection), pickle.loads(pickle.dumps(connection))} == {
        connection
    }
