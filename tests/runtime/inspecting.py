"""Workspaces that are written, inspected and forgotten."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from segmentstream.runtime.inspector.findings import Finding, Place
from segmentstream.runtime.inspector.inspection import Inspection, inspect_workspace

# What each workspace starts with; one line, so that its lines can be counted from there.
HEAD = (
    "import datetime as dt; import ibis.expr.types as ir; import segmentstream.dagster as dg; "
    "from segmentstream import external_table_asset, warehouse_asset_metadata, warehouse_resources; "
    'KEPT = {"io_manager_key": "warehouse_io"}; '
    'BY_DAY = {"metadata": warehouse_asset_metadata(partition_by_date="day")}; '
    'daily = dg.DailyPartitionsDefinition("2024-05-01", timezone="Europe/Berlin")\n'
)
MARK = "# here"


def write_workspace(folder: Path, code: str, **others: str) -> Path:
    """Writes `pipeline/definitions.py`, and other modules of `pipeline` by name."""
    pipeline = folder / "pipeline"
    pipeline.mkdir(parents=True, exist_ok=True)
    (pipeline / "__init__.py").touch()
    for name, text in {"definitions": code, **others}.items():
        (pipeline / f"{name}.py").write_text(HEAD + textwrap.dedent(text))
    return folder


def inspected(folder: Path, environ: Mapping[str, str] | None = None) -> Inspection:
    """Inspects a workspace in this process, and forgets its modules."""
    with _forgetting():
        return inspect_workspace(folder, environ or {})


def marked(folder: Path) -> set[Place]:
    """The lines that carry the mark."""
    return {
        Place(file=file.relative_to(folder).as_posix(), line=number)
        for file in folder.rglob("*.py")
        for number, line in enumerate(file.read_text().splitlines(), 1)
        if line.endswith(MARK)
    }


def codes(inspection: Inspection) -> list[str]:
    """What was found, in order."""
    return [finding.code.value for finding in inspection.findings]


def only(inspection: Inspection) -> Finding:
    """The one finding there is."""
    assert len(inspection.findings) == 1, [each.text() for each in inspection.findings]
    return inspection.findings[0]


def run_inspect(
    folder: Path, *arguments: str, hash_seed: int = 0, program: str = "", **environ: str
) -> subprocess.CompletedProcess[str]:
    """Runs the command, or a program, in a folder, without any variable of the warehouse."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("SEGMENTSTREAM_", "DAGSTER_"))
    }
    return subprocess.run(
        [
            sys.executable,
            *(["-c", program] if program else ["-m", "segmentstream.runtime", "inspect"]),
            *arguments,
        ],
        cwd=folder,
        env=kept | {"PYTHONHASHSEED": str(hash_seed), "PYTHONDONTWRITEBYTECODE": "1"} | environ,
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )


@contextmanager
def _forgetting() -> Iterator[None]:
    path, modules = list(sys.path), set(sys.modules)
    try:
        yield
    finally:
        sys.path[:] = path
        for name in set(sys.modules) - modules:
            if name.partition(".")[0] in {"pipeline", "definitions", "elsewhere"}:
                del sys.modules[name]
