"""The instance: its file, its address, its tables and their version."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from dagster import DagsterInstance
from sqlalchemy.engine import make_url

from runtime.shops import Shop
from segmentstream.runtime.exits import Exit, RunRefusedError
from segmentstream.runtime.instance import FILE, MARK, configure
from segmentstream.runtime.settings import InstanceSettings

SECRET = "p@s:s/w%r d#?&é"
PARTS = {
    "SEGMENTSTREAM_DAGSTER_POSTGRES_HOST": "db.internal",
    "SEGMENTSTREAM_DAGSTER_POSTGRES_USER": "dagster",
    "SEGMENTSTREAM_DAGSTER_POSTGRES_PASSWORD": SECRET,
    "SEGMENTSTREAM_DAGSTER_POSTGRES_DATABASE": "meta",
}


def settings_of(home: Path, **variables: str) -> InstanceSettings:
    """Settings of an instance in that folder."""
    return InstanceSettings.from_environ({"DAGSTER_HOME": str(home), **variables})


@pytest.mark.parametrize("scheme", ["postgres", "postgresql", "postgresql+psycopg2"])
def test_every_spelling_of_the_address_gets_the_driver_that_dagster_speaks(
    tmp_path: Path, scheme: str
) -> None:
    """What the address begins with does not matter; its variable is corrected for Dagster."""
    environ = {
        "DAGSTER_HOME": str(tmp_path),
        "DAGSTER_POSTGRES_URL": f"{scheme}://me:p%40ss@host/meta",
    }
    configure(InstanceSettings.from_environ(environ), environ)
    assert environ["DAGSTER_POSTGRES_URL"] == "postgresql+psycopg2://me:p%40ss@host/meta"


def test_a_password_of_any_characters_reaches_dagster_and_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file names the variable; what Dagster makes of it has the password, to the letter."""
    from dagster_postgres.utils import pg_url_from_config

    settings = settings_of(tmp_path, **PARTS)
    configure(settings, {})
    text = (tmp_path / FILE).read_text()
    told = json.loads(text.removeprefix(MARK))["storage"]["postgres"]["postgres_db"]
    assert told["password"] == {"env": "SEGMENTSTREAM_DAGSTER_POSTGRES_PASSWORD"}
    assert SECRET not in text + repr(settings)
    made = make_url(pg_url_from_config({"postgres_db": told | {"password": SECRET}}))
    assert (made.password, made.host, made.database) == (SECRET, "db.internal", "meta")
    assert settings.url is not None
    assert settings.url.password == SECRET


@pytest.mark.parametrize(
    ("variables", "told"),
    [
        ({**PARTS, "DAGSTER_POSTGRES_URL": f"postgresql://me:{'x' * 9}@h/d"}, "both set"),
        ({"SEGMENTSTREAM_DAGSTER_POSTGRES_HOST": "h"}, "POSTGRES_USER is not set"),
        ({"SEGMENTSTREAM_DAGSTER_POSTGRES_PASSWORD": SECRET}, "POSTGRES_HOST is not set"),
        ({**PARTS, "SEGMENTSTREAM_DAGSTER_POSTGRES_PORT": "99999"}, "POSTGRES_PORT"),
        ({"DAGSTER_POSTGRES_URL": "mysql://me:hidden@h/d"}, "begins with"),
        ({"DAGSTER_POSTGRES_URL": f"nothing {SECRET}"}, "no address"),
        ({"DAGSTER_POSTGRES_URL": "postgresql://me@host"}, "names no database"),
        ({"SEGMENTSTREAM_DAGSTER_TICK_RETENTION_DAYS": "-1"}, "RETENTION"),
        ({"SEGMENTSTREAM_DAGSTER_POOL_LIMIT": "1001"}, "POOL_LIMIT"),
        ({"DAGSTER_HOME": "relative"}, "no absolute path"),
    ],
)
def test_settings_that_cannot_work_are_refused_without_a_secret(
    tmp_path: Path, variables: dict[str, str], told: str
) -> None:
    """One message names the variable, and no part of a password."""
    with pytest.raises(RunRefusedError, match=told) as refused:
        InstanceSettings.from_environ({"DAGSTER_HOME": str(tmp_path)} | variables)
    assert refused.value.exit == Exit.CONFIGURATION
    assert SECRET not in str(refused.value)
    assert "hidden" not in str(refused.value)
    assert refused.value.__cause__ is None


@pytest.mark.parametrize(
    ("variables", "runs", "pool"),
    [
        ({}, 4, None),
        ({"SEGMENTSTREAM_DAGSTER_PARALLEL_RUNS": "7"}, 7, None),
        ({"SEGMENTSTREAM_DAGSTER_POOL_LIMIT": "2"}, 4, 2),
    ],
)
def test_limits_reach_whoever_shares_the_instance(
    shop: Shop,
    monkeypatch: pytest.MonkeyPatch,
    variables: dict[str, str],
    runs: int,
    pool: int | None,
) -> None:
    """Dagster reads from the file how many runs its daemon starts, and the limit of pools."""
    environ = {"DAGSTER_POSTGRES_URL": shop.url}
    configure(settings_of(shop.folder, **environ | variables), environ)
    monkeypatch.setenv("DAGSTER_POSTGRES_URL", environ["DAGSTER_POSTGRES_URL"])
    with DagsterInstance.from_config(str(shop.folder)) as instance:
        told = instance.get_concurrency_config()
    assert told.run_queue_config is not None
    assert told.run_queue_config.max_concurrent_runs == runs
    assert told.pool_config.default_pool_limit == pool


def test_a_file_that_a_person_wrote_stays(tmp_path: Path) -> None:
    """Our own file is written anew at each start; one without our first line never is."""
    variables = {"DAGSTER_POSTGRES_URL": "postgresql://me@host/meta"}
    settings = settings_of(tmp_path, **variables)
    assert configure(settings, dict(variables))
    assert configure(settings, dict(variables))
    own = (tmp_path / FILE).read_text().removeprefix(MARK)
    (tmp_path / FILE).write_text(own)
    assert not configure(settings, dict(variables))
    assert (tmp_path / FILE).read_text() == own


def test_a_persons_file_without_postgres_is_refused(shop: Shop) -> None:
    """A file that keeps runs in SQLite would lose them with the container."""
    home = shop.folder / "home"
    home.mkdir()
    (home / FILE).write_text("telemetry:\n  enabled: false\n")
    ended = shop.run("lookup")
    assert ended.code == Exit.INSTANCE, ended.told
    assert shop.calls() == []


@pytest.mark.parametrize(
    ("revision", "told"), [("ffffffffffff", "newer release"), ("7e2f3204cf8e", "MODE=migrate")]
)
def test_tables_of_another_release_are_refused(shop: Shop, revision: str, told: str) -> None:
    """Newer tables ask for that release, older ones for a migration; nothing is run."""
    shop.postgres.run("UPDATE alembic_version SET version_num = %s", revision, url=shop.url)
    ended = shop.run("lookup")
    assert ended.code == Exit.SCHEMA, ended.told
    assert told in ended.told
    assert shop.calls() == []
