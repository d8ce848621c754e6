"""How a run of a job ends: its exit codes, and the error that stops it before anything started.

Imports `_core` only.
"""

from __future__ import annotations

from enum import IntEnum

from segmentstream._core.errors import SegmentStreamError


class RunExit(IntEnum):
    """Lists what the process can end with; `MEANINGS` says what each means."""

    SUCCEEDED = 0
    FAILED = 1
    VARIABLES = 2
    RANGE = 3
    JOB = 4
    RUN_ID = 5
    WORKSPACE = 6
    INSTANCE = 7
    SCHEMA = 8
    TAKEN_OVER = 9
    FAULT = 70
    STOPPED = 143  # 128 + SIGTERM, as a shell tells it


MEANINGS = {
    RunExit.SUCCEEDED: "every requested day succeeded, or the job without days did",
    RunExit.FAILED: "it ran, and a day failed or was left",
    RunExit.VARIABLES: "a variable is missing or cannot work",
    RunExit.RANGE: "the days are backwards, before the start, or not over yet",
    RunExit.JOB: "there is no such job, or it cannot be run by days",
    RunExit.RUN_ID: "the run id is recorded for another job or other days",
    RunExit.WORKSPACE: "the workspace does not load",
    RunExit.INSTANCE: "Postgres, which keeps the history of runs, cannot be used",
    RunExit.SCHEMA: "the tables of Dagster in Postgres are older or newer than this release",
    RunExit.TAKEN_OVER: "another process with the same run id has gone on meanwhile",
    RunExit.FAULT: "a fault of the runtime itself",
    RunExit.STOPPED: "it was told to stop; the same run id goes on with the days that are left",
}


class RunRefusedError(SegmentStreamError):
    """Says why a job was not run.

    Attributes:
        exit: What the process ends with.
    """

    def __init__(self, problem: str, remedy: str, *, exit_code: RunExit) -> None:
        super().__init__(problem, remedy)
        self.exit = exit_code
