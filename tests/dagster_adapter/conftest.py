"""What the tests of the adapter share: a shop whose assets are kept in a real warehouse."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from dagster import DagsterInstance

from bigquery.emulator import Emulator
from bigquery.fixtures import new_client, new_settings
from dagster_adapter.stores import BigQueryStore, DuckDBStore, Store
from dagster_adapter.support import Shop
from segmentstream import WarehouseResource
from segmentstream._core.names import EMULATOR_VARIABLE


@pytest.fixture(scope="session")
def instance() -> Iterator[DagsterInstance]:
    """Records runs in memory; making one costs more than a run."""
    with DagsterInstance.ephemeral() as ephemeral:
        yield ephemeral


@pytest.fixture
def engine_name(request: pytest.FixtureRequest) -> str:
    """The engine of the warehouse: DuckDB, unless the test runs `on_each_engine`."""
    return str(getattr(request, "param", "duckdb"))


@pytest.fixture
def warehouse(
    engine_name: str,
    catalog: Path,
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
) -> WarehouseResource:
    """A warehouse as a Dagster resource: a file, or a project on the test server."""
    if engine_name == "duckdb":
        return WarehouseResource(
            engine="duckdb", catalog=str(catalog), default_namespace="main", wait_seconds=60
        )
    server: Emulator = request.getfixturevalue("emulator")
    monkeypatch.setenv(EMULATOR_VARIABLE, server.url)
    return WarehouseResource(
        engine="bigquery",
        catalog=new_settings(server.url).catalog,
        default_namespace="main",
        wait_seconds=30,
    )


@pytest.fixture
def store(engine_name: str, catalog: Path, warehouse: WarehouseResource) -> Store:
    """The same warehouse past the SDK."""
    if engine_name == "duckdb":
        return DuckDBStore(catalog)
    settings = warehouse.settings
    return BigQueryStore(new_client(str(settings.endpoint), settings.catalog))


@pytest.fixture
def shop(
    store: Store,
    warehouse: WarehouseResource,
    resources: dict[str, Any],
    instance: DagsterInstance,
) -> Shop:
    """An empty warehouse and the means to run assets on it."""
    return Shop(store=store, warehouse=warehouse, resources=resources, instance=instance)
