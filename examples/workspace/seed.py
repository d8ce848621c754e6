"""Writes the table raw.weather as the workspace of another team would, to the same warehouse.

`make demo` and `make dev` run it when the table is missing; `python seed.py` writes it anew.
"""

import os
import sys
from pathlib import Path

import ibis
import ibis.expr.types as ir
from dotenv import load_dotenv
from pipeline import source

import segmentstream.dagster as dg
from segmentstream import (
    WAREHOUSE_IO_MANAGER_KEY,
    WarehouseReadError,
    WarehouseResource,
    warehouse_resources,
)

WORKSPACE = Path(__file__).resolve().parent
QUIET = {"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}}
WEATHER = ibis.schema(
    {
        "weather_date": "date",
        "origin": "string",
        "temp": "float64",
        "dewp": "float64",
        "humid": "float64",
        "wind_dir": "int64",
        "wind_speed": "float64",
        "wind_gust": "float64",
        "precip": "float64",
        "pressure": "float64",
        "visib": "float64",
        "time_hour": "timestamp('UTC')",
    }
)


@dg.asset(key=["raw", "weather"], io_manager_key=WAREHOUSE_IO_MANAGER_KEY)
def weather() -> ir.Table:
    """Hourly weather at the three airports of New York."""
    return ibis.memtable(source.read_weather().select(WEATHER.names), schema=WEATHER)


def seed(*, only_if_missing: bool = False) -> None:
    """Writes the weather of 2013 to the warehouse that the variables or the .env file name."""
    os.chdir(WORKSPACE)
    load_dotenv(WORKSPACE / ".env")
    if only_if_missing and _is_there():
        return
    # Dagster keeps this run nowhere: it is not one of this workspace.
    dg.materialize([weather], resources=warehouse_resources(), run_config=QUIET)


def _is_there() -> bool:
    try:
        WarehouseResource().table(namespace="raw", name="weather")
    except WarehouseReadError:
        return False
    return True


if __name__ == "__main__":
    seed(only_if_missing="--if-missing" in sys.argv[1:])
