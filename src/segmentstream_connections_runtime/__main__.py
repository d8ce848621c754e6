"""The commands of the service, and the place where its parts are put together.

    python -m segmentstream_connections_runtime inspect manifest.json
    python -m segmentstream_connections_runtime serve

Both run in the workspace's `connections/` folder.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from socket import socket

from segmentstream._core.errors import ConnectionsFileError
from segmentstream.connections import ConnectionDeclarationError, OAuth2Connection
from segmentstream.connections._loading import load_connections
from segmentstream.connections._manifest import manifest_of
from segmentstream_connections_runtime.settings import (
    CredentialSettings,
    ServiceSettings,
    SettingsError,
)

_SECONDS_TO_ANSWER = 1.0


class _CannotRunError(Exception):
    """Says why a command cannot run, for a person."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command; 0 when it went well, 1 when it could not run."""
    parser = argparse.ArgumentParser(
        prog="python -m segmentstream_connections_runtime",
        description="The OAuth service of the connections declared in connections.py.",
        epilog="Run it in the workspace's connections folder.",
    )
    commands = parser.add_subparsers(dest="command", required=True)
    inspect = commands.add_parser("inspect", help="write the declarations as JSON")
    inspect.add_argument("manifest", type=Path, help="the file to write")
    commands.add_parser("serve", help="serve on PORT, 8080 when it is not set")
    asked = parser.parse_args(arguments)
    try:
        connections = load_connections(Path.cwd())
        if asked.command == "inspect":
            write_manifest(asked.manifest, connections)
        else:
            serve(connections, ServiceSettings.from_environ(os.environ))
    except (
        _CannotRunError,
        SettingsError,
        ConnectionDeclarationError,
        ConnectionsFileError,
    ) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


def write_manifest(path: Path, connections: Sequence[OAuth2Connection]) -> None:
    """Writes the declarations as versioned JSON."""
    path.write_text(manifest_of(connections))


def serve(connections: Sequence[OAuth2Connection], settings: ServiceSettings) -> None:
    """Serves until it is told to stop."""
    import uvicorn  # noqa: PLC0415 - `inspect` needs none of these

    from segmentstream_connections_runtime.app import (  # noqa: PLC0415
        log_to_standard_error,
        make_app,
    )
    from segmentstream_connections_runtime.composition import (  # noqa: PLC0415
        durable_connections,
        provider_client,
    )
    from segmentstream_connections_runtime.oauth import OAuthClient  # noqa: PLC0415
    from segmentstream_connections_runtime.secrets.environment import (  # noqa: PLC0415
        EnvironmentSecrets,
    )
    from segmentstream_connections_runtime.service import ConnectionService  # noqa: PLC0415

    log_to_standard_error()
    provider = provider_client(settings)
    secrets = EnvironmentSecrets(os.environ)
    service = ConnectionService(connections, OAuthClient(provider, secrets), secrets)
    credentials = CredentialSettings.from_environ(os.environ, folder=Path.cwd().parent)
    durable = (
        None
        if credentials is None
        else durable_connections(connections, provider, secrets, credentials)
    )

    def give_up() -> None:
        service.give_up()
        if durable is not None:
            durable.give_up()

    class Server(uvicorn.Server):
        async def shutdown(self, sockets: list[socket] | None = None) -> None:
            # Early enough for the answers that say so.
            seconds = settings.drain_seconds - _SECONDS_TO_ANSWER
            asyncio.get_running_loop().call_later(seconds, give_up)
            await super().shutdown(sockets)

    config = uvicorn.Config(
        make_app(
            service,
            provider,
            settings,
            durable=durable,
            checks_store=credentials is not None and credentials.is_named,
        ),
        host=settings.host,
        port=settings.port,
        access_log=False,
        server_header=False,
        log_config=None,
        # The same wherever it runs, whatever else is installed; h11 bounds the head of a request.
        http="h11",
        loop="asyncio",
        ws="none",  # its log lines hold queries
        timeout_graceful_shutdown=round(settings.drain_seconds),
    )
    Server(config).run()


if __name__ == "__main__":
    sys.exit(main())
