"""What users of other tools reported about BigQuery, tried here.

Each test is named after the report it answers (area F); the example is always the same: `orders`
of a shop, one partition a day.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import google.auth
import grpc  # type: ignore[import-untyped]  # it ships no types
import ibis
import ibis.expr.types as ir
import pytest
from dagster import serialize_value
from dagster._core.remote_representation.external_data import RepositorySnap
from google.auth import impersonated_credentials
from google.auth.credentials import AnonymousCredentials
from google.cloud import bigquery, bigquery_storage
from google.cloud.bigquery_storage_v1.services.big_query_read.transports import (
    BigQueryReadGrpcTransport,
)
from google.oauth2.credentials import Credentials

import segmentstream.dagster as dg
from bigquery.emulator import Emulator
from bigquery.fixtures import new_client
from bigquery.proxy import Proxy, Request, described_as, fail_job, refuse
from segmentstream import WarehouseResource, warehouse_resources
from segmentstream._core.errors import (
    ColumnMismatchError,
    WarehouseConfigurationError,
    WarehouseMaterializationError,
)
from segmentstream._core.names import EMULATOR_VARIABLE, LOCATION_VARIABLE
from segmentstream._warehouse.engine import WarehouseEngine, WriteResult
from segmentstream._warehouse.engines.bigquery import jobs
from segmentstream._warehouse.registry import create_engine
from segmentstream._warehouse.settings import WarehouseSettings
from warehouse.engine_contract import ORDERS, SCHEMA, ids_by_day, may, orders, rows_of

_STAGING = "_segmentstream_staging"


def about(proxy: Proxy, kind: str, table: str = "orders") -> list[Request]:
    """The requests of a kind that create, read or change the table of that name."""
    return [
        request
        for request in proxy.requests(kind)
        if request.path.endswith(f"/tables/{table}")
        or request.body.get("tableReference", {}).get("tableId") == table
    ]


def changes(proxy: Proxy) -> list[str]:
    """The kinds of what was asked beyond looking."""
    return [request.kind for request in proxy.requests() if request.method != "GET"]


def daily_table(client: bigquery.Client, **how: Any) -> bigquery.Table:
    """A table `shop.orders` with one row, as someone else would make it."""
    dataset = bigquery.DatasetReference(client.project, "shop")
    client.create_dataset(dataset, exists_ok=True)
    table = bigquery.Table(
        dataset.table("orders"),
        schema=[
            bigquery.SchemaField("order_id", "INTEGER"),
            bigquery.SchemaField("day", "DATE"),
            bigquery.SchemaField("paid_on", "DATE"),
        ],
    )
    for name, value in how.items():
        setattr(table, name, value)
    made = client.create_table(table)
    client.query(
        f"INSERT INTO `{client.project}.shop.orders` (order_id, day) VALUES (1, DATE '2024-05-01')"
    ).result()
    return made


@dataclass(slots=True)
class StorageUse:
    """Is how the storage interface was used.

    Attributes:
        credentials: The credentials with which each client was made.
        projects: The project that pays, for each session.
    """

    credentials: list[object] = field(default_factory=list)
    projects: list[str] = field(default_factory=list)


@pytest.fixture
def storage(emulator: Emulator, proxy: Proxy, monkeypatch: pytest.MonkeyPatch) -> StorageUse:
    """Lets an engine without an endpoint take the server for BigQuery itself."""
    used = StorageUse()

    class Client(bigquery_storage.BigQueryReadClient):
        def __init__(self, **options: Any) -> None:
            used.credentials.append(options["credentials"])
            channel = grpc.insecure_channel(f"127.0.0.1:{emulator.grpc}")
            super().__init__(transport=BigQueryReadGrpcTransport(channel=channel))  # type: ignore[no-untyped-call]  # inherited

        def create_read_session(self, *arguments: Any, **options: Any) -> Any:
            used.projects.append(options["parent"])
            return super().create_read_session(*arguments, **options)

    monkeypatch.setattr(bigquery_storage, "BigQueryReadClient", Client)
    monkeypatch.setenv(EMULATOR_VARIABLE, proxy.url)  # Google's client finds the server by it
    return used


@pytest.fixture
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets a job that is sent again not wait a second first."""
    monkeypatch.setattr(jobs, "_FIRST_PAUSE_SECONDS", 0.01)


# F1, F2: the partitioning of a table


