"""What users of other tools reported about loading upstream tables, tried here.

Each test is named after the report it answers (area C); the example is always the same: `orders`
of a shop, one partition a day in Berlin.
"""

from collections.abc import Callable
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

import ibis
import ibis.expr.operations as ops
import ibis.expr.types as ir
import pandas as pd
import pytest
from dagster import (
    DagsterInvalidDefinitionError,
    DagsterInvariantViolationError,
    In,
    PartitionMapping,
    PartitionsDefinition,
    partition_loading_context,
)
from dagster import job as dagster_job

import segmentstream.dagster as dg
from dagster_adapter.support import (
    BY_DAY,
    ORDERS,
    SCHEMA,
    Row,
    Shop,
    daily_orders,
    days_of,
    key,
    may,
    on_each_engine,
    order,
    orders_of,
    refused_before_any_asset,
    table_of,
    told,
    whole_orders,
)
from segmentstream import (
    WAREHOUSE_IO_MANAGER_KEY,
    WarehouseConfigurationError,
    WarehouseError,
    WarehouseMaterializationError,
    WarehouseReadError,
    external_table_asset,
    warehouse_asset_metadata,
)


def external_orders(partitions_def: dg.DailyPartitionsDefinition) -> dg.AssetSpec:
    """`orders` as a table that someone else writes."""
    return external_table_asset(key=ORDERS, partitions_def=partitions_def, partition_by_date="day")


def reader(
    seen: list[date],
    *,
    mapping: PartitionMapping | None = None,
    partitions_def: PartitionsDefinition[str] | None = None,
) -> dg.AssetsDefinition:
    """An asset that reads `orders`, writes nothing and adds the days it was given to `seen`."""

    @dg.asset(
        ins={"orders": dg.AssetIn(key=ORDERS, partition_mapping=mapping)},
        partitions_def=partitions_def,
        backfill_policy=dg.BackfillPolicy.single_run(),
    )
    def report(orders: ir.Table) -> None:
        seen.extend(days_of(orders))

    return report


def mays(first: int, last: int) -> list[date]:
    """The days of May 2024 from the first to the last, both included."""
    return [may(day) for day in range(first, last + 1)]


@on_each_engine
def test_c1_an_unpartitioned_asset_reads_every_day(
    shop: Shop, daily: dg.DailyPartitionsDefinition
) -> None:
    """An asset without partitions gets the whole table of a daily one, as a lazy expression."""
    inputs: list[ir.Table] = []
    orders = daily_orders(
        lambda c: table_of(orders_of(date.fromisoformat(c.partition_key).day)), daily
    )
    for day in (1, 2, 3):
        shop.run(orders, day=day)

    @dg.asset(
        key=["shop", "monthly_report"],
        io_manager_key=WAREHOUSE_IO_MANAGER_KEY,
        ins={"orders": dg.AssetIn(key=ORDERS)},
    )
    def monthly_report(orders: ir.Table) -> ir.Table:
        inputs.append(orders)
        return orders.group_by("day").agg(orders=orders.count(), paid=orders.amount.sum())

    shop.run(orders, monthly_report, selection=[monthly_report])

    assert isinstance(inputs[0].op(), ops.DatabaseTable)
    assert shop.rows("shop.monthly_report") == [
        (may(day), 2, Decimal("19.80")) for day in (1, 2, 3)
    ]


@on_each_engine
def test_c1_an_unpartitioned_asset_reads_days_without_a_partition(
    shop: Shop, daily: dg.DailyPartitionsDefinition
) -> None:
    """The whole table is also what lies before the first partition and after the last."""
    shop.fill([(1, date(2023, 1, 1), Decimal(1)), order(2, 2), (3, date(2099, 1, 1), Decimal(1))])
    seen: list[date] = []

    shop.run(external_orders(daily), reader(seen))

    assert seen == [date(2023, 1, 1), may(2), date(2099, 1, 1)]


