"""What users of other tools reported about writing a table, or a day of it, tried here.

Each test is named after the report it answers (area B); the example is always the same: `orders`
of a shop, one partition a day in Berlin.
"""

import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import ibis
import ibis.expr.types as ir
import pandas as pd
import pytest
from dagster import (
    JobDefinition,
    JobExecutionResult,
    execute_job,
    instance_for_test,
    reconstructable,
)

import segmentstream.dagster as dg
from dagster_adapter.processes import CALLS_VARIABLE, daily_job, misnamed_job
from dagster_adapter.support import (
    BY_DAY,
    ORDERS,
    PARTITION_ROW_COUNT,
    ROW_COUNT,
    SCHEMA,
    Shop,
    daily_orders,
    key,
    may,
    on_each_engine,
    order,
    orders_of,
    refused_before_any_asset,
    table_of,
    told,
    told_by_partition,
    whole_orders,
)
from segmentstream import (
    WAREHOUSE_IO_MANAGER_KEY,
    ColumnMismatchError,
    PartitionDatesError,
    WarehouseMaterializationError,
    warehouse_resources,
)

_STORED = dict(SCHEMA)


@on_each_engine
def test_b1_a_failing_day_keeps_its_old_rows(
    shop: Shop, daily: dg.DailyPartitionsDefinition
) -> None:
    """A run whose expression fails while it is computed leaves the day's old rows and nothing else."""
    shop.run(daily_orders(orders_of(1, 2, 3), daily), days=(1, 3))
    texts = ibis.memtable({"number": ["21", "twenty-two"]})
    broken = texts.select(
        order_id=texts.number.cast("int64"),
        day=may(2),
        amount=ibis.literal(1).cast(SCHEMA["amount"]),
    )

    with shop.refusing(WarehouseMaterializationError) as caught:
        shop.run(daily_orders(lambda _: broken, daily), day=2)

    assert "twenty-two" in str(caught.value)
    assert "shop.orders" in str(caught.value)
    assert shop.ids(2) == [20, 21]
    assert list(shop.tables()) == ["shop.orders"]


@on_each_engine
def test_b1_a_failing_replacement_of_a_whole_table_keeps_it(shop: Shop) -> None:
    """An asset without partitions that fails while it is computed leaves its old table."""
    shop.run(whole_orders(orders_of(1)))
    texts = ibis.memtable({"number": ["21", "twenty-two"]})

    with shop.refusing(WarehouseMaterializationError):
        shop.run(whole_orders(lambda: texts.select(order_id=texts.number.cast("int64"))))


@on_each_engine
def test_b1_a_failing_first_run_leaves_nothing(
    shop: Shop, daily: dg.DailyPartitionsDefinition
) -> None:
    """A first run that fails while it is computed leaves neither a table nor a namespace behind."""
    texts = ibis.memtable({"number": ["twenty-two"]})
    broken = texts.select(order_id=texts.number.cast("int64"), day=may(2))

    with shop.refusing(WarehouseMaterializationError):
        shop.run(daily_orders(lambda _: broken, daily), day=2)

    assert shop.tables() == {}
    assert shop.schemas() == set()


def test_b1_a_reader_beside_a_running_write_sees_the_old_rows(
    shop: Shop, daily: dg.DailyPartitionsDefinition
) -> None:
    """While a write is computing, another connection reads the old rows, and the new ones after it."""
    computing, may_finish = threading.Event(), threading.Event()

    @ibis.udf.scalar.python  # type: ignore[untyped-decorator]  # Ibis ships no types
    def wait_for_the_reader(order_id: int) -> int:
        computing.set()
        assert may_finish.wait(timeout=60)
        return order_id

    def slowly(_: dg.AssetExecutionContext) -> ir.Table:
        new = table_of(orders_of(2, per_day=5, amount="7.00"))
        return new.mutate(order_id=wait_for_the_reader(new.order_id))

    def read_amounts() -> list[Decimal]:
        orders = shop.warehouse.table(name="orders", namespace="shop")
        rows = shop.warehouse.execute(orders.filter(orders.day == may(2)))
        return list(rows.amount)

    shop.run(daily_orders(orders_of(1, 2, 3), daily), days=(1, 3))
    run = threading.Thread(target=shop.run, args=[daily_orders(slowly, daily)], kwargs={"day": 2})
    run.start()
    try:
        assert computing.wait(timeout=60)
        during = read_amounts()
    finally:
        may_finish.set()
        run.join()

    assert during == [Decimal("9.90")] * 2
    assert read_amounts() == [Decimal("7.00")] * 5
    assert list(shop.tables()) == ["shop.orders"]


