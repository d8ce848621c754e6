"""What an asset key means in a warehouse; imports Dagster, `_warehouse` and `_core`."""

from __future__ import annotations

from collections.abc import Sequence

from dagster import AssetKey

from segmentstream._core.errors import WarehouseConfigurationError
from segmentstream._core.names import identifier_problem
from segmentstream._warehouse.settings import WarehouseSettings
from segmentstream._warehouse.tables import TableRef


def table_of(key: AssetKey, settings: WarehouseSettings) -> TableRef:
    """Gives the table of an asset: `["orders"]` or `["bronze", "orders"]`.

    The catalog always comes from the settings; no key can name another.

    Raises:
        WarehouseConfigurationError: The key has another number of parts, or a part that cannot
            be a name.
    """
    namespace, name = split_key(key)
    return TableRef(
        catalog=settings.catalog, namespace=namespace or settings.default_namespace, name=name
    )


def split_key(key: AssetKey) -> tuple[str | None, str]:
    """Splits a key into its namespace, None for the default one, and its table name.

    Raises:
        WarehouseConfigurationError: As `table_of`.
    """
    for part in key.path:
        if problem := identifier_problem(part):
            raise WarehouseConfigurationError(
                f"The asset key {shown(key)} has the part {part!r}, which {problem}.",
                "Rename the part; names are never changed to make them fit.",
            )
    match key.path:
        case [name]:
            return None, name
        case [namespace, name]:
            return namespace, name
        case _:
            raise WarehouseConfigurationError(
                f"The asset key {shown(key)} has {len(key.path)} parts; a table is named by one or "
                "two.",
                'Use ["orders"] for a table of the default namespace or ["bronze", "orders"] for '
                "one of another.",
            )


def shown(key: AssetKey | Sequence[str]) -> str:
    """Writes a key as the user wrote it: `["bronze", "orders"]`."""
    path = key.path if isinstance(key, AssetKey) else key
    return "[" + ", ".join(f'"{part}"' for part in path) + "]"
