"""Loads the workspace's definitions for a run, as an inspection finds and loads them."""

from __future__ import annotations

import os
from pathlib import Path

from dagster import Definitions

from segmentstream.runtime.exits import Exit, RunRefusedError
from segmentstream.runtime.inspector.loading import (
    WorkspaceError,
    find_definitions,
    load_definitions,
)
from segmentstream.runtime.telling import only_the_result_on_stdout


def load_workspace(start: Path) -> Definitions:
    """Imports the definitions of the workspace around a folder, which becomes the working folder.

    Raises:
        RunRefusedError: There is none, or it does not load.
    """
    try:
        workspace = find_definitions(start)
        os.chdir(workspace.folder)  # where Dagster's own tools start too
        with only_the_result_on_stdout():
            return load_definitions(workspace)
    except WorkspaceError as error:
        finding = error.finding
        told = [f"The workspace does not load: {finding.problem}", *error.trace.splitlines()]
        raise RunRefusedError("\n".join(told), finding.remedy, exit_code=Exit.WORKSPACE) from error


def location_of(start: Path) -> str:
    """Gives the name of the code location of a workspace that loads."""
    return find_definitions(start).location
