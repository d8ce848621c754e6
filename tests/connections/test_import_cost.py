from __future__ import annotations

import subprocess
import sys
from pathlib import Path

EXAMPLE = Path(__file__).parents[2] / "examples/workspace/connections/connections.py"

LIGHT_IMPORT = """
import sys

class Refusal:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {"dagster", "ibis"}:
            raise ModuleNotFoundError(f"{name} is blocked", name=name)

sys.meta_path.insert(0, Refusal())
import segmentstream.connections

heavy = {"dagster", "ibis", "pandas", "pyarrow", "duckdb", "sqlglot", "pydantic", "httpx"}
print(sorted(heavy & {name.partition(".")[0] for name in sys.modules}))
"""


def test_importing_declarations_loads_no_library() -> None:
    """The package imports while Dagster and Ibis cannot be, and loads neither nor pydantic."""
    finished = subprocess.run(
        [sys.executable, "-c", LIGHT_IMPORT], capture_output=True, text=True, check=False
    )

    assert finished.stderr == ""
    assert finished.stdout.strip() == "[]"


READS_OF_THE_ENVIRONMENT = """
import os, sys

class Untouchable(dict):
    def _refuse(self, *arguments):
        raise AssertionError("the environment was read")
    __getitem__ = get = __contains__ = __iter__ = keys = items = values = _refuse

import segmentstream._core.errors, dataclasses, ipaddress, urllib.parse, typing, runpy
os.environ = Untouchable()
os.getenv = os.environ.get
opened = []
sys.addaudithook(lambda event, arguments: opened.append(event) if "socket" in event else None)
import segmentstream.connections
names = runpy.run_path(sys.argv[1])
assert not opened, opened
print([connection.key for connection in names["connections"]])
"""


def test_importing_declarations_reads_no_environment() -> None:
    """The example's declarations load without one look at a variable and without a socket."""
    finished = subprocess.run(
        [
            sys.executable,
            "-c",
            READS_OF_THE_ENVIRONMENT,
            str(EXAMPLE),
        ],
        capture_output=True,
        text=True,
        check=False,
    )

    assert finished.stderr == ""
    assert finished.stdout.strip() == "['aircraft_registry', 'google_ads', 'hubspot']"
