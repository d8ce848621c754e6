"""BigQuery as a warehouse: how tables are described, read and replaced.

Imports Ibis, sqlglot (through its siblings) and `_core`. Ibis compiles, the jobs of this package
run it; every write commits in one job, whose verdict is what the caller is told.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date
from typing import ClassVar

import ibis.expr.operations as ops
import ibis.expr.types as ir
import sqlglot.expressions as sge
from google.api_core.exceptions import GoogleAPIError
from google.cloud import bigquery

from segmentstream._core.errors import (
    WarehouseConfigurationError,
    WarehouseMaterializationError,
    WarehouseReadError,
)
from segmentstream._core.names import fold_case
from segmentstream._warehouse.columns import (
    Column,
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
from segmentstream._warehouse.engines.bigquery import sql
from segmentstream._warehouse.engines.bigquery.backend import BigQueryBackend
from segmentstream._warehouse.engines.bigquery.client import Clients
from segmentstream._warehouse.engines.bigquery.errors import TRANSPORT_ERRORS, translated
from segmentstream._warehouse.engines.bigquery.jobs import COMMIT, Jobs, Work
from segmentstream._warehouse.engines.bigquery.names import check_columns, table_problem
from segmentstream._warehouse.engines.bigquery.staging import staging
from segmentstream._warehouse.engines.bigquery.tables import (
    Tables,
    info_of,
    kind_of,
    policy_tagged,
)
from segmentstream._warehouse.engines.bigquery.types import (
    descriptions_of,
    representable,
    schema_of,
)
from segmentstream._warehouse.engines.bigquery.writing import Write
from segmentstream._warehouse.expressions import check_bound
from segmentstream._warehouse.options import TableOptions
from segmentstream._warehouse.settings import WarehouseSettings
from segmentstream._warehouse.tables import TableRef
from segmentstream._warehouse.writes import (
    check_dates,
    check_not_daily,
    check_writable,
    plan_dates,
    stray_dates,
)

_log = logging.getLogger(__name__)
_DATES_IN_A_JOB = 4_000  # https://docs.cloud.google.com/bigquery/quotas#partitioned_tables


@dataclass(frozen=True, slots=True, kw_only=True)
class _Slice:
    """Is the dates of a write: the columns that hold them, in the table and in the result."""

    day: str
    source: str
    dates: frozenset[date]


class BigQueryEngine(WarehouseEngine):
    """Keeps the tables of a warehouse in the datasets of one project."""

    capabilities: ClassVar[EngineCapabilities] = EngineCapabilities(
        storage_kind="bigquery", ignores_case=False, name_problem=table_problem
    )

    def __init__(self, settings: WarehouseSettings) -> None:
        self._settings = settings
        self._clients = Clients(settings)
        self._jobs = Jobs(self._clients, wait_seconds=settings.wait_seconds)
        self._tables = Tables(self._clients)
        self._backend = BigQueryBackend(
            self._clients,
            self._jobs,
            self._tables,
            default_namespace=settings.staging_namespace or settings.default_namespace,
        )
        # Tables that `read` has seen to be no views: they cannot hide another table.
        self._plain: set[tuple[str | None, str | None, str]] = set()

    def close(self) -> None:
        self._clients.close()

    def ensure_namespace(self, namespace: str) -> None:
        with translated(
            f"Creating the dataset {self._clients.project}.{namespace}",
            failure=WarehouseMaterializationError,
        ):
            self._tables.ensure_dataset(namespace)

    def describe(self, table: TableRef) -> TableInfo | None:
        table = self._within(table)
        with translated(f"Looking up {table}", failure=WarehouseReadError):
            found = self._tables.find(table)
            return None if found is None else info_of(table, found)

    def read(self, table: TableRef) -> ir.Table:
        info = self.describe(table)
        if info is None:
            raise WarehouseReadError(
                f"The table {self._within(table)} does not exist.",
                "Materialize the asset that writes it first, or correct its key.",
            )
        where = info.table
        if info.kind == "table":
            self._plain.add((where.catalog, where.namespace, where.name))
        return ops.DatabaseTable(
            name=where.name,
            schema=info.schema,
            source=self._backend,
            namespace=ops.Namespace(catalog=where.catalog, database=where.namespace),
        ).to_expr()

    def replace(
        self,
        table: TableRef,
        rows: ir.Table,
        *,
        options: TableOptions = DEFAULT_OPTIONS,
        labels: Mapping[str, str] = NO_LABELS,
    ) -> WriteResult:
        with self._writing(table, rows, labels) as write:
            offered = representable(rows.schema())
            plan = plan_new_table(offered)
            check_columns(offered.names, of=f"The result for {write.table}")
            check_not_daily(write.info)
            shape = _same_shape(write.found, plan)
            if write.found is not None:
                self._tables.check_spec(write.found, None, options)
            if write.found is not None and shape is None:
                written = self._recreate(write, rows, plan, options)
                schema = plan.schema
            else:
                plan = shape or plan
                written, found = self._refill(write, rows, plan, options)
                schema = schema_of(found.schema)
            return write.result(schema, written)

    def replace_partitions(
        self,
        table: TableRef,
        rows: ir.Table,
        column: str,
        dates: Collection[date],
        *,
        options: TableOptions = DEFAULT_OPTIONS,
        labels: Mapping[str, str] = NO_LABELS,
    ) -> WriteResult:
        dates = check_dates(table, dates)
        if len(dates) > _DATES_IN_A_JOB:
            raise WarehouseMaterializationError(
                f"The write of {table} names {len(dates)} dates; BigQuery changes at most "
                f"{_DATES_IN_A_JOB} partitions in one job.",
                "Write fewer in one run: BackfillPolicy.multi_run(max_partitions_per_run=...).",
            )
        with self._writing(table, rows, labels) as write:
            source = find_partition_column(rows.schema(), column, of="the result")
            offered = representable(rows.schema())
            check_columns(offered.names, of=f"The result for {write.table}")
            if write.found is not None:
                self._tables.check_spec(write.found, column, options)
            plan = plan_dates(offered, write.info, write.table, column)
            day = next(item.name for item in plan.columns if item.source == source)
            slice_ = _Slice(day=day, source=source, dates=dates)
            found, query = self._prepare_dates(write, rows, plan, slice_, options)
            rows_by_date = self._commit_dates(write, query, plan, slice_, options)
            return write.result(
                schema_of(found.schema),
                sum(rows_by_date.values()),
                rows_by_date=rows_by_date,
                added_columns=tuple(item.name for item in plan.added) if write.info else (),
            )

    @contextmanager
    def _writing(
        self, table: TableRef, rows: ir.Table, labels: Mapping[str, str]
    ) -> Iterator[Write]:
        """Looks the target up and lends what a write needs; staging is dropped at the end."""
        started = time.monotonic()
        check_bound(rows, backend=self._backend)
        table = self._within(table)
        if problem := table_problem(table):
            raise WarehouseConfigurationError(
                f"{table} cannot be written: {problem}.", "Give the asset another key."
            )
        work = Work(name=f"Writing {table}", labels=labels, location=self._clients.location)
        namespace = self._settings.staging_namespace or table.namespace
        with (
            translated(work.name, failure=WarehouseMaterializationError),
            staging(self._clients, self._jobs, self._tables, work, namespace=namespace) as area,
        ):
            found = self._tables.find(table)
            info = None
            if found is not None:
                info = check_writable(info_of(table, found), kind=kind_of(found))
                self._tables.check_location(found)
                work.location = work.location or found.location
            yield Write(
                table=table,
                found=found,
                info=info,
                work=work,
                jobs=self._jobs,
                area=area,
                started=started,
            )

    # Dates

    def _prepare_dates(
        self,
        write: Write,
        rows: ir.Table,
        plan: ColumnPlan,
        slice_: _Slice,
        options: TableOptions,
    ) -> tuple[bigquery.Table, sge.Query]:
        """Makes the table ready, and gives the query whose rows are to be committed.

        A table is made or grows only after the result has been computed and is known to fit; until
        then it waits in a staging table. Otherwise the result is computed by the commit itself.
        """
        found = write.found
        self._tables.check_expiry(write.table, found, slice_.dates, options)
        functions, result = self._compile(write, rows)
        guarded = sql.select_columns_of_dates(result, plan.columns, slice_.source, slice_.dates)
        is_staged = (
            found is None
            or plan.added
            or functions
            or (options.commit == "transaction" and self._may_read(rows, write.table))
        )
        write.explain_stray = lambda: self._stray_dates(write, functions, result, slice_)
        if is_staged:
            guarded = write.stage(functions, guarded, plan.columns)
        if found is None:
            found = self._create(write, plan, slice_.day, options)
            # A dataset can give its tables an expiry.
            self._tables.check_expiry(write.table, found, slice_.dates, options)
        return self._tables.patch(found, plan, options), guarded

    def _commit_dates(
        self,
        write: Write,
        query: sge.Query,
        plan: ColumnPlan,
        slice_: _Slice,
        options: TableOptions,
    ) -> dict[date, int]:
        """Replaces the dates and gives their numbers of rows."""
        parts = (write.table, plan.columns, query, slice_.day, slice_.dates)
        if options.commit == "transaction":
            statements = sql.replace_dates_in_transaction(*parts)
        else:
            statements = [sql.replace_dates(*parts)]
        changed, counted = write.commit(
            sql.render(*statements),
            sql.count_by_date(write.table, slice_.day, slice_.dates),
            # Of several dates some may have been empty, and each of those could be doubled.
            decides=lambda deleted: deleted > 0 and len(slice_.dates) == 1,
        )
        if counted is None:
            return dict.fromkeys(slice_.dates, changed.inserted or 0)
        by_date = dict(counted)
        return {day: by_date.get(day, 0) for day in sorted(slice_.dates)}

    def _stray_dates(
        self,
        write: Write,
        functions: list[sge.Expression],
        query: sge.Query,
        slice_: _Slice,
    ) -> WarehouseMaterializationError:
        statement = sql.count_stray_dates(query, slice_.source, slice_.dates)
        counts = dict(write.ask(sql.render(*functions, statement), "stray"))
        return stray_dates(counts, write.table, slice_.source, slice_.dates)

    # Whole tables

    def _refill(
        self, write: Write, rows: ir.Table, plan: ColumnPlan, options: TableOptions
    ) -> tuple[int, bigquery.Table]:
        """Empties the table and fills it again in one transaction, so that all set on it stays."""
        functions, result = self._compile(write, rows)
        query: sge.Query = sql.select_columns(result, plan.columns)
        found = write.found
        if found is None or plan.added or functions or self._may_read(rows, write.table):
            query = write.stage(functions, query, plan.columns)
        if found is None:
            found = self._create(write, plan, None, options)
        found = self._tables.patch(found, plan, options)
        changed, counted = write.commit(
            sql.render(*sql.replace_rows(write.table, plan.columns, query)),
            sql.count_all(write.table),
            decides=lambda deleted: deleted > 0,
        )
        return (changed.inserted or 0) if counted is None else counted[0][0], found

    def _recreate(
        self, write: Write, rows: ir.Table, plan: ColumnPlan, options: TableOptions
    ) -> int | None:
        """Replaces a table by one of another shape, carrying over what is set on it.

        Raises:
            WarehouseMaterializationError: It has policies that would be lost, and with them the
                protection of its rows or columns.
        """
        found = write.found
        assert found is not None  # noqa: S101 - the caller's case
        self._refuse_to_lose_policies(write, found)
        names = [column.name for column in plan.columns]
        cluster_by = self._tables.check_replaceable(found, names)
        functions, result = self._compile(write, rows)
        query: sge.Query = sql.select_columns(result, plan.columns)
        if functions:
            query = write.stage(functions, query, plan.columns)
        kept = {fold_case(name): text for name, text in descriptions_of(found.schema).items()}
        kept |= {fold_case(name): text for name, text in options.column_descriptions.items()}
        key = found.encryption_configuration
        statement = sql.recreate(
            write.table,
            plan.columns,
            query,
            descriptions={name: kept[fold_case(name)] for name in names if fold_case(name) in kept},
            cluster_by=cluster_by,
            options=sql.table_options(
                description=options.description or found.description,
                friendly_name=found.friendly_name,
                expires=found.expires,
                labels={**found.labels, **options.labels},
                kms_key=key.kms_key_name if key else None,
            ),
        )
        write.query(sql.render(statement), COMMIT)
        write.work.has_committed = True
        try:
            made = self._tables.find(write.table)
        except (GoogleAPIError, *TRANSPORT_ERRORS) as error:
            _log.warning("%s: its rows could not be counted: %s", write.work.name, error)
            return None
        return None if made is None else made.num_rows

    def _refuse_to_lose_policies(self, write: Write, found: bigquery.Table) -> None:
        tagged = policy_tagged(found)
        if tagged or self._tables.has_row_policies(write.table):
            what = f"policy tags on {', '.join(tagged)}" if tagged else "row access policies"
            raise WarehouseMaterializationError(
                f"{write.table} has {what}, and the asset's columns have changed in a way that "
                "needs a new table, which would have none. Nothing was written.",
                "Keep the columns and add new ones only; or change the table's columns yourself "
                "(ALTER TABLE), or remove the policies, and run it again.",
            )

    # Both

    def _compile(self, write: Write, rows: ir.Table) -> tuple[list[sge.Expression], sge.Query]:
        if write.found is None or rows.op().find(ops.InMemoryTable):
            self._ensure_datasets(write)
        uploaded = write.area.upload_all(rows, backend=self._backend)
        return self._backend.statements(uploaded)

    def _ensure_datasets(self, write: Write) -> None:
        location = None
        if write.found is None:
            location = self._tables.ensure_dataset(write.table.namespace)
        staged_in = self._settings.staging_namespace
        if staged_in and staged_in != write.table.namespace:
            self._tables.ensure_dataset(staged_in)
        write.work.location = write.work.location or location

    def _create(
        self, write: Write, plan: ColumnPlan, day: str | None, options: TableOptions
    ) -> bigquery.Table:
        found = self._tables.create(write.table, plan.columns, day, options)
        # Another writer may have made it a moment ago, in another way.
        info = check_writable(info_of(write.table, found), kind=kind_of(found))
        if day is None:
            check_not_daily(info)
        self._tables.check_spec(found, day, options)
        if _same_shape(found, plan) != plan:
            raise WarehouseMaterializationError(
                f"{write.table} was made by another writer at the same moment, with other columns.",
                "Run it again: the columns are then compared with those of that table.",
                retryable=True,
            )
        return found

    def _may_read(self, rows: ir.Table, target: TableRef) -> bool:
        """Says whether the result could read the rows that a transaction is about to delete.

        A transaction sees its own deletes, so such a result must be complete before they happen.
        Views and SQL text may read anything.
        """
        mine = (target.catalog, target.namespace, target.name)
        if rows.op().find(ops.SQLQueryResult):
            return True
        return any(
            (where := (table.namespace.catalog, table.namespace.database, table.name)) == mine
            or where not in self._plain
            for table in rows.op().find(ops.DatabaseTable)
        )

    def _within(self, table: TableRef) -> TableRef:
        return TableRef(catalog=self._clients.project, namespace=table.namespace, name=table.name)


def _same_shape(found: bigquery.Table | None, plan: ColumnPlan) -> ColumnPlan | None:
    """Gives the plan in the order of the table, when each of its columns stays as it is.

    None where a column is gone or has another type: a table of that shape is another table.
    """
    if found is None:
        return None
    offered = {fold_case(column.name): column for column in plan.columns}
    types = representable(plan.schema)
    kept = []
    for name, dtype in schema_of(found.schema).items():
        column = offered.pop(fold_case(name), None)
        if column is None or types[column.name] != dtype.copy(nullable=True):
            return None
        kept.append(Column(name=name, source=column.source, dtype=column.dtype))
    added = tuple(offered.values())
    return ColumnPlan(columns=(*kept, *added), added=added)
