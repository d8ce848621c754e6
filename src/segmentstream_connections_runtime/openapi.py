"""The description of the HTTP interface, made from the schemas and the table of outcomes.

Imports `schemas` and the errors.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from segmentstream_connections_runtime.errors import OUTCOMES, Code
from segmentstream_connections_runtime.schemas import (
    ErrorAnswer,
    ExchangeRequest,
    RefreshRequest,
    StartAnswer,
    StartRequest,
    TokenSetAnswer,
)

VERSION = "1"
_REFERENCE = "#/components/schemas/{model}"
_OF_ANY = (
    Code.INVALID_REQUEST,
    Code.UNAUTHORIZED,
    Code.CONNECTION_NOT_FOUND,
    Code.PAYLOAD_TOO_LARGE,
    Code.UNSUPPORTED_MEDIA_TYPE,
    Code.RUNTIME_UNAVAILABLE,
    Code.INTERNAL_ERROR,
)
_OF_A_PROVIDER = (
    Code.PROVIDER_REJECTED,
    Code.REAUTHORIZATION_REQUIRED,
    Code.TOKEN_RESPONSE_INVALID,
    Code.CLIENT_REJECTED,
    Code.RATE_LIMITED,
    Code.PROVIDER_UNREADABLE,
    Code.PROVIDER_UNAVAILABLE,
)
# path under a connection -> (what it does, request, answer, the outcomes it can have)
OPERATIONS: Mapping[str, tuple[str, type[BaseModel], type[BaseModel], tuple[Code, ...]]] = {
    "authorization/start": (
        "Gives the address that a person is sent to.",
        StartRequest,
        StartAnswer,
        _OF_ANY,
    ),
    "token/exchange": (
        "Exchanges a code for tokens.",
        ExchangeRequest,
        TokenSetAnswer,
        _OF_ANY + _OF_A_PROVIDER,
    ),
    "token/refresh": (
        "Renews tokens; the old refresh token stays when no new one came.",
        RefreshRequest,
        TokenSetAnswer,
        _OF_ANY + _OF_A_PROVIDER,
    ),
}


def document() -> dict[str, Any]:
    """Gives the OpenAPI 3.1 document; anew each time, so nobody can change it for others."""
    models = {
        model for _, request, answer, _ in OPERATIONS.values() for model in (request, answer)
    } | {ErrorAnswer}
    _, schemas = models_json_schema(
        [(model, "validation") for model in sorted(models, key=lambda each: each.__name__)],
        ref_template=_REFERENCE,
    )
    return {
        "openapi": "3.1.0",
        "info": {"title": "SegmentStream connections", "version": VERSION},
        "paths": {
            f"/internal/v1/connections/{{key}}/{path}": {"post": _operation(path)}
            for path in OPERATIONS
        },
        "components": {
            "schemas": schemas["$defs"],
            "securitySchemes": {"bearer": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{}, {"bearer": []}],
    }


def _operation(path: str) -> dict[str, Any]:
    summary, request, answer, codes = OPERATIONS[path]
    by_status: dict[int, list[Code]] = {}
    for code in codes:
        by_status.setdefault(OUTCOMES[code].status, []).append(code)
    return {
        "summary": summary,
        "operationId": path.replace("/", "_"),
        "parameters": [
            {"name": "key", "in": "path", "required": True, "schema": {"type": "string"}}
        ],
        "requestBody": {"required": True, "content": _json(request)},
        "responses": {
            "200": {"description": summary, "content": _json(answer)},
            **{
                str(status): {"description": _told(of_status), "content": _json(ErrorAnswer)}
                for status, of_status in sorted(by_status.items())
            },
        },
    }


def _told(codes: list[Code]) -> str:
    return " ".join(f"`{code.value}`: {OUTCOMES[code].meaning}" for code in codes)


def _json(model: type[BaseModel]) -> dict[str, Any]:
    reference = _REFERENCE.format(model=model.__name__)
    return {"application/json": {"schema": {"$ref": reference}}}
