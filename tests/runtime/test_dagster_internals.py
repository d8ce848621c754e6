"""What the runtime uses of Dagster beyond its promises is there; CI runs it at both ends."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import partial
from itertools import islice

import pytest
from dagster import (
    DagsterInstance,
    DagsterRun,
    DagsterRunStatus,
    Definitions,
    JobDefinition,
    ResourceParam,
)

import segmentstream.dagster as dg
from segmentstream.runtime.dagster_internals import (
    assets_of,
    evaluate,
    job_names,
    report_canceled,
    report_canceling,
    report_failed,
    resolved_job,
    schedules_of,
    tag_run,
    ticks_until,
)
from segmentstream.runtime.exits import RunRefusedError

daily = dg.DailyPartitionsDefinition(start_date="2024-05-01")


@pytest.fixture
def defs() -> Definitions:
    """A job of a daily asset and one without days."""

    @dg.asset(partitions_def=daily, backfill_policy=dg.BackfillPolicy.multi_run(7))
    def visits() -> None: ...

    @dg.asset(deps=[visits])
    def report() -> None: ...

    return Definitions([visits, report], jobs=[dg.define_asset_job("both")])


@pytest.fixture
def instance() -> Iterator[DagsterInstance]:
    """An instance in memory."""
    with DagsterInstance.ephemeral() as made:
        yield made


def test_the_assets_of_a_job_are_told(defs: Definitions) -> None:
    """A job tells its assets, their one partitioning, and the days that one run may have."""
    assert "both" in job_names(defs)
    assets = assets_of(resolved_job(defs, "both"))
    assert {key.to_user_string() for key in assets.keys} == {"visits", "report"}
    assert (assets.partitions, assets.days_per_run) == ((daily,), 7)


def test_the_end_of_a_run_can_be_recorded_from_outside(
    defs: Definitions, instance: DagsterInstance
) -> None:
    """A run that did not record its own end is canceling, canceled or failed, with our tag."""
    job = resolved_job(defs, "both")
    canceled = partial(report_canceled, reason="why")
    failed = partial(report_failed, reason="why")
    reports: list[tuple[Callable[[DagsterInstance, DagsterRun], None], DagsterRunStatus]] = [
        (report_canceling, DagsterRunStatus.CANCELING),
        (canceled, DagsterRunStatus.CANCELED),
        (failed, DagsterRunStatus.FAILURE),
    ]
    for report, status in reports:
        run = instance.create_run_for_job(job)
        report(instance, run)
        tag_run(instance, run.run_id, {"a": "b"})
        recorded = instance.get_run_by_id(run.run_id)
        assert recorded is not None
        assert (recorded.status, recorded.tags["a"]) == (status, "b")


@pytest.mark.filterwarnings("ignore:Function .JobDefinition.run_request_for_partition")
def test_a_schedule_is_asked_at_its_latest_tick(instance: DagsterInstance) -> None:
    """It is found with its job, has its latest time first, and is asked with what it needs."""

    @dg.asset(partitions_def=daily)
    def sales() -> None: ...

    job = dg.define_asset_job("sales_job", [sales])
    made = dg.build_schedule_from_partitioned_job(job, name="by_day", hour_of_day=6)

    @dg.schedule(job=job, cron_schedule=["0 1 * * *", "0 5 * * *"])
    def skipping(source: ResourceParam[str]) -> dg.SkipReason:
        return dg.SkipReason(f"nothing in {source}")

    defs = Definitions([sales], schedules=[made, skipping], resources={"source": "there"})
    schedules = schedules_of(defs)
    assert set(schedules) == {"by_day", "skipping"}
    now = datetime(2024, 5, 3, 5, 30, tzinfo=UTC)
    times = list(islice(ticks_until(schedules["skipping"], now), 2))
    assert times == [datetime(2024, 5, 3, hour, tzinfo=UTC) for hour in (5, 1)]
    assert evaluate(schedules["skipping"], defs, times[0], instance).skipped == "nothing in there"
    (tick,) = islice(ticks_until(schedules["by_day"], now), 1)
    found = evaluate(schedules["by_day"], defs, tick, instance)
    (request,) = found.requests
    assert (tick.day, request.partition_key, found.skipped) == (2, "2024-05-01", "")
    assert request.tags["dagster/schedule_name"] == "by_day"


def test_a_name_that_is_gone_is_told(defs: Definitions, monkeypatch: pytest.MonkeyPatch) -> None:
    """A Dagster without one of the names is refused by that name, not by a traceback."""
    job = resolved_job(defs, "both")
    monkeypatch.delattr(JobDefinition, "asset_layer")
    with pytest.raises(RunRefusedError, match="no JobDefinition.asset_layer"):
        assets_of(job)
