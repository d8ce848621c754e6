"""Tables in which rows wait before they are committed: named for one write, and gone afterwards.

Imports google-cloud-bigquery, Ibis, pyarrow and `_warehouse`. A staging table is dropped when its
write ends and removes itself where that fails or the process dies; it is never what a write
depends on to be right.
"""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from itertools import count
from typing import IO

import ibis
import ibis.expr.datatypes as dt
import ibis.expr.operations as ops
import ibis.expr.types as ir
import pyarrow as pa
import pyarrow.parquet as pq
from google.api_core.exceptions import GoogleAPIError
from google.cloud import bigquery
from ibis.backends import BaseBackend

from segmentstream._core.errors import ColumnMismatchError, WarehouseMaterializationError
from segmentstream._warehouse.columns import plan_new_table
from segmentstream._warehouse.engines.bigquery.client import Clients
from segmentstream._warehouse.engines.bigquery.errors import TRANSPORT_ERRORS
from segmentstream._warehouse.engines.bigquery.jobs import Jobs, Work
from segmentstream._warehouse.engines.bigquery.names import check_columns
from segmentstream._warehouse.engines.bigquery.tables import Tables, reference
from segmentstream._warehouse.engines.bigquery.types import representable
from segmentstream._warehouse.options import TableOptions
from segmentstream._warehouse.tables import TableRef

STAGING_HOURS = 24
_PREFIX = "_segmentstream_staging"
_DROP_SECONDS = 5.0
_ROWS_IN_A_GROUP = 256 * 1024

_log = logging.getLogger(__name__)


@ibis.udf.scalar.builtin(name="PARSE_JSON")  # type: ignore[untyped-decorator]  # Ibis has none
def _parse_json(text: str) -> dt.JSON: ...


class Staging:
    """Holds the staging tables of one read or write."""

    def __init__(
        self, clients: Clients, jobs: Jobs, tables: Tables, work: Work, *, namespace: str
    ) -> None:
        self._clients = clients
        self._jobs = jobs
        self._tables = tables
        self._work = work
        self._namespace = namespace
        self._numbers = count(1)
        self._made: list[TableRef] = []

    def name_table(self) -> TableRef:
        """Names a table that no other work has, which is dropped at the end if it exists then."""
        table = TableRef(
            catalog=self._clients.project,
            namespace=self._namespace,
            name=f"{_PREFIX}_{self._work.identity}_{next(self._numbers)}",
        )
        self._made.append(table)
        return table

    def upload_all(self, rows: ir.Table, *, backend: BaseBackend) -> ir.Table:
        """Gives the same expression with its tables in memory uploaded.

        Raises:
            ColumnMismatchError: A column has a type that BigQuery has not; nothing was sent.
            WarehouseMaterializationError: Rows do not fit the types they are declared with.
        """
        found = rows.op().find(ops.InMemoryTable)
        files = {table: _Upload(table) for table in found}
        replaced = {table: self._upload(upload, backend=backend) for table, upload in files.items()}
        return rows.op().replace(replaced).to_expr() if replaced else rows

    def drop_all(self) -> None:
        """Drops what was made; a failure is told and does no harm, since the tables expire."""
        while self._made:
            table = self._made.pop()
            try:
                self._clients.rest.delete_table(
                    reference(table),
                    not_found_ok=True,
                    retry=self._clients.retry(_DROP_SECONDS),
                    timeout=_DROP_SECONDS,
                )
            except (GoogleAPIError, *TRANSPORT_ERRORS) as error:
                _log.warning(
                    "The staging table %s could not be dropped (%s); it expires %s hours after it "
                    "was made.",
                    table,
                    error,
                    STAGING_HOURS,
                )

    def _upload(self, upload: _Upload, *, backend: BaseBackend) -> ops.Relation:
        table = self.name_table()
        plan = plan_new_table(upload.stored)
        made = self._tables.create(
            table,
            plan.columns,
            None,
            TableOptions(),
            expires_in=timedelta(hours=STAGING_HOURS),
        )
        config = bigquery.LoadJobConfig(
            source_format=bigquery.SourceFormat.PARQUET,
            schema=made.schema,
            create_disposition=bigquery.CreateDisposition.CREATE_NEVER,
            write_disposition=bigquery.WriteDisposition.WRITE_EMPTY,
            decimal_target_types=[
                bigquery.DecimalTargetType.NUMERIC,
                bigquery.DecimalTargetType.BIGNUMERIC,
            ],
        )
        config.parquet_options = bigquery.ParquetOptions()
        config.parquet_options.enable_list_inference = True
        with tempfile.TemporaryFile() as file:
            upload.write(file)
            phase = f"upload{len(self._made)}"
            self._jobs.load(file, reference(table), config, work=self._work, phase=phase)
        stored = ops.DatabaseTable(
            name=table.name,
            schema=upload.stored,
            source=backend,
            namespace=ops.Namespace(catalog=table.catalog, database=table.namespace),
        )
        return upload.as_declared(stored)


