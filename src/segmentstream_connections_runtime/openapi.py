"""The description of the HTTP interface, made from the schemas and the table of outcomes.

Imports `schemas` and the errors.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from segmentstream_connections_runtime.errors import OUTCOMES, Code
from segmentstream_connections_runtime.schemas import (
    AccessAnswer,
    AccessRequest,
    CredentialAnswer,
    CredentialCompleteRequest,
    CredentialRequest,
    CredentialsAnswer,
    CredentialStartAnswer,
    CredentialStartRequest,
    DisconnectAnswer,
    ErrorAnswer,
    ExchangeRequest,
    RefreshRequest,
    StartAnswer,
    StartRequest,
    TokenSetAnswer,
)

VERSION = "1"
_REFERENCE = "#/components/schemas/{model}"
_OF_GET = (Code.UNAUTHORIZED, Code.RUNTIME_UNAVAILABLE, Code.INTERNAL_ERROR)
_OF_BODY = (
    Code.INVALID_REQUEST,
    *_OF_GET,
    Code.PAYLOAD_TOO_LARGE,
    Code.UNSUPPORTED_MEDIA_TYPE,
)
_OF_ANY = (*_OF_BODY, Code.CONNECTION_NOT_FOUND)
_OF_REVOKING = (Code.PROVIDER_REJECTED, Code.PROVIDER_UNREADABLE, Code.PROVIDER_UNAVAILABLE)
_OF_EXCHANGING = (
    *_OF_REVOKING,
    Code.TOKEN_RESPONSE_INVALID,
    Code.CLIENT_REJECTED,
    Code.RATE_LIMITED,
)
_OF_A_PROVIDER = (*_OF_EXCHANGING, Code.REAUTHORIZATION_REQUIRED)
_OF_A_CREDENTIAL = (Code.CREDENTIAL_NOT_FOUND, Code.OUTCOME_UNKNOWN, Code.STORE_UNAVAILABLE)
_OF_A_STORE = (Code.STORE_UNAVAILABLE,)


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """Is an address with its method.

    Attributes:
        summary: What it does.
        request: What it is asked with; None for a GET.
        answer: What it answers.
        codes: The outcomes it can have.
    """

    summary: str
    request: type[BaseModel] | None
    answer: type[BaseModel]
    codes: tuple[Code, ...]


# By the path under /internal/v1.
OPERATIONS: Mapping[str, Operation] = {
    "connections/{key}/authorization/start": Operation(
        summary="Gives the address that a person is sent to.",
        request=StartRequest,
        answer=StartAnswer,
        codes=_OF_ANY,
    ),
    "connections/{key}/token/exchange": Operation(
        summary="Exchanges a code for tokens.",
        request=ExchangeRequest,
        answer=TokenSetAnswer,
        codes=_OF_ANY + _OF_A_PROVIDER,
    ),
    "connections/{key}/token/refresh": Operation(
        summary="Renews tokens; the old refresh token stays when no new one came.",
        request=RefreshRequest,
        answer=TokenSetAnswer,
        codes=_OF_ANY + _OF_A_PROVIDER,
    ),
    "connections/{key}/access-token/resolve": Operation(
        summary="Gives a token that can be used now, renewed where that is due.",
        request=AccessRequest,
        answer=AccessAnswer,
        codes=_OF_ANY + _OF_A_PROVIDER + _OF_A_CREDENTIAL,
    ),
    "connections/{key}/credential/start": Operation(
        summary="Begins an authorization whose tokens are kept here.",
        request=CredentialStartRequest,
        answer=CredentialStartAnswer,
        codes=_OF_ANY + _OF_A_STORE,
    ),
    "connections/{key}/credential/refresh": Operation(
        summary="Renews a credential now.",
        request=CredentialRequest,
        answer=CredentialAnswer,
        codes=_OF_ANY + _OF_A_PROVIDER + _OF_A_CREDENTIAL,
    ),
    "connections/{key}/credential/disconnect": Operation(
        summary="Ends a credential, at the provider too where that can be.",
        request=CredentialRequest,
        answer=DisconnectAnswer,
        codes=_OF_BODY + _OF_REVOKING + (Code.CREDENTIAL_NOT_FOUND, *_OF_A_STORE),
    ),
    "credential/complete": Operation(
        summary="Completes the authorization that a callback belongs to.",
        request=CredentialCompleteRequest,
        answer=CredentialAnswer,
        codes=_OF_ANY + _OF_EXCHANGING + (Code.AUTHORIZATION_NOT_FOUND, *_OF_A_STORE),
    ),
    "credentials": Operation(
        summary="Tells of all credentials what is no secret.",
        request=None,
        answer=CredentialsAnswer,
        codes=_OF_GET + _OF_A_STORE,
    ),
}


def document() -> dict[str, Any]:
    """Gives the OpenAPI 3.1 document; anew each time, so nobody can change it for others."""
    models = {
        model
        for operation in OPERATIONS.values()
        for model in (operation.request, operation.answer)
        if model is not None
    } | {ErrorAnswer}
    _, schemas = models_json_schema(
        [(model, "validation") for model in sorted(models, key=lambda each: each.__name__)],
        ref_template=_REFERENCE,
    )
    return {
        "openapi": "3.1.0",
        "info": {"title": "SegmentStream connections", "version": VERSION},
        "paths": {
            f"/internal/v1/{path}": {
                "get" if operation.request is None else "post": _described(path, operation)
            }
            for path, operation in OPERATIONS.items()
        },
        "components": {
            "schemas": schemas["$defs"],
            "securitySchemes": {"bearer": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{}, {"bearer": []}],
    }


def _described(path: str, operation: Operation) -> dict[str, Any]:
    by_status: dict[int, list[Code]] = {}
    for code in operation.codes:
        by_status.setdefault(OUTCOMES[code].status, []).append(code)
    described: dict[str, Any] = {
        "summary": operation.summary,
        "operationId": path.removeprefix("connections/{key}/").replace("/", "_"),
        "responses": {
            "200": {"description": operation.summary, "content": _json(operation.answer)},
            **{
                str(status): {"description": _told(of_status), "content": _json(ErrorAnswer)}
                for status, of_status in sorted(by_status.items())
            },
        },
    }
    if "{key}" in path:
        key = {"name": "key", "in": "path", "required": True, "schema": {"type": "string"}}
        described["parameters"] = [key]
    if operation.request is not None:
        described["requestBody"] = {"required": True, "content": _json(operation.request)}
    return described


def _told(codes: list[Code]) -> str:
    return " ".join(f"`{code.value}`: {OUTCOMES[code].meaning}" for code in codes)


def _json(model: type[BaseModel]) -> dict[str, Any]:
    reference = _REFERENCE.format(model=model.__name__)
    return {"application/json": {"schema": {"$ref": reference}}}
