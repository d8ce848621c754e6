"""What is killed, stopped or cut off in the middle, and what a later start makes of it."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from uuid import uuid4

import pytest

from runtime.shops import Shop, eventually
from segmentstream.runtime.claims import Claim, Held
from segmentstream.runtime.exits import Exit

pytestmark = pytest.mark.slow
GRACE_SECONDS = 8.0  # Cloud Run kills everything 10 seconds after SIGTERM


def test_a_run_whose_process_dies_each_time_fails(shop: Shop) -> None:
    """A run that kills its process, as one too large for its memory does, is given up."""
    shop.gate.touch()
    started = shop.start("lookup")
    for count in (1, 2, 3):
        os.kill(shop.called(count)[-1][0], signal.SIGKILL)
    ended = started.end()
    assert ended.code == Exit.FAILED
    assert shop.statuses() == ["FAILURE"] * 3


def test_an_interrupt_from_the_keyboard_fails_no_day(shop: Shop) -> None:
    """A signal to the whole group, workers included, leaves days rather than failing them."""
    shop.gate.touch()
    started = shop.start("one_by_one", "05-01", "05-03", SEGMENTSTREAM_DAGSTER_PARALLEL_RUNS="2")
    shop.called(2)
    os.killpg(started.process, signal.SIGINT)
    ended = started.end()
    assert ended.code == Exit.STOPPED, ended.told
    assert list(ended.states().values()) == ["left"] * 3


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
