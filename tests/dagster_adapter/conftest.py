"""What the tests of the adapter share: a shop whose assets are kept in a real DuckDB file."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from dagster import DagsterInstance

from dagster_adapter.support import Shop
from segmentstream import WarehouseResource


@pytest.fixture(scope="session")
def instance() -> Iterator[DagsterInstance]:
    """Records runs in memory; making one costs more than a run."""
    with DagsterInstance.ephemeral() as ephemeral:
        yield ephemeral


@pytest.fixture
def shop(
    catalog: Path,
    warehouse: WarehouseResource,
    resources: dict[str, Any],
    instance: DagsterInstance,
) -> Shop:
    """An empty warehouse and the means to run assets on it."""
    return Shop(catalog=catalog, warehouse=warehouse, resources=resources, instance=instance)
