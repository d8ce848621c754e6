"""Loads the definitions of the workspace around a folder; imports Dagster, `_core` and `exits`."""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
import traceback
from pathlib import Path

from dagster import Definitions

from segmentstream._core.workspace import DEFINITIONS_FILE, find_workspace
from segmentstream.runtime.exits import RunExit, RunRefusedError


def load_definitions(start: Path) -> Definitions:
    """Imports `defs` of `pipeline/definitions.py`, or of a `definitions.py` in the folder itself.

    The working folder becomes the workspace, as it is for `dg`.

    Raises:
        RunRefusedError: There is none, or it does not import; the traceback is cut to its files.
    """
    root = find_workspace(start)
    if root is not None and (root / DEFINITIONS_FILE).is_file():
        name = ".".join(DEFINITIONS_FILE.with_suffix("").parts)
    elif (start / DEFINITIONS_FILE.name).is_file():
        root, name = start.resolve(), DEFINITIONS_FILE.stem
    else:
        raise _refused(
            f"There is no {DEFINITIONS_FILE} at {start} or above.", "Start in the workspace."
        )
    os.chdir(root)
    if str(root) not in sys.path:
        sys.path.insert(0, str(root))
    try:
        with contextlib.redirect_stdout(sys.stderr):  # standard output is for results alone
            module = importlib.import_module(name)
    except Exception as error:
        raise does_not_load(error, root) from error
    found = getattr(module, "defs", None)
    if not isinstance(found, Definitions):
        raise _refused(f"{name} has no Definitions named `defs`.", "Assign them to that name.")
    return found


def does_not_load(error: Exception, root: Path) -> RunRefusedError:
    """Tells of an error of the workspace, with those lines of its traceback that are its own."""
    told = traceback.TracebackException.from_exception(error)
    own = [each for each in told.stack if Path(each.filename).is_relative_to(root)]
    if own:
        told.stack[:] = own
    told.__cause__ = told.__context__ = None
    return _refused(
        f"The workspace does not load.\n{''.join(told.format()).rstrip()}\n", "Correct it."
    )


def _refused(problem: str, remedy: str) -> RunRefusedError:
    return RunRefusedError(problem, remedy, exit_code=RunExit.WORKSPACE)
