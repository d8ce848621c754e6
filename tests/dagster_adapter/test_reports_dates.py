"""What users of other tools reported about days, windows and time zones, tried here.

Each test is named after the report it answers (area D); the example is always the same: `orders`
of a shop, one partition a day in Berlin.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import ibis
import ibis.expr.types as ir
import pytest
from dagster import DagsterUnknownPartitionError, partition_loading_context

import segmentstream.dagster as dg
from dagster_adapter.support import (
    BY_DAY,
    ORDERS,
    PARTITION_ROW_COUNT,
    Row,
    Shop,
    daily_orders,
    days_of,
    key,
    may,
    on_each_engine,
    orders_of,
    refused_before_any_asset,
    table_of,
    told,
    told_by_partition,
)
from segmentstream import (
    WAREHOUSE_IO_MANAGER_KEY,
    WarehouseError,
    WarehouseMaterializationError,
    external_table_asset,
    warehouse_asset_metadata,
)
from segmentstream._warehouse.engines.duckdb import sql
from segmentstream._warehouse.tables import TableRef

_ZONES = ["Europe/Berlin", "America/New_York", "Asia/Kolkata", "Pacific/Kiritimati", "UTC"]


def may_in(zone: str) -> dg.DailyPartitionsDefinition:
    """The days of May 2024 in a time zone."""
    return dg.DailyPartitionsDefinition(
        start_date="2024-05-01", end_date="2024-06-01", timezone=zone
    )


def copy_of_events(
    partitions_def: dg.DailyPartitionsDefinition, inputs: list[ir.Table]
) -> tuple[dg.AssetSpec, dg.AssetsDefinition]:
    """The external table `raw.events`, and `orders` as a copy of it that notes its inputs."""
    events_key = dg.AssetKey(["raw", "events"])

    @dg.asset(
        key=ORDERS,
        partitions_def=partitions_def,
        metadata=BY_DAY,
        io_manager_key=WAREHOUSE_IO_MANAGER_KEY,
        backfill_policy=dg.BackfillPolicy.single_run(),
        ins={"events": dg.AssetIn(key=events_key)},
    )
    def orders(events: ir.Table) -> ir.Table:
        inputs.append(events)
        return events

    spec = external_table_asset(
        key=events_key, partitions_def=partitions_def, partition_by_date="day"
    )
    return spec, orders


@pytest.mark.parametrize(
    ("engine_name", "zone"),
    [*(("duckdb", zone) for zone in _ZONES), *(("bigquery", zone) for zone in _ZONES[:2])],
    indirect=["engine_name"],
)
def test_d1_a_day_is_the_date_of_its_key(zone: str, shop: Shop) -> None:
    """Day after day, the rows read and written are those of the key's own date, in any zone."""
    shop.fill(orders_of(1, 2, 3), name="raw.events")
    inputs: list[ir.Table] = []
    assets = copy_of_events(may_in(zone), inputs)

    shop.run(*assets, day=1)
    shop.run(*assets, day=2)

    assert shop.rows() == orders_of(1, 2)
    statement = str(ibis.to_sql(inputs[1])).upper()
    assert "DATE(2024, 5, 2)" in statement
    assert "2024, 5, 1" not in statement
    assert "TIMESTAMP" not in statement


def test_d1_a_replaced_day_is_deleted_by_a_plain_date() -> None:
    """The statement that removes a day's old rows compares the bare column with a DATE literal."""
    table = TableRef(catalog="warehouse", namespace="shop", name="orders")

    statement = sql.render(sql.delete_dates(table, "day", {may(2)}))

    assert "CAST('2024-05-02' AS DATE)" in statement
    assert "TIMESTAMP" not in statement


@on_each_engine
def test_d2_a_window_is_half_open(shop: Shop, daily: dg.DailyPartitionsDefinition) -> None:
    """One day is that day, a range ends with its last day, and the day after is never touched."""
    shop.fill(orders_of(1, 2, 3, 4), name="raw.events")
    assets = copy_of_events(daily, [])

    shop.run(*assets, day=2)
    assert shop.rows() == orders_of(2)

    result = shop.run(*assets, days=(2, 3))
    assert shop.rows() == orders_of(2, 3)
    assert sorted(told_by_partition(result), key=str) == [key(2), key(3)]


# 01:30 in Berlin on the tenth; in New York it is still the ninth.
_HALF_PAST_ONE = datetime(2024, 5, 9, 23, 30, tzinfo=UTC)


