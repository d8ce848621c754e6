"""What each DuckDB error means to the caller.

Imports duckdb, the errors of Ibis and sqlglot, and `_core`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import duckdb
from ibis.common.exceptions import IbisError
from sqlglot.errors import SqlglotError

from segmentstream._core.errors import (
    SegmentStreamError,
    WarehouseConnectionError,
    WarehouseMaterializationError,
    WarehouseReadError,
)

# DuckDB tells a held lock from other I/O errors by its text alone.
_HELD_BY = re.compile(r"Conflicting lock is held in (?P<program>.+) \(PID (?P<pid>\d+)\)")
_HELD = (
    "Could not set lock on file",
    "different configuration than existing connections",
    "Unique file handle conflict",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Meaning:
    """Says what a DuckDB error means.

    Attributes:
        kind: `data` for the caller's rows or expression, `connection` for the file or machine.
        remedy: What the reader can do.
        retryable: Whether the same call may succeed later without any change.
    """

    kind: str
    remedy: str
    retryable: bool = False


_EXPRESSION = Meaning(
    kind="data", remedy="Correct the expression the asset returns; `.compile()` shows its SQL."
)
_VALUES = Meaning(
    kind="data",
    remedy="A value cannot be computed or converted: filter it, or use `.try_cast()` where NULL "
    "is acceptable.",
)
_MACHINE = Meaning(
    kind="connection",
    remedy="Check the file, its folder's permissions and the free space of its disk.",
)
_DEFECT = Meaning(
    kind="connection",
    remedy="This is a fault inside DuckDB: try again in a new process, and report it with the "
    "expression's `.compile()`.",
)

MEANINGS: dict[type[duckdb.Error], Meaning] = {
    duckdb.BinderException: _EXPRESSION,
    duckdb.CatalogException: _EXPRESSION,
    duckdb.ConnectionException: _MACHINE,
    duckdb.ConstraintException: Meaning(
        kind="data", remedy="The table has a constraint that a row breaks; correct the rows."
    ),
    duckdb.ConversionException: _VALUES,
    duckdb.DataError: _VALUES,
    duckdb.DatabaseError: _MACHINE,
    duckdb.DependencyException: Meaning(
        kind="data", remedy="Another object depends on the table; drop that object first."
    ),
    duckdb.Error: _DEFECT,
    duckdb.FatalException: _DEFECT,
    duckdb.HTTPException: _MACHINE,
    duckdb.IOException: _MACHINE,
    duckdb.IntegrityError: _VALUES,
    duckdb.InternalError: _DEFECT,
    duckdb.InternalException: _DEFECT,
    duckdb.InterruptException: Meaning(
        kind="connection", remedy="The query was interrupted; run it again.", retryable=True
    ),
    duckdb.InvalidInputException: _VALUES,
    duckdb.InvalidTypeException: _EXPRESSION,
    duckdb.NotImplementedException: _EXPRESSION,
    duckdb.NotSupportedError: _EXPRESSION,
    duckdb.OperationalError: _MACHINE,
    duckdb.OutOfMemoryException: Meaning(
        kind="connection",
        remedy="Write fewer days in one run, or give the machine more memory or disk.",
    ),
    duckdb.OutOfRangeException: _VALUES,
    duckdb.ParserException: _EXPRESSION,
    duckdb.PermissionException: _MACHINE,
    duckdb.ProgrammingError: _EXPRESSION,
    duckdb.SequenceException: _VALUES,
    duckdb.SerializationException: _MACHINE,
    duckdb.SyntaxException: _EXPRESSION,
    duckdb.TransactionException: Meaning(
        kind="data",
        remedy="Another writer changed the same rows; run it again.",
        retryable=True,
    ),
    duckdb.TypeMismatchException: _EXPRESSION,
}


def meaning_of(error: duckdb.Error) -> Meaning:
    """Looks up what an error means, by its class or the nearest class above it."""
    return next(MEANINGS[kind] for kind in type(error).__mro__ if kind in MEANINGS)


def is_held_elsewhere(error: duckdb.Error) -> bool:
    """Says whether a connection failed only because someone else has the file open."""
    return any(text in str(error) for text in _HELD)


def is_no_database(error: duckdb.Error) -> bool:
    """Says whether a connection failed because the file does not begin as those of DuckDB do."""
    return "not a valid DuckDB database file" in str(error)


def holder_of(error: duckdb.Error) -> str:
    """Names who holds the file that a connection could not open, for a message."""
    if found := _HELD_BY.search(str(error)):
        return f"process {found['pid']} ({found['program']})"
    return "a connection of this process that the SDK did not open"


@contextmanager
def translated(
    doing: str, *, failure: type[WarehouseReadError | WarehouseMaterializationError]
) -> Iterator[None]:
    """Turns errors of DuckDB and Ibis into ours, and an interrupted query into its interrupt.

    Args:
        doing: What was being done, as the start of the message: `Writing x.y.z`.
        failure: The error for faults in the caller's rows or expression.
    """
    try:
        yield
    except SegmentStreamError:
        raise
    except duckdb.Error as error:
        raise _ours(doing, error, failure) from error
    except (IbisError, SqlglotError) as error:
        raise failure(
            f"{doing} failed: the expression cannot be turned into SQL: {error}",
            _EXPRESSION.remedy,
        ) from error
    except RuntimeError as error:
        # DuckDB hides what a signal handler raised behind a RuntimeError; Dagster's own interrupt
        # must come through as itself, or a cancelled step would count as one to retry.
        if isinstance(error.__cause__, BaseException) and not isinstance(
            error.__cause__, Exception
        ):
            raise error.__cause__ from None
        raise


def _ours(
    doing: str,
    error: duckdb.Error,
    failure: type[WarehouseReadError | WarehouseMaterializationError],
) -> SegmentStreamError:
    meaning = meaning_of(error)
    problem = f"{doing} failed: {error}"
    if meaning.kind == "connection":
        return WarehouseConnectionError(problem, meaning.remedy, retryable=meaning.retryable)
    if failure is WarehouseMaterializationError:
        return WarehouseMaterializationError(problem, meaning.remedy, retryable=meaning.retryable)
    return failure(problem, meaning.remedy)
