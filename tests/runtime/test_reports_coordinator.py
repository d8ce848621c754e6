"""What users of Dagster reported about backfills and the life of runs, tried on the runtime.

Each test is named after the report it answers (area J, and two that were seen besides).
"""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Sequence
from pathlib import Path
from uuid import uuid4

import pytest
from dagster import JobDefinition

import segmentstream.dagster as dg
from runtime.shops import Shop, days, eventually
from segmentstream.runtime.exits import Exit
from segmentstream.runtime.plans import Request, plan_runs

pytestmark = pytest.mark.slow
GRACE_SECONDS = 8.0  # Cloud Run kills everything 10 seconds after SIGTERM


def test_j1_a_day_that_fails_is_told_and_the_others_succeed(shop: Shop) -> None:
    """The exit code is 1, the summary has the state of each day, and the message is the asset's."""
    ended = shop.run("one_by_one", "05-01", "05-04", SHOP_FAILING="2024-05-03")
    assert ended.code == Exit.FAILED
    assert list(ended.states().values()) == ["succeeded", "succeeded", "failed", "succeeded"]
    assert "no rows on 2024-05-03" in ended.told


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_j2_a_killed_worker_is_recorded_and_its_day_runs_again(
    shop: Shop, number: signal.Signals
) -> None:
    """One run's process is ended among 12 days: the backfill ends with 0, each day once."""
    shop.gate.touch()
    started = shop.start("one_by_one", "05-01", "05-12")
    victim = shop.called(4)[1][0]
    os.kill(victim, number)
    eventually(lambda: "died" in started.told())
    shop.gate.unlink()
    ended = started.end()
    assert ended.code == Exit.SUCCEEDED, ended.told
    assert shop.rows("one_by_one") == shop.materialized() == dict.fromkeys(days(1, 12), 1)
    assert sorted(shop.statuses()) == ["FAILURE"] + ["SUCCESS"] * 12


def test_j2_a_killed_coordinator_takes_its_workers_along_and_a_later_start_goes_on(
    shop: Shop,
) -> None:
    """SIGKILL of the process itself: nothing runs on, and the same id does the days left at once."""
    run_id = str(uuid4())
    shop.gate.touch()
    first = shop.start("one_by_one", "05-01", "05-06", SEGMENTSTREAM_RUN_ID=run_id)
    calls = shop.called(4)
    first.signal(signal.SIGKILL)
    assert first.end().code == -signal.SIGKILL
    eventually(lambda: not any(Path(f"/proc/{process}").exists() for process, _ in calls))
    shop.gate.unlink()
    ended = shop.run("one_by_one", "05-01", "05-06", SEGMENTSTREAM_RUN_ID=run_id)
    assert ended.code == Exit.SUCCEEDED, ended.told
    assert "process that died" in ended.told
    assert shop.rows("one_by_one") == shop.materialized() == dict.fromkeys(days(1, 6), 1)
    assert sorted(shop.statuses()) == ["FAILURE"] * 4 + ["SUCCESS"] * 6


@pytest.mark.parametrize("job", ["lookup", "retried", "endless_query"])
def test_j2_sigterm_is_recorded_in_time_whatever_runs(shop: Shop, job: str) -> None:
    """An asset, one with a retry policy and a long query: stopped and canceled within 8 seconds."""
    dates = ("05-01", "05-01") if job == "retried" else (None, None)
    if job != "endless_query":
        shop.gate.touch()
    started = shop.start(job, *dates)
    process = eventually(shop.calls)[0][0]
    asked = time.monotonic()
    started.signal(signal.SIGTERM)
    ended = started.end()
    assert time.monotonic() - asked < GRACE_SECONDS  # the limit is the property
    assert ended.code == Exit.STOPPED, ended.told
    assert not Path(f"/proc/{process}").exists()
    (status,) = shop.statuses()
    assert status in {"CANCELED", "FAILURE"}
    assert "left" in ended.states().values()


@pytest.mark.parametrize(
    ("job", "plan", "runs"),
    [
        ("one_by_one", "10 days in 10 runs, 4 at a time", 10),
        ("at_once", "10 days in 1 run, 1 at a time", 1),
        ("in_fours", "10 days in 3 runs, 3 at a time", 3),
    ],
)
def test_j4_a_range_is_divided_by_the_policy_and_the_plan_says_so(
    shop: Shop, job: str, plan: str, runs: int
) -> None:
    """Ten days are ten runs, one run or three, told before the first starts; each day is once."""
    ended = shop.run(job, "05-01", "05-10")
    assert ended.code == Exit.SUCCEEDED, ended.told
    assert plan in ended.told.splitlines()[0]
    assert shop.statuses() == ["SUCCESS"] * runs
    assert shop.rows(job) == shop.materialized() == dict.fromkeys(days(1, 10), 1)


