"""What goes wrong around a BigQuery warehouse, and what its user is told.

Each time there is one message of ours, which names the project, the dataset and the table where
there is one and says what to do; its cause is the error of Google's client; nothing has changed.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import google.auth
import pytest
from google.api_core.exceptions import GoogleAPICallError
from google.auth.exceptions import DefaultCredentialsError, RefreshError
from google.cloud import bigquery
from google.oauth2.credentials import Credentials

from bigquery.fixtures import RunSql
from bigquery.proxy import Fault, Proxy, Request, described_as, fail_job, refuse
from segmentstream._core.errors import (
    ColumnMismatchError,
    WarehouseConfigurationError,
    WarehouseConnectionError,
    WarehouseError,
    WarehouseMaterializationError,
    WarehouseReadError,
)
from segmentstream._core.names import (
    BILLING_PROJECT_VARIABLE,
    CATALOG_VARIABLE,
    EMULATOR_VARIABLE,
    LOCATION_VARIABLE,
)
from segmentstream._warehouse.engine import WarehouseEngine
from segmentstream._warehouse.options import TableOptions
from segmentstream._warehouse.registry import create_engine
from segmentstream._warehouse.settings import WarehouseSettings
from warehouse.engine_contract import ORDERS, ids_by_day, may, orders

type Act = Callable[[WarehouseEngine], object]


def look(engine: WarehouseEngine) -> object:
    """Looks `shop.orders` up."""
    return engine.describe(ORDERS)


def read(engine: WarehouseEngine) -> object:
    """Reads `shop.orders`."""
    return engine.read(ORDERS).count().execute()


def write_day(engine: WarehouseEngine) -> object:
    """Replaces the second of May in `shop.orders`."""
    return engine.replace_partitions(ORDERS, orders((2, 2, "2")), "day", [may(2)])


def write_whole(engine: WarehouseEngine) -> object:
    """Replaces another table, `shop.whole`, which does not exist yet."""
    return engine.replace(replace(ORDERS, name="whole"), orders((2, 2, "2")))


@pytest.fixture
def shop(watched: WarehouseEngine, proxy: Proxy) -> WarehouseEngine:
    """The engine by way of the proxy, with the first of May in `shop.orders`."""
    watched.replace_partitions(ORDERS, orders((1, 1, "1")), "day", [may(1)])
    proxy.clear()
    return watched


@contextmanager
def one_message[E: WarehouseError](
    kind: type[E],
    proxy: Proxy,
    client: bigquery.Client,
    *,
    cause: type[BaseException] | None = GoogleAPICallError,
) -> Iterator[list[E]]:
    """Expects an error of ours with that cause, and that nothing in the project has changed."""

    def all_there_is() -> dict[str, Any]:
        return {
            f"{table.dataset_id}.{table.table_id}": (
                client.get_table(table).to_api_repr(),
                sorted(tuple(row.values()) for row in client.list_rows(table)),
            )
            for dataset in client.list_datasets()
            for table in client.list_tables(dataset.dataset_id)
        }

    before = all_there_is()
    caught: list[E] = []
    with pytest.raises(kind) as raised:
        yield caught
    proxy.heal()
    assert type(raised.value) is kind
    if cause is None:
        assert raised.value.__cause__ is None
    else:
        assert isinstance(raised.value.__cause__, cause)
    assert raised.value.remedy
    assert client.project in raised.value.problem
    assert all_there_is() == before
    caught.append(raised.value)


# Credentials


@pytest.mark.parametrize("act", [look, write_day, write_whole])
def test_missing_credentials_are_told_with_the_ways_to_give_them(
    act: Act, settings: WarehouseSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where no credentials are found, the project is named, and each way to give some."""

    def nothing_found(**_: object) -> None:
        raise DefaultCredentialsError("none")

    monkeypatch.setattr(google.auth, "default", nothing_found)
    engine = create_engine(replace(settings, endpoint=None))

    with pytest.raises(WarehouseConfigurationError) as refused:
        act(engine)

    assert isinstance(refused.value.__cause__, DefaultCredentialsError)
    assert settings.catalog in refused.value.problem
    for way in (
        "gcloud auth application-default login",
        "service account",
        "GOOGLE_APPLICATION_CREDENTIALS",
        "WarehouseResource(credentials=...)",
        EMULATOR_VARIABLE,
    ):
        assert way in refused.value.remedy


_READ_WITHOUT_CREDENTIALS = """
import time

from segmentstream import WarehouseResource

warehouse = WarehouseResource(engine="bigquery", catalog="acme-prod", default_namespace="main")
started = time.monotonic()
try:
    warehouse.table(name="orders", namespace="shop")
except Exception as error:
    print(int(time.monotonic() - started), type(error).__name__, error)
"""


