"""What an inspection refuses and warns of: each code by an example, with the place it names."""

from __future__ import annotations

from pathlib import Path

import pytest

from runtime.inspecting import codes, inspected, marked, only, write_workspace
from segmentstream.runtime.inspector.findings import FINDINGS, Code, Finding
from segmentstream.runtime.inspector.loading import WorkspaceError

_RESOURCES = "resources=warehouse_resources()"

# code -> (the workspace, what has it); the lines it must name are marked.
_EXAMPLES: dict[Code, tuple[str, str]] = {
    Code.WAREHOUSE_MISSING: (
        """
        @dg.asset(**KEPT) # here
        def orders() -> ir.Table: ...
        defs = dg.Definitions([orders])
        """,
        "",
    ),
    Code.RESOURCE_MISSING: (
        """
        @dg.asset(required_resource_keys={"mail"}, **KEPT) # here
        def orders() -> ir.Table: ...
        defs = dg.Definitions([orders], resources=warehouse_resources())
        """,
        "orders",
    ),
    Code.KEY_INVALID: (
        """
        @dg.asset(key=["shop", "eu", "orders"], **KEPT) # here
        def orders() -> ir.Table: ...
        defs = dg.Definitions([orders], resources=warehouse_resources())
        """,
        "shop/eu/orders",
    ),
    Code.KEY_DUPLICATE: (
        """
        @dg.asset(key=["shop", "orders"], **KEPT) # here
        def first() -> ir.Table: ...
        second = external_table_asset(key=["shop", "orders"]) # here
        defs = dg.Definitions([first, second], resources=warehouse_resources())
        """,
        "shop/orders",
    ),
    Code.TABLE_SHARED: (
        """
        @dg.asset(key=["shop", "orders"], **KEPT) # here
        def first() -> ir.Table: ...
        @dg.asset(key=["shop", "Orders"], **KEPT) # here
        def second() -> ir.Table: ...
        defs = dg.Definitions([first, second], resources=warehouse_resources())
        """,
        "shop/Orders",
    ),
    Code.PARTITIONS_UNSUPPORTED: (
        """
        @dg.asset(partitions_def=dg.MonthlyPartitionsDefinition("2024-05-01"), **KEPT) # here
        def orders() -> ir.Table: ...
        defs = dg.Definitions([orders], resources=warehouse_resources())
        """,
        "orders",
    ),
    Code.PARTITION_COLUMN_MISSING: (
        """
        @dg.asset(partitions_def=daily, **KEPT) # here
        def orders() -> ir.Table: ...
        defs = dg.Definitions([orders], resources=warehouse_resources())
        """,
        "orders",
    ),
    Code.PARTITIONS_MISSING: (
        """
        @dg.asset(**BY_DAY, **KEPT) # here
        def orders() -> ir.Table: ...
        defs = dg.Definitions([orders], resources=warehouse_resources())
        """,
        "orders",
    ),
    Code.TABLE_UNBOUND: (
        """
        @dg.asset # here
        def orders() -> ir.Table: ...
        defs = dg.Definitions([orders], resources=warehouse_resources())
        """,
        "orders",
    ),
    Code.INPUT_UNBOUND: (
        """
        @dg.asset # here
        def orders() -> int: ...
        @dg.asset(**KEPT) # here
        def report(orders: ir.Table) -> ir.Table: ...
        defs = dg.Definitions([orders, report], resources=warehouse_resources())
        """,
        "report",
    ),
    Code.INPUT_UNKNOWN: (
        """
        @dg.asset(ins={"orders": dg.AssetIn(key=["shop", "ordres"])}, **KEPT) # here
        def report(orders: ir.Table) -> ir.Table: ...
        defs = dg.Definitions([report], resources=warehouse_resources())
        """,
        "report",
    ),
    Code.CHECK_DUPLICATE: (
        """
        @dg.asset(**KEPT)
        def orders() -> ir.Table: ...
        @dg.asset_check(asset=orders, name="free") # here
        def first() -> dg.AssetCheckResult: ...
        @dg.asset_check(asset=orders, name="free") # here
        def second() -> dg.AssetCheckResult: ...
        defs = dg.Definitions([orders], asset_checks=[first, second], resources=warehouse_resources())
        """,
        "orders:free",
    ),
    Code.CHECK_PARTITIONS_DIFFER: (
        """
        @dg.asset(**KEPT)
        def orders() -> ir.Table: ...
        @dg.asset_check(asset=orders, partitions_def=daily) # here
        def free() -> dg.AssetCheckResult: ...
        defs = dg.Definitions([orders], asset_checks=[free], resources=warehouse_resources())
        """,
        "orders:free",
    ),
    Code.JOB_NAME_INVALID: (
        """
        @dg.asset(**KEPT)
        def orders() -> ir.Table: ...
        job = dg.define_asset_job("load-orders", [orders]) # here
        defs = dg.Definitions([orders], jobs=[job], resources=warehouse_resources())
        """,
        "load-orders",
    ),
    Code.JOB_DUPLICATE: (
        """
        @dg.asset(**KEPT)
        def orders() -> ir.Table: ...
        one = dg.define_asset_job("load", [orders]) # here
        two = dg.define_asset_job("load", "*") # here
        defs = dg.Definitions([orders], jobs=[one, two], resources=warehouse_resources())
        """,
        "load",
    ),
    Code.JOB_EMPTY: (
        """
        @dg.asset(**KEPT)
        def orders() -> ir.Table: ...
        job = dg.define_asset_job("load", dg.AssetSelection.groups("shpo")) # here
        defs = dg.Definitions([orders], jobs=[job], resources=warehouse_resources())
        """,
        "load",
    ),
    Code.JOB_SELECTION_INVALID: (
        """
        @dg.asset(**KEPT)
        def orders() -> ir.Table: ...
        job = dg.define_asset_job("load", "ordres") # here
        defs = dg.Definitions([orders], jobs=[job], resources=warehouse_resources())
        """,
        "load",
    ),
    Code.JOB_PARTITIONS_MIXED: (
        """
        @dg.asset(partitions_def=daily, **BY_DAY, **KEPT) # here
        def orders() -> ir.Table: ...
        @dg.asset(partitions_def=dg.MonthlyPartitionsDefinition("2024-05-01")) # here
        def report() -> None: ...
        job = dg.define_asset_job("load", [orders, report]) # here
        defs = dg.Definitions([orders, report], jobs=[job], resources=warehouse_resources())
        """,
        "load",
    ),
    Code.JOB_BACKFILL_MIXED: (
        """
        @dg.asset(partitions_def=daily, backfill_policy=dg.BackfillPolicy.single_run(), **BY_DAY, **KEPT) # here
        def orders() -> ir.Table: ...
        @dg.asset(partitions_def=daily, **BY_DAY, **KEPT) # here
        def report() -> ir.Table: ...
        job = dg.define_asset_job("load", [orders, report]) # here
        defs = dg.Definitions([orders, report], jobs=[job], resources=warehouse_resources())
        """,
        "load",
    ),
    Code.TRIGGER_DUPLICATE: (
        """
        @dg.asset(**KEPT)
        def orders() -> ir.Table: ...
        job = dg.define_asset_job("load", [orders])
        nightly = dg.ScheduleDefinition(name="nightly", job=job, cron_schedule="0 1 * * *") # here
        @dg.sensor(name="nightly", job=job) # here
        def sensor(): ...
        defs = dg.Definitions([orders], jobs=[job], schedules=[nightly], sensors=[sensor], resources=warehouse_resources())
        """,
        "nightly",
    ),
    Code.TRIGGER_JOB_UNKNOWN: (
        """
        @dg.asset(**KEPT)
        def orders() -> ir.Table: ...
        job = dg.define_asset_job("load", [orders])
        nightly = dg.ScheduleDefinition(name="nightly", job_name="laod", cron_schedule="0 1 * * *") # here
        defs = dg.Definitions([orders], jobs=[job], schedules=[nightly], resources=warehouse_resources())
        """,
        "nightly",
    ),
    Code.DEFINITIONS_REFUSED: (
        """
        import dagster
        single = dg.BackfillPolicy.single_run()
        @dg.asset(partitions_def=daily, backfill_policy=single, **BY_DAY, **KEPT)
        def orders() -> ir.Table: ...
        config = dagster.PartitionedConfig(daily, run_config_for_partition_key_fn=lambda key: {})
        good = dg.define_asset_job("good", [orders])
        job = dg.define_asset_job("load", [orders], config=config) # here
        nightly = dg.ScheduleDefinition(job=job, cron_schedule="0 1 * * *") # it is the job's fault
        defs = dg.Definitions([orders], jobs=[good, job], schedules=[nightly], resources=warehouse_resources())
        """,
        "load",
    ),
    Code.FRESHNESS_OF_PARTITIONS: (
        """
        @dg.asset(partitions_def=daily, freshness_policy=dg.FreshnessPolicy.time_window(dt.timedelta(days=1)), **BY_DAY, **KEPT) # here
        def orders() -> ir.Table: ...
        defs = dg.Definitions([orders], resources=warehouse_resources())
        """,
        "orders",
    ),
    Code.END_OFFSET: (
        """
        @dg.asset(partitions_def=dg.DailyPartitionsDefinition("2024-05-01", end_offset=1), **BY_DAY, **KEPT) # here
        def orders() -> ir.Table: ...
        defs = dg.Definitions([orders], resources=warehouse_resources())
        """,
        "orders",
    ),
    Code.NAME_NOT_PORTABLE: (
        """
        @dg.asset(key=["my-shop", "orders"], **KEPT) # here
        def orders() -> ir.Table: ...
        defs = dg.Definitions([orders], resources=warehouse_resources())
        """,
        "my-shop/orders",
    ),
}
# Tested below, each in its own way.
_ELSEWHERE = {
    Code.WORKSPACE_BROKEN,
    Code.DEFINITIONS_MISSING,
    Code.NAME_UNSUPPORTED,
    Code.START_MOVES,
}