def test_f1_a_daily_table_is_made_partitioned_by_its_date_column(
    watched: WarehouseEngine, proxy: Proxy, client: bigquery.Client
) -> None:
    """The first run makes the table once, by DAY on the DATE column; later ones change nothing."""
    watched.replace_partitions(ORDERS, orders((1, 1, "1")), "day", [may(1)])
    (made,) = about(proxy, "tables.insert")
    assert made.body["timePartitioning"] == {"type": "DAY", "field": "day"}
    assert "rangePartitioning" not in made.body
    before = client.get_table("shop.orders")

    proxy.clear()
    watched.replace_partitions(ORDERS, orders((2, 1, "1")), "day", [may(1)])
    watched.replace_partitions(ORDERS, orders((3, 2, "1")), "day", [may(2)])

    assert about(proxy, "tables.insert") + proxy.requests("tables.patch") == []
    assert not [r.sql for r in proxy.requests() if r.sql and "PARTITION BY" in r.sql]
    after = client.get_table("shop.orders")
    assert (after.time_partitioning, after.etag) == (before.time_partitioning, before.etag)
    assert ids_by_day(watched) == {may(1): [2], may(2): [3]}


@pytest.mark.parametrize(
    ("how", "found"),
    [
        ({}, "not partitioned"),
        (
            {"time_partitioning": bigquery.TimePartitioning(type_="MONTH", field="day")},
            "partitioned by MONTH on 'day'",
        ),
        (
            {"time_partitioning": bigquery.TimePartitioning(type_="DAY", field="paid_on")},
            "partitioned by DAY on 'paid_on'",
        ),
        (
            {"time_partitioning": bigquery.TimePartitioning(type_="DAY")},
            "partitioned by DAY on the time of ingestion",
        ),
    ],
    ids=["not", "by month", "another column", "ingestion"],
)
def test_f2_another_partitioning_stops_the_write(
    watched: WarehouseEngine,
    proxy: Proxy,
    client: bigquery.Client,
    how: dict[str, Any],
    found: str,
) -> None:
    """A table that is partitioned otherwise is left alone: found and wanted are told, and the way."""
    daily_table(client, **how)
    before = client.get_table("shop.orders").to_api_repr()

    with pytest.raises(WarehouseMaterializationError) as refused:
        watched.replace_partitions(ORDERS, orders((2, 2, "2")), "day", [may(2)])

    assert f"is {found}; the asset declares one that is partitioned by DAY on 'day'" in str(
        refused.value
    )
    assert "shop.orders" in refused.value.problem
    assert "RENAME TO" in refused.value.remedy
    assert "nothing is dropped" in refused.value.remedy
    assert changes(proxy) == []
    assert client.get_table("shop.orders").to_api_repr() == before
    assert ids_by_day(watched) == {may(1): [1]}


def test_f2_ranges_of_numbers_stop_the_write(
    watched: WarehouseEngine, proxy: Proxy, client: bigquery.Client
) -> None:
    """A table partitioned by ranges of a number is no daily table, and is left alone."""
    daily_table(client)
    by_number = {"field": "order_id", "range": {"start": "0", "end": "9", "interval": "1"}}
    proxy.inject(described_as(rangePartitioning=by_number), on="tables.get", always=True)

    with pytest.raises(WarehouseMaterializationError, match="by ranges of 'order_id'; the asset"):
        watched.replace_partitions(ORDERS, orders((2, 2, "2")), "day", [may(2)])

    assert changes(proxy) == []


# F3, F4, F5: where things are


_MAY_NOT_CREATE = refuse(403, "accessDenied", "User does not have bigquery.datasets.create.")


def test_f3_a_dataset_that_exists_is_never_asked_to_be_made(
    watched: WarehouseEngine, proxy: Proxy, client: bigquery.Client
) -> None:
    """An account that may not create datasets writes into those that exist."""
    client.create_dataset("shop")
    proxy.inject(_MAY_NOT_CREATE, on="datasets.insert", always=True)

    watched.ensure_namespace("shop")
    watched.replace_partitions(ORDERS, orders((1, 1, "1")), "day", [may(1)])
    watched.replace(replace(ORDERS, name="whole"), orders((1, 1, "1")))

    assert proxy.requests("datasets.insert") == []
    assert ids_by_day(watched) == {may(1): [1]}


