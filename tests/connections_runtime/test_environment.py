"""The environment of the Dockerfile, built here: its own pinned set, and our wheel without more."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from connections_runtime.provider import PATIENCE
from connections_runtime.running import START, command, kept_environment, running_service

ROOT = Path(__file__).parents[2]
PINS = ROOT / "constraints" / "connections.txt"
DOCKERFILE = ROOT / "Dockerfile"
# As they were before a fixture of the package took the machine's certificates away.
ASKED_WITH = {k: v for k, v in os.environ.items() if k not in {"PYTHONPATH", "VIRTUAL_ENV"}}
SIZE_BYTES = 60 * 1000 * 1000
FOREIGN = ["dagster", "duckdb", "ibis", "numpy", "pandas", "pyarrow", "sqlglot"]
PROGRAM = """
import importlib, json, sys
found = []
for name in sys.argv[1:]:
    try:
        importlib.import_module(name)
    except ImportError:
        continue
    found.append(name)
print(json.dumps(found))
"""

pytestmark = pytest.mark.skipif(
    not PINS.is_file(), reason="needs constraints/ and the Dockerfile of the source tree"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """Is an environment with the service.

    Attributes:
        folder: Where it is.
    """

    folder: Path

    @property
    def python(self) -> Path:
        """Its Python."""
        return self.folder / "bin" / "python"

    def sizes(self) -> dict[str, int]:
        """Says how many bytes each thing in it has, without bytecode."""
        [packages] = self.folder.glob("lib/python*/site-packages")
        return {each.name: _size(each) for each in packages.iterdir()}


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """The environment, made as the Dockerfile makes it, with uv in the place of pip."""
    folder = tmp_path_factory.mktemp("environment")
    made = Environment(folder=folder / "service")
    into = ["pip", "install", f"--python={made.python}", "--no-deps"]
    isolation = ["--no-build-isolation"] if find_spec("hatchling") else []
    _reach_an_index(folder)
    _uv(["venv", f"--python={sys.executable}", str(made.folder)], folder)
    _uv([*into, "--require-hashes", "-r", str(PINS)], folder)
    _uv(
        [
            "build",
            str(ROOT),
            "--wheel",
            *isolation,
            f"--python={sys.executable}",
            "-o",
            str(folder / "wheel"),
        ],
        folder,
    )
    [wheel] = (folder / "wheel").glob("*.whl")
    _uv([*into, str(wheel)], folder)
    return made


@pytest.mark.slow
def test_the_environment_serves(environment: Environment, tmp_path: Path) -> None:
    """From a workspace's connections folder the service starts in it, is ready and authorizes."""
    folder = tmp_path / "connections"
    folder.mkdir()
    tokens = {"it": "https://provider.example/token"}
    with running_service(folder, tokens, {}, python=environment.python) as service:
        for path in ("/health", "/ready"):
            answer = service.get(path)
            assert (answer.status_code, answer.json()["status"]) == (200, "ok")
        answer = service.post("it", "authorization/start", START)
        assert answer.status_code == 200
        address = answer.json()["authorizationUrl"]
        assert address.startswith("https://provider.example/authorize?")
        assert f"state={START['state']}" in address
        assert service.get("/internal/v1/openapi.json").json()["openapi"].startswith("3.1.")
    lines = [json.loads(line) for line in service.lines]
    assert {line["severity"] for line in lines} == {"INFO"}


@pytest.mark.slow
def test_the_environment_writes_the_manifest(environment: Environment, tmp_path: Path) -> None:
    """`inspect` needs nothing beyond it either."""
    (tmp_path / "connections.py").write_text("connections = ()\n")
    inspect = command("inspect", "out.json", python=environment.python)
    done = _run(inspect, tmp_path, kept_environment())
    assert done.returncode == 0, done.stderr
    assert json.loads((tmp_path / "out.json").read_text())["connections"] == []


@pytest.mark.slow
def test_the_environment_is_small_and_holds_nothing_of_the_pipeline(
    environment: Environment, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    """Dagster, Ibis and pandas cannot be imported in it, and its files stay under 60 MB."""
    done = _run([environment.python, "-I", "-c", PROGRAM, *FOREIGN], tmp_path, kept_environment())
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == []
    sizes = environment.sizes()
    record_property("bytes", sum(sizes.values()))
    largest = sorted(sizes, key=lambda name: -sizes[name])[:5]
    assert sum(sizes.values()) < SIZE_BYTES, {name: sizes[name] for name in largest}


def test_the_dockerfile_installs_that_set() -> None:
    """It installs a pinned set with its hashes, then our wheel, and no other package."""
    text = DOCKERFILE.read_text().replace("\\\n", " ")
    assert "ARG SET=connections\n" in text
    commands = [part.strip() for line in text.splitlines() for part in line.split("&&")]
    installs = [each.split("install", 1)[1].split() for each in commands if "pip install" in each]
    assert [{*words} - {"--no-cache-dir"} for words in installs] == [
        {"--require-hashes", "--no-deps", "-r", "constraints/${SET}.txt"},
        {"--no-deps", "/wheel/*.whl"},
    ]
    [built] = [each for each in commands if "pip wheel" in each]
    assert {"--no-deps", "."} <= set(built.split())


def test_the_set_is_the_extra_and_what_it_brings() -> None:
    """It is pinned and hashed throughout, and names what the extra `connections` names."""
    text = PINS.read_text().replace("\\\n", " ")
    pins = [line for line in text.splitlines() if line.strip() and not line.startswith((" ", "#"))]
    assert all(re.match(r"\S+==\S+ .*--hash=sha256:", pin) for pin in pins)
    names = {canonicalize_name(pin.partition("==")[0]) for pin in pins}
    wanted = [
        Requirement(line)
        for line in PINS.with_suffix(".in").read_text().splitlines()
        if not line.startswith("#")
    ]
    assert {each.name for each in wanted} <= names
    assert not names & set(FOREIGN)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extra = project["optional-dependencies"]["connections"]
    assert {str(each) for each in wanted} == {str(Requirement(each)) for each in extra}


def _size(path: Path) -> int:
    files = [path] if path.is_file() else path.rglob("*")
    return sum(each.stat().st_size for each in files if each.is_file() and each.suffix != ".pyc")


def _reach_an_index(folder: Path) -> None:
    variables = {"UV_HTTP_TIMEOUT": "10", "UV_HTTP_RETRIES": "0"}
    asked = ["pip", "compile", "-", "--no-deps", "--refresh"]
    try:
        done = _run([_find_uv(), *asked], folder, ASKED_WITH | variables, given="httpx", seconds=25)
    except subprocess.TimeoutExpired:
        pytest.skip("needs a package index: uv got no answer in time")
    if done.returncode:
        pytest.skip("needs a package index: uv reaches none")


def _uv(arguments: Sequence[str], folder: Path) -> None:
    done = _run([_find_uv(), *arguments], folder, ASKED_WITH, seconds=300)
    assert done.returncode == 0, done.stderr


def _find_uv() -> str:
    beside = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    uv = shutil.which("uv", path=beside)
    if uv is None:
        pytest.skip("needs uv, of the dependency group `build`")
    return uv


def _run(
    command: Sequence[str | Path],
    folder: Path,
    variables: Mapping[str, str],
    *,
    given: str | None = None,
    seconds: float = PATIENCE,
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, cwd=folder, env=variables, input=given,
        capture_output=True, text=True, timeout=seconds, check=False,
    )  # fmt: skip
