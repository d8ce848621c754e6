"""Loading and inspecting a code location of 500 assets, against the same assets in plain Dagster.

Run as a script it is the child: it builds the definitions in one of the ways and looks at them.
Annotations are not postponed here: Dagster reads those of the assets as objects.
"""

import sys
import time
import warnings
from collections.abc import Iterator, Sequence
from itertools import pairwise
from statistics import median
from typing import Any

from processes import Child, answer, in_turn, median_ratio, run_child
from report import Benchmark, Goal

TITLE = "d. A code location of 500 assets"

_ASSETS = 500
_CHAIN = 5
_JOBS = 20
_ROUNDS = 9

_PLAIN = "plain Dagster, the same functions"
_OURS = "this SDK"
_WAYS = {
    "plain Dagster, Ibis never imported": "plain-without-ibis",
    _PLAIN: "plain",
    _OURS: "ours",
}


def measure() -> Benchmark:
    """Takes the CPU time of whole processes that load and inspect the assets in turn."""
    for way in _WAYS.values():
        run_child([__file__, way])  # Compiles what was not compiled yet.
    taken = in_turn(
        {name: lambda way=way: run_child([__file__, way]) for name, way in _WAYS.items()},
        rounds=_ROUNDS,
    )
    seconds = {name: [child.cpu_seconds for child in children] for name, children in taken.items()}
    plain, ours = seconds[_PLAIN], seconds[_OURS]
    return Benchmark(
        title=TITLE,
        method=f"CPU time of a process that imports, builds {_ASSETS} assets ({_CHAIN} to a chain, "
        f"every other chain daily) and {_JOBS} jobs, and then validates them and resolves every "
        f"asset, the graph and the jobs ({_ROUNDS} processes each, in turn). The functions of the "
        "assets are the same Ibis expressions on both sides, annotated as such, so both import "
        "Ibis; a third way leaves it out.",
        columns=("What", "Whole process", "Imports", "Build and inspect", "Against plain"),
        rows=[_row(name, children, seconds[name], plain) for name, children in taken.items()],
        goals=[
            Goal(
                name=f"Loading and inspecting {_ASSETS} assets against plain Dagster",
                figure=median_ratio(ours, plain),
                limit=1.1,
            )
        ],
    )


def _row(
    name: str, children: Sequence[Child], seconds: Sequence[float], plain: Sequence[float]
) -> tuple[str, ...]:
    return (
        name,
        f"{median(seconds):.2f} s",
        f"{median(child.answer['imports'] for child in children):.2f} s",
        f"{median(child.answer['inspects'] for child in children):.2f} s",
        f"{median_ratio(seconds, plain):.2f}",
    )


# The child's side.


def _load_and_inspect(way: str) -> dict[str, float]:
    warnings.simplefilter("ignore")  # Backfill policies are beta: one warning for each asset.
    started = time.process_time()
    dagster, table_type, options, resources = _imports(way)
    imported = time.process_time()
    definitions = _definitions(dagster, table_type, options, resources)
    _inspect(dagster, definitions)
    return {"imports": imported - started, "inspects": time.process_time() - imported}


# `dagster` is the namespace that the way uses, and what comes out of it has its types.
def _imports(way: str) -> tuple[Any, Any, Any, dict[str, Any]]:
    """Imports what a workspace imports; gives how it declares an asset and its resources."""
    if way == "plain-without-ibis":
        import dagster

        return dagster, Any, lambda _column: {}, {}
    if way == "plain":
        import dagster
        import ibis.expr.types as ir

        return dagster, ir.Table, lambda _column: {}, {}

    import ibis.expr.types as ir

    import segmentstream.dagster as dg
    from segmentstream import (
        WAREHOUSE_IO_MANAGER_KEY,
        warehouse_asset_metadata,
        warehouse_resources,
    )

    def options(column: str | None) -> dict[str, Any]:
        return {
            "io_manager_key": WAREHOUSE_IO_MANAGER_KEY,
            "metadata": warehouse_asset_metadata(partition_by_date=column),
        }

    return dg, ir.Table, options, warehouse_resources()


def _definitions(dagster: Any, table_type: Any, options: Any, resources: dict[str, Any]) -> Any:
    chains = [
        list(_chain(dagster, table_type, options, number)) for number in range(_ASSETS // _CHAIN)
    ]
    jobs = [
        dagster.define_asset_job(
            f"job_{number}",
            selection=[asset.key for chain in chains[number::_JOBS] for asset in chain],
        )
        for number in range(_JOBS)
    ]
    return dagster.Definitions(
        assets=[asset for chain in chains for asset in chain],
        jobs=jobs,
        schedules=[
            dagster.ScheduleDefinition(name=f"schedule_{job.name}", job=job, cron_schedule="@daily")
            for job in jobs[1::2]
        ],
        resources=resources,
    )


def _chain(dagster: Any, table_type: Any, options: Any, number: int) -> Iterator[Any]:
    """Gives the assets of one chain, each computed from the one before; even chains are daily."""
    daily = number % 2 == 0
    declared: dict[str, Any] = options("event_date" if daily else None)
    if daily:
        declared["partitions_def"] = dagster.DailyPartitionsDefinition(start_date="2024-01-01")
        declared["backfill_policy"] = dagster.BackfillPolicy.multi_run(max_partitions_per_run=10)
    keys = [["bronze", f"chain_{number}_0"]]
    keys += [["silver", f"chain_{number}_{step}"] for step in range(1, _CHAIN)]

    @dagster.asset(key=keys[0], kinds={"ibis"}, group_name=f"group_{number % 10}", **declared)
    def first() -> table_type:
        """Reads a source."""
        raise NotImplementedError

    yield first
    for upstream, key in pairwise(keys):

        @dagster.asset(
            key=key,
            kinds={"ibis"},
            group_name=f"group_{number % 10}",
            ins={"rows": dagster.AssetIn(key=dagster.AssetKey(upstream))},
            **declared,
        )
        def later(rows: table_type) -> table_type:
            """Groups the rows of the asset before."""
            return rows.group_by("event_date", "channel").agg(revenue=rows.revenue.sum())

        yield later


def _inspect(dagster: Any, definitions: Any) -> None:
    dagster.Definitions.validate_loadable(definitions)
    specs = list(definitions.resolve_all_asset_specs())
    graph = definitions.resolve_asset_graph()
    jobs = [job for job in definitions.resolve_all_job_defs() if job.name.startswith("job_")]
    if (len(specs), len(graph.get_all_asset_keys()), len(jobs)) != (_ASSETS, _ASSETS, _JOBS):
        sys.exit("The definitions are not those that were meant.")
    for spec in specs:
        _ = (spec.metadata, spec.deps, spec.partitions_def, spec.group_name, spec.kinds)


if __name__ == "__main__":
    answer(_load_and_inspect(sys.argv[1]))
