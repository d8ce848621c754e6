"""How `http` connects: to an address that has been checked; imports httpx and the errors.

It is loaded by the first request to a provider, so that the service starts without it.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Iterable
from http.cookiejar import CookieJar, DefaultCookiePolicy
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address
from typing import Any

import httpcore
import httpx

from segmentstream_connections_runtime.errors import Code, ServiceError

BROKEN = "It ended the connection without a readable answer."
_CONNECT_SECONDS = 5.0
_CONNECTIONS = 200
_USER_AGENT = "segmentstream-connections"

type Address = IPv4Address | IPv6Address


def make_client(*, seconds: float, allows_private: bool, ca_file: str | None) -> httpx.AsyncClient:
    """Makes the client of `ProviderClient`."""
    context = ssl.create_default_context()
    if ca_file:
        context.load_verify_locations(cafile=ca_file)
    return httpx.AsyncClient(
        transport=PinnedTransport(context, allows_private=allows_private),
        follow_redirects=False,
        trust_env=False,
        cookies=CookieJar(DefaultCookiePolicy(allowed_domains=())),
        timeout=httpx.Timeout(seconds, connect=_CONNECT_SECONDS),
        headers={
            "User-Agent": _USER_AGENT,
            "Accept": "application/json",
            "Accept-Encoding": "identity",
            "Connection": "close",
        },
    )


def what_failed(error: httpx.HTTPError) -> str:
    """Says what failed, in the service's own words."""
    if _is_about_certificate(error):
        return "Its certificate is not trusted, or is for another name."
    match error:
        case httpx.ConnectTimeout() | httpx.ConnectError():
            return "No connection could be made."
        case httpx.TimeoutException():
            return "It took too long."
        case httpx.RemoteProtocolError() | httpx.ReadError():
            return BROKEN
        case _:
            return "The request failed on its way."


def _is_about_certificate(error: BaseException | None) -> bool:
    while error is not None:
        if isinstance(error, ssl.SSLCertVerificationError):
            return True
        error = error.__cause__ or error.__context__
    return False


class PinnedTransport(httpx.AsyncHTTPTransport):
    """Connects to the address that was checked, and to no other of the same name."""

    def __init__(self, context: ssl.SSLContext, *, allows_private: bool) -> None:
        super().__init__(verify=context, retries=0)
        self._pool = httpcore.AsyncConnectionPool(
            ssl_context=context,
            max_connections=_CONNECTIONS,
            max_keepalive_connections=0,
            network_backend=_CheckedNetwork(allows_private=allows_private),
        )


class _CheckedNetwork(httpcore.AsyncNetworkBackend):
    """Looks a name up once, refuses what no provider may be, and connects to what it found."""

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
            raise ServiceError(
                Code.PROVIDER_UNAVAILABLE,
                "Its name leads to a private or local address, which is refused.",
                was_sent=False,
            )
        async with asyncio.timeout(timeout):
            for address in addresses[:-1]:
                try:
                    return await self._inner.connect_tcp(
                        str(address), port, timeout, local_address, socket_options
                    )
                except httpcore.ConnectError:
                    continue  # such as IPv6 without a way to it
            return await self._inner.connect_tcp(
                str(addresses[-1]), port, timeout, local_address, socket_options
            )

    async def sleep(self, seconds: float) -> None:
        await self._inner.sleep(seconds)


async def _look_up(host: str, port: int) -> list[Address]:
    try:
        found = await asyncio.get_running_loop().getaddrinfo(host, port, type=1)
    except (OSError, UnicodeError):
        raise ServiceError(
            Code.PROVIDER_UNAVAILABLE, "Its name is not known.", was_sent=False
        ) from None
    return [ip_address(str(entry[4][0]).partition("%")[0]) for entry in found]


def is_public(address: Address) -> bool:
    """Says whether an address can be that of a provider on the internet."""
    if isinstance(address, IPv6Address):
        inner = _embedded(address)
        if inner is not None:
            return is_public(inner)
        if address.is_site_local:
            return False
    return address.is_global and not address.is_multicast and address not in _OF_CLOUDS


def _embedded(address: IPv6Address) -> IPv4Address | None:
    """Gives the IPv4 address that an IPv6 address stands for, if it does."""
    if any(address in network for network in _EMBEDDING):
        return IPv4Address(address.packed[-4:])
    return address.ipv4_mapped or address.sixtofour


# IPv4-compatible addresses (RFC 4291 section 2.5.5.1) and those of NAT64 (RFC 6052).
_EMBEDDING = (IPv6Network("::/96"), IPv6Network("64:ff9b::/96"))
# Public by number, but the host's own: Azure's platform address.
_OF_CLOUDS = frozenset({ip_address("168.63.129.16")})
