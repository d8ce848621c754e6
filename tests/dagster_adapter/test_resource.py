"""The warehouse as a resource, and what happens around the IO manager."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import ibis
import pytest
from dagster import (
    DagsterInstance,
    DagsterInvariantViolationError,
    DagsterResourceFunctionError,
)

import segmentstream.dagster as dg
from segmentstream import (
    WAREHOUSE_IO_MANAGER_KEY,
    WAREHOUSE_RESOURCE_KEY,
    WarehouseConfigurationError,
    WarehouseIOManager,
    WarehouseReadError,
    WarehouseResource,
    warehouse_resources,
)
from segmentstream._warehouse.tables import TableRef


@pytest.fixture
def orders(warehouse: WarehouseResource) -> TableRef:
    """Three orders in `shop.orders`."""
    table = TableRef(catalog="", namespace="shop", name="orders")
    warehouse.open_engine().replace(table, ibis.memtable({"order_id": [1, 2, 3]}))
    return table


def test_the_resources_of_a_workspace() -> None:
    """Both keys are the documented ones, and the IO manager uses the warehouse that was given."""
    warehouse = WarehouseResource(engine="duckdb")
    resources = warehouse_resources(warehouse=warehouse)
    assert set(resources) == {"warehouse", "warehouse_io"}
    assert resources[WAREHOUSE_RESOURCE_KEY] is warehouse
    assert isinstance(resources[WAREHOUSE_IO_MANAGER_KEY], WarehouseIOManager)


def test_a_table_is_lazy_and_runs_on_demand(warehouse: WarehouseResource, orders: TableRef) -> None:
    """An asset can name any table, build on it, and fetch as many rows as it wants."""
    table = warehouse.table(name="orders", namespace=orders.namespace)
    assert warehouse.execute(table.order_id.sum()) == 6
    assert len(warehouse.execute(table)) == 3
    assert len(warehouse.execute(table, limit=2)) == 2


def test_a_table_without_a_namespace_is_in_the_default_one(warehouse: WarehouseResource) -> None:
    """The default namespace means the same as for a key of one part."""
    warehouse.open_engine().replace(
        TableRef(catalog="", namespace="main", name="t"), ibis.memtable({"x": [1]})
    )
    assert warehouse.execute(warehouse.table(name="t").count()) == 1
    with pytest.raises(WarehouseReadError, match=r"main\.missing does not exist"):
        warehouse.table(name="missing")


def test_nothing_is_read_before_the_first_use(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Making resources needs no variable; the first use does, and sees those set since."""
    warehouse = WarehouseResource()
    with pytest.raises(WarehouseConfigurationError, match="SEGMENTSTREAM_WAREHOUSE_ENGINE"):
        warehouse.table(name="orders")
    monkeypatch.setenv("SEGMENTSTREAM_WAREHOUSE_ENGINE", "duckdb")
    monkeypatch.setenv("SEGMENTSTREAM_WAREHOUSE_CATALOG", str(tmp_path / "later.duckdb"))
    monkeypatch.setenv("SEGMENTSTREAM_WAREHOUSE_DEFAULT_NAMESPACE", "main")
    with pytest.raises(WarehouseReadError, match=r"main\.orders"):
        warehouse.table(name="orders")
    assert list(tmp_path.iterdir()) == []


def test_threads_share_one_engine(warehouse: WarehouseResource) -> None:
    """However many threads ask at once, one engine is made."""
    found: list[int] = []
    start = threading.Barrier(8)

    def ask() -> None:
        start.wait()
        found.append(id(warehouse.open_engine()))

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(found)) == 1


def test_an_asset_uses_the_resource_beside_its_inputs(
    resources: dict[str, Any], orders: TableRef, query: Any
) -> None:
    """A table taken from the resource joins with an input: both are the same warehouse."""

    @dg.asset(key=["shop", "rates"], io_manager_key=WAREHOUSE_IO_MANAGER_KEY)
    def rates() -> ibis.Table:
        return ibis.memtable({"order_id": [1, 2], "rate": [2.0, 3.0]})

    @dg.asset(
        key=["shop", "rated"],
        ins={"rates": dg.AssetIn(key=["shop", "rates"])},
        io_manager_key=WAREHOUSE_IO_MANAGER_KEY,
    )
    def rated(rates: ibis.Table, warehouse: WarehouseResource) -> ibis.Table:
        return warehouse.table(name="orders", namespace="shop").join(rates, "order_id")

    assert dg.materialize([rates, rated], resources=resources).success
    assert orders.name == "orders"
    assert query("SELECT order_id, rate FROM shop.rated ORDER BY 1") == [(1, 2.0), (2, 3.0)]