def _open_ended(end_offset: int) -> dg.DailyPartitionsDefinition:
    return dg.DailyPartitionsDefinition(
        start_date="2024-05-01", timezone="Europe/Berlin", end_offset=end_offset
    )


def _newest_orders(
    partitions_def: dg.DailyPartitionsDefinition, seen: list[date]
) -> list[dg.AssetsDefinition]:
    """Daily `orders` with two rows a day, and a report on their last partition."""

    @dg.asset(ins={"orders": dg.AssetIn(key=ORDERS, partition_mapping=dg.LastPartitionMapping())})
    def report(orders: ir.Table) -> None:
        seen.extend(days_of(orders))

    def make(context: dg.AssetExecutionContext) -> ir.Table:
        return table_of(orders_of(date.fromisoformat(context.partition_key).day))

    return [daily_orders(make, partitions_def), report]


@on_each_engine
@pytest.mark.parametrize(("end_offset", "newest"), [(1, 10), (0, 9)])
def test_d3_the_newest_day_follows_the_zone_and_the_end_offset(
    end_offset: int, newest: int, shop: Shop
) -> None:
    """At half past one in Berlin the newest day is today with end_offset=1, yesterday without."""
    partitions_def = _open_ended(end_offset)
    seen: list[date] = []
    orders, report = _newest_orders(partitions_def, seen)
    shop.fill(orders_of(7))

    with partition_loading_context(effective_dt=_HALF_PAST_ONE):
        assert partitions_def.get_last_partition_key() == key(newest)
        shop.run(orders, day=newest)
        shop.run(orders, report, selection=[report])

    assert shop.rows() == orders_of(7, newest)
    assert seen == [may(newest)]


@on_each_engine
def test_d3_a_day_that_has_not_begun_cannot_be_written(shop: Shop) -> None:
    """Without an end offset today's partition does not exist, and nothing is written for it."""
    orders, _ = _newest_orders(_open_ended(0), [])

    with (
        partition_loading_context(effective_dt=_HALF_PAST_ONE),
        shop.refusing(DagsterUnknownPartitionError) as caught,
    ):
        shop.run(orders, day=10)

    assert "2024-05-10" in str(caught.value)


_RUN_ONE_DAY = """
import json
import sys

import ibis
import ibis.expr.types as ir
import segmentstream.dagster as dg
from segmentstream import *

daily = dg.DailyPartitionsDefinition(
    "2024-03-01", end_date="2024-04-01", timezone="America/New_York"
)
events = external_table_asset(
    key=["raw", "events"], partitions_def=daily, partition_by_date="day"
)
statements = []

@dg.asset(
    key=["shop", "orders"],
    partitions_def=daily,
    metadata=warehouse_asset_metadata(partition_by_date="day"),
    io_manager_key=WAREHOUSE_IO_MANAGER_KEY,
    ins={"events": dg.AssetIn(key=["raw", "events"])},
)
def orders(events: ir.Table) -> ir.Table:
    stamps = events.mutate(
        text=events.loaded_at.cast("string"),
        loaded_on=events.loaded_at.date(),
        hour=events.loaded_at.hour(),
    )
    statements.append(str(ibis.to_sql(stamps)))
    return stamps

warehouse = WarehouseResource(engine="duckdb", catalog=sys.argv[1], default_namespace="main")
dg.materialize(
    [events, orders], resources=warehouse_resources(warehouse=warehouse), partition_key="2024-03-31"
)
print(json.dumps(statements))
"""


@pytest.mark.slow
def test_d4_the_machines_time_zone_changes_nothing(tmp_path: Path) -> None:
    """The same partition gives the same rows and the same SQL wherever the machine thinks it is."""
    zones = ["Asia/Tokyo", "UTC", "America/Los_Angeles"]
    results = []
    runs = []
    for zone in zones:
        catalog = tmp_path / zone.replace("/", "_") / "warehouse.duckdb"
        catalog.parent.mkdir()
        _fill_with_instants(catalog)
        runs.append(
            (
                catalog,
                subprocess.Popen(
                    [sys.executable, "-c", _RUN_ONE_DAY, str(catalog)],
                    env={**os.environ, "TZ": zone},
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    text=True,
                ),
            )
        )
    for catalog, run in runs:
        printed, logged = run.communicate(timeout=120)
        assert run.returncode == 0, logged
        with duckdb.connect(catalog, read_only=True) as connection:
            connection.execute("SET TimeZone = 'UTC'")
            rows = connection.execute(
                "SELECT day, epoch(loaded_at), text, loaded_on, hour FROM shop.orders ORDER BY ALL"
            ).fetchall()
        results.append((rows, json.loads(printed)))

    rows, statements = results[0]
    assert [row[0] for row in rows] == [date(2024, 3, 31)] * 2
    assert "MAKE_DATE(2024, 3, 31)" in statements[0]
    assert results == [results[0]] * len(zones)


