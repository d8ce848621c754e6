from __future__ import annotations

import contextlib
import hashlib
import http.client
import json
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from connections_runtime.authority import Authority
from connections_runtime.provider import PATIENCE, running_provider
from connections_runtime.running import (
    CHALLENGE,
    EXCHANGE,
    REDIRECT,
    REFRESH,
    START,
    VARIABLES,
    VERIFIER,
    LocalService,
    ServiceProcess,
    address,
    command,
    connection,
    error_code,
    kept_environment,
    running_service,
)
from segmentstream_connections_runtime.errors import OUTCOMES
from segmentstream_connections_runtime.settings import ServiceSettings, SettingsError

BODIES = {
    "authorization/start": START,
    "token/exchange": EXCHANGE,
    "token/refresh": REFRESH,
}
ACTIONS = list(BODIES)
TOKEN = "token-of-the-caller"
DIGEST = hashlib.sha256(TOKEN.encode()).hexdigest()


@pytest.fixture
def service() -> LocalService:
    """A service whose provider cannot be reached, for what ends before it is asked."""
    return LocalService(connection("https://localhost:1/token"), allows_private=False)


@pytest.fixture(scope="module")
def process(
    authority: Authority, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ServiceProcess]:
    """A service process that asks its callers for a token."""
    folder = tmp_path_factory.mktemp("service")
    variables = {
        "SEGMENTSTREAM_CONNECTIONS_CA_FILE": str(authority.ca_file),
        "SEGMENTSTREAM_CONNECTIONS_ALLOW_PRIVATE_PROVIDERS": "true",
        "SEGMENTSTREAM_CONNECTIONS_BEARER_SHA256": DIGEST,
    }
    with (
        running_provider(authority.server_context("localhost")) as provider,
        running_service(folder, {"it": provider.url("good")}, variables) as service,
    ):
        yield service


def is_in_the_envelope(answer: httpx.Response, status: int, code: str) -> None:
    """Checks the form that every refusal has."""
    assert (answer.status_code, error_code(answer)) == (status, code)
    error = answer.json()["error"]
    assert set(error) == {"code", "message", "id"}
    assert error["id"] == answer.headers["x-request-id"]
    assert answer.headers["content-type"] == "application/json"
    has_safe_headers(answer)


def has_safe_headers(answer: httpx.Response) -> None:
    """Checks the headers that every answer has."""
    assert answer.headers["cache-control"] == "no-store"
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert "server" not in answer.headers


# --- Requests ----------------------------------------------------------------------------------


@pytest.mark.parametrize("action", ACTIONS)
@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"null",
        b"[]",
        b'"text"',
        b"{",
        b"{}",
        b"\xff",
        b"\xef\xbb\xbf{}",
        b"[" * 60_000,
        b'{"a":' * 10_000,
        b'{"refreshToken":' + b"1" * 5000 + b"}",
        b'{"refreshToken":NaN}',
        b'{"refreshToken":"\\ud800"}',
        b'{"refreshToken":"a","code":"\\ud800","redirectUri":"https://a.example/","state":"\\ud800"}',
    ],
)
def test_a_body_of_another_form_is_the_callers_fault(
    action: str, body: bytes, service: LocalService
) -> None:
    """Whatever is not the documented object is refused, however deep, long or broken."""
    headers = {"content-type": "application/json"}
    answer = service.call("POST", address("it", action), content=body, headers=headers)
    is_in_the_envelope(answer, 400, "invalid_request")


@pytest.mark.parametrize("action", ACTIONS)
def test_every_field_is_checked(action: str, service: LocalService) -> None:
    """A field of a wrong type, an empty, an unknown or a missing one is refused by its name."""
    for field in BODIES[action]:
        for wrong in (None, "", 1, True, [], ["a"], {}, {"a": "b"}, "a b", "a\r\nb", "é", "a\x00"):
            if wrong is None and field in {"codeChallenge", "codeVerifier"}:
                continue
            body = BODIES[action] | {field: wrong}
            answer = service.call("POST", address("it", action), body=body)
            is_in_the_envelope(answer, 400, "invalid_request")
            assert field in answer.json()["error"]["message"]
        body = {name: value for name, value in BODIES[action].items() if name != field}
        is_in_the_envelope(
            service.call("POST", address("it", action), body=body), 400, "invalid_request"
        )


