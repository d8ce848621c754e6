"""Who may call the service.

Imports joserfc (on first use), `http`, `tokens`, `settings` and the errors.

Without any of these the service listens on a loopback address only.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import logging
import time
import warnings
from collections.abc import Mapping
from contextlib import suppress
from http import HTTPStatus
from math import inf
from typing import Any, Protocol

from segmentstream_connections_runtime.errors import Code, ServiceError
from segmentstream_connections_runtime.http import Answer, ProviderClient
from segmentstream_connections_runtime.settings import ServiceSettings
from segmentstream_connections_runtime.tokens import decoded

_log = logging.getLogger("segmentstream.connections")
_ALGORITHMS = ["RS256", "ES256", "EdDSA"]
_LEEWAY_SECONDS = 60
_KEYS_FRESH_SECONDS = 3600.0
_KEYS_LONGEST_SECONDS = 24 * 3600.0
_KEYS_PAUSE_SECONDS = 30.0
_KEYS_FAILED_PAUSE_SECONDS = 5.0
_TOKEN_CHARACTERS = 16 * 1024
_UNREADABLE = (ValueError, KeyError, TypeError, RecursionError)  # what a broken document raises


class Callers(Protocol):
    """Decides whether a request comes from someone who may ask."""

    async def check(self, headers: Mapping[str, str]) -> None:
        """Lets a request pass.

        Args:
            headers: Its headers, by name in small letters.

        Raises:
            ServiceError: `unauthorized`.
        """


def callers_of(settings: ServiceSettings, client: ProviderClient) -> Callers:
    """Gives who may call by the settings.

    Args:
        settings: How the service runs.
        client: Fetches the keys of an issuer of identity tokens.
    """
    if settings.bearer_sha256:
        return BearerCallers(settings.bearer_sha256)
    if settings.oidc:
        return OidcCallers(
            issuer=settings.oidc.issuer,
            audience=settings.oidc.audience,
            keys_url=settings.oidc.keys_url,
            subjects=settings.oidc.subjects,
            client=client,
        )
    return CloudRunCallers() if settings.is_behind_cloud_run else AnyCaller()


class AnyCaller:
    """Lets everyone pass: for a loopback address, which only this machine reaches."""

    async def check(self, headers: Mapping[str, str]) -> None:
        """As `Callers.check`."""


class BearerCallers:
    """Lets those pass who send one token; the service knows its SHA-256 only."""

    def __init__(self, digest: str) -> None:
        self._digest = digest

    async def check(self, headers: Mapping[str, str]) -> None:
        """As `Callers.check`; takes the same time for any token."""
        found = hashlib.sha256(_bearer(headers).encode()).hexdigest()
        if not hmac.compare_digest(found, self._digest):
            raise ServiceError(Code.UNAUTHORIZED)


class CloudRunCallers:
    """Lets those pass whom Cloud Run's front end has identified.

    Its IAM check has verified the token already and taken the signature away; what is checked here
    is only that it was there, which proves nothing on a service that is deployed for everyone.
    https://docs.cloud.google.com/run/docs/authenticating/service-to-service
    """

    async def check(self, headers: Mapping[str, str]) -> None:
        """As `Callers.check`."""
        if not _bearer(headers, "x-serverless-authorization") and not _bearer(headers):
            raise ServiceError(Code.UNAUTHORIZED)


class OidcCallers:
    """Lets those pass who send an identity token of one issuer for this service.

    OpenID Connect Core 1.0 section 3.1.3.7: signature, issuer, audience and times are checked.
    """

    def __init__(
        self,
        *,
        issuer: str,
        audience: str,
        keys_url: str,
        subjects: frozenset[str],
        client: ProviderClient,
    ) -> None:
        self._issuer = issuer
        self._audience = audience
        self._subjects = subjects
        self._keys = _IssuerKeys(keys_url, client)

    async def check(self, headers: Mapping[str, str]) -> None:
        """As `Callers.check`; `runtime_unavailable` while the keys of the issuer are not known."""
        token = _bearer(headers)
        if not token:
            raise ServiceError(Code.UNAUTHORIZED)
        from joserfc.errors import JoseError  # noqa: PLC0415 - costs time that others need not pay

        try:
            claims = await self._claims(token)
            self._registry().validate(claims)
        except (JoseError, *_UNREADABLE):
            raise ServiceError(Code.UNAUTHORIZED) from None
        if self._subjects and not self._subjects & {claims.get("sub"), _verified_email(claims)}:
            raise ServiceError(Code.UNAUTHORIZED)

    async def _claims(self, token: str) -> dict[str, Any]:
        from joserfc.errors import InvalidKeyIdError  # noqa: PLC0415

        try:
            return _verified(token, await self._keys.known())
        except InvalidKeyIdError:  # the issuer may have renewed its keys since
            return _verified(token, await self._keys.renewed())

    def _registry(self) -> Any:
        from joserfc.jwt import JWTClaimsRegistry  # noqa: PLC0415

        return JWTClaimsRegistry(
            leeway=_LEEWAY_SECONDS,
            iss={"essential": True, "value": self._issuer},
            aud={"essential": True, "value": self._audience},
            exp={"essential": True},
        )


class _IssuerKeys:
    """Keeps the keys of an issuer and asks for them seldom, whatever tokens callers send.

    Keys that could not be renewed serve on for a while: an issuer that is away for an hour does not
    stop the service, and a key that it withdrew does not serve for ever.
    """

    def __init__(self, url: str, client: ProviderClient) -> None:
        self._url = url
        self._client = client
        self._found: Any = None  # joserfc's key set; the module is imported on first use
        self._found_at = 0.0
        self._ask_at = 0.0  # not earlier
        self._asking = asyncio.Lock()

    async def known(self) -> Any:
        """Gives the keys.

        Raises:
            ServiceError: `runtime_unavailable`: there are none.
        """
        if self._age() > _KEYS_FRESH_SECONDS:
            await self._ask()
        if self._age() > _KEYS_LONGEST_SECONDS:
            raise ServiceError(
                Code.RUNTIME_UNAVAILABLE, "The keys of the issuer of identity tokens are not known."
            )
        return self._found

    async def renewed(self) -> Any:
        """Gives the keys anew, or as they were where the issuer was asked a moment ago."""
        await self._ask()
        return await self.known()

    def _age(self) -> float:
        return inf if self._found is None else time.monotonic() - self._found_at

    async def _ask(self) -> None:
        async with self._asking:
            if time.monotonic() < self._ask_at:
                return  # also who waited here while another caller asked
            pause = _KEYS_FAILED_PAUSE_SECONDS
            try:
                self._found = _read_keys(await self._client.get(self._url))
                self._found_at = time.monotonic()
                pause = _KEYS_PAUSE_SECONDS
            except (ServiceError, *_UNREADABLE) as error:
                why = error.detail if isinstance(error, ServiceError) else "They cannot be read."
                _log.warning("the issuer's keys did not come", extra={"fields": {"detail": why}})
            finally:
                self._ask_at = time.monotonic() + pause


def _read_keys(answer: Answer) -> Any:
    """Reads a key set; keys of unknown kinds are passed over (RFC 7517 section 5)."""
    from joserfc.errors import JoseError  # noqa: PLC0415
    from joserfc.jwk import JWKRegistry, KeySet  # noqa: PLC0415

    if answer.status != HTTPStatus.OK:
        raise ValueError("no key set")
    keys = []
    for each in json.loads(decoded(answer.headers, answer.body))["keys"]:
        with suppress(JoseError, *_UNREADABLE):
            keys.append(JWKRegistry.import_key(each))
    if not keys:
        raise ValueError("no keys")
    return KeySet(keys)


def _verified(token: str, keys: Any) -> dict[str, Any]:
    from joserfc import jwt  # noqa: PLC0415

    with warnings.catch_warnings(action="ignore", category=UserWarning):
        # joserfc advises against the name EdDSA, which is the one that issuers use.
        return dict(jwt.decode(token, keys, algorithms=_ALGORITHMS).claims)


def _bearer(headers: Mapping[str, str], name: str = "authorization") -> str:
    kind, _, token = headers.get(name, "").partition(" ")
    token = token.strip()
    return token if kind.lower() == "bearer" and len(token) <= _TOKEN_CHARACTERS else ""


def _verified_email(claims: Mapping[str, Any]) -> str | None:
    email = claims.get("email")
    return email if isinstance(email, str) and claims.get("email_verified") is True else None
