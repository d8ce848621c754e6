"""Every error this SDK raises on purpose, in one tree; imports the standard library only.

SegmentStreamError
├── WarehouseError
│   ├── WarehouseConfigurationError     a variable, key or declaration is missing or cannot work
│   ├── WarehouseConnectionError        the warehouse cannot be reached, opened or locked in time
│   ├── WarehouseReadError              a table or an expression cannot be read
│   └── WarehouseMaterializationError   a write was refused or failed; the table is as it was
│       ├── ColumnMismatchError         the columns offered do not fit the columns stored
│       └── PartitionDatesError         rows fall outside the dates being replaced
├── ConnectionDeclarationError          a connection is declared in a way that cannot work
├── ConnectionsFileError                a folder has no declarations of connections
├── ConnectionAccessError               there is no access token for a connection now
│   └── ReauthorizationRequiredError    a person has to authorize the connection first, or again
└── ConnectionRequestError              a request was refused before anything was sent
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date


class SegmentStreamError(Exception):
    """Is the root of every error the SDK raises on purpose.

    Its text has two parts: what is wrong, and what to do about it.

    Attributes:
        problem: What is wrong, as one or more sentences.
        remedy: What the reader can do about it.
        retryable: Whether the same call may succeed later without any change.
    """

    retryable: bool = False

    def __init__(self, problem: str, remedy: str) -> None:
        super().__init__(problem, remedy)
        self.problem = problem
        self.remedy = remedy

    def __str__(self) -> str:
        return f"{self.problem} {self.remedy}"


class WarehouseError(SegmentStreamError):
    """Is anything that went wrong between an asset and its table."""


class WarehouseConfigurationError(WarehouseError):
    """Says that a variable, an asset key or a declaration is missing or cannot work."""


class WarehouseConnectionError(WarehouseError):
    """Says that the warehouse cannot be reached, opened or locked in time.

    Attributes:
        retryable: True where waiting may help, such as a file that another process holds.
    """

    def __init__(self, problem: str, remedy: str, *, retryable: bool = False) -> None:
        super().__init__(problem, remedy)
        self.retryable = retryable


class WarehouseReadError(WarehouseError):
    """Says that a table or an expression cannot be read."""


class WarehouseMaterializationError(WarehouseError):
    """Says that a write was refused or failed; the table holds what it held before.

    Attributes:
        retryable: True where the same write may succeed later, such as after a conflict.
    """

    def __init__(self, problem: str, remedy: str, *, retryable: bool = False) -> None:
        super().__init__(problem, remedy)
        self.retryable = retryable


class ColumnMismatchError(WarehouseMaterializationError):
    """Says that the columns of a result do not fit the columns of the table that exists.

    Attributes:
        missing: Names of stored columns that the result does not have.
        extra: Names of result columns that the table does not have.
        lossy: Column name to its (stored type, offered type), where values could be lost.
        untyped: Names of result columns whose type cannot be told.
    """

    def __init__(
        self,
        problem: str,
        remedy: str,
        *,
        missing: tuple[str, ...] = (),
        extra: tuple[str, ...] = (),
        lossy: Mapping[str, tuple[str, str]] | None = None,
        untyped: tuple[str, ...] = (),
    ) -> None:
        super().__init__(problem, remedy)
        self.missing = missing
        self.extra = extra
        self.lossy = dict(lossy or {})
        self.untyped = untyped


class PartitionDatesError(WarehouseMaterializationError):
    """Says that rows of a result fall outside the dates being replaced.

    Attributes:
        column: The partition column.
        stray_dates: Up to five dates that do not belong, each with its number of rows.
        stray_rows: How many rows carry such a date, in all.
        null_rows: How many rows carry no date.
    """

    def __init__(
        self,
        problem: str,
        remedy: str,
        *,
        column: str,
        stray_dates: Mapping[date, int],
        stray_rows: int,
        null_rows: int,
    ) -> None:
        super().__init__(problem, remedy)
        self.column = column
        self.stray_dates = dict(stray_dates)
        self.stray_rows = stray_rows
        self.null_rows = null_rows


class ConnectionDeclarationError(SegmentStreamError):
    """Says that a connection is declared in a way that cannot work.

    Attributes:
        field: The field of the declaration that is wrong.
    """

    def __init__(self, problem: str, remedy: str, *, field: str) -> None:
        super().__init__(problem, remedy)
        self.field = field


class ConnectionsFileError(SegmentStreamError):
    """Says that a folder has no `connections.py`, or one that declares no connections."""


class ConnectionAccessError(SegmentStreamError):
    """Says that there is no access token for a connection now.

    Attributes:
        connection: The key of the connection.
        code: What happened, as the connections service names it, such as `oauth_rate_limited`.
        retryable: Whether the same call may succeed later without any change.
        retry_after_seconds: How long to wait before that, where that is known.
    """

    def __init__(
        self,
        problem: str,
        remedy: str,
        *,
        connection: str = "",
        code: str = "",
        retryable: bool = False,
        retry_after_seconds: int | None = None,
    ) -> None:
        super().__init__(problem, remedy)
        self.connection = connection
        self.code = code
        self.retryable = retryable
        self.retry_after_seconds = retry_after_seconds


class ReauthorizationRequiredError(ConnectionAccessError):
    """Says that a person has to authorize the connection, for the first time or again."""


class ConnectionRequestError(SegmentStreamError):
    """Says that a request of a connection's client was refused before anything was sent.

    Attributes:
        connection: The key of the connection.
    """

    def __init__(self, problem: str, remedy: str, *, connection: str = "") -> None:
        super().__init__(problem, remedy)
        self.connection = connection
