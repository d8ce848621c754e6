"""Which runs a request takes, and which days each has; imports Dagster and `dagster_internals`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import batched
from typing import Any

from dagster import (
    DagsterError,
    DailyPartitionsDefinition,
    Definitions,
    IdentityPartitionMapping,
    JobDefinition,
    PartitionMapping,
    PartitionsDefinition,
    TimeWindowPartitionMapping,
)

from segmentstream.runtime.dagster_internals import assets_of, job_names, resolved_job
from segmentstream.runtime.exits import Exit, RunRefusedError
from segmentstream.runtime.launching import PlannedRun
from segmentstream.runtime.settings import (
    FIRST_DAY_VARIABLE,
    JOB_VARIABLE,
    LAST_DAY_VARIABLE,
    RunSettings,
)

_NAMED = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """Says what is asked of a job.

    Attributes:
        job: The job, with all that it needs.
        days: The requested days in order, as partition keys; none for a job without days.
        calendar: Every day that the job has.
        days_per_run: The most days of one run; None where one run takes all.
        why_ordered: Why runs go one at a time, in the order of days; empty where they need not.
    """

    job: JobDefinition
    days: tuple[str, ...]
    calendar: tuple[str, ...]
    days_per_run: int | None
    why_ordered: str

    @property
    def is_ordered(self) -> bool:
        """Whether runs go one at a time."""
        return bool(self.why_ordered)


def read_request(defs: Definitions, settings: RunSettings) -> Request:
    """Finds the job and the days that the settings ask for.

    Raises:
        RunRefusedError: There is no such job or day, or the job cannot be run by days.
    """
    names = sorted(read_definitions(lambda: job_names(defs)))
    if settings.job not in names:
        known = ", ".join(name for name in names if not name.startswith("__"))
        raise RunRefusedError(
            f"{JOB_VARIABLE} is {settings.job!r}, and the workspace has no such job.",
            f"It has: {known or 'none'}.",
            exit_code=Exit.JOB,
        )
    job = _resolved(defs, settings.job)
    assets = assets_of(job)
    partitions = assets.partitions or tuple(each for each in [job.partitions_def] if each)
    if len(partitions) > 1:
        raise RunRefusedError(
            f"The assets of the job {job.name} have {len(partitions)} different partitionings, so "
            "no days fit them all.",
            "Make a job for each of them.",
            exit_code=Exit.JOB,
        )
    if not partitions:
        _refuse_days(settings)
        return Request(job=job, days=(), calendar=(), days_per_run=None, why_ordered="")
    calendar = _calendar(job, partitions[0])
    return Request(
        job=job,
        days=_days(settings, calendar),
        calendar=calendar,
        days_per_run=assets.days_per_run,
        why_ordered=_why_ordered(defs, job),
    )


def plan_runs(request: Request, left: Collection[str]) -> tuple[PlannedRun, ...]:
    """Divides days into runs: as few as the job's policy and gaps between the days allow."""
    if not request.days:
        return (PlannedRun(days=()),)
    return tuple(
        PlannedRun(days=tuple(days))
        for stretch in _stretches(request.calendar, left)
        for days in batched(stretch, request.days_per_run or len(stretch))
    )


def describe_plan(request: Request, runs: Sequence[PlannedRun], parallel_runs: int) -> str:
    """Says which runs there will be."""
    if not request.days:
        return f"Plan: {request.job.name}, 1 run."
    days = sum(len(run.days) for run in runs)
    labels = [run.label for run in runs]
    if len(labels) > _NAMED:
        labels = [*labels[: _NAMED - 1], "...", labels[-1]]
    at_a_time = 1 if request.is_ordered else min(parallel_runs, len(runs))
    why = f"; {request.why_ordered}" if request.is_ordered else ""
    return (
        f"Plan: {request.job.name}, {_counted(days, 'day')} in {_counted(len(runs), 'run')}, "
        f"{at_a_time} at a time{why}: {', '.join(labels)}."
    )


