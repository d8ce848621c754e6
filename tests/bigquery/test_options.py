"""What an asset declares about its table, and what becomes of it in BigQuery."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, date, datetime, timedelta
from typing import Any

import ibis
import ibis.expr.types as ir
import pytest
from dagster import DagsterInstance
from google.cloud import bigquery

import segmentstream.dagster as dg
from bigquery.proxy import Answer, Call, Proxy, Request, refuse
from dagster_adapter.stores import BigQueryStore
from dagster_adapter.support import ORDERS, Row, Shop, daily_orders, order, orders_of, table_of
from segmentstream import (
    WAREHOUSE_IO_MANAGER_KEY,
    WarehouseConfigurationError,
    WarehouseError,
    WarehouseMaterializationError,
    WarehouseResource,
    warehouse_asset_metadata,
    warehouse_resources,
)
from segmentstream._core.names import EMULATOR_VARIABLE
from segmentstream._warehouse.engine import WarehouseEngine
from segmentstream._warehouse.settings import WarehouseSettings
from segmentstream._warehouse.tables import TableRef

_CENTURY = 36_500
_DAY_MILLISECONDS = 24 * 60 * 60 * 1000
_EVERYTHING: dict[str, Any] = {
    "cluster_by": ["order_id"],
    "description": "What was ordered.",
    "column_descriptions": {"amount": "In euros, taxes included."},
    "labels": {"team": "shop"},
    "partition_expiration_days": _CENTURY,
    "require_partition_filter": True,
}
_TAG = "projects/p/locations/eu/taxonomies/1/policyTags/2"


@pytest.fixture(scope="module")
def instance() -> Iterator[DagsterInstance]:
    """Records runs in memory."""
    with DagsterInstance.ephemeral() as ephemeral:
        yield ephemeral


@pytest.fixture
def shop(
    settings: WarehouseSettings,
    proxy: Proxy,
    client: bigquery.Client,
    instance: DagsterInstance,
    monkeypatch: pytest.MonkeyPatch,
) -> Shop:
    """An empty project, reached by way of the proxy."""
    monkeypatch.setenv(EMULATOR_VARIABLE, proxy.url)
    warehouse = WarehouseResource(
        engine="bigquery", catalog=settings.catalog, default_namespace="main", wait_seconds=30
    )
    return Shop(
        store=BigQueryStore(client),
        warehouse=warehouse,
        resources=warehouse_resources(warehouse=warehouse),
        instance=instance,
    )


def by_day(
    rows: Iterable[Row] | Callable[..., object],
    daily: dg.DailyPartitionsDefinition,
    *,
    asset: dict[str, Any] | None = None,
    **declared: Any,
) -> dg.AssetsDefinition:
    """The daily asset `orders` that declares these options; `asset` is for the decorator."""
    given = asset or {}
    metadata = warehouse_asset_metadata(partition_by_date="day", **declared)
    return daily_orders(rows, daily, **given | {"metadata": given.get("metadata", {}) | metadata})


def whole(make: Callable[[], ir.Table], **declared: Any) -> dg.AssetsDefinition:
    """The asset `orders` without partitions that declares these options."""

    @dg.asset(
        key=ORDERS,
        io_manager_key=WAREHOUSE_IO_MANAGER_KEY,
        metadata=warehouse_asset_metadata(**declared),
    )
    def orders() -> ir.Table:
        return make()

    return orders


def made(proxy: Proxy) -> Request:
    """The one request that made `orders`."""
    (found,) = [
        request
        for request in proxy.requests("tables.insert")
        if request.body["tableReference"]["tableId"] == "orders"
    ]
    return found


def set_by_hand(client: bigquery.Client, **values: Any) -> bigquery.Table:
    """Changes `orders` as a person would."""
    table = client.get_table("shop.orders")
    for name, value in values.items():
        setattr(table, name, value)
    return client.update_table(table, list(values))


def tagged_and_described(client: bigquery.Client) -> None:
    """Gives `orders` everything that a person sets on a table and its columns."""
    fields = [
        bigquery.SchemaField.from_api_repr(
            field.to_api_repr()
            | {"description": f"About {field.name}."}
            | ({"policyTags": {"names": [_TAG]}} if field.name == "amount" else {})
        )
        for field in client.get_table("shop.orders").schema
    ]
    set_by_hand(client, schema=fields, description="By hand.", labels={"owner": "person"})


# A new table


def test_everything_declared_is_on_a_new_table(
    shop: Shop, proxy: Proxy, client: bigquery.Client, daily: dg.DailyPartitionsDefinition
) -> None:
    """The request that makes the table carries all that is declared, so nothing is changed after."""
    shop.run(by_day(orders_of(1), daily, **_EVERYTHING), day=1)

    body = made(proxy).body
    assert body["clustering"] == {"fields": ["order_id"]}
    assert body["description"] == "What was ordered."
    assert body["labels"] == {"team": "shop"}
    assert body["timePartitioning"]["expirationMs"] == str(_CENTURY * _DAY_MILLISECONDS)
    assert body["requirePartitionFilter"] is True
    descriptions = {field["name"]: field.get("description") for field in body["schema"]["fields"]}
    assert descriptions == {
        "order_id": None,
        "day": None,
        "amount": "In euros, taxes included.",
    }
    assert proxy.requests("tables.patch") == []
    assert client.get_table("shop.orders").labels == {"team": "shop"}


def test_what_is_not_declared_is_not_asked_for(
    shop: Shop, proxy: Proxy, daily: dg.DailyPartitionsDefinition
) -> None:
    """Without options a table is made with its columns and its partitioning alone."""
    shop.run(by_day(orders_of(1), daily), day=1)

    body = made(proxy).body
    assert body["timePartitioning"] == {"type": "DAY", "field": "day"}
    asked = {name for name, value in body.items() if value not in ({}, None)}
    assert asked == {"tableReference", "schema", "timePartitioning"}


def test_a_table_is_described_as_its_asset_is(
    shop: Shop, client: bigquery.Client, daily: dg.DailyPartitionsDefinition
) -> None:
    """The asset's description and those of its column schema are used where none is declared."""
    columns = dg.TableSchema(
        columns=[
            dg.TableColumn("order_id", description="Counts up."),
            dg.TableColumn("amount", description="Overruled."),
        ]
    )
    told = {"description": "Orders of a day.", "metadata": {"dagster/column_schema": columns}}

    shop.run(
        by_day(orders_of(1), daily, asset=told, column_descriptions={"amount": "In euros."}), day=1
    )

    table = client.get_table("shop.orders")
    assert table.description == "Orders of a day."
    assert {field.name: field.description for field in table.schema} == {
        "order_id": "Counts up.",
        "day": None,
        "amount": "In euros.",
    }


