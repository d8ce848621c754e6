"""What users of other tools reported about loading definitions, tried here.

Each test is named after the report it answers (area H). What the inspector will say of the same
inputs is tested with the inspector; here stands what is true already when a workspace loads.
"""

import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from types import ModuleType

import dagster
import ibis.expr.types as ir
import pytest
from dagster import (
    AssetMaterialization,
    DagsterInstance,
    DagsterInvalidDefinitionError,
    FloatMetadataValue,
    IntMetadataValue,
    TableSchemaMetadataValue,
    TextMetadataValue,
    deserialize_value,
    serialize_value,
)

import segmentstream.dagster as dg
from dagster_adapter.support import (
    BY_DAY,
    ORDERS,
    Shop,
    daily_orders,
    key,
    orders_of,
    table_of,
    told,
    whole_orders,
)
from segmentstream import (
    WAREHOUSE_IO_MANAGER_KEY,
    WarehouseConfigurationError,
    WarehouseResource,
    external_table_asset,
    warehouse_asset_metadata,
    warehouse_resources,
)

# One workspace for every style of writing its annotations; the names in braces are filled in.
_STYLED = """
{future}
import {library} as dg
from {library} import {context}
import ibis.expr.types as ir
import pandas as pd

received = []

@dg.asset(key=["shop", "orders"], io_manager_key="warehouse_io")
def orders(context: {annotation}) -> ir.Table:
    context.log.info("made")
    received.append(type(context))
    from dagster_adapter.support import orders_of, table_of
    return table_of(orders_of(1))

@dg.asset(ins={{"orders": dg.AssetIn(key=["shop", "orders"])}})
def reader(orders: ir.Table) -> None:
    received.append(orders.count().execute())

@dg.asset(ins={{"orders": dg.AssetIn(key=["shop", "orders"])}})
def eager(orders: pd.DataFrame) -> None:
    received.append(orders)
"""

_CONTEXTS = ["AssetExecutionContext", "OpExecutionContext"]
_POSTPONED = "from __future__ import annotations"

_WORKSPACE = """
import ibis
import ibis.expr.types as ir
import segmentstream.dagster as dg
from segmentstream import (
    WAREHOUSE_IO_MANAGER_KEY, WarehouseResource, external_table_asset, warehouse_asset_metadata,
    warehouse_resources,
)

daily = dg.DailyPartitionsDefinition(start_date="2024-05-01", timezone="Europe/Berlin")
events = external_table_asset(
    key=["bronze", "events"], partitions_def=daily, partition_by_date="day"
)

@dg.asset(
    key=["shop", "orders"],
    partitions_def=daily,
    ins={"events": dg.AssetIn(key=["bronze", "events"])},
    metadata=warehouse_asset_metadata(partition_by_date="day"),
    io_manager_key=WAREHOUSE_IO_MANAGER_KEY,
)
def orders(events: ir.Table) -> ir.Table:
    return events

@dg.asset_check(asset=["shop", "orders"])
def no_order_is_free(warehouse: WarehouseResource) -> dg.AssetCheckResult:
    return dg.AssetCheckResult(passed=True)

job = dg.define_asset_job("job", selection=[orders])
defs = dg.Definitions(
    assets=[events, orders],
    asset_checks=[no_order_is_free],
    jobs=[job],
    schedules=[dg.build_schedule_from_partitioned_job(job)],
    resources=warehouse_resources(),
)
"""

# Loads and validates a workspace where nothing of the outside can be reached or read.
_VALIDATE = """
import os, sys

def watch(event, arguments):
    if event in {"socket.connect", "socket.getaddrinfo"}:
        raise PermissionError(event)

assert not [name for name in os.environ if name.startswith("SEGMENTSTREAM_")]
sys.addaudithook(watch)
import definitions
definitions.dg.Definitions.validate_loadable(definitions.defs)
print(sorted(spec.key.to_user_string() for spec in definitions.defs.resolve_all_asset_specs()))
"""


