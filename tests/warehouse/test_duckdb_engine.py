"""DuckDB against the contract of all engines, and what is its own."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from pathlib import Path

import duckdb
import pytest

from segmentstream._warehouse.engine import WarehouseEngine
from segmentstream._warehouse.registry import create_engine
from segmentstream._warehouse.settings import WarehouseSettings
from segmentstream._warehouse.tables import TableRef
from warehouse.engine_contract import EngineContract, RunSql


class TestDuckDB(EngineContract):
    """The suite on a file."""

    @pytest.fixture
    def twin(self, settings: WarehouseSettings) -> WarehouseEngine:
        return create_engine(settings)

    @pytest.fixture
    def run_sql(self, catalog: Path) -> RunSql:
        def run(statement: str, table: TableRef) -> None:
            with duckdb.connect(catalog) as connection:
                connection.execute(statement.format(table=f'"{table.namespace}"."{table.name}"'))

        return run

    @pytest.fixture
    def make_engine(self, tmp_path: Path) -> Callable[[], WarehouseEngine]:
        numbers = count()

        def make() -> WarehouseEngine:
            return create_engine(
                WarehouseSettings(
                    engine="duckdb",
                    catalog=str(tmp_path / f"model-{next(numbers)}.duckdb"),
                    default_namespace="main",
                )
            )

        return make
