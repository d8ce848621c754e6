"""Receives the browser on this machine when the provider sends it back (RFC 8252 section 7.3).

A web server for one login: loopback addresses only, one exchange however often the browser comes,
and the code is gone from the address before a page is shown. Imports `pages`.
"""

from __future__ import annotations

import asyncio
import hmac
import re
import socket
import ssl
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from http import HTTPStatus
from types import TracebackType
from typing import Self
from urllib.parse import parse_qsl

from segmentstream.cli import pages
from segmentstream.cli.pages import Page

CALLBACK_PATH = "/callback"
_DONE_PATH = "/done"
_HEAD_BYTES = 64 * 1024  # cookies of everything else on the loopback host come too
_HEAD_SECONDS = 10.0
_VISITORS = 64
_PARAMETERS = 100
_LINE = re.compile(r"([A-Z]{1,16}) (/[\x21-\x7e]*) HTTP/1\.[01]")
# Where `localhost` leads a browser; nothing else may listen at either.
_ADDRESSES = {
    "127.0.0.1": [(socket.AF_INET, "127.0.0.1")],
    "localhost": [(socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")],
}


class AddressTakenError(Exception):
    """Says that the port cannot be listened on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Request:
    """Is what a browser asks for. Its repr shows no code."""

    method: str
    path: str
    query: str = field(repr=False)
    headers: Mapping[str, list[str]] = field(repr=False)

    def header(self, name: str) -> str | None:
        """Gives a header that is there once."""
        values = self.headers.get(name, [])
        return values[0] if len(values) == 1 else None

    def is_ahead_of_time(self) -> bool:
        """Says whether the browser only fetches what a person might want to see."""
        purposes = self.headers.get("sec-purpose", []) + self.headers.get("purpose", [])
        return any("prefetch" in purpose.lower() for purpose in purposes)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Expected:
    state: str = field(repr=False)
    complete: Callable[[Mapping[str, str]], Awaitable[Page]]


class Loopback:
    """Listens from the beginning of the `async with` block to its end."""

    def __init__(self, *, host: str, port: int, tls: ssl.SSLContext | None = None) -> None:
        self._host = host
        self._port = port
        self._tls = tls
        self._expected: _Expected | None = None
        self._completing: asyncio.Task[Page] | None = None
        self._servers: list[asyncio.Server] = []
        self._visits: set[asyncio.Task[None]] = set()
        self._came = asyncio.Event()
        self._shown = asyncio.Event()

    @property
    def port(self) -> int:
        """Where it listens."""
        return self._port

    @property
    def redirect_uri(self) -> str:
        """Where the provider sends the browser."""
        scheme = "http" if self._tls is None else "https"
        return f"{scheme}://{self._host}:{self._port}{CALLBACK_PATH}"

    @property
    def has_come(self) -> bool:
        """Whether the browser has brought back the state that is expected."""
        return self._completing is not None

    def expect(self, state: str, complete: Callable[[Mapping[str, str]], Awaitable[Page]]) -> None:
        """Says which state the browser brings, and what is done, once, with what else it brings."""
        self._expected = _Expected(state=state, complete=complete)

    async def visit(self) -> None:
        """Waits until the browser has brought back the state that is expected."""
        await self._came.wait()

    async def outcome(self) -> Page:
        """Waits until what is done once the browser has come is done."""
        await self._came.wait()
        assert self._completing is not None  # noqa: S101 - set before the event
        return await asyncio.shield(self._completing)

    async def shown(self) -> None:
        """Waits until the browser has fetched the page."""
        await self._shown.wait()

    async def __aenter__(self) -> Self:
        for listener in _listeners(self._host, self._port):
            self._port = listener.getsockname()[1]
            seconds = None if self._tls is None else _HEAD_SECONDS
            server = await asyncio.start_server(
                self._visit,
                sock=listener,
                ssl=self._tls,
                ssl_handshake_timeout=seconds,
                limit=_HEAD_BYTES,
            )
            self._servers.append(server)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for server in self._servers:
            server.close()
        for visit in self._visits:
            visit.cancel()
        await asyncio.gather(*self._visits, return_exceptions=True)

    async def _visit(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        visit = asyncio.current_task()
        assert visit is not None  # noqa: S101 - asyncio runs this as a task
        self._visits.add(visit)
        visit.add_done_callback(self._visits.discard)
        try:
            # Port scanners and what speaks no HTTP get no more than this.
            with suppress(OSError, TimeoutError, asyncio.IncompleteReadError):
                if len(self._visits) <= _VISITORS:
                    await self._served(reader, writer)
        finally:
            writer.close()

    async def _served(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(_HEAD_SECONDS):
                request = _read(await reader.readuntil(b"\r\n\r\n"))
        except asyncio.LimitOverrunError:
            request = None
        if request is None:
            await _send(writer, _page(pages.NOT_READABLE))
            return
        answer = await self._answer(request)
        await _send(
            writer,
            answer.partition(b"\r\n\r\n")[0] + b"\r\n\r\n" if request.method == "HEAD" else answer,
        )
        if request.method == "GET" and request.path == _DONE_PATH and self._is_done():
            self._shown.set()

    async def _answer(self, request: _Request) -> bytes:
        if (request.header("host") or "").lower() not in self._own_names():
            # A page elsewhere whose name leads here (DNS rebinding).
            return _page(pages.WRONG_HOST)
        if request.method not in {"GET", "HEAD"}:
            return _page(pages.ONLY_GET, {"Allow": "GET, HEAD"})
        if request.path == _DONE_PATH and self._is_done():
            assert self._completing is not None  # noqa: S101 - as `_is_done` says
            return _page(self._completing.result())
        if request.path != CALLBACK_PATH or self._expected is None:
            return _page(pages.NOT_HERE)
        if request.method == "HEAD" or request.is_ahead_of_time():
            # No success, so that a browser asks again when the person goes there.
            return _response(HTTPStatus.SERVICE_UNAVAILABLE, {"Retry-After": "0"})
        return await self._callback(self._expected, request)

    async def _callback(self, expected: _Expected, request: _Request) -> bytes:
        callback = _parameters(request.query)
        if callback is None or not hmac.compare_digest(
            callback.get("state", "").encode(), expected.state.encode()
        ):
            return _page(pages.EXPIRED)
        if self._completing is None:
            self._completing = asyncio.ensure_future(expected.complete(callback))
            self._came.set()
        # A browser that hangs up, or comes again, changes nothing.
        await asyncio.wait({self._completing})
        return _response(HTTPStatus.SEE_OTHER, {"Location": _DONE_PATH})

    def _is_done(self) -> bool:
        done = self._completing
        return done is not None and done.done() and not done.cancelled() and not done.exception()

    def _own_names(self) -> set[str]:
        usual = 80 if self._tls is None else 443
        return {f"{self._host}:{self._port}", *([self._host] if self._port == usual else [])}


def _listeners(host: str, port: int) -> list[socket.socket]:
    """Listens at every address of a loopback host, on one port."""
    listeners: list[socket.socket] = []
    for family, address in _ADDRESSES[host]:
        try:
            listener = socket.create_server((address, port), family=family)
        except OSError as error:
            if family == socket.AF_INET6 and not _is_taken(error):
                continue  # this machine has no IPv6
            for other in listeners:
                other.close()
            raise AddressTakenError(error.strerror) from None
        port = listener.getsockname()[1]
        listeners.append(listener)
    return listeners


def _is_taken(error: OSError) -> bool:
    import errno  # noqa: PLC0415

    return error.errno in {errno.EADDRINUSE, errno.EACCES}


def _read(head: bytes) -> _Request | None:
    """Reads a request; None where it is none that a browser sends."""
    first, *lines = head.decode("latin-1").removesuffix("\r\n\r\n").split("\r\n")
    line = _LINE.fullmatch(first)
    if line is None:
        return None
    headers: dict[str, list[str]] = {}
    for name, colon, value in (each.partition(":") for each in lines):
        if not colon:
            return None
        headers.setdefault(name.lower(), []).append(value.strip())
    path, _, query = line[2].partition("?")
    return _Request(method=line[1], path=path, query=query, headers=headers)


def _parameters(query: str) -> dict[str, str] | None:
    """Reads a query; None where a parameter comes twice (RFC 6749 section 3.1)."""
    try:
        pairs = parse_qsl(query, keep_blank_values=True, max_num_fields=_PARAMETERS)
    except ValueError:
        return None
    found = dict(pairs)
    return found if len(found) == len(pairs) else None


def _page(page: Page, headers: Mapping[str, str] | None = None) -> bytes:
    kind = {"Content-Type": "text/html; charset=utf-8"}
    return _response(page.status, kind | dict(headers or {}), page.to_html().encode())


def _response(status: HTTPStatus, headers: Mapping[str, str], body: bytes = b"") -> bytes:
    sent = pages.HEADERS | dict(headers) | {"Content-Length": str(len(body)), "Connection": "close"}
    lines = [f"HTTP/1.1 {status.value} {status.phrase}", *(f"{n}: {v}" for n, v in sent.items())]
    return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + body


async def _send(writer: asyncio.StreamWriter, response: bytes) -> None:
    writer.write(response)
    async with asyncio.timeout(_HEAD_SECONDS):
        await writer.drain()
