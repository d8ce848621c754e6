"""Embedded DuckDB as a warehouse: how tables are described, read and replaced.

Imports duckdb (through its siblings), Ibis, sqlglot and `_core`. Every statement is built from
sqlglot expressions; rows stay inside DuckDB.
"""

from __future__ import annotations

import functools
import json
import logging
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from datetime import date
from typing import Any, ClassVar, cast
from urllib.parse import quote

import duckdb
import ibis
import ibis.expr.datatypes as dt
import ibis.expr.operations as ops
import ibis.expr.types as ir
import pyarrow as pa
import sqlglot.expressions as sge
from ibis.backends.sql.datatypes import DuckDBType

from segmentstream._core.errors import (
    PartitionDatesError,
    WarehouseConfigurationError,
    WarehouseMaterializationError,
    WarehouseReadError,
)
from segmentstream._core.names import fold_case
from segmentstream._warehouse.columns import (
    ColumnPlan,
    find_partition_column,
    plan_new_table,
)
from segmentstream._warehouse.engine import (
    DEFAULT_OPTIONS,
    NO_LABELS,
    EngineCapabilities,
    TableInfo,
    WarehouseEngine,
    WriteResult,
)
from segmentstream._warehouse.engines.duckdb import sql
from segmentstream._warehouse.engines.duckdb.backend import SessionBackend
from segmentstream._warehouse.engines.duckdb.database import find_database
from segmentstream._warehouse.engines.duckdb.errors import translated
from segmentstream._warehouse.expressions import check_bound
from segmentstream._warehouse.options import TableOptions
from segmentstream._warehouse.settings import WarehouseSettings
from segmentstream._warehouse.tables import TableRef
from segmentstream._warehouse.writes import (
    STRAY_DATE,
    check_dates,
    check_not_daily,
    check_writable,
    plan_dates,
    stray_dates,
)

_log = logging.getLogger(__name__)
_STAGING = "segmentstream_staging"
_PARTITION_NOTE = "segmentstream.partition_by"


