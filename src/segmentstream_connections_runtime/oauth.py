"""The requests of OAuth 2.0 for one connection, as RFC 6749, RFC 7636 and its declaration say.

Imports `connections` and the modules below it.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, quote_plus, urlsplit

from segmentstream.connections import OAuth2Connection
from segmentstream_connections_runtime.errors import Code, ServiceError
from segmentstream_connections_runtime.http import Answer, ProviderClient
from segmentstream_connections_runtime.secrets.base import Secret, SecretResolver
from segmentstream_connections_runtime.tokens import Grant, Rules, TokenSet, read_answer


@dataclass(frozen=True, slots=True, kw_only=True)
class Granted:
    """Is a token set and what it lacks.

    Attributes:
        tokens: What the provider granted, with the old refresh token where it sent no new one.
        scopes: The scopes in force.
        missing_scopes: Scopes that were asked for and not granted.
    """

    tokens: TokenSet
    scopes: tuple[str, ...]
    missing_scopes: tuple[str, ...]


class OAuthClient:
    """Carries out the requests of connections."""

    def __init__(self, provider: ProviderClient, secrets: SecretResolver) -> None:
        self._provider = provider
        self._secrets = secrets

    def authorization_url(
        self,
        connection: OAuth2Connection,
        *,
        redirect_uri: str,
        state: str,
        code_challenge: str | None,
    ) -> str:
        """Gives the address that a person is sent to (RFC 6749 section 4.1.1).

        Raises:
            ServiceError: PKCE is on and no challenge was given, or the client id is not set.
        """
        if connection.pkce and code_challenge is None:
            raise ServiceError(Code.INVALID_REQUEST, "The connection needs codeChallenge (PKCE).")
        pairs = [
            *connection.authorization_parameters.items(),
            ("response_type", "code"),
            ("client_id", self._secrets.resolve(connection.client_id).reveal()),
            ("redirect_uri", redirect_uri),
            ("state", state),
        ]
        if connection.scopes:
            pairs.append(("scope", " ".join(connection.scopes)))
        if connection.pkce and code_challenge is not None:
            pairs += [("code_challenge", code_challenge), ("code_challenge_method", "S256")]
        joint = "&" if urlsplit(connection.authorization_url).query else "?"
        # %20 and not +: some providers read a + in a scope as itself.
        return connection.authorization_url + joint + _encoded(pairs, quote_with=quote)

    async def exchange(
        self, connection: OAuth2Connection, *, code: str, redirect_uri: str, verifier: str | None
    ) -> Granted:
        """Exchanges a code for tokens (RFC 6749 section 4.1.3).

        Raises:
            ServiceError: As `tokens.read_answer`; or PKCE is on and there is no verifier.
        """
        if connection.pkce and verifier is None:
            raise ServiceError(Code.INVALID_REQUEST, "The connection needs codeVerifier (PKCE).")
        pairs = [("code", code), ("redirect_uri", redirect_uri)]
        if connection.pkce and verifier is not None:
            pairs.append(("code_verifier", verifier))
        tokens = await self._ask(connection, "authorization_code", pairs)
        if connection.require_refresh_token and tokens.refresh_token is None:
            raise ServiceError(
                Code.TOKEN_RESPONSE_INVALID,
                "It grants no refresh token, which the connection requires: ask for offline "
                "access in authorization_parameters, or set require_refresh_token=False.",
            )
        return _granted(connection, tokens)

    async def refresh(self, connection: OAuth2Connection, *, refresh_token: str) -> Granted:
        """Renews tokens (RFC 6749 section 6); an answer without a refresh token keeps the old one.

        Raises:
            ServiceError: As `tokens.read_answer`.
        """
        tokens = await self._ask(connection, "refresh_token", [("refresh_token", refresh_token)])
        kept = TokenSet(
            access_token=tokens.access_token,
            refresh_token=tokens.refresh_token or refresh_token,
            token_type=tokens.token_type,
            expires_in=tokens.expires_in,
            scopes=tokens.scopes,
            metadata=tokens.metadata,
        )
        return _granted(connection, kept)

    async def _ask(
        self, connection: OAuth2Connection, grant: Grant, pairs: list[tuple[str, str]]
    ) -> TokenSet:
        client_id = self._secrets.resolve(connection.client_id)
        headers = {"Content-Type": "application/x-www-form-urlencoded"}
        pairs = [("grant_type", grant), *pairs, *connection.token_parameters.items()]
        if connection.client_secret is None:
            pairs.append(("client_id", client_id.reveal()))
        elif connection.client_authentication == "client_secret_basic":
            client_secret = self._secrets.resolve(connection.client_secret)
            headers["Authorization"] = _basic(client_id, client_secret)
        else:
            client_secret = self._secrets.resolve(connection.client_secret)
            pairs += [("client_id", client_id.reveal()), ("client_secret", client_secret.reveal())]
        answer: Answer = await self._provider.post(
            connection.token_url,
            content=_encoded(pairs, quote_with=quote_plus).encode(),
            headers=headers,
        )
        return read_answer(answer.status, answer.headers, answer.body, grant=grant, rules=Rules())


def _granted(connection: OAuth2Connection, tokens: TokenSet) -> Granted:
    """Compares what was granted with what was asked for; a difference never costs the tokens."""
    scopes = connection.scopes if tokens.scopes is None else tokens.scopes
    # These are granted without being named: a refresh token proves the first, a sign-in the rest.
    unnamed = {"openid", "profile", "email"} | (
        {"offline_access"} if tokens.refresh_token else set()
    )
    missing = tuple(s for s in connection.scopes if s not in scopes and s not in unnamed)
    return Granted(tokens=tokens, scopes=scopes, missing_scopes=missing)


def _basic(client_id: Secret, client_secret: Secret) -> str:
    # RFC 6749 section 2.3.1: both are form-encoded before they are joined.
    pair = f"{quote_plus(client_id.reveal())}:{quote_plus(client_secret.reveal())}"
    return "Basic " + b64encode(pair.encode()).decode()


def _encoded(pairs: Iterable[tuple[str, str]], *, quote_with: Any) -> str:
    return "&".join(
        f"{quote_with(name, safe='')}={quote_with(value, safe='')}" for name, value in pairs
    )


def as_json(values: Mapping[str, str]) -> bytes:
    """Writes a request body for providers that want JSON."""
    return json.dumps(values, separators=(",", ":")).encode()
