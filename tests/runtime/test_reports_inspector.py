"""What users of other tools reported about loading definitions, tried on the inspector.

Each test is named after the report it answers (area H); what is true already when a workspace
loads is in `tests/dagster_adapter/test_reports_definitions.py`.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from runtime.inspecting import codes, inspected, marked, only, run_inspect, write_workspace
from segmentstream._manifest import read_manifest
from segmentstream.runtime.inspector.findings import Code
from segmentstream.runtime.inspector.loading import WorkspaceError

_POSTPONED = """\
from __future__ import annotations
import ibis.expr.types as ir
import segmentstream.dagster as dg
@dg.asset(io_manager_key="warehouse_io") # here
def orders(context: {annotation}) -> ir.Table: ...
defs = dg.Definitions([orders])
"""


def test_h1_a_refused_context_is_shown_with_its_line(tmp_path: Path) -> None:
    """Dagster's message about a postponed annotation comes with the line of the asset."""
    (tmp_path / "definitions.py").write_text(
        _POSTPONED.format(annotation="dg.AssetExecutionContext")
    )

    with pytest.raises(WorkspaceError) as caught:
        inspected(tmp_path)

    finding = caught.value.finding
    assert "Cannot annotate `context` parameter" in finding.problem
    assert set(finding.places) == marked(tmp_path)


# Notes whatever is touched, in a process where the libraries are loaded already: nothing but code,
# the project file and what says the SDK's version may be read.
_WATCHED = """
import os, sys
import dagster, ibis, segmentstream.dagster
from segmentstream import external_table_asset, warehouse_resources
import segmentstream.runtime.inspector.command
from segmentstream.runtime.__main__ import main

touched = []

def watch(event, arguments):
    code = (".py", ".pyc", ".zip", "pyproject.toml", "METADATA")
    if event == "open" and not str(arguments[0]).endswith(code):
        touched.append(f"open {arguments[0]}")
    elif event.startswith(("socket.", "subprocess.", "os.putenv", "os.system", "os.exec")):
        touched.append(event)

assert not [name for name in os.environ if name.startswith("SEGMENTSTREAM_")]
sys.addaudithook(watch)
code = main(["inspect", "manifest.json"])
assert not {"duckdb", "google.cloud.bigquery", "httpx"} & set(sys.modules), "a driver was loaded"
print(code, [name for name in touched if "zoneinfo" not in name and "manifest.json" not in name])
"""


def test_h2_nothing_is_needed_and_nothing_reached(tmp_path: Path) -> None:
    """Without variables a manifest comes out, and neither network, driver nor other file is touched."""
    write_workspace(
        tmp_path,
        """
        from segmentstream import WarehouseResource
        events = external_table_asset(key=["raw", "events"], partitions_def=daily, partition_by_date="day")
        @dg.asset(partitions_def=daily, ins={"events": dg.AssetIn(key=["raw", "events"])}, **BY_DAY, **KEPT)
        def orders(events: ir.Table) -> ir.Table: ...
        warehouse = WarehouseResource(engine="duckdb", catalog=dg.EnvVar("SHOP_FILE"), default_namespace=dg.EnvVar("SHOP"))
        defs = dg.Definitions([events, orders], resources=warehouse_resources(warehouse=warehouse))
        """,
    )

    done = run_inspect(tmp_path, program=_WATCHED)

    assert done.stdout.splitlines()[-1] == "0 []", done.stderr
    manifest = read_manifest((tmp_path / "manifest.json").read_text())
    assert [asset.key for asset in manifest.assets] == [("orders",), ("raw", "events")]


