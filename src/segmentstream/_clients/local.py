"""Tokens from credentials that this process keeps by itself; imports the connections runtime.

The runtime is asynchronous and its clients are used from any thread, so it has a loop of its own,
on a thread of its own. Other processes of the workspace do the same with the same store; the
runtime sees to it that they renew once.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
from collections.abc import Coroutine, Mapping
from pathlib import Path
from typing import Any, Final

from segmentstream._clients.access import Access
from segmentstream._clients.refusals import refusal
from segmentstream._clients.settings import CONFIGURATION, URL_VARIABLE
from segmentstream._core.errors import ConnectionAccessError
from segmentstream._core.workspace import CONNECTIONS_FILE, find_workspace
from segmentstream.connections._loading import load_connections
from segmentstream_connections_runtime.composition import durable_connections, provider_client
from segmentstream_connections_runtime.durable import DurableConnections, LiveAccess
from segmentstream_connections_runtime.errors import ServiceError
from segmentstream_connections_runtime.freshness import Want
from segmentstream_connections_runtime.http import ProviderClient
from segmentstream_connections_runtime.secrets.environment import EnvironmentSecrets
from segmentstream_connections_runtime.settings import (
    STORE_VARIABLE,
    CredentialSettings,
    ServiceSettings,
    SettingsError,
)

# Longer than a renewal takes that waits for one of another process first.
_ANSWER_SECONDS: Final = 180.0
# At the end of the process, for tokens that have come and are not stored yet.
_CLOSING_SECONDS: Final = 10.0


class LocalBroker:
    """Gives tokens from the store of this workspace; see `Broker`.

    Args:
        durable: What keeps the credentials.
        provider: Its client for providers.
    """

    def __init__(self, durable: DurableConnections, provider: ProviderClient) -> None:
        self._durable = durable
        self._provider = provider
        self._starting = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    @classmethod
    def from_environ(cls, environ: Mapping[str, str], *, start: Path) -> LocalBroker:
        """Makes one for the workspace that a folder belongs to.

        Args:
            environ: The variables.
            start: The folder, such as the one that the process runs in.

        Raises:
            SegmentStreamError: There is no workspace, or what it declares, or a variable, cannot
                work.
        """
        workspace = find_workspace(start)
        if workspace is None:
            raise ConnectionAccessError(
                "Neither this folder nor one above it is a workspace with connections.",
                f"Run it in the workspace, or name the connections service in {URL_VARIABLE}.",
                code=CONFIGURATION,
            )
        connections = load_connections(workspace / CONNECTIONS_FILE.parent)
        try:
            provider = provider_client(ServiceSettings.from_environ(environ))
            settings = CredentialSettings.from_environ(environ, folder=workspace)
            if settings is None:
                raise ConnectionAccessError(
                    "No store of credentials is named, and the files of Cloud Run do not last.",
                    f"Name the connections service in {URL_VARIABLE}, or a store in "
                    f"{STORE_VARIABLE}.",
                    code=CONFIGURATION,
                )
            durable = durable_connections(
                connections, provider, EnvironmentSecrets(environ), settings
            )
        except SettingsError as error:
            raise ConnectionAccessError(
                str(error), "Then run it again.", code=CONFIGURATION
            ) from None
        return cls(durable, provider)

    def access(
        self, key: str, account: str, *, min_ttl_seconds: int = 0, rejected: int | None = None
    ) -> Access:
        """As `Broker.access`."""
        want = Want(min_ttl_seconds=min_ttl_seconds, rejected=rejected)
        try:
            live = self.run(self._durable.access(key, account=account, want=want))
        except ServiceError as error:
            raise refusal(
                key,
                account,
                code=error.code.value,
                message=str(error),
                retryable=error.outcome.retryable,
                retry_after_seconds=error.retry_after_seconds,
            ) from None
        except TimeoutError:
            raise refusal(
                key,
                account,
                code="credential_store_unavailable",
                message="A renewal took longer than three minutes.",
                retryable=True,
            ) from None
        return _access(live)

    def run[T](self, work: Coroutine[Any, Any, T]) -> T:
        """Does work on the loop of this broker, and waits for it."""
        future = asyncio.run_coroutine_threadsafe(work, self._running_loop())
        try:
            return future.result(_ANSWER_SECONDS)
        except concurrent.futures.CancelledError:  # the loop ended under it
            raise TimeoutError from None

    def close(self) -> None:
        """As `Broker.close`; what has come and is not stored yet gets some seconds."""
        with self._starting:
            loop, thread = self._loop, self._thread
            self._loop = self._thread = None
        if loop is None or thread is None:
            return
        asyncio.run_coroutine_threadsafe(self._closed(), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()  # and its pool of threads

    def _running_loop(self) -> asyncio.AbstractEventLoop:
        with self._starting:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(
                    target=self._loop.run_forever, name="segmentstream-connections", daemon=True
                )
                self._thread.start()
            return self._loop

    async def _closed(self) -> None:
        await self._durable.close(seconds=_CLOSING_SECONDS)
        await self._provider.close()


def _access(live: LiveAccess) -> Access:
    return Access(
        access_token=live.access_token,
        token_number=live.number,
        expires_at=live.expires_at,
        scopes=live.scopes,
        missing_scopes=live.missing_scopes,
        metadata=live.metadata,
        base_url=live.base_url,
        header=live.header,
        scheme=live.scheme,
        refresh_statuses=live.refresh_statuses,
        persisted=live.is_persisted,
    )
