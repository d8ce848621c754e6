"""Sharing one file: what waits, for how long, and what the message says when it ends."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import duckdb
import ibis
import pytest

from segmentstream._core.errors import (
    WarehouseConfigurationError,
    WarehouseConnectionError,
    WarehouseReadError,
)
from segmentstream._warehouse.engine import WarehouseEngine
from segmentstream._warehouse.engines.duckdb import database as database_module
from segmentstream._warehouse.engines.duckdb import errors
from segmentstream._warehouse.engines.duckdb.database import find_database
from segmentstream._warehouse.tables import TableRef
from warehouse.sharing import holder

TABLE = TableRef(catalog="", namespace="main", name="numbers")


def test_a_wait_that_runs_out_names_the_file_and_the_holder(catalog: Path) -> None:
    """Whoever reads the message can close what is in the way; it is told to be worth a retry."""
    with holder(catalog) as pid:
        for write in (True, False):
            started = time.monotonic()
            with (
                pytest.raises(WarehouseConnectionError) as refused,
                find_database(str(catalog)).session(write=write, wait_seconds=0.3),
            ):
                pass
            assert str(catalog) in str(refused.value)
            assert f"process {pid}" in str(refused.value)
            assert refused.value.retryable
            assert time.monotonic() - started < 30


def test_a_waiting_write_goes_on_when_the_file_is_given_back(
    catalog: Path, engine: WarehouseEngine
) -> None:
    """A write that meets a busy file waits for it and then succeeds."""
    with holder(catalog):
        thread = threading.Thread(target=engine.replace, args=(TABLE, ibis.memtable({"n": [1]})))
        thread.start()
        thread.join(0.2)
        assert thread.is_alive()
    thread.join(60)
    assert engine.read(TABLE).count().execute() == 1


def test_reading_takes_no_write_lock(catalog: Path, engine: WarehouseEngine) -> None:
    """Other readers may have the file open, before and while this process reads it."""
    engine.replace(TABLE, ibis.memtable({"n": [1, 2]}))
    with holder(catalog, read_only=True):
        assert engine.read(TABLE).count().execute() == 2


def test_the_file_is_free_between_calls(catalog: Path, engine: WarehouseEngine) -> None:
    """Holding an engine and lazy tables does not hold the file."""
    engine.replace(TABLE, ibis.memtable({"n": [1, 2]}))
    table = engine.read(TABLE)
    with holder(catalog):
        assert table.filter(table.n > 1) is not None
    assert table.count().execute() == 2


def test_a_stream_holds_the_file_until_it_is_read(catalog: Path, engine: WarehouseEngine) -> None:
    """Batches come from the version that was there when the stream began."""
    engine.replace(TABLE, ibis.range(10_000).unnest().name("n").as_table())
    stream = engine.read(TABLE).to_pyarrow_batches(chunk_size=2048)
    first = stream.read_next_batch()
    assert engine.read(TABLE).count().execute() == 10_000
    rest = sum(batch.num_rows for batch in stream)
    assert first.num_rows + rest == 10_000
    with holder(catalog):
        pass
    forgotten = engine.read(TABLE).to_pyarrow_batches()
    del forgotten
    with holder(catalog):
        pass


def test_a_user_connection_in_the_way_is_waited_for_and_named(
    catalog: Path, engine: WarehouseEngine
) -> None:
    """A connection that the user's own code opened cannot be shared, and the message says so."""
    engine.replace(TABLE, ibis.memtable({"n": [1]}))
    with (
        duckdb.connect(catalog),
        pytest.raises(WarehouseConnectionError, match="did not open"),
        find_database(str(catalog)).session(write=False, wait_seconds=0.1),
    ):
        pass


def test_a_writer_waits_for_the_readers_of_its_own_process(
    catalog: Path, engine: WarehouseEngine
) -> None:
    """Threads that read finish first; the wait is bounded and says who is in the way."""
    engine.replace(TABLE, ibis.memtable({"n": [1]}))
    database = find_database(str(catalog))
    with (
        database.session(write=False, wait_seconds=1),
        pytest.raises(WarehouseConnectionError, match="another thread of this process"),
        database.session(write=True, wait_seconds=0.1),
    ):
        pass
    with database.session(write=True, wait_seconds=1) as connection:
        assert connection.execute("SELECT n FROM numbers").fetchall() == [(1,)]


def test_a_reading_thread_may_read_again_while_a_writer_waits(
    catalog: Path, engine: WarehouseEngine
) -> None:
    """A thread never waits for itself behind a writer that waits for it."""
    engine.replace(TABLE, ibis.memtable({"n": [1]}))
    database = find_database(str(catalog))
    wrote = threading.Event()

    def write() -> None:
        engine.replace(TABLE, ibis.memtable({"n": [1, 2]}))
        wrote.set()

    with database.session(write=False, wait_seconds=5):
        writer = threading.Thread(target=write)
        writer.start()
        while not database._writers_waiting:  # type: ignore[attr-defined]  # looks inside
            time.sleep(0.001)
        with database.session(write=False, wait_seconds=5) as connection:
            assert connection.execute("SELECT count(*) FROM numbers").fetchall() == [(1,)]
        assert not wrote.is_set()
    writer.join(60)
    assert engine.read(TABLE).count().execute() == 2


def test_a_file_that_is_no_database_is_refused(catalog: Path, engine: WarehouseEngine) -> None:
    """The message names the file and nothing of it is changed."""
    catalog.write_text("not a database" * 1000)
    for call in (
        lambda: engine.read(TABLE),
        lambda: engine.replace(TABLE, ibis.memtable({"n": [1]})),
    ):
        with pytest.raises(WarehouseConnectionError, match=f"{catalog}.*not a valid DuckDB"):
            call()
    assert catalog.read_text() == "not a database" * 1000


