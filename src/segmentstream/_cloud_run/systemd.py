"""Timers of systemd for one machine: the schedules of a manifest; imports `_manifest`.

A timer knows time zones, which not every cron does, and makes up for a time at which the machine
was off.
"""

from __future__ import annotations

import re

from segmentstream._cloud_run import names
from segmentstream._cloud_run.scheduling import description, five_fields
from segmentstream._cloud_run.settings import DeploymentSettings
from segmentstream._manifest import Schedule

_DAYS = ("Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_MONTHS = (
    "jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec",
)  # fmt: skip
_DAYS_OF_WEEK = range(8)  # 0 and 7 are Sunday
_STEP = re.compile(r"(?P<span>[^/]+)(?:/(?P<step>[0-9]+))?")


def service_unit(settings: DeploymentSettings) -> str:
    """Writes the unit that runs what a schedule asks for; its instance is the schedule's name."""
    return f"""\
# Runs what one schedule of the workspace asks for, at its latest tick: {settings.name}@SCHEDULE.
[Unit]
Description=Schedule %i of {settings.name}
Requires=docker.service
After=docker.service network-online.target
Wants=network-online.target

[Service]
Type=oneshot
# A link to the folder of compose.yaml.
WorkingDirectory=/opt/{settings.name}
ExecStart=/usr/bin/docker compose run --rm --no-TTY --env SEGMENTSTREAM_DAGSTER_SCHEDULE=%i pipeline
TimeoutStartSec={settings.timeout_seconds}
"""


def timer_unit(settings: DeploymentSettings, schedule: Schedule) -> str:
    """Writes the timer of a schedule.

    Raises:
        ScheduleNotPortableError: A time of it is none of plain cron.
    """
    crons = [five_fields(schedule, cron) for cron in schedule.cron]
    calendars = [
        f"OnCalendar={calendar} {schedule.timezone}\n"
        for cron in crons
        for calendar in on_calendar(cron)
    ]
    return f"""\
# {description(schedule)}.
[Unit]
Description={description(schedule)}

[Timer]
{"".join(calendars)}Persistent=true
Unit={settings.name}@{schedule.name}.service

[Install]
WantedBy=timers.target
"""


def timer_file(settings: DeploymentSettings, schedule: Schedule) -> str:
    """Names the file of a timer."""
    return f"{names.schedule_job(settings, schedule)}.timer"


def on_calendar(cron: str) -> list[str]:
    """Writes a time of five fields as systemd does; two where cron means the one or the other.

    A day of the month and a day of the week, both given, are alternatives in cron, and both
    needed in systemd.
    """
    minute, hour, day, month, weekday = cron.split()
    time = f"{_numbers(hour, range(24))}:{_numbers(minute, range(60))}:00"
    months = _numbers(month, range(1, 13), _MONTHS)
    days = _numbers(day, range(1, 32))
    of_days, any_day = f"*-{months}-{days} {time}", f"*-{months}-* {time}"
    if weekday.startswith("*") and "/" not in weekday:
        return [of_days]
    of_weekdays = f"{_weekdays(weekday)} {any_day}"
    return [of_weekdays] if day == "*" else [of_days, of_weekdays]


def _numbers(field: str, allowed: range, spelled: tuple[str, ...] = ()) -> str:
    if field == "*":
        return "*"
    found = _listed(field, allowed, spelled)
    return ",".join(f"{number:02}" for number in found)


def _weekdays(field: str) -> str:
    spelled = tuple(day.lower() for day in _DAYS[:7])
    found = {number % 7 for number in _listed(field, _DAYS_OF_WEEK, spelled, first=0)}
    return ",".join(_DAYS[number] for number in sorted(found))


def _listed(field: str, allowed: range, spelled: tuple[str, ...] = (), first: int = 1) -> list[int]:
    found = set[int]()
    for item in field.split(","):
        parts = _STEP.fullmatch(item)
        assert parts is not None  # noqa: S101 - `five_fields` has refused it
        span, step = parts["span"], int(parts["step"] or 1)
        if span == "*":
            start, stop = allowed.start, allowed.stop - 1
        else:
            low, _, high = span.partition("-")
            start = _number(low, spelled, first)
            stop = _number(high, spelled, first) if high else start
            if parts["step"] and not high:
                stop = allowed.stop - 1  # `5/10` begins there and goes on to the end
        found.update(range(start, stop + 1, step))
    return sorted(found)


def _number(told: str, spelled: tuple[str, ...], first: int) -> int:
    return int(told) if told.isdigit() else spelled.index(told.lower()) + first
