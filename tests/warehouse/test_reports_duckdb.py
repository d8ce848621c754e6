"""What users of other tools reported about embedded DuckDB, tried here.

Each test is named after the report it answers (area E). Other processes are real ones; what they
do is in `sharing.py`.
"""

import multiprocessing
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import chdir
from datetime import date, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import duckdb
import ibis
import ibis.expr.types as ir
import pytest
from dagster import DagsterInstance, JobExecutionResult, execute_job, reconstructable

import segmentstream.dagster as dg
from segmentstream import (
    WAREHOUSE_IO_MANAGER_KEY,
    WarehouseConnectionError,
    WarehouseResource,
    warehouse_asset_metadata,
    warehouse_resources,
)
from segmentstream._warehouse.engines.duckdb.database import find_database
from segmentstream._warehouse.tables import TableRef
from warehouse import sharing

type Query = Callable[..., list[tuple[Any, ...]]]

_ROOT_OF_TESTS = Path(__file__).parents[1]
_ORDERS = TableRef(catalog="", namespace="shop", name="orders")


@pytest.fixture
def variables(catalog: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The warehouse of the test as variables, which children inherit."""
    _set_variables(monkeypatch, catalog=str(catalog))


@pytest.mark.slow
@pytest.mark.usefixtures("variables")
def test_e1_one_writer_and_four_readers_share_the_file(
    catalog: Path, tmp_path: Path, query: Query
) -> None:
    """Steps in processes of their own that read and write at the same moment all succeed."""
    with duckdb.connect(catalog) as connection:
        connection.execute("CREATE SCHEMA shop")
        connection.execute(
            f"CREATE TABLE shop.events AS SELECT range AS event_id FROM range({sharing.EVENTS})"
        )

    result = _execute(sharing.sharing_job, tmp_path)

    assert _errors(result) == []
    assert len(list((tmp_path / "arrived").iterdir())) == sharing.READERS + 1
    assert query("SELECT count(*), sum(twice - event_id) FROM shop.written") == [
        (sharing.EVENTS, sum(range(sharing.EVENTS)))
    ]


@pytest.mark.parametrize("doing", ["reading", "writing"])
def test_e1_a_wait_that_runs_out_names_the_file_and_the_holder(catalog: Path, doing: str) -> None:
    """A run that waited in vain says which file it could not open and which process has it."""
    impatient = warehouse_resources(
        warehouse=WarehouseResource(
            engine="duckdb", catalog=str(catalog), default_namespace="main", wait_seconds=0.3
        )
    )
    assets: list[dg.AssetsDefinition | dg.AssetSpec] = [sharing.numbers]
    if doing == "reading":
        dg.materialize(assets, resources=impatient)
        assets = [dg.AssetSpec(["shop", "numbers"]).with_io_manager_key("warehouse_io"), _reader()]

    with sharing.holder(catalog) as pid, pytest.raises(WarehouseConnectionError) as caught:
        dg.materialize(assets, resources=impatient)

    assert str(catalog) in caught.value.problem
    assert f"process {pid} " in caught.value.problem
    assert caught.value.retryable


@pytest.mark.slow
@pytest.mark.usefixtures("variables")
def test_e2_thirty_days_six_at_a_time_are_all_written_once(query: Query) -> None:
    """A backfill by six processes on one file loses no day and doubles none, also one run twice."""
    days = [date(2024, 5, 1) + timedelta(days=n) for n in range(30)]
    keys = [day.isoformat() for day in days]

    with ProcessPoolExecutor(6, mp_context=multiprocessing.get_context("spawn")) as pool:
        succeeded = list(pool.map(sharing.materialize_day, [*keys, *keys[:6]]))

    assert succeeded == [True] * 36
    by_day = "SELECT day, count(*), count(DISTINCT order_id) FROM shop.orders GROUP BY 1 ORDER BY 1"
    assert query(by_day) == [(day, sharing.ORDERS_A_DAY, sharing.ORDERS_A_DAY) for day in days]


@pytest.mark.parametrize("outcome", ["success", "write fails", "function fails", "read fails"])
def test_e3_the_file_is_free_after_a_run(
    catalog: Path, resources: dict[str, Any], outcome: str
) -> None:
    """Another process opens the file for writing while the one that ran is alive and keeps all."""
    dg.materialize([sharing.numbers], resources=resources)
    kept: list[object] = []

    @dg.asset(
        key=["shop", "more"],
        io_manager_key=WAREHOUSE_IO_MANAGER_KEY,
        ins={"numbers": dg.AssetIn(key=["shop", "numbers"])},
    )
    def more(numbers: ir.Table) -> ir.Table:
        kept.append(numbers)
        broken = numbers.select(n=ibis.literal("no number").cast("int64"))
        kept.append(numbers.count().execute())
        if outcome == "read fails":
            broken.execute()
        if outcome == "function fails":
            raise RuntimeError("the function fails")
        return broken if outcome == "write fails" else numbers

    result = dg.materialize([sharing.numbers, more], resources=resources, raise_on_error=False)

    kept.append(result)
    assert result.success == (outcome == "success")
    assert kept[1] == 1
    _write_from_another_process(catalog)


@pytest.mark.parametrize("file", ["held by another process", "missing"])
@pytest.mark.usefixtures("variables")
def test_e3_loading_definitions_does_not_open_the_file(catalog: Path, file: str) -> None:
    """A code location loads and lists its assets while another process has the file, or none has."""
    code = (
        "from warehouse import sharing\n"
        "import segmentstream.dagster as dg\n"
        "from segmentstream import warehouse_resources\n"
        "defs = dg.Definitions([sharing.orders, sharing.events_table, sharing.numbers],\n"
        "                      resources=warehouse_resources())\n"
        "dg.Definitions.validate_loadable(defs)\n"
        "print(len(defs.resolve_all_asset_specs()))\n"
    )

    if file == "missing":
        assert _run(code) == "3\n"
        assert not catalog.exists()
    else:
        with sharing.holder(catalog):
            assert _run(code) == "3\n"


def test_e4_two_threads_materialize_through_one_resource_object(
    resources: dict[str, Any], query: Query
) -> None:
    """Runs of two threads that share every resource write their assets without an error."""
    together = threading.Barrier(2)

    def run(name: str) -> None:
        @dg.asset(key=["shop", name], io_manager_key=WAREHOUSE_IO_MANAGER_KEY)
        def table() -> ir.Table:
            together.wait(60)
            return ibis.range(20_000).unnest().name("n").as_table()

        for _ in range(3):
            assert dg.materialize([table], resources=resources).success

    _in_threads(lambda: run("left"), lambda: run("right"))

    for name in ("left", "right"):
        assert query(f"SELECT count(*), count(DISTINCT n) FROM shop.{name}") == [(20_000, 20_000)]


def test_e4_two_threads_write_days_of_one_table_and_others_read(
    warehouse: WarehouseResource, query: Query
) -> None:
    """Threads of one resource replace days of one table, and readers see each day whole or absent."""
    rows = 2_000
    first, second = date(2024, 5, 1), date(2024, 5, 2)
    engine = warehouse.open_engine()
    engine.replace_partitions(_ORDERS, _orders_of(first, rows=rows), "day", {first})
    together = threading.Barrier(4)
    done = threading.Event()
    seen: set[frozenset[tuple[date, int]]] = set()

    def write(day: date) -> None:
        together.wait(60)
        for _ in range(8):
            engine.replace_partitions(_ORDERS, _orders_of(day, rows=rows), "day", {day})

    def write_both() -> None:
        try:
            _in_threads(lambda: write(first), lambda: write(second))
        finally:
            done.set()

    def read() -> None:
        together.wait(60)
        while not done.is_set():
            table = warehouse.table(name="orders", namespace="shop")
            counted = table.group_by("day").agg(rows=table.count()).to_pyarrow().to_pylist()
            seen.add(frozenset((row["day"], row["rows"]) for row in counted))

    _in_threads(write_both, read, read)

    assert seen <= {
        frozenset({(first, rows)}),
        frozenset({(first, rows), (second, rows)}),
    }
    assert query("SELECT day, count(*) FROM shop.orders GROUP BY 1 ORDER BY 1") == [
        (first, rows),
        (second, rows),
    ]


@pytest.mark.slow
def test_e4_many_threads_open_and_close_at_once(catalog: Path) -> None:
    """A thread that opens the file never trips over the last one that is just closing it."""
    database = find_database(str(catalog))
    together = threading.Barrier(8)

    def work(*, write: bool) -> None:
        together.wait(60)
        for _ in range(150):
            with database.session(write=write, wait_seconds=60) as connection:
                connection.execute("SELECT 1")

    with database.session(write=True, wait_seconds=60):
        pass
    _in_threads(*[partial(work, write=number < 2) for number in range(8)])


@pytest.mark.parametrize("catalog_name", [":memory:", ":memory:e5"])
def test_e5_memory_is_one_database_for_the_runs_of_a_process(
    catalog_name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A table in memory is there for later runs of the process, and no file of that name appears."""
    monkeypatch.chdir(tmp_path)
    found: list[int] = []

    @dg.asset(
        key=["e5", "orders"],
        partitions_def=sharing.DAILY,
        metadata=warehouse_asset_metadata(partition_by_date="day"),
        io_manager_key=WAREHOUSE_IO_MANAGER_KEY,
    )
    def orders(context: dg.AssetExecutionContext) -> ir.Table:
        return _orders_of(date.fromisoformat(context.partition_key), rows=2)

    @dg.asset(deps=[orders])
    def reader(warehouse: WarehouseResource) -> None:
        found.append(warehouse.table(name="orders", namespace="e5").count().execute())

    for _ in range(2):
        for day in ("2024-05-01", "2024-05-02"):
            assert dg.materialize(
                [orders], resources=_resources_on(catalog_name), partition_key=day
            ).success
    assert dg.materialize([reader], resources=_resources_on(catalog_name)).success

    assert found == [4]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_e5_memory_is_refused_in_several_processes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A step in a process of its own says which variable to change, before its function is called."""
    _set_variables(monkeypatch, catalog=":memory:")

    result = _execute(sharing.numbers_job, tmp_path)

    assert not result.success
    assert any(
        "SEGMENTSTREAM_WAREHOUSE_CATALOG is ':memory:', but this run spreads over several processes"
        in error
        for error in _errors(result)
    )
    assert not any("STEP_OUTPUT" in str(event.event_type_value) for event in result.all_events)


def test_e5_a_relative_path_is_one_file_of_the_workspace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A relative path means the same file from every folder of a workspace, and stays there."""
    workspace = tmp_path / "workspace"
    inner = workspace / "pipeline" / "assets"
    inner.mkdir(parents=True)
    (workspace / "pyproject.toml").touch()
    found: list[int] = []

    @dg.asset(deps=[sharing.numbers])
    def reader(warehouse: WarehouseResource) -> None:
        found.append(warehouse.table(name="numbers", namespace="shop").count().execute())

    monkeypatch.chdir(workspace)
    assert dg.materialize([sharing.numbers], resources=_resources_on("data/shop.duckdb")).success
    monkeypatch.chdir(inner)
    assert dg.materialize([reader], resources=_resources_on("data/shop.duckdb")).success

    assert found == [1]
    assert list(tmp_path.rglob("*.duckdb")) == [workspace / "data" / "shop.duckdb"]


def _reader() -> dg.AssetsDefinition:
    @dg.asset(ins={"numbers": dg.AssetIn(key=["shop", "numbers"])})
    def reader(numbers: ir.Table) -> None:
        numbers.execute()

    return reader


def _resources_on(catalog: str) -> dict[str, Any]:
    return warehouse_resources(
        warehouse=WarehouseResource(engine="duckdb", catalog=catalog, default_namespace="main")
    )


def _set_variables(monkeypatch: pytest.MonkeyPatch, *, catalog: str) -> None:
    monkeypatch.setenv("SEGMENTSTREAM_WAREHOUSE_ENGINE", "duckdb")
    monkeypatch.setenv("SEGMENTSTREAM_WAREHOUSE_CATALOG", catalog)
    monkeypatch.setenv("SEGMENTSTREAM_WAREHOUSE_DEFAULT_NAMESPACE", "main")


def _orders_of(day: date, *, rows: int) -> ir.Table:
    return ibis.range(rows).unnest().name("order_id").as_table().mutate(day=ibis.literal(day))


def _execute(job: Callable[[], Any], folder: Path) -> JobExecutionResult:
    """Runs a job on an instance in files, as steps in processes of their own need it."""
    without_telemetry = {"telemetry": {"enabled": False}}
    with (
        DagsterInstance.local_temp(str(folder), overrides=without_telemetry) as instance,
        chdir(_ROOT_OF_TESTS),  # where the step processes look for the job's module
    ):
        return execute_job(reconstructable(job), instance=instance, raise_on_error=False)


def _errors(result: JobExecutionResult) -> list[str]:
    """The errors of a run's events, with their causes."""
    data = [event.event_specific_data for event in result.all_events]
    return [str(error) for each in data if (error := getattr(each, "error", None))]


def _in_threads(*works: Callable[[], None]) -> None:
    """Does everything at the same time, and raises what any of it raised."""
    with ThreadPoolExecutor(len(works)) as pool:
        for future in [pool.submit(work) for work in works]:
            future.result(timeout=120)


def _write_from_another_process(catalog: Path) -> None:
    code = "import duckdb, sys; duckdb.connect(sys.argv[1]).execute('CREATE TABLE theirs (n INT)')"
    subprocess.run([sys.executable, "-c", code, catalog], check=True, timeout=60)


def _run(code: str) -> str:
    """Runs code in a fresh interpreter that can import what the tests can; gives what it printed."""
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | {"PYTHONPATH": str(_ROOT_OF_TESTS)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
