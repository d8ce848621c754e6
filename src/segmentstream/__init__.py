"""Warehouse pipelines with Dagster and Ibis: the public names of the SDK.

Importing this package loads neither Dagster nor Ibis; a name is imported when it is first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from segmentstream._clients.connection import Connection, get_connection
    from segmentstream._core.errors import (
        ColumnMismatchError,
        ConnectionAccessError,
        ConnectionDeclarationError,
        ConnectionRequestError,
        PartitionDatesError,
        ReauthorizationRequiredError,
        SegmentStreamError,
        WarehouseConfigurationError,
        WarehouseConnectionError,
        WarehouseError,
        WarehouseMaterializationError,
        WarehouseReadError,
    )
    from segmentstream._core.names import WAREHOUSE_IO_MANAGER_KEY, WAREHOUSE_RESOURCE_KEY
    from segmentstream._dagster.connection import ConnectionResource
    from segmentstream._dagster.external import external_table_asset
    from segmentstream._dagster.io_manager import WarehouseIOManager, warehouse_resources
    from segmentstream._dagster.metadata import warehouse_asset_metadata
    from segmentstream._dagster.resource import WarehouseResource

__all__ = [
    "WAREHOUSE_IO_MANAGER_KEY",
    "WAREHOUSE_RESOURCE_KEY",
    "ColumnMismatchError",
    "Connection",
    "ConnectionAccessError",
    "ConnectionDeclarationError",
    "ConnectionRequestError",
    "ConnectionResource",
    "PartitionDatesError",
    "ReauthorizationRequiredError",
    "SegmentStreamError",
    "WarehouseConfigurationError",
    "WarehouseConnectionError",
    "WarehouseError",
    "WarehouseIOManager",
    "WarehouseMaterializationError",
    "WarehouseReadError",
    "WarehouseResource",
    "external_table_asset",
    "get_connection",
    "warehouse_asset_metadata",
    "warehouse_resources",
]

_HOMES = {
    "WAREHOUSE_IO_MANAGER_KEY": "_core.names",
    "WAREHOUSE_RESOURCE_KEY": "_core.names",
    "Connection": "_clients.connection",
    "ConnectionResource": "_dagster.connection",
    "WarehouseIOManager": "_dagster.io_manager",
    "WarehouseResource": "_dagster.resource",
    "external_table_asset": "_dagster.external",
    "get_connection": "_clients.connection",
    "warehouse_asset_metadata": "_dagster.metadata",
    "warehouse_resources": "_dagster.io_manager",
}

if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        home = _HOMES.get(name, "_core.errors")
        value = getattr(import_module(f"{__name__}.{home}"), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
