"""Which names BigQuery takes for datasets, tables and columns; imports `_core` and `_warehouse`.

https://docs.cloud.google.com/bigquery/docs/datasets#dataset-naming, .../tables#table_naming and
.../schemas#column_names.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable

from segmentstream._core.errors import ColumnMismatchError
from segmentstream._core.names import fold_case
from segmentstream._warehouse.tables import TableRef

_PROJECT = re.compile(r"(?:[a-z0-9.-]+:)?[a-z][a-z0-9-]{4,28}[a-z0-9]")
_DATASET = re.compile(r"[A-Za-z0-9_]{1,1024}")
_TABLE_BYTES = 1024
_TABLE_CATEGORIES = ("L", "M", "N", "Pc", "Pd", "Zs")
_COLUMN_CHARACTERS = 300
_COLUMN_FORBIDDEN = re.compile(r'[!"$()*,./;?@\[\\\]^`{}~]')
_COLUMN_PREFIXES = (
    "_table_",
    "_file_",
    "_partition",
    "_row_timestamp",
    "__root__",
    "_colidentifier",
    "_change_sequence_number",
    "_change_type",
    "_change_timestamp",
)


def project_problem(project: str) -> str | None:
    """Says why a project cannot have this id, None where it can."""
    if _PROJECT.fullmatch(project):
        return None
    return "is no id of a Google Cloud project (6 to 30 small letters, digits and dashes)"


def table_problem(table: TableRef) -> str | None:
    """Says why a table cannot have the name it is given, None where it can."""
    if not _DATASET.fullmatch(table.namespace):
        return (
            f"the dataset {table.namespace!r} cannot exist in BigQuery, which allows letters a to "
            "z, digits and _ there"
        )
    if len(table.name.encode()) > _TABLE_BYTES:
        return f"the table {table.name!r} has a name of more than {_TABLE_BYTES} bytes"
    wrong = next((c for c in table.name if not _is_allowed_in_table(c)), None)
    if wrong is not None:
        return (
            f"the table {table.name!r} cannot exist in BigQuery, which allows letters, digits, "
            f"spaces, dashes and _ there, and not {wrong!r}"
        )
    return None


def check_columns(names: Iterable[str], *, of: str) -> None:
    """Refuses columns that BigQuery cannot hold, before anything is sent.

    Args:
        names: The columns.
        of: What has them, as the start of a message: `The result for x.y.z`.

    Raises:
        ColumnMismatchError: Names the column and the rule.
    """
    for name in names:
        if problem := _column_problem(name):
            raise ColumnMismatchError(
                f"{of} has a column named {name!r}, which {problem}.", "Rename it."
            )


def _is_allowed_in_table(character: str) -> bool:
    return unicodedata.category(character).startswith(_TABLE_CATEGORIES)


def _column_problem(name: str) -> str | None:
    if len(name) > _COLUMN_CHARACTERS:
        return f"has more than {_COLUMN_CHARACTERS} characters"
    if found := _COLUMN_FORBIDDEN.search(name):
        return f"contains {found.group()!r}; BigQuery does not allow that in a column's name"
    prefix = next((p for p in _COLUMN_PREFIXES if fold_case(name).startswith(p)), None)
    return prefix and f"starts with {prefix.upper()!r}, which BigQuery keeps for itself"
