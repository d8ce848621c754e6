"""Sixty days, four at a time, through what happens to a long backfill."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import date, timedelta

import psycopg2
import pytest

from postgres import OwnPostgres
from runtime.shops import PATIENCE, Shop, eventually
from segmentstream.runtime.exits import Exit

pytestmark = pytest.mark.slow

SIXTY = [(date(2024, 5, 1) + timedelta(days=number)).isoformat() for number in range(60)]
AT_A_TIME = 4
OUTAGE_SECONDS = 5
MOST_CONNECTIONS = 2 * AT_A_TIME + 1  # what docs/runtime.md promises


def test_sixty_days_survive_a_killed_run_and_a_restart_of_postgres(shop: Shop) -> None:
    """Every day is there once and recorded as succeeded, whatever was written twice, exit 0.

    One run is killed while it computes; Postgres goes away for five seconds while three others
    write. Its connections stay under the documented limit throughout.
    """
    if not isinstance(shop.postgres, OwnPostgres):
        pytest.skip("needs a server that a test may stop: unset SEGMENTSTREAM_TEST_POSTGRES_URL")
    with most_connections(shop) as most:
        started = shop.start("ends_never", "05-01", "06-29")
        eventually(lambda: started.told().count("succeeded") >= 12, 4 * PATIENCE)
        shop.gate.touch()
        waiting = eventually(lambda: waiting_runs(shop), 2 * PATIENCE)
        os.kill(waiting[0], signal.SIGKILL)
        eventually(lambda: "died" in started.told())
        shop.postgres.stop()
        shop.gate.unlink()
        down_until = time.monotonic() + OUTAGE_SECONDS
        while time.monotonic() < down_until:  # the outage is the arrangement
            time.sleep(0.1)
        shop.postgres.start()
        ended = started.end()

    assert ended.code == Exit.SUCCEEDED, ended.told
    assert ended.states() == dict.fromkeys(SIXTY, "succeeded")
    assert shop.rows("ends_never") == dict.fromkeys(SIXTY, 1)
    assert set(shop.materialized()) == set(SIXTY)
    # Only what was killed or cut off ran again: no day that had been recorded.
    again = {day: times for day, times in Counter(d for _, d in shop.calls()).items() if times > 1}
    assert len(again) <= AT_A_TIME + 1
    assert 0 < most[0] <= MOST_CONNECTIONS


def waiting_runs(shop: Shop) -> list[int]:
    """The processes that wait at the gate, once there are as many as may run at a time."""
    alive = [process for process, _ in shop.calls() if os.path.exists(f"/proc/{process}")]  # noqa: PTH110 - a path of the system
    return alive if len(alive) == AT_A_TIME else []


@contextmanager
def most_connections(shop: Shop) -> Iterator[list[int]]:
    """Gives, at the end, the most connections to the shop's database that were seen at once."""
    most, is_over = [0], threading.Event()

    def look() -> None:
        while not is_over.wait(0.02):
            try:
                found = shop.postgres.run(
                    "SELECT count(*) FROM pg_stat_activity WHERE datname ="
                    " (SELECT split_part(split_part(%s, '?', 1), '/', 4))",
                    shop.url,
                )
            except psycopg2.Error:
                continue  # it is down
            most[0] = max(most[0], found[0][0])

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield most
    finally:
        is_over.set()
        thread.join()
