"""What users of Dagster reported about its instance in Postgres, tried on the runtime.

Each test is named after the report it answers (area I).
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

import pytest
from dagster_postgres import PostgresEventLogStorage
from dagster_postgres.utils import DagsterPostgresException
from sqlalchemy.engine import make_url
from sqlalchemy.exc import OperationalError
from sqlalchemy.pool import NullPool

from postgres import OwnPostgres, Postgres
from runtime.shops import Host, Shop, days, eventually
from segmentstream.runtime import run_job
from segmentstream.runtime.exits import Exit

pytestmark = pytest.mark.slow
MOST_CONNECTIONS = 13  # what docs/runtime.md promises of six runs at a time
SECRET = "p@s:s/w%r d#?&é"


@contextmanager
def a_user(shop: Shop, options: str) -> Iterator[tuple[str, str]]:
    """Makes a user who is no superuser; gives its name, and the address of the shop's Postgres."""
    name = f"user_{uuid4().hex}"
    url = make_url(shop.url)
    shop.postgres.run(f"CREATE ROLE {name} LOGIN {options}")
    for what in ("TABLES", "SEQUENCES"):
        shop.postgres.run(f"GRANT ALL ON ALL {what} IN SCHEMA public TO {name}", url=shop.url)
    yield name, url.set(username=name).render_as_string(hide_password=False)
    shop.postgres.run(f"DROP OWNED BY {name}", url=shop.url)
    shop.postgres.run(f"DROP ROLE {name}")


def test_i1_parallel_runs_of_many_steps_keep_few_connections(shop: Shop) -> None:
    """Six runs of seven steps need 13 connections at most, and no more at their end than before.

    Postgres refuses the user a 14th, which would be in the log; finished steps give theirs back,
    so those that wait in their last step hold no more than those that wait in their first.
    """
    first, last = shop.folder / "step_1", shop.folder / "step_7"
    first.touch()
    last.touch()
    with a_user(shop, f"CONNECTION LIMIT {MOST_CONNECTIONS}") as (name, address):

        def held() -> int:
            query = "SELECT count(*) FROM pg_stat_activity WHERE usename = %s"
            return int(shop.postgres.run(query, name)[0][0])

        started = shop.start(
            "seven_steps", "05-01", "05-06", SEGMENTSTREAM_DAGSTER_PARALLEL_RUNS="6",
            DAGSTER_POSTGRES_URL=address,
        )  # fmt: skip
        eventually(lambda: len(shop.calls("step_1")) == 6)
        at_first = held()
        first.unlink()
        eventually(lambda: len(shop.calls("step_7")) == 6)
        eventually(lambda: held() <= at_first)
        last.unlink()
        ended = started.end()
        assert held() == 0
    assert ended.code == Exit.SUCCEEDED, ended.told
    assert 0 < at_first <= MOST_CONNECTIONS
    assert "too many connections" not in ended.told
    assert len(shop.calls()) == 6 * 7


def test_i2_a_wrong_password_or_database_is_told_at_once(shop: Shop) -> None:
    """What waiting cannot help is not waited for, and the message is about the database."""
    url = shop.url.replace("/test_", "/nothing_")
    ended = shop.run("lookup", DAGSTER_POSTGRES_URL=url)
    assert ended.code == Exit.INSTANCE
    assert "does not exist" in ended.told


def test_i2_postgres_restarted_in_the_middle_is_survived(shop: Shop) -> None:
    """Five seconds without Postgres while days run: the backfill ends with 0, each day once."""
    if not isinstance(shop.postgres, OwnPostgres):
        pytest.skip("needs a server that a test may stop: unset SEGMENTSTREAM_TEST_POSTGRES_URL")
    shop.gate.touch()
    started = shop.start("one_by_one", "05-01", "05-06", SEGMENTSTREAM_DAGSTER_PARALLEL_RUNS="2")
    shop.called(2)
    shop.postgres.stop()
    shop.gate.unlink()
    down_until = time.monotonic() + 5
    while time.monotonic() < down_until:  # the outage is the arrangement, not a wait for something
        time.sleep(0.1)
    shop.postgres.start()
    ended = started.end()
    assert ended.code == Exit.SUCCEEDED, ended.told
    assert shop.rows("one_by_one") == dict.fromkeys(days(1, 6), 1)
    assert set(shop.materialized()) == set(days(1, 6))


