"""A connection as a Dagster resource: assets that read an API with its client."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator

import pytest

import segmentstream.dagster as dg
from clients.brokers import ProviderBroker
from segmentstream import ConnectionRequestError, ConnectionResource
from segmentstream._clients.process import using
from segmentstream.testing import FakeProvider

DEFINITIONS = """
import sys
import segmentstream.dagster as dg
from segmentstream import ConnectionResource

@dg.asset
def customers(ads: ConnectionResource) -> None:
    ads.client()

definitions = dg.Definitions(
    assets=[customers], resources={"ads": ConnectionResource(connection="google_ads")}
)
dg.Definitions.validate_loadable(definitions)
print("httpx" in sys.modules, "segmentstream_connections_runtime" in sys.modules)
"""


@pytest.fixture
def provider() -> Iterator[FakeProvider]:
    with FakeProvider() as running:
        running.serve("/customers", [{"id": 1}, {"id": 2}])
        with using(ProviderBroker(running, metadata={"team": "a"})):
            yield running


def test_an_asset_reads_an_api(provider: FakeProvider) -> None:
    """The resource gives a client whose requests carry the token, and what the provider told."""
    read = []

    @dg.asset
    def customers(ads: ConnectionResource) -> None:
        with ads.client() as http:
            read.extend(http.get("/customers").json())
        read.append(ads.metadata["team"])

    ads = ConnectionResource(connection="fake")
    assert dg.materialize([customers], resources={"ads": ads}).success
    assert read == [{"id": 1}, {"id": 2}, "a"]


def test_an_asset_may_be_async(provider: FakeProvider) -> None:
    """The async client is made outside of the loop that uses it, too."""
    http = ConnectionResource(connection="fake").async_client()

    async def count() -> int:
        async with http:
            answers = await asyncio.gather(*(http.get("/customers") for _ in range(10)))
        return sum(len(answer.json()) for answer in answers)

    assert asyncio.run(count()) == 20


def test_every_field_reaches_the_connection() -> None:
    """Account, address and whether it is read-only are those of the connection."""
    resource = ConnectionResource(
        connection="it", account="second", base_url="https://api.example.com", read_only=True
    )
    connection = resource.get_connection()
    assert (connection.key, connection.account) == ("it", "second")
    assert connection.base_url == "https://api.example.com"
    with resource.client() as http, pytest.raises(ConnectionRequestError):
        http.post("/x")


def test_definitions_load_without_touching_anything() -> None:
    """Loading definitions needs neither httpx nor the runtime, and no variable or workspace."""
    done = subprocess.run(
        [sys.executable, "-c", DEFINITIONS],
        env={"PATH": "/nowhere"},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.stdout == "False False\n", done.stderr
