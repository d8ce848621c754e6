"""How requests of a connection's clients are sent: with its token, which nobody else gets to see.

The token is attached in the transport, below everything of httpx that could show it or take it
elsewhere: event hooks, redirects, the request of a response and that of an error. Imports httpx,
anyio, which httpx brings, `exchange` and `sharing`.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from types import TracebackType
from typing import Self

import anyio
import anyio.to_thread
import httpx

from segmentstream._clients.access import Access
from segmentstream._clients.exchange import Exchange, Terms
from segmentstream._clients.sharing import SharedAccess

# What an answer that nobody will read may hold for its connection to be worth keeping.
_DRAINED_BYTES = 64 * 1024

_log = logging.getLogger("segmentstream.connections")

type Share = Callable[[], SharedAccess]


class AuthorizedTransport(httpx.BaseTransport):
    """Sends requests with the token of a connection, through another transport.

    Args:
        inner: What sends.
        share: Gives the token that the process shares.
        terms: What the requests have in common.
        sleep: Waits for so many seconds.
    """

    def __init__(
        self,
        inner: httpx.BaseTransport,
        share: Share,
        terms: Terms,
        *,
        sleep: Callable[[float], None],
    ) -> None:
        self.terms = terms
        self._inner = inner
        self._share = share
        self._sleep = sleep

    def access(self, rejected: int | None = None) -> Access:
        """Gives the token, and with it the address of the API.

        Raises:
            ConnectionAccessError: There is none.
        """
        return self._share().get(rejected=rejected)

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Sends a request, again where a newer token or a little patience helps."""
        exchange = Exchange(request, self.terms, refuse=functools.partial(_refuse, self._share))
        while True:
            access = self.access(exchange.rejected)
            response = self._inner.handle_request(exchange.attempt(access))
            wait = exchange.judge(response, access)
            if wait is None:
                return response
            _finish(response)
            if wait:
                _note(self.terms, response, wait)
                self._sleep(wait)

    def close(self) -> None:
        """Closes the connections."""
        self._inner.close()

    def __enter__(self) -> Self:
        self._inner.__enter__()
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None = None,
        exc_value: BaseException | None = None,
        traceback: TracebackType | None = None,
    ) -> None:
        self._inner.__exit__(exc_type, exc_value, traceback)


class AsyncAuthorizedTransport(httpx.AsyncBaseTransport):
    """Is `AuthorizedTransport` for async clients; only `sleep` is awaited."""

    def __init__(
        self,
        inner: httpx.AsyncBaseTransport,
        share: Share,
        terms: Terms,
        *,
        sleep: Callable[[float], Awaitable[None]],
    ) -> None:
        self.terms = terms
        self._inner = inner
        self._share = share
        self._sleep = sleep
        self._asking = anyio.Lock()

    async def access(self, rejected: int | None = None) -> Access:
        """Gives the token, and with it the address of the API.

        Raises:
            ConnectionAccessError: There is none.
        """
        shared = self._share()
        if known := shared.peek(rejected=rejected):
            return known
        # One at a time: many tasks that wait in threads would leave none for other work.
        async with self._asking:
            ask = functools.partial(shared.get, rejected=rejected)
            return await anyio.to_thread.run_sync(ask, abandon_on_cancel=True)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Sends a request, again where a newer token or a little patience helps."""
        exchange = Exchange(request, self.terms, refuse=functools.partial(_refuse, self._share))
        while True:
            access = await self.access(exchange.rejected)
            response = await self._inner.handle_async_request(exchange.attempt(access))
            wait = exchange.judge(response, access)
            if wait is None:
                return response
            await _finish_async(response)
            if wait:
                _note(self.terms, response, wait)
                await self._sleep(wait)

    async def aclose(self) -> None:
        """Closes the connections."""
        await self._inner.aclose()

    async def __aenter__(self) -> Self:
        await self._inner.__aenter__()
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None = None,
        exc_value: BaseException | None = None,
        traceback: TracebackType | None = None,
    ) -> None:
        await self._inner.__aexit__(exc_type, exc_value, traceback)


def _refuse(share: Share, number: int, is_new: bool) -> bool:  # noqa: FBT001 - a callback
    return share().refuse(number, is_new=is_new)


def _note(terms: Terms, response: httpx.Response, seconds: float) -> None:
    _log.info(
        "connection %s: the API answered %d, trying again in %.1f s",
        terms.connection,
        response.status_code,
        seconds,
    )


def _finish(response: httpx.Response) -> None:
    """Reads an answer that nobody wants to its end, so that its connection can be used again."""
    with suppress(httpx.TransportError):
        if _is_short(response):
            response.read()
    response.close()


async def _finish_async(response: httpx.Response) -> None:
    with suppress(httpx.TransportError):
        if _is_short(response):
            await response.aread()
    await response.aclose()


def _is_short(response: httpx.Response) -> bool:
    length = response.headers.get("Content-Length", "")
    return length.isdecimal() and int(length) <= _DRAINED_BYTES
