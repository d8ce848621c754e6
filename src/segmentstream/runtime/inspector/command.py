"""The command `inspect`: what it prints and how it ends.

Standard output carries the result and nothing else; what the workspace prints while it loads goes
to standard error.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path

from segmentstream._core.jsonio import canonical_json
from segmentstream._manifest import Manifest, write_manifest
from segmentstream.runtime.exits import Exit
from segmentstream.runtime.inspector.findings import Finding
from segmentstream.runtime.inspector.inspection import inspect_workspace
from segmentstream.runtime.inspector.loading import WorkspaceError
from segmentstream.runtime.telling import only_the_result_on_stdout


def inspect(output: Path, environ: Mapping[str, str], *, is_json: bool) -> Exit:
    """Inspects the workspace of the current folder and writes its manifest.

    Args:
        output: The file to write; left as it is when something is refused.
        environ: The variables.
        is_json: Whether to print one JSON document rather than lines.
    """
    try:
        with only_the_result_on_stdout():
            findings, manifest, trace = _look(environ)
    except Exception:  # noqa: BLE001 - the edge of the process
        traceback.print_exc()
        sys.stderr.write("The inspection itself failed. Please report these lines.\n")
        return Exit.FAULT
    if manifest is not None:
        try:
            write_manifest(output, manifest)
        except OSError as error:
            sys.stderr.write(f"{output} cannot be written: {error.strerror}.\n")
            return Exit.FAILED
    if trace:
        sys.stderr.write(f"{trace}\n\n")
    if is_json:
        sys.stdout.write(canonical_json(_document(findings, manifest)))
    else:
        _tell(findings, manifest, output)
    if manifest is not None:
        return Exit.SUCCEEDED
    return Exit.CONFIGURATION if trace is None else Exit.WORKSPACE


def _look(environ: Mapping[str, str]) -> tuple[Sequence[Finding], Manifest | None, str | None]:
    try:
        inspection = inspect_workspace(Path.cwd(), environ)
    except WorkspaceError as error:
        return [error.finding], None, error.trace
    return inspection.findings, inspection.manifest, None


def _document(findings: Sequence[Finding], manifest: Manifest | None) -> dict[str, object]:
    return {
        "version": 1,
        "refused": [each.document() for each in findings if each.is_refused],
        "warnings": [each.document() for each in findings if not each.is_refused],
        "counts": None if manifest is None else _counts(manifest),
    }


def _tell(findings: Sequence[Finding], manifest: Manifest | None, output: Path) -> None:
    for finding in findings:
        sys.stderr.write(f"{finding.text()}\n")
    if manifest is None:
        refused = sum(finding.is_refused for finding in findings)
        sys.stderr.write(f"{refused} refused; {output} was not written.\n")
    else:
        counted = ", ".join(f"{number} {what}" for what, number in _counts(manifest).items())
        sys.stdout.write(f"{output}: {counted}.\n")


def _counts(manifest: Manifest) -> dict[str, int]:
    return {
        what: len(getattr(manifest, what))
        for what in ("assets", "checks", "jobs", "schedules", "sensors")
    }