REFUSED = [
    ({"job": ""}, Exit.CONFIGURATION, "SEGMENTSTREAM_DAGSTER_JOB"),
    ({"job": "lookup", "SEGMENTSTREAM_RUN_ID": None}, Exit.CONFIGURATION, "SEGMENTSTREAM_RUN_ID"),
    ({"job": "lookup", "SEGMENTSTREAM_RUN_ID": "7"}, Exit.CONFIGURATION, "no UUID"),
    ({"job": "lookup", "DAGSTER_HOME": None}, Exit.CONFIGURATION, "DAGSTER_HOME"),
    ({"job": "one_by_one", "first": "05-01"}, Exit.CONFIGURATION, "END_DATE is not set"),
    ({"job": "one_by_one"}, Exit.CONFIGURATION, "none are set"),
    ({"job": "lookup", "first": "05-01", "last": "05-02"}, Exit.CONFIGURATION, "has no days"),
    ({"job": "one_by_one", "first": "05-10", "last": "05-01"}, Exit.RANGE, "backwards"),
    (
        {"job": "one_by_one", "first": "04-01", "last": "05-02"},
        Exit.RANGE,
        "2024-05-01 to 2024-05-31",
    ),
    (
        {"job": "one_by_one", "first": "05-01", "last": "07-01"},
        Exit.RANGE,
        "2024-05-01 to 2024-05-31",
    ),
    (
        {
            "job": "ends_never",
            "SEGMENTSTREAM_PARTITION_START_DATE": "2024-05-01",
            "SEGMENTSTREAM_PARTITION_END_DATE": "2999-01-01",
        },
        Exit.RANGE,
        "from 2024-05-01 to",
    ),
    ({"job": "nothing"}, Exit.JOB, "It has: at_once"),
    ({"job": "mixed", "first": "05-06", "last": "05-07"}, Exit.JOB, "mixed"),
]


@pytest.mark.parametrize(("asked", "code", "told"), REFUSED)
def test_j5_what_cannot_be_run_is_refused_before_anything_starts(
    shop: Shop, asked: dict[str, str | None], code: Exit, told: str
) -> None:
    """Bad input has its own exit code and one message that names it; no run is recorded."""
    ended = shop.run(**asked)  # type: ignore[arg-type]  # a table of keywords
    assert (ended.code, len(ended.told.splitlines())) == (code, 1), ended.told
    assert told in json.loads(ended.told)["message"]
    assert shop.statuses() == []


def test_j6_a_stopped_backfill_starts_nothing_more_and_resumes(shop: Shop) -> None:
    """After SIGTERM finished days stay, no further run starts, and the same id does the rest."""
    run_id = str(uuid4())
    started = shop.start(
        "one_by_one", "05-01", "05-12", SEGMENTSTREAM_RUN_ID=run_id,
        SEGMENTSTREAM_DAGSTER_PARALLEL_RUNS="2",
    )  # fmt: skip
    eventually(lambda: "succeeded" in started.told())
    shop.gate.touch()
    started.signal(signal.SIGTERM)
    ended = started.end()
    assert ended.code == Exit.STOPPED, ended.told
    states = list(ended.states().values())
    assert "failed" not in states
    assert {"succeeded", "left"} == set(states)
    assert len(shop.statuses()) <= states.count("succeeded") + 2
    shop.gate.unlink()
    again = shop.run("one_by_one", "05-01", "05-12", SEGMENTSTREAM_RUN_ID=run_id)
    assert again.code == Exit.SUCCEEDED, again.told
    assert shop.rows("one_by_one") == shop.materialized() == dict.fromkeys(days(1, 12), 1)


def test_j7_the_same_id_twice_at_once_runs_each_day_once(shop: Shop) -> None:
    """Of two processes one runs, the other waits and reports the same outcome."""
    run_id = str(uuid4())
    both = [
        shop.start("one_by_one", "05-01", "05-04", SEGMENTSTREAM_RUN_ID=run_id) for _ in range(2)
    ]
    first, second = (each.end() for each in both)
    assert (first.code, second.code) == (Exit.SUCCEEDED,) * 2, first.told + second.told
    assert first.summary == second.summary
    assert shop.rows("one_by_one") == shop.materialized() == dict.fromkeys(days(1, 4), 1)
    assert len(shop.calls()) == 4


def test_j8_a_retry_counts_and_other_days_run_once(shop: Shop) -> None:
    """An asset that fails once on one day and then succeeds leaves every day written once."""
    ended = shop.run("retried", "05-01", "05-03", SHOP_FAILING_ONCE="2024-05-02")
    assert ended.code == Exit.SUCCEEDED, ended.told
    called = sorted(day for _, day in shop.calls())
    assert called == ["2024-05-01", "2024-05-02", "2024-05-02", "2024-05-03"]
    assert shop.materialized() == dict.fromkeys(days(1, 3), 1)


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


def test_j10_without_postgres_nothing_runs(shop: Shop) -> None:
    """An instance that would be gone with the process is refused."""
    ended = shop.run("lookup", DAGSTER_POSTGRES_URL=None)
    assert ended.code == Exit.CONFIGURATION
    assert "history" in ended.told
    assert shop.calls() == []
