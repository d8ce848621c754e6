"""What an input holds, at the edges of Dagster's partition mappings."""

from __future__ import annotations

from datetime import date
from typing import Any

import ibis
import pytest

import segmentstream.dagster as dg
from segmentstream import (
    WAREHOUSE_IO_MANAGER_KEY,
    WarehouseResource,
    external_table_asset,
    warehouse_asset_metadata,
)
from segmentstream._warehouse.tables import TableRef

ONE_DAY = dg.DailyPartitionsDefinition(start_date="2024-05-01", end_date="2024-05-02")
EVENTS = external_table_asset(
    key=["raw", "events"], partitions_def=ONE_DAY, partition_by_date="day"
)


@pytest.fixture
def _three_days(warehouse: WarehouseResource) -> None:
    """A table of someone else's that holds more days than are declared."""
    days = [date(2024, 4, 30), date(2024, 5, 1), date(2024, 5, 2)]
    warehouse.open_engine().replace(
        TableRef(catalog="", namespace="raw", name="events"), ibis.memtable({"day": days})
    )


@pytest.mark.usefixtures("_three_days")
def test_a_daily_asset_gets_its_day_even_where_it_is_the_only_one(
    resources: dict[str, Any], query: Any
) -> None:
    """On the first day of an upstream, one partition is all there are, and still one day."""

    @dg.asset(
        partitions_def=ONE_DAY,
        metadata=warehouse_asset_metadata(partition_by_date="day"),
        ins={"events": dg.AssetIn(key=["raw", "events"])},
        io_manager_key=WAREHOUSE_IO_MANAGER_KEY,
    )
    def copied(events: ibis.Table) -> ibis.Table:
        return events

    dg.materialize([EVENTS, copied], resources=resources, partition_key="2024-05-01")
    assert query("SELECT * FROM copied") == [(date(2024, 5, 1),)]


@pytest.mark.usefixtures("_three_days")
def test_an_asset_without_partitions_gets_the_whole_table(
    resources: dict[str, Any], query: Any
) -> None:
    """Days beyond those declared belong to the table, too."""

    @dg.asset(
        ins={"events": dg.AssetIn(key=["raw", "events"])}, io_manager_key=WAREHOUSE_IO_MANAGER_KEY
    )
    def counted(events: ibis.Table) -> ibis.Table:
        return events.agg(days=events.count())

    dg.materialize([EVENTS, counted], resources=resources)
    assert query("SELECT days FROM counted") == [(3,)]


def test_a_date_that_the_engine_computes_as_a_moment_is_a_date(
    resources: dict[str, Any], query: Any
) -> None:
    """A date plus an interval is a DATE to Ibis and lands as one, whatever DuckDB makes of it."""

    @dg.asset(
        partitions_def=ONE_DAY,
        metadata=warehouse_asset_metadata(partition_by_date="day"),
        io_manager_key=WAREHOUSE_IO_MANAGER_KEY,
    )
    def shifted() -> ibis.Table:
        table = ibis.memtable({"before": [date(2024, 4, 30)]})
        return table.select(day=(table.before + ibis.interval(days=1)).cast("date"))

    dg.materialize([shifted], resources=resources, partition_key="2024-05-01")
    assert query("SELECT day FROM shifted") == [(date(2024, 5, 1),)]
