"""A schedule is followed at its latest tick: which that is, what it asks for, and that it runs."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from itertools import takewhile
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4
from zoneinfo import ZoneInfo

import pytest
from dagster import DagsterInstance, Definitions
from dagster._utils.schedules import schedule_execution_time_iterator

import segmentstream.dagster as dg
from runtime.cloud_run_server import running_cloud_run
from runtime.shops import Shop, eventually
from segmentstream.runtime.dagster_internals import ticks_until
from segmentstream.runtime.exits import Exit, RunRefusedError
from segmentstream.runtime.loading import load_workspace
from segmentstream.runtime.schedules import Asked, ask, latest_tick
from segmentstream.runtime.settings import ScheduleSettings

pytestmark = pytest.mark.filterwarnings("ignore:Function .JobDefinition.run_request_for_partition")
NEW_YORK = "America/New_York"
EXAMPLE = Path(__file__).parents[2] / "examples" / "workspace"

daily = dg.DailyPartitionsDefinition(start_date="2024-03-01", timezone=NEW_YORK)
ended = dg.DailyPartitionsDefinition(start_date="2024-03-01", end_date="2024-03-05")


@dg.asset(partitions_def=daily)
def visits() -> None: ...


@dg.asset(partitions_def=ended)
def history() -> None: ...


@dg.asset
def names() -> None: ...


JOBS = {
    each.key.path[-1]: dg.define_asset_job(each.key.path[-1] + "_job", selection=[each])
    for each in (visits, history, names)
}


@pytest.fixture
def instance() -> Iterator[DagsterInstance]:
    """An instance in memory."""
    with DagsterInstance.ephemeral() as made:
        yield made


def at(text: str, zone: str = "UTC") -> datetime:
    """A moment in a time zone."""
    return datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone))


def by_day(job: str, hour: int = 0) -> Any:
    """A schedule that Dagster makes of a job's days; it has a type of Dagster's own."""
    return dg.build_schedule_from_partitioned_job(JOBS[job], hour_of_day=hour)


def defs_of(*schedules: dg.ScheduleDefinition) -> Definitions:
    """A workspace with these schedules."""
    return dg.Definitions([visits, history, names], jobs=[*JOBS.values()], schedules=schedules)


def asking(*requests: dg.RunRequest | dg.SkipReason, job: str = "names_job") -> Definitions:
    """A workspace with a schedule that asks for these each hour."""

    @dg.schedule(job_name=job, cron_schedule="0 * * * *")
    def hourly() -> Iterator[dg.RunRequest | dg.SkipReason]:
        yield from requests

    return defs_of(hourly)


def scheduled(cron: str | Sequence[str], zone: str) -> dg.ScheduleDefinition:
    """A schedule with these times."""
    return dg.ScheduleDefinition(
        name="it", job_name="names_job", cron_schedule=cron, execution_timezone=zone
    )


def due(cron: str | Sequence[str], zone: str, now: datetime) -> datetime:
    """When a schedule with these times was last due."""
    return latest_tick(defs_of(scheduled(cron, zone)), "it", now).time


def asked(
    defs: Definitions, name: str, now: datetime, instance: DagsterInstance, location: str = "shop"
) -> tuple[tuple[Asked, ...], str]:
    """What a schedule of a workspace asks for at a time."""
    settings = ScheduleSettings(schedule=name)
    return ask(latest_tick(defs, name, now), defs, instance, settings, location=location)


def test_a_tick_is_due_from_its_very_moment_until_the_next() -> None:
    """At the moment itself, a second or most of a day later it is the same tick; before, not."""
    cron, zone = "0 6 * * *", NEW_YORK
    tick = at("2024-05-02T06:00", zone)
    for seconds in (0, 0.25, 1, 86_399):
        assert due(cron, zone, tick + timedelta(seconds=seconds)) == tick
    assert due(cron, zone, tick - timedelta(seconds=1)) == at("2024-05-01T06:00", zone)


def test_of_several_times_the_latest_counts() -> None:
    """A schedule with two cron lines is due at whichever came last."""
    crons = ["0 6 * * 1-5", "30 12 * * 6"]  # Friday is 2024-05-03
    assert due(crons, "UTC", at("2024-05-04T11:00")) == at("2024-05-03T06:00")
    assert due(crons, "UTC", at("2024-05-05T11:00")) == at("2024-05-04T12:30")


@pytest.mark.parametrize("cron", ["30 1 * * *", "30 2 * * *", "0 * * * *"])
@pytest.mark.parametrize("day", ["2024-03-10", "2024-11-03"])
def test_days_on_which_clocks_change_have_the_ticks_of_dagster(cron: str, day: str) -> None:
    """Looked for at any quarter of an hour, the latest tick is one that Dagster's daemon fires."""
    start = at(day, NEW_YORK).astimezone(UTC)
    moments = [start + timedelta(minutes=15 * number) for number in range(100)]
    made = scheduled(cron, NEW_YORK)
    fired = list(
        takewhile(
            lambda tick: tick <= moments[-1],
            schedule_execution_time_iterator(moments[0].timestamp() - 86_400, cron, NEW_YORK),
        )
    )
    for moment in moments:
        assert next(ticks_until(made, moment)) == max(tick for tick in fired if tick <= moment)


