"""Tables and goals, printed and written as Markdown; imports the standard library only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """Is a figure with the largest value it may have.

    Attributes:
        name: What the goal is about; the reason of a missed one is looked up by it.
        figure: What was measured.
        limit: The largest value that meets the goal.
        unit: What follows both numbers, such as ` s`.
    """

    name: str
    figure: float
    limit: float
    unit: str = ""

    @property
    def is_met(self) -> bool:
        """Whether the figure, as it is shown, is within the limit."""
        return round(self.figure, 2) <= self.limit


@dataclass(frozen=True, slots=True, kw_only=True)
class Benchmark:
    """Is what one benchmark measured.

    Attributes:
        title: What was compared with what.
        method: How, in a sentence or two.
        columns: The heads of the table.
        rows: Its cells, as text.
        goals: The goals of the benchmark and whether they are met.
    """

    title: str
    method: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    goals: Sequence[Goal]


def as_markdown(
    benchmarks: Sequence[Benchmark], machine: Mapping[str, str], reasons: Mapping[str, str]
) -> str:
    """Writes all results: the machine, every goal with its figure, the tables."""
    goals = [goal for benchmark in benchmarks for goal in benchmark.goals]
    parts = [
        "# Benchmark results",
        _INTRODUCTION,
        "## Machine and versions",
        _table(("", ""), list(machine.items())),
        "## Goals",
        _table(("Goal", "At most", "Measured", ""), [_goal_row(goal) for goal in goals]),
    ]
    missed = [goal for goal in goals if not goal.is_met]
    if missed:
        parts.append("### Why goals were missed")
        parts += [f"- {goal.name}: {reasons.get(goal.name, _UNEXPLAINED)}" for goal in missed]
    for benchmark in benchmarks:
        table = _table(benchmark.columns, benchmark.rows)
        parts += [f"## {benchmark.title}", benchmark.method, table]
    return "\n\n".join(parts) + "\n"


def as_text(benchmark: Benchmark) -> str:
    """Writes one benchmark for a terminal."""
    goals = [
        f"  {goal.name}: {_shown(goal)} (goal: at most {goal.limit:g}{goal.unit}) "
        f"- {_outcome(goal)}"
        for goal in benchmark.goals
    ]
    return "\n".join(["", _table(benchmark.columns, benchmark.rows), *goals, ""])


_INTRODUCTION = (
    "Written by `make bench`. Times depend on the machine, so the goals are ratios and differences "
    "of figures that were taken in turn in one run; every figure is a median."
)
_UNEXPLAINED = "not explained yet; run it again on a quiet machine first."


def _goal_row(goal: Goal) -> tuple[str, str, str, str]:
    return (
        goal.name,
        f"{goal.limit:g}{goal.unit}",
        _shown(goal),
        _outcome(goal),
    )


def _shown(goal: Goal) -> str:
    """Writes a figure; one that was counted has no decimals."""
    figure = str(goal.figure) if isinstance(goal.figure, int) else f"{goal.figure:.2f}"
    return f"{figure}{goal.unit}"


def _outcome(goal: Goal) -> str:
    return "met" if goal.is_met else "**missed**"


def _table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    widths = [max(map(len, cells)) for cells in zip(columns, *rows, strict=True)]
    lines = [columns, ["-" * width for width in widths], *rows]
    return "\n".join(
        f"| {' | '.join(cell.ljust(width) for cell, width in zip(line, widths, strict=True))} |"
        for line in lines
    )
