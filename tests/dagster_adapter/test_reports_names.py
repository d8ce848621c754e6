"""What users of other tools reported about columns, types and names, tried here.

Each test is named after the report it answers (area G); the example is always the same: `orders`
of a shop, one partition a day in Berlin.
"""

from collections.abc import Callable
from datetime import date
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any
from uuid import UUID

import ibis
import ibis.expr.types as ir
import pandas as pd
import pytest
from dagster import DagsterError, DagsterInvalidDefinitionError

import segmentstream.dagster as dg
from dagster_adapter.support import (
    BY_DAY,
    ORDERS,
    SCHEMA,
    Shop,
    daily_orders,
    key,
    may,
    on_each_engine,
    order,
    orders_of,
    refused_before_any_asset,
    table_of,
    told,
    whole_orders,
)
from segmentstream import (
    WAREHOUSE_IO_MANAGER_KEY,
    ColumnMismatchError,
    WarehouseConfigurationError,
    WarehouseMaterializationError,
    WarehouseResource,
    external_table_asset,
    warehouse_asset_metadata,
    warehouse_resources,
)


@on_each_engine
def test_g1_columns_in_another_order_land_where_they_belong(
    shop: Shop, daily: dg.DailyPartitionsDefinition
) -> None:
    """A day whose columns come in another order is stored by name, never by position."""
    shop.run(daily_orders(orders_of(1), daily), day=1)
    shuffled = table_of(orders_of(2, amount="20.50")).select("amount", "order_id", "day")

    shop.run(daily_orders(lambda _: shuffled, daily), day=2)

    assert shop.rows() == sorted(orders_of(1) + orders_of(2, amount="20.50"))


@on_each_engine
def test_g1_a_renamed_column_is_refused(shop: Shop, daily: dg.DailyPartitionsDefinition) -> None:
    """A day that calls a column otherwise is refused, and the error lists what lacks and what is new."""
    shop.run(daily_orders(orders_of(1, 2), daily), days=(1, 2))
    renamed = table_of(orders_of(3)).rename(total="amount")

    with shop.refusing(ColumnMismatchError) as caught:
        shop.run(daily_orders(lambda _: renamed, daily), day=3)

    assert (caught.value.missing, caught.value.extra) == (("amount",), ("total",))
    assert "amount" in caught.value.problem
    assert "total" in caught.value.problem


@on_each_engine
def test_g2_a_new_column_of_a_daily_asset_is_null_in_older_days(
    shop: Shop, daily: dg.DailyPartitionsDefinition
) -> None:
    """A column that comes with 05-03 is added and reported, and the days before read NULL."""
    shop.run(daily_orders(orders_of(1, 2, per_day=1), daily), days=(1, 2))
    wider = table_of(orders_of(3, per_day=1)).mutate(channel=ibis.literal("web"))

    result = shop.run(daily_orders(lambda _: wider, daily), day=3)

    assert [row[3] for row in shop.rows()] == [None, None, "web"]
    assert [row[:3] for row in shop.rows()] == orders_of(1, 2, 3, per_day=1)
    assert told(result)["segmentstream/added_columns"] == "channel"


@on_each_engine
def test_g2_a_day_before_the_new_column_can_be_run_again(
    shop: Shop, daily: dg.DailyPartitionsDefinition
) -> None:
    """After the column is there, a day of the old shape is refused with the fix, which then works."""
    wider = table_of(orders_of(3, per_day=1)).mutate(channel=ibis.literal("web"))
    shop.run(daily_orders(orders_of(2, per_day=1), daily), day=2)
    shop.run(daily_orders(lambda _: wider, daily), day=3)
    narrow = table_of(orders_of(2, per_day=2))

    with shop.refusing(ColumnMismatchError) as caught:
        shop.run(daily_orders(lambda _: narrow, daily), day=2)
    shop.run(daily_orders(lambda _: narrow.mutate(channel=ibis.null()), daily), day=2)

    assert caught.value.missing == ("channel",)
    assert "`.mutate(channel=ibis.null())`" in caught.value.remedy
    assert [(row[0], row[3]) for row in shop.rows()] == [(20, None), (21, None), (30, "web")]


