"""What the warehouse accepts of a key, of partitions and of metadata."""

from __future__ import annotations

from datetime import date, datetime
from typing import Any

import pytest
from dagster import AssetKey, DagsterInvalidDefinitionError, PartitionsDefinition

import segmentstream.dagster as dg
from segmentstream import (
    WAREHOUSE_IO_MANAGER_KEY,
    WarehouseConfigurationError,
    external_table_asset,
    warehouse_asset_metadata,
)
from segmentstream._dagster.declarations import check_declaration, dates_of
from segmentstream._dagster.keys import table_of
from segmentstream._warehouse.settings import WarehouseSettings

SETTINGS = WarehouseSettings(engine="duckdb", catalog="shop.duckdb", default_namespace="main")
BY_DAY = warehouse_asset_metadata(partition_by_date="day")
MAY = "2024-05-01"


@pytest.mark.parametrize(
    ("path", "namespace", "name"),
    [
        (["orders"], "main", "orders"),
        (["bronze", "orders"], "bronze", "orders"),
        (["my-shop", "daily orders"], "my-shop", "daily orders"),
        (["shop", "v1.orders"], "shop", "v1.orders"),
    ],
)
def test_a_key_of_one_or_two_parts_is_a_table(path: list[str], namespace: str, name: str) -> None:
    """The parts are taken as they are; the catalog is the configured one."""
    table = table_of(AssetKey(path), SETTINGS)
    assert (table.catalog, table.namespace, table.name) == ("shop.duckdb", namespace, name)


@pytest.mark.parametrize("path", [["a", "b", "c"], ["a", ""], [" a"], ["a\nb"]])
def test_any_other_key_is_refused(path: list[str]) -> None:
    """The message shows the key as it was written."""
    with pytest.raises(WarehouseConfigurationError, match="The asset key \\["):
        table_of(AssetKey(path), SETTINGS)


@pytest.mark.parametrize(
    "partitions_def",
    [
        dg.DailyPartitionsDefinition(start_date=MAY),
        dg.DailyPartitionsDefinition(start_date=MAY, timezone="Asia/Kolkata"),
        dg.DailyPartitionsDefinition(start_date=MAY, end_offset=1),
        dg.DailyPartitionsDefinition(start_date=MAY, end_date="2024-06-01"),
        # Clocks jump from 0:00 to 1:00 on this day, which therefore has no midnight.
        dg.DailyPartitionsDefinition(start_date="2024-04-26", timezone="Africa/Cairo"),
    ],
    ids=["plain", "half-hour zone", "end offset", "end date", "no midnight"],
)
def test_days_at_midnight_are_accepted(partitions_def: dg.DailyPartitionsDefinition) -> None:
    """Any zone and any offset of the last day; the days are the keys."""
    check_declaration(AssetKey("orders"), BY_DAY, partitions_def)
    first = partitions_def.get_first_partition_key()
    assert first is not None
    assert dates_of([first]) == {date.fromisoformat(first)}


@pytest.mark.parametrize(
    ("partitions_def", "named"),
    [
        (dg.HourlyPartitionsDefinition(start_date=datetime(2024, 5, 1)), "Hourly"),  # noqa: DTZ001
        (dg.WeeklyPartitionsDefinition(start_date=MAY), "Weekly"),
        (dg.MonthlyPartitionsDefinition(start_date=MAY), "Monthly"),
        (dg.StaticPartitionsDefinition([MAY]), "Static"),
        (dg.DynamicPartitionsDefinition(name="days"), "Dynamic"),
        (
            dg.TimeWindowPartitionsDefinition(start=MAY, cron_schedule="0 0 * * *", fmt="%Y-%m-%d"),
            "TimeWindow",
        ),
        (
            dg.MultiPartitionsDefinition(
                {
                    "day": dg.DailyPartitionsDefinition(start_date=MAY),
                    "shop": dg.StaticPartitionsDefinition(["a"]),
                }
            ),
            "Multi",
        ),
        (dg.DailyPartitionsDefinition(start_date=MAY, hour_offset=6), "hour_offset"),
        (dg.DailyPartitionsDefinition(start_date=MAY, minute_offset=30), "minute_offset"),
        (dg.DailyPartitionsDefinition(start_date="2024/05/01", fmt="%Y/%m/%d"), "%Y/%m/%d"),
        (
            dg.DailyPartitionsDefinition(
                start_date="2024-05-01T00:00:00+0000", fmt="%Y-%m-%dT%H:%M:%S%z"
            ),
            "%z",
        ),
    ],
)
def test_anything_else_is_refused(partitions_def: PartitionsDefinition[Any], named: str) -> None:
    """What a DATE column cannot tell is refused by the definition alone."""
    with pytest.raises(WarehouseConfigurationError, match=r'\["shop", "orders"\]') as refused:
        check_declaration(AssetKey(["shop", "orders"]), BY_DAY, partitions_def)
    assert named in str(refused.value)