@pytest.mark.parametrize("code", _EXAMPLES, ids=lambda code: code.value)
def test_each_fault_is_found_once_with_its_places(tmp_path: Path, code: Code) -> None:
    """A workspace with one fault has one finding: its code, whose it is, and where it is written."""
    text, name = _EXAMPLES[code]
    write_workspace(tmp_path, text)

    inspection = inspected(tmp_path)

    finding = only(inspection)
    assert (finding.code, finding.name) == (code, name)
    assert set(finding.places) == marked(tmp_path)
    assert (inspection.manifest is None) == FINDINGS[code].is_refused


def test_every_code_has_a_meaning_and_an_example() -> None:
    """No code is without its row in the table, and none is without a test."""
    assert set(FINDINGS) == set(Code) == {*_EXAMPLES, *_ELSEWHERE}


def test_all_faults_are_listed_at_once(tmp_path: Path) -> None:
    """One inspection names every fault of a workspace, also those that Dagster would stop at."""
    write_workspace(
        tmp_path,
        """
        @dg.asset(key=["shop", "orders"], **KEPT)
        def first() -> ir.Table: ...
        @dg.asset(key=["shop", "orders"], **KEPT)
        def second() -> ir.Table: ...
        @dg.asset(key=["a", "b", "c"], partitions_def=dg.HourlyPartitionsDefinition("2024-05-01-00:00"), **KEPT)
        def hourly() -> ir.Table: ...
        @dg.asset(partitions_def=daily, **KEPT)
        def days() -> ir.Table: ...
        @dg.asset(ins={"x": dg.AssetIn(key=["no", "such"])}, **KEPT)
        def reader(x: ir.Table) -> ir.Table: ...
        @dg.asset(required_resource_keys={"mail"}, **KEPT)
        def mailed() -> ir.Table: ...
        @dg.asset_check(asset=first, partitions_def=daily)
        def check() -> dg.AssetCheckResult: ...
        jobs = [
            dg.define_asset_job("mixed", [hourly, days]),
            dg.define_asset_job("empty", dg.AssetSelection.groups("none")),
            dg.define_asset_job("mail", [mailed]),
            dg.define_asset_job("good", [days]),
            dg.define_asset_job("typo", "dyas"),
        ]
        late = dg.ScheduleDefinition(name="late", job_name="gone", cron_schedule="0 1 * * *")
        defs = dg.Definitions(
            [first, second, hourly, days, reader, mailed],
            asset_checks=[check], jobs=jobs, schedules=[late], resources=warehouse_resources(),
        )
        """,
    )

    inspection = inspected(tmp_path)

    assert codes(inspection) == [
        "resource_missing",
        "key_invalid",
        "key_duplicate",
        "partitions_unsupported",
        "partition_column_missing",
        "input_unknown",
        "check_partitions_differ",
        "job_empty",
        "job_selection_invalid",
        "job_partitions_mixed",
        "trigger_job_unknown",
    ]