@on_each_engine
def test_c2_a_rolling_window_is_exactly_its_days(
    shop: Shop, daily: dg.DailyPartitionsDefinition
) -> None:
    """A window of seven days ends with the run's day and holds nothing before or after it."""
    shop.fill(orders_of(*range(1, 13)))
    seen: list[date] = []
    window = dg.TimeWindowPartitionMapping(start_offset=-6, end_offset=0)
    later = dg.DailyPartitionsDefinition(
        start_date="2024-05-08", end_date="2024-06-01", timezone="Europe/Berlin"
    )

    shop.run(external_orders(daily), reader(seen, mapping=window, partitions_def=later), day=10)

    assert seen == mays(4, 10)


@on_each_engine
def test_c2_a_rolling_window_feeds_a_written_day(
    shop: Shop, daily: dg.DailyPartitionsDefinition
) -> None:
    """What is computed over a rolling window is written to the run's day alone."""
    shop.fill(orders_of(*range(1, 13)))
    window = dg.TimeWindowPartitionMapping(start_offset=-6, end_offset=0)

    @dg.asset(
        key=["shop", "weekly"],
        partitions_def=daily,
        metadata=BY_DAY,
        io_manager_key=WAREHOUSE_IO_MANAGER_KEY,
        ins={"orders": dg.AssetIn(key=ORDERS, partition_mapping=window)},
    )
    def weekly(context: dg.AssetExecutionContext, orders: ir.Table) -> ir.Table:
        return orders.agg(orders=orders.count()).mutate(
            day=ibis.date(date.fromisoformat(context.partition_key))
        )

    shop.run(external_orders(daily), weekly, day=3)
    shop.run(external_orders(daily), weekly, day=10)

    assert shop.rows("shop.weekly") == [(6, may(3)), (14, may(10))]


@on_each_engine
def test_c2_a_window_over_a_range_of_days_is_their_union(
    shop: Shop, daily: dg.DailyPartitionsDefinition
) -> None:
    """One run over several days reads the windows of all of them."""
    shop.fill(orders_of(*range(1, 13)))
    seen: list[date] = []
    window = dg.TimeWindowPartitionMapping(start_offset=-2, end_offset=0)
    report = reader(
        seen,
        mapping=window,
        partitions_def=daily,
    )

    shop.run(external_orders(daily), report, days=(5, 7))

    assert seen == mays(3, 7)


@on_each_engine
def test_c2_a_window_leaves_excluded_days_out(shop: Shop) -> None:
    """A day that the upstream excludes is not read, although it lies within the window."""
    working = dg.DailyPartitionsDefinition(
        start_date="2024-05-01",
        end_date="2024-06-01",
        timezone="Europe/Berlin",
        exclusions=[datetime(2024, 5, day, tzinfo=ZoneInfo("Europe/Berlin")) for day in (4, 5)],
    )
    shop.fill(orders_of(*range(1, 13)))
    seen: list[date] = []
    window = dg.TimeWindowPartitionMapping(start_offset=-2, end_offset=0)

    shop.run(external_orders(working), reader(seen, mapping=window, partitions_def=working), day=7)

    assert seen == [may(3), may(6), may(7)]


@on_each_engine
@pytest.mark.parametrize("partitioned", [True, False], ids=["daily", "unpartitioned"])
def test_c2_the_last_partition_is_the_last_day(
    partitioned: bool, shop: Shop, daily: dg.DailyPartitionsDefinition
) -> None:
    """With LastPartitionMapping an asset reads the newest day only, whichever day it runs for."""
    shop.fill(orders_of(1, 2, 30, 31))
    seen: list[date] = []
    report = reader(
        seen,
        mapping=dg.LastPartitionMapping(),
        partitions_def=daily if partitioned else None,
    )

    shop.run(external_orders(daily), report, day=2 if partitioned else None)

    assert seen == [may(31)]


def test_c2_the_last_partition_is_one_day_also_when_it_is_the_only_one(shop: Shop) -> None:
    """With LastPartitionMapping an asset reads one day also while the upstream has only that one."""
    young = dg.DailyPartitionsDefinition(
        start_date="2024-05-31", end_date="2024-06-01", timezone="Europe/Berlin"
    )
    shop.fill(orders_of(1, 2, 30, 31))
    seen: list[date] = []

    shop.run(external_orders(young), reader(seen, mapping=dg.LastPartitionMapping()))

    assert seen == [may(31)]