@on_each_engine
def test_g2_an_unpartitioned_asset_takes_its_new_shape(shop: Shop) -> None:
    """A whole table that loses one column and gains another is replaced with the new columns."""
    shop.run(whole_orders(orders_of(1)))
    other = table_of(orders_of(1)).drop("amount").mutate(channel=ibis.literal("web"))

    shop.run(whole_orders(lambda: other))

    stored = shop.tables()["shop.orders"]
    assert stored.columns == {"order_id": "int64", "day": "date", "channel": "string"}
    assert stored.rows == [(10, may(1), "web"), (11, may(1), "web")]


@on_each_engine
@pytest.mark.parametrize("partitioned", [True, False])
def test_g3_reserved_words_are_names_like_any_other(
    shop: Shop, daily: dg.DailyPartitionsDefinition, *, partitioned: bool
) -> None:
    """Columns, a partition column and a table called by reserved words are made, replaced and loaded."""
    seen: list[list[dict[str, Any]]] = []
    version = iter(range(10))
    partitions_def = daily if partitioned else None
    metadata = warehouse_asset_metadata(partition_by_date="date" if partitioned else None)

    @dg.asset(
        key=["shop", "order"],
        partitions_def=partitions_def,
        metadata=metadata,
        backfill_policy=dg.BackfillPolicy.single_run(),
        io_manager_key=WAREHOUSE_IO_MANAGER_KEY,
    )
    def written(context: dg.AssetExecutionContext) -> ir.Table:
        days = context.partition_keys if partitioned else [key(1), key(3)]
        row = {"group": [next(version)], "select": ["from"], "by": [None], "where": [1.5]}
        rows = ibis.memtable(
            row, schema={"group": "int", "select": "string", "by": "string", "where": "float"}
        )
        return ibis.union(
            *[rows.mutate(date=ibis.date(day), order=ibis.literal("x")) for day in days],
            rows.mutate(date=ibis.date("2000-01-01"), order=ibis.literal("x")).limit(0),
        )

    @dg.asset(
        key=["shop", "table"],
        ins={"written": dg.AssetIn(key=["shop", "order"])},
        partitions_def=partitions_def,
        metadata=metadata,
        backfill_policy=dg.BackfillPolicy.single_run(),
        io_manager_key=WAREHOUSE_IO_MANAGER_KEY,
    )
    def loaded(written: ir.Table) -> ir.Table:
        seen.append(written.order_by("date").to_pyarrow().to_pylist())
        return written

    if partitioned:
        for day in (1, 3, 3):
            assert shop.run(written, loaded, day=day).success
        assert shop.run(written, loaded, days=(1, 3)).success
        days, last = [1, 2, 3], 3
    else:
        for _ in range(2):
            assert shop.run(written, loaded).success
        days, last = [1, 3], 1

    expected = [
        {"group": last, "select": "from", "by": None, "where": 1.5, "date": may(day), "order": "x"}
        for day in days
    ]
    assert seen[-1] == expected
    assert shop.rows("shop.order") == [tuple(row.values()) for row in expected]
    assert shop.rows("shop.table") == shop.rows("shop.order")


@pytest.mark.parametrize(
    "path", [["my-shop", "daily orders"], ["shop", "v1.orders"], ["acme-12c1", "2024"], ["größe"]]
)
def test_g4_unusual_names_are_kept_as_given(
    shop: Shop, daily: dg.DailyPartitionsDefinition, path: list[str]
) -> None:
    """Dashes, spaces, dots, digits and letters of any alphabet are quoted, and load again."""
    seen: list[int] = []
    days = iter([1, 2, 2])
    written = _keyed(
        path,
        lambda: table_of([order(1, next(days))]),
        partitions_def=daily,
        metadata=BY_DAY,
    )

    @dg.asset(ins={"rows": dg.AssetIn(key=path)}, partitions_def=daily)
    def reader(rows: ir.Table) -> None:
        seen.append(rows.count().execute())

    for day in (1, 2, 2):
        shop.run(written, reader, day=day)

    assert seen == [1, 1, 1]
    assert shop.rows(".".join(path if len(path) > 1 else ["main", *path])) == [
        order(1, 1),
        order(1, 2),
    ]


