"""How an inspection ends; imports the standard library only.

The numbers mean what those of the `segmentstream` command mean; 10 is none of those.
"""

from __future__ import annotations

from enum import IntEnum


class Exit(IntEnum):
    """Lists what an inspection can end with; `MEANINGS` says what each means."""

    OK = 0
    FAILED = 1
    USAGE = 2
    CONFIGURATION = 5
    WORKSPACE = 10
    FAULT = 70
    INTERRUPTED = 130


MEANINGS = {
    Exit.OK: "it went well; there may be warnings",
    Exit.FAILED: "it failed, such as a file that cannot be written",
    Exit.USAGE: "it was called wrongly",
    Exit.CONFIGURATION: "definitions are refused; each is named",
    Exit.WORKSPACE: "the workspace's code does not load",
    Exit.FAULT: "a fault of the runtime itself",
    Exit.INTERRUPTED: "it was interrupted",
}


def exit_table() -> str:
    """Writes the exit codes for `--help`."""
    return "\n".join(f"  {code.value:>3}  {meaning}" for code, meaning in MEANINGS.items())