@pytest.mark.parametrize("action", ACTIONS)
def test_an_unknown_field_is_refused_and_not_repeated(action: str, service: LocalService) -> None:
    """A name that the caller made up, such as a misspelt one, is not written back."""
    for name in ("madeUp", "refresh_token", "redirect_uri"):
        answer = service.call("POST", address("it", action), body=BODIES[action] | {name: "x"})
        is_in_the_envelope(answer, 400, "invalid_request")
        assert name not in answer.text


@pytest.mark.parametrize("action", ACTIONS)
@pytest.mark.parametrize(
    "media_type",
    [
        None,
        "",
        "text/plain",
        "text/json",
        "application/x-www-form-urlencoded",
        "multipart/form-data",
        "application/jsonp",
        "application/json, text/plain",
        "application/ld+json",
    ],
)
def test_another_media_type_is_refused(
    action: str, media_type: str | None, service: LocalService
) -> None:
    """Only application/json is read, so that no page of a browser can post without being asked."""
    headers = {} if media_type is None else {"content-type": media_type}
    body = json.dumps(BODIES[action]).encode()
    answer = service.call("POST", address("it", action), content=body, headers=headers)
    is_in_the_envelope(answer, 415, "unsupported_media_type")


def test_the_media_type_may_have_parameters(service: LocalService) -> None:
    """The case and the charset of the media type do not matter."""
    headers = {"content-type": "Application/JSON; charset=utf-8"}
    body = json.dumps(START).encode()
    path = address("it", "authorization/start")
    assert service.call("POST", path, content=body, headers=headers).status_code == 200


def test_a_body_over_the_limit_is_refused(service: LocalService) -> None:
    """64 KiB are read, and not a byte more."""
    path = address("it", "token/refresh")
    text = json.dumps(REFRESH).encode()
    headers = {"content-type": "application/json"}
    fits = text + b" " * (64 * 1024 - len(text))
    answer = service.call("POST", path, content=fits, headers=headers)
    assert error_code(answer) == "oauth_provider_unavailable"
    answer = service.call("POST", path, content=fits + b" ", headers=headers)
    is_in_the_envelope(answer, 413, "payload_too_large")


@pytest.mark.parametrize("is_chunked", [False, True])
def test_a_huge_body_costs_no_memory(*, is_chunked: bool, process: ServiceProcess) -> None:
    """200 MB are refused after the first 64 KiB, and are not kept."""
    assert process.post("it", "token/refresh", REFRESH, headers=bearer()).status_code == 200
    before = process.resident_bytes()
    part = b" " * 1024 * 1024
    caller = http.client.HTTPConnection("127.0.0.1", process.port, timeout=PATIENCE)
    caller.putrequest("POST", address("it", "token/refresh"))
    for name, value in bearer().items():
        caller.putheader(name, value)
    caller.putheader("Content-Type", "application/json")
    if is_chunked:
        caller.putheader("Transfer-Encoding", "chunked")
    else:
        caller.putheader("Content-Length", str(200 * len(part)))
    caller.endheaders()
    try:
        for _ in range(200):
            caller.send(b"%x\r\n%s\r\n" % (len(part), part) if is_chunked else part)
        if is_chunked:
            caller.send(b"0\r\n\r\n")
    except OSError:
        pass  # the service need not take it all
    answer = caller.getresponse()
    assert answer.status == 413
    assert json.loads(answer.read())["error"]["code"] == "payload_too_large"
    caller.close()
    assert process.resident_bytes() - before < 16 * 1024 * 1024


# --- Addresses and methods ---------------------------------------------------------------------


