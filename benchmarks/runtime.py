"""The managed runtime: what an inspection, a start, a run and a year of days cost.

Imports the standard library only; Postgres runs in a process of its own.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from uuid import uuid4

from large_workspace import write_workspace
from processes import HERE, PROJECT_PYTHON, WORK, Child, in_turn, median_ratio, run_child
from report import Benchmark, Goal, as_text

TITLE = "g. The managed runtime"

_SIZES = {200: 5, 1_000: 3}  # assets of a workspace, and how often it is inspected
_ROUNDS = 5
_ROUNDS_OF_WHOLE = 3
_DAYS = HERE / "days"
_CHILDREN = HERE / "runtime_children.py"
_WAREHOUSE = WORK / "warehouse.duckdb"
_STEPS = ("purchases", "by_channel", "revenue")
_FIRST, _SEVENTH, _LAST = "2025-01-01", "2025-01-07", "2025-12-31"
_YEAR = {"year_at_once": 1, "year_in_thirties": 13, "year_one_by_one": 365}  # runs
# The same work with segmentstream-pipeline as it was published before, taken once and on another
# machine of this kind (2 cores): one day, and seven days as three runs, on a Postgres.
_PUBLISHED_SECONDS = {"one day": 39.6, "7 days as 3 runs": 67.6}

_OURS = "the runtime"
_EXECUTE = "`dagster job execute`, steps in the process"
_EXECUTE_APART = "`dagster job execute`, a process for each step, as is its default"
# Notes when DuckDB is first connected to: that is when the first asset asks the warehouse.
_WATCH = """
import os, sys, time
from importlib.util import find_spec


class Watch:
    def find_spec(self, name, path, target=None):
        if name != "duckdb":
            return None
        sys.meta_path.remove(self)
        spec = find_spec(name)
        load = spec.loader.exec_module

        def exec_module(module):
            load(module)
            connect = module.connect

            def noted(*arguments, **named):
                with open(os.environ["WATCH_NOTES"], "a") as notes:
                    notes.write(f"{time.monotonic()}\\n")
                return connect(*arguments, **named)

            module.connect = noted

        spec.loader.exec_module = exec_module
        return spec


sys.meta_path.insert(0, Watch())
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Section:
    """Is a part of what is measured: its rows and its goals."""

    rows: Sequence[Sequence[str]]
    goals: Sequence[Goal]


def measure() -> Benchmark:
    """Inspects large workspaces, and runs days on a Postgres that is there for it alone."""
    with _postgres(databases=1 + len(_YEAR)) as (days, *years):
        run_child([_CHILDREN, "source", _WAREHOUSE])
        _start(days, "migrate")
        sections = [_inspections(), _runs(days), _cold_start(days), _whole(days)]
        for (job, runs), url in zip(_YEAR.items(), years, strict=True):
            print(f"  {job}", flush=True)
            _start(url, "migrate")
            sections.append(_year(url, job, runs))
    return Benchmark(
        title=TITLE,
        method="CPU time is that of a process and all that it starts. Inspections: whole "
        "processes, in turn, "
        f"{' and '.join(f'{rounds} of {size:,} assets' for size, rounds in _SIZES.items())}; "
        "a third of the assets is daily, and there are checks, jobs and schedules. Runs: "
        "whole processes on a Postgres of this machine (without fsync) and a DuckDB file, three "
        f"daily assets in a chain over {_rows_a_day()} rows a day; {_ROUNDS} processes each, in "
        f"turn, and {_ROUNDS_OF_WHOLE} of what is compared with the published SDK. Those figures "
        "were taken elsewhere, on another machine of this kind. Without bytecode, Python "
        "compiles all it imports, as on the first start of an image that was built without. The "
        "years are one asset of 365 days, each once, on an instance without runs. The rows of "
        "every day are compared with what DuckDB computes from the source.",
        columns=("What", "Wall", "CPU", "CPU, least", "A day"),
        rows=[row for section in sections for row in section.rows],
        goals=[goal for section in sections for goal in section.goals],
    )


def _rows_a_day() -> int:
    from runtime_children import ROWS_A_DAY

    return ROWS_A_DAY


