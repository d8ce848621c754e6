"""`segmentstream connections`: the options of its commands; their work is in modules of its own."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from segmentstream.cli.exits import Exit, Output, command_work, exit_table

if TYPE_CHECKING:
    from segmentstream.cli.workspace import Workspace

_account = click.option("--account", default="default", help="Which login of the connection.")


@click.group(epilog=exit_table())
def connections() -> None:
    """Looks after the connections of a workspace and their credentials."""


# What click takes, and what it gives, is known to click alone.
def _command(name: str, *options: Callable[[Any], Any]) -> Callable[[Any], click.Command]:
    def made(work: Callable[..., Exit]) -> click.Command:
        callback: Any = command_work(work)
        for option in reversed(options):
            callback = option(callback)
        return connections.command(name, epilog=exit_table())(click.pass_obj(callback))

    return made


def _workspace(start: Path) -> Workspace:
    from segmentstream.cli.workspace import Workspace  # noqa: PLC0415 - not for `--help`

    return Workspace.found(start, os.environ)


@_command("list")
def list_all(output: Output, start: Path, /) -> Exit:
    """Lists the declared connections and the stored credentials."""
    from segmentstream.cli import credentials  # noqa: PLC0415

    return credentials.list_all(_workspace(start), output)


@_command("show", click.argument("key"), _account)
def show(output: Output, start: Path, /, *, key: str, account: str) -> Exit:
    """Shows one connection and what its credential is good for; never a token."""
    from segmentstream.cli import credentials  # noqa: PLC0415

    return credentials.show(_workspace(start), output, key, account)


@_command(
    "test",
    click.argument("key"),
    _account,
    click.option(
        "--request",
        "path",
        metavar="PATH",
        help="Also GET this path under the connection's api_base_url, and print the status.",
    ),
)
def test(output: Output, start: Path, /, *, key: str, account: str, path: str | None) -> Exit:
    """Makes sure that a token can be had now; renews it where that is due."""
    from segmentstream.cli import credentials  # noqa: PLC0415

    return credentials.test(_workspace(start), output, key, account, path)


@_command("refresh", click.argument("key"), _account)
def refresh(output: Output, start: Path, /, *, key: str, account: str) -> Exit:
    """Renews a token now, whether or not that is due."""
    from segmentstream.cli import credentials  # noqa: PLC0415

    return credentials.refresh(_workspace(start), output, key, account)


@_command(
    "disconnect",
    click.argument("key"),
    _account,
    click.option(
        "--forget",
        "is_forgotten",
        is_flag=True,
        help="Only remove the record, also where no key opens it; the provider is not told.",
    ),
)
def disconnect(
    output: Output, start: Path, /, *, key: str, account: str, is_forgotten: bool
) -> Exit:
    """Revokes a credential at the provider, and wipes it here in any case.

    Where the provider does not take it back, that is said and the exit code is not 0.
    """
    from segmentstream.cli import credentials  # noqa: PLC0415

    work = credentials.forget if is_forgotten else credentials.disconnect
    return work(_workspace(start), output, key, account)


@_command(
    "rotate-key",
    click.option(
        "--drop-old",
        is_flag=True,
        help="Add no key, but remove all that are no longer sealed with.",
    ),
    click.option(
        "--print-new",
        is_flag=True,
        help="Change nothing: print keys with a new one first, for SEGMENTSTREAM_CREDENTIAL_KEYS.",
    ),
    click.option("--show-keys", is_flag=True, help="Let --print-new write to a terminal."),
    click.option("--yes", "is_sure", is_flag=True, help="Ask nothing."),
)
def rotate_key(
    output: Output,
    start: Path,
    /,
    *,
    drop_old: bool,
    print_new: bool,
    show_keys: bool,
    is_sure: bool,
) -> Exit:
    """Seals all credentials with a new key; the old keys still open until --drop-old.

    Keys in a file (the default) are changed there. Keys in SEGMENTSTREAM_CREDENTIAL_KEYS are yours
    to change: set the variable to what --print-new prints, then run this to seal with the first.

    After either, restart what runs with the old keys, and only then use --drop-old.
    """
    from segmentstream.cli import rotating  # noqa: PLC0415

    if print_new and drop_old:
        raise click.UsageError("--print-new and --drop-old do not go together.")
    workspace = _workspace(start)
    if print_new:
        return rotating.print_new(workspace, output, may_show=show_keys)
    if drop_old:
        return rotating.drop_old(workspace, output, is_sure=is_sure)
    return rotating.rotate(workspace, output)


@_command("doctor", click.argument("key", required=False))
def doctor(output: Output, start: Path, /, *, key: str | None) -> Exit:
    """Checks one by one what connections need, and says what to do about problems.

    It asks the providers' addresses for an answer, without credentials.
    """
    from segmentstream.cli import doctor as checks  # noqa: PLC0415

    return checks.run(_workspace(start), output, key)