@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_health_answers_without_asking_anything(method: str) -> None:
    """The process is up even if no secret is there and no provider can be reached."""
    service = LocalService(connection("https://localhost:1/token"), variables={})
    answer = service.call(method, "/health")
    assert answer.status_code == 200
    has_safe_headers(answer)
    if method == "GET":
        assert answer.json() == {"status": "ok"}


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/healthz",
        "/health/",
        "/internal/v1",
        "/internal/v1/connections/it",
        "/internal/v1/connections/it/token",
        "/internal/v1/connections/it/token/refresh/",
        "/internal/v1/connections//token/refresh",
        "/internal/v1/connections/a/b/token/refresh",
        "/internal/v1/connections/a%2Fb/token/refresh",
        "/openapi.json",
        "/docs",
        "//health",
        "/internal/v1/connections/%00/x",
    ],
)
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_an_unknown_address_is_told_in_the_envelope(
    method: str, path: str, service: LocalService
) -> None:
    """There is no redirect to a similar address, and no page of a framework."""
    is_in_the_envelope(service.call(method, path), 404, "not_found")


@pytest.mark.parametrize("action", ACTIONS)
@pytest.mark.parametrize("key", ["other", "It", "it ", "%00", "a" * 5000, "..", "é"])
def test_an_unknown_connection_is_told_in_the_envelope(
    action: str, key: str, service: LocalService
) -> None:
    """A key that is not declared is not found, whatever it looks like, and not repeated."""
    if key == "..":
        key = "%2e%2e"
    answer = service.call("POST", address(key, action), body=BODIES[action])
    is_in_the_envelope(answer, 404, "connection_not_found")


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("POST", "/health", {"GET", "HEAD"}),
        ("DELETE", "/ready", {"GET", "HEAD"}),
        ("GET", address("it", "token/refresh"), {"POST"}),
        ("PUT", address("it", "token/exchange"), {"POST"}),
        ("OPTIONS", address("it", "token/exchange"), {"POST"}),
        ("TRACE", address("it", "authorization/start"), {"POST"}),
        ("MADEUP", address("it", "authorization/start"), {"POST"}),
    ],
)
def test_another_method_is_told_in_the_envelope(
    method: str, path: str, allowed: set[str], service: LocalService
) -> None:
    """The answer names the methods that there are (RFC 9110 section 15.5.6)."""
    answer = service.call(method, path)
    is_in_the_envelope(answer, 405, "method_not_allowed")
    assert set(answer.headers["allow"].split(", ")) == allowed


