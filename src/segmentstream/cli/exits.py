"""How a command ends: its exit codes, and the one place where a failure is told.

Imports click and `_core`, and of the connections service only the errors, when there is one.
"""

from __future__ import annotations

import functools
import json
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Concatenate

import click

from segmentstream._core.errors import SegmentStreamError

if TYPE_CHECKING:
    from segmentstream_connections_runtime.errors import ServiceError


class Exit(IntEnum):
    """Lists what a command can end with; `MEANINGS` says what each means."""

    OK = 0
    FAILED = 1
    USAGE = 2
    RECONNECT = 3
    STORE = 4
    CONFIGURATION = 5
    LATER = 6
    FAULT = 70
    INTERRUPTED = 130


MEANINGS = {
    Exit.OK: "it went well",
    Exit.FAILED: "it failed, such as a provider that refused; the message says what",
    Exit.USAGE: "it was called wrongly: an option, no workspace, no such connection",
    Exit.RECONNECT: "a person has to run `segmentstream connect`",
    Exit.STORE: "the credential store or its keys cannot be used",
    Exit.CONFIGURATION: "a variable, a secret or a declaration is missing or cannot work",
    Exit.LATER: "not now: the same command may succeed later",
    Exit.FAULT: "a fault of the command itself",
    Exit.INTERRUPTED: "it was interrupted",
}

# By code of the service: what the command ends with, and what to do where the code does not say.
_OUTCOMES = {
    "invalid_request": (Exit.USAGE, ""),
    "unauthorized": (Exit.CONFIGURATION, ""),
    "not_found": (Exit.FAULT, ""),
    "method_not_allowed": (Exit.FAULT, ""),
    "payload_too_large": (Exit.FAULT, ""),
    "unsupported_media_type": (Exit.FAULT, ""),
    "connection_not_found": (Exit.USAGE, "`segmentstream connections list` shows the declared."),
    "oauth_provider_rejected": (Exit.FAILED, ""),
    "oauth_reauthorization_required": (Exit.RECONNECT, "Run `segmentstream connect {place}`."),
    "oauth_client_rejected": (Exit.FAILED, ""),
    "oauth_rate_limited": (Exit.LATER, ""),
    "oauth_token_response_invalid": (Exit.FAILED, ""),
    "oauth_provider_unreadable": (Exit.LATER, ""),
    "oauth_provider_unavailable": (
        Exit.LATER,
        "`segmentstream connections doctor {key}` looks closer.",
    ),
    "oauth_outcome_unknown": (Exit.LATER, ""),
    "credential_not_found": (Exit.RECONNECT, "Run `segmentstream connect {place}`."),
    "authorization_not_found": (Exit.FAILED, ""),
    "credential_store_unavailable": (
        Exit.STORE,
        "`segmentstream connections doctor` looks at each record.",
    ),
    "runtime_unavailable": (
        Exit.CONFIGURATION,
        "Set it where the command runs, or in the .env file of the workspace.",
    ),
    "internal_error": (Exit.FAULT, ""),
}
_EXTRA = "connections"


def exit_table() -> str:
    """Writes the exit codes for `--help`."""
    lines = (f"  {code.value:>3}  {meaning}" for code, meaning in MEANINGS.items())
    return "\b\nExit codes:\n" + "\n".join(lines)


class CommandError(Exception):
    """Says why a command cannot do what it was asked.

    Attributes:
        problem: What is wrong.
        remedy: What to do about it; empty where the problem says so.
        exit: What the command ends with.
        code: A word for programs.
    """

    def __init__(
        self, problem: str, remedy: str = "", *, exit_code: Exit = Exit.FAILED, code: str = "failed"
    ) -> None:
        super().__init__(problem, remedy)
        self.problem = problem
        self.remedy = remedy
        self.exit = exit_code
        self.code = code


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """Says what a command prints: one JSON document, or text for people.

    What goes on meanwhile is written to standard error in both cases.
    """

    is_json: bool

    def result(self, document: object, text: str) -> None:
        """Prints the result, in one of its two forms."""
        click.echo(json.dumps(document, indent=2, allow_nan=False) if self.is_json else text)

    def say(self, text: str = "") -> None:
        """Tells a person what goes on."""
        click.echo(text, err=True)

    def failure(self, error: CommandError) -> None:
        """Tells of a failure."""
        if self.is_json:
            told = {"code": error.code, "problem": error.problem, "remedy": error.remedy}
            self.result({"error": told}, "")
        else:
            self.say(f"{click.style('Error:', fg='red')} {error.problem}")
            if error.remedy:
                self.say(error.remedy)