@pytest.mark.parametrize("commit", ["merge", "transaction"])
def test_days_are_committed_as_declared(
    commit: str, shop: Shop, proxy: Proxy, daily: dg.DailyPartitionsDefinition
) -> None:
    """`merge` is one statement, `transaction` a script of two; both replace exactly the day."""
    shop.run(by_day(orders_of(1, 2), daily), days=(1, 2))
    proxy.clear()

    shop.run(by_day([order(9, 2)], daily, commit=commit), day=2)

    (text,) = [str(r.sql) for r in proxy.requests() if "_commit" in (r.job_id or "") and r.sql]
    assert text.startswith("MERGE" if commit == "merge" else "BEGIN TRANSACTION")
    assert shop.rows() == [order(9, 2), *orders_of(1)]


# A table that exists


def test_nothing_is_changed_where_nothing_differs(
    shop: Shop, proxy: Proxy, client: bigquery.Client, daily: dg.DailyPartitionsDefinition
) -> None:
    """A second run of the same declaration, or of one that says less, changes nothing."""
    shop.run(by_day(orders_of(1), daily, **_EVERYTHING), day=1)
    before = client.get_table("shop.orders")

    shop.run(by_day(orders_of(2), daily, **_EVERYTHING), day=2)
    shop.run(by_day(orders_of(3), daily), day=3)

    assert proxy.requests("tables.patch") + proxy.requests("tables.update") == []
    assert client.get_table("shop.orders").etag == before.etag


