"""What the service does for a caller: identical requests share one call, none is left half-way.

Imports `connections`, `oauth` and the errors.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Coroutine, Iterable, Mapping
from typing import Any

from segmentstream.connections import ConnectionDeclarationError, OAuth2Connection
from segmentstream_connections_runtime.errors import Code, ServiceError
from segmentstream_connections_runtime.oauth import Granted, OAuthClient
from segmentstream_connections_runtime.secrets.base import SecretResolver

NO_REFRESH_TOKEN = (
    "It grants no refresh token, which the connection requires: ask for offline access in "  # noqa: S105 - a sentence, no secret
    "authorization_parameters, or set require_refresh_token=False."
)


class ConnectionService:
    """Authorizes, exchanges and refreshes for the declared connections."""

    def __init__(
        self,
        connections: Iterable[OAuth2Connection],
        oauth: OAuthClient,
        secrets: SecretResolver,
    ) -> None:
        self._connections = {connection.key: connection for connection in connections}
        self._oauth = oauth
        self._secrets = secrets
        self._under_way: dict[str, asyncio.Task[Granted]] = {}

    def start(
        self,
        key: str,
        *,
        redirect_uri: str,
        state: str,
        code_challenge: str | None,
        variables: Mapping[str, str],
    ) -> str:
        """Gives the address that a person is sent to."""
        return self._oauth.authorization_url(
            self._find(key, variables),
            redirect_uri=redirect_uri,
            state=state,
            code_challenge=code_challenge,
        )

    async def exchange(
        self,
        key: str,
        *,
        code: str,
        redirect_uri: str,
        verifier: str | None,
        variables: Mapping[str, str],
    ) -> Granted:
        """Exchanges a code; the same code under way is not sent twice."""
        connection = self._find(key, variables)
        granted = await self._once(
            ("exchange", key, connection.token_url, code, redirect_uri, verifier or ""),
            lambda: self._oauth.exchange(
                connection, code=code, redirect_uri=redirect_uri, verifier=verifier
            ),
        )
        if connection.require_refresh_token and granted.tokens.refresh_token is None:
            raise ServiceError(Code.TOKEN_RESPONSE_INVALID, NO_REFRESH_TOKEN)
        return granted

    async def refresh(
        self, key: str, *, refresh_token: str, variables: Mapping[str, str]
    ) -> Granted:
        """Renews tokens; the same refresh token under way is not sent twice."""
        connection = self._find(key, variables)
        return await self._once(
            ("refresh", key, connection.refresh_url or connection.token_url, refresh_token),
            lambda: self._oauth.refresh(connection, refresh_token=refresh_token),
        )

    def missing(self) -> list[str]:
        """Names what is missing for the declared connections, such as variables, each once."""
        references = [
            reference
            for connection in self._connections.values()
            for reference in (connection.client_id, connection.client_secret)
            if reference is not None
        ]
        missing = (self._secrets.missing(reference) for reference in references)
        return sorted({name for name in missing if name})

    def give_up(self) -> None:
        """Ends the token requests under way, whose callers hear of it: the service stops."""
        for task in self._under_way.values():
            task.cancel()

    def _find(self, key: str, variables: Mapping[str, str]) -> OAuth2Connection:
        if key not in self._connections:
            raise ServiceError(Code.CONNECTION_NOT_FOUND)
        try:
            return self._connections[key].with_variables(variables)
        except ConnectionDeclarationError as error:
            raise ServiceError(Code.INVALID_REQUEST, f"Wrong: variables. {error.remedy}") from None

    async def _once(
        self, parts: tuple[str, ...], work: Callable[[], Coroutine[Any, Any, Granted]]
    ) -> Granted:
        # The parts hold secrets; what stays in memory beyond the request is their digest.
        identity = hashlib.sha256("\x00".join(parts).encode("utf-8", "surrogatepass")).hexdigest()
        task = self._under_way.get(identity)
        if task is None:
            task = asyncio.create_task(work())
            self._under_way[identity] = task
            task.add_done_callback(lambda _: self._under_way.pop(identity, None))
        # A caller that hangs up is not the only one, and does not stop a request half-way.
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            if not task.cancelled():
                raise
            raise ServiceError(
                Code.PROVIDER_UNAVAILABLE, "It took longer than the service, which stops, can wait."
            ) from None
