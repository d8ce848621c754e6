"""What Dagster's instance has recorded of a request: its runs, told by their tags.

There are no tables of our own: what is recorded here is what the Dagster UI shows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from uuid import uuid5

from dagster import DagsterInstance, DagsterRun, DagsterRunStatus, RunsFilter

from segmentstream.runtime.dagster_internals import report_canceled, report_failed, tag_run
from segmentstream.runtime.exits import Exit, RunRefusedError
from segmentstream.runtime.launching import Attempt, PlannedRun
from segmentstream.runtime.plans import Request
from segmentstream.runtime.settings import RUN_ID_VARIABLE, RunSettings

REQUEST_TAG = "segmentstream/run_id"
RANGE_TAG = "segmentstream/days_requested"
DAYS_TAG = "segmentstream/days"
DEPLOYMENT_TAG = "segmentstream/deployment_id"
INTERRUPTED_TAG = "segmentstream/interrupted"  # the run came to no end of its own: run it again
EXECUTION_TAG = "segmentstream/execution"  # what carries it out, where that is on Cloud Run
DIED, STOPPED = "died", "stopped"


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """Says how far a request has come.

    Attributes:
        succeeded: Days to the run that wrote them; the label `all` for a job without days.
        failed: Days to the run that failed on them by itself.
        unfinished: Runs that no end is recorded of.
        attempts: How often each label was run.
        deaths: How often the process of each label's run died.
    """

    succeeded: dict[str, str]
    failed: dict[str, str]
    unfinished: tuple[DagsterRun, ...]
    attempts: Counter[str]
    deaths: Counter[str]


def read_record(instance: DagsterInstance, request: Request, settings: RunSettings) -> Record:
    """Reads what is recorded under a run id.

    Raises:
        RunRefusedError: It is recorded for something else.
    """
    runs = instance.get_runs(RunsFilter(tags={REQUEST_TAG: str(settings.run_id)}), ascending=True)
    stranger = instance.get_run_by_id(str(settings.run_id))
    if stranger is not None and stranger.tags.get(REQUEST_TAG) != str(settings.run_id):
        raise _refused(settings, f"a run of {stranger.job_name} that was started otherwise")
    for run in runs:
        if run.job_name != settings.job:
            raise _refused(settings, f"the job {run.job_name}")
        if run.tags.get(RANGE_TAG) != range_of(settings):
            raise _refused(settings, f"the days {run.tags.get(RANGE_TAG)}")
    return _summed(request, runs)


def attempt_at(settings: RunSettings, run: PlannedRun, number: int) -> Attempt:
    """Gives an attempt at a run, with all that tells it from others."""
    run_id, tags = run_id_of(settings, run, number), tags_of(settings, run)
    return Attempt(run=run, number=number, run_id=run_id, tags=tags, run_config=settings.run_config)


def run_id_of(settings: RunSettings, run: PlannedRun, attempt: int) -> str:
    """Gives the id of a run: the same for the same attempt, so that it cannot exist twice.

    A job without days runs under the id that was asked for.
    """
    if not run.days and attempt == 0:
        return str(settings.run_id)
    return str(uuid5(settings.run_id, f"{run.label} #{attempt}"))


def tags_of(settings: RunSettings, run: PlannedRun) -> dict[str, str]:
    """Gives the tags of a run."""
    tags = {
        **settings.tags,
        REQUEST_TAG: str(settings.run_id),
        RANGE_TAG: range_of(settings),
        DAYS_TAG: run.label,
    }
    if settings.deployment_id is not None:
        tags[DEPLOYMENT_TAG] = settings.deployment_id
    return tags


def record_interruption(instance: DagsterInstance, run_id: str, how: str, reason: str) -> None:
    """Records that a run came to no end of its own, so that its days count as left."""
    run = instance.get_run_by_id(run_id)
    if run is None:
        return
    tag_run(instance, run_id, {INTERRUPTED_TAG: how})
    if not run.is_finished:
        report = report_canceled if how == STOPPED else report_failed
        report(instance, run, f"The run was interrupted: {reason}.")


def range_of(settings: RunSettings) -> str:
    """Says which days were asked for."""
    return "none" if settings.first_day is None else f"{settings.first_day}..{settings.last_day}"


def planned_run_of(request: Request, label: str) -> PlannedRun:
    """Gives a run from its label."""
    return PlannedRun(days=days_of(request, label) if request.days else ())


def days_of(request: Request, label: str) -> tuple[str, ...]:
    """Gives the days of a run from its label."""
    if not request.days:
        return ("all",)
    first, _, last = label.partition("..")
    return tuple(day for day in request.calendar if first <= day <= (last or first))


def _summed(request: Request, runs: Sequence[DagsterRun]) -> Record:
    succeeded, failed = dict[str, str](), dict[str, str]()
    attempts, deaths = Counter[str](), Counter[str]()
    unfinished = []
    for run in runs:
        label = run.tags[DAYS_TAG]
        attempts[label] += 1
        days = dict.fromkeys(days_of(request, label), run.run_id)
        if run.status is DagsterRunStatus.SUCCESS:
            succeeded |= days
        elif run.tags.get(INTERRUPTED_TAG) or run.status is DagsterRunStatus.CANCELED:
            deaths[label] += run.tags.get(INTERRUPTED_TAG) == DIED
        elif run.status is DagsterRunStatus.FAILURE:
            failed |= days
        else:
            unfinished.append(run)
    failed = {day: run for day, run in failed.items() if day not in succeeded}
    return Record(
        succeeded=succeeded,
        failed=failed,
        unfinished=tuple(unfinished),
        attempts=attempts,
        deaths=deaths,
    )


def _refused(settings: RunSettings, what: str) -> RunRefusedError:
    return RunRefusedError(
        f"The run id {settings.run_id} is recorded for {what}.",
        f"Set {RUN_ID_VARIABLE} to a new UUID for each request.",
        exit_code=Exit.RUN_ID,
    )