def test_partitions_and_their_column_belong_together() -> None:
    """Days without a column and a column without days are both refused, with the remedy."""
    daily = dg.DailyPartitionsDefinition(start_date=MAY)
    with pytest.raises(WarehouseConfigurationError, match="which column.*partition_by_date="):
        check_declaration(AssetKey("orders"), {}, daily)
    with pytest.raises(WarehouseConfigurationError, match="has no partitions"):
        check_declaration(AssetKey("orders"), BY_DAY, None)


@pytest.mark.parametrize("column", ["", " day", "da\ny"])
def test_a_partition_column_that_cannot_be_a_name_is_refused_at_import(column: str) -> None:
    """The declaration itself raises, where the user reads it."""
    with pytest.raises(WarehouseConfigurationError, match="partition_by_date is"):
        warehouse_asset_metadata(partition_by_date=column)
    assert warehouse_asset_metadata() == {}


def test_an_external_table_is_a_spec_that_loads_through_the_warehouse() -> None:
    """Everything given is on the spec, and the IO manager is the warehouse's."""
    daily = dg.DailyPartitionsDefinition(start_date=MAY)
    spec = external_table_asset(
        key=["raw", "events"],
        partitions_def=daily,
        partition_by_date="day",
        description="Events of the site.",
        group_name="raw",
        owners=["team:data"],
        tags={"source": "site"},
        kinds={"bigquery"},
        metadata={"own": 1},
    )
    assert (spec.key, spec.partitions_def, spec.description) == (
        AssetKey(["raw", "events"]),
        daily,
        "Events of the site.",
    )
    assert (spec.group_name, list(spec.owners), spec.tags["source"], spec.kinds) == (
        "raw",
        ["team:data"],
        "site",
        {"bigquery"},
    )
    assert spec.metadata["own"] == 1
    assert spec.metadata["segmentstream/partition_by_date"] == "day"
    assert spec.metadata["dagster/io_manager_key"] == WAREHOUSE_IO_MANAGER_KEY


@pytest.mark.parametrize("key", ["events", ["events"], AssetKey("events")])
def test_an_external_table_takes_a_key_in_every_form(key: Any) -> None:
    """A string, a list of parts and an AssetKey mean the same."""
    assert external_table_asset(key=key).key == AssetKey("events")


def test_a_wrong_external_table_is_refused_when_definitions_load() -> None:
    """Its key, partitions and column are checked where they are written."""
    with pytest.raises(WarehouseConfigurationError, match="3 parts"):
        external_table_asset(key=["a", "b", "c"])
    with pytest.raises(WarehouseConfigurationError, match="by day"):
        external_table_asset(
            key="events",
            partitions_def=dg.MonthlyPartitionsDefinition(start_date=MAY),
            partition_by_date="day",
        )
    with pytest.raises(WarehouseConfigurationError, match="has no partitions"):
        external_table_asset(key="events", partition_by_date="day")
    with pytest.raises(DagsterInvalidDefinitionError):
        external_table_asset(key="events", owners=["nobody"])
