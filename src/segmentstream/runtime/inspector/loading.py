"""Finds a workspace's definitions and loads them; imports Dagster and `_core`."""

from __future__ import annotations

import sys
import tomllib
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from dagster import Definitions

from segmentstream._core.errors import SegmentStreamError
from segmentstream._core.workspace import DEFINITIONS_FILE, find_workspace
from segmentstream.runtime.inspector.findings import Code, Finding, Place
from segmentstream.runtime.inspector.sources import place_of_file

_NO_MODULE = object()


@dataclass(frozen=True, slots=True, kw_only=True)
class Workspace:
    """Says where definitions are.

    Attributes:
        folder: The workspace.
        module: The module that holds `defs`.
        location: The name of its code location.
    """

    folder: Path
    module: str
    location: str


class WorkspaceError(Exception):
    """Says why a workspace gives no definitions.

    Attributes:
        finding: The same as a finding.
        trace: The way through the workspace's own files, empty where there is none.
    """

    def __init__(self, finding: Finding, trace: str = "") -> None:
        super().__init__(finding.problem)
        self.finding = finding
        self.trace = trace


def find_definitions(start: Path) -> Workspace:
    """Finds the workspace from a folder upwards, and which module holds its definitions.

    `[tool.dg.project]` and `[tool.dagster]` of its pyproject.toml say so as they do to Dagster's
    own tools; without them it is `pipeline/definitions.py`, or a `definitions.py` in the folder.

    Raises:
        WorkspaceError: pyproject.toml cannot be read.
    """
    folder = find_workspace(start) or start.resolve()
    project = _project_file(folder)
    tool = project.get("tool", {})
    dg, dagster = tool.get("dg", {}).get("project", {}), tool.get("dagster", {})
    root = dg.get("root_module")
    module = (
        dg.get("code_location_target_module")
        or dagster.get("module_name")
        or (f"{root}.{DEFINITIONS_FILE.stem}" if root else _default_module(folder))
    )
    name = dg.get("code_location_name") or dagster.get("code_location_name") or module
    return Workspace(folder=folder, module=str(module), location=str(name))


def load_definitions(workspace: Workspace) -> Definitions:
    """Runs the workspace's code and gives its `defs`.

    Raises:
        WorkspaceError: There is none, or the code raises.
    """
    for folder in (workspace.folder / "src", workspace.folder):
        if folder.is_dir() and str(folder) not in sys.path:
            sys.path.insert(0, str(folder))
    file = f"{workspace.module.replace('.', '/')}.py"
    try:
        defs = _import(workspace.module)
    except (Exception, SystemExit) as error:
        raise _broken(error, workspace) from error
    if isinstance(defs, Definitions):
        return defs
    if defs is _NO_MODULE:
        raise _missing(
            f"There is no {file} here.",
            "Run it in the workspace, or name the module in pyproject.toml: "
            "[tool.dg.project] code_location_target_module.",
        )
    found = "no `defs`" if defs is None else f"a `defs` that is a {type(defs).__name__}"
    raise _missing(f"{file} has {found}.", "Write defs = dg.Definitions(...).", Place(file=file))


def _import(module: str) -> object:
    if _is_missing(module):
        return _NO_MODULE
    declared = getattr(import_module(module), "defs", None)
    # What `@definitions` makes is called for the definitions; its class has no public name.
    return declared() if callable(declared) and hasattr(declared, "load_fn") else declared


def _default_module(folder: Path) -> str:
    alone = Path(DEFINITIONS_FILE.name)
    is_alone = not (folder / DEFINITIONS_FILE).is_file() and (folder / alone).is_file()
    return ".".join((alone if is_alone else DEFINITIONS_FILE).with_suffix("").parts)


def _project_file(folder: Path) -> dict[str, Any]:
    path = folder / "pyproject.toml"
    if not path.is_file():
        return {}
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise _missing(
            f"pyproject.toml cannot be read: {error}.", "Correct it.", Place(file=path.name)
        ) from error


def _is_missing(module: str) -> bool:
    try:
        return find_spec(module) is None
    except ModuleNotFoundError as error:
        return error.name is not None and f"{module}.".startswith(f"{error.name}.")


def _missing(problem: str, remedy: str, *places: Place) -> WorkspaceError:
    finding = Finding(
        code=Code.DEFINITIONS_MISSING,
        kind="workspace",
        name="",
        problem=problem,
        remedy=remedy,
        places=places,
    )
    return WorkspaceError(finding)


def _broken(error: BaseException, workspace: Workspace) -> WorkspaceError:
    """Says what the workspace's code raised, where in its own files."""
    chain = list(_chain(error))
    frames = [
        (place, frame)
        for each in chain
        for frame in traceback.extract_tb(each.__traceback__)
        if (place := place_of_file(frame.filename, frame.lineno, workspace.folder))
    ]
    places = [frames[-1][0]] if frames else []
    if isinstance(error, SyntaxError) and error.filename:
        at_fault = place_of_file(error.filename, error.lineno, workspace.folder)
        places = [at_fault] if at_fault else places
    lines = [f"  {place} in {frame.name}\n    {frame.line}" for place, frame in frames]
    words = [f"{type(each).__name__}: {_words(each)}" for each in reversed(chain)]
    ours = next((each for each in chain if isinstance(each, SegmentStreamError)), None)
    finding = Finding(
        code=Code.WORKSPACE_BROKEN,
        kind="workspace",
        name="",
        problem=f"{workspace.module} does not load. {words[0]}".replace(f"{workspace.folder}/", ""),
        remedy=ours.remedy if ours else "Correct it; nothing else could be looked at.",
        places=tuple(places),
    )
    trace = "\n".join([*lines, *reversed(words)]).replace(f"{workspace.folder}/", "")
    return WorkspaceError(finding, trace)


def _words(error: BaseException) -> str:
    return error.problem if isinstance(error, SegmentStreamError) else str(error)


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__
