"""Runs one job of the workspace and ends with its outcome: puts the parts of `runtime` together."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Callable, Mapping, MutableMapping
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType

from dagster import DagsterInstance
from dagster_postgres.utils import DagsterPostgresException
from sqlalchemy.exc import DBAPIError

from segmentstream._core.errors import SegmentStreamError
from segmentstream.runtime.backfills import Backfill
from segmentstream.runtime.claims import Claim
from segmentstream.runtime.cloud_run.api import CloudRunApi
from segmentstream.runtime.cloud_run.launcher import CloudRunLauncher
from segmentstream.runtime.cloud_run.settings import CloudRunSettings, WorkSettings
from segmentstream.runtime.cloud_run.working import work
from segmentstream.runtime.exits import Exit, RunRefusedError
from segmentstream.runtime.instance import migrate, open_instance
from segmentstream.runtime.launching import Launcher
from segmentstream.runtime.loading import load_workspace, location_of
from segmentstream.runtime.plans import Request, read_request
from segmentstream.runtime.records import read_record
from segmentstream.runtime.schedules import Asked, ask, latest_tick, run_each
from segmentstream.runtime.settings import (
    InstanceSettings,
    Mode,
    RunSettings,
    ScheduleSettings,
    mode_of,
)
from segmentstream.runtime.stopping import Stop
from segmentstream.runtime.telling import start_telling, tell, tell_fault, write_summary
from segmentstream.runtime.webserver import become_webserver
from segmentstream.runtime.workers import ProcessLauncher

_SECONDS_BETWEEN_TRIES = 0.5
# So long its holder comes first: it looks every other second whether it has lost the claim.
_SECONDS_AFTER_OUTAGE = 15.0
# The second is what Dagster makes of the first, after it has tried again for some seconds.
_OUTAGES = (DBAPIError, DagsterPostgresException)


def main(environ: MutableMapping[str, str]) -> int:
    """Does what the variables say; gives the exit code."""
    start_telling(is_terminal=sys.stderr.isatty())
    stop = Stop()
    _listen(stop)
    try:
        return int(_do(environ, stop))
    except RunRefusedError as error:
        return int(_tell_refusal(error))
    except SegmentStreamError as error:
        tell(f"Postgres cannot be used: {error}", level=40, exit_code=int(Exit.INSTANCE))
        return int(Exit.INSTANCE)
    except _OUTAGES as error:
        # The text of a driver's error can hold the address, and with it the password.
        tell(
            f"Postgres was out of reach for too long: {type(error).__name__}. See that it runs and "
            "start again: the same run id goes on with the days that are left.",
            level=40,
            exit_code=int(Exit.INSTANCE),
        )
        return int(Exit.INSTANCE)
    except Exception:  # noqa: BLE001 - the edge of the process
        tell_fault("The runtime itself failed; please report these lines.")
        return int(Exit.FAULT)


def _do(environ: MutableMapping[str, str], stop: Stop) -> Exit:
    mode = mode_of(environ)
    instance_settings = InstanceSettings.from_environ(environ)
    if mode is Mode.MIGRATE:
        migrate(instance_settings, environ)
        tell("The tables of Dagster are of this release.")
        return Exit.SUCCEEDED
    if mode is Mode.WEBSERVER:
        become_webserver(instance_settings, environ)
    schedule = ScheduleSettings.from_environ(environ) if mode is Mode.EXECUTE else None
    if schedule is not None:
        return _follow(schedule, instance_settings, environ, stop)
    settings = RunSettings.from_environ(environ)
    own = WorkSettings.from_environ(environ) if mode is Mode.WORK else None
    place = CloudRunSettings.from_environ(environ) if mode is Mode.EXECUTE else None
    request = read_request(load_workspace(Path.cwd()), settings)
    with open_instance(instance_settings, environ) as (instance, address):
        if own is not None:
            processes = ProcessLauncher(request.job, environ)
            return work(instance, processes, own.attempt(request, settings), stop)
        launcher = _launcher(place, instance, request, settings, environ=environ, stop=stop)
        exit_code, summary = _run(
            instance, address, request, settings, launcher=launcher, stop=stop
        )
    if summary is not None:
        write_summary(summary)
    return exit_code


def _follow(
    settings: ScheduleSettings,
    instance_settings: InstanceSettings,
    environ: MutableMapping[str, str],
    stop: Stop,
) -> Exit:
    now = datetime.now(UTC)
    place = CloudRunSettings.from_environ(environ)
    defs = load_workspace(Path.cwd())
    tick = latest_tick(defs, settings.schedule, now)
    with open_instance(instance_settings, environ) as (instance, address):
        asked, skipped = ask(tick, defs, instance, settings, location=location_of(Path.cwd()))

        def run(each: Asked) -> tuple[Exit, dict[str, object] | None]:
            request, of_run = each.request, each.settings
            launcher = _launcher(place, instance, request, of_run, environ=environ, stop=stop)
            try:
                return _run(instance, address, request, of_run, launcher=launcher, stop=stop)
            except RunRefusedError as error:
                return _tell_refusal(error), None

        exit_code, summary = run_each(tick, asked, skipped, run)
    write_summary(summary)
    return exit_code


def _tell_refusal(error: RunRefusedError) -> Exit:
    tell(str(error), level=40, exit_code=int(error.exit))
    return error.exit


def _launcher(
    place: CloudRunSettings | None,
    instance: DagsterInstance,
    request: Request,
    settings: RunSettings,
    *,
    environ: Mapping[str, str],
    stop: Stop,
) -> Launcher:
    if place is None:
        return ProcessLauncher(request.job, environ)
    return CloudRunLauncher(
        api=CloudRunApi(place),
        place=place,
        request=request,
        settings=settings,
        instance=instance,
        environ=environ,
        stop=stop,
    )


def _run(
    instance: DagsterInstance,
    address: str,
    request: Request,
    settings: RunSettings,
    *,
    launcher: Launcher,
    stop: Stop,
) -> tuple[Exit, dict[str, object] | None]:
    def is_unfinished() -> bool:
        return bool(read_record(instance, request, settings).unfinished)

    is_unfinished()  # refuses an id of something else, before it waits
    claim = Claim(address, f"segmentstream: run {settings.run_id}")
    if not _take(claim, is_unfinished, stop):
        return Exit.STOPPED, None
    try:
        backfill = Backfill(
            instance=instance,
            claim=claim,
            request=request,
            settings=settings,
            launcher=launcher,
            stop=stop,
        )
        return backfill.run()
    finally:
        claim.release()


def _take(claim: Claim, is_unfinished: Callable[[], bool], stop: Stop) -> bool:
    """Waits until the claim is ours; False when told to stop before."""
    was_held = has_yielded = False
    while not stop.is_asked():
        pause = _SECONDS_BETWEEN_TRIES
        try:
            if claim.take():
                if not was_held or has_yielded or not is_unfinished():
                    return True
                # Its holder has died, or has lost its connection and comes back for the claim.
                claim.release()
                has_yielded, pause = True, _SECONDS_AFTER_OUTAGE
            elif not was_held:
                tell("Another process runs this run id; waiting for its outcome.")
                was_held = True
            else:
                has_yielded = False
        except _OUTAGES:
            claim.release()
            pause = _SECONDS_AFTER_OUTAGE
        _pause(pause, stop)
    return False


def _pause(seconds: float, stop: Stop) -> None:
    deadline = time.monotonic() + seconds
    while not stop.is_asked() and time.monotonic() < deadline:
        time.sleep(min(_SECONDS_BETWEEN_TRIES, seconds))  # so short, to see a request to stop


def _listen(stop: Stop) -> None:
    def asked(_number: int, _frame: FrameType | None) -> None:
        stop.ask()

    for name in (signal.SIGTERM, signal.SIGINT):
        signal.signal(name, asked)
