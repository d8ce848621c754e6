"""What the commands work on: a workspace, its variables, its declarations and its credentials.

Imports `_core`, the declarations and the composition of the connections service.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Protocol
from urllib.parse import urlsplit

import click

from segmentstream._clients.settings import URL_VARIABLE
from segmentstream._core.errors import SegmentStreamError
from segmentstream._core.workspace import CONNECTIONS_FILE, find_workspace
from segmentstream.cli.exits import CommandError, Exit
from segmentstream.connections import OAuth2Connection
from segmentstream.connections._loading import load_connections
from segmentstream_connections_runtime.settings import CredentialSettings, ServiceSettings

if TYPE_CHECKING:
    from segmentstream_connections_runtime.authorizing import Started
    from segmentstream_connections_runtime.durable import DurableConnections, LiveAccess, Status
    from segmentstream_connections_runtime.freshness import Want
    from segmentstream_connections_runtime.http import ProviderClient
    from segmentstream_connections_runtime.secrets.environment import EnvironmentSecrets

_SQLITE = "sqlite:///"
_LAST_WORDS_SECONDS = 30.0


class Connections(Protocol):
    """Is what the commands ask of credentials, wherever those are kept.

    `DurableConnections` is one; whatever asks a service can be another.
    """

    async def start(
        self, key: str, *, account: str, redirect_uri: str, variables: Mapping[str, str]
    ) -> Started:
        """Begins an authorization."""

    async def complete(self, callback: Mapping[str, str], *, binding: str) -> Status:
        """Completes it with the query of the callback."""

    async def access(self, key: str, *, account: str, want: Want) -> LiveAccess:
        """Gives a token that can be used now."""

    async def refresh(self, key: str, *, account: str) -> Status:
        """Renews a credential now."""

    async def statuses(self) -> list[Status]:
        """Tells of all."""

    async def disconnect(self, key: str, *, account: str) -> bool:
        """Ends a credential."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Workspace:
    """Is a workspace as the commands find it.

    Attributes:
        folder: Where it is.
        environ: The variables: those of the process, and of its `.env` file those not set there.
    """

    folder: Path
    environ: Mapping[str, str] = field(repr=False)

    @classmethod
    def found(cls, start: Path, environ: Mapping[str, str]) -> Workspace:
        """Finds the workspace of a folder.

        Raises:
            CommandError: There is none.
        """
        folder = find_workspace(start)
        if folder is None:
            raise CommandError(
                f"There is no workspace at {start} or above it.",
                f"Change into the folder that holds {CONNECTIONS_FILE}, or name it: "
                "segmentstream --workspace PATH ...",
                exit_code=Exit.USAGE,
                code="workspace_not_found",
            )
        return cls(folder=folder, environ={**_env_file(folder / ".env"), **environ})

    @property
    def private_folder(self) -> Path:
        """Where files go that are nobody else's."""
        return self.folder / ".segmentstream"

    def declared(self) -> tuple[OAuth2Connection, ...]:
        """Loads the declarations, which runs `connections.py`.

        Raises:
            SegmentStreamError: They cannot work.
            CommandError: The file failed.
        """
        path = self.folder / CONNECTIONS_FILE
        try:
            with redirect_stdout(sys.stderr):  # what it prints is no part of our output
                return load_connections(path.parent)
        except SegmentStreamError:
            raise
        except Exception as error:  # noqa: BLE001 - whatever the person's own code raises
            raise _broken(path, error) from None

    def credential_settings(self) -> CredentialSettings:
        """Reads where credentials are kept.

        Raises:
            CommandError: Nowhere, since the files of this machine do not last.
        """
        settings = CredentialSettings.from_environ(self.environ, folder=self.folder)
        if settings is None:
            raise CommandError(
                "SEGMENTSTREAM_CREDENTIAL_STORE is not set, and files do not last on Cloud Run.",
                "Give the address of a store, such as secretmanager://my-project.",
                exit_code=Exit.CONFIGURATION,
                code="credential_store_missing",
            )
        return settings

    def store_for_people(self) -> str:
        """Says where credentials are kept, without user and password."""
        store = self.credential_settings().store
        if store.startswith(_SQLITE):
            return store.removeprefix(_SQLITE)
        parts = urlsplit(store)
        return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Opened:
    """Is what a command works with while it runs.

    Attributes:
        workspace: The workspace.
        declared: What is declared, by key.
        connections: The credentials.
        durable: The same, where they are kept by this process.
        provider: The client for providers.
        secrets: The secrets of the declarations.
    """

    workspace: Workspace
    declared: Mapping[str, OAuth2Connection]
    connections: Connections
    durable: DurableConnections
    provider: ProviderClient
    secrets: EnvironmentSecrets

    def connection(self, key: str) -> OAuth2Connection:
        """Gives a declaration.

        Raises:
            CommandError: There is none of that key.
        """
        if key in self.declared:
            return self.declared[key]
        raise CommandError(
            f"No connection {key!r} is declared in {CONNECTIONS_FILE}.",
            f"Declared are: {', '.join(sorted(self.declared)) or 'none'}.",
            exit_code=Exit.USAGE,
            code="connection_not_found",
        )

    async def status(self, key: str, account: str) -> Status:
        """Tells of one credential.

        Raises:
            CommandError: It is neither declared nor stored.
        """
        from segmentstream_connections_runtime.durable import Status  # noqa: PLC0415

        for status in await self.connections.statuses():
            if (status.connection, status.account) == (key, account):
                return status
        self.connection(key)
        return Status(connection=key, account=account, state="not_connected")


