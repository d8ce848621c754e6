"""What only a real project can show; run by `make smoke-bigquery PROJECT=... LOCATION=...`.

The contract of all engines runs in datasets of its own, and then each open question about BigQuery
is tried once and answered in a line. Everything made is removed. With BIGQUERY_EMULATOR_HOST the same
runs against an emulator, which shows that this file works and nothing about BigQuery.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import date
from functools import partial
from uuid import uuid4

import ibis
import ibis.expr.types as ir
import pytest
from google.api_core.exceptions import GoogleAPIError
from google.cloud import bigquery

from segmentstream._warehouse.engine import (
    DEFAULT_OPTIONS,
    NO_LABELS,
    TableInfo,
    WarehouseEngine,
    WriteResult,
)
from segmentstream._warehouse.engines.bigquery.client import Clients
from segmentstream._warehouse.engines.bigquery.engine import BigQueryEngine
from segmentstream._warehouse.options import TableOptions
from segmentstream._warehouse.settings import WarehouseSettings
from segmentstream._warehouse.tables import TableRef
from warehouse.engine_contract import EngineContract, RunSql

_PROJECT = os.environ.get("SMOKE_BIGQUERY_PROJECT", "")
_LOCATION = os.environ.get("SMOKE_BIGQUERY_LOCATION", "")
_ENDPOINT = os.environ.get("BIGQUERY_EMULATOR_HOST")
_PREFIX = f"segmentstream_smoke_{uuid4().hex[:8]}"
_DAY = date(2026, 1, 2)

if not _PROJECT or not _LOCATION:
    pytest.exit("Name a project and a location: make smoke-bigquery PROJECT=... LOCATION=...", 2)


class _Prefixed(WarehouseEngine):
    """The engine, with every namespace in a dataset whose name says where it comes from."""

    capabilities = BigQueryEngine.capabilities

    def __init__(self, settings: WarehouseSettings, prefix: str) -> None:
        self._engine = BigQueryEngine(settings)
        self._prefix = prefix

    def close(self) -> None:
        self._engine.close()

    def ensure_namespace(self, namespace: str) -> None:
        self._engine.ensure_namespace(f"{self._prefix}_{namespace}")

    def describe(self, table: TableRef) -> TableInfo | None:
        return self._engine.describe(self._place(table))

    def read(self, table: TableRef) -> ir.Table:
        return self._engine.read(self._place(table))

    def replace(
        self,
        table: TableRef,
        rows: ir.Table,
        *,
        options: TableOptions = DEFAULT_OPTIONS,
        labels: Mapping[str, str] = NO_LABELS,
    ) -> WriteResult:
        return self._engine.replace(self._place(table), rows, options=options, labels=labels)

    def replace_partitions(
        self,
        table: TableRef,
        rows: ir.Table,
        column: str,
        dates: Collection[date],
        *,
        options: TableOptions = DEFAULT_OPTIONS,
        labels: Mapping[str, str] = NO_LABELS,
    ) -> WriteResult:
        return self._engine.replace_partitions(
            self._place(table), rows, column, dates, options=options, labels=labels
        )

    def _place(self, table: TableRef) -> TableRef:
        return replace(table, namespace=f"{self._prefix}_{table.namespace}")


@pytest.fixture(scope="session")
def settings() -> WarehouseSettings:
    return WarehouseSettings(
        engine="bigquery",
        catalog=_PROJECT,
        default_namespace=f"{_PREFIX}_main",
        location=_LOCATION,
        endpoint=_ENDPOINT,
    )


@pytest.fixture(scope="session")
def client(settings: WarehouseSettings) -> Iterator[bigquery.Client]:
    """A client of the project; what carries the prefix is removed at the end."""
    client = Clients(settings).rest
    yield client
    _remove(client, _PREFIX)


@pytest.fixture
def prefix(client: bigquery.Client) -> Iterator[str]:
    """The start of the names of the datasets of one test."""
    own = f"{_PREFIX}_{uuid4().hex[:6]}"
    yield own
    _remove(client, own)


class TestContract(EngineContract):
    """The contract of all engines, on a real project."""

    names_refused = (("my-shop", "daily orders"), ("shop", "v1.orders"), ("sho'p", 'o"rders'))
    partitioned_by_day = " PARTITION BY day"
    model_examples = 3

    @pytest.fixture
    def engine(self, settings: WarehouseSettings, prefix: str) -> WarehouseEngine:
        return _Prefixed(settings, prefix)

    @pytest.fixture
    def twin(self, settings: WarehouseSettings, prefix: str) -> WarehouseEngine:
        return _Prefixed(settings, prefix)

    @pytest.fixture
    def run_sql(self, client: bigquery.Client, prefix: str) -> RunSql:
        def run(statement: str, table: TableRef) -> None:
            name = f"`{_PROJECT}.{prefix}_{table.namespace}.{table.name}`"
            client.query(statement.format(table=name)).result()

        return run

    @pytest.fixture
    def make_engine(
        self, settings: WarehouseSettings, prefix: str
    ) -> Callable[[], WarehouseEngine]:
        return lambda: _Prefixed(settings, f"{prefix}_{uuid4().hex[:6]}")


# Open questions. Each is tried once; its answer is printed whatever it is.


@pytest.fixture
def dataset(client: bigquery.Client, prefix: str) -> str:
    """A dataset with `t`, two days of a thousand rows, partitioned by day."""
    place = bigquery.Dataset(f"{_PROJECT}.{prefix}_questions")
    place.location = _LOCATION
    client.create_dataset(place)
    name = f"{_PROJECT}.{prefix}_questions"
    client.query(
        f"CREATE TABLE `{name}.t` PARTITION BY day AS SELECT n, "
        "DATE_ADD(DATE '2026-01-01', INTERVAL MOD(n, 2) DAY) AS day "
        "FROM UNNEST(GENERATE_ARRAY(1, 2000)) AS n"
    ).result()
    return name


def test_what_a_delete_of_whole_days_costs(client: bigquery.Client, dataset: str) -> None:
    """Dry runs of the DELETE of a day, of the MERGE and of the re-count."""
    day = "day BETWEEN DATE '2026-01-02' AND DATE '2026-01-02'"
    for what, statement in {
        "DELETE of a whole day": f"DELETE FROM `{dataset}.t` WHERE {day}",
        "MERGE that replaces a day": f"MERGE `{dataset}.t` AS target USING (SELECT 1 AS n, DATE "
        f"'2026-01-02' AS day) AS source ON FALSE WHEN NOT MATCHED BY SOURCE AND target.{day} THEN "
        "DELETE WHEN NOT MATCHED THEN INSERT (n, day) VALUES (n, day)",
        "count of a day": f"SELECT day, COUNT(*) FROM `{dataset}.t` WHERE {day} GROUP BY 1",
        "COUNT(*) of the table": f"SELECT COUNT(*) FROM `{dataset}.t`",
    }.items():
        job = client.query(statement, job_config=bigquery.QueryJobConfig(dry_run=True))
        _tell(f"a dry run of the {what} says {job.total_bytes_processed} bytes")


def test_whether_empty_deletes_conflict(client: bigquery.Client, dataset: str) -> None:
    """Two transactions at once that delete nothing and insert into the same empty day."""
    script = (
        "DECLARE start TIMESTAMP DEFAULT CURRENT_TIMESTAMP(); BEGIN TRANSACTION; "
        f"DELETE FROM `{dataset}.t` WHERE day = DATE '2026-03-01'; "
        f"INSERT INTO `{dataset}.t` (n, day) VALUES (1, DATE '2026-03-01'); "
        "WHILE TIMESTAMP_DIFF(CURRENT_TIMESTAMP(), start, SECOND) < 20 DO SELECT 1; END WHILE; "
        "COMMIT TRANSACTION;"
    )
    outcomes = _together(lambda: _outcome(client, script), 2)
    rows = _count(client, f"`{dataset}.t` WHERE day = DATE '2026-03-01'")
    _tell(f"two transactions that delete nothing: {outcomes}; the day then has {rows} rows")


def test_whether_two_merges_into_an_empty_day_conflict(
    client: bigquery.Client, dataset: str
) -> None:
    """Two MERGE statements at once that find nothing to delete."""
    merge = (
        f"MERGE `{dataset}.t` AS target USING (SELECT n, DATE '2026-04-01' AS day FROM "
        "UNNEST(GENERATE_ARRAY(1, 1000)) AS n) AS source ON FALSE WHEN NOT MATCHED BY SOURCE AND "
        "target.day = DATE '2026-04-01' THEN DELETE WHEN NOT MATCHED THEN INSERT (n, day) VALUES "
        "(n, day)"
    )
    outcomes = _together(lambda: _outcome(client, merge), 2)
    rows = _count(client, f"`{dataset}.t` WHERE day = DATE '2026-04-01'")
    _tell(f"two MERGEs of 1000 rows into an empty day: {outcomes}; the day then has {rows} rows")


def test_whether_the_engine_leaves_one_version(
    settings: WarehouseSettings, prefix: str, client: bigquery.Client, dataset: str
) -> None:
    """Two first writers of one day through the engine, five times: one version each time."""
    assert dataset
    engine = _Prefixed(settings, prefix)
    for attempt in range(5):
        table = TableRef(catalog="", namespace="questions", name=f"race{attempt}")
        rows = ibis.range(1000).unnest().name("n").as_table().mutate(day=ibis.literal(_DAY))
        _together(partial(engine.replace_partitions, table, rows, "day", [_DAY]), 2)
        assert engine.read(table).count().execute() == 1000
    _tell("two first writers of a day, five times: one version each time")


def test_truncate_under_a_required_filter(client: bigquery.Client, dataset: str) -> None:
    """TRUNCATE and the MERGE on a table that demands a partition filter."""
    table = client.get_table(f"{dataset}.t")
    table.require_partition_filter = True
    client.update_table(table, ["require_partition_filter"])
    _tell(
        f"TRUNCATE under require_partition_filter: {_outcome(client, f'TRUNCATE TABLE `{dataset}.t`')}"
    )


def test_write_truncate_data(client: bigquery.Client, dataset: str) -> None:
    """WRITE_TRUNCATE_DATA against row access policies, and on one partition."""
    _outcome(
        client,
        f"CREATE ROW ACCESS POLICY everyone ON `{dataset}.t` GRANT TO ('allAuthenticatedUsers') "
        "FILTER USING (TRUE)",
    )
    for name in ("t", "t$20260102"):
        outcome = _outcome(
            client,
            "SELECT 1 AS n, DATE '2026-01-02' AS day",
            destination=f"{dataset}.{name}",
            write_disposition="WRITE_TRUNCATE_DATA",
        )
        _tell(f"WRITE_TRUNCATE_DATA into {name} with a row access policy: {outcome}")
    _tell(f"row access policies afterwards: {_row_policies(client, dataset)}")


def test_create_or_replace_and_the_access_list(client: bigquery.Client, dataset: str) -> None:
    """Whether a table's own access list outlives CREATE OR REPLACE."""
    try:
        policy = client.get_iam_policy(f"{dataset}.t")
        policy.bindings.append(
            {"role": "roles/bigquery.dataViewer", "members": {"allAuthenticatedUsers"}}
        )
        client.set_iam_policy(f"{dataset}.t", policy)
        _outcome(client, f"CREATE OR REPLACE TABLE `{dataset}.t` AS SELECT 1 AS n")
        kept = client.get_iam_policy(f"{dataset}.t").bindings
        _tell(f"the access list of a table after CREATE OR REPLACE: {kept}")
    except GoogleAPIError as error:
        _tell(f"the access list of a table could not be tried: {error}")


