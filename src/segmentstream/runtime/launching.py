"""Where runs go: what a place that carries them out must do; imports the standard library only.

`workers.py` carries them out in processes of this machine, `cloud_run/` on others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedRun:
    """Is one run: its days in order; none for a job without days."""

    days: tuple[str, ...]

    @property
    def label(self) -> str:
        """Its days in short, the same for the same days."""
        if not self.days:
            return "all"
        first, last = self.days[0], self.days[-1]
        return first if first == last else f"{first}..{last}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """Is one start of a planned run.

    Attributes:
        run: What is run.
        number: Which attempt at it, from 0.
        run_id: The id of its run in Dagster, the same for the same attempt.
        tags: What its run is tagged with.
        run_config: What its job is configured with, rather than as it configures itself.
    """

    run: PlannedRun
    number: int
    run_id: str
    tags: Mapping[str, str]
    run_config: Mapping[str, Any] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """Is how a run ended, as far as it could say so itself.

    Attributes:
        is_success: Whether all of it succeeded.
        rows: How many rows it wrote, as far as its assets tell.
        reason: Why it failed, in one line for each step.
        is_interrupted: Whether it failed of the instance or a signal, not of the workspace.
    """

    is_success: bool
    rows: int = 0
    reason: str = ""
    is_interrupted: bool = False


class StoppedError(Exception):
    """Says that the process was told to stop while it waited for an answer of the place."""


class RunHandle(Protocol):
    """Is an attempt on its way, or at its end."""

    @property
    def attempt(self) -> Attempt:
        """What was started."""

    @property
    def seconds(self) -> float:
        """How long ago it was started."""

    def is_alive(self) -> bool:
        """Says whether it may still do something."""

    def interrupt(self) -> None:
        """Asks it to end; it may be asked again."""

    def kill(self) -> None:
        """Ends it for good, as far as that is possible from here."""

    def let_go(self) -> None:
        """Leaves it, because whoever drives it ends by accident; the next start may adopt it."""

    def outcome(self) -> Outcome | None:
        """Gives how it ended, once it has; None where it died before it could say."""

    def ending(self) -> str:
        """Says for a person what became of what carried it out."""


class Launcher(Protocol):
    """Is a place where runs are carried out."""

    def adopt(self, unfinished: Mapping[str, Mapping[str, str]]) -> Sequence[RunHandle]:
        """Gives what an earlier process started for the same request and what still is on its way.

        Args:
            unfinished: The tags of each run that no end is recorded of, by its id. What is not
                given back of them is taken for dead.

        Raises:
            RunRefusedError: Some of it may be on its way in another place.
            StoppedError: The process was told to stop meanwhile.
        """

    def prepare(self, runs: Sequence[PlannedRun]) -> str:
        """Makes ready for the first of these runs; gives what a person should know of the place.

        Raises:
            RunRefusedError: Runs cannot be carried out here; nothing was started.
            StoppedError: The process was told to stop meanwhile.
        """

    def launch(self, attempt: Attempt) -> RunHandle:
        """Starts a run."""

    def wait(self, handles: Sequence[RunHandle], timeout: float) -> None:
        """Waits until one of them has ended, or so many seconds.

        Raises:
            RunRefusedError: The place does not take what was launched, now or ever.
        """
