"""A broker for tests: it renews by counting, or through a fake provider, and notes what it is asked."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import httpx

from segmentstream._clients.access import Access
from segmentstream.testing import FakeProvider
from segmentstream.testing._fake import CLIENT_ID, CLIENT_SECRET

BASE = "https://api.example.com/v1"


@dataclass(slots=True, kw_only=True)
class CountingBroker:
    """Gives token-1, token-2 and so on: a new one for each that was refused.

    Attributes:
        access_now: What it gives at present.
        asked: The `rejected` of each call.
        fails: What it raises instead of an answer.
        meanwhile: What happens while it is asked.
    """

    access_now: Access = field(
        default_factory=lambda: Access(access_token="token-1", token_number=1, base_url=BASE)
    )
    asked: list[int | None] = field(default_factory=list)
    fails: Exception | None = None
    meanwhile: Callable[[], object] = lambda: None
    is_closed: bool = False
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def access(
        self,
        key: str,  # noqa: ARG002 - the interface, as the next two
        account: str,  # noqa: ARG002
        *,
        min_ttl_seconds: int = 0,  # noqa: ARG002
        rejected: int | None = None,
    ) -> Access:
        """As `Broker.access`."""
        with self._lock:
            self.asked.append(rejected)
            self.meanwhile()
            if self.fails is not None:
                raise self.fails
            if rejected == self.access_now.token_number:
                self.access_now = self._renewed(self.access_now)
            return self.access_now

    def close(self) -> None:
        """As `Broker.close`."""
        self.is_closed = True

    def _renewed(self, old: Access) -> Access:
        number = old.token_number + 1
        return replace(old, access_token=f"token-{number}", token_number=number)


class ProviderBroker(CountingBroker):
    """Renews at a fake provider, with a refresh token that rotates."""

    def __init__(self, provider: FakeProvider, **changes: Any) -> None:
        tokens = provider.issue_tokens()
        self._provider = provider
        self._refresh_token: str = tokens["refresh_token"]
        super().__init__(
            access_now=Access(
                access_token=tokens["access_token"],
                token_number=1,
                base_url=f"{provider.url}/api",
                **changes,
            )
        )

    def _renewed(self, old: Access) -> Access:
        answer = httpx.post(
            f"{self._provider.url}/token",
            data={
                "grant_type": "refresh_token",
                "refresh_token": self._refresh_token,
                "client_id": CLIENT_ID,
                "client_secret": CLIENT_SECRET,
            },
            trust_env=False,
        )
        tokens = answer.raise_for_status().json()
        self._refresh_token = tokens["refresh_token"]
        return replace(old, access_token=tokens["access_token"], token_number=old.token_number + 1)
