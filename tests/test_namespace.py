"""What a workspace may rely on in `segmentstream.dagster`."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import dagster
import pytest
from dagster import _annotations as marks

import segmentstream.dagster as dg

_SNAPSHOT = Path(__file__).parent / "snapshots" / "dagster_namespace.txt"

# Dagster's own questions about the marks that its decorators leave on an object.
_UNSTABLE: dict[str, Callable[[object], bool]] = {
    "beta": marks.is_beta,
    "deprecated": marks.is_deprecated,
    "preview": marks.is_preview,
    "superseded": marks.is_superseded,
}


@pytest.mark.parametrize("name", dg.__all__)
def test_each_name_is_the_object_of_dagster(name: str) -> None:
    """A name means the same whether a workspace imports it from here or from Dagster."""
    assert getattr(dg, name) is getattr(dagster, name)


def test_the_list_is_sorted_and_without_duplicates() -> None:
    """A reader finds a name, or that it is not there, at a glance."""
    assert list(dg.__all__) == sorted(set(dg.__all__))


def test_the_list_is_exact() -> None:
    """The module has no public name that the list leaves out, and lists none that it lacks."""
    assert sorted(name for name in vars(dg) if not name.startswith("_")) == dg.__all__


def test_the_list_holds_what_the_specification_promises() -> None:
    """The names that workspaces already use are there, whatever else changes."""
    assert {
        "AssetCheckResult",
        "AssetExecutionContext",
        "AssetIn",
        "AssetKey",
        "AssetSelection",
        "BackfillPolicy",
        "Config",
        "DailyPartitionsDefinition",
        "Definitions",
        "Output",
        "asset",
        "asset_check",
        "define_asset_job",
    } <= set(dg.__all__)


def test_a_change_of_the_list_is_deliberate() -> None:
    """Adding or removing a name means changing the snapshot, where a reviewer sees it."""
    assert dg.__all__ == _SNAPSHOT.read_text(encoding="utf-8").split()


@pytest.mark.parametrize("mark", _UNSTABLE)
def test_no_name_is_unstable(mark: str) -> None:
    """Dagster promises every name of the list within its major version, and warns at none."""
    assert [name for name in dg.__all__ if _UNSTABLE[mark](getattr(dagster, name))] == []


@pytest.mark.parametrize(
    ("mark", "name"),
    [
        ("beta", "observable_source_asset"),
        ("deprecated", "SourceAsset"),
        ("preview", "load_definitions_from_module"),
        ("superseded", "MultiAssetSensorDefinition"),
    ],
)
def test_the_marks_of_dagster_are_recognised(mark: str, name: str) -> None:
    """Each question finds a name that Dagster does mark, so an empty answer above means something."""
    assert _UNSTABLE[mark](getattr(dagster, name))


def test_every_name_can_be_imported_with_warnings_as_errors(tmp_path: Path) -> None:
    """A workspace that treats warnings as errors can import each name by itself and all at once."""
    code = (
        "import segmentstream.dagster as dg\n"
        "for name in dg.__all__:\n"
        "    exec(f'from segmentstream.dagster import {name}')\n"
        "from segmentstream.dagster import *\n"
        "assert set(dg.__all__) <= set(dir())\n"
    )
    done = subprocess.run(
        [sys.executable, "-I", "-W", "error", "-c", code],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )

    assert (done.returncode, done.stderr) == (0, "")
