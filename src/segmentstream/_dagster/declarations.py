"""What the warehouse accepts of an asset, checked from its definition alone.

Imports Dagster, `_warehouse` and `_core`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import date
from typing import Any

from dagster import AssetKey, DailyPartitionsDefinition, PartitionsDefinition

from segmentstream._core.errors import WarehouseConfigurationError
from segmentstream._dagster.keys import shown, split_key, table_of
from segmentstream._dagster.metadata import partition_column_of
from segmentstream._warehouse.settings import WarehouseSettings
from segmentstream._warehouse.tables import TableRef

_KEY_FORMAT = "%Y-%m-%d"
_MIDNIGHT = "0 0 * * *"


@dataclass(frozen=True, slots=True, kw_only=True)
class WarehouseAsset:
    """Is an asset whose declaration the warehouse accepts.

    Attributes:
        key: Its asset key.
        table: The table it is kept in.
        partition_column: The DATE column of a daily asset, None for one without partitions.
    """

    key: AssetKey
    table: TableRef
    partition_column: str | None


def read_declaration(
    key: AssetKey,
    metadata: Mapping[str, Any],
    partitions_def: PartitionsDefinition[Any] | None,
    settings: WarehouseSettings,
) -> WarehouseAsset:
    """Reads what an asset declares.

    Raises:
        WarehouseConfigurationError: The key names no table, the partitions are not daily at
            midnight, or the partition column is missing or has nothing to belong to.
    """
    check_declaration(key, metadata, partitions_def)
    return WarehouseAsset(
        key=key, table=table_of(key, settings), partition_column=partition_column_of(metadata)
    )


def check_declaration(
    key: AssetKey, metadata: Mapping[str, Any], partitions_def: PartitionsDefinition[Any] | None
) -> None:
    """Checks what can be told without knowing the warehouse.

    Raises:
        WarehouseConfigurationError: As `read_declaration`.
    """
    split_key(key)
    if partitions_def is not None:
        check_daily(key, partitions_def)
    check_partition_column(key, metadata, partitions_def)


def check_partition_column(
    key: AssetKey, metadata: Mapping[str, Any], partitions_def: PartitionsDefinition[Any] | None
) -> None:
    """Checks that an asset names the column of its partitions, and none without partitions.

    Raises:
        WarehouseConfigurationError: It does not.
    """
    column = partition_column_of(metadata)
    if partitions_def is None:
        if column:
            raise WarehouseConfigurationError(
                f"The asset {shown(key)} declares partition_by_date={column!r} but has no "
                "partitions.",
                "Give it a DailyPartitionsDefinition, or remove partition_by_date.",
            )
        return
    if not column:
        raise WarehouseConfigurationError(
            f"The asset {shown(key)} has daily partitions but does not say which column holds "
            "their date.",
            'Add metadata=warehouse_asset_metadata(partition_by_date="<its DATE column>").',
        )


def check_daily(key: AssetKey, partitions_def: PartitionsDefinition[Any]) -> None:
    """Checks that a DATE column can hold the partitions.

    Raises:
        WarehouseConfigurationError: They are anything but days from midnight.
    """
    if not isinstance(partitions_def, DailyPartitionsDefinition):
        raise WarehouseConfigurationError(
            f"The asset {shown(key)} has a {type(partitions_def).__name__}; a table is partitioned "
            "by day.",
            "Use DailyPartitionsDefinition, or no partitions.",
        )
    if partitions_def.fmt != _KEY_FORMAT:
        raise WarehouseConfigurationError(
            f"The partition keys of {shown(key)} are written as {partitions_def.fmt!r}.",
            f"Leave fmt at {_KEY_FORMAT!r}, the form of a DATE.",
        )
    if partitions_def.cron_schedule != _MIDNIGHT:
        raise WarehouseConfigurationError(
            f"The partitions of {shown(key)} start at cron time {partitions_def.cron_schedule!r}; "
            "a DATE column can only hold days that start at midnight.",
            "Remove hour_offset and minute_offset.",
        )


def dates_of(partition_keys: Iterable[str]) -> frozenset[date]:
    """Gives the calendar days of daily partition keys.

    The keys are days of the partitions' own zone; the time windows are not used, since they are
    instants, and some days have no midnight.
    """
    return frozenset(date.fromisoformat(key) for key in partition_keys)