def test_a_schedule_of_days_asks_for_the_day_before(instance: DagsterInstance) -> None:
    """What `build_schedule_from_partitioned_job` makes runs one day, that before its tick."""
    made = by_day("visits", hour=6)
    defs = defs_of(made)
    for now, day in (("2024-03-11T05:59", "2024-03-09"), ("2024-03-11T06:00", "2024-03-10")):
        (one,), _ = asked(defs, made.name, at(now, NEW_YORK), instance)
        assert one.request.days == (day,)
        assert one.settings.tags["dagster/schedule_name"] == made.name


def test_the_id_is_made_of_location_schedule_tick_and_number(instance: DagsterInstance) -> None:
    """It is the same within a tick, and another for another tick, place, schedule or request."""
    days = [dg.RunRequest(run_key=day, partition_key=day) for day in ("2024-03-01", "2024-03-02")]
    defs = asking(*days, job="visits_job")
    now, next_tick = at("2024-05-02T06:10"), at("2024-05-02T07:10")

    def ids(moment: datetime, location: str = "shop") -> set[str]:
        found, _ = asked(defs, "hourly", moment, instance, location)
        return {str(each.settings.run_id) for each in found}

    assert len(ids(now)) == 2
    assert ids(now) == ids(now + timedelta(minutes=40))
    assert ids(now).isdisjoint(ids(next_tick) | ids(now, "other"))


def test_deployments_on_one_instance_have_ids_of_their_own(instance: DagsterInstance) -> None:
    """Workspaces whose locations, schedules and jobs are called alike do not skip each other."""
    defs = asking(dg.RunRequest())
    tick = latest_tick(defs, "hourly", at("2024-05-02T06:10"))
    ids = set[UUID]()
    for deployment in ("shop:1", "stock:1", None):
        settings = ScheduleSettings(schedule="hourly", deployment_id=deployment)
        (one,), _ = ask(tick, defs, instance, settings, location="pipeline.definitions")
        ids.add(one.settings.run_id)
    assert len(ids) == 3


def test_a_given_id_is_used_as_it_is(instance: DagsterInstance) -> None:
    """A run id of the caller's goes before that of the tick."""
    given = uuid4()
    defs = asking(dg.RunRequest())
    settings = ScheduleSettings(schedule="hourly", run_id=given)
    tick = latest_tick(defs, "hourly", at("2024-05-02T06:10"))
    (one,), _ = ask(tick, defs, instance, settings, location="shop")
    assert one.settings.run_id == given


def test_tags_and_configuration_of_a_request_are_kept(instance: DagsterInstance) -> None:
    """What a request says beside its job and day goes to the run; the tick is a tag too."""
    config: dict[str, Any] = {"execution": {"config": {"in_process": {}}}}
    defs = asking(dg.RunRequest(run_key="one", tags={"team": "a"}, run_config=config))
    (one,), _ = asked(defs, "hourly", at("2024-05-02T06:10"), instance)
    assert one.settings.tags == {
        "team": "a",
        # By these three, the last with a run key, a daemon finds that a tick's run is there.
        "dagster/schedule_name": "hourly",
        ".dagster/scheduled_execution_time": "2024-05-02T06:00:00+00:00",
        "dagster/run_key": "one",
        "segmentstream/tick": "2024-05-02T06:00:00+00:00",
    }
    assert one.settings.run_config == config


