"""Runs on many machines: executions of a Cloud Run job, as a server on this machine plays them."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from typing import Any
from uuid import uuid4

import pytest
from google.cloud import run_v2

from runtime.cloud_run_server import JOB, CloudRunServer, running_cloud_run
from runtime.shops import Ended, Shop, Started, days, eventually
from segmentstream.runtime.exits import Exit

pytestmark = pytest.mark.slow
GRACE_SECONDS = 8.0  # Cloud Run kills everything 10 seconds after SIGTERM


@pytest.fixture
def cloud_run(shop: Shop) -> Iterator[CloudRunServer]:
    """A Cloud Run with a job for the shop."""
    with running_cloud_run(shop) as running:
        yield running


def start(shop: Shop, cloud_run: CloudRunServer, last: str, **variables: str | None) -> Started:
    """Starts a coordinator for days from the first of May."""
    told: dict[str, Any] = cloud_run.variables() | variables
    return shop.start("one_by_one", "05-01", last, **told)


def run(shop: Shop, cloud_run: CloudRunServer, last: str, **variables: str | None) -> Ended:
    """Starts such a coordinator and waits for its end."""
    return start(shop, cloud_run, last, **variables).end()


def names(cloud_run: CloudRunServer) -> list[str]:
    """The names of all executions, oldest first."""
    return [each.name.rpartition("/")[2] for each in cloud_run.executions()]


def running(cloud_run: CloudRunServer) -> int:
    """How many executions are not over."""
    return sum(not each.completion_time for each in cloud_run.executions())


def called(shop: Shop, times: int) -> list[tuple[int, str]]:
    """Waits until assets were called so often; gives those calls."""
    eventually(lambda: len(shop.calls()) >= times)
    return shop.calls()


def test_twelve_days_are_twelve_executions_four_at_a_time(
    shop: Shop, cloud_run: CloudRunServer
) -> None:
    """Each day is run once, by an execution of its own that its run names; never five at once."""
    at_once: list[int] = []
    cloud_run.before = lambda _name: at_once.append(running(cloud_run))
    ended = run(shop, cloud_run, "05-12")
    assert ended.code == Exit.SUCCEEDED, ended.told + cloud_run.told()
    assert shop.rows("one_by_one") == shop.materialized() == dict.fromkeys(days(1, 12), 1)
    assert shop.statuses() == ["SUCCESS"] * 12
    assert max(at_once) == 4
    assert f"Each in {JOB}, in 3600 s at most" in ended.told
    tags = "SELECT value FROM run_tags WHERE key = 'segmentstream/execution'"
    told = {value for (value,) in shop.postgres.run(tags, url=shop.url)}
    assert told == {f"{JOB}/executions/{name}" for name in names(cloud_run)}
    assert ended.told.count("1 rows") == 12


def test_a_job_without_days_and_runs_of_several_days_are_told_apart(
    shop: Shop, cloud_run: CloudRunServer
) -> None:
    """The one run of a job without days keeps the id that was asked for; a range stays a range."""
    run_id = str(uuid4())
    variables: dict[str, Any] = cloud_run.variables()
    ended = shop.run("lookup", SEGMENTSTREAM_RUN_ID=run_id, **variables)
    assert ended.code == Exit.SUCCEEDED, ended.told + cloud_run.told()
    assert ended.summary["days"] == {"all": {"state": "succeeded", "run": run_id}}
    ended = shop.run("in_fours", "05-01", "05-06", **variables)
    assert ended.code == Exit.SUCCEEDED, ended.told + cloud_run.told()
    assert sorted(len(day.split(",")) for _, day in shop.calls() if day) == [2, 4]


def test_a_day_that_fails_is_told_with_its_reason(shop: Shop, cloud_run: CloudRunServer) -> None:
    """An asset's error is no death: its day fails once, and its execution is a failed one."""
    cloud_run.image["SHOP_FAILING"] = "2024-05-02"
    ended = run(shop, cloud_run, "05-02")
    assert ended.code == Exit.FAILED
    assert list(ended.states().values()) == ["succeeded", "failed"]
    assert "no rows on 2024-05-02" in ended.told
    assert sorted(each.failed_count for each in cloud_run.executions()) == [0, 1]


