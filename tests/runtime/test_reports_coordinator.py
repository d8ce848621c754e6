"""What users of Dagster reported about backfills and the life of runs, tried on the runtime.

Each test is named after the report it answers (area J, and two that were seen besides).
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import time
from collections.abc import Sequence
from pathlib import Path
from uuid import uuid4

import pytest
from dagster import JobDefinition

import segmentstream.dagster as dg
from runtime.shops import SHOP, Shop, days, eventually
from segmentstream.runtime.exits import Exit
from segmentstream.runtime.plans import Request, plan_runs

pytestmark = pytest.mark.slow
GRACE_SECONDS = 8.0  # Cloud Run kills everything 10 seconds after SIGTERM


def test_j1_a_day_that_fails_is_told_and_the_others_succeed(shop: Shop) -> None:
    """Of 11 days one fails: it ends with 1, and the summary has each day's state."""
    ended = shop.run("one_by_one", "05-01", "05-11", SHOP_FAILING="2024-05-03")
    assert (ended.code, ended.summary["exit_code"]) == (Exit.FAILED,) * 2
    others = dict.fromkeys(days(1, 11), "succeeded")
    assert ended.states() == others | {"2024-05-03": "failed"}
    assert "no rows on 2024-05-03" in ended.told
    assert "2024-05-03" not in shop.rows("one_by_one")


def test_j1_a_start_near_the_end_comes_to_the_end(shop: Shop) -> None:
    """Killed with the last of 11 days on its way, the same id ends with 0: every day succeeded."""
    run_id = str(uuid4())
    last = shop.folder / "2024-05-11"
    last.touch()
    first = shop.start("one_by_one", "05-01", "05-11", SEGMENTSTREAM_RUN_ID=run_id)
    eventually(lambda: first.told().count("succeeded") == 10 and len(shop.calls()) == 11)
    first.signal(signal.SIGKILL)
    first.end()
    last.unlink()
    ended = shop.run("one_by_one", "05-01", "05-11", SEGMENTSTREAM_RUN_ID=run_id)
    assert ended.code == Exit.SUCCEEDED, ended.told
    assert ended.states() == dict.fromkeys(days(1, 11), "succeeded")
    assert shop.materialized() == dict.fromkeys(days(1, 11), 1)


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


@pytest.mark.parametrize("is_gone", [False, True])
def test_j3_a_workspace_that_changes_cancels_nothing(
    shop: Shop, tmp_path: Path, *, is_gone: bool
) -> None:
    """There is no code server to lose: the workspace is loaded once, and its runs are forked.

    The nearest to it: its files are broken or gone while days are queued and running.
    """
    workspace = tmp_path / "workspace"
    shutil.copytree(SHOP, workspace)
    shop.gate.touch()
    started = shop.start("one_by_one", "05-01", "05-04", cwd=workspace,
                         SEGMENTSTREAM_DAGSTER_PARALLEL_RUNS="2")  # fmt: skip
    shop.called(2)
    if is_gone:
        shutil.rmtree(workspace)
    else:
        (workspace / "pipeline" / "definitions.py").write_text("raise KeyError\n")
    shop.gate.unlink()
    ended = started.end()
    assert ended.code == Exit.SUCCEEDED, ended.told
    assert shop.statuses() == ["SUCCESS"] * 4


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
    (
        {"job": "one_by_one", "first": "05-10", "last": "05-01"},
        Exit.RANGE,
        (
            "The days run backwards: 2024-05-10 is after 2024-05-01. Set "
            "SEGMENTSTREAM_PARTITION_START_DATE to the earlier one. The job has days from 2024-05-01 "
            "to 2024-05-31 now."
        ),
    ),
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
    """SIGTERM after 3 of 20 days: those stay, no further run starts, the same id does the rest."""
    run_id = str(uuid4())
    for day in days(4, 20):
        (shop.folder / day).touch()
    started = shop.start(
        "one_by_one", "05-01", "05-20", SEGMENTSTREAM_RUN_ID=run_id,
        SEGMENTSTREAM_DAGSTER_PARALLEL_RUNS="2",
    )  # fmt: skip
    shop.called(5)
    eventually(lambda: started.told().count("succeeded") == 3)
    started.signal(signal.SIGTERM)
    ended = started.end()
    assert ended.code == Exit.STOPPED, ended.told
    assert list(ended.states().values()) == ["succeeded"] * 3 + ["left"] * 17
    assert shop.rows("one_by_one") == dict.fromkeys(days(1, 3), 1)
    assert (len(shop.calls()), len(shop.statuses())) == (5, 5)
    for day in days(4, 20):
        (shop.folder / day).unlink()
    again = shop.run("one_by_one", "05-01", "05-20", SEGMENTSTREAM_RUN_ID=run_id)
    assert again.code == Exit.SUCCEEDED, again.told
    assert shop.rows("one_by_one") == shop.materialized() == dict.fromkeys(days(1, 20), 1)


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


