from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import httpx
import pytest

from connections_runtime.conftest import Serve
from connections_runtime.provider import ACCESS, PATIENCE, Provider, granted, response
from connections_runtime.running import (
    EXCHANGE,
    REDIRECT,
    VERIFIER,
    LocalService,
    address,
    connection,
    error_code,
    running_service,
)

EXCHANGES = address("it", "token/exchange")
REFRESHES = address("it", "token/refresh")


def all_at_once(
    service: LocalService, provider: Provider, calls: Sequence[tuple[str, Mapping[str, object]]]
) -> list[httpx.Response]:
    """Makes the calls in parallel, and opens the provider's gate once all of them are under way."""

    async def work(client: httpx.AsyncClient) -> list[httpx.Response]:
        tasks = [asyncio.create_task(client.post(path, json=body)) for path, body in calls]
        await until(lambda: waiters(service) >= len(calls))
        await asyncio.to_thread(provider.wait_for_requests, len(service.service._under_way))
        provider.gate.set()
        return await asyncio.gather(*tasks)

    return service.run(work)


def waiters(service: LocalService) -> int:
    """Counts who waits for a token request: `shield` leaves a callback for each beside our own."""
    under_way = service.service._under_way.values()
    return sum(len(getattr(task, "_callbacks", None) or ()) - 1 for task in under_way)


async def until(is_so: Callable[[], bool]) -> None:
    """Waits for a condition on the service's own loop."""
    async with asyncio.timeout(PATIENCE):
        while not is_so():  # noqa: ASYNC110 - the service has no event to wait for
            await asyncio.sleep(0)


def test_identical_refreshes_in_flight_are_one(provider: Provider, serve: Serve) -> None:
    """Twenty callers with one refresh token send one request and get the same tokens."""
    service = serve(provider.url("gated"))
    calls = [(REFRESHES, {"refreshToken": "the-same"})] * 20
    answers = all_at_once(service, provider, calls)
    assert {answer.json()["accessToken"] for answer in answers} == {ACCESS}
    assert len(answers) == 20
    assert len(provider.requests) == 1


def test_identical_exchanges_in_flight_are_one(provider: Provider, serve: Serve) -> None:
    """A callback that comes three times spends its code once."""
    service = serve(provider.url("gated"))
    answers = all_at_once(service, provider, [(EXCHANGES, EXCHANGE)] * 3)
    assert [answer.json()["accessToken"] for answer in answers] == [ACCESS] * 3
    assert len(provider.requests) == 1


def test_identical_refusals_in_flight_are_one(provider: Provider, serve: Serve) -> None:
    """Who waits for a request that is refused hears the same refusal."""
    service = serve(provider.url("gated_refusal"))
    calls = [(REFRESHES, {"refreshToken": "the-same"})] * 20
    answers = all_at_once(service, provider, calls)
    assert [error_code(answer) for answer in answers] == ["oauth_reauthorization_required"] * 20
    assert len(provider.requests) == 1


DIFFERENT: dict[str, list[tuple[str, Mapping[str, object]]]] = {
    "refresh tokens": [
        (REFRESHES, {"refreshToken": "one"}),
        (REFRESHES, {"refreshToken": "two"}),
    ],
    "connections": [
        (REFRESHES, {"refreshToken": "one"}),
        (address("other", "token/refresh"), {"refreshToken": "one"}),
    ],
    "codes": [(EXCHANGES, EXCHANGE), (EXCHANGES, EXCHANGE | {"code": "two"})],
    "redirects": [(EXCHANGES, EXCHANGE), (EXCHANGES, EXCHANGE | {"redirectUri": REDIRECT + "/"})],
    "verifiers": [(EXCHANGES, EXCHANGE), (EXCHANGES, EXCHANGE | {"codeVerifier": VERIFIER + "w"})],
    "kinds": [(EXCHANGES, EXCHANGE), (REFRESHES, {"refreshToken": str(EXCHANGE["code"])})],
}


@pytest.mark.parametrize("what", DIFFERENT)
def test_different_requests_are_not_merged(
    what: str, provider: Provider, authority_file: Path
) -> None:
    """Requests that differ in anything that the provider sees are sent each for itself."""
    url = provider.url("gated")
    service = LocalService(connection(url), connection(url, key="other"), ca_file=authority_file)
    answers = all_at_once(service, provider, DIFFERENT[what])
    assert [answer.status_code for answer in answers] == [200, 200]
    assert len(provider.requests) == 2


