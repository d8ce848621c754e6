"""Writes to BigQuery in children that are killed or race, for tests that need processes.

Run as a process of its own: it imports everything once and forks a child for each task, so that
thirty crashes take seconds. A line on its standard input is a list of tasks in JSON, which run at
the same time; it answers with one line of their process ids and one of what came of each: what the
child told, or null when it was killed.
"""

from __future__ import annotations

import gc
import io
import json
import os
import signal
import sys
from collections.abc import Mapping
from datetime import date
from typing import Any, NoReturn

import ibis
import ibis.expr.types as ir
import pyarrow as pa
import pyarrow.parquet as pq

import segmentstream.dagster as dg
from bigquery.cases import OPERATIONS, SOURCE, Ending
from bigquery.fixtures import new_settings
from segmentstream import (
    WAREHOUSE_IO_MANAGER_KEY,
    WarehouseResource,
    warehouse_asset_metadata,
    warehouse_resources,
)
from segmentstream._core.names import EMULATOR_VARIABLE
from segmentstream._warehouse.engine import WarehouseEngine, WriteResult
from segmentstream._warehouse.engines.bigquery import client, jobs, staging
from segmentstream._warehouse.registry import create_engine
from segmentstream._warehouse.tables import TableRef

_DAILY = dg.DailyPartitionsDefinition(start_date="2024-05-01", end_date="2024-06-01")


def dates_of(engine: WarehouseEngine, table: TableRef, days: list[str]) -> WriteResult:
    """Replaces days by two rows each; the process is told by the number."""
    dates = [date.fromisoformat(day) for day in days]
    rows = [{"day": day, "n": 100 * day.day + i} for day in dates for i in range(2)]
    data = ibis.memtable(rows, schema={"day": "date", "n": "int64"})
    return engine.replace_partitions(table, data, "day", dates)


def run_of_dagster(task: Mapping[str, Any]) -> None:
    """Replaces the second of May as a run of Dagster."""

    @dg.asset(
        key=[task["dataset"], "target"],
        partitions_def=_DAILY,
        metadata=warehouse_asset_metadata(partition_by_date="day"),
        io_manager_key=WAREHOUSE_IO_MANAGER_KEY,
    )
    def target(warehouse: WarehouseResource) -> ir.Table:
        table = warehouse.table(name=SOURCE[1], namespace=SOURCE[0])
        return table.filter(table.day == date(2024, 5, 2)).select("day", "n")

    os.environ[EMULATOR_VARIABLE] = task["url"]
    resource = WarehouseResource(
        engine="bigquery", catalog=task["project"], default_namespace="main", wait_seconds=30
    )
    result = dg.materialize(
        [target],
        partition_key="2024-05-02",
        resources=warehouse_resources(warehouse=resource),
    )
    assert result.success


def write(task: Mapping[str, Any]) -> int | None:
    """Does one task and gives the number of rows written."""
    if task["kind"] == "dagster":
        run_of_dagster(task)
        return None
    engine = create_engine(new_settings(task["url"], catalog=task["project"]))
    table = TableRef(catalog=task["project"], namespace=task["dataset"], name="target")
    if task["kind"] == "dates":
        return dates_of(engine, table, task["days"]).rows
    source = engine.read(TableRef(catalog="", namespace=SOURCE[0], name=SOURCE[1]))
    return OPERATIONS[task["kind"]].write(engine, source, table).rows


def child(task: Mapping[str, Any], answer: int) -> NoReturn:
    """Does one task, tells how it ended and ends."""
    try:
        told: dict[str, Any] = {"rows": write(task), "error": None}
    except BaseException as error:  # noqa: BLE001 - the test judges it
        told = {"error": type(error).__name__, "text": Ending(error=error).text}
    os.write(answer, json.dumps(told).encode())
    os._exit(0)


def main() -> None:
    """Serves lists of tasks until the input ends."""
    client._FIRST_PAUSE_SECONDS = jobs._FIRST_PAUSE_SECONDS = 0.02
    jobs._POLL_SECONDS = 0.02
    staging._DROP_SECONDS = 2.0
    # What a first write imports, once for all children.
    ibis.to_sql(ibis.memtable(pa.table({"n": [1]})).filter(ibis._.n > 0), dialect="bigquery")
    pq.write_table(pa.table({"n": [1]}), io.BytesIO())
    create_engine(new_settings("http://127.0.0.1:1"))
    gc.freeze()
    for line in sys.stdin:
        children = []
        for task in json.loads(line):
            answers, answer = os.pipe()
            pid = os.fork()
            if pid == 0:
                signal.signal(signal.SIGINT, signal.default_int_handler)
                child(task, answer)
            os.close(answer)
            children.append((pid, answers))
        print(json.dumps([pid for pid, _ in children]), flush=True)
        told = []
        for pid, answers in children:
            with os.fdopen(answers) as reader:
                told.append(json.loads(reader.read() or "null"))
            os.waitpid(pid, 0)
        print(json.dumps(told), flush=True)


if __name__ == "__main__":
    main()
