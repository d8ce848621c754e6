"""Gold: tables that answer a question."""

from datetime import date, timedelta

import ibis
import ibis.expr.types as ir

import segmentstream.dagster as dg
from pipeline.partitions import daily
from segmentstream import WAREHOUSE_IO_MANAGER_KEY, warehouse_asset_metadata


@dg.asset(
    key=["gold", "departures_and_weather"],
    ins={
        "flights": dg.AssetIn(key=["silver", "flights"]),
        "weather": dg.AssetIn(key=["raw", "weather"]),
    },
    partitions_def=daily,
    metadata=warehouse_asset_metadata(partition_by_date="flight_date"),
    backfill_policy=dg.BackfillPolicy.multi_run(max_partitions_per_run=31),
    io_manager_key=WAREHOUSE_IO_MANAGER_KEY,
    group_name="gold",
    kinds={"ibis"},
)
def departures_and_weather(flights: ir.Table, weather: ir.Table) -> ir.Table:
    """Departures of each hour at each airport beside the weather there.

    Both inputs hold this run's days only, though another team writes the weather.
    """
    departures = flights.group_by("flight_date", "origin", "departure_hour").agg(
        flights=flights.count(),
        cancelled=flights.is_cancelled.sum(),
        average_delay_minutes=flights.departure_delay_minutes.mean(),
    )
    same_hour = departures.departure_hour == weather.time_hour
    joined = departures.join(weather, ["origin", same_hour], how="left")
    return joined.select(
        *departures.columns,
        temperature_fahrenheit=joined.temp,
        wind_miles_per_hour=joined.wind_speed,
        rain_inches=joined.precip,
        visibility_miles=joined.visib,
    )


@dg.asset(
    key=["gold", "carriers_last_7_days"],
    ins={
        "flights": dg.AssetIn(
            key=["silver", "flights"],
            partition_mapping=dg.TimeWindowPartitionMapping(start_offset=-6, end_offset=0),
        )
    },
    partitions_def=daily,
    metadata=warehouse_asset_metadata(partition_by_date="day"),
    backfill_policy=dg.BackfillPolicy.single_run(),
    io_manager_key=WAREHOUSE_IO_MANAGER_KEY,
    group_name="gold",
    kinds={"ibis"},
)
def carriers_last_7_days(context: dg.AssetExecutionContext, flights: ir.Table) -> ir.Table:
    """How each carrier did in the week that ends on each day.

    `flights` reaches six days further back than the run (less far in the first week of the
    year), so a flight counts towards every day of the run whose week it lies in.
    """
    weeks = ibis.memtable(
        [
            {"day": day, "first_day": day - timedelta(days=6)}
            for day in map(date.fromisoformat, context.partition_keys)
        ],
        schema={"day": "date", "first_day": "date"},
    )
    of_weeks = weeks.join(flights, flights.flight_date.between(weeks.first_day, weeks.day))
    return _punctuality(of_weeks, "day", "carrier", "carrier_name")


@dg.asset(
    key=["gold", "carriers"],
    ins={"flights": dg.AssetIn(key=["silver", "flights"])},
    io_manager_key=WAREHOUSE_IO_MANAGER_KEY,
    group_name="gold",
    kinds={"ibis"},
)
def carriers(flights: ir.Table) -> ir.Table:
    """How each carrier did over all days loaded so far."""
    return _punctuality(flights, "carrier", "carrier_name")


@dg.asset(
    key=["gold", "destinations"],
    ins={
        "flights": dg.AssetIn(key=["silver", "flights"]),
        "airports": dg.AssetIn(key=["bronze", "airports"]),
    },
    io_manager_key=WAREHOUSE_IO_MANAGER_KEY,
    group_name="gold",
    kinds={"ibis"},
)
def destinations(flights: ir.Table, airports: ir.Table) -> ir.Table:
    """How many flights went where over all days loaded so far."""
    counted = flights.group_by("destination").agg(
        flights=flights.count(),
        carriers=flights.carrier.nunique(),
        distance_miles=flights.distance_miles.mean(),
    )
    named = counted.join(airports, counted.destination == airports.faa, how="left")
    return named.select(
        "destination",
        "flights",
        "carriers",
        "distance_miles",
        airport_name=named.name,
        latitude=named.lat,
        longitude=named.lon,
    )


@dg.asset(
    key=["gold", "manufacturers"],
    ins={
        "flights": dg.AssetIn(key=["silver", "flights"]),
        "aircraft": dg.AssetIn(key=["bronze", "aircraft"]),
    },
    io_manager_key=WAREHOUSE_IO_MANAGER_KEY,
    group_name="gold",
    kinds={"ibis"},
)
def manufacturers(flights: ir.Table, aircraft: ir.Table) -> ir.Table:
    """How the aircraft of each manufacturer did over all days loaded so far."""
    flown = flights.join(aircraft, flights.tail_number == aircraft.tailnum)
    return flown.group_by("manufacturer").agg(
        aircraft=flown.tail_number.nunique(),
        flights=flown.count(),
        late_share=flown.is_late.mean(),
        seats_flown=flown.seats.sum(),
    )


def _punctuality(flights: ir.Table, *by: str) -> ir.Table:
    return flights.group_by(*by).agg(
        flights=flights.count(),
        cancelled=flights.is_cancelled.sum(),
        late_share=flights.is_late.mean(),
        average_delay_minutes=flights.arrival_delay_minutes.mean(),
    )