def test_f3_a_missing_dataset_that_may_not_be_made_is_named(
    watched: WarehouseEngine, proxy: Proxy, settings: WarehouseSettings
) -> None:
    """Where the dataset is missing one message names project and dataset, and nothing is sent."""
    proxy.inject(_MAY_NOT_CREATE, on="datasets.insert", always=True)

    with pytest.raises(WarehouseConfigurationError) as refused:
        watched.replace_partitions(ORDERS, orders((1, 1, "1")), "day", [may(1)])

    assert f"The dataset shop of project {settings.catalog} does not exist" in str(refused.value)
    assert "bigquery.datasets.create" in refused.value.remedy
    assert changes(proxy) == ["datasets.insert"]


def test_f4_everything_runs_where_the_data_is(settings: WarehouseSettings, proxy: Proxy) -> None:
    """With a location every dataset is made there, and every job and upload is sent there."""
    engine = create_engine(
        replace(settings, endpoint=proxy.url, location="EU", staging_namespace="staging")
    )
    rates = ibis.memtable({"rate": [1]})

    engine.replace_partitions(ORDERS, orders((1, 1, "1")), "day", [may(1)])
    engine.replace_partitions(
        ORDERS, orders((1, 1, "1")).mutate(note=ibis.literal("x")), "day", [may(1)]
    )
    engine.replace(replace(ORDERS, name="whole"), engine.read(ORDERS).cross_join(rates))
    engine.replace(replace(ORDERS, name="whole"), engine.read(ORDERS))
    engine.read(ORDERS).count().execute()

    made = {r.body["datasetReference"]["datasetId"]: r for r in proxy.requests("datasets.insert")}
    assert {name: r.body.get("location") for name, r in made.items()} == {
        "shop": "EU",
        "staging": "EU",
    }
    started = [request for request in proxy.requests() if request.starts_job]
    assert {request.kind for request in started} == {"jobs.insert:query", "upload"}
    assert {request.body["jobReference"].get("location") for request in started} == {"EU"}
    assert proxy.requests("jobs.query") == []


@pytest.mark.parametrize("has_table", [True, False], ids=["table", "dataset"])
def test_f4_data_in_another_location_is_told_with_the_variable(
    settings: WarehouseSettings, proxy: Proxy, client: bigquery.Client, has_table: bool
) -> None:
    """A dataset or a table elsewhere than the variable says stops the write, naming both places."""
    client.create_dataset("shop")  # in the US
    if has_table:
        create_engine(settings).replace(ORDERS, orders((1, 1, "1")))
        proxy.inject(described_as(location="US"), on="tables.get", always=True)
    engine = create_engine(replace(settings, endpoint=proxy.url, location="EU"))

    with pytest.raises(WarehouseConfigurationError) as refused:
        engine.replace(ORDERS, orders((2, 2, "2")))

    assert f"{LOCATION_VARIABLE} is 'EU'" in refused.value.problem
    assert "lives in US" in refused.value.problem
    assert settings.catalog in refused.value.problem
    assert ("shop.orders" if has_table else "shop") in refused.value.problem
    assert changes(proxy) == []


