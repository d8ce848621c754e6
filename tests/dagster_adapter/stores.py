"""The warehouse of a test as a person sees it, past the SDK: one class for each engine.

Tables are named `namespace.name`, and types of columns are told in the words of Ibis, so that a
test can expect the same of each engine.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
from google.cloud import bigquery
from ibis.backends.sql.datatypes import DuckDBType

_WORDS = {"INTEGER": "int64", "INT64": "int64", "FLOAT": "float64", "FLOAT64": "float64"}


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredTable:
    """All there is to see of one table.

    Attributes:
        columns: Name and type of each, in stored order.
        comment: The table's comment, or its description.
        rows: Every row, sorted.
    """

    columns: Mapping[str, str]
    comment: str | None
    rows: list[tuple[Any, ...]]


class Store(ABC):
    """Looks into a warehouse, and puts tables there that are not the SDK's."""

    @abstractmethod
    def fill(self, name: str, rows: Iterable[tuple[Any, ...]], *, day: str) -> None:
        """Makes a table like `orders` as someone else would; `day` names its DATE column."""

    @abstractmethod
    def tables(self) -> dict[str, StoredTable]:
        """Every table and view, staging tables included; empty when there is no warehouse."""

    @abstractmethod
    def schemas(self) -> set[str]:
        """The namespaces beyond those that the engine makes by itself."""


@dataclass(frozen=True, slots=True)
class DuckDBStore(Store):
    """Is a file."""

    catalog: Path

    def fill(self, name: str, rows: Iterable[tuple[Any, ...]], *, day: str) -> None:
        namespace = name.partition(".")[0]
        with duckdb.connect(self.catalog) as connection:
            connection.execute(f"CREATE SCHEMA IF NOT EXISTS {namespace}")
            connection.execute(
                f"CREATE TABLE {name} (order_id BIGINT, {day} DATE, amount DECIMAL(12, 2))"
            )
            connection.executemany(f"INSERT INTO {name} VALUES (?, ?, ?)", list(rows))

    def tables(self) -> dict[str, StoredTable]:
        if not self.catalog.exists():
            return {}
        with duckdb.connect(self.catalog, read_only=True) as connection:
            found = connection.execute(
                "SELECT schema_name, table_name, comment FROM duckdb_tables() UNION ALL "
                "SELECT schema_name, view_name, comment FROM duckdb_views() WHERE NOT internal"
            ).fetchall()
            return {
                f"{schema}.{table}": _look_at(connection, schema, table, comment)
                for schema, table, comment in found
            }

    def schemas(self) -> set[str]:
        if not self.catalog.exists():
            return set()
        with duckdb.connect(self.catalog, read_only=True) as connection:
            found = connection.execute(
                "SELECT schema_name FROM duckdb_schemas() WHERE NOT internal"
            ).fetchall()
            return {name for (name,) in found} - {"main"}


@dataclass(frozen=True, slots=True)
class BigQueryStore(Store):
    """Is a project. A table that `fill` makes has partitions: one without them takes no days."""

    client: bigquery.Client

    def fill(self, name: str, rows: Iterable[tuple[Any, ...]], *, day: str) -> None:
        namespace, _, table_name = name.partition(".")
        self.client.create_dataset(namespace, exists_ok=True)
        place = f"{self.client.project}.{namespace}.{table_name}"
        amount = bigquery.SchemaField("amount", "NUMERIC", precision=12, scale=2)
        columns = [bigquery.SchemaField("order_id", "INTEGER"), bigquery.SchemaField(day, "DATE")]
        table = bigquery.Table(place, schema=[*columns, amount])
        table.time_partitioning = bigquery.TimePartitioning(type_="DAY", field=day)
        self.client.create_table(table)
        values = ", ".join(
            f"({order_id}, DATE '{date.isoformat()}', NUMERIC '{amount}')"
            for order_id, date, amount in rows
        )
        self.client.query(
            f"INSERT INTO `{place}` (order_id, {day}, amount) VALUES {values}"
        ).result()

    def tables(self) -> dict[str, StoredTable]:
        return {
            f"{found.dataset_id}.{found.table_id}": self._look_at(found.reference)
            for dataset in self.client.list_datasets()
            for found in self.client.list_tables(dataset.dataset_id)
        }

    def schemas(self) -> set[str]:
        """The datasets with tables: an empty one is what a first write leaves that then fails."""
        return {name.partition(".")[0] for name in self.tables()}

    def _look_at(self, place: bigquery.TableReference) -> StoredTable:
        table = self.client.get_table(place)
        rows = [tuple(row.values()) for row in self.client.list_rows(table)]
        return StoredTable(
            columns={field.name: _type_of(field) for field in table.schema},
            comment=table.description,
            rows=sorted(rows, key=lambda row: [(value is None, value) for value in row]),
        )


def _look_at(
    connection: duckdb.DuckDBPyConnection, schema: str, table: str, comment: str | None
) -> StoredTable:
    relation = connection.execute(f'SELECT * FROM "{schema}"."{table}" ORDER BY ALL')
    columns = {
        name: str(DuckDBType.from_string(str(dtype)))
        for name, dtype, *_ in relation.description or []
    }
    return StoredTable(columns=columns, comment=comment, rows=relation.fetchall())


def _type_of(field: bigquery.SchemaField) -> str:
    if field.precision is not None:
        return f"decimal({field.precision}, {field.scale or 0})"
    return _WORDS.get(field.field_type, field.field_type.lower())
