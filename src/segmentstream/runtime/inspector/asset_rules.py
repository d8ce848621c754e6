"""What is refused of assets and their checks, each looked at alone and beside the others.

Imports Dagster, `_dagster`, `_warehouse` and `_core`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from dagster import EnvVar, TimeWindowPartitionsDefinition

from segmentstream._core.errors import WarehouseConfigurationError
from segmentstream._core.names import (
    DEFAULT_NAMESPACE_VARIABLE,
    ENGINE_VARIABLE,
    WAREHOUSE_IO_MANAGER_KEY,
    WAREHOUSE_RESOURCE_KEY,
    fold_case,
)
from segmentstream._dagster.declarations import check_daily, check_partition_column
from segmentstream._dagster.keys import shown, split_key
from segmentstream._dagster.resource import WarehouseResource
from segmentstream._warehouse.engines.bigquery.names import table_problem
from segmentstream._warehouse.tables import TableRef
from segmentstream.runtime.inspector.declared import Declared, DeclaredAsset, DeclaredCheck
from segmentstream.runtime.inspector.findings import Code, Finding, Kind, Place

_OF_THE_WAREHOUSE = {WAREHOUSE_IO_MANAGER_KEY, WAREHOUSE_RESOURCE_KEY}


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownWarehouse:
    """Says what is known of the warehouse without asking it; nothing has to be.

    Attributes:
        engine: Its engine.
        default_namespace: The namespace of keys with one part.
    """

    engine: str | None = None
    default_namespace: str | None = None

    @classmethod
    def from_environ(
        cls, environ: Mapping[str, str], warehouse: WarehouseResource | None
    ) -> KnownWarehouse:
        """Reads what the resource says, and the variables where it does not."""
        engine = warehouse.engine if warehouse else None
        namespace = warehouse.default_namespace if warehouse else None
        return cls(
            engine=_literal(engine) or environ.get(ENGINE_VARIABLE) or None,
            default_namespace=_literal(namespace)
            or environ.get(DEFAULT_NAMESPACE_VARIABLE)
            or None,
        )

    @property
    def ignores_case(self) -> bool:
        """Whether two spellings are one name; so on DuckDB, so wherever it is not known."""
        return self.engine != "bigquery"


def asset_findings(declared: Declared, known: KnownWarehouse) -> Iterator[Finding]:
    """Looks at every asset and check."""
    yield from _missing_resources(declared)
    for asset in declared.assets:
        if asset.is_kept:
            yield from _of_kept(asset, known)
        yield from _of_any(asset)
    yield from _duplicate_keys(declared.assets)
    yield from _shared_tables(declared.assets, known)
    yield from _inputs(declared)
    yield from _checks(declared)


def _literal(value: str | None) -> str | None:
    return None if isinstance(value, EnvVar) else value


def _missing_resources(declared: Declared) -> Iterator[Finding]:
    takers: list[DeclaredAsset | DeclaredCheck] = [*declared.assets, *declared.checks]
    unserved = [taker for taker in takers if taker.lacking & _OF_THE_WAREHOUSE]
    if unserved:
        yield _finding(
            Code.WAREHOUSE_MISSING,
            "workspace",
            "",
            f"{_name_of(unserved[0])[1]} needs the warehouse, but the resources have none.",
            "Write Definitions(..., resources=warehouse_resources()).",
            *(taker.place for taker in unserved),
        )
    for taker in takers:
        for resource in sorted(taker.lacking - _OF_THE_WAREHOUSE):
            kind, name = _name_of(taker)
            yield _finding(
                Code.RESOURCE_MISSING,
                kind,
                name,
                f"{name} needs the resource {resource!r}, which there is not.",
                "Add it to Definitions(resources=...), or correct the name.",
                taker.place,
            )


def _of_kept(asset: DeclaredAsset, known: KnownWarehouse) -> Iterator[Finding]:
    try:
        namespace, name = split_key(asset.key)
    except WarehouseConfigurationError as error:
        yield _of_asset(asset, Code.KEY_INVALID, error.problem, error.remedy)
    else:
        yield from _unsupported_name(asset, namespace or known.default_namespace, name, known)
    if asset.partitions_def is not None:
        try:
            check_daily(asset.key, asset.partitions_def)
        except WarehouseConfigurationError as error:
            yield _of_asset(asset, Code.PARTITIONS_UNSUPPORTED, error.problem, error.remedy)
            return  # Which column they need is of no use before that.
    try:
        check_partition_column(asset.key, asset.metadata, asset.partitions_def)
    except WarehouseConfigurationError as error:
        code = (
            Code.PARTITIONS_MISSING
            if asset.partitions_def is None
            else Code.PARTITION_COLUMN_MISSING
        )
        yield _of_asset(asset, code, error.problem, error.remedy)


def _unsupported_name(
    asset: DeclaredAsset, namespace: str | None, name: str, known: KnownWarehouse
) -> Iterator[Finding]:
    if known.engine not in {None, "bigquery"}:
        return
    # Any namespace will do where the default one is not known.
    problem = table_problem(TableRef(catalog="", namespace=namespace or "any", name=name))
    if problem:
        yield _of_asset(
            asset,
            Code.NAME_UNSUPPORTED if known.engine else Code.NAME_NOT_PORTABLE,
            f"The asset key {shown(asset.key)} names no table of BigQuery: {problem}.",
            "Rename the asset; names are never changed to make them fit.",
        )


def _of_any(asset: DeclaredAsset) -> Iterator[Finding]:
    if asset.returns_table and not asset.is_kept:
        yield _of_asset(
            asset,
            Code.TABLE_UNBOUND,
            f"The asset {shown(asset.key)} returns an Ibis table, but the warehouse does not keep "
            "it.",
            "Add io_manager_key=WAREHOUSE_IO_MANAGER_KEY.",
        )
    partitions = asset.partitions_def
    if partitions is None:
        return
    if asset.freshness_policy is not None:
        yield _of_asset(
            asset,
            Code.FRESHNESS_OF_PARTITIONS,
            f"The asset {shown(asset.key)} has partitions and a freshness policy; a run of any "
            "partition makes the whole asset fresh.",
            "Watch it with an asset check on the newest day.",
        )
    if isinstance(partitions, TimeWindowPartitionsDefinition) and partitions.end_offset:
        days = partitions.end_offset
        yield _of_asset(
            asset,
            Code.END_OFFSET,
            f"The partitions of {shown(asset.key)} have end_offset={days}: "
            + (
                "they include days that are not over."
                if days > 0
                else "the last days are left out."
            ),
            "Nothing, if that is meant.",
        )


def _duplicate_keys(assets: Iterable[DeclaredAsset]) -> Iterator[Finding]:
    by_key = defaultdict(list)
    for asset in assets:
        by_key[asset.key].append(asset)
    for key, same in by_key.items():
        if len(same) > 1:
            yield _finding(
                Code.KEY_DUPLICATE,
                "asset",
                key.to_user_string(),
                f"The key {shown(key)} is declared {len(same)} times.",
                "Keep one of them, or rename the others.",
                *(asset.place for asset in same),
            )


def _shared_tables(assets: Iterable[DeclaredAsset], known: KnownWarehouse) -> Iterator[Finding]:
    fold = fold_case if known.ignores_case else str
    tables: dict[tuple[str | None, str], DeclaredAsset] = {}
    namespaces: dict[str, tuple[str, DeclaredAsset]] = {}
    for asset in assets:
        try:
            namespace, name = split_key(asset.key) if asset.is_kept else (None, "")
        except WarehouseConfigurationError:
            continue  # It has been named already.
        if not name:
            continue
        namespace = namespace or known.default_namespace
        folded = None if namespace is None else fold(namespace)
        owner = tables.setdefault((folded, fold(name)), asset)
        if owner.key != asset.key:
            yield _shared("table", name, owner, asset)
        elif namespace is not None:
            spelling, neighbour = namespaces.setdefault(fold(namespace), (namespace, asset))
            if spelling != namespace:
                yield _shared("namespace", namespace, neighbour, asset)


def _shared(what: str, name: str, first: DeclaredAsset, second: DeclaredAsset) -> Finding:
    return _finding(
        Code.TABLE_SHARED,
        "asset",
        second.key.to_user_string(),
        f"The asset keys {shown(first.key)} and {shown(second.key)} mean the same {what} {name!r}.",
        "Keep one of them, or rename one.",
        first.place,
        second.place,
    )


def _inputs(declared: Declared) -> Iterator[Finding]:
    by_key = {asset.key: asset for asset in declared.assets}
    names = {key.path[-1] for key in by_key}
    takers: list[DeclaredAsset | DeclaredCheck] = [*declared.assets, *declared.checks]
    seen: set[tuple[int, str]] = set()
    for taker in takers:
        kind, name = _name_of(taker)
        for input_name, upstream in {**taker.table_inputs, **taker.other_inputs}.items():
            if (id(taker.table_inputs), input_name) in seen:
                continue  # Another asset of the same function.
            seen.add((id(taker.table_inputs), input_name))
            found = by_key.get(upstream)
            if found is None and not (len(upstream.path) == 1 and upstream.path[0] in names):
                yield _finding(
                    Code.INPUT_UNKNOWN,
                    kind,
                    name,
                    f"The input {input_name!r} of {name} is the asset {shown(upstream)}, which is "
                    "not declared.",
                    "Correct the key in ins=, or declare the table with external_table_asset(); "
                    "load_assets_from_modules finds that with include_specs=True.",
                    taker.place,
                )
            elif found and input_name in taker.table_inputs and not found.is_kept:
                yield _finding(
                    Code.INPUT_UNBOUND,
                    kind,
                    name,
                    f"The input {input_name!r} of {name} is to be an Ibis table, but the warehouse "
                    f"does not keep {shown(upstream)}.",
                    "Give that asset io_manager_key=WAREHOUSE_IO_MANAGER_KEY, or declare it with "
                    "external_table_asset().",
                    taker.place,
                    found.place,
                )


def _checks(declared: Declared) -> Iterator[Finding]:
    partitions = {asset.key: asset.partitions_def for asset in declared.assets}
    by_key = defaultdict(list)
    for check in declared.checks:
        by_key[check.spec.key].append(check)
        of_asset = partitions.get(check.spec.asset_key)
        if check.spec.partitions_def is not None and check.spec.partitions_def != of_asset:
            kind, name = _name_of(check)
            yield _finding(
                Code.CHECK_PARTITIONS_DIFFER,
                kind,
                name,
                f"The check {name} has other partitions than its asset.",
                "Give it the asset's partitions_def, or none.",
                check.place,
            )
    for same in by_key.values():
        if len(same) > 1:
            kind, name = _name_of(same[0])
            yield _finding(
                Code.CHECK_DUPLICATE,
                kind,
                name,
                f"The check {name} is declared {len(same)} times.",
                "Keep one of them, or rename the others.",
                *(check.place for check in same),
            )


def _name_of(taker: DeclaredAsset | DeclaredCheck) -> tuple[Kind, str]:
    if isinstance(taker, DeclaredAsset):
        return "asset", taker.key.to_user_string()
    return "check", f"{taker.spec.asset_key.to_user_string()}:{taker.spec.name}"


def _of_asset(asset: DeclaredAsset, code: Code, problem: str, remedy: str) -> Finding:
    return _finding(code, "asset", asset.key.to_user_string(), problem, remedy, asset.place)


def _finding(
    code: Code, kind: Kind, name: str, problem: str, remedy: str, *places: Place
) -> Finding:
    return Finding(
        code=code,
        kind=kind,
        name=name,
        problem=problem,
        remedy=remedy,
        places=tuple(dict.fromkeys(places)),
    )
