"""Everything that the inspector can find: one code, one meaning, one place.

Imports the standard library only.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Literal

type Kind = Literal["asset", "check", "job", "schedule", "sensor", "workspace"]


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Place:
    """Is where something is written.

    Attributes:
        file: Relative to the workspace; the name of a module where it lies outside.
        line: Its line, None where that is not known.
    """

    file: str
    line: int | None = None

    def __str__(self) -> str:
        return self.file if self.line is None else f"{self.file}:{self.line}"


class Code(Enum):
    """Lists the codes; the value is what `--json` shows."""

    WORKSPACE_BROKEN = "workspace_broken"
    DEFINITIONS_MISSING = "definitions_missing"
    DEFINITIONS_REFUSED = "definitions_refused"
    WAREHOUSE_MISSING = "warehouse_missing"
    RESOURCE_MISSING = "resource_missing"
    KEY_INVALID = "key_invalid"
    KEY_DUPLICATE = "key_duplicate"
    TABLE_SHARED = "table_shared"
    NAME_UNSUPPORTED = "name_unsupported"
    PARTITIONS_UNSUPPORTED = "partitions_unsupported"
    PARTITION_COLUMN_MISSING = "partition_column_missing"
    PARTITIONS_MISSING = "partitions_missing"
    TABLE_UNBOUND = "table_unbound"
    INPUT_UNBOUND = "input_unbound"
    INPUT_UNKNOWN = "input_unknown"
    CHECK_DUPLICATE = "check_duplicate"
    CHECK_PARTITIONS_DIFFER = "check_partitions_differ"
    JOB_NAME_INVALID = "job_name_invalid"
    JOB_DUPLICATE = "job_duplicate"
    JOB_EMPTY = "job_empty"
    JOB_SELECTION_INVALID = "job_selection_invalid"
    JOB_PARTITIONS_MIXED = "job_partitions_mixed"
    JOB_BACKFILL_MIXED = "job_backfill_mixed"
    TRIGGER_DUPLICATE = "trigger_duplicate"
    TRIGGER_JOB_UNKNOWN = "trigger_job_unknown"
    START_MOVES = "start_moves"
    FRESHNESS_OF_PARTITIONS = "freshness_of_partitions"
    END_OFFSET = "end_offset"
    NAME_NOT_PORTABLE = "name_not_portable"


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """Says what a code means.

    Attributes:
        is_refused: Whether nothing is written because of it; else it is a warning.
        meaning: What was found, in a sentence.
    """

    is_refused: bool
    meaning: str


def _refused(meaning: str) -> Outcome:
    return Outcome(is_refused=True, meaning=meaning)


def _warned(meaning: str) -> Outcome:
    return Outcome(is_refused=False, meaning=meaning)


FINDINGS: dict[Code, Outcome] = {
    Code.WORKSPACE_BROKEN: _refused("The workspace's code raises an error while it loads."),
    Code.DEFINITIONS_MISSING: _refused("There is no module with definitions, or no `defs` in it."),
    Code.DEFINITIONS_REFUSED: _refused(
        "Dagster refuses the definitions for a reason that has no code here; its words are shown."
    ),
    Code.WAREHOUSE_MISSING: _refused("Assets need the warehouse, but the resources have none."),
    Code.RESOURCE_MISSING: _refused("An asset or a check needs a resource that there is not."),
    Code.KEY_INVALID: _refused("An asset key that names no table."),
    Code.KEY_DUPLICATE: _refused("Two assets have one key; both places are named."),
    Code.TABLE_SHARED: _refused(
        "Two keys mean one table or spell one namespace in two ways: by upper and lower case, or "
        "because one names the default namespace."
    ),
    Code.NAME_UNSUPPORTED: _refused("A name that the configured engine does not allow."),
    Code.PARTITIONS_UNSUPPORTED: _refused(
        "Partitions that a DATE column cannot hold: anything but days from midnight, written as "
        "%Y-%m-%d."
    ),
    Code.PARTITION_COLUMN_MISSING: _refused("Daily partitions without `partition_by_date`."),
    Code.PARTITIONS_MISSING: _refused("`partition_by_date` without partitions."),
    Code.TABLE_UNBOUND: _refused(
        "An asset is annotated to return an Ibis table, but another IO manager would keep it."
    ),
    Code.INPUT_UNBOUND: _refused(
        "An input is annotated as an Ibis table, but the warehouse does not keep that asset."
    ),
    Code.INPUT_UNKNOWN: _refused("An input is an asset that no definition declares."),
    Code.CHECK_DUPLICATE: _refused("Two checks of one asset have one name."),
    Code.CHECK_PARTITIONS_DIFFER: _refused(
        "A check has partitions that are not those of its asset."
    ),
    Code.JOB_NAME_INVALID: _refused("A job's name that Dagster does not allow."),
    Code.JOB_DUPLICATE: _refused("Two jobs have one name."),
    Code.JOB_EMPTY: _refused("A job that selects nothing."),
    Code.JOB_SELECTION_INVALID: _refused(
        "A job that selects an asset that does not exist or that no run can write."
    ),
    Code.JOB_PARTITIONS_MIXED: _refused("A job over assets with different partitions."),
    Code.JOB_BACKFILL_MIXED: _refused("A job over daily assets with different backfill policies."),
    Code.TRIGGER_DUPLICATE: _refused("Two schedules or sensors have one name."),
    Code.TRIGGER_JOB_UNKNOWN: _refused("A schedule or sensor names a job that does not exist."),
    Code.START_MOVES: _warned(
        "Partitions start on a day that depends on when the code is loaded, so days vanish from "
        "the asset while their rows stay in its table."
    ),
    Code.FRESHNESS_OF_PARTITIONS: _warned(
        "A freshness policy on an asset with partitions: Dagster judges the whole asset, so a run "
        "of any old day makes it fresh."
    ),
    Code.END_OFFSET: _warned(
        "Partitions reach beyond the last complete day, or stop before it (`end_offset`)."
    ),
    Code.NAME_NOT_PORTABLE: _warned(
        "A name that BigQuery does not allow, while the engine is not known."
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """Is one thing that was found.

    Attributes:
        code: What it is.
        kind: What has it.
        name: Which; an asset as `bronze/orders`, a check as `bronze/orders:name`.
        problem: What is wrong.
        remedy: What to do about it.
        places: Where that is written.
    """

    code: Code
    kind: Kind
    name: str
    problem: str
    remedy: str
    places: tuple[Place, ...] = ()

    @property
    def is_refused(self) -> bool:
        """Whether nothing is written because of it."""
        return FINDINGS[self.code].is_refused

    def document(self) -> dict[str, object]:
        """Gives it as plain values."""
        return {
            "code": self.code.value,
            "kind": self.kind,
            "name": self.name,
            "problem": self.problem,
            "remedy": self.remedy,
            "places": [{"file": place.file, "line": place.line} for place in self.places],
        }

    def text(self) -> str:
        """Writes it for people, the place first so that editors find it."""
        places = ", ".join(map(str, self.places)) or "definitions"
        word = "error" if self.is_refused else "warning"
        return f"{places}: {word}: {self.problem} {self.remedy} [{self.code.value}]"


def in_order(findings: Iterable[Finding]) -> list[Finding]:
    """Sorts findings: what is refused first, then by code as listed, then by place and name."""
    order = {code: number for number, code in enumerate(Code)}
    return sorted(
        findings,
        key=lambda each: (
            not each.is_refused,
            order[each.code],
            [(place.file, place.line or 0) for place in each.places],
            each.name,
        ),
    )
