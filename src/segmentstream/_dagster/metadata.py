"""What an asset declares about its table, and what a materialization tells about it.

Imports Dagster, `_warehouse` and `_core`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dagster import MetadataValue, TableColumn, TableSchema

from segmentstream._core.errors import WarehouseConfigurationError
from segmentstream._core.names import identifier_problem
from segmentstream._warehouse.engine import WriteResult
from segmentstream._warehouse.partitions import describe_dates

PARTITION_BY_DATE = "segmentstream/partition_by_date"

# Keys that Dagster gives a meaning; their classes are private there, the names are documented.
TABLE_NAME = "dagster/table_name"
STORAGE_KIND = "dagster/storage_kind"
URI = "dagster/uri"
COLUMN_SCHEMA = "dagster/column_schema"
ROW_COUNT = "dagster/row_count"
PARTITION_ROW_COUNT = "dagster/partition_row_count"

DATES = "segmentstream/dates"
ADDED_COLUMNS = "segmentstream/added_columns"
SECONDS = "segmentstream/seconds"


def warehouse_asset_metadata(*, partition_by_date: str | None = None) -> dict[str, str]:
    """Declares how an asset is kept in the warehouse; give the result to `@asset(metadata=...)`.

    Args:
        partition_by_date: The DATE column whose value says which daily partition a row belongs
            to. Every asset with daily partitions needs it; no other asset may have it.

    Returns:
        Metadata to merge with the asset's own.

    Raises:
        WarehouseConfigurationError: The column's name cannot be one.
    """
    if partition_by_date is None:
        return {}
    if problem := identifier_problem(partition_by_date):
        raise WarehouseConfigurationError(
            f"partition_by_date is {partition_by_date!r}, which {problem}.",
            "Name the DATE column of the table.",
        )
    return {PARTITION_BY_DATE: partition_by_date}


def partition_column_of(metadata: Mapping[str, Any]) -> str | None:
    """Reads the declared partition column from an asset's metadata, raw or as Dagster wraps it."""
    declared = metadata.get(PARTITION_BY_DATE)
    if isinstance(declared, MetadataValue):
        declared = declared.value
    return None if declared is None else str(declared)


def describe_write(result: WriteResult, *, storage_kind: str) -> dict[str, Any]:
    """Gives the metadata of a materialization that is the same for every partition it wrote."""
    told: dict[str, Any] = {
        TABLE_NAME: str(result.table),
        STORAGE_KIND: storage_kind,
        URI: result.uri,
        COLUMN_SCHEMA: TableSchema(
            columns=[TableColumn(name, type=str(dtype)) for name, dtype in result.schema.items()]
        ),
        SECONDS: round(result.seconds, 3),
    }
    if result.rows_by_date is None:
        told[ROW_COUNT] = result.rows
    else:
        told[DATES] = describe_dates(result.rows_by_date)
    if result.added_columns:
        told[ADDED_COLUMNS] = ", ".join(result.added_columns)
    return told | {f"segmentstream/{name}": value for name, value in result.statistics.items()}
