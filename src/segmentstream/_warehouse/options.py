"""How an asset wants its table kept, beyond its rows; imports `_core` only.

An engine carries out what its tables can hold and leaves the rest alone.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from segmentstream._core.errors import WarehouseConfigurationError
from segmentstream._core.names import identifier_problem

type Commit = Literal["merge", "transaction"]

# Limits of BigQuery, the engine that has these options:
# https://docs.cloud.google.com/bigquery/quotas and .../docs/labels-intro
_CLUSTER_COLUMNS = 4
_LABELS = 64
_LABEL_KEY = re.compile(r"[a-z][a-z0-9_-]{0,62}")
_LABEL_VALUE = re.compile(r"[a-z0-9_-]{0,63}")
_DESCRIPTION_CHARACTERS = 16_384
_COLUMN_DESCRIPTION_CHARACTERS = 1_024


@dataclass(frozen=True, slots=True, kw_only=True)
class TableOptions:
    """Says how a table is kept; what is left out stays as it is in the warehouse.

    Attributes:
        description: What a person reads about the table.
        column_descriptions: The same for columns, by name.
        labels: Keys and values to find or bill the table by; other labels of the table stay.
        cluster_by: Columns whose values lie close together, at most four, in this order.
        partition_expiration_days: After how many days a date is deleted by the warehouse.
        require_partition_filter: Whether a query must say which dates it reads.
        commit: `merge` for one statement, which other writers of the table may overlap;
            `transaction` for a table with one writer at a time, where deleting whole days is free.
    """

    description: str | None = None
    column_descriptions: Mapping[str, str] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    cluster_by: tuple[str, ...] = ()
    partition_expiration_days: int | None = None
    require_partition_filter: bool | None = None
    commit: Commit = "merge"

    @classmethod
    def from_mapping(cls, values: Mapping[str, Any]) -> TableOptions:
        """Reads what `to_mapping` gave, perhaps by way of JSON."""
        known = dict(values)
        return cls(**known | {"cluster_by": tuple(known.get("cluster_by", ()))})

    def to_mapping(self) -> dict[str, Any]:
        """Gives the options that were set, as plain values."""
        plain = asdict(self) | {"cluster_by": list(self.cluster_by)}
        return {name: value for name, value in plain.items() if value != _DEFAULTS[name]}


_DEFAULTS = asdict(TableOptions()) | {"cluster_by": []}


def check_options(options: TableOptions, *, has_partitions: bool) -> TableOptions:
    """Gives options back when a warehouse can hold them.

    Args:
        options: What an asset declares.
        has_partitions: Whether its table is partitioned by day.

    Raises:
        WarehouseConfigurationError: Names the option that cannot work.
    """
    _check_columns("cluster_by", options.cluster_by)
    _check_columns("column_descriptions", options.column_descriptions)
    _check_text("description", options.description, _DESCRIPTION_CHARACTERS)
    for column, text in options.column_descriptions.items():
        name = f"column_descriptions[{column!r}]"
        _check_text(name, text, _COLUMN_DESCRIPTION_CHARACTERS)
    _check_labels(options.labels)
    if len(options.cluster_by) > _CLUSTER_COLUMNS:
        raise WarehouseConfigurationError(
            f"cluster_by names {len(options.cluster_by)} columns; a table is clustered by at most "
            f"{_CLUSTER_COLUMNS}.",
            "Keep those that queries filter by most, the most used first.",
        )
    if options.commit not in ("merge", "transaction"):
        raise WarehouseConfigurationError(
            f"commit is {options.commit!r}.", 'Use "merge" or "transaction".'
        )
    _check_partition_options(options, has_partitions=has_partitions)
    return options


def _check_partition_options(options: TableOptions, *, has_partitions: bool) -> None:
    days = options.partition_expiration_days
    if days is not None and (type(days) is not int or days < 1):
        raise WarehouseConfigurationError(
            f"partition_expiration_days is {days!r}.", "Give a number of days, 1 or more."
        )
    if has_partitions:
        return
    for name in ("partition_expiration_days", "require_partition_filter"):
        if getattr(options, name) is not None:
            raise WarehouseConfigurationError(
                f"{name} is set, but the table has no partitions.",
                "Give partition_by_date too, or remove it.",
            )


def _check_columns(option: str, columns: Collection[str]) -> None:
    for column in columns:
        if problem := identifier_problem(column):
            raise WarehouseConfigurationError(
                f"{option} names the column {column!r}, which {problem}.", "Correct the name."
            )


def _check_text(option: str, text: str | None, longest: int) -> None:
    if text is not None and len(text) > longest:
        raise WarehouseConfigurationError(
            f"{option} has {len(text)} characters; at most {longest} are kept.", "Shorten it."
        )


def _check_labels(labels: Mapping[str, str]) -> None:
    if len(labels) > _LABELS:
        raise WarehouseConfigurationError(
            f"{len(labels)} labels are declared; a table has at most {_LABELS}.", "Remove some."
        )
    for key, value in labels.items():
        if not _LABEL_KEY.fullmatch(key) or not _LABEL_VALUE.fullmatch(value):
            raise WarehouseConfigurationError(
                f"The label {key!r}: {value!r} cannot be one.",
                "Use small letters, digits, _ and -, at most 63 of them; a key starts with a "
                "letter.",
            )