@pytest.mark.parametrize(
    "partitions",
    [
        'dg.HourlyPartitionsDefinition("2024-05-01-00:00")',
        'dg.WeeklyPartitionsDefinition("2024-05-01")',
        'dg.StaticPartitionsDefinition(["a"])',
        'dg.DynamicPartitionsDefinition(name="d")',
        'dg.MultiPartitionsDefinition({"d": daily, "s": dg.StaticPartitionsDefinition(["a"])})',
        'dg.DailyPartitionsDefinition("2024-05-01", hour_offset=4)',
        'dg.DailyPartitionsDefinition("2024-05-01", minute_offset=30)',
        'dg.DailyPartitionsDefinition("01.05.2024", fmt="%d.%m.%Y")',
    ],
)
def test_partitions_that_a_date_cannot_hold_are_refused(tmp_path: Path, partitions: str) -> None:
    """All but days from midnight, written as a DATE, are refused with the asset's line."""
    write_workspace(
        tmp_path,
        f"""
        @dg.asset(partitions_def={partitions}, **BY_DAY, **KEPT) # here
        def orders() -> ir.Table: ...
        defs = dg.Definitions([orders], resources=warehouse_resources())
        """,
    )

    finding = only(inspected(tmp_path))

    assert finding.code is Code.PARTITIONS_UNSUPPORTED
    assert set(finding.places) == marked(tmp_path)