@pytest.mark.parametrize("engine_name", ["bigquery"], indirect=True)
@pytest.mark.parametrize(
    ("path", "rule"),
    [
        (["my-shop", "daily orders"], "'my-shop' cannot exist in BigQuery"),
        (["shop", "v1.orders"], "'v1.orders' cannot exist in BigQuery"),
        (["acme_12c1", "daily-orders 2024"], None),
        (["größe"], None),
    ],
)
def test_g4_what_bigquery_cannot_name_is_refused_and_never_renamed(
    shop: Shop, daily: dg.DailyPartitionsDefinition, path: list[str], rule: str | None
) -> None:
    """On BigQuery a dash in a dataset or a dot in a table is refused before anything is computed."""
    called: list[bool] = []

    def make() -> ir.Table:
        called.append(True)
        return table_of([order(1, 2)])

    written = _keyed(path, make, partitions_def=daily, metadata=BY_DAY)
    if rule is None:
        shop.run(written, day=2)
        assert shop.rows(".".join(path if len(path) > 1 else ["main", *path])) == [order(1, 2)]
        return

    with refused_before_any_asset(shop) as errors:
        shop.run(written, day=2)
    assert called == []
    assert rule in errors[0].problem
    assert "[" + ", ".join(f'"{part}"' for part in path) + "]" in errors[0].problem


def test_g4_what_dagster_cannot_name_it_refuses_when_definitions_load() -> None:
    """`@asset` makes a step's name of its key and refuses a space; nothing is renamed silently."""
    with pytest.raises(DagsterInvalidDefinitionError, match="my_shop__daily orders"):

        @dg.asset(key=["my-shop", "daily orders"], io_manager_key=WAREHOUSE_IO_MANAGER_KEY)
        def written() -> ir.Table:
            return table_of(orders_of(1))


def test_g4_the_name_of_the_database_may_hold_anything_a_file_may(catalog: Path) -> None:
    """A file called like a project, with dashes, dots and spaces, holds and loads tables."""
    odd = catalog.with_name("acme-12c1 v1.2 'shop'.duckdb")
    resources = warehouse_resources(
        warehouse=WarehouseResource(engine="duckdb", catalog=str(odd), default_namespace="main")
    )
    seen: list[int] = []

    @dg.asset(ins={"orders": dg.AssetIn(key=ORDERS)})
    def reader(orders: ir.Table) -> None:
        seen.append(orders.count().execute())

    for _ in range(2):
        dg.materialize([whole_orders(orders_of(1)), reader], resources=resources)

    assert seen == [2, 2]
    assert odd.exists()


@on_each_engine
@pytest.mark.parametrize(
    ("path", "rule"),
    [
        (["a", "shop", "orders"], "has 3 parts; a table is named by one or two"),
        (["", "orders"], "the part '', which is empty"),
        (["shop", ""], "the part '', which is empty"),
        (["shop", "orders "], "which begins or ends with white space"),
        (["shop", "or\nders"], "which contains a control character"),
    ],
)
def test_g4_a_key_that_names_no_table_is_refused(shop: Shop, path: list[str], rule: str) -> None:
    """Such a key is refused with the key and the rule before the asset's function is called."""
    called: list[bool] = []

    def make() -> ir.Table:
        called.append(True)
        return table_of(orders_of(1))

    with shop.refusing(DagsterError) as caught:
        shop.run(_keyed(path, make))
    with pytest.raises(WarehouseConfigurationError) as declared:
        external_table_asset(key=path)

    assert called == []
    for error in (_ours(caught.value), declared.value):
        assert rule in error.problem
        assert "[" + ", ".join(f'"{part}"' for part in path) + "]" in error.problem


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (["orders"], ["main", "orders"]),
        (["shop", "orders"], ["shop", "Orders"]),
        (["shop", "orders"], ["SHOP", "orders"]),
    ],
)
def test_g4_two_keys_never_share_a_table(shop: Shop, one: list[str], other: list[str]) -> None:
    """Two keys that mean one table are refused together, both named, and nothing is written."""
    called: list[bool] = []

    def make() -> ir.Table:
        called.append(True)
        return table_of(orders_of(1))

    with shop.refusing(Exception) as caught:
        shop.run(_keyed(one, make, name="one"), _keyed(other, make, name="other"))

    assert called == []
    for path in (one, other):
        assert "[" + ", ".join(f'"{part}"' for part in path) + "]" in _ours(caught.value).problem