_REWRITE_A_DAY_FOR_EVER = """
import sys
from datetime import date

import ibis
import segmentstream.dagster as dg
from segmentstream import *

daily = dg.DailyPartitionsDefinition("2024-05-01", end_date="2024-06-01", timezone="Europe/Berlin")
resources = warehouse_resources(
    warehouse=WarehouseResource(
        engine="duckdb", catalog=sys.argv[1], default_namespace="main", wait_seconds=60
    )
)
version = 0

@dg.asset(
    key=["shop", "orders"],
    partitions_def=daily,
    metadata=warehouse_asset_metadata(partition_by_date="day"),
    io_manager_key=WAREHOUSE_IO_MANAGER_KEY,
)
def orders():
    numbers = ibis.range(0, 200_000).unnest().name("order_id").as_table()
    return numbers.mutate(day=date(2024, 5, 2), amount=ibis.literal(version).cast("decimal(12, 2)"))

while True:
    version += 1
    assert dg.materialize([orders], resources=resources, partition_key="2024-05-02").success
    print(version, flush=True)
"""


@pytest.mark.slow
def test_b1_a_reader_of_another_process_sees_one_version_whole(
    shop: Shop, catalog: Path, daily: dg.DailyPartitionsDefinition
) -> None:
    """While another process rewrites a day over and over, each read finds exactly one version."""
    shop.fill([order(1, 2, "0.00"), *orders_of(1, 3)])
    writer = subprocess.Popen(
        [sys.executable, "-c", _REWRITE_A_DAY_FOR_EVER, str(catalog)], stdout=subprocess.PIPE
    )
    orders = shop.warehouse.table(name="orders", namespace="shop")
    day = orders.filter(orders.day == may(2))
    look = day.aggregate(rows=day.count(), low=day.amount.min(), high=day.amount.max())
    seen: dict[int, set[int]] = {}
    give_up_at = time.monotonic() + 120
    try:
        while len(seen) < 3:
            assert writer.poll() is None
            assert time.monotonic() < give_up_at
            found = shop.warehouse.execute(look).iloc[0]
            assert found.low == found.high
            seen.setdefault(int(found.low), set()).add(int(found.rows))
    finally:
        writer.kill()
        writer.communicate()

    assert seen == {version: {200_000 if version else 1} for version in seen}
    assert shop.ids(1) == [10, 11]
    assert shop.ids(3) == [30, 31]


@on_each_engine
def test_b2_a_day_that_runs_again_is_replaced(
    shop: Shop, daily: dg.DailyPartitionsDefinition
) -> None:
    """Running a day again and again never adds to it, and a smaller result makes it smaller."""
    shop.fill(orders_of(1, 3))
    others = [row for row in shop.rows() if row[1] != may(2)]
    counts = []
    for rows in (4, 4, 4, 3):
        result = shop.run(daily_orders(orders_of(2, per_day=rows), daily), day=2)
        assert told(result)[PARTITION_ROW_COUNT] == rows
        counts.append(len(shop.ids(2)))

    assert counts == [4, 4, 4, 3]
    assert [row for row in shop.rows() if row[1] != may(2)] == others


@on_each_engine
def test_b3_replacing_one_day_keeps_the_history(
    shop: Shop, engine_name: str, daily: dg.DailyPartitionsDefinition
) -> None:
    """Of days that were loaded one by one, running one again changes the rows of that day alone."""
    for day in (1, 2, 3, 4):
        shop.run(daily_orders(orders_of(day, per_day=day), daily), day=day)

    result = shop.run(daily_orders(orders_of(2, per_day=5, amount="7.00"), daily), day=2)

    assert told(result)["segmentstream/dates"] == key(2)
    catalog = {"duckdb": "warehouse", "bigquery": shop.warehouse.settings.catalog}[engine_name]
    assert told(result)["dagster/table_name"] == f"{catalog}.shop.orders"
    scheme = {"duckdb": "duckdb:", "bigquery": "bq://"}[engine_name]
    assert told(result)["dagster/uri"].startswith(scheme)
    assert told(result)["dagster/storage_kind"] == engine_name
    assert {
        column.name: column.type for column in told(result)["dagster/column_schema"].columns
    } == {"order_id": "int64", "day": "date", "amount": "decimal(12, 2)"}
    assert shop.rows() == sorted(
        [
            *orders_of(1, per_day=1),
            *orders_of(2, per_day=5, amount="7.00"),
            *orders_of(3, per_day=3),
            *orders_of(4, per_day=4),
        ]
    )


@on_each_engine
def test_b3_excluded_days_within_a_range_are_kept(shop: Shop) -> None:
    """A run over a range neither rewrites nor empties the days that the partitions leave out."""
    working = dg.DailyPartitionsDefinition(
        start_date="2024-05-01",
        end_date="2024-06-01",
        timezone="Europe/Berlin",
        exclusions=[datetime(2024, 5, day, tzinfo=ZoneInfo("Europe/Berlin")) for day in (4, 5)],
    )
    shop.fill(orders_of(*range(1, 9)))

    result = shop.run(
        daily_orders(orders_of(3, 6, 7, per_day=1, amount="7.00"), working), days=(3, 7)
    )

    kept = orders_of(1, 2, 4, 5, 8)
    assert shop.rows() == sorted([*kept, *orders_of(3, 6, 7, per_day=1, amount="7.00")])
    assert sorted(told_by_partition(result), key=str) == [key(3), key(6), key(7)]


