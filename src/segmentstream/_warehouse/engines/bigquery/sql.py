"""Every statement of the BigQuery engine, as sqlglot expressions; imports sqlglot and `_warehouse`.

Identifiers are always quoted and tables always named in full. Dates stand as DATE literals beside
the bare column, which is what lets BigQuery skip the other partitions and satisfies
`require_partition_filter`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import date, datetime

import sqlglot as sg
import sqlglot.expressions as sge

from segmentstream._warehouse.columns import Column
from segmentstream._warehouse.engines.bigquery.types import is_castable, sql_type
from segmentstream._warehouse.partitions import contiguous_range
from segmentstream._warehouse.tables import TableRef
from segmentstream._warehouse.writes import STRAY_DATE

_TARGET = "target"
_SOURCE = "source"


def render(*statements: sge.Expression) -> str:
    """Writes statements in BigQuery's dialect, several of them as a script.

    Raises:
        sqlglot.errors.UnsupportedError: BigQuery has no form for a part of one.
    """
    return ";\n".join(
        statement.sql(dialect="bigquery", unsupported_level=sg.ErrorLevel.RAISE)
        for statement in statements
    )


def replace_dates(
    table: TableRef, columns: Sequence[Column], query: sge.Query, day: str, dates: Collection[date]
) -> sge.Merge:
    """MERGE that deletes the rows of some dates and inserts a query's, in one statement.

    The condition is constantly false, so nothing is joined: every row of these dates is a row
    without a match, and so is every row of the source.
    https://docs.cloud.google.com/bigquery/docs/reference/standard-sql/dml-syntax#merge_statement

    Args:
        table: The table to change.
        columns: The columns to insert, as the query names them.
        query: The new rows.
        day: The partition column.
        dates: The dates to replace.
    """
    mine = sge.Column(this=_name(day), table=_name(_TARGET))
    names = [_column(column.name) for column in columns]
    return sge.Merge(
        this=_table(table, alias=_TARGET),
        using=_subquery(query, _SOURCE),
        on=sge.false(),
        whens=sge.Whens(
            expressions=[
                sge.When(
                    matched=False,
                    source=True,
                    condition=_in_dates(mine, dates),
                    then=sge.Var(this="DELETE"),
                ),
                sge.When(
                    matched=False,
                    source=False,
                    then=sge.Insert(
                        this=sge.Tuple(expressions=names),
                        expression=sge.Tuple(expressions=[name.copy() for name in names]),
                    ),
                ),
            ]
        ),
    )


def replace_dates_in_transaction(
    table: TableRef, columns: Sequence[Column], query: sge.Query, day: str, dates: Collection[date]
) -> list[sge.Expression]:
    """A transaction that deletes the rows of some dates, for nothing, and inserts a query's."""
    delete = sge.Delete(this=_table(table), where=sge.Where(this=_in_dates(_column(day), dates)))
    return _transaction(delete, _insert(table, columns, query))


def replace_rows(
    table: TableRef, columns: Sequence[Column], query: sge.Query
) -> list[sge.Expression]:
    """A transaction that empties a table, keeping all that is set on it, and fills it again."""
    truncate = sge.TruncateTable(expressions=[_table(table)])
    return _transaction(truncate, _insert(table, columns, query))


def recreate(
    table: TableRef,
    columns: Sequence[Column],
    query: sge.Query,
    *,
    descriptions: Mapping[str, str],
    cluster_by: Sequence[str],
    options: Mapping[str, sge.Expression],
) -> sge.Create:
    """CREATE OR REPLACE TABLE from a query, which may read the table it replaces."""
    definitions = [
        sge.ColumnDef(
            this=_name(column.name),
            kind=sql_type(column.dtype),
            constraints=_described(descriptions.get(column.name)),
        )
        for column in columns
    ]
    clauses: list[sge.Expression] = []
    if cluster_by:
        clauses.append(sge.ClusterProperty(expressions=[_column(name) for name in cluster_by]))
    clauses += [_option(name, value) for name, value in options.items()]
    return sge.Create(
        this=sge.Schema(this=_table(table), expressions=definitions),
        kind="TABLE",
        replace=True,
        expression=query,
        properties=sge.Properties(expressions=clauses) if clauses else None,
    )


def table_options(
    *,
    description: str | None,
    friendly_name: str | None,
    labels: Mapping[str, str],
    kms_key: str | None,
    expires: datetime | None,
) -> dict[str, sge.Expression]:
    """Gives the options that a table has, for `recreate`."""
    options: dict[str, sge.Expression] = {}
    if description:
        options["description"] = sge.Literal.string(description)
    if friendly_name:
        options["friendly_name"] = sge.Literal.string(friendly_name)
    if expires:
        options["expiration_timestamp"] = sge.Introducer(
            this=sge.Var(this="TIMESTAMP"), expression=sge.Literal.string(expires.isoformat(" "))
        )
    if labels:
        pairs = [
            sge.Tuple(expressions=[sge.Literal.string(key), sge.Literal.string(value)])
            for key, value in labels.items()
        ]
        options["labels"] = sge.Array(expressions=pairs)
    if kms_key:
        options["kms_key_name"] = sge.Literal.string(kms_key)
    return options