def test_g4_keys_that_look_alike_are_two_tables(shop: Shop) -> None:
    """Names that differ in a dash, an underscore, a dot or a space are different tables."""
    names = ["daily-orders", "daily_orders", "daily.orders", "daily orders"]
    for number, name in enumerate(names):
        shop.run(_keyed(["shop", name], partial(table_of, [order(number, 1)])))

    assert {name: stored.rows for name, stored in shop.tables().items()} == {
        f"shop.{name}": [order(number, 1)] for number, name in enumerate(names)
    }


@on_each_engine
def test_g5_upper_and_lower_case_are_kept(shop: Shop, daily: dg.DailyPartitionsDefinition) -> None:
    """`["Raw", "Orders"]` is spelled so in the file, and a second write makes no other namespace."""
    raw = dg.AssetKey(["Raw", "Orders"])
    seen: list[int] = []

    @dg.asset(
        key=raw, partitions_def=daily, metadata=BY_DAY, io_manager_key=WAREHOUSE_IO_MANAGER_KEY
    )
    def written(context: dg.AssetExecutionContext) -> ir.Table:
        return table_of(orders_of(date.fromisoformat(context.partition_key).day))

    @dg.asset(ins={"rows": dg.AssetIn(key=raw)}, partitions_def=daily)
    def reader(rows: ir.Table) -> None:
        seen.append(rows.count().execute())

    for day in (1, 2):
        result = shop.run(written, reader, day=day)

    assert shop.schemas() == {"Raw"}
    assert set(shop.tables()) == {"Raw.Orders"}
    assert told(result, raw)["dagster/table_name"].endswith(".Raw.Orders")
    assert seen == [2, 2]


@pytest.mark.parametrize("path", [["raw", "orders"], ["Raw", "orders"], ["raw", "Orders"]])
def test_g5_another_spelling_of_a_table_is_refused(shop: Shop, path: list[str]) -> None:
    """Where the engine does not tell the case apart, a key in another spelling writes nothing."""
    shop.fill(orders_of(1), name="Raw.Orders")

    @dg.asset(key=path, io_manager_key=WAREHOUSE_IO_MANAGER_KEY)
    def written() -> ir.Table:
        return table_of(orders_of(2))

    with shop.refusing(WarehouseConfigurationError) as caught:
        shop.run(written)

    assert "does not tell upper from lower case" in caught.value.problem
    assert {"Raw", "Orders"} & set(caught.value.problem.replace("'", " ").split())


@on_each_engine
def test_g6_a_column_without_values_and_type_is_refused(
    shop: Shop, daily: dg.DailyPartitionsDefinition
) -> None:
    """A first day whose coupons are all None makes no table, and the error names the column."""
    with shop.refusing(ColumnMismatchError) as caught:
        shop.run(_coupons([None, None], daily), day=1)

    assert caught.value.untyped == ("coupon",)
    assert "'coupon'" in caught.value.problem


@on_each_engine
def test_g6_a_declared_schema_types_a_column_without_values(
    shop: Shop, daily: dg.DailyPartitionsDefinition
) -> None:
    """With its type declared, a first day of None stores text, and later texts fit."""
    shop.run(_coupons([None, None], daily, declared="string"), day=1)
    shop.run(_coupons(["SPRING", None], daily), day=2)

    stored = shop.tables()["shop.coupons"]
    assert stored.columns["coupon"] == "string"
    assert stored.rows == [
        (0, "SPRING", may(2)),
        (0, None, may(1)),
        (1, None, may(1)),
        (1, None, may(2)),
    ]


