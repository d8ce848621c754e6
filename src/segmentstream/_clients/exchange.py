"""One request from its first attempt to the answer that stands: what to send, whether to try again.

No sockets, no sleeping and no waiting for tokens: `transport` does these, once blocking and once
not. Imports httpx and `access`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC
from email.utils import parsedate_to_datetime

import httpx

from segmentstream._clients.access import Access
from segmentstream._core.errors import ConnectionRequestError

_SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
_IDEMPOTENT = _SAFE | {"PUT", "DELETE", "TRACE"}  # RFC 9110 section 9.2.2
_TOO_MANY = 429
_UNAVAILABLE = 503
_SECONDS = re.compile(r"[0-9]{1,9}")


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """Says how patient a client is with an API that asks to wait.

    Attributes:
        retries: How often one request is tried again.
        budget_seconds: How long the waits of one request may take together; an API that asks for
            more gets no second attempt, and its answer is handed on.
        first_seconds: The longest first wait where the API does not say how long; it doubles.
    """

    retries: int = 4
    budget_seconds: float = 60.0
    first_seconds: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """Is what all requests of one client have in common.

    Attributes:
        connection: The key of the connection.
        base_url: Where the API is, instead of what the declaration says.
        read_only: Whether only what changes nothing may be sent.
        policy: How patient it is.
        clock: The wall clock, in seconds since 1970, by which HTTP dates are read.
        random: Gives numbers from 0 to 1, so that clients do not come back all at once.
    """

    connection: str
    base_url: str | None
    read_only: bool
    policy: RetryPolicy
    clock: Callable[[], float]
    random: Callable[[], float]

    def permit(self, request: httpx.Request) -> None:
        """Lets pass what may be sent.

        Raises:
            ConnectionRequestError: The request would change something, and must not.
        """
        if self.read_only and request.method not in _SAFE:
            raise ConnectionRequestError(
                f"{request.method} was refused: this client of connection {self.connection!r} is "
                "read-only.",
                "Send GET, HEAD or OPTIONS, or get the connection without read_only.",
                connection=self.connection,
            )

    def base_of(self, access: Access) -> httpx.URL:
        """Gives the address of the API, which a token never leaves.

        Raises:
            ConnectionRequestError: There is none.
        """
        base = self.base_url or access.base_url
        if base is None:
            raise ConnectionRequestError(
                f"Where the API of connection {self.connection!r} is was not declared, so no "
                "request can be sent.",
                "Declare its api_base_url, or write "
                f'get_connection("{self.connection}", base_url="https://...").',
                connection=self.connection,
            )
        return httpx.URL(base)


class Exchange:
    """Is one request on its way.

    Attributes:
        rejected: The number of the token that the API refused before the next attempt.

    Raises:
        ConnectionRequestError: The request would change something, and must not.
    """

    def __init__(
        self, request: httpx.Request, terms: Terms, *, refuse: Callable[[int, bool], bool]
    ) -> None:
        terms.permit(request)
        self.rejected: int | None = None
        self._request = request
        self._terms = terms
        self._refuse = refuse
        self._has_renewed = False
        self._retries = 0
        self._waited = 0.0

    def attempt(self, access: Access) -> httpx.Request:
        """Gives a copy of the request to send: with the token, at the origin of the API only.

        Elsewhere a redirect has led, and there it goes without, whatever else was set.
        """
        headers = httpx.Headers(self._request.headers)
        for name in ("Authorization", access.header):
            headers.pop(name, None)
        if self._is_at_home(access):
            headers[access.header] = access.credentials
        # A copy: hooks, redirects, errors and the response itself refer to the original.
        return httpx.Request(
            self._request.method,
            self._request.url,
            headers=headers,
            stream=self._request.stream,
            extensions=self._request.extensions,
        )

    def judge(self, response: httpx.Response, access: Access) -> float | None:
        """Says after how many seconds to try again; None where the answer stands."""
        if not self._is_at_home(access):
            return None
        if response.status_code in access.refresh_statuses:
            return self._renewal(access)
        if self._asks_to_wait(response.status_code) and self._is_replayable:
            return self._wait(response.headers.get("Retry-After"))
        return None

    @property
    def _is_replayable(self) -> bool:
        # What comes out of a generator or a file is gone once it was sent.
        return isinstance(self._request.stream, httpx.ByteStream)

    def _is_at_home(self, access: Access) -> bool:
        return same_origin(self._request.url, self._terms.base_of(access))

    def _renewal(self, access: Access) -> float | None:
        is_worthwhile = self._refuse(access.token_number, self._has_renewed)
        if not is_worthwhile or not self._is_replayable:
            return None
        self._has_renewed = True
        self.rejected = access.token_number
        return 0.0

    def _asks_to_wait(self, status: int) -> bool:
        # 429 says that nothing was done; after 503 something may have been.
        return status == _TOO_MANY or (
            status == _UNAVAILABLE and self._request.method in _IDEMPOTENT
        )

    def _wait(self, retry_after: str | None) -> float | None:
        policy = self._terms.policy
        if self._retries >= policy.retries:
            return None
        asked = None if retry_after is None else seconds_of(retry_after, now=self._terms.clock())
        if asked is None:
            asked = self._terms.random() * policy.first_seconds * 2**self._retries
        if self._waited + asked > policy.budget_seconds:
            return None
        self._retries += 1
        self._waited += asked
        return asked


def same_origin(one: httpx.URL, other: httpx.URL) -> bool:
    """Says whether scheme, host and port are the same (RFC 6454); httpx leaves usual ports out."""
    return (one.scheme, one.raw_host, one.port) == (other.scheme, other.raw_host, other.port)


def seconds_of(retry_after: str, *, now: float) -> float | None:
    """Reads a `Retry-After` (RFC 9110 section 10.2.3): seconds, or a date; None for what is none.

    Args:
        retry_after: The header.
        now: The time, in seconds since 1970.
    """
    text = retry_after.strip()
    if _SECONDS.fullmatch(text):
        return float(text)
    try:
        date = parsedate_to_datetime(text)
    except ValueError:
        return None
    if date.tzinfo is None:
        date = date.replace(tzinfo=UTC)  # "-0000": the time is UTC (RFC 5322 section 3.3)
    return max(0.0, date.timestamp() - now)
