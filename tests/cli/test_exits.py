"""How commands end, and what they say when something is wrong."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from segmentstream.cli.exits import (
    _OUTCOMES,
    MEANINGS,
    CommandError,
    Exit,
    Output,
    command_work,
)
from segmentstream.cli.main import main
from segmentstream.connections import ConnectionDeclarationError
from segmentstream_connections_runtime.errors import Code, ServiceError
from segmentstream_connections_runtime.settings import SettingsError

_SECRET = "a-secret-in-a-local-variable"


def command(work: Callable[[], Exit]) -> click.Command:
    """A command that does that."""

    def run(output: Output, /) -> Exit:
        password = _SECRET
        assert password
        return work()

    return click.command()(command_work(run))


def fails(error: Exception) -> Callable[[], Exit]:
    """Work that raises."""

    def work() -> Exit:
        raise error

    return work


def test_every_code_of_the_service_has_an_end() -> None:
    """No outcome of the runtime is without an exit code."""
    assert _OUTCOMES.keys() == {code.value for code in Code}
    assert MEANINGS.keys() == set(Exit)


@pytest.mark.parametrize(
    ("error", "exit_code", "code"),
    [
        (ServiceError(Code.REAUTHORIZATION_REQUIRED), 3, "oauth_reauthorization_required"),
        (ServiceError(Code.CREDENTIAL_NOT_FOUND), 3, "credential_not_found"),
        (ServiceError(Code.STORE_UNAVAILABLE, "x"), 4, "credential_store_unavailable"),
        (ServiceError(Code.PROVIDER_UNAVAILABLE), 6, "oauth_provider_unavailable"),
        (ServiceError(Code.RUNTIME_UNAVAILABLE, "x"), 5, "runtime_unavailable"),
        (SettingsError("It is so. Do this."), 5, "configuration_invalid"),
        (ConnectionDeclarationError("It is so.", "Do this.", field="x"), 5, "declarations_invalid"),
        (ModuleNotFoundError("x", name="filelock"), 5, "extra_missing"),
        (CommandError("It is so.", exit_code=Exit.STORE, code="x"), 4, "x"),
        (KeyboardInterrupt(), 130, "interrupted"),
        (ZeroDivisionError(_SECRET), 70, "internal_error"),
    ],
)
def test_a_failure_is_told_to_people_and_programs(
    error: Exception, exit_code: int, code: str
) -> None:
    """The exit code is that of the table; people read two sentences, programs one document."""
    told = CliRunner().invoke(command(fails(error)), [])
    assert told.exit_code == exit_code
    assert told.stdout == ""
    assert "Error: " in told.stderr
    as_json = CliRunner().invoke(command(fails(error)), ["--json"])
    assert as_json.exit_code == exit_code
    assert json.loads(as_json.stdout)["error"]["code"] == code
    assert _SECRET not in told.output + as_json.output
    assert "Traceback" not in told.output


def test_a_fault_of_ours_says_where_and_not_what() -> None:
    """Its lines can be reported: neither the error's text nor a variable is in them."""
    told = CliRunner().invoke(command(fails(ValueError(f"could not parse {_SECRET}"))), [])
    assert told.exit_code == 70
    assert "ValueError" in told.stderr
    assert "test_exits.py:" in told.stderr
    assert _SECRET not in told.output


def test_how_long_to_wait_is_told() -> None:
    """A provider that asks for patience is heard."""
    error = ServiceError(Code.RATE_LIMITED, retry_after_seconds=17)
    told = CliRunner().invoke(command(fails(error)), [])
    assert told.exit_code == 6
    assert "in 17 seconds" in told.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ["connect"],
        ["connections"],
        *(
            ["connections", name]
            for name in ("list", "show", "test", "refresh", "disconnect", "rotate-key", "doctor")
        ),
    ],
    ids=" ".join,
)
def test_help_lists_the_exit_codes(arguments: list[str]) -> None:
    """Each command says what its exit codes mean, one a line."""
    told = CliRunner().invoke(main, [*arguments, "--help"])
    assert told.exit_code == 0
    for code, meaning in MEANINGS.items():
        assert f"{code.value:>3}  {meaning}" in told.stdout


def test_the_page_lists_the_exit_codes() -> None:
    """The documentation has the table of the code."""
    page = (Path(__file__).parents[2] / "docs/connections.md").read_text()
    lines = [f"| {code.value} | {meaning} |" for code, meaning in MEANINGS.items()]
    assert "\n".join(lines) in page


def test_help_loads_nothing() -> None:
    """What a command works with is imported when it works."""
    code = (
        "import sys; from segmentstream.cli.main import main\n"
        "try: main(['connections', 'doctor', '--help'])\n"
        "except SystemExit: pass\n"
        "print([n for n in ('httpx', 'sqlalchemy', 'cryptography', 'dagster', 'ibis', 'asyncio')"
        " if n in sys.modules])"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ended.stdout.splitlines()[-1] == "[]"
