"""The service against an authorization server that is strict where RFC 6749 lets it be."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import secrets
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import httpx
import pytest

from connections_runtime.authority import Authority
from connections_runtime.oidc_server import (
    REDIRECT_URI,
    OidcServer,
    missing,
    running_oidc_server,
)
from connections_runtime.running import LocalService
from segmentstream.connections import OAuth2Connection, secret_ref

pytestmark = pytest.mark.skipif(missing() is not None, reason=str(missing()))

_CALL = "/internal/v1/connections/it"


@pytest.fixture(scope="module")
def server(authority: Authority) -> Iterator[OidcServer]:
    """The authorization server; it knows the clients by-basic, by-post and public."""
    authority.server_context("localhost", "127.0.0.1")
    pem = authority.folder / "localhost-127.0.0.1.pem"
    with running_oidc_server(pem, authority.ca_file) as running:
        yield running


def service_of(server: OidcServer, client_id: str = "by-basic", **changes: Any) -> LocalService:
    """A service with one connection to the server."""
    authentication = {
        "by-basic": "client_secret_basic",
        "by-post": "client_secret_post",
        "public": "none",
    }[client_id]
    secret = {} if client_id == "public" else {"client_secret": secret_ref("it-secret")}
    declared = {
        "key": "it",
        "name": "It",
        "provider": "it",
        "authorization_url": f"{server.issuer}/auth",
        "token_url": f"{server.issuer}/token",
        "client_id": secret_ref("it-id"),
        "scopes": ["openid", "offline_access", "read"],
        "authorization_parameters": {"prompt": "consent"},
        "client_authentication": authentication,
        **secret,
        **changes,
    }
    return LocalService(
        OAuth2Connection(**declared),
        ca_file=server.ca_file,
        variables={
            "SEGMENTSTREAM_CONNECTION_SECRET_IT_ID": client_id,
            "SEGMENTSTREAM_CONNECTION_SECRET_IT_SECRET": server.secret,
        },
    )


class Person:
    """Authorizes in a browser, and calls the service as its caller does."""

    def __init__(self, server: OidcServer, client: httpx.AsyncClient) -> None:
        self._server = server
        self._client = client
        self.verifier = secrets.token_urlsafe(48)
        digest = hashlib.sha256(self.verifier.encode()).digest()
        self._challenge = base64.urlsafe_b64encode(digest).rstrip(b"=").decode()

    async def authorize(self) -> str:
        """Gives a code."""
        state = secrets.token_urlsafe(24)
        started = await self._client.post(
            f"{_CALL}/authorization/start",
            json={
                "redirectUri": REDIRECT_URI,
                "state": state,
                "codeChallenge": self._challenge,
            },
        )
        assert started.status_code == 200, started.text
        came = await asyncio.to_thread(self._server.authorize, started.json()["authorizationUrl"])
        assert came["state"] == state
        assert came["iss"] == self._server.issuer
        return came["code"]

    async def exchange(self, code: str, /, **changes: str) -> httpx.Response:
        """Exchanges a code."""
        asked = {"code": code, "redirectUri": REDIRECT_URI, "codeVerifier": self.verifier}
        return await self._client.post(f"{_CALL}/token/exchange", json=asked | changes)

    async def refresh(self, token: str) -> httpx.Response:
        """Renews tokens."""
        return await self._client.post(f"{_CALL}/token/refresh", json={"refreshToken": token})


@pytest.mark.parametrize("client_id", ["by-basic", "by-post", "public"])
def test_from_declaration_to_a_refreshed_token(server: OidcServer, client_id: str) -> None:
    """A person authorizes, the code becomes tokens, and the refresh token renews them."""

    async def story(client: httpx.AsyncClient) -> None:
        person = Person(server, client)
        granted = (await person.exchange(await person.authorize())).json()
        assert granted["tokenType"] == "Bearer"
        assert 0 < granted["expiresIn"] <= 60
        assert set(granted["scopes"]) >= {"read"}
        assert granted["missingScopes"] == []
        renewed = (await person.refresh(granted["refreshToken"])).json()
        assert renewed["accessToken"] != granted["accessToken"]
        assert renewed["refreshToken"] != granted["refreshToken"]

    service_of(server, client_id).run(story)


def test_a_raw_basic_header_is_not_accepted(server: OidcServer) -> None:
    """The server wants what RFC 6749 says; the knob for other servers makes it refuse the client."""

    async def story(client: httpx.AsyncClient) -> None:
        person = Person(server, client)
        answer = await person.exchange(await person.authorize())
        assert answer.status_code in {400, 502}
        assert "accessToken" not in answer.text

    service_of(server, basic_encoding="raw").run(story)


@pytest.mark.parametrize(
    "changes",
    [
        {"codeVerifier": "x" * 43},
        {"redirectUri": "https://app.example/other"},
        {"code": "never-given"},
    ],
    ids=["verifier", "redirect", "code"],
)
def test_what_does_not_belong_to_a_code_is_rejected(
    server: OidcServer, changes: dict[str, str]
) -> None:
    """Another verifier, address or code is the provider's refusal, told as one."""

    async def story(client: httpx.AsyncClient) -> None:
        person = Person(server, client)
        answer = await person.exchange(await person.authorize(), **changes)
        assert answer.status_code == 400
        assert answer.json()["error"]["code"] == "oauth_provider_rejected"

    service_of(server).run(story)


def test_a_refresh_token_that_was_used_before_needs_a_person(server: OidcServer) -> None:
    """The server revokes the whole grant on reuse, and the caller hears that it is over."""

    async def story(client: httpx.AsyncClient) -> None:
        person = Person(server, client)
        first = (await person.exchange(await person.authorize())).json()["refreshToken"]
        second = (await person.refresh(first)).json()["refreshToken"]
        for token in (first, second):
            answer = await person.refresh(token)
            assert answer.status_code == 400
            assert answer.json()["error"]["code"] == "oauth_reauthorization_required"

    service_of(server).run(story)


def test_twenty_refreshes_at_once_are_one(server: OidcServer) -> None:
    """A single-use refresh token survives a storm: all callers get the same new tokens."""

    async def story(client: httpx.AsyncClient) -> None:
        person = Person(server, client)
        first = (await person.exchange(await person.authorize())).json()["refreshToken"]
        answers = await asyncio.gather(*(person.refresh(first) for _ in range(20)))
        assert {answer.status_code for answer in answers} == {200}
        (renewed,) = {answer.json()["refreshToken"] for answer in answers}
        assert (await person.refresh(renewed)).status_code == 200

    service_of(server).run(story)


def test_the_same_code_twice_at_once_is_one_exchange(server: OidcServer) -> None:
    """A callback that arrives twice does not spend the code twice."""

    async def story(client: httpx.AsyncClient) -> None:
        person = Person(server, client)
        code = await person.authorize()
        one, other = await asyncio.gather(person.exchange(code), person.exchange(code))
        assert one.status_code == other.status_code == 200
        assert one.json() == other.json()
        assert (await person.refresh(one.json()["refreshToken"])).status_code == 200

    service_of(server).run(story)


def test_a_wrong_secret_is_the_clients_fault(server: OidcServer) -> None:
    """A client that the provider does not accept is no refusal of the caller's request."""

    async def story(client: httpx.AsyncClient) -> None:
        person = Person(server, client)
        answer = await person.exchange(await person.authorize())
        assert answer.status_code == 502
        assert answer.json()["error"]["code"] == "oauth_client_rejected"

    wrong = replace(server, secret="wrong")
    service_of(wrong).run(story)