@on_each_engine
def test_b4_a_day_without_rows_makes_a_typed_table(
    shop: Shop, daily: dg.DailyPartitionsDefinition
) -> None:
    """A first run without rows succeeds, reports zero rows and makes the table with its types."""
    result = shop.run(daily_orders([], daily), day=2)

    assert told(result)[PARTITION_ROW_COUNT] == 0
    stored = shop.tables()["shop.orders"]
    assert stored.columns == _STORED
    assert stored.rows == []


@on_each_engine
def test_b4_a_day_without_rows_empties_that_day(
    shop: Shop, daily: dg.DailyPartitionsDefinition
) -> None:
    """A run without rows for a day that has some leaves that day empty and the others alone."""
    shop.run(daily_orders(orders_of(1, 2, 3), daily), days=(1, 3))

    result = shop.run(daily_orders([], daily), day=2)

    assert told(result)[PARTITION_ROW_COUNT] == 0
    assert shop.rows() == orders_of(1, 3)
    assert shop.tables()["shop.orders"].columns == _STORED


@on_each_engine
def test_b4_a_whole_table_without_rows_is_empty_and_typed(shop: Shop) -> None:
    """An asset without partitions that gives no rows empties its table and reports zero rows."""
    shop.run(whole_orders(orders_of(1)))

    result = shop.run(whole_orders([]))

    assert told(result)[ROW_COUNT] == 0
    stored = shop.tables()["shop.orders"]
    assert (stored.columns, stored.rows) == (_STORED, [])


@on_each_engine
@pytest.mark.parametrize("before", [[], orders_of(1, 2, 3)], ids=["new table", "existing table"])
def test_b5_rows_of_other_days_are_refused(
    before: list[Any], shop: Shop, daily: dg.DailyPartitionsDefinition
) -> None:
    """A result that forgot its date filter is refused with column, window and stray dates named."""
    if before:
        shop.run(daily_orders(before, daily), days=(1, 3))
    unfiltered = [*orders_of(1, per_day=3), *orders_of(2), *orders_of(3, per_day=4)]

    with shop.refusing(PartitionDatesError) as caught:
        shop.run(daily_orders(unfiltered, daily), day=2)

    message = str(caught.value)
    assert "'day'" in message
    assert "(2024-05-02 of" in message
    assert "2024-05-01 (3 rows)" in message
    assert "2024-05-03 (4 rows)" in message
    assert caught.value.column == "day"
    assert caught.value.stray_dates == {may(1): 3, may(3): 4}
    assert caught.value.stray_rows == 7
    assert caught.value.null_rows == 0


@on_each_engine
def test_b5_rows_beside_a_range_are_refused(
    shop: Shop, daily: dg.DailyPartitionsDefinition
) -> None:
    """A run over several days refuses rows before and after them, and changes none of the days."""
    shop.run(daily_orders(orders_of(1, 2, 3, 4), daily), days=(1, 4))

    with shop.refusing(PartitionDatesError) as caught:
        shop.run(daily_orders(orders_of(1, 2, 3, 4, per_day=1), daily), days=(2, 3))

    assert "(2024-05-02 to 2024-05-03 of" in str(caught.value)
    assert caught.value.stray_dates == {may(1): 1, may(4): 1}


def test_b5_many_stray_dates_are_counted_not_listed(
    shop: Shop, daily: dg.DailyPartitionsDefinition
) -> None:
    """Of very many stray dates five are shown and the rest counted."""
    with shop.refusing(PartitionDatesError) as caught:
        shop.run(daily_orders(orders_of(*range(1, 32)), daily), day=2)

    assert "and 25 more dates" in str(caught.value)
    assert len(caught.value.stray_dates) == 5
    assert caught.value.stray_rows == 60


def test_b5_a_result_that_differs_each_time_is_refused_in_whole_sentences(
    shop: Shop, daily: dg.DailyPartitionsDefinition
) -> None:
    """Stray rows that are gone when they are to be counted do not leave a hole in the message."""
    calls: list[int] = []

    @ibis.udf.scalar.python  # type: ignore[untyped-decorator]  # Ibis ships no types
    def days_too_late(order_id: int) -> int:
        calls.append(order_id)
        return 1 if len(calls) == 1 else 0

    rows = table_of([order(1, 2)])
    late = rows.mutate(day=rows.day + days_too_late(rows.order_id).as_interval("D"))

    with shop.refusing(PartitionDatesError) as caught:
        shop.run(daily_orders(lambda _: late.cast({"day": "date"}), daily), day=2)

    assert ": . " not in str(caught.value)