class DuckDBEngine(WarehouseEngine):
    """Keeps the tables of a warehouse in one DuckDB database file."""

    capabilities: ClassVar[EngineCapabilities] = EngineCapabilities(
        storage_kind="duckdb", ignores_case=True
    )

    def __init__(self, settings: WarehouseSettings) -> None:
        self._database = find_database(settings.catalog)
        self._backend = SessionBackend(self._database, wait_seconds=settings.wait_seconds)

    def close(self) -> None:
        """Does nothing: connections go back as soon as their work is done."""

    def ensure_namespace(self, namespace: str) -> None:
        with (
            translated(f"Creating namespace {namespace}", failure=WarehouseMaterializationError),
            self._backend.session(write=True) as connection,
        ):
            _ensure_schema(connection, _catalog(connection), namespace)

    def describe(self, table: TableRef) -> TableInfo | None:
        if not self._database.exists():
            return None
        with (
            translated(f"Looking up {table}", failure=WarehouseReadError),
            self._backend.session(write=False) as connection,
        ):
            return self._find(connection, _within(connection, table))

    def read(self, table: TableRef) -> ir.Table:
        info = self.describe(table)
        if info is None:
            raise WarehouseReadError(
                f"The table {table.namespace}.{table.name} does not exist in "
                f"{self._database.identity}.",
                "Materialize the asset that writes it first, or correct its key.",
            )
        return ops.DatabaseTable(
            name=info.table.name,
            schema=info.schema,
            source=self._backend,
            namespace=ops.Namespace(catalog=info.table.catalog, database=info.table.namespace),
        ).to_expr()

    def replace(
        self,
        table: TableRef,
        rows: ir.Table,
        *,
        options: TableOptions = DEFAULT_OPTIONS,  # noqa: ARG002 - a file has no place for them
        labels: Mapping[str, str] = NO_LABELS,  # noqa: ARG002
    ) -> WriteResult:
        started = time.monotonic()
        check_bound(rows, backend=self._backend)
        plan = plan_new_table(rows.schema())
        with self._writing(table, rows) as (connection, target, query):
            check_not_daily(check_writable(self._find(connection, target)))
            with _transaction(connection, target):
                _ensure_schema(connection, target.catalog, target.namespace)
                statement = sql.replace_table(target, sql.select_columns(query, plan.columns))
                written = _run(connection, statement)
        return WriteResult(
            table=target,
            schema=plan.schema,
            uri=self._uri(target),
            rows=written,
            rows_by_date=None,
            added_columns=(),
            seconds=time.monotonic() - started,
        )

    def replace_partitions(
        self,
        table: TableRef,
        rows: ir.Table,
        column: str,
        dates: Collection[date],
        *,
        options: TableOptions = DEFAULT_OPTIONS,  # noqa: ARG002 - a file has no place for them
        labels: Mapping[str, str] = NO_LABELS,  # noqa: ARG002
    ) -> WriteResult:
        started = time.monotonic()
        check_bound(rows, backend=self._backend)
        dates = check_dates(table, dates)
        source = find_partition_column(rows.schema(), column, of="the result")
        with self._writing(table, rows) as (connection, target, query):
            found = check_writable(self._find(connection, target))
            plan = plan_dates(rows.schema(), found, target, column)
            day = next(item.name for item in plan.columns if item.source == source)
            guarded = sql.select_columns_of_dates(query, plan.columns, source, dates)
            try:
                with _transaction(connection, target):
                    _prepare_table(connection, target, plan, found, day)
                    if _may_read(connection, rows, target):
                        _run(connection, sql.create_staging(_STAGING, guarded))
                        guarded = sql.select_all(_STAGING)
                    if found:
                        _run(connection, sql.delete_dates(target, day, dates))
                    written = _run(connection, sql.insert(target, plan.columns, guarded))
                    rows_by_date = _rows_by_date(connection, target, day, dates, written)
            except duckdb.InvalidInputException as error:
                if STRAY_DATE not in str(error):
                    raise
                raise _stray_dates(connection, query, source, dates, target) from error
        return WriteResult(
            table=target,
            schema=plan.schema,
            uri=self._uri(target),
            rows=written,
            rows_by_date=rows_by_date,
            added_columns=tuple(item.name for item in plan.added) if found else (),
            seconds=time.monotonic() - started,
        )

    @contextmanager
    def _writing(
        self, table: TableRef, rows: ir.Table
    ) -> Iterator[tuple[duckdb.DuckDBPyConnection, TableRef, sge.Query]]:
        """Holds the file for one write, with everything there that the result needs."""
        doing = f"Writing {table.namespace}.{table.name} in {self._database.identity}"
        with translated(doing, failure=WarehouseMaterializationError):
            query = cast("sge.Query", self._backend.compiler.to_sqlglot(rows))
            with self._backend.session(write=True) as connection:
                self._bring_in_memory_rows(rows)
                yield connection, _within(connection, table), query

    def _bring_in_memory_rows(self, rows: ir.Table) -> None:
        # Tables in memory and Python functions belong to the connection, and must be there before
        # the transaction that uses them.
        try:
            self._backend._run_pre_execute_hooks(rows)  # noqa: SLF001
        except (pa.ArrowException, TypeError, ValueError) as error:
            raise WarehouseMaterializationError(
                f"Rows in memory do not fit the types they are declared with: {error}",
                "Correct the rows, or the schema given to ibis.memtable().",
            ) from error

    def _find(self, connection: duckdb.DuckDBPyConnection, table: TableRef) -> TableInfo | None:
        tables = _named_like(table, _ask(connection, sql.find_table(table)))
        views = [] if tables else _named_like(table, _ask(connection, sql.list_views()))
        if not tables and not views:
            spelling = _spelling_of(connection, table.namespace)
            _refuse_other_spelling("namespace", table.namespace, spelling)
            return None
        namespace, name, comment = (*views[0], None) if views else tables[0]
        _refuse_other_spelling("namespace", table.namespace, namespace)
        _refuse_other_spelling("table", table.name, name)
        return TableInfo(
            table=table,
            kind="view" if views else "table",
            schema=ibis.schema(
                {
                    column: _ibis_type(dtype)
                    for column, dtype, *_ in _ask(connection, sql.describe(table))
                }
            ),
            partition_column=_noted_partition_column(comment),
            uri=self._uri(table),
        )

    def _uri(self, table: TableRef) -> str:
        return f"{self._database.uri}#{quote(table.namespace)}.{quote(table.name)}"


def _ask(connection: duckdb.DuckDBPyConnection, query: sge.Expression) -> list[tuple[Any, ...]]:
    return connection.execute(sql.render(query)).fetchall()


def _run(connection: duckdb.DuckDBPyConnection, statement: sge.Expression) -> int:
    """Runs a statement and gives the number of rows it says it changed."""
    answer = _ask(connection, statement)
    return int(answer[0][0]) if answer else 0


