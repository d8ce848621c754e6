"""What every engine refuses before or while it writes; imports Ibis and `_core`."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import date

import ibis

from segmentstream._core.errors import PartitionDatesError, WarehouseMaterializationError
from segmentstream._core.names import fold_case
from segmentstream._warehouse.columns import (
    ColumnPlan,
    find_partition_column,
    plan_existing_table,
    plan_new_table,
)
from segmentstream._warehouse.engine import TableInfo
from segmentstream._warehouse.partitions import describe_dates
from segmentstream._warehouse.tables import TableRef

# What the guard of a write says when a row's date does not belong; looked for in a driver's error.
STRAY_DATE = "segmentstream: a row is outside the dates being replaced"
_STRAY_DATES_TOLD = 5


def check_dates(table: TableRef, dates: Collection[date]) -> frozenset[date]:
    """Gives the dates of a write as a set.

    Raises:
        WarehouseMaterializationError: There are none.
    """
    if not dates:
        raise WarehouseMaterializationError(
            f"The write of {table} names no dates, so there is nothing to replace.",
            "Select at least one partition.",
        )
    return frozenset(dates)


def check_writable(found: TableInfo | None, *, kind: str = "a view") -> TableInfo | None:
    """Gives a table back unless it is something that only can be read.

    Args:
        found: The table, None where there is none.
        kind: What it is when it can only be read, for the message.

    Raises:
        WarehouseMaterializationError: A write would destroy it.
    """
    if found and found.kind == "view":
        raise WarehouseMaterializationError(
            f"{found.table} is {kind}, and a write would have to destroy it.",
            "Drop or rename it, or give the asset another key.",
        )
    return found


def check_not_daily(found: TableInfo | None) -> None:
    """Keeps an asset that lost its partitions from replacing the history by one result.

    Raises:
        WarehouseMaterializationError: The table holds days written one by one.
    """
    if found and found.partition_column:
        raise WarehouseMaterializationError(
            f"{found.table} holds days written one by one (by {found.partition_column!r}), and the "
            "asset is no longer partitioned: writing it whole would remove every day.",
            "Give the asset its partitions back, or rename or drop the table first if it is to be "
            "replaced.",
        )


def plan_dates(
    offered: ibis.Schema, found: TableInfo | None, target: TableRef, column: str
) -> ColumnPlan:
    """Plans the columns of a write of some dates, into a new table or one that exists.

    Args:
        offered: The columns of the result.
        found: The table as it is, None where there is none.
        target: Where it is, for messages.
        column: The partition column that the asset declares.

    Raises:
        WarehouseMaterializationError: The table has another partition column, or the columns do
            not fit.
    """
    if found is None:
        return plan_new_table(offered)
    if found.partition_column and fold_case(found.partition_column) != fold_case(column):
        raise WarehouseMaterializationError(
            f"{target} is replaced by the dates of {found.partition_column!r}, and the asset now "
            f"declares {column!r}.",
            "Correct partition_by_date, or move the table away and backfill a new one.",
        )
    find_partition_column(found.schema, column, of=f"the table {target}")
    return plan_existing_table(offered, found.schema)


def stray_dates(
    counts: Mapping[date | None, int], target: TableRef, column: str, dates: Collection[date]
) -> PartitionDatesError:
    """Makes the error of rows that carry other dates than those being replaced, or none.

    Args:
        counts: Each date that does not belong and its number of rows, in the order to tell them.
        target: The table that was not written.
        column: The column of the result that holds the date.
        dates: The dates that were to be replaced.
    """
    null_rows = counts.get(None, 0)
    stray = {day: rows for day, rows in counts.items() if day is not None}
    first = dict(list(stray.items())[:_STRAY_DATES_TOLD])
    told = [f"{day} ({_counted(rows)})" for day, rows in first.items()]
    if len(stray) > len(first):
        told.append(f"and {len(stray) - len(first)} more dates")
    if null_rows:
        told.append(f"no date at all ({_counted(null_rows)})")
    if not told:
        told.append(
            "they were there when it was written and not when it was counted again, so it "
            "differs each time it is computed"
        )
    return PartitionDatesError(
        f"Rows for {target} are outside the dates being replaced ({describe_dates(dates)} of "
        f"{column!r}): {', '.join(told)}. Nothing was written.",
        "Filter the result to the run's dates, or drop the rows without one; they would be "
        "written again by every run and removed by none.",
        column=column,
        stray_dates=first,
        stray_rows=sum(stray.values()),
        null_rows=null_rows,
    )


def _counted(rows: int) -> str:
    return "1 row" if rows == 1 else f"{rows} rows"