def _inspections() -> _Section:
    rows, goals = [], []
    for size, rounds in _SIZES.items():
        print(f"  inspecting {size:,} assets", flush=True)
        folder = WORK / f"workspace_{size}"
        declared = write_workspace(folder, assets=size)
        variants = {
            "inspect": partial(_inspected, folder, declared),
            "`dagster definitions validate`": partial(
                run_child, ["-m", "dagster", "definitions", "validate"], folder=folder
            ),
        }
        in_turn(variants, rounds=1)  # Compiles what was not compiled yet.
        taken = in_turn(variants, rounds=rounds)
        rows += [_row(f"{name}, {size:,} assets", children) for name, children in taken.items()]
        ours, theirs = ([child.cpu_seconds for child in children] for children in taken.values())
        goals.append(
            Goal(
                name=f"Inspecting {size:,} assets against `dagster definitions validate`",
                figure=median_ratio(ours, theirs),
                limit=1.1,
            )
        )
    return _Section(rows=rows, goals=goals)


def _inspected(folder: Path, declared: Mapping[str, int]) -> Child:
    child = run_child(
        ["-m", "segmentstream.runtime", "inspect", WORK / "manifest.json", "--json"], folder=folder
    )
    counted = json.loads("".join(child.said))["counts"]
    if counted != declared:
        sys.exit(f"The inspection counted {counted}, and there are {declared}.")
    return child


def _runs(url: str) -> _Section:
    """Takes one day in three ways, and seven days one by one."""
    print("  one day, and more of them", flush=True)
    variants = {
        _OURS: partial(_run_days, url, "one_by_one", _FIRST, runs=1),
        _EXECUTE: partial(_executed, url, "in_process"),
        _EXECUTE_APART: partial(_executed, url, "one_by_one"),
        "7 days": partial(_run_days, url, "one_by_one", _SEVENTH, runs=7),
    }
    in_turn(variants, rounds=1)
    taken = in_turn(variants, rounds=_ROUNDS)
    _check("one_by_one", _SEVENTH, 7, _STEPS)
    cpu = {name: [child.cpu_seconds for child in children] for name, children in taken.items()}
    more = [(many - one) / 6 for many, one in zip(cpu["7 days"], cpu[_OURS], strict=True)]
    return _Section(
        rows=[
            *(_row(f"one day, {name}", taken[name]) for name in (_OURS, _EXECUTE, _EXECUTE_APART)),
            _row("7 days one by one, 4 at a time, the runtime", taken["7 days"], days=7),
            (
                "one more run of one day, of three assets",
                "",
                f"{median(more):.2f} s",
                f"{min(more):.2f} s",
                "",
            ),
        ],
        goals=[
            Goal(
                name="CPU time of a day against `dagster job execute`, steps in the process",
                figure=median_ratio(cpu[_OURS], cpu[_EXECUTE]),
                limit=1.1,
            ),
            Goal(
                name="CPU time of one more run of one day, of three assets",
                figure=median(more),
                limit=1,
                unit=" s",
            ),
        ],
    )


def _executed(url: str, job: str) -> Child:
    """Runs the first day of a job as Dagster does, on the instance of the runtime."""
    arguments = ["-m", "dagster", "job", "execute", "-m", "pipeline.definitions", "-j", job]
    return _run(url, [*arguments, "--tags", json.dumps({"dagster/partition": _FIRST})])


def _cold_start(url: str) -> _Section:
    print("  cold starts", flush=True)
    folder, notes = WORK / "watch", WORK / "notes"
    folder.mkdir(exist_ok=True)
    (folder / "sitecustomize.py").write_text(_WATCH)
    variables = {"PYTHONPATH": str(folder), "WATCH_NOTES": str(notes)}
    seconds = []
    for _ in range(_ROUNDS):
        notes.unlink(missing_ok=True)
        child = _run_days(url, "in_threes", _FIRST, runs=1, variables=variables)
        seconds.append(float(notes.read_text().split()[0]) - child.started)
    row = ("the runtime, from its start to the first request to the warehouse",
           f"{median(seconds):.2f} s", "", "", "")  # fmt: skip
    return _Section(rows=[row], goals=[])


