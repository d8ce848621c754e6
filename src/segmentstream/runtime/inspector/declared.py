"""What a workspace's `defs` declares, before Dagster puts it together; imports Dagster and Ibis.

Dagster stops at the first definition that it refuses. So the definitions are looked at one by one,
each with its place, and only then as a whole.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import ibis.expr.types as ir
from dagster import (
    AssetCheckSpec,
    AssetKey,
    AssetsDefinition,
    AssetSpec,
    BackfillPolicy,
    Definitions,
    FreshnessPolicy,
    PartitionsDefinition,
    SensorDefinition,
)

from segmentstream._core.names import WAREHOUSE_IO_MANAGER_KEY
from segmentstream._dagster.io_manager import WarehouseIOManager
from segmentstream._dagster.resource import WarehouseResource
from segmentstream.runtime.inspector.findings import Place
from segmentstream.runtime.inspector.sources import Sources

_DEFAULT_IO_MANAGER_KEY = "io_manager"
_EXTERNAL_IO_MANAGER_KEY = "dagster/io_manager_key"


@dataclass(frozen=True, slots=True, kw_only=True)
class DeclaredAsset:
    """Is one asset as it is declared.

    Attributes:
        definition: What declares it, perhaps with others.
        is_kept: Whether the warehouse keeps it, or would.
        lacking: Names of resources that it needs and that there are not.
        is_external: Whether no run can write it.
        returns_table: Whether its function is annotated to return an Ibis table.
        table_inputs: Assets that its function takes as Ibis tables, by the name of the input.
        other_inputs: Those whose value it takes as something else.
    """

    key: AssetKey
    definition: object
    place: Place
    metadata: Mapping[str, Any]  # as users wrote it
    partitions_def: PartitionsDefinition[Any] | None
    backfill_policy: BackfillPolicy | None
    freshness_policy: FreshnessPolicy | None
    is_kept: bool
    lacking: frozenset[str]
    is_external: bool
    returns_table: bool
    table_inputs: Mapping[str, AssetKey]
    other_inputs: Mapping[str, AssetKey]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeclaredCheck:
    """Is one asset check; what its function takes is as of an asset."""

    spec: AssetCheckSpec
    place: Place
    lacking: frozenset[str]
    table_inputs: Mapping[str, AssetKey]
    other_inputs: Mapping[str, AssetKey]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Named:
    """Is a job, a schedule or a sensor; equal to nothing but itself.

    Attributes:
        definition: Dagster's object; some of its classes have no public name.
        targets: The jobs that it names by a text, for what starts jobs.
    """

    name: str
    definition: Any
    place: Place
    kind: str = "job"
    targets: tuple[str, ...] = ()


class Declared:
    """Holds what `defs` declares.

    Args:
        defs: The definitions.
        sources: Where they are written.
    """

    def __init__(self, defs: Definitions, sources: Sources) -> None:
        self.defs = defs
        self._sources = sources

    @cached_property
    def assets(self) -> list[DeclaredAsset]:
        """Every asset, those that share a key too; one that is listed twice counts once."""
        return [asset for each in _once(self.defs.assets) for asset in self._assets_of(each)]

    @cached_property
    def checks(self) -> list[DeclaredCheck]:
        """Every asset check, as for assets."""
        definitions = _once([*(self.defs.assets or ()), *(self.defs.asset_checks or ())])
        return [
            DeclaredCheck(
                spec=spec,
                place=self._sources.of_asset(each, spec.asset_key),
                lacking=self._lacking(each, None),
                **_inputs_of(each),
            )
            for each in definitions
            if isinstance(each, AssetsDefinition)
            for spec in each.check_specs
        ]

    @cached_property
    def jobs(self) -> list[Named]:
        """Every job that `defs` lists."""
        return [self._named(each, "job") for each in _once(self.defs.jobs)]

    @cached_property
    def triggers(self) -> list[Named]:
        """Every schedule and sensor that `defs` lists."""
        return [
            *(self._named(each, "schedule") for each in _once(self.defs.schedules)),
            *(self._named(each, "sensor") for each in _once(self.defs.sensors)),
        ]

    @cached_property
    def warehouse(self) -> WarehouseResource | None:
        """The warehouse that keeps the tables, None where the resources have none."""
        for resource in (self.defs.resources or {}).values():
            if isinstance(resource, WarehouseIOManager):
                return resource.warehouse
        return None

    def _named(self, definition: Any, kind: str) -> Named:
        return Named(
            name=definition.name,
            definition=definition,
            place=self._sources.of_object(definition),
            kind=kind,
            targets=tuple(_targets_of(definition)) if kind != "job" else (),
        )

    def _assets_of(self, definition: object) -> Iterator[DeclaredAsset]:
        if isinstance(definition, AssetsDefinition):
            inputs = _inputs_of(definition)
            for spec in definition.specs:
                yield self._asset(
                    spec,
                    definition,
                    io_manager_key=_io_manager_key(definition, spec),
                    resources=definition.resource_defs,
                    backfill_policy=definition.backfill_policy,
                    is_external=not definition.is_executable,
                    returns_table=_returns_table(definition, spec.key),
                    **inputs,
                )
        elif isinstance(definition, AssetSpec):
            yield self._asset(
                definition, definition, io_manager_key=_external_io_manager_key(definition.metadata)
            )
        elif hasattr(definition, "to_spec"):  # a SourceAsset, which Dagster has deprecated
            source: Any = definition
            yield self._asset(
                source.to_spec(), definition, io_manager_key=source.get_io_manager_key()
            )

    def _asset(
        self,
        spec: AssetSpec,
        definition: object,
        *,
        io_manager_key: str | None,
        resources: Mapping[str, Any] | None = None,
        backfill_policy: BackfillPolicy | None = None,
        is_external: bool = True,
        returns_table: bool = False,
        table_inputs: Mapping[str, AssetKey] | None = None,
        other_inputs: Mapping[str, AssetKey] | None = None,
    ) -> DeclaredAsset:
        available = {**(self.defs.resources or {}), **(resources or {})}
        manager = available.get(io_manager_key) if io_manager_key else None
        lacking = self._lacking(definition, io_manager_key)
        return DeclaredAsset(
            key=spec.key,
            definition=definition,
            place=self._sources.of_asset(definition, spec.key),
            metadata=spec.metadata,
            partitions_def=spec.partitions_def,
            backfill_policy=backfill_policy,
            freshness_policy=spec.freshness_policy,
            is_kept=isinstance(manager, WarehouseIOManager)
            or (io_manager_key == WAREHOUSE_IO_MANAGER_KEY and io_manager_key in lacking),
            lacking=lacking,
            is_external=is_external,
            returns_table=returns_table,
            table_inputs=table_inputs or {},
            other_inputs=other_inputs or {},
        )

    def _lacking(self, definition: object, io_manager_key: str | None) -> frozenset[str]:
        """Gives the resources that Dagster would miss; of a table of someone else, the manager."""
        needed = {io_manager_key} if io_manager_key else set()
        own: set[str] = {_DEFAULT_IO_MANAGER_KEY}
        if isinstance(definition, AssetsDefinition) and definition.is_executable:
            needed |= definition.required_resource_keys
            own |= definition.resource_defs.keys()
        return frozenset(needed - own - (self.defs.resources or {}).keys())


def _once(definitions: Any) -> list[Any]:
    """Drops what is listed twice, as Dagster does; equal is not enough."""
    return list({id(each): each for each in definitions or ()}.values())


def _io_manager_key(definition: AssetsDefinition, spec: AssetSpec) -> str | None:
    if definition.is_executable:
        return str(definition.get_io_manager_key_for_asset_key(spec.key))
    return _external_io_manager_key(spec.metadata)


def _external_io_manager_key(metadata: Mapping[str, Any]) -> str | None:
    key = metadata.get(_EXTERNAL_IO_MANAGER_KEY)
    return None if key is None else str(getattr(key, "value", key))


def _returns_table(definition: AssetsDefinition, key: AssetKey) -> bool:
    if not definition.is_executable:
        return False
    output = definition.get_output_name_for_asset_key(key)
    return _is_table(definition.node_def.output_def_named(output).dagster_type.typing_type)


def _inputs_of(definition: AssetsDefinition) -> dict[str, Mapping[str, AssetKey]]:
    tables, others = {}, {}
    if definition.is_executable:
        for name, key in definition.node_keys_by_input_name.items():
            wanted = definition.node_def.input_def_named(name).dagster_type
            if _is_table(wanted.typing_type):
                tables[name] = key
            elif not wanted.is_nothing:
                others[name] = key
    return {"table_inputs": tables, "other_inputs": others}


def _is_table(wanted: object) -> bool:
    return isinstance(wanted, type) and issubclass(wanted, ir.Table)


def _targets_of(definition: Any) -> Iterator[str]:
    """Gives the jobs that are named by a text alone; others are part of what names them."""
    if isinstance(definition, SensorDefinition):
        yield from (each.job_name for each in definition.targets if not each.has_job_def)
    elif not getattr(definition, "has_job", True):
        yield definition.job_name