def _fill_with_instants(catalog: Path) -> None:
    """Two rows a day whose instants lie close to some zone's midnight."""
    with duckdb.connect(catalog) as connection:
        connection.execute("SET TimeZone = 'UTC'")
        connection.execute("CREATE SCHEMA raw")
        connection.execute("CREATE TABLE raw.events (day DATE, loaded_at TIMESTAMPTZ)")
        for day in (30, 31, 32):
            at = datetime(2024, 3, 1, tzinfo=UTC) + timedelta(days=day - 1)
            for hour in (3, 23):
                connection.execute(
                    "INSERT INTO raw.events VALUES (?, ?)", [at.date(), at.replace(hour=hour)]
                )


@on_each_engine
def test_d5_keys_that_are_no_dates_are_refused_before_anything_runs(shop: Shop) -> None:
    """A key format with a time and an offset is refused at first use, naming the format."""
    stamped = dg.DailyPartitionsDefinition(
        start_date="2024-05-01T00:00:00+0200",
        end_date="2024-06-01T00:00:00+0200",
        timezone="Europe/Berlin",
        fmt="%Y-%m-%dT%H:%M:%S%z",
    )
    calls: list[str] = []

    def make(context: dg.AssetExecutionContext) -> ir.Table:
        calls.append(context.partition_key)
        return table_of(orders_of(2))

    with refused_before_any_asset(shop) as errors:
        shop.run(daily_orders(make, stamped), partition_key="2024-05-02T00:00:00+0200")

    assert calls == []
    assert '["shop", "orders"]' in str(errors[0])
    assert "'%Y-%m-%dT%H:%M:%S%z'" in str(errors[0])
    assert "'%Y-%m-%d'" in errors[0].remedy


def _with_timestamps(_: object = None) -> ir.Table:
    instant = ibis.timestamp("2024-05-02 08:00:00", timezone="UTC")
    return table_of(orders_of(2)).mutate(loaded_at=instant).drop("day")


@on_each_engine
@pytest.mark.parametrize("existing", [False, True])
def test_d5_a_partition_column_that_is_a_timestamp_is_refused(
    existing: bool, shop: Shop, daily: dg.DailyPartitionsDefinition
) -> None:
    """A result whose partition column is a timestamp is refused: it must be a DATE."""
    by_instant = warehouse_asset_metadata(partition_by_date="loaded_at")
    if existing:
        shop.fill(orders_of(1), day="loaded_at")

    with shop.refusing(WarehouseMaterializationError) as caught:
        shop.run(daily_orders(_with_timestamps, daily, metadata=by_instant), day=2)

    assert "partition column 'loaded_at'" in str(caught.value)
    assert "not DATE" in str(caught.value)
    assert ".date()" in caught.value.remedy


def test_d5_a_partition_column_of_an_input_that_is_a_timestamp_is_refused(
    shop: Shop, catalog: Path, daily: dg.DailyPartitionsDefinition
) -> None:
    """A table that was declared by a timestamp column cannot be loaded by day, and is told so."""
    with duckdb.connect(catalog) as connection:
        connection.execute("CREATE SCHEMA raw")
        connection.execute("CREATE TABLE raw.events (order_id BIGINT, loaded_at TIMESTAMPTZ)")
    spec = external_table_asset(
        key=["raw", "events"], partitions_def=daily, partition_by_date="loaded_at"
    )

    @dg.asset(partitions_def=daily, ins={"events": dg.AssetIn(key=["raw", "events"])})
    def report(events: ir.Table) -> None:
        raise AssertionError

    with shop.refusing(WarehouseError) as caught:
        shop.run(spec, report, day=2)

    assert not isinstance(caught.value, WarehouseMaterializationError)
    assert "'loaded_at'" in str(caught.value)
    assert "not DATE" in str(caught.value)
    assert "raw.events" in str(caught.value)


