"""Looks at a workspace without running any of it: what is wrong, and what it consists of.

Needs no credentials, no network, no warehouse and no variables.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import chdir
from dataclasses import dataclass
from pathlib import Path

from segmentstream._manifest import Manifest
from segmentstream.runtime.inspector.asset_rules import KnownWarehouse, asset_findings
from segmentstream.runtime.inspector.declared import Declared
from segmentstream.runtime.inspector.describing import describe
from segmentstream.runtime.inspector.findings import Finding, in_order
from segmentstream.runtime.inspector.job_rules import job_findings
from segmentstream.runtime.inspector.loading import Workspace, find_definitions, load_definitions
from segmentstream.runtime.inspector.moving_starts import moving_starts
from segmentstream.runtime.inspector.sources import Sources


@dataclass(frozen=True, slots=True, kw_only=True)
class Inspection:
    """Is what was found.

    Attributes:
        findings: What is refused, then what is warned of.
        manifest: What the workspace consists of, None where something is refused.
    """

    findings: tuple[Finding, ...]
    manifest: Manifest | None


def inspect_workspace(start: Path, environ: Mapping[str, str]) -> Inspection:
    """Loads a workspace and looks at everything in it.

    Args:
        start: The workspace, or a folder in it.
        environ: Variables; what they say of the warehouse makes some findings sharper.

    Raises:
        WorkspaceError: It does not load.
    """
    workspace = find_definitions(start)
    with chdir(workspace.folder):  # where Dagster's own tools start too
        return _inspect(workspace, environ)


def _inspect(workspace: Workspace, environ: Mapping[str, str]) -> Inspection:
    declared = Declared(load_definitions(workspace), Sources(workspace.folder, workspace.module))
    known = KnownWarehouse.from_environ(environ, declared.warehouse)
    findings = in_order(
        [
            *asset_findings(declared, known),
            *job_findings(declared),
            *moving_starts(declared, workspace),
        ]
    )
    is_refused = any(finding.is_refused for finding in findings)
    return Inspection(
        findings=tuple(findings),
        manifest=None if is_refused else describe(declared, workspace),
    )
