"""One run of a request, carried out by an execution that a coordinator elsewhere has started.

The run is a process of its own here too: whoever asks it to stop may have to ask twice, and must
be there to record its end when it does not listen.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from dagster import DagsterInstance, DagsterRun, DagsterRunStatus
from dagster_postgres.utils import DagsterPostgresException
from sqlalchemy.exc import DBAPIError

from segmentstream.runtime.exits import Exit
from segmentstream.runtime.launching import Attempt, Launcher, RunHandle
from segmentstream.runtime.records import (
    DIED,
    EXECUTION_TAG,
    STOPPED,
    record_interruption,
)
from segmentstream.runtime.stopping import Stop, stop_runs
from segmentstream.runtime.telling import tell

_TICK_SECONDS = 0.5
_SECONDS_OF_OUTAGE = 60.0
_ASKED = (DagsterRunStatus.CANCELING, DagsterRunStatus.CANCELED)


def work(instance: DagsterInstance, launcher: Launcher, attempt: Attempt, stop: Stop) -> Exit:
    """Carries an attempt out, unless another execution has; records what end it came to."""
    if instance.get_run_by_id(attempt.run_id) is not None:
        tell(f"Run {attempt.run_id} was started before; nothing is done.")
        return Exit.TAKEN_OVER
    launcher.prepare([attempt.run])
    if stop.is_asked():
        return Exit.STOPPED
    handle = launcher.launch(attempt)
    while handle.is_alive() and not stop.is_asked():
        launcher.wait([handle], _TICK_SECONDS)
    if handle.is_alive():
        stop_runs(launcher, [handle])
    return _settle(instance, handle, stop)


def _settle(instance: DagsterInstance, handle: RunHandle, stop: Stop) -> Exit:
    run_id, mine = handle.attempt.run_id, handle.attempt.tags[EXECUTION_TAG]
    said = handle.outcome()
    recorded = _patiently(lambda: instance.get_run_by_id(run_id), stop)
    if recorded is not None and recorded.tags.get(EXECUTION_TAG) != mine:
        tell(f"Run {run_id} is carried out by {recorded.tags.get(EXECUTION_TAG)}.")
        return Exit.TAKEN_OVER
    if recorded is not None and recorded.status is DagsterRunStatus.SUCCESS:
        return Exit.SUCCEEDED
    if said is None or said.is_interrupted or recorded is None or not recorded.is_finished:
        reason = said.reason if said and said.reason else handle.ending()
        tell(f"{handle.attempt.run.label}: interrupted. {reason}", run_id=run_id)
        how = STOPPED if _is_asked_by_coordinator(recorded) else DIED
        _patiently(lambda: record_interruption(instance, run_id, how, reason), stop)
    return Exit.STOPPED if stop.is_asked() else Exit.FAILED


def _is_asked_by_coordinator(recorded: DagsterRun | None) -> bool:
    return recorded is not None and recorded.status in _ASKED


def _patiently[T](ask: Callable[[], T], stop: Stop) -> T:
    deadline = time.monotonic() + _SECONDS_OF_OUTAGE
    while True:
        try:
            return ask()
        except (DBAPIError, DagsterPostgresException):
            if time.monotonic() > deadline or stop.is_asked():
                raise
            time.sleep(_TICK_SECONDS)  # Postgres tells nobody when it is back