@on_each_engine
def test_c2_a_day_is_one_day_also_when_it_is_the_only_one(shop: Shop) -> None:
    """A daily asset reads its own day also while that is the only partition there is so far."""
    young = dg.DailyPartitionsDefinition(
        start_date="2024-05-02", end_date="2024-05-03", timezone="Europe/Berlin"
    )
    shop.fill(orders_of(1, 2, 3))
    seen: list[date] = []

    shop.run(external_orders(young), reader(seen, partitions_def=young), day=2)

    assert seen == [may(2)]


@on_each_engine
def test_c2_a_run_over_every_day_reads_no_other_days(shop: Shop) -> None:
    """A daily asset that runs for all its days at once reads those days, not what lies around them."""
    short = dg.DailyPartitionsDefinition(
        start_date="2024-05-02", end_date="2024-05-05", timezone="Europe/Berlin"
    )
    shop.fill(orders_of(1, 2, 3, 4, 5))

    @dg.asset(
        key=["shop", "copy"],
        partitions_def=short,
        metadata=BY_DAY,
        io_manager_key=WAREHOUSE_IO_MANAGER_KEY,
        backfill_policy=dg.BackfillPolicy.single_run(),
        ins={"orders": dg.AssetIn(key=ORDERS)},
    )
    def copy(orders: ir.Table) -> ir.Table:
        return orders

    shop.run(external_orders(short), copy, days=(2, 4))

    assert shop.rows("shop.copy") == orders_of(2, 3, 4)


@on_each_engine
def test_c2_specific_partitions_are_exactly_those(
    shop: Shop, daily: dg.DailyPartitionsDefinition
) -> None:
    """With SpecificPartitionsPartitionMapping an asset reads the days that it names, gaps and all."""
    shop.fill(orders_of(*range(1, 9)))
    seen: list[date] = []
    mapping = dg.SpecificPartitionsPartitionMapping([key(2), key(3), key(6)])

    shop.run(external_orders(daily), reader(seen, mapping=mapping, partitions_def=daily), day=4)

    assert seen == [may(2), may(3), may(6)]


@on_each_engine
def test_c2_all_partitions_of_a_daily_asset_are_the_days_that_exist(
    shop: Shop, daily: dg.DailyPartitionsDefinition
) -> None:
    """With AllPartitionMapping a daily asset reads every partition, not rows that belong to none."""
    shop.fill(
        [(1, date(2023, 1, 1), Decimal(1)), *orders_of(1, 31), (2, date(2099, 1, 1), Decimal(1))]
    )
    seen: list[date] = []

    shop.run(
        external_orders(daily),
        reader(seen, mapping=dg.AllPartitionMapping(), partitions_def=daily),
        day=4,
    )

    assert seen == [may(1), may(31)]


def _op_job(shop: Shop, upstream: Any, seen: list[date]) -> Any:
    @dg.op
    def report(orders: ir.Table) -> None:
        seen.extend(days_of(orders))

    @dagster_job(
        partitions_def=dg.DailyPartitionsDefinition(
            start_date="2024-05-01", end_date="2024-06-01", timezone="Europe/Berlin"
        ),
        resource_defs=dict(shop.resources),
    )
    def nightly() -> None:
        report(upstream)

    return nightly


@on_each_engine
@pytest.mark.parametrize("day", [2, 3])
def test_c3_an_op_job_reads_all_days_in_every_run(
    day: int, shop: Shop, daily: dg.DailyPartitionsDefinition
) -> None:
    """An op is no asset and maps to no partition: it reads the whole table, whatever day it runs for."""
    shop.fill(orders_of(1, 2, 3))
    seen: list[date] = []

    _op_job(shop, external_orders(daily), seen).execute_in_process(
        partition_key=key(day), instance=shop.instance
    )

    assert seen == mays(1, 3)


