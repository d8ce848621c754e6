"""The API of the fake provider: documents, and the troubles of APIs; no sockets.

A request needs a live access token. After that the troubles of its path come first, in the order
in which they were set, and then its document.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence

from segmentstream.testing._exchanges import ProviderAnswer, ProviderRequest

type Handler = Callable[[ProviderRequest], object]

_NOT_FOUND = ProviderAnswer(status=404, document={"error": "not_found"})
_UNAUTHORIZED = ProviderAnswer(
    status=401,
    document={"error": "invalid_token"},
    headers={"WWW-Authenticate": 'Bearer error="invalid_token"'},  # RFC 6750 section 3
)


class Api:
    """Knows what stands at which path; safe to call from many threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._handlers: dict[str, Handler] = {}
        self._troubles: dict[str, deque[ProviderAnswer]] = {}

    def serve(self, path: str, handler: Handler) -> None:
        """Answers a path with what the handler gives."""
        with self._lock:
            self._handlers[path] = handler

    def trouble(self, path: str, answers: Iterable[ProviderAnswer]) -> None:
        """Answers the next requests of a path with these instead."""
        with self._lock:
            self._troubles.setdefault(path, deque()).extend(answers)

    def answer(self, path: str, request: ProviderRequest, *, is_authorized: bool) -> ProviderAnswer:
        """Answers a request for a path below that of the API."""
        if not is_authorized:
            return _UNAUTHORIZED
        with self._lock:
            troubles = self._troubles.get(path)
            if troubles:
                return troubles.popleft()
            handler = self._handlers.get(path)
        if handler is None:
            return _NOT_FOUND
        answer = handler(request)
        return answer if isinstance(answer, ProviderAnswer) else ProviderAnswer(document=answer)


def refusal(status: int) -> ProviderAnswer:
    """Gives the answer of an API that refuses, such as with 401 or 503."""
    return _UNAUTHORIZED if status == _UNAUTHORIZED.status else _failing(status)


def throttling(retry_after: int | str | None) -> ProviderAnswer:
    """Gives the answer of an API that was asked too often (RFC 6585 section 4)."""
    headers = {} if retry_after is None else {"Retry-After": str(retry_after)}
    return ProviderAnswer(status=429, document={"error": "too_many_requests"}, headers=headers)


def redirecting(to: str, status: int) -> Handler:
    """Makes a handler that sends every request elsewhere."""
    return lambda _: ProviderAnswer(status=status, headers={"Location": to}, document={})


def paging(url: str, pages: Sequence[Sequence[object]]) -> Handler:
    """Makes a handler that answers page by page, as `FakeProvider.serve_pages` says."""

    def answer(request: ProviderRequest) -> object:
        given = request.query.get("page", "1")
        number = int(given) if given.isdecimal() and len(given) < 10 else 0  # noqa: PLR2004
        if not 1 <= number <= len(pages):
            return _NOT_FOUND
        following = f"{url}?page={number + 1}" if number < len(pages) else None
        return ProviderAnswer(
            document={"items": list(pages[number - 1]), "next": following},
            headers={"Link": f'<{following}>; rel="next"'} if following else {},  # RFC 8288
        )

    return answer


def _failing(status: int) -> ProviderAnswer:
    return ProviderAnswer(status=status, document={"error": f"status_{status}"})
