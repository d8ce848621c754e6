"""Who may call the service; imports joserfc (on first use), `http`, `settings` and the errors.

Without any of these the service listens on a loopback address only.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import time
from collections.abc import Mapping
from typing import Any, Protocol

from segmentstream_connections_runtime.errors import Code, ServiceError
from segmentstream_connections_runtime.http import ProviderClient
from segmentstream_connections_runtime.settings import ServiceSettings

_ALGORITHMS = ["RS256", "ES256", "EdDSA"]
_LEEWAY_SECONDS = 60
_KEYS_FRESH_SECONDS = 3600.0
_KEYS_PAUSE_SECONDS = 30.0
_TOKEN_CHARACTERS = 16 * 1024


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
    is that it was there, so that a service deployed for everyone by mistake answers nobody.
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
        self._keys_url = keys_url
        self._subjects = subjects
        self._client = client
        self._keys: Any = None  # joserfc's key set; the module is imported on first use
        self._fetched = 0.0
        self._fetching = asyncio.Lock()

    async def check(self, headers: Mapping[str, str]) -> None:
        """As `Callers.check`."""
        from joserfc.errors import JoseError  # noqa: PLC0415 - costs time that others need not pay

        token = _bearer(headers)
        try:
            claims = await self._claims(token)
            self._registry().validate(claims)
        except (JoseError, ValueError, KeyError, TypeError):
            raise ServiceError(Code.UNAUTHORIZED) from None
        if self._subjects and not self._subjects & {claims.get("sub"), _verified_email(claims)}:
            raise ServiceError(Code.UNAUTHORIZED)

    async def _claims(self, token: str) -> dict[str, Any]:
        from joserfc import jwt  # noqa: PLC0415
        from joserfc.errors import InvalidKeyIdError  # noqa: PLC0415

        for may_ask_again in (True, False):
            keys = await self._known_keys(newer_than=None if may_ask_again else self._fetched)
            try:
                return dict(jwt.decode(token, keys, algorithms=_ALGORITHMS).claims)
            except (InvalidKeyIdError, ValueError):
                # The issuer may have renewed its keys since; asked once, and not for every call.
                if not may_ask_again or time.monotonic() - self._fetched < _KEYS_PAUSE_SECONDS:
                    raise
        raise AssertionError

    def _registry(self) -> Any:
        from joserfc.jwt import JWTClaimsRegistry  # noqa: PLC0415

        return JWTClaimsRegistry(
            leeway=_LEEWAY_SECONDS,
            iss={"essential": True, "value": self._issuer},
            aud={"essential": True, "value": self._audience},
            exp={"essential": True},
        )

    async def _known_keys(self, *, newer_than: float | None) -> Any:
        from joserfc.jwk import KeySet  # noqa: PLC0415

        async with self._fetching:
            is_old = time.monotonic() - self._fetched > _KEYS_FRESH_SECONDS
            if self._keys is None or is_old or newer_than == self._fetched:
                answer = await self._client.get(self._keys_url)
                self._keys = KeySet.import_key_set(json.loads(answer.body))
                self._fetched = time.monotonic()
            return self._keys


def _bearer(headers: Mapping[str, str], name: str = "authorization") -> str:
    kind, _, token = headers.get(name, "").partition(" ")
    return token.strip()[:_TOKEN_CHARACTERS] if kind.lower() == "bearer" else ""


def _verified_email(claims: Mapping[str, Any]) -> object:
    return claims.get("email") if claims.get("email_verified") is True else None
