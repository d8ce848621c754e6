"""The Ibis backend that lazy tables are bound to; imports Ibis and this package.

Ibis compiles, and this package sends: an ordinary Ibis backend would look for credentials in its
own way, and submits jobs without an id that a lost answer could be looked up by.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NoReturn

import ibis
import ibis.expr.operations as ops
import ibis.expr.types as ir
import pyarrow as pa
import sqlglot.expressions as sge
from google.cloud import bigquery
from google.cloud.bigquery.table import RowIterator
from ibis.backends.bigquery import Backend

from segmentstream._core.errors import WarehouseReadError
from segmentstream._warehouse.engines.bigquery import sql
from segmentstream._warehouse.engines.bigquery.client import Clients
from segmentstream._warehouse.engines.bigquery.errors import translated
from segmentstream._warehouse.engines.bigquery.jobs import Jobs, Work
from segmentstream._warehouse.engines.bigquery.staging import staging
from segmentstream._warehouse.engines.bigquery.tables import Tables
from segmentstream._warehouse.expressions import refuse_pickling

_TABLES_TOLD = 3


class BigQueryBackend(Backend):  # type: ignore[misc]  # Ibis ships no types
    """Runs what Ibis asks for through the jobs of this package.

    Two of them on the same project are equal, so that tables loaded by different resources can be
    joined.
    """

    def __init__(
        self, clients: Clients, jobs: Jobs, tables: Tables, *, default_namespace: str
    ) -> None:
        super().__init__(clients.identity)
        self._clients = clients
        self._jobs = jobs
        self._tables = tables
        self.data_project = clients.project
        self.billing_project = clients.billing_project
        self.dataset = default_namespace
        self.partition_column = None

    @property
    def client(self) -> bigquery.Client:
        """The client that Ibis uses for what it asks by itself, such as the schema of SQL text."""
        return self._clients.rest

    @property
    def storage_client(self) -> None:
        """None: BigQuery's client makes one, with the same credentials, for large results."""
        return

    @property
    def _session_dataset(self) -> bigquery.DatasetReference:
        # Where the SQL that `.compile()` shows would find tables in memory; nothing is asked.
        return bigquery.DatasetReference(self.data_project, self.dataset)

    def statements(self, rows: ir.Table) -> tuple[list[sge.Expression], sge.Query]:
        """Compiles an expression: the functions it needs, and the query."""
        compiled = self.compiler.to_sqlglot(rows)
        if isinstance(compiled, list):
            return compiled[:-1], compiled[-1]
        return [], compiled

    def execute(self, expr: ir.Expr, /, **options: Any) -> Any:
        """Runs an expression and gives a frame, a series or a plain value."""
        with translated(_reading(expr, self.data_project), failure=WarehouseReadError):
            return super().execute(expr, **options)

    def to_pyarrow(self, expr: ir.Expr, /, **options: Any) -> pa.Table:
        """Runs an expression and gives its rows."""
        with translated(_reading(expr, self.data_project), failure=WarehouseReadError):
            return super().to_pyarrow(expr, **options)

    def to_pyarrow_batches(self, expr: ir.Expr, /, **options: Any) -> pa.RecordBatchReader:
        """Runs an expression and streams its rows."""
        with translated(_reading(expr, self.data_project), failure=WarehouseReadError):
            return super().to_pyarrow_batches(expr, **options)

    def disconnect(self) -> None:
        """Closes the client; the next use makes another."""
        self._clients.close()

    def _to_query(
        self,
        table_expr: ir.Table,
        *,
        params: Any = None,
        limit: int | str | None = None,
        **_: Any,
    ) -> _Rows:
        work = Work(name=_reading(table_expr, self.data_project), location=self._clients.location)
        if table_expr.op().find(ops.InMemoryTable):
            location = self._tables.ensure_dataset(self.dataset)
            work.location = work.location or location
        with staging(self._clients, self._jobs, self._tables, work, namespace=self.dataset) as area:
            uploaded = area.upload_all(table_expr, backend=self)
            compiled = self.compiler.to_sqlglot(
                uploaded, params=params, limit=None if limit == "default" else limit
            )
            statements = compiled if isinstance(compiled, list) else [compiled]
            job = self._jobs.query(sql.render(*statements), work=work, phase="read")
            rows = job.result(retry=self._clients.retry())
        schema = table_expr.schema().to_pyarrow()
        return _Rows(rows, schema=schema, is_emulated=self._clients.is_emulated)

    def _get_schema_using_query(self, query: str) -> ibis.Schema:
        with translated(f"Reading from project {self.data_project}", failure=WarehouseReadError):
            return super()._get_schema_using_query(query)

    def __reduce__(self) -> NoReturn:
        refuse_pickling()


def _reading(expr: ir.Expr, project: str) -> str:
    """Says what is read, as the start of a message: the tables, or the project where none is."""
    tables = [
        f"{table.namespace.catalog}.{table.namespace.database}.{table.name}"
        for table in expr.op().find(ops.DatabaseTable)
    ]
    if not tables:
        return f"Reading from project {project}"
    more = f" and {len(tables) - _TABLES_TOLD} more" if len(tables) > _TABLES_TOLD else ""
    return f"Reading {', '.join(tables[:_TABLES_TOLD])}{more}"


class _Rows:
    """Gives Ibis the rows of a finished job, through the storage interface where there is one."""

    def __init__(self, rows: RowIterator, *, schema: pa.Schema, is_emulated: bool) -> None:
        self._rows = rows
        self._schema = schema
        self._has_storage = not is_emulated

    def to_arrow(self, **_: Any) -> pa.Table:
        return self._rows.to_arrow(create_bqstorage_client=self._has_storage)

    def to_arrow_iterable(self, **_: Any) -> Iterator[pa.RecordBatch]:
        # This one has no switch: it uses the storage interface when it is given a client.
        client = self._rows.client
        storage = client and self._has_storage and client._ensure_bqstorage_client()  # noqa: SLF001
        for batch in self._rows.to_arrow_iterable(bqstorage_client=storage or None):
            # BigQuery sends decimals in their longest form, and Ibis promises the declared one.
            yield batch.rename_columns(self._schema.names).cast(self._schema)
