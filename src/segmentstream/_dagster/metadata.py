"""What an asset declares about its table, and what a materialization tells about it.

Imports Dagster, `_warehouse` and `_core`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from dagster import MetadataValue, TableColumn, TableSchema

from segmentstream._core.errors import WarehouseConfigurationError
from segmentstream._core.names import identifier_problem
from segmentstream._warehouse.engine import WriteResult
from segmentstream._warehouse.options import Commit, TableOptions, check_options
from segmentstream._warehouse.partitions import describe_dates

PARTITION_BY_DATE = "segmentstream/partition_by_date"
TABLE_OPTIONS = "segmentstream/table_options"

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


def warehouse_asset_metadata(
    *,
    partition_by_date: str | None = None,
    cluster_by: Sequence[str] = (),
    description: str | None = None,
    column_descriptions: Mapping[str, str] | None = None,
    labels: Mapping[str, str] | None = None,
    partition_expiration_days: int | None = None,
    require_partition_filter: bool | None = None,
    commit: Commit = "merge",
) -> dict[str, Any]:
    """Declares how an asset is kept in the warehouse; give the result to `@asset(metadata=...)`.

    All but `partition_by_date` is for BigQuery; on DuckDB it has no effect. What is left out stays
    as it is in the warehouse.

    Args:
        partition_by_date: The DATE column whose value says which daily partition a row belongs
            to. Every asset with daily partitions needs it; no other asset may have it.
        cluster_by: Up to four columns that queries filter by, the most used first. Decided when
            the table is made.
        description: What a person reads about the table; the asset's own description when left
            out. At most 16,384 characters.
        column_descriptions: The same for columns, by name; the descriptions in the asset's column
            schema when left out. At most 1,024 characters each.
        labels: Keys and values to find or bill the table by; at most 64.
        partition_expiration_days: After how many days BigQuery deletes a date.
        require_partition_filter: Whether every query of the table must say which dates it reads.
        commit: How dates are replaced: `merge`, one statement that other writers of the table may
            overlap, or `transaction`, for a table with one writer at a time, in which deleting
            whole days costs nothing.

    Returns:
        Metadata to merge with the asset's own.

    Raises:
        WarehouseConfigurationError: One of them cannot work; it is named.
    """
    declared: dict[str, Any] = {}
    if partition_by_date is not None:
        if problem := identifier_problem(partition_by_date):
            raise WarehouseConfigurationError(
                f"partition_by_date is {partition_by_date!r}, which {problem}.",
                "Name the DATE column of the table.",
            )
        declared[PARTITION_BY_DATE] = partition_by_date
    if isinstance(cluster_by, str):
        raise WarehouseConfigurationError(
            f"cluster_by is the text {cluster_by!r}, not a list of columns.",
            f'Write cluster_by=["{cluster_by}"].',
        )
    options = TableOptions(
        cluster_by=tuple(cluster_by),
        description=description,
        column_descriptions=column_descriptions or {},
        labels=labels or {},
        partition_expiration_days=partition_expiration_days,
        require_partition_filter=require_partition_filter,
        commit=commit,
    )
    check_options(options, has_partitions=partition_by_date is not None)
    if plain := options.to_mapping():
        declared[TABLE_OPTIONS] = plain
    return declared


def table_options_of(metadata: Mapping[str, Any], description: str | None) -> TableOptions:
    """Reads the declared options; what they do not describe is described as the asset is.

    Args:
        metadata: The asset's metadata, raw or as Dagster wraps it.
        description: The asset's own description.
    """
    declared = metadata.get(TABLE_OPTIONS, {})
    if isinstance(declared, MetadataValue):
        declared = declared.value
    options = TableOptions.from_mapping(declared)
    columns = metadata.get(COLUMN_SCHEMA)
    if isinstance(columns, MetadataValue):
        columns = columns.value
    told = {
        column.name: column.description
        for column in (columns.columns if isinstance(columns, TableSchema) else ())
        if column.description
    }
    return replace(
        options,
        description=options.description or description,
        column_descriptions={**told, **options.column_descriptions},
    )


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
        told |= {} if result.rows is None else {ROW_COUNT: result.rows}
    else:
        told[DATES] = describe_dates(result.rows_by_date)
    if result.added_columns:
        told[ADDED_COLUMNS] = ", ".join(result.added_columns)
    for name, value in result.statistics.items():
        is_link = str(value).startswith("https://")
        told[f"segmentstream/{name}"] = MetadataValue.url(str(value)) if is_link else value
    return told
