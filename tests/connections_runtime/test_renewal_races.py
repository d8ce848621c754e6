"""Renewals that many callers and several processes ask for at the same time."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from connections_runtime.authority import Authority
from connections_runtime.oidc_server import OidcServer, missing, running_oidc_server
from connections_runtime.provider import Provider
from connections_runtime.renewal_host import Clock, connection_of, durable_of
from connections_runtime.renewals import Place, Rotation, authorize, place_at
from postgres import Postgres
from segmentstream_connections_runtime.credentials.records import Credential, State, Tokens
from segmentstream_connections_runtime.freshness import Want

pytestmark = pytest.mark.skipif(missing() is not None, reason=str(missing()))

DUE = 50  # seconds after which a token that lives for 60 is renewed


@pytest.fixture(scope="module")
def server(authority: Authority) -> Iterator[OidcServer]:
    """An authorization server that revokes a grant whose refresh token comes twice."""
    authority.server_context("localhost", "127.0.0.1")
    pem = authority.folder / "localhost-127.0.0.1.pem"
    with running_oidc_server(pem, authority.ca_file) as running:
        yield running


@pytest.fixture(params=["sqlite", "postgres"])
def place(request: pytest.FixtureRequest, server: OidcServer, tmp_path: Path) -> Iterator[Place]:
    """A credential of that server in either store."""
    if request.param == "sqlite":
        yield place_at(server, tmp_path, f"sqlite:///{tmp_path}/store/credentials.db")
        return
    postgres: Postgres = request.getfixturevalue("postgres")
    with postgres.database() as url:
        yield place_at(server, tmp_path, url)


def only(answers: list[dict[str, Any]]) -> dict[str, Any]:
    """Gives what all of them say."""
    assert all(answer == answers[0] for answer in answers), answers
    return answers[0]


@pytest.mark.slow
def test_report_10_everybody_at_once_makes_one_refresh(place: Place, server: OidcServer) -> None:
    """Twenty callers in each of four processes get the same new token for one refresh.

    https://github.com/HQBase/hqbase/issues/41: there the second refresh revoked the grant.
    """
    with ExitStack() as stack:
        hosts = [stack.enter_context(place.host()) for _ in range(4)]
        authorize(hosts[0], server)
        before = server.refreshes()
        for host in hosts:
            host.send("access", callers=20, ahead=DUE)
        answers = [answer for host in hosts for answer in host.answer()]
        assert (len(answers), only(answers)["number"]) == (80, 2)
        assert server.refreshes() == before + 1
        [following] = hosts[3].access(ahead=2 * DUE)
        assert (following["number"], following["is_persisted"]) == (3, True)


@pytest.mark.slow
def test_two_processes_share_round_after_round(place: Place, server: OidcServer) -> None:
    """In each of ten rounds two processes find the token due at once, and one renews it."""
    with place.host() as one, place.host() as other:
        authorize(one, server)
        before = server.refreshes()
        for turn in range(1, 11):
            for host in (one, other):
                host.send("access", callers=3, ahead=turn * DUE)
            assert only([*one.answer(), *other.answer()])["number"] == turn + 1
            assert server.refreshes() == before + turn


@pytest.mark.slow
def test_a_storm_of_refused_tokens_makes_one_refresh(place: Place, server: OidcServer) -> None:
    """A hundred requests to whose token the interface has said 401 get its one successor."""
    with place.host() as one, place.host() as other:
        authorize(one, server)
        before = server.refreshes()
        for host in (one, other):
            host.send("access", callers=50, ahead=20, want={"rejected": 1})
        assert only([*one.answer(), *other.answer()])["number"] == 2
        assert server.refreshes() == before + 1


def test_report_11_who_holds_an_old_token_gets_that_of_a_sibling(
    place: Place, server: OidcServer
) -> None:
    """A worker whose token was replaced elsewhere reads the new one, without a refresh of its own.

    https://github.com/airbytehq/airbyte/issues/82783: there it went on with its snapshot.
    """
    with place.host() as worker, place.host() as sibling:
        authorize(worker, server)
        [old] = worker.access()
        [new] = sibling.access(is_forced=True)
        before = server.refreshes()
        [read] = worker.access(rejected=old["number"])
        assert (old["number"], read) == (1, new)
        assert worker.access() == [new]
        assert server.refreshes() == before


@pytest.mark.parametrize("hours", [1, -1])
def test_a_clock_that_jumps_costs_one_refresh(place: Place, server: OidcServer, hours: int) -> None:
    """Put forward or back by an hour and right again, it makes one refresh each time, no loop."""
    with place.host() as host:
        authorize(host, server)
        counts = []
        for ahead in (0, hours * 3600, 0):
            before = server.refreshes()
            tokens = [host.access(ahead=ahead)[0]["token"] for _ in range(3)]
            assert len(set(tokens)) == 1
            counts.append(server.refreshes() - before)
        assert counts == [0, 1, 1]


def test_many_credentials_are_renewed_at_once(
    provider: Provider, postgres: Postgres, tmp_path: Path, authority_file: Path
) -> None:
    """More credentials than a process may hold connections for are due, and each is renewed."""
    number = 60
    with postgres.database() as url:
        place = Rotation(provider=provider).place(
            tmp_path, url, authority_file, refresh_url=provider.url("good")
        )
        accounts = [f"account-{each}" for each in range(number)]

        async def renewed() -> list[int]:
            declared = connection_of(place.connection)
            durable, client = durable_of(declared, place.environ, clock=Clock())
            for account in accounts:
                await durable.custody.keep(expired(account), expected=0)
            async with asyncio.TaskGroup() as group:
                calls = [
                    group.create_task(durable.access("it", account=account, want=Want()))
                    for account in accounts
                ]
            await durable.close()
            await client.close()
            return [call.result().number for call in calls]

        assert asyncio.run(renewed()) == [2] * number
    assert len(provider.requests) == number


def expired(account: str) -> Credential:
    """A credential whose token has expired."""
    return Credential(
        connection="it",
        account=account,
        state=State.CONNECTED,
        number=1,
        tokens=Tokens(
            access_token="old",
            refresh_token="old",
            scopes=(),
            missing_scopes=(),
            obtained_at=0,
            expires_at=1,
        ),
        granted_at=0,
    )
