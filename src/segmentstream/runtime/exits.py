"""How the runtime ends: its exit codes, and the error that stops it before anything started.

Imports `_core` only. 0 to 5, 70 and 130 mean what they mean for the `segmentstream` command; those
from 10 on are none of its.
"""

from __future__ import annotations

from enum import IntEnum

from segmentstream._core.errors import SegmentStreamError


class Exit(IntEnum):
    """Lists what the process can end with; `MEANINGS` says what each means."""

    SUCCEEDED = 0
    FAILED = 1
    USAGE = 2
    CONFIGURATION = 5
    WORKSPACE = 10
    JOB = 11
    RANGE = 12
    RUN_ID = 13
    INSTANCE = 14
    SCHEMA = 15
    TAKEN_OVER = 16
    FAULT = 70
    INTERRUPTED = 130
    STOPPED = 143  # 128 + SIGTERM, as a shell tells it


MEANINGS = {
    Exit.SUCCEEDED: "it went well: every requested day succeeded; nothing was refused",
    Exit.FAILED: "it ran, and a day failed or was left; or a file could not be written",
    Exit.USAGE: "it was called wrongly",
    Exit.CONFIGURATION: "a variable is missing or cannot work; or definitions are refused",
    Exit.WORKSPACE: "the workspace's code does not load, or its schedule raises an error",
    Exit.JOB: "there is no such job or schedule, or it cannot be run by days",
    Exit.RANGE: "the days are backwards, before the start, or not over yet",
    Exit.RUN_ID: "the run id is recorded for another job or other days",
    Exit.INSTANCE: "Postgres, which keeps the history of runs, cannot be used",
    Exit.SCHEMA: "the tables of Dagster in Postgres are older or newer than this release",
    Exit.TAKEN_OVER: "another process with the same run id has gone on meanwhile",
    Exit.FAULT: "a fault of the runtime itself",
    Exit.INTERRUPTED: "it was interrupted",
    Exit.STOPPED: "it was told to stop; the same run id goes on with the days that are left",
}


def exit_table() -> str:
    """Writes the exit codes for `--help`."""
    return "\n".join(f"  {code.value:>3}  {meaning}" for code, meaning in MEANINGS.items())


class RunRefusedError(SegmentStreamError):
    """Says why a job was not run.

    Attributes:
        exit: What the process ends with.
    """

    def __init__(self, problem: str, remedy: str, *, exit_code: Exit) -> None:
        super().__init__(problem, remedy)
        self.exit = exit_code
