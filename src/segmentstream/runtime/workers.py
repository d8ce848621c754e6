"""One run in a process of its own, which ends with the process that started it.

The processes are forked where that is safe: Dagster and a workspace take seconds to import. Each
opens the instance itself; nothing but the claim's socket is inherited open, and that on purpose.
"""

from __future__ import annotations

import contextlib
import importlib
import logging
import multiprocessing
import os
import signal
import sys
import threading
import time
import warnings
from collections.abc import Mapping, Sequence
from multiprocessing.connection import Connection, wait
from multiprocessing.context import BaseContext
from pathlib import Path
from typing import Any

from dagster import DagsterInstance, JobDefinition

from segmentstream._core.errors import WarehouseConfigurationError
from segmentstream._warehouse.registry import create_engine
from segmentstream._warehouse.settings import WarehouseSettings
from segmentstream.runtime.dagster_internals import resolved_job
from segmentstream.runtime.exits import Exit, RunRefusedError
from segmentstream.runtime.launching import Attempt, Outcome, PlannedRun, RunHandle
from segmentstream.runtime.outcomes import outcome_of_error, outcome_of_events
from segmentstream.runtime.plans import own_config
from segmentstream.runtime.records import EXECUTION_TAG
from segmentstream.runtime.telling import (
    has_loggers,
    logging_config,
    start_telling,
    with_own_logger,
)

_RANGE_START = "dagster/asset_partition_range_start"
_RANGE_END = "dagster/asset_partition_range_end"


class ProcessLauncher:
    """Carries runs out in processes of this machine, which end with this one."""

    def __init__(self, job: JobDefinition, environ: Mapping[str, str]) -> None:
        self._job = job
        self._environ = environ

    def adopt(self, unfinished: Mapping[str, Mapping[str, str]]) -> Sequence[Worker]:
        """As `Launcher.adopt`: nothing of here survives its process."""
        for tags in unfinished.values():
            if elsewhere := tags.get(EXECUTION_TAG):
                raise RunRefusedError(
                    f"The run id has a run that may still be on its way as {elsewhere}.",
                    "Start it again with the settings of Cloud Run that it was started with.",
                    exit_code=Exit.CONFIGURATION,
                )
        return ()

    def prepare(self, runs: Sequence[PlannedRun]) -> str:
        """As `Launcher.prepare`."""
        warm_up(self._environ, runs=len(runs))
        return ""

    def launch(self, attempt: Attempt) -> Worker:
        """As `Launcher.launch`."""
        return Worker(self._job, attempt)

    def wait(self, handles: Sequence[RunHandle], timeout: float) -> None:
        """As `Launcher.wait`."""
        wait([each.sentinel for each in handles if isinstance(each, Worker)], timeout)


class Worker:
    """Is the process of one run.

    Attributes:
        attempt: What it runs.
        started: When, on the monotonic clock.
    """

    def __init__(self, job: JobDefinition, attempt: Attempt) -> None:
        self.attempt = attempt
        self.started = time.monotonic()
        context = _context()
        self._told, telling = context.Pipe(duplex=False)
        # A job does not fit through a pipe; a new process loads the workspace by itself.
        given = job if context.get_start_method() == "fork" else job.name
        arguments = (given, attempt, telling, sys.stderr.isatty())
        self._process = context.Process(target=_execute, args=arguments, daemon=True)  # type: ignore[attr-defined]  # typeshed has it on each context
        with warnings.catch_warnings():
            # Threads of libraries, which their own handlers see through a fork.
            warnings.simplefilter("ignore", DeprecationWarning)
            self._process.start()
        telling.close()

    @property
    def sentinel(self) -> int:
        """Is readable once the process has ended."""
        return int(self._process.sentinel)

    @property
    def seconds(self) -> float:
        """How long it has run."""
        return time.monotonic() - self.started

    def is_alive(self) -> bool:
        """Says whether the process still runs."""
        return bool(self._process.is_alive())

    def interrupt(self) -> None:
        """Asks the run to end."""
        self._process.terminate()

    def kill(self) -> None:
        """Ends the process, and waits until it is gone."""
        self._process.kill()
        self._process.join()

    def let_go(self) -> None:
        """Ends the process too: nobody could adopt it."""
        self.kill()

    def outcome(self) -> Outcome | None:
        """Gives what the ended process said; None where it died before."""
        self._process.join()
        try:
            told = self._told.recv() if self._told.poll() else None
        except (EOFError, OSError):
            told = None
        self._told.close()
        return told if isinstance(told, Outcome) else None

    def ending(self) -> str:
        """Says how the process ended, for a person."""
        code = self._process.exitcode
        if code is not None and code < 0:
            return f"its process was ended by {signal.Signals(-code).name}"
        return f"its process ended with {code}"


