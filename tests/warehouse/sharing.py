"""What several processes do to one DuckDB file.

The warehouse is the one that the variables name: a child inherits them, whoever starts it.
"""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import ibis
import ibis.expr.types as ir
from dagster import JobDefinition

import segmentstream.dagster as dg
from segmentstream import (
    WAREHOUSE_IO_MANAGER_KEY,
    external_table_asset,
    warehouse_asset_metadata,
    warehouse_resources,
)

EVENTS = 5_000
ORDERS_A_DAY = 40
READERS = 4
DAILY = dg.DailyPartitionsDefinition(
    start_date="2024-05-01", end_date="2024-06-01", timezone="Europe/Berlin"
)

_PATIENCE_SECONDS = 240

events_table = external_table_asset(key=["shop", "events"])


@dg.asset(
    key=["shop", "written"],
    ins={"events": dg.AssetIn(key=["shop", "events"])},
    io_manager_key=WAREHOUSE_IO_MANAGER_KEY,
)
def written(events: ir.Table) -> ir.Table:
    """Is written while all the readers read."""
    _meet()
    return events.mutate(twice=events.event_id * 2)


@dg.asset(
    key=["shop", "orders"],
    partitions_def=DAILY,
    metadata=warehouse_asset_metadata(partition_by_date="day"),
    io_manager_key=WAREHOUSE_IO_MANAGER_KEY,
)
def orders(context: dg.AssetExecutionContext) -> ir.Table:
    """Is written a day at a time by many processes."""
    return ibis.memtable({"order_id": range(ORDERS_A_DAY)}).mutate(
        day=ibis.date(context.partition_key)
    )


@dg.asset(key=["shop", "numbers"], io_manager_key=WAREHOUSE_IO_MANAGER_KEY)
def numbers() -> ir.Table:
    """Is the smallest table there can be."""
    return ibis.memtable({"n": [1]})


def sharing_job() -> JobDefinition:
    """Runs one writer and four readers, each in a process of its own and all at once."""
    return _multiprocess_job([events_table, written, *map(_make_reader, range(READERS))])


def numbers_job() -> JobDefinition:
    """Runs one asset in a process of its own."""
    return _multiprocess_job([numbers])


def materialize_day(partition_key: str) -> bool:
    """Materializes one day of `orders` in this process, and says whether that went well."""
    return dg.materialize(
        [orders],
        resources=warehouse_resources(),
        partition_key=partition_key,
        raise_on_error=False,
    ).success


@contextmanager
def holder(catalog: Path, *, read_only: bool = False) -> Iterator[int]:
    """Keeps the file open in another process; gives that process's number."""
    code = (
        "import duckdb, sys\n"
        "connection = duckdb.connect(sys.argv[1], read_only=sys.argv[2] == 'True')\n"
        "print('open', flush=True)\n"
        "sys.stdin.readline()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, catalog, str(read_only)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout
        assert process.stdout.readline() == "open\n"
        try:
            yield process.pid
        finally:
            process.communicate("\n")


def _make_reader(number: int) -> dg.AssetsDefinition:
    @dg.asset(name=f"reader_{number}", ins={"events": dg.AssetIn(key=["shop", "events"])})
    def reader(events: ir.Table) -> None:
        _meet()
        assert events.count().execute() == EVENTS

    return reader


def _multiprocess_job(assets: list[dg.AssetsDefinition | dg.AssetSpec]) -> JobDefinition:
    at_once = dg.multiprocess_executor.configured({"max_concurrent": READERS + 1})
    return dg.Definitions(
        assets=assets,
        jobs=[dg.define_asset_job("job", executor_def=at_once)],
        resources=warehouse_resources(),
    ).resolve_job_def("job")


def _meet() -> None:
    """Waits until the writer and every reader have come here, each in its own process."""
    place = Path(os.environ["SEGMENTSTREAM_WAREHOUSE_CATALOG"]).parent / "arrived"
    place.mkdir(exist_ok=True)
    (place / str(os.getpid())).touch()
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while len(list(place.iterdir())) < READERS + 1:
        assert time.monotonic() < deadline, "The other steps did not start."
        time.sleep(0.005)
