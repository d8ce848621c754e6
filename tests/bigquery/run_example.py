"""Runs the whole example workspace in a process of its own; started in a copy of it.

Its argument is a new folder. There it writes each table as Arrow, `tables.json` with their columns
in the terms of Ibis, and `checks.json` with what the asset checks found.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import ibis.expr.datatypes as dt
import pyarrow.feather
from dagster import DagsterInstance

from segmentstream import WarehouseResource

FIRST_DAYS = [f"2013-01-{day:02}" for day in range(1, 6)]
# A day again, the day on which an hour comes twice, and the last one, which has no weather.
SINGLE_DAYS = ["2013-01-03", "2013-11-03", "2013-12-31"]
QUIET = {"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}}
TABLES = (
    "raw.weather",
    "bronze.airlines",
    "bronze.airports",
    "bronze.flights",
    "silver.flights",
    "gold.carriers",
    "gold.carriers_last_7_days",
    "gold.departures_and_weather",
    "gold.destinations",
)


def main(folder: Path) -> None:
    """Loads days in one run and alone, and tells what came of it."""
    import_module("seed").seed()
    defs = import_module("pipeline.definitions").defs
    checks: list[tuple[str, bool, dict[str, Any]]] = []
    with DagsterInstance.ephemeral() as instance:

        def run(job: str, days: Sequence[str] = ()) -> None:
            """Runs a job for one day, or for several in a single run."""
            ends = {"dagster/asset_partition_range_start": days[0]} if len(days) > 1 else {}
            if ends:
                ends["dagster/asset_partition_range_end"] = days[-1]
            done = defs.resolve_job_def(job).execute_in_process(
                instance=instance,
                partition_key=days[0] if len(days) == 1 else None,
                tags=ends,
                run_config=QUIET,
            )
            checks.extend(_told(check) for check in done.get_asset_check_evaluations())

        run("load_lookups")
        run("load_flights", FIRST_DAYS)
        run("update_reports", FIRST_DAYS)
        for day in SINGLE_DAYS:
            run("load_flights", [day])
        run("update_reports", SINGLE_DAYS[-1:])
    (folder / "checks.json").write_text(json.dumps(checks))
    _write_tables(folder)


def _told(check: Any) -> tuple[str, bool, dict[str, Any]]:
    found = {name: value.value for name, value in check.metadata.items()}
    return check.check_name, check.passed, found


def _write_tables(folder: Path) -> None:
    warehouse = WarehouseResource()
    columns = {}
    for name in TABLES:
        namespace, _, table = name.partition(".")
        rows = warehouse.table(namespace=namespace, name=table)
        columns[name] = [(column, _shown(dtype)) for column, dtype in rows.schema().items()]
        pyarrow.feather.write_feather(rows.to_pyarrow(), folder / f"{name}.arrow")
    (folder / "tables.json").write_text(json.dumps(columns))


def _shown(dtype: dt.DataType) -> str:
    # Both keep microseconds; Ibis says so of DuckDB, where other timestamps exist.
    return str(dtype.copy(scale=None) if dtype.is_timestamp() and dtype.scale == 6 else dtype)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