def test_i2_postgres_that_comes_up_late_is_waited_for(shop: Shop) -> None:
    """A start while Postgres is down waits for it, within limits."""
    if not isinstance(shop.postgres, OwnPostgres):
        pytest.skip("needs a server that a test may stop: unset SEGMENTSTREAM_TEST_POSTGRES_URL")
    shop.postgres.stop()
    started = shop.start("lookup")
    eventually((shop.folder / "home" / "dagster.yaml").exists)
    shop.postgres.start()
    ended = started.end()
    assert ended.code == Exit.SUCCEEDED, ended.told


def test_i2_a_long_outage_ends_with_one_message_and_the_same_id_goes_on(shop: Shop) -> None:
    """Postgres is away for longer than is waited for: 14, no traceback, nothing is lost."""
    if not isinstance(shop.postgres, OwnPostgres):
        pytest.skip("needs a server that a test may stop: unset SEGMENTSTREAM_TEST_POSTGRES_URL")
    run_id = str(uuid4())
    shop.gate.touch()
    started = shop.start(
        "one_by_one", "05-01", "05-02", SEGMENTSTREAM_RUN_ID=run_id,
        constants={"segmentstream.runtime.backfills._SECONDS_OF_OUTAGE": 0.0},
    )  # fmt: skip
    shop.called(2)
    shop.postgres.stop()
    shop.gate.unlink()
    ended = started.end()
    late = shop.run("lookup", constants={"segmentstream.runtime.instance.SECONDS_TO_ANSWER": 0.0})
    shop.postgres.start()
    assert (ended.code, late.code) == (Exit.INSTANCE,) * 2, ended.told + late.told
    *before, last = ended.told.splitlines()
    assert json.loads(last)["message"] == (
        "Postgres was out of reach for too long: DagsterPostgresException. See that it runs and "
        "start again: the same run id goes on with the days that are left."
    )
    assert not [line for line in before if "exit_code" in line or "Traceback" in line]
    assert len(late.told.splitlines()) == 1
    again = shop.run("one_by_one", "05-01", "05-02", SEGMENTSTREAM_RUN_ID=run_id)
    assert again.code == Exit.SUCCEEDED, again.told
    assert shop.rows("one_by_one") == dict.fromkeys(days(1, 2), 1)


@pytest.mark.parametrize(
    "error",
    [
        DagsterPostgresException("too many retries"),
        OperationalError("SELECT 1", {}, Exception(SECRET)),
    ],
    ids=lambda error: type(error).__name__,
)
def test_i2_an_outage_anywhere_is_one_message_about_the_database(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, error: Exception
) -> None:
    """Wherever Postgres is lost it ends with 14, in the driver's words or in Dagster's."""

    def lose(_environ: object, _stop: object) -> Exit:
        raise error

    monkeypatch.setattr(run_job, "_do", lose)
    monkeypatch.setattr(run_job, "_listen", lambda _stop: None)
    monkeypatch.setattr(run_job, "start_telling", lambda **_: None)
    assert run_job.main({}) == Exit.INSTANCE
    (line,) = caplog.messages
    assert line.startswith(f"Postgres was out of reach for too long: {type(error).__name__}.")
    assert SECRET not in line