def test_what_a_job_configures_itself_is_no_configuration_of_the_request(
    instance: DagsterInstance,
) -> None:
    """Dagster writes a job's own configuration of the day into a request, which Cloud Run takes."""

    @dg.asset(partitions_def=daily, config_schema={"limit": int})
    def limited() -> None: ...

    job = dg.define_asset_job(
        "limited_job", [limited], config={"ops": {"limited": {"config": {"limit": 7}}}}
    )
    made = dg.build_schedule_from_partitioned_job(job)
    defs = dg.Definitions([limited], jobs=[job], schedules=[made])
    (one,), _ = asked(defs, made.name, at("2024-05-02T06:10"), instance)
    assert one.settings.run_config == {}


def test_a_schedule_that_skips_has_nothing_to_do(instance: DagsterInstance) -> None:
    """The reason is the schedule's own."""
    defs = asking(dg.SkipReason("it is a holiday"))
    assert asked(defs, "hourly", at("2024-05-02T06:10"), instance) == ((), "it is a holiday")


def test_days_that_have_ended_are_asked_for_once(instance: DagsterInstance) -> None:
    """The last day runs at the tick after it, and at later ticks there is nothing to do."""
    made = by_day("history")
    defs = defs_of(made)
    (one,), _ = asked(defs, made.name, at("2024-03-05T00:01"), instance)
    assert one.request.days == ("2024-03-04",)
    over = ((), "Its days ended with 2024-03-04.")
    assert asked(defs, made.name, at("2024-03-06T00:01"), instance) == over