@on_each_engine
def test_d6_a_zone_with_half_an_hour_keeps_the_keys_date(shop: Shop) -> None:
    """In Kolkata, half an hour off, a day is written and read as the date of its key."""
    shop.fill(orders_of(1, 2, 3), name="raw.events")

    result = shop.run(*copy_of_events(may_in("Asia/Kolkata"), []), day=2)

    assert shop.rows() == orders_of(2)
    assert told(result)["segmentstream/dates"] == "2024-05-02"
    assert told(result)[PARTITION_ROW_COUNT] == 2


@on_each_engine
@pytest.mark.parametrize("options", [{"hour_offset": 6}, {"minute_offset": 30}])
def test_d6_days_that_do_not_start_at_midnight_are_refused(
    options: dict[str, Any], shop: Shop
) -> None:
    """Days that start at another time than midnight cannot be dates: refused before anything runs."""
    shifted = dg.DailyPartitionsDefinition(
        start_date="2024-05-01", end_date="2024-06-01", timezone="Europe/Berlin", **options
    )
    calls: list[str] = []

    def make(context: dg.AssetExecutionContext) -> ir.Table:
        calls.append(context.partition_key)
        return table_of(orders_of(2))

    with refused_before_any_asset(shop) as errors:
        shop.run(daily_orders(make, shifted), day=2)

    assert calls == []
    assert '["shop", "orders"]' in str(errors[0])
    assert "midnight" in str(errors[0])
    assert "hour_offset" in errors[0].remedy


def _one_by_one(shop: Shop, assets: tuple[Any, ...], keys: list[str]) -> None:
    for partition_key in keys:
        shop.run(*assets, partition_key=partition_key)


def _all_at_once(shop: Shop, assets: tuple[Any, ...], keys: list[str]) -> None:
    tags = {
        "dagster/asset_partition_range_start": keys[0],
        "dagster/asset_partition_range_end": keys[-1],
    }
    shop.run(*assets, tags=tags)


@pytest.mark.parametrize("load", [_one_by_one, _all_at_once])
@pytest.mark.parametrize(
    ("zone", "first"),
    [
        pytest.param("Africa/Cairo", date(2024, 4, 25), id="no midnight on 2024-04-26"),
        pytest.param("America/New_York", date(2024, 11, 2), id="25 hours on 2024-11-03"),
        pytest.param("Europe/Berlin", date(2024, 3, 30), id="23 hours on 2024-03-31"),
    ],
)
def test_d6_days_of_another_length_are_days_like_others(
    zone: str,
    first: date,
    load: Callable[[Shop, tuple[Any, ...], list[str]], None],
    shop: Shop,
) -> None:
    """Where clocks change, also at midnight, each day is still exactly the date of its key."""
    days = [first + timedelta(days=n) for n in range(-1, 4)]
    wanted = days[1:4]
    rows: list[Row] = [(day.toordinal(), day, Decimal("1.00")) for day in days]
    shop.fill(rows, name="raw.events")
    partitions_def = dg.DailyPartitionsDefinition(
        start_date=f"{first:%Y}-03-01", end_date=f"{first:%Y}-12-01", timezone=zone
    )

    load(shop, copy_of_events(partitions_def, []), [day.isoformat() for day in wanted])

    assert shop.rows() == rows[1:4]


@on_each_engine
def test_d6_a_window_over_a_day_without_midnight_is_complete(shop: Shop) -> None:
    """A rolling window across a day that has no midnight holds that day and its neighbours."""
    cairo = dg.DailyPartitionsDefinition(
        start_date="2024-04-20", end_date="2024-05-10", timezone="Africa/Cairo"
    )
    days = [date(2024, 4, 22) + timedelta(days=n) for n in range(10)]
    shop.fill([(day.toordinal(), day, Decimal("1.00")) for day in days])
    spec = external_table_asset(key=ORDERS, partitions_def=cairo, partition_by_date="day")
    seen: list[date] = []
    window = dg.TimeWindowPartitionMapping(start_offset=-2, end_offset=0)

    @dg.asset(
        partitions_def=cairo, ins={"orders": dg.AssetIn(key=ORDERS, partition_mapping=window)}
    )
    def report(orders: ir.Table) -> None:
        seen.extend(days_of(orders))

    for last in (date(2024, 4, 26), date(2024, 4, 27), date(2024, 4, 28)):
        seen.clear()
        shop.run(spec, report, partition_key=last.isoformat())
        assert seen == [last - timedelta(days=n) for n in (2, 1, 0)]
