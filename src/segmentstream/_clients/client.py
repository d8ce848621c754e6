"""The httpx clients that a connection gives; imports httpx and `transport`.

A client knows where its API is once it knows the token, because that may depend on the login. Until
then relative addresses are built upon a place that does not exist, and moved when they are sent.

What a request is for is decided in `send`, through which everything passes that a user asks for,
and nothing that httpx makes of it: redirects are followed below. So an address elsewhere is refused
there, while a redirect to it is followed, by the transport and without the token.
"""

from __future__ import annotations

import random
import time
from collections.abc import Mapping
from typing import Any, Final, Protocol

import anyio
import httpx

from segmentstream._clients.access import Access
from segmentstream._clients.exchange import RetryPolicy, Terms, same_origin
from segmentstream._clients.transport import AsyncAuthorizedTransport, AuthorizedTransport, Share
from segmentstream._core.errors import ConnectionRequestError

# Nobody can own a name that ends in .invalid (RFC 2606 section 2).
_NOWHERE: Final = httpx.URL("https://connection.invalid")
# httpx gives up after 5 seconds, which reports and exports of many providers take longer than.
_TIMEOUT: Final = httpx.Timeout(connect=10.0, read=60.0, write=60.0, pool=60.0)
_USER_AGENT: Final = "segmentstream-pipeline"
_OF_THE_INNER = ("verify", "cert", "http1", "http2", "limits", "proxy")
_RESERVED: Final[Mapping[str, str]] = {
    "auth": "the connection's token goes with each request by itself",
    "base_url": "give it to get_connection instead",
    "mounts": "give a transport instead, which every request passes through",
}


class _Speaker(Protocol):
    """Is what both kinds of clients are."""

    @property
    def base_url(self) -> httpx.URL: ...

    @base_url.setter
    def base_url(self, url: httpx.URL | str) -> None: ...


class ConnectionClient(httpx.Client):
    """Is an `httpx.Client` of one connection, with all that one has; made by `Connection`."""

    def __init__(self, transport: AuthorizedTransport, **options: Any) -> None:
        super().__init__(transport=transport, **_defaults(transport.terms, options))
        self._authorized = transport

    # The other arguments are httpx's own and go there as they are.
    def send(self, request: httpx.Request, **options: Any) -> httpx.Response:
        """As `httpx.Client.send`.

        Raises:
            ConnectionAccessError: There is no token.
            ConnectionRequestError: The request was refused before anything was sent.
        """
        self._authorized.terms.permit(request)  # without a token; hooks may still change it
        _aim(self, request, self._authorized.terms, self._authorized.access())
        return super().send(request, **options)


class AsyncConnectionClient(httpx.AsyncClient):
    """Is an `httpx.AsyncClient` of one connection; made by `Connection`."""

    def __init__(self, transport: AsyncAuthorizedTransport, **options: Any) -> None:
        super().__init__(transport=transport, **_defaults(transport.terms, options))
        self._authorized = transport

    async def send(self, request: httpx.Request, **options: Any) -> httpx.Response:
        """As `ConnectionClient.send`."""
        self._authorized.terms.permit(request)
        _aim(self, request, self._authorized.terms, await self._authorized.access())
        return await super().send(request, **options)


def make_client(
    key: str, *, share: Share, base_url: str | None, read_only: bool, options: Mapping[str, Any]
) -> ConnectionClient:
    """Makes a client; nothing is opened or asked for before its first request.

    Raises:
        ConnectionRequestError: An option is not the caller's to give.
    """
    inner, outer = _parted(key, options)
    transport = AuthorizedTransport(
        outer.pop("transport", None) or httpx.HTTPTransport(**inner),
        share,
        _terms(key, base_url=base_url, read_only=read_only),
        sleep=time.sleep,
    )
    return ConnectionClient(transport, **outer)


def make_async_client(
    key: str, *, share: Share, base_url: str | None, read_only: bool, options: Mapping[str, Any]
) -> AsyncConnectionClient:
    """Makes an async client, as `make_client`."""
    inner, outer = _parted(key, options)
    transport = AsyncAuthorizedTransport(
        outer.pop("transport", None) or httpx.AsyncHTTPTransport(**inner),
        share,
        _terms(key, base_url=base_url, read_only=read_only),
        sleep=anyio.sleep,
    )
    return AsyncConnectionClient(transport, **outer)


def _terms(key: str, *, base_url: str | None, read_only: bool) -> Terms:
    return Terms(
        connection=key,
        base_url=base_url,
        read_only=read_only,
        policy=RetryPolicy(),
        clock=time.time,
        random=random.random,
    )


def _parted(key: str, options: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Parts the options for the inner transport from those for the client."""
    for name, why in _RESERVED.items():
        if name in options:
            raise ConnectionRequestError(
                f"A client of connection {key!r} takes no {name}.",
                f"Leave it out: {why}.",
                connection=key,
            )
    # Proxies, certificates and passwords of the surroundings are not for requests that carry a
    # token: a proxy is named by the option, where it can be seen.
    inner = {"trust_env": options.get("trust_env", False)}
    inner |= {name: options[name] for name in _OF_THE_INNER if name in options}
    outer = {name: value for name, value in options.items() if name not in _OF_THE_INNER}
    return inner, {"trust_env": False, **outer}


def _defaults(terms: Terms, options: Mapping[str, Any]) -> dict[str, Any]:
    headers = httpx.Headers(options.get("headers"))
    headers.setdefault("User-Agent", _USER_AGENT)
    return {
        "timeout": _TIMEOUT,
        **options,
        "headers": headers,
        "base_url": terms.base_url or _NOWHERE,
    }


def _aim(client: _Speaker, request: httpx.Request, terms: Terms, access: Access) -> None:
    """Moves a relative address to the API, and refuses one that is elsewhere."""
    base = terms.base_of(access)
    if same_origin(request.url, _NOWHERE):
        path = base.raw_path.rstrip(b"/") + request.url.raw_path
        request.url = base.copy_with(raw_path=path)
        if request.headers.get("Host") == _NOWHERE.host:
            request.headers["Host"] = request.url.netloc.decode("ascii")
        client.base_url = base
    if not same_origin(request.url, base):
        raise ConnectionRequestError(
            f"A request to {request.url.host!r} was refused: the token of connection "
            f"{terms.connection!r} is for {base.host!r} only.",
            "Send it with a client of your own, or get the connection with another base_url.",
            connection=terms.connection,
        )
