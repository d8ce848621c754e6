"""The command `inspect` as a process: what it prints where, how it ends, what it loads."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from runtime.inspecting import run_inspect, write_workspace
from segmentstream.runtime.__main__ import main
from segmentstream.runtime.exits import Exit
from segmentstream.runtime.inspector.findings import FINDINGS

DOCS = Path(__file__).parent.parent.parent / "docs" / "runtime.md"

_TALKATIVE = """
import os, warnings
print("printed")
os.system("echo by a process")
warnings.warn("warned")
@dg.asset(partitions_def=dg.DailyPartitionsDefinition("2024-05-01", end_offset=1), **BY_DAY, **KEPT)
def orders() -> ir.Table: ...
defs = dg.Definitions([orders], resources=warehouse_resources())
"""
_LOADED = """
import sys
from segmentstream.runtime.__main__ import main
try:
    main(sys.argv[1:])
except SystemExit:
    pass
print(sorted({"dagster", "ibis", "pydantic", "duckdb"} & set(sys.modules)))
"""
_COLLECTED = """
import gc, sys
from segmentstream.runtime.__main__ import main
code = main(sys.argv[1:])
print(code, gc.isenabled(), gc.get_freeze_count() > 100_000)
"""


def test_standard_output_is_the_result_alone(tmp_path: Path) -> None:
    """What the workspace and its processes print, and warnings, go to standard error."""
    write_workspace(tmp_path, _TALKATIVE)

    done = run_inspect(tmp_path, "manifest.json", "--json")

    assert done.returncode == Exit.SUCCEEDED
    report = json.loads(done.stdout)
    assert [each["code"] for each in report["warnings"]] == ["end_offset"]
    assert (report["refused"], report["counts"]["assets"]) == ([], 1)
    for words in ("printed", "by a process", "warned"):
        assert words in done.stderr


def test_a_workspace_that_does_not_load_has_an_exit_code_of_its_own(tmp_path: Path) -> None:
    """The trace shows the workspace's own lines on standard error, and an old manifest stays."""
    write_workspace(tmp_path, "import nothing_of_that_name")
    (tmp_path / "manifest.json").write_text("old")

    done = run_inspect(tmp_path, "manifest.json")

    assert (done.returncode, done.stdout) == (Exit.WORKSPACE, "")
    assert "pipeline/definitions.py:2 in <module>" in done.stderr
    assert str(tmp_path) not in done.stderr
    assert (tmp_path / "manifest.json").read_text() == "old"


def test_a_manifest_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    """Where the file's folder is missing, one sentence says so and nothing is left behind."""
    write_workspace(tmp_path, _TALKATIVE)

    done = run_inspect(tmp_path, "nowhere/manifest.json")

    assert done.returncode == Exit.FAILED
    assert "nowhere/manifest.json cannot be written" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_fault_of_the_inspector_is_told_as_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """An error that is not the workspace's ends with 70 and shows where it came from."""

    def fail(*_: object) -> None:
        raise RuntimeError("unforeseen")

    monkeypatch.setattr("segmentstream.runtime.inspector.command.inspect_workspace", fail)

    assert main(["inspect", str(tmp_path / "manifest.json")]) == Exit.FAULT
    assert "unforeseen" in capsys.readouterr().err


def test_a_wrong_call_ends_with_2(tmp_path: Path) -> None:
    """Without the file to write, the usage is shown."""
    done = run_inspect(tmp_path)

    assert (done.returncode, done.stdout) == (Exit.USAGE, "")
    assert "OUTPUT" in done.stderr


@pytest.mark.parametrize("arguments", [["--help"], ["inspect", "--help"], ["inspect"]])
def test_help_and_wrong_calls_load_no_library(arguments: list[str]) -> None:
    """What needs no workspace answers without Dagster, Ibis or pydantic."""
    done = subprocess.run(
        [sys.executable, "-c", _LOADED, *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )

    assert done.stdout.splitlines()[-1] == "[]"


def test_what_is_imported_is_no_garbage_and_the_rest_is_collected(tmp_path: Path) -> None:
    """Python searches no imported module for garbage, and goes on to search what comes later."""
    write_workspace(tmp_path, "defs = dg.Definitions()")

    done = subprocess.run(
        [sys.executable, "-c", _COLLECTED, "inspect", "manifest.json"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )

    assert done.stdout.splitlines()[-1] == "0 True True"


def test_the_docs_list_every_code() -> None:
    """Each row of the table stands in the docs as the code says it, in the same order."""
    text = DOCS.read_text()
    rows = [
        f"| `{code.value}` | {'refused' if outcome.is_refused else 'warning'} | {outcome.meaning} |"
        for code, outcome in FINDINGS.items()
    ]

    assert "\n".join(rows) in text