def create_staging(table: TableRef, query: sge.Query, *, hours: int) -> sge.Create:
    """CREATE TABLE from a query, for a table that removes itself after some hours."""
    expiry = sge.TimestampAdd(
        this=sge.CurrentTimestamp(),
        expression=sge.Literal.number(hours),
        unit=sge.Var(this="HOUR"),
    )
    return sge.Create(
        this=_table(table),
        kind="TABLE",
        expression=query,
        properties=sge.Properties(expressions=[_option("expiration_timestamp", expiry)]),
    )


def select_columns(query: sge.Query, columns: Iterable[Column]) -> sge.Select:
    """SELECT of a query's columns under the names and in the types of a table."""
    return sg.select(*(_cast(column).as_(_name(column.name)) for column in columns)).from_(
        _subquery(query, "rows")
    )


def select_columns_of_dates(
    query: sge.Query, columns: Iterable[Column], column: str, dates: Collection[date]
) -> sge.Select:
    """As `select_columns`, and fails with `STRAY_DATE` on a row that has no date of `dates`.

    Args:
        query: The result.
        columns: What to make of its columns.
        column: The DATE column of the result that must be one of `dates`.
        dates: The dates allowed; a NULL is none of them.
    """
    day = _day(column)
    guard = sge.If(
        this=_in_dates(day, dates),
        true=day.copy(),
        false=sge.Anonymous(this="ERROR", expressions=[sge.Literal.string(STRAY_DATE)]),
    )
    return sg.select(
        *(
            (guard if item.source == column else _cast(item)).as_(_name(item.name))
            for item in columns
        )
    ).from_(_subquery(query, "rows"))


def select_all(table: TableRef, columns: Iterable[Column]) -> sge.Select:
    """SELECT of the columns of a staging table."""
    return sg.select(*(_column(column.name) for column in columns)).from_(_table(table))


def count_stray_dates(query: sge.Query, column: str, dates: Collection[date]) -> sge.Select:
    """SELECT of each date that does not belong and its number of rows, NULL first."""
    day = _day(column)
    stray = sg.or_(day.is_(sge.null()), sg.not_(_in_dates(day, dates)))
    return (
        sg.select(day.as_("day"), sge.Count(this=sge.Star()).as_("n"))
        .from_(_subquery(query, "rows"))
        .where(stray)
        .group_by(sge.Literal.number(1))
        .order_by(sge.Literal.number(1))
    )


def count_by_date(table: TableRef, column: str, dates: Collection[date]) -> sge.Select:
    """SELECT of each date that has rows and their number."""
    day = _column(column)
    return (
        sg.select(day.as_("day"), sge.Count(this=sge.Star()).as_("n"))
        .from_(_table(table))
        .where(_in_dates(day, dates))
        .group_by(sge.Literal.number(1))
    )


def count_all(table: TableRef) -> sge.Select:
    """SELECT of the number of rows, which BigQuery knows without reading them."""
    return sg.select(sge.Count(this=sge.Star()).as_("n")).from_(_table(table))


def _transaction(*statements: sge.Expression) -> list[sge.Expression]:
    return [
        sge.Command(this="BEGIN", expression="TRANSACTION"),
        *statements,
        sge.Command(this="COMMIT", expression="TRANSACTION"),
    ]


def _insert(table: TableRef, columns: Iterable[Column], query: sge.Query) -> sge.Insert:
    target = sge.Schema(this=_table(table), expressions=[_name(column.name) for column in columns])
    return sge.Insert(this=target, expression=query)


def _described(text: str | None) -> list[sge.Expression]:
    if not text:
        return []
    described = sge.Properties(expressions=[_option("description", sge.Literal.string(text))])
    return [sge.ColumnConstraint(kind=described)]


def _option(name: str, value: sge.Expression) -> sge.Property:
    return sge.Property(this=sge.Var(this=name), value=value)


def _in_dates(day: sge.Expression, dates: Collection[date]) -> sge.Condition:
    if days := contiguous_range(dates):
        return sge.Between(this=day, low=_date(days[0]), high=_date(days[1]))
    return sge.In(this=day, expressions=[_date(item) for item in sorted(dates)])


def _day(column: str) -> sge.Cast:
    # A DATE to Ibis can still be a DATETIME to BigQuery, such as a date plus an interval.
    return sge.cast(_column(column), "date")


def _date(day: date) -> sge.Expression:
    return sge.Introducer(this=sge.Var(this="DATE"), expression=sge.Literal.string(day.isoformat()))


def _cast(column: Column) -> sge.Expression:
    if not is_castable(column.dtype):
        return _column(column.source)
    return sge.Cast(this=_column(column.source), to=sql_type(column.dtype))


def _table(table: TableRef, alias: str | None = None) -> sge.Table:
    named = sge.Table(
        this=_name(table.name), db=_name(table.namespace), catalog=_name(table.catalog)
    )
    if alias:
        named.set("alias", sge.TableAlias(this=_name(alias)))
    return named


def _column(name: str) -> sge.Column:
    return sge.Column(this=_name(name))


def _name(name: str) -> sge.Identifier:
    return sg.to_identifier(name, quoted=True)


def _subquery(query: sge.Query, alias: str) -> sge.Subquery:
    return sge.Subquery(this=query.copy(), alias=sge.TableAlias(this=_name(alias)))