@pytest.mark.slow
def test_a_machine_without_credentials_is_told_soon_and_opens_no_browser(tmp_path: Path) -> None:
    """With an empty home and no metadata server the error comes by itself, and no browser starts."""
    browser, opened = tmp_path / "browser", tmp_path / "opened"
    browser.write_text(f"#!/bin/sh\ntouch '{opened}'\n")
    browser.chmod(0o755)
    home = tmp_path / "home"
    home.mkdir()

    done = subprocess.run(
        [sys.executable, "-c", _READ_WITHOUT_CREDENTIALS],
        env={
            "HOME": str(home),
            "PATH": os.environ["PATH"],
            "BROWSER": str(browser),
            "GCE_METADATA_HOST": "127.0.0.1:1",  # nobody listens there
            "GCE_METADATA_IP": "127.0.0.1:1",
        },
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )

    seconds, _, told = done.stdout.partition(" ")
    assert int(seconds) < 30
    assert told.startswith("WarehouseConfigurationError No Google credentials were found")
    assert "'acme-prod'" in told
    assert not opened.exists()
    assert list(home.iterdir()) == []


def test_credentials_that_have_run_out_are_told(
    settings: WarehouseSettings, shop: WarehouseEngine, proxy: Proxy, client: bigquery.Client
) -> None:
    """Credentials that cannot be renewed are named as the reason, with how to renew them."""
    expired = Credentials(token="old")
    expired.expiry = datetime.now(UTC).replace(tzinfo=None) - timedelta(hours=1)
    engine = create_engine(replace(settings, endpoint=proxy.url, credentials=expired))

    with one_message(WarehouseConfigurationError, proxy, client, cause=RefreshError) as errors:
        write_day(engine)

    assert "credentials were not accepted" in errors[0].problem
    assert "shop.orders" in errors[0].problem
    assert "gcloud auth application-default login" in errors[0].remedy
    assert proxy.requests() == []


# What Google refuses


def _is_write(request: Request) -> bool:
    return request.starts_job and "_commit" in (request.job_id or "")


def _is_query(request: Request) -> bool:
    return request.kind == "jobs.insert:query"


_NO_PROJECT = refuse(404, "notFound", "Not found: Project acme-typo")
_NO_ACCESS = "Access Denied: Project acme: User does not have permission"


@pytest.mark.parametrize(
    ("fault", "on", "act", "kind", "words"),
    [
        pytest.param(
            _NO_PROJECT, "", act, WarehouseConfigurationError,
            [CATALOG_VARIABLE, BILLING_PROJECT_VARIABLE], id=f"wrong project, {act.__name__}",
        )
        for act in (look, read, write_day, write_whole)
    ]
    + [
        pytest.param(
            refuse(403, "accessDenied", _NO_ACCESS), on, act, WarehouseConfigurationError,
            ["BigQuery Job User", "BigQuery Data Editor", "BigQuery Data Viewer"],
            id=f"no access: {on if isinstance(on, str) else 'query'}, {act.__name__}",
        )
        for on, act in (
            ("tables.get", look),
            ("tables.get", read),
            ("tables.get", write_day),
            ("tables.insert", write_day),
            ("tables.insert", write_whole),
            ("upload", write_day),
            (_is_query, write_day),
            (_is_query, read),
        )
    ]
    + [
        pytest.param(
            fail_job("accessDenied", _NO_ACCESS), on, act, WarehouseConfigurationError,
            ["BigQuery Job User"], id=f"a job without access, {name}",
        )
        for name, on, act in (
            ("read", _is_query, read),
            ("stage", _is_query, write_whole),
            ("commit", _is_write, write_day),
            ("upload", "upload", write_day),
        )
    ]
    + [
        pytest.param(
            fail_job("quotaExceeded", "Quota exceeded: too many table updates"), on, act,
            WarehouseConnectionError, ["quota", "more dates in one run"], id=f"quota, {name}",
        )
        for name, on, act in (
            ("read", _is_query, read),
            ("commit", _is_write, write_day),
            ("upload", "upload", write_day),
        )
    ]
    + [
        pytest.param(
            fail_job("billingNotEnabled", "Billing has not been enabled for this project"),
            _is_query, act, WarehouseConfigurationError,
            [BILLING_PROJECT_VARIABLE], id=f"no billing, {act.__name__}",
        )
        for act in (read, write_day)
    ]
    + [
        pytest.param(
            fail_job("notFound", "Not found: Dataset acme-project-1:shop was not found in location EU"),
            _is_query, act, WarehouseConfigurationError,
            [LOCATION_VARIABLE], id=f"another location, {act.__name__}",
        )
        for act in (read, write_day)
    ]
    + [
        pytest.param(
            fail_job("notFound", "Not found: Dataset my-project:raw"),
            _is_write, write_day, WarehouseMaterializationError,
            ["Materialize the asset"], id="a dataset that the query reads is gone",
        ),
        pytest.param(
            fail_job(
                "notFound", "Not found: Table my-project:shop.orders was not found in location US"
            ),
            _is_query, read, WarehouseReadError,
            ["Materialize the asset", LOCATION_VARIABLE], id="a table is gone",
        ),
        pytest.param(
            fail_job(
                "invalidQuery",
                "Cannot query over table 'shop.orders' without a filter over column(s) 'day' that "
                "can be used for partition elimination",
            ),
            _is_query, read, WarehouseReadError,
            ["require_partition_filter", "Filter the input"], id="a filter is required",
        ),
        pytest.param(
            fail_job("resourcesExceeded", "Resources exceeded during query execution"),
            _is_query, read, WarehouseReadError, ["fewer dates"], id="too large",
        ),
        pytest.param(
            fail_job("stopped", "Job execution was cancelled"),
            _is_write, write_day, WarehouseConnectionError, ["cancelled"], id="cancelled",
        ),
        pytest.param(
            fail_job("somethingNew", "A reason that nobody has seen yet"),
            _is_write, write_day, WarehouseConnectionError, ["error-messages"], id="unknown",
        ),
    ],
)  # fmt: skip
def test_what_google_refuses_is_told_once_with_the_way_out(
    *,
    fault: Fault,
    on: str | Callable[[Request], bool],
    act: Act,
    kind: type[WarehouseError],
    words: list[str],
    shop: WarehouseEngine,
    proxy: Proxy,
    client: bigquery.Client,
) -> None:
    """One message names the table and the remedy; the old rows stay, and nothing is left behind."""
    proxy.inject(fault, on=on, always=True)

    with one_message(kind, proxy, client) as errors:
        act(shop)

    name = "shop.whole" if act is write_whole else "shop.orders"
    assert f"{client.project}.{name}" in errors[0].problem
    for word in words:
        assert word in errors[0].remedy
    assert ids_by_day(shop) == {may(1): [1]}