def _whole(url: str) -> _Section:
    """Takes the whole of what the published SDK was measured with."""
    print("  against the published SDK", flush=True)
    cold = {"PYTHONDONTWRITEBYTECODE": "1", "PYTHONPYCACHEPREFIX": str(WORK / "no-bytecode")}
    rows, goals = [], []
    for (what, published), last, runs in zip(
        _PUBLISHED_SECONDS.items(), (_FIRST, _SEVENTH), (1, 3), strict=True
    ):
        taken = in_turn(
            {
                "": partial(_run_days, url, "in_threes", last, runs=runs),
                ", without bytecode": partial(
                    _run_days, url, "in_threes", last, runs=runs, variables=cold
                ),
            },
            rounds=_ROUNDS_OF_WHOLE,
        )
        rows += [
            _row(f"{what}, the runtime{how}", children, days=7 if runs > 1 else 1)
            for how, children in taken.items()
        ]
        rows.append((f"{what}, the published SDK, elsewhere", f"{published} s", "", "", ""))
        goals += [
            Goal(
                name=f"Wall time of {what}{how}, against the published SDK elsewhere",
                figure=median(child.wall_seconds for child in children) / published,
                limit=0.33,
            )
            for how, children in taken.items()
        ]
    _check("in_threes", _SEVENTH, 7, _STEPS)
    return _Section(rows=rows, goals=goals)


def _year(url: str, job: str, runs: int) -> _Section:
    child = _run_days(url, job, _LAST, runs=runs)
    _check(job, _LAST, 365, ["purchases"])
    how = "one run" if runs == 1 else f"{runs} runs, 4 at a time"
    return _Section(rows=[_row(f"365 days, {how}, the runtime", [child], days=365)], goals=[])


def _row(what: str, children: Sequence[Child], *, days: int = 1) -> tuple[str, ...]:
    wall = median(child.wall_seconds for child in children)
    cpu = [child.cpu_seconds for child in children]
    a_day = f"{wall / days:.2f} s" if days > 1 else ""
    row = (what, f"{wall:.2f} s", f"{median(cpu):.2f} s", f"{min(cpu):.2f} s", a_day)
    print(f"    {', '.join(cell for cell in row if cell)}", flush=True)  # This part takes long.
    return row


def _run_days(
    url: str, job: str, last: str, *, runs: int, variables: Mapping[str, str] | None = None
) -> Child:
    """Runs a job from the first day on; refuses any other outcome than success in so many runs."""
    days = {
        "SEGMENTSTREAM_DAGSTER_JOB": job,
        "SEGMENTSTREAM_RUN_ID": str(uuid4()),
        "SEGMENTSTREAM_PARTITION_START_DATE": _FIRST,
        "SEGMENTSTREAM_PARTITION_END_DATE": last,
    }
    child = _start(url, "execute", days | dict(variables or {}))
    told = {day["run"] for day in child.answer["days"].values()}
    if child.answer["outcome"] != "succeeded" or len(told) != runs:
        sys.exit(f"{job} ended as {child.answer['outcome']} in {len(told)} runs, not {runs}.")
    return child


def _start(url: str, mode: str, variables: Mapping[str, str] | None = None) -> Child:
    given = {"SEGMENTSTREAM_DAGSTER_MODE": mode} | dict(variables or {})
    return _run(url, ["-m", "segmentstream.runtime"], given)


def _run(url: str, arguments: Sequence[str], variables: Mapping[str, str] | None = None) -> Child:
    home = WORK / "dagster"
    home.mkdir(exist_ok=True)
    given = {
        "DAGSTER_HOME": str(home),
        "DAGSTER_POSTGRES_URL": url,
        "SEGMENTSTREAM_WAREHOUSE_ENGINE": "duckdb",
        "SEGMENTSTREAM_WAREHOUSE_CATALOG": str(_WAREHOUSE),
        "SEGMENTSTREAM_WAREHOUSE_DEFAULT_NAMESPACE": "main",
    }
    return run_child(arguments, folder=_DAYS, variables=given | dict(variables or {}))


def _check(namespace: str, last: str, days: int, tables: Sequence[str]) -> None:
    checked = [_CHILDREN, "check", _WAREHOUSE, namespace, _FIRST, last, *tables]
    if run_child(checked).answer != days:
        sys.exit(f"{namespace} has not the {days} days to {last}.")


@contextmanager
def _postgres(*, databases: int) -> Iterator[Sequence[str]]:
    """Runs a server of the tests in another process; gives the addresses of empty databases."""
    command = [PROJECT_PYTHON, _CHILDREN, "postgres", str(databases)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as server:
        try:
            told = server.stdout.readline() if server.stdout else ""
            if not told:
                sys.exit("There is no Postgres to measure the runtime with.")
            yield json.loads(told)
        finally:
            server.communicate()  # Its standard input ends, and the server with it.


if __name__ == "__main__":
    shutil.rmtree(WORK, ignore_errors=True)
    WORK.mkdir()
    print(TITLE, flush=True)
    print(as_text(measure()))
    shutil.rmtree(WORK)