@pytest.mark.parametrize(
    ("changed", "sent"),
    [
        ({"description": "Anew."}, {"description": "Anew."}),
        ({"labels": {"team": "web"}}, {"labels": {"team": "web"}}),
        ({"require_partition_filter": False}, {"requirePartitionFilter": False}),
        (
            {"partition_expiration_days": _CENTURY + 1},
            {
                "timePartitioning": {
                    "type": "DAY",
                    "field": "day",
                    "expirationMs": str((_CENTURY + 1) * _DAY_MILLISECONDS),
                }
            },
        ),
    ],
    ids=["description", "labels", "filter", "expiry"],
)
def test_what_differs_is_changed_and_nothing_else(
    *,
    changed: dict[str, Any],
    sent: dict[str, Any],
    shop: Shop,
    proxy: Proxy,
    daily: dg.DailyPartitionsDefinition,
) -> None:
    """A changed declaration is one patch, which carries only what differs."""
    shop.run(by_day(orders_of(1), daily, **_EVERYTHING), day=1)

    for _ in range(2):
        shop.run(by_day(orders_of(2), daily, **_EVERYTHING | changed), day=2)

    (patch,) = proxy.requests("tables.patch")
    assert patch.body == sent
    assert patch.headers["if-match"]


def test_a_changed_description_of_a_column_leaves_the_others_alone(
    shop: Shop, proxy: Proxy, client: bigquery.Client, daily: dg.DailyPartitionsDefinition
) -> None:
    """A new text for one column is one patch of the schema, with all that is set on the others."""
    shop.run(by_day(orders_of(1), daily), day=1)
    tagged_and_described(client)

    for _ in range(2):
        shop.run(by_day(orders_of(1), daily, column_descriptions={"DAY": "In Berlin."}), day=1)

    (patch,) = proxy.requests("tables.patch")
    assert set(patch.body) == {"schema"}
    fields = {field["name"]: field for field in patch.body["schema"]["fields"]}
    assert {name: field["description"] for name, field in fields.items()} == {
        "order_id": "About order_id.",
        "day": "In Berlin.",
        "amount": "About amount.",
    }
    assert fields["amount"]["policyTags"] == {"names": [_TAG]}


def test_labels_of_others_stay(
    shop: Shop, client: bigquery.Client, daily: dg.DailyPartitionsDefinition
) -> None:
    """A label that someone else has set is neither removed nor a reason to change anything."""
    shop.run(by_day(orders_of(1), daily, labels={"team": "shop"}), day=1)
    set_by_hand(client, labels={"team": "shop", "cost": "42"})

    shop.run(by_day(orders_of(1), daily, labels={"team": "web"}), day=1)

    assert client.get_table("shop.orders").labels == {"team": "web", "cost": "42"}


def test_a_change_at_the_same_moment_is_not_lost(
    shop: Shop, proxy: Proxy, client: bigquery.Client, daily: dg.DailyPartitionsDefinition
) -> None:
    """Where someone else was faster (412) the table is read again, and both changes stay."""
    shop.run(by_day(orders_of(1), daily, labels={"team": "shop"}), day=1)

    def someone_is_faster(call: Call) -> Answer:
        set_by_hand(client, description="By hand.", labels={"team": "shop", "cost": "42"})
        return call.forward()

    proxy.inject(someone_is_faster, on="tables.patch")
    shop.run(by_day(orders_of(1), daily, labels={"team": "web"}), day=1)

    assert [request.status for request in proxy.requests("tables.patch")] == [412, 200]
    table = client.get_table("shop.orders")
    assert table.description == "By hand."
    assert table.labels == {"team": "web", "cost": "42"}


def test_someone_who_is_always_faster_is_told(
    shop: Shop, proxy: Proxy, daily: dg.DailyPartitionsDefinition
) -> None:
    """A change that never gets through ends after some attempts, with the old rows."""
    shop.run(by_day(orders_of(1), daily), day=1)
    proxy.inject(refuse(412, "conditionNotMet", "Precondition"), on="tables.patch", always=True)

    with pytest.raises(WarehouseError) as refused:
        shop.run(by_day([order(9, 1)], daily, description="Anew."), day=1)

    assert "shop.orders" in refused.value.problem
    assert len(proxy.requests("tables.patch")) == 5
    assert shop.rows() == orders_of(1)