@on_each_engine
def test_b6_rows_without_a_date_are_refused(
    shop: Shop, daily: dg.DailyPartitionsDefinition
) -> None:
    """A row whose date is NULL is refused with the number of such rows, at every run anew."""
    shop.run(daily_orders(orders_of(1, 2, 3), daily), days=(1, 3))
    undated = daily_orders([*orders_of(2, per_day=4), order(24, None)], daily)

    for _ in range(2):
        with shop.refusing(PartitionDatesError) as caught:
            shop.run(undated, day=2)

        assert "no date at all (1 row" in str(caught.value)
        assert "'day'" in str(caught.value)
        assert (caught.value.null_rows, caught.value.stray_rows) == (1, 0)


@on_each_engine
def test_b7_rows_gone_at_the_source_go(shop: Shop, daily: dg.DailyPartitionsDefinition) -> None:
    """A row that the source no longer has is gone from the day after its next run."""
    source = [order(1, 2), order(2, 2), order(3, 2)]
    orders = daily_orders(lambda _: table_of(source), daily)
    shop.run(orders, day=2)

    del source[1]
    shop.run(orders, day=2)

    assert shop.ids(2) == [1, 3]


def _empty_frame(_: object = None) -> ir.Table:
    frame = pd.DataFrame(columns=[*SCHEMA])
    assert list(frame.dtypes) == [object] * 3
    return ibis.memtable(frame)


@on_each_engine
def test_b8_an_untyped_first_day_fixes_no_types(
    shop: Shop, daily: dg.DailyPartitionsDefinition
) -> None:
    """An empty frame without types is refused, so that the first real rows decide the types."""
    with shop.refusing(WarehouseMaterializationError) as caught:
        shop.run(daily_orders(_empty_frame, daily), day=1)
    assert "'day'" in str(caught.value)

    frame = pd.DataFrame(
        {"order_id": [20, 21], "day": [may(2), may(2)], "amount": [Decimal("9.90")] * 2}
    )
    shop.run(daily_orders(lambda _: ibis.memtable(frame), daily), day=2)

    stored = shop.tables()["shop.orders"]
    assert {**stored.columns} | {"amount": ""} == _STORED | {"amount": ""}
    assert stored.columns["amount"].startswith("decimal")
    assert stored.rows == orders_of(2)


@on_each_engine
def test_b8_an_untyped_whole_table_is_refused(shop: Shop) -> None:
    """An empty frame without types does not replace a table; every untyped column is named."""
    shop.run(whole_orders(orders_of(1)))

    with shop.refusing(ColumnMismatchError) as caught:
        shop.run(whole_orders(_empty_frame))

    assert caught.value.untyped == ("order_id", "day", "amount")


@on_each_engine
def test_b8_an_untyped_empty_day_is_told_how_to_be_typed(
    shop: Shop, daily: dg.DailyPartitionsDefinition
) -> None:
    """The same empty frame, given the types of `orders`, empties the day as its author meant."""
    shop.run(daily_orders(orders_of(1, 2), daily), days=(1, 2))

    shop.run(daily_orders(lambda _: _empty_frame().cast(dict(SCHEMA)), daily), day=2)

    assert shop.rows() == orders_of(1)


@on_each_engine
def test_b9_a_whole_table_is_computed_from_itself(shop: Shop) -> None:
    """An asset that filters its own table keeps exactly the rows that its query gives."""
    shop.run(whole_orders([order(1, 1, "5.00"), order(2, 1, "0.00"), order(3, 2, "7.00")]))

    def only_paid() -> ir.Table:
        orders = shop.warehouse.table(name="orders", namespace="shop")
        return orders.filter(orders.amount > 0)

    result = shop.run(whole_orders(only_paid))

    assert shop.rows() == [order(1, 1, "5.00"), order(3, 2, "7.00")]
    assert told(result)[ROW_COUNT] == 2


@on_each_engine
def test_b9_a_day_is_computed_from_another_day_of_its_table(
    shop: Shop, daily: dg.DailyPartitionsDefinition
) -> None:
    """A day made from the day before of the same table is complete, and the day before stays."""
    shop.run(daily_orders(orders_of(1, 2, 3), daily), days=(1, 3))

    def next_day(_: dg.AssetExecutionContext) -> ir.Table:
        orders = shop.warehouse.table(name="orders", namespace="shop")
        before = orders.filter(orders.day == may(2))
        return before.mutate(order_id=before.order_id + 100, day=ibis.date(may(3)))

    result = shop.run(daily_orders(next_day, daily), day=3)

    assert shop.rows() == [*orders_of(1, 2), order(120, 3), order(121, 3)]
    assert told(result)[PARTITION_ROW_COUNT] == 2


@on_each_engine
def test_b9_a_day_is_computed_from_its_own_rows(
    shop: Shop, daily: dg.DailyPartitionsDefinition
) -> None:
    """A day made from the very rows that it replaces is computed before they go."""
    shop.run(daily_orders(orders_of(1, 2, 3), daily), days=(1, 3))

    def doubled(_: dg.AssetExecutionContext) -> ir.Table:
        orders = shop.warehouse.table(name="orders", namespace="shop")
        return orders.filter(orders.day == may(2)).mutate(amount=orders.amount * 2)

    shop.run(daily_orders(lambda _: doubled(_).cast({"amount": SCHEMA["amount"]}), daily), day=2)

    assert shop.rows() == sorted([*orders_of(1, 3), *orders_of(2, amount="19.80")])