@contextmanager
def staging(
    clients: Clients, jobs: Jobs, tables: Tables, work: Work, *, namespace: str
) -> Iterator[Staging]:
    """Lends a place for staging tables; they are dropped when the block ends, however it ends."""
    area = Staging(clients, jobs, tables, work, namespace=namespace)
    try:
        yield area
    finally:
        area.drop_all()


class _Upload:
    """Is a table in memory, checked and typed as BigQuery stores it."""

    def __init__(self, table: ops.InMemoryTable) -> None:
        check_columns(table.schema.names, of="A table in memory")
        offered = representable(table.schema)
        # PARQUET has no JSON that BigQuery loads; text is parsed where the rows are used. A column
        # without values has a type where it is used, if at all.
        self.stored = ibis.schema(
            {name: dt.string if d.is_json() or d.is_null() else d for name, d in offered.items()}
        )
        self._declared = table.schema
        self._rows = _arrow_rows(table, plan_new_table(self.stored).schema)

    def write(self, file: IO[bytes]) -> None:
        """Writes the rows as Parquet."""
        pq.write_table(
            self._rows,
            file,
            row_group_size=_ROWS_IN_A_GROUP,
            coerce_timestamps="us",
            use_compliant_nested_type=True,
        )

    def as_declared(self, stored: ops.DatabaseTable) -> ops.Relation:
        """Gives the uploaded table with the types that the expression was built on."""
        table = stored.to_expr()
        changed = {
            name: _as_declared(table[name], dtype)
            for name, dtype in self._declared.items()
            if dtype != self.stored[name]
        }
        return table.mutate(**changed).op() if changed else stored


def _as_declared(column: ir.Column, dtype: dt.DataType) -> ir.Value:
    if dtype.is_null():
        return ibis.null()
    return _parse_json(column) if dtype.is_json() else column.cast(dtype)


def _arrow_rows(table: ops.InMemoryTable, stored: ibis.Schema) -> pa.Table:
    try:
        rows = table.data.to_pyarrow(table.schema)
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise WarehouseMaterializationError(
            f"Rows in memory do not fit the types they are declared with: {error}",
            "Correct the rows, or the schema given to ibis.memtable().",
        ) from error
    columns = [_convert(name, rows.column(name), dtype) for name, dtype in stored.items()]
    return pa.table(dict(zip(stored.names, columns, strict=True)))


def _convert(name: str, values: pa.ChunkedArray, dtype: dt.DataType) -> pa.ChunkedArray:
    wanted = dtype.to_pyarrow()
    if isinstance(dtype, dt.Timestamp):
        wanted = pa.timestamp("us", tz=dtype.timezone)
    try:
        return values.cast(wanted)
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise ColumnMismatchError(
            f"Values of the column {name!r} cannot be stored as {dtype}: {error}",
            f'Convert it in the asset, where the loss is meant: `.cast({{"{name}": "{dtype}"}})`.',
            lossy={name: (str(dtype), str(values.type))},
        ) from error