def test_another_clustering_stops_the_write(
    shop: Shop, proxy: Proxy, daily: dg.DailyPartitionsDefinition
) -> None:
    """A table that is clustered otherwise is left alone; found and wanted are told."""
    shop.run(by_day(orders_of(1), daily, cluster_by=["order_id"]), day=1)
    proxy.clear()

    with shop.refusing(WarehouseMaterializationError) as refused:
        shop.run(by_day(orders_of(2), daily, cluster_by=["amount", "order_id"]), day=2)

    assert "is clustered by order_id" in refused.value.problem
    assert "clustered by amount, order_id" in refused.value.problem
    assert [request.kind for request in proxy.requests() if request.method != "GET"] == []


def test_a_table_that_is_not_clustered_stops_the_write(
    shop: Shop, daily: dg.DailyPartitionsDefinition
) -> None:
    """Clustering that is declared later is not applied behind the back of those who read."""
    shop.run(by_day(orders_of(1), daily), day=1)

    with shop.refusing(WarehouseMaterializationError) as refused:
        shop.run(by_day(orders_of(2), daily, cluster_by=["order_id"]), day=2)

    assert "is not clustered" in refused.value.problem


def test_a_clustering_column_that_is_missing_is_named(
    shop: Shop, daily: dg.DailyPartitionsDefinition
) -> None:
    """A column that the result does not have cannot be clustered by; no table is made."""
    with shop.refusing(WarehouseMaterializationError) as refused:
        shop.run(by_day(orders_of(1), daily, cluster_by=["country"]), day=1)

    assert "country" in refused.value.problem
    assert "order_id, day, amount" in refused.value.problem


# Whole tables


def test_replacing_a_whole_table_keeps_what_is_set_on_it(
    shop: Shop, proxy: Proxy, client: bigquery.Client
) -> None:
    """New rows in the same columns leave descriptions, labels, policy tags and clustering alone."""
    shop.run(whole(lambda: table_of(orders_of(1)), cluster_by=["day"]))
    tagged_and_described(client)
    before = client.get_table("shop.orders")
    proxy.clear()

    shop.run(whole(lambda: table_of(orders_of(2))))

    after = client.get_table("shop.orders")
    assert after.schema == before.schema
    assert after.schema[2].policy_tags.names == (_TAG,)
    assert after.schema[1].description == "About day."
    assert (after.description, after.labels) == ("By hand.", {"owner": "person"})
    assert after.clustering_fields == ["day"]
    assert proxy.requests("tables.patch") + proxy.requests("tables.insert")[1:] == []
    assert not [r.sql for r in proxy.requests() if "REPLACE TABLE" in (r.sql or "")]
    assert shop.rows() == orders_of(2)


def test_a_new_column_keeps_the_protection_of_the_others(
    shop: Shop, proxy: Proxy, client: bigquery.Client
) -> None:
    """A whole table that gains a column is not made anew, so policy tags stay."""
    shop.run(whole(lambda: table_of(orders_of(1))))
    tagged_and_described(client)

    shop.run(whole(lambda: table_of(orders_of(2)).mutate(channel=ibis.literal("web"))))

    table = client.get_table("shop.orders")
    assert [field.name for field in table.schema] == ["order_id", "day", "amount", "channel"]
    assert table.schema[2].policy_tags.names == (_TAG,)
    assert table.description == "By hand."
    (patch,) = proxy.requests("tables.patch")
    assert patch.body["schema"]["fields"][2]["policyTags"] == {"names": [_TAG]}
    assert [row[3] for row in shop.rows()] == ["web", "web"]


