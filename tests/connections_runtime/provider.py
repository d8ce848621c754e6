"""A provider that behaves as badly as wanted: a raw TLS server, its behaviour chosen by the path.

What it sends is written byte for byte, because no HTTP library can be made to send most of it.
"""

from __future__ import annotations

import gzip
import json
import os
import socket
import ssl
import threading
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from urllib.parse import parse_qs

ACCESS = "access-token-of-the-provider"
REFRESH = "refresh-token-of-the-provider"
PATIENCE = 30.0  # seconds until a condition that never comes is a failure

type Headers = Iterable[tuple[str, str]]
type Scenario = Callable[[Conversation], None]


def granted(**changes: object) -> dict[str, object]:
    """Gives the fields of a good answer, with changes; a field of None is left as null."""
    return {
        "access_token": ACCESS,
        "refresh_token": REFRESH,
        "token_type": "Bearer",
        "expires_in": 3600,
        "scope": "read write",
    } | changes


def response(
    body: bytes | str | Mapping[str, object],
    *,
    status: str = "200 OK",
    media_type: str = "application/json",
    headers: Headers = (),
) -> bytes:
    """Writes a whole and correct response."""
    if isinstance(body, Mapping):
        body = json.dumps(body)
    if isinstance(body, str):
        body = body.encode()
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}"]
    if media_type:
        lines.append(f"Content-Type: {media_type}")
    lines += [f"{name}: {value}" for name, value in headers]
    return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + body


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """Is what the provider was sent."""

    connection: int
    path: str
    headers: Mapping[str, str]
    body: str

    @property
    def form(self) -> dict[str, str]:
        """The fields of a form body."""
        return {k: v[0] for k, v in parse_qs(self.body, keep_blank_values=True).items()}


@dataclass(slots=True, kw_only=True)
class Conversation:
    """Is one request and the way to answer it."""

    socket: ssl.SSLSocket
    request: Request
    provider: Provider
    is_open: bool = True

    def send(self, *parts: bytes) -> None:
        """Sends bytes as they are."""
        for part in parts:
            self.socket.sendall(part)

    def close(self) -> None:
        """Ends the connection once the scenario returns."""
        self.is_open = False

    def wait_for_the_end(self) -> None:
        """Says nothing until the other side hangs up or the test ends."""
        self.close()
        self.socket.settimeout(0.05)
        while not self.provider.has_ended.is_set():
            try:
                if not self.socket.recv(1):
                    break
            except TimeoutError:
                continue
            except OSError:
                break
        self.provider.note_hung_up()


@dataclass(slots=True, kw_only=True)
class Provider:
    """Is a running server.

    Attributes:
        port: Where it listens.
        host: The name in its addresses.
        requests: What it was sent, in order.
        completed: How many answers it sent whole.
        hung_up: How many callers hung up while they waited.
        gate: What answers of `gated` wait for.
    """

    port: int = 0
    host: str = "localhost"
    requests: list[Request] = field(default_factory=list)
    completed: int = 0
    hung_up: int = 0
    gate: threading.Event = field(default_factory=threading.Event)
    has_ended: threading.Event = field(default_factory=threading.Event)
    scenarios: dict[str, Scenario] = field(default_factory=dict)
    _changed: threading.Condition = field(default_factory=threading.Condition)
    _connections: int = 0

    def url(self, scenario: str) -> str:
        """Gives the token address of a scenario."""
        return f"https://{self.host}:{self.port}/{scenario}"

    def replies(self, *answers: bytes) -> str:
        """Gives the token address that answers with these bytes, the last of them for ever."""
        left = list(answers)
        lock = threading.Lock()

        def scenario(conversation: Conversation) -> None:
            with lock:
                answer = left.pop(0) if len(left) > 1 else left[0]
            conversation.send(answer)

        return self.acts(scenario)

    def acts(self, scenario: Scenario) -> str:
        """Gives the token address at which that happens."""
        name = f"own-{len(self.scenarios)}"
        self.scenarios[name] = scenario
        return self.url(name)

    def wait_until(self, is_so: Callable[[], bool]) -> None:
        """Waits for a condition about what the provider has seen."""
        with self._changed:
            assert self._changed.wait_for(is_so, PATIENCE), "it never came to that"

    def wait_for_requests(self, number: int) -> None:
        """Waits until so many requests have come in."""
        self.wait_until(lambda: len(self.requests) >= number)

    def note_hung_up(self) -> None:
        """Counts a caller that hung up."""
        with self._changed:
            self.hung_up += 1
            self._changed.notify_all()

    def serve(self, raw: socket.socket, context: ssl.SSLContext) -> None:
        """Answers what comes over one connection."""
        with self._changed:
            self._connections += 1
            number = self._connections
        try:
            raw.settimeout(PATIENCE)
            with context.wrap_socket(raw, server_side=True) as connection:
                while self._answer(connection, number):
                    pass
        except OSError:
            pass  # the other side refused the certificate or hung up: what many tests want
        finally:
            raw.close()

    def _answer(self, connection: ssl.SSLSocket, number: int) -> bool:
        request = _read_request(connection, number)
        if request is None:
            return False
        with self._changed:
            self.requests.append(request)
            self._changed.notify_all()
        conversation = Conversation(socket=connection, request=request, provider=self)
        name = request.path.lstrip("/").partition("?")[0]
        (self.scenarios.get(name) or SCENARIOS[name])(conversation)
        with self._changed:
            self.completed += 1
            self._changed.notify_all()
        return conversation.is_open


