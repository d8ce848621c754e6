"""Which columns fit which, checked against what DuckDB's own casts do to values."""

from __future__ import annotations

import itertools
from typing import Any

import duckdb
import ibis
import ibis.expr.datatypes as dt
import pytest
from ibis.backends.sql.datatypes import DuckDBType

from segmentstream._core.errors import ColumnMismatchError
from segmentstream._warehouse.columns import (
    converts_without_loss,
    plan_existing_table,
    plan_new_table,
    stored_type,
)

# The outermost values of each type, as SQL.
EXTREMES: dict[str, list[str]] = {
    "boolean": ["true", "false"],
    "int8": ["-128", "127"],
    "int16": ["-32768", "32767"],
    "int32": ["-2147483648", "2147483647"],
    "int64": ["-9223372036854775808", "9223372036854775807", "9007199254740993"],
    "uint8": ["0", "255"],
    "uint32": ["0", "4294967295"],
    "uint64": ["0", "18446744073709551615"],
    "float32": ["1.1754944e-38", "3.4028235e38", "0.1"],
    "float64": ["2.2250738585072014e-308", "1.7976931348623157e308", "0.1"],
    "decimal(5, 2)": ["-999.99", "999.99"],
    "decimal(18, 0)": ["-999999999999999999", "999999999999999999"],
    "decimal(19, 0)": ["-9999999999999999999", "9999999999999999999"],
    "decimal(38, 9)": ["99999999999999999999999999999.999999999"],
    "string": ["'x'", "''", "'2024-01-01'", "'12'"],
    "date": ["'0001-01-01'", "'9999-12-31'"],
    "time": ["'23:59:59.999999'"],
    "timestamp(6)": ["'2024-03-31 02:30:00.000001'"],
    "timestamp('UTC', 6)": ["'2024-03-31 02:30:00.000001+00'"],
    "uuid": ["'123e4567-e89b-12d3-a456-426614174000'"],
    "binary": ["'\\xff'"],
    "array<int32>": ["[1, -2147483648]"],
    "array<int64>": ["[9007199254740993]"],
}


@pytest.mark.parametrize(("offered", "stored"), list(itertools.product(EXTREMES, repeat=2)))
def test_what_is_accepted_survives_the_cast_and_back(offered: str, stored: str) -> None:
    """Every value of an accepted type comes back from the stored type unchanged."""
    source, target = ibis.dtype(offered), ibis.dtype(stored)
    if not converts_without_loss(source, target):
        return
    source_sql, target_sql = DuckDBType.to_string(source), DuckDBType.to_string(target)
    for value in EXTREMES[offered]:
        before, after = duckdb.sql(
            f"SELECT v, CAST(CAST(v AS {target_sql}) AS {source_sql})"
            f" FROM (SELECT CAST({value} AS {source_sql}) AS v)"
        ).fetchall()[0]
        assert before == after


@pytest.mark.parametrize(
    ("offered", "stored"),
    [
        ("int8", "int64"),
        ("uint32", "int64"),
        ("int32", "float64"),
        ("float32", "float64"),
        ("int64", "decimal(38, 9)"),
        ("decimal(5, 2)", "decimal(38, 9)"),
        ("decimal(18, 0)", "int64"),
        ("date", "timestamp(6)"),
        ("timestamp", "timestamp(6)"),
        ("timestamp('Europe/Berlin')", "timestamp('UTC')"),
        ("uuid", "string"),
        ("array<int32>", "array<int64>"),
        ("struct<a: int8>", "struct<a: int64>"),
        ("map<string, int8>", "map<string, int64>"),
        ("null", "date"),
        ("!string", "string"),
    ],
)
def test_conversions_that_lose_nothing_are_accepted(offered: str, stored: str) -> None:
    """Widening within a kind is what the field calls safe."""
    assert converts_without_loss(ibis.dtype(offered), ibis.dtype(stored))