@pytest.mark.parametrize("name", [*_CONTEXTS, "AssetCheckExecutionContext"])
def test_h1_our_contexts_are_the_ones_of_dagster(name: str) -> None:
    """An annotation with our name is an annotation with Dagster's: it is the same object."""
    assert getattr(dg, name) is getattr(dagster, name)


@pytest.mark.parametrize("context", _CONTEXTS)
@pytest.mark.parametrize("qualified", [True, False], ids=["dg.Name", "Name"])
@pytest.mark.parametrize("future", [_POSTPONED, ""], ids=["postponed", "plain"])
def test_h1_annotations_mean_here_what_they_mean_in_dagster(
    tmp_path: Path, context: str, future: str, *, qualified: bool
) -> None:
    """A workspace loads with our names exactly where it loads with Dagster's, or fails with its words."""
    outcomes = []
    for library in ("segmentstream.dagster", "dagster"):
        annotation = f"dg.{context}" if qualified else context
        try:
            _load(
                tmp_path,
                _STYLED.format(
                    future=future, library=library, context=context, annotation=annotation
                ),
            )
        except DagsterInvalidDefinitionError as error:
            outcomes.append(str(error))
        else:
            outcomes.append("loads")

    assert outcomes[0] == outcomes[1]
    if not future:
        assert outcomes[0] == "loads"


def test_h1_plain_annotations_run(shop: Shop, tmp_path: Path) -> None:
    """With annotations that are evaluated, the context is passed and an input is an Ibis table."""
    module = _load(tmp_path, _styled(future=""))

    shop.run(module.orders, module.reader)

    assert module.received == [dg.AssetExecutionContext, 2]


def test_h1_postponed_annotations_of_inputs_and_results_run(shop: Shop, tmp_path: Path) -> None:
    """With postponed annotations all but the context's work: Ibis inputs, `-> None`, refused types."""
    code = _styled(future=_POSTPONED).replace("context: AssetExecutionContext", "context")
    module = _load(tmp_path, code)

    shop.run(module.orders, module.reader)
    with shop.refusing(Exception) as caught:
        shop.run(module.orders, module.eager)

    assert module.received[1] == 2
    assert set(shop.tables()) == {"shop.orders"}
    assert "'orders' is annotated as pandas" in _ours(caught.value).problem


