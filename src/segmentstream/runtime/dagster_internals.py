"""What the runtime needs of Dagster and Dagster does not promise; the only place for it.

Each function says what it uses. `tests/runtime/test_dagster_internals.py` holds them at the lowest
and the newest Dagster; where a name is gone, a plain error says which.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from dagster import (
    AssetKey,
    DagsterEvent,
    DagsterInstance,
    DagsterRun,
    Definitions,
    JobDefinition,
    PartitionsDefinition,
    RepositoryDefinition,
    RunRequest,
    ScheduleDefinition,
    build_schedule_context,
)
from dagster._core.execution.resources_init import (  # noqa: TID251 - as above
    get_transitive_required_resource_keys,
)
from dagster._utils.schedules import schedule_execution_time_iterator

from segmentstream.runtime.exits import Exit, RunRefusedError

_KINDS = (
    DagsterInstance, Definitions, JobDefinition, RepositoryDefinition, ScheduleDefinition,
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class JobAssets:
    """Says what the assets of a job have in common.

    Attributes:
        keys: The assets that the job computes.
        partitions: Each partitioning among them; none where no asset has one.
        days_per_run: The most days of one run; None where one run takes all.
    """

    keys: frozenset[AssetKey]
    partitions: tuple[PartitionsDefinition[str], ...]
    days_per_run: int | None


def job_names(defs: Definitions) -> Sequence[str]:
    """Lists the jobs, also those that only a schedule names (`get_repository_def`)."""
    return _given(lambda: defs.get_repository_def().job_names)


def resolved_job(defs: Definitions, name: str) -> JobDefinition:
    """Gives a job with all that it needs (`Definitions.resolve_job_def`)."""
    return _given(lambda: defs.resolve_job_def(name))


def assets_of(job: JobDefinition) -> JobAssets:
    """Looks at the assets of a job (`JobDefinition.asset_layer`, `.backfill_policy`)."""

    def look() -> JobAssets:
        keys = frozenset(job.asset_layer.executable_asset_keys)
        nodes = [job.asset_layer.get(key) for key in sorted(keys)]
        found: list[PartitionsDefinition[str]] = []
        for node in nodes:
            if node.partitions_def is not None and node.partitions_def not in found:
                found.append(node.partitions_def)
        return JobAssets(
            keys=keys,
            partitions=tuple(found),
            days_per_run=job.backfill_policy.max_partitions_per_run,
        )

    return _given(look)


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """Says what a schedule asked for at a tick.

    Attributes:
        requests: The runs that it asked for.
        skipped: Why it asked for none; empty where it asked for some.
    """

    requests: tuple[RunRequest, ...]
    skipped: str


def schedules_of(defs: Definitions) -> Mapping[str, ScheduleDefinition]:
    """Gives the schedules by name, put together (`RepositoryDefinition.schedule_defs`)."""
    return _given(lambda: {each.name: each for each in defs.get_repository_def().schedule_defs})


def ticks_until(schedule: ScheduleDefinition, now: datetime) -> Iterator[datetime]:
    """Gives when a schedule fired, the latest first, as Dagster's daemon reckons it.

    Uses `schedule_execution_time_iterator`: it knows several cron lines and the days on which
    clocks are changed.
    """
    return schedule_execution_time_iterator(
        now.timestamp(), schedule.cron_schedule, schedule.execution_timezone, ascending=False
    )


def evaluate(
    schedule: ScheduleDefinition, defs: Definitions, tick: datetime, instance: DagsterInstance
) -> Evaluation:
    """Asks a schedule what to run at a tick, with its resources, as Dagster's daemon asks.

    Uses `ScheduleDefinition.evaluate_tick`: calling a schedule is public, but gives neither what
    `job=` and `run_config_fn=` say nor the configuration of a day.
    """

    def ask() -> Evaluation:
        repository = defs.get_repository_def()
        resources = repository.get_top_level_resources()
        needed = get_transitive_required_resource_keys(schedule.required_resource_keys, resources)
        with build_schedule_context(
            instance=instance,
            scheduled_execution_time=tick,
            resources={key: each for key, each in resources.items() if key in needed},
            repository_def=repository,
        ) as context:
            found = schedule.evaluate_tick(context)
        return Evaluation(
            requests=tuple(found.run_requests or ()), skipped=found.skip_message or ""
        )

    return _given(ask)


def report_canceling(instance: DagsterInstance, run: DagsterRun) -> None:
    """Records that a run is told to stop; Dagster then records it as canceled, not as failed."""
    _given(lambda: instance.report_run_canceling(run))


def report_canceled(instance: DagsterInstance, run: DagsterRun, reason: str) -> None:
    """Records that a run was stopped whose process did not record it."""
    _given(lambda: instance.report_run_canceled(run, reason))


def report_failed(instance: DagsterInstance, run: DagsterRun, reason: str) -> None:
    """Records that a run failed whose process did not record it."""
    _given(lambda: instance.report_run_failed(run, reason))


def tag_run(instance: DagsterInstance, run_id: str, tags: Mapping[str, str]) -> None:
    """Adds tags to a run that is recorded (`DagsterInstance.add_run_tags`)."""
    _given(lambda: instance.add_run_tags(run_id, tags))


def events_of(instance: DagsterInstance, run_id: str) -> list[DagsterEvent]:
    """Gives what a run has recorded of itself, in order (`DagsterInstance.all_logs`)."""
    entries = _given(lambda: instance.all_logs(run_id))
    return [entry.dagster_event for entry in entries if entry.dagster_event is not None]


def _given[T](use: Callable[[], T]) -> T:
    try:
        return use()
    except AttributeError as error:
        if not isinstance(error.obj, _KINDS):
            raise
        raise RunRefusedError(
            f"This Dagster has no {type(error.obj).__name__}.{error.name} any more.",
            "Use a version of Dagster that segmentstream-pipeline allows.",
            exit_code=Exit.FAULT,
        ) from error
