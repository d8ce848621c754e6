"""The image of the pipeline, built here as its Dockerfile says, and its start commands.

uv stands for pip, folders of the test for those of the image, and of the packages only ours is
compiled ahead: that of all takes half a minute.
"""

from __future__ import annotations

import fnmatch
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from uuid import uuid4

import duckdb
import pytest

from cloud_run import kits
from connections_runtime.running import free_port
from postgres import Postgres
from runtime.shops import eventually
from segmentstream._cloud_run.images import dockerfile, dockerignore

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "workspace"
PINS = ROOT / "constraints" / "dev.txt"
ASKED_WITH = {k: v for k, v in os.environ.items() if k not in {"PYTHONPATH", "VIRTUAL_ENV"}}
# What the job reads and does not write: a table of another team, and the result of another job.
TABLES = """
CREATE SCHEMA bronze;
CREATE TABLE bronze.airlines (carrier VARCHAR, name VARCHAR);
CREATE SCHEMA raw;
CREATE TABLE raw.weather (
    weather_date DATE, origin VARCHAR, temp DOUBLE, dewp DOUBLE, humid DOUBLE, wind_dir BIGINT,
    wind_speed DOUBLE, wind_gust DOUBLE, precip DOUBLE, pressure DOUBLE, visib DOUBLE,
    time_hour TIMESTAMPTZ
);
"""
QUERY = """{
  workspaceOrError { ... on Workspace { locationEntries {
    name locationOrLoadError { __typename } } } }
  runsOrError { ... on Runs { results { jobName status } } }
  permissions { permission value }
}"""

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not PINS.is_file() or not (ROOT / "src").is_dir(),
        reason="needs constraints/ and src/ of the source tree",
    ),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Image:
    """Is what the Dockerfile builds, in a folder.

    Attributes:
        root: Stands for `/` of the image.
        command: What it starts.
        environ: Its variables.
    """

    root: Path
    command: list[str]
    environ: Mapping[str, str]

    @property
    def workspace(self) -> Path:
        """The folder in which it starts."""
        return self.root / "workspace"

    @property
    def warehouse(self) -> Path:
        """The file of the tables."""
        return self.root / "warehouse.duckdb"

    def run(self, url: str, **variables: str) -> subprocess.CompletedProcess[str]:
        """Starts it and waits for its end."""
        return subprocess.run(
            self.command, cwd=self.workspace, env=self.variables(url) | variables,
            capture_output=True, text=True, timeout=240, check=False,
        )  # fmt: skip

    def variables(self, url: str) -> dict[str, str]:
        """Its variables, with a Postgres and a warehouse."""
        return {
            **self.environ,
            "DAGSTER_POSTGRES_URL": url,
            "SEGMENTSTREAM_WAREHOUSE_ENGINE": "duckdb",
            "SEGMENTSTREAM_WAREHOUSE_CATALOG": str(self.warehouse),
            "SEGMENTSTREAM_WAREHOUSE_DEFAULT_NAMESPACE": "main",
        }


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Image:
    """The image of the example workspace, with the pinned packages and our wheel."""
    root = tmp_path_factory.mktemp("image")
    source = root / "source"
    shutil.copytree(EXAMPLE, source, ignore=shutil.ignore_patterns(".dagster", "*.duckdb*"))
    _lock(source)
    text = dockerfile(kits.settings(requirements="requirements.txt"))
    build, final = text.split("\nFROM ")[1:]
    for name, rest in _instructions(build):
        if name == "COPY":
            _copy(source, root, rest.split())
        elif name == "RUN":
            _shell(_moved(rest, root), root)
    environ = dict(each.split("=", 1) for each in _moved(_one(final, "ENV"), root).split())
    environ["PATH"] = environ["PATH"].replace("$PATH", os.environ["PATH"])
    return Image(root=root, command=json.loads(_one(final, "CMD")), environ=environ)


