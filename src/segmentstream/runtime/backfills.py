"""Drives the runs of a request to their end: starts, watches, records and sums them up.

One thread does it all, so that the runs' processes can be forked from it at any moment.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from dagster import DagsterInstance, DagsterRun, DagsterRunStatus
from dagster_postgres.utils import DagsterPostgresException
from sqlalchemy.exc import DBAPIError

from segmentstream.runtime.claims import Claim, Held
from segmentstream.runtime.dagster_internals import report_canceling
from segmentstream.runtime.exits import Exit
from segmentstream.runtime.launching import Launcher, PlannedRun, RunHandle, StoppedError
from segmentstream.runtime.plans import Request, describe_plan, plan_runs
from segmentstream.runtime.records import (
    DIED,
    INTERRUPTED_TAG,
    STOPPED,
    Record,
    attempt_at,
    read_record,
    record_interruption,
)
from segmentstream.runtime.settings import RunSettings
from segmentstream.runtime.stopping import Stop, stop_runs
from segmentstream.runtime.telling import tell

MOST_DEATHS = 3  # of one run's process; a run that is too large for its machine dies each time
_TICK_SECONDS = 0.5
_SECONDS_OF_OUTAGE = 60.0
_SECONDS_BETWEEN_CHECKS = 2.0


@dataclass(slots=True)
class _Progress:
    queue: deque[PlannedRun]
    succeeded: dict[str, str]
    failed: dict[str, str]
    live: list[RunHandle] = field(default_factory=list)
    attempts: dict[str, int] = field(default_factory=dict)
    deaths: dict[str, int] = field(default_factory=dict)


class Backfill:
    """Is one request on its way; the claim on its run id is held meanwhile."""

    def __init__(
        self,
        *,
        instance: DagsterInstance,
        claim: Claim,
        request: Request,
        settings: RunSettings,
        launcher: Launcher,
        stop: Stop,
    ) -> None:
        self._instance = instance
        self._claim = claim
        self._request = request
        self._settings = settings
        self._launcher = launcher
        self._stop = stop
        self._checked = time.monotonic()

    def run(self) -> tuple[Exit, dict[str, object]]:
        """Runs the days that are left; gives the outcome and its summary.

        Raises:
            RunRefusedError: The run id is recorded for something else, or its runs cannot be
                carried out.
        """
        record = self._record()
        try:
            record, adopted = self._take_over(record)
            progress = self._begin(record, adopted)
        except StoppedError:
            progress = _Progress(
                queue=deque(), succeeded=dict(record.succeeded), failed=dict(record.failed)
            )
            return Exit.STOPPED, self._summary(progress, Exit.STOPPED)
        try:
            exit_code = self._drive(progress)
        finally:
            for handle in progress.live:
                handle.let_go()  # whatever has gone wrong: nobody drives them any more
        return exit_code, self._summary(progress, exit_code)

    def _take_over(self, record: Record) -> tuple[Record, list[RunHandle]]:
        """Adopts what an earlier process has left on its way, and buries what died with it."""
        if not record.unfinished and not self._left(record):
            return record, []
        found = self._launcher.adopt({run.run_id: run.tags for run in record.unfinished})
        # Only now: what had ended when the launcher looked is in the records by then.
        record = self._record()
        adopted = [each for each in found if self._is_left(record, each.attempt.run)]
        alive = {handle.attempt.run_id for handle in found}
        if dead := [run for run in record.unfinished if run.run_id not in alive]:
            self._bury(dead)
            record = self._record()
        return record, adopted

    def _begin(self, record: Record, adopted: list[RunHandle]) -> _Progress:
        wanted, taken = self._request.days or ("all",), set[str]()
        attempts = dict(record.attempts)
        for handle in adopted:
            run, number = handle.attempt.run, handle.attempt.number
            taken |= set(run.days or ("all",))
            attempts[run.label] = max(attempts.get(run.label, 0), number + 1)
            tell(f"{run.label}: still on its way from before.", run_id=handle.attempt.run_id)
        left = [day for day in self._left(record) if day not in taken]
        runs = plan_runs(self._request, left) if left else ()
        if len(left) < len(wanted):
            tell(
                f"Recorded: {len(record.succeeded)} succeeded, {len(record.failed)} failed, "
                f"{len(self._left(record))} left."
            )
        if runs:
            where = self._launcher.prepare(runs)
            tell(describe_plan(self._request, runs, self._settings.parallel_runs) + where)
        exhausted = [run for run in runs if record.deaths[run.label] >= MOST_DEATHS]
        progress = _Progress(
            queue=deque(run for run in runs if run not in exhausted),
            succeeded=dict(record.succeeded),
            failed=dict(record.failed),
            live=adopted,
            attempts=attempts,
            deaths=dict(record.deaths),
        )
        for run in exhausted:
            self._fail(progress, run, "")
        return progress

    def _drive(self, progress: _Progress) -> Exit:
        limit = 1 if self._request.is_ordered else self._settings.parallel_runs
        while progress.live or progress.queue:
            if self._stop.is_asked():
                self._end(progress)
                return Exit.STOPPED
            if not self._still_ours():
                return Exit.TAKEN_OVER
            while progress.queue and len(progress.live) < limit:
                self._start(progress, progress.queue.popleft())
            self._launcher.wait(progress.live, _TICK_SECONDS)
            if self._stop.is_asked():
                continue  # a signal to the whole group ends the workers too, and is no failure
            for handle in [each for each in progress.live if not each.is_alive()]:
                progress.live.remove(handle)
                self._settle(progress, handle)
            if self._request.is_ordered and progress.failed:
                progress.queue.clear()
        is_done = not progress.failed and not self._left(progress)
        return Exit.SUCCEEDED if is_done else Exit.FAILED

    def _start(self, progress: _Progress, run: PlannedRun) -> None:
        number = progress.attempts.get(run.label, 0)
        progress.attempts[run.label] = number + 1
        progress.live.append(self._launcher.launch(attempt_at(self._settings, run, number)))

    def _settle(self, progress: _Progress, handle: RunHandle) -> None:
        """Takes in how a run ended, as the instance has it; what carried it out may have died."""
        run, run_id = handle.attempt.run, handle.attempt.run_id
        said = self._patiently(handle.outcome)
        recorded = self._patiently(lambda: self._instance.get_run_by_id(run_id))
        if recorded is not None and recorded.status is DagsterRunStatus.SUCCESS:
            for day in run.days or ("all",):
                progress.succeeded[day] = run_id
                progress.failed.pop(day, None)
            self._tell_end(progress, handle, "succeeded", rows=said.rows if said else None)
            return
        is_own = (
            recorded is not None
            and recorded.status is DagsterRunStatus.FAILURE
            and said is not None
            and not said.is_interrupted
        )
        if is_own and said is not None:
            self._tell_end(progress, handle, "failed", reason=said.reason)
            self._fail(progress, run, run_id)
            return
        how = recorded.tags.get(INTERRUPTED_TAG) if recorded is not None else None
        if (
            recorded is not None
            and recorded.status is DagsterRunStatus.CANCELED
            and said
            and not how
        ):
            self._tell_end(progress, handle, "canceled")  # by a person; its days are left
            return
        if how == STOPPED:  # by an earlier process, which was told to stop
            self._tell_end(progress, handle, "stopped")
            progress.queue.appendleft(run)
            return
        reason = said.reason if said and said.reason else handle.ending()
        self._interrupted(run_id, DIED, reason)
        deaths = progress.deaths[run.label] = progress.deaths.get(run.label, 0) + 1
        self._tell_end(progress, handle, "died", reason=reason)
        if deaths < MOST_DEATHS:
            progress.queue.appendleft(run)
        else:
            self._fail(progress, run, run_id)

    def _fail(self, progress: _Progress, run: PlannedRun, run_id: str) -> None:
        for day in run.days or ("all",):
            progress.failed[day] = run_id

    def _end(self, progress: _Progress) -> None:
        """Stops what runs: asks, asks again, ends it, and records what did not do so itself."""
        tell(f"Stopping: {len(progress.live)} running, {len(self._left(progress))} days left.")
        for handle in progress.live:
            with _quietly():
                run = self._instance.get_run_by_id(handle.attempt.run_id)
                if run is not None and not run.is_finished:
                    report_canceling(self._instance, run)
        stop_runs(self._launcher, progress.live)
        for handle in progress.live:
            with _quietly():
                self._settle_stopped(progress, handle)

    def _settle_stopped(self, progress: _Progress, handle: RunHandle) -> None:
        run, run_id = handle.attempt.run, handle.attempt.run_id
        recorded = self._instance.get_run_by_id(run_id)
        if recorded is not None and recorded.status is DagsterRunStatus.SUCCESS:
            progress.succeeded |= dict.fromkeys(run.days or ("all",), run_id)
            self._tell_end(progress, handle, "succeeded")
            return
        self._interrupted(run_id, STOPPED, "the process was told to stop")
        self._tell_end(progress, handle, "stopped")

    def _interrupted(self, run_id: str, how: str, reason: str) -> None:
        self._patiently(lambda: record_interruption(self._instance, run_id, how, reason))

    def _bury(self, dead: Sequence[DagsterRun]) -> None:
        """Ends, in the records, the runs of a process that has died: we hold its claim now."""
        for run in dead:
            self._interrupted(run.run_id, DIED, "the process that drove it died")
            tell(f"Run {run.run_id} was left unfinished by a process that died; it is run again.")

    def _record(self) -> Record:
        return self._patiently(lambda: read_record(self._instance, self._request, self._settings))

    def _still_ours(self) -> bool:
        if time.monotonic() - self._checked < _SECONDS_BETWEEN_CHECKS:
            return True
        self._checked = time.monotonic()
        return self._claim.check() is not Held.NO

    def _patiently[T](self, ask: Callable[[], T]) -> T:
        """Asks the instance through an outage of Postgres; briefly when told to stop."""
        deadline = time.monotonic() + _SECONDS_OF_OUTAGE
        while True:
            try:
                return ask()
            except (DBAPIError, DagsterPostgresException):
                if time.monotonic() > deadline or self._stop.is_asked():
                    raise
                time.sleep(_TICK_SECONDS)  # Postgres tells nobody when it is back

    def _left(self, known: Record | _Progress) -> list[str]:
        wanted = self._request.days or ("all",)
        return [day for day in wanted if day not in known.succeeded and day not in known.failed]

    def _is_left(self, record: Record, run: PlannedRun) -> bool:
        return not set(self._left(record)).isdisjoint(run.days or ("all",))

    def _tell_end(
        self,
        progress: _Progress,
        handle: RunHandle,
        how: str,
        *,
        rows: int | None = None,
        reason: str = "",
    ) -> None:
        left = len(self._left(progress))
        if how == "failed":
            left -= len(handle.attempt.run.days) or 1
        parts = [f"{handle.attempt.run.label}: {how}"]
        if rows is not None:
            parts.append(f"{rows:,} rows")
        parts.append(f"{handle.seconds:.1f} s")
        if self._request.days:
            parts.append(f"{left} days left")
        tell(
            ", ".join(parts) + (f". {reason}" if reason else ""),
            level=logging.INFO if how == "succeeded" else logging.ERROR,
            run_id=handle.attempt.run_id,
            days=list(handle.attempt.run.days),
            rows=rows,
            seconds=round(handle.seconds, 3),
            days_left=left,
        )

    def _summary(self, progress: _Progress, exit_code: Exit) -> dict[str, object]:
        def state(day: str) -> dict[str, str]:
            if day in progress.succeeded:
                return {"state": "succeeded", "run": progress.succeeded[day]}
            if day in progress.failed:
                return {"state": "failed", "run": progress.failed[day]}
            return {"state": "left"}

        states = {day: state(day) for day in self._request.days or ("all",)}
        told = [each["state"] for each in states.values()]
        return {
            "job": self._settings.job,
            "run_id": str(self._settings.run_id),
            "outcome": exit_code.name.lower(),
            "exit_code": int(exit_code),
            "succeeded": told.count("succeeded"),
            "failed": told.count("failed"),
            "left": told.count("left"),
            "days": states,
        }


@contextmanager
def _quietly() -> Iterator[None]:
    """Goes on without Postgres while stopping: the next start finds what is not recorded."""
    try:
        yield
    except (DBAPIError, DagsterPostgresException) as error:
        tell(f"Postgres did not take a record: {type(error).__name__}.", level=logging.WARNING)