def test_cancelling_a_transaction(client: bigquery.Client, dataset: str) -> None:
    """A script cancelled while its transaction is open leaves the rows as they were."""
    script = (
        "DECLARE start TIMESTAMP DEFAULT CURRENT_TIMESTAMP(); BEGIN TRANSACTION; "
        f"TRUNCATE TABLE `{dataset}.t`; "
        "WHILE TIMESTAMP_DIFF(CURRENT_TIMESTAMP(), start, SECOND) < 30 DO SELECT 1; END WHILE; "
        "COMMIT TRANSACTION;"
    )
    job = client.query(script, location=_LOCATION)
    job.cancel()
    while not job.done(reload=True):
        pass  # each question takes as long as the answer
    _tell(
        f"a cancelled transaction: {job.error_result or 'done'}; the table has "
        f"{_count(client, f'`{dataset}.t`')} of 2000 rows"
    )


def test_whole_tables_written_at_once(client: bigquery.Client, dataset: str) -> None:
    """Concurrent WRITE_TRUNCATE of one table, which one report says can double rows."""

    def write() -> str:
        return _outcome(
            client,
            "SELECT n FROM UNNEST(GENERATE_ARRAY(1, 1000)) AS n",
            destination=f"{dataset}.whole",
            write_disposition="WRITE_TRUNCATE",
        )

    outcomes = _together(write, 4)
    _tell(
        f"four WRITE_TRUNCATE at once: {outcomes}; {_count(client, f'`{dataset}.whole`')} of 1000 rows"
    )


