"""What the runtime uses of Dagster beyond its promises is there; CI runs it at both ends."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import pytest
from dagster import DagsterInstance, DagsterRun, DagsterRunStatus, Definitions, JobDefinition

import segmentstream.dagster as dg
from segmentstream.runtime.dagster_internals import (
    assets_of,
    job_names,
    report_canceled,
    report_canceling,
    report_failed,
    resolved_job,
    tag_run,
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


def test_a_name_that_is_gone_is_told(defs: Definitions, monkeypatch: pytest.MonkeyPatch) -> None:
    """A Dagster without one of the names is refused by that name, not by a traceback."""
    job = resolved_job(defs, "both")
    monkeypatch.delattr(JobDefinition, "asset_layer")
    with pytest.raises(RunRefusedError, match="no JobDefinition.asset_layer"):
        assets_of(job)
