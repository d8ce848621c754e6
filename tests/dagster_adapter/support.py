"""The example of these tests: a shop's daily orders, how they are run and what is stored."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import date
from decimal import Decimal
from typing import Any

import ibis
import ibis.expr.types as ir
import pytest
from dagster import (
    DagsterInstance,
    DagsterResourceFunctionError,
    ExecuteInProcessResult,
    JobExecutionResult,
)

import segmentstream.dagster as dg
from dagster_adapter.stores import Store, StoredTable
from segmentstream import (
    WAREHOUSE_IO_MANAGER_KEY,
    WarehouseConfigurationError,
    WarehouseResource,
    warehouse_asset_metadata,
)

ORDERS = dg.AssetKey(["shop", "orders"])
SCHEMA = {"order_id": "int64", "day": "date", "amount": "decimal(12, 2)"}
BY_DAY = warehouse_asset_metadata(partition_by_date="day")
ROW_COUNT = "dagster/row_count"
PARTITION_ROW_COUNT = "dagster/partition_row_count"

# Runs a test once on each engine: what it says holds for both.
on_each_engine = pytest.mark.parametrize("engine_name", ["duckdb", "bigquery"], indirect=True)

type Row = tuple[int, date | None, Decimal]
type Make = Callable[[dg.AssetExecutionContext], object]


def may(day: int) -> date:
    """A day of May 2024."""
    return date(2024, 5, day)


def key(day: int) -> str:
    """The partition key of a day of May 2024."""
    return may(day).isoformat()


def order(order_id: int, day: int | None, amount: str = "9.90") -> Row:
    """One row of `orders`; the day is one of May 2024."""
    return order_id, None if day is None else may(day), Decimal(amount)


def orders_of(*days: int, per_day: int = 2, amount: str = "9.90") -> list[Row]:
    """Some orders of each day, the number of the day being the start of the order's number."""
    return [order(day * 10 + n, day, amount) for day in days for n in range(per_day)]


def table_of(rows: Iterable[Row]) -> ir.Table:
    """Rows in memory as a table with the columns and types of `orders`."""
    return ibis.memtable(list(rows), schema=SCHEMA)


def daily_orders(
    make: Make | Iterable[Row], partitions_def: dg.DailyPartitionsDefinition, **options: Any
) -> dg.AssetsDefinition:
    """The daily asset `orders`, which returns the given rows, or what `make` gives."""
    options = {"metadata": BY_DAY} | options

    @dg.asset(
        key=ORDERS,
        partitions_def=partitions_def,
        io_manager_key=WAREHOUSE_IO_MANAGER_KEY,
        backfill_policy=dg.BackfillPolicy.single_run(),
        **options,
    )
    def orders(context: dg.AssetExecutionContext):  # type: ignore[no-untyped-def]  # noqa: ANN202 - tests return what they must not
        return make(context) if callable(make) else table_of(make)

    return orders


def whole_orders(make: Callable[[], object] | Iterable[Row]) -> dg.AssetsDefinition:
    """The asset `orders` without partitions, which returns the given rows, or what `make` gives."""

    @dg.asset(key=ORDERS, io_manager_key=WAREHOUSE_IO_MANAGER_KEY)
    def orders():  # type: ignore[no-untyped-def]  # noqa: ANN202 - tests return what they must not
        return make() if callable(make) else table_of(make)

    return orders


@dataclass(frozen=True, slots=True, kw_only=True)
class Shop:
    """Runs assets on the warehouse of a test, and looks into it past the SDK.

    Attributes:
        store: What is stored, and how to store something there.
        warehouse: The warehouse as a Dagster resource.
        resources: The resources of a workspace on that warehouse.
        instance: Where Dagster records the runs.
    """

    store: Store
    warehouse: WarehouseResource
    resources: Mapping[str, object]
    instance: DagsterInstance = field(repr=False)

    def run(
        self,
        *assets: dg.AssetsDefinition | dg.AssetSpec,
        day: int | None = None,
        days: tuple[int, int] | None = None,
        **options: Any,
    ) -> ExecuteInProcessResult:
        """Materializes assets: whole, for a day of May 2024, or for a range of days at once."""
        if day is not None:
            options["partition_key"] = key(day)
        if days is not None:
            options["tags"] = {
                "dagster/asset_partition_range_start": key(days[0]),
                "dagster/asset_partition_range_end": key(days[1]),
            }
        options = {"resources": self.resources} | options
        return dg.materialize(assets, instance=self.instance, **options)

    def fill(self, rows: Iterable[Row], *, name: str = "shop.orders", day: str = "day") -> None:
        """Makes a table as someone else would, with plain SQL; `day` names its DATE column."""
        self.store.fill(name, rows, day=day)

    def rows(self, name: str = "shop.orders") -> list[tuple[Any, ...]]:
        """Every row of a table, sorted."""
        return self.tables()[name].rows

    def ids(self, day: int) -> list[int]:
        """The numbers of the orders stored for a day."""
        return [order_id for order_id, stored, _ in self.rows() if stored == may(day)]

    def tables(self) -> dict[str, StoredTable]:
        """Every table and view, staging tables included; empty when there is no warehouse."""
        return self.store.tables()

    def schemas(self) -> set[str]:
        """The namespaces beyond those that the engine makes by itself."""
        return self.store.schemas()

    @contextmanager
    def unchanged(self) -> Iterator[None]:
        """Fails when what happens inside changes any namespace, table, comment or row."""
        before = self.schemas(), self.tables()
        yield
        assert (self.schemas(), self.tables()) == before

    @contextmanager
    def refusing[E: BaseException](self, kind: type[E]) -> Iterator[pytest.ExceptionInfo[E]]:
        """Expects an error, and that it left the warehouse as it was."""
        with self.unchanged(), pytest.raises(kind) as caught:
            yield caught


@contextmanager
def refused_before_any_asset(
    shop: Shop,
) -> Iterator[list[WarehouseConfigurationError]]:
    """Expects a run that ends before the function of any asset is called; gives its error."""
    errors: list[WarehouseConfigurationError] = []
    with shop.refusing(DagsterResourceFunctionError) as caught:
        yield errors
    cause = caught.value.__cause__
    assert isinstance(cause, WarehouseConfigurationError)
    errors.append(cause)


def days_of(table: ir.Table) -> list[date]:
    """The different days of a table's rows, sorted; the table is read here."""
    found = table.select("day").distinct().order_by("day").to_pyarrow()
    return [row["day"] for row in found.to_pylist()]


def told(result: ExecuteInProcessResult, asset_key: dg.AssetKey = ORDERS) -> dict[str, Any]:
    """The metadata of the one materialization of an asset."""
    (metadata,) = told_by_partition(result, asset_key).values()
    return metadata


def told_by_partition(
    result: ExecuteInProcessResult | JobExecutionResult, asset_key: dg.AssetKey = ORDERS
) -> dict[str | None, dict[str, Any]]:
    """The metadata of each materialization of an asset, by partition key."""
    return {
        event.partition: {
            name: value.value
            for name, value in event.step_materialization_data.materialization.metadata.items()
        }
        for event in result.filter_events(lambda event: event.is_step_materialization)
        if event.asset_key == asset_key
    }