def _tell(finding: str) -> None:
    print(f"FINDING: {finding}", flush=True)


def _outcome(client: bigquery.Client, statement: str, **config: object) -> str:
    try:
        job = client.query(statement, job_config=bigquery.QueryJobConfig(**config))
        job.result()
    except GoogleAPIError as error:
        return f"refused ({str(error).splitlines()[0][:200]})"
    return "done"


def _together[T](work: Callable[[], T], times: int) -> list[T]:
    with ThreadPoolExecutor(times) as pool:
        return [future.result() for future in [pool.submit(work) for _ in range(times)]]


def _count(client: bigquery.Client, rows: str) -> int:
    ((number,),) = (tuple(row) for row in client.query(f"SELECT COUNT(*) FROM {rows}").result())
    return int(number)


def _row_policies(client: bigquery.Client, dataset: str) -> object:
    path = f"{bigquery.TableReference.from_string(f'{dataset}.t').path}/rowAccessPolicies"
    try:
        return client._call_api(None, method="GET", path=path).get("rowAccessPolicies", [])
    except GoogleAPIError as error:
        return error


def _remove(client: bigquery.Client, prefix: str) -> None:
    for dataset in client.list_datasets(_PROJECT):
        if dataset.dataset_id.startswith(prefix):
            client.delete_dataset(dataset.reference, delete_contents=True, not_found_ok=True)
