"""The token that all clients of an account share in one process; imports `access`.

However many requests of however many clients hear at once that a token is dead, the broker is asked
for a newer one once.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from segmentstream._clients.access import Access, Broker

# What was learnt from the broker is asked for again after this time, also where a token lives
# longer or for ever: a connection may have been ended, or authorized for another tenant.
_FRESH_SECONDS = 300.0
_MARGIN_SECONDS = 60.0
# For how long an API may refuse a token that is quite new before one more is asked for. Without
# it, one path that answers 401 to everybody would spend a refresh with each request.
_ENDURING_SECONDS = 60.0


class SharedAccess:
    """Keeps the token of one account until shortly before its end; safe to share among threads.

    Args:
        broker: Who gives tokens.
        key: The key of the connection.
        account: Which account of it.
        clock: The wall clock, in seconds since 1970.
    """

    def __init__(
        self, broker: Broker, key: str, account: str, *, clock: Callable[[], float]
    ) -> None:
        self._broker = broker
        self._key = key
        self._account = account
        self._clock = clock
        self._asking = threading.Lock()
        self._access: Access | None = None
        self._usable_until = 0.0
        self._refused: int | None = None
        self._endured: tuple[int, float] | None = None

    def get(self, *, rejected: int | None = None, min_ttl_seconds: int = 0) -> Access:
        """Gives a token, from the broker where none is at hand; blocks.

        Args:
            rejected: The number of a token that the API has refused.
            min_ttl_seconds: How long the token must live from now on.

        Raises:
            ConnectionAccessError: There is none.
        """
        with self._asking:
            known = self.peek(rejected=rejected, min_ttl_seconds=min_ttl_seconds)
            if known is not None:
                return known
            access = self._broker.access(
                self._key,
                self._account,
                min_ttl_seconds=min_ttl_seconds,
                rejected=self._refused if rejected is None else rejected,
            )
            self._refused = None
            self._usable_until = self._end_of_use(access)
            self._access = access
            return access

    def peek(self, *, rejected: int | None = None, min_ttl_seconds: int = 0) -> Access | None:
        """Gives the token at hand, or None where the broker must be asked; never blocks."""
        access = self._access
        if access is None or access.token_number in (rejected, self._refused):
            return None
        now = self._clock()
        if now >= self._usable_until:
            return None
        if access.expires_at is not None and access.expires_at - now < min_ttl_seconds:
            return None
        return access

    def refuse(self, number: int, *, is_new: bool) -> bool:
        """Notes that the API has refused a token, and says whether to ask for a newer one.

        Args:
            number: The number of the token.
            is_new: Whether it was got for this very request, after another one was refused; then
                there is no other try.
        """
        now = self._clock()
        if is_new:
            self._endured = (number, now + _ENDURING_SECONDS)
            return False
        if self._endured is not None and self._endured[0] == number and now < self._endured[1]:
            return False
        self._refused = number
        return True

    def _end_of_use(self, access: Access) -> float:
        now = self._clock()
        if access.expires_at is None:
            return now + _FRESH_SECONDS
        left = max(0.0, access.expires_at - now)
        # Half of it where it lives shorter than the margin, which would never be fresh otherwise.
        return now + min(left - min(_MARGIN_SECONDS, left / 2), _FRESH_SECONDS)
