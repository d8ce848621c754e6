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
from contextlib import suppress
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import IO, Any
from uuid import uuid4

from google.api_core.exceptions import Conflict, GoogleAPICallError, GoogleAPIError, NotFound
from google.api_core.retry import Retry
from google.auth.exceptions import GoogleAuthError
from google.cloud import bigquery
from google.cloud.bigquery.job import LoadJob, QueryJob

from segmentstream._core.errors import WarehouseConnectionError
from segmentstream._warehouse.engines.bigquery.client import REQUEST_SECONDS, Clients
from segmentstream._warehouse.engines.bigquery.errors import TRANSPORT_ERRORS, meaning_of

_log = logging.getLogger(__name__)
_FIRST_PAUSE_SECONDS = 1.0
_LONGEST_PAUSE_SECONDS = 64.0
_LONGEST_SUBMIT_PAUSE_SECONDS = 8.0
_CANCEL_SECONDS = 20.0
_POLL_SECONDS = 0.5
_LABEL_CHARACTERS = 63
_ROWS_IN_A_PAGE = 10_000
# Jobs whose phase starts so commit a write.
COMMIT = "commit"
# What a question to BigQuery can end with instead of an answer.
_UNANSWERED = (GoogleAPIError, GoogleAuthError, WarehouseConnectionError, *TRANSPORT_ERRORS)
_NOT_IN_A_LABEL = re.compile(r"[^a-z0-9_-]")

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


