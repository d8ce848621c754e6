"""The Ibis backend that lazy tables are bound to; imports duckdb, Ibis and this package.

An ordinary Ibis backend holds its connection for as long as it lives, which would keep every
other process away from the file. This one borrows a connection for each thing that Ibis does.
"""

from __future__ import annotations

import functools
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any, Concatenate, NoReturn

import duckdb
import ibis.expr.types as ir
import pyarrow as pa
from ibis.backends.duckdb import Backend

from segmentstream._core.errors import (
    WarehouseConnectionError,
    WarehouseReadError,
)
from segmentstream._warehouse.engines.duckdb.errors import translated
from segmentstream._warehouse.expressions import refuse_pickling

if TYPE_CHECKING:
    from segmentstream._warehouse.engines.duckdb.database import Database


def _borrowing[**P, R](
    method: Callable[Concatenate[Any, P], R],
) -> Callable[Concatenate[SessionBackend, P], R]:
    """Makes a method of Ibis' backend hold a reading connection while it runs, and no longer."""

    @functools.wraps(method)
    def borrowed(self: SessionBackend, /, *args: P.args, **kwargs: P.kwargs) -> R:
        with (
            translated("Reading from DuckDB", failure=WarehouseReadError),
            self.session(write=False),
        ):
            return method(self, *args, **kwargs)

    return borrowed


class SessionBackend(Backend):  # type: ignore[misc]  # Ibis ships no types
    """Runs what Ibis asks for on connections borrowed from a `Database`.

    Two of them on the same database are equal, so that tables loaded by different resources can
    be joined.
    """

    def __init__(self, database: Database, *, wait_seconds: float) -> None:
        super().__init__(database.identity)
        self._database = database
        self._wait_seconds = wait_seconds
        self._borrowed = threading.local()
        self._record_batch_readers_consumed: dict[str, bool] = {}

    @contextmanager
    def session(self, *, write: bool) -> Iterator[duckdb.DuckDBPyConnection]:
        """Borrows a connection for this thread; inside another session it is the same one."""
        if held := self._held():
            yield held
            return
        with (
            self._database.session(write=write, wait_seconds=self._wait_seconds) as connection,
            self._lent(connection),
        ):
            yield connection

    @contextmanager
    def _lent(self, connection: duckdb.DuckDBPyConnection) -> Iterator[None]:
        self._borrowed.connection = connection
        try:
            yield
        finally:
            self._borrowed.connection = None

    def _held(self) -> duckdb.DuckDBPyConnection | None:
        return getattr(self._borrowed, "connection", None)

    @property
    def con(self) -> duckdb.DuckDBPyConnection:
        """The connection that this thread has borrowed; Ibis works on it."""
        if held := self._held():
            return held
        raise WarehouseConnectionError(
            "No connection to DuckDB is open here: one is held only while a query runs.",
            "Use the table as an Ibis expression, or .execute() and .to_pyarrow() for its rows.",
        )

    execute = _borrowing(Backend.execute)
    to_pyarrow = _borrowing(Backend.to_pyarrow)
    to_parquet = _borrowing(Backend.to_parquet)
    to_csv = _borrowing(Backend.to_csv)
    to_json = _borrowing(Backend.to_json)
    get_schema = _borrowing(Backend.get_schema)
    list_catalogs = _borrowing(Backend.list_catalogs)
    list_databases = _borrowing(Backend.list_databases)
    list_tables = _borrowing(Backend.list_tables)
    _get_schema_using_query = _borrowing(Backend._get_schema_using_query)  # noqa: SLF001

    def to_pyarrow_batches(self, expr: ir.Expr, /, **options: Any) -> pa.RecordBatchReader:
        """Streams the rows; the connection goes back when the last batch is read."""
        held = ExitStack()
        with (
            translated("Reading from DuckDB", failure=WarehouseReadError),
            ExitStack() as until_streaming,
        ):
            connection = until_streaming.enter_context(
                self._database.session(write=False, wait_seconds=self._wait_seconds)
            )
            with self._lent(connection):
                reader = super().to_pyarrow_batches(expr, **options)
            held = until_streaming.pop_all()

        def batches() -> Iterator[pa.RecordBatch]:
            with held, translated("Reading from DuckDB", failure=WarehouseReadError):
                yield from reader

        stream = pa.RecordBatchReader.from_batches(reader.schema, batches())
        weakref.finalize(stream, held.close)
        return stream

    def disconnect(self) -> None:
        """Does nothing: no connection is held between queries."""

    def _register_in_memory_tables(self, expr: ir.Expr) -> None:
        # Ibis registers a table once a backend and drops it when Python forgets it; here each
        # session is a new connection, which forgets its tables by itself.
        for table in self._verify_in_memory_tables_are_unique(expr):
            self._register_in_memory_table(table)

    def __reduce__(self) -> NoReturn:
        refuse_pickling()
