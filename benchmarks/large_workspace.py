"""Writes a workspace of many assets as code: modules of twenty, as people divide theirs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

_MODULE = 20
_CHAIN = 5

_HEAD = '''"""Assets of one source."""

import ibis.expr.types as ir

import segmentstream.dagster as dg
from segmentstream import WAREHOUSE_IO_MANAGER_KEY, warehouse_asset_metadata

daily = dg.DailyPartitionsDefinition(start_date="2024-01-01")
'''
_ASSET = '''

@dg.asset(
    key={key},
    description="Step {step} of source {number}.",
    group_name="source_{number}",
    kinds={{"ibis"}},
    io_manager_key=WAREHOUSE_IO_MANAGER_KEY,{declared}
)
def {name}({parameter}) -> ir.Table:
    """Groups the rows of the step before."""
    {body}
'''
_DAILY = """
    partitions_def=daily,
    metadata=warehouse_asset_metadata(partition_by_date="event_date"),
    backfill_policy=dg.BackfillPolicy.multi_run(max_partitions_per_run=10),"""
_BODY = 'return rows.group_by("event_date", "channel").agg(revenue=rows.revenue.sum())'
_CHECK = '''

@dg.asset_check(asset={key})
def {name}_has_rows() -> dg.AssetCheckResult:
    """Says whether there are any."""
    return dg.AssetCheckResult(passed=True)
'''
_JOB = """
job_{number} = dg.define_asset_job(
    "job_{number}",
    selection=dg.AssetSelection.assets({keys}),
    tags={{"team": "growth"}},
)
"""
_SCHEDULE = """
schedule_{number} = dg.ScheduleDefinition(
    job=job_{number}, cron_schedule="{minute} 4 * * *", execution_timezone="Europe/Vienna"
)
"""
_DEFINITIONS = '''"""The workspace."""

from importlib import import_module

import segmentstream.dagster as dg
from segmentstream import warehouse_resources

_MODULES = [import_module(f"pipeline.source_{{number}}") for number in range({modules})]
_NAMED = [each for module in _MODULES for each in vars(module).values()]
_JOBS = [each for each in _NAMED if type(each).__name__ == "UnresolvedAssetJobDefinition"]

defs = dg.Definitions(
    assets=dg.load_assets_from_modules(_MODULES),
    asset_checks=dg.load_asset_checks_from_modules(_MODULES),
    jobs=_JOBS,
    schedules=[each for each in _NAMED if isinstance(each, dg.ScheduleDefinition)],
    resources=warehouse_resources(),
)
'''


def write_workspace(folder: Path, *, assets: int) -> dict[str, int]:
    """Writes it; gives how many of each kind of definition it declares.

    Chains of five assets, every third of them daily; one asset in five has a check; each module
    has a job over one of its chains, every other one a schedule.
    """
    pipeline = folder / "pipeline"
    pipeline.mkdir(parents=True)
    modules = assets // _MODULE
    for number in range(modules):
        (pipeline / f"source_{number}.py").write_text("".join(_module(number)))
    (pipeline / "definitions.py").write_text(_DEFINITIONS.format(modules=modules))
    (folder / "pyproject.toml").write_text('[tool.dagster]\nmodule_name = "pipeline.definitions"\n')
    return {
        "assets": assets,
        "checks": assets // _CHAIN,
        "jobs": modules,
        "schedules": -(-modules // 2),
        "sensors": 0,
    }


def _module(number: int) -> Iterator[str]:
    yield _HEAD
    for chain in range(_MODULE // _CHAIN):
        is_daily = (number * _MODULE // _CHAIN + chain) % 3 == 0
        keys = [f'["{"silver" if step else "bronze"}", "{_name(number, chain, step)}"]'
                for step in range(_CHAIN)]  # fmt: skip
        for step, key in enumerate(keys):
            declared = _DAILY if is_daily else ""
            if step:
                declared += f'\n    ins={{"rows": dg.AssetIn(key=dg.AssetKey({keys[step - 1]}))}},'
            yield _ASSET.format(
                key=key,
                step=step,
                number=number,
                declared=declared,
                name=_name(number, chain, step),
                parameter="rows: ir.Table" if step else "",
                # Inspected, never run: an asset without inputs needs no rows.
                body=_BODY if step else "raise NotImplementedError",
            )
        yield _CHECK.format(key=keys[-1], name=_name(number, chain, _CHAIN - 1))
        if chain == number % 2:
            yield _JOB.format(number=number, keys=", ".join(keys))
    if number % 2 == 0:
        yield _SCHEDULE.format(number=number, minute=number % 60)


def _name(number: int, chain: int, step: int) -> str:
    return f"events_{number}_{chain}_{step}"
