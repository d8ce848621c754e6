"""One job, from variables to an exit code, on a real Postgres and in real processes."""

from __future__ import annotations

import json
from pathlib import Path
from uuid import uuid4

import pytest
from dagster_postgres import PostgresEventLogStorage

from runtime.shops import Shop, days, eventually
from segmentstream.runtime.exits import Exit

pytestmark = pytest.mark.slow


def test_a_job_without_days_is_one_run_under_the_given_id(shop: Shop) -> None:
    """The run has the id that was asked for, writes its table, and ends with 0."""
    run_id = str(uuid4())
    ended = shop.run("lookup", SEGMENTSTREAM_RUN_ID=run_id, SEGMENTSTREAM_DEPLOYMENT_ID="d-7")
    assert ended.code == Exit.SUCCEEDED, ended.told
    assert ended.summary["days"] == {"all": {"state": "succeeded", "run": run_id}}
    assert shop.rows("lookup") == {"2024-05-01": 1}
    tags = shop.postgres.run(
        "SELECT key, value FROM run_tags WHERE run_id = %s", run_id, url=shop.url
    )
    assert dict(tags)["segmentstream/deployment_id"] == "d-7"


def test_days_that_need_earlier_ones_run_in_order(shop: Shop) -> None:
    """An asset that takes its own day before runs one day at a time, from the first."""
    ended = shop.run("balance", "05-01", "05-04", SHOP_FAILING="2024-05-03")
    assert ended.code == Exit.FAILED
    assert [called for _, called in shop.calls()] == days(1, 3)
    assert list(ended.states().values()) == ["succeeded", "succeeded", "failed", "left"]


def test_a_failure_is_told_with_its_traceback_once(shop: Shop) -> None:
    """What a step failed of stands in one record with the way there, and in the line of its run."""
    ended = shop.run("one_by_one", "05-03", "05-03", SHOP_FAILING="2024-05-03")
    told = [json.loads(line)["message"] for line in ended.told.splitlines()]
    assert ["STEP_FAILURE" in each for each in told if "Stack Trace" in each] == [True]
    assert told[-1].startswith("2024-05-03: failed")
    assert told[-1].count("no rows on 2024-05-03") == 1
    # Nothing takes the log of a step for itself, from which the last lines could be missing.
    assert [each.name for each in (shop.folder / "home").glob("**/*.err")] == []


def test_the_same_id_again_reports_what_is_recorded(shop: Shop) -> None:
    """A finished request is told again, its failure too, and no asset is called again."""
    run_id = str(uuid4())
    first = shop.run(
        "one_by_one", "05-01", "05-03", SEGMENTSTREAM_RUN_ID=run_id, SHOP_FAILING="2024-05-02"
    )
    called = shop.calls()
    again = shop.run("one_by_one", "05-01", "05-03", SEGMENTSTREAM_RUN_ID=run_id)
    assert (again.code, again.summary) == (first.code, first.summary)
    assert shop.calls() == called


@pytest.mark.parametrize("limit", [None, "1"])
def test_a_pool_limits_assets_across_runs(shop: Shop, limit: str | None) -> None:
    """Of two runs at a time, one waits while the other has the only slot of their pool.

    The limit is the pool's own, or that of all pools without one.
    """
    if limit is None:
        PostgresEventLogStorage(shop.url).set_concurrency_slots("shop", 1)
    shop.gate.touch()
    started = shop.start("pooled", "05-01", "05-02", SEGMENTSTREAM_DAGSTER_POOL_LIMIT=limit)
    waiting = "SELECT count(*) FROM pending_steps"
    eventually(lambda: shop.postgres.run(waiting, url=shop.url) == [(2,)])
    eventually(shop.calls)
    assert len(shop.calls()) == 1
    shop.gate.unlink()
    assert started.end().code == Exit.SUCCEEDED
    assert shop.rows("pooled") == dict.fromkeys(days(1, 2), 1)


def test_lines_are_json_with_the_names_of_cloud_logging(shop: Shop) -> None:
    """Where no terminal reads, each line is JSON with a severity; one tells of each run."""
    ended = shop.run("one_by_one", "05-01", "05-02")
    lines = [json.loads(line) for line in ended.told.splitlines()]
    assert all({"severity", "message", "time"} <= set(line) for line in lines)
    finished = [line for line in lines if "days_left" in line]
    assert sorted(line["days_left"] for line in finished) == [0, 1]
    assert all(line["rows"] == 1 and line["seconds"] > 0 for line in finished)


def test_standard_output_is_the_summary_alone(shop: Shop) -> None:
    """What the workspace and its assets print goes where the logs go."""
    ended = shop.run("lookup", SHOP_PRINTS="1")
    assert ended.summary["outcome"] == "succeeded"  # the whole output was one JSON document
    assert "the workspace prints" in ended.told
    assert "an asset prints" in ended.told


def test_no_schedule_fires(shop: Shop) -> None:
    """A schedule of the workspace that runs every minute starts nothing, and is not even asked."""
    assert shop.run("one_by_one", "05-01", "05-01").code == Exit.SUCCEEDED
    assert shop.statuses() == ["SUCCESS"]
    assert shop.postgres.run("SELECT count(*) FROM job_ticks", url=shop.url) == [(0,)]


@pytest.mark.parametrize(
    ("job", "last", "what"),
    [("in_fours", "05-02", "the job one_by_one"), ("one_by_one", "05-03", "the days")],
)
def test_an_id_of_another_job_or_other_days_is_refused(
    shop: Shop, job: str, last: str, what: str
) -> None:
    """A run id stands for one job and one range."""
    run_id = str(uuid4())
    shop.run("one_by_one", "05-01", "05-02", SEGMENTSTREAM_RUN_ID=run_id)
    ended = shop.run(job, "05-01", last, SEGMENTSTREAM_RUN_ID=run_id)
    assert ended.code == Exit.RUN_ID
    assert what in ended.told
    assert shop.statuses() == ["SUCCESS"] * 2


def test_a_workspace_that_does_not_import_shows_its_own_lines(shop: Shop, tmp_path: Path) -> None:
    """The traceback is that of the workspace's files, and has a code of its own."""
    pipeline = tmp_path / "broken" / "pipeline"
    pipeline.mkdir(parents=True)
    (pipeline / "definitions.py").write_text("import pipeline.parts\n")
    (pipeline / "parts.py").write_text("raise KeyError('region')\n")
    ended = shop.run("lookup", cwd=pipeline.parent)
    assert ended.code == Exit.WORKSPACE
    assert "parts.py" in ended.told
    assert "KeyError: 'region'" in ended.told
    assert "importlib" not in ended.told
