"""The one client through which the service speaks to providers; imports httpx and the errors.

Nothing here follows a redirect, reads proxies or credentials from the surroundings, or connects to
an address that has not been checked. One deadline covers a request from the first look-up of a name
to the last byte of the answer.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Any

import httpcore
import httpx

from segmentstream_connections_runtime.errors import Code, ServiceError

_HEADER_BYTES = 32 * 1024
_CONNECT_SECONDS = 5.0
_CONNECTIONS = 200
_USER_AGENT = "segmentstream-connections"

type Address = IPv4Address | IPv6Address


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """Is what a provider answered. Its repr shows no content.

    Attributes:
        status: The HTTP status.
        headers: The headers, by name in small letters.
        body: The body as it came.
    """

    status: int
    headers: Mapping[str, str] = field(repr=False)
    body: bytes = field(repr=False)


class ProviderClient:
    """Sends one request at a time and place, with limits on everything that comes back."""

    def __init__(
        self,
        *,
        seconds: float,
        body_bytes: int,
        allows_private: bool = False,
        ca_file: str | None = None,
    ) -> None:
        context = ssl.create_default_context()
        if ca_file:
            context.load_verify_locations(cafile=ca_file)
        self._seconds = seconds
        self._body_bytes = body_bytes
        self._client = httpx.AsyncClient(
            transport=_PinnedTransport(context, allows_private=allows_private),
            follow_redirects=False,
            trust_env=False,
            timeout=httpx.Timeout(seconds, connect=_CONNECT_SECONDS),
            headers={
                "User-Agent": _USER_AGENT,
                "Accept": "application/json",
                "Accept-Encoding": "identity",
            },
        )

    async def post(self, url: str, *, content: bytes, headers: Mapping[str, str]) -> Answer:
        """Posts to a provider.

        Raises:
            ServiceError: It could not be reached, took too long or answered with too much.
        """
        return await self._send("POST", url, content=content, headers=dict(headers))

    async def get(self, url: str) -> Answer:
        """Gets a public document, as `post`."""
        return await self._send("GET", url)

    # What httpx takes for a request.
    async def _send(self, method: str, url: str, **request: Any) -> Answer:
        try:
            async with asyncio.timeout(self._seconds):
                return await self._answer(method, url, **request)
        except TimeoutError:
            raise ServiceError(Code.PROVIDER_UNAVAILABLE, "It took too long.") from None
        except httpx.HTTPError as error:
            # The text of these errors can hold an address with its query, or bytes of an answer.
            raise ServiceError(Code.PROVIDER_UNAVAILABLE, _said(error)) from None

    async def close(self) -> None:
        """Closes the connections."""
        await self._client.aclose()

    async def _answer(self, method: str, url: str, **request: Any) -> Answer:
        async with self._client.stream(method, url, **request) as got:
            size = sum(len(name) + len(value) for name, value in got.headers.raw)
            if size > _HEADER_BYTES:
                raise ServiceError(Code.PROVIDER_UNREADABLE, "Its headers are too long.")
            body = bytearray()
            async for part in got.aiter_raw():
                body += part
                if len(body) > self._body_bytes:
                    raise ServiceError(
                        Code.PROVIDER_UNREADABLE,
                        "Its answer is too long.",
                        provider_status=got.status_code,
                    )
            return Answer(
                status=got.status_code,
                headers={name.lower(): value for name, value in got.headers.items()},
                body=bytes(body),
            )


def _said(error: httpx.HTTPError) -> str:
    match error:
        case httpx.ConnectTimeout() | httpx.ConnectError():
            return "No connection could be made; check its address and certificate."
        case httpx.TimeoutException():
            return "It took too long."
        case httpx.RemoteProtocolError() | httpx.ReadError():
            return "It ended the connection without a readable answer."
        case _:
            return "The request failed on its way."


class _PinnedTransport(httpx.AsyncHTTPTransport):
    """Connects to the address that was checked, and to no other of the same name."""

    def __init__(self, context: ssl.SSLContext, *, allows_private: bool) -> None:
        super().__init__(verify=context, retries=0)
        self._pool = httpcore.AsyncConnectionPool(
            ssl_context=context,
            max_connections=_CONNECTIONS,
            network_backend=_CheckedNetwork(allows_private=allows_private),
        )


class _CheckedNetwork(httpcore.AsyncNetworkBackend):
    """Looks a name up once, refuses what no provider may be, and connects to that address."""

    def __init__(self, *, allows_private: bool) -> None:
        self._allows_private = allows_private
        self._inner = httpcore.AnyIOBackend()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109 - the interface of httpcore
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        addresses = await _look_up(host, port)
        # All of them: a name with one public and one private address is refused.
        if not self._allows_private and any(not is_public(address) for address in addresses):
            raise httpcore.ConnectError("address refused")
        return await self._inner.connect_tcp(
            str(addresses[0]), port, timeout, local_address, socket_options
        )

    async def sleep(self, seconds: float) -> None:
        await self._inner.sleep(seconds)


async def _look_up(host: str, port: int) -> list[Address]:
    try:
        found = await asyncio.get_running_loop().getaddrinfo(host, port, type=1)
    except OSError:
        raise httpcore.ConnectError("name not found") from None
    return [ip_address(str(entry[4][0]).partition("%")[0]) for entry in found]


def is_public(address: Address) -> bool:
    """Says whether an address can be that of a provider on the internet."""
    if isinstance(address, IPv6Address):
        inner = address.ipv4_mapped or address.sixtofour
        if inner is not None:
            return is_public(inner)
    return address.is_global and not address.is_multicast