@functools.lru_cache(maxsize=1024)
def _ibis_type(name: str) -> dt.DataType:
    return DuckDBType.from_string(name)


def _catalog(connection: duckdb.DuckDBPyConnection) -> str:
    return str(connection.execute("SELECT current_database()").fetchall()[0][0])


def _within(connection: duckdb.DuckDBPyConnection, table: TableRef) -> TableRef:
    """Names a table under DuckDB's own name of the file, which is not its path."""
    return TableRef(catalog=_catalog(connection), namespace=table.namespace, name=table.name)


@contextmanager
def _transaction(connection: duckdb.DuckDBPyConnection, table: TableRef) -> Iterator[None]:
    connection.begin()
    try:
        yield
        connection.commit()
    except BaseException as error:
        try:
            connection.rollback()
        except duckdb.Error:
            # No transaction is left. After an error of DuckDB it has been undone already; after
            # an interrupt the commit was faster.
            if not isinstance(error, duckdb.Error):
                _log.warning("The write of %s had committed when it was interrupted.", table)
        raise


def _ensure_schema(connection: duckdb.DuckDBPyConnection, catalog: str, namespace: str) -> None:
    if _spelling_of(connection, namespace) is None:
        _run(connection, sql.create_schema(catalog, namespace))


def _spelling_of(connection: duckdb.DuckDBPyConnection, namespace: str) -> str | None:
    """Gives a namespace as it is spelled where it exists; None where there is none."""
    found = _ask(connection, sql.find_schema(namespace))
    return next((name for (name,) in found if fold_case(name) == fold_case(namespace)), None)


def _named_like(table: TableRef, found: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Keeps the rows, of namespace and name and more, that DuckDB takes for the table."""
    wanted = _folded(table.namespace, table.name)
    return [row for row in found if _folded(row[0], row[1]) == wanted]


def _prepare_table(
    connection: duckdb.DuckDBPyConnection,
    target: TableRef,
    plan: ColumnPlan,
    found: TableInfo | None,
    day: str,
) -> None:
    if found is None:
        _ensure_schema(connection, target.catalog, target.namespace)
        _run(connection, sql.create_table(target, plan.columns))
    else:
        for added in plan.added:
            _run(connection, sql.add_column(target, added))
    if found is None or found.partition_column is None:
        _run(connection, sql.comment_on_table(target, json.dumps({_PARTITION_NOTE: day})))


def _noted_partition_column(comment: str | None) -> str | None:
    """Reads the partition column from a table's comment, DuckDB having no place of its own."""
    try:
        note = json.loads(comment or "null")
    except ValueError:
        return None
    return note.get(_PARTITION_NOTE) if isinstance(note, dict) else None


def _refuse_other_spelling(kind: str, wanted: str, found: str | None) -> None:
    if found is not None and found != wanted:
        raise WarehouseConfigurationError(
            f"The {kind} {wanted!r} exists as {found!r}, and DuckDB does not tell upper from "
            "lower case: both names are one and the same place.",
            "Spell the asset key as the existing name, or choose another one.",
        )


def _may_read(connection: duckdb.DuckDBPyConnection, rows: ir.Table, target: TableRef) -> bool:
    """Says whether the result could read the rows that the write is about to delete.

    A transaction sees its own deletes, so such a result must be complete before they happen. SQL
    text and views may read anything.
    """
    if rows.op().find(ops.SQLQueryResult):
        return True
    views = {_folded(*view) for view in _ask(connection, sql.list_views())}
    unsafe = views | {_folded(target.namespace, target.name)}
    return any(
        _folded(table.namespace.database or "", table.name) in unsafe
        for table in rows.op().find(ops.DatabaseTable)
    )


def _folded(namespace: str, name: str) -> tuple[str, str]:
    return fold_case(namespace), fold_case(name)


def _rows_by_date(
    connection: duckdb.DuckDBPyConnection,
    target: TableRef,
    day: str,
    dates: Collection[date],
    written: int,
) -> Mapping[date, int]:
    if len(dates) == 1:
        return dict.fromkeys(dates, written)
    statement = sql.count_by_date(target, day, dates)
    counted = dict(_ask(connection, statement))
    return {date_: counted.get(date_, 0) for date_ in sorted(dates)}


def _stray_dates(
    connection: duckdb.DuckDBPyConnection,
    query: sge.Query,
    column: str,
    dates: Collection[date],
    target: TableRef,
) -> PartitionDatesError:
    counts = dict(_ask(connection, sql.count_stray_dates(query, column, dates)))
    return stray_dates(counts, target, column, dates)
