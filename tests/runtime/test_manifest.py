"""The manifest: what it holds of the example, and that nothing but the workspace decides its bytes."""

from __future__ import annotations

import json
import shutil
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

import segmentstream.dagster as dg
from dagster_adapter.support import BY_DAY, orders_of, table_of
from runtime.inspecting import inspected, run_inspect, write_workspace
from segmentstream import WAREHOUSE_IO_MANAGER_KEY, external_table_asset, warehouse_resources
from segmentstream._core.jsonio import canonical_json, write_atomically
from segmentstream._manifest import Manifest, Versions, read_manifest, schema_text
from segmentstream.runtime.inspector.declared import Declared
from segmentstream.runtime.inspector.describing import describe
from segmentstream.runtime.inspector.loading import Workspace
from segmentstream.runtime.inspector.plain import plain
from segmentstream.runtime.inspector.sources import Sources

ROOT = Path(__file__).parent.parent.parent
EXAMPLE = ROOT / "examples" / "workspace"
GOLDEN = Path(__file__).parent / "manifest.json"
SCHEMA = ROOT / "docs" / "manifest.schema.json"
# What changes with every release of either.
ANY_VERSIONS = Versions(sdk="any", dagster="any")


def test_the_example_has_its_manifest_from_any_folder_with_any_hash_seed(tmp_path: Path) -> None:
    """Two copies, inspected by processes with other hash seeds, give the bytes that are kept here."""
    written = []
    for seed, name in enumerate(["a", "a longer name"], 1):
        copy = tmp_path / name
        unwanted = shutil.ignore_patterns(".dagster", ".segmentstream", "*.duckdb*", "__pycache__")
        shutil.copytree(EXAMPLE, copy, ignore=unwanted)
        done = run_inspect(copy / "pipeline", "../manifest.json", hash_seed=seed)
        assert done.returncode == 0, done.stderr
        assert done.stdout == (
            "../manifest.json: 11 assets, 4 checks, 4 jobs, 2 schedules, 0 sensors.\n"
        )
        written.append((copy / "manifest.json").read_text())

    assert written[0] == written[1]
    manifest = read_manifest(written[0])
    assert manifest.text() == written[0]
    assert manifest.model_copy(update={"versions": ANY_VERSIONS}).text() == GOLDEN.read_text()
    assert manifest.versions.dagster.startswith("1.")


def test_sets_are_written_in_one_order(tmp_path: Path) -> None:
    """What users write as sets comes in another order with each hash seed, and out in the same."""
    write_workspace(
        tmp_path,
        """
        names = {"ibis", "sql", "python", "duckdb", "table", "view", "csv", "json"}
        @dg.asset(kinds=names - {"csv", "json", "view", "table", "duckdb"}, deps=names, tags=dict.fromkeys(names, "1"), **KEPT)
        def orders() -> ir.Table: ...
        defs = dg.Definitions([orders], resources=warehouse_resources())
        """,
    )

    written = set()
    for seed in (1, 2, 3):
        assert run_inspect(tmp_path, "manifest.json", hash_seed=seed).returncode == 0
        written.add((tmp_path / "manifest.json").read_text())

    assert len(written) == 1


def test_what_is_kept_here_is_of_this_version() -> None:
    """The golden file is read by the models as they are; a breaking change needs a new version."""
    manifest = read_manifest(GOLDEN.read_text())

    assert manifest.version == 1
    assert manifest.text() == GOLDEN.read_text()


@pytest.mark.parametrize(
    "change",
    [{"version": 2}, {"surprise": 1}, {"assets": [{}]}, {"location": 1}],
    ids=lambda change: next(iter(change)),
)
def test_anything_else_is_refused(change: dict[str, Any]) -> None:
    """Another version, an unknown field, a missing one or another type is no manifest."""
    document = json.loads(GOLDEN.read_text()) | change

    with pytest.raises(ValidationError):
        read_manifest(json.dumps(document))
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(document, json.loads(SCHEMA.read_text()))


def test_the_schema_in_the_docs_is_that_of_the_models() -> None:
    """The file that readers without Python use says what the models say, and takes the manifest."""
    assert json.loads(SCHEMA.read_text()) == json.loads(schema_text())
    jsonschema.validate(json.loads(GOLDEN.read_text()), json.loads(SCHEMA.read_text()))


