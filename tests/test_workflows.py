"""The promises of the two workflows that no run of theirs would notice being broken."""

import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

_ROOT = Path(__file__).parent.parent
_WORKFLOWS = _ROOT / ".github" / "workflows"
_CI = "ci.yml"
_RELEASE = "pipeline-sdk-release.yml"

pytestmark = pytest.mark.skipif(
    not _WORKFLOWS.is_dir(), reason="needs a checkout: the sdist does not carry the workflows"
)


@pytest.mark.parametrize("file", [_CI, _RELEASE])
def test_actions_are_well_known_and_pinned(file: str) -> None:
    """Every action comes from a publisher we trust and is pinned by a version."""
    trusted = re.compile(r"actions/[a-z-]+@v\d+|pypa/gh-action-pypi-publish@release/v\d+")

    used = [step["uses"] for step in _all_steps(file) if "uses" in step]

    assert used
    assert [action for action in used if not trusted.fullmatch(action)] == []


@pytest.mark.parametrize("file", [_CI, _RELEASE])
def test_no_script_contains_an_expression(file: str) -> None:
    """Values reach scripts through variables, so that no branch or tag name is run as code."""
    assert [step["run"] for step in _all_steps(file) if "${{" in step.get("run", "")] == []


@pytest.mark.parametrize("file", [_CI, _RELEASE])
def test_checkouts_leave_no_credentials_behind(file: str) -> None:
    """What the project's code could read after a checkout does not include a token."""
    checkouts = [
        step for step in _all_steps(file) if step.get("uses", "").startswith("actions/checkout@")
    ]

    assert checkouts
    assert all(step["with"]["persist-credentials"] is False for step in checkouts)


def test_ci_may_only_read() -> None:
    """No CI job holds more than read access to the repository's contents."""
    workflow = _workflow(_CI)

    assert workflow["permissions"] == {"contents": "read"}
    assert [name for name, job in workflow["jobs"].items() if "permissions" in job] == []


def test_ci_runs_on_every_change() -> None:
    """Pull requests and pushes to main are both tested, never with the secrets of the target."""
    assert _triggers(_CI) == {"pull_request": None, "push": {"branches": ["main"]}}


@pytest.mark.parametrize("job", ["test", "wheel"])
def test_ci_covers_every_python_we_promise(job: str) -> None:
    """The checkout and the built wheel are both tested on each Python of the classifiers."""
    prefix = "Programming Language :: Python :: "
    promised = [
        classifier.removeprefix(prefix)
        for classifier in _project()["classifiers"]
        if classifier.startswith(prefix)
    ]

    assert promised == ["3.12", "3.13"]
    assert _workflow(_CI)["jobs"][job]["strategy"]["matrix"] == {"python": promised}


def test_the_wheel_is_tested_without_the_source() -> None:
    """The wheel's tests run only after the source they could import instead is gone."""
    scripts = [step["run"] for step in _workflow(_CI)["jobs"]["wheel"]["steps"] if "run" in step]

    assert any("uv build" in script for script in scripts)
    assert not any("--editable" in script for script in scripts)
    assert scripts[-2] == "rm -r src"
    assert "-m pytest" in scripts[-1]


def test_ci_misses_each_extra_once() -> None:
    """Each extra is left out of one environment that has all the others."""
    extras = sorted(_project()["optional-dependencies"])
    environments = _workflow(_CI)["jobs"]["extras"]["strategy"]["matrix"]["include"]

    assert sorted(each["missing"] for each in environments) == extras
    for each in environments:
        assert sorted([each["missing"], *each["installed"].split(",")]) == extras


def test_only_a_release_tag_releases() -> None:
    """Nothing but a pushed tag of the SDK starts the release."""
    assert _triggers(_RELEASE) == {"push": {"tags": ["pipeline-sdk-v*"]}}


def test_only_the_publish_job_can_publish() -> None:
    """The right to publish exists in one job alone, behind the environment `pypi`."""
    workflow = _workflow(_RELEASE)
    jobs = workflow["jobs"]
    publishing = [
        name
        for name, job in jobs.items()
        if any("pypi-publish" in step.get("uses", "") for step in job["steps"])
    ]

    assert workflow["permissions"] == {}
    assert publishing == ["publish"]
    assert jobs["publish"]["environment"] == "pypi"
    assert jobs["publish"]["permissions"] == {"id-token": "write"}
    assert jobs["publish"]["needs"] == "build"


def test_the_build_job_cannot_publish() -> None:
    """The job that runs the project's code can read the repository and nothing else."""
    job = _workflow(_RELEASE)["jobs"]["build"]

    assert job["permissions"] == {"contents": "read"}
    assert "environment" not in job


def test_the_publish_job_runs_no_code_of_ours() -> None:
    """Publishing only downloads what was built and hands it over: no checkout, build or script."""
    steps = _workflow(_RELEASE)["jobs"]["publish"]["steps"]

    assert [step.get("uses", "a script").partition("@")[0] for step in steps] == [
        "actions/download-artifact",
        "pypa/gh-action-pypi-publish",
    ]


def test_no_stored_secret_is_used() -> None:
    """Publishing is trusted by identity: neither workflow reads a stored secret."""
    assert "secrets." not in "".join((_WORKFLOWS / file).read_text() for file in (_CI, _RELEASE))


def test_the_release_accepts_the_tag_of_its_version() -> None:
    """The tag made of the version in pyproject.toml passes the check."""
    done = _check_tag(f"pipeline-sdk-v{_project()['version']}")

    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("tag", ["pipeline-sdk-v99.0.0", "pipeline-sdk-v", "$(true)"])
def test_the_release_refuses_the_tag_of_another_version(tag: str) -> None:
    """Any other tag stops the release, and the message holds the tag and the one expected."""
    done = _check_tag(tag)

    assert done.returncode == 1
    assert repr(tag) in done.stderr
    assert f"pipeline-sdk-v{_project()['version']}" in done.stderr


def _check_tag(tag: str) -> subprocess.CompletedProcess[str]:
    """Runs the script of the release's first check, as the workflow holds it."""
    (script,) = (step["run"] for step in _all_steps(_RELEASE) if step.get("id") == "check-tag")
    return subprocess.run(
        [sys.executable, "-c", script],
        cwd=_ROOT,
        env={**os.environ, "TAG": tag},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def _project() -> dict[str, Any]:
    project: dict[str, Any] = tomllib.loads((_ROOT / "pyproject.toml").read_text())["project"]
    return project


def _workflow(file: str) -> dict[Any, Any]:
    workflow: dict[Any, Any] = yaml.safe_load((_WORKFLOWS / file).read_text())
    return workflow


def _triggers(file: str) -> object:
    # YAML 1.1, which PyYAML reads, takes the key `on` for a boolean.
    return _workflow(file)[True]


def _all_steps(file: str) -> Iterator[dict[str, Any]]:
    for job in _workflow(file)["jobs"].values():
        yield from job["steps"]
