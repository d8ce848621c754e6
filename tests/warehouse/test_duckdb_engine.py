"""DuckDB against the contract of all engines, and what is its own."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from datetime import date
from itertools import count
from pathlib import Path

import duckdb
import ibis
import pytest

from segmentstream._core.errors import ColumnMismatchError
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


SHOP = TableRef(catalog="", namespace="shop", name="orders")


@pytest.mark.parametrize(("one", "other"), [("Öl", "öl"), ("straße", "STRASSE"), ("İ", "i")])
def test_names_that_duckdb_tells_apart_are_two_tables(
    engine: WarehouseEngine, one: str, other: str
) -> None:
    """Upper and lower case are one name for the letters a to z only, and never refused beyond."""
    for number, name in enumerate((one, other, one)):
        table = TableRef(catalog="", namespace=name, name=name)
        engine.replace(table, ibis.memtable({"n": [number]}))
    found = [
        engine.read(TableRef(catalog="", namespace=name, name=name)).n.execute().tolist()
        for name in (one, other)
    ]
    assert found == [[2], [1]]


def test_columns_that_duckdb_tells_apart_keep_their_own_values(
    engine: WarehouseEngine, run_plain: Callable[[str], None]
) -> None:
    """Two stored columns that only look alike are never filled from one."""
    run_plain("CREATE SCHEMA shop")
    run_plain('CREATE TABLE shop.orders (day DATE, "straße" VARCHAR, "STRASSE" VARCHAR)')
    rows = ibis.memtable({"STRASSE": ["upper"], "straße": ["lower"], "day": [date(2024, 5, 1)]})
    engine.replace_partitions(SHOP, rows, "day", [date(2024, 5, 1)])
    with pytest.raises(ColumnMismatchError, match="lacks.*STRASSE"):
        engine.replace_partitions(SHOP, rows.drop("STRASSE"), "day", [date(2024, 5, 1)])
    assert engine.read(SHOP).to_pyarrow().to_pylist() == [
        {"day": date(2024, 5, 1), "straße": "lower", "STRASSE": "upper"}
    ]


@pytest.fixture
def run_plain(catalog: Path) -> Callable[[str], None]:
    """Runs one statement past the SDK."""

    def run(statement: str) -> None:
        with duckdb.connect(catalog) as connection:
            connection.execute(statement)

    return run


def test_a_write_from_tables_never_loads_pandas(catalog: Path) -> None:
    """Rows that stay in the engine cost neither the memory nor the start of pandas."""
    with duckdb.connect(catalog) as connection:
        connection.execute("CREATE TABLE source AS SELECT DATE '2024-05-01' AS day, 1 AS n")
    code = (
        "import datetime, sys\n"
        "from segmentstream._warehouse.registry import create_engine\n"
        "from segmentstream._warehouse.settings import WarehouseSettings\n"
        "from segmentstream._warehouse.tables import TableRef\n"
        "engine = create_engine(WarehouseSettings("
        f"engine='duckdb', catalog={str(catalog)!r}, default_namespace='main'))\n"
        "source, day, whole = (TableRef(catalog='', namespace='main', name=name)"
        " for name in ('source', 'day', 'whole'))\n"
        "for _ in range(2):\n"
        "    engine.replace(whole, engine.read(source))\n"
        "    engine.replace_partitions("
        "day, engine.read(source), 'day', [datetime.date(2024, 5, 1)])\n"
        "assert 'pandas' not in sys.modules\n"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
