"""How credentials are told of: as text for people, and as a document for programs.

Imports the standard library; of a credential it is given what is no secret.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import fields
from datetime import UTC, datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from segmentstream_connections_runtime.durable import Status

_TIMES = {"granted_at", "obtained_at", "expires_at", "retry_at"}
_SPANS = ((86400.0, "days"), (3600.0, "hours"), (60.0, "minutes"), (1.0, "seconds"))
_SEVERAL = 2  # a day and a half is told in hours
_GAP = "  "
NOTHING = "-"


def document(status: Status) -> dict[str, object]:
    """Gives a status as programs read it; of the metadata, which a provider wrote, the names."""
    told: dict[str, object] = {}
    for each in fields(status):
        value = getattr(status, each.name)
        if each.name in _TIMES:
            value = None if value is None else moment(value)
        elif each.name == "metadata":
            value = sorted(value)
        told[_camel(each.name)] = list(value) if isinstance(value, tuple) else value
    return told | {"reconnectBy": _moment_or_none(reconnect_by(status))}


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Writes aligned columns under their names."""
    return aligned([header, *rows])


def aligned(rows: Iterable[Sequence[str]]) -> str:
    """Writes aligned columns."""
    lines = [tuple(map(plain, row)) for row in rows]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(
        _GAP.join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    )


def summary(status: Status, *, now: float | None = None) -> list[tuple[str, str]]:
    """Says in lines of a name and a text what a credential is good for."""
    now = time.time() if now is None else now
    lines = [
        ("state", status.state.replace("_", " ")),
        ("granted", ", ".join(status.scopes) or NOTHING),
        ("not granted", ", ".join(status.missing_scopes)),
        ("authorized", "" if status.granted_at is None else span(status.granted_at, now)),
        ("renewal", renewal(status, now)),
        ("last failure", last_failure(status, now)),
        ("told besides", ", ".join(sorted(status.metadata))),
        ("what to do", status.reason),
    ]
    return [(name, text) for name, text in lines if text]


def renewal(status: Status, now: float) -> str:
    """Says how long a credential lasts and what comes then."""
    if status.obtained_at is None:
        return ""
    if status.has_refresh_token and status.state == "reauthorize":
        return "not possible any more"
    ends = "ends when the provider says so"
    if status.expires_at is not None:
        verb = "ends" if status.expires_at > now else "ended"
        ends = f"{verb} {span(status.expires_at, now)}"
    if status.has_refresh_token:
        return f"by itself; the token at hand {ends}"
    by = reconnect_by(status)
    return f"none; it {ends}" + ("" if by is None else f": reconnect by {day(by)}")


def last_failure(status: Status, now: float) -> str:
    """Says how the last refresh failed, and when the next can be made."""
    if status.last_failure is None:
        return ""
    if status.retry_at is None or status.retry_at <= now:
        return status.last_failure
    return f"{status.last_failure}; next try {span(status.retry_at, now)}"


def reconnect_by(status: Status) -> float | None:
    """Says until when a person has to connect again, where nothing else renews the credential."""
    return None if status.has_refresh_token else status.expires_at


def span(then: float, now: float) -> str:
    """Says how far away a moment is, such as `in 3 days` or `5 minutes ago`."""
    seconds = abs(then - now)
    size, unit = next((s for s in _SPANS if seconds >= _SEVERAL * s[0]), _SPANS[-1])
    amount = f"{int(seconds // size)} {unit}"
    return f"in {amount}" if then > now else f"{amount} ago"


def moment(seconds: float) -> str:
    """Writes a moment in UTC (RFC 3339)."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def day(seconds: float) -> str:
    """Writes a day in UTC."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d")


def plain(text: str) -> str:
    """Gives text that does nothing to a terminal: some of it was written by providers."""
    return "".join(
        letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in text
    )


def _moment_or_none(seconds: float | None) -> str | None:
    return None if seconds is None else moment(seconds)


def _camel(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(word.capitalize() for word in others)