def test_a_quota_may_be_tried_again_and_a_permission_not(
    shop: WarehouseEngine, proxy: Proxy, client: bigquery.Client
) -> None:
    """What passes by itself says so to whoever retries; what needs a person does not."""
    seen = {}
    for reason in ("quotaExceeded", "accessDenied"):
        proxy.inject(fail_job(reason), on=_is_write, always=True)
        with pytest.raises(WarehouseError) as refused:
            write_day(shop)
        seen[reason] = refused.value.retryable
        proxy.heal()

    assert seen == {"quotaExceeded": True, "accessDenied": False}
    assert ids_by_day(shop) == {may(1): [1]}


# What is there and cannot be written


@pytest.mark.parametrize(
    ("told", "words"),
    [
        ("VIEW", "a view"),
        ("MATERIALIZED_VIEW", "a materialized view"),
        ("EXTERNAL", "an external table"),
        ("SNAPSHOT", "a snapshot"),
    ],
)
@pytest.mark.parametrize("act", [write_day, lambda e: e.replace(ORDERS, orders((2, 2, "2")))])
def test_what_can_only_be_read_is_named_by_its_kind(
    *,
    told: str,
    words: str,
    act: Act,
    shop: WarehouseEngine,
    proxy: Proxy,
    client: bigquery.Client,
) -> None:
    """A view, a snapshot or an external table in the way is named as such and left alone."""
    proxy.inject(described_as(type=told), on="tables.get", always=True)

    with one_message(WarehouseMaterializationError, proxy, client, cause=None) as errors:
        act(shop)

    assert f"{client.project}.shop.orders is {words}" in errors[0].problem
    assert "another key" in errors[0].remedy
    assert proxy.kinds() == ["tables.get"]


def test_a_real_view_is_left_alone(
    watched: WarehouseEngine, client: bigquery.Client, run_sql: RunSql
) -> None:
    """A view that the server has is not written either, and can be read."""
    watched.ensure_namespace("shop")
    run_sql("CREATE VIEW {table} AS SELECT 1 AS order_id, DATE '2024-05-01' AS day", ORDERS)

    with pytest.raises(WarehouseMaterializationError, match=r"shop\.orders is a view"):
        write_day(watched)

    assert client.get_table("shop.orders").table_type == "VIEW"
    assert ids_by_day(watched) == {may(1): [1]}