def test_a_fault_of_the_service_is_told_in_the_envelope(
    service: LocalService, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bug is 500 in the usual form, with an id in place of a text."""

    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("what nobody should read")

    monkeypatch.setattr(service.service, "start", broken)
    answer = service.start()
    is_in_the_envelope(answer, 500, "internal_error")
    assert "nobody" not in answer.text


def test_readiness_names_what_is_missing() -> None:
    """Variables that are missing, or cannot be sent, are named, and no value is shown."""
    variables = {"SEGMENTSTREAM_CONNECTION_SECRET_THE_SECRET": "a secret\nwith a line break"}
    service = LocalService(connection("https://localhost:1/token"), variables=variables)
    answer = service.call("GET", "/ready")
    assert answer.status_code == 503
    assert answer.json()["missing"] == [
        "SEGMENTSTREAM_CONNECTION_SECRET_THE_ID",
        "SEGMENTSTREAM_CONNECTION_SECRET_THE_SECRET",
    ]
    assert "a secret" not in answer.text
    has_safe_headers(answer)
    ready = LocalService(connection("https://localhost:1/token")).call("GET", "/ready")
    assert (ready.status_code, ready.json()) == (200, {"status": "ok", "missing": []})


@pytest.mark.parametrize(
    "variables", [{}, VARIABLES | {"SEGMENTSTREAM_CONNECTION_SECRET_THE_ID": "\udcff"}]
)
def test_a_secret_that_cannot_be_used_is_a_lack_of_the_service(variables: dict[str, str]) -> None:
    """A missing variable and one that is no text are neither the caller's fault nor a bug."""
    service = LocalService(connection("https://localhost:1/token"), variables=variables)
    for answer in (service.start(), service.exchange(), service.refresh()):
        is_in_the_envelope(answer, 503, "runtime_unavailable")
        assert "SEGMENTSTREAM_CONNECTION_SECRET_THE_ID" in answer.json()["error"]["message"]


# --- Callers -----------------------------------------------------------------------------------


def bearer(token: str = TOKEN) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


GUARDED = ServiceSettings(bearer_sha256=DIGEST)


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Authorization": ""},
        {"Authorization": TOKEN},
        {"Authorization": "Bearer"},
        {"Authorization": "Bearer "},
        {"Authorization": f"Basic {TOKEN}"},
        {"Authorization": f"Bearer {TOKEN}x"},
        {"Authorization": f"Bearer {TOKEN[:-1]}"},
        {"Authorization": f"Bearer {DIGEST}"},
        {"Authorization": f"Bearer {TOKEN.upper()}"},
        {"Authorization": f"Bearer {TOKEN} {TOKEN}"},
        {"Authorization": b"Bearer \xff\xfe"},
        {"X-Authorization": f"Bearer {TOKEN}"},
    ],
)
@pytest.mark.parametrize("path", [address("it", action) for action in ACTIONS] + ["/", "/nowhere"])
def test_a_caller_without_the_token_learns_nothing(headers: dict[str, Any], path: str) -> None:
    """Every address but those of the platform is closed, also those that do not exist."""
    service = LocalService(connection("https://localhost:1/token"), settings=GUARDED)
    is_in_the_envelope(service.call("POST", path, headers=headers), 401, "unauthorized")


@pytest.mark.parametrize("scheme", ["Bearer", "bearer", "BEARER"])
def test_a_caller_with_the_token_is_let_in(scheme: str) -> None:
    """The name of the scheme has no case (RFC 9110 section 11.1)."""
    service = LocalService(connection("https://localhost:1/token"), settings=GUARDED)
    path = address("it", "authorization/start")
    headers = {"Authorization": f"{scheme} {TOKEN}"}
    assert service.call("POST", path, body=START, headers=headers).status_code == 200


def test_the_platform_needs_no_token() -> None:
    """A probe has no token, and learns no value."""
    service = LocalService(connection("https://localhost:1/token"), settings=GUARDED)
    assert service.call("GET", "/health").status_code == 200
    assert service.call("GET", "/ready").status_code == 200


@pytest.mark.parametrize(
    "host", ["0.0.0.0", "::", "192.168.1.5", "service.example", "127.0.0.1.nip.example", " "]
)
def test_the_network_is_not_listened_to_without_an_authenticator(host: str) -> None:
    """An address that others reach needs a token for callers, or Cloud Run in front."""
    variables = {"SEGMENTSTREAM_CONNECTIONS_HOST": host}
    with pytest.raises(SettingsError, match="SEGMENTSTREAM_CONNECTIONS_HOST"):
        ServiceSettings.from_environ(variables)
    for proof in (
        {"SEGMENTSTREAM_CONNECTIONS_BEARER_SHA256": DIGEST},
        {"K_SERVICE": "connections"},
    ):
        assert ServiceSettings.from_environ(variables | proof).host == host


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.8.8", "::1", "localhost"])
def test_this_machine_is_listened_to_without_an_authenticator(host: str) -> None:
    """A loopback address needs no token; it is also the default."""
    assert ServiceSettings.from_environ({"SEGMENTSTREAM_CONNECTIONS_HOST": host}).host == host
    assert ServiceSettings.from_environ({}).host == "127.0.0.1"


