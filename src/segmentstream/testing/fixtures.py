"""Fixtures for users' tests, as a plugin of pytest.

A `conftest.py` asks for them with `pytest_plugins = ["segmentstream.testing.fixtures"]`.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from segmentstream._clients.connection import Connection, get_connection
from segmentstream.testing._fake import FakeProvider


@pytest.fixture
def fake_provider() -> Iterator[FakeProvider]:
    """An OAuth provider with a JSON API, on this machine; see `FakeProvider`."""
    with FakeProvider() as provider:
        yield provider


@pytest.fixture
def fake_connection(fake_provider: FakeProvider) -> Iterator[Connection]:
    """A connection of the key `fake` to it, authorized: `get_connection("fake")` works too.

    For assets that ask for another key, write
    `with fake_provider.connected(fake_provider.connection("google_ads")):` instead.
    """
    with fake_provider.connected():
        yield get_connection("fake")