def test_h2_a_secret_is_no_part_of_the_manifest(tmp_path: Path) -> None:
    """The value of a variable that definitions name appears nowhere, whatever it is used for."""
    write_workspace(
        tmp_path,
        """
        class Mail(dg.ConfigurableResource):
            password: str
        @dg.asset(metadata={"password": dg.EnvVar("SHOP_SECRET")}, **KEPT)
        def orders(mail: Mail) -> ir.Table: ...
        from segmentstream import WarehouseResource
        warehouse = WarehouseResource(default_namespace=dg.EnvVar("SHOP_SECRET"))
        defs = dg.Definitions([orders], resources={
            **warehouse_resources(warehouse=warehouse), "mail": Mail(password=dg.EnvVar("SHOP_SECRET")),
        })
        """,
    )

    done = run_inspect(tmp_path, "manifest.json", SHOP_SECRET="hunter2")

    assert done.returncode == 0, done.stderr
    written = (tmp_path / "manifest.json").read_text()
    assert "hunter2" not in written + done.stdout + done.stderr
    assert '"password": "SHOP_SECRET"' in written


def test_h3_duplicates_are_named_with_both_places_as_json(tmp_path: Path) -> None:
    """A key of two modules ends with 5, and JSON names the key and both lines; nothing is written."""
    write_workspace(
        tmp_path,
        """
        from pipeline import first, second
        defs = dg.Definitions([first.orders, second.orders], resources=warehouse_resources())
        """,
        first='@dg.asset(key=["shop", "orders"], **KEPT) # here\ndef orders() -> ir.Table: ...',
        second='@dg.asset(key=["shop", "orders"], **KEPT) # here\ndef orders() -> ir.Table: ...',
    )

    done = run_inspect(tmp_path, "manifest.json", "--json")

    assert done.returncode == 5
    report = json.loads(done.stdout)
    assert [(each["code"], each["name"]) for each in report["refused"]] == [
        ("key_duplicate", "shop/orders")
    ]
    assert report["refused"][0]["places"] == [
        {"file": "pipeline/first.py", "line": 2},
        {"file": "pipeline/second.py", "line": 2},
    ]
    assert not (tmp_path / "manifest.json").exists()


def test_h3_a_check_that_is_picked_up_twice_is_one_check(tmp_path: Path) -> None:
    """The same check found in two modules is no duplicate, and stands in the manifest once."""
    write_workspace(
        tmp_path,
        """
        from pipeline import first, second
        checks = dg.load_asset_checks_from_modules([first, second])
        defs = dg.Definitions([first.orders], asset_checks=[*checks, *checks], resources=warehouse_resources())
        """,
        first="""
        @dg.asset(**KEPT)
        def orders() -> ir.Table: ...
        @dg.asset_check(asset=orders, blocking=True)
        def free(orders: ir.Table) -> dg.AssetCheckResult: ...
        """,
        second="from pipeline.first import free",
    )

    inspection = inspected(tmp_path)

    assert codes(inspection) == []
    assert inspection.manifest
    assert [(check.name, check.is_blocking) for check in inspection.manifest.checks] == [
        ("free", True)
    ]


def test_h4_a_job_that_mixes_or_selects_nothing_is_named_and_no_other(tmp_path: Path) -> None:
    """Of several jobs only those at fault are named, each with what it mixes or lacks."""
    write_workspace(
        tmp_path,
        """
        @dg.asset(partitions_def=daily, **BY_DAY, **KEPT)
        def orders() -> ir.Table: ...
        @dg.asset(partitions_def=dg.MonthlyPartitionsDefinition("2024-05-01"))
        def report() -> None: ...
        jobs = [
            dg.define_asset_job("good", [orders]),
            dg.define_asset_job("mixed", [orders, report]),
            dg.define_asset_job("empty", dg.AssetSelection.groups("none")),
        ]
        defs = dg.Definitions([orders, report], jobs=jobs, resources=warehouse_resources())
        """,
    )

    findings = inspected(tmp_path).findings

    assert [(each.code, each.name) for each in findings] == [
        (Code.JOB_EMPTY, "empty"),
        (Code.JOB_PARTITIONS_MIXED, "mixed"),
    ]
    for word in ("Daily", '["orders"]', "Monthly", '["report"]'):
        assert word in findings[1].problem


