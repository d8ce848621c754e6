from __future__ import annotations

from collections.abc import Iterator

import pytest

from clients.brokers import ProviderBroker
from segmentstream import Connection, get_connection
from segmentstream._clients.process import using
from segmentstream.testing import FakeProvider


@pytest.fixture
def provider() -> Iterator[FakeProvider]:
    """A provider whose API answers at /me."""
    with FakeProvider() as running:
        running.serve("/me", lambda request: {"method": request.method})
        yield running


@pytest.fixture
def broker(provider: FakeProvider) -> Iterator[ProviderBroker]:
    """What gives tokens in this process meanwhile."""
    renewing = ProviderBroker(provider)
    with using(renewing):
        yield renewing


@pytest.fixture
def connection(broker: ProviderBroker) -> Connection:
    """An authorized connection to the provider."""
    return get_connection("fake")