def test_another_shape_carries_over_what_is_set_on_the_table(
    shop: Shop, proxy: Proxy, client: bigquery.Client
) -> None:
    """A table that loses a column is made anew with the descriptions, labels and clustering it had."""
    shop.run(whole(lambda: table_of(orders_of(1)), cluster_by=["day"]))
    fields = [
        bigquery.SchemaField.from_api_repr(
            field.to_api_repr() | {"description": f"About '{field.name}'."}
        )
        for field in client.get_table("shop.orders").schema
    ]
    expires = datetime.now(UTC).replace(microsecond=0) + timedelta(days=30)
    set_by_hand(
        client,
        schema=fields,
        description="By `hand`\n'n'.",
        friendly_name="Orders",
        labels={"owner": "person"},
        expires=expires,
    )
    proxy.clear()

    shop.run(whole(lambda: table_of(orders_of(2)).drop("amount"), labels={"team": "shop"}))

    (text,) = [str(r.sql) for r in proxy.requests() if "REPLACE TABLE" in (r.sql or "")]
    assert "About \\'order_id\\'." in text
    assert "About \\'day\\'." in text
    assert "amount" not in text
    table = client.get_table("shop.orders")
    assert [field.name for field in table.schema] == ["order_id", "day"]
    assert table.labels == {"owner": "person", "team": "shop"}
    assert table.clustering_fields == ["day"]
    assert table.description == "By `hand`\n'n'."
    assert "friendly_name='Orders'" in text
    assert table.expires == expires


@pytest.mark.parametrize("declared", [["AMOUNT", "day"], []], ids=["declared", "as it was"])
def test_another_shape_keeps_the_order_of_the_clustering(
    declared: list[str], shop: Shop, client: bigquery.Client
) -> None:
    """A table made anew is clustered by the same columns in the same order, so later runs fit it."""
    shop.run(whole(lambda: table_of(orders_of(1)), cluster_by=["amount", "day"]))

    for _ in range(2):
        shop.run(whole(lambda: table_of(orders_of(2)).drop("order_id"), cluster_by=declared))

    table = client.get_table("shop.orders")
    assert [field.name for field in table.schema] == ["day", "amount"]
    assert table.clustering_fields == ["amount", "day"]


@pytest.mark.parametrize("declared", [["amount", "day"], []], ids=["declared", "as it was"])
def test_another_shape_without_a_clustering_column_is_refused(
    declared: list[str], shop: Shop, proxy: Proxy
) -> None:
    """BigQuery replaces no table by one of another clustering, so that is told before it is tried."""
    shop.run(whole(lambda: table_of(orders_of(1)), cluster_by=["amount", "day"]))
    proxy.clear()

    with shop.refusing(WarehouseMaterializationError) as refused:
        shop.run(whole(lambda: table_of(orders_of(2)).drop("amount"), cluster_by=declared))

    assert "is clustered by amount, day" in refused.value.problem
    assert "it would have no amount" in refused.value.problem
    assert "RENAME TO" in refused.value.remedy
    assert [request for request in proxy.requests() if request.starts_job] == []


def test_another_shape_never_takes_partitions_away(
    shop: Shop, proxy: Proxy, client: bigquery.Client
) -> None:
    """A table that someone partitioned by month is refilled in its shape, and not made anew."""
    shop.run(whole(lambda: table_of(orders_of(1))))
    monthly = bigquery.Table(
        f"{client.project}.shop.orders", schema=client.get_table("shop.orders").schema
    )
    monthly.time_partitioning = bigquery.TimePartitioning(type_="MONTH", field="day")
    client.delete_table("shop.orders")
    client.create_table(monthly)
    shop.run(whole(lambda: table_of(orders_of(1))))
    proxy.clear()

    with shop.refusing(WarehouseMaterializationError) as refused:
        shop.run(whole(lambda: table_of(orders_of(2)).drop("amount")))

    assert "is partitioned by MONTH on 'day'" in refused.value.problem
    assert "it would have no partitions" in refused.value.problem
    assert [request for request in proxy.requests() if request.starts_job] == []
    assert shop.rows() == orders_of(1)


def test_clustering_by_a_column_that_comes_with_it_is_told_as_another_clustering(
    shop: Shop,
) -> None:
    """Found and wanted are told also where the table does not have the column yet."""
    shop.run(whole(lambda: table_of(orders_of(1))))
    wider = table_of(orders_of(1)).mutate(channel=ibis.literal("web"))

    with shop.refusing(WarehouseMaterializationError) as refused:
        shop.run(whole(lambda: wider, cluster_by=["channel"]))

    assert "is not clustered; the asset declares one that is clustered by channel" in str(
        refused.value
    )