def command_work[**P](
    work: Callable[Concatenate[Output, P], Exit],
) -> Callable[P, None]:
    """Makes work the callback of a command: adds `--json`, tells failures, sets the exit code."""

    @click.option("--json", "is_json", is_flag=True, help="Print one JSON document.")
    @functools.wraps(work)
    def run(*arguments: P.args, **options: P.kwargs) -> None:
        output = Output(is_json=bool(options.pop("is_json")))
        try:
            code = work(output, *arguments, **options)
        except KeyboardInterrupt:
            error = CommandError("Interrupted.", exit_code=Exit.INTERRUPTED, code="interrupted")
            output.failure(error)
            code = error.exit
        except (click.ClickException, click.exceptions.Exit, click.Abort):
            raise
        except Exception as unexpected:  # noqa: BLE001 - the edge of the process
            error = _told(unexpected)
            output.failure(error)
            code = error.exit
        sys.exit(code)

    return run


def _told(error: Exception) -> CommandError:
    """Says what a failure means to whoever ran the command."""
    if isinstance(error, CommandError):
        return error
    if isinstance(error, SegmentStreamError):
        return CommandError(
            error.problem, error.remedy, exit_code=Exit.CONFIGURATION, code="declarations_invalid"
        )
    if isinstance(error, ModuleNotFoundError):
        return CommandError(
            f"The package {error.name!r} is not installed.",
            f"Install segmentstream-pipeline[{_EXTRA}].",
            exit_code=Exit.CONFIGURATION,
            code="extra_missing",
        )
    from segmentstream_connections_runtime.errors import ServiceError  # noqa: PLC0415
    from segmentstream_connections_runtime.settings import SettingsError  # noqa: PLC0415

    if isinstance(error, SettingsError):
        return CommandError(str(error), exit_code=Exit.CONFIGURATION, code="configuration_invalid")
    if isinstance(error, ServiceError):
        return of_service(error)
    return _fault(error)


def of_service(error: ServiceError) -> CommandError:
    """Says what an outcome of the runtime means to whoever ran the command."""
    exit_code, remedy = _OUTCOMES[error.code.value]
    problem = str(error)
    if exit_code in {Exit.USAGE, Exit.CONFIGURATION, Exit.STORE} and error.detail:
        problem = error.detail  # without the sentence that is meant for callers of the service
    if error.retry_after_seconds is not None:
        remedy = f"Try again in {error.retry_after_seconds} seconds. {remedy}".strip()
    return CommandError(
        problem, remedy.format(**_place()), exit_code=exit_code, code=error.code.value
    )


def _place() -> dict[str, str]:
    context = click.get_current_context(silent=True)
    given = {} if context is None else context.params
    key, account = given.get("key") or "KEY", given.get("account")
    is_other = account not in {None, "default"}
    return {"key": key, "place": f"{key} --account {account}" if is_other else key}


def _fault(error: Exception) -> CommandError:
    # Neither the text of the error nor a value: either could hold a secret.
    frames = traceback.extract_tb(error.__traceback__)[-6:]
    way = "\n".join(f"  {frame.filename}:{frame.lineno} in {frame.name}" for frame in frames)
    return CommandError(
        f"The command itself failed ({type(error).__name__}), here:\n{way}",
        "Please report these lines; they hold none of your data.",
        exit_code=Exit.FAULT,
        code="internal_error",
    )
