"""Which runs a request takes."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from dagster import JobDefinition

import segmentstream.dagster as dg
from runtime.shops import days
from segmentstream.runtime.plans import Request, describe_plan, plan_runs, read_request
from segmentstream.runtime.settings import RunSettings


def _job() -> JobDefinition:
    @dg.asset
    def nothing() -> None: ...

    return dg.Definitions([nothing], jobs=[dg.define_asset_job("job")]).resolve_job_def("job")


@pytest.mark.parametrize(
    ("left", "days_per_run", "runs"),
    [
        ([2, 3, 7], None, ["2024-05-02..2024-05-03", "2024-05-07"]),
        ([2, 3, 7], 1, ["2024-05-02", "2024-05-03", "2024-05-07"]),
        ([1, 2, 3, 4, 6], 3, ["2024-05-01..2024-05-03", "2024-05-04", "2024-05-06"]),
        ([], 3, []),
    ],
)
def test_j9_a_run_never_reaches_over_a_gap(
    left: Sequence[int], days_per_run: int | None, runs: Sequence[str]
) -> None:
    """There are as few runs as the gaps allow, and no day that was not asked for is in one."""
    calendar = tuple(days(1, 31))
    request = Request(
        job=_job(), days=calendar, calendar=calendar, days_per_run=days_per_run, why_ordered=""
    )
    planned = plan_runs(request, [f"2024-05-{day:02}" for day in left])
    assert [run.label for run in planned] == runs


DAILY = dg.DailyPartitionsDefinition(start_date="2024-05-01", end_date="2024-06-01")


@dg.asset(partitions_def=DAILY)
def orders() -> None: ...


@dg.asset(deps=[orders])
def total() -> None: ...


@dg.asset(partitions_def=DAILY, deps=[orders])
def refunds() -> None: ...


@dg.asset(
    partitions_def=DAILY, deps=[dg.AssetDep(orders, partition_mapping=dg.AllPartitionMapping())]
)
def shares() -> None: ...


@dg.asset(
    partitions_def=DAILY,
    deps=[
        dg.AssetDep(
            orders, partition_mapping=dg.TimeWindowPartitionMapping(start_offset=-6, end_offset=0)
        )
    ],
)
def last_week() -> None: ...


@dg.asset
def names() -> None: ...


@pytest.mark.parametrize(
    ("assets", "why"),
    [
        ([orders, refunds, names], ""),
        ([orders, total], "total is made of all days"),
        ([orders, shares], "shares needs other days"),
        ([orders, last_week], "last_week needs other days"),
    ],
    ids=lambda given: given if isinstance(given, str) else str(len(given)),
)
def test_runs_that_could_miss_rows_of_each_other_go_one_at_a_time(
    assets: Sequence[dg.AssetsDefinition], why: str
) -> None:
    """That is where an asset is made of other days that the same job computes; the plan says it."""
    defs = dg.Definitions(assets, jobs=[dg.define_asset_job("job", selection=assets)])
    environ = {
        "SEGMENTSTREAM_DAGSTER_JOB": "job",
        "SEGMENTSTREAM_RUN_ID": "0f8fad5b-d9cb-469f-a165-70867728950e",
        "SEGMENTSTREAM_PARTITION_START_DATE": "2024-05-02",
        "SEGMENTSTREAM_PARTITION_END_DATE": "2024-05-09",
    }
    request = read_request(defs, RunSettings.from_environ(environ))
    told = describe_plan(request, plan_runs(request, request.days), 4)
    at_a_time = f"1 at a time; {why}" if why else "4 at a time"
    assert (request.why_ordered, f"{at_a_time}: 2024-05-02" in told) == (why, True)