def test_what_the_warehouse_does_not_keep_may_be_anything(tmp_path: Path) -> None:
    """Keys, partitions and types of assets with another IO manager are nobody's concern."""
    write_workspace(
        tmp_path,
        """
        @dg.asset(key=["a", "b", "c"], partitions_def=dg.MonthlyPartitionsDefinition("2024-05-01"))
        def report() -> None: ...
        @dg.asset
        def number() -> int: ...
        @dg.asset
        def double(number: int) -> int: ...
        @dg.asset(deps=[["not", "declared"]], **KEPT)
        def orders() -> ir.Table: ...
        defs = dg.Definitions([report, number, double, orders], resources=warehouse_resources())
        """,
    )

    assert codes(inspected(tmp_path)) == []


_SPELLED = """
@dg.asset(key=["orders"], **KEPT)
def first() -> ir.Table: ...
@dg.asset(key=["main", "{name}"], **KEPT)
def second() -> ir.Table: ...
defs = dg.Definitions([first, second], resources=warehouse_resources({warehouse}))
"""


@pytest.mark.parametrize(
    ("name", "environ", "found"),
    [
        ("orders", {}, []),
        ("orders", {"SEGMENTSTREAM_WAREHOUSE_DEFAULT_NAMESPACE": "main"}, ["table_shared"]),
        ("Orders", {"SEGMENTSTREAM_WAREHOUSE_DEFAULT_NAMESPACE": "MAIN"}, ["table_shared"]),
        (
            "Orders",
            {
                "SEGMENTSTREAM_WAREHOUSE_DEFAULT_NAMESPACE": "main",
                "SEGMENTSTREAM_WAREHOUSE_ENGINE": "bigquery",
            },
            [],
        ),
    ],
)
def test_the_default_namespace_counts_where_it_is_known(
    tmp_path: Path, name: str, environ: dict[str, str], found: list[str]
) -> None:
    """A key of one part is compared with others in its namespace, as the known engine spells names."""
    write_workspace(tmp_path, _SPELLED.format(name=name, warehouse=""))

    assert codes(inspected(tmp_path, environ)) == found


def test_a_namespace_that_the_code_names_is_known(tmp_path: Path) -> None:
    """What `WarehouseResource` says of the default namespace counts, and stands in the manifest."""
    warehouse = "warehouse=__import__('segmentstream').WarehouseResource(default_namespace='{}')"
    write_workspace(
        tmp_path / "a", _SPELLED.format(name="orders", warehouse=warehouse.format("main"))
    )
    write_workspace(
        tmp_path / "b", _SPELLED.format(name="orders", warehouse=warehouse.format("other"))
    )

    assert codes(inspected(tmp_path / "a")) == ["table_shared"]
    manifest = inspected(tmp_path / "b").manifest
    assert manifest
    assert [asset.table and asset.table.namespace for asset in manifest.assets] == ["main", "other"]


