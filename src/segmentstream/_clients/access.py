"""What a client needs of a connection, and the port that gives it; the standard library only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Protocol

type Metadata = Mapping[str, str | int | bool]

_NOTHING: Metadata = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """Is an access token, with what is known about it. Its repr shows neither token nor metadata.

    Attributes:
        access_token: The token.
        token_number: Which pair of tokens it is of; a newer pair has a larger number.
        expires_at: When it expires, in seconds since 1970; None where that is unknown.
        scopes: The scopes in force.
        missing_scopes: Scopes that were asked for and not granted.
        metadata: What the provider told besides, such as `instance_url`.
        base_url: Where the API is, where the declaration says so.
        header: In which header the token goes.
        scheme: What stands before it there; nothing when empty.
        refresh_statuses: With which statuses the API says that the token is dead.
        persisted: Whether the tokens are in the store.
    """

    access_token: str = field(repr=False)
    token_number: int
    expires_at: float | None = None
    scopes: tuple[str, ...] = ()
    missing_scopes: tuple[str, ...] = ()
    metadata: Metadata = field(default=_NOTHING, repr=False)
    base_url: str | None = None
    header: str = "Authorization"
    scheme: str = "Bearer"
    refresh_statuses: tuple[int, ...] = (401,)
    persisted: bool = True

    @property
    def credentials(self) -> str:
        """The value of the header."""
        return f"{self.scheme} {self.access_token}".lstrip()


class Broker(Protocol):
    """Gives tokens; safe to call from many threads, and blocking."""

    def access(
        self, key: str, account: str, *, min_ttl_seconds: int = 0, rejected: int | None = None
    ) -> Access:
        """Gives a token that can be used now.

        Args:
            key: The key of the connection.
            account: Which account of it.
            min_ttl_seconds: How long it must live from now on.
            rejected: The number of a token that the API has refused; the answer is a newer one.

        Raises:
            ConnectionAccessError: There is none.
        """

    def close(self) -> None:
        """Lets go of what it holds open."""
