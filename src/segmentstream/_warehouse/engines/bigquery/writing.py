"""One write under way: its target, its jobs and staging tables, and how it commits.

Imports google-cloud-bigquery, Ibis and `_warehouse`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import date
from time import monotonic, sleep
from typing import Any
from urllib.parse import quote

import ibis
import sqlglot.expressions as sge
from google.api_core.exceptions import GoogleAPICallError, GoogleAPIError
from google.cloud import bigquery
from google.cloud.bigquery.job import QueryJob

from segmentstream._core.errors import (
    SegmentStreamError,
    WarehouseConnectionError,
    WarehouseMaterializationError,
)
from segmentstream._warehouse.columns import Column
from segmentstream._warehouse.engine import TableInfo, WriteResult
from segmentstream._warehouse.engines.bigquery import sql
from segmentstream._warehouse.engines.bigquery.errors import TRANSPORT_ERRORS
from segmentstream._warehouse.engines.bigquery.jobs import COMMIT, Jobs, Work
from segmentstream._warehouse.engines.bigquery.staging import STAGING_HOURS, Staging
from segmentstream._warehouse.engines.bigquery.tables import uri_of
from segmentstream._warehouse.tables import TableRef
from segmentstream._warehouse.writes import STRAY_DATE

_log = logging.getLogger(__name__)
_LISTINGS = 5
_LISTING_PAUSE_SECONDS = 0.5
_COMMITS = 4  # One, and three more when another first writer landed at the same moment.
_UNREACHABLE = (GoogleAPIError, WarehouseConnectionError, *TRANSPORT_ERRORS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Changed:
    """Is what BigQuery says a commit did.

    Attributes:
        inserted: Number of rows inserted; None where it is not told.
        deleted: Number of rows deleted; None where it is not told.
        affected: Both together, where only that is told.
    """

    inserted: int | None = None
    deleted: int | None = None
    affected: int | None = None

    @classmethod
    def of(cls, *jobs: QueryJob) -> Changed:
        """Sums the statements of a commit."""
        counts = [job.dml_stats for job in jobs if job.dml_stats is not None]
        if not counts:
            told = [n for job in jobs if (n := job.num_dml_affected_rows) is not None]
            return cls(affected=sum(told) if told else None)
        return cls(
            inserted=sum(count.inserted_row_count for count in counts),
            deleted=sum(count.deleted_row_count for count in counts),
        )

    def explains(self, present: int) -> bool:
        """Says whether the rows counted afterwards are those of this commit alone."""
        if self.inserted is not None:
            return present == self.inserted
        return self.affected is not None and present <= self.affected


@dataclass(slots=True, kw_only=True)
class Write:
    """Is one write under way.

    Attributes:
        table: Where it goes.
        found: The table as BigQuery describes it, None where there is none.
        info: The same in the terms of every engine.
        work: Its jobs.
        jobs: What runs them.
        area: Its staging tables.
        explain_stray: Makes the error of rows with other dates than those being replaced.
        started: When it began, on the monotonic clock.
    """

    table: TableRef
    found: bigquery.Table | None
    info: TableInfo | None
    work: Work
    jobs: Jobs
    area: Staging
    explain_stray: Callable[[], WarehouseMaterializationError] | None = None
    started: float = field(default_factory=monotonic)

    def query(self, text: str, phase: str) -> QueryJob:
        """Runs a statement or a script that belongs to the write."""
        with self._guarding():
            return self.jobs.query(text, work=self.work, phase=phase)

    def ask(self, text: str, phase: str) -> list[tuple[Any, ...]]:
        """Runs a query that belongs to the write, and gives its rows."""
        return self.jobs.rows(self.query(text, phase))

    def stage(
        self, functions: Collection[sge.Expression], query: sge.Query, columns: Collection[Column]
    ) -> sge.Select:
        """Computes a query into a staging table, and gives the query that reads it there."""
        table = self.area.name_table()
        statement = sql.create_staging(table, query, hours=STAGING_HOURS)
        self.query(sql.render(*functions, statement), "stage")
        return sql.select_all(table, columns)

    def commit(
        self, text: str, count: sge.Select, *, decides: Callable[[int], bool]
    ) -> tuple[Changed, list[tuple[Any, ...]] | None]:
        """Runs what commits, until the table holds one version of what was written.

        Two writers that find nothing to delete do not conflict in BigQuery: an insert disturbs
        nobody, and both versions stay. So unless the rows deleted decide the matter, those present
        are counted after the commit, and written again where they are more or less than were
        inserted. That attempt has rows to delete, and BigQuery lets only one such writer through.

        Args:
            text: The statement or script.
            count: A query of what is present afterwards; the last value of each row is a number.
            decides: Says whether a number of deleted rows shows that no other writer can have
                come at the same moment.

        Returns:
            What the commit did, and the rows of `count`, None where there was no need for them.

        Raises:
            WarehouseMaterializationError: Another writer came each time.
            WarehouseConnectionError: It has committed and could not be counted.
        """
        for attempt in range(1, _COMMITS + 1):
            job = self._commit(text, attempt)
            self.work.has_committed = True
            changed = self._changed(job)
            if changed.inserted is not None and decides(changed.deleted or 0):
                return changed, None
            present = self._count(count, attempt)
            if changed.explains(sum(row[-1] for row in present)):
                return changed, present
            _log.info("%s: another writer came at the same moment; writing again.", self.work.name)
        if changed.inserted is None:
            raise self._unchecked("BigQuery does not say how many rows were inserted")
        raise WarehouseMaterializationError(
            f"{self.table} was written {_COMMITS} times, and each time it held other rows "
            "afterwards than were written.",
            "Another writer keeps changing it, or the table drops rows by itself: limit the runs "
            "that write it with a Dagster pool, and check its partition expiry.",
            retryable=True,
        )

    def result(
        self,
        schema: ibis.Schema,
        rows: int | None,
        *,
        rows_by_date: Mapping[date, int] | None = None,
        added_columns: tuple[str, ...] = (),
    ) -> WriteResult:
        """Tells what the write did."""
        return WriteResult(
            table=self.table,
            schema=schema,
            uri=uri_of(self.table),
            rows=rows,
            rows_by_date=rows_by_date,
            added_columns=added_columns,
            seconds=monotonic() - self.started,
            statistics=self.work.statistics() | _link(self.work),
        )

    @contextmanager
    def _guarding(self) -> Iterator[None]:
        """Says which dates do not belong when the guard in a statement has stopped it."""
        try:
            yield
        except GoogleAPICallError as error:
            if self.explain_stray is None or STRAY_DATE not in str(error.message):
                raise
            explain, self.explain_stray = self.explain_stray, None
            raise explain() from error

    def _changed(self, job: QueryJob) -> Changed:
        if job.dml_stats is not None or job.statement_type != "SCRIPT":
            return Changed.of(job)
        for _ in range(_LISTINGS):
            try:
                statements = self.jobs.children(job)
            except _UNREACHABLE as error:
                # The script has committed all the same.
                _log.warning("%s: the statements of %s: %s", self.work.name, job.job_id, error)
                break
            kinds = {statement.statement_type for statement in statements}
            if "INSERT" in kinds and kinds & {"DELETE", "TRUNCATE_TABLE"}:
                return Changed.of(*statements)
            sleep(_LISTING_PAUSE_SECONDS)
        return Changed()

    def _commit(self, text: str, attempt: int) -> QueryJob:
        try:
            return self.query(text, f"{COMMIT}{attempt}")
        except (GoogleAPIError, SegmentStreamError, *TRANSPORT_ERRORS) as error:
            if not self.work.has_committed:
                raise
            raise WarehouseMaterializationError(
                f"{self.table} was written, another writer's rows came beside it at the same "
                f"moment, and writing it again failed: {error}",
                "Run it again: that replaces whatever is there.",
                retryable=True,
            ) from error

    def _count(self, count: sge.Select, attempt: int) -> list[tuple[Any, ...]]:
        try:
            return self.ask(sql.render(count), f"count{attempt}")
        except _UNREACHABLE as error:
            raise self._unchecked(error) from error

    def _unchecked(self, why: object) -> WarehouseConnectionError:
        return WarehouseConnectionError(
            f"{self.table} was written, and it could not be checked whether another writer's rows "
            f"have come beside it at the same moment: {why}",
            "Run it again: that replaces whatever is there.",
            retryable=True,
        )


def _link(work: Work) -> dict[str, str]:
    """Names the job that committed, and where a person finds it."""
    job = next(job for job in reversed(work.jobs) if "_commit" in str(job.job_id))
    place = f"{job.project}:{job.location}:{job.job_id}" if job.location else job.job_id
    query = f"project={quote(str(job.project))}&j=bq:{quote(str(place), safe=':')}"
    return {
        "job_id": str(job.job_id),
        "job_url": f"https://console.cloud.google.com/bigquery?{query}&page=queryresults",
    }
