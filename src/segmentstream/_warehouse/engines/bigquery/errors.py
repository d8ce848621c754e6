"""What each error of BigQuery means to the caller, and which of them are worth another try.

Imports the errors of Google's clients, of requests, Ibis and sqlglot, and `_core`.
https://docs.cloud.google.com/bigquery/docs/error-messages
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http import HTTPStatus
from typing import Literal

import requests
from google.api_core.exceptions import GoogleAPICallError, GoogleAPIError, RetryError
from google.auth.exceptions import GoogleAuthError
from ibis.common.exceptions import IbisError
from sqlglot.errors import SqlglotError

from segmentstream._core.errors import (
    SegmentStreamError,
    WarehouseConfigurationError,
    WarehouseConnectionError,
    WarehouseMaterializationError,
    WarehouseReadError,
)
from segmentstream._core.names import BILLING_PROJECT_VARIABLE, CATALOG_VARIABLE, LOCATION_VARIABLE

# What is raised when a connection is cut, refused or too slow, or when a request has been repeated
# for as long as it may be.
TRANSPORT_ERRORS = (
    requests.exceptions.RequestException,
    ConnectionError,
    TimeoutError,
    RetryError,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Meaning:
    """Says what an error of BigQuery means.

    Attributes:
        kind: `data` for the caller's rows or expression, `connection` for the service or the
            way to it, `configuration` for projects, locations and permissions.
        remedy: What the reader can do.
        retryable: Whether the same call may succeed later without any change.
        again: Whether a job that failed so is sent again at once, under a new id.
    """

    kind: Literal["data", "connection", "configuration"]
    remedy: str
    retryable: bool = False
    again: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """Says which errors have a meaning: by BigQuery's reason, its text, or both."""

    meaning: Meaning
    reasons: frozenset[str] = frozenset()
    text: re.Pattern[str] | None = None

    def covers(self, reason: str, text: str) -> bool:
        """Says whether an error with this reason and text is meant."""
        return (not self.reasons or reason in self.reasons) and (
            self.text is None or self.text.search(text) is not None
        )


def _text(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.IGNORECASE)


_CONFLICT = Meaning(
    kind="data",
    remedy="Other writers changed the same table at the same time, for longer than was waited. "
    "Run it again, and limit how many runs write one table with a Dagster pool.",
    retryable=True,
    again=True,
)
_PASSING = Meaning(
    kind="connection",
    remedy="BigQuery was overloaded or failed for a moment, for longer than was waited. Run it "
    "again.",
    retryable=True,
    again=True,
)
_EXPRESSION = Meaning(
    kind="data", remedy="Correct the expression the asset returns; `.compile()` shows its SQL."
)
_OTHER = Meaning(
    kind="connection",
    remedy="The text above is BigQuery's own; https://docs.cloud.google.com/bigquery/docs/"
    "error-messages explains it.",
)