@pytest.mark.filterwarnings("ignore:Retrieving Arrow record batches directly")
def test_f5_projects_are_those_of_the_settings(
    emulator: Emulator,
    storage: StorageUse,
    proxy: Proxy,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The default project of the credentials plays no part: data and jobs have their own projects."""
    monkeypatch.setenv("GOOGLE_CLOUD_PROJECT", "acme-dev")
    monkeypatch.setattr(
        google.auth,
        "default",
        lambda **_: (AnonymousCredentials(), "acme-dev"),
    )
    engine = create_engine(
        WarehouseSettings(
            engine="bigquery",
            catalog="acme-prod",
            billing_project="acme-billing",
            default_namespace="main",
            wait_seconds=30,
        )
    )

    engine.replace_partitions(ORDERS, orders((1, 1, "1")), "day", [may(1)])
    assert ids_by_day(engine) == {may(1): [1]}

    started = [request for request in proxy.requests() if request.starts_job]
    assert {request.project for request in started} == {"acme-billing"}
    about_data = proxy.requests("tables.") + proxy.requests("datasets.")
    assert {request.project for request in about_data} == {"acme-prod"}
    assert set(storage.projects) == {"projects/acme-billing"}
    assert "acme-dev" not in {request.project for request in proxy.requests()}
    written = new_client(emulator.url, "acme-prod").list_rows("acme-prod.shop.orders")
    assert [row["order_id"] for row in written] == [1]


# F6, F7, F8, F9: many at once, and how much is asked


def _first_commit(request: Request) -> bool:
    return (request.job_id or "").endswith("_commit1_1")


_CONCURRENT = fail_job(
    "invalidQuery",
    "Could not serialize access to table orders due to concurrent update",
)


@pytest.mark.usefixtures("short_pauses")
def test_f6_runs_of_different_days_at_once_all_finish(
    watched: WarehouseEngine, proxy: Proxy
) -> None:
    """Five days at once, each commit refused once for the others, end as five days, each whole."""
    watched.replace_partitions(ORDERS, orders((0, 9, "1")), "day", [may(9)])
    proxy.clear()
    proxy.inject(_CONCURRENT, on=_first_commit, always=True)

    def write(day: int) -> int | None:
        rows = orders((day, day, "1"), (day + 100, day, "1"))
        return watched.replace_partitions(ORDERS, rows, "day", [may(day)]).rows

    with ThreadPoolExecutor(5) as threads:
        assert list(threads.map(write, range(1, 6))) == [2] * 5

    commits = [r for r in proxy.requests() if "_commit1_" in (r.job_id or "") and r.starts_job]
    assert len(commits) == 10
    assert len({request.job_id for request in commits}) == 10
    assert all(str(request.sql).startswith("MERGE") for request in commits)
    assert ids_by_day(watched) == {
        **{may(day): [day, day + 100] for day in range(1, 6)},
        may(9): [0],
    }


@pytest.mark.usefixtures("short_pauses")
def test_f6_a_conflict_that_does_not_end_is_given_up(
    settings: WarehouseSettings, proxy: Proxy
) -> None:
    """Retries are bounded by the time that a write may wait, and then the old rows are there."""
    engine = create_engine(replace(settings, endpoint=proxy.url, wait_seconds=0.5))
    engine.replace_partitions(ORDERS, orders((1, 1, "1")), "day", [may(1)])
    proxy.inject(_CONCURRENT, on=lambda r: "_commit1_" in (r.job_id or ""), always=True)

    with pytest.raises(WarehouseMaterializationError) as refused:
        engine.replace_partitions(ORDERS, orders((2, 1, "1")), "day", [may(1)])

    assert refused.value.retryable
    assert "shop.orders" in refused.value.problem
    assert "Other writers" in refused.value.remedy
    assert ids_by_day(engine) == {may(1): [1]}


def test_f7_staging_tables_are_of_one_write_and_expire(
    watched: WarehouseEngine, proxy: Proxy, client: bigquery.Client
) -> None:
    """No two writes share a staging table; one whose removal fails is left to expire in a day."""
    watched.ensure_namespace("shop")
    proxy.inject(refuse(403, "accessDenied"), on="tables.delete", always=True)
    started = datetime.now(UTC)

    def write(day: int) -> None:
        watched.replace_partitions(
            replace(ORDERS, name=f"orders_{day % 2}"), orders((day, day, "1")), "day", [may(day)]
        )

    with ThreadPoolExecutor(2) as threads:
        list(threads.map(write, range(1, 5)))

    uploaded = [
        request.body
        for request in proxy.requests("tables.insert")
        if request.body["tableReference"]["tableId"].startswith(_STAGING)
    ]
    names = [body["tableReference"]["tableId"] for body in uploaded]
    assert len(names) == len(set(names)) == 4
    for body in uploaded:
        expires = datetime.fromtimestamp(int(body["expirationTime"]) / 1000, UTC)
        assert timedelta(hours=23) < expires - started < timedelta(hours=25)
    staged = [request.sql for request in proxy.requests() if "_stage_" in (request.job_id or "")]
    made = [sql for sql in staged if sql and sql.startswith("CREATE TABLE")]
    assert len(made) >= 2
    assert all("expiration_timestamp" in sql for sql in made)
    left = [table.table_id for table in client.list_tables("shop")]
    assert len([name for name in left if name.startswith(_STAGING)]) == 4 + len(made)


def test_f8_many_days_cost_as_many_requests_as_one(watched: WarehouseEngine, proxy: Proxy) -> None:
    """A run over sixty days asks for exactly what a run over one day asks for."""
    many = [date(2024, 5, 1) + timedelta(days=n) for n in range(60)]
    watched.ensure_namespace("shop")

    def asked(name: str, days: list[date]) -> list[str]:
        rows = ibis.memtable({"order_id": range(len(days)), "day": days})
        proxy.clear()
        result = watched.replace_partitions(replace(ORDERS, name=name), rows, "day", days)
        assert result.rows == len(days)
        return proxy.kinds()

    assert asked("first", many) == asked("second", many[:1])
    assert asked("first", many) == asked("first", many[:2])
    one_day = asked("first", many[:1])
    # A day that had rows need not be counted: the statement tells what it did.
    assert len(one_day) == len(asked("first", many)) - 2


@pytest.mark.usefixtures("short_pauses")
@pytest.mark.parametrize("reason", ["rateLimitExceeded", "jobRateLimitExceeded"])
def test_f8_a_rate_limit_is_waited_for(watched: WarehouseEngine, proxy: Proxy, reason: str) -> None:
    """A job or a request that comes too fast is sent again, and the write succeeds."""
    proxy.inject(fail_job(reason, "Exceeded rate limits"), on=_first_commit)
    proxy.inject(refuse(403, "rateLimitExceeded", "Exceeded rate limits"), on="tables.get")

    result = watched.replace_partitions(ORDERS, orders((1, 1, "1")), "day", [may(1)])

    assert result.rows == 1
    commits = {r.job_id for r in proxy.requests() if "_commit1_" in (r.job_id or "")}
    assert len(commits) == 2


def test_f9_nothing_is_ever_listed(watched: WarehouseEngine, proxy: Proxy) -> None:
    """No operation lists tables or datasets: each asks for the one that it means."""
    proxy.inject(refuse(403, "accessDenied"), on="tables.list", always=True)
    proxy.inject(refuse(403, "accessDenied"), on="datasets.list", always=True)
    whole = replace(ORDERS, name="whole")

    watched.ensure_namespace("shop")
    assert watched.describe(ORDERS) is None
    watched.replace_partitions(ORDERS, orders((1, 1, "1")), "day", [may(1)])
    watched.replace_partitions(ORDERS, orders((1, 1, "1")).mutate(x=1), "day", [may(1)])
    watched.replace(whole, orders((1, 1, "1")))
    watched.replace(whole, orders((1, 1, "1")).drop("amount"))
    watched.read(ORDERS).to_pandas()
    watched.read(whole).count().execute()

    assert proxy.requests("tables.list") + proxy.requests("datasets.list") == []
    assert about(proxy, "tables.get")


# F10, F11, F12: types


def _with_times(day: int) -> ir.Table:
    naive = ibis.timestamp(f"2024-05-0{day} 08:00:00")
    aware = ibis.timestamp(f"2024-05-0{day} 08:00:00", timezone="UTC")
    return orders((day, day, "1")).mutate(loaded_at=ibis.now(), placed_at=naive, paid_at=aware)


def test_f10_times_have_the_same_type_on_every_run_and_engine(
    watched: WarehouseEngine, tmp_path: Path, client: bigquery.Client
) -> None:
    """`now()` and naive times are DATETIME, aware ones TIMESTAMP, on both runs as on DuckDB."""
    laptop = create_engine(
        WarehouseSettings(
            engine="duckdb", catalog=str(tmp_path / "shop.duckdb"), default_namespace="main"
        )
    )
    seen = []
    for engine in (watched, laptop):
        for day in (1, 2):
            engine.replace_partitions(ORDERS, _with_times(day), "day", [may(day)])
            # DuckDB says that its times have six digits, BigQuery has no others.
            seen.append(str(engine.read(ORDERS).schema()).replace("(6)", "").replace(", 6)", ")"))
        orders_now = engine.read(ORDERS)
        both = ibis.union(*(orders_now.filter(orders_now.day == may(day)) for day in (1, 2)))
        assert both.count().execute() == 2

    assert seen == [seen[0]] * 4
    kinds = {field.name: field.field_type for field in client.get_table("shop.orders").schema}
    assert (kinds["loaded_at"], kinds["placed_at"], kinds["paid_at"]) == (
        "DATETIME",
        "DATETIME",
        "TIMESTAMP",
    )


def test_f11_a_new_column_is_added_without_touching_the_partitioning(
    watched: WarehouseEngine, proxy: Proxy, client: bigquery.Client
) -> None:
    """A column that comes with a later day is added by one patch of the schema; old days are NULL."""
    watched.replace_partitions(ORDERS, orders((1, 1, "1"), (2, 2, "2")), "day", [may(1), may(2)])
    proxy.clear()

    wider = orders((3, 3, "3")).mutate(channel=ibis.literal("web"))
    result = watched.replace_partitions(ORDERS, wider, "day", [may(3)])

    (patch,) = proxy.requests("tables.patch")
    assert set(patch.body) <= {"schema", "etag"}
    assert [field["name"] for field in patch.body["schema"]["fields"]] == [*SCHEMA, "channel"]
    assert patch.body["schema"]["fields"][-1]["mode"] == "NULLABLE"
    assert not [r.sql for r in proxy.requests() if "ALTER" in (r.sql or "")]
    assert result.added_columns == ("channel",)
    assert [row["channel"] for row in rows_of(watched)] == [None, None, "web"]
    partitioning = client.get_table("shop.orders").time_partitioning
    assert (partitioning.type_, partitioning.field) == ("DAY", "day")


def test_f12_lists_structs_and_json_are_kept_as_such(
    watched: WarehouseEngine, client: bigquery.Client
) -> None:
    """Rows in memory become ARRAY, STRUCT and JSON; a NULL list is stored as an empty one."""
    rows = ibis.memtable(
        {
            "n": [1, 2, 3],
            "tags": [["a", "b"], [], None],
            "info": [{"size": 1, "note": "x"}, {"size": 2, "note": None}, None],
            "raw": ['{"a": [1, 2]}', '"text"', None],
        },
        schema={
            "n": "int64",
            "tags": "array<string>",
            "info": "struct<size: int64, note: string>",
            "raw": "json",
        },
    )

    watched.replace(ORDERS, rows)

    fields = {field.name: field for field in client.get_table("shop.orders").schema}
    assert (fields["tags"].mode, fields["tags"].field_type) == ("REPEATED", "STRING")
    assert fields["info"].field_type in {"RECORD", "STRUCT"}
    assert [inner.name for inner in fields["info"].fields] == ["size", "note"]
    assert fields["raw"].field_type == "JSON"
    stored = [dict(row) for row in client.query("SELECT * FROM shop.orders ORDER BY n").result()]
    assert [row["tags"] for row in stored] == [["a", "b"], [], []]
    assert stored[0]["info"] == {"size": 1, "note": "x"}
    assert stored[0]["raw"] in ({"a": [1, 2]}, '{"a":[1,2]}')
    assert stored[2]["raw"] is None


@pytest.mark.parametrize(
    ("dtype", "value"),
    [
        ("map<string, int64>", {"a": 1}),
        ("array<map<string, int64>>", [{"a": 1}]),
        ("struct<inner: map<string, int64>>", {"inner": {"a": 1}}),
        ("uint64", 2**64 - 1),
        ("array<array<int64>>", [[1]]),
    ],
)
@pytest.mark.parametrize("whole", [True, False], ids=["whole", "daily"])
def test_f12_what_bigquery_cannot_hold_is_refused_before_anything_is_sent(
    watched: WarehouseEngine, proxy: Proxy, dtype: str, value: Any, whole: bool
) -> None:
    """A map, an unsigned 64-bit integer or a list of lists is refused by name, before any upload."""
    rows = ibis.memtable(
        {"day": [may(1)], "extra": [value]}, schema={"day": "date", "extra": dtype}
    )

    def write() -> WriteResult:
        if whole:
            return watched.replace(ORDERS, rows)
        return watched.replace_partitions(ORDERS, rows, "day", [may(1)])

    with pytest.raises(ColumnMismatchError, match="'extra'") as refused:
        write()

    assert refused.value.untyped == ("extra",)
    assert ".cast(" in refused.value.remedy
    assert proxy.kinds() == ["tables.get"]


def test_f12_a_map_that_the_result_leaves_out_is_refused_before_any_upload(
    watched: WarehouseEngine, proxy: Proxy
) -> None:
    """Rows in memory are uploaded whole, so none of them is when one column cannot be."""
    good = ibis.memtable({"n": [1]})
    bad = ibis.memtable(
        {"n": [1], "extra": [{"a": 1}]}, schema={"n": "int64", "extra": "map<string, int64>"}
    )

    with pytest.raises(ColumnMismatchError, match="'extra'"):
        watched.replace(ORDERS, good.join(bad, "n").select("n"))

    assert proxy.requests("upload") + proxy.requests("tables.insert") == []
    assert [request for request in proxy.requests() if request.starts_job] == []


# F13: credentials, and rows that were streamed in

_SECRET = "ya29.a-secret-token"


def _token() -> Credentials:
    return Credentials(token=_SECRET)


def _impersonated() -> impersonated_credentials.Credentials:
    found = impersonated_credentials.Credentials(
        source_credentials=_token(),
        target_principal="loader@acme-prod.iam.gserviceaccount.com",
        target_scopes=["https://www.googleapis.com/auth/bigquery"],
    )
    found.token = _SECRET
    found.expiry = datetime.now(UTC).replace(tzinfo=None) + timedelta(hours=1)
    return found


# The client library's own way to read Arrow rows warns of its successor.
@pytest.mark.filterwarnings("ignore:Retrieving Arrow record batches directly")
@pytest.mark.parametrize("make", [_token, _impersonated])
def test_f13_given_credentials_are_used_for_everything(
    make: Callable[[], Any],
    settings: WarehouseSettings,
    storage: StorageUse,
    proxy: Proxy,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Queries, uploads, look-ups and the storage interface all carry the credentials given."""

    def nothing_is_looked_for(**_: object) -> None:
        raise AssertionError

    credentials = make()
    monkeypatch.setattr(google.auth, "default", nothing_is_looked_for)
    engine = create_engine(replace(settings, endpoint=None, credentials=credentials))

    engine.replace_partitions(ORDERS, orders((1, 1, "1")), "day", [may(1)])
    assert ids_by_day(engine) == {may(1): [1]}
    list(engine.read(ORDERS).to_pyarrow_batches())

    assert {"upload", "jobs.insert:query", "tables.get", "tables.insert"} <= set(proxy.kinds())
    tokens = {request.headers.get("authorization") for request in proxy.requests()}
    assert tokens == {f"Bearer {_SECRET}"}
    assert storage.credentials
    assert all(each is credentials for each in storage.credentials)


def test_f13_credentials_are_never_shown(
    settings: WarehouseSettings,
    proxy: Proxy,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Neither settings, resource, configuration, errors nor logs tell the credentials."""
    caplog.set_level(logging.DEBUG)
    credentials = _token()
    monkeypatch.setenv(EMULATOR_VARIABLE, proxy.url)
    resource = WarehouseResource(
        engine="bigquery",
        catalog=settings.catalog,
        default_namespace="main",
        wait_seconds=5,
        credentials=credentials,
    )
    defs = dg.Definitions(resources=warehouse_resources(warehouse=resource))
    engine = resource.open_engine()
    engine.replace_partitions(ORDERS, orders((1, 1, "1")), "day", [may(1)])
    proxy.inject(fail_job("accessDenied", "Access Denied"), on=_first_commit, always=True)
    with pytest.raises(WarehouseConfigurationError) as refused:
        engine.replace_partitions(ORDERS, orders((2, 1, "1")), "day", [may(1)])

    shown = [
        repr(resource),
        str(resource),
        repr(resource.settings),
        serialize_value(RepositorySnap.from_def(defs.get_repository_def())),  # what Dagster shows
        str(refused.value),
        repr(refused.value),
        caplog.text,
    ]
    for text in shown:
        assert _SECRET not in text
        assert "google.oauth2" not in text
    assert resource.settings.credentials is credentials


def test_f13_rows_in_the_streaming_buffer_are_explained(
    watched: WarehouseEngine, proxy: Proxy
) -> None:
    """Rows streamed in a moment ago stop the write at once, with the reason and what to do."""
    watched.replace_partitions(ORDERS, orders((1, 1, "1")), "day", [may(1)])
    proxy.clear()
    proxy.inject(
        fail_job(
            "invalidQuery",
            "UPDATE or DELETE statement over table shop.orders would affect rows in the streaming "
            "buffer, which is not supported",
        ),
        on=lambda request: "_commit" in (request.job_id or ""),
        always=True,
    )

    with pytest.raises(WarehouseMaterializationError) as refused:
        watched.replace_partitions(ORDERS, orders((2, 1, "1")), "day", [may(1)])

    assert "streaming buffer" in refused.value.problem
    assert "shop.orders" in refused.value.problem
    assert "wait" in refused.value.remedy
    assert not refused.value.retryable
    commits = [r for r in proxy.requests() if r.starts_job and "_commit" in (r.job_id or "")]
    assert len(commits) == 1
    proxy.heal()
    assert ids_by_day(watched) == {may(1): [1]}
