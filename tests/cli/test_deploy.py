"""`segmentstream deploy render`: from a manifest and options to a folder of files."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from cloud_run import kits
from segmentstream._manifest import write_manifest
from segmentstream.cli.deploy import render as deploy_render
from segmentstream.cli.exits import Exit
from segmentstream.cli.main import main

ROOT = Path(__file__).parents[2]
RENDERED = ROOT / "deploy"
DOCS = ROOT / "docs" / "deploy.md"
NEEDED = ["--project=acme-data", "--region=europe-west1", "--image=pipeline:1"]
LOADED = """
import sys
from segmentstream.cli.main import main
try:
    main(sys.argv[1:])
except SystemExit:
    print(sorted({"dagster", "google", "ibis"} & set(sys.modules)))
"""


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    """A workspace with its manifest; its code is never loaded."""
    (tmp_path / "pipeline").mkdir()
    (tmp_path / "pipeline" / "definitions.py").write_text("raise SystemExit('loaded')\n")
    write_manifest(tmp_path / "manifest.json", kits.manifest())
    return tmp_path


def render(workspace: Path, *options: str) -> Result:
    """Runs the command in a workspace."""
    arguments = ["--workspace", str(workspace), "deploy", "render", *NEEDED, *options]
    return CliRunner().invoke(main, [*arguments, str(workspace / "manifest.json")])


@pytest.mark.slow
@pytest.mark.skipif(not RENDERED.is_dir(), reason="needs deploy/ of the source tree")
def test_the_kit_of_the_example_is_what_the_command_writes(tmp_path: Path) -> None:
    """`deploy/cloud-run` is, byte for byte, what the example workspace gives today."""
    shutil.copytree(RENDERED, tmp_path / "deploy")
    example = tmp_path / "examples" / "workspace"
    shutil.copytree(ROOT / "examples" / "workspace", example, ignore=_only_code)
    shutil.rmtree(tmp_path / "deploy" / "cloud-run")
    done = subprocess.run(
        [tmp_path / "deploy" / "render.sh"],
        env={**os.environ, "BIN": str(Path(sys.executable).parent)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert _texts(tmp_path / "deploy") == _texts(RENDERED), "run deploy/render.sh"


def test_defaults_come_from_the_manifest(workspace: Path) -> None:
    """The code location names everything, and the kit goes into the workspace."""
    done = render(workspace)
    assert done.exit_code == Exit.OK, done.output
    folder = workspace / "deploy" / "cloud-run"
    job = kits.loaded((folder / "pipeline.yaml").read_text())
    assert job["metadata"]["name"] == "shop-pipeline"
    assert "shop-dagster" in (folder / "setup.sh").read_text()
    build = kits.loaded((folder / "compose.yaml").read_text())["services"]["pipeline"]["build"]
    assert build == {"context": "../..", "dockerfile": "deploy/cloud-run/Dockerfile"}


def test_it_runs_no_code_and_loads_no_library_of_pipelines(workspace: Path) -> None:
    """The manifest is all it reads: `definitions.py`, Dagster and Ibis are left alone."""
    done = subprocess.run(
        [sys.executable, "-c", LOADED, "--workspace", workspace, "deploy", "render",
         *NEEDED, workspace / "manifest.json"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "[]"


def test_hashed_requirements_are_found(workspace: Path) -> None:
    """With them the image is the same each time; without, the command says that it is not."""
    loose = render(workspace)
    assert "newest packages of the day" in loose.stderr
    (workspace / "requirements.txt").write_text(f"click==8.3.0 --hash=sha256:{'0' * 64}\n")
    pinned = render(workspace)
    assert pinned.stderr == ""
    dockerfile = (workspace / "deploy" / "cloud-run" / "Dockerfile").read_text()
    assert "--require-hashes" in dockerfile
    (workspace / "requirements.txt").write_text("click\n")
    refused = render(workspace, "--requirements=requirements.txt")
    assert refused.exit_code == Exit.USAGE
    assert "has no hashes" in refused.stderr


def test_what_a_person_changed_is_named(workspace: Path) -> None:
    """The file is kept and told of, the exit code says so, and --force overwrites it."""
    render(workspace)
    changed = workspace / "deploy" / "cloud-run" / "pipeline.yaml"
    changed.write_text(changed.read_text().replace("4Gi", "8Gi"))
    kept = render(workspace, "--timeout=60")
    assert kept.exit_code == Exit.FAILED
    assert "pipeline.yaml was changed by hand" in kept.stdout
    assert "8Gi" in changed.read_text()
    assert render(workspace, "--timeout=60", "--force").exit_code == Exit.OK
    assert "8Gi" not in changed.read_text()


def test_programs_read_the_result(workspace: Path) -> None:
    """With --json, standard output is one document that names each file."""
    told = json.loads(render(workspace, "--json").stdout)
    assert "pipeline.yaml" in told["written"]
    assert told["kept"] == []


def test_what_nothing_starts_is_told(workspace: Path) -> None:
    """Sensors need Dagster's daemon, which does not run there; so the command names them."""
    write_manifest(workspace / "manifest.json", kits.manifest(sensors=(kits.sensor("on_file"),)))
    assert "the sensor `on_file`" in render(workspace).stderr
    readme = (workspace / "deploy" / "cloud-run" / "README.md").read_text()
    assert "the sensor `on_file`" in readme


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--project=Acme"], "--project cannot be 'Acme'"),
        (["--image=pipeline:latest"], "cannot be rolled back"),
        (["--name=much-too-long-a-name"], "--name"),
        (["--connections-image=c:1"], "--connections is not"),
        (["--env=DAGSTER_HOME=/"], "--env"),
        (["--env=alone"], "NAME=VALUE"),
        (["--requirements=../requirements.txt"], "no file"),
    ],
)
def test_what_cannot_work_writes_nothing(workspace: Path, options: list[str], told: str) -> None:
    """A wrong option is named, with what to do, and no file appears."""
    done = render(workspace, *options)
    assert done.exit_code == Exit.USAGE
    assert told in done.stderr
    assert not (workspace / "deploy").exists()


