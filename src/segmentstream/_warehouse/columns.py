"""Which columns a write may bring: names, types, and what a table that exists makes of them.

The rules are those of every engine, so that an asset means the same on a laptop and in
production; imports Ibis and `_core`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import ibis
import ibis.expr.datatypes as dt

from segmentstream._core.errors import ColumnMismatchError, WarehouseMaterializationError
from segmentstream._core.names import fold_case, identifier_problem

_MICROSECONDS = 6
_EXACT_IN_A_DOUBLE = 2**53


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """Says how one column of a result becomes one column of a table.

    Attributes:
        name: Its name in the table.
        source: Its name in the result.
        dtype: Its type in the table.
    """

    name: str
    source: str
    dtype: dt.DataType


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnPlan:
    """Says how the columns of a result become those of a table.

    Attributes:
        columns: The columns to write, in the order of the table.
        added: Those of them that the table does not have yet.
    """

    columns: tuple[Column, ...]
    added: tuple[Column, ...] = ()

    @property
    def schema(self) -> ibis.Schema:
        """The table's columns once the plan is carried out."""
        return ibis.schema({column.name: column.dtype for column in self.columns})


def plan_new_table(offered: ibis.Schema) -> ColumnPlan:
    """Plans a table made from a result.

    Raises:
        ColumnMismatchError: A column has no type that can be stored, or two names differ only in
            upper and lower case.
    """
    _refuse_unusable_names(offered.names)
    _refuse_untyped(offered, offered.names)
    return ColumnPlan(
        columns=tuple(
            Column(name=name, source=name, dtype=stored_type(dtype))
            for name, dtype in offered.items()
        )
    )


def plan_existing_table(offered: ibis.Schema, stored: ibis.Schema) -> ColumnPlan:
    """Plans a write of some days into a table that exists, matching columns by name.

    Upper and lower case are ignored and the table's spelling stays. A new column is added at the
    end; older days read NULL there. A column whose type is unknown takes the stored type.

    Raises:
        ColumnMismatchError: A stored column is missing, or a type could lose values; nothing is
            converted silently and nothing is filled in.
    """
    _refuse_unusable_names(offered.names)
    sources = {fold_case(name): name for name in offered.names}
    stored_names = {fold_case(name) for name in stored.names}
    extra = [name for folded, name in sources.items() if folded not in stored_names]
    missing = [name for name in stored.names if fold_case(name) not in sources]
    if missing:
        raise _missing_columns(missing, extra)
    lossy = {
        name: (str(dtype), str(offered[source]))
        for name, dtype in stored.items()
        if not converts_without_loss(offered[source := sources[fold_case(name)]], dtype)
    }
    if lossy:
        raise _lossy_columns(lossy)
    _refuse_untyped(offered, extra)
    added = tuple(
        Column(name=name, source=name, dtype=stored_type(offered[name])) for name in extra
    )
    kept = tuple(
        Column(name=name, source=sources[fold_case(name)], dtype=dtype)
        for name, dtype in stored.items()
    )
    return ColumnPlan(columns=kept + added, added=added)


def find_partition_column(schema: ibis.Schema, column: str, *, of: str) -> str:
    """Finds the partition column in a schema, ignoring case, and gives its spelling there.

    Args:
        schema: The columns to look in.
        column: The column that the asset declares.
        of: What the columns belong to, for the message: `the result`, `the table x.y.z`.

    Raises:
        WarehouseMaterializationError: There is no such column, or it is not a DATE.
    """
    for name, dtype in schema.items():
        if fold_case(name) == fold_case(column):
            if not dtype.is_date():
                raise WarehouseMaterializationError(
                    f"The partition column {column!r} of {of} is of type {dtype}, not DATE.",
                    f"Give the calendar day itself, for example `{column}=events.at.date()` or "
                    f'`.cast({{"{column}": "date"}})`.',
                )
            return str(name)
    raise WarehouseMaterializationError(
        f"The partition column {column!r} is not among the columns of {of}: "
        f"{', '.join(schema.names)}.",
        "Return it with every row, or correct partition_by_date.",
    )


def stored_type(dtype: dt.DataType) -> dt.DataType:
    """Gives the type in which a column is stored when a write creates it.

    Integers become 64 bits wide, floats double, timestamps microseconds, and every column
    nullable, so that a literal `1` (an 8-bit integer to Ibis) of the first day does not refuse
    the count (64 bits) of the second, and both engines hold the same types.
    """
    if isinstance(dtype, dt.Integer) and not dtype.is_uint64():
        return dt.int64
    if isinstance(dtype, dt.Floating):
        return dt.float64
    if isinstance(dtype, dt.Timestamp):
        return dt.Timestamp(timezone=dtype.timezone, scale=max(_scale(dtype), _MICROSECONDS))
    if isinstance(dtype, dt.Decimal) and dtype.precision is None:
        return dt.Decimal(38, 9)
    if isinstance(dtype, dt.Array):
        return dt.Array(stored_type(dtype.value_type))
    if isinstance(dtype, dt.Map):
        return dt.Map(stored_type(dtype.key_type), stored_type(dtype.value_type))
    if isinstance(dtype, dt.Struct):
        return dt.Struct({name: stored_type(field) for name, field in dtype.fields.items()})
    return dtype.copy(nullable=True)


