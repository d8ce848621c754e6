from __future__ import annotations

import asyncio
import base64
import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest

from segmentstream.connections import OAuth2Connection, secret_ref
from segmentstream_connections_runtime.errors import Code, ServiceError
from segmentstream_connections_runtime.http import Answer, ProviderClient
from segmentstream_connections_runtime.oauth import Granted, OAuthClient
from segmentstream_connections_runtime.schemas import (
    ExchangeRequest,
    RefreshRequest,
    StartRequest,
    read_json,
)
from segmentstream_connections_runtime.secrets.environment import EnvironmentSecrets
from segmentstream_connections_runtime.service import ConnectionService
from segmentstream_connections_runtime.tokens import BODY_BYTES

ID = "app id/1"
SECRET = "a+b/c==: %\N{CYRILLIC SMALL LETTER DE}"  # authlib/authlib#628, and no latin-1
REDIRECT = "https://app.example/callback"
VERIFIER = "v" * 43
SCOPES = {"write": ["read"], "admin": ["write"]}


@dataclass(kw_only=True)
class Request:
    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def form(self) -> list[tuple[str, str]]:
        return parse_qsl(self.body.decode(), strict_parsing=True, keep_blank_values=True)


@dataclass(kw_only=True)
class Provider:
    """Is a token endpoint that records what it is asked and answers what a test says."""

    url: str
    requests: list[Request] = field(default_factory=list)
    answer: dict[str, Any] = field(
        default_factory=lambda: {"access_token": "A", "refresh_token": "R", "expires_in": 60}
    )

    @property
    def only(self) -> Request:
        (request,) = self.requests
        return request

    def connection(self, **changes: Any) -> OAuth2Connection:
        fields: dict[str, Any] = {
            "key": "demo",
            "name": "Demo",
            "provider": "demo",
            "authorization_url": "https://provider.example/authorize",
            "token_url": f"{self.url}/token",
            "client_id": secret_ref("demo-id"),
            "client_secret": secret_ref("demo-secret"),
            "scopes": ["read", "write"],
        }
        return OAuth2Connection(**(fields | changes))

    def exchange(self, **changes: Any) -> Granted:
        return asyncio.run(self._exchange(self.connection(**changes)))

    def refresh(self, **changes: Any) -> Granted:
        return asyncio.run(self._refresh(self.connection(**changes)))

    async def _exchange(self, connection: OAuth2Connection) -> Granted:
        client = provider_client()
        try:
            return await oauth(client).exchange(
                connection, code="C", redirect_uri=REDIRECT, verifier=VERIFIER
            )
        finally:
            await client.close()

    async def _refresh(self, connection: OAuth2Connection) -> Granted:
        client = provider_client()
        try:
            return await oauth(client).refresh(connection, refresh_token="R0")
        finally:
            await client.close()


def secrets() -> EnvironmentSecrets:
    prefix = "SEGMENTSTREAM_CONNECTION_SECRET_DEMO_"
    return EnvironmentSecrets({f"{prefix}ID": ID, f"{prefix}SECRET": SECRET})


def provider_client() -> ProviderClient:
    return ProviderClient(seconds=10, body_bytes=BODY_BYTES, allows_private=True, ca_file=None)


def oauth(client: ProviderClient) -> OAuthClient:
    return OAuthClient(client, secrets())


@pytest.fixture
def provider() -> Iterator[Provider]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            headers = {name.lower(): value for name, value in self.headers.items()}
            made.requests.append(Request(path=self.path, headers=headers, body=body))
            text = json.dumps(made.answer).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, *arguments: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    made = Provider(url=f"http://127.0.0.1:{server.server_port}")
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield made
    server.shutdown()
    thread.join()
    server.server_close()


def authorization(connection: OAuth2Connection) -> list[tuple[str, str]]:
    url = oauth(provider_client()).authorization_url(
        connection, redirect_uri=REDIRECT, state="S", code_challenge="c" * 43
    )
    return parse_qsl(urlsplit(url).query, strict_parsing=True)


def basic_of(request: Request) -> str:
    kind, _, text = request.headers["authorization"].partition(" ")
    assert kind == "Basic"
    return base64.b64decode(text).decode()


