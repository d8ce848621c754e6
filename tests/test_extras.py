"""What works while one extra is not installed, and what the error then says.

`SEGMENTSTREAM_TEST_MISSING_EXTRA` names an extra that the environment really lacks. Without it,
each extra is missing in turn: its modules are hidden from a fresh interpreter.
"""

import os
import subprocess
import sys
from importlib.metadata import metadata
from pathlib import Path

import pytest

pytestmark = pytest.mark.extras

# What a base installation does not have without the extra.
_MODULES = {
    "bigquery": ("google.cloud.bigquery",),
    "cloud-run": ("google.cloud.run_v2",),
    "connections": ("httpx", "joserfc", "starlette", "uvicorn"),
    "duckdb": ("duckdb",),
    "secret-manager": ("google.cloud.secretmanager",),
}
_REALLY_MISSING = os.environ.get("SEGMENTSTREAM_TEST_MISSING_EXTRA")
_MISSING = [_REALLY_MISSING] if _REALLY_MISSING else sorted(_MODULES)

_HIDE_MODULES_IN_ARGV = """
import sys
from importlib.abc import MetaPathFinder

class Hide(MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name in sys.argv[1:]:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Hide())
"""


@pytest.mark.parametrize("missing", _MISSING)
def test_nothing_of_a_missing_extra_can_be_imported(missing: str, tmp_path: Path) -> None:
    """Every module of the missing extra is out of reach, so the tests below prove something."""
    attempts = "".join(
        f"""
try:
    import {module}
except ModuleNotFoundError:
    print("{module}")
"""
        for module in _MODULES[missing]
    )

    assert _run_without(missing, attempts, tmp_path).split() == [*_MODULES[missing]]


@pytest.mark.parametrize("missing", _MISSING)
@pytest.mark.parametrize(
    "module", ["segmentstream", "segmentstream.dagster", "segmentstream.connections"]
)
def test_public_modules_do_not_need_an_extra(missing: str, module: str, tmp_path: Path) -> None:
    """Each public module, with every public name in it, can be imported without the extra."""
    _run_without(missing, f"from {module} import *", tmp_path)


@pytest.mark.skipif("duckdb" not in _MISSING, reason="needs an environment without duckdb")
def test_a_missing_engine_names_the_extra_to_install(tmp_path: Path) -> None:
    """An engine whose driver is not installed is a configuration error that names the extra."""
    printed = _run_without(
        "duckdb",
        """
from segmentstream import WarehouseConfigurationError
from segmentstream._warehouse.registry import create_engine
from segmentstream._warehouse.settings import WarehouseSettings

settings = WarehouseSettings(engine="duckdb", catalog="x.duckdb", default_namespace="main")
try:
    create_engine(settings)
except WarehouseConfigurationError as error:
    print(error)
""",
        tmp_path,
    )

    assert "segmentstream-pipeline[duckdb]" in printed
    assert "'duckdb'" in printed


@pytest.mark.skipif("cloud-run" not in _MISSING, reason="needs an environment without cloud-run")
def test_runs_on_cloud_run_without_its_client_name_the_extra(tmp_path: Path) -> None:
    """The first call says which extra to install; nothing before it needs Google's client."""
    printed = _run_without(
        "cloud-run",
        """
from segmentstream.runtime.cloud_run.api import CloudRunApi
from segmentstream.runtime.cloud_run.settings import CloudRunSettings
from segmentstream.runtime.exits import RunRefusedError

api = CloudRunApi(CloudRunSettings(job="projects/p/locations/l/jobs/j"))
try:
    api.job()
except RunRefusedError as error:
    print(error)
""",
        tmp_path,
    )

    assert "segmentstream-pipeline[cloud-run]" in printed


def test_every_extra_is_missed_once() -> None:
    """The modules above cover exactly the extras that the distribution has."""
    assert sorted(metadata("segmentstream-pipeline").get_all("Provides-Extra") or []) == sorted(
        _MODULES
    )


def _run_without(missing: str, code: str, directory: Path) -> str:
    """Runs code in a fresh interpreter that lacks the extra, and gives what it printed."""
    hidden = () if _REALLY_MISSING else _MODULES[missing]
    done = subprocess.run(
        [sys.executable, "-I", "-c", f"{_HIDE_MODULES_IN_ARGV}\n{code}", *hidden],
        cwd=directory,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