@dataclass(slots=True, kw_only=True)
class _Sent:
    """Is one attempt at a job.

    Attributes:
        submit: Sends it once, under the id it is given.
        work: What it belongs to.
        phase: Which of the jobs of its work it is.
        attempt: How often that job has been tried, this time included.
        location: Where it runs, as far as known.
        is_doubtful: Whether BigQuery may have taken it without saying so.
        is_lost: Whether a request was left without an answer, and may still be on its way.
    """

    submit: Callable[[str], Job]
    work: Work
    phase: str
    attempt: int
    location: str | None = field(init=False)
    is_doubtful: bool = False
    is_lost: bool = False

    def __post_init__(self) -> None:
        """Starts with the location of the work."""
        self.location = self.work.location

    @property
    def job_id(self) -> str:
        """The id, which no other attempt has."""
        return f"segmentstream_{self.work.identity}_{self.phase}_{self.attempt}"

    @property
    def commits(self) -> bool:
        """Whether the rows of a write are there once this job has finished."""
        return self.phase.startswith(COMMIT)


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
            return self._send_query(sql, job_id, work, retry=None)

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
                num_retries=0,
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
        rows = job.result(
            page_size=_ROWS_IN_A_PAGE, retry=self._clients.retry(), timeout=REQUEST_SECONDS
        )
        return [tuple(row.values()) for row in rows]

    def children(self, job: QueryJob) -> list[QueryJob]:
        """Gives the statements of a script, each as a job of its own."""
        found = self._clients.rest.list_jobs(
            parent_job=job.job_id, retry=self._clients.retry(), timeout=REQUEST_SECONDS
        )
        return [child for child in found if isinstance(child, QueryJob)]

    def _send_query(self, sql: str, job_id: str, work: Work, retry: Retry | None) -> QueryJob:
        config = bigquery.QueryJobConfig(labels=_clean(work.labels), use_legacy_sql=False)
        return self._clients.rest.query(
            sql,
            job_config=config,
            job_id=job_id,
            location=work.location,
            project=self._clients.billing_project,
            retry=retry,  # type: ignore[arg-type]  # None is one attempt, as the client documents
            job_retry=None,
            timeout=REQUEST_SECONDS,
        )

    def _run(self, submit: Callable[[str], Job], work: Work, phase: str) -> Job:
        deadline: float | None = None
        pause_seconds = _FIRST_PAUSE_SECONDS
        attempt = 1
        while True:
            sent = _Sent(submit=submit, work=work, phase=phase, attempt=attempt)
            job = self._outcome(sent)
            if job.error_result is None:
                work.jobs.append(job)
                return job
            error = job.exception()  # type: ignore[no-untyped-call]  # inherited
            assert isinstance(error, GoogleAPICallError)  # noqa: S101 - made of error_result
            # What a job needed until it was refused is no waiting.
            deadline = deadline or time.monotonic() + self._wait_seconds
            if not meaning_of(error).again or time.monotonic() + pause_seconds > deadline:
                raise error
            _log.info("%s: %s; trying again.", work.name, error.message)
            # Only now, when the attempt is known to have failed, is there a next one.
            attempt += 1
            pause_seconds = _pause(pause_seconds, _LONGEST_PAUSE_SECONDS)

    def _outcome(self, sent: _Sent) -> Job:
        """Sends a job and waits until it is done, well or not; cancels it when interrupted."""
        try:
            job = self._submit(sent)
            sent.location = job.location or sent.location
            return self._wait(job)
        except Exception:
            raise  # The job's own verdict, or why there is none; only an interrupt cancels.
        except BaseException as interrupt:
            self._cancel(sent, interrupt)
            raise

    def _submit(self, sent: _Sent) -> Job:
        """Sends a job until it is known whether BigQuery has taken it.

        Here and not in the client: only who has seen every attempt knows whether one of them was
        left without an answer, and uploads have no retry that could be told what to repeat.
        """
        deadline = time.monotonic() + self._wait_seconds
        pause_seconds = _POLL_SECONDS
        while True:
            try:
                return sent.submit(sent.job_id)
            except Conflict:
                # An answer was lost: the job is there.
                return self._look_up(sent)
            except (GoogleAPICallError, *TRANSPORT_ERRORS) as error:
                answer = error if isinstance(error, GoogleAPICallError) else None
                sent.is_lost = sent.is_lost or answer is None
                sent.is_doubtful = sent.is_doubtful or answer is None or _may_be_taken(answer)
                is_passing = answer is None or meaning_of(answer).again
                if not is_passing or time.monotonic() + pause_seconds > deadline:
                    return self._taken(sent, error)
            pause_seconds = _pause(pause_seconds, _LONGEST_SUBMIT_PAUSE_SECONDS)

    def _taken(self, sent: _Sent, error: Exception) -> Job:
        """Gives a job that was taken though no answer said so; raises when it was not.

        Raises:
            GoogleAPICallError: Why BigQuery did not take it.
            WarehouseConnectionError: It was not taken, or nobody can tell.
        """
        if sent.is_doubtful:
            try:
                found = self._find(sent)
                if found is None and sent.is_lost and not self._bury(sent):
                    found = self._look_up(sent)
            except _UNANSWERED as unanswered:
                raise self._unknown(sent, unanswered) from error
            if found is not None:
                return found
        if isinstance(error, GoogleAPICallError):
            raise error
        raise WarehouseConnectionError(
            f"{sent.work.name} failed: BigQuery could not be reached: {error}",
            "Check the network and try again.",
            retryable=True,
        ) from error

    def _wait(self, job: Job) -> Job:
        """Waits for a verdict for as long as it takes, unless BigQuery cannot be asked."""
        deadline = time.monotonic() + self._wait_seconds
        while job.state != "DONE":
            # A long poll; a query says at once when it is done. Its error is the job's, which then
            # is done, or the poll's own.
            with suppress(*_UNANSWERED):
                job.result(timeout=REQUEST_SECONDS, retry=self._clients.retry(_CANCEL_SECONDS))
            if job.state == "DONE":
                break
            try:
                job.reload(retry=self._clients.retry(), timeout=REQUEST_SECONDS)
                deadline = time.monotonic() + self._wait_seconds
            except _UNANSWERED as error:
                if time.monotonic() > deadline:
                    raise self._unknown(job, error) from error
            if job.state != "DONE":
                time.sleep(_POLL_SECONDS)
        return job

    def _look_up(self, sent: _Sent) -> Job:
        """Finds a job that is there; just after it was made it is sometimes not found yet."""
        deadline = time.monotonic() + max(_CANCEL_SECONDS, self._wait_seconds)
        problem: Exception | None = None
        while True:
            try:
                found = self._find(sent)
            except _UNANSWERED as error:
                found, problem = None, error
            if found is not None:
                return found
            if time.monotonic() > deadline:
                raise self._unknown(sent, problem) from problem
            time.sleep(_POLL_SECONDS)

    def _find(self, sent: _Sent) -> Job | None:
        try:
            job = self._clients.rest.get_job(
                sent.job_id,
                project=self._clients.billing_project,
                location=sent.location,
                retry=self._clients.retry(_CANCEL_SECONDS),
                timeout=REQUEST_SECONDS,
            )
        except NotFound:
            return None
        assert isinstance(job, QueryJob | LoadJob)  # noqa: S101 - the kinds that are sent
        return job

    def _bury(self, sent: _Sent) -> bool:
        """Takes the id of a job that has not arrived, so that it never can; False if it has.

        A request whose answer nobody waits for any more may still be on its way, and its job would
        start after the caller was told that there is none.
        """
        try:
            self._send_query(
                "SELECT 1", sent.job_id, sent.work, self._clients.retry(_CANCEL_SECONDS)
            )
        except Conflict:
            return False
        return True

    def _cancel(self, sent: _Sent, interrupt: BaseException) -> None:
        """Stops a job and says on the interrupt what became of it; a cancel can come too late."""
        try:
            outcome = self._cancel_and_wait(sent)
        except _UNANSWERED as error:
            outcome = f"could not be cancelled ({error}) and may still finish"
        told = f"{sent.work.name} was interrupted: its job {sent.job_id} {outcome}."
        if sent.work.has_committed:
            told += " The write had committed before, and what it wrote stays."
        interrupt.add_note(told)
        _log.warning(told)

    def _cancel_and_wait(self, sent: _Sent) -> str:
        deadline = time.monotonic() + _CANCEL_SECONDS
        retry = self._clients.retry(_CANCEL_SECONDS)
        while time.monotonic() < deadline:
            try:
                job = self._clients.rest.cancel_job(
                    sent.job_id,
                    project=self._clients.billing_project,
                    location=sent.location,
                    retry=retry,
                    timeout=REQUEST_SECONDS,
                )
            except NotFound:
                if self._bury(sent):
                    return "had not been taken, and it changed nothing"
                time.sleep(_POLL_SECONDS)
                continue
            while job.state != "DONE" and time.monotonic() < deadline:
                time.sleep(_POLL_SECONDS)
                job.reload(retry=retry, timeout=REQUEST_SECONDS)
            if job.state == "DONE":
                if job.error_result:
                    return "was cancelled, and it changed nothing"
                return f"had finished{', and what it wrote stays' if sent.commits else ''}"
        return "was told to stop and has not yet; it may still finish"

    def _unknown(self, job: Job | _Sent, error: Exception | None) -> WarehouseConnectionError:
        why = f": {error}" if error else ""
        return WarehouseConnectionError(
            f"BigQuery could not be asked what became of job {job.job_id} of project "
            f"{self._clients.billing_project}{why}. It may have finished, or may yet.",
            "Look the job up in the console; running the write again is safe once it has ended.",
            retryable=True,
        )


def _may_be_taken(error: GoogleAPICallError) -> bool:
    """Says whether a job can be there although its insertion was answered by an error."""
    return (error.code or 0) >= HTTPStatus.INTERNAL_SERVER_ERROR


def _pause(seconds: float, longest: float) -> float:
    """Sleeps about so long, and says how long to sleep the next time."""
    time.sleep(seconds * random.uniform(0.5, 1.5))  # noqa: S311 - spreads writers
    return min(seconds * 2, longest)


def _clean(labels: Mapping[str, str]) -> dict[str, str]:
    """Makes texts fit for labels of a job: small letters, digits, _ and -, at most 63."""
    return {
        key: _NOT_IN_A_LABEL.sub("_", text.lower())[:_LABEL_CHARACTERS]
        for key, text in labels.items()
    }
