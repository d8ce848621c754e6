from __future__ import annotations

from datetime import date, timedelta

import ibis
import pytest
from hypothesis import given
from hypothesis import strategies as st

from segmentstream._warehouse.partitions import contiguous_range, describe_dates, rows_of_dates

START = date(2024, 5, 1)
some_dates = st.sets(st.integers(0, 30).map(lambda step: START + timedelta(days=step)))


@given(dates=some_dates)
def test_a_range_is_contiguous_exactly_when_no_day_is_missing(dates: set[date]) -> None:
    """A first and a last date stand for a set only where every day between is in it."""
    every = {START + timedelta(days=step) for step in range(31)}
    days = contiguous_range(dates)
    between = {day for day in every if days and days[0] <= day <= days[1]}
    assert (
        (between == dates)
        if days
        else (not dates or max(dates) - min(dates) >= timedelta(len(dates)))
    )


@pytest.mark.parametrize(
    "dates",
    [set(), {START}, {START, START + timedelta(1)}, {START, START + timedelta(2)}],
    ids=["none", "one", "contiguous", "gap"],
)
def test_rows_of_dates_are_exactly_those(dates: set[date]) -> None:
    """The filter keeps every row of the dates, no other, and never a NULL."""
    every = [START + timedelta(days=step) for step in range(-2, 5)]
    table = ibis.memtable({"day": [*every, None]}, schema={"day": "date"})
    kept = rows_of_dates(table, "day", dates).to_pyarrow()["day"].to_pylist()
    assert sorted(kept) == sorted(dates)


def test_the_bare_column_is_compared_with_date_literals() -> None:
    """Nothing wraps the column, which would keep an engine from skipping days."""
    table = ibis.table({"day": "date"}, name="orders")
    one_range = ibis.to_sql(rows_of_dates(table, "day", [START]), dialect="duckdb")
    assert '"t0"."day" BETWEEN MAKE_DATE(2024, 5, 1) AND MAKE_DATE(2024, 5, 1)' in one_range


@pytest.mark.parametrize(
    ("steps", "text"),
    [
        ([], "no dates"),
        ([0], "2024-05-01"),
        ([0, 1, 2], "2024-05-01 to 2024-05-03"),
        ([0, 2, 3], "2024-05-01, 2024-05-03 to 2024-05-04"),
        (
            [0, 2, 4, 6, 8, 10, 12],
            "2024-05-01, 2024-05-03, 2024-05-05, 2024-05-07, 2024-05-09 and 2 more",
        ),
    ],
)
def test_dates_are_written_for_a_person(steps: list[int], text: str) -> None:
    """Runs of days are written as such, and a long list is cut."""
    assert describe_dates([START + timedelta(days=step) for step in steps]) == text
