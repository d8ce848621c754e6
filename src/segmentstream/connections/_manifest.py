"""Declarations as one JSON document, for whoever runs logins without running Python.

Imports the declaration and the references. References to secrets stay references.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import fields

from segmentstream.connections._oauth2 import OAuth2Connection
from segmentstream.connections._secrets import SecretReference

MANIFEST_VERSION = 1  # raised when a field changes its meaning or goes; a new field is no change


def manifest_of(connections: Iterable[OAuth2Connection]) -> str:
    """Writes declarations as versioned JSON: every field of each, in camelCase, defaults included.

    A reference to a secret is written as `{"secret": name}`.
    """
    document = {
        "version": MANIFEST_VERSION,
        "connections": [
            {
                _camel(field.name): _plain(getattr(connection, field.name))
                for field in fields(connection)
            }
            for connection in connections
        ],
    }
    return json.dumps(document, indent=2, sort_keys=True) + "\n"


def _camel(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(word.capitalize() for word in others)


def _plain(value: object) -> object:
    match value:
        case SecretReference(name=name):
            return {"secret": name}
        case Mapping():
            return {name: _plain(content) for name, content in value.items()}
        case tuple():
            return [_plain(item) for item in value]
        case _:
            return value
