"""Bronze: what comes in, as it comes in."""

import ibis
import ibis.expr.types as ir

import segmentstream.dagster as dg
from pipeline import source
from pipeline.partitions import daily
from segmentstream import (
    WAREHOUSE_IO_MANAGER_KEY,
    external_table_asset,
    get_connection,
    warehouse_asset_metadata,
)

# Types are declared, not guessed from a day's rows: a day without a single delay must fit too.
FLIGHTS = ibis.schema(
    {
        "flight_date": "date",
        "carrier": "string",
        "flight": "int64",
        "tailnum": "string",
        "origin": "string",
        "dest": "string",
        "sched_dep_time": "int64",
        "dep_time": "int64",
        "dep_delay": "int64",
        "sched_arr_time": "int64",
        "arr_time": "int64",
        "arr_delay": "int64",
        "air_time": "int64",
        "distance": "int64",
        "time_hour": "timestamp('UTC')",
    }
)
AIRLINES = ibis.schema({"carrier": "string", "name": "string"})
AIRPORTS = ibis.schema(
    {"faa": "string", "name": "string", "lat": "float64", "lon": "float64", "tzone": "string"}
)

AIRCRAFT = ibis.schema(
    {
        "tailnum": "string",
        "year": "int64",
        "manufacturer": "string",
        "model": "string",
        "engines": "int64",
        "seats": "int64",
    }
)

weather = external_table_asset(
    key=["raw", "weather"],
    partitions_def=daily,
    partition_by_date="weather_date",
    group_name="raw",
    description="Hourly weather at the three airports; another team writes it (see seed.py).",
)


@dg.asset(
    key=["bronze", "flights"],
    partitions_def=daily,
    metadata=warehouse_asset_metadata(partition_by_date="flight_date"),
    backfill_policy=dg.BackfillPolicy.multi_run(max_partitions_per_run=31),
    io_manager_key=WAREHOUSE_IO_MANAGER_KEY,
    group_name="bronze",
    kinds={"ibis"},
)
def flights(context: dg.AssetExecutionContext) -> ir.Table:
    """Each flight that was to leave New York, as the source has it.

    The rows pass through memory, so a backfill takes at most a month per run.
    """
    rows = source.read_flights(context.partition_keys)
    return ibis.memtable(rows.select(FLIGHTS.names), schema=FLIGHTS)


@dg.asset(
    key=["bronze", "airlines"],
    io_manager_key=WAREHOUSE_IO_MANAGER_KEY,
    group_name="bronze",
    kinds={"ibis"},
)
def airlines() -> ir.Table:
    """The name of each carrier."""
    return ibis.memtable(source.read_airlines().select(AIRLINES.names), schema=AIRLINES)


@dg.asset(
    key=["bronze", "airports"],
    io_manager_key=WAREHOUSE_IO_MANAGER_KEY,
    group_name="bronze",
    kinds={"ibis"},
)
def airports() -> ir.Table:
    """The name and place of each airport in the United States."""
    return ibis.memtable(source.read_airports().select(AIRPORTS.names), schema=AIRPORTS)


@dg.asset(
    key=["bronze", "aircraft"],
    io_manager_key=WAREHOUSE_IO_MANAGER_KEY,
    group_name="bronze",
    kinds={"ibis"},
)
def aircraft() -> ir.Table:
    """Each aircraft in the registry, page by page from its API.

    The registry wants a login: `segmentstream connect aircraft_registry`, once. The client sends
    the token along and renews it.
    """
    rows: list[dict[str, object]] = []
    with get_connection("aircraft_registry").client() as http:
        page: str | None = "aircraft"
        while page:
            answer = http.get(page).raise_for_status().json()
            rows += answer["items"]
            page = answer["next"]
    return ibis.memtable(
        [{name: row[name] for name in AIRCRAFT.names} for row in rows], schema=AIRCRAFT
    )