@on_each_engine
def test_g6_the_existing_table_types_a_column_without_values(
    shop: Shop, daily: dg.DailyPartitionsDefinition
) -> None:
    """A later day of None takes the type that the table has."""
    shop.run(_coupons(["SPRING", None], daily), day=1)
    shop.run(_coupons([None, None], daily), day=2)

    stored = shop.tables()["shop.coupons"]
    assert stored.columns["coupon"] == "string"
    assert [row[1] for row in stored.rows if row[2] == may(2)] == [None, None]


@on_each_engine
def test_g6_a_null_in_a_required_column_is_refused(
    shop: Shop, daily: dg.DailyPartitionsDefinition
) -> None:
    """A schema that requires a value is kept to: a missing one stops the write, and is named."""
    required = ibis.memtable(
        {"order_id": [1, None], "day": [may(1), may(1)], "amount": [Decimal(1), Decimal(2)]},
        schema=SCHEMA | {"order_id": "!int64"},
    )

    with shop.refusing(WarehouseMaterializationError) as caught:
        shop.run(daily_orders(lambda _: required, daily), day=1)

    assert "order_id" in caught.value.problem


@pytest.mark.parametrize(
    ("engine_name", "first_day"),
    [("duckdb", True), ("duckdb", False), ("bigquery", True)],
    indirect=["engine_name"],
)
@pytest.mark.parametrize(
    ("days", "accepted"),
    [
        (pd.Series(["2024-05-02"] * 3, dtype="datetime64[ns]"), False),
        (pd.Series(["2024-05-02"] * 3, dtype="datetime64[s]"), False),
        (pd.Series(["2024-05-02"] * 3, dtype="object"), False),
        (pd.Series(["2024-05-02"] * 3), False),
        (pd.Series([may(2)] * 3), True),
    ],
    ids=["datetime64[ns]", "datetime64[s]", "text in objects", "text", "date"],
)
def test_g7_a_day_is_stored_as_a_date_or_refused(
    shop: Shop,
    daily: dg.DailyPartitionsDefinition,
    days: "pd.Series[Any]",
    *,
    accepted: bool,
    first_day: bool,
) -> None:
    """The partition column becomes a DATE, whatever it came as, or the error names it."""
    if not first_day:
        shop.run(daily_orders(orders_of(1), daily), day=1)
    frame = pd.DataFrame({"order_id": [1, 2, 3], "amount": [Decimal("9.90")] * 3})
    rows = ibis.memtable(frame.assign(day=days)).cast({"amount": SCHEMA["amount"]})
    asset = daily_orders(lambda _: rows.select(*SCHEMA), daily)

    if accepted:
        shop.run(asset, day=2)
        assert shop.tables()["shop.orders"].columns["day"] == "date"
        assert shop.ids(2) == [1, 2, 3]
    else:
        with shop.refusing(WarehouseMaterializationError) as caught:
            shop.run(asset, day=2)
        assert "'day'" in caught.value.problem
        assert "DATE" in caught.value.problem


@pytest.mark.parametrize(
    ("dtype", "values"),
    [
        ("decimal(37, 0)", ["9" * 37, "-" + "9" * 37]),
        ("decimal(38, 9)", ["9" * 29 + ".000000001"]),
        ("decimal(38, 18)", ["9" * 20 + "." + "9" * 18]),
    ],
)
def test_g8_wide_decimals_are_stored_exactly(shop: Shop, dtype: str, values: list[str]) -> None:
    """The largest values of each type come back digit by digit."""
    rows = ibis.memtable({"amount": list(map(Decimal, values))}, schema={"amount": dtype})

    shop.run(whole_orders(lambda: rows))

    assert shop.tables()["shop.orders"].columns == {"amount": dtype}
    assert shop.rows() == sorted((Decimal(value),) for value in values)


