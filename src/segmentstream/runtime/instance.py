"""Dagster's instance in Postgres: its `dagster.yaml`, its tables and their version.

Imports Dagster, dagster-postgres and SQLAlchemy.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, MutableMapping
from contextlib import contextmanager
from typing import Any

import dagster_postgres.run_storage
import sqlalchemy
from alembic.script import ScriptDirectory
from alembic.util import CommandError
from dagster import DagsterInstance
from dagster_postgres.utils import pg_alembic_config
from sqlalchemy.engine import URL
from sqlalchemy.exc import DBAPIError
from sqlalchemy.pool import NullPool

from segmentstream._core.jsonio import canonical_json, write_atomically
from segmentstream.runtime.claims import Claim
from segmentstream.runtime.exits import Exit, RunRefusedError
from segmentstream.runtime.settings import (
    HOST_VARIABLE,
    MODE_VARIABLE,
    PASSWORD_VARIABLE,
    URL_VARIABLE,
    InstanceSettings,
    Mode,
)

FILE = "dagster.yaml"
# What tells our file from one that a person wrote; they may delete the line to make it theirs.
MARK = "# Written by segmentstream.runtime at each start; without this line it is left alone."
SECONDS_TO_ANSWER = 60.0
SECONDS_TO_MIGRATE = 1800.0
# Capturing what steps print into files takes it from the log for a while, through a process that
# may be ended before it has copied the last lines; and the files go with the container.
_NOT_CAPTURED = {
    "module": "dagster._core.storage.noop_compute_log_manager",
    "class": "NoOpComputeLogManager",
}
_SCHEMA_CLAIM = "segmentstream: the tables of Dagster"


@contextmanager
def open_instance(
    settings: InstanceSettings, environ: MutableMapping[str, str]
) -> Iterator[tuple[DagsterInstance, str]]:
    """Gives the instance and the address of its Postgres; makes its tables on the first start.

    Raises:
        RunRefusedError: There is no Postgres, it does not answer, or its tables are of another
            version.
    """
    is_ours = configure(settings, environ)
    if not is_ours:
        with DagsterInstance.get() as instance:
            address = _address_of(instance)
            check_schema(address)
            yield instance, address
        return
    assert settings.url is not None  # noqa: S101 - `configure` has refused it
    address = settings.url.render_as_string(hide_password=False)
    _await_answer(settings.url, SECONDS_TO_ANSWER)
    if not check_schema(address):
        with _alone(address), DagsterInstance.get():
            pass
        check_schema(address)
    with DagsterInstance.get() as instance:
        yield instance, address


def migrate(settings: InstanceSettings, environ: MutableMapping[str, str]) -> None:
    """Makes the tables of Dagster, or brings them to this release; a second time changes nothing.

    Two processes may start it at once: one does it, the other waits and finds it done.

    Raises:
        RunRefusedError: There is no Postgres, it does not answer, or its tables are newer.
    """
    if not configure(settings, environ):
        with DagsterInstance.get() as instance:
            address = _address_of(instance)
    else:
        assert settings.url is not None  # noqa: S101 - `configure` has refused it
        address = settings.url.render_as_string(hide_password=False)
        _await_answer(settings.url, SECONDS_TO_ANSWER)
    with _alone(address):
        revision = _revision(address)
        script = _script()
        if revision is not None:
            _refuse_newer(script, revision)
        with DagsterInstance.get() as instance:
            if revision not in {None, script.get_current_head()}:
                instance.upgrade()


def configure(settings: InstanceSettings, environ: MutableMapping[str, str]) -> bool:
    """Writes `dagster.yaml`, unless a person wrote one; says whether the file is ours.

    Raises:
        RunRefusedError: There is neither an address of Postgres nor such a file.
    """
    path = settings.home / FILE
    if path.exists() and not path.read_text().startswith(MARK):
        return False
    if settings.url is None:
        raise RunRefusedError(
            f"Neither {URL_VARIABLE} nor {HOST_VARIABLE} is set, so the history of runs would be "
            "gone with this process.",
            "Set one of them to a Postgres; to try things out, use `dg dev`.",
            exit_code=Exit.CONFIGURATION,
        )
    settings.home.mkdir(parents=True, exist_ok=True)
    write_atomically(path, f"{MARK}\n{canonical_json(document(settings))}")  # JSON is YAML
    if settings.is_url_given:
        environ[URL_VARIABLE] = settings.url.render_as_string(hide_password=False)
    return True


def document(settings: InstanceSettings) -> dict[str, Any]:
    """Gives what `dagster.yaml` says: a password only as the name of its variable."""
    days = {"purge_after_days": settings.tick_retention_days}
    monitoring: dict[str, Any] = {
        "enabled": True,
        "start_timeout_seconds": 300,
        # Above 0, Dagster's executors do not forward an end to their steps.
        "max_resume_run_attempts": 0,
    }
    if settings.max_runtime_seconds:
        monitoring["max_runtime_seconds"] = settings.max_runtime_seconds
    concurrency: dict[str, Any] = {"runs": {"max_concurrent_runs": settings.parallel_runs}}
    if settings.pool_limit:
        concurrency["pools"] = {"default_limit": settings.pool_limit}
    return {
        "storage": {"postgres": _storage(settings)},
        "telemetry": {"enabled": False},
        "nux": {"enabled": False},
        "run_monitoring": monitoring,
        "concurrency": concurrency,
        "compute_logs": _NOT_CAPTURED,
        "retention": {"schedule": days, "sensor": days, "auto_materialize": days},
    }


def check_schema(address: str) -> bool:
    """Refuses tables that this release cannot work with; says whether there are any.

    Raises:
        RunRefusedError: They are of a newer or an older release.
    """
    revision = _revision(address)
    if revision is None:
        return False
    script = _script()
    if revision != script.get_current_head():
        _refuse_newer(script, revision)
        raise RunRefusedError(
            f"The tables of Dagster in Postgres are older than this release ({revision}).",
            f"Start once with {MODE_VARIABLE}={Mode.MIGRATE}; a backup before that is wise.",
            exit_code=Exit.SCHEMA,
        )
    return True


def _storage(settings: InstanceSettings) -> dict[str, Any]:
    url = settings.url
    assert url is not None  # noqa: S101 - `configure` has refused it
    if settings.is_url_given:
        return {"postgres_url": {"env": URL_VARIABLE}}
    parts: dict[str, Any] = {
        "scheme": url.drivername,
        "hostname": url.host or "",
        "port": url.port,
        "username": url.username,
        "db_name": url.database,
    }
    if url.password is not None:
        parts["password"] = {"env": PASSWORD_VARIABLE}
    if url.query:
        parts["params"] = dict(url.query)
    return {"postgres_db": parts}


def _address_of(instance: DagsterInstance) -> str:
    address = getattr(instance.run_storage, "postgres_url", None)
    if not isinstance(address, str):
        raise RunRefusedError(
            f"The {FILE} in DAGSTER_HOME keeps the history of runs outside of Postgres.",
            "Give it `storage: postgres:`, or remove the file to have one written.",
            exit_code=Exit.INSTANCE,
        )
    return address


def _await_answer(url: URL, seconds: float) -> None:
    """Waits through a short outage; the text of the driver's last error names no password."""
    deadline = time.monotonic() + seconds
    engine = sqlalchemy.create_engine(url, poolclass=NullPool)
    while True:
        try:
            engine.connect().close()
        except DBAPIError as error:
            reason = str(error.orig).strip()
            if time.monotonic() > deadline or not _is_outage(reason):
                raise RunRefusedError(
                    f"Postgres cannot be used at {url.render_as_string()}: {reason}",
                    "Correct its address, or see that it runs.",
                    exit_code=Exit.INSTANCE,
                ) from None
            time.sleep(0.5)  # nothing tells when a server has come up
        else:
            return