REFUSED_SETTINGS = [
    {"PORT": ""},
    {"PORT": "0"},
    {"PORT": "65536"},
    {"PORT": "-1"},
    {"PORT": "80a"},
    {"PORT": "\u0661"},
    {"PORT": "0" * 5000 + "1"},
    {"SEGMENTSTREAM_CONNECTIONS_HOST": "0.0.0.0"},
    {"SEGMENTSTREAM_CONNECTIONS_BEARER_SHA256": "the-token-itself"},
    {"SEGMENTSTREAM_CONNECTIONS_BEARER_SHA256": DIGEST.upper()},
    {"SEGMENTSTREAM_CONNECTIONS_CA_FILE": "no-such-file.pem"},
    {"SEGMENTSTREAM_CONNECTIONS_CA_FILE": "connections.py"},
    {"SEGMENTSTREAM_CONNECTIONS_CA_FILE": "."},
]


@pytest.mark.parametrize("variables", REFUSED_SETTINGS[:-3], ids="".join)
def test_a_setting_that_cannot_work_is_named(variables: dict[str, str]) -> None:
    """The variable is named; a pasted token is not repeated."""
    [(name, value)] = variables.items()
    with pytest.raises(SettingsError, match=name) as caught:
        ServiceSettings.from_environ(variables)
    assert value != "the-token-itself" or value not in str(caught.value)


@pytest.mark.parametrize("variables", [REFUSED_SETTINGS[7], *REFUSED_SETTINGS[-3:]], ids="".join)
def test_a_setting_that_cannot_work_ends_the_start_with_a_sentence(
    variables: dict[str, str], tmp_path: Path
) -> None:
    """The process ends at once with 1 and names the variable, without a traceback."""
    (tmp_path / "connections.py").write_text("connections = ()\n")
    ended = subprocess.run(
        command("serve"),
        cwd=tmp_path,
        env=kept_environment() | variables,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert ended.returncode == 1
    assert next(iter(variables)) in ended.stderr
    assert "Traceback" not in ended.stderr


# --- PKCE and redirects ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "redirect",
    [
        "https://app.example.com/callback",
        "https://app.example.com:8443/callback?a=b",
        "http://127.0.0.1:5000/callback",
        "http://[::1]:5000/callback",
        "http://localhost/callback",
    ],
)
def test_a_redirect_address_of_the_caller_is_accepted(redirect: str, service: LocalService) -> None:
    """An https address, or an http one on this machine, stands in the request as it was given."""
    url = service.start(redirectUri=redirect).json()["authorizationUrl"]
    assert httpx.URL(url).params["redirect_uri"] == redirect


@pytest.mark.parametrize(
    "redirect",
    [
        "http://app.example.com/callback",
        "http://127.0.0.1.example.com/",
        "https://@evil.example/",
        "https://user:password@evil.example/",
        "https://app.example.com@evil.example/",
        "https://app.example.com\\@evil.example/",
        "https://app.example.com/#fragment",
        "https://app.example.com/#",
        "https:///callback",
        "https:app.example.com",
        "https://",
        "//app.example.com/",
        "/callback",
        "javascript:alert(1)",
        "data:text/html,x",
        "custom://callback",
        "https://app.example.com/a b",
        " https://app.example.com/",
        "https://app.example.com/\t",
        "https://app.example.com/\r\nX: y",
        "https://app.example.com:99999/",
        "https://app.example.com:port/",
        "https://[::1/",
        "https://äpp.example.com/",
        "https://app.example.com/" + "a" * 2048,
    ],
)
def test_what_is_no_redirect_address_is_refused(redirect: str, service: LocalService) -> None:
    """Whatever a browser and a server could read differently is refused in both requests."""
    for answer in (
        service.start(redirectUri=redirect),
        service.exchange(redirectUri=redirect),
    ):
        is_in_the_envelope(answer, 400, "invalid_request")
        assert "redirectUri" in answer.json()["error"]["message"]