@pytest.mark.parametrize("policy", ["tags", "rows"])
def test_another_shape_never_takes_the_protection_away(
    policy: str, shop: Shop, proxy: Proxy, client: bigquery.Client
) -> None:
    """A table with policy tags or row access policies is not made anew; they are named."""
    shop.run(whole(lambda: table_of(orders_of(1))))
    if policy == "tags":
        tagged_and_described(client)
    else:
        proxy.inject(
            lambda _: Answer.of(200, {"rowAccessPolicies": [{"filterPredicate": "TRUE"}]}),
            on=lambda request: request.path.endswith("/orders/rowAccessPolicies"),
        )
    proxy.clear()

    with shop.refusing(WarehouseMaterializationError) as refused:
        shop.run(whole(lambda: table_of(orders_of(2)).drop("order_id")))

    assert "shop.orders" in refused.value.problem
    what = "policy tags on amount" if policy == "tags" else "row access policies"
    assert what in refused.value.problem
    assert "ALTER TABLE" in refused.value.remedy
    assert [request for request in proxy.requests() if request.starts_job] == []


# What is refused


def test_more_dates_than_bigquery_takes_are_refused(watched: WarehouseEngine, proxy: Proxy) -> None:
    """A write of more than 4,000 dates is refused before anything is asked, with the policy to set."""
    days = [date(2000, 1, 1) + timedelta(days=n) for n in range(4001)]
    target = TableRef(catalog="p", namespace="shop", name="orders")
    rows = ibis.memtable({"day": days})

    with pytest.raises(WarehouseMaterializationError) as refused:
        watched.replace_partitions(target, rows, "day", days)

    assert "4001 dates" in refused.value.problem
    assert "at most 4000" in refused.value.problem
    assert "max_partitions_per_run" in refused.value.remedy
    assert proxy.requests() == []


@pytest.mark.parametrize(
    ("declared", "words"),
    [
        ({"cluster_by": list("abcde")}, ["cluster_by names 5 columns", "at most 4"]),
        ({"cluster_by": "order_id"}, ["the text 'order_id'", 'cluster_by=["order_id"]']),
        ({"cluster_by": [""]}, ["cluster_by", "''"]),
        ({"labels": {"Team": "shop"}}, ["'Team'", "small letters"]),
        ({"labels": {"team": "My Shop"}}, ["'My Shop'", "small letters"]),
        ({"labels": {"1st": "x"}}, ["'1st'", "starts with a letter"]),
        ({"labels": {"k" * 64: "x"}}, ["at most 63"]),
        ({"labels": {f"k{n}": "" for n in range(65)}}, ["65 labels", "at most 64"]),
        ({"description": "x" * 16_385}, ["description has 16385", "16384"]),
        ({"column_descriptions": {"day": "x" * 1_025}}, ["column_descriptions['day']", "1024"]),
        ({"partition_expiration_days": 0}, ["partition_expiration_days is 0"]),
        ({"partition_expiration_days": True}, ["partition_expiration_days is True"]),
        ({"commit": "upsert"}, ["'upsert'", '"merge" or "transaction"']),
    ],
)
def test_a_declaration_that_cannot_work_is_refused_when_it_is_made(
    declared: dict[str, Any], words: list[str]
) -> None:
    """What BigQuery could not hold is named where it is written, before there is any run."""
    with pytest.raises(WarehouseConfigurationError) as refused:
        warehouse_asset_metadata(partition_by_date="day", **declared)

    for word in words:
        assert word in str(refused.value)


@pytest.mark.parametrize(
    "declared", [{"partition_expiration_days": 7}, {"require_partition_filter": True}]
)
def test_options_of_partitions_need_partitions(declared: dict[str, Any]) -> None:
    """What is about partitions is refused on a table that declares none."""
    with pytest.raises(WarehouseConfigurationError, match="the table has no partitions"):
        warehouse_asset_metadata(**declared)


def test_the_longest_that_is_kept_is_taken() -> None:
    """Each limit itself is allowed."""
    assert warehouse_asset_metadata(
        partition_by_date="day",
        cluster_by=list("abcd"),
        description="x" * 16_384,
        column_descriptions={"day": "x" * 1_024},
        labels={"k" * 63: "v" * 63} | {f"k{n}": "" for n in range(63)},
        partition_expiration_days=1,
    )
