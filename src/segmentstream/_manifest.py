"""What a workspace's pipeline consists of, as one versioned JSON document.

Written by the inspector, read by whoever deploys. Imports pydantic and `_core`, never Dagster.
The same workspace gives the same bytes, wherever and whenever it is inspected: everything is
sorted, and nothing in it is a time or a path of the machine.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue

from segmentstream._core.jsonio import canonical_json, write_atomically

MANIFEST_VERSION: Literal[1] = 1  # raised with every change of the fields

type Key = tuple[str, ...]
type PartitionKind = Literal[
    "daily", "hourly", "weekly", "monthly", "time_window", "static", "dynamic", "multi", "other"
]


class _Part(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)


class Versions(_Part):
    """Says what the manifest was written with."""

    sdk: str
    dagster: str


class Table(_Part):
    """Says where an asset's rows are kept; the catalog is the deployment's."""

    namespace: str | None = Field(description="None for the deployment's default namespace.")
    name: str


class Partitioning(_Part):
    """Says how an asset or a job is divided."""

    kind: PartitionKind
    start: str | None = Field(description="The first instant, ISO 8601 with its offset.")
    end: str | None = Field(description="The instant before which it ends, if it does.")
    timezone: str | None
    cron: str | None = Field(description="When each partition starts.")
    end_offset: int = Field(description="How many partitions beyond the last complete one.")
    exclusions: tuple[str, ...] = Field(description="Cron strings and instants left out.")
    column: str | None = Field(description="The DATE column that holds the partition's day.")


class Backfill(_Part):
    """Says how many partitions one run takes."""

    kind: Literal["single_run", "multi_run"]
    max_partitions_per_run: int | None = Field(description="None for all of them in one run.")


class Freshness(_Part):
    """Says when an asset counts as late."""

    kind: Literal["time_window", "cron", "other"]
    fail_seconds: float | None = None
    warn_seconds: float | None = None
    cron: str | None = None
    lower_bound_seconds: float | None = None
    timezone: str | None = None


class Asset(_Part):
    """Is one asset: a table of the warehouse, or anything else that Dagster keeps track of."""

    key: Key
    dependencies: tuple[Key, ...]
    description: str | None
    group: str
    owners: tuple[str, ...]
    kinds: tuple[str, ...]
    tags: dict[str, str]
    metadata: dict[str, JsonValue]
    code_version: str | None
    is_external: bool = Field(description="Written by someone else, never by a run.")
    table: Table | None = Field(description="None where the warehouse does not keep the asset.")
    partitioning: Partitioning | None
    backfill: Backfill | None
    automation: str | None = Field(description="Dagster's name for the automation condition.")
    freshness: Freshness | None


class Check(_Part):
    """Is one asset check."""

    asset: Key
    name: str
    description: str | None
    is_blocking: bool
    is_partitioned: bool


class CheckName(_Part):
    """Names an asset check."""

    asset: Key
    name: str


class Job(_Part):
    """Is what can be run by name."""

    name: str
    description: str | None
    assets: tuple[Key, ...] = Field(description="Those a run of the job writes.")
    checks: tuple[CheckName, ...]
    partitioning: Partitioning | None
    backfill: Backfill | None
    tags: dict[str, str]


class Schedule(_Part):
    """Says when a job is started."""

    name: str
    description: str | None
    job: str
    cron: tuple[str, ...]
    timezone: str
    is_on: bool = Field(description="Whether it starts switched on.")


class Sensor(_Part):
    """Says what watches for work."""

    name: str
    description: str | None
    jobs: tuple[str, ...]
    assets: tuple[Key, ...]
    is_on: bool = Field(description="Whether it starts switched on.")


class Manifest(_Part):
    """Describes the pipeline of one workspace."""

    version: Literal[1] = MANIFEST_VERSION
    versions: Versions
    location: str = Field(description="The name of the code location.")
    module: str = Field(description="The module that holds `defs`.")
    assets: tuple[Asset, ...]
    checks: tuple[Check, ...]
    jobs: tuple[Job, ...]
    schedules: tuple[Schedule, ...]
    sensors: tuple[Sensor, ...]

    def text(self) -> str:
        """Writes the manifest as JSON, in the same bytes for the same content."""
        return canonical_json(self.model_dump(mode="json"))


def read_manifest(text: str) -> Manifest:
    """Reads a manifest.

    Raises:
        pydantic.ValidationError: It is no manifest of this version.
    """
    return Manifest.model_validate_json(text)


def write_manifest(path: Path, manifest: Manifest) -> None:
    """Writes a manifest whole or not at all.

    Raises:
        OSError: The file cannot be written.
    """
    write_atomically(path, manifest.text())


def schema_text() -> str:
    """Writes the JSON Schema of manifests."""
    return canonical_json(Manifest.model_json_schema(mode="serialization"))
