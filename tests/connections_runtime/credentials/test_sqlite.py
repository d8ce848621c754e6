"""The credential store in a SQLite file."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from connections_runtime.credentials.store_contract import Outage, StoreContract


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """The file of the store; neither it nor its folder exists yet."""
    return tmp_path / "private" / "credentials.db"


@pytest.fixture
def url(path: Path) -> str:
    """The address of the store."""
    return f"sqlite:///{path}"


class TestSqlite(StoreContract):
    @pytest.fixture
    def outage(self, path: Path) -> Outage:
        """A folder stands where the file was, for root may read every file."""

        @contextmanager
        def gone() -> Iterator[None]:
            path.rename(path.with_name(f"{path.name}-aside"))
            path.mkdir()
            try:
                yield
            finally:
                path.rmdir()
                path.with_name(f"{path.name}-aside").rename(path)

        return gone
