"""Which runs a request takes."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from dagster import JobDefinition

import segmentstream.dagster as dg
from runtime.shops import days
from segmentstream.runtime.plans import Request, plan_runs


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
        job=_job(), days=calendar, calendar=calendar, days_per_run=days_per_run, is_ordered=False
    )
    planned = plan_runs(request, [f"2024-05-{day:02}" for day in left])
    assert [run.label for run in planned] == runs
