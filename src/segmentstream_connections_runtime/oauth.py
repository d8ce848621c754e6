"""The requests of OAuth 2.0 for one connection, as RFC 6749, RFC 7636 and its declaration say.

Imports `connections` and the modules below it.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal
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
            (
                connection.client_id_parameter,
                self._secrets.resolve(connection.client_id).reveal(),
            ),
            ("redirect_uri", redirect_uri),
            ("state", state),
            *(("resource", uri) for uri in connection.resource),
        ]
        if connection.scopes:
            pairs.append(("scope", connection.scope_separator.join(connection.scopes)))
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
        pairs += connection.token_parameters.items()
        tokens = await self._ask(connection, connection.token_url, "authorization_code", pairs)
        return _granted(connection, tokens)

    async def refresh(self, connection: OAuth2Connection, *, refresh_token: str) -> Granted:
        """Renews tokens (RFC 6749 section 6); an answer without a refresh token keeps the old one.

        Raises:
            ServiceError: As `tokens.read_answer`.
        """
        extra = {**connection.token_parameters, **connection.refresh_parameters}
        pairs = [("refresh_token", refresh_token), *extra.items()]
        url = connection.refresh_url or connection.token_url
        tokens = await self._ask(connection, url, "refresh_token", pairs)
        kept = TokenSet(
            access_token=tokens.access_token,
            refresh_token=tokens.refresh_token or refresh_token,
            token_type=tokens.token_type,
            expires_in=tokens.expires_in,
            scopes=tokens.scopes,
            metadata=tokens.metadata,
        )
        return _granted(connection, kept)

    async def revoke(self, connection: OAuth2Connection, *, token: str, hint: str) -> None:
        """Tells the provider that a token is not needed any more (RFC 7009 section 2.1).

        Raises:
            ServiceError: It could not be told, or refused.
        """
        assert connection.revocation_url is not None  # noqa: S101 - the caller has looked
        pairs = [("token", token), ("token_type_hint", hint)]
        answer = await self._post(connection, connection.revocation_url, pairs)
        if answer.status != 200:  # noqa: PLR2004 - RFC 7009 section 2.2
            is_down = answer.status >= 500  # noqa: PLR2004 - RFC 9110 section 15.6
            code = Code.PROVIDER_UNAVAILABLE if is_down else Code.PROVIDER_REJECTED
            raise ServiceError(
                code, "It did not take the tokens back.", provider_status=answer.status
            )

    async def _ask(
        self, connection: OAuth2Connection, url: str, grant: Grant, pairs: list[tuple[str, str]]
    ) -> TokenSet:
        pairs = [("grant_type", grant), *pairs, *(("resource", uri) for uri in connection.resource)]
        answer = await self._post(connection, url, pairs)
        return read_answer(
            answer.status, answer.headers, answer.body, grant=grant, rules=_rules(connection)
        )

    async def _post(
        self, connection: OAuth2Connection, url: str, pairs: list[tuple[str, str]]
    ) -> Answer:
        headers = {}
        client_id = self._secrets.resolve(connection.client_id)
        reference = connection.client_secret
        secret = None if reference is None else self._secrets.resolve(reference)
        if connection.client_authentication == "client_secret_basic" and secret is not None:
            headers["Authorization"] = _basic(client_id, secret, connection.basic_encoding)
        else:
            # A public client says who it is without proving it (RFC 6749 section 3.2.1).
            pairs = [*pairs, (connection.client_id_parameter, client_id.reveal())]
            if secret is not None:
                pairs = [*pairs, ("client_secret", secret.reveal())]
        if connection.token_request_format == "json":  # noqa: S105 - a format, no secret
            headers["Content-Type"] = "application/json"
            # No name comes twice: a declaration that would repeat one is refused.
            content = json.dumps(dict(pairs), separators=(",", ":"))
        else:
            headers["Content-Type"] = "application/x-www-form-urlencoded"
            content = _encoded(pairs, quote_with=quote_plus)
        return await self._provider.post(url, content=content.encode(), headers=headers)


def _rules(connection: OAuth2Connection) -> Rules:
    """Says in the terms of the reader how the provider's answers differ."""
    return Rules(
        scope_separator=connection.scope_separator,
        token_path=connection.token_path,
        bearer_types=connection.bearer_types,
        success_field=connection.success_field,
        success_value=connection.success_value,
        zero_expiry_means_never=connection.zero_expiry == "never",
        expiry_in_milliseconds=connection.expiry_unit == "milliseconds",
        default_lifetime_seconds=connection.default_lifetime_seconds,
        metadata_fields=connection.metadata_fields,
    )


def _granted(connection: OAuth2Connection, tokens: TokenSet) -> Granted:
    """Compares what was granted with what was asked for; a difference never costs the tokens."""
    scopes = connection.scopes if tokens.scopes is None else tokens.scopes
    # These are granted without being named: a refresh token proves the first, a sign-in the rest.
    held = {"openid", "profile", "email"} | ({"offline_access"} if tokens.refresh_token else set())
    held |= _with_implied(scopes, connection.implied_scopes)
    missing = tuple(scope for scope in connection.scopes if scope not in held)
    return Granted(tokens=tokens, scopes=scopes, missing_scopes=missing)


def _with_implied(scopes: Iterable[str], implied: Mapping[str, Iterable[str]]) -> set[str]:
    """Adds what the scopes stand for, and what that stands for in its turn."""
    held: set[str] = set()
    waiting = list(scopes)
    while waiting:
        scope = waiting.pop()
        if scope not in held:
            held.add(scope)
            waiting.extend(implied.get(scope, ()))
    return held


def _basic(client_id: Secret, client_secret: Secret, encoding: Literal["form", "raw"]) -> str:
    parts = [client_id.reveal(), client_secret.reveal()]
    if encoding == "form":  # RFC 6749 section 2.3.1: both are form-encoded before they are joined
        parts = [quote_plus(part) for part in parts]
    elif ":" in parts[0]:
        raise ServiceError(
            Code.RUNTIME_UNAVAILABLE,
            "The client id holds a colon, which a raw Basic header cannot carry (RFC 7617).",
        )
    return "Basic " + b64encode(":".join(parts).encode()).decode()


def _encoded(pairs: Iterable[tuple[str, str]], *, quote_with: Any) -> str:
    return "&".join(
        f"{quote_with(name, safe='')}={quote_with(value, safe='')}" for name, value in pairs
    )
