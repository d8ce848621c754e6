"""Credentials that last: what the service, the command and the clients of pipelines do with them.

Finds the connection, carries work through even where the caller goes away, and says what can be
told about a credential. Imports everything below it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from segmentstream.connections import ConnectionDeclarationError, OAuth2Connection
from segmentstream_connections_runtime.authorizing import Authorizer, Started
from segmentstream_connections_runtime.credentials.records import Credential, Metadata, State
from segmentstream_connections_runtime.custody import Custody
from segmentstream_connections_runtime.errors import Code, ServiceError
from segmentstream_connections_runtime.freshness import Want
from segmentstream_connections_runtime.oauth import OAuthClient
from segmentstream_connections_runtime.refreshing import Refresher
from segmentstream_connections_runtime.storing import Live, TokenStoring

DEFAULT_ACCOUNT = "default"


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """Is what can be told of a credential to anybody who may call: nothing secret.

    Attributes:
        connection: The key of the connection.
        account: Which account of it.
        state: What it is good for: a state of a record, or `not_connected`.
        reason: What is wrong and what to do, for people; empty where nothing is.
        scopes: The scopes in force.
        missing_scopes: Scopes that were asked for and not granted.
        granted_at: When a person authorized it, in seconds since 1970.
        obtained_at: When its newest tokens came.
        expires_at: When the access token ends; None where that is unknown.
        has_refresh_token: Whether it can be renewed.
        is_declared: Whether the workspace declares the connection.
        last_failure: The code of the last refresh, where that failed.
        retry_at: When the next refresh may be made after that.
        number: How many pairs of tokens there have been.
        is_persisted: Whether the newest are in the store.
        metadata: What the provider told besides.
    """

    connection: str
    account: str
    state: str
    reason: str = ""
    scopes: tuple[str, ...] = ()
    missing_scopes: tuple[str, ...] = ()
    granted_at: float | None = None
    obtained_at: float | None = None
    expires_at: float | None = None
    has_refresh_token: bool = False
    is_declared: bool = True
    last_failure: str | None = None
    retry_at: float | None = None
    number: int = 0
    is_persisted: bool = True
    metadata: Metadata = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveAccess:
    """Is what a client needs for its requests. Its repr shows no token.

    Attributes:
        access_token: The token to send.
        number: Which pair of tokens it is of.
        expires_at: When it expires, in seconds since 1970; None where that is unknown.
        scopes: The scopes in force.
        missing_scopes: Scopes that were asked for and not granted.
        metadata: What the provider told besides.
        base_url: Where the provider's interface is, where the declaration says so.
        header: In which header the token goes.
        scheme: What stands before it there.
        refresh_statuses: With which statuses the interface says that the token is dead.
        is_persisted: Whether the tokens are in the store.
    """

    access_token: str = field(repr=False)
    number: int
    expires_at: float | None
    scopes: tuple[str, ...]
    missing_scopes: tuple[str, ...]
    metadata: Metadata = field(repr=False)
    base_url: str | None
    header: str
    scheme: str
    refresh_statuses: tuple[int, ...]
    is_persisted: bool


class DurableConnections:
    """Authorizes, renews and ends the credentials of one workspace."""

    def __init__(
        self,
        connections: Iterable[OAuth2Connection],
        custody: Custody,
        oauth: OAuthClient,
        *,
        now: Callable[[], float] = time.time,
    ) -> None:
        self.connections = {connection.key: connection for connection in connections}
        self.custody = custody
        self._storing = TokenStoring(custody)
        self._refresher = Refresher(custody, oauth, self._storing, now=now)
        self._authorizer = Authorizer(custody, oauth, self._storing, now=now)
        self._under_way: set[asyncio.Task[Any]] = set()

    async def start(
        self, key: str, *, account: str, redirect_uri: str, variables: Mapping[str, str]
    ) -> Started:
        """Begins an authorization.

        Raises:
            ServiceError: There is no such connection, or the store cannot be written.
        """
        connection = self._find(key)
        try:
            return await self._authorizer.start(
                connection, account, redirect_uri=redirect_uri, variables=variables
            )
        except ConnectionDeclarationError as error:
            raise ServiceError(Code.INVALID_REQUEST, f"Wrong: variables. {error.remedy}") from None

    async def complete(self, callback: Mapping[str, str], *, binding: str) -> Status:
        """Completes the authorization that a callback belongs to.

        Args:
            callback: The query of the callback.
            binding: What `start` gave.

        Raises:
            ServiceError: None is under way that it belongs to, or the provider refused.
        """

        async def work() -> Live:
            held = await self._authorizer.find(callback, binding=binding)
            connection = self._find(held.record.connection)
            return await self._authorizer.complete(connection, held, callback)

        return self._status(await self._carried_through(work()))

    async def access(self, key: str, *, account: str, want: Want) -> LiveAccess:
        """Gives a token that can be used now.

        Raises:
            ServiceError: There is none.
        """
        connection = self._find(key)
        live = await self._refresher.live(connection, account, want)
        credential = live.credential
        assert credential.tokens is not None  # noqa: S101 - a live credential has some
        try:
            filled = connection.with_variables(credential.variables)
            base_url = filled.api_address(credential.metadata)
        except ConnectionDeclarationError as error:
            raise ServiceError(Code.RUNTIME_UNAVAILABLE, str(error)) from None
        return LiveAccess(
            access_token=credential.tokens.access_token,
            number=credential.number,
            expires_at=credential.tokens.expires_at,
            scopes=credential.tokens.scopes,
            missing_scopes=credential.tokens.missing_scopes,
            metadata=credential.metadata,
            base_url=base_url,
            header=connection.api_header,
            scheme=connection.api_scheme,
            refresh_statuses=connection.refresh_statuses,
            is_persisted=live.is_persisted,
        )

    async def refresh(self, key: str, *, account: str) -> Status:
        """Renews a credential now, as a person asks for.

        Raises:
            ServiceError: It cannot be renewed.
        """
        live = await self._refresher.live(self._find(key), account, Want(is_forced=True))
        return self._status(live)

    async def statuses(self) -> list[Status]:
        """Tells of every declared connection and every credential, by key and account."""
        kept = [held.record for held in await self.custody.credentials()]
        found = [self._status(self._newest(credential)) for credential in kept]
        lacking = self.connections.keys() - {status.connection for status in found}
        found += [
            Status(connection=key, account=DEFAULT_ACCOUNT, state="not_connected")
            for key in lacking
        ]
        return sorted(found, key=lambda status: (status.connection, status.account))

    async def disconnect(self, key: str, *, account: str) -> bool:
        """Ends a credential, at the provider too where that can be; says whether it was told.

        A connection that is no longer declared can be ended as well.

        Raises:
            ServiceError: There is none. Or the provider could not be told: it is ended here all
                the same.
        """
        connection = self.connections.get(key)
        return await self._carried_through(self._authorizer.disconnect(connection, key, account))

    async def close(self, *, seconds: float = 0) -> None:
        """Waits for what is under way, ends the rest and lets go of the store."""
        if self._under_way:
            await asyncio.wait(self._under_way, timeout=seconds)
        await self._refresher.close(seconds=seconds)
        await self._storing.close(seconds=seconds)
        await self.custody.close()

    def give_up(self) -> None:
        """Ends what is under way, whose callers hear of it: the process stops."""
        for task in self._under_way:
            task.cancel()
        self._refresher.give_up()

    def _find(self, key: str) -> OAuth2Connection:
        if key not in self.connections:
            raise ServiceError(Code.CONNECTION_NOT_FOUND)
        return self.connections[key]

    def _newest(self, stored: Credential) -> Live:
        unsaved = self._storing.unsaved(stored.connection, stored.account)
        return Live(credential=unsaved or stored, is_persisted=unsaved is None)

    def _status(self, live: Live) -> Status:
        credential = live.credential
        return status_of(
            credential,
            is_persisted=live.is_persisted,
            is_declared=credential.connection in self.connections,
        )

    async def _carried_through[T](self, work: Coroutine[Any, Any, T]) -> T:
        task = asyncio.create_task(work)
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            if not task.cancelled():
                raise
            raise ServiceError(
                Code.OUTCOME_UNKNOWN, "It took longer than the process, which stops, can wait."
            ) from None


def status_of(credential: Credential, *, is_persisted: bool, is_declared: bool) -> Status:
    """Says of a credential what is no secret."""
    tokens, failure = credential.tokens, credential.failure
    is_disconnected = credential.state is State.DISCONNECTED
    return Status(
        connection=credential.connection,
        account=credential.account,
        state=credential.state.value,
        reason=credential.reason,
        scopes=() if tokens is None else tokens.scopes,
        missing_scopes=() if tokens is None else tokens.missing_scopes,
        granted_at=None if is_disconnected else credential.granted_at,
        obtained_at=None if tokens is None else tokens.obtained_at,
        expires_at=None if tokens is None else tokens.expires_at,
        has_refresh_token=tokens is not None and tokens.refresh_token is not None,
        is_declared=is_declared,
        last_failure=None if failure is None else failure.code,
        retry_at=None if failure is None else failure.retry_at,
        number=credential.number,
        is_persisted=is_persisted,
        metadata=credential.metadata,
    )