@on_each_engine
def test_b9_a_day_takes_the_day_before_as_its_input(
    shop: Shop, daily: dg.DailyPartitionsDefinition
) -> None:
    """An asset whose input is its own previous day carries rows from one day to the next."""

    @dg.asset(
        key=ORDERS,
        partitions_def=daily,
        metadata=BY_DAY,
        io_manager_key=WAREHOUSE_IO_MANAGER_KEY,
        ins={
            "before": dg.AssetIn(
                key=ORDERS,
                partition_mapping=dg.TimeWindowPartitionMapping(start_offset=-1, end_offset=-1),
            )
        },
    )
    def orders(context: dg.AssetExecutionContext, before: ir.Table) -> ir.Table:
        return before.mutate(
            order_id=before.order_id + 100, day=ibis.date(date.fromisoformat(context.partition_key))
        )

    shop.fill(orders_of(1, 2))
    shop.run(orders, day=3)
    shop.run(orders, day=4)

    assert shop.ids(3) == [120, 121]
    assert shop.ids(4) == [220, 221]
    assert shop.ids(2) == [20, 21]


@on_each_engine
def test_b9_the_first_day_of_an_asset_that_reads_itself_is_empty(
    shop: Shop, daily: dg.DailyPartitionsDefinition
) -> None:
    """On its first day an asset that reads its previous day gets no rows, in the table's types."""
    inputs: list[ir.Table] = []

    @dg.asset(
        key=ORDERS,
        partitions_def=daily,
        metadata=BY_DAY,
        io_manager_key=WAREHOUSE_IO_MANAGER_KEY,
        ins={
            "before": dg.AssetIn(
                key=ORDERS,
                partition_mapping=dg.TimeWindowPartitionMapping(start_offset=-1, end_offset=-1),
            )
        },
    )
    def orders(before: ir.Table) -> ir.Table:
        inputs.append(before)
        return before.union(table_of(orders_of(1)))

    shop.fill(orders_of(2, 3))
    shop.run(orders, day=1)

    assert inputs[0].schema() == ibis.schema(SCHEMA)
    assert shop.rows() == orders_of(1, 2, 3)


@pytest.mark.parametrize("engine_name", ["bigquery"], indirect=True)
def test_b10_partitions_cannot_be_added_to_a_table_of_bigquery(
    shop: Shop, daily: dg.DailyPartitionsDefinition
) -> None:
    """BigQuery decides partitions when a table is made: becoming daily stops, and says how to move."""
    shop.run(whole_orders(orders_of(1, 2, 3)))

    with shop.refusing(WarehouseMaterializationError) as caught:
        shop.run(daily_orders(orders_of(2, per_day=1), daily), day=2)

    assert "is not partitioned; the asset declares one that is partitioned by DAY on 'day'" in str(
        caught.value
    )
    assert "RENAME TO" in caught.value.remedy


def test_b10_partitions_can_be_added_later(shop: Shop, daily: dg.DailyPartitionsDefinition) -> None:
    """An asset that becomes daily replaces one day of the table it used to replace whole."""
    shop.run(whole_orders(orders_of(1, 2, 3)))

    shop.run(daily_orders(orders_of(2, per_day=1, amount="7.00"), daily), day=2)

    assert shop.rows() == [*orders_of(1), order(20, 2, "7.00"), *orders_of(3)]


@on_each_engine
def test_b10_partitions_cannot_be_taken_away_silently(
    shop: Shop, daily: dg.DailyPartitionsDefinition
) -> None:
    """An asset that stops being daily does not wipe its days; it is told what to migrate."""
    shop.fill(orders_of(1, 2, 3))
    shop.run(daily_orders(orders_of(2, per_day=1), daily), day=2)

    with shop.refusing(WarehouseMaterializationError) as caught:
        shop.run(whole_orders(orders_of(4)))

    assert "shop.orders" in str(caught.value)
    assert "'day'" in str(caught.value)
    assert "rename or drop the table" in str(caught.value)


@on_each_engine
def test_b10_a_table_without_the_partition_column_is_kept(
    shop: Shop, daily: dg.DailyPartitionsDefinition
) -> None:
    """An asset that becomes daily over a table that has no such DATE column stops and names it."""
    undated = table_of(orders_of(1)).drop("day")
    shop.run(whole_orders(lambda: undated))

    with shop.refusing(WarehouseMaterializationError) as caught:
        shop.run(daily_orders(orders_of(2), daily), day=2)

    assert "'day'" in str(caught.value)
    assert "shop.orders" in str(caught.value)


