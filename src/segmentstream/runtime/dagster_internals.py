"""What the runtime needs of Dagster and Dagster does not promise; the only place for it.

Each function says what it uses. `tests/runtime/test_dagster_internals.py` holds them at the lowest
and the newest Dagster; where a name is gone, a plain error says which.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from dagster import (
    AssetKey,
    DagsterEvent,
    DagsterInstance,
    DagsterRun,
    Definitions,
    JobDefinition,
    PartitionsDefinition,
)

from segmentstream.runtime.exits import Exit, RunRefusedError


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
        if not isinstance(error.obj, DagsterInstance | Definitions | JobDefinition):
            raise
        raise RunRefusedError(
            f"This Dagster has no {type(error.obj).__name__}.{error.name} any more.",
            "Use a version of Dagster that segmentstream-pipeline allows.",
            exit_code=Exit.FAULT,
        ) from error
