"""Loads what a workspace declares in `connections.py`; imports the declaration and `_core`."""

from __future__ import annotations

import runpy
from collections.abc import Sequence
from pathlib import Path

from segmentstream._core.errors import ConnectionsFileError
from segmentstream._core.workspace import CONNECTIONS_FILE
from segmentstream.connections._oauth2 import OAuth2Connection, check_unique_keys


def load_connections(folder: Path) -> tuple[OAuth2Connection, ...]:
    """Loads the declarations of a folder, which runs its `connections.py`.

    Args:
        folder: The workspace's `connections/` folder.

    Raises:
        ConnectionsFileError: There is no `connections.py`, or it declares no `connections`.
        ConnectionDeclarationError: A declaration cannot work, or two have one key.
    """
    path = folder / CONNECTIONS_FILE.name
    if not path.is_file():
        nested = folder / CONNECTIONS_FILE
        hint = (
            f"Change into {nested.parent.name}/ and run it there."
            if nested.is_file()
            else "Run it in the folder that holds it."
        )
        raise ConnectionsFileError(f"There is no {path.name} in this folder.", hint)
    declared = runpy.run_path(str(path)).get("connections")
    if not isinstance(declared, Sequence) or not all(
        isinstance(each, OAuth2Connection) for each in declared
    ):
        raise ConnectionsFileError(
            f"{path.name} declares no `connections`.",
            "Write connections = (OAuth2Connection(...),).",
        )
    check_unique_keys(declared)
    return tuple(declared)
