"""The rules of when a token is renewed; imports the rules and `_core`."""

from __future__ import annotations

from collections.abc import Sequence
from http import HTTPStatus
from typing import Final

from segmentstream.connections._rules import FieldPlace

_REPLAY_SECONDS: Final = range(30 * 24 * 3600 + 1)
_MARGIN_SECONDS: Final = range(24 * 3600 + 1)
_REFUSALS: Final = range(400, 500)


def replay_window_seconds(place: FieldPlace, value: object) -> int:
    """Accepts for how long a used refresh token is taken once more; 0 for not at all."""
    return _seconds(place, value, _REPLAY_SECONDS, "30 days")


def refresh_margin_seconds(place: FieldPlace, value: object) -> int:
    """Accepts how long before its end a token is renewed."""
    return _seconds(place, value, _MARGIN_SECONDS, "one day")


def refresh_statuses(place: FieldPlace, value: object) -> tuple[int, ...]:
    """Accepts which statuses of the API say that a token is dead (401 in RFC 6750 section 3.1)."""
    if not isinstance(value, Sequence) or isinstance(value, str | bytes):
        raise place.error(
            f"is of type {type(value).__name__} and not a list of statuses",
            "Write a list such as [401, 403].",
        )
    accepted: list[int] = []
    for number, status in enumerate(value, start=1):
        if isinstance(status, bool) or not isinstance(status, int) or status not in _REFUSALS:
            raise place.error(
                f"has at position {number} what is no status between 400 and 499",
                "Write each as the provider documents it, such as 401.",
            )
        if status == HTTPStatus.TOO_MANY_REQUESTS:
            raise place.error(
                "holds 429, which asks to wait and says nothing of the token", "Remove it."
            )
        if status in accepted:
            raise place.error(
                f"repeats at position {number} what stands before it", "Write each once."
            )
        accepted.append(status)
    return tuple(accepted)


def _seconds(place: FieldPlace, value: object, allowed: range, most: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value not in allowed:
        raise place.error(
            f"is not a whole number of seconds between 0 and {most}",
            "Write the seconds that the provider documents, or leave the field out.",
        )
    return value
