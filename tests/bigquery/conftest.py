"""The BigQuery API that tests talk to."""

from collections.abc import Iterator
from dataclasses import replace

import pytest
from google.cloud import bigquery

from bigquery.emulator import Emulator
from bigquery.fixtures import RunSql, new_client, new_settings
from bigquery.judge_fixtures import judge
from bigquery.proxy import Proxy
from segmentstream._warehouse.engine import WarehouseEngine
from segmentstream._warehouse.registry import create_engine
from segmentstream._warehouse.settings import WarehouseSettings
from segmentstream._warehouse.tables import TableRef

__all__ = ["judge"]


@pytest.fixture
def proxy(emulator: Emulator) -> Iterator[Proxy]:
    """A way to that server that can be watched and broken."""
    with Proxy(emulator.url) as serving:
        yield serving


@pytest.fixture
def settings(emulator: Emulator) -> WarehouseSettings:
    """A BigQuery warehouse in a project of its own."""
    return new_settings(emulator.url)


@pytest.fixture
def watched(settings: WarehouseSettings, proxy: Proxy) -> WarehouseEngine:
    """The engine of that warehouse, by way of the proxy."""
    return create_engine(replace(settings, endpoint=proxy.url))


@pytest.fixture
def client(emulator: Emulator, settings: WarehouseSettings) -> bigquery.Client:
    """A client of that project that the SDK has nothing to do with."""
    return new_client(emulator.url, settings.catalog)


@pytest.fixture
def run_sql(client: bigquery.Client) -> RunSql:
    """Runs a statement past the SDK; `{table}` in it stands for the quoted name of a table."""

    def run(statement: str, table: TableRef) -> None:
        name = f"`{client.project}.{table.namespace}.{table.name}`"
        client.query(statement.format(table=name)).result()

    return run