@pytest.mark.parametrize("mode", ["migrate", "execute"])
def test_i3_two_first_starts_at_once_and_a_third_leave_one_whole_schema(
    host: Host, postgres: Postgres, tmp_path: Path, mode: str
) -> None:
    """On an empty database one makes all tables and the other waits; a migration changes nothing.

    The three storages of Dagster are there: of runs, of their events, and of schedules.
    """
    with postgres.database() as url:
        shop = Shop(host=host, postgres=postgres, url=url, folder=tmp_path)
        both = [shop.start("lookup", SEGMENTSTREAM_DAGSTER_MODE=mode) for _ in range(2)]
        assert [each.end().code for each in both] == [Exit.SUCCEEDED] * 2, both[0].told()
        assert shop.run("", SEGMENTSTREAM_DAGSTER_MODE="migrate").code == Exit.SUCCEEDED
        found = postgres.run(
            "SELECT table_name FROM information_schema.tables WHERE table_schema = 'public'",
            url=url,
        )
        assert {("runs",), ("event_logs",), ("job_ticks",), ("alembic_version",)} <= set(found)
        assert postgres.run("SELECT count(*) FROM alembic_version", url=url) == [(1,)]


def test_i4_a_socket_folder_is_an_address(shop: Shop) -> None:
    """Where the host is a folder, as on Cloud SQL, runs are kept; a password reaches no line."""
    url = make_url(shop.url)
    folder = url.query.get("host")
    if not isinstance(folder, str):
        pytest.skip("needs a server on a socket: unset SEGMENTSTREAM_TEST_POSTGRES_URL")
    parts = {
        "DAGSTER_POSTGRES_URL": None,
        "SEGMENTSTREAM_DAGSTER_POSTGRES_HOST": folder,
        "SEGMENTSTREAM_DAGSTER_POSTGRES_USER": url.username,
        "SEGMENTSTREAM_DAGSTER_POSTGRES_PASSWORD": SECRET,
        "SEGMENTSTREAM_DAGSTER_POSTGRES_DATABASE": url.database,
    }
    ended = shop.run("lookup", **parts)
    assert (ended.code, shop.statuses()) == (Exit.SUCCEEDED, ["SUCCESS"]), ended.told
    wrong = shop.run("lookup", **parts | {"SEGMENTSTREAM_DAGSTER_POSTGRES_DATABASE": "nothing"})
    assert (wrong.code, folder in wrong.told, "***" in wrong.told) == (Exit.INSTANCE, True, True)
    assert SECRET not in ended.told + wrong.told


def test_i5_a_fresh_process_takes_a_fresh_password(shop: Shop) -> None:
    """A password that changes between runs is read at each start; nothing pools connections.

    The old one is refused at once, and neither is in any line.
    """
    if not isinstance(shop.postgres, OwnPostgres):
        pytest.skip("needs a server whose rules a test may change")
    assert isinstance(PostgresEventLogStorage(shop.url)._engine.pool, NullPool)
    url = make_url(shop.url)
    with a_user(shop, "PASSWORD 'first-token'") as (name, _):
        shop.postgres.require_password(name)
        parts = {
            "DAGSTER_POSTGRES_URL": None,
            "SEGMENTSTREAM_DAGSTER_POSTGRES_HOST": str(url.query["host"]),
            "SEGMENTSTREAM_DAGSTER_POSTGRES_USER": name,
            "SEGMENTSTREAM_DAGSTER_POSTGRES_DATABASE": url.database,
        }
        password = "SEGMENTSTREAM_DAGSTER_POSTGRES_PASSWORD"
        before = shop.run("lookup", **parts, **{password: "first-token"})
        shop.postgres.run(f"ALTER ROLE {name} PASSWORD 'second-token'")
        old = shop.run("lookup", **parts, **{password: "first-token"})
        fresh = shop.run("lookup", **parts, **{password: "second-token"})
    assert (before.code, fresh.code) == (Exit.SUCCEEDED,) * 2, before.told + fresh.told
    assert (old.code, "authentication failed" in old.told) == (Exit.INSTANCE, True), old.told
    assert "-token" not in before.told + old.told + fresh.told