def test_c3_an_op_job_reads_the_same_at_any_time(shop: Shop) -> None:
    """What an op reads does not depend on which partitions exist at the time of the run."""
    growing = dg.DailyPartitionsDefinition(start_date="2024-05-01", timezone="Europe/Berlin")
    shop.fill(orders_of(1, 2, 3, 4))
    seen: list[list[date]] = []
    for clock in (datetime(2024, 5, 3, 12).astimezone(), datetime(2024, 5, 9, 12).astimezone()):
        seen.append([])
        with partition_loading_context(effective_dt=clock):
            _op_job(shop, external_orders(growing), seen[-1]).execute_in_process(
                partition_key=key(2), instance=shop.instance
            )

    assert seen == [mays(1, 4), mays(1, 4)]


def test_c3_an_op_input_that_is_no_asset_is_refused(shop: Shop) -> None:
    """An op input that only goes through the IO manager names no table, and the error says so."""

    @dg.op(ins={"orders": In(input_manager_key=WAREHOUSE_IO_MANAGER_KEY)})
    def report(orders: ir.Table) -> None:
        raise AssertionError

    @dagster_job(resource_defs=dict(shop.resources))
    def nightly() -> None:
        report()

    with shop.refusing(WarehouseConfigurationError) as caught:
        nightly.execute_in_process(instance=shop.instance)

    assert "'orders'" in str(caught.value)
    assert "asset" in caught.value.remedy


def _started_later() -> dg.DailyPartitionsDefinition:
    return dg.DailyPartitionsDefinition(
        start_date="2024-05-05", end_date="2024-06-01", timezone="Europe/Berlin"
    )


def test_c4_days_that_do_not_exist_upstream_are_named(
    shop: Shop, daily: dg.DailyPartitionsDefinition
) -> None:
    """A day before the upstream starts fails, naming both assets and the missing day."""
    shop.fill(orders_of(5, 6))

    with shop.refusing(DagsterInvariantViolationError) as caught:
        shop.run(external_orders(_started_later()), reader([], partitions_def=daily), day=2)

    assert "report" in str(caught.value)
    assert "['shop', 'orders']" in str(caught.value)
    assert "2024-05-02" in str(caught.value)


def test_c4_allowed_missing_days_read_as_an_empty_table(
    shop: Shop, daily: dg.DailyPartitionsDefinition
) -> None:
    """Where missing upstream days are allowed, the input is a lazy table with types and no rows."""
    shop.fill(orders_of(1, 2, 5, 6))
    inputs: list[ir.Table] = []

    @dg.asset(
        key=["shop", "report"],
        partitions_def=daily,
        metadata=BY_DAY,
        io_manager_key=WAREHOUSE_IO_MANAGER_KEY,
        ins={
            "orders": dg.AssetIn(
                key=ORDERS,
                partition_mapping=dg.TimeWindowPartitionMapping(
                    allow_nonexistent_upstream_partitions=True
                ),
            )
        },
    )
    def report(orders: ir.Table) -> ir.Table:
        inputs.append(orders)
        return orders

    shop.run(external_orders(_started_later()), report, day=2)

    assert inputs[0].schema() == ibis.schema(SCHEMA)
    assert shop.rows("shop.report") == []
    assert shop.tables()["shop.report"].columns == shop.tables()["shop.orders"].columns


def test_c4_a_window_is_narrowed_to_the_days_that_exist(
    shop: Shop, daily: dg.DailyPartitionsDefinition
) -> None:
    """A rolling window that begins before the first upstream day holds the days that exist."""
    shop.fill(orders_of(4, 5, 6))
    seen: list[date] = []
    window = dg.TimeWindowPartitionMapping(
        start_offset=-6, end_offset=0, allow_nonexistent_upstream_partitions=True
    )

    shop.run(
        external_orders(_started_later()),
        reader(seen, mapping=window, partitions_def=daily),
        day=6,
    )

    assert seen == mays(5, 6)


