"""What every test starts from: a warehouse of its own in a real DuckDB file, or a BigQuery server."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from datetime import date
from pathlib import Path
from typing import Any

import pytest

import segmentstream.dagster as dg
from bigquery.emulator import Emulator, EmulatorError, running_emulator
from postgres import Postgres, PostgresError, running_postgres
from segmentstream import WarehouseResource, warehouse_resources
from segmentstream._warehouse.engine import WarehouseEngine
from segmentstream._warehouse.registry import create_engine
from segmentstream._warehouse.settings import WarehouseSettings

type Query = Callable[..., list[tuple[Any, ...]]]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Prints how many faults were tried, from all processes."""
    if counts := _totals(terminalreporter, "fault matrix"):
        tried, violations = counts
        terminalreporter.write_line(f"fault matrix: {tried} cases tried, violations: {violations}")
    if counts := _totals(terminalreporter, "renewal crashes"):
        kills, lost, violations = counts
        terminalreporter.write_line(
            f"renewal crashes: {kills} kills, {lost} in the window, violations: {violations}"
        )


def _totals(terminalreporter: pytest.TerminalReporter, wanted: str) -> list[int]:
    counts = [
        value
        for reports in terminalreporter.stats.values()
        for report in reports
        for name, value in getattr(report, "user_properties", ())
        if name == wanted and report.when == "call"
    ]
    return [sum(column) for column in zip(*counts, strict=True)]


@pytest.fixture(autouse=True)
def _own_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keeps the variables of whoever runs the tests out of them."""
    for variable in list(os.environ):
        if variable.startswith(("SEGMENTSTREAM_", "DAGSTER_")):
            monkeypatch.delenv(variable)


@pytest.fixture(scope="session")
def emulator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Emulator]:
    """A BigQuery API server; one for each pytest process, started when a test asks for it."""
    try:
        with running_emulator(tmp_path_factory.mktemp("emulator") / "output.txt") as running:
            yield running
    except EmulatorError as error:
        pytest.fail(str(error), pytrace=False)


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    """A Postgres server; one for each pytest process, started when a test asks for it."""
    try:
        with running_postgres(os.environ) as running:
            yield running
    except PostgresError as error:
        pytest.fail(str(error), pytrace=False)


@pytest.fixture
def catalog(tmp_path: Path) -> Path:
    """The file of the warehouse; it does not exist yet."""
    return tmp_path / "warehouse.duckdb"


@pytest.fixture
def settings(catalog: Path) -> WarehouseSettings:
    """A DuckDB warehouse whose default namespace is `main`."""
    return WarehouseSettings(
        engine="duckdb", catalog=str(catalog), default_namespace="main", wait_seconds=60
    )


@pytest.fixture
def engine(settings: WarehouseSettings) -> WarehouseEngine:
    """The engine of that warehouse."""
    return create_engine(settings)


@pytest.fixture
def warehouse(catalog: Path) -> WarehouseResource:
    """The same warehouse as a Dagster resource."""
    return WarehouseResource(
        engine="duckdb", catalog=str(catalog), default_namespace="main", wait_seconds=60
    )


@pytest.fixture
def resources(warehouse: WarehouseResource) -> dict[str, Any]:
    """The resources of a workspace on that warehouse."""
    return warehouse_resources(warehouse=warehouse)


@pytest.fixture
def query(catalog: Path) -> Query:
    """Reads the file past the SDK, with plain SQL on a connection of its own."""
    import duckdb  # the tests of a missing extra run without it

    def run(sql: str, *parameters: object) -> list[tuple[Any, ...]]:
        with duckdb.connect(catalog, read_only=True) as connection:
            return connection.execute(sql, list(parameters)).fetchall()

    return run


@pytest.fixture
def daily() -> dg.DailyPartitionsDefinition:
    """The days of May 2024 in Berlin."""
    return dg.DailyPartitionsDefinition(
        start_date="2024-05-01", end_date="2024-06-01", timezone="Europe/Berlin"
    )


def may(day: int) -> date:
    """A day of May 2024."""
    return date(2024, 5, day)