def test_a_name_is_refused_where_the_engine_is_known(tmp_path: Path) -> None:
    """What BigQuery does not allow is refused on BigQuery, and nothing on DuckDB."""
    text, _ = _EXAMPLES[Code.NAME_NOT_PORTABLE]
    write_workspace(tmp_path, text)

    def found(engine: str) -> list[str]:
        return codes(inspected(tmp_path, {"SEGMENTSTREAM_WAREHOUSE_ENGINE": engine}))

    assert found("bigquery") == [Code.NAME_UNSUPPORTED.value]
    assert found("duckdb") == []


def test_starts_that_move_with_the_clock_are_named(tmp_path: Path) -> None:
    """A first day that is reckoned from today is warned of, and one that is written down is not."""
    write_workspace(
        tmp_path,
        """
        def table(name, start): # the function below is what has the place
            @dg.asset(name=name, partitions_def=dg.DailyPartitionsDefinition(start), **BY_DAY, **KEPT) # here
            def made() -> ir.Table: ...
            return made
        defs = dg.Definitions(
            [
                table("by_today", str(dt.date.today() - dt.timedelta(days=30))),
                table("by_now", dt.datetime.now(dt.UTC).strftime("%Y-%m-01")),
                table("fixed", "2024-05-01"),
                table("instant", dt.datetime(2024, 5, 1)),
            ],
            resources=warehouse_resources(),
        )
        """,
    )

    findings = inspected(tmp_path).findings

    assert [(each.code, each.name) for each in findings] == [
        (Code.START_MOVES, "by_now"),
        (Code.START_MOVES, "by_today"),
    ]
    assert {place for each in findings for place in each.places} == marked(tmp_path)


def test_code_that_does_not_load_is_shown_in_its_own_files(tmp_path: Path) -> None:
    """The finding names the last line of the workspace's own, and the trace has no other files."""
    write_workspace(
        tmp_path,
        "from pipeline.broken import orders\ndefs = None",
        broken="""\
        def make():
            return dg.DailyPartitionsDefinition("2024-13-01") # here
        orders = make()
        """,
    )

    error = _broken(tmp_path)

    assert error.finding.code is Code.WORKSPACE_BROKEN
    assert set(error.finding.places) == marked(tmp_path)
    lines = [line.strip() for line in error.trace.splitlines() if line.startswith("  ")]
    assert [line for line in lines if " in " in line] == [
        "pipeline/definitions.py:2 in <module>",
        "pipeline/broken.py:4 in <module>",
        "pipeline/broken.py:3 in make",
    ]
    assert str(tmp_path) not in error.trace + error.finding.text()


@pytest.mark.parametrize(
    ("text", "line", "word"),
    [
        ("defs = (", 2, "SyntaxError"),
        ("import nothing_of_that_name", 2, "nothing_of_that_name"),
        ("raise SystemExit(3)", 2, "SystemExit"),
        ('\nexternal_table_asset(key=["a", "b", "c"])', 3, "has 3 parts"),
    ],
)
def test_whatever_the_code_raises_is_told(tmp_path: Path, text: str, line: int, word: str) -> None:
    """A syntax error, a missing module, an exit and a refused declaration are told with their line."""
    write_workspace(tmp_path, text)

    finding = _broken(tmp_path).finding

    assert finding.code is Code.WORKSPACE_BROKEN
    assert word in finding.problem
    assert [str(place) for place in finding.places] == [f"pipeline/definitions.py:{line}"]


@pytest.mark.parametrize("text", ["", "defs = [1]"])
def test_a_module_without_definitions_says_what_to_write(tmp_path: Path, text: str) -> None:
    """Without a `defs`, or with one that is something else, the sentence says what is expected."""
    write_workspace(tmp_path, text)

    finding = _broken(tmp_path).finding

    assert finding.code is Code.DEFINITIONS_MISSING
    assert "dg.Definitions(...)" in finding.remedy


def test_a_folder_without_a_workspace_is_told(tmp_path: Path) -> None:
    """Where there is no definitions module, the sentence says which one was looked for."""
    finding = _broken(tmp_path).finding

    assert finding.code is Code.DEFINITIONS_MISSING
    assert "pipeline/definitions.py" in finding.problem


