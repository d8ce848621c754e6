from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from connections_runtime.provider import ACCESS, PATIENCE, Provider
from connections_runtime.running import REFRESH, error_code, running_service


def test_an_answer_in_flight_is_delivered_after_the_signal(
    provider: Provider, trusting: dict[str, str], tmp_path: Path
) -> None:
    """A process that is told to stop takes no new caller, and answers the one it has."""
    with (
        running_service(tmp_path, {"it": provider.url("gated")}, trusting) as service,
        ThreadPoolExecutor(1) as pool,
    ):
        waiting = pool.submit(service.post, "it", "token/refresh", REFRESH)
        provider.wait_for_requests(1)
        service.stop()
        service.wait_for_log("Shutting down")
        with pytest.raises(httpx.ConnectError):
            service.post("it", "token/refresh", REFRESH)
        provider.gate.set()
        assert waiting.result().json()["accessToken"] == ACCESS
        service.process.wait(PATIENCE)
    assert len(provider.requests) == 1


@pytest.mark.slow
def test_a_provider_that_hangs_does_not_hold_up_the_end(
    provider: Provider, trusting: dict[str, str], tmp_path: Path
) -> None:
    """The process ends within 10 seconds, and its last caller hears so in the usual form."""
    with (
        running_service(tmp_path, {"it": provider.url("hang")}, trusting) as service,
        ThreadPoolExecutor(1) as pool,
    ):
        waiting = pool.submit(service.post, "it", "token/refresh", REFRESH)
        provider.wait_for_requests(1)
        started = time.monotonic()
        service.stop()
        answer = waiting.result()
        service.process.wait(PATIENCE)
        assert time.monotonic() - started < 10.5
        assert (answer.status_code, error_code(answer)) == (502, "oauth_provider_unavailable")
    assert "Traceback" not in service.log
    assert "fault" not in service.log
    provider.wait_until(lambda: provider.hung_up == 1)
