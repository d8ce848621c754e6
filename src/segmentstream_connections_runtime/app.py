"""The application: routes, who may call, how errors are told, what is logged. Imports Starlette."""

from __future__ import annotations

import json
import logging
import secrets
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from segmentstream_connections_runtime.callers import Callers, callers_of
from segmentstream_connections_runtime.durable import DurableConnections
from segmentstream_connections_runtime.endpoints import routes
from segmentstream_connections_runtime.errors import Code, ServiceError
from segmentstream_connections_runtime.http import ProviderClient
from segmentstream_connections_runtime.service import ConnectionService
from segmentstream_connections_runtime.settings import ServiceSettings

_log = logging.getLogger("segmentstream.connections")
_LOGGERS = ("segmentstream", "uvicorn")
_SECONDS_TO_STORE = 1.0  # what the store has not taken yet
_OPEN = frozenset({"/health", "/ready"})
_HEADERS = [
    (b"cache-control", b"no-store"),
    (b"x-content-type-options", b"nosniff"),
]
_CODES_OF_STATUS = {404: Code.NOT_FOUND, 405: Code.METHOD_NOT_ALLOWED}


def make_app(
    service: ConnectionService,
    provider: ProviderClient,
    settings: ServiceSettings,
    *,
    durable: DurableConnections | None = None,
    checks_store: bool = False,
) -> ASGIApp:
    """Composes the application.

    Args:
        service: What it does for those who keep tokens themselves.
        provider: The client for providers, which it closes at its end.
        settings: How it runs.
        durable: What it does for those who leave their tokens here, which it closes at its end;
            None where it keeps none.
        checks_store: Whether it is ready only while the store of credentials works.
    """

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        yield
        # The server has waited for the requests under way: their answers may hold the only copy
        # of a token.
        service.give_up()
        if durable is not None:
            await durable.close(seconds=_SECONDS_TO_STORE)
        await provider.close()

    app = Starlette(
        routes=routes(),
        lifespan=lifespan,
        exception_handlers={
            ServiceError: _service_error,
            HTTPException: _http_error,
            Exception: _own_fault,
        },
    )
    app.state.service = service
    app.state.settings = settings
    app.state.durable = durable
    app.state.checks_store = checks_store
    app.router.redirect_slashes = False  # it would write the caller's Host header into an address
    return _Edge(app, callers_of(settings, provider))


class _Edge:
    """Checks the caller, adds the headers of every answer and logs each request once."""

    def __init__(self, app: ASGIApp, callers: Callers) -> None:
        self._app = app
        self._callers = callers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started = time.monotonic()
        request_id = secrets.token_hex(8)
        scope.setdefault("state", {})["request_id"] = request_id
        status = 500
        is_answered = False

        async def send_on(message: Message) -> None:
            nonlocal status, is_answered
            if message["type"] == "http.response.start":
                status = message["status"]
                is_answered = True
                extra = [*_HEADERS, (b"x-request-id", request_id.encode())]
                message["headers"] = [*message["headers"], *extra]
            await send(message)

        try:
            if scope["path"] not in _OPEN:
                await self._callers.check(
                    {
                        name.decode("latin-1"): value.decode("latin-1")
                        for name, value in scope["headers"]
                    }
                )
            await self._app(scope, receive, send_on)
        except ServiceError as error:
            # Only the check raises it here: the application answers its own.
            scope["state"]["told"] = {"code": error.code.value, "detail": error.detail or None}
            await error_response(error, request_id)(scope, receive, send_on)
        except Exception:
            # Starlette raises again what `_own_fault` has answered; the server would end the
            # connection, which the caller is about to use again.
            if not is_answered:
                raise
        finally:
            told = {
                "request_id": request_id,
                "method": scope["method"],
                "path": scope["path"],  # without the query
                "status": status,
                "milliseconds": round((time.monotonic() - started) * 1000),
            }
            _log.info("request", extra={"fields": told | scope["state"].get("told", {})})


def error_response(error: ServiceError, request_id: str | None = None) -> Response:
    """Writes an outcome as an answer."""
    body: dict[str, object] = {"code": error.code.value, "message": str(error)}
    if request_id:
        body["id"] = request_id
    headers = {}
    if error.retry_after_seconds is not None:
        headers["Retry-After"] = str(error.retry_after_seconds)
    return JSONResponse({"error": body}, error.outcome.status, headers)


async def _service_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, ServiceError)  # noqa: S101 - registered for it
    request.scope["state"]["told"] = {
        "code": error.code.value,
        "detail": error.detail or None,
        "provider_status": error.provider_status,
        "provider_code": error.provider_code,
    }
    return error_response(error, request.scope["state"]["request_id"])


async def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)  # noqa: S101 - registered for it
    code = _CODES_OF_STATUS.get(error.status_code, Code.INVALID_REQUEST)
    request.scope["state"]["told"] = {"code": code.value}
    answer = error_response(ServiceError(code), request.scope["state"]["request_id"])
    answer.headers.update(error.headers or {})
    return answer


async def _own_fault(request: Request, error: Exception) -> Response:
    # The text of an error of ours can hold what a caller or a provider sent.
    request.scope["state"]["told"] = {
        "code": Code.INTERNAL_ERROR.value,
        "fault": type(error).__qualname__,
        "at": _where(error),
    }
    return error_response(ServiceError(Code.INTERNAL_ERROR), request.scope["state"]["request_id"])


def _where(error: Exception) -> str:
    frame = error.__traceback__
    while frame is not None and frame.tb_next is not None:
        frame = frame.tb_next
    return "" if frame is None else f"{frame.tb_frame.f_code.co_qualname}:{frame.tb_lineno}"


class JsonFormatter(logging.Formatter):
    """Writes a record as one line of JSON, in the field names of Google Cloud Logging."""

    def format(self, record: logging.LogRecord) -> str:
        """Formats a record; of an exception only its class is written."""
        # What others write can hold the repr of an exception, as asyncio's messages do.
        is_ours = record.name.partition(".")[0] in _LOGGERS
        message = record.getMessage() if is_ours else f"a message of {record.name}"
        line: dict[str, object] = {"severity": record.levelname, "message": message}
        line |= {k: v for k, v in getattr(record, "fields", {}).items() if v is not None}
        if record.exc_info and record.exc_info[0]:
            line["fault"] = record.exc_info[0].__qualname__
        return json.dumps(line)


def log_to_standard_error() -> None:
    """Sends every log to standard error; uvicorn's is without its access lines."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter())
    logging.getLogger().handlers = [handler]
    for name in _LOGGERS:
        logger = logging.getLogger(name)
        logger.handlers = [handler]
        logger.setLevel(logging.INFO)
        logger.propagate = False