@pytest.mark.parametrize(
    "challenge",
    ["x", "c" * 42, "c" * 44, "c" * 42 + "=", "c" * 42 + "+", "c" * 42 + "\n", "c" * 43 + "\n"],
)
def test_what_is_no_challenge_is_refused(challenge: str, service: LocalService) -> None:
    """An S256 challenge is 43 characters of base64url (RFC 7636 section 4.2)."""
    is_in_the_envelope(service.start(codeChallenge=challenge), 400, "invalid_request")


@pytest.mark.parametrize(
    "verifier", ["v" * 42, "v" * 129, "v" * 42 + "=", "v" * 43 + "\n", "v" * 42 + "é"]
)
def test_what_is_no_verifier_is_refused(verifier: str, service: LocalService) -> None:
    """A verifier is 43 to 128 unreserved characters (RFC 7636 section 4.1)."""
    is_in_the_envelope(service.exchange(codeVerifier=verifier), 400, "invalid_request")


def test_pkce_is_not_forgotten(service: LocalService) -> None:
    """Where a connection uses PKCE, a request without it is refused before the provider sees it."""
    for body in ({"codeChallenge": None}, {"state": "s", "redirectUri": REDIRECT}):
        whole = {k: v for k, v in (START | body).items() if k != "codeChallenge"}
        answer = service.call("POST", address("it", "authorization/start"), body=whole)
        is_in_the_envelope(answer, 400, "invalid_request")
    is_in_the_envelope(service.exchange(codeVerifier=None), 400, "invalid_request")


@pytest.mark.parametrize("state", ["", "s" * 257, "a b", "a\nb", "é"])
def test_what_is_no_state_is_refused(state: str, service: LocalService) -> None:
    """A state is 1 to 256 visible ASCII characters, which no provider refuses or changes."""
    is_in_the_envelope(service.start(state=state), 400, "invalid_request")


def test_a_state_is_passed_on_as_it_is(service: LocalService) -> None:
    """The caller gets back what it gave, whatever characters that has."""
    state = "&state=x#?%25+/='\"<>" + "s" * 200
    url = service.start(state=state, codeChallenge=CHALLENGE).json()["authorizationUrl"]
    assert httpx.URL(url).params.get_list("state") == [state]


# --- The process -------------------------------------------------------------------------------


def test_the_log_of_a_process_holds_no_query(process: ServiceProcess) -> None:
    """Each request is one line of JSON with its path, status and time, and without its query."""
    with httpx.Client(base_url=process.url, trust_env=False) as client:
        answer = client.get("/nowhere?code=code-in-a-query", headers=bearer())
    assert answer.status_code == 404
    has_safe_headers(answer)
    process.wait_for_log(answer.headers["x-request-id"])
    [line] = [line for line in process.lines if answer.headers["x-request-id"] in line]
    told = json.loads(line)
    assert (told["method"], told["path"], told["status"]) == ("GET", "/nowhere", 404)
    assert told["code"] == "not_found"
    assert told["milliseconds"] >= 0
    assert "code-in-a-query" not in process.log


def test_web_sockets_are_not_spoken(process: ServiceProcess) -> None:
    """A request to change the protocol is answered as any other, and its query is not logged."""
    upgrade = {
        "Connection": "Upgrade",
        "Upgrade": "websocket",
        "Sec-WebSocket-Version": "13",
        "Sec-WebSocket-Key": "AAAAAAAAAAAAAAAAAAAAAA==",
    }
    with httpx.Client(base_url=process.url, trust_env=False) as client:
        answer = client.get("/socket?code=code-in-a-socket", headers=upgrade)
    is_in_the_envelope(answer, 401, "unauthorized")
    process.wait_for_log(answer.headers["x-request-id"])
    assert "code-in-a-socket" not in process.log