def test_a_standard_exchange_is_a_form_with_the_secret_in_it(provider: Provider) -> None:
    """Without any declared difference the request is that of RFC 6749 section 4.1.3."""
    provider.exchange()

    assert provider.only.headers["content-type"] == "application/x-www-form-urlencoded"
    assert "authorization" not in provider.only.headers
    assert dict(provider.only.form) == {
        "grant_type": "authorization_code",
        "code": "C",
        "redirect_uri": REDIRECT,
        "code_verifier": VERIFIER,
        "client_id": ID,
        "client_secret": SECRET,
    }


def test_the_client_id_goes_under_its_declared_name(provider: Provider) -> None:
    """Both requests use the name that the provider takes, and not client_id."""
    connection = provider.connection(client_id_parameter="client_key")

    provider.exchange(client_id_parameter="client_key")

    assert ("client_key", ID) in provider.only.form
    assert ("client_key", ID) in authorization(connection)
    assert "client_id" not in dict(provider.only.form) | dict(authorization(connection))


def test_a_public_client_sends_its_id_and_no_secret(provider: Provider) -> None:
    """A client without a secret says who it is in the body, and shows nothing else."""
    provider.exchange(client_authentication="none", client_secret=None)

    assert ("client_id", ID) in provider.only.form
    assert "client_secret" not in dict(provider.only.form)
    assert "authorization" not in provider.only.headers


def test_a_basic_header_is_form_encoded_unless_declared_raw(provider: Provider) -> None:
    """By default id and secret are encoded as RFC 6749 section 2.3.1 wants it, in UTF-8."""
    provider.exchange(client_authentication="client_secret_basic")

    assert basic_of(provider.only) == "app+id%2F1:a%2Bb%2Fc%3D%3D%3A+%25%D0%B4"
    assert not {"client_id", "client_secret"} & set(dict(provider.only.form))


def test_a_raw_basic_header_has_id_and_secret_as_they_are(provider: Provider) -> None:
    """A provider that does not decode gets the plain pair, in UTF-8 too."""
    provider.exchange(client_authentication="client_secret_basic", basic_encoding="raw")

    assert basic_of(provider.only) == f"{ID}:{SECRET}"


def test_a_raw_basic_header_cannot_carry_an_id_with_a_colon(provider: Provider) -> None:
    """The provider would read another id (RFC 7617 section 2), so nothing is sent."""
    provider_with_colon = provider.connection(
        client_authentication="client_secret_basic",
        basic_encoding="raw",
        client_id=secret_ref("demo-secret"),
    )

    with pytest.raises(ServiceError) as caught:
        asyncio.run(provider._refresh(provider_with_colon))

    assert caught.value.code is Code.RUNTIME_UNAVAILABLE
    assert provider.requests == []


@pytest.mark.parametrize(
    ("authentication", "shown"),
    [
        ("client_secret_post", {"client_id": ID, "client_secret": SECRET}),
        ("client_secret_basic", {}),
    ],
)
def test_a_json_body_holds_the_same_fields(
    provider: Provider, authentication: str, shown: dict[str, str]
) -> None:
    """With token_request_format="json" the body is one object of strings."""
    provider.refresh(
        token_request_format="json",
        client_authentication=authentication,
        resource=["urn:example:api"],
    )

    assert provider.only.headers["content-type"] == "application/json"
    assert json.loads(provider.only.body) == {
        "grant_type": "refresh_token",
        "refresh_token": "R0",
        "resource": "urn:example:api",
        **shown,
    }


def test_a_refresh_goes_to_its_own_address_with_its_own_parameters(provider: Provider) -> None:
    """refresh_url and refresh_parameters count for a refresh, and replace what has their name."""
    provider.refresh(
        refresh_url=f"{provider.url}/refresh",
        token_parameters={"mode": "token", "kept": "1"},
        refresh_parameters={"mode": "refresh", "scope": "read"},
    )

    assert provider.only.path == "/refresh"
    assert sorted(name for name, _ in provider.only.form) == [
        "client_id",
        "client_secret",
        "grant_type",
        "kept",
        "mode",
        "refresh_token",
        "scope",
    ]
    assert ("mode", "refresh") in provider.only.form


def test_an_exchange_knows_nothing_of_the_refresh(provider: Provider) -> None:
    """An exchange goes to token_url and has token_parameters only."""
    provider.exchange(
        refresh_url=f"{provider.url}/refresh",
        token_parameters={"mode": "token"},
        refresh_parameters={"mode": "refresh", "scope": "read"},
    )

    assert provider.only.path == "/token"
    assert ("mode", "token") in provider.only.form
    assert "scope" not in dict(provider.only.form)


