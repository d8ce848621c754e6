"""Runs child processes in turn and says what each cost; imports the standard library only.

On Linux the peak memory of a child starts at that of the process that started it, so whatever
measures must stay small: nothing heavy is imported in the process that runs the benchmarks.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

HERE = Path(__file__).parent
WORK = HERE / ".work"
PROJECT_PYTHON = Path(sys.executable)

_FOREIGN_VARIABLES = ("DAGSTER_", "PYTHON", "SEGMENTSTREAM_")


@dataclass(frozen=True, slots=True, kw_only=True)
class Child:
    """Is what a child process cost and said.

    Attributes:
        started: When it was started, on the monotonic clock that all processes share on Linux.
        wall_seconds: From its start to its end.
        cpu_seconds: User and system time of the process and of those it started and waited for.
        peak_bytes: The most memory it held at once (resident).
        said: The lines it printed.
    """

    started: float
    wall_seconds: float
    cpu_seconds: float
    peak_bytes: int
    said: Sequence[str]

    @property
    def answer(self) -> Any:
        """The JSON of the last line it printed; None when it printed nothing."""
        return json.loads(self.said[-1]) if self.said else None


def run_child(
    arguments: Sequence[str | Path],
    *,
    python: Path = PROJECT_PYTHON,
    folder: Path = WORK,
    variables: Mapping[str, str] | None = None,
) -> Child:
    """Runs Python with `arguments` to its end.

    Args:
        arguments: What follows the name of Python.
        python: Which one.
        folder: Where it runs.
        variables: What it has beyond the variables of whoever runs this, of which those that
            change Python, Dagster or the SDK are left out.

    Raises:
        SystemExit: The child failed; its last lines are shown.
    """
    log = WORK / "child.log"
    kept = {
        name: value for name, value in os.environ.items() if not name.startswith(_FOREIGN_VARIABLES)
    }
    environ = kept | dict(variables or {})
    command = [str(python), *map(str, arguments)]
    started = time.monotonic()
    with (
        log.open("w") as errors,
        subprocess.Popen(
            command, cwd=folder, env=environ, stdout=subprocess.PIPE, stderr=errors, text=True
        ) as process,
    ):
        said = process.stdout.read() if process.stdout else ""
        # wait4 instead of wait: it gives the cost of this child alone.
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    wall_seconds = time.monotonic() - started
    if process.returncode:
        tail = "\n".join(log.read_text().splitlines()[-20:])
        sys.exit(f"A benchmark's child process failed: {' '.join(command[1:])}\n{tail}")
    return Child(
        started=started,
        wall_seconds=wall_seconds,
        cpu_seconds=usage.ru_utime + usage.ru_stime,
        peak_bytes=usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024),
        said=said.splitlines(),
    )


def in_turn[T](variants: Mapping[str, Callable[[], T]], *, rounds: int) -> dict[str, list[T]]:
    """Runs every variant once a round; each round starts with another one."""
    names = list(variants)
    results: dict[str, list[T]] = {name: [] for name in names}
    for number in range(rounds):
        first = number % len(names)
        for name in names[first:] + names[:first]:
            results[name].append(variants[name]())
    return results


def median_ratio(numerators: Sequence[float], denominators: Sequence[float]) -> float:
    """Gives the median of the ratios taken within each round."""
    return median(a / b for a, b in zip(numerators, denominators, strict=True))


def answer(value: object) -> None:
    """Says the child's side of a benchmark: one line of JSON."""
    print(json.dumps(value), flush=True)
