"""The dates of a run, and the Ibis filters made from them; imports Ibis and `_core`.

A slice is a *set* of dates, never only a first and a last one: excluded days and gaps are real.
"""

from __future__ import annotations

from collections.abc import Collection
from datetime import date, timedelta

import ibis
import ibis.expr.types as ir


def contiguous_range(dates: Collection[date]) -> tuple[date, date] | None:
    """Gives the first and last of `dates` when no day between them is missing, else None."""
    if not dates:
        return None
    first, last = min(dates), max(dates)
    return (first, last) if (last - first).days + 1 == len(set(dates)) else None


def rows_of_dates(table: ir.Table, column: str, dates: Collection[date]) -> ir.Table:
    """Filters `table` to the rows whose DATE `column` is one of `dates`, without running anything.

    Args:
        table: A table with a DATE column named `column`.
        column: The partition column, spelled as in `table`.
        dates: Calendar days; none of them gives a table with no rows and the same columns.
    """
    return table.filter(in_dates(table[column], dates))


def in_dates(column: ir.Column, dates: Collection[date]) -> ir.BooleanValue:
    """Says, for each value of the DATE `column`, whether it is one of `dates`.

    The bounds are DATE literals next to the bare column, which is what lets an engine skip the
    other days without reading them.
    """
    if not dates:
        return ibis.literal(value=False)
    if days := contiguous_range(dates):
        return column.between(ibis.literal(days[0]), ibis.literal(days[1]))
    return column.isin([ibis.literal(day) for day in sorted(dates)])


def describe_dates(dates: Collection[date]) -> str:
    """Writes a set of dates for a person: `2024-05-02`, `2024-05-02 to 2024-05-09`, or a list."""
    if not dates:
        return "no dates"
    runs = _runs(sorted(dates))
    shown = [
        first.isoformat() if first == last else f"{first} to {last}" for first, last in runs[:5]
    ]
    more = f" and {len(runs) - 5} more" if len(runs) > 5 else ""  # noqa: PLR2004
    return ", ".join(shown) + more


def _runs(days: list[date]) -> list[tuple[date, date]]:
    runs: list[tuple[date, date]] = []
    for day in days:
        if runs and runs[-1][1] + timedelta(days=1) == day:
            runs[-1] = (runs[-1][0], day)
        else:
            runs.append((day, day))
    return runs