@pytest.mark.parametrize("end", [CloudRunServer.kill, CloudRunServer.delete, CloudRunServer.cancel])
def test_an_execution_ended_from_outside_counts_as_died(
    shop: Shop, cloud_run: CloudRunServer, end: Callable[[CloudRunServer, str], None]
) -> None:
    """SIGKILL as of memory, a deletion and a cancellation: the run is recorded, its day run again."""
    shop.gate.touch()
    started = start(shop, cloud_run, "05-02")
    called(shop, 2)
    eventually(lambda: "get_execution" in cloud_run.calls or "list_executions" in cloud_run.calls)
    end(cloud_run, names(cloud_run)[0])
    eventually(lambda: "died" in started.told())
    shop.gate.unlink()
    ended = started.end()
    assert ended.code == Exit.SUCCEEDED, ended.told + cloud_run.told()
    assert shop.rows("one_by_one") == shop.materialized() == dict.fromkeys(days(1, 2), 1)
    assert sorted(shop.statuses()) == ["FAILURE"] + ["SUCCESS"] * 2


def test_a_killed_coordinator_leaves_executions_that_the_next_start_adopts(
    shop: Shop, cloud_run: CloudRunServer
) -> None:
    """Two days run on without their coordinator, and a new one waits for them: each is once."""
    run_id = str(uuid4())
    shop.gate.touch()
    first = start(shop, cloud_run, "05-02", SEGMENTSTREAM_RUN_ID=run_id)
    called(shop, 2)
    first.signal(signal.SIGKILL)
    first.end()
    second = start(shop, cloud_run, "05-02", SEGMENTSTREAM_RUN_ID=run_id)
    eventually(lambda: second.told().count("still on its way") == 2)
    shop.gate.unlink()
    ended = second.end()
    assert ended.code == Exit.SUCCEEDED, ended.told + cloud_run.told()
    assert shop.rows("one_by_one") == shop.materialized() == dict.fromkeys(days(1, 2), 1)
    assert shop.statuses() == ["SUCCESS"] * 2
    assert len(cloud_run.executions()) == 2


def test_what_was_queued_or_never_named_when_the_coordinator_died_is_adopted(
    shop: Shop, cloud_run: CloudRunServer
) -> None:
    """Executions that have created no run, one whose name nobody has learned: the days run once."""
    run_id = str(uuid4())
    cloud_run.holds = True
    cloud_run.loses = {"run_job"}
    first = start(
        shop, cloud_run, "05-02", SEGMENTSTREAM_RUN_ID=run_id,
        SEGMENTSTREAM_DAGSTER_PARALLEL_RUNS="1",
    )  # fmt: skip
    eventually(cloud_run.executions)
    first.signal(signal.SIGKILL)
    first.end()
    assert shop.statuses() == []
    second = start(shop, cloud_run, "05-02", SEGMENTSTREAM_RUN_ID=run_id)
    eventually(lambda: "still on its way" in second.told())
    cloud_run.release()
    ended = second.end()
    assert ended.code == Exit.SUCCEEDED, ended.told + cloud_run.told()
    assert shop.materialized() == dict.fromkeys(days(1, 2), 1)
    assert len(cloud_run.executions()) == 2


def test_what_ended_while_nobody_looked_is_taken_in_from_the_records(
    shop: Shop, cloud_run: CloudRunServer
) -> None:
    """A day that ended and one that died after the coordinator: the first stays, one runs again."""
    run_id = str(uuid4())
    shop.gate.touch()
    first = start(shop, cloud_run, "05-02", SEGMENTSTREAM_RUN_ID=run_id)
    called(shop, 2)
    first.signal(signal.SIGKILL)
    first.end()
    cloud_run.kill(names(cloud_run)[0])
    eventually(lambda: running(cloud_run) == 1)
    shop.gate.unlink()
    eventually(lambda: running(cloud_run) == 0)
    ended = run(shop, cloud_run, "05-02", SEGMENTSTREAM_RUN_ID=run_id)
    assert ended.code == Exit.SUCCEEDED, ended.told + cloud_run.told()
    assert "process that died" in ended.told
    assert shop.materialized() == dict.fromkeys(days(1, 2), 1)
    assert sorted(shop.statuses()) == ["FAILURE"] + ["SUCCESS"] * 2


