"""What is killed, stopped or cut off in the middle, and what a later start makes of it."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from uuid import uuid4

import pytest

from postgres import OwnPostgres
from runtime.shops import Shop, days, eventually
from segmentstream.runtime.claims import Claim, Held
from segmentstream.runtime.exits import Exit

pytestmark = pytest.mark.slow
GRACE_SECONDS = 8.0  # Cloud Run kills everything 10 seconds after SIGTERM


def called(shop: Shop, times: int) -> list[tuple[int, str]]:
    """Waits until assets were called so often; gives those calls."""
    eventually(lambda: len(shop.calls()) >= times)
    return shop.calls()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_j2_a_killed_worker_is_recorded_and_its_day_runs_again(
    shop: Shop, number: signal.Signals
) -> None:
    """One run's process is ended among 12 days: the backfill ends with 0, each day once."""
    shop.gate.touch()
    started = shop.start("one_by_one", "05-01", "05-12")
    victim = called(shop, 4)[1][0]
    os.kill(victim, number)
    eventually(lambda: "died" in started.told())
    shop.gate.unlink()
    ended = started.end()
    assert ended.code == Exit.SUCCEEDED, ended.told
    assert shop.rows("one_by_one") == shop.materialized() == dict.fromkeys(days(1, 12), 1)
    assert sorted(shop.statuses()) == ["FAILURE"] + ["SUCCESS"] * 12


def test_a_run_whose_process_dies_each_time_fails(shop: Shop) -> None:
    """A run that kills its process, as one too large for its memory does, is given up."""
    shop.gate.touch()
    started = shop.start("lookup")
    for count in (1, 2, 3):
        os.kill(called(shop, count)[-1][0], signal.SIGKILL)
    ended = started.end()
    assert ended.code == Exit.FAILED
    assert shop.statuses() == ["FAILURE"] * 3


def test_j2_a_killed_coordinator_takes_its_workers_along_and_a_later_start_goes_on(
    shop: Shop,
) -> None:
    """SIGKILL of the process itself: nothing runs on, and the same id does the days left at once."""
    run_id = str(uuid4())
    shop.gate.touch()
    first = shop.start("one_by_one", "05-01", "05-06", SEGMENTSTREAM_RUN_ID=run_id)
    calls = called(shop, 4)
    first.signal(signal.SIGKILL)
    assert first.end().code == -signal.SIGKILL
    eventually(lambda: not any(Path(f"/proc/{process}").exists() for process, _ in calls))
    shop.gate.unlink()
    ended = shop.run("one_by_one", "05-01", "05-06", SEGMENTSTREAM_RUN_ID=run_id)
    assert ended.code == Exit.SUCCEEDED, ended.told
    assert "process that died" in ended.told
    assert shop.rows("one_by_one") == shop.materialized() == dict.fromkeys(days(1, 6), 1)
    assert sorted(shop.statuses()) == ["FAILURE"] * 4 + ["SUCCESS"] * 6


def test_an_interrupt_from_the_keyboard_fails_no_day(shop: Shop) -> None:
    """A signal to the whole group, workers included, leaves days rather than failing them."""
    shop.gate.touch()
    started = shop.start("one_by_one", "05-01", "05-03", SEGMENTSTREAM_DAGSTER_PARALLEL_RUNS="2")
    called(shop, 2)
    os.killpg(started.process, signal.SIGINT)
    ended = started.end()
    assert ended.code == Exit.STOPPED, ended.told
    assert list(ended.states().values()) == ["left"] * 3


@pytest.mark.parametrize("job", ["lookup", "retried", "endless_query"])
def test_sigterm_is_recorded_in_time_whatever_runs(shop: Shop, job: str) -> None:
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


def test_i2_postgres_restarted_in_the_middle_is_survived(shop: Shop) -> None:
    """Five seconds without Postgres while days run: the backfill ends with 0, each day once."""
    if not isinstance(shop.postgres, OwnPostgres):
        pytest.skip("needs a server that a test may stop: unset SEGMENTSTREAM_TEST_POSTGRES_URL")
    shop.gate.touch()
    started = shop.start("one_by_one", "05-01", "05-06", SEGMENTSTREAM_DAGSTER_PARALLEL_RUNS="2")
    called(shop, 2)
    shop.postgres.stop()
    shop.gate.unlink()
    down_until = time.monotonic() + 5
    while time.monotonic() < down_until:  # the outage is the arrangement, not a wait for something
        time.sleep(0.1)
    shop.postgres.start()
    ended = started.end()
    assert ended.code == Exit.SUCCEEDED, ended.told
    assert shop.rows("one_by_one") == dict.fromkeys(days(1, 6), 1)
    assert set(shop.materialized()) == set(days(1, 6))


def test_i2_postgres_that_comes_up_late_is_waited_for(shop: Shop) -> None:
    """A start while Postgres is down waits for it, within limits."""
    if not isinstance(shop.postgres, OwnPostgres):
        pytest.skip("needs a server that a test may stop: unset SEGMENTSTREAM_TEST_POSTGRES_URL")
    shop.postgres.stop()
    started = shop.start("lookup")
    eventually((shop.folder / "home" / "dagster.yaml").exists)
    shop.postgres.start()
    ended = started.end()
    assert ended.code == Exit.SUCCEEDED, ended.told


def test_whoever_loses_the_claim_ends_and_its_workers_with_it(shop: Shop) -> None:
    """Two processes never go on with one run id: the one that finds it taken ends at once."""
    run_id = str(uuid4())
    shop.gate.touch()
    started = shop.start("lookup", SEGMENTSTREAM_RUN_ID=run_id)
    process = eventually(shop.calls)[0][0]
    claim = Claim(shop.url, f"segmentstream: run {run_id}")

    def is_taken() -> bool:
        shop.postgres.cut(shop.url)
        return claim.take()

    eventually(is_taken)
    ended = started.end()
    claim.release()
    assert ended.code == Exit.TAKEN_OVER, ended.told
    assert not Path(f"/proc/{process}").exists()


def test_a_claim_is_one_process_and_comes_back_after_a_cut(shop: Shop) -> None:
    """While one holds a claim no other has it; a holder whose connection is cut takes it again."""
    first, second = Claim(shop.url, "it"), Claim(shop.url, "it")
    assert first.take()
    assert not second.take()
    shop.postgres.cut(shop.url)
    assert first.check() is Held.UNKNOWN
    assert first.check() is Held.YES
    shop.postgres.cut(shop.url)
    assert second.take()
    assert [first.check(), first.check()] == [Held.UNKNOWN, Held.NO]
    second.release()
    assert first.take()
    first.release()


def test_a_workspace_with_threads_runs_in_new_processes(shop: Shop) -> None:
    """Where a fork could inherit a lock, the run's process starts anew and loads the workspace."""
    ended = shop.run("one_by_one", "05-01", "05-01", SHOP_THREAD="1")
    assert ended.code == Exit.SUCCEEDED, ended.told
    assert shop.rows("one_by_one") == {"2024-05-01": 1}