@on_each_engine
def test_b11_none_is_refused_in_one_sentence(
    shop: Shop, daily: dg.DailyPartitionsDefinition
) -> None:
    """A function that returns nothing, unannotated, is told to return or to be annotated."""
    shop.run(daily_orders(orders_of(1, 2), daily), days=(1, 2))

    with shop.refusing(WarehouseMaterializationError) as caught:
        shop.run(daily_orders(lambda _: None, daily), day=2)

    assert caught.value.problem == "The asset returned None instead of an Ibis table expression."
    assert "`-> None`" in caught.value.remedy


@on_each_engine
def test_b11_an_asset_that_writes_nothing_changes_nothing(
    shop: Shop, daily: dg.DailyPartitionsDefinition
) -> None:
    """Functions annotated `-> None`, bare results and skipped outputs neither make nor empty tables."""

    @dg.asset(
        key=ORDERS, partitions_def=daily, metadata=BY_DAY, io_manager_key=WAREHOUSE_IO_MANAGER_KEY
    )
    def annotated() -> None:
        pass

    @dg.asset(
        key=ORDERS,
        partitions_def=daily,
        metadata=BY_DAY,
        io_manager_key=WAREHOUSE_IO_MANAGER_KEY,
        output_required=False,
    )
    def conditional() -> Iterator[dg.Output[ir.Table]]:
        yield from ()

    with_a_result = daily_orders(lambda _: dg.MaterializeResult(metadata={"seen": 1}), daily)
    for before in ([], orders_of(1, 2)):
        if before:
            shop.run(daily_orders(before, daily), days=(1, 2))
        for asset in (annotated, conditional, with_a_result):
            with shop.unchanged():
                assert shop.run(asset, day=2).success


@on_each_engine
def test_one_selected_output_writes_one_table(
    shop: Shop, daily: dg.DailyPartitionsDefinition
) -> None:
    """Of an asset with several outputs, only the selected one is written."""

    def out() -> dg.AssetOut:
        return dg.AssetOut(
            key_prefix="shop",
            metadata=BY_DAY,
            io_manager_key=WAREHOUSE_IO_MANAGER_KEY,
            is_required=False,
        )

    @dg.multi_asset(outs={"orders": out(), "refunds": out()}, partitions_def=daily, can_subset=True)
    def sales(context: dg.AssetExecutionContext) -> Iterator[dg.Output[ir.Table]]:
        for name in sorted(context.op_execution_context.selected_output_names):
            yield dg.Output(table_of(orders_of(2)), output_name=name)

    refunds = dg.AssetKey(["shop", "refunds"])
    shop.fill(orders_of(2, amount="1.00"))
    before = shop.tables()

    result = shop.run(sales, day=2, selection=[refunds])

    assert shop.tables()["shop.orders"] == before["shop.orders"]
    assert shop.rows("shop.refunds") == orders_of(2)
    assert told_by_partition(result, ORDERS) == {}
    assert told(result, refunds)[PARTITION_ROW_COUNT] == 2


@on_each_engine
def test_a_run_over_several_days_tells_each_day_its_rows(
    shop: Shop, daily: dg.DailyPartitionsDefinition
) -> None:
    """One run over a range replaces all its days and stamps each partition with its own row count."""
    shop.run(daily_orders(orders_of(1, 2, 3, 4), daily), days=(1, 4))
    rows = [*orders_of(2, per_day=3), *orders_of(4, per_day=1)]

    result = shop.run(daily_orders(rows, daily), days=(2, 4))

    counts = {day: told[PARTITION_ROW_COUNT] for day, told in told_by_partition(result).items()}
    assert counts == {key(2): 3, key(3): 0, key(4): 1}
    assert all(ROW_COUNT not in told for told in told_by_partition(result).values())
    assert shop.rows() == [*orders_of(1), *rows]


@pytest.mark.parametrize("days", [(2, 2), (2, 3)], ids=["one day", "two days"])
@pytest.mark.parametrize("kind", [dg.Output, dg.MaterializeResult])
def test_metadata_of_the_asset_is_not_overwritten(
    days: tuple[int, int],
    kind: Callable[..., object],
    shop: Shop,
    daily: dg.DailyPartitionsDefinition,
) -> None:
    """What the asset says of its own result wins over what the writer would say under that name."""
    own = {PARTITION_ROW_COUNT: 7, "dagster/uri": "mine", "note": "hello"}

    def with_own_metadata(_: dg.AssetExecutionContext) -> object:
        return kind(value=table_of(orders_of(*range(days[0], days[1] + 1))), metadata=own)

    result = shop.run(daily_orders(with_own_metadata, daily), days=days)

    for metadata in told_by_partition(result).values():
        assert {name: metadata[name] for name in own} == own
        assert metadata["dagster/table_name"].endswith("shop.orders")


def _counting(calls: list[str], **options: Any) -> dg.AssetsDefinition:
    """An asset without inputs that notes each call of its function."""
    options = {"key": ["shop", "other"]} | options

    @dg.asset(io_manager_key=WAREHOUSE_IO_MANAGER_KEY, **options)
    def counting() -> ir.Table:
        calls.append("called")
        return table_of(orders_of(2))

    return counting


