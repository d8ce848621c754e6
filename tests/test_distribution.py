"""What a user gets from the distribution: built here, installed into environments of its own.

Answers area A of the bug reports. What needs a package index skips where uv reaches none.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from email.message import Message
from email.parser import BytesParser
from importlib.util import find_spec
from pathlib import Path, PurePosixPath
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

from bigquery.emulator import Emulator
from segmentstream._core.names import EMULATOR_VARIABLE

_ROOT = Path(__file__).parents[1]
_SOURCE = _ROOT / "src"
_QUICK_START = Path(__file__).with_name("quick_start.py")
_INTERNALS = Path(__file__).parent / "runtime" / "test_dagster_internals.py"
_PYTHONS = ["3.12", "3.13"]
_PACKAGES = {"segmentstream", "segmentstream_connections_runtime"}

# What brings other versions than a user's own `pip install` would.
_BENDS_RESOLUTION = ("UV_CONSTRAINT", "UV_EXCLUDE_NEWER", "UV_OVERRIDE", "UV_PRERELEASE", "UV_RES")

# Each with the first version that breaks Ibis 12 or dagster-postgres.
_BROKEN = ["duckdb>=2", "sqlglot>=30.18", "sqlalchemy>=2.1"]

_WITHOUT_ENGINES = """
import segmentstream.dagster as dg
from segmentstream import (
    WAREHOUSE_IO_MANAGER_KEY, WarehouseConfigurationError, WarehouseResource, warehouse_resources
)

warehouse = WarehouseResource(engine="duckdb", catalog="x.duckdb", default_namespace="main")

@dg.asset(io_manager_key=WAREHOUSE_IO_MANAGER_KEY)
def orders():
    print("the function was called")

try:
    warehouse.open_engine()
except WarehouseConfigurationError as error:
    print(error)
result = dg.materialize(
    [orders], resources=warehouse_resources(warehouse=warehouse), raise_on_error=False
)
print(result.success)
"""

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not _SOURCE.is_dir(), reason="needs the source of the packages in src/"),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Built:
    """What the project builds.

    Attributes:
        wheel: The wheel's file.
        sdist: The source distribution's file.
    """

    wheel: Path
    sdist: Path

    @property
    def metadata(self) -> Message:
        """The wheel's core metadata."""
        with zipfile.ZipFile(self.wheel) as wheel:
            (name,) = (name for name in wheel.namelist() if name.endswith(".dist-info/METADATA"))
            return BytesParser().parsebytes(wheel.read(name))

    def requirements(self, *, extra: str) -> list[Requirement]:
        """What the wheel itself and one of its extras require."""
        listed = map(Requirement, self.metadata.get_all("Requires-Dist") or [])
        return [
            Requirement(f"{each.name}{_extras_of(each)}{each.specifier}")
            for each in listed
            if each.marker is None or each.marker.evaluate({"extra": extra})
        ]

    def with_extras(self, *extras: str) -> str:
        """The wheel's file as a requirement."""
        listed = f"[{','.join(extras)}]" if extras else ""
        return f"segmentstream-pipeline{listed} @ {self.wheel.as_uri()}"


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> None:
    """A package index that uv reaches."""
    try:
        done = _uv(
            ["pip", "compile", "-", "--no-deps", "--refresh"],
            folder=tmp_path_factory.mktemp("index"),
            given="hatchling",
            variables={"UV_HTTP_TIMEOUT": "10", "UV_HTTP_RETRIES": "0"},
            timeout_seconds=25,
        )
    except subprocess.TimeoutExpired:
        pytest.skip("needs a package index: uv got no answer in time")
    if done.returncode:
        pytest.skip("needs a package index: uv reaches none")


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Built:
    """The wheel and the source distribution, both from the source tree."""
    folder = tmp_path_factory.mktemp("dist")
    _build(_ROOT, folder, request, "--wheel", "--sdist")
    (wheel,), (sdist,) = folder.glob("*.whl"), folder.glob("*.tar.gz")
    return Built(wheel=wheel, sdist=sdist)