@pytest.mark.filterwarnings("ignore:Support for arbitrary metadata values is deprecated")
def test_h5_metadata_keeps_its_plain_form_or_is_marked(tmp_path: Path) -> None:
    """Each value is written as JSON has it, others as a marked text; the bytes are the same twice."""
    write_workspace(
        tmp_path,
        """
        import decimal, pathlib
        class Secret:
            def __repr__(self): return "hunter2"
        values = {
            "text": "a", "number": 1, "float": 1.5, "nan": float("nan"), "none": None,
            "path": dg.MetadataValue.path(str(pathlib.Path(__file__).parent / "a.sql")),
            "json": {"nested": [1, {"b": None, "c": {2, 1}}]},
            "schema": dg.TableSchema([dg.TableColumn("a", "int64")]),
            "url": dg.MetadataValue.url("https://a.example"),
            "class": decimal.Decimal, "decimal": decimal.Decimal("1.50"),
            "datetime": dt.datetime(2024, 5, 1, tzinfo=dt.UTC), "object": Secret(),
        }
        @dg.asset(metadata=values, **KEPT)
        def orders() -> ir.Table: ...
        defs = dg.Definitions([orders], resources=warehouse_resources())
        """,
    )

    first, second = inspected(tmp_path).manifest, inspected(tmp_path).manifest

    assert first
    assert second
    assert first.text() == second.text()
    assert json.loads(first.text())["assets"][0]["metadata"] == {
        "text": "a",
        "number": 1,
        "float": 1.5,
        "nan": "<builtins.float nan>",
        "none": None,
        "path": "pipeline/a.sql",
        "json": {"nested": [1, {"b": None, "c": [1, 2]}]},
        "schema": [{"name": "a", "type": "int64", "description": None}],
        "url": "https://a.example",
        "class": "<class decimal.Decimal>",
        "decimal": "<decimal.Decimal 1.50>",
        "datetime": "<datetime.datetime 2024-05-01 00:00:00+00:00>",
        "object": "<pipeline.definitions.Secret>",
    }


def test_h6_external_assets_are_listed_and_each_location_has_its_name(tmp_path: Path) -> None:
    """A specification at module level is listed as external; manifests of one key differ in location."""
    for name in ("shop_eu", "shop_us"):
        write_workspace(
            tmp_path / name,
            """
            from pipeline import tables
            defs = dg.Definitions(
                dg.load_assets_from_modules([tables], include_specs=True), resources=warehouse_resources()
            )
            """,
            tables="""
            orders = external_table_asset(key=["shop", "orders"])
            files = dg.AssetSpec(["shop", "files"])
            """,
        )
        (tmp_path / name / "pyproject.toml").write_text(
            f'[tool.dg.project]\nroot_module = "pipeline"\ncode_location_name = "{name}"\n'
        )

    manifests = [inspected(tmp_path / name).manifest for name in ("shop_eu", "shop_us")]

    assert [each and each.location for each in manifests] == ["shop_eu", "shop_us"]
    assert manifests[0]
    assert [(each.key, each.is_external, each.table) for each in manifests[0].assets] == [
        (("shop", "files"), True, None),
        (("shop", "orders"), True, manifests[0].assets[1].table),
    ]
    assert manifests[0].assets[1].table is not None


def test_h6_an_external_table_that_was_not_loaded_is_named(tmp_path: Path) -> None:
    """Left out of the definitions, it is an unknown input, and the remedy says how to load it."""
    write_workspace(
        tmp_path,
        """
        from pipeline import tables
        defs = dg.Definitions(dg.load_assets_from_modules([tables]), resources=warehouse_resources())
        """,
        tables="""
        events = external_table_asset(key=["raw", "events"])
        @dg.asset(ins={"events": dg.AssetIn(key=["raw", "events"])}, **KEPT) # here
        def orders(events: ir.Table) -> ir.Table: ...
        """,
    )

    finding = only(inspected(tmp_path))

    assert finding.code is Code.INPUT_UNKNOWN
    assert '["raw", "events"]' in finding.problem
    assert "include_specs=True" in finding.remedy
    assert set(finding.places) == marked(tmp_path)
