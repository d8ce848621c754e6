"""Google's own descriptions of its interfaces, as JSON Schema that refuses what they do not name."""

from __future__ import annotations

import functools
import json
import re
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import jsonschema
import pytest

_STRINGS = {"int64": r"-?[0-9]+", "google-duration": r"[0-9]+(\.[0-9]+)?s"}


def problems(interface: str, kind: str, document: object) -> list[str]:
    """Says where a document is not what an interface takes; such as `run.v1` and `Job`."""
    schemas = _description(interface)["schemas"]
    definitions = {name: _converted(schema) for name, schema in schemas.items()}
    schema = {"$ref": f"#/$defs/{kind}", "$defs": definitions}
    found = jsonschema.Draft202012Validator(schema).iter_errors(document)
    return [f"{'/'.join(map(str, each.absolute_path))}: {each.message}" for each in found]


def annotations_of(resource: str) -> set[str]:
    """Says which annotations Cloud Run takes on a resource, by its own list."""
    told = _description("run.v1")["schemas"]["ObjectMeta"]["properties"]["annotations"]
    listed = re.findall(r"\* `([^`]+)`: ([A-Za-z, ]+)", told["description"])
    assert len(listed) > 30
    return {name for name, of in listed if {resource, "All resources"} & set(of.split(", "))}


@functools.cache
def _description(interface: str) -> dict[str, Any]:
    package = find_spec("googleapiclient")
    if package is None or package.origin is None:
        pytest.skip("needs google-api-python-client, of the dependency group `test`")
    documents = Path(package.origin).parent / "discovery_cache" / "documents"
    text = (documents / f"{interface}.json").read_text(encoding="utf-8")
    description: dict[str, Any] = json.loads(text)
    return description


def _converted(schema: dict[str, Any]) -> dict[str, Any]:
    if "$ref" in schema:
        return {"$ref": f"#/$defs/{schema['$ref']}"}
    converted: dict[str, Any] = {"type": schema["type"]}
    if schema["type"] == "string" and (pattern := _STRINGS.get(schema.get("format", ""))):
        # A number of 64 bits is a string in JSON, and either in YAML.
        types = ["string", "integer"] if schema["format"] == "int64" else ["string"]
        converted |= {"type": types, "pattern": f"^{pattern}$"}
    if "enum" in schema:
        converted["enum"] = schema["enum"]
    if "items" in schema:
        converted["items"] = _converted(schema["items"])
    if schema["type"] == "object":
        others = schema.get("additionalProperties")
        converted["additionalProperties"] = _converted(others) if others else False
        properties = schema.get("properties", {})
        converted["properties"] = {
            # What the server tells is no part of what it is given.
            name: False if each.get("readOnly") else _converted(each)
            for name, each in properties.items()
        }
    return converted
