"""Tables that someone else writes, as assets; imports Dagster and `_core`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dagster import AssetKey, AssetSpec, PartitionsDefinition

from segmentstream._core.names import WAREHOUSE_IO_MANAGER_KEY
from segmentstream._dagster.declarations import check_declaration
from segmentstream._dagster.metadata import warehouse_asset_metadata


def external_table_asset(
    *,
    key: AssetKey | Sequence[str] | str,
    partitions_def: PartitionsDefinition[Any] | None = None,
    partition_by_date: str | None = None,
    description: str | None = None,
    group_name: str | None = None,
    owners: Sequence[str] | None = None,
    tags: Mapping[str, str] | None = None,
    kinds: set[str] | None = None,
    metadata: Mapping[str, Any] | None = None,
) -> AssetSpec:
    """Declares a table that someone else writes, so that assets can take it as an input.

    List the result among the assets of `Definitions`; `load_assets_from_modules` finds it with
    `include_specs=True`.

    Args:
        key: `["orders"]` or `["bronze", "orders"]`, as for any asset of the warehouse.
        partitions_def: Daily partitions, when inputs are to be filtered to a run's dates.
        partition_by_date: The DATE column that holds the partition's day.
        description: What a person reads in Dagster.
        group_name: The asset's group.
        owners: E-mail addresses or `team:...`.
        tags: Dagster tags.
        kinds: Dagster kinds.
        metadata: More metadata of the asset.

    Raises:
        WarehouseConfigurationError: The key, the partitions or the column cannot work.
    """
    asset_key = AssetKey.from_coercible(key)
    declared = {
        **(metadata or {}),
        **warehouse_asset_metadata(partition_by_date=partition_by_date),
    }
    check_declaration(asset_key, declared, partitions_def)
    return AssetSpec(
        asset_key,
        partitions_def=partitions_def,
        description=description,
        group_name=group_name,
        owners=owners,
        tags=tags,
        kinds=kinds,
        metadata=declared,
    ).with_io_manager_key(WAREHOUSE_IO_MANAGER_KEY)
