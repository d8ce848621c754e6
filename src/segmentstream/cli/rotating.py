"""How the keys of credentials are changed; imports the workspace and the runtime's keys.

The key file is one for all workspaces of a person unless a variable names another, so a key that
this workspace no longer needs may still be needed by the next.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import click
from filelock import FileLock, Timeout

from segmentstream.cli.exits import CommandError, Exit, Output
from segmentstream.cli.workspace import Workspace, opened
from segmentstream_connections_runtime.composition import keys_of
from segmentstream_connections_runtime.credentials.base import StoreError
from segmentstream_connections_runtime.credentials.keys import GivenKeys, KeyFile, Keys
from segmentstream_connections_runtime.credentials.registry import open_store
from segmentstream_connections_runtime.credentials.sealing import KeyRing, KeyRingError
from segmentstream_connections_runtime.settings import (
    KEYS_FILE_VARIABLE,
    KEYS_VARIABLE,
    CredentialSettings,
)

_LOCK_SECONDS = 10.0


def rotate(workspace: Workspace, output: Output) -> Exit:
    """Adds a key where they are in a file, and seals everything with the first."""
    settings = workspace.credential_settings()
    try:
        keys = _keys(settings)
        if isinstance(keys, KeyFile):
            with _locked(keys):
                keys.write(keys.reread().with_new_key())
        key_id = keys.ring().key_id
    except KeyRingError as error:
        raise _unusable(error) from None
    total, changed = asyncio.run(_resealed(workspace))
    where = KEYS_VARIABLE if isinstance(keys, GivenKeys) else str(settings.keys_file)
    next_step = (
        f"Restart what runs with the old keys. Then `segmentstream connections rotate-key "
        f"--drop-old` removes them from {where}."
    )
    if isinstance(keys, GivenKeys):
        next_step = (
            f"Keys that come from {KEYS_VARIABLE} are not changed here: these records are sealed "
            "with its first key. For a new one set it to what `segmentstream connections "
            "rotate-key --print-new` prints, everywhere, and run this again. Once everything "
            "runs with it, take all keys but the first out of it."
        )
    output.result(
        {"keyId": key_id, "records": total, "resealed": changed, "keys": where},
        f"Sealed with {key_id} now: {total} records, of which {changed} were not.\n{next_step}",
    )
    return Exit.OK


def drop_old(workspace: Workspace, output: Output, *, is_sure: bool) -> Exit:
    """Takes the keys out of the file that nothing here is sealed with any more."""
    settings = workspace.credential_settings()
    try:
        keys = _keys(settings)
        if not isinstance(keys, KeyFile):
            raise CommandError(
                f"The keys come from {KEYS_VARIABLE}, which is not changed here.",
                "Run `segmentstream connections rotate-key`, then take all keys but the first out "
                "of the variable.",
                exit_code=Exit.USAGE,
                code="keys_in_variable",
            )
        _make_sure(settings, output, is_sure=is_sure)
        with _locked(keys):
            ring = keys.reread()
            total, changed = asyncio.run(_resealed(workspace))
            keys.write(ring.with_first_key_only())
    except KeyRingError as error:
        raise _unusable(error) from None
    dropped = len(ring.keys) - 1
    output.result(
        {"keyId": ring.key_id, "records": total, "resealed": changed, "dropped": dropped},
        f"All {total} records are sealed with {ring.key_id}; {dropped} old keys are gone from "
        f"{settings.keys_file}.",
    )
    return Exit.OK


def print_new(workspace: Workspace, output: Output, *, may_show: bool) -> Exit:
    """Prints keys with a new one first: the one output of the command that is a secret."""
    if sys.stdout.isatty() and not may_show:
        raise CommandError(
            "Keys are not written to a terminal.",
            "Send them to where they are kept (`... --print-new > keys.json`, or into the "
            "command of a secret store), or say --show-keys.",
            exit_code=Exit.USAGE,
            code="terminal",
        )
    settings = workspace.credential_settings()
    try:
        is_new = settings.keys is None and not settings.keys_file.exists()
        ring = KeyRing.new() if is_new else _keys(settings).ring().with_new_key()
    except KeyRingError as error:
        raise _unusable(error) from None
    click.echo(ring.to_text())
    output.say(
        f"{ring.key_id} is new and comes first; {len(ring.keys) - 1} older keys follow, which "
        f"still open what they sealed. Give all of it to {KEYS_VARIABLE}, unchanged, and run "
        "`segmentstream connections rotate-key` with it."
    )
    return Exit.OK


def _keys(settings: CredentialSettings) -> Keys:
    try:
        return keys_of(settings, open_store(settings.store))
    except StoreError as error:
        raise CommandError(
            str(error), exit_code=Exit.CONFIGURATION, code="configuration_invalid"
        ) from None


async def _resealed(workspace: Workspace) -> tuple[int, int]:
    async with opened(workspace) as work:
        return await work.durable.custody.reseal()


@contextmanager
def _locked(keys: KeyFile) -> Iterator[None]:
    """Holds the file against a second rotation, whose new key would get lost."""
    keys.ring()  # its folder is there now
    try:
        with FileLock(f"{keys.path}.lock", timeout=_LOCK_SECONDS, mode=0o600):
            yield
    except Timeout:
        raise CommandError(
            "Somebody else is changing the keys.", "Try again.", exit_code=Exit.STORE, code="locked"
        ) from None


def _make_sure(settings: CredentialSettings, output: Output, *, is_sure: bool) -> None:
    if is_sure:
        return
    output.say(
        f"{settings.keys_file} may hold the keys of other workspaces too, and of services that "
        "run. What is sealed with an old key there can never be opened again. Rotate in each "
        f"workspace first, or give each a file of its own ({KEYS_FILE_VARIABLE})."
    )
    if not sys.stdin.isatty():
        raise CommandError(
            "Nobody can be asked.", "Say --yes.", exit_code=Exit.USAGE, code="not_sure"
        )
    click.confirm("Remove the old keys?", abort=True, err=True)


def _unusable(error: KeyRingError) -> CommandError:
    return CommandError(str(error), exit_code=Exit.STORE, code="keys_unusable")
