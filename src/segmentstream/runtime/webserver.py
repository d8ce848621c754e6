"""Becomes Dagster's web server for the workspace, on the instance that runs are recorded in.

It shows and starts nothing: the server is read-only, and it fires no schedule. Imports Dagster
through `instance` only; the server itself is a program of its own.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import MutableMapping
from importlib.util import find_spec
from pathlib import Path
from typing import NoReturn

from segmentstream.runtime.exits import Exit, RunRefusedError
from segmentstream.runtime.inspector.loading import WorkspaceError, find_definitions
from segmentstream.runtime.instance import open_instance
from segmentstream.runtime.settings import InstanceSettings, WebserverSettings
from segmentstream.runtime.telling import tell

_PACKAGE = "dagster_webserver"
_FILE = "workspace.yaml"


def become_webserver(settings: InstanceSettings, environ: MutableMapping[str, str]) -> NoReturn:
    """Writes `dagster.yaml`, checks the tables, and replaces this process by the web server.

    A process keeps its ignored signals when it becomes another; those of the runtime are handled,
    so the server starts with the ordinary ones, whatever shell started it.

    Raises:
        RunRefusedError: The server is not installed, there is no workspace, or the instance cannot
            be used.
    """
    listening = WebserverSettings.from_environ(environ)
    if find_spec(_PACKAGE) is None:
        raise RunRefusedError(
            "dagster-webserver is not installed.",
            "Add it to the dependencies of the workspace.",
            exit_code=Exit.CONFIGURATION,
        )
    with open_instance(settings, environ):
        workspace = _write_workspace(settings.home / _FILE)
    tell(f"The web server listens on http://{listening.host}:{listening.port}.")
    sys.stderr.flush()
    os.execve(  # noqa: S606 - our own arguments, and no shell
        sys.executable,
        [
            sys.executable, "-m", _PACKAGE, "--read-only",
            "--host", listening.host, "--port", str(listening.port),
            "--workspace", str(workspace),
        ],
        environ,
    )  # fmt: skip


def _write_workspace(path: Path) -> Path:
    # Named in full: found by itself, the location could have another name than runs are kept under.
    try:
        found = find_definitions(Path.cwd())
    except WorkspaceError as error:
        raise RunRefusedError(
            error.finding.problem, error.finding.remedy, exit_code=Exit.WORKSPACE
        ) from error
    module = {
        "module_name": found.module,
        "working_directory": str(found.folder),
        "location_name": found.location,
    }
    document = {"load_from": [{"python_module": module}]}
    path.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")  # JSON is YAML
    os.chdir(found.folder)
    return path