def read_definitions[T](read: Callable[[], T]) -> T:
    """Reads something of definitions that Dagster puts together only now.

    Raises:
        RunRefusedError: Dagster refuses them.
    """
    try:
        return read()
    except DagsterError as error:
        reason = " ".join(str(error.__cause__ or error).split())
        raise RunRefusedError(
            f"Dagster refuses the definitions of the workspace: {reason}",
            "`python -m segmentstream.runtime inspect` names each place.",
            exit_code=Exit.WORKSPACE,
        ) from error


def own_config(job: JobDefinition, partition_key: str | None) -> Mapping[str, Any]:
    """Gives what a job configures itself, for a day where it has one."""
    if job.partitioned_config is not None and partition_key is not None:
        return job.partitioned_config.get_run_config_for_partition_key(partition_key)
    return job.run_config or {}


def _resolved(defs: Definitions, name: str) -> JobDefinition:
    try:
        return resolved_job(defs, name)
    except DagsterError as error:
        reason = " ".join(str(error.__cause__ or error).split())
        raise RunRefusedError(
            f"The job {name} cannot be put together: {reason}",
            "Correct it; assets of different days go into jobs of their own.",
            exit_code=Exit.JOB,
        ) from error


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _refuse_days(settings: RunSettings) -> None:
    if settings.first_day is not None:
        raise RunRefusedError(
            f"The job {settings.job} has no days, and days are set.",
            f"Leave out {FIRST_DAY_VARIABLE} and {LAST_DAY_VARIABLE}.",
            exit_code=Exit.CONFIGURATION,
        )


def _calendar(job: JobDefinition, partitions: PartitionsDefinition[str]) -> tuple[str, ...]:
    if not isinstance(partitions, DailyPartitionsDefinition):
        raise RunRefusedError(
            f"The job {job.name} is partitioned by {type(partitions).__name__}.",
            "Only days can be run: DailyPartitionsDefinition.",
            exit_code=Exit.JOB,
        )
    return tuple(partitions.get_partition_keys())


def _days(settings: RunSettings, calendar: Sequence[str]) -> tuple[str, ...]:
    if settings.first_day is None or settings.last_day is None:
        raise RunRefusedError(
            f"The job {settings.job} runs by days, and none are set.",
            f"Set {FIRST_DAY_VARIABLE} and {LAST_DAY_VARIABLE}, both inclusive.",
            exit_code=Exit.CONFIGURATION,
        )
    first, last = settings.first_day.isoformat(), settings.last_day.isoformat()
    days = tuple(day for day in calendar if first <= day <= last)
    has = f"days from {calendar[0]} to {calendar[-1]} now" if calendar else "no days yet"
    if last < first:
        raise RunRefusedError(
            f"The days run backwards: {first} is after {last}.",
            f"Set {FIRST_DAY_VARIABLE} to the earlier one. The job has {has}.",
            exit_code=Exit.RANGE,
        )
    if not days or first < calendar[0] or last > calendar[-1]:
        raise RunRefusedError(
            f"The days {first} to {last} are not all among those of the job {settings.job}.",
            f"It has {has}.",
            exit_code=Exit.RANGE,
        )
    return days


def _stretches(calendar: Sequence[str], left: Collection[str]) -> Iterator[list[str]]:
    wanted, stretch = set(left), list[str]()
    for day in calendar:
        if day in wanted:
            stretch.append(day)
        elif stretch:
            yield stretch
            stretch = []
    if stretch:
        yield stretch


def _why_ordered(defs: Definitions, job: JobDefinition) -> str:
    """Says why runs side by side could miss rows of each other; empty where they could not."""
    keys = assets_of(job).keys
    for spec in defs.resolve_all_asset_specs():
        inside = [dep for dep in spec.deps if spec.key in keys and dep.asset_key in keys]
        if inside and spec.partitions_def is None:
            return f"{spec.key.to_user_string()} is made of all days"
        if not all(_is_same_day(dep.partition_mapping) for dep in inside):
            return f"{spec.key.to_user_string()} needs other days"
    return ""


def _is_same_day(mapping: PartitionMapping | None) -> bool:
    if isinstance(mapping, TimeWindowPartitionMapping):
        return not (mapping.start_offset or mapping.end_offset)
    return mapping is None or isinstance(mapping, IdentityPartitionMapping)
