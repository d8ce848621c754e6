from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from clients.brokers import CountingBroker
from segmentstream import ConnectionAccessError
from segmentstream._clients.sharing import SharedAccess


class Shared(SharedAccess):
    """What an account shares, on a clock of its own."""

    def __init__(self, broker: CountingBroker) -> None:
        self.now = 1000.0
        super().__init__(broker, "it", "default", clock=lambda: self.now)


@pytest.fixture
def broker() -> CountingBroker:
    return CountingBroker()


@pytest.fixture
def shared(broker: CountingBroker) -> Shared:
    return Shared(broker)


@pytest.mark.parametrize(
    ("lifetime", "usable"),
    [
        (3600.0, 300.0),  # also what lives long is asked for again: it may have been ended
        (None, 300.0),
        (200.0, 140.0),  # a minute before its end
        (80.0, 40.0),  # half of a life that is shorter than two margins
        (0.0, 0.0),
        (-5.0, 0.0),
    ],
)
def test_a_token_is_used_until_shortly_before_its_end(
    broker: CountingBroker, shared: Shared, lifetime: float | None, usable: float
) -> None:
    """The broker is asked again once the margin begins, and not before."""
    end = None if lifetime is None else shared.now + lifetime
    broker.access_now = replace(broker.access_now, expires_at=end)
    shared.get()
    shared.now += usable - 0.001
    if usable:
        shared.get()
        assert broker.asked == [None]
    shared.now += 0.002
    shared.get()
    assert broker.asked == [None, None]


def test_a_caller_may_need_more_time(broker: CountingBroker, shared: Shared) -> None:
    """A token at hand that ends too soon for a caller is asked for again."""
    broker.access_now = replace(broker.access_now, expires_at=shared.now + 500)
    shared.get(min_ttl_seconds=400)
    shared.get(min_ttl_seconds=500)
    assert len(broker.asked) == 1
    shared.get(min_ttl_seconds=501)
    assert len(broker.asked) == 2


def test_callers_at_the_same_time_ask_once(broker: CountingBroker, shared: Shared) -> None:
    """Who comes while the broker is asked waits for its answer."""
    barrier = threading.Barrier(20)

    def one(_: int) -> int:
        barrier.wait(30)
        return shared.get().token_number

    with ThreadPoolExecutor(20) as pool:
        assert set(pool.map(one, range(20))) == {1}
    assert broker.asked == [None]


def test_a_failure_is_not_kept(broker: CountingBroker, shared: Shared) -> None:
    """After an error the next caller asks again."""
    broker.fails = ConnectionAccessError("No.", "Wait.")
    for _ in range(2):
        with pytest.raises(ConnectionAccessError):
            shared.get()
    broker.fails = None
    assert shared.get().token_number == 1


def test_a_refused_token_is_not_given_again(broker: CountingBroker, shared: Shared) -> None:
    """Also where the request that was refused could not be sent again, the next has a new one."""
    number = shared.get().token_number
    assert shared.refuse(number, is_new=False)
    assert shared.peek() is None
    assert shared.get().token_number == 2
    assert shared.get(rejected=1).token_number == 2
    assert broker.asked == [None, 1]


def test_a_new_token_that_is_refused_is_endured_for_a_minute(
    broker: CountingBroker, shared: Shared
) -> None:
    """One path that refuses everybody spends a refresh in a minute, not with each request."""
    shared.get()
    assert shared.refuse(1, is_new=False)
    shared.get(rejected=1)
    assert not shared.refuse(2, is_new=True)
    shared.now += 59
    assert not shared.refuse(2, is_new=False)
    shared.now += 1
    assert shared.refuse(2, is_new=False)
    assert shared.get(rejected=2).token_number == 3
    assert broker.asked == [None, 1, 2]
