"""What the README shows is run as it stands there."""

from __future__ import annotations

import re
from datetime import date
from pathlib import Path
from typing import Any

import duckdb
import pytest

import segmentstream.dagster as dg

README = Path(__file__).parent.parent / "README.md"


def block(language: str, containing: str) -> str:
    """The first code block of a language that contains a text."""
    blocks: list[str] = re.findall(rf"```{language}\n(.*?)```", README.read_text(), re.DOTALL)
    return next(found for found in blocks if containing in found)


def test_the_asset_of_the_readme_does_what_it_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The example is complete: with its variables set it replaces one day from a filtered input."""
    monkeypatch.chdir(tmp_path)
    for line in block("bash", "SEGMENTSTREAM_").splitlines():
        variable, value = line.split("#")[0].strip().split("=")
        monkeypatch.setenv(variable, value)
    with duckdb.connect(tmp_path / "warehouse.duckdb") as connection:
        connection.execute("CREATE SCHEMA bronze")
        connection.execute(
            "CREATE TABLE bronze.events AS SELECT * FROM (VALUES"
            " (DATE '2026-01-01', 'a'), (DATE '2026-01-02', 'b'), (DATE '2026-01-02', 'b'),"
            " (DATE '2026-01-02', 'c')) AS events(event_date, session_id)"
        )
    workspace: dict[str, Any] = {}
    exec(block("python", "dg.Definitions"), workspace)
    defs: dg.Definitions = workspace["defs"]
    job = defs.resolve_implicit_global_asset_job_def()
    for _ in range(2):
        assert job.execute_in_process(partition_key="2026-01-02").success
    with duckdb.connect(tmp_path / "warehouse.duckdb") as connection:
        found = connection.execute("SELECT session_date, sessions FROM silver.sessions").fetchall()
    assert found == [(date(2026, 1, 2), 2)]


def test_the_two_commands_come_first_and_exist() -> None:
    """A newcomer meets `make demo` and `make dev` before anything else, and both are targets."""
    text = README.read_text()
    first = text.index("```")
    commands = re.findall(r"^make (\w+)", text[first : text.index("```", first + 3)], re.MULTILINE)
    assert commands == ["demo", "dev"]
    makefile = (README.parent / "Makefile").read_text()
    assert all(re.search(rf"^{command}:", makefile, re.MULTILINE) for command in commands)


def test_every_link_of_the_readme_leads_somewhere() -> None:
    """A file that the README names is there."""
    links = re.findall(r"\]\((?!https?:)([^)#]+)\)", README.read_text())
    assert links
    assert [link for link in links if not (README.parent / link).exists()] == []
