"""Silver: one clean row for each thing that happened."""

import ibis.expr.types as ir

import segmentstream.dagster as dg
from pipeline.partitions import daily
from segmentstream import WAREHOUSE_IO_MANAGER_KEY, warehouse_asset_metadata

# The U.S. Department of Transportation counts a flight as late from 15 minutes on.
LATE_FROM_MINUTES = 15


@dg.asset(
    key=["silver", "flights"],
    ins={
        "flights": dg.AssetIn(key=["bronze", "flights"]),
        "airlines": dg.AssetIn(key=["bronze", "airlines"]),
    },
    partitions_def=daily,
    metadata=warehouse_asset_metadata(partition_by_date="flight_date"),
    backfill_policy=dg.BackfillPolicy.multi_run(max_partitions_per_run=31),
    io_manager_key=WAREHOUSE_IO_MANAGER_KEY,
    group_name="silver",
    kinds={"ibis"},
)
def flights(flights: ir.Table, airlines: ir.Table) -> ir.Table:
    """Each flight with its carrier's name, and whether it flew and came in on time.

    `flights` holds the rows of this run's days only, `airlines` the whole table.
    """
    named = flights.join(airlines, "carrier", how="left")
    return named.select(
        "flight_date",
        "carrier",
        "origin",
        carrier_name=named.name,
        flight_number=named.flight,
        tail_number=named.tailnum,
        destination=named.dest,
        departure_hour=named.time_hour,
        is_cancelled=named.dep_time.isnull(),
        is_late=named.arr_delay >= LATE_FROM_MINUTES,
        departure_delay_minutes=named.dep_delay,
        arrival_delay_minutes=named.arr_delay,
        air_time_minutes=named.air_time,
        distance_miles=named.distance,
    )
