"""The one client through which the service speaks to providers; imports `transport` and the errors.

Nothing here follows a redirect, reads proxies or credentials from the surroundings, or connects to
an address that has not been checked. One deadline covers a request from the first look-up of a name
to the last byte of the answer.

Every request has a connection of its own: on one that is used again, bytes that follow an answer
would become the answer to the next caller, and a request that meets its end would be lost without
a word whether a refresh token was spent. No cookie is kept either.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from segmentstream_connections_runtime.errors import Code, ServiceError

if TYPE_CHECKING:
    import httpx

_HEADER_BYTES = 32 * 1024


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
        if ca_file:  # tried now, for whoever starts the service
            ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cafile=ca_file)
        self._seconds = seconds
        self._body_bytes = body_bytes
        self._allows_private = allows_private
        self._ca_file = ca_file
        self._made: httpx.AsyncClient | None = None

    @property
    def _client(self) -> httpx.AsyncClient:
        if self._made is None:
            from segmentstream_connections_runtime.transport import make_client  # noqa: PLC0415

            self._made = make_client(
                seconds=self._seconds, allows_private=self._allows_private, ca_file=self._ca_file
            )
        return self._made

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
        import httpx  # noqa: PLC0415 - as `transport`

        from segmentstream_connections_runtime.transport import (  # noqa: PLC0415
            BROKEN,
            what_failed,
        )

        try:
            async with asyncio.timeout(self._seconds):
                return await self._answer(method, url, **request)
        except TimeoutError:
            raise ServiceError(Code.PROVIDER_UNAVAILABLE, "It took too long.") from None
        except httpx.HTTPError as error:
            # The text of these errors can hold an address with its query, or bytes of an answer.
            unsent = isinstance(
                error, httpx.ConnectError | httpx.ConnectTimeout | httpx.PoolTimeout
            )
            raise ServiceError(
                Code.PROVIDER_UNAVAILABLE, what_failed(error), was_sent=not unsent
            ) from None
        except OSError:  # such as broken TLS records, which httpx does not translate
            raise ServiceError(Code.PROVIDER_UNAVAILABLE, BROKEN) from None

    async def close(self) -> None:
        """Closes the connections."""
        if self._made is not None:
            await self._made.aclose()

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
