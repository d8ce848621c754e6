"""Loads the first days of 2013 into the workspace's warehouse and shows what came of it.

`make demo` runs it; `python demo.py --days 59` goes on to the end of February. The runs are kept
in DAGSTER_HOME, where `make dev` shows them. Running it again writes the same rows again.
"""

import argparse
import os
import shutil
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import registry
from dagster import (
    DagsterExecutionInterruptedError,
    DagsterInstance,
    ExecuteInProcessResult,
    MetadataValue,
)
from dotenv import load_dotenv
from pipeline.definitions import defs
from pipeline.partitions import daily
from rich.box import SIMPLE
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from seed import seed

from segmentstream import SegmentStreamError, WarehouseResource

WORKSPACE = Path(__file__).resolve().parent
QUIET = {"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}}


class RunFailedError(Exception):
    """Says which run failed, and why."""


FAILURES = (
    RunFailedError,
    SegmentStreamError,
    FileNotFoundError,
    registry.NotConnectedError,
)


@dataclass(kw_only=True)
class Written:
    """Sums up what the runs tell of the tables they wrote and checked."""

    rows: Counter[str] = field(default_factory=Counter)
    seconds: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    days: Counter[str] = field(default_factory=Counter)
    checks: Counter[bool] = field(default_factory=Counter)
    runs: int = 0

    def add(self, result: ExecuteInProcessResult) -> None:
        """Adds one run."""
        self.runs += 1
        seconds = {}
        for event in result.get_asset_materialization_events():
            materialization = event.step_materialization_data.materialization
            told = materialization.metadata
            asset = "/".join(materialization.asset_key.path)
            of_day = told.get("dagster/partition_row_count")
            self.rows[asset] += int(_number(of_day or told["dagster/row_count"]))
            self.days[asset] += of_day is not None
            # A write of many days is told with each of them.
            seconds[asset] = _number(told["segmentstream/seconds"])
        for asset, of_write in seconds.items():
            self.seconds[asset] += of_write
        for check in result.get_asset_check_evaluations():
            self.checks[check.passed] += 1


# The type of a value's content is known only where it is used, hence Any.
def _number(value: MetadataValue[Any]) -> float:
    return float(value.value)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the demo and gives the exit code."""
    options = _read_options(arguments)
    console = Console(highlight=False)
    days = daily.get_partition_keys()[: options.days]
    started = time.monotonic()
    try:
        _prepare()
        console.print(f"Loading {len(days)} days of flights into {_place()}", soft_wrap=True)
        seed(only_if_missing=True)
        with registry.running():
            _connect(console)
            written = _load(days, console)
        _show_tables(written, console)
        _show_carriers(console)
    except FAILURES as error:
        console.print(f"\nThe demo failed. {error}", style="red", markup=False, soft_wrap=True)
        return 1
    except (KeyboardInterrupt, DagsterExecutionInterruptedError):
        console.print("\nStopped. The days before are loaded; run it again for the rest.")
        return 130
    _show_what_is_next(time.monotonic() - started, written, console)
    return 0


def _read_options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--days", type=int, default=31, help="how many, from 1 January (31)")
    options = parser.parse_args(arguments)
    if not 1 <= options.days <= 365:
        parser.error("--days must be from 1 to 365: the data is that of 2013.")
    return options


def _prepare() -> None:
    os.chdir(WORKSPACE)
    load_dotenv(WORKSPACE / ".env")
    home = Path(os.environ.setdefault("DAGSTER_HOME", str(WORKSPACE / ".dagster")))
    home.mkdir(parents=True, exist_ok=True)
    shutil.copy(WORKSPACE / "instance.yaml", home / "dagster.yaml")


def _connect(console: Console) -> None:
    console.print(f"Connecting {registry.CONNECTION}, which is played on this machine")
    for line in registry.connect().splitlines():
        console.print(f"  {line}", markup=False, soft_wrap=True)


def _load(days: Sequence[str], console: Console) -> Written:
    written = Written()
    with DagsterInstance.get() as instance:
        written.add(_run("load_lookups", instance))
        for day in _with_progress(days, console):
            written.add(_run("load_flights", instance, partition_key=day))
        console.print("  the reports, over all these days in one run")
        all_days = {
            "dagster/asset_partition_range_start": days[0],
            "dagster/asset_partition_range_end": days[-1],
        }
        written.add(_run("update_reports", instance, tags=all_days))
        console.print(f"  the aircraft, from the API of {registry.CONNECTION}")
        written.add(_run("update_aircraft", instance))
    return written


def _run(
    job: str,
    instance: DagsterInstance,
    *,
    partition_key: str | None = None,
    tags: Mapping[str, str] | None = None,
) -> ExecuteInProcessResult:
    result = defs.resolve_job_def(job).execute_in_process(
        instance=instance,
        partition_key=partition_key,
        tags=tags,
        run_config=QUIET,
        raise_on_error=False,
    )
    if not result.success:
        raise _failure(job, partition_key, result)
    return result


def _failure(job: str, day: str | None, result: ExecuteInProcessResult) -> BaseException:
    failed_steps = result.get_step_failure_events()
    if failed_steps:
        place = f"step {failed_steps[0].step_key}"
        error = failed_steps[0].step_failure_data.error
    else:
        place = "preparing"
        error = result.get_run_failure_event().job_failure_data.error
    while error and error.cause:
        error = error.cause
    if error and error.cls_name == DagsterExecutionInterruptedError.__name__:
        return KeyboardInterrupt()
    of_day = f" of {day}" if day else ""
    return RunFailedError(
        f"The run{of_day} of {job} ended at {place}: {error.message if error else ''}"
        f"Its log: make dev, then http://localhost:3000/runs/{result.run_id}"
    )


def _with_progress(days: Sequence[str], console: Console) -> Iterator[str]:
    if not console.is_terminal:
        for day in days:
            yield day
            console.print(f"  {day}")
        return
    columns = (
        TextColumn("  {task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("days"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console) as progress:
        task = progress.add_task(days[0], total=len(days))
        for day in days:
            progress.update(task, description=day)
            yield day
            progress.advance(task)


def _show_tables(written: Written, console: Console) -> None:
    table = Table(title="What was written", title_justify="left", box=SIMPLE)
    table.add_column("Table")
    for name in ("Days", "Rows", "Seconds"):
        table.add_column(name, justify="right")
    for name, rows in written.rows.items():
        days = written.days[name]
        table.add_row(name, str(days or ""), f"{rows:,}", f"{written.seconds[name]:.2f}")
    console.print(table)


def _show_carriers(console: Console) -> None:
    warehouse = WarehouseResource()
    carriers = warehouse.table(namespace="gold", name="carriers")
    largest = carriers.order_by(carriers.flights.desc(), "carrier").drop("carrier").limit(8)
    table = Table(title="gold/carriers, the eight largest", title_justify="left", box=SIMPLE)
    for name in largest.columns:
        table.add_column(name.replace("_", " "), justify="right")
    table.columns[0].justify = "left"
    table.columns[0].no_wrap = True
    for name, *figures in warehouse.execute(largest).itertuples(index=False):
        table.add_row(name, *(_shown(figure) for figure in figures))
    console.print(table)


def _shown(figure: object) -> str:
    return f"{figure:.2f}" if isinstance(figure, float) else f"{figure:,}"


def _show_what_is_next(seconds: float, written: Written, console: Console) -> None:
    passed, failed = written.checks[True], written.checks[False]
    told = f"{passed} checks passed" + (f", {failed} failed" if failed else "")
    console.print(
        f"{written.runs} runs in {seconds:.0f} seconds; {told}.\n\n"
        "Next\n"
        "  make dev    opens Dagster on http://localhost:3000: click Lineage, unfold bronze,\n"
        "              and Materialize bronze/flights for the days of February.\n"
        f"  Edit        {WORKSPACE / 'pipeline' / 'silver.py'}\n"
        "              and run make demo again.\n"
        f"  Query       {_place()}\n"
        f"  Read on     {WORKSPACE / 'README.md'}",
        soft_wrap=True,
    )


def _place() -> str:
    settings = WarehouseResource().settings
    return str(WORKSPACE / settings.catalog) if settings.engine == "duckdb" else settings.catalog


if __name__ == "__main__":
    sys.exit(main())
