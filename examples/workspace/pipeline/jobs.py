"""Jobs: what is run together; and when, once somebody turns the schedules on."""

import segmentstream.dagster as dg
from pipeline import bronze, gold, silver

load_lookups = dg.define_asset_job(
    "load_lookups",
    selection=[bronze.airlines, bronze.airports],
    description="Loads the names that the other tables look up.",
)
# Assets of one job share one backfill policy: here runs of at most a month each, ...
load_flights = dg.define_asset_job(
    "load_flights",
    selection=[bronze.flights, silver.flights, gold.departures_and_weather],
    description="Loads days of flights, from the source to what is kept per day.",
)
# ... here a single run, however many days there are.
update_reports = dg.define_asset_job(
    "update_reports",
    selection=[gold.carriers_last_7_days, gold.carriers, gold.destinations],
    description="Sums the flights up: of the last seven days, and of all days.",
)
update_aircraft = dg.define_asset_job(
    "update_aircraft",
    selection=[bronze.aircraft, gold.manufacturers],
    description="Asks the registry for all aircraft, and sums their flights up.",
)

load_flights_schedule = dg.build_schedule_from_partitioned_job(
    load_flights, hour_of_day=6, description="Loads the day before, at six in New York."
)
update_reports_schedule = dg.build_schedule_from_partitioned_job(
    update_reports, hour_of_day=7, description="Sums up at seven, when the day before is in."
)
