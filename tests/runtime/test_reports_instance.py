"""What users of Dagster reported about its instance in Postgres, tried on the runtime.

Each test is named after the report it answers (area I).
"""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from sqlalchemy.engine import make_url

from postgres import OwnPostgres, Postgres
from runtime.shops import Host, Shop, days, eventually
from segmentstream.runtime.exits import Exit

pytestmark = pytest.mark.slow
SECRET = "p@s:s/w%r d#?&é"


def test_i1_parallel_runs_keep_few_connections(shop: Shop) -> None:
    """Six runs at a time never hold more than two connections each, and one for the claim."""
    shop.gate.touch()
    started = shop.start("one_by_one", "05-01", "05-06", SEGMENTSTREAM_DAGSTER_PARALLEL_RUNS="6")
    counts: list[int] = []

    def are_all_there() -> bool:
        query = "SELECT count(*) FROM pg_stat_activity WHERE datname = %s"
        counts.append(shop.postgres.run(query, make_url(shop.url).database)[0][0])
        if len(shop.calls()) == 6:
            shop.gate.unlink(missing_ok=True)
        return len(shop.calls()) == 6 and "0 days left" in started.told()

    eventually(are_all_there)
    assert started.end().code == Exit.SUCCEEDED
    assert max(counts) <= 13


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


def test_i3_two_first_migrations_at_once_and_a_third_leave_one_whole_schema(
    host: Host, postgres: Postgres, tmp_path: Path
) -> None:
    """On an empty database one makes all tables and the other waits; again changes nothing."""
    with postgres.database() as url:
        shop = Shop(host=host, postgres=postgres, url=url, folder=tmp_path)
        both = [shop.start("", SEGMENTSTREAM_DAGSTER_MODE="migrate") for _ in range(2)]
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