@pytest.mark.parametrize(
    "raw",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"GET\r\n\r\n",
        b"GET /health HTTP/1.1\r\nHost: a\r\nContent-Length: x\r\n\r\n",
        b"POST /health HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"GET /health HTTP/1.1\r\n" + b"X-A: b\r\n" * 50_000,
    ],
)
def test_bytes_that_are_no_request_harm_nobody(raw: bytes, process: ServiceProcess) -> None:
    """Whatever is sent to the port, the process goes on, and shows no traceback."""
    with socket.create_connection(("127.0.0.1", process.port), PATIENCE) as caller:
        received = b""
        # A service that has read enough closes at once: then the rest cannot be sent (ECONNRESET,
        # EPIPE), nor the end be told (ENOTCONN).
        with contextlib.suppress(OSError):
            caller.sendall(raw)
            caller.shutdown(socket.SHUT_WR)
        with contextlib.suppress(ConnectionError):
            while part := caller.recv(65536):
                received += part
    assert b"server:" not in received.lower()
    with httpx.Client(base_url=process.url, trust_env=False) as client:
        assert client.get("/health").status_code == 200
    assert "Traceback" not in process.log


# --- Where browsers are sent back to ----------------------------------------------------------


LISTED = "https://app.example.com/callback, http://127.0.0.1:8000/callback"


@pytest.mark.parametrize(
    ("uri", "is_allowed"),
    [
        ("https://app.example.com/callback", True),
        ("http://127.0.0.1:53682/callback", True),
        ("http://127.0.0.1/callback", True),
        ("https://app.example.com/callback/", False),
        ("https://app.example.com/callback?x=y", False),
        ("https://app.example.com:8443/callback", False),
        ("https://evil.example/callback", False),
        ("http://localhost:8000/callback", False),
        ("http://127.0.0.1:8000/other", False),
    ],
)
def test_p25_only_listed_redirect_addresses_are_used(
    uri: str, is_allowed: bool, authority_file: Path
) -> None:
    """A deployment lists them: compared to the letter, a loopback address without its port."""
    environ = {"SEGMENTSTREAM_CONNECTIONS_REDIRECT_URIS": LISTED}
    service = LocalService(
        connection("https://localhost:1/token"),
        ca_file=authority_file,
        settings=ServiceSettings.from_environ(environ),
    )
    answer = service.start(redirectUri=uri)
    assert (answer.status_code == 200) is is_allowed, answer.text
    if not is_allowed:
        assert error_code(answer) == "invalid_request"
        assert error_code(service.exchange(redirectUri=uri)) == "invalid_request"


# --- Whatever comes ----------------------------------------------------------------------------

fields = st.sampled_from(["refreshToken", "redirectUri", "state", "code", "codeVerifier", "x"])
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text() | st.sampled_from([REDIRECT, VERIFIER]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
contents = (
    st.binary(max_size=200)
    | values.map(lambda body: json.dumps(body).encode())
    | st.dictionaries(fields, values).map(lambda body: json.dumps(body).encode())
)


@settings(deadline=None, max_examples=150)
@given(
    method=st.sampled_from(["GET", "POST", "PUT", "HEAD"]),
    key=st.sampled_from(["it", "other", "%00", "%ff"]),
    action=st.sampled_from([*ACTIONS, "token/other"]),
    query=st.text(max_size=10),
    content=contents,
    media_type=st.sampled_from(["application/json", "text/plain", "", "\xff"]),
)
def test_any_request_gets_a_documented_answer(
    *, method: str, key: str, action: str, query: str, content: bytes, media_type: str
) -> None:
    """Whatever a caller sends, the answer is in the envelope and is never a fault of the service."""
    service = LocalService(connection("https://localhost:1/token"), allows_private=False)
    answer = service.call(
        method,
        address(key, action),
        params={"q": query},
        content=content,
        headers={"content-type": media_type.encode("latin-1")},
    )
    has_safe_headers(answer)
    if answer.status_code == 200:
        assert set(answer.json()) == {"authorizationUrl"}
    elif method != "HEAD":
        codes = {code.value: outcome.status for code, outcome in OUTCOMES.items()}
        assert codes[error_code(answer)] == answer.status_code
        assert answer.status_code != 500
