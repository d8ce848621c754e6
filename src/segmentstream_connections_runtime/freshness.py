"""When a token is used as it is and when it is renewed; imports the records and the errors.

All times are those of the wall, since they are stored; a clock that jumps costs one refresh.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from segmentstream.connections import OAuth2Connection
from segmentstream_connections_runtime.credentials.records import Credential, State, Tokens
from segmentstream_connections_runtime.errors import Code, ServiceError

_YOUNG_SECONDS = 10.0
_SKEW_SECONDS = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Want:
    """Says what a caller needs of a token.

    Attributes:
        min_ttl_seconds: For how long it has to live at least, as far as the provider allows.
        rejected: The number of the tokens that the provider's interface has refused, if it has.
        is_forced: Whether to renew it in any case, as a person asks for.
    """

    min_ttl_seconds: float = 0
    rejected: int | None = None
    is_forced: bool = False


class Freshness:
    """Decides about the tokens of credentials."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now

    def serves(self, connection: OAuth2Connection, credential: Credential, want: Want) -> bool:
        """Says whether the tokens can be used as they are; refuses where none ever can."""
        if credential.state is State.DISCONNECTED or credential.tokens is None:
            raise ServiceError(Code.CREDENTIAL_NOT_FOUND, "It was disconnected.")
        if credential.state is State.REAUTHORIZE:
            raise ServiceError(Code.REAUTHORIZATION_REQUIRED, credential.reason)
        tokens = credential.tokens
        if want.is_forced:
            return False
        if want.rejected == credential.number:
            # One that was just issued and is refused again is not refused for its age.
            return 0 <= self._now() - tokens.obtained_at < _YOUNG_SECONDS
        return self._lives(tokens, max(connection.refresh_margin_seconds, want.min_ttl_seconds))

    def _lives(self, tokens: Tokens, margin: float) -> bool:
        """Says whether a token lives for a while; a lifetime shorter than that is halved."""
        if tokens.expires_at is None:
            return True
        lifetime = tokens.expires_at - tokens.obtained_at
        remaining = tokens.expires_at - self._now()
        if remaining > lifetime + _SKEW_SECONDS:
            return False  # the clock was put back: the token's age is not known
        return remaining > min(margin, lifetime / 2)

    def outlives(self, credential: Credential, want: Want) -> bool:
        """Says whether the old tokens still do, where new ones cannot be had now."""
        tokens = credential.tokens
        return (
            tokens is not None
            and not want.is_forced
            and credential.number != want.rejected
            and self._lives(tokens, max(_YOUNG_SECONDS, want.min_ttl_seconds))
        )
