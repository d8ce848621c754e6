"""The scripts, run against commands that only write down what they are asked for."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from cloud_run import kits
from segmentstream._cloud_run import access
from segmentstream._cloud_run.writing import write_kit

pytestmark = pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")

STUB = Path(__file__).with_name("command_stub.sh")


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """Is a folder with a kit, and commands that write down how they are called."""

    folder: Path
    seen: list[int] = field(default_factory=lambda: [0])

    def run(self, script: str) -> list[list[str]]:
        """Runs a script, and gives the calls it made."""
        environ = {
            "PATH": f"{self.folder / 'bin'}{os.pathsep}{os.environ['PATH']}",
            "STUB_FOLDER": str(self.folder),
        }
        done = subprocess.run(
            [self.folder / "kit" / script], env=environ, cwd="/",
            capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        calls = (self.folder / "calls").read_text().split("\x1e\0")[:-1]
        new = calls[self.seen[0] :]
        self.seen[0] = len(calls)
        return [call.split("\0")[:-1] for call in new]

    def fill(self) -> None:
        """Puts something into each secret that people fill."""
        for secret in access.secrets(kits.settings()):
            (self.folder / f"there_version {secret}").touch()

    def input(self) -> str:
        """Gives what the commands read from their standard input."""
        return (self.folder / "input").read_text()


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    """A machine with a kit and nothing on Google Cloud."""
    write_kit(tmp_path / "kit", kits.kit())
    (tmp_path / "bin").mkdir()
    for name in ("gcloud", "bq", "curl", "openssl"):
        stub = tmp_path / "bin" / name
        shutil.copy(STUB, stub)
        stub.chmod(0o755)
    return Machine(folder=tmp_path)


@pytest.mark.parametrize("script", ["setup.sh", "deploy.sh"])
def test_scripts_are_bash(script: str, tmp_path: Path) -> None:
    """Bash reads each without complaint, and shellcheck where it is installed."""
    (tmp_path / script).write_text(kits.kit(is_behind_iap=True)[script])
    checks = [["bash", "-n"]]
    if found := shutil.which("shellcheck"):
        checks.append([found])
    for check in checks:
        done = subprocess.run(
            [*check, tmp_path / script], capture_output=True, text=True, check=False
        )
        assert (done.returncode, done.stdout + done.stderr) == (0, "")


def test_a_second_setup_makes_nothing(machine: Machine) -> None:
    """What is there is found by its name; rights are given again, which changes nothing."""
    first, second = machine.run("setup.sh"), machine.run("setup.sh")
    assert len(_those(first, "create")) > 10
    assert _those(second, "create") == []
    assert _those(second, "versions", "add") == []
    assert not any(call[0] in {"curl", "openssl"} for call in second)
    assert _those(second, "add-iam-policy-binding") == _those(first, "add-iam-policy-binding")


def test_no_argument_holds_a_secret(machine: Machine) -> None:
    """The password goes from standard input to standard input, to Postgres and to its secret."""
    calls = _set_up_and_deployed(machine)
    for word in ("the-password", "the-token"):
        assert not any(word in argument for call in calls for argument in call)
    assert machine.input() == (
        'Authorization: Bearer the-token{"name": "dagster", "password": "the-password"}the-password'
    )


def test_a_setup_that_was_cut_off_goes_on(machine: Machine) -> None:
    """With the user made and its password lost, the user is given a new one."""
    (machine.folder / "there_user").touch()
    [call] = [call for call in machine.run("setup.sh") if call[0] == "curl"]
    assert "PUT" in call
    assert call[-1].endswith("/instances/shop-dagster/users?name=dagster")


def test_every_right_is_given_once_and_no_other(machine: Machine) -> None:
    """The two scripts give what the table of the README says, each on its own resource."""
    calls = _set_up_and_deployed(machine)
    given = sorted(
        (_after(call, "--member"), _after(call, "--role"), call[call.index(_BIND) + 1])
        for call in calls
        if _BIND in call
    )
    granted = [
        re.search(r"GRANT `(\S+)` ON SCHEMA `acme-data\.(\S+)` TO \"(\S+)\"", " ".join(call))
        for call in calls
    ]
    given += [(each[3], each[1], each[2]) for each in granted if each]
    wanted = [
        (
            f"serviceAccount:shop-{grant.account}@acme-data.iam.gserviceaccount.com",
            grant.role,
            grant.name,
        )
        for grant in access.grants(kits.manifest(), kits.settings())
    ]
    assert sorted(given) == sorted(wanted)
    assert len(set(given)) == len(given)


def test_rights_are_as_narrow_as_the_resource_allows() -> None:
    """On the project there is only what cannot be given below it; no role administers anything."""
    grants = access.grants(kits.manifest(), kits.settings())
    on_project = {each.role for each in grants if each.kind == "project" and not each.condition}
    assert on_project == {
        "roles/bigquery.jobUser",
        "roles/bigquery.readSessionUser",
        "roles/cloudsql.client",
        "projects/acme-data/roles/segmentstreamCredentialNames",
    }
    by_dataset = {each.name: each.role for each in grants if each.kind == "dataset"}
    assert by_dataset == {
        "analytics": "roles/bigquery.dataEditor",
        "raw": "roles/bigquery.dataViewer",
        "silver": "roles/bigquery.dataEditor",
    }
    assert not any(re.search("admin|owner|editor$|developer", each.role) for each in grants)
    by_account = {
        account: {
            each.name for each in grants if each.account == account and each.kind != "project"
        }
        for account in ("webserver", "scheduler", "connections")
    }
    assert by_account == {
        "webserver": {"shop-postgres-password"},
        "scheduler": {"shop-cron-nightly", "shop-cron-twice"},
        "connections": {
            "google-oauth-client-id",
            "google-oauth-client-secret",
            "shop-credential-keys",
        },
    }


def test_tables_are_migrated_before_anything_uses_them(machine: Machine) -> None:
    """A release runs its migration, and waits for it, before its jobs and its web server."""
    calls = [" ".join(call) for call in _set_up_and_deployed(machine)]
    [migrated] = [n for n, call in enumerate(calls) if "jobs execute shop-migrate" in call]
    assert "--wait" in calls[migrated]
    used = [n for n, call in enumerate(calls) if " replace " in call and "migrate" not in call]
    assert len(used) == 5
    assert migrated < min(used)


def test_schedules_are_paused_once(machine: Machine) -> None:
    """What is off in the workspace is paused when it is made, and never again: a person may resume it."""
    first, second = _set_up_and_deployed(machine), machine.run("deploy.sh")
    paused = [call[4] for call in _those(first, "pause")]
    assert paused == ["shop-cron-twice-1", "shop-cron-twice-2"]
    assert _those(second, "pause") == []
    assert len(_those(second, "update", "http")) == 3


def test_nothing_is_deployed_while_a_secret_is_empty(machine: Machine) -> None:
    """Cloud Run would refuse the service half-way, so the script says which before it begins."""
    machine.run("setup.sh")
    with pytest.raises(AssertionError, match="google-oauth-client-id holds nothing"):
        machine.run("deploy.sh")
    assert "replace" not in (machine.folder / "calls").read_text()


def test_the_command_line_says_what_the_entry_says() -> None:
    """The flags for gcloud and the document for the REST interface are one entry."""
    kit = kits.kit()
    text = kit["deploy.sh"].replace("\\\n", " ")
    lines = [shlex.split(line) for line in text.splitlines() if line.startswith("schedule shop")]
    assert len(lines) == 3
    for line in lines:
        document = kit[f"scheduler/{line[1]}.json"]
        for flag in ("--schedule", "--time-zone", "--uri", "--oauth-service-account-email"):
            [value] = [each.split("=", 1)[1] for each in line if each.startswith(f"{flag}=")]
            assert f'"{value}"' in document


_BIND = "add-iam-policy-binding"


def _set_up_and_deployed(machine: Machine) -> list[list[str]]:
    calls = machine.run("setup.sh")
    machine.fill()
    return calls + machine.run("deploy.sh")


def _those(calls: Sequence[list[str]], *words: str) -> list[list[str]]:
    return [call for call in calls if set(words) <= set(call)]


def _after(call: list[str], flag: str) -> str:
    return call[call.index(flag) + 1]