def test_a_quota_and_an_outage_delay_a_run_and_drop_none(
    shop: Shop, cloud_run: CloudRunServer
) -> None:
    """RESOURCE_EXHAUSTED and UNAVAILABLE are asked again; every day has one execution."""
    cloud_run.refuses_once = ["RESOURCE_EXHAUSTED", "UNAVAILABLE"]
    ended = run(shop, cloud_run, "05-02")
    assert ended.code == Exit.SUCCEEDED, ended.told + cloud_run.told()
    assert cloud_run.calls.count("run_job") == 4
    assert len(cloud_run.executions()) == 2
    assert shop.materialized() == dict.fromkeys(days(1, 2), 1)


def test_a_lost_answer_starts_nothing_twice(shop: Shop, cloud_run: CloudRunServer) -> None:
    """The execution of a start whose answer was lost is found, and no other is asked for."""
    cloud_run.loses = {"run_job"}
    ended = run(shop, cloud_run, "05-01")
    assert ended.code == Exit.SUCCEEDED, ended.told + cloud_run.told()
    assert len(cloud_run.executions()) == 1
    assert shop.materialized() == {"2024-05-01": 1}


def test_a_second_execution_of_a_run_does_nothing(shop: Shop, cloud_run: CloudRunServer) -> None:
    """An answer is lost and no list shows what it started: the second refuses, the first counts."""
    cloud_run.loses = {"run_job"}
    cloud_run.hides = True
    cloud_run.before = lambda _name: called(shop, 1) if len(cloud_run.executions()) > 1 else None
    shop.gate.touch()
    started = start(shop, cloud_run, "05-01")
    eventually(lambda: "nothing is done" in cloud_run.told())
    eventually(lambda: cloud_run.calls.count("get_execution") > 1)
    shop.gate.unlink()
    ended = started.end()
    assert ended.code == Exit.SUCCEEDED, ended.told + cloud_run.told()
    assert [each.failed_count for each in cloud_run.executions()] == [0, 1]
    assert len(shop.calls()) == 1
    assert shop.statuses() == ["SUCCESS"]


def test_of_two_executions_that_start_at_once_one_works(
    shop: Shop, cloud_run: CloudRunServer
) -> None:
    """Neither finds the run when it looks; still one of them records it, and the other refuses."""
    cloud_run.holds = True
    started = start(shop, cloud_run, "05-01")
    eventually(cloud_run.executions)
    cloud_run.repeat(names(cloud_run)[0])
    cloud_run.release()
    ended = started.end()
    assert ended.code == Exit.SUCCEEDED, ended.told + cloud_run.told()
    eventually(lambda: running(cloud_run) == 0)
    assert sorted(each.failed_count for each in cloud_run.executions()) == [0, 1]
    assert len(shop.calls()) == 1
    assert shop.statuses() == ["SUCCESS"]


def test_sigterm_cancels_executions_and_the_next_start_does_their_days(
    shop: Shop, cloud_run: CloudRunServer
) -> None:
    """Told to stop, the coordinator is out in time with nothing running, and 143; then all runs."""
    run_id = str(uuid4())
    shop.gate.touch()
    started = start(shop, cloud_run, "05-03", SEGMENTSTREAM_RUN_ID=run_id,
                    SEGMENTSTREAM_DAGSTER_PARALLEL_RUNS="2")  # fmt: skip
    called(shop, 2)
    asked = time.monotonic()
    started.signal(signal.SIGTERM)
    ended = started.end()
    assert time.monotonic() - asked < GRACE_SECONDS  # the limit is the property
    assert ended.code == Exit.STOPPED, ended.told
    assert list(ended.states().values()) == ["left"] * 3
    eventually(lambda: running(cloud_run) == 0)
    assert [each.cancelled_count for each in cloud_run.executions()] == [1, 1]
    assert set(shop.statuses()) <= {"CANCELED", "FAILURE"}
    shop.gate.unlink()
    again = run(shop, cloud_run, "05-03", SEGMENTSTREAM_RUN_ID=run_id)
    assert again.code == Exit.SUCCEEDED, again.told + cloud_run.told()
    assert shop.materialized() == dict.fromkeys(days(1, 3), 1)