@contextmanager
def running_provider(
    context: ssl.SSLContext, *, host: str = "localhost", address: str = "127.0.0.1"
) -> Iterator[Provider]:
    """Runs a provider until the block ends."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.create_server((address, 0), family=family, backlog=256) as listener:
        provider = Provider(port=listener.getsockname()[1], host=host)
        accepting = threading.Thread(target=_accept, args=(listener, provider, context))
        accepting.start()
        try:
            yield provider
        finally:
            provider.has_ended.set()
            provider.gate.set()
            listener.shutdown(socket.SHUT_RDWR)
            accepting.join(PATIENCE)


def _accept(listener: socket.socket, provider: Provider, context: ssl.SSLContext) -> None:
    with suppress(OSError):  # the listener is closed: the end
        while True:
            raw, _ = listener.accept()
            threading.Thread(target=provider.serve, args=(raw, context), daemon=True).start()


def _read_request(connection: ssl.SSLSocket, number: int) -> Request | None:
    received = b""
    while b"\r\n\r\n" not in received:
        part = connection.recv(65536)
        if not part:
            return None
        received += part
    head, _, body = received.partition(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").split("\r\n")
    pairs = (line.partition(":") for line in lines)
    headers = {name.lower(): value.strip() for name, _, value in pairs}
    while len(body) < int(headers.get("content-length", "0")):
        body += connection.recv(65536)
    return Request(connection=number, path=first.split(" ")[1], headers=headers, body=body.decode())


# --- What it can do ----------------------------------------------------------------------------

SCENARIOS: dict[str, Scenario] = {}
GOOD = response(granted())
_GOOD_BODY = json.dumps(granted()).encode()
_ENDLESS_SECONDS = 10.0  # long enough to count as such, and an end for a test that fails
_BOMB_BYTES = 64 * 1024 * 1024


def _named(scenario: Scenario) -> Scenario:
    SCENARIOS[scenario.__name__] = scenario
    return scenario


def _sends(name: str, *parts: bytes, and_closes: bool = True) -> None:
    def scenario(conversation: Conversation) -> None:
        conversation.send(*parts)
        if and_closes:
            conversation.close()

    SCENARIOS[name] = scenario


def _chunked(body: bytes) -> bytes:
    return (
        b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
        + body
    )


def _coded(coding: str, body: bytes) -> bytes:
    return response(body, headers=[("Content-Encoding", coding)])


def _bare_deflate(body: bytes) -> bytes:
    stream = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    return stream.compress(body) + stream.flush()


@_named
def gated(conversation: Conversation) -> None:
    """Answers well once the test opens the gate."""
    conversation.provider.gate.wait(PATIENCE)
    conversation.send(GOOD)


@_named
def gated_refusal(conversation: Conversation) -> None:
    """Refuses the grant once the test opens the gate."""
    conversation.provider.gate.wait(PATIENCE)
    conversation.send(response({"error": "invalid_grant"}, status="400 Bad Request"))


@_named
def hang(conversation: Conversation) -> None:
    """Never answers."""
    conversation.wait_for_the_end()


@_named
def hang_after_headers(conversation: Conversation) -> None:
    """Announces a body that never comes."""
    conversation.send(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n")
    conversation.wait_for_the_end()


@_named
def slow_drip(conversation: Conversation) -> None:
    """Sends a byte now and then, each in time for a limit on single reads."""
    conversation.send(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")
    _drip(conversation, b" ")


@_named
def slow_headers(conversation: Conversation) -> None:
    """Sends a byte of a header now and then."""
    conversation.send(b"HTTP/1.1 200 OK\r\nX-Slow: ")
    _drip(conversation, b"a")


@_named
def endless_interim(conversation: Conversation) -> None:
    """Says for ever that it goes on."""
    _drip(conversation, b"HTTP/1.1 100 Continue\r\n\r\n")


def _drip(conversation: Conversation, part: bytes) -> None:
    conversation.close()
    ends = time.monotonic() + _ENDLESS_SECONDS
    with suppress(OSError):
        while not conversation.provider.has_ended.wait(0.02) and time.monotonic() < ends:
            conversation.send(part)
    conversation.provider.note_hung_up()


@_named
def endless_body(conversation: Conversation) -> None:
    """Sends spaces as fast as it can."""
    conversation.send(b"HTTP/1.1 200 OK\r\n\r\n")
    _pour(conversation, b" " * 65536)


@_named
def endless_chunks(conversation: Conversation) -> None:
    """Sends chunks as fast as it can."""
    conversation.send(_chunked(b""))
    _pour(conversation, b"10000\r\n" + b" " * 65536 + b"\r\n")


@_named
def endless_headers(conversation: Conversation) -> None:
    """Sends headers as fast as it can."""
    conversation.send(b"HTTP/1.1 200 OK\r\n")
    _pour(conversation, b"X-Filler: " + b"a" * 1000 + b"\r\n")


def _pour(conversation: Conversation, part: bytes) -> None:
    conversation.close()
    ends = time.monotonic() + _ENDLESS_SECONDS
    with suppress(OSError):
        while not conversation.provider.has_ended.is_set() and time.monotonic() < ends:
            conversation.send(part)
    conversation.provider.note_hung_up()


@_named
def broken_tls(conversation: Conversation) -> None:
    """Sends bytes that are no TLS, in the middle of a TLS connection."""
    conversation.send(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n")
    os.write(
        conversation.socket.fileno(), b"\x17\x03\x03\x00\x20" + b"no record of this key, 32 byte.."
    )
    conversation.wait_for_the_end()


@_named
def reset(conversation: Conversation) -> None:
    """Resets the connection where others would close it."""
    linger = b"\x01\x00\x00\x00\x00\x00\x00\x00"  # on, 0 seconds
    conversation.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
    conversation.close()


_sends("good", GOOD, and_closes=False)
_sends("drop_before_headers", b"")
_sends("drop_in_headers", b"HTTP/1.1 200 OK\r\nContent-Type: appl")
_sends("drop_after_headers", b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n")
_sends("truncated", GOOD[:-10])
_sends("garbage", b"\x00\xff\xfe garbage \r\n\r\n\r\n")
_sends("other_protocol", b"220 mail.example ESMTP\r\n")
_sends("http2_preface", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
_sends("no_http_version", b"200 OK\r\n\r\n" + _GOOD_BODY)
_sends("status_of_two_digits", b"HTTP/1.1 20 OK\r\n\r\n" + _GOOD_BODY)
_sends("status_of_words", b"HTTP/1.1 OK 200\r\n\r\n" + _GOOD_BODY)
_sends("switched_protocols", b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n" + _GOOD_BODY)
_sends("null_in_header", b"HTTP/1.1 200 OK\r\nX-A: a\x00b\r\n\r\n" + _GOOD_BODY)
_sends("header_without_name", b"HTTP/1.1 200 OK\r\n: a\r\n\r\n" + _GOOD_BODY)
_sends("two_lengths", b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabcd")
_sends("negative_length", b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n" + _GOOD_BODY)
_sends("length_of_words", b"HTTP/1.1 200 OK\r\nContent-Length: many\r\n\r\n" + _GOOD_BODY)
_sends("no_length", b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n" + _GOOD_BODY)
_sends("no_reason", b"HTTP/1.1 200\r\nContent-Length: %d\r\n\r\n" % len(_GOOD_BODY) + _GOOD_BODY)
_sends("no_media_type", response(granted(), media_type=""))
_sends("header_flood", b"HTTP/1.1 200 OK\r\n" + b"X-A: b\r\n" * 50_000 + b"\r\n" + _GOOD_BODY)
_sends("long_header", response(granted(), headers=[("X-Long", "a" * 40_000)]))
_sends("huge_body", response(b" " * 2_000_000 + _GOOD_BODY))
_sends("body_over_cap", response(_GOOD_BODY + b" " * (256 * 1024 - len(_GOOD_BODY) + 1)))
_sends("body_at_cap", response(_GOOD_BODY + b" " * (256 * 1024 - len(_GOOD_BODY))))
_sends("empty", response(b""))
_sends("no_content", b"HTTP/1.1 204 No Content\r\n\r\n")
_sends("chunked_well", _chunked(b"%x\r\n%s\r\n0\r\n\r\n" % (len(_GOOD_BODY), _GOOD_BODY)))
_sends("chunked_by_byte", _chunked(b"".join(b"1\r\n%c\r\n" % b for b in _GOOD_BODY) + b"0\r\n\r\n"))
_sends(
    "chunked_extension",
    _chunked(b"%x;a=b\r\n%s\r\n0\r\nX-End: 1\r\n\r\n" % (len(_GOOD_BODY), _GOOD_BODY)),
)
_sends("chunked_bad_size", _chunked(b"zz\r\n" + _GOOD_BODY))
_sends("chunked_huge_size", _chunked(b"f" * 40 + b"\r\n" + _GOOD_BODY))
_sends("chunked_negative_size", _chunked(b"-1\r\n" + _GOOD_BODY))
_sends("chunked_truncated", _chunked(b"%x\r\n%s\r\n" % (len(_GOOD_BODY), _GOOD_BODY)))
_sends("gzip_labelled", _coded("gzip", gzip.compress(_GOOD_BODY)))
_sends("gzip_old_name", _coded("x-gzip", gzip.compress(_GOOD_BODY)))
_sends("gzip_unlabelled", response(gzip.compress(_GOOD_BODY)))
_sends("gzip_label_on_plain", _coded("gzip", _GOOD_BODY))
_sends("gzip_truncated", _coded("gzip", gzip.compress(_GOOD_BODY)[:-9]))
_sends("gzip_without_checksum", _coded("gzip", gzip.compress(_GOOD_BODY)[:-8]))
_sends("gzip_bomb", _coded("gzip", gzip.compress(b" " * _BOMB_BYTES)))
_sends("gzip_twice", _coded("gzip, gzip", gzip.compress(gzip.compress(_GOOD_BODY))))
_sends("deflate", _coded("deflate", zlib.compress(_GOOD_BODY)))
_sends("deflate_bare", _coded("deflate", _bare_deflate(_GOOD_BODY)))
_sends("deflate_bomb", _coded("deflate", zlib.compress(b" " * _BOMB_BYTES)))
_sends("brotli", _coded("br", b"\x0b\x02\x80hello\x03"))
_sends("zstandard", _coded("zstd", b"\x28\xb5\x2f\xfd\x04\x00"))
_sends("second_response", GOOD, response(granted(access_token="smuggled")), and_closes=False)
_sends("page_200", response("<html>Sign in</html>", media_type="text/html"))
_sends("page_403", response("<html>Blocked</html>", status="403 Forbidden", media_type="text/html"))
_sends("page_404", response("<html>Gone</html>", status="404 Not Found", media_type="text/html"))
_sends(
    "page_503",
    response("<html>Later</html>", status="503 Service Unavailable", media_type="text/html"),
)
_sends(
    "sets_cookie",
    response(granted(), headers=[("Set-Cookie", "session=of-another; Path=/")]),
    and_closes=False,
)
