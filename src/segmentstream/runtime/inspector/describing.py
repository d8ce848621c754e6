"""Describes accepted definitions as a manifest; imports Dagster, `_manifest` and `_dagster`."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import dagster
from dagster import (
    AssetKey,
    AssetSpec,
    BackfillPolicy,
    DailyPartitionsDefinition,
    DefaultScheduleStatus,
    DefaultSensorStatus,
    DynamicPartitionsDefinition,
    FreshnessPolicy,
    HourlyPartitionsDefinition,
    JobDefinition,
    MonthlyPartitionsDefinition,
    MultiPartitionsDefinition,
    PartitionsDefinition,
    RepositoryDefinition,
    ScheduleDefinition,
    SensorDefinition,
    StaticPartitionsDefinition,
    TimeWindowPartitionsDefinition,
    WeeklyPartitionsDefinition,
)

from segmentstream._dagster.keys import split_key
from segmentstream._dagster.metadata import partition_column_of
from segmentstream._manifest import (
    Asset,
    Backfill,
    Check,
    CheckName,
    Freshness,
    Job,
    Key,
    Manifest,
    Partitioning,
    PartitionKind,
    Schedule,
    Sensor,
    Table,
    Versions,
)
from segmentstream.runtime.inspector.declared import Declared, DeclaredAsset
from segmentstream.runtime.inspector.loading import Workspace
from segmentstream.runtime.inspector.plain import plain

_DISTRIBUTION = "segmentstream-pipeline"
_KIND_TAG = "dagster/kind/"
# Holds paths of the machine.
_CODE_REFERENCES = "dagster/code_references"
_DEFAULT_TIMEZONE = "UTC"

_PARTITION_KINDS: list[tuple[type[PartitionsDefinition[Any]], PartitionKind]] = [
    (DailyPartitionsDefinition, "daily"),
    (HourlyPartitionsDefinition, "hourly"),
    (WeeklyPartitionsDefinition, "weekly"),
    (MonthlyPartitionsDefinition, "monthly"),
    (TimeWindowPartitionsDefinition, "time_window"),
    (StaticPartitionsDefinition, "static"),
    (DynamicPartitionsDefinition, "dynamic"),
    (MultiPartitionsDefinition, "multi"),
]


def describe(declared: Declared, workspace: Workspace) -> Manifest:
    """Writes down what the definitions consist of.

    Args:
        declared: Definitions that Dagster accepts.
        workspace: Where they are.
    """
    repository = declared.defs.get_repository_def()
    declared_triggers = {each.name for each in declared.triggers}
    specs = {spec.key: spec for spec in declared.defs.resolve_all_asset_specs()}
    return Manifest(
        versions=Versions(sdk=version(_DISTRIBUTION), dagster=dagster.__version__),
        location=workspace.location,
        module=workspace.module,
        assets=tuple(
            _asset(specs[asset.key], asset, declared, workspace.folder)
            for asset in sorted(declared.assets, key=lambda each: each.key)
        ),
        checks=_checks(declared),
        jobs=_jobs(repository),
        schedules=tuple(map(_schedule, sorted(repository.schedule_defs, key=_name))),
        # Without the sensor that Dagster adds by itself for automation conditions.
        sensors=tuple(
            _sensor(each, repository)
            for each in sorted(repository.sensor_defs, key=_name)
            if each.name in declared_triggers
        ),
    )


def _asset(spec: AssetSpec, asset: DeclaredAsset, declared: Declared, folder: Path) -> Asset:
    return Asset(
        key=_key(spec.key),
        dependencies=_keys(dep.asset_key for dep in spec.deps),
        description=spec.description,
        group=spec.group_name or "default",
        owners=tuple(sorted(spec.owners)),
        kinds=tuple(sorted(spec.kinds)),
        tags={name: value for name, value in spec.tags.items() if not name.startswith(_KIND_TAG)},
        metadata={
            name: plain(value, folder)
            for name, value in spec.metadata.items()
            if name != _CODE_REFERENCES
        },
        code_version=spec.code_version,
        is_external=asset.is_external,
        table=_table(asset, declared) if asset.is_kept else None,
        partitioning=_partitioning(spec.partitions_def, partition_column_of(spec.metadata)),
        backfill=_backfill(asset.backfill_policy) if spec.partitions_def else None,
        automation=_automation(spec),
        freshness=_freshness(spec.freshness_policy),
    )


def _table(asset: DeclaredAsset, declared: Declared) -> Table:
    namespace, name = split_key(asset.key)
    default = declared.warehouse.default_namespace if declared.warehouse else None
    literal = None if isinstance(default, dagster.EnvVar) else default
    return Table(namespace=namespace or literal, name=name)


def _partitioning(
    partitions: PartitionsDefinition[Any] | None, column: str | None = None
) -> Partitioning | None:
    if partitions is None:
        return None
    kinds = (kind for each, kind in _PARTITION_KINDS if isinstance(partitions, each))
    windows = partitions if isinstance(partitions, TimeWindowPartitionsDefinition) else None
    return Partitioning(
        kind=next(kinds, "other"),
        start=windows.start.isoformat() if windows else None,
        end=windows.end.isoformat() if windows and windows.end else None,
        timezone=windows.timezone if windows else None,
        cron=windows.cron_schedule if windows else None,
        end_offset=windows.end_offset if windows else 0,
        exclusions=_exclusions(windows),
        column=column,
    )


def _exclusions(windows: TimeWindowPartitionsDefinition | None) -> tuple[str, ...]:
    left_out: Iterable[Any] = (windows.exclusions if windows else None) or ()
    zone = windows.start.tzinfo if windows else None
    return tuple(
        sorted(
            each
            if isinstance(each, str)
            else datetime.fromtimestamp(each.timestamp, zone).isoformat()
            for each in left_out
        )
    )


def _backfill(policy: BackfillPolicy | None) -> Backfill:
    # Without a policy Dagster starts a run for each partition.
    runs = (policy or BackfillPolicy.multi_run()).max_partitions_per_run
    return Backfill(kind="single_run" if runs is None else "multi_run", max_partitions_per_run=runs)


def _automation(spec: AssetSpec) -> str | None:
    condition = spec.automation_condition
    if condition is None:
        return None
    return condition.get_label() or condition.name or type(condition).__name__


def _freshness(policy: FreshnessPolicy | None) -> Freshness | None:
    # The classes of the two kinds have no public name.
    known: Any = policy
    if policy is None:
        return None
    if hasattr(known, "fail_window"):
        warn = known.warn_window
        return Freshness(
            kind="time_window",
            fail_seconds=known.fail_window.to_timedelta().total_seconds(),
            warn_seconds=warn.to_timedelta().total_seconds() if warn else None,
        )
    if hasattr(known, "deadline_cron"):
        return Freshness(
            kind="cron",
            cron=known.deadline_cron,
            lower_bound_seconds=known.lower_bound_delta.total_seconds(),
            timezone=known.timezone,
        )
    return Freshness(kind="other")


def _checks(declared: Declared) -> tuple[Check, ...]:
    specs = sorted(
        (check.spec for check in declared.checks), key=lambda each: (each.asset_key, each.name)
    )
    return tuple(
        Check(
            asset=_key(spec.asset_key),
            name=spec.name,
            description=spec.description,
            is_blocking=spec.blocking,
            is_partitioned=spec.partitions_def is not None,
        )
        for spec in specs
    )


def _jobs(repository: RepositoryDefinition) -> tuple[Job, ...]:
    implicit = set(repository.get_implicit_asset_job_names())
    jobs = [job for job in repository.get_all_jobs() if job.name not in implicit]
    return tuple(map(_job, sorted(jobs, key=_name)))


def _job(job: JobDefinition) -> Job:
    graph = job.asset_layer.asset_graph
    keys = graph.executable_asset_keys
    checks = graph.asset_check_keys
    is_divided = job.partitions_def is not None
    return Job(
        name=job.name,
        description=job.description,
        assets=_keys(keys),
        checks=tuple(
            CheckName(asset=_key(each.asset_key), name=each.name)
            for each in sorted(checks, key=lambda each: (each.asset_key, each.name))
        ),
        partitioning=_partitioning(job.partitions_def),
        backfill=_backfill(job.backfill_policy) if is_divided and keys else None,
        tags=dict(job.tags),
    )


def _schedule(schedule: ScheduleDefinition) -> Schedule:
    cron = schedule.cron_schedule
    return Schedule(
        name=schedule.name,
        description=schedule.description,
        job=schedule.job_name,
        cron=(cron,) if isinstance(cron, str) else tuple(cron),
        timezone=schedule.execution_timezone or _DEFAULT_TIMEZONE,
        is_on=schedule.default_status is DefaultScheduleStatus.RUNNING,
    )


def _sensor(sensor: SensorDefinition, repository: RepositoryDefinition) -> Sensor:
    selection = sensor.asset_selection
    return Sensor(
        name=sensor.name,
        description=sensor.description,
        jobs=tuple(sorted({each.job_name for each in sensor.targets})),
        assets=_keys(selection.resolve(repository.asset_graph)) if selection else (),
        is_on=sensor.default_status is DefaultSensorStatus.RUNNING,
    )


def _key(key: AssetKey) -> Key:
    return tuple(key.path)


def _keys(keys: Iterable[AssetKey]) -> tuple[Key, ...]:
    return tuple(sorted({_key(key) for key in keys}))


def _name(definition: JobDefinition | ScheduleDefinition | SensorDefinition) -> str:
    return definition.name