@on_each_engine
def test_c4_an_upstream_that_was_never_written_is_named(
    shop: Shop, daily: dg.DailyPartitionsDefinition
) -> None:
    """An input whose table does not exist fails with the table's name and what to do."""
    with shop.refusing(WarehouseReadError) as caught:
        shop.run(external_orders(daily), reader([], partitions_def=daily), day=2)

    assert "shop.orders" in str(caught.value)
    assert "Materialize the asset that writes it first" in caught.value.remedy


def _bound_by_hand(partitions_def: dg.DailyPartitionsDefinition) -> dg.AssetSpec:
    spec = dg.AssetSpec(
        ["raw", "events"],
        partitions_def=partitions_def,
        metadata=warehouse_asset_metadata(partition_by_date="event_day"),
    )
    return spec.with_io_manager_key(WAREHOUSE_IO_MANAGER_KEY)


def _bound_by_the_sdk(partitions_def: dg.DailyPartitionsDefinition) -> dg.AssetSpec:
    return external_table_asset(
        key=["raw", "events"], partitions_def=partitions_def, partition_by_date="event_day"
    )


def _daily_events(**options: Any) -> dg.AssetsDefinition:
    """A daily asset made from `raw.events`, whose date has another name there."""

    @dg.asset(
        key=ORDERS,
        partitions_def=dg.DailyPartitionsDefinition(
            start_date="2024-05-01", end_date="2024-06-01", timezone="Europe/Berlin"
        ),
        metadata=BY_DAY,
        io_manager_key=WAREHOUSE_IO_MANAGER_KEY,
        ins={"events": dg.AssetIn(key=["raw", "events"], **options)},
    )
    def orders(events: ir.Table) -> ir.Table:
        return events.rename(day="event_day")

    return orders


@on_each_engine
@pytest.mark.parametrize("declare", [_bound_by_hand, _bound_by_the_sdk])
def test_c5_a_declared_external_table_loads_the_runs_day(
    declare: Callable[[dg.DailyPartitionsDefinition], dg.AssetSpec],
    shop: Shop,
    daily: dg.DailyPartitionsDefinition,
) -> None:
    """A table of another code location loads by day, and by the date column that it declares."""
    shop.fill(orders_of(1, 2, 3), name="raw.events", day="event_day")

    shop.run(declare(daily), _daily_events(), day=2)

    assert shop.rows() == orders_of(2)


def test_c5_an_input_may_choose_the_warehouse_itself(
    shop: Shop, daily: dg.DailyPartitionsDefinition
) -> None:
    """A spec without an IO manager loads by day too, when the input names the warehouse's."""
    shop.fill(orders_of(1, 2, 3), name="raw.events", day="event_day")
    spec = dg.AssetSpec(
        ["raw", "events"],
        partitions_def=daily,
        metadata=warehouse_asset_metadata(partition_by_date="event_day"),
    )

    shop.run(spec, _daily_events(input_manager_key=WAREHOUSE_IO_MANAGER_KEY), day=2)

    assert shop.rows() == orders_of(2)


@pytest.mark.parametrize("options", [{}, {"input_manager_key": WAREHOUSE_IO_MANAGER_KEY}])
def test_c5_an_undeclared_external_table_is_named_when_definitions_load(
    options: dict[str, Any], shop: Shop
) -> None:
    """Without a declaration the upstream is named before there is a run, never loaded on a guess."""
    shop.fill(orders_of(1, 2, 3), name="raw.events", day="event_day")
    defs = dg.Definitions(assets=[_daily_events(**options)], resources=shop.resources)

    with shop.refusing(DagsterInvalidDefinitionError) as caught:
        defs.get_repository_def().load_all_definitions()

    assert '["raw", "events"]' in str(caught.value)
    assert "not one of the provided sources" in str(caught.value)


def test_c5_an_external_daily_table_must_say_its_date_column(
    daily: dg.DailyPartitionsDefinition,
) -> None:
    """A daily table without a partition column is refused when it is declared, naming the key."""
    with pytest.raises(WarehouseConfigurationError) as caught:
        external_table_asset(key=["raw", "events"], partitions_def=daily)

    assert '["raw", "events"]' in str(caught.value)
    assert "partition_by_date" in caught.value.remedy