def converts_without_loss(  # noqa: C901, PLR0912 - one table of rules
    offered: dt.DataType, stored: dt.DataType
) -> bool:
    """Says whether every value of type `offered` has exactly one equal value of type `stored`."""
    match offered, stored:
        case dt.Null(), _:
            return True
        case dt.Integer(), dt.Integer():
            lower, upper = _integer_bounds(stored)
            offered_lower, offered_upper = _integer_bounds(offered)
            return lower <= offered_lower and offered_upper <= upper
        case dt.Integer(), dt.Decimal():
            return _whole_digits(stored) >= len(str(_integer_bounds(offered)[1]))
        case dt.Integer(), dt.Float64():
            return _integer_bounds(offered)[1] < _EXACT_IN_A_DOUBLE
        case dt.Floating(), dt.Floating():
            return bool(offered.nbytes <= stored.nbytes)
        case dt.Decimal(precision=None), _:
            return False  # Promises nothing about the values it holds.
        case dt.Decimal(), dt.Decimal():
            return _whole_digits(offered) <= _whole_digits(stored) and bool(
                (offered.scale or 0) <= (stored.scale or 0)
            )
        case dt.Decimal(scale=0), dt.Integer():
            lower, upper = _integer_bounds(stored)
            largest = 10 ** _whole_digits(offered) - 1
            return bool(lower <= -largest and largest <= upper)
        case dt.Timestamp(), dt.Timestamp():
            return (offered.timezone is None) == (stored.timezone is None) and (
                _scale(offered) <= _scale(stored)
            )
        case dt.Date(), dt.Timestamp():
            return bool(stored.timezone is None)
        case dt.UUID(), dt.String():
            return True
        case dt.String(), dt.String():
            return bool(stored.length is None or offered.length == stored.length)
        case dt.Array(), dt.Array():
            return converts_without_loss(offered.value_type, stored.value_type)
        case dt.Map(), dt.Map():
            return converts_without_loss(
                offered.key_type, stored.key_type
            ) and converts_without_loss(offered.value_type, stored.value_type)
        case dt.Struct(), dt.Struct():
            return bool(offered.names == stored.names) and all(
                map(converts_without_loss, offered.types, stored.types)
            )
        case _:
            return bool(offered.copy(nullable=True) == stored.copy(nullable=True))


def _integer_bounds(dtype: dt.Integer) -> tuple[int, int]:
    bits: int = dtype.nbytes * 8
    if dtype.is_unsigned_integer():
        return 0, 2**bits - 1
    return -(2 ** (bits - 1)), 2 ** (bits - 1) - 1


def _whole_digits(dtype: dt.Decimal) -> int:
    return (dtype.precision or 0) - (dtype.scale or 0)


def _scale(dtype: dt.Timestamp) -> int:
    return _MICROSECONDS if dtype.scale is None else dtype.scale


def _refuse_unusable_names(names: Iterable[str]) -> None:
    seen: dict[str, str] = {}
    for name in names:
        if problem := identifier_problem(name):
            raise ColumnMismatchError(
                f"The result has a column named {name!r}, which {problem}.", "Rename it."
            )
        if other := seen.get(fold_case(name)):
            raise ColumnMismatchError(
                f"The result has columns {other!r} and {name!r}, which differ only in upper and "
                "lower case; warehouses do not tell them apart.",
                "Rename one of them.",
            )
        seen[fold_case(name)] = name


def _refuse_untyped(offered: ibis.Schema, names: Iterable[str]) -> None:
    untyped = tuple(name for name in names if not _is_storable(offered[name]))
    if untyped:
        listed = ", ".join(f"{name!r} ({offered[name]})" for name in untyped)
        raise ColumnMismatchError(
            f"The type of these columns cannot be told: {listed}. A frame with no rows, or a "
            "column with no values, carries no type.",
            f'State it: `.cast({{"{untyped[0]}": "string"}})`, or '
            "`ibis.memtable(data, schema={...})`.",
            untyped=untyped,
        )


def _is_storable(dtype: dt.DataType) -> bool:
    match dtype:
        case dt.Null() | dt.Unknown():
            return False
        case dt.Array():
            return _is_storable(dtype.value_type)
        case dt.Map():
            return _is_storable(dtype.key_type) and _is_storable(dtype.value_type)
        case dt.Struct():
            return all(map(_is_storable, dtype.types))
        case _:
            return True


def _missing_columns(missing: list[str], extra: list[str]) -> ColumnMismatchError:
    renamed = f" It has columns the table does not: {', '.join(extra)}." if extra else ""
    return ColumnMismatchError(
        f"The result lacks columns that the table has: {', '.join(missing)}.{renamed}",
        f"Return them, or NULL to keep a column empty from now on: "
        f"`.mutate({missing[0]}=ibis.null())`.",
        missing=tuple(missing),
        extra=tuple(extra),
    )


def _lossy_columns(lossy: dict[str, tuple[str, str]]) -> ColumnMismatchError:
    listed = "; ".join(
        f"{name!r} is stored as {stored} and offered as {offered}"
        for name, (stored, offered) in lossy.items()
    )
    first, (stored, _) = next(iter(lossy.items()))
    return ColumnMismatchError(
        f"Values could be lost: {listed}.",
        f'Convert it in the asset, where the loss is meant: `.cast({{"{first}": "{stored}"}})`.',
        lossy=lossy,
    )
