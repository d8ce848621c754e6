"""The socket of the fake provider: one thread for each connection, on loopback only."""

from __future__ import annotations

import socket
import sys
import threading
import traceback
from collections.abc import Callable
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from segmentstream.testing._exchanges import ProviderAnswer, ProviderRequest

_BODY_BYTES = 16 * 1024 * 1024
_IDLE_SECONDS = 60

type Respond = Callable[[ProviderRequest], ProviderAnswer]


class LoopbackServer(ThreadingHTTPServer):
    """Listens on 127.0.0.1 from the start, and answers once it has been started."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, port: int, respond: Respond) -> None:
        super().__init__(("127.0.0.1", port), _Handler)
        self.respond = respond
        self._open: set[socket.socket] = set()
        self._thread = threading.Thread(
            target=self.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True
        )

    def start(self) -> None:
        """Answers, on a thread of its own."""
        self._thread.start()

    def stop(self) -> None:
        """Stops answering, and ends the connections that clients hold open."""
        self.shutdown()
        self._thread.join()
        self.server_close()
        for connection in list(self._open):
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    # The interface of socketserver, which types no request.
    def process_request(self, request: Any, client_address: Any) -> None:
        """Notes who is connected."""
        self._open.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        """Forgets who was connected."""
        self._open.discard(request)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Says nothing about a client that left in the middle of an answer."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    server: LoopbackServer
    protocol_version = "HTTP/1.1"
    server_version = "fake-provider"
    sys_version = ""
    timeout = _IDLE_SECONDS
    # An answer leaves in one piece; in two, each would wait for the other's acknowledgement.
    wbufsize = -1
    disable_nagle_algorithm = True

    def answer(self) -> None:
        """Answers whatever the method is."""
        request = self._read()
        if request is None:
            self.close_connection = True
            answer = ProviderAnswer(status=413, document={"error": "too_large"})
        else:
            answer = self._respond(request)
        body = answer.body
        self.send_response(answer.status)
        self.send_header("Content-Type", answer.media_type)
        self.send_header("Content-Length", str(len(body)))
        for name, value in answer.headers.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    do_GET = do_HEAD = do_POST = do_PUT = do_PATCH = do_DELETE = do_OPTIONS = answer  # noqa: N815

    def log_message(self, format: str, *arguments: Any) -> None:  # noqa: A002
        """Writes no log: the address of a callback holds a code."""

    def _respond(self, request: ProviderRequest) -> ProviderAnswer:
        try:
            return self.server.respond(request)
        except Exception:  # noqa: BLE001 - a function of the user's, whose fault they must see
            traceback.print_exc()
            return ProviderAnswer(status=500, document={"error": "handler_failed"})

    def _read(self) -> ProviderRequest | None:
        parts = urlsplit(self.path)
        body = self._body()
        if body is None:
            return None
        return ProviderRequest(
            method=self.command,
            path=parts.path,
            query=dict(parse_qsl(parts.query, keep_blank_values=True)),
            headers={name.lower(): value for name, value in self.headers.items()},
            body=body,
        )

    def _body(self) -> bytes | None:
        if self.headers.get("Transfer-Encoding", "").lower() == "chunked":
            return self._chunks()
        length = self.headers.get("Content-Length", "0")
        if not length.isdecimal() or int(length) > _BODY_BYTES:
            return None
        return self.rfile.read(int(length))

    def _chunks(self) -> bytes | None:
        body = bytearray()
        while size := int(self.rfile.readline(64).partition(b";")[0], 16):
            body += self.rfile.read(size)
            self.rfile.readline(64)
            if len(body) > _BODY_BYTES:
                return None
        while self.rfile.readline(1024).strip():
            pass
        return bytes(body)
