"""What a person is told when a command finds no declarations."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from connections_runtime.running import command, kept_environment

NO_FILE = "There is no connections.py in this folder."
NO_CONNECTIONS = "connections.py declares no `connections`."


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ({}, f"{NO_FILE} Run it in the folder that holds it."),
        (
            {"connections/connections.py": "connections = ()"},
            f"{NO_FILE} Change into connections/ and run it there.",
        ),
        (
            {"connections.py": "connection = ()"},
            f"{NO_CONNECTIONS} Write connections = (OAuth2Connection(...),).",
        ),
    ],
)
def test_a_command_without_declarations_says_what_to_do(
    tmp_path: Path, files: dict[str, str], said: str
) -> None:
    """A wrong folder or file ends the command with one line and no traceback."""
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)

    done = subprocess.run(
        command("inspect", "out.json"),
        cwd=tmp_path,
        env=kept_environment(),
        capture_output=True,
        text=True,
        check=False,
    )

    assert (done.returncode, done.stdout, done.stderr) == (1, "", f"{said}\n")
    assert not (tmp_path / "out.json").exists()