@asynccontextmanager
async def opened(workspace: Workspace) -> AsyncIterator[Opened]:
    """Opens the credentials of a workspace, and closes them once what is under way is stored."""
    from segmentstream_connections_runtime.composition import (  # noqa: PLC0415
        durable_connections,
        provider_client,
    )
    from segmentstream_connections_runtime.secrets.environment import (  # noqa: PLC0415
        EnvironmentSecrets,
    )

    declared = workspace.declared()
    _mention_service(workspace)
    provider = provider_client(ServiceSettings.from_environ(workspace.environ))
    secrets = EnvironmentSecrets(workspace.environ)
    durable = durable_connections(declared, provider, secrets, workspace.credential_settings())
    try:
        yield Opened(
            workspace=workspace,
            declared={connection.key: connection for connection in declared},
            connections=durable,
            durable=durable,
            provider=provider,
            secrets=secrets,
        )
    finally:
        # Also after Ctrl-C: tokens that the provider has given are stored first.
        await durable.close(seconds=_LAST_WORDS_SECONDS)
        await provider.close()


def _mention_service(workspace: Workspace) -> None:
    if workspace.environ.get(URL_VARIABLE):
        click.echo(
            f"{URL_VARIABLE} is set: pipelines get their tokens from that service. This command "
            f"works on a store by itself: {workspace.store_for_people()}",
            err=True,
        )


def _env_file(path: Path) -> dict[str, str]:
    """Reads the variables of a workspace as `dg dev` does; those already set win."""
    if not path.is_file():
        return {}
    from dotenv import dotenv_values  # noqa: PLC0415 - most commands find no such file

    return {name: value for name, value in dotenv_values(path).items() if value is not None}


def _broken(path: Path, error: Exception) -> CommandError:
    lines = [
        frame.lineno
        for frame in traceback.extract_tb(error.__traceback__)
        if frame.filename == str(path)
    ]
    line = error.lineno if isinstance(error, SyntaxError) else lines[-1] if lines else None
    place = f"{path}, line {line}" if line else str(path)
    return CommandError(
        f"The declarations cannot be loaded: {type(error).__name__} in {place}.",
        f"Run `python {path}` to see all of it.",
        exit_code=Exit.CONFIGURATION,
        code="declarations_invalid",
    )