def warm_up(environ: Mapping[str, str], *, runs: int) -> None:
    """Imports what forked processes would import each for itself.

    That is the engine of the warehouse; and where there are several runs also pandas, for Ibis
    makes tables in memory with it (2.5 of 2.8 seconds of CPU time of a run of one day).
    """
    with contextlib.suppress(WarehouseConfigurationError):  # a run says so, if it needs one at all
        create_engine(WarehouseSettings.from_environ(environ))
    if runs > 1:
        with contextlib.suppress(ModuleNotFoundError):
            importlib.import_module("pandas")


def _context() -> BaseContext:
    # A thread that runs meanwhile may hold a lock, which nobody in the child would release.
    is_safe = sys.platform == "linux" and threading.active_count() == 1
    return multiprocessing.get_context("fork" if is_safe else "spawn")


def _execute(
    given: JobDefinition | str,
    attempt: Attempt,
    telling: Connection,
    is_terminal: bool,  # noqa: FBT001 - multiprocessing passes positions
) -> None:
    for name in (signal.SIGINT, signal.SIGTERM):
        # Dagster puts the handler of SIGINT back for both when a run has ended.
        signal.signal(name, signal.default_int_handler)
    # What assets print goes where logs go: standard output is for the summary alone.
    os.dup2(2, 1)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    try:
        job = given if isinstance(given, JobDefinition) else _loaded(given, is_terminal=is_terminal)
        outcome = _outcome(job, attempt)
    except KeyboardInterrupt:
        return  # told to stop before or after the run itself
    except Exception as error:  # the edge of the process; it is told as the run's end
        outcome = outcome_of_error(error)
        if not outcome.is_interrupted:
            logging.getLogger(__name__).exception("The run %s came to no end.", attempt.run_id)
    telling.send(outcome)


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os.kill(os.getpid(), signal.SIGKILL)


def _loaded(name: str, *, is_terminal: bool) -> JobDefinition:
    from segmentstream.runtime.loading import load_workspace  # noqa: PLC0415 - when spawned

    start_telling(is_terminal=is_terminal)
    return resolved_job(load_workspace(Path.cwd()), name)


def _outcome(job: JobDefinition, attempt: Attempt) -> Outcome:
    own, days = dict(attempt.tags), attempt.run.days
    partition_key = days[0] if len(days) == 1 else None
    if len(days) > 1:
        own |= {_RANGE_START: days[0], _RANGE_END: days[-1]}
    config = _config(job, attempt, partition_key)
    with DagsterInstance.get() as instance:
        result = with_own_logger(job).execute_in_process(
            run_config=config,
            instance=instance,
            run_id=attempt.run_id,
            partition_key=partition_key,
            tags=own,
            raise_on_error=False,
        )
    return outcome_of_events(result.all_events, is_success=result.success)


def _config(
    job: JobDefinition, attempt: Attempt, partition_key: str | None
) -> Mapping[str, Any] | None:
    """Gives what the run is configured with, and our logger; None where that is all the job's."""
    if has_loggers(job):
        return attempt.run_config or None
    return logging_config(attempt.run_config or own_config(job, partition_key))
