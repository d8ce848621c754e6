"""How the process and its runs are told to stop; imports `launching` only."""

from __future__ import annotations

import time
from collections.abc import Sequence

from segmentstream.runtime.launching import Launcher, RunHandle

SECONDS_TO_STOP = 4.0  # of a run; Cloud Run ends everything 10 seconds after it asked
_SECONDS_BETWEEN_SIGNALS = 1.0


class Stop:
    """Says whether the process was told to stop; a signal handler sets it."""

    def __init__(self) -> None:
        self._is_asked = False

    def ask(self) -> None:
        """Asks to stop."""
        self._is_asked = True

    def is_asked(self) -> bool:
        """Says whether it was told; that may change between any two lines."""
        return self._is_asked


def stop_runs(launcher: Launcher, handles: Sequence[RunHandle]) -> None:
    """Asks runs to end, asks again each second, and ends those that do not within four."""
    deadline, again = time.monotonic() + SECONDS_TO_STOP, 0.0
    while (alive := [each for each in handles if each.is_alive()]) and (
        time.monotonic() < deadline
    ):
        # A retry policy takes the first interrupt for a failure, and starts the step again.
        if time.monotonic() >= again:
            again = time.monotonic() + _SECONDS_BETWEEN_SIGNALS
            for handle in alive:
                handle.interrupt()
        launcher.wait(alive, 0.1)
    for handle in handles:
        handle.kill()
