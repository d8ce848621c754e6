from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from connections_runtime.running import START, LocalService, address
from segmentstream.testing import FakeProvider
from testing import flows


@pytest.fixture
def provider() -> Iterator[FakeProvider]:
    with FakeProvider(consent="automatic") as running:
        yield running


@pytest.mark.parametrize("method", ["client_secret_post", "client_secret_basic"])
def test_the_connections_service_connects_and_refreshes(
    provider: FakeProvider, method: Any
) -> None:
    """The service, with the declaration and the variables given, does a login and a refresh."""
    declared = provider.connection(client_authentication=method)
    start = {**START, "redirectUri": flows.REDIRECT, "codeChallenge": flows.CHALLENGE}
    proof = {"redirectUri": flows.REDIRECT, "codeVerifier": flows.VERIFIER}

    async def log_in_and_refresh(service: httpx.AsyncClient) -> None:
        started = await service.post(address("fake", "authorization/start"), json=start)
        assert started.status_code == 200, started.text
        async with httpx.AsyncClient(trust_env=False) as browser:
            back = flows.sent_back(await browser.get(started.json()["authorizationUrl"]))
        exchanged = await service.post(
            address("fake", "token/exchange"), json={**proof, "code": back["code"]}
        )
        assert exchanged.status_code == 200, exchanged.text
        refreshed = await service.post(
            address("fake", "token/refresh"),
            json={"refreshToken": exchanged.json()["refreshToken"]},
        )
        assert refreshed.status_code == 200, refreshed.text

    LocalService(declared, variables=provider.environment).run(log_in_and_refresh)
    assert provider.refreshes == 1


def test_a_declaration_can_differ(provider: FakeProvider) -> None:
    """Every field of the declaration can be set, among them the key."""
    declared = provider.connection("other", scopes=["a"], require_refresh_token=False)

    assert (declared.key, declared.scopes) == ("other", ("a",))
    assert declared.token_url == f"{provider.url}/token"
