"""One request to the interface of a connection, to see whether it takes the token.

It goes out as the runtime's own requests do: no redirects, no proxies, checked addresses. Imports
httpx and the runtime's transport.
"""

from __future__ import annotations

import asyncio

import httpx

from segmentstream.cli.exits import CommandError, Exit
from segmentstream.cli.workspace import Workspace
from segmentstream_connections_runtime.durable import LiveAccess
from segmentstream_connections_runtime.settings import ServiceSettings
from segmentstream_connections_runtime.transport import BROKEN, make_client, what_failed


async def status_of(workspace: Workspace, access: LiveAccess, path: str) -> int:
    """Gets a path of the interface with a token, and gives the status of the answer alone.

    Raises:
        CommandError: No interface is declared, or it did not answer.
    """
    if access.base_url is None:
        raise CommandError(
            "The connection declares no api_base_url to make a request to.",
            "Declare it, or leave --request out.",
            exit_code=Exit.USAGE,
            code="no_api_base_url",
        )
    # What is appended after a slash cannot lead to another host.
    url = f"{access.base_url.rstrip('/')}/{path.lstrip('/')}"
    settings = ServiceSettings.from_environ(workspace.environ)
    client = make_client(
        seconds=settings.provider_seconds,
        allows_private=settings.allows_private_providers,
        ca_file=settings.ca_file,
    )
    headers = {access.header: f"{access.scheme} {access.access_token}".strip(), "Accept": "*/*"}
    try:
        async with (
            asyncio.timeout(settings.provider_seconds),
            client,
            client.stream("GET", url, headers=headers) as answer,
        ):
            return answer.status_code
    except (httpx.HTTPError, httpx.InvalidURL, OSError) as error:  # TimeoutError is an OSError
        raise CommandError(
            f"There is a token, but GET {path} got no answer. {_what_failed(error)}",
            "Check the path, and the connection's api_base_url.",
            exit_code=Exit.LATER,
            code="api_unavailable",
        ) from None


def _what_failed(error: Exception) -> str:
    match error:
        case httpx.HTTPError():
            return what_failed(error)
        case httpx.InvalidURL():
            return "It is no path."
        case TimeoutError():
            return "It took too long."
        case _:
            return BROKEN