_DAYS = dg.DailyPartitionsDefinition(
    start_date="2024-05-01", end_date="2024-06-01", timezone="Europe/Berlin"
)
_WEEKS = dg.WeeklyPartitionsDefinition(start_date="2024-04-28", timezone="Europe/Berlin")
_COUNTRIES = dg.StaticPartitionsDefinition(["de", "fr"])
_DAYS_AND_COUNTRIES = dg.MultiPartitionsDefinition({"day": _DAYS, "country": _COUNTRIES})


@pytest.mark.parametrize(
    ("options", "partition_key", "words"),
    [
        pytest.param({"key": ["a", "b", "c"]}, None, ['["a", "b", "c"]', "3 parts"], id="key"),
        pytest.param(
            {"partitions_def": _DAYS}, key(2), ["which column", "partition_by_date"], id="no column"
        ),
        pytest.param(
            {"metadata": BY_DAY}, None, ["'day'", "no partitions"], id="column, no partitions"
        ),
        pytest.param(
            {"partitions_def": _WEEKS, "metadata": BY_DAY},
            "2024-05-05",
            ["WeeklyPartitionsDefinition", "by day"],
            id="weeks",
        ),
        pytest.param(
            {"partitions_def": _COUNTRIES, "metadata": BY_DAY},
            "de",
            ["StaticPartitionsDefinition", "by day"],
            id="countries",
        ),
        pytest.param(
            {"partitions_def": _DAYS_AND_COUNTRIES, "metadata": BY_DAY},
            dg.MultiPartitionKey({"day": key(2), "country": "de"}),
            ["MultiPartitionsDefinition", "by day"],
            id="days and countries",
        ),
    ],
)
def test_a_wrong_declaration_is_found_before_any_asset_is_computed(
    options: dict[str, Any], partition_key: str | None, words: list[str], shop: Shop
) -> None:
    """A key or declaration that cannot work ends the run before the function of the asset is called."""
    calls: list[str] = []

    with refused_before_any_asset(shop) as errors:
        shop.run(_counting(calls, **options), partition_key=partition_key)

    assert calls == []
    assert [word for word in words if word not in str(errors[0])] == []


def test_a_wrong_declaration_stops_the_assets_before_it(shop: Shop) -> None:
    """A wrong asset at the end of a run is found before the right one at its start is computed."""
    calls: list[str] = []
    right = _counting(calls, key=["shop", "right"])

    @dg.asset(
        key=["a", "b", "c"],
        io_manager_key=WAREHOUSE_IO_MANAGER_KEY,
        ins={"right": dg.AssetIn(key=["shop", "right"])},
    )
    def wrong(right: ir.Table) -> ir.Table:
        calls.append("called")
        return right

    with refused_before_any_asset(shop) as errors:
        shop.run(right, wrong)

    assert calls == []
    assert '["a", "b", "c"]' in str(errors[0])


def test_every_wrong_declaration_is_named_at_once(shop: Shop) -> None:
    """Of several wrong assets each one is named, so that one run is enough to find them."""
    calls: list[str] = []
    wrong = [_counting(calls, key=["a", "b", name]) for name in ("c", "d")]

    with refused_before_any_asset(shop) as errors:
        shop.run(*wrong)

    assert calls == []
    assert '["a", "b", "c"]' in str(errors[0])
    assert '["a", "b", "d"]' in str(errors[0])


@pytest.mark.parametrize(
    ("one", "other"),
    [
        pytest.param(["orders"], ["main", "orders"], id="default namespace"),
        pytest.param(["shop", "Orders"], ["shop", "orders"], id="case of the table"),
        pytest.param(["Shop", "orders"], ["shop", "orders"], id="case of the namespace"),
    ],
)
def test_two_keys_of_one_table_are_found_before_any_asset_is_computed(
    one: list[str], other: list[str], shop: Shop
) -> None:
    """Two keys that mean the same table are refused by name, whichever way they spell it."""
    calls: list[str] = []
    twice = [_counting(calls, key=path) for path in (one, other)]

    with refused_before_any_asset(shop) as errors:
        shop.run(*twice)

    assert calls == []
    assert json.dumps(one) in str(errors[0])
    assert json.dumps(other) in str(errors[0])


def test_a_wrong_declaration_is_found_in_a_job_of_definitions(shop: Shop) -> None:
    """A job of the workspace is checked before its first asset is computed, like any other run."""
    calls: list[str] = []
    defs = dg.Definitions(
        assets=[_counting(calls, key=["shop", "right"]), _counting(calls, key=["a", "b", "c"])],
        jobs=[dg.define_asset_job("nightly")],
        resources=shop.resources,
    )

    with refused_before_any_asset(shop) as errors:
        defs.resolve_job_def("nightly").execute_in_process(instance=shop.instance)

    assert calls == []
    assert '["a", "b", "c"]' in str(errors[0])


