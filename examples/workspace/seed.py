"""Writes the table raw.weather as another team's job would: with plain DuckDB, past the SDK.

`make demo` and `make dev` run it when the table is missing; `python seed.py` writes it anew.
"""

import os
import sys
from pathlib import Path

import duckdb
from dotenv import load_dotenv
from pipeline.source import find_file

WORKSPACE = Path(__file__).resolve().parent
WEATHER = """
    SELECT make_date(year, month, day) AS weather_date, * EXCLUDE (year, month, day, hour)
    FROM read_csv(?, nullstr = 'NA')
"""


def seed(*, only_if_missing: bool = False) -> None:
    """Writes the weather of 2013 into the DuckDB file that the .env file names."""
    load_dotenv(WORKSPACE / ".env")
    if os.environ.get("SEGMENTSTREAM_WAREHOUSE_ENGINE") != "duckdb":
        print("raw.weather is left to you: seed.py writes to DuckDB only.")
        return
    file = WORKSPACE / os.environ["SEGMENTSTREAM_WAREHOUSE_CATALOG"]
    with duckdb.connect(file) as connection:
        connection.execute("CREATE SCHEMA IF NOT EXISTS raw")
        create = "CREATE TABLE IF NOT EXISTS" if only_if_missing else "CREATE OR REPLACE TABLE"
        connection.execute(f"{create} raw.weather AS {WEATHER}", [str(find_file("weather.csv"))])


if __name__ == "__main__":
    seed(only_if_missing="--if-missing" in sys.argv[1:])