def test_h2_definitions_load_without_variables_and_network(tmp_path: Path) -> None:
    """A workspace loads and validates where no variable is set and no connection can be made."""
    (tmp_path / "definitions.py").write_text(_WORKSPACE)

    done = subprocess.run(
        [sys.executable, "-c", _VALIDATE],
        cwd=tmp_path,
        env=os.environ | {"PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )

    assert (done.returncode, done.stdout) == (0, "['bronze/events', 'shop/orders']\n"), done.stderr
    assert list(tmp_path.iterdir()) == [tmp_path / "definitions.py"]


def test_h2_the_first_run_names_every_variable_that_is_missing(
    instance: DagsterInstance, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run without variables calls no function, names all that are missing, and makes no file."""
    monkeypatch.chdir(tmp_path)
    called: list[bool] = []

    def make() -> ir.Table:
        called.append(True)
        return table_of([])

    with pytest.raises(Exception) as caught:  # noqa: PT011 - Dagster's wrapper; ours is looked at
        dg.materialize([whole_orders(make)], resources=warehouse_resources(), instance=instance)

    for variable in ("ENGINE", "CATALOG", "DEFAULT_NAMESPACE"):
        assert f"SEGMENTSTREAM_WAREHOUSE_{variable}" in _ours(caught.value).problem
    assert called == []
    assert list(tmp_path.iterdir()) == []


def test_h2_a_variable_of_the_users_own_stays_a_name_until_a_run(
    shop: Shop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`EnvVar` loads unset, its value is no part of the definitions, and a run reads it."""
    secret = tmp_path / "secret-place.duckdb"
    resources = warehouse_resources(
        warehouse=WarehouseResource(
            engine="duckdb", catalog=dg.EnvVar("SHOP_FILE"), default_namespace="main"
        )
    )
    defs = dg.Definitions([whole_orders(orders_of(1))], resources=resources)
    dg.Definitions.validate_loadable(defs)

    with pytest.raises(Exception, match="SHOP_FILE"):
        dg.materialize([whole_orders(orders_of(1))], resources=resources, instance=shop.instance)
    monkeypatch.setenv("SHOP_FILE", str(secret))
    dg.Definitions.validate_loadable(defs)
    shown = repr(resources) + str(defs.get_repository_def().get_top_level_resources())
    assert dg.materialize(
        [whole_orders(orders_of(1))], resources=resources, instance=shop.instance
    ).success

    assert "secret-place" not in shown
    assert secret.exists()
    assert shop.tables() == {}


@pytest.mark.parametrize("second", ["an asset", "an external table"])
def test_h3_a_key_that_is_declared_twice_is_named(shop: Shop, second: str) -> None:
    """Two declarations of one key do not load, and the error names the key."""
    other = whole_orders(orders_of(2)) if second == "an asset" else external_table_asset(key=ORDERS)

    with pytest.raises(DagsterInvalidDefinitionError) as caught:
        dg.Definitions.validate_loadable(
            dg.Definitions([whole_orders(orders_of(1)), other], resources=shop.resources)
        )

    assert "Duplicate asset key" in str(caught.value)
    assert "AssetKey(['shop', 'orders'])" in str(caught.value)


def test_h3_a_check_that_is_declared_twice_is_named(shop: Shop) -> None:
    """Two checks of one name on one asset do not load, and the error names asset and check."""

    def make() -> dg.AssetsDefinition:
        @dg.asset_check(asset=ORDERS, name="no_order_is_free")
        def check() -> dg.AssetCheckResult:
            return dg.AssetCheckResult(passed=True)

        return check

    with pytest.raises(DagsterInvalidDefinitionError) as caught:
        dg.Definitions.validate_loadable(
            dg.Definitions(
                [whole_orders(orders_of(1))],
                asset_checks=[make(), make()],
                resources=shop.resources,
            )
        )

    assert "AssetKey(['shop', 'orders'])" in str(caught.value)
    assert "no_order_is_free" in str(caught.value)


def test_h3_a_check_that_is_picked_up_twice_is_one_check(shop: Shop) -> None:
    """The same check object, found in two modules, is loaded once and runs on the table."""

    @dg.asset_check(asset=ORDERS)
    def no_order_is_free(orders: ir.Table) -> dg.AssetCheckResult:
        return dg.AssetCheckResult(passed=bool(orders.amount.min().execute() > 0))

    modules = [ModuleType("first"), ModuleType("second")]
    for module in modules:
        vars(module)["no_order_is_free"] = no_order_is_free
    checks = dg.load_asset_checks_from_modules(modules)

    result = shop.run(whole_orders(orders_of(1)), *checks)

    assert len(checks) == 1
    assert [check.passed for check in result.get_asset_check_evaluations()] == [True]


def test_h4_a_job_over_different_partitions_is_named(
    shop: Shop, daily: dg.DailyPartitionsDefinition
) -> None:
    """A job over daily and monthly assets does not load, and the error names it and what it mixes."""
    orders = daily_orders(orders_of(1), daily)

    @dg.asset(partitions_def=dg.MonthlyPartitionsDefinition("2024-05-01"), deps=[orders])
    def report() -> None:
        pass

    with pytest.raises(DagsterInvalidDefinitionError) as caught:
        dg.Definitions.validate_loadable(
            dg.Definitions(
                [orders, report],
                jobs=[dg.define_asset_job("mixed_job", selection=[orders, report])],
                resources=shop.resources,
            )
        )

    assert "mixed_job" in str(caught.value)
    assert all(word in str(caught.value.__cause__) for word in ("mixed_job", "Monthly", "Daily"))


def test_h4_a_job_that_selects_an_unknown_asset_is_named(shop: Shop) -> None:
    """A job whose selection misspells a key does not load, and the error names job and key."""
    with pytest.raises(DagsterInvalidDefinitionError) as caught:
        dg.Definitions.validate_loadable(
            dg.Definitions(
                [whole_orders(orders_of(1))],
                jobs=[dg.define_asset_job("empty_job", selection="shop/order")],
                resources=shop.resources,
            )
        )

    assert "empty_job" in str(caught.value)
    assert "shop/order" in str(caught.value.__cause__)


@pytest.mark.parametrize("days", [None, 1, 3])
def test_h5_what_a_materialization_reports_survives_the_event_log(
    tmp_path: Path,
    resources: Mapping[str, object],
    daily: dg.DailyPartitionsDefinition,
    days: int | None,
) -> None:
    """Each value keeps its type and its plain form in a stored event, read by another instance."""
    asset = daily_orders(orders_of(1, 2, 3), daily) if days == 3 else whole_orders(orders_of(1))
    if days == 1:
        asset = daily_orders(orders_of(1), daily)
    last = None if days is None else key(days)
    tags = (
        {}
        if days is None
        else {
            "dagster/asset_partition_range_start": key(1),
            "dagster/asset_partition_range_end": key(days),
        }
    )

    with DagsterInstance.local_temp(str(tmp_path)) as writing:
        result = dg.materialize([asset], resources=resources, instance=writing, tags=tags)
        reported = {
            event.partition: event.step_materialization_data.materialization
            for event in result.get_asset_materialization_events()
        }
    with DagsterInstance.local_temp(str(tmp_path)) as reading:
        records = reading.fetch_materializations(ORDERS, limit=10).records
    stored: dict[str | None, AssetMaterialization] = {
        record.partition_key: materialization
        for record in records
        if (materialization := record.asset_materialization)
    }

    assert {partition: each.metadata for partition, each in stored.items()} == {
        partition: each.metadata for partition, each in reported.items()
    }
    metadata = stored[last].metadata
    assert {name: type(value) for name, value in metadata.items()} == {
        "dagster/table_name": TextMetadataValue,
        "dagster/storage_kind": TextMetadataValue,
        "dagster/uri": TextMetadataValue,
        "dagster/column_schema": TableSchemaMetadataValue,
        "segmentstream/seconds": FloatMetadataValue,
        **(
            {"dagster/row_count": IntMetadataValue}
            if days is None
            else {
                "dagster/partition_row_count": IntMetadataValue,
                "segmentstream/dates": TextMetadataValue,
            }
        ),
    }
    schema = metadata["dagster/column_schema"].value
    assert isinstance(schema, dg.TableSchema)
    assert [(column.name, column.type) for column in schema.columns] == [
        ("order_id", "int64"),
        ("day", "date"),
        ("amount", "decimal(12, 2)"),
    ]
    again = deserialize_value(serialize_value(stored[last]), AssetMaterialization)
    assert again == stored[last]


def test_h5_what_we_declare_is_plain_text() -> None:
    """Our metadata of a definition is strings, so that any reader of it can write it as JSON."""
    declared = warehouse_asset_metadata(partition_by_date="day")
    external = external_table_asset(
        key=ORDERS,
        partitions_def=dg.DailyPartitionsDefinition("2024-05-01"),
        partition_by_date="day",
    )

    assert json.loads(json.dumps(declared)) == declared == BY_DAY
    assert {name: type(value) for name, value in external.metadata.items()} == {
        "segmentstream/partition_by_date": str,
        "dagster/io_manager_key": str,
    }


@pytest.mark.filterwarnings("ignore:Support for arbitrary metadata values is deprecated")
def test_h5_metadata_of_any_kind_may_stand_beside_ours(
    shop: Shop, daily: dg.DailyPartitionsDefinition
) -> None:
    """Values that Dagster can keep only as a marked text disturb neither loading, writing nor ours."""
    theirs = {
        "text": "a",
        "path": dg.MetadataValue.path("/a"),
        "json": {"nested": [1, {"b": None}]},
        "schema": dg.TableSchema([]),
        "class": Decimal,
        "decimal": Decimal("1.50"),
        "datetime": datetime(2024, 5, 1, tzinfo=UTC),
    }
    events = external_table_asset(
        key=["shop", "events"],
        partitions_def=daily,
        partition_by_date="day",
        metadata=theirs,
    )
    shop.fill(orders_of(1, 2), name="shop.events")

    @dg.asset(
        key=ORDERS,
        partitions_def=daily,
        ins={"events": dg.AssetIn(key=["shop", "events"])},
        metadata=theirs | BY_DAY,
        io_manager_key=WAREHOUSE_IO_MANAGER_KEY,
    )
    def orders(events: ir.Table) -> ir.Table:
        return events

    dg.Definitions.validate_loadable(dg.Definitions([events, orders], resources=shop.resources))
    result = shop.run(events, orders, day=2)

    assert shop.rows() == orders_of(2)
    assert told(result)["segmentstream/dates"] == "2024-05-02"


@pytest.mark.parametrize("kind", ["external_table_asset", "AssetSpec"])
def test_h6_an_external_table_of_a_module_is_loaded_and_stays_external(
    shop: Shop, kind: str
) -> None:
    """Declared at module level, it is found with its assets, listed, readable, and never run."""
    module = ModuleType("assets")
    events = dg.AssetKey(["shop", "events"])
    vars(module).update(
        events=external_table_asset(key=events)
        if kind == "external_table_asset"
        else dg.AssetSpec(events).with_io_manager_key(WAREHOUSE_IO_MANAGER_KEY),
        orders=_orders_from_events(),
    )
    shop.fill(orders_of(1), name="shop.events")

    assets = dg.load_assets_from_modules([module], include_specs=True)
    defs = dg.Definitions(assets, resources=shop.resources)
    graph = defs.resolve_asset_graph()
    result = shop.run(
        *(each for each in assets if isinstance(each, dg.AssetsDefinition | dg.AssetSpec))
    )

    assert {spec.key for spec in defs.resolve_all_asset_specs()} == {events, ORDERS}
    assert graph.external_asset_keys == {events}
    assert graph.materializable_asset_keys == {ORDERS}
    assert [event.asset_key for event in result.get_asset_materialization_events()] == [ORDERS]
    assert shop.rows() == shop.rows("shop.events") == orders_of(1)


def test_h6_an_external_table_that_was_not_loaded_is_named(shop: Shop) -> None:
    """Left out, as Dagster does by default, it does not vanish silently: its readers do not load."""
    module = ModuleType("assets")
    vars(module).update(
        events=external_table_asset(key=["shop", "events"]), orders=_orders_from_events()
    )

    with pytest.raises(DagsterInvalidDefinitionError, match='"shop", "events"'):
        dg.Definitions.validate_loadable(
            dg.Definitions(dg.load_assets_from_modules([module]), resources=shop.resources)
        )


def _orders_from_events() -> dg.AssetsDefinition:
    @dg.asset(
        key=ORDERS,
        ins={"events": dg.AssetIn(key=["shop", "events"])},
        io_manager_key=WAREHOUSE_IO_MANAGER_KEY,
    )
    def orders(events: ir.Table) -> ir.Table:
        return events

    return orders


def _styled(*, future: str) -> str:
    return _STYLED.format(
        future=future,
        library="segmentstream.dagster",
        context="AssetExecutionContext",
        annotation="AssetExecutionContext",
    )


def _load(folder: Path, code: str) -> ModuleType:
    """Imports code as a module that is found nowhere else."""
    file = folder / "styled.py"
    file.write_text(code)
    spec = importlib.util.spec_from_file_location("styled", file)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _ours(error: BaseException | None) -> WarehouseConfigurationError:
    """The error of ours that is or caused what Dagster raised."""
    while error is not None and not isinstance(error, WarehouseConfigurationError):
        error = error.__cause__
    assert error is not None
    return error