def test_a_wrong_asset_outside_of_the_run_does_not_stop_it(shop: Shop) -> None:
    """An asset of the workspace that cannot work is no obstacle to a run that does not select it."""
    calls: list[str] = []
    right, wrong = _counting(calls, key=["shop", "right"]), _counting(calls, key=["a", "b", "c"])

    shop.run(right, wrong, selection=[right])

    assert calls == ["called"]
    assert list(shop.tables()) == ["shop.right"]


_VARIABLES = {
    "SEGMENTSTREAM_WAREHOUSE_ENGINE": "duckdb",
    "SEGMENTSTREAM_WAREHOUSE_CATALOG": "shop.duckdb",
    "SEGMENTSTREAM_WAREHOUSE_DEFAULT_NAMESPACE": "main",
}


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        pytest.param(dict.fromkeys(_VARIABLES), [*_VARIABLES], id="none"),
        *(pytest.param({name: None}, [name], id=f"no {name}") for name in _VARIABLES),
        *(pytest.param({name: " "}, [name], id=f"blank {name}") for name in _VARIABLES),
        pytest.param(
            {"SEGMENTSTREAM_WAREHOUSE_ENGINE": "sqlite"},
            ["SEGMENTSTREAM_WAREHOUSE_ENGINE", "'sqlite'", "duckdb"],
            id="unknown engine",
        ),
        pytest.param(
            {"SEGMENTSTREAM_WAREHOUSE_CATALOG": "md:shop"},
            ["SEGMENTSTREAM_WAREHOUSE_CATALOG", "'md:shop'"],
            id="catalog that is no file",
        ),
    ],
)
def test_wrong_variables_are_found_before_any_asset_is_computed(
    changed: dict[str, str | None],
    named: list[str],
    shop: Shop,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    """A missing or invalid variable is named before the function of an asset is called."""
    monkeypatch.chdir(tmp_path)
    for name, value in (_VARIABLES | changed).items():
        if value is not None:
            monkeypatch.setenv(name, value)
    calls: list[str] = []

    with refused_before_any_asset(shop) as errors:
        shop.run(_counting(calls), resources=warehouse_resources())

    assert calls == []
    assert [name for name in named if name not in str(errors[0])] == []
    assert [name for name in _VARIABLES if name not in named and name in str(errors[0])] == []
    assert list(tmp_path.glob("*.duckdb")) == []


@pytest.fixture
def in_processes(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Iterator[Callable[..., tuple[JobExecutionResult, list[str]]]]:
    """Runs a job with a process for each step; gives its result and the calls of its functions."""
    calls = tmp_path / "calls"
    calls.touch()
    monkeypatch.setenv(CALLS_VARIABLE, str(calls))
    # The other processes look for the job's module where this one works.
    monkeypatch.chdir(Path(__file__).parents[1])
    with instance_for_test(temp_dir=str(tmp_path)) as instance:

        def run(
            job: Callable[[], JobDefinition], **tags: str
        ) -> tuple[JobExecutionResult, list[str]]:
            result = execute_job(reconstructable(job), instance=instance, tags=tags)
            return result, calls.read_text().split()

        yield run


def _configure(monkeypatch: pytest.MonkeyPatch, catalog: Path) -> None:
    for name, value in _VARIABLES.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("SEGMENTSTREAM_WAREHOUSE_CATALOG", str(catalog))


@pytest.mark.slow
def test_each_process_of_a_run_writes_and_reads_the_same_warehouse(
    shop: Shop,
    catalog: Path,
    in_processes: Callable[..., tuple[JobExecutionResult, list[str]]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With a process for each step, days are written, read and counted as in a single process."""
    _configure(monkeypatch, catalog)

    result, calls = in_processes(
        daily_job,
        **{
            "dagster/asset_partition_range_start": key(1),
            "dagster/asset_partition_range_end": key(3),
        },
    )

    assert result.success
    assert calls == ["orders", "report"]
    assert shop.rows() == orders_of(1, 2, 3)[:-1]
    assert shop.rows("shop.report") == [(may(1), 2), (may(2), 2), (may(3), 1)]
    counts = {day: told[PARTITION_ROW_COUNT] for day, told in told_by_partition(result).items()}
    assert counts == {key(1): 2, key(2): 2, key(3): 1}


@pytest.mark.slow
@pytest.mark.parametrize("configured", [True, False], ids=["a wrong key", "no variables"])
def test_each_process_of_a_run_finds_what_is_wrong_before_it_computes(
    configured: bool,
    shop: Shop,
    catalog: Path,
    in_processes: Callable[..., tuple[JobExecutionResult, list[str]]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With a process for each step, no function is called when an asset or a variable is wrong."""
    if configured:
        _configure(monkeypatch, catalog)

    with shop.unchanged():
        result, calls = in_processes(misnamed_job, **{"dagster/partition": key(2)})

    assert not result.success
    assert calls == []
    told = "".join(str(event) for event in result.all_events)
    for word in ['["too", "many", "parts"]'] if configured else _VARIABLES:
        assert word in told
