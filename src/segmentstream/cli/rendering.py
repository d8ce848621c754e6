"""The work of `segmentstream deploy render`: from options and files to a kit in its folder.

Imports `_cloud_run`, `_manifest` and `_core`; neither Dagster nor Ibis.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from segmentstream._cloud_run.kit import render as render_kit
from segmentstream._cloud_run.readme import ignored_triggers
from segmentstream._cloud_run.settings import ConnectionsSettings, DeploymentSettings
from segmentstream._cloud_run.writing import Written, write_kit
from segmentstream._core.errors import SegmentStreamError
from segmentstream._core.workspace import find_workspace
from segmentstream._manifest import Manifest, read_manifest
from segmentstream.cli.exits import CommandError, Exit, Output

_FOLDER = Path("deploy", "cloud-run")
_REQUIREMENTS = "requirements.txt"
_HASH = "--hash=sha256:"


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Is what the command was given; each field is an option of it."""

    manifest: Path
    project: str
    region: str
    image: str
    output: Path | None
    name: str | None
    sql_instance: str | None
    namespace: str | None
    location: str | None
    requirements: str | None
    cpu: str
    memory: str
    timeout: int
    env: Mapping[str, str]
    secret_env: Mapping[str, str]
    connections: Path | None
    connections_image: str | None
    project_number: str | None
    iap: bool
    force: bool


def render(output: Output, start: Path, options: Options) -> Exit:
    """Renders the kit of a workspace and says what became of each file.

    Raises:
        CommandError: A file or an option cannot work.
    """
    workspace = find_workspace(start)
    if workspace is None:
        raise _usage(
            f"There is no workspace at {start} or above it.",
            "Change into it, or name it: segmentstream --workspace PATH deploy render ...",
        )
    folder = (options.output or workspace / _FOLDER).resolve()
    manifest = _manifest(options.manifest)
    try:
        settings = _settings(options, manifest, workspace, folder)
        kit = render_kit(manifest, settings)
        written = write_kit(folder, kit, is_forced=options.force)
    except SegmentStreamError as error:
        raise _usage(error.problem, error.remedy) from error
    except OSError as error:
        raise CommandError(
            f"The kit cannot be written to {folder}: {error.strerror}.",
            "See that the folder may be written to.",
        ) from error
    _tell(output, folder, written, _warnings(manifest, settings))
    return Exit.FAILED if written.kept else Exit.OK


def _manifest(path: Path) -> Manifest:
    try:
        return read_manifest(path.read_text(encoding="utf-8"))
    except ValueError as error:  # no text, no JSON, or another document
        raise _usage(
            f"{path} is no manifest of this version of segmentstream-pipeline.",
            "Write it with: python -m segmentstream.runtime inspect manifest.json",
        ) from error


def _settings(
    options: Options, manifest: Manifest, workspace: Path, folder: Path
) -> DeploymentSettings:
    name = options.name or re.sub(r"[^a-z0-9]+", "-", manifest.location.lower()).strip("-")
    return DeploymentSettings(
        name=name,
        project=options.project,
        region=options.region,
        image=options.image,
        sql_instance=options.sql_instance or f"{name}-dagster",
        namespace=options.namespace or name.replace("-", "_"),
        location=options.location or options.region,
        workspace=_way(folder, workspace),
        kit=_way(workspace, folder),
        requirements=_requirements(options.requirements, workspace),
        cpu=options.cpu,
        memory=options.memory,
        timeout_seconds=options.timeout,
        variables=dict(options.env),
        secret_variables=dict(options.secret_env),
        connections=_connections(options),
        is_behind_iap=options.iap,
    )


def _way(start: Path, end: Path) -> str:
    return Path(os.path.relpath(end, start)).as_posix()


def _requirements(given: str | None, workspace: Path) -> str | None:
    path = workspace / (given or _REQUIREMENTS)
    if given is None and not path.is_file():
        return None
    if not path.resolve().is_relative_to(workspace.resolve()) or not path.is_file():
        raise _usage(f"There is no file {given} in the workspace.", "Name it from there on.")
    if _HASH in path.read_text(encoding="utf-8"):
        return path.relative_to(workspace).as_posix()
    if given is None:
        return None
    raise _usage(
        f"{given} has no hashes.",
        "Write it with: uv pip compile pyproject.toml --generate-hashes -o requirements.txt",
    )


def _connections(options: Options) -> ConnectionsSettings | None:
    if options.connections is None:
        if options.connections_image:
            raise _usage(
                "--connections-image is given, and --connections is not.",
                "Write the declarations with: python -m segmentstream_connections_runtime inspect",
            )
        return None
    if not options.connections_image or not options.project_number:
        raise _usage(
            "--connections needs --connections-image and --project-number.",
            "`gcloud projects describe PROJECT --format 'value(projectNumber)'` prints the number.",
        )
    try:
        document = json.loads(options.connections.read_text(encoding="utf-8"))
        secrets = sorted(set(_secrets_of(document["connections"])))
    except (ValueError, KeyError, TypeError) as error:
        raise _usage(
            f"{options.connections} holds no declarations.",
            "Write it with: python -m segmentstream_connections_runtime inspect connections.json",
        ) from error
    return ConnectionsSettings(
        image=options.connections_image,
        project_number=options.project_number,
        secrets=tuple(secrets),
    )


# The document is whatever JSON the file holds, hence Any.
def _secrets_of(document: Any) -> Iterator[str]:
    match document:
        case {"secret": str(name), **others} if not others:
            yield name
        case dict():
            for value in document.values():
                yield from _secrets_of(value)
        case list():
            for value in document:
                yield from _secrets_of(value)
        case _:
            pass


def _warnings(manifest: Manifest, settings: DeploymentSettings) -> list[str]:
    found = [f"Nothing will start {each}: no daemon runs." for each in ignored_triggers(manifest)]
    if settings.requirements is None:
        found.append(
            "The image takes the newest packages of the day: the workspace has no requirements.txt "
            "with hashes. Write one: uv pip compile pyproject.toml --generate-hashes "
            "-o requirements.txt"
        )
    return found


def _tell(output: Output, folder: Path, written: Written, warnings: list[str]) -> None:
    counted = {
        "written": written.written,
        "unchanged": written.unchanged,
        "removed": written.removed,
        "kept": written.kept,
    }
    text = "\n".join(
        (
            f"{folder}: {len(written.written)} files written, {len(written.unchanged)} unchanged.",
            *(f"removed: {path}" for path in written.removed),
            *(
                f"kept: {path} was changed by hand and would be different now; merge it, or "
                "render with --force."
                for path in written.kept
            ),
        )
    )
    for warning in warnings:
        output.say(warning)
    output.result({"folder": str(folder), "warnings": warnings, **counted}, text)


def _usage(problem: str, remedy: str) -> CommandError:
    return CommandError(problem, remedy, exit_code=Exit.USAGE, code="usage")
