"""Writes a kit into its folder, and leaves alone what a person has changed there.

`kit.json` says what was last written, by hash. Imports `_core`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from segmentstream._cloud_run.kit import EXECUTABLE
from segmentstream._core.errors import SegmentStreamError
from segmentstream._core.jsonio import canonical_json, write_atomically

RECORD = "kit.json"
_VERSION = 1
_EXECUTABLE_MODE = 0o755


class KitRecordError(SegmentStreamError):
    """Says that the folder's record of what was written cannot be read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """Says what became of each file, by its path within the folder.

    Attributes:
        written: Those that are new or different now.
        unchanged: Those that were as they should be.
        removed: Those of an earlier kit that this one does not have.
        kept: Those that a person has changed, and that would be different now too.
    """

    written: tuple[str, ...]
    unchanged: tuple[str, ...]
    removed: tuple[str, ...]
    kept: tuple[str, ...]


def write_kit(folder: Path, kit: Mapping[str, str], *, is_forced: bool = False) -> Written:
    """Writes a kit; what a person has changed stays, unless forced.

    A file that a person has changed and that the kit has as it was last written is theirs, and is
    not told of.

    Raises:
        KitRecordError: The folder holds a record that cannot be read.
        OSError: A file cannot be written.
    """
    before = _recorded(folder / RECORD)
    outcomes: dict[str, list[str]] = {"written": [], "unchanged": [], "removed": [], "kept": []}
    after = dict[str, str]()
    for path, text in kit.items():
        outcome = _outcome(folder / path, text, before.get(path), is_forced=is_forced)
        outcomes[outcome].append(path)
        if outcome == "written":
            _write(folder / path, text)
        # Of a file that was kept the old hash stays: it is told of each time, until it is merged.
        after[path] = _hash(text) if outcome != "kept" else before.get(path, "")
    for path in sorted(before.keys() - kit.keys()):
        outcome = _removal(folder / path, before[path], is_forced=is_forced)
        outcomes[outcome].append(path)
        if outcome == "kept":
            after[path] = before[path]
    write_atomically(folder / RECORD, canonical_json({"version": _VERSION, "files": after}))
    return Written(**{name: tuple(paths) for name, paths in outcomes.items()})


def _outcome(path: Path, text: str, written: str | None, *, is_forced: bool) -> str:
    if not path.exists():
        return "written"
    found = _hash(path.read_text(encoding="utf-8"))
    if found == _hash(text):
        return "unchanged"
    if is_forced or found == written:
        return "written"
    return "unchanged" if written == _hash(text) else "kept"


def _removal(path: Path, written: str, *, is_forced: bool) -> str:
    if path.exists():
        if not is_forced and _hash(path.read_text(encoding="utf-8")) != written:
            return "kept"
        path.unlink()
    return "removed"


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, text)
    if path.suffix == EXECUTABLE:
        path.chmod(_EXECUTABLE_MODE)


def _recorded(path: Path) -> dict[str, str]:
    if not path.exists():
        return {}
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
        files = record["files"]
        if record["version"] == _VERSION and all(map(_is_inside, files)):
            return {str(name): str(digest) for name, digest in files.items()}
    except (ValueError, KeyError, TypeError, AttributeError):
        pass
    raise KitRecordError(
        f"{path} is no record of a kit.",
        "Remove it, and render with --force if files were changed.",
    )


def _is_inside(name: str) -> bool:
    return not Path(name).is_absolute() and ".." not in Path(name).parts


def _hash(text: str) -> str:
    return sha256(text.encode()).hexdigest()
