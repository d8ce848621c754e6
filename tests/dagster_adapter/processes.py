"""Jobs whose steps run in processes of their own; variables say which warehouse they use."""

import os
from datetime import date
from pathlib import Path

import ibis.expr.types as ir
from dagster import JobDefinition

import segmentstream.dagster as dg
from dagster_adapter.support import BY_DAY, ORDERS, orders_of, table_of
from segmentstream import WAREHOUSE_IO_MANAGER_KEY, warehouse_resources

CALLS_VARIABLE = "SHOP_CALLS"

_DAILY = dg.DailyPartitionsDefinition(
    start_date="2024-05-01", end_date="2024-06-01", timezone="Europe/Berlin"
)


def _note_call(name: str) -> None:
    """Notes, in a file that all processes see, that the function of an asset was called."""
    with Path(os.environ[CALLS_VARIABLE]).open("a") as calls:
        calls.write(f"{name}\n")


@dg.asset(
    key=ORDERS,
    partitions_def=_DAILY,
    metadata=BY_DAY,
    io_manager_key=WAREHOUSE_IO_MANAGER_KEY,
    backfill_policy=dg.BackfillPolicy.single_run(),
)
def orders(context: dg.AssetExecutionContext) -> ir.Table:
    _note_call("orders")
    days = [date.fromisoformat(key).day for key in context.partition_keys]
    return table_of(orders_of(*days)[:-1])


@dg.asset(
    key=["shop", "report"],
    partitions_def=_DAILY,
    metadata=BY_DAY,
    io_manager_key=WAREHOUSE_IO_MANAGER_KEY,
    backfill_policy=dg.BackfillPolicy.single_run(),
    ins={"orders": dg.AssetIn(key=ORDERS)},
)
def report(orders: ir.Table) -> ir.Table:
    _note_call("report")
    return orders.group_by("day").agg(orders=orders.count())


@dg.asset(key=["too", "many", "parts"], io_manager_key=WAREHOUSE_IO_MANAGER_KEY)
def misnamed() -> ir.Table:
    _note_call("misnamed")
    return table_of(orders_of(1))


def daily_job() -> JobDefinition:
    """Writes `orders`, then `report` from it."""
    return _job(orders, report)


def misnamed_job() -> JobDefinition:
    """Would write `orders`, and an asset whose key is no table."""
    return _job(orders, misnamed)


def _job(*assets: dg.AssetsDefinition) -> JobDefinition:
    defs = dg.Definitions(
        assets=assets,
        jobs=[dg.define_asset_job("job", executor_def=dg.multiprocess_executor)],
        resources=warehouse_resources(),
    )
    return defs.resolve_job_def("job")