@pytest.fixture(scope="module")
def database(postgres: Postgres) -> Iterator[str]:
    """An empty database."""
    with postgres.database() as url:
        yield url


def test_secrets_and_data_stay_out(image: Image) -> None:
    """The image has the workspace's code and neither its variables nor what was made in it."""
    found = {path.relative_to(image.workspace).as_posix() for path in image.workspace.rglob("*")}
    assert "pipeline/definitions.py" in found
    assert not any(Path(name).name.startswith(".env") or ".duckdb" in name for name in found)
    assert "wheels" not in found


def test_the_image_migrates_runs_a_day_and_shows_it(image: Image, database: str) -> None:
    """Its one command makes the tables, runs a day of a job, and serves pages until SIGTERM."""
    migrated = image.run(database, SEGMENTSTREAM_DAGSTER_MODE="migrate")
    assert migrated.returncode == 0, migrated.stderr
    with duckdb.connect(image.warehouse) as connection:
        connection.execute(TABLES)
    day = {
        "SEGMENTSTREAM_DAGSTER_JOB": "load_flights",
        "SEGMENTSTREAM_RUN_ID": str(uuid4()),
        "SEGMENTSTREAM_PARTITION_START_DATE": "2013-01-01",
        "SEGMENTSTREAM_PARTITION_END_DATE": "2013-01-01",
    }
    ran = image.run(database, **day)
    assert ran.returncode == 0, ran.stderr
    assert json.loads(ran.stdout)["succeeded"] == 1
    with duckdb.connect(image.warehouse, read_only=True) as connection:
        assert connection.execute("SELECT count(*) FROM bronze.flights").fetchall() == [(842,)]

    with _served(image, database) as (address, server):
        told = _ask(address)
        [location] = told["workspaceOrError"]["locationEntries"]
        loaded = {"__typename": "RepositoryLocation"}
        assert location == {"name": "flights", "locationOrLoadError": loaded}
        runs = told["runsOrError"]["results"]
        assert runs == [{"jobName": "load_flights", "status": "SUCCESS"}]
        assert not any(each["value"] for each in told["permissions"] if "launch" in str(each))
        server.send_signal(signal.SIGTERM)
        assert server.wait(timeout=30) == 0
        eventually(lambda: _is_over(server.pid))


def test_the_dockerfile_starts_no_shell_and_no_root() -> None:
    """The command is in its exec form, so SIGTERM reaches the runtime; the user is not root."""
    for requirements in (None, "requirements.txt", "locks/image.txt"):
        text = dockerfile(kits.settings(requirements=requirements))
        last = text.rsplit("\nFROM ", 1)[1]
        assert json.loads(_one(last, "CMD")) == ["python", "-m", "segmentstream.runtime"]
        assert _one(last, "USER") == "pipeline"
        assert "ENTRYPOINT" not in text
        assert ("--require-hashes" in text) == (requirements is not None)


@contextmanager
def _served(image: Image, url: str) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    port = free_port()
    variables = {"SEGMENTSTREAM_DAGSTER_MODE": "webserver", "PORT": str(port)}
    # As a shell starts what it puts into the background: without an interrupt.
    command = ["sh", "-c", "trap '' INT; exec " + shlex.join(image.command)]
    output = image.root / "webserver.txt"
    with output.open("wb") as written:
        server = subprocess.Popen(
            command, cwd=image.workspace, env=image.variables(url) | variables,
            stdout=written, stderr=written, start_new_session=True,
        )  # fmt: skip
    try:
        address = f"http://127.0.0.1:{port}"
        eventually(lambda: _answers(f"{address}/server_info", server, output))
        yield address, server
    finally:
        if not _is_over(server.pid):
            os.killpg(server.pid, signal.SIGKILL)
        server.wait()


