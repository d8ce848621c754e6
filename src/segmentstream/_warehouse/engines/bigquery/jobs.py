"""Jobs whose outcome is always known: ids chosen before they are sent, conflicts tried again.

Imports google-cloud-bigquery and `_core`. A job with an id of our choosing exists at most once, so
a lost answer is followed by a look at the job, never by a second one:
https://docs.cloud.google.com/bigquery/docs/reliability-intro. Ids are new for each write and are
not derived from the run: a later attempt has to read what its inputs hold then.
"""

from __future__ import annotations

import logging
import random
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import IO, Any
from uuid import uuid4

from google.api_core.exceptions import (
    Conflict,
    GoogleAPICallError,
    GoogleAPIError,
    NotFound,
    RetryError,
)
from google.cloud import bigquery
from google.cloud.bigquery.job import LoadJob, QueryJob

from segmentstream._core.errors import WarehouseConnectionError
from segmentstream._warehouse.engines.bigquery.client import REQUEST_SECONDS, Clients
from segmentstream._warehouse.engines.bigquery.errors import TRANSPORT_ERRORS, meaning_of

_log = logging.getLogger(__name__)
_FIRST_PAUSE_SECONDS = 1.0
_LONGEST_PAUSE_SECONDS = 64.0
_CANCEL_SECONDS = 20.0
_POLL_SECONDS = 0.5
_LABEL_CHARACTERS = 63
_ROWS_IN_A_PAGE = 10_000
_NOT_IN_A_LABEL = re.compile(r"[^a-z0-9_-]")

_UNREACHABLE = (GoogleAPIError, *TRANSPORT_ERRORS)

type Job = QueryJob | LoadJob


@dataclass(slots=True, kw_only=True)
class Work:
    """Is one read or write: what its jobs are called, where they run and what they cost.

    Attributes:
        name: What is being done, for messages: `Writing p.d.t`.
        labels: Labels of its jobs.
        location: Where its jobs run, None to follow the data.
        identity: The part of job ids and staging tables that no other work shares.
        jobs: The jobs that have finished well, in order.
        has_committed: Whether one of them has changed what readers see.
    """

    name: str
    labels: Mapping[str, str] = field(default_factory=dict)
    location: str | None = None
    identity: str = field(default_factory=lambda: uuid4().hex)
    jobs: list[Job] = field(default_factory=list)
    has_committed: bool = False

    def statistics(self) -> dict[str, str | int | float]:
        """Sums what BigQuery says of the cost, and names the last job, the one that committed."""
        told: dict[str, str | int | float] = {}
        for name, attribute in (
            ("bytes_processed", "total_bytes_processed"),
            ("bytes_billed", "total_bytes_billed"),
            ("slot_milliseconds", "slot_millis"),
        ):
            values = [getattr(job, attribute, None) for job in self.jobs]
            if any(value is not None for value in values):
                told[name] = sum(value or 0 for value in values)
        return told


class Jobs:
    """Runs jobs and waits for their verdict."""

    def __init__(self, clients: Clients, *, wait_seconds: float) -> None:
        self._clients = clients
        self._wait_seconds = wait_seconds

    def query(self, sql: str, *, work: Work, phase: str) -> QueryJob:
        """Runs a statement or a script, again after a conflict with another writer.

        Args:
            sql: The text.
            work: What the job belongs to.
            phase: Which of its jobs this is; part of the id.

        Raises:
            GoogleAPICallError: The job failed; it changed nothing.
            WarehouseConnectionError: BigQuery cannot be asked for the outcome.
        """

        def submit(job_id: str) -> QueryJob:
            config = bigquery.QueryJobConfig(labels=_clean(work.labels), use_legacy_sql=False)
            return self._clients.rest.query(
                sql,
                job_config=config,
                job_id=job_id,
                location=work.location,
                project=self._clients.billing_project,
                retry=self._clients.retry(),
                job_retry=None,
                timeout=REQUEST_SECONDS,
            )

        job = self._run(submit, work, phase)
        assert isinstance(job, QueryJob)  # noqa: S101 - what was submitted
        return job

    def load(
        self,
        file: IO[bytes],
        table: bigquery.TableReference,
        config: bigquery.LoadJobConfig,
        *,
        work: Work,
        phase: str,
    ) -> LoadJob:
        """Loads a file into a table, as `query` runs a statement."""
        config.labels = _clean(work.labels)
        file.seek(0, 2)
        size = file.tell()

        def submit(job_id: str) -> LoadJob:
            return self._clients.rest.load_table_from_file(
                file,
                table,
                rewind=True,
                size=size,
                job_config=config,
                job_id=job_id,
                location=work.location,
                project=self._clients.billing_project,
                timeout=REQUEST_SECONDS,
            )

        job = self._run(submit, work, phase)
        assert isinstance(job, LoadJob)  # noqa: S101 - what was submitted
        return job

    def rows(self, job: QueryJob) -> list[tuple[Any, ...]]:
        """Gives all rows of a finished query."""
        # With a page size, the first answer brings rows; without, it brings none.
        rows = job.result(page_size=_ROWS_IN_A_PAGE, retry=self._clients.retry())
        return [tuple(row.values()) for row in rows]

    def children(self, job: QueryJob) -> list[QueryJob]:
        """Gives the statements of a script, each as a job of its own."""
        found = self._clients.rest.list_jobs(
            parent_job=job.job_id, retry=self._clients.retry(), timeout=REQUEST_SECONDS
        )
        return [child for child in found if isinstance(child, QueryJob)]

    def _run(self, submit: Callable[[str], Job], work: Work, phase: str) -> Job:
        deadline = time.monotonic() + self._wait_seconds
        pause_seconds = _FIRST_PAUSE_SECONDS
        attempt = 1
        while True:
            job_id = f"segmentstream_{work.identity}_{phase}_{attempt}"
            job = self._outcome(submit, job_id, work, deadline)
            if job.error_result is None:
                work.jobs.append(job)
                return job
            error = job.exception()  # type: ignore[no-untyped-call]
            assert isinstance(error, GoogleAPICallError)  # noqa: S101 - made of error_result
            if not meaning_of(error).again or time.monotonic() + pause_seconds > deadline:
                raise error
            _log.info("%s: %s; trying again.", work.name, error.message)
            # Only now, when the attempt is known to have failed, is there a next one.
            attempt += 1
            time.sleep(pause_seconds * random.uniform(0.5, 1.5))  # noqa: S311 - spreads writers
            pause_seconds = min(pause_seconds * 2, _LONGEST_PAUSE_SECONDS)

    def _outcome(
        self, submit: Callable[[str], Job], job_id: str, work: Work, deadline: float
    ) -> Job:
        """Sends a job and waits until it is done, well or not; cancels it when interrupted."""
        location = work.location
        try:
            job = self._submit(submit, job_id, location, deadline)
            location = job.location or location
            return self._wait(job, deadline)
        except Exception:
            raise
        except BaseException as interrupt:
            self._cancel(job_id, location, work, interrupt)
            raise

    def _submit(
        self, submit: Callable[[str], Job], job_id: str, location: str | None, deadline: float
    ) -> Job:
        """Sends a job, as often as it takes: with the same id it exists at most once."""
        while True:
            try:
                return submit(job_id)
            except Conflict:
                # An answer was lost: the job is there.
                return self._look_up(job_id, location)
            except RetryError as error:
                return self._settle(job_id, location, error)
            except GoogleAPICallError as error:
                if not meaning_of(error).again:
                    raise
                if time.monotonic() > deadline:
                    return self._settle(job_id, location, error)
            except TRANSPORT_ERRORS as error:
                if time.monotonic() > deadline:
                    return self._settle(job_id, location, error)
            time.sleep(_POLL_SECONDS)

    def _settle(self, job_id: str, location: str | None, error: Exception) -> Job:
        """Finds out whether a job exists that could not be sent for certain.

        Raises:
            Exception: The error, when there is no such job.
            WarehouseConnectionError: BigQuery cannot be asked.
        """
        try:
            found = self._find(job_id, location)
        except _UNREACHABLE as unreachable:
            raise self._unknown(job_id, error) from unreachable
        if found is None:
            raise error
        return found

    def _wait(self, job: Job, deadline: float) -> Job:
        """Waits for a verdict for as long as it takes, unless BigQuery cannot be asked."""
        while job.state != "DONE":
            try:
                # A long poll; a query says at once when it is done.
                job.result(timeout=REQUEST_SECONDS, retry=self._clients.retry())
            except _UNREACHABLE as error:
                # The error of the job, or of the question alone.
                self._reload(job, error, deadline)
        return job

    def _reload(self, job: Job, error: Exception, deadline: float) -> None:
        if job.state == "DONE":
            return
        try:
            job.reload(retry=self._clients.retry(), timeout=REQUEST_SECONDS)
        except _UNREACHABLE as unreachable:
            if time.monotonic() > deadline:
                raise self._unknown(job.job_id, error) from unreachable
            time.sleep(_POLL_SECONDS)

    def _look_up(self, job_id: str, location: str | None) -> Job:
        # Just after it was made a job is sometimes not found yet.
        found = self._find(job_id, location)
        deadline = time.monotonic() + _CANCEL_SECONDS
        while found is None and time.monotonic() < deadline:
            time.sleep(_POLL_SECONDS)
            found = self._find(job_id, location)
        if found is None:
            raise self._unknown(job_id, None)
        return found

    def _find(self, job_id: str, location: str | None) -> Job | None:
        try:
            job = self._clients.rest.get_job(
                job_id,
                project=self._clients.billing_project,
                location=location,
                retry=self._clients.retry(_CANCEL_SECONDS),
                timeout=REQUEST_SECONDS,
            )
        except NotFound:
            return None
        assert isinstance(job, QueryJob | LoadJob)  # noqa: S101 - the kinds that are sent
        return job

    def _cancel(
        self, job_id: str, location: str | None, work: Work, interrupt: BaseException
    ) -> None:
        """Stops a job and says on the interrupt what became of it; a cancel can come too late."""
        try:
            outcome = f"its job {self._cancel_and_wait(job_id, location)}"
        except _UNREACHABLE as error:
            outcome = f"its job could not be cancelled ({error}); look up {job_id}"
        if work.has_committed:
            outcome = "it had committed, and what it wrote stays"
        told = f"{work.name} was interrupted: {outcome}."
        interrupt.add_note(told)
        _log.warning(told)

    def _cancel_and_wait(self, job_id: str, location: str | None) -> str:
        deadline = time.monotonic() + _CANCEL_SECONDS
        retry = self._clients.retry(_CANCEL_SECONDS)
        while time.monotonic() < deadline:
            try:
                job = self._clients.rest.cancel_job(
                    job_id,
                    project=self._clients.billing_project,
                    location=location,
                    retry=retry,
                    timeout=REQUEST_SECONDS,
                )
            except NotFound:
                return "had not been sent, and nothing changed"
            while job.state != "DONE" and time.monotonic() < deadline:
                time.sleep(_POLL_SECONDS)
                job.reload(retry=retry, timeout=REQUEST_SECONDS)
            if job.state == "DONE":
                return (
                    "was cancelled, and nothing changed"
                    if job.error_result
                    else f"{job_id} had finished, and what it wrote stays"
                )
        return f"{job_id} was told to stop and has not yet; it may still finish"

    def _unknown(self, job_id: str, error: Exception | None) -> WarehouseConnectionError:
        why = f": {error}" if error else ""
        return WarehouseConnectionError(
            f"BigQuery could not be asked what became of job {job_id} of project "
            f"{self._clients.billing_project}{why}. It may have finished, or may yet.",
            "Look the job up in the console; running the write again is safe once it has ended.",
            retryable=True,
        )


def _clean(labels: Mapping[str, str]) -> dict[str, str]:
    """Makes texts fit for labels of a job: small letters, digits, _ and -, at most 63."""
    return {
        key: _NOT_IN_A_LABEL.sub("_", text.lower())[:_LABEL_CHARACTERS]
        for key, text in labels.items()
    }
