"""What every warehouse engine can do, and the values it gives back; imports Ibis and `_core`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from datetime import date
from typing import ClassVar, Literal

import ibis
import ibis.expr.types as ir

from segmentstream._warehouse.options import TableOptions
from segmentstream._warehouse.tables import TableRef

DEFAULT_OPTIONS = TableOptions()
NO_LABELS: Mapping[str, str] = {}


def _any_name(table: TableRef) -> str | None:  # noqa: ARG001
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineCapabilities:
    """Says what an engine is called and what the layers above must know about it.

    Attributes:
        storage_kind: The word Dagster shows for the kind of storage, such as `duckdb`.
        ignores_case: Whether names that differ only in upper and lower case are one table.
        name_problem: Says why a table cannot have the name it is given, None where it can.
    """

    storage_kind: str
    ignores_case: bool
    name_problem: Callable[[TableRef], str | None] = _any_name


@dataclass(frozen=True, slots=True, kw_only=True)
class TableInfo:
    """Describes a table, or a view, that exists.

    Attributes:
        table: Where it lives.
        kind: `table` for one that can be written, `view` for anything else that can be read.
        schema: Its columns in stored order, spelled as stored.
        partition_column: The DATE column it is replaced by, when it is a daily table.
        uri: Where a person finds it.
    """

    table: TableRef
    kind: Literal["table", "view"]
    schema: ibis.Schema
    partition_column: str | None
    uri: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteResult:
    """Tells what a committed write did.

    Attributes:
        table: The table written.
        schema: Its columns after the write.
        uri: Where a person finds it.
        rows: Number of rows written; None where it could not be asked after the commit.
        rows_by_date: Number of rows written for each replaced date, zeros included; None when
            the whole table was replaced.
        added_columns: Columns that the write added to the table.
        seconds: Wall time of the write, waiting included.
        statistics: What the engine says of the cost, by a short name.
    """

    table: TableRef
    schema: ibis.Schema
    uri: str
    rows: int | None
    rows_by_date: Mapping[date, int] | None
    added_columns: tuple[str, ...]
    seconds: float
    statistics: Mapping[str, str | int | float] = field(default_factory=dict)


class WarehouseEngine(ABC):
    """Reads and atomically writes the tables of one warehouse.

    One engine is shared by the threads of a process. Making one opens nothing. Abilities that
    only some engines have are small classes beside this one, never methods added here.
    """

    capabilities: ClassVar[EngineCapabilities]

    @abstractmethod
    def close(self) -> None:
        """Gives back whatever the engine holds open; the engine may be used again."""

    @abstractmethod
    def ensure_namespace(self, namespace: str) -> None:
        """Creates the namespace when it is missing; asks for nothing when it exists."""

    @abstractmethod
    def describe(self, table: TableRef) -> TableInfo | None:
        """Looks one table up; None only when it certainly does not exist.

        Raises:
            WarehouseConnectionError: The warehouse cannot be asked.
            WarehouseConfigurationError: A table exists whose name differs in a way that this
                engine does not tell apart, such as upper and lower case.
        """

    @abstractmethod
    def read(self, table: TableRef) -> ir.Table:
        """Gives a lazy Ibis table of a table or view that exists.

        Raises:
            WarehouseReadError: There is no such table.
            WarehouseConnectionError: The warehouse cannot be asked.
        """

    @abstractmethod
    def replace(
        self,
        table: TableRef,
        rows: ir.Table,
        *,
        options: TableOptions = DEFAULT_OPTIONS,
        labels: Mapping[str, str] = NO_LABELS,
    ) -> WriteResult:
        """Replaces the whole table, its columns included, by the rows of an expression.

        Atomic: a reader, or a later process after a crash, finds the old table or the new one.
        The expression may read the table that it replaces.

        Args:
            table: The table to write.
            rows: The expression whose rows replace those of the table.
            options: How the table is to be kept, where the engine can.
            labels: What the work is for, such as the run, where the engine can say it of a job.

        Raises:
            WarehouseMaterializationError: The write was refused or failed; nothing changed.
            WarehouseConnectionError: The warehouse cannot be reached; nothing changed.
        """

    @abstractmethod
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
        """Replaces exactly the rows of `dates`, creating the table when it is missing.

        Atomic over all the dates, however many. Rows with another date, or none, are refused.

        Args:
            table: The table to write.
            rows: The expression whose rows replace those of `dates`; it may read `table`.
            column: The DATE column that says which date a row belongs to.
            dates: The dates to replace, at least one; gaps are fine.
            options: As in `replace`.
            labels: As in `replace`.

        Raises:
            PartitionDatesError: Rows carry other dates or none; nothing changed.
            ColumnMismatchError: The columns do not fit those stored; nothing changed.
            WarehouseMaterializationError: The write was refused or failed; nothing changed.
            WarehouseConnectionError: The warehouse cannot be reached; nothing changed.
        """
