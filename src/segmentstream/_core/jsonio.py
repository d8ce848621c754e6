"""JSON files whose bytes depend on their content alone; imports the standard library only."""

from __future__ import annotations

import json
import os
from pathlib import Path
from secrets import token_hex


def canonical_json(document: object) -> str:
    """Writes plain values as JSON in bytes that depend on nothing else: sorted keys, ASCII.

    Raises:
        ValueError: The document holds NaN or an infinity, which JSON does not have.
    """
    return json.dumps(document, indent=2, sort_keys=True, allow_nan=False) + "\n"


def write_atomically(path: Path, text: str) -> None:
    """Writes a file whole or not at all; readers see the old content or the new.

    Raises:
        OSError: The file cannot be written; what was there before is still there.
    """
    draft = path.with_name(f".{path.name}.{token_hex(4)}")
    try:
        with draft.open("x", encoding="utf-8", newline="\n") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    except BaseException:  # an interrupt too: no draft stays behind
        draft.unlink(missing_ok=True)
        raise
