from __future__ import annotations

import string

import duckdb
import pytest
from hypothesis import given
from hypothesis import strategies as st

from segmentstream._core.names import fold_case, identifier_problem


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("", "is empty"),
        (" a", "begins or ends with white space"),
        ("a\t", "begins or ends with white space"),
        ("a\x00b", "contains a control character"),
        ("a\nb", "contains a control character"),
        ("a b", None),
        ("größe.1-x", None),
        ('a"b', None),
    ],
)
def test_what_no_engine_can_carry_is_told(name: str, problem: str | None) -> None:
    """Only what can be a name nowhere is ruled out for all engines."""
    assert identifier_problem(name) == problem


letters = st.sampled_from([*string.ascii_letters, *"ÖößẞİıÉéΣσς"])


@given(one=letters, other=letters)
def test_names_are_folded_as_duckdb_folds_them(one: str, other: str) -> None:
    """Two names are one exactly where DuckDB refuses to make both."""
    with duckdb.connect() as connection:
        connection.execute(f'CREATE TABLE "{one}" (n INTEGER)')
        try:
            connection.execute(f'CREATE TABLE "{other}" (n INTEGER)')
        except duckdb.CatalogException:
            assert fold_case(one) == fold_case(other)
        else:
            assert fold_case(one) != fold_case(other)
