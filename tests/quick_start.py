"""What a newcomer does first, as a script: `test_distribution.py` runs it in new environments.

Takes the path of a DuckDB file, and prints as JSON what the file then holds and what was imported.
"""

import json
import sys
from importlib.metadata import version

import duckdb
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


def main(catalog: str) -> None:
    """Materializes the whole table twice, then two days, one of them twice."""
    resources = warehouse_resources(
        warehouse=WarehouseResource(engine="duckdb", catalog=catalog, default_namespace="main")
    )
    for _ in range(2):
        assert dg.materialize([currencies], resources=resources).success
    for day in ("2024-05-01", "2024-05-02", "2024-05-02"):
        assert dg.materialize([currencies, orders], resources=resources, partition_key=day).success
    with duckdb.connect(catalog, read_only=True) as connection:
        rates = connection.execute("SELECT code, rate FROM shop.currencies ORDER BY 1").fetchall()
        rows = connection.execute(
            "SELECT day::VARCHAR, count(*), count(DISTINCT code) FROM shop.orders GROUP BY 1 ORDER BY 1"
        ).fetchall()
    distributions = ("dagster", "dagster-postgres", "duckdb", "ibis-framework", "pydantic")
    told = {
        "imported": segmentstream.__file__,
        "currencies": rates,
        "orders": rows,
        "versions": {name: version(name) for name in (*distributions, "sqlalchemy", "sqlglot")},
    }
    print(json.dumps(told))


if __name__ == "__main__":
    main(sys.argv[1])
