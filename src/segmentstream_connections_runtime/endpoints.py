"""The addresses of the service: they read a request, call the service and write an answer.

Imports Starlette, `service` and the errors; `schemas`, and pydantic with it, on first use, so that
the service starts without them.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from segmentstream_connections_runtime.durable import DurableConnections, Status
from segmentstream_connections_runtime.errors import Code, ServiceError
from segmentstream_connections_runtime.freshness import Want
from segmentstream_connections_runtime.oauth import Granted
from segmentstream_connections_runtime.service import ConnectionService
from segmentstream_connections_runtime.settings import ServiceSettings

if TYPE_CHECKING:
    from pydantic import BaseModel

    from segmentstream_connections_runtime.schemas import CredentialAnswer, TokenSetAnswer

REQUEST_BYTES = 64 * 1024
_ROOT = "/internal/v1"
_PREFIX = f"{_ROOT}/connections/{{key}}"
NO_STORE = (
    "The service keeps no credentials: SEGMENTSTREAM_CREDENTIAL_STORE is not set, and its own "
    "files do not last."
)


def routes() -> list[Route]:
    """Lists the addresses."""
    return [
        Route(f"{_PREFIX}/authorization/start", start, methods=["POST"]),
        Route(f"{_PREFIX}/token/exchange", exchange, methods=["POST"]),
        Route(f"{_PREFIX}/token/refresh", refresh, methods=["POST"]),
        Route(f"{_PREFIX}/access-token/resolve", resolve_access, methods=["POST"]),
        Route(f"{_PREFIX}/credential/start", start_credential, methods=["POST"]),
        Route(f"{_PREFIX}/credential/refresh", refresh_credential, methods=["POST"]),
        Route(f"{_PREFIX}/credential/disconnect", disconnect_credential, methods=["POST"]),
        Route(f"{_ROOT}/credential/complete", complete_credential, methods=["POST"]),
        Route(f"{_ROOT}/credentials", list_credentials, methods=["GET"]),
        Route(f"{_ROOT}/openapi.json", openapi_document, methods=["GET"]),
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
    _check_redirect(request, asked.redirect_uri)
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
    _check_redirect(request, asked.redirect_uri)
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


async def resolve_access(request: Request) -> Response:
    """Gives a token that can be used now; never the refresh token, nor the client's secret."""
    from segmentstream_connections_runtime.schemas import (  # noqa: PLC0415
        AccessAnswer,
        AccessRequest,
        read_json,
    )

    asked = read_json(AccessRequest, await _body(request))
    access = await _durable(request).access(
        request.path_params["key"],
        account=asked.account,
        want=Want(min_ttl_seconds=asked.min_ttl_seconds, rejected=asked.rejected_token_number),
    )
    left = None if access.expires_at is None else max(0, int(access.expires_at - time.time()))
    return _answer(
        AccessAnswer(
            access_token=access.access_token,
            token_type="Bearer",  # noqa: S106 - the type, no token
            expires_in=left,
            token_number=access.number,
            scopes=list(access.scopes),
            missing_scopes=list(access.missing_scopes),
            metadata=dict(access.metadata),
            base_url=access.base_url,
            header=access.header,
            scheme=access.scheme,
            refresh_statuses=list(access.refresh_statuses),
            persisted=access.is_persisted,
        )
    )


async def start_credential(request: Request) -> Response:
    """Begins an authorization whose state, PKCE and tokens are kept here."""
    from segmentstream_connections_runtime.schemas import (  # noqa: PLC0415
        CredentialStartAnswer,
        CredentialStartRequest,
        read_json,
    )

    asked = read_json(CredentialStartRequest, await _body(request))
    _check_redirect(request, asked.redirect_uri)
    started = await _durable(request).start(
        request.path_params["key"],
        account=asked.account,
        redirect_uri=asked.redirect_uri,
        variables=asked.variables,
    )
    return _answer(
        CredentialStartAnswer(
            authorization_url=started.url,
            binding=started.binding,
            expires_in=max(0, int(started.expires_at - time.time())),
        )
    )


async def complete_credential(request: Request) -> Response:
    """Completes the authorization that a callback belongs to, once however often it comes."""
    from segmentstream_connections_runtime.schemas import (  # noqa: PLC0415
        CredentialCompleteRequest,
        read_json,
    )

    asked = read_json(CredentialCompleteRequest, await _body(request))
    return _answer(_of(await _durable(request).complete(asked.callback, binding=asked.binding)))


async def refresh_credential(request: Request) -> Response:
    """Renews a credential now."""
    from segmentstream_connections_runtime.schemas import (  # noqa: PLC0415
        CredentialRequest,
        read_json,
    )

    asked = read_json(CredentialRequest, await _body(request))
    key = request.path_params["key"]
    return _answer(_of(await _durable(request).refresh(key, account=asked.account)))


async def disconnect_credential(request: Request) -> Response:
    """Ends a credential, here in any case and at the provider where that can be."""
    from segmentstream_connections_runtime.schemas import (  # noqa: PLC0415
        CredentialRequest,
        DisconnectAnswer,
        read_json,
    )

    asked = read_json(CredentialRequest, await _body(request))
    key = request.path_params["key"]
    revoked = await _durable(request).disconnect(key, account=asked.account)
    return _answer(DisconnectAnswer(revoked=revoked))


async def list_credentials(request: Request) -> Response:
    """Tells of all credentials what is no secret."""
    from segmentstream_connections_runtime.schemas import CredentialsAnswer  # noqa: PLC0415

    statuses = await _durable(request).statuses()
    return _answer(CredentialsAnswer(credentials=[_of(status) for status in statuses]))


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
    durable: DurableConnections | None = request.app.state.durable
    if durable is not None and request.app.state.checks_store:
        missing += await _missing_of(durable)
    status = 503 if missing else 200
    return JSONResponse({"status": "missing" if missing else "ok", "missing": missing}, status)


def _check_redirect(request: Request, uri: str) -> None:
    settings: ServiceSettings = request.app.state.settings
    if not settings.allows_redirect(uri):
        raise ServiceError(
            Code.INVALID_REQUEST, "Wrong: redirectUri. The service's settings do not list it."
        )


async def _missing_of(durable: DurableConnections) -> list[str]:
    try:
        await durable.custody.check()
    except ServiceError:
        return ["credential store"]
    return []


def _durable(request: Request) -> DurableConnections:
    durable: DurableConnections | None = request.app.state.durable
    if durable is None:
        raise ServiceError(Code.RUNTIME_UNAVAILABLE, NO_STORE)
    return durable


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


def _answer(message: BaseModel) -> Response:
    return Response(message.model_dump_json(by_alias=True), media_type="application/json")


def _of(status: Status) -> CredentialAnswer:
    from segmentstream_connections_runtime.schemas import CredentialAnswer  # noqa: PLC0415

    return CredentialAnswer(
        connection=status.connection,
        account=status.account,
        state=status.state,
        reason=status.reason,
        scopes=list(status.scopes),
        missing_scopes=list(status.missing_scopes),
        granted_at=status.granted_at,
        obtained_at=status.obtained_at,
        expires_at=status.expires_at,
        has_refresh_token=status.has_refresh_token,
        is_declared=status.is_declared,
        last_failure=status.last_failure,
        retry_at=status.retry_at,
        token_number=status.number,
        persisted=status.is_persisted,
        metadata=dict(status.metadata),
    )


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
