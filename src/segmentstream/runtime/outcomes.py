"""What the events of a run say of its end; imports Dagster and `launching`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from dagster import DagsterEvent

from segmentstream.runtime.launching import Outcome

_ROWS = ("dagster/row_count", "dagster/partition_row_count")
# What a run raises, or what its steps failed of, when the instance was out of reach or a signal
# ended it: nothing of the workspace's.
_INTERRUPTIONS = (
    "DagsterPostgresException",
    "OperationalError",
    "InterfaceError",
    "DagsterExecutionInterruptedError",
    "KeyboardInterrupt",
)


def outcome_of_events(events: Iterable[DagsterEvent], *, is_success: bool) -> Outcome:
    """Sums up the events of a run that has ended."""
    told = list(events)
    reasons = _reasons(told)
    return Outcome(
        is_success=is_success,
        rows=_rows(told),
        reason="; ".join(text for text, _ in reasons),
        is_interrupted=any(is_foreign for _, is_foreign in reasons),
    )


def outcome_of_error(error: Exception) -> Outcome:
    """Says how a run ended that raised an error instead of recording it."""
    return Outcome(
        is_success=False,
        reason=f"{type(error).__name__}: {_first_line(str(error))}",
        is_interrupted=not {each.__name__ for each in type(error).__mro__}.isdisjoint(
            _INTERRUPTIONS
        ),
    )


def _rows(events: Iterable[DagsterEvent]) -> int:
    rows = 0
    for event in events:
        if event.is_step_materialization:
            told: Any = event.materialization.metadata  # values of many types
            rows += next((int(told[name].value) for name in _ROWS if name in told), 0)
    return rows


def _reasons(events: Iterable[DagsterEvent]) -> list[tuple[str, bool]]:
    """Says what failed, and whether of the instance or a signal: its steps, else the run."""
    found = list[tuple[str, bool]]()
    for event in events:
        error: Any = getattr(event.event_specific_data, "error", None)
        if not event.is_failure or error is None or (found and event.step_key is None):
            continue
        is_foreign = False
        while error.cause is not None:
            is_foreign = is_foreign or error.cls_name in _INTERRUPTIONS
            error = error.cause
        is_foreign = is_foreign or error.cls_name in _INTERRUPTIONS
        found.append((f"{event.step_key or 'run'}: {_first_line(error.message)}", is_foreign))
    return found


def _first_line(text: str) -> str:
    return text.strip().partition("\n")[0][:500]
