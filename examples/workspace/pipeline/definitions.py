"""The one object that Dagster loads: `defs`."""

import segmentstream.dagster as dg
from pipeline import bronze, checks, gold, jobs, silver
from segmentstream import warehouse_resources

defs = dg.Definitions(
    assets=dg.load_assets_from_modules([bronze, silver, gold], include_specs=True),
    asset_checks=dg.load_asset_checks_from_modules([checks]),
    jobs=[jobs.load_lookups, jobs.load_flights, jobs.update_reports, jobs.update_aircraft],
    schedules=[jobs.load_flights_schedule, jobs.update_reports_schedule],
    resources=warehouse_resources(),
    # A new process for each step costs more than the step itself on tables of this size.
    executor=dg.in_process_executor,
)
