"""The example workspace on BigQuery: the same code, other variables."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow.feather
import pytest

from bigquery.emulator import Emulator
from bigquery.run_example import TABLES

EXAMPLE = Path(__file__).parents[2] / "examples" / "workspace"
RUN = Path(__file__).with_name("run_example.py")
MADE_BY_USE = shutil.ignore_patterns(".dagster", ".tmp*", "*.duckdb*", "__pycache__")

type Rows = list[tuple[Any, ...]]


@pytest.fixture(scope="module")
def on_duckdb(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the example makes with the variables of its own .env file."""
    return _run(tmp_path_factory.mktemp("duckdb"), {})


@pytest.fixture(scope="module")
def on_bigquery(tmp_path_factory: pytest.TempPathFactory, emulator: Emulator) -> Path:
    """What the example makes with variables that name a project of the BigQuery server."""
    variables = {
        "SEGMENTSTREAM_WAREHOUSE_ENGINE": "bigquery",
        "SEGMENTSTREAM_WAREHOUSE_CATALOG": f"test-{uuid4().hex[:12]}",
        "SEGMENTSTREAM_WAREHOUSE_DEFAULT_NAMESPACE": "analytics",
        "BIGQUERY_EMULATOR_HOST": emulator.url,
    }
    return _run(tmp_path_factory.mktemp("bigquery"), variables)


@pytest.mark.slow
def test_the_example_makes_the_same_tables_on_both_engines(
    on_duckdb: Path, on_bigquery: Path
) -> None:
    """Every table has the same columns, in the same order and of the same types, and rows."""
    assert _json(on_bigquery / "tables.json") == _json(on_duckdb / "tables.json")
    for table in TABLES:
        there, here = _rows_of(on_bigquery, table), _rows_of(on_duckdb, table)
        assert here, table
        assert len(there) == len(here), table
        for one, other in zip(there, here, strict=True):
            assert one == tuple(
                pytest.approx(value) if isinstance(value, float) else value for value in other
            )
    assert list(on_bigquery.parent.rglob("*.duckdb*")) == []


@pytest.mark.slow
def test_the_checks_of_the_example_find_the_same_on_both_engines(
    on_duckdb: Path, on_bigquery: Path
) -> None:
    """Each run's checks have the same verdict and figures; none that means a failure fails."""
    told = _json(on_bigquery / "checks.json")

    assert told == _json(on_duckdb / "checks.json")
    assert {name for name, passed, _ in told if not passed} <= {"weather_is_known"}
    assert len({name for name, *_ in told}) == 4


def _run(directory: Path, variables: Mapping[str, str]) -> Path:
    """Runs a copy of the example and gives the folder of what it made."""
    workspace = shutil.copytree(EXAMPLE, directory / "workspace", ignore=MADE_BY_USE)
    made = directory / "made"
    made.mkdir()
    done = subprocess.run(
        [sys.executable, RUN, made],
        cwd=workspace,
        env={
            "PATH": os.defpath,
            "PYTHONPATH": str(workspace),
            "PYTHONDONTWRITEBYTECODE": "1",
            **variables,
        },
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return made


def _rows_of(made: Path, table: str) -> Rows:
    """Gives the rows in an order that no two engines see differently."""
    rows = pyarrow.feather.read_table(made / f"{table}.arrow").to_pylist()
    return sorted((tuple(row.values()) for row in rows), key=_in_order)


def _in_order(row: tuple[Any, ...]) -> list[str]:
    exact = [str(value) for value in row if not isinstance(value, float)]
    return exact + [f"{value:.9g}" for value in row if isinstance(value, float)]


def _json(file: Path) -> Any:
    return json.loads(file.read_text())
