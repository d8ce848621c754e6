"""Where a table lives; imports `_core` only."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class TableRef:
    """Names one table of one warehouse.

    Attributes:
        catalog: The database: a BigQuery project or a DuckDB file. Always from configuration.
        namespace: The schema: a BigQuery dataset or a DuckDB schema.
        name: The table itself.
    """

    catalog: str
    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.catalog}.{self.namespace}.{self.name}"
