"""BigQuery against the contract of all engines."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from bigquery.emulator import Emulator
from bigquery.fixtures import RunSql, new_settings
from segmentstream._warehouse.engine import WarehouseEngine
from segmentstream._warehouse.registry import create_engine
from segmentstream._warehouse.settings import WarehouseSettings
from warehouse.engine_contract import EngineContract


class TestBigQuery(EngineContract):
    """The suite in a project of its own for each test."""

    names_refused = (
        ("my-shop", "daily orders"),
        ("shop", "v1.orders"),
        ("sho'p", 'o"rders'),
    )
    partitioned_by_day = " PARTITION BY day"
    model_examples = 8

    @pytest.fixture
    def engine(self, settings: WarehouseSettings) -> WarehouseEngine:
        return create_engine(settings)

    @pytest.fixture
    def twin(self, settings: WarehouseSettings) -> WarehouseEngine:
        return create_engine(settings)

    @pytest.fixture
    def run_sql(self, run_sql: RunSql) -> RunSql:
        return run_sql

    @pytest.fixture
    def make_engine(self, emulator: Emulator) -> Callable[[], WarehouseEngine]:
        return lambda: create_engine(new_settings(emulator.url))