@on_each_engine
@pytest.mark.parametrize("in_one_run", [True, False])
def test_c5_the_metadata_of_an_input_may_name_another_date_column(
    in_one_run: bool, shop: Shop, daily: dg.DailyPartitionsDefinition
) -> None:
    """An input that names another DATE column of the table is filtered by that one."""
    seen: list[int] = []

    def make(context: dg.AssetExecutionContext) -> ir.Table:
        day = date.fromisoformat(context.partition_key)
        orders = table_of(orders_of(day.day))
        return orders.mutate(paid_on=ibis.date(day + timedelta(days=1)))

    @dg.asset(
        partitions_def=daily,
        backfill_policy=dg.BackfillPolicy.single_run(),
        ins={
            "orders": dg.AssetIn(
                key=ORDERS, metadata=warehouse_asset_metadata(partition_by_date="paid_on")
            )
        },
    )
    def report(orders: ir.Table) -> None:
        seen.extend(sorted(orders.to_pyarrow()["order_id"].to_pylist()))

    orders = daily_orders(make, daily)
    shop.run(orders, day=1)
    if in_one_run:
        shop.run(orders, report, day=2)
    else:
        shop.run(orders, day=2)
        shop.run(external_orders(daily), report, day=2)

    assert seen == [10, 11]


@on_each_engine
def test_c5_an_input_naming_a_column_that_is_none_is_refused(
    shop: Shop, daily: dg.DailyPartitionsDefinition
) -> None:
    """An input that names a column which the table does not have, or no DATE, is refused by name."""
    shop.fill(orders_of(1, 2))
    for column in ("paid_on", "order_id"):

        @dg.asset(
            partitions_def=daily,
            ins={
                "orders": dg.AssetIn(
                    key=ORDERS, metadata=warehouse_asset_metadata(partition_by_date=column)
                )
            },
        )
        def report(orders: ir.Table) -> None:
            raise AssertionError

        with shop.refusing(WarehouseError) as caught:
            shop.run(external_orders(daily), report, day=2)

        assert not isinstance(caught.value, WarehouseMaterializationError)
        assert repr(column) in str(caught.value)
        assert "shop.orders" in str(caught.value)


@on_each_engine
@pytest.mark.parametrize(
    "tags",
    [
        {"dagster/partition": key(2)},
        {
            "dagster/asset_partition_range_start": key(2),
            "dagster/asset_partition_range_end": key(2),
        },
    ],
    ids=["one day", "range"],
)
def test_c6_an_unpartitioned_asset_in_a_partitioned_run_is_replaced_whole(
    tags: dict[str, str], shop: Shop, daily: dg.DailyPartitionsDefinition
) -> None:
    """One job of a daily and an unpartitioned asset replaces one day of the first, all of the other."""

    @dg.asset(key=["shop", "currencies"], io_manager_key=WAREHOUSE_IO_MANAGER_KEY)
    def currencies() -> ir.Table:
        return ibis.memtable({"currency": known})

    known = ["DEM", "EUR"]
    shop.run(daily_orders(orders_of(1, 2, 3), daily), currencies, days=(1, 3))
    known.remove("DEM")
    orders = daily_orders(orders_of(2, per_day=1, amount="7.00"), daily)
    defs = dg.Definitions(
        assets=[orders, currencies],
        jobs=[dg.define_asset_job("nightly", selection="*")],
        resources=shop.resources,
    )

    result = defs.resolve_job_def("nightly").execute_in_process(tags=tags, instance=shop.instance)

    assert shop.rows() == [*orders_of(1), order(20, 2, "7.00"), *orders_of(3)]
    assert shop.rows("shop.currencies") == [("EUR",)]
    assert told(result, dg.AssetKey(["shop", "currencies"]))["dagster/row_count"] == 1


