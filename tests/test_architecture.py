"""Which part may import which library, for parts that are still to come as well."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import segmentstream

SOURCE = Path(segmentstream.__file__).parent.parent

# Library -> the places that may import it: a module, or a package and everything in it.
PLACES = {
    "dagster": [
        "segmentstream._dagster",
        "segmentstream._ingestion.assets",
        "segmentstream.dagster",
        "segmentstream.runtime",
    ],
    "ibis": [
        "segmentstream._dagster",
        "segmentstream._ingestion",
        "segmentstream._warehouse",
        "segmentstream.runtime",
    ],
    "duckdb": ["segmentstream._warehouse.engines.duckdb"],
    "pandas": [],
    "pydantic": [
        "segmentstream._dagster",
        "segmentstream._manifest",
        "segmentstream.connections._manifest",
        "segmentstream.runtime",
        "segmentstream_connections_runtime",
    ],
    "segmentstream_connections_runtime": [
        "segmentstream._clients.local",
        "segmentstream.cli",
        "segmentstream.testing",
        "segmentstream_connections_runtime",
    ],
    "dagster._core": ["segmentstream.runtime.dagster_internals"],
    "dagster._daemon": ["segmentstream.runtime.dagster_internals"],
}


def modules() -> Iterator[tuple[str, ast.Module]]:
    """Every module of both packages, by name."""
    for path in sorted(SOURCE.glob("segmentstream*/**/*.py")):
        parts = path.relative_to(SOURCE).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        yield name, ast.parse(path.read_text())


def imports_of(tree: ast.Module) -> set[str]:
    """The full names that a module imports, wherever in it the import stands."""
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
    return names


def is_within(name: str, place: str) -> bool:
    """Whether a module is a place or lies inside it."""
    return name == place or name.startswith(f"{place}.")


@pytest.mark.parametrize("library", PLACES)
def test_only_its_places_import_a_library(library: str) -> None:
    """A library is imported where the architecture says, and nowhere else."""
    strangers = [
        name
        for name, tree in modules()
        if any(is_within(imported, library) for imported in imports_of(tree))
        and not any(is_within(name, place) for place in PLACES[library])
    ]
    assert strangers == []


def test_the_search_for_imports_finds_them() -> None:
    """The table above would notice an import: those that there are today are found."""
    found = {library for _, tree in modules() for library in imports_of(tree)}
    assert {"dagster", "duckdb", "ibis"} <= found
