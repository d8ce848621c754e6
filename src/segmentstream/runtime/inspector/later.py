"""Loads the workspace with a clock that is ahead, and prints when partitions start then.

A process of its own, which `moving_starts` starts: the standard library's clock is replaced.
"""

from __future__ import annotations

import datetime as dt
import json
import sys
import time
from datetime import date, datetime
from pathlib import Path
from typing import Any

from segmentstream.runtime.inspector.declared import Declared
from segmentstream.runtime.inspector.loading import find_definitions, load_definitions
from segmentstream.runtime.inspector.moving_starts import starts_of
from segmentstream.runtime.inspector.sources import Sources
from segmentstream.runtime.telling import only_the_result_on_stdout

_AHEAD = dt.timedelta(days=400)


def main() -> None:
    """Prints the first instant of each asset's partitions, by key, as JSON."""
    workspace = find_definitions(Path.cwd())
    with only_the_result_on_stdout():
        _set_clock_ahead()
        declared = Declared(
            load_definitions(workspace), Sources(workspace.folder, workspace.module)
        )
        starts = starts_of(declared)
    sys.stdout.write(json.dumps(starts))


class _Alike(type):
    """Takes the library's own values for values of the class, as the class is to replace it."""

    def __instancecheck__(cls, value: object) -> bool:
        return isinstance(value, cls.__bases__)


class LaterDate(date, metaclass=_Alike):
    """Is a date whose today is ahead."""

    @classmethod
    def today(cls) -> Any:
        """Gives the day that is to come."""
        return date.fromtimestamp(time.time())  # noqa: DTZ012 - as `today` does


class LaterDatetime(datetime, metaclass=_Alike):
    """Is an instant whose now is ahead."""

    @classmethod
    def now(cls, tz: dt.tzinfo | None = None) -> Any:
        """Gives the instant that is to come."""
        return datetime.fromtimestamp(time.time(), tz)

    @classmethod
    def today(cls) -> Any:
        """Gives the same, without a zone."""
        return cls.now()

    @classmethod
    def utcnow(cls) -> Any:
        """Gives the same in UTC, without a zone."""
        return cls.now(dt.UTC).replace(tzinfo=None)


def _set_clock_ahead() -> None:
    # Dagster is loaded already and keeps its own clock.
    replaced: Any = dt
    now = time.time
    time.time = lambda: now() + _AHEAD.total_seconds()
    replaced.date, replaced.datetime = LaterDate, LaterDatetime


if __name__ == "__main__":
    main()