@pytest.mark.parametrize(
    ("offered", "stored"),
    [
        ("int64", "int32"),
        ("int64", "float64"),
        ("uint64", "int64"),
        ("float64", "int64"),
        ("float64", "decimal(38, 9)"),
        ("float64", "float32"),
        ("decimal(19, 0)", "int64"),
        ("decimal(12, 3)", "decimal(12, 2)"),
        ("decimal", "decimal(12, 2)"),
        ("timestamp", "date"),
        ("timestamp", "timestamp('UTC')"),
        ("timestamp('UTC')", "timestamp"),
        ("timestamp(9)", "timestamp(6)"),
        ("date", "timestamp('UTC')"),
        ("string", "date"),
        ("int64", "string"),
        ("string", "json"),
        ("array<int64>", "array<int32>"),
        ("struct<a: int64>", "struct<a: int64, b: int64>"),
        ("boolean", "int64"),
    ],
)
def test_conversions_that_could_lose_values_are_refused(offered: str, stored: str) -> None:
    """Anything that rounds, cuts, guesses a zone or parses text is not silent."""
    assert not converts_without_loss(ibis.dtype(offered), ibis.dtype(stored))


@pytest.mark.parametrize("name", EXTREMES)
def test_a_stored_type_takes_what_it_was_made_from(name: str) -> None:
    """The second write of an unchanged asset is never refused."""
    dtype = ibis.dtype(name)
    assert converts_without_loss(dtype, stored_type(dtype))
    assert stored_type(stored_type(dtype)) == stored_type(dtype)
    assert stored_type(dtype(nullable=False)).nullable


def test_types_are_the_same_on_every_engine() -> None:
    """Integers, floats and timestamps are stored in the one width that all engines have."""
    offered = {
        "a": "int8", "b": "uint32", "c": "float32", "d": "timestamp(3)", "e": "array<int16>",
        "f": "struct<x: float32>", "g": "decimal", "h": "uint64",
    }  # fmt: skip
    plan = plan_new_table(ibis.schema(offered))
    assert {name: str(dtype) for name, dtype in plan.schema.items()} == {
        "a": "int64",
        "b": "int64",
        "c": "float64",
        "d": "timestamp(6)",
        "e": "array<int64>",
        "f": "struct<x: float64>",
        "g": "decimal(38, 9)",
        "h": "uint64",
    }


@pytest.mark.parametrize(
    "dtype", [dt.null, dt.Array(dt.null), dt.Struct({"a": dt.null}), dt.Map(dt.string, dt.null)]
)
def test_untyped_columns_are_found_at_any_depth(dtype: Any) -> None:
    """A list of nothing has no type either."""
    with pytest.raises(ColumnMismatchError) as refused:
        plan_new_table(ibis.schema({"id": "int64", "coupon": dtype}))
    assert refused.value.untyped == ("coupon",)


@pytest.mark.parametrize("name", ["", " a", "a ", "a\nb", "\x00"])
def test_column_names_no_engine_can_carry_are_refused(name: str) -> None:
    """They are refused before anything is opened, never changed."""
    with pytest.raises(ColumnMismatchError, match="Rename it"):
        plan_new_table(ibis.schema({name: "int64"}))


def test_a_plan_keeps_the_tables_order_and_spelling() -> None:
    """Stored columns come first as stored, new ones after them."""
    plan = plan_existing_table(
        ibis.schema({"NEW": "int8", "b": "int8", "A": "string"}),
        ibis.schema({"a": "string", "B": "int64"}),
    )
    assert [(column.name, column.source, str(column.dtype)) for column in plan.columns] == [
        ("a", "A", "string"),
        ("B", "b", "int64"),
        ("NEW", "NEW", "int64"),
    ]
    assert [column.name for column in plan.added] == ["NEW"]


def test_a_refusal_names_every_column_at_once() -> None:
    """One look at the message is enough to correct the asset."""
    stored = ibis.schema({"a": "int64", "b": "int64", "c": "int64"})
    with pytest.raises(ColumnMismatchError) as refused:
        plan_existing_table(ibis.schema({"a": "string", "b": "float64", "c": "int8"}), stored)
    assert refused.value.lossy == {"a": ("int64", "string"), "b": ("int64", "float64")}
    with pytest.raises(ColumnMismatchError) as refused:
        plan_existing_table(ibis.schema({"x": "int64", "c": "int64"}), stored)
    assert (refused.value.missing, refused.value.extra) == (("a", "b"), ("x",))
