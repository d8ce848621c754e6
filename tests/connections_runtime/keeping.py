"""Credentials in this process: a store in a file, a clock that a test sets, a provider of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from connections_runtime.provider import PATIENCE
from connections_runtime.running import REDIRECT, VARIABLES, connection
from segmentstream.connections import OAuth2Connection
from segmentstream_connections_runtime.composition import keys_of, provider_client
from segmentstream_connections_runtime.credentials.base import CredentialStore
from segmentstream_connections_runtime.credentials.records import Credential, State, Tokens
from segmentstream_connections_runtime.credentials.registry import open_store
from segmentstream_connections_runtime.custody import Custody, found
from segmentstream_connections_runtime.durable import DurableConnections, LiveAccess
from segmentstream_connections_runtime.errors import ServiceError
from segmentstream_connections_runtime.freshness import Want
from segmentstream_connections_runtime.oauth import OAuthClient
from segmentstream_connections_runtime.secrets.environment import EnvironmentSecrets
from segmentstream_connections_runtime.settings import CredentialSettings, ServiceSettings

START = 1_800_000_000.0
EXPIRED = "expired-access-token"
OLD_REFRESH = "refresh-token-of-the-store"


@dataclass(slots=True)
class Clock:
    """Is the wall's clock, which stands still until a test moves it."""

    time: float = START

    def __call__(self) -> float:
        return self.time


@dataclass(kw_only=True)
class Keeping:
    """Makes what keeps credentials, as often as a test wants, on the same store.

    Attributes:
        folder: Where store and keys are.
        connections: The declared connections.
        ca_file: What to trust.
        clock: The time.
        wrap: Makes another store of the store, such as one that fails.
        seconds: How long one request to a provider may take.
    """

    folder: Path
    connections: tuple[OAuth2Connection, ...]
    ca_file: Path
    clock: Clock = field(default_factory=Clock)
    wrap: Callable[[CredentialStore], CredentialStore] = lambda store: store
    seconds: float = PATIENCE
    variables: Mapping[str, str] = field(default_factory=lambda: VARIABLES)
    environment: Mapping[str, str] = field(default_factory=dict)

    @property
    def settings(self) -> CredentialSettings:
        """Where they are kept."""
        environ = {"XDG_CONFIG_HOME": str(self.folder / "configuration"), **self.environment}
        settings = CredentialSettings.from_environ(environ, folder=self.folder)
        assert settings is not None
        return settings

    def custody(self) -> Custody:
        """Opens the store on its own."""
        store = open_store(self.settings.store)
        keys = keys_of(self.settings, store)
        return Custody(self.wrap(store), keys, workspace=self.settings.workspace)

    def run[T](self, work: Callable[[DurableConnections], Awaitable[T]]) -> T:
        """Runs work with it, as a process of its own would, and closes it after."""

        async def all_of_it() -> T:
            settings = ServiceSettings(
                allows_private_providers=True,
                ca_file=str(self.ca_file),
                provider_seconds=self.seconds,
            )
            provider = provider_client(settings)
            oauth = OAuthClient(provider, EnvironmentSecrets(self.variables))
            durable = DurableConnections(self.connections, self.custody(), oauth, now=self.clock)
            try:
                return await work(durable)
            finally:
                await durable.close()
                await provider.close()

        return asyncio.run(all_of_it())

    def put(self, **changes: Any) -> None:
        """Stores a credential whose access token expired an hour ago, with changes."""
        tokens: dict[str, Any] = {
            "access_token": EXPIRED,
            "refresh_token": OLD_REFRESH,
            "scopes": ("read", "write"),
            "missing_scopes": (),
            "obtained_at": self.clock.time - 7200,
            "expires_at": self.clock.time - 3600,
        }
        of_tokens = {name: changes.pop(name) for name in tuple(changes) if name in tokens}
        credential = Credential(
            connection=self.connections[0].key,
            account="default",
            state=State.CONNECTED,
            number=1,
            tokens=Tokens(**tokens | of_tokens),
            granted_at=self.clock.time - 7200,
        )

        async def stored() -> None:
            custody = self.custody()
            old = await custody.credential(credential.connection, "default")
            await custody.keep(
                replace(credential, **changes), expected=old.generation if old else 0
            )
            await custody.close()

        asyncio.run(stored())

    def stored(self) -> Credential:
        """Reads what the store holds."""

        async def read() -> Credential:
            custody = self.custody()
            held = found(await custody.credential(self.connections[0].key, "default"))
            await custody.close()
            return held.record

        return asyncio.run(read())

    def access(self, **want: Any) -> LiveAccess:
        """Asks for a token, in what could be a process of its own."""
        return self.run(lambda durable: durable.access("it", account="default", want=Want(**want)))

    def refused(self, **want: Any) -> ServiceError:
        """Asks for a token that is not to be had."""
        try:
            self.access(**want)
        except ServiceError as error:
            return error
        raise AssertionError("a token was given")


def keeping(folder: Path, ca_file: Path, token_url: str, **changes: Any) -> Keeping:
    """Makes one with one connection, `it`, at a token address."""
    own = {
        name: changes.pop(name)
        for name in ("clock", "wrap", "seconds", "variables", "environment")
        if name in changes
    }
    return Keeping(
        folder=folder, ca_file=ca_file, connections=(connection(token_url, **changes),), **own
    )


__all__ = ["EXPIRED", "OLD_REFRESH", "REDIRECT", "START", "Clock", "Keeping", "keeping"]
