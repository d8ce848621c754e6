"""The credential store in a real Postgres."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from connections_runtime.credentials.store_contract import Outage, StoreContract
from postgres import URL_VARIABLE, OwnPostgres, Postgres


@pytest.fixture
def url(postgres: Postgres) -> Iterator[str]:
    """The address of an empty database."""
    with postgres.database() as address:
        yield address


class TestPostgres(StoreContract):
    @pytest.fixture
    def outage(self, postgres: Postgres) -> Outage:
        """The server is stopped as by a crash, and started again."""
        if not isinstance(postgres, OwnPostgres):
            pytest.skip(f"stops the server, so {URL_VARIABLE} must not name it")

        @contextmanager
        def stopped() -> Iterator[None]:
            postgres.stop()
            try:
                yield
            finally:
                postgres.start()

        return stopped