@pytest.mark.parametrize("scenario", ["good", "page_503", "drop_before_headers", "page_200"])
def test_nothing_is_left_of_a_request_that_has_ended(
    scenario: str, provider: Provider, serve: Serve
) -> None:
    """After an answer, a refusal or a fault the same request is sent anew."""
    service = serve(provider.url(scenario))

    async def twice(client: httpx.AsyncClient) -> list[int]:
        answers = []
        for _ in range(2):
            answers.append(await client.post(REFRESHES, json={"refreshToken": "the-same"}))
            await until(lambda: not service.service._under_way)
        return [answer.status_code for answer in answers]

    first, second = service.run(twice)
    assert first == second
    assert len(provider.requests) == 2


def test_nothing_is_left_of_a_fault_of_the_service(
    provider: Provider, serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bug of ours answers 500 to each who waits, and the next request is sent anew."""
    service = serve(provider.url("good"))

    async def broken(*_: object, **__: object) -> None:
        raise RuntimeError("a bug")

    with monkeypatch.context() as patched:
        patched.setattr(service.provider, "post", broken)
        answer = service.refresh()
    assert (answer.status_code, error_code(answer)) == (500, "internal_error")
    assert not service.service._under_way


def test_a_caller_that_hangs_up_abandons_nothing(provider: Provider, serve: Serve) -> None:
    """When the first of two callers is gone, the request goes on and the second gets its answer."""
    service = serve(provider.url("gated"))
    body = {"refreshToken": "the-same"}

    async def work(client: httpx.AsyncClient) -> httpx.Response:
        first = asyncio.create_task(client.post(REFRESHES, json=body))
        await asyncio.to_thread(provider.wait_for_requests, 1)
        second = asyncio.create_task(client.post(REFRESHES, json=body))
        await until(lambda: waiters(service) == 2)
        first.cancel()
        await asyncio.wait([first])
        provider.gate.set()
        return await second

    assert service.run(work).json()["accessToken"] == ACCESS
    assert len(provider.requests) == 1
    provider.wait_until(lambda: provider.completed == 1)


def test_a_request_without_any_caller_left_is_completed(provider: Provider, serve: Serve) -> None:
    """When the only caller is gone, the provider still gets rid of its whole answer."""
    service = serve(provider.url("gated"))

    async def work(client: httpx.AsyncClient) -> None:
        only = asyncio.create_task(client.post(REFRESHES, json={"refreshToken": "the-same"}))
        await asyncio.to_thread(provider.wait_for_requests, 1)
        only.cancel()
        await asyncio.wait([only])
        [under_way] = service.service._under_way.values()
        provider.gate.set()
        granted_tokens = await under_way
        assert granted_tokens.tokens.access_token == ACCESS
        await until(lambda: not service.service._under_way)

    service.run(work)
    provider.wait_until(lambda: provider.completed == 1)


def test_a_process_completes_what_a_caller_has_left(
    provider: Provider, trusting: dict[str, str], tmp_path: Path
) -> None:
    """A real caller closes its socket; the process reads the provider's answer all the same."""
    connections = {"it": provider.url("gated")}
    with running_service(tmp_path, connections, trusting) as service:
        timeout = httpx.Timeout(PATIENCE, read=0.2)
        with (
            httpx.Client(base_url=service.url, trust_env=False, timeout=timeout) as caller,
            pytest.raises(httpx.ReadTimeout),
        ):
            caller.post(REFRESHES, json={"refreshToken": "a"})
        provider.wait_for_requests(1)
        provider.gate.set()
        service.wait_for_log('"path": "/internal/v1/connections/it/token/refresh", "status": 200')
    assert (len(provider.requests), provider.completed, provider.hung_up) == (1, 1, 0)


def test_the_tokens_of_one_caller_never_reach_another(provider: Provider, serve: Serve) -> None:
    """Many different refreshes in flight: each caller gets what its own token was changed for."""
    service = serve(
        provider.acts(
            lambda conversation: conversation.send(
                response(granted(access_token=f"for-{conversation.request.form['refresh_token']}"))
            )
        )
    )

    async def work(client: httpx.AsyncClient) -> list[httpx.Response]:
        return await asyncio.gather(
            *(client.post(REFRESHES, json={"refreshToken": f"r{n}"}) for n in range(50))
        )

    told = [answer.json()["accessToken"] for answer in service.run(work)]
    assert told == [f"for-r{n}" for n in range(50)]