@pytest.mark.parametrize("content", ["", "{}", '{"version": 0}', "[1]"])
def test_a_file_that_is_no_manifest_is_named(workspace: Path, content: str) -> None:
    """Another file, or a manifest of another version, is refused with how to write one."""
    (workspace / "manifest.json").write_text(content)
    done = render(workspace)
    assert done.exit_code == Exit.USAGE
    assert "segmentstream.runtime inspect" in done.stderr


@pytest.mark.parametrize(
    "content", ["", "[]", "{}", '{"connections": [{"clientId": {"secret": "A b"}}]}']
)
def test_a_file_without_declarations_is_named(workspace: Path, content: str) -> None:
    """The file of declarations is checked as the manifest is."""
    (workspace / "connections.json").write_text(content)
    done = render(
        workspace,
        f"--connections={workspace / 'connections.json'}",
        "--connections-image=c:1",
        "--project-number=123456789012",
    )
    assert done.exit_code == Exit.USAGE
    assert "segmentstream_connections_runtime inspect" in done.stderr


@pytest.mark.skipif(not DOCS.is_file(), reason="needs docs/ of the source tree")
def test_the_page_names_what_is_there() -> None:
    """Options, files and resources on the page are those of the command and of the kit."""
    page = DOCS.read_text()
    options = {name for each in deploy_render.params for name in each.opts}
    calls = re.findall(r"segmentstream deploy render .*(?:\\\n.*)*", page)
    assert len(calls) >= 4
    assert set(re.findall(r" (--[a-z-]+)", " ".join(calls))) <= options
    for row in re.findall(r"^\| (`--.*?) \|", page, re.MULTILINE):
        assert set(re.findall(r"--[a-z-]+", row)) <= options
    files = set(re.findall(r"deploy/cloud-run/([\w.]+)", page)) - {"README.md"}
    assert files <= {path.name for path in (RENDERED / "cloud-run").iterdir()}
    rendered = "".join(text for text, _ in _texts(RENDERED / "cloud-run").values())
    named = set(re.findall(r"\bflights-[a-z-]+[a-z]", page))
    assert {name for name in named if name not in rendered} == set()


def _only_code(_folder: str, names: list[str]) -> set[str]:
    made = {"__pycache__", ".dagster", ".segmentstream", "wheels", "requirements.txt"}
    return {name for name in names if name in made or ".duckdb" in name}


def _texts(folder: Path) -> dict[str, tuple[str, bool]]:
    return {
        path.relative_to(folder).as_posix(): (path.read_text(), os.access(path, os.X_OK))
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }
