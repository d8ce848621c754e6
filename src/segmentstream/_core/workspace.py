"""Where a workspace is: what holds `connections/` and `pipeline/`; imports nothing of ours."""

from __future__ import annotations

from pathlib import Path

CONNECTIONS_FILE = Path("connections", "connections.py")
DEFINITIONS_FILE = Path("pipeline", "definitions.py")


def find_workspace(start: Path) -> Path | None:
    """Finds the nearest workspace from a folder upwards; the folder may be the workspace itself.

    A workspace is what holds `connections/connections.py` or `pipeline/definitions.py`, so each of
    those two folders leads to it too.

    Args:
        start: Where to begin; symbolic links are followed.

    Returns:
        The folder as an absolute path, or None where there is none up to the root.
    """
    beginning = start.resolve()
    for folder in (beginning, *beginning.parents):
        if any((folder / file).is_file() for file in (CONNECTIONS_FILE, DEFINITIONS_FILE)):
            return folder
    return None