@pytest.mark.skipif(not EXAMPLE.is_dir(), reason="needs examples/ of the source tree")
def test_the_schedules_of_the_example_run_a_day_of_2013_and_nothing_today(
    instance: DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their days are those of 2013; now they say that these have ended."""
    monkeypatch.syspath_prepend(EXAMPLE)
    monkeypatch.chdir(EXAMPLE)
    defs = load_workspace(EXAMPLE)
    for name in ("load_flights_schedule", "update_reports_schedule"):
        (one,), _ = asked(defs, name, at("2013-05-02T12:00"), instance)
        assert one.request.days == ("2013-05-01",)
        over = ((), "Its days ended with 2013-12-31.")
        assert asked(defs, name, datetime.now(UTC), instance) == over


SPECIAL = [
    (dg.RunRequest(asset_selection=[dg.AssetKey("names")]), "some assets"),
    (dg.RunRequest(job_name="visits_job"), "another job"),
    (dg.RunRequest(stale_assets_only=True), "stale"),
    (dg.RunRequest(tags={"dagster/asset_partition_range_start": "2024-05-01"}), "a range of days"),
]


@pytest.mark.parametrize(("request_", "what"), SPECIAL)
def test_what_cannot_be_run_here_is_refused(
    request_: dg.RunRequest, what: str, instance: DagsterInstance
) -> None:
    """A request for anything but a whole job, for one day or without, is told and not run."""
    with pytest.raises(RunRefusedError, match=what) as refused:
        asked(asking(request_), "hourly", at("2024-05-02T06:10"), instance)
    assert refused.value.exit is Exit.JOB


def test_before_the_first_day_there_is_nothing_to_do(instance: DagsterInstance) -> None:
    """A tick at which no day is over yet asks for nothing; the words are Dagster's."""
    made = by_day("history")
    found, skipped = asked(defs_of(made), made.name, at("2024-03-01T12:00"), instance)
    assert (found, "no partitions" in skipped) == ((), True)


@pytest.mark.slow
def test_a_tick_that_comes_twice_at_once_is_one_run(shop: Shop) -> None:
    """The second attaches to the first, a third is told its outcome; the asset is called once."""
    shop.gate.touch()
    both = [shop.follow("each_year") for _ in range(2)]
    eventually(lambda: any("waiting for its outcome" in each.told() for each in both))
    eventually(shop.calls)
    shop.gate.unlink()
    ended_ = [each.end() for each in both]
    ended_.append(shop.follow("each_year").end())
    assert [each.code for each in ended_] == [Exit.SUCCEEDED] * 3, ended_[0].told
    assert ended_[0].summary == ended_[1].summary == ended_[2].summary
    assert len(shop.calls()) == 1
    assert shop.statuses() == ["SUCCESS"]
    run_id = ended_[0].summary["runs"][0]["run_id"]
    tags = dict(
        shop.postgres.run("SELECT key, value FROM run_tags WHERE run_id = %s", run_id, url=shop.url)
    )
    year = str(datetime.now(UTC).year)
    assert (tags["year"], tags["dagster/schedule_name"]) == (year, "each_year")
    assert tags["segmentstream/tick"] == f"{year}-01-01T00:00:00+00:00"


@pytest.mark.slow
def test_several_requests_run_one_after_another(shop: Shop) -> None:
    """Each is run, also after one that fails; the exit code is the worst, the summary has each."""
    over = shop.follow("two_days", SHOP_FAILING="2024-05-03").end()
    assert over.code == Exit.FAILED
    assert [each["outcome"] for each in over.summary["runs"]] == ["failed", "succeeded"]
    assert [day for _, day in shop.calls()] == ["2024-05-03", "2024-05-04"]
    assert shop.rows("one_by_one") == {"2024-05-04": 1}


@pytest.mark.slow
def test_a_tick_of_each_minute_runs_now(shop: Shop) -> None:
    """By the clock of the process, the tick is this minute or one that has passed since."""
    before = datetime.now(UTC).replace(second=0, microsecond=0)
    over = shop.follow("every_minute").end()
    assert over.code == Exit.SUCCEEDED, over.told
    assert before <= datetime.fromisoformat(over.summary["tick"]) <= datetime.now(UTC)
    assert shop.statuses() == ["SUCCESS"]


@pytest.mark.slow
def test_a_schedule_with_nothing_to_do_ends_with_0(shop: Shop) -> None:
    """It says why, on standard error and in the summary, and records no run."""
    over = shop.follow("one_by_one_schedule").end()
    assert over.code == Exit.SUCCEEDED
    assert "has nothing to do" in over.told
    assert (over.summary["runs"], over.summary["skipped"]) == (
        [],
        "Its days ended with 2024-05-31.",
    )
    assert shop.statuses() == []


@pytest.mark.slow
def test_the_configuration_of_a_request_reaches_its_run(shop: Shop) -> None:
    """Dagster has recorded the run with what the schedule configured."""
    assert shop.follow("configured").end().code == Exit.SUCCEEDED
    ((body,),) = shop.postgres.run("SELECT run_body FROM runs", url=shop.url)
    assert json.loads(body)["run_config"]["execution"] == {"config": {"in_process": {}}}


REFUSED = [
    ("nothing", {}, Exit.JOB, "configured, each_year, every_minute"),
    ("failing", {}, Exit.WORKSPACE, "ValueError: no such source (pipeline/definitions.py:"),
    ("each_year", {"SEGMENTSTREAM_DAGSTER_JOB": "lookup"}, Exit.CONFIGURATION, "are both set"),
    (
        "each_year",
        {"SEGMENTSTREAM_PARTITION_START_DATE": "2024-05-01"},
        Exit.CONFIGURATION,
        "are both set",
    ),
    ("each_year", {"SEGMENTSTREAM_RUN_ID": "7"}, Exit.CONFIGURATION, "no UUID"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("schedule", "variables", "code", "words"), REFUSED)
def test_what_cannot_be_followed_is_told_in_one_message(
    shop: Shop, schedule: str, variables: dict[str, str], code: Exit, words: str
) -> None:
    """An unknown or failing schedule and contradicting variables: an exit code, and no run."""
    over = shop.follow(schedule, **variables).end()
    assert over.code == code, over.told
    (line,) = over.told.splitlines()
    assert words in json.loads(line)["message"]
    assert shop.statuses() == []


@pytest.mark.slow
def test_on_cloud_run_the_tags_travel_and_a_configuration_is_refused(shop: Shop) -> None:
    """An execution tags its run as the request says; what it cannot be told is not started."""
    with running_cloud_run(shop) as cloud_run:
        over = shop.follow("two_days", **cloud_run.variables()).end()
        assert over.code == Exit.SUCCEEDED, over.told + cloud_run.told()
        refused = shop.follow("configured", **cloud_run.variables()).end()
    assert refused.code == Exit.CONFIGURATION
    assert "is not told how" in refused.told
    tags = "SELECT value FROM run_tags WHERE key = 'day' ORDER BY value"
    told = [value for (value,) in shop.postgres.run(tags, url=shop.url)]
    assert told == ["2024-05-03", "2024-05-04"]
    assert shop.rows("one_by_one") == {"2024-05-03": 1, "2024-05-04": 1}
