"""What to run and where Dagster keeps its history, read once from variables; imports `exits`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date
from enum import StrEnum
from pathlib import Path
from typing import Any
from uuid import UUID

from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError

from segmentstream.runtime.exits import Exit, RunRefusedError

MODE_VARIABLE = "SEGMENTSTREAM_DAGSTER_MODE"
JOB_VARIABLE = "SEGMENTSTREAM_DAGSTER_JOB"
SCHEDULE_VARIABLE = "SEGMENTSTREAM_DAGSTER_SCHEDULE"
RUN_ID_VARIABLE = "SEGMENTSTREAM_RUN_ID"
DEPLOYMENT_VARIABLE = "SEGMENTSTREAM_DEPLOYMENT_ID"
FIRST_DAY_VARIABLE = "SEGMENTSTREAM_PARTITION_START_DATE"
LAST_DAY_VARIABLE = "SEGMENTSTREAM_PARTITION_END_DATE"
PARALLEL_VARIABLE = "SEGMENTSTREAM_DAGSTER_PARALLEL_RUNS"

HOME_VARIABLE = "DAGSTER_HOME"
URL_VARIABLE = "DAGSTER_POSTGRES_URL"
HOST_VARIABLE = "SEGMENTSTREAM_DAGSTER_POSTGRES_HOST"
PORT_VARIABLE = "SEGMENTSTREAM_DAGSTER_POSTGRES_PORT"
USER_VARIABLE = "SEGMENTSTREAM_DAGSTER_POSTGRES_USER"
PASSWORD_VARIABLE = "SEGMENTSTREAM_DAGSTER_POSTGRES_PASSWORD"  # noqa: S105 - names a variable
DATABASE_VARIABLE = "SEGMENTSTREAM_DAGSTER_POSTGRES_DATABASE"
RETENTION_VARIABLE = "SEGMENTSTREAM_DAGSTER_TICK_RETENTION_DAYS"
MAX_RUNTIME_VARIABLE = "SEGMENTSTREAM_DAGSTER_MAX_RUNTIME_SECONDS"
POOL_LIMIT_VARIABLE = "SEGMENTSTREAM_DAGSTER_POOL_LIMIT"

WEBSERVER_HOST_VARIABLE = "SEGMENTSTREAM_DAGSTER_WEBSERVER_HOST"
WEBSERVER_PORT_VARIABLE = "PORT"  # the name that Cloud Run sets

_DRIVER = "postgresql+psycopg2"  # the one that dagster-postgres speaks
_SCHEMES = ("postgres", "postgresql", _DRIVER)
_DAY = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_HOME_REMEDY = (
    "Name a folder that may be written to, in the environment of the process: `.env` is read by "
    "`dg`, not here."
)
_PARALLEL_RUNS = 4
_LONGEST = 200
_SHOWN = 40


class Mode(StrEnum):
    """Says what the process does."""

    EXECUTE = "execute"
    MIGRATE = "migrate"
    WEBSERVER = "webserver"
    WORK = "work"  # one run of a request that another process drives


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSettings:
    """Says what to run.

    Attributes:
        job: The name of a job of the workspace.
        run_id: Who asked; the same id never runs a day twice.
        deployment_id: A tag of the runs.
        first_day: The first day to run; None for a job without days.
        last_day: The last day to run, inclusive.
        parallel_runs: How many runs there may be at a time.
        run_config: What the job is configured with, rather than as it configures itself.
        tags: Further tags of the runs.
    """

    job: str
    run_id: UUID
    deployment_id: str | None = None
    first_day: date | None = None
    last_day: date | None = None
    parallel_runs: int = _PARALLEL_RUNS
    run_config: Mapping[str, Any] = field(default_factory=dict, repr=False)
    tags: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def from_environ(cls, environ: Mapping[str, str]) -> RunSettings:
        """Reads the settings from variables.

        Raises:
            RunRefusedError: One of them is missing or cannot work; it is named.
        """
        first, last = _day(environ, FIRST_DAY_VARIABLE), _day(environ, LAST_DAY_VARIABLE)
        if (first is None) != (last is None):
            missing = FIRST_DAY_VARIABLE if first is None else LAST_DAY_VARIABLE
            raise _refused(
                f"{missing} is not set, and the other end of the days is.",
                "Set both, inclusive, or none for a job without days.",
            )
        return cls(
            job=_needed(
                environ, JOB_VARIABLE, f"Name a job of the workspace, or set {SCHEDULE_VARIABLE}."
            ),
            run_id=_run_id(environ),
            deployment_id=_deployment(environ),
            first_day=first,
            last_day=last,
            parallel_runs=_parallel_runs(environ),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleSettings:
    """Says which schedule to follow.

    Attributes:
        schedule: The name of a schedule of the workspace.
        run_id: Who asked; None for an id that is made of the schedule's tick.
        deployment_id: A tag of the runs.
        parallel_runs: How many runs there may be at a time.
    """

    schedule: str
    run_id: UUID | None = None
    deployment_id: str | None = None
    parallel_runs: int = _PARALLEL_RUNS

    @classmethod
    def from_environ(cls, environ: Mapping[str, str]) -> ScheduleSettings | None:
        """Reads the settings from variables; gives None where they name no schedule.

        Raises:
            RunRefusedError: One of them cannot work, or does not go with a schedule; it is named.
        """
        schedule = environ.get(SCHEDULE_VARIABLE) or None
        if schedule is None:
            return None
        for variable in (JOB_VARIABLE, FIRST_DAY_VARIABLE, LAST_DAY_VARIABLE):
            if environ.get(variable):
                raise _refused(
                    f"{SCHEDULE_VARIABLE} and {variable} are both set.",
                    "Name a schedule, which says what to run; or a job, with its days.",
                )
        return cls(
            schedule=schedule,
            run_id=_run_id(environ) if environ.get(RUN_ID_VARIABLE) else None,
            deployment_id=_deployment(environ),
            parallel_runs=_parallel_runs(environ),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceSettings:
    """Says where Dagster keeps its history, and how long.

    Attributes:
        home: The folder of `dagster.yaml`.
        url: The address of Postgres, for SQLAlchemy; None where a file of the user's names it.
        is_url_given: Whether one variable holds the whole address, rather than its parts.
        tick_retention_days: How long evaluations of schedules and sensors are kept.
        max_runtime_seconds: How long a run may take before the daemon ends it; None for ever.
        parallel_runs: How many runs a daemon lets go on at a time.
        pool_limit: How many assets of a pool are computed at a time, where the pool has no limit
            of its own; None for any number.
    """

    home: Path
    url: URL | None = field(default=None, repr=False)
    is_url_given: bool = False
    tick_retention_days: int = 30
    max_runtime_seconds: int | None = None
    parallel_runs: int = _PARALLEL_RUNS
    pool_limit: int | None = None

    @classmethod
    def from_environ(cls, environ: Mapping[str, str]) -> InstanceSettings:
        """Reads the settings from variables.

        Raises:
            RunRefusedError: One of them is missing or cannot work; it is named, and no value that
                may hold a password is shown.
        """
        home = Path(_needed(environ, HOME_VARIABLE, _HOME_REMEDY))
        if not home.is_absolute():
            raise _refused(f"{HOME_VARIABLE} is no absolute path.", "Dagster takes no other.")
        max_runtime = _number(environ, MAX_RUNTIME_VARIABLE, 0, range(10_000_000))
        return cls(
            home=home,
            url=_address(environ),
            is_url_given=bool(environ.get(URL_VARIABLE)),
            tick_retention_days=_number(environ, RETENTION_VARIABLE, 30, range(1, 3651)),
            max_runtime_seconds=max_runtime or None,
            parallel_runs=_parallel_runs(environ),
            pool_limit=_number(environ, POOL_LIMIT_VARIABLE, 0, range(1001)) or None,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class WebserverSettings:
    """Says where the web server listens.

    Attributes:
        host: The address; this machine's own unless another is asked for, since it asks nobody who
            they are.
        port: The port.
    """

    host: str
    port: int

    @classmethod
    def from_environ(cls, environ: Mapping[str, str]) -> WebserverSettings:
        """Reads the settings from variables.

        Raises:
            RunRefusedError: One of them cannot work; it is named.
        """
        return cls(
            host=environ.get(WEBSERVER_HOST_VARIABLE) or "127.0.0.1",
            port=_number(environ, WEBSERVER_PORT_VARIABLE, 3000, range(1, 65536)),
        )


def mode_of(environ: Mapping[str, str]) -> Mode:
    """Reads what the process is to do.

    Raises:
        RunRefusedError: The variable names nothing that it can do.
    """
    told = environ.get(MODE_VARIABLE) or Mode.EXECUTE
    try:
        return Mode(told)
    except ValueError:
        raise _refused(
            f"{MODE_VARIABLE} is {told[:_SHOWN]!r}.", f"Use one of: {', '.join(Mode)}."
        ) from None


def _refused(problem: str, remedy: str) -> RunRefusedError:
    return RunRefusedError(problem, remedy, exit_code=Exit.CONFIGURATION)


def _needed(environ: Mapping[str, str], variable: str, remedy: str) -> str:
    told = environ.get(variable, "")
    if not told.strip():
        raise _refused(f"{variable} is not set.", remedy)
    return told


def _run_id(environ: Mapping[str, str]) -> UUID:
    told = _needed(environ, RUN_ID_VARIABLE, "Set it to a new UUID for each request.")
    try:
        parsed = UUID(told)
    except ValueError:
        parsed = None
    # Python also takes braces, `urn:uuid:` and no hyphens: several spellings of one id.
    if parsed is None or str(parsed) != told.lower():
        raise _refused(
            f"{RUN_ID_VARIABLE} is {told[:_SHOWN]!r}, no UUID.",
            "Give one such as 0f8fad5b-d9cb-469f-a165-70867728950e.",
        )
    return parsed


def _deployment(environ: Mapping[str, str]) -> str | None:
    told = environ.get(DEPLOYMENT_VARIABLE) or None
    if told is not None and (len(told) > _LONGEST or not told.isprintable()):
        raise _refused(
            f"{DEPLOYMENT_VARIABLE} is no tag of a run.",
            f"Give up to {_LONGEST} characters, without line breaks.",
        )
    return told


def _day(environ: Mapping[str, str], variable: str) -> date | None:
    told = environ.get(variable) or None
    if told is None:
        return None
    try:
        if _DAY.fullmatch(told):
            return date.fromisoformat(told)
    except ValueError:
        pass
    raise _refused(f"{variable} is {told[:_SHOWN]!r}, no day.", "Give it as 2026-01-31.")


def _number(environ: Mapping[str, str], variable: str, default: int, allowed: range) -> int:
    told = environ.get(variable) or str(default)
    if not (told.isascii() and told.isdigit() and int(told) in allowed):
        raise _refused(
            f"{variable} is {told[:_SHOWN]!r}.",
            f"Give a number from {allowed.start} to {allowed.stop - 1}.",
        )
    return int(told)


def _parallel_runs(environ: Mapping[str, str]) -> int:
    return _number(environ, PARALLEL_VARIABLE, _PARALLEL_RUNS, range(1, 65))


def _address(environ: Mapping[str, str]) -> URL | None:
    parts = [
        name
        for name in (
            HOST_VARIABLE, PORT_VARIABLE, USER_VARIABLE, PASSWORD_VARIABLE, DATABASE_VARIABLE,
        )
        if environ.get(name)
    ]  # fmt: skip
    if environ.get(URL_VARIABLE):
        if parts:
            raise _refused(
                f"{URL_VARIABLE} and {parts[0]} are both set.",
                "Give the address of Postgres in one way: whole, or by its parts.",
            )
        return _parsed(environ[URL_VARIABLE])
    return _composed(environ) if parts else None


def _parsed(told: str) -> URL:
    remedy = "Give it as postgresql://user:password@host:5432/database."
    try:
        url = make_url(told)
    except (ArgumentError, ValueError):
        # The error of the parser shows the address, which can hold a password.
        raise _refused(f"{URL_VARIABLE} is no address of a database.", remedy) from None
    if url.drivername not in _SCHEMES:
        raise _refused(f"{URL_VARIABLE} begins with {url.drivername[:_SHOWN]!r}.", remedy)
    if not url.database:
        raise _refused(f"{URL_VARIABLE} names no database.", remedy)
    return url.set(drivername=_DRIVER)


def _composed(environ: Mapping[str, str]) -> URL:
    remedy = f"Set it, or the whole address in {URL_VARIABLE}."
    host, user = _needed(environ, HOST_VARIABLE, remedy), _needed(environ, USER_VARIABLE, remedy)
    is_folder = host.startswith("/")
    if any(mark in user for mark in "/:@"):
        raise _refused(
            f"{USER_VARIABLE} holds a character that Dagster's address of Postgres cannot.",
            f"Give the whole address in {URL_VARIABLE}, with that character encoded.",
        )
    return URL.create(
        _DRIVER,
        username=user,
        password=environ.get(PASSWORD_VARIABLE) or None,
        host=None if is_folder else host,
        port=_number(environ, PORT_VARIABLE, 5432, range(1, 65536)),
        database=_needed(environ, DATABASE_VARIABLE, remedy),
        query={"host": host} if is_folder else {},
    )
