"""What is refused of jobs and of what starts them, and what Dagster itself refuses.

Imports Dagster and `_dagster`.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, cast

from dagster import (
    AssetCheckKey,
    AssetKey,
    AssetSpec,
    BackfillPolicy,
    Definitions,
    ResourceDefinition,
)

from segmentstream._dagster.io_manager import warehouse_resources
from segmentstream._dagster.keys import shown
from segmentstream.runtime.inspector.declared import Declared, DeclaredAsset, Named
from segmentstream.runtime.inspector.findings import Code, Finding, Kind, Place

# Dagster's own rule, which it applies when a job is put together.
_NAME = re.compile(r"[A-Za-z0-9_]+")
_RESERVED_PREFIX = "__"


def job_findings(declared: Declared) -> Iterator[Finding]:
    """Looks at every job, schedule and sensor, then lets Dagster put together what is left.

    What Dagster refuses in its own words comes last; it looks only at what passed until then, so
    that one mistake does not hide another.
    """
    found = [*_names(declared), *_triggers(declared)]
    try:
        graph = _asset_graph(declared)
    except Exception as error:  # noqa: BLE001 - Dagster and the workspace's code raise anything
        yield from [*found, _refusal(error, declared)]
        return
    found += [each for job in declared.jobs for each in _selection(job, declared, graph)]
    yield from found
    yield from _refused_by_dagster(declared, found)


def _names(declared: Declared) -> Iterator[Finding]:
    for job in declared.jobs:
        if not _NAME.fullmatch(job.name) or job.name.startswith(_RESERVED_PREFIX):
            yield _finding(
                Code.JOB_NAME_INVALID,
                job,
                f"The job name {job.name!r} is not allowed.",
                "Use letters, digits and _, and do not begin with two of these.",
            )
    yield from _duplicates(declared.jobs, Code.JOB_DUPLICATE)
    yield from _duplicates(declared.triggers, Code.TRIGGER_DUPLICATE)


def _duplicates(definitions: Iterable[Named], code: Code) -> Iterator[Finding]:
    by_name = defaultdict(list)
    for each in definitions:
        by_name[each.name].append(each)
    for name, same in by_name.items():
        if len(same) > 1:
            kinds = " and a ".join(sorted({each.kind for each in same}))
            yield _finding(
                code,
                same[0],
                f"The name {name!r} is given {len(same)} times, to a {kinds}.",
                "Keep one of them, or rename the others.",
                *(each.place for each in same[1:]),
            )


def _triggers(declared: Declared) -> Iterator[Finding]:
    jobs = {job.name for job in declared.jobs}
    for trigger in declared.triggers:
        jobs |= {job.name for job in _jobs_within(trigger)}
    for trigger in declared.triggers:
        for target in trigger.targets:
            if target not in jobs:
                yield _finding(
                    Code.TRIGGER_JOB_UNKNOWN,
                    trigger,
                    f"The {trigger.kind} {trigger.name!r} starts the job {target!r}, which does "
                    "not exist.",
                    f"The jobs are: {', '.join(sorted(jobs)) or 'none'}.",
                )


def _jobs_within(trigger: Named) -> list[Any]:
    """Gives the jobs that are part of what starts them; Dagster lists those by itself."""
    definition = trigger.definition
    if trigger.kind == "sensor":
        return [each.job_def for each in definition.targets if each.has_job_def]
    return [definition.job] if getattr(definition, "has_job", True) else []


def _asset_graph(declared: Declared) -> Any:  # its class has no public name
    try:
        return declared.defs.resolve_asset_graph()
    except Exception:  # noqa: BLE001 - it is said of what, below
        return _put_together(declared, jobs=[], triggers=[]).resolve_asset_graph()


def _selection(job: Named, declared: Declared, graph: Any) -> Iterator[Finding]:
    selection = getattr(job.definition, "selection", None)
    if selection is None:
        return  # A job made of ops.
    try:
        keys: set[AssetKey] = set(selection.resolve(graph))
        checks = selection.resolve_checks(graph)
    except Exception as error:  # noqa: BLE001 - whatever a selection raises, it selects nothing
        yield _finding(
            Code.JOB_SELECTION_INVALID,
            job,
            f"The selection of the job {job.name!r} cannot be resolved: {_words(error)}",
            "Correct the selection.",
        )
        return
    if not keys and not checks:
        yield _finding(
            Code.JOB_EMPTY,
            job,
            f"The job {job.name!r} selects nothing.",
            "Correct its selection, or remove the job.",
        )
    chosen = [asset for asset in declared.assets if asset.key in keys]
    external = sorted(shown(asset.key) for asset in chosen if asset.is_external)
    if external and len(external) < len(chosen):
        yield _finding(
            Code.JOB_SELECTION_INVALID,
            job,
            f"The job {job.name!r} selects {', '.join(external)}, which no run can write.",
            "Leave external tables out of the selection.",
        )
    yield from _mixtures(job, [asset for asset in chosen if asset.partitions_def is not None])


def _mixtures(job: Named, chosen: Sequence[DeclaredAsset]) -> Iterator[Finding]:
    runnable = [asset for asset in chosen if not asset.is_external]
    partitions = _groups(runnable, lambda asset: str(asset.partitions_def))
    if len({asset.partitions_def for asset in runnable}) > 1:
        yield _finding(
            Code.JOB_PARTITIONS_MIXED,
            job,
            f"The job {job.name!r} mixes partitions: {partitions}.",
            "Use one partitions definition for all of them, or one job for each.",
            *(asset.place for asset in runnable),
        )
    policies = {asset.backfill_policy or BackfillPolicy.multi_run() for asset in runnable}
    if len(policies) > 1:
        named = _groups(runnable, lambda asset: _policy(asset.backfill_policy))
        yield _finding(
            Code.JOB_BACKFILL_MIXED,
            job,
            f"The job {job.name!r} mixes backfill policies: {named}.",
            "Give all of them the same backfill_policy, or use one job for each.",
            *(asset.place for asset in runnable),
        )


def _groups(assets: Iterable[DeclaredAsset], name_of: Callable[[DeclaredAsset], str]) -> str:
    groups = defaultdict(list)
    for asset in assets:
        groups[name_of(asset)].append(shown(asset.key))
    return "; ".join(f"{name} ({', '.join(sorted(keys))})" for name, keys in sorted(groups.items()))


def _policy(policy: BackfillPolicy | None) -> str:
    runs = (policy or BackfillPolicy.multi_run()).max_partitions_per_run
    return "all days in one run" if runs is None else f"{runs} in one run"


def _refused_by_dagster(declared: Declared, found: Sequence[Finding]) -> Iterator[Finding]:
    named = {(finding.kind, finding.name) for finding in found}
    jobs = [job for job in declared.jobs if ("job", job.name) not in named]
    refused_jobs = {name for kind, name in named if kind == "job"}
    triggers = [
        each
        for each in declared.triggers
        if (each.kind, each.name) not in named and not _jobs_of(each) & refused_jobs
    ]
    together = _error_of(_put_together(declared, jobs=jobs, triggers=triggers))
    if together is None:
        return
    alone = _error_of(_put_together(declared, jobs=[], triggers=[]))
    if alone is not None:
        yield _refusal(alone, declared)
        return
    bad = dict(
        _culprits(jobs, lambda some: _error_of(_put_together(declared, jobs=some, triggers=[])))
    )
    sound = [job for job in jobs if job not in bad]
    bad |= _culprits(
        [each for each in triggers if not _jobs_of(each) & {job.name for job in bad}],
        lambda some: _error_of(_put_together(declared, jobs=sound, triggers=some)),
    )
    yield from [_refusal(error, declared, each) for each, error in bad.items()] or [
        _refusal(together, declared)
    ]


def _jobs_of(trigger: Named) -> set[str]:
    return {*trigger.targets, *(job.name for job in _jobs_within(trigger))}


def _culprits(
    suspects: Sequence[Named], error_of: Callable[[Sequence[Named]], Exception | None]
) -> Iterator[tuple[Named, Exception]]:
    """Finds those that are refused by themselves, in halves: to put all together takes long."""
    error = error_of(suspects) if suspects else None
    if error is None:
        return
    if len(suspects) == 1:
        yield suspects[0], error
        return
    middle = len(suspects) // 2
    yield from _culprits(suspects[:middle], error_of)
    yield from _culprits(suspects[middle:], error_of)


def _put_together(
    declared: Declared, *, jobs: Sequence[Named], triggers: Sequence[Named]
) -> Definitions:
    """Gives definitions without what Dagster would stop at, though it has been named already."""
    assets, checks, stubs = _unique_assets(declared), _unique_checks(declared), _stubs(declared)
    lacking = {name for asset in declared.assets for name in asset.lacking}
    lacking |= {name for check in declared.checks for name in check.lacking}
    is_whole = not stubs and not lacking
    for left, of_all in (
        (assets, declared.defs.assets),
        (checks, declared.defs.asset_checks),
        (jobs, declared.jobs),
        (triggers, declared.triggers),
    ):
        is_whole = is_whole and len(left) == len(list(of_all or ()))
    if is_whole:
        return declared.defs
    return Definitions(
        assets=[*assets, *stubs],
        asset_checks=checks,
        jobs=[each.definition for each in jobs],
        schedules=[each.definition for each in triggers if each.kind == "schedule"],
        sensors=[each.definition for each in triggers if each.kind == "sensor"],
        resources={
            **dict.fromkeys(lacking, ResourceDefinition.none_resource()),
            **(warehouse_resources() if lacking else {}),
            **(declared.defs.resources or {}),
        },
        executor=declared.defs.executor,
        loggers=declared.defs.loggers,
    )


def _unique_assets(declared: Declared) -> list[Any]:
    taken: set[AssetKey] = set()
    kept: dict[int, Any] = {}
    for each in declared.defs.assets or ():
        keys = {asset.key for asset in declared.assets if asset.definition is each}
        if not keys & taken:
            taken |= keys
            kept[id(each)] = each
    return list(kept.values())


def _unique_checks(declared: Declared) -> list[Any]:
    partitions = {asset.key: asset.partitions_def for asset in declared.assets}
    taken: set[AssetCheckKey] = {
        check.spec.key
        for check in declared.checks
        if check.spec.partitions_def not in {None, partitions.get(check.spec.asset_key)}
    }
    kept: dict[int, Any] = {}
    for each in declared.defs.asset_checks or ():
        if not taken & each.check_keys:
            taken |= each.check_keys
            kept[id(each)] = each
    return list(kept.values())


def _stubs(declared: Declared) -> list[AssetSpec]:
    """Stands in for inputs that are declared nowhere."""
    keys = {asset.key for asset in declared.assets}
    names = {key.path[-1] for key in keys}
    takers: list[Any] = [*declared.assets, *declared.checks]
    wanted = {key for each in takers for key in {**each.table_inputs, **each.other_inputs}.values()}
    return [
        AssetSpec(key)
        for key in sorted(wanted - keys)
        if not (len(key.path) == 1 and key.path[0] in names)
    ]


def _error_of(defs: Definitions) -> Exception | None:
    try:
        Definitions.validate_loadable(defs)
    except Exception as error:  # noqa: BLE001 - Dagster and the workspace's code raise anything
        return error
    return None


def _refusal(error: Exception, declared: Declared, of: Named | None = None) -> Finding:
    words = _words(error)
    places = [of.place] if of else []
    places += [asset.place for asset in declared.assets if _is_named(asset.key, words)]
    return Finding(
        code=Code.DEFINITIONS_REFUSED,
        kind=cast("Kind", of.kind) if of else "workspace",
        name=of.name if of else "",
        problem=(f"Dagster refuses the {of.kind} {of.name!r}: " if of else "Dagster refuses: ")
        + words,
        remedy="Correct it as Dagster says.",
        places=tuple(dict.fromkeys(places)),
    )


def _is_named(key: AssetKey, words: str) -> bool:
    """Says whether Dagster's words name an asset, in one of its ways."""
    name = re.escape(key.to_user_string())
    ways = rf"""{re.escape(repr(key))}|['"]{name}['"]|\b(?:from|to|asset) {name}(?!\S)"""
    return re.search(ways, words) is not None


def _words(error: BaseException | None) -> str:
    """Joins what an error and its causes say, the general first."""
    told = []
    while error is not None:
        told.append(" ".join(str(error).split()))
        error = error.__cause__
    return " ".join(dict.fromkeys(each for each in told if each))


def _finding(code: Code, of: Named, problem: str, remedy: str, *places: Place) -> Finding:
    return Finding(
        code=code,
        kind=cast("Kind", of.kind),
        name=of.name,
        problem=problem,
        remedy=remedy,
        places=tuple(dict.fromkeys([of.place, *places])),
    )
