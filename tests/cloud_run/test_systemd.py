from __future__ import annotations

import os
import re
import shutil
import subprocess
from datetime import UTC, datetime
from itertools import islice

import pytest
from dagster._utils.schedules import schedule_execution_time_iterator

from cloud_run import kits
from segmentstream._cloud_run.scheduling import ScheduleNotPortableError, five_fields
from segmentstream._cloud_run.systemd import on_calendar, timer_unit

CRONS = [
    "0 6 * * *",
    "*/15 * * * *",
    "5/20 8-18/2 * * *",
    "0 9 * * MON-FRI",
    "30 7 1,15 * *",
    "0 0 1 JAN,JUL *",
    "0 12 * * 7",
    "0 12 1 * 5",
    "0 3 */10 * *",
    "59 23 29 2 *",
]
START = datetime(2026, 3, 1, tzinfo=UTC)
TICKS = 12


@pytest.mark.parametrize("cron", CRONS)
def test_systemd_fires_when_dagster_does(cron: str) -> None:
    """The next ticks, in a zone whose clocks change meanwhile, are those of Dagster's own cron."""
    zone = "America/New_York"
    dagster = schedule_execution_time_iterator(START.timestamp(), cron, zone, ascending=True)
    wanted = [each.astimezone(UTC) for each in islice(dagster, TICKS)]
    found = sorted({each for line in on_calendar(cron) for each in _ticks(f"{line} {zone}")})
    assert found[:TICKS] == wanted


def test_a_timer_names_the_unit_of_its_schedule() -> None:
    """Each time is a line, in the schedule's own zone, and a tick at which it was off is made up for."""
    unit = timer_unit(kits.settings(), kits.schedule("twice", cron=("0 6 * * *", "@hourly")))
    assert "OnCalendar=*-*-* 06:00:00 America/New_York\n" in unit
    assert "OnCalendar=*-*-* *:00:00 America/New_York\n" in unit
    assert "Unit=shop@twice.service\n" in unit
    assert "Persistent=true\n" in unit


@pytest.mark.parametrize(
    "cron", ["0 0 L * *", "0 0 * * 5#3", "* * * * * *", "@reboot", "0 0 ? * *"]
)
def test_a_time_that_others_cannot_be_told_is_refused(cron: str) -> None:
    """What only Dagster's own cron understands is refused here, by the name of its schedule."""
    with pytest.raises(ScheduleNotPortableError, match="'nightly'"):
        five_fields(kits.schedule(), cron)


def _ticks(calendar: str) -> list[datetime]:
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        pytest.skip("needs systemd-analyze")
    done = subprocess.run(
        [analyze, "calendar", f"--base-time=@{int(START.timestamp()) - 1}",
         f"--iterations={TICKS}", calendar],
        env={**os.environ, "TZ": "UTC", "LC_ALL": "C"}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    told = re.findall(
        r"(?:Next elapse|Iter(?:ation|\.) #[0-9]+): \w{3} ([0-9-]+ [0-9:]+) UTC", done.stdout
    )
    assert told, done.stdout
    return [datetime.fromisoformat(f"{each}+00:00") for each in told]