# The first that covers an error says what it means. Texts come before reasons: a conflict between
# writers arrives as `invalidQuery`.
RULES: tuple[Rule, ...] = (
    Rule(text=_text(r"could not serialize access|due to concurrent update"), meaning=_CONFLICT),
    Rule(
        text=_text(r"too many dml statements outstanding|total number of dml jobs"),
        meaning=_CONFLICT,
    ),
    Rule(
        text=_text(r"streaming buffer"),
        meaning=Meaning(
            kind="data",
            remedy="Rows that were streamed in (insertAll) can be neither changed nor deleted for "
            "up to 30 minutes. Stop streaming into this table, wait, and run it again; or stream "
            "with the Storage Write API.",
        ),
    ),
    Rule(
        text=_text(r"without a filter over column|partition elimination"),
        meaning=Meaning(
            kind="data",
            remedy="The table may only be read with a filter on its partition column "
            "(require_partition_filter). Filter the input in the asset by that column.",
        ),
    ),
    Rule(
        text=_text(r"not found: table .* not found in location"),
        reasons=frozenset({"notFound"}),
        meaning=Meaning(
            kind="data",
            remedy="Materialize the asset that writes it first, or correct its key. If the table "
            f"is there, it lives in another location than the job: set {LOCATION_VARIABLE}.",
        ),
    ),
    Rule(
        text=_text(r"not found in location|cannot read and write in different locations"),
        reasons=frozenset({"notFound", "invalid", "invalidQuery"}),
        meaning=Meaning(
            kind="configuration",
            remedy=f"A dataset lives in another location than the job. Set {LOCATION_VARIABLE} to "
            "the location of the data, and keep all datasets of one workspace there.",
        ),
    ),
    Rule(
        reasons=frozenset(
            {
                "backendError",
                "badGateway",
                "internalError",
                "jobBackendError",
                "jobInternalError",
                "jobRateLimitExceeded",
                "rateLimitExceeded",
                "tableUnavailable",
            }
        ),
        meaning=_PASSING,
    ),
    Rule(
        reasons=frozenset({"accessDenied", "forbidden", "required", "authError"}),
        meaning=Meaning(
            kind="configuration",
            remedy="The account of this process lacks a permission. It needs BigQuery Job User on "
            "the project that pays, BigQuery Data Editor on the datasets it writes (on the "
            "project, where it is to create datasets) and BigQuery Data Viewer on those it reads.",
        ),
    ),
    Rule(
        reasons=frozenset({"quotaExceeded", "billingTierLimitExceeded"}),
        meaning=Meaning(
            kind="connection",
            remedy="A quota of the project is used up. Wait until it is renewed, ask for more in "
            "the Google Cloud console, or write more dates in one run.",
            retryable=True,
        ),
    ),
    Rule(
        reasons=frozenset({"billingNotEnabled", "blocked", "accountDisabled"}),
        meaning=Meaning(
            kind="configuration",
            remedy="The project that pays cannot run jobs: enable billing for it, or name another "
            f"in {BILLING_PROJECT_VARIABLE}.",
        ),
    ),
    Rule(
        reasons=frozenset({"notFound"}),
        # A word of its own: the id of a project can contain it, and stands before a colon or dot.
        text=_text(r"\bproject\s"),
        meaning=Meaning(
            kind="configuration",
            remedy=f"Check {CATALOG_VARIABLE} and {BILLING_PROJECT_VARIABLE}: the id of a project, "
            "not its name or number.",
        ),
    ),
    Rule(
        reasons=frozenset({"notFound"}),
        meaning=Meaning(
            kind="data", remedy="Materialize the asset that writes it first, or correct its key."
        ),
    ),
    Rule(
        reasons=frozenset({"stopped"}),
        meaning=Meaning(
            kind="connection", remedy="The job was cancelled. Run it again.", retryable=True
        ),
    ),
    Rule(
        reasons=frozenset({"resourcesExceeded", "responseTooLarge", "timeout"}),
        meaning=Meaning(
            kind="data",
            remedy="The query is too large for one job: write fewer dates in one run "
            "(BackfillPolicy.multi_run), or compute it in steps.",
        ),
    ),
    Rule(
        reasons=frozenset({"invalid", "invalidQuery", "outOfRange", "badRequest"}),
        meaning=_EXPRESSION,
    ),
)


def meaning_of(error: GoogleAPICallError) -> Meaning:
    """Looks up what an error means."""
    reason, text = reason_of(error), str(error.message)
    if not reason and (error.code or 0) >= HTTPStatus.INTERNAL_SERVER_ERROR:
        return _PASSING
    return next((rule.meaning for rule in RULES if rule.covers(reason, text)), _OTHER)


def reason_of(error: GoogleAPICallError) -> str:
    """Gives BigQuery's word for what went wrong, such as `notFound`; empty where it gave none."""
    first = error.errors[0] if error.errors else None
    return str(first.get("reason", "")) if isinstance(first, dict) else ""


@contextmanager
def translated(
    doing: str, *, failure: type[WarehouseReadError | WarehouseMaterializationError]
) -> Iterator[None]:
    """Turns errors of BigQuery, of the way to it and of Ibis into ours.

    Args:
        doing: What was being done, as the start of the message: `Writing x.y.z`.
        failure: The error for faults in the caller's rows or expression.
    """
    try:
        yield
    except SegmentStreamError:
        raise
    except GoogleAPICallError as error:
        raise _ours(doing, error, failure) from error
    except (GoogleAPIError, *TRANSPORT_ERRORS) as error:
        # A RetryError says how long was tried; what went wrong is its cause.
        cause = getattr(error, "cause", None)
        if isinstance(cause, GoogleAPICallError):
            raise _ours(doing, cause, failure) from error
        raise WarehouseConnectionError(
            f"{doing} failed: BigQuery could not be reached: {cause or error}",
            "Check the network and try again.",
            retryable=True,
        ) from error
    except GoogleAuthError as error:
        raise WarehouseConfigurationError(
            f"{doing} failed: the credentials were not accepted: {error}",
            "Renew them: `gcloud auth application-default login` on a laptop, the attached "
            "service account on Cloud Run.",
        ) from error
    except (IbisError, SqlglotError) as error:
        raise failure(
            f"{doing} failed: the expression cannot be turned into SQL: {error}",
            _EXPRESSION.remedy,
        ) from error


def _ours(
    doing: str,
    error: GoogleAPICallError,
    failure: type[WarehouseReadError | WarehouseMaterializationError],
) -> SegmentStreamError:
    meaning = meaning_of(error)
    problem = f"{doing} failed: {str(error.message).strip()}"
    if meaning.kind == "configuration":
        return WarehouseConfigurationError(problem, meaning.remedy)
    if meaning.kind == "connection":
        return WarehouseConnectionError(problem, meaning.remedy, retryable=meaning.retryable)
    if failure is WarehouseMaterializationError:
        return WarehouseMaterializationError(problem, meaning.remedy, retryable=meaning.retryable)
    return failure(problem, meaning.remedy)
