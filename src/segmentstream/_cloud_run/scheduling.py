"""The entries of Cloud Scheduler for the schedules of a manifest; imports `_manifest`.

An entry calls `:run` of the schedule's own job with nothing in its body. It may come twice, since
the runtime runs a tick once.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from segmentstream._cloud_run import names
from segmentstream._cloud_run.documents import Document
from segmentstream._cloud_run.settings import DeploymentSettings
from segmentstream._core.errors import SegmentStreamError
from segmentstream._manifest import Schedule

SCOPE = "https://www.googleapis.com/auth/cloud-platform"
# What Dagster takes besides five fields.
_SPELLED_OUT = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
_FIELDS = 5
_UNIT = r"(?:[0-9]{1,2}|[A-Za-z]{3})"
_FIELD = re.compile(
    rf"(?:\*|{_UNIT}(?:-{_UNIT})?)(?:/[0-9]{{1,2}})?"
    rf"(?:,(?:\*|{_UNIT}(?:-{_UNIT})?)(?:/[0-9]{{1,2}})?)*"
)


class ScheduleNotPortableError(SegmentStreamError):
    """Says that a schedule has a time which Cloud Scheduler or systemd cannot be told."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """Is one entry of Cloud Scheduler.

    Attributes:
        name: Its id.
        schedule: The schedule it belongs to.
        cron: When it fires, in five fields.
        document: The entry as the REST interface takes it.
    """

    name: str
    schedule: Schedule
    cron: str
    document: Document


def entries(settings: DeploymentSettings, schedule: Schedule) -> list[Entry]:
    """Gives the entries of a schedule: one for each of its times.

    Raises:
        ScheduleNotPortableError: A time is none of plain cron.
    """
    job = names.schedule_job(settings, schedule)
    crons = [five_fields(schedule, cron) for cron in schedule.cron]
    return [
        _entry(settings, schedule, job if len(crons) == 1 else f"{job}-{number}", cron)
        for number, cron in enumerate(crons, start=1)
    ]


def five_fields(schedule: Schedule, cron: str) -> str:
    """Writes a time of a schedule in the five fields that every cron knows.

    Raises:
        ScheduleNotPortableError: It cannot be written so.
    """
    fields = _SPELLED_OUT.get(cron.strip().lower(), cron).split()
    if len(fields) != _FIELDS or not all(map(_FIELD.fullmatch, fields)):
        raise ScheduleNotPortableError(
            f"The schedule {schedule.name!r} has the time {cron!r}.",
            "Write it in five fields of numbers, names of three letters, *, ranges, lists and "
            "steps.",
        )
    return " ".join(fields)


def run_uri(settings: DeploymentSettings, schedule: Schedule) -> str:
    """Gives the address that starts the job of a schedule."""
    job = names.schedule_job(settings, schedule)
    place = f"projects/{settings.project}/locations/{settings.region}"
    return f"https://run.googleapis.com/v2/{place}/jobs/{job}:run"


def description(schedule: Schedule) -> str:
    """Says what an entry is for."""
    return f"Schedule {schedule.name} of the job {schedule.job}"


def _entry(settings: DeploymentSettings, schedule: Schedule, name: str, cron: str) -> Entry:
    document: Document = {
        "name": f"projects/{settings.project}/locations/{settings.region}/jobs/{name}",
        "description": description(schedule),
        "schedule": cron,
        "timeZone": schedule.timezone,
        "attemptDeadline": "180s",
        # A start that Cloud Run refused for a moment, such as for its quota of starts a minute.
        "retryConfig": {
            "retryCount": 3,
            "minBackoffDuration": "30s",
            "maxBackoffDuration": "300s",
        },
        "httpTarget": {
            "uri": run_uri(settings, schedule),
            "httpMethod": "POST",
            "oauthToken": {
                "serviceAccountEmail": names.email(settings, "scheduler"),
                "scope": SCOPE,
            },
        },
    }
    return Entry(name=name, schedule=schedule, cron=cron, document=document)