def test_the_wheel_holds_the_packages_and_nothing_else(built: Built) -> None:
    """Every file of both packages is in the wheel as it is here; no test, no stray file is."""
    source = {
        file.relative_to(_SOURCE).as_posix(): file.read_bytes()
        for file in _SOURCE.rglob("*")
        if file.is_file() and "__pycache__" not in file.parts
    }
    contents = _contents(built.wheel)
    packaged = {name: data for name, data in contents.items() if ".dist-info/" not in name}

    assert packaged == source
    assert {PurePosixPath(name).parts[0] for name in packaged} == _PACKAGES
    assert "segmentstream/py.typed" in packaged


def test_the_wheel_carries_the_licence_and_the_notice(built: Built) -> None:
    """Whoever passes the wheel on passes on both texts, as the licence asks for."""
    contents = _contents(built.wheel)
    carried = {
        PurePosixPath(name).name: data for name, data in contents.items() if "/licenses/" in name
    }

    assert carried == {name: (_ROOT / name).read_bytes() for name in ("LICENSE", "NOTICE")}
    assert built.metadata["License-Expression"] == "Apache-2.0"


def test_the_source_distribution_builds_the_same_wheel(
    built: Built, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """A wheel built from the source distribution alone has the same files with the same bytes."""
    _build(built.sdist, tmp_path, request, "--wheel")
    (wheel,) = tmp_path.glob("*.whl")

    assert wheel.name == built.wheel.name
    assert _contents(wheel) == _contents(built.wheel)


def test_the_source_distribution_holds_what_its_tests_need(built: Built) -> None:
    """Whoever packages the project can run its tests, and gets no cache or environment along."""
    with tarfile.open(built.sdist) as sdist:
        names = {PurePosixPath(*PurePosixPath(name).parts[1:]) for name in sdist.getnames()}
    tests = {
        PurePosixPath(file.relative_to(_ROOT).as_posix())
        for file in Path(__file__).parent.rglob("*")
        if file.is_file() and "__pycache__" not in file.parts
    }

    assert tests <= names
    assert not {"__pycache__", ".venv"} & {part for name in names for part in name.parts}


def test_a1_the_metadata_keeps_broken_versions_out(built: Built) -> None:
    """Each version that breaks the stack is outside the bounds, and nothing is pinned exactly."""
    bounds = {each.name: each.specifier for each in built.requirements(extra="duckdb")}

    for broken in map(Requirement, _BROKEN):
        (first,) = (Version(each.version) for each in broken.specifier)
        assert not bounds[broken.name].contains(first, prereleases=True)
    assert [name for name, bound in bounds.items() if "==" in str(bound)] == []


@pytest.mark.usefixtures("index")
@pytest.mark.parametrize("version", _PYTHONS)
def test_a1_a_fresh_install_runs(built: Built, version: str, tmp_path: Path) -> None:
    """With the newest versions that the metadata allows, the first steps of a newcomer work."""
    python = _make_environment(tmp_path, [built.with_extras("duckdb")], version=version)

    _check_quick_start(python, tmp_path)


@pytest.mark.usefixtures("index")
@pytest.mark.parametrize("version", _PYTHONS)
def test_a2_the_lowest_versions_run(built: Built, version: str, tmp_path: Path) -> None:
    """With every direct dependency at its floor, a newcomer's first steps work, and the runtime's.

    Of the runtime it is what Dagster does not promise.
    """
    requirements = built.requirements(extra="duckdb")
    python = _make_environment(
        tmp_path,
        [built.with_extras("duckdb"), *map(str, requirements)],
        "--resolution=lowest-direct",
        version=version,
    )

    installed = _check_quick_start(python, tmp_path)

    assert installed == _floors_of(requirements)
    _check_dagster_internals(python, tmp_path)


@pytest.mark.usefixtures("index")
def test_a2_the_lowest_versions_run_on_bigquery(
    built: Built, emulator: Emulator, tmp_path: Path
) -> None:
    """The same on BigQuery's lowest client, in an environment without DuckDB."""
    requirements = built.requirements(extra="bigquery")
    python = _make_environment(
        tmp_path,
        [built.with_extras("bigquery"), *map(str, requirements)],
        "--resolution=lowest-direct",
    )

    installed = _check_quick_start(python, tmp_path, emulator.url)

    assert installed == _floors_of(requirements)


@pytest.mark.usefixtures("index")
@pytest.mark.parametrize("broken", _BROKEN)
def test_a2_the_resolver_never_reaches_a_broken_version(
    built: Built, broken: str, tmp_path: Path
) -> None:
    """A version that breaks the stack exists, and asking for it beside ours has no solution."""
    alone = _compile([broken], tmp_path)
    beside = _compile([broken, built.with_extras("duckdb")], tmp_path)

    assert alone.returncode == 0, alone.stderr
    assert beside.returncode != 0
    assert "segmentstream-pipeline" in beside.stderr


@pytest.mark.usefixtures("index")
@pytest.mark.parametrize("python", _PYTHONS)
def test_a2_everything_resolves_beside_the_tools_of_dagster(
    built: Built, python: str, tmp_path: Path
) -> None:
    """All extras, the web server and dg have one solution, of one Dagster release and no broken one."""
    everything = built.with_extras("bigquery", "connections", "duckdb")
    done = _compile(
        [everything, "dagster-webserver", "dagster-dg-cli"], tmp_path, f"--python-version={python}"
    )
    assert done.returncode == 0, done.stderr
    found = {
        pin.name: Version(next(iter(pin.specifier)).version)
        for pin in map(Requirement, filter(None, done.stdout.splitlines()))
        if pin.specifier
    }

    assert found["dagster"] == found["dagster-webserver"] == found["dagster-dg-cli"]
    assert found["dagster-postgres"].release[:2] == (0, 29)
    assert found["dagster-postgres"].micro == found["dagster"].micro
    for broken in map(Requirement, _BROKEN):
        assert not broken.specifier.contains(found[broken.name], prereleases=True)


@pytest.mark.usefixtures("index")
def test_a3_without_extras_everything_imports_and_an_engine_names_its_extra(
    built: Built, tmp_path: Path
) -> None:
    """The base installation imports; an engine whose driver is missing says what to install."""
    python = _make_environment(tmp_path, [built.with_extras()])

    done = _run([python, "-I", "-c", _WITHOUT_ENGINES], tmp_path)

    assert done.returncode == 0, done.stderr
    error, outcome = done.stdout.splitlines()
    assert "pip install 'segmentstream-pipeline[duckdb]'" in error
    assert "'duckdb'" in error
    assert outcome == "False"
    assert error in done.stderr  # what Dagster shows of the failed run


def _build(source: Path, folder: Path, request: pytest.FixtureRequest, *what: str) -> None:
    """Builds with the back end that is installed here, or with one from the index."""
    isolation = ["--no-build-isolation"] if find_spec("hatchling") else []
    if not isolation:
        request.getfixturevalue("index")
    done = _uv(
        ["build", str(source), *what, *isolation, f"--python={sys.executable}", "-o", str(folder)],
        folder=folder,
    )
    assert done.returncode == 0, done.stderr


def _contents(wheel: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(wheel) as opened:
        return {name: opened.read(name) for name in opened.namelist()}


def _extras_of(requirement: Requirement) -> str:
    return f"[{','.join(sorted(requirement.extras))}]" if requirement.extras else ""


def _floors_of(requirements: Iterable[Requirement]) -> dict[str, Version]:
    return {
        each.name: Version(bound.version)
        for each in requirements
        for bound in each.specifier
        if bound.operator == ">="
    }


def _make_environment(
    folder: Path, requirements: Iterable[str], *options: str, version: str | None = None
) -> Path:
    """Makes a new environment with these requirements and what they bring; gives its Python.

    `version` is one of Python, the running one when left out.
    """
    base = _find_python(version, folder) if version else sys.executable
    done = _uv(["venv", f"--python={base}", "environment"], folder=folder)
    assert done.returncode == 0, done.stderr
    (python,) = (folder / "environment").glob("bin/python")
    done = _uv(["pip", "install", f"--python={python}", *options, *requirements], folder=folder)
    assert done.returncode == 0, done.stderr
    return python


def _find_python(version: str, folder: Path) -> str:
    if version == f"{sys.version_info.major}.{sys.version_info.minor}":
        return sys.executable
    # pyenv lets only the version that this variable names be found.
    variables = {"PYENV_VERSION": version, "UV_PYTHON_DOWNLOADS": "never"}
    done = _uv(["python", "find", version], folder=folder, variables=variables)
    if done.returncode:
        pytest.skip(f"needs Python {version} beside the running one")
    return done.stdout.strip()


def _check_quick_start(python: Path, folder: Path, url: str = "") -> dict[str, Version]:
    """Runs the first steps of a newcomer, on a BigQuery server where a URL names one.

    Gives the versions that they ran on.
    """
    catalog = "acme-first-steps" if url else folder / "warehouse.duckdb"
    engine = "bigquery" if url else "duckdb"
    done = _run(
        [python, "-I", _QUICK_START, engine, catalog], folder, variables={EMULATOR_VARIABLE: url}
    )
    assert done.returncode == 0, done.stderr
    told: dict[str, Any] = json.loads(done.stdout)
    assert Path(told["imported"]).is_relative_to(folder)
    assert told["currencies"] == [["EUR", 1.0], ["USD", 1.08]]
    assert told["orders"] == [["2024-05-01", "2", "2"], ["2024-05-02", "2", "2"]]
    return {name: Version(version) for name, version in told["versions"].items()}


def _check_dagster_internals(python: Path, folder: Path) -> None:
    """Runs the tests of what the runtime uses of Dagster beyond its promises."""
    shutil.copy(_INTERNALS, folder)
    done = _uv(["pip", "install", f"--python={python}", "pytest"], folder=folder)
    assert done.returncode == 0, done.stderr
    done = _run([python, "-I", "-m", "pytest", "-q", _INTERNALS.name], folder)
    assert done.returncode == 0, done.stdout


def _compile(
    requirements: Iterable[str], folder: Path, *options: str
) -> subprocess.CompletedProcess[str]:
    return _uv(
        ["pip", "compile", "-", "--no-header", "--no-annotate", "--quiet", *options],
        folder=folder,
        given="\n".join(requirements),
    )


def _uv(
    arguments: list[str],
    *,
    folder: Path,
    given: str | None = None,
    variables: Mapping[str, str] | None = None,
    timeout_seconds: float = 600,
) -> subprocess.CompletedProcess[str]:
    beside = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    uv = shutil.which("uv", path=beside)
    if uv is None:
        pytest.skip("needs uv, of the dependency group `build`")
    return _run(
        [uv, *arguments], folder, given=given, variables=variables, timeout_seconds=timeout_seconds
    )


def _run(
    command: list[str | Path],
    folder: Path,
    *,
    given: str | None = None,
    variables: Mapping[str, str] | None = None,
    timeout_seconds: float = 600,
) -> subprocess.CompletedProcess[str]:
    """Runs a command without the variables that would point it back to this environment."""
    own = {
        name: value
        for name, value in os.environ.items()
        if name not in {"PYTHONPATH", "VIRTUAL_ENV"} and not name.startswith(_BENDS_RESOLUTION)
    }
    return subprocess.run(
        command,
        cwd=folder,
        env=own | dict(variables or {}),
        input=given,
        capture_output=True,
        text=True,
        timeout=timeout_seconds,
        check=False,
    )