@on_each_engine
def test_c6_an_unpartitioned_input_in_a_partitioned_run_is_whole(
    shop: Shop, daily: dg.DailyPartitionsDefinition
) -> None:
    """A daily asset gets all rows of an upstream without partitions, whichever day it runs for."""
    seen: list[date] = []

    shop.run(whole_orders(orders_of(1, 2, 3)), reader(seen, partitions_def=daily), day=2)

    assert seen == mays(1, 3)


def test_c6_an_unpartitioned_report_in_a_partitioned_run_reads_every_day(
    shop: Shop, daily: dg.DailyPartitionsDefinition
) -> None:
    """An asset without partitions reads all days of a daily one, also when that runs for one day."""
    shop.run(daily_orders(orders_of(1, 2, 3), daily), days=(1, 3))
    seen: list[date] = []

    shop.run(daily_orders(orders_of(2, per_day=1), daily), reader(seen), day=2)

    assert seen == mays(1, 3)


def _spring() -> dg.DailyPartitionsDefinition:
    return dg.DailyPartitionsDefinition(
        start_date="2024-04-01", end_date="2024-07-01", timezone="Europe/Berlin"
    )


def _around_may() -> list[Row]:
    return [
        (0, date(2024, 4, 30), Decimal(1)),
        *orders_of(*range(1, 32), per_day=1),
        (999, date(2024, 6, 1), Decimal(1)),
    ]


@on_each_engine
def test_c7_a_month_reads_all_its_days_once(shop: Shop) -> None:
    """A monthly asset gets the 31 days of its month as one table, each row once."""
    shop.fill(_around_may())
    seen: list[date] = []
    monthly = dg.MonthlyPartitionsDefinition(
        start_date="2024-04-01", end_date="2024-07-01", timezone="Europe/Berlin"
    )

    shop.run(
        external_orders(_spring()),
        reader(seen, partitions_def=monthly),
        partition_key="2024-05-01",
    )

    assert seen == mays(1, 31)


def test_c7_an_hourly_upstream_is_refused_when_it_is_declared() -> None:
    """A table cannot be partitioned by hour: declaring one external says so and names the key."""
    hourly = dg.HourlyPartitionsDefinition(start_date="2024-05-01-00:00", timezone="Europe/Berlin")

    with pytest.raises(WarehouseConfigurationError) as caught:
        external_table_asset(key=["shop", "orders"], partitions_def=hourly, partition_by_date="day")

    assert '["shop", "orders"]' in str(caught.value)
    assert "HourlyPartitionsDefinition" in str(caught.value)
    assert "DailyPartitionsDefinition" in caught.value.remedy


def test_c7_an_hourly_upstream_bound_by_hand_is_refused_before_anything_runs(
    shop: Shop, daily: dg.DailyPartitionsDefinition
) -> None:
    """An hourly table that is bound to the warehouse by hand is refused before the asset runs."""
    shop.fill(orders_of(1, 2))
    hourly = dg.HourlyPartitionsDefinition(
        start_date="2024-05-01-00:00", end_date="2024-06-01-00:00", timezone="Europe/Berlin"
    )
    spec = dg.AssetSpec(ORDERS, partitions_def=hourly, metadata=BY_DAY).with_io_manager_key(
        WAREHOUSE_IO_MANAGER_KEY
    )

    seen: list[date] = []

    with refused_before_any_asset(shop) as errors:
        shop.run(spec, reader(seen, partitions_def=daily), day=2)

    assert '["shop", "orders"]' in str(errors[0])
    assert "HourlyPartitionsDefinition" in str(errors[0])
    assert seen == []


@on_each_engine
def test_c8_an_input_needs_no_annotation(shop: Shop, daily: dg.DailyPartitionsDefinition) -> None:
    """An input without an annotation, or with either spelling of Ibis' table, is an Ibis table."""
    shop.fill(orders_of(1, 2))
    inputs: list[object] = []
    ins = {"orders": dg.AssetIn(key=ORDERS)}

    @dg.asset(partitions_def=daily, ins=ins)
    def bare(orders) -> None:  # type: ignore[no-untyped-def]  # noqa: ANN001 - the point of the test
        inputs.append(orders)

    @dg.asset(partitions_def=daily, ins=ins)
    def short(orders: ibis.Table) -> None:
        inputs.append(orders)

    @dg.asset(partitions_def=daily, ins=ins)
    def full(orders: ir.Table) -> None:
        inputs.append(orders)

    shop.run(external_orders(daily), bare, short, full, day=2)

    assert [type(value) for value in inputs] == [ir.Table] * 3