@pytest.mark.parametrize(
    "project",
    [
        '[tool.dg.project]\nroot_module = "elsewhere"\ncode_location_name = "here"',
        """[tool.dg.project]
root_module = "x"
code_location_target_module = "elsewhere.definitions"
code_location_name = "here"
""",
        '[tool.dagster]\nmodule_name = "elsewhere.definitions"\ncode_location_name = "here"',
    ],
)
def test_pyproject_says_which_module_it_is(tmp_path: Path, project: str) -> None:
    """The tables of Dagster's own tools name the module and the location, in `src` or beside it."""
    package = tmp_path / "src" / "elsewhere"
    package.mkdir(parents=True)
    (package / "definitions.py").write_text(
        "import dagster as dg\n"
        "@dg.definitions\n"
        "def defs(): return dg.Definitions([dg.AssetSpec('orders')])\n"
    )
    (tmp_path / "pyproject.toml").write_text(project)

    manifest = inspected(tmp_path).manifest

    assert manifest
    assert (manifest.location, manifest.module) == ("here", "elsewhere.definitions")
    assert [asset.key for asset in manifest.assets] == [("orders",)]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            """
            @dg.asset # here
            def first(second: int) -> int: ...
            @dg.asset # here
            def second(first: int) -> int: ...
            defs = dg.Definitions([first, second])
            """,
            "Circular dependencies",
        ),
        (
            """
            @dg.asset(partitions_def=daily, **BY_DAY, **KEPT) # here
            def first() -> ir.Table: ...
            @dg.asset(partitions_def=dg.DailyPartitionsDefinition("2024-05-01"), **BY_DAY, **KEPT) # here
            def second(first: ir.Table) -> ir.Table: ...
            defs = dg.Definitions([first, second], resources=warehouse_resources())
            """,
            "Timezones Europe/Berlin and UTC don't match",
        ),
    ],
    ids=["a circle", "other zones"],
)
def test_what_dagster_refuses_of_assets_has_their_places(
    tmp_path: Path, text: str, words: str
) -> None:
    """Dagster's own words come with the lines of the assets that they name."""
    write_workspace(tmp_path, text)

    finding = only(inspected(tmp_path))

    assert finding.code is Code.DEFINITIONS_REFUSED
    assert words in finding.problem
    assert set(finding.places) == marked(tmp_path)


def test_decorated_and_made_definitions_have_their_places(tmp_path: Path) -> None:
    """Assets of one function, and schedules and sensors that are functions, have its line."""
    write_workspace(
        tmp_path,
        """
        outs = {name: dg.AssetOut(key=["a", "b", name], **KEPT) for name in ("one", "two")}
        @dg.multi_asset(outs=outs) # here
        def many() -> tuple[ir.Table, ir.Table]: ...
        @dg.schedule(job_name="none", cron_schedule="0 0 * * *") # here
        def nightly(): ...
        @dg.sensor(job_name="none") # here
        def watch(): ...
        defs = dg.Definitions([many], schedules=[nightly], sensors=[watch], resources=warehouse_resources())
        """,
    )

    findings = inspected(tmp_path).findings

    assert [each.name for each in findings] == ["a/b/one", "a/b/two", "nightly", "watch"]
    assert {place for each in findings for place in each.places} == marked(tmp_path)


def test_what_an_installed_package_defines_has_its_module_as_place(tmp_path: Path) -> None:
    """A package inside the workspace's own environment is not taken for the workspace's code."""
    packages = tmp_path / ".venv" / "lib" / "site-packages"
    packages.mkdir(parents=True)
    (packages / "elsewhere.py").write_text(
        "import dagster as dg\n"
        "@dg.asset(key=['a', 'b', 'c'], io_manager_key='warehouse_io')\n"
        "def orders(): ...\n"
    )
    write_workspace(
        tmp_path,
        f"""
        import sys
        sys.path.append({str(packages)!r})
        import elsewhere
        defs = dg.Definitions([elsewhere.orders], resources=warehouse_resources())
        """,
    )

    assert [str(place) for place in only(inspected(tmp_path)).places] == ["elsewhere"]


def test_text_says_place_problem_remedy_and_code(tmp_path: Path) -> None:
    """A line starts with its places, as editors and people read them, and ends with its code."""
    text, _ = _EXAMPLES[Code.KEY_DUPLICATE]
    write_workspace(tmp_path, text)

    finding: Finding = only(inspected(tmp_path))

    assert finding.text() == (
        "pipeline/definitions.py:3, pipeline/definitions.py:5: error: "
        'The key ["shop", "orders"] is declared 2 times. '
        "Keep one of them, or rename the others. [key_duplicate]"
    )


def _broken(folder: Path) -> WorkspaceError:
    with pytest.raises(WorkspaceError) as caught:
        inspected(folder)
    return caught.value