def _is_outage(reason: str) -> bool:
    # A wrong password, user or database stays wrong.
    return not any(word in reason for word in ("authentication", "does not exist", "pg_hba"))


@contextmanager
def _alone(address: str) -> Iterator[None]:
    claim = Claim(address, _SCHEMA_CLAIM)
    _until(claim.take, SECONDS_TO_MIGRATE)
    try:
        yield
    finally:
        claim.release()


def _until(is_done: Callable[[], bool], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while not is_done():
        if time.monotonic() > deadline:
            raise RunRefusedError(
                "Another process has been at the tables of Dagster for too long.",
                "Look whether it still works; it ends its transaction when it is ended.",
                exit_code=Exit.INSTANCE,
            )
        time.sleep(0.2)  # waiting in Postgres itself could not be ended by a signal


def _revision(address: str) -> str | None:
    engine = sqlalchemy.create_engine(address, poolclass=NullPool)
    with engine.connect() as connection:
        if not sqlalchemy.inspect(connection).has_table("alembic_version"):
            return None
        found = connection.execute(sqlalchemy.text("SELECT version_num FROM alembic_version"))
        return found.scalar()


def _script() -> ScriptDirectory:
    return ScriptDirectory.from_config(pg_alembic_config(dagster_postgres.run_storage.__file__))


def _refuse_newer(script: ScriptDirectory, revision: str) -> None:
    try:
        script.get_revision(revision)
    except CommandError:
        raise RunRefusedError(
            f"The tables of Dagster in Postgres are of a newer release ({revision}).",
            "Deploy that release of segmentstream-pipeline, or a newer one.",
            exit_code=Exit.SCHEMA,
        ) from None