def test_each_resource_is_a_parameter_of_its_own(provider: Provider) -> None:
    """All requests repeat `resource` (RFC 8707 section 2), in the declared order."""
    resources = ["https://a.example/?x=1&y=2", "urn:b:1"]
    expected = [("resource", uri) for uri in resources]

    provider.exchange(resource=resources)
    provider.refresh(resource=resources)

    asked = authorization(provider.connection(resource=resources))
    for pairs in (asked, *(request.form for request in provider.requests)):
        assert [pair for pair in pairs if pair[0] == "resource"] == expected


@pytest.mark.parametrize("separator", [" ", ",", "+", ";"])
def test_scopes_are_parted_as_declared(provider: Provider, separator: str) -> None:
    """The authorization request has one scope parameter, read back with the declared character."""
    asked = authorization(provider.connection(scope_separator=separator))

    assert [value for name, value in asked if name == "scope"] == [f"read{separator}write"]


def test_scopes_parted_as_declared_are_read_from_an_answer(provider: Provider) -> None:
    """The declared character parts the scopes of an answer too."""
    provider.answer["scope"] = "read;write"

    assert provider.exchange(scope_separator=";").scopes == ("read", "write")


@pytest.mark.parametrize(
    ("granted", "missing"),
    [
        ("write", ()),
        ("admin", ()),
        ("read", ("write",)),
        ("other", ("read", "write")),
    ],
)
def test_an_implied_scope_is_not_missing(
    provider: Provider, granted: str, missing: tuple[str, ...]
) -> None:
    """What a granted scope stands for, at one remove or more, counts as granted."""
    provider.answer["scope"] = granted

    result = provider.exchange(implied_scopes=SCOPES)

    assert result.missing_scopes == missing
    assert result.scopes == (granted,)


def test_scopes_that_imply_each_other_end(provider: Provider) -> None:
    """A circle of implied scopes is no endless loop."""
    provider.answer["scope"] = "read"

    result = provider.exchange(implied_scopes={"read": ["write"], "write": ["read"]})

    assert result.missing_scopes == ()


def test_the_token_is_read_from_its_declared_path(provider: Provider) -> None:
    """A token under declared fields is found there, and only there."""
    provider.answer = {
        "ok": True,
        "access_token": "bot",
        "authed_user": {"access_token": "user", "refresh_token": "R"},
    }

    granted = provider.exchange(token_path=["authed_user"], success_field="ok")

    assert granted.tokens.access_token == "user"


@pytest.mark.parametrize(
    ("kind", "types", "is_usable"),
    [
        ("Bot", ["bot"], True),
        ("bearer", ["bot"], True),
        ("bot", [], False),
        ("mac", ["bot"], False),
    ],
)
def test_a_type_of_token_is_used_when_it_is_declared(
    provider: Provider, kind: str, types: list[str], is_usable: bool
) -> None:
    """A token is a bearer token when its type is Bearer or declared, in any case of letters."""
    provider.answer["token_type"] = kind

    if is_usable:
        assert provider.exchange(bearer_types=types).tokens.token_type == "Bearer"
    else:
        with pytest.raises(ServiceError):
            provider.exchange(bearer_types=types)


@pytest.mark.parametrize(("code", "is_success"), [(0, True), (40002, False)])
def test_the_success_rule_decides(provider: Provider, code: int, is_success: bool) -> None:
    """An answer with status 200 counts when the declared field holds the declared value."""
    provider.answer["code"] = code

    try:
        provider.exchange(success_field="code", success_value=0)
        succeeded = True
    except ServiceError as error:
        succeeded = error.code is not Code.PROVIDER_REJECTED

    assert succeeded is is_success


@pytest.mark.parametrize(
    ("told", "changes", "expected"),
    [
        (0, {}, 0),
        (0, {"zero_expiry": "never"}, None),
        (3_600_000, {"expiry_unit": "milliseconds"}, 3600),
        (None, {}, None),
        (None, {"default_lifetime_seconds": 7200}, 7200),
        (60, {"default_lifetime_seconds": 7200}, 60),
    ],
)
def test_the_lifetime_is_read_as_declared(
    provider: Provider, told: int | None, changes: dict[str, Any], expected: int | None
) -> None:
    """Unit, zero and default of a lifetime are what the declaration says."""
    provider.answer["expires_in"] = told

    assert provider.exchange(**changes).tokens.expires_in == expected