def test_a_file_that_another_process_is_making_is_waited_for(
    catalog: Path, tmp_path: Path, engine: WarehouseEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """DuckDB locks a new file after it has made it: who finds it empty looks again."""
    made = tmp_path / "made.duckdb"
    with duckdb.connect(made) as connection:
        connection.execute("CREATE TABLE numbers AS SELECT 1 AS n")
    catalog.touch()
    monkeypatch.setattr(time, "sleep", lambda _: made.replace(catalog))
    numbers = TableRef(catalog="", namespace="main", name="numbers")
    assert engine.read(numbers).count().execute() == 1


def test_a_file_that_stays_empty_is_refused(
    catalog: Path, engine: WarehouseEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody waits for ever for a file that its maker has left empty."""
    monkeypatch.setattr(database_module, "_SECONDS_TO_BE_MADE", 0.05)
    catalog.touch()
    with pytest.raises(WarehouseConnectionError, match="not a valid DuckDB"):
        engine.describe(TABLE)


def test_a_folder_in_place_of_the_file_is_refused(catalog: Path, engine: WarehouseEngine) -> None:
    """An unreadable place is an error, never an empty warehouse."""
    catalog.mkdir()
    with pytest.raises(WarehouseConnectionError, match="cannot be opened"):
        engine.describe(TABLE)


def test_a_path_through_a_file_is_refused(catalog: Path) -> None:
    """A folder that cannot be made is named."""
    catalog.write_text("")
    with (
        pytest.raises(WarehouseConnectionError, match="folder"),
        find_database(str(catalog / "deep.duckdb")).session(write=True, wait_seconds=1),
    ):
        pass


def test_the_folder_of_the_file_is_made(tmp_path: Path) -> None:
    """The first write needs no preparation."""
    path = tmp_path / "data" / "warehouse.duckdb"
    with find_database(str(path)).session(write=True, wait_seconds=1):
        pass
    assert path.is_file()


@pytest.mark.parametrize("catalog", ["s3://bucket/x.duckdb", "md:mine", "https://host/x.duckdb"])
def test_what_is_no_local_file_is_refused(catalog: str) -> None:
    """Embedded DuckDB writes to a file of this machine only."""
    with pytest.raises(WarehouseConfigurationError, match="no file of this machine"):
        find_database(catalog)


def test_a_connection_outside_a_query_is_refused(engine: WarehouseEngine) -> None:
    """Reaching for the raw connection says why there is none, and what to use."""
    engine.replace(TABLE, ibis.memtable({"n": [1]}))
    with pytest.raises(WarehouseConnectionError, match="only while a query runs"):
        engine.read(TABLE).get_backend().raw_sql("SELECT 1")


def test_a_query_that_cannot_be_computed_is_a_read_error(engine: WarehouseEngine) -> None:
    """DuckDB's own error stays the cause."""
    engine.replace(TABLE, ibis.memtable({"n": ["x"]}))
    with pytest.raises(WarehouseReadError) as failed:
        engine.read(TABLE).n.cast("int64").execute()
    assert isinstance(failed.value.__cause__, duckdb.ConversionException)


def test_a_failed_close_does_not_fail_the_write(
    engine: WarehouseEngine, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """What was committed is told as committed; the trouble afterwards is logged."""

    class ClosesBadly:
        def __init__(self, connection: duckdb.DuckDBPyConnection) -> None:
            self.connection = connection

        def __getattr__(self, name: str) -> object:
            return getattr(self.connection, name)

        def close(self) -> None:
            self.connection.close()
            raise duckdb.IOException("disk full while the log was folded in")

    connect = duckdb.connect
    monkeypatch.setattr(duckdb, "connect", lambda *a, **o: ClosesBadly(connect(*a, **o)))
    with caplog.at_level(logging.WARNING):
        assert engine.replace(TABLE, ibis.memtable({"n": [1]})).rows == 1
    assert "could not be closed" in caplog.text
    monkeypatch.undo()
    assert engine.read(TABLE).count().execute() == 1


def test_every_error_of_duckdb_has_a_meaning() -> None:
    """A release of DuckDB that brings a new error is noticed."""
    known = {
        kind
        for kind in vars(duckdb).values()
        if isinstance(kind, type) and issubclass(kind, duckdb.Error)
    }
    assert known <= set(errors.MEANINGS)


@pytest.mark.slow
def test_processes_that_start_together_on_a_new_file_all_succeed(catalog: Path) -> None:
    """Whoever comes first makes the file, and nobody mistakes a half-made one for a broken one."""
    code = (
        "import sys, ibis\n"
        "from segmentstream._warehouse.registry import create_engine\n"
        "from segmentstream._warehouse.settings import WarehouseSettings\n"
        "from segmentstream._warehouse.tables import TableRef\n"
        f"settings = WarehouseSettings(engine='duckdb', catalog={str(catalog)!r}, default_namespace='main')\n"
        "engine = create_engine(settings)\n"
        "print('ready', flush=True); sys.stdin.readline()\n"
        "table = TableRef(catalog='', namespace='main', name='t' + sys.argv[1])\n"
        "engine.describe(table)\n"
        "engine.replace(table, ibis.memtable({'n': [1]}))\n"
        "assert engine.read(table).count().execute() == 1\n"
    )
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", code, str(number)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ,
        )
        for number in range(6)
    ]
    for process in processes:
        assert process.stdout
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        assert process.stdin
        process.stdin.write("\n")
        process.stdin.flush()
    assert [process.wait(120) for process in processes] == [0] * 6
    for process in processes:
        process.communicate()
    with duckdb.connect(catalog, read_only=True) as connection:
        assert len(connection.execute("SELECT * FROM duckdb_tables()").fetchall()) == 6
