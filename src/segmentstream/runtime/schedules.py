"""What a schedule of the workspace asks for at its latest tick; imports Dagster and its insides.

The time is passed in. A tick asks under ids that are made of it, so one that is delivered twice
runs nothing twice.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from itertools import islice
from pathlib import Path
from uuid import NAMESPACE_URL, UUID, uuid5

from dagster import (
    DagsterInstance,
    DailyPartitionsDefinition,
    Definitions,
    RunRequest,
    ScheduleDefinition,
)
from sqlalchemy.exc import DBAPIError

from segmentstream.runtime.dagster_internals import (
    assets_of,
    evaluate,
    schedules_of,
    ticks_until,
)
from segmentstream.runtime.exits import Exit, RunRefusedError
from segmentstream.runtime.inspector.sources import place_of_file
from segmentstream.runtime.plans import Request, own_config, read_definitions, read_request
from segmentstream.runtime.settings import SCHEDULE_VARIABLE, RunSettings, ScheduleSettings
from segmentstream.runtime.telling import only_the_result_on_stdout, tell

TICK_TAG = "segmentstream/tick"
_RANGE_TAGS = ("dagster/asset_partition_range_start", "dagster/asset_partition_range_end")


@dataclass(frozen=True, slots=True, kw_only=True)
class Tick:
    """Is the latest time of a schedule.

    Attributes:
        schedule: The schedule.
        time: When it was.
        before: When the one before it was.
    """

    schedule: ScheduleDefinition
    time: datetime
    before: datetime

    @property
    def label(self) -> str:
        """The time, the same for the same moment."""
        return self.time.astimezone(UTC).isoformat()


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """Is one run request of a tick, as the runtime takes it."""

    settings: RunSettings
    request: Request


def latest_tick(defs: Definitions, name: str, now: datetime) -> Tick:
    """Finds a schedule, and its latest time at or before now.

    Raises:
        RunRefusedError: There is no such schedule.
    """
    schedules = read_definitions(lambda: schedules_of(defs))
    if name not in schedules:
        raise RunRefusedError(
            f"{SCHEDULE_VARIABLE} is {name!r}, and the workspace has no such schedule.",
            f"It has: {', '.join(sorted(schedules)) or 'none'}.",
            exit_code=Exit.JOB,
        )
    # Dagster refuses a cron without times, so there always were some.
    time, before = islice(ticks_until(schedules[name], now), 2)
    return Tick(schedule=schedules[name], time=time, before=before)


def ask(
    tick: Tick,
    defs: Definitions,
    instance: DagsterInstance,
    settings: ScheduleSettings,
    *,
    location: str,
) -> tuple[tuple[Asked, ...], str]:
    """Gives what a schedule asks for at a tick, or why that is nothing.

    Raises:
        RunRefusedError: The schedule fails, or asks for what cannot be run here.
    """
    name = tick.schedule.name
    try:
        with only_the_result_on_stdout():
            found = evaluate(tick.schedule, defs, tick.time, instance)
    except Exception as error:  # a schedule is the workspace's code, and raises anything
        cause = error.__cause__ or error
        if isinstance(cause, RunRefusedError | DBAPIError):
            raise cause from None  # not its own; and Postgres's text may hold its address
        raise RunRefusedError(
            f"The schedule {name} failed for {tick.label}: {_words(cause)}",
            "Correct it; nothing was started.",
            exit_code=Exit.WORKSPACE,
        ) from error
    # Workspaces that share an instance may share all but the deployment.
    place = f"{settings.deployment_id or ''}\n{location}"
    base = settings.run_id or uuid5(NAMESPACE_URL, f"{place}\n{name}\n{tick.label}")
    asked = [
        _asked(tick, defs, settings, request, base if index == 0 else uuid5(base, str(index)))
        for index, request in enumerate(found.requests)
    ]
    new = tuple(each for each, request in zip(asked, found.requests, strict=True)
                if not _is_over(tick, each, request))  # fmt: skip
    if asked and not new:
        return (), f"Its days ended with {asked[-1].request.calendar[-1]}."
    return new, found.skipped


def run_each(
    tick: Tick,
    asked: Sequence[Asked],
    skipped: str,
    run: Callable[[Asked], tuple[Exit, dict[str, object] | None]],
) -> tuple[Exit, dict[str, object]]:
    """Runs what was asked for, one after another; gives the worst outcome and a summary."""
    name, worst, summaries = tick.schedule.name, Exit.SUCCEEDED, list[dict[str, object]]()
    if not asked:
        tell(f"The schedule {name} has nothing to do for {tick.label}. {skipped}".rstrip())
    for each in asked:
        settings = each.settings
        days = f", {settings.first_day}" if settings.first_day else ""
        tell(f"The schedule {name} for {tick.label}: {settings.job}{days}, {settings.run_id}.")
        exit_code, summary = run(each)
        worst = max(worst, exit_code)
        summaries.append(summary or _unknown(settings, exit_code))
    return worst, {
        "schedule": name,
        "tick": tick.label,
        "outcome": worst.name.lower(),
        "exit_code": int(worst),
        "skipped": None if asked else skipped,
        "runs": summaries,
    }


def _asked(
    tick: Tick,
    defs: Definitions,
    settings: ScheduleSettings,
    request: RunRequest,
    run_id: UUID,
) -> Asked:
    _refuse_special(tick, request)
    day = _day(tick, request)
    plain = RunSettings(
        job=tick.schedule.job_name,
        run_id=run_id,
        deployment_id=settings.deployment_id,
        first_day=day,
        last_day=day,
        parallel_runs=settings.parallel_runs,
        tags={**request.tags, **_tags_of_daemon(tick, request), TICK_TAG: tick.label},
    )
    read = read_request(defs, plain)
    if not request.run_config or request.run_config == own_config(read.job, request.partition_key):
        return Asked(settings=plain, request=read)
    return Asked(settings=replace(plain, run_config=request.run_config), request=read)


def _tags_of_daemon(tick: Tick, request: RunRequest) -> dict[str, str]:
    """Gives the tags by which Dagster's daemon finds that a tick's run is there already."""
    tags = {
        "dagster/schedule_name": tick.schedule.name,
        ".dagster/scheduled_execution_time": tick.label,
    }
    return tags if request.run_key is None else tags | {"dagster/run_key": request.run_key}


def _refuse_special(tick: Tick, request: RunRequest) -> None:
    special = {
        "another job": request.job_name not in {None, tick.schedule.job_name},
        "some assets of its job": request.asset_selection is not None,
        "some checks of its job": request.asset_check_keys is not None,
        "assets that are stale": request.stale_assets_only,
        "a set of partitions": request.asset_graph_subset is not None,
        "a range of days": any(tag in request.tags for tag in _RANGE_TAGS),
    }
    for what, is_asked in special.items():
        if is_asked:
            raise _refused(tick, what)


def _day(tick: Tick, request: RunRequest) -> date | None:
    if request.partition_key is None:
        return None
    try:
        day = date.fromisoformat(request.partition_key)
    except ValueError:
        day = None
    if day is None or day.isoformat() != request.partition_key:
        raise _refused(tick, f"the partition {request.partition_key!r}")
    return day


def _refused(tick: Tick, what: str) -> RunRefusedError:
    return RunRefusedError(
        f"The schedule {tick.schedule.name} asks for {what}.",
        "Let it ask for its whole job, without days or for one day in each request.",
        exit_code=Exit.JOB,
    )


def _is_over(tick: Tick, asked: Asked, request: RunRequest) -> bool:
    """Says whether a tick only repeats the last day, as Dagster's own schedules of days do.

    `build_schedule_from_partitioned_job` asks for the latest day there is, once by its key; where
    the days have an end, that is the same day for ever.
    """
    calendar = asked.request.calendar
    if not calendar or not request.partition_key == request.run_key == calendar[-1]:
        return False
    ends = [
        each.end
        for each in assets_of(asked.request.job).partitions
        if isinstance(each, DailyPartitionsDefinition) and each.end is not None
    ]
    return any(end <= tick.before for end in ends)


def _words(cause: BaseException) -> str:
    """Says what a schedule raised, and where in the workspace."""
    places = [
        place
        for frame in traceback.extract_tb(cause.__traceback__)
        if (place := place_of_file(frame.filename, frame.lineno, Path.cwd()))
    ]
    where = f" ({places[-1]})" if places else ""
    return f"{type(cause).__name__}: {' '.join(str(cause).split())}{where}"


def _unknown(settings: RunSettings, exit_code: Exit) -> dict[str, object]:
    return {
        "job": settings.job,
        "run_id": str(settings.run_id),
        "outcome": exit_code.name.lower(),
        "exit_code": int(exit_code),
    }
