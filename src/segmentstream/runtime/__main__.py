"""The commands of the runtime; each imports its work when it is called.

python -m segmentstream.runtime
python -m segmentstream.runtime inspect OUTPUT
"""

from __future__ import annotations

import argparse
import gc
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from segmentstream.runtime.exits import Exit, exit_table


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command, without one the job that the variables name; gives the exit code."""
    asked = _parser().parse_args(arguments)
    try:
        if asked.command == "inspect":
            with _kept():
                from segmentstream.runtime.inspector.command import inspect  # noqa: PLC0415 - see above

            return inspect(asked.output, os.environ, is_json=asked.json)
    except KeyboardInterrupt:
        return Exit.INTERRUPTED
    with _kept():
        from segmentstream.runtime.run_job import main as run_job  # noqa: PLC0415 - see above

    return run_job(os.environ)


@contextmanager
def _kept() -> Iterator[None]:
    """Keeps what is imported out of every search for garbage; there is none in it.

    Python would search Dagster's and Ibis's modules while they load, in each fork and several
    times when it ends: a third of the CPU time of a start.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m segmentstream.runtime",
        description="The runtime of a deployed workspace.",
        epilog=f"Exit codes:\n{exit_table()}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    inspect = commands.add_parser(
        "inspect", help="check the workspace's definitions and write them as JSON"
    )
    inspect.add_argument("output", type=Path, metavar="OUTPUT", help="the file to write")
    inspect.add_argument("--json", action="store_true", help="print findings as one JSON document")
    return parser


if __name__ == "__main__":
    code = main()
    gc.freeze()  # and what was imported and declared since
    sys.exit(code)
