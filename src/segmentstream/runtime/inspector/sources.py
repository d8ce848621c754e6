"""Where in a workspace something is written; imports Dagster.

The place of an asset is in its function's code. What has none, such as a job, is looked for among
the variables of the workspace's modules, and the line is where its variable gets its value.
"""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import ModuleType

from dagster import AssetKey, AssetsDefinition, AssetSpec

from segmentstream.runtime.inspector.findings import Place

_NOT_THEIRS = {"site-packages", "dist-packages"}


def place_of_file(file: str, line: int | None, folder: Path) -> Place | None:
    """Gives the place of a line of the workspace's own files, None for any other file."""
    relative = _relative(file, folder)
    return None if relative is None else Place(file=relative, line=line)


class Sources:
    """Finds places in one workspace, after it was loaded.

    Args:
        folder: The workspace.
        module: The module that holds its definitions, the place of what is found nowhere else.
    """

    def __init__(self, folder: Path, module: str) -> None:
        self._folder = folder
        self._default = _place_of_definitions(module, folder)
        self._variables: dict[int, Place] | None = None
        self._specs: dict[AssetKey, list[Place]] = {}

    def of_asset(self, definition: object, key: AssetKey) -> Place:
        """Gives the place of an asset, of a check, or of a table that someone else writes."""
        place = self._of_function(definition) or self._of_variable(definition)
        if place is None:
            specs = self._specs.get(key, [])
            # Copies of a specification are told apart by nothing but their order.
            place = specs.pop(0) if len(specs) > 1 else next(iter(specs), None)
        return place or self._default

    def of_object(self, definition: object) -> Place:
        """Gives the place of a job, a schedule or a sensor."""
        return self._of_variable(definition) or self._default

    def _of_function(self, definition: object) -> Place | None:
        if not isinstance(definition, AssetsDefinition) or not definition.is_executable:
            return None
        # The class that holds what was decorated has no public name.
        function = getattr(getattr(definition.node_def, "compute_fn", None), "decorated_fn", None)
        code = getattr(inspect.unwrap(function), "__code__", None) if function else None
        if function is None or code is None:
            return None
        place = place_of_file(code.co_filename, code.co_firstlineno, self._folder)
        return place or Place(file=str(function.__module__))

    def _of_variable(self, definition: object) -> Place | None:
        if self._variables is None:
            self._variables = {}
            for value, place in self._assignments():
                self._variables.setdefault(id(value), place)
                if isinstance(value, AssetSpec):
                    places = self._specs.setdefault(value.key, [])
                    if place not in places:
                        places.append(place)
        return self._variables.get(id(definition))

    def _assignments(self) -> Iterator[tuple[object, Place]]:
        for module in _modules_of(self._folder):
            lines = _assigned_lines(str(module.__file__))
            for name, line in lines.items():
                place = place_of_file(str(module.__file__), line, self._folder)
                if name in vars(module) and place:
                    yield vars(module)[name], place


def _place_of_definitions(module: str, folder: Path) -> Place:
    file = getattr(sys.modules.get(module), "__file__", None) or ""
    place = place_of_file(file, _assigned_lines(file).get("defs"), folder)
    return place or Place(file=module)


@cache
def _relative(file: str, folder: Path) -> str | None:
    if file.startswith("<"):
        return None  # code without a file
    try:
        path = Path(file).resolve().relative_to(folder)
    except ValueError:
        return None
    return None if _NOT_THEIRS & set(path.parts) else path.as_posix()


def files_of(folder: Path) -> list[Path]:
    """Gives the workspace's own files that are loaded, those with Python in them."""
    return [Path(str(module.__file__)) for module in _modules_of(folder)]


def _modules_of(folder: Path) -> list[ModuleType]:
    found = [
        module
        for module in list(sys.modules.values())
        if (file := getattr(module, "__file__", None) or "").endswith(".py")
        and place_of_file(file, None, folder)
    ]
    return sorted(found, key=lambda module: str(module.__file__))


@cache
def _assigned_lines(file: str) -> dict[str, int]:
    """Gives the line of each name that a module assigns or decorates."""
    try:
        body = ast.parse(Path(file).read_text(encoding="utf-8")).body
    except (OSError, SyntaxError, UnicodeDecodeError):
        return {}
    lines = {}
    for statement in body:
        match statement:
            case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
                lines[name] = statement.lineno
            case ast.FunctionDef(name=name, decorator_list=[first, *_]):
                lines[name] = first.lineno
    return lines