def test_declared_fields_of_an_answer_are_handed_on(provider: Provider) -> None:
    """Of all that an answer holds, only the declared paths become metadata."""
    provider.answer |= {"instance_url": "https://a.example", "team": {"id": "T", "name": "N"}}

    granted = provider.exchange(metadata_fields=["instance_url", "team.id", "absent"])

    assert granted.tokens.metadata == {"instance_url": "https://a.example", "team.id": "T"}


class Recorder(ProviderClient):
    """Records addresses instead of calling hosts that are no test servers."""

    def __init__(self) -> None:
        super().__init__(seconds=10, body_bytes=BODY_BYTES, allows_private=False, ca_file=None)
        self.urls: list[str] = []

    async def post(self, url: str, **_: Any) -> Answer:
        self.urls.append(url)
        await asyncio.sleep(0)
        return Answer(status=200, headers={}, body=b'{"access_token":"A","refresh_token":"R"}')


def shops(provider: Provider, client: ProviderClient) -> ConnectionService:
    connection = provider.connection(
        authorization_url="https://{shop}.example.com/authorize",
        token_url="https://{shop}.example.com/token",
        url_variables=["shop"],
    )
    return ConnectionService([connection], oauth(client), secrets())


def test_variables_choose_the_host_of_every_request(provider: Provider) -> None:
    """Start, exchange and refresh go to the host that the caller's variables make."""
    client = Recorder()
    service = shops(provider, client)

    async def run() -> None:
        await service.exchange(
            "demo", code="C", redirect_uri=REDIRECT, verifier=VERIFIER, variables={"shop": "a"}
        )
        await service.refresh("demo", refresh_token="R", variables={"shop": "b"})

    asyncio.run(run())
    url = service.start(
        "demo", redirect_uri=REDIRECT, state="S", code_challenge="c" * 43, variables={"shop": "c"}
    )

    assert client.urls == ["https://a.example.com/token", "https://b.example.com/token"]
    assert url.startswith("https://c.example.com/authorize?")


def test_requests_for_different_hosts_are_different_requests(provider: Provider) -> None:
    """Two shops with one refresh token do not share an answer that is under way."""
    client = Recorder()
    service = shops(provider, client)

    async def run() -> None:
        await asyncio.gather(
            *(service.refresh("demo", refresh_token="R", variables={"shop": s}) for s in "aab")
        )

    asyncio.run(run())

    assert sorted(client.urls) == ["https://a.example.com/token", "https://b.example.com/token"]


@pytest.mark.parametrize("variables", [{}, {"shop": "s3cr3t.evil/"}, {"shop": "a", "s3cr3t": "b"}])
def test_wrong_variables_are_an_invalid_request(
    provider: Provider, variables: dict[str, str]
) -> None:
    """A value that is missing, wrong or one too many is the caller's fault and is not repeated."""
    client = Recorder()

    with pytest.raises(ServiceError) as caught:
        asyncio.run(shops(provider, client).refresh("demo", refresh_token="R", variables=variables))

    assert caught.value.code is Code.INVALID_REQUEST
    assert "variables" in str(caught.value)
    assert "shop" in str(caught.value)
    assert "s3cr3t" not in str(caught.value)
    assert client.urls == []


@pytest.mark.parametrize(
    ("kind", "fields"),
    [
        (StartRequest, {"redirectUri": REDIRECT, "state": "S"}),
        (ExchangeRequest, {"redirectUri": REDIRECT, "code": "C"}),
        (RefreshRequest, {"refreshToken": "R"}),
    ],
)
def test_every_request_may_bring_variables(kind: Any, fields: dict[str, Any]) -> None:
    """`variables` is an object of strings, and may be left out."""
    assert read_json(kind, json.dumps(fields).encode()).variables == {}
    with_shop = json.dumps(fields | {"variables": {"shop": "a"}}).encode()
    assert read_json(kind, with_shop).variables == {"shop": "a"}


@pytest.mark.parametrize(
    "variables", [None, "a", [], {"a": 1}, {"a": ""}, {"a": "x" * 64}, {"x" * 33: "a"}]
)
def test_variables_of_another_form_are_refused(variables: object) -> None:
    """What is no small object of strings is refused by the name of the field."""
    body = json.dumps({"refreshToken": "R", "variables": variables}).encode()

    with pytest.raises(ServiceError) as caught:
        read_json(RefreshRequest, body)

    assert caught.value.code is Code.INVALID_REQUEST
    assert "variables" in str(caught.value)
