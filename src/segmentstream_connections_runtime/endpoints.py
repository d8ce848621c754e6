"""The addresses of the service: they read a request, call the service and write an answer.

Imports Starlette, `service` and the errors; `schemas`, and pydantic with it, on first use, so that
the service starts without them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from segmentstream_connections_runtime.errors import Code, ServiceError
from segmentstream_connections_runtime.oauth import Granted
from segmentstream_connections_runtime.service import ConnectionService

if TYPE_CHECKING:
    from segmentstream_connections_runtime.schemas import StartAnswer, TokenSetAnswer

REQUEST_BYTES = 64 * 1024
_PREFIX = "/internal/v1/connections/{key}"


def routes() -> list[Route]:
    """Lists the addresses."""
    return [
        Route(f"{_PREFIX}/authorization/start", start, methods=["POST"]),
        Route(f"{_PREFIX}/token/exchange", exchange, methods=["POST"]),
        Route(f"{_PREFIX}/token/refresh", refresh, methods=["POST"]),
        Route("/internal/v1/openapi.json", openapi_document, methods=["GET"]),
        Route("/health", health, methods=["GET"]),
        Route("/ready", ready, methods=["GET"]),
    ]


async def start(request: Request) -> Response:
    """Gives the address that a person is sent to."""
    from segmentstream_connections_runtime.schemas import (  # noqa: PLC0415
        StartAnswer,
        StartRequest,
        read_json,
    )

    asked = read_json(StartRequest, await _body(request))
    url = _service(request).start(
        request.path_params["key"],
        redirect_uri=asked.redirect_uri,
        state=asked.state,
        code_challenge=asked.code_challenge,
        variables=asked.variables,
    )
    return _answer(StartAnswer(authorization_url=url))


async def exchange(request: Request) -> Response:
    """Exchanges a code for tokens."""
    from segmentstream_connections_runtime.schemas import (  # noqa: PLC0415
        ExchangeRequest,
        read_json,
    )

    asked = read_json(ExchangeRequest, await _body(request))
    granted = await _service(request).exchange(
        request.path_params["key"],
        code=asked.code,
        redirect_uri=asked.redirect_uri,
        verifier=asked.code_verifier,
        variables=asked.variables,
    )
    return _answer(_told(granted))


async def refresh(request: Request) -> Response:
    """Renews tokens."""
    from segmentstream_connections_runtime.schemas import (  # noqa: PLC0415
        RefreshRequest,
        read_json,
    )

    asked = read_json(RefreshRequest, await _body(request))
    granted = await _service(request).refresh(
        request.path_params["key"],
        refresh_token=asked.refresh_token,
        variables=asked.variables,
    )
    return _answer(_told(granted))


async def openapi_document(_: Request) -> Response:
    """Describes the interface; for callers who may call it."""
    from segmentstream_connections_runtime import openapi  # noqa: PLC0415 - read by few, and slow

    return JSONResponse(openapi.document())


async def health(_: Request) -> Response:
    """Says that the process is up; asks for nothing."""
    return JSONResponse({"status": "ok"})


async def ready(request: Request) -> Response:
    """Names what is missing, never a value."""
    missing = _service(request).missing()
    status = 503 if missing else 200
    return JSONResponse({"status": "missing" if missing else "ok", "missing": missing}, status)


def _service(request: Request) -> ConnectionService:
    service: ConnectionService = request.app.state.service
    return service


async def _body(request: Request) -> bytes:
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type != "application/json":
        raise ServiceError(Code.UNSUPPORTED_MEDIA_TYPE)
    body = bytearray()
    try:
        async for part in request.stream():
            body += part
            if len(body) > REQUEST_BYTES:
                raise ServiceError(Code.PAYLOAD_TOO_LARGE)
    except ClientDisconnect:
        raise ServiceError(Code.INVALID_REQUEST) from None
    return bytes(body)


def _answer(message: StartAnswer | TokenSetAnswer) -> Response:
    return Response(message.model_dump_json(by_alias=True), media_type="application/json")


def _told(granted: Granted) -> TokenSetAnswer:
    from segmentstream_connections_runtime.schemas import TokenSetAnswer  # noqa: PLC0415

    tokens = granted.tokens
    return TokenSetAnswer(
        access_token=tokens.access_token,
        refresh_token=tokens.refresh_token,
        token_type=tokens.token_type,
        expires_in=tokens.expires_in,
        scopes=list(granted.scopes),
        missing_scopes=list(granted.missing_scopes),
        metadata=dict(tokens.metadata),
    )