@pytest.mark.parametrize("exists", [True, False], ids=["later run", "first run"])
def test_dates_that_would_be_deleted_at_once_are_refused(
    exists: bool, watched: WarehouseEngine, proxy: Proxy, client: bigquery.Client
) -> None:
    """Dates older than the table keeps are refused by name, before anything is made or computed."""
    weekly = TableOptions(partition_expiration_days=7)
    today = datetime.now(UTC).date()
    recent = orders((1, 1, "1")).mutate(day=today)
    watched.ensure_namespace("shop")
    if exists:
        watched.replace_partitions(ORDERS, recent, "day", [today], options=weekly)
    proxy.clear()
    old = recent.union(recent.mutate(day=may(1)))

    with one_message(WarehouseMaterializationError, proxy, client, cause=None) as errors:
        watched.replace_partitions(ORDERS, old, "day", [today, may(1)], options=weekly)

    assert "shop.orders keeps a date for 7 days" in errors[0].problem
    assert "2024-05-01" in errors[0].problem
    assert today.isoformat() not in errors[0].problem
    assert "partition_expiration_days" in errors[0].remedy
    assert proxy.kinds() == ["tables.get"]


def test_an_expiry_that_is_raised_lets_older_dates_in(
    watched: WarehouseEngine, client: bigquery.Client
) -> None:
    """What counts is the expiry that the table will have, not the one that is being replaced."""
    today = datetime.now(UTC).date()
    recent = orders((1, 1, "1")).mutate(day=today)
    weekly, long = (TableOptions(partition_expiration_days=days) for days in (7, 36_500))
    watched.replace_partitions(ORDERS, recent, "day", [today], options=weekly)

    watched.replace_partitions(ORDERS, orders((2, 1, "1")), "day", [may(1)], options=long)

    assert ids_by_day(watched) == {may(1): [2], today: [1]}
    kept_ms = client.get_table("shop.orders").time_partitioning.expiration_ms
    assert kept_ms == 36_500 * 24 * 60 * 60 * 1000


def test_an_expiry_of_the_dataset_is_minded_too(
    watched: WarehouseEngine, proxy: Proxy, client: bigquery.Client
) -> None:
    """A new table that gets an expiry from its dataset takes no dates that it would delete."""
    client.create_dataset("shop")
    week_ms = str(7 * 24 * 60 * 60 * 1000)
    by_day = {"type": "DAY", "field": "day", "expirationMs": week_ms}
    proxy.inject(described_as(timePartitioning=by_day), on="tables.insert", always=True)

    with pytest.raises(WarehouseMaterializationError, match=r"shop\.orders keeps a date for 7"):
        write_day(watched)

    assert not [request for request in proxy.requests() if _is_write(request)]


@pytest.mark.parametrize("commit", ["merge", "transaction"])
def test_rows_streamed_in_a_moment_ago_are_told_as_the_reason(
    commit: Any, shop: WarehouseEngine, proxy: Proxy, client: bigquery.Client
) -> None:
    """Rows in the streaming buffer stop both ways to commit, with how long that lasts."""
    told = "would affect rows in the streaming buffer, which is not supported"
    proxy.inject(fail_job("invalidQuery", told), on=_is_write, always=True)

    with one_message(WarehouseMaterializationError, proxy, client) as errors:
        shop.replace_partitions(
            ORDERS, orders((2, 1, "2")), "day", [may(1)], options=TableOptions(commit=commit)
        )

    assert "shop.orders" in errors[0].problem
    assert "30 minutes" in errors[0].remedy


@pytest.mark.parametrize(
    ("column", "problem"),
    [
        ("_TABLE_suffix", "starts with '_TABLE_', which BigQuery keeps for itself"),
        ("_partitiontime", "starts with '_PARTITION', which BigQuery keeps for itself"),
        ("_CHANGE_TYPE", "starts with '_CHANGE_TYPE', which BigQuery keeps for itself"),
        ("net.total", "contains '.'"),
        ("what?", "contains '?'"),
        ("a`b", "contains '`'"),
        ("x" * 301, "has more than 300 characters"),
    ],
)
@pytest.mark.parametrize("act", ["replace", "replace_partitions"])
def test_a_column_that_cannot_exist_is_refused_before_anything_is_sent(
    *,
    column: str,
    problem: str,
    act: str,
    shop: WarehouseEngine,
    proxy: Proxy,
    client: bigquery.Client,
) -> None:
    """A reserved or impossible name is refused with the rule and the table, and nothing is sent."""
    rows = orders((2, 2, "2")).mutate(**{column: 1})
    arguments: list[Any] = ["day", [may(2)]] if act == "replace_partitions" else []

    with one_message(ColumnMismatchError, proxy, client, cause=None) as errors:
        getattr(shop, act)(replace(ORDERS, name="other"), rows, *arguments)

    assert repr(column) in errors[0].problem
    assert problem in errors[0].problem
    assert f"{client.project}.shop.other" in errors[0].problem
    assert proxy.kinds() == ["tables.get"]
