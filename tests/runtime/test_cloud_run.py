"""Runs on many machines: executions of a Cloud Run job, as a server on this machine plays them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

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
    return shop.start("one_by_one", "05-01", last, **cloud_run.variables() | variables)


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
