"""How Ibis types become BigQuery types and back; imports Ibis, sqlglot and BigQuery's client.

https://docs.cloud.google.com/bigquery/docs/reference/standard-sql/data-types
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from typing import Any

import ibis
import ibis.expr.datatypes as dt
import sqlglot.expressions as sge
from google.cloud.bigquery import SchemaField
from ibis.backends.sql.datatypes import BigQueryType
from ibis.common.exceptions import UnsupportedBackendType

from segmentstream._core.errors import ColumnMismatchError
from segmentstream._warehouse.columns import Column

_NUMERIC_SCALE = 9
_NUMERIC_WHOLE_DIGITS = 29
_BIGNUMERIC_SCALE = 38
_BIGNUMERIC_WHOLE_DIGITS = 38


def representable(schema: ibis.Schema) -> ibis.Schema:
    """Gives the columns of a result as BigQuery can hold them, in the terms of Ibis.

    BigQuery has one kind of moment (microseconds, in UTC) and of civil time, and keeps a UUID as
    text. Widths of numbers are left as they are; `columns.stored_type` decides them.

    Raises:
        ColumnMismatchError: Names each column that has no type there: maps, unsigned 64-bit
            integers, lists of lists, decimals that are too long.
    """
    problems = {name: _problem(dtype) for name, dtype in schema.items()}
    refused = {name: problem for name, problem in problems.items() if problem}
    if refused:
        listed = "; ".join(f"{name!r} is {problem}" for name, problem in refused.items())
        first = next(iter(refused))
        raise ColumnMismatchError(
            f"BigQuery has no type for these columns: {listed}.",
            f'Convert them in the asset, for example `.cast({{"{first}": "decimal(38, 0)"}})` for '
            "an unsigned integer, or a list of key and value structs for a map.",
            untyped=tuple(refused),
        )
    return ibis.schema({name: _representable(dtype) for name, dtype in schema.items()})


def schema_of(fields: Iterable[SchemaField]) -> ibis.Schema:
    """Gives the columns of a table in the terms of Ibis."""
    return ibis.schema({field.name: _dtype_of(field) for field in fields})


def field_of(column: Column, description: str | None = None) -> SchemaField:
    """Gives the declaration of a nullable column."""
    return _field(column.name, column.dtype, description)


def sql_type(dtype: dt.DataType) -> sge.DataType:
    """Writes a type as SQL, decimals with their precision."""
    match dtype:
        case dt.Decimal():
            name, precision, scale = _decimal(dtype)
            return sge.DataType.build(f"{name}({precision}, {scale})", dialect="bigquery")
        case dt.Array():
            return sge.DataType(
                this=sge.DataType.Type.ARRAY,
                expressions=[sql_type(dtype.value_type)],
                nested=True,
            )
        case dt.Struct():
            fields = [
                sge.ColumnDef(this=sge.to_identifier(name, quoted=True), kind=sql_type(field))
                for name, field in dtype.fields.items()
            ]
            return sge.DataType(this=sge.DataType.Type.STRUCT, expressions=fields, nested=True)
        case _:
            return BigQueryType.from_ibis(dtype)  # type: ignore[no-any-return]  # Ibis has no types


def is_castable(dtype: dt.DataType) -> bool:
    """Says whether a value is written as `CAST(... AS type)`.

    BigQuery casts arrays to their own type only and JSON and geography not at all; a value of
    these has its type already.
    """
    return not isinstance(dtype, dt.Array | dt.Struct | dt.JSON | dt.GeoSpatial)


def _problem(dtype: dt.DataType) -> str | None:  # one table of rules
    match dtype:
        case dt.Map():
            return f"a map ({dtype})"
        case dt.UInt64():
            return "an unsigned 64-bit integer (uint64)"
        case dt.Array(value_type=dt.Array()):
            return f"a list of lists ({dtype})"
        case dt.Array():
            return _problem(dtype.value_type)
        case dt.Struct():
            return next(filter(None, map(_problem, dtype.types)), None)
        case dt.Decimal(precision=int()) if not _fits(dtype):
            return f"longer than a BIGNUMERIC ({dtype})"
        case dt.Null() | dt.Unknown() | dt.Decimal() | dt.Timestamp() | dt.UUID():
            return None
        case _:
            try:
                BigQueryType.from_ibis(dtype)
            except (UnsupportedBackendType, NotImplementedError, KeyError):
                return f"of type {dtype}"
            return None


def _representable(dtype: dt.DataType) -> dt.DataType:
    match dtype:
        case dt.Timestamp():
            return dt.Timestamp(timezone="UTC" if dtype.timezone else None)
        case dt.UUID():
            return dt.string
        case dt.Array():
            return dt.Array(_representable(dtype.value_type))
        case dt.Struct():
            return dt.Struct({name: _representable(field) for name, field in dtype.fields.items()})
        case _:
            return dtype


def _field(name: str, dtype: dt.DataType, description: str | None = None) -> SchemaField:
    more: dict[str, Any] = {} if description is None else {"description": description}
    mode = "NULLABLE"
    if isinstance(dtype, dt.Array):
        mode, dtype = "REPEATED", dtype.value_type
    if isinstance(dtype, dt.Struct):
        fields = [_field(field, field_type) for field, field_type in dtype.fields.items()]
        return SchemaField(name, "RECORD", mode, fields=fields, **more)
    if isinstance(dtype, dt.Decimal):
        kind, precision, scale = _decimal(dtype)
        return SchemaField(name, kind, mode, precision=precision, scale=scale, **more)
    return SchemaField(name, BigQueryType.to_string(dtype), mode, **more)


def _dtype_of(field: SchemaField) -> dt.DataType:
    dtype = _scalar_of(field)
    if field.mode == "REPEATED":
        return dt.Array(dtype)
    return dtype.copy(nullable=field.mode != "REQUIRED")


def _scalar_of(field: SchemaField) -> dt.DataType:
    kind = field.field_type
    if kind in {"RECORD", "STRUCT"}:
        return dt.Struct({inner.name: _dtype_of(inner) for inner in field.fields})
    if kind in {"NUMERIC", "BIGNUMERIC"} and field.precision is not None:
        return dt.Decimal(field.precision, field.scale or 0)
    return _named(kind)


@functools.cache  # Ibis parses the name as SQL each time; tables have many columns, few types.
def _named(kind: str) -> dt.DataType:
    try:
        dtype: dt.DataType = BigQueryType.from_string(kind)
    except (UnsupportedBackendType, NotImplementedError, KeyError, ValueError):
        return dt.unknown
    return dtype


def _fits(dtype: dt.Decimal) -> bool:
    scale = dtype.scale or 0
    return scale <= _BIGNUMERIC_SCALE and dtype.precision - scale <= _BIGNUMERIC_WHOLE_DIGITS


def _decimal(dtype: dt.Decimal) -> tuple[str, int, int]:
    precision, scale = int(dtype.precision or 38), int(dtype.scale or 0)
    if scale <= _NUMERIC_SCALE and precision - scale <= _NUMERIC_WHOLE_DIGITS:
        return "NUMERIC", precision, scale
    return "BIGNUMERIC", precision, scale


def descriptions_of(fields: Iterable[SchemaField]) -> Mapping[str, str]:
    """Gives the description of each column that has one."""
    return {field.name: field.description for field in fields if field.description}