def test_each_kind_of_definition_is_described(tmp_path: Path) -> None:
    """Partitions, policies, conditions, sensors and the rest stand in the manifest as declared."""
    write_workspace(
        tmp_path,
        """
        berlin = dg.DailyPartitionsDefinition(
            "2024-05-01", end_date="2025-01-01", timezone="Europe/Berlin", end_offset=1,
            exclusions=["0 0 * * 0", dt.datetime(2024, 5, 6)],
        )
        @dg.asset(
            key=["shop", "orders"], partitions_def=berlin, owners=["team:shop"], kinds={"ibis", "sql"},
            tags={"cost": "high"}, code_version="7", group_name="shop",
            backfill_policy=dg.BackfillPolicy.multi_run(5),
            automation_condition=dg.AutomationCondition.on_cron("0 6 * * *"),
            deps=["upstream"], **BY_DAY, **KEPT,
        )
        def orders() -> ir.Table:
            "All orders."
        @dg.asset(freshness_policy=dg.FreshnessPolicy.cron("0 6 * * *", dt.timedelta(hours=2)), **KEPT)
        def report() -> ir.Table: ...
        @dg.asset(partitions_def=dg.StaticPartitionsDefinition(["a", "b"]))
        def files() -> None: ...
        @dg.asset_check(asset=orders, partitions_def=berlin, blocking=True, description="No free order.")
        def free() -> dg.AssetCheckResult: ...
        @dg.op
        def sweep(): ...
        load = dg.define_asset_job("load", [orders, report], tags={"team": "shop"}, description="Loads.")
        nightly = dg.ScheduleDefinition(
            name="nightly", job=load, cron_schedule=["0 1 * * *", "0 2 * * *"],
            execution_timezone="Europe/Berlin", default_status=dg.DefaultScheduleStatus.RUNNING,
        )
        @dg.sensor(job=load)
        def watch(): ...
        defs = dg.Definitions(
            [orders, report, files], asset_checks=[free], jobs=[load], schedules=[nightly], sensors=[watch],
            resources=warehouse_resources(),
        )
        """,
    )

    manifest = inspected(tmp_path).manifest

    assert manifest
    files, report, orders = manifest.assets
    assert orders.model_dump(exclude={"metadata"}) == {
        "key": ("shop", "orders"),
        "dependencies": (("upstream",),),
        "description": "All orders.",
        "group": "shop",
        "owners": ("team:shop",),
        "kinds": ("ibis", "sql"),
        "tags": {"cost": "high"},
        "code_version": "7",
        "is_external": False,
        "table": {"namespace": "shop", "name": "orders"},
        "partitioning": {
            "kind": "daily",
            "start": "2024-05-01T00:00:00+02:00",
            "end": "2025-01-01T00:00:00+01:00",
            "timezone": "Europe/Berlin",
            "cron": "0 0 * * *",
            "end_offset": 1,
            "exclusions": ("0 0 * * 0", "2024-05-06T00:00:00+02:00"),
            "column": "day",
        },
        "backfill": {"kind": "multi_run", "max_partitions_per_run": 5},
        "automation": "on_cron(0 6 * * *, UTC)",
        "freshness": None,
    }
    assert report.freshness
    assert report.freshness.model_dump(exclude_none=True) == {
        "kind": "cron",
        "cron": "0 6 * * *",
        "lower_bound_seconds": 7200.0,
        "timezone": "UTC",
    }
    assert (report.table and report.table.namespace, report.partitioning) == (None, None)
    assert files.partitioning
    assert (files.table, files.partitioning.kind) == (None, "static")
    assert [check.model_dump() for check in manifest.checks] == [
        {
            "asset": ("shop", "orders"),
            "name": "free",
            "description": "No free order.",
            "is_blocking": True,
            "is_partitioned": True,
        }
    ]
    (load,) = manifest.jobs
    assert (load.assets, load.tags) == ((("report",), ("shop", "orders")), {"team": "shop"})
    assert load.partitioning
    assert load.partitioning.timezone == "Europe/Berlin"
    assert load.backfill == orders.backfill
    assert [check.name for check in load.checks] == ["free"]
    assert [each.model_dump() for each in manifest.schedules] == [
        {
            "name": "nightly",
            "description": None,
            "job": "load",
            "cron": ("0 1 * * *", "0 2 * * *"),
            "timezone": "Europe/Berlin",
            "is_on": True,
        }
    ]
    assert [(each.name, each.jobs, each.is_on) for each in manifest.sensors] == [
        ("watch", ("load",), False)
    ]