@pytest.mark.parametrize("call", ["get_job", "run_job", "list_executions", "cancel_execution"])
def test_an_api_that_hangs_keeps_no_coordinator_from_stopping(
    shop: Shop, cloud_run: CloudRunServer, call: str
) -> None:
    """Whichever call is not answered, SIGTERM ends the process in time, and days are left."""
    shop.gate.touch()
    is_early = call in {"get_job", "run_job"}
    cloud_run.hangs = {call} if is_early else set()
    started = start(shop, cloud_run, "05-01")
    if not is_early:
        called(shop, 1)
        cloud_run.hangs = {call}
    if call != "cancel_execution":
        before = 0 if is_early else cloud_run.calls.count(call)
        eventually(lambda: cloud_run.calls.count(call) > before)
    asked = time.monotonic()
    started.signal(signal.SIGTERM)
    ended = started.end()
    assert time.monotonic() - asked < GRACE_SECONDS  # the limit is the property
    assert ended.code == Exit.STOPPED, ended.told
    assert ended.states() == {"2024-05-01": "left"}


def test_what_was_cancelled_and_has_not_ended_is_waited_for_and_is_no_death(
    shop: Shop, cloud_run: CloudRunServer
) -> None:
    """A start that comes before a cancelled execution has ended does not run the day beside it."""
    run_id = str(uuid4())
    shop.gate.touch()
    first = start(shop, cloud_run, "05-01", SEGMENTSTREAM_RUN_ID=run_id)
    called(shop, 1)
    cloud_run.hangs = {"cancel_execution"}
    first.signal(signal.SIGTERM)
    assert first.end().code == Exit.STOPPED
    assert shop.statuses() == ["CANCELED"]
    cloud_run.hangs = set()
    second = start(shop, cloud_run, "05-01", SEGMENTSTREAM_RUN_ID=run_id)
    eventually(lambda: "still on its way" in second.told())
    cloud_run.cancel(names(cloud_run)[0])
    eventually(lambda: len(cloud_run.executions()) == 2)
    shop.gate.unlink()
    ended = second.end()
    assert ended.code == Exit.SUCCEEDED, ended.told + cloud_run.told()
    assert "died" not in ended.told
    assert shop.materialized() == {"2024-05-01": 1}


@pytest.mark.parametrize(
    ("call", "status"),
    [
        ("list_executions", "PERMISSION_DENIED"),
        ("get_job", "NOT_FOUND"),
        ("run_job", "PERMISSION_DENIED"),
    ],
)
def test_what_cloud_run_refuses_ends_with_one_message_and_starts_nothing(
    shop: Shop, cloud_run: CloudRunServer, call: str, status: str
) -> None:
    """A right that is missing, or a job: the process says which and ends, without any run."""
    cloud_run.refuses = {call: status}
    ended = run(shop, cloud_run, "05-04")
    assert ended.code == Exit.CONFIGURATION, ended.told
    told = ended.told.splitlines()[-1]
    assert call in told
    assert status in told
    assert cloud_run.executions() == []
    assert cloud_run.calls.count("run_job") <= 1
    assert shop.statuses() == []