@pytest.mark.parametrize("engine_name", ["bigquery"], indirect=True)
def test_g8_a_decimal_longer_than_any_of_bigquery_is_refused(shop: Shop) -> None:
    """A type with more digits than BIGNUMERIC has is refused by name before a job runs."""
    rows = ibis.memtable({"n": [1]})
    wide = rows.mutate(amount=rows.n.cast("decimal(76, 20)"))

    with shop.refusing(ColumnMismatchError) as caught:
        shop.run(whole_orders(lambda: wide))

    assert "'amount' is longer than a BIGNUMERIC" in caught.value.problem


@on_each_engine
def test_an_identifier_of_128_bits_can_be_written_again(shop: Shop, engine_name: str) -> None:
    """A UUID is kept as one on DuckDB and as text on BigQuery, the same on the second run."""
    one = UUID("12345678-1234-5678-1234-567812345678")
    rows = ibis.memtable({"visit": [str(one)]}, schema={"visit": "string"})
    typed = rows.mutate(visit=rows.visit.cast("uuid"))

    for _ in range(2):
        shop.run(whole_orders(lambda: typed))

    stored = shop.tables()["shop.orders"]
    assert stored.columns == {"visit": {"duckdb": "uuid", "bigquery": "string"}[engine_name]}
    assert [tuple(map(str, row)) for row in stored.rows] == [(str(one),)]


@pytest.mark.parametrize(
    ("dtype", "amount", "fee", "total"),
    [
        ("decimal(38, 9)", "9" * 28, "1.5", "1" + "0" * 27 + "0.5"),
        ("decimal(38, 9)", "9" * 29, "1", None),
        ("decimal(38, 18)", "9" * 19, "1.5", "1" + "0" * 18 + "0.5"),
        ("decimal(38, 18)", "9" * 20, "1", None),
        ("decimal(37, 0)", "9" * 36, "1", "1" + "0" * 36),
        ("decimal(37, 0)", "9" * 37, "1", None),
        ("decimal(38, 0)", "9" * 38, "1", None),
    ],
)
def test_g8_a_sum_is_exact_or_refused(
    shop: Shop, dtype: str, amount: str, fee: str, total: str | None
) -> None:
    """`amount + fee` is exact while it fits, and otherwise stops without touching the table."""
    shop.run(whole_orders(orders_of(1)))
    rows = ibis.memtable(
        {"amount": [Decimal(amount)], "fee": [Decimal(fee)]},
        schema={"amount": dtype, "fee": dtype},
    )
    asset = whole_orders(lambda: rows.select(total=rows.amount + rows.fee))

    if total is None:
        with shop.refusing(WarehouseMaterializationError):
            shop.run(asset)
    else:
        shop.run(asset)
        assert shop.rows() == [(Decimal(total),)]


def _keyed(
    path: list[str], make: Callable[[], ir.Table], *, name: str = "written", **options: Any
) -> dg.AssetsDefinition:
    """An asset of any key at all: its step has a name of its own, unlike that of `@asset`."""
    metadata = options.pop("metadata", None)

    @dg.multi_asset(
        name=name,
        outs={"out": dg.AssetOut(key=path, io_manager_key="warehouse_io", metadata=metadata)},
        **options,
    )
    def written() -> ir.Table:
        return make()

    return written


def _coupons(
    coupons: list[str | None], daily: dg.DailyPartitionsDefinition, *, declared: str | None = None
) -> dg.AssetsDefinition:
    """A daily asset with a coupon in each row, its type left to Ibis unless it is declared."""
    frame = pd.DataFrame({"order_id": range(len(coupons)), "coupon": coupons})
    schema = {"order_id": "int64", "coupon": declared} if declared else None

    @dg.asset(
        key=["shop", "coupons"],
        partitions_def=daily,
        metadata=BY_DAY,
        io_manager_key=WAREHOUSE_IO_MANAGER_KEY,
    )
    def written(context: dg.AssetExecutionContext) -> ir.Table:
        return ibis.memtable(frame, schema=schema).mutate(day=ibis.date(context.partition_key))

    return written


def _ours(error: BaseException | None) -> WarehouseConfigurationError:
    """The error of ours that is or caused what Dagster raised."""
    while error is not None and not isinstance(error, WarehouseConfigurationError):
        error = error.__cause__
    assert error is not None
    return error
