"""Which runs a request takes."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

import segmentstream.dagster as dg
from segmentstream.runtime.plans import describe_plan, plan_runs, read_request
from segmentstream.runtime.settings import RunSettings

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