def broken(job: run_v2.Job, what: str) -> None:
    """Makes a job one that runs cannot be given to."""
    task = job.template.template
    match what:
        case "2 tasks":
            job.template.task_count = 2
        case "started again 3 times":
            task.max_retries = 3
        case "2 containers":
            task.containers.append(run_v2.Container(image="example.com/proxy"))
        case "ends with 'inspect'":
            task.containers[0].args = ["inspect"]
        case "no DAGSTER_POSTGRES_URL":
            task.containers[0].env = []
        case "is duckdb":
            engine = run_v2.EnvVar(name="SEGMENTSTREAM_WAREHOUSE_ENGINE", value="duckdb")
            task.containers[0].env.append(engine)


def test_all_that_is_wrong_with_a_job_is_told_before_the_first_run(
    shop: Shop, cloud_run: CloudRunServer
) -> None:
    """Each fault has its line, all are told at once, and no execution is asked for."""
    faults = (
        "2 tasks", "started again 3 times", "2 containers", "ends with 'inspect'",
        "no DAGSTER_POSTGRES_URL",
    )  # fmt: skip
    for each in faults:
        broken(cloud_run.job, each)
    ended = run(shop, cloud_run, "05-02")
    assert ended.code == Exit.CONFIGURATION
    assert all(each in ended.told for each in faults), ended.told
    assert shop.url not in ended.told
    assert "run_job" not in cloud_run.calls


@pytest.mark.parametrize("is_jobs", [True, False])
def test_a_file_of_one_machine_is_no_warehouse_for_many(
    shop: Shop, cloud_run: CloudRunServer, is_jobs: bool
) -> None:
    """DuckDB is refused where the job or this process names it."""
    if is_jobs:
        broken(cloud_run.job, "is duckdb")
    variables = {} if is_jobs else {"SEGMENTSTREAM_WAREHOUSE_ENGINE": "duckdb"}
    ended = run(shop, cloud_run, "05-02", **variables)
    assert ended.code == Exit.CONFIGURATION
    assert "is duckdb" in ended.told
    assert "run_job" not in cloud_run.calls


@pytest.mark.parametrize(
    ("variables", "told"),
    [
        ({"SEGMENTSTREAM_DAGSTER_LAUNCHER": "kubernetes"}, "process, cloud-run"),
        ({"SEGMENTSTREAM_CLOUD_RUN_JOB": None}, "SEGMENTSTREAM_CLOUD_RUN_JOB is not set"),
        ({"SEGMENTSTREAM_CLOUD_RUN_JOB": "runs"}, "projects/my-project"),
        ({"SEGMENTSTREAM_DAGSTER_MODE": "work"}, "that the runtime starts itself"),
    ],
)
def test_settings_that_cannot_work_are_named(
    shop: Shop, cloud_run: CloudRunServer, variables: dict[str, str | None], told: str
) -> None:
    """A variable that is missing or wrong is told before anything is asked of Cloud Run."""
    ended = run(shop, cloud_run, "05-02", **variables)
    assert (ended.code, len(ended.told.splitlines())) == (Exit.CONFIGURATION, 1), ended.told
    assert told in ended.told
    assert cloud_run.calls == []


@pytest.mark.parametrize(
    "elsewhere",
    [
        {"SEGMENTSTREAM_DAGSTER_LAUNCHER": "process"},
        {"SEGMENTSTREAM_CLOUD_RUN_JOB": f"{JOB}-2"},
    ],
)
def test_a_run_that_may_be_on_its_way_elsewhere_is_not_run_again_here(
    shop: Shop, cloud_run: CloudRunServer, elsewhere: dict[str, str]
) -> None:
    """A start with another place than before refuses, and names where the run was."""
    run_id = str(uuid4())
    shop.gate.touch()
    first = start(shop, cloud_run, "05-01", SEGMENTSTREAM_RUN_ID=run_id)
    called(shop, 1)
    first.signal(signal.SIGKILL)
    first.end()
    ended = run(shop, cloud_run, "05-01", SEGMENTSTREAM_RUN_ID=run_id, **elsewhere)
    assert ended.code == Exit.CONFIGURATION, ended.told
    assert f"{JOB}/executions/{names(cloud_run)[0]}" in ended.told
    assert len(shop.calls()) == 1