_KEYS = [["orders"], ["bronze", "orders"], ["bronze", "returns"], ["gold", "report"]]


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_the_order_of_definition_does_not_matter(data: st.DataObject) -> None:
    """Assets, checks, jobs and resources in any order give the same bytes."""
    manifests = {_described(data), _described(None)}

    assert len(manifests) == 1


def _described(data: st.DataObject | None) -> str:
    def mixed(values: list[Any]) -> list[Any]:
        return values if data is None else data.draw(st.permutations(values))

    daily = dg.DailyPartitionsDefinition("2024-05-01")

    def table(key: list[str]) -> dg.AssetsDefinition:
        @dg.asset(
            key=key,
            partitions_def=daily,
            metadata=dict(mixed([*BY_DAY.items(), ("a", {"x": 1, "b": 2}), ("b", [3, 1, 2])])),
            kinds=set(mixed(["ibis", "sql", "python"])),
            tags=dict(mixed([("a", "1"), ("b", "2")])),
            owners=mixed(["team:a", "team:b"]),
            deps=mixed([["raw", "events"], ["raw", "clicks"]]),
            io_manager_key=WAREHOUSE_IO_MANAGER_KEY,
        )
        def made() -> Any:
            return table_of(orders_of(1))

        return made

    def check(name: str) -> Any:
        @dg.asset_check(asset=["orders"], name=name)
        def made() -> dg.AssetCheckResult:
            return dg.AssetCheckResult(passed=True)

        return made

    assets = [
        *map(table, _KEYS),
        *(external_table_asset(key=["raw", n]) for n in ("events", "clicks")),
    ]
    jobs = [dg.define_asset_job(name, mixed(_KEYS_TEXT)) for name in ("one", "two")]
    defs = dg.Definitions(
        mixed(assets),
        asset_checks=mixed([check("a"), check("b")]),
        jobs=mixed(jobs),
        schedules=mixed([dg.build_schedule_from_partitioned_job(job) for job in jobs]),
        resources=dict(mixed(list(warehouse_resources().items()))),
    )
    folder = Path(__file__).parent
    workspace = Workspace(folder=folder, module="pipeline.definitions", location="here")
    return describe(Declared(defs, Sources(folder, workspace.module)), workspace).text()


_KEYS_TEXT = ["/".join(key) for key in _KEYS]
_FINITE = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.dates()
)
_SCALARS = (
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.dates() | st.decimals()
)
_VALUES = st.recursive(
    _SCALARS | st.binary() | st.just(object()) | st.just(dict),
    lambda values: st.lists(values) | st.dictionaries(st.text(), values) | st.tuples(values),
    max_leaves=20,
)


@given(_VALUES)
def test_metadata_of_any_kind_is_json(value: object) -> None:
    """Whatever a user writes as metadata is written as JSON that reads back as the same."""
    written = plain(value, Path("/workspace"))

    assert json.loads(canonical_json(written)) == written


@given(st.dictionaries(st.text(), _FINITE, max_size=5))
def test_json_has_one_form(values: dict[str, object]) -> None:
    """The same content in another order is the same text, and the text is ASCII."""
    document = {name: plain(value, Path("/workspace")) for name, value in values.items()}

    text = canonical_json(dict(reversed(document.items())))

    assert text == canonical_json(document)
    assert text.isascii()


def test_json_holds_no_nan() -> None:
    """What JSON has no word for is refused rather than written."""
    with pytest.raises(ValueError, match="Out of range"):
        canonical_json({"a": float("nan")})


def test_a_file_is_written_whole_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A disk that fails halfway leaves what was there, and no other file."""
    file = tmp_path / "manifest.json"
    write_atomically(file, "old")

    def fail(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", fail)
    with pytest.raises(OSError, match="No space"):
        write_atomically(file, "new")

    assert file.read_text() == "old"
    assert list(tmp_path.iterdir()) == [file]


def test_nothing_in_the_golden_file_is_of_a_machine_or_a_moment() -> None:
    """Neither a path of this machine nor today's date stands in it."""
    text = GOLDEN.read_text()

    assert str(ROOT) not in text
    assert str(Path.home()) not in text
    assert datetime.now(UTC).date().isoformat() not in text
    assert isinstance(read_manifest(text), Manifest)
