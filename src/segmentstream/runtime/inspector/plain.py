"""Metadata as JSON has it; imports Dagster."""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import date, timedelta
from decimal import Decimal
from pathlib import Path
from uuid import UUID

from dagster import AssetKey, MetadataValue, PathMetadataValue, TableSchema
from pydantic import JsonValue

# Whose text says the value, and nothing of the machine or of a secret.
_TELLING = (Decimal, UUID, date, float, timedelta)


def plain(value: object, folder: Path) -> JsonValue:  # noqa: C901 - a table of types
    """Gives a metadata value as JSON has it; what JSON has no form for becomes a marked text.

    Args:
        value: As the user wrote it, or as Dagster wraps it.
        folder: The workspace, so that no path of the machine is written.
    """
    match value:
        case None | bool() | str() | int():
            return value
        case float() if math.isfinite(value):
            return value
        case TableSchema():
            return [
                {"name": each.name, "type": each.type, "description": each.description}
                for each in value.columns
            ]
        case AssetKey():
            return list(value.path)
        case Path():
            return _path(value, folder)
        case PathMetadataValue():
            return _path(Path(value.path or ""), folder)
        case MetadataValue():
            return plain(value.value, folder)
        # After Dagster's own values, many of which are tuples too.
        case Mapping():
            return {str(name): plain(each, folder) for name, each in value.items()}
        case list() | tuple():
            return [plain(each, folder) for each in value]
        case set() | frozenset():
            return sorted((plain(each, folder) for each in value), key=repr)
        case _:
            return _marked(value)


def _path(path: Path, folder: Path) -> str:
    return (path.relative_to(folder) if path.is_relative_to(folder) else path).as_posix()


def _marked(value: object) -> str:
    kind = value if isinstance(value, type) else type(value)
    name = f"{kind.__module__}.{kind.__qualname__}"
    if isinstance(value, type):
        return f"<class {name}>"
    return f"<{name} {value}>" if isinstance(value, _TELLING) else f"<{name}>"