@on_each_engine
def test_c8_an_input_of_another_type_is_refused(
    shop: Shop, daily: dg.DailyPartitionsDefinition
) -> None:
    """An input annotated as anything else is refused, naming the input and the type to use."""
    shop.fill(orders_of(1, 2))

    @dg.asset(partitions_def=daily, ins={"orders": dg.AssetIn(key=ORDERS)})
    def report(orders: pd.DataFrame) -> None:
        raise AssertionError

    with shop.refusing(WarehouseConfigurationError) as caught:
        shop.run(external_orders(daily), report, day=2)

    assert "'orders'" in str(caught.value)
    assert "pandas" in str(caught.value)
    assert "DataFrame" in str(caught.value)
    assert "ibis.Table" in caught.value.remedy
    assert ".to_pandas()" in caught.value.remedy


@on_each_engine
def test_c9_rows_in_memory_live_until_they_are_written(
    shop: Shop, daily: dg.DailyPartitionsDefinition
) -> None:
    """Rows that only the asset's function knew are joined and written, and leave nothing behind."""
    shop.fill(orders_of(1, 2, 3), name="raw.events", day="event_day")

    @dg.asset(
        key=ORDERS,
        partitions_def=daily,
        metadata=BY_DAY,
        io_manager_key=WAREHOUSE_IO_MANAGER_KEY,
        ins={"events": dg.AssetIn(key=["raw", "events"])},
    )
    def orders(events: ir.Table) -> ir.Table:
        rates = ibis.memtable(pd.DataFrame({"order_id": [20, 21], "rate": [2, 3]}))
        joined = events.join(rates, "order_id").rename(day="event_day")
        return joined.select("order_id", "day", amount=joined.amount * joined.rate)

    shop.run(_bound_by_the_sdk(daily), orders, day=2)

    assert [(row[0], row[1], float(row[2])) for row in shop.rows()] == [
        (20, may(2), 19.8),
        (21, may(2), 29.7),
    ]
    assert sorted(shop.tables()) == ["raw.events", "shop.orders"]


def test_a_check_without_partitions_reads_every_day(
    shop: Shop, daily: dg.DailyPartitionsDefinition
) -> None:
    """A check that declares no partitions gets the whole table, also in the run of one day."""
    shop.run(daily_orders(orders_of(1, 2, 3), daily), days=(1, 3))
    seen: list[date] = []

    @dg.asset_check(asset=ORDERS)
    def has_orders(orders: ir.Table) -> dg.AssetCheckResult:
        seen.extend(days_of(orders))
        return dg.AssetCheckResult(passed=bool(seen))

    result = shop.run(daily_orders(orders_of(2), daily), has_orders, day=2)

    assert seen == mays(1, 3)
    assert [check.passed for check in result.get_asset_check_evaluations()] == [True]


def test_a_check_with_partitions_reads_the_runs_day(
    shop: Shop, daily: dg.DailyPartitionsDefinition
) -> None:
    """A check that declares the asset's partitions gets the run's day, or the days of its range."""
    shop.run(daily_orders(orders_of(1, 2, 3, 4), daily), days=(1, 4))
    seen: list[list[date]] = []

    @dg.asset_check(asset=ORDERS, partitions_def=daily)
    def has_orders(orders: ir.Table) -> dg.AssetCheckResult:
        seen.append(days_of(orders))
        return dg.AssetCheckResult(passed=bool(seen[-1]))

    shop.run(daily_orders(orders_of(2), daily), has_orders, day=2)
    shop.run(daily_orders(orders_of(2, 3), daily), has_orders, days=(2, 3))

    assert seen == [[may(2)], mays(2, 3)]