def _answers(address: str, server: subprocess.Popen[bytes], output: Path) -> bool:
    assert server.poll() is None, output.read_text()
    try:
        with urllib.request.urlopen(address, timeout=10) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def _ask(address: str) -> dict[str, Any]:
    request = urllib.request.Request(
        f"{address}/graphql",
        json.dumps({"query": QUERY}).encode(),
        {"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=60) as answer:
        told: dict[str, Any] = json.load(answer)["data"]
    return told


def _is_over(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return True
    return False


def _lock(source: Path) -> None:
    """Writes requirements.txt as docs/deploy.md says, and puts our wheel where it is looked for."""
    isolation = ["--no-build-isolation"] if find_spec("hatchling") else []
    _uv(["build", str(ROOT), "--wheel", *isolation, f"--python={sys.executable}",
         "-o", str(source / "wheels")], source)  # fmt: skip
    variables = {"UV_HTTP_TIMEOUT": "10", "UV_HTTP_RETRIES": "0"}
    compiled = ["pip", "compile", "pyproject.toml", "--quiet", "--generate-hashes",
                "--find-links=wheels", f"--constraints={PINS}", "--output-file=requirements.txt",
                f"--python-version={sys.version_info.major}.{sys.version_info.minor}"]  # fmt: skip
    try:
        _uv(compiled, source, **variables)
    except AssertionError as error:
        if "error sending request" not in str(error):
            raise
        pytest.skip("needs a package index: uv reaches none")


def _instructions(text: str) -> Iterator[tuple[str, str]]:
    for line in text.replace("\\\n", " ").splitlines():
        name, _, rest = line.partition(" ")
        if name.isupper():
            yield name, rest


def _one(text: str, name: str) -> str:
    [found] = [rest for each, rest in _instructions(text) if each == name]
    return found


def _copy(source: Path, root: Path, words: Sequence[str]) -> None:
    *wanted, target = words
    into = root / target.strip("/")
    into.mkdir(exist_ok=True)
    ignored = [line for line in dockerignore().splitlines() if line and not line.startswith("#")]
    for pattern in wanted:
        for found in [source] if pattern == "." else sorted(source.glob(pattern)):
            for file in sorted(found.rglob("*")) if found.is_dir() else [found]:
                # As Docker copies a folder: what is in it, not the folder.
                name = file.relative_to(found if found.is_dir() else source)
                place = into / name
                if file.is_file() and not _is_ignored(file.relative_to(source), ignored):
                    place.parent.mkdir(parents=True, exist_ok=True)
                    shutil.copy2(file, place)


def _is_ignored(path: Path, ignored: Sequence[str]) -> bool:
    ways = [path, *path.parents[:-1]]
    return any(
        fnmatch.fnmatchcase(
            way.name if rule.startswith("**/") else str(way), rule.removeprefix("**/")
        )
        for rule in ignored
        for way in ways
    )


def _moved(command: str, root: Path) -> str:
    python = "import sysconfig; print(sysconfig.get_path('purelib'))"
    ours = f'$({root}/pipeline/bin/python -c "{python}")/segmentstream'
    moved = re.sub(
        r"(?<![\w.-])/(?=(?:requirements|pipeline|workspace|tmp)\b)", f"{root}/", command
    ).replace(f"{root}/pipeline/lib", ours)
    # Afterwards: where uv is may begin as a folder of the image does.
    return moved.replace(
        f"{root}/pipeline/bin/pip install --no-cache-dir --no-compile",
        f"{_find_uv()} pip install --quiet --python {root}/pipeline/bin/python",
    )


def _shell(command: str, root: Path) -> None:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-ec", command], cwd=root, env=ASKED_WITH | {"PATH": path},
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


def _uv(arguments: Sequence[str], folder: Path, **variables: str) -> None:
    done = subprocess.run(
        [_find_uv(), *arguments], cwd=folder, env=ASKED_WITH | variables,
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


def _find_uv() -> str:
    beside = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    uv = shutil.which("uv", path=beside)
    if uv is None:
        pytest.skip("needs uv, of the dependency group `build`")
    return uv
