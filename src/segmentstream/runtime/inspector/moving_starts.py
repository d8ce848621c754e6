"""Finds partitions whose start moves with the clock, by loading the workspace a second time.

Imports Dagster and `_core`. The second load is a process of its own whose clock is 400 days ahead:
day, month and year differ. It is made only where the workspace's own files ask for the time.
"""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from dagster import TimeWindowPartitionsDefinition

from segmentstream._dagster.keys import shown
from segmentstream.runtime.inspector.declared import Declared, DeclaredAsset
from segmentstream.runtime.inspector.findings import Code, Finding
from segmentstream.runtime.inspector.loading import Workspace
from segmentstream.runtime.inspector.sources import files_of

_ASKS_FOR_THE_TIME = {"now", "today", "utcnow", "time", "time_ns", "localtime", "gmtime"}
_SECOND_LOAD = "segmentstream.runtime.inspector.later"
_TIMEOUT_SECONDS = 120


def moving_starts(declared: Declared, workspace: Workspace) -> Iterator[Finding]:
    """Names the daily tables whose first day depends on when the workspace is loaded.

    Where the second load fails nothing is said: it is no fault of the workspace.
    """
    starts = {asset.key.to_user_string(): start for asset, start in _starts(declared)}
    if not starts or not any(map(_asks_for_the_time, files_of(workspace.folder))):
        return
    later = _load_later(workspace)
    for asset, start in _starts(declared):
        then = later.get(asset.key.to_user_string(), start)
        if then != start:
            yield Finding(
                code=Code.START_MOVES,
                kind="asset",
                name=asset.key.to_user_string(),
                problem=f"The partitions of {shown(asset.key)} start at {start} now and would "
                f"start at {then} if they were loaded 400 days later.",
                remedy="Write a fixed start_date.",
                places=(asset.place,),
            )


def starts_of(declared: Declared) -> dict[str, str]:
    """Gives when the partitions of each daily table start."""
    return {asset.key.to_user_string(): start for asset, start in _starts(declared)}


def _starts(declared: Declared) -> Iterator[tuple[DeclaredAsset, str]]:
    for asset in declared.assets:
        windows = asset.partitions_def
        if asset.is_kept and isinstance(windows, TimeWindowPartitionsDefinition):
            yield asset, windows.start.isoformat()


def _asks_for_the_time(file: Path) -> bool:
    tree = ast.parse(file.read_text(encoding="utf-8"))
    return any(
        isinstance(node, ast.Call)
        and getattr(node.func, "attr", getattr(node.func, "id", "")) in _ASKS_FOR_THE_TIME
        for node in ast.walk(tree)
    )


def _load_later(workspace: Workspace) -> dict[str, str]:
    run = partial(subprocess.run, capture_output=True, timeout=_TIMEOUT_SECONDS, check=True)
    try:
        done = run([sys.executable, "-W", "ignore", "-m", _SECOND_LOAD], cwd=workspace.folder)
        later: dict[str, str] = json.loads(done.stdout)
    except (OSError, subprocess.SubprocessError, ValueError):
        return {}
    return later
