"""What a newcomer does first, as a script: `test_distribution.py` runs it in new environments.

Takes an engine and a catalog, and prints as JSON what the warehouse then holds and what was imported.
"""

import json
import sys
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version

import ibis
import ibis.expr.types as ir

import segmentstream
import segmentstream.dagster as dg
from segmentstream import (
    WAREHOUSE_IO_MANAGER_KEY,
    WarehouseResource,
    warehouse_asset_metadata,
    warehouse_resources,
)


@dg.asset(key=["shop", "currencies"], io_manager_key=WAREHOUSE_IO_MANAGER_KEY)
def currencies() -> ir.Table:
    """Is a whole table, from rows in memory."""
    return ibis.memtable({"code": ["EUR", "USD"], "rate": [1.0, 1.08]})


@dg.asset(
    key=["shop", "orders"],
    ins={"currencies": dg.AssetIn(key=["shop", "currencies"])},
    partitions_def=dg.DailyPartitionsDefinition(start_date="2024-05-01", end_date="2024-06-01"),
    metadata=warehouse_asset_metadata(partition_by_date="day"),
    io_manager_key=WAREHOUSE_IO_MANAGER_KEY,
)
def orders(context: dg.AssetExecutionContext, currencies: ir.Table) -> ir.Table:
    """Is a table with one order in each currency a day."""
    return currencies.select("code", day=ibis.date(context.partition_key))


_DISTRIBUTIONS = (
    "click",
    "dagster",
    "dagster-postgres",
    "duckdb",
    "google-cloud-bigquery",
    "ibis-framework",
    "pydantic",
    "pyyaml",
    "sqlalchemy",
    "sqlglot",
)


def main(engine: str, catalog: str) -> None:
    """Materializes the whole table twice, then two days, one of them twice."""
    warehouse = WarehouseResource(engine=engine, catalog=catalog, default_namespace="main")
    resources = warehouse_resources(warehouse=warehouse)
    for _ in range(2):
        assert dg.materialize([currencies], resources=resources).success
    for day in ("2024-05-01", "2024-05-02", "2024-05-02"):
        assert dg.materialize([currencies, orders], resources=resources, partition_key=day).success
    rates = warehouse.table(name="currencies", namespace="shop").order_by("code")
    rows = warehouse.table(name="orders", namespace="shop")
    by_day = rows.group_by("day").agg(n=rows.count(), codes=rows.code.nunique()).order_by("day")
    told = {
        "imported": segmentstream.__file__,
        "currencies": [[*row.values()] for row in rates.to_pyarrow().to_pylist()],
        "orders": [
            [str(value) for value in row.values()] for row in by_day.to_pyarrow().to_pylist()
        ],
        "versions": dict(_versions()),
    }
    print(json.dumps(told))


def _versions() -> Iterator[tuple[str, str]]:
    for name in _DISTRIBUTIONS:
        try:
            yield name, version(name)
        except PackageNotFoundError:
            continue  # The other engine's.


if __name__ == "__main__":
    main(*sys.argv[1:])
