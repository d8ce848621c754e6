"""Every statement of the DuckDB engine that holds a name or a value, as sqlglot expressions.

Imports sqlglot, Ibis and `_warehouse`.

Identifiers are always quoted and tables always named in full: DuckDB calls `a.b` ambiguous when
a file and a schema share the name `a`. Values stand in the statements as literals: for a bound
parameter DuckDB loads pandas, if it is installed, in every process.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from datetime import date

import sqlglot as sg
import sqlglot.expressions as sge
from ibis.backends.sql.datatypes import DuckDBType

from segmentstream._warehouse.columns import Column
from segmentstream._warehouse.partitions import contiguous_range
from segmentstream._warehouse.tables import TableRef
from segmentstream._warehouse.writes import STRAY_DATE


def render(statement: sge.Expression) -> str:
    """Writes a statement in DuckDB's dialect; the statement is spent afterwards.

    Raises:
        sqlglot.errors.UnsupportedError: DuckDB has no form for a part of it.
    """
    return statement.sql(dialect="duckdb", unsupported_level=sg.ErrorLevel.RAISE, copy=False)


def find_schema(namespace: str) -> sge.Select:
    """SELECT of the schemas of this name, upper and lower case ignored.

    `lower` folds more letters than DuckDB does for names: the caller keeps those it meant.
    """
    return _in_this_database("duckdb_schemas", "schema_name").where(_same("schema_name", namespace))


def find_table(table: TableRef) -> sge.Select:
    """SELECT of schema, name and comment of the tables of this name, as in `find_schema`."""
    return _in_this_database("duckdb_tables", "schema_name", "table_name", "comment").where(
        _same("schema_name", table.namespace), _same("table_name", table.name)
    )


def list_views() -> sge.Select:
    """SELECT of the schema and name of each view that a person made."""
    return _in_this_database("duckdb_views", "schema_name", "view_name").where(
        sg.not_(_column("internal"))
    )


def describe(table: TableRef) -> sge.Describe:
    """DESCRIBE: the name and type of each column, and more."""
    return sge.Describe(this=_table(table))


def create_schema(catalog: str, namespace: str) -> sge.Create:
    """CREATE SCHEMA IF NOT EXISTS."""
    schema = sge.Table(db=_name(namespace), catalog=_name(catalog))
    return sge.Create(this=schema, kind="SCHEMA", exists=True)


def create_table(table: TableRef, columns: Iterable[Column]) -> sge.Create:
    """CREATE TABLE with these columns and no rows."""
    definitions = [
        sge.ColumnDef(this=_name(column.name), kind=DuckDBType.from_ibis(column.dtype))
        for column in columns
    ]
    return sge.Create(this=sge.Schema(this=_table(table), expressions=definitions), kind="TABLE")


def replace_table(table: TableRef, query: sge.Query) -> sge.Create:
    """CREATE OR REPLACE TABLE from a query; the query may read the table it replaces."""
    return sge.Create(this=_table(table), kind="TABLE", replace=True, expression=query)


def create_staging(name: str, query: sge.Query) -> sge.Create:
    """CREATE TEMPORARY TABLE from a query; it goes with the connection."""
    return sge.Create(
        this=sge.Table(this=_name(name)),
        kind="TABLE",
        expression=query,
        properties=sge.Properties(expressions=[sge.TemporaryProperty()]),
    )


def add_column(table: TableRef, column: Column) -> sge.Alter:
    """ALTER TABLE that adds a nullable column at the end."""
    definition = sge.ColumnDef(this=_name(column.name), kind=DuckDBType.from_ibis(column.dtype))
    return sge.Alter(this=_table(table), kind="TABLE", actions=[definition])


def comment_on_table(table: TableRef, text: str) -> sge.Comment:
    """COMMENT ON TABLE."""
    return sge.Comment(this=_table(table), kind="TABLE", expression=sge.Literal.string(text))


def delete_dates(table: TableRef, column: str, dates: Collection[date]) -> sge.Delete:
    """DELETE of exactly the rows of some dates."""
    return sge.Delete(this=_table(table), where=sge.Where(this=_in_dates(_column(column), dates)))


def insert(table: TableRef, columns: Iterable[Column], query: sge.Query) -> sge.Insert:
    """INSERT of a query whose columns stand in the order of `columns`, all of them named."""
    target = sge.Schema(this=_table(table), expressions=[_name(column.name) for column in columns])
    return sge.Insert(this=target, expression=query)


def select_columns(query: sge.Query, columns: Iterable[Column]) -> sge.Select:
    """SELECT of a query's columns under the names and in the types of a table.

    Every column is cast, since DuckDB's own result type can be wider than what Ibis tells (the
    sum of integers is 128 bits wide); a value that does not fit fails the statement.
    """
    return sg.select(*(_cast(column).as_(_name(column.name)) for column in columns)).from_(
        _subquery(query)
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
    guard = sge.Case(
        ifs=[sge.If(this=_in_dates(day, dates), true=day.copy())],
        default=sge.Anonymous(this="error", expressions=[sge.Literal.string(STRAY_DATE)]),
    )
    return sg.select(
        *(
            (guard if item.source == column else _cast(item)).as_(_name(item.name))
            for item in columns
        )
    ).from_(_subquery(query))


def select_all(staging: str) -> sge.Select:
    """SELECT * of a staging table."""
    return sg.select("*").from_(sge.Table(this=_name(staging)))


def count_stray_dates(query: sge.Query, column: str, dates: Collection[date]) -> sge.Select:
    """SELECT of each date that does not belong and its number of rows, NULL first."""
    day = _day(column)
    stray = sg.or_(day.is_(sge.null()), sg.not_(_in_dates(day, dates)))
    return (
        sg.select(day, sge.Count(this=sge.Star()))
        .from_(_subquery(query))
        .where(stray)
        .group_by(day)
        .order_by(sge.Ordered(this=day, nulls_first=True))
    )


def count_by_date(table: TableRef, column: str, dates: Collection[date]) -> sge.Select:
    """SELECT of each date that has rows and their number."""
    day = _column(column)
    return (
        sg.select(day, sge.Count(this=sge.Star()))
        .from_(_table(table))
        .where(_in_dates(day, dates))
        .group_by(day)
    )


def _in_this_database(function: str, *columns: str) -> sge.Select:
    database = sge.Anonymous(this="current_database")
    return (
        sg.select(*map(_column, columns))
        .from_(sge.Anonymous(this=function))
        .where(sge.EQ(this=_column("database_name"), expression=database))
    )


def _same(column: str, name: str) -> sge.EQ:
    literal = sge.Literal.string(name)
    return sge.EQ(this=sge.Lower(this=_column(column)), expression=sge.Lower(this=literal))


def _in_dates(day: sge.Expression, dates: Collection[date]) -> sge.Condition:
    if days := contiguous_range(dates):
        return sge.Between(this=day, low=_date(days[0]), high=_date(days[1]))
    return sge.In(this=day, expressions=[_date(item) for item in sorted(dates)])


def _day(column: str) -> sge.Cast:
    # A DATE to Ibis can still be a TIMESTAMP to DuckDB, such as a date plus an interval.
    return sge.cast(_column(column), "date")


def _date(day: date) -> sge.Cast:
    return sge.cast(sge.Literal.string(day.isoformat()), "date")


def _cast(column: Column) -> sge.Cast:
    return sge.Cast(this=_column(column.source), to=DuckDBType.from_ibis(column.dtype))


def _table(table: TableRef) -> sge.Table:
    return sge.Table(
        this=_name(table.name), db=_name(table.namespace), catalog=_name(table.catalog)
    )


def _column(name: str) -> sge.Column:
    return sge.Column(this=_name(name))


def _name(name: str) -> sge.Identifier:
    return sg.to_identifier(name, quoted=True)


def _subquery(query: sge.Query) -> sge.Subquery:
    return sge.Subquery(this=query.copy(), alias=sge.TableAlias(this=_name("rows")))