def test_an_expression_without_the_io_manager_is_refused(
    resources: dict[str, Any], orders: TableRef, tmp_path: Path
) -> None:
    """An asset that forgot its IO manager fails, and the message names the key to set."""

    @dg.asset
    def forgotten(warehouse: WarehouseResource) -> ibis.Table:
        return warehouse.table(name=orders.name, namespace=orders.namespace)

    (tmp_path / "home").mkdir()
    with (
        DagsterInstance.local_temp(str(tmp_path / "home")) as instance,
        pytest.raises(WarehouseConfigurationError, match="io_manager_key='warehouse_io'"),
    ):
        dg.materialize([forgotten], resources=resources, instance=instance)


def test_an_output_that_is_no_asset_has_no_table(resources: dict[str, Any]) -> None:
    """The IO manager on an op says what it is for."""
    from dagster import Out, job

    @dg.op(out=Out(io_manager_key=WAREHOUSE_IO_MANAGER_KEY))
    def loose() -> ibis.Table:
        return ibis.memtable({"x": [1]})

    @job(resource_defs=resources)
    def loose_job() -> None:
        loose()

    with pytest.raises(WarehouseConfigurationError, match="belongs to no asset"):
        loose_job.execute_in_process()


def test_a_graph_backed_asset_is_written_like_any_other(
    resources: dict[str, Any], query: Any
) -> None:
    """A daily asset made of several ops reports its rows and replaces its days."""
    from dagster import Out

    @dg.op
    def numbers(context) -> list[str]:  # type: ignore[no-untyped-def]  # noqa: ANN001 - Dagster reads no text
        return list(context.partition_keys)

    @dg.op(out=Out(io_manager_key=WAREHOUSE_IO_MANAGER_KEY))
    def table(days: list[str]) -> ibis.Table:
        return ibis.memtable({"day": days}).mutate(day=ibis._.day.cast("date"))

    @dg.graph_asset(
        key=["shop", "days"],
        partitions_def=dg.DailyPartitionsDefinition(start_date="2024-05-01"),
        metadata={"segmentstream/partition_by_date": "day"},
        backfill_policy=dg.BackfillPolicy.single_run(),
    )
    def days() -> Any:
        return table(numbers())

    result = dg.materialize(
        [days],
        resources=resources,
        tags={
            "dagster/asset_partition_range_start": "2024-05-01",
            "dagster/asset_partition_range_end": "2024-05-03",
        },
    )
    assert result.success
    assert query("SELECT count(*) FROM shop.days") == [(3,)]


def test_a_write_that_has_committed_succeeds_though_it_cannot_be_told(
    resources: dict[str, Any], query: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rows of each day are worth telling, and no reason to call a written table a failure."""

    def refuse(*_: object, **__: object) -> None:
        raise DagsterInvariantViolationError("not now")

    monkeypatch.setattr(dg.AssetExecutionContext, "add_asset_metadata", refuse)
    days = dg.DailyPartitionsDefinition(start_date="2024-05-01", end_date="2024-06-01")

    @dg.asset(
        partitions_def=days,
        metadata={"segmentstream/partition_by_date": "day"},
        io_manager_key=WAREHOUSE_IO_MANAGER_KEY,
        backfill_policy=dg.BackfillPolicy.single_run(),
    )
    def orders() -> ibis.Table:
        return ibis.memtable({"day": ["2024-05-01", "2024-05-02"]}).mutate(
            day=ibis._.day.cast("date")
        )

    tags = {
        "dagster/asset_partition_range_start": "2024-05-01",
        "dagster/asset_partition_range_end": "2024-05-02",
    }
    assert dg.materialize([orders], resources=resources, tags=tags).success
    assert query("SELECT count(*) FROM orders") == [(2,)]


def test_a_run_without_its_variables_fails_before_anything_runs() -> None:
    """The variables that are missing are named, and no asset was computed."""
    ran: list[str] = []

    @dg.asset(io_manager_key=WAREHOUSE_IO_MANAGER_KEY)
    def orders() -> ibis.Table:
        ran.append("orders")
        return ibis.memtable({"x": [1]})

    with pytest.raises(DagsterResourceFunctionError) as failed:
        dg.materialize([orders], resources=warehouse_resources())
    assert isinstance(failed.value.__cause__, WarehouseConfigurationError)
    assert "SEGMENTSTREAM_WAREHOUSE_CATALOG" in str(failed.value.__cause__)
    assert ran == []