def test_j7_a_run_by_hand_in_between_changes_nothing(shop: Shop) -> None:
    """Of 30 days, one at a time, a person runs one with plain Dagster: the request has each once.

    The day by hand is run before its turn, on the same instance and the same tables.
    """
    run_id = str(uuid4())
    gate = shop.folder / "2024-05-02"
    gate.touch()
    started = shop.start(
        "one_by_one", "05-01", "05-30", SEGMENTSTREAM_RUN_ID=run_id,
        SEGMENTSTREAM_DAGSTER_PARALLEL_RUNS="1",
    )  # fmt: skip
    shop.called(2)
    by_hand = shop.start("one_by_one", by_hand=["one_by_one", "2024-05-09"])
    assert by_hand.code() == 0, by_hand.told()
    gate.unlink()
    shop.called(16)
    ended = started.end()
    assert ended.code == Exit.SUCCEEDED, ended.told
    once = dict.fromkeys(days(1, 30), 1)
    assert shop.rows("one_by_one") == once
    assert shop.materialized() == once | {"2024-05-09": 2}
    asked = "SELECT partition, count(*) FROM runs WHERE run_id IN (SELECT run_id FROM run_tags"
    asked += " WHERE key = 'segmentstream/run_id' AND value = %s) GROUP BY partition"
    assert dict(shop.postgres.run(asked, run_id, url=shop.url)) == once


def test_j8_a_retry_counts_and_other_days_run_once(shop: Shop) -> None:
    """Of two assets the second fails once on day 3 of 5: only that asset and day is tried again."""
    ended = shop.run("both_retried", "05-01", "05-05", SHOP_FAILING_ONCE="2024-05-03")
    assert ended.code == Exit.SUCCEEDED, ended.told
    assert sorted(day for _, day in shop.calls("before_retried")) == days(1, 5)
    again = sorted([*days(1, 5), "2024-05-03"])
    assert sorted(day for _, day in shop.calls("retried")) == again
    assert shop.statuses() == ["SUCCESS"] * 5
    assert shop.rows("retried") == shop.rows("before_retried") == dict.fromkeys(days(1, 5), 1)


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


def test_j9_gaps_are_left_alone_and_shown_beforehand(shop: Shop) -> None:
    """Only 05-02, 05-03 and 05-07 are left of a request, for one run: it takes two.

    The plan says so before they start, and the days between are neither run nor emptied again.
    """
    run_id = str(uuid4())
    left = ["2024-05-02", "2024-05-03", "2024-05-07"]
    for day in left:
        (shop.folder / day).touch()
    first = shop.start("one_by_one", "05-01", "05-07", SEGMENTSTREAM_RUN_ID=run_id)
    shop.called(7)
    eventually(lambda: first.told().count("succeeded") == 4)
    first.signal(signal.SIGKILL)
    first.end()
    for day in left:
        (shop.folder / day).unlink()
    ended = shop.run("one_by_one", "05-01", "05-07", SEGMENTSTREAM_RUN_ID=run_id, SHOP_AT_ONCE="1")
    assert ended.code == Exit.SUCCEEDED, ended.told
    plan = "3 days in 2 runs, 2 at a time: 2024-05-02..2024-05-03, 2024-05-07."
    told = ended.told
    assert 0 < told.index(plan) < told.index("2024-05-07: succeeded")
    assert sorted(called for _, called in shop.calls()[7:]) == ["2024-05-02,2024-05-03", left[2]]
    assert shop.rows("one_by_one") == shop.materialized() == dict.fromkeys(days(1, 7), 1)


def test_j9_different_starts_in_one_job_are_refused(shop: Shop) -> None:
    """Assets from 05-01 and from 05-05 share no days, so no run is cut into odd pieces."""
    ended = shop.run("mixed", "05-02", "05-07")
    assert ended.code == Exit.JOB
    assert "mixed" in ended.told
    assert (shop.statuses(), shop.calls()) == ([], [])


def test_j10_without_postgres_nothing_runs(shop: Shop) -> None:
    """An instance that would be gone with the process is refused."""
    ended = shop.run("lookup", DAGSTER_POSTGRES_URL=None)
    assert ended.code == Exit.CONFIGURATION
    assert "history" in ended.told
    assert shop.calls() == []


def test_l_18789_l_21072_a_thousand_days_in_one_run(shop: Shop) -> None:
    """They are one run, whether it fails or succeeds; each day's state is known of both."""
    shop.extra["SEGMENTSTREAM_PARTITION_START_DATE"] = "2021-01-01"
    shop.extra["SEGMENTSTREAM_PARTITION_END_DATE"] = "2023-09-27"
    failed = shop.run("three_years", SHOP_FAILING="2022-02-22")
    assert failed.code == Exit.FAILED, failed.told
    assert list(failed.states().values()) == ["failed"] * 1000
    started = shop.start("three_years")
    eventually(lambda: "1,000 rows" in started.told(), seconds=300)
    ended = started.end()
    assert ended.code == Exit.SUCCEEDED, ended.told
    assert list(ended.states().values()) == ["succeeded"] * 1000
    assert shop.rows("three_years") == shop.materialized() == dict.fromkeys(ended.states(), 1)
    assert shop.statuses() == ["FAILURE", "SUCCESS"]


def test_l_10797_a_home_that_only_env_names_is_explained(shop: Shop, tmp_path: Path) -> None:
    """`.env` is not read here; the message of the missing variable says so."""
    workspace = tmp_path / "workspace"
    shutil.copytree(SHOP, workspace)
    (workspace / ".env").write_text(f"DAGSTER_HOME={tmp_path / 'home'}\n")
    ended = shop.run("lookup", cwd=workspace, DAGSTER_HOME=None)
    assert ended.code == Exit.CONFIGURATION
    (line,) = ended.told.splitlines()
    told = json.loads(line)["message"]
    assert "DAGSTER_HOME is not set" in told
    assert "`.env` is read by `dg`, not here" in told
