"""Checks of a whole run before the first of its assets is computed.

Imports Dagster, `_warehouse` and `_core`.

Dagster prepares an IO manager before any function runs, but does not show it the assets it will
serve; those that take no input would be looked at only when their result is ready. The run's job
is a local variable of the code that prepares the IO manager, so it is taken from there. Where it
is not found (a later Dagster, an IO manager prepared outside a run) the same checks still run when
an input is loaded and before anything is written.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator
from typing import Any

from dagster import AssetKey, InitResourceContext, JobDefinition, RepositoryDefinition

from segmentstream._core.errors import WarehouseConfigurationError
from segmentstream._core.names import fold_case
from segmentstream._dagster.declarations import WarehouseAsset, read_declaration
from segmentstream._dagster.keys import shown
from segmentstream._warehouse.engine import EngineCapabilities
from segmentstream._warehouse.settings import WarehouseSettings

_EXTERNAL_IO_MANAGER_KEY = "dagster/io_manager_key"


def check_run(
    context: InitResourceContext, settings: WarehouseSettings, capabilities: EngineCapabilities
) -> None:
    """Checks every asset of the run that is kept in the warehouse, and those it takes as inputs.

    Args:
        context: What Dagster gives the IO manager that is being prepared.
        settings: The warehouse.
        capabilities: What its engine can tell apart.

    Raises:
        WarehouseConfigurationError: One or more declarations cannot work, or two keys mean the
            same table; all of them are named.
    """
    graphs = _find_asset_graphs()
    if graphs is None:
        return
    of_run, of_location = graphs
    io_manager_keys = {
        key
        for key, resource in context.all_resource_defs.items()
        if resource is context.resource_def
    }
    assets: list[WarehouseAsset] = []
    problems: list[WarehouseConfigurationError] = []
    for node in _kept_in(of_run, io_manager_keys):
        try:
            asset = _declaration_of(node, settings)
            _check_name(asset, capabilities)
            assets.append(asset)
        except WarehouseConfigurationError as error:
            problems.append(error)
    others = _readable(_kept_in(of_location, io_manager_keys), settings)
    problems += _shared_places(assets, others, ignores_case=capabilities.ignores_case)
    if problems:
        raise _all_of(problems)


# Dagster gives the classes of its asset graph no public name, hence Any below.


def _find_asset_graphs() -> tuple[Any, Any] | None:
    """Gives the assets of the run being prepared, and those of the whole code location.

    Where the run knows nothing beyond its own assets, as in `materialize`, both are the same.
    """
    frame = inspect.currentframe()
    while frame := frame and frame.f_back:
        job = next((v for v in frame.f_locals.values() if isinstance(v, JobDefinition)), None)
        if job is not None:
            of_run = job.asset_layer.asset_graph
            for value in frame.f_locals.values():
                if (repository := getattr(value, "repository", None)) is not None:
                    definition = repository.get_definition()
                    if isinstance(definition, RepositoryDefinition):
                        return of_run, definition.asset_graph
            return of_run, of_run
    return None


def _kept_in(graph: Any, io_manager_keys: set[str]) -> Iterator[Any]:
    return (node for node in graph.asset_nodes if _io_manager_key(node) in io_manager_keys)


def _io_manager_key(node: Any) -> str | None:
    if node.is_executable:
        return str(node.assets_def.get_io_manager_key_for_asset_key(node.key))
    key = node.metadata.get(_EXTERNAL_IO_MANAGER_KEY)
    return None if key is None else str(key)


def _declaration_of(node: Any, settings: WarehouseSettings) -> WarehouseAsset:
    return read_declaration(node.key, node.metadata, node.partitions_def, settings)


def _check_name(asset: WarehouseAsset, capabilities: EngineCapabilities) -> None:
    if problem := capabilities.name_problem(asset.table):
        raise WarehouseConfigurationError(
            f"The asset key {shown(asset.key)} names no table: {problem}.",
            "Rename the asset; names are never changed to make them fit.",
        )


def _readable(nodes: Iterable[Any], settings: WarehouseSettings) -> Iterator[WarehouseAsset]:
    for node in nodes:
        try:
            yield _declaration_of(node, settings)
        except WarehouseConfigurationError:
            continue  # It is not of this run, or has been named already.


def _shared_places(
    assets: Iterable[WarehouseAsset], others: Iterable[WarehouseAsset], *, ignores_case: bool
) -> list[WarehouseConfigurationError]:
    """Finds the others that mean a table, or misspell a namespace, of one of the assets."""
    fold = fold_case if ignores_case else str
    tables: dict[tuple[str, str], AssetKey] = {}
    namespaces: dict[str, WarehouseAsset] = {}
    for asset in assets:
        tables[fold(asset.table.namespace), fold(asset.table.name)] = asset.key
        namespaces[fold(asset.table.namespace)] = asset
    problems = []
    for other in others:
        namespace = fold(other.table.namespace)
        owner = tables.get((namespace, fold(other.table.name)), other.key)
        neighbour = namespaces.get(namespace, other)
        if owner != other.key:
            problems.append(_shared("table", other.table.name, owner, other.key))
        elif neighbour.table.namespace != other.table.namespace:
            problems.append(_shared("namespace", other.table.namespace, neighbour.key, other.key))
    return problems


def _shared(kind: str, name: str, key: AssetKey, other: AssetKey) -> WarehouseConfigurationError:
    return WarehouseConfigurationError(
        f"The asset keys {shown(key)} and {shown(other)} mean the same {kind} {name!r}.",
        "Keep one of them, or rename one.",
    )


def _all_of(problems: list[WarehouseConfigurationError]) -> WarehouseConfigurationError:
    if len(problems) == 1:
        return problems[0]
    listed = "\n".join(f"- {problem}" for problem in problems)
    return WarehouseConfigurationError(
        f"{len(problems)} assets of this run cannot be kept in the warehouse:\n{listed}\n",
        "Nothing was run.",
    )
