"""Tokens from the connections service: the real one, and one that answers anything."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from base64 import urlsafe_b64encode
from collections.abc import Iterator
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from clients.test_process import CONNECT, USE, run
from connections_runtime.running import free_port, running_service
from segmentstream import ConnectionAccessError, ReauthorizationRequiredError
from segmentstream._clients.remote import ServiceBroker
from segmentstream._clients.settings import ClientSettings, ServiceAddress
from segmentstream.testing import FakeProvider

ANSWER: dict[str, Any] = {
    "accessToken": "the-token",
    "tokenType": "Bearer",
    "expiresIn": 100,
    "tokenNumber": 3,
    "scopes": ["read"],
    "missingScopes": ["write"],
    "metadata": {"team": "a"},
    "baseUrl": "https://api.example.com/v1",
    "header": "X-Token",
    "scheme": "",
    "refreshStatuses": [401, 403],
    "persisted": False,
}


class Service(ThreadingHTTPServer):
    """A service that answers what it is told to.

    Attributes:
        answer: Status, headers and body of its next answers.
        asked: Path, headers and body of what it was asked.
    """

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Answering)
        self.answer: tuple[int, dict[str, str], bytes] = (200, {}, json.dumps(ANSWER).encode())
        self.asked: list[tuple[str, dict[str, str], Any]] = []

    def answer_to(self, path: str) -> tuple[int, dict[str, str], bytes]:  # noqa: ARG002
        return self.answer

    @property
    def address(self) -> ServiceAddress:
        return ServiceAddress(url=f"http://127.0.0.1:{self.server_port}", token="callers-token")

    def answers(self, status: int, document: object, **headers: str) -> None:
        body = document if isinstance(document, bytes) else json.dumps(document).encode()
        self.answer = status, {name.replace("_", "-"): headers[name] for name in headers}, body


class _Answering(BaseHTTPRequestHandler):
    server: Service

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        headers = {name.lower(): value for name, value in self.headers.items()}
        self.server.asked.append((self.path, headers, body))
        self._send()

    def do_GET(self) -> None:
        self.server.asked.append((self.path, dict(self.headers.items()), None))
        self._send()

    def log_message(self, *arguments: Any) -> None: ...

    def _send(self) -> None:
        status, headers, body = self.server.answer_to(self.path)
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@pytest.fixture
def service() -> Iterator[Service]:
    with Service() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def broker(service: Service) -> Iterator[ServiceBroker]:
    asking = ServiceBroker(service.address, clock=lambda: 1000.0)
    yield asking
    asking.close()


def error(code: str, message: str = "Something happened.") -> dict[str, Any]:
    """An error in the service's envelope."""
    return {"error": {"code": code, "message": message, "id": "0123456789abcdef"}}


def refused(broker: ServiceBroker) -> ConnectionAccessError:
    """Asks, and gives the error."""
    with pytest.raises(ConnectionAccessError) as caught:
        broker.access("ads", "default")
    return caught.value


def test_a_question_and_its_answer(service: Service, broker: ServiceBroker) -> None:
    """The service is asked as documented, and all of its answer arrives."""
    access = broker.access("ads", "second", min_ttl_seconds=60, rejected=2)

    [(path, headers, body)] = service.asked
    assert path == "/internal/v1/connections/ads/access-token/resolve"
    assert headers["authorization"] == "Bearer callers-token"
    assert body == {"account": "second", "minTtlSeconds": 60, "rejectedTokenNumber": 2}
    assert (access.access_token, access.token_number, access.expires_at) == ("the-token", 3, 1100.0)
    assert (access.scopes, access.missing_scopes) == (("read",), ("write",))
    assert (access.header, access.credentials) == ("X-Token", "the-token")
    assert access.base_url == "https://api.example.com/v1"
    assert access.metadata == {"team": "a"}
    assert access.refresh_statuses == (401, 403)
    assert not access.persisted
    assert "the-token" not in repr(access)


@pytest.mark.parametrize("code", ["oauth_reauthorization_required", "credential_not_found"])
def test_a_dead_grant_needs_a_person(service: Service, broker: ServiceBroker, code: str) -> None:
    """Both ways of having no login name the command, with the account where it is another."""
    service.answers(400, error(code))
    with pytest.raises(ReauthorizationRequiredError, match="`segmentstream connect ads`") as caught:
        broker.access("ads", "default")
    assert (caught.value.code, caught.value.connection) == (code, "ads")
    assert not caught.value.retryable
    with pytest.raises(ReauthorizationRequiredError, match="connect ads --account second`"):
        broker.access("ads", "second")


@pytest.mark.parametrize(
    ("status", "code", "retryable"),
    [
        (429, "oauth_rate_limited", True),
        (502, "oauth_provider_unavailable", True),
        (503, "credential_store_unavailable", True),
        (500, "internal_error", True),
        (502, "oauth_client_rejected", False),
        (404, "connection_not_found", False),
        (401, "unauthorized", False),
        (400, "invalid_request", False),
    ],
)
def test_an_outcome_keeps_its_code(
    service: Service, broker: ServiceBroker, status: int, code: str, retryable: bool
) -> None:
    """The code, the id and how long to wait are handed on, and whether to try again."""
    service.answers(status, error(code), Retry_After="30")
    told = refused(broker)
    assert (told.code, told.retryable, told.retry_after_seconds) == (code, retryable, 30)
    assert "0123456789abcdef" in str(told)
    assert "Something happened." in str(told)


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (403, b"<html>Forbidden by the front end, secret-of-the-page</html>"),
        (503, b""),
        (404, b'{"detail": "secret-of-the-page"}'),
        (400, b'{"error": "secret-of-the-page"}'),
        (500, b'{"error": {"code": 7, "message": "secret-of-the-page"}}'),
        (302, b""),
        (204, b""),
    ],
)
def test_an_answer_of_somebody_else_is_not_repeated(
    service: Service, broker: ServiceBroker, status: int, body: bytes
) -> None:
    """What is no answer of the service becomes its status, and its text stays unseen."""
    service.answers(status, body, Location="/elsewhere")
    told = refused(broker)
    assert told.code == f"http_{status}"
    assert "secret" not in str(told)
    assert len(service.asked) == 1  # a redirect is not followed


@pytest.mark.parametrize(
    "change",
    [
        {"accessToken": ""},
        {"accessToken": "line\nbreak"},
        {"accessToken": "ümlaut"},
        {"accessToken": None},
        {"tokenNumber": "3"},
        {"tokenNumber": True},
        {"expiresIn": "100"},
        {"scopes": "read"},
        {"scopes": [1]},
        {"baseUrl": "http://api.example.com"},
        {"baseUrl": "https://user@api.example.com"},
        {"header": "X-Token\r\nX-More"},
        {"scheme": None},
        {"metadata": []},
        {"refreshStatuses": ["401"]},
        {"persisted": 1},
    ],
)
def test_an_answer_of_another_form_is_refused(
    service: Service, broker: ServiceBroker, change: dict[str, object]
) -> None:
    """Nothing that is not checked becomes a token, a header or an address."""
    service.answers(200, ANSWER | change)
    told = refused(broker)
    assert told.code == "service_unreadable"
    assert not told.retryable
    assert told.__suppress_context__


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"{",
        b"[" * 100_000,
        json.dumps(ANSWER).encode() + b" " * 300_000,
        b"\xff",
        b'"the-token"',
    ],
)
def test_what_cannot_be_read_is_refused(
    service: Service, broker: ServiceBroker, body: bytes
) -> None:
    """Bodies that are too long, too deep or no JSON are errors of ours."""
    service.answers(200, body)
    assert refused(broker).code == "service_unreadable"


def test_a_service_that_is_away_may_come_back() -> None:
    """Without a connection the error says so, may be retried and holds no address."""
    broker = ServiceBroker(ServiceAddress(url=f"http://127.0.0.1:{free_port()}", token="secret"))
    told = refused(broker)
    broker.close()
    assert (told.code, told.retryable) == ("service_unavailable", True)
    assert "secret" not in str(told)


def test_settings() -> None:
    """Without an address this process keeps credentials itself; with one it says who it is."""
    url = "SEGMENTSTREAM_CONNECTIONS_URL"
    token = "SEGMENTSTREAM_CONNECTIONS_TOKEN"
    audience = "SEGMENTSTREAM_CONNECTIONS_AUDIENCE"

    def service(**environ: str) -> ServiceAddress | None:
        return ClientSettings.from_environ(environ).service

    assert service() is None
    assert service(**{url: ""}) is None
    assert service(**{url: "https://c.example.com/"}) == ServiceAddress(
        url="https://c.example.com", audience="https://c.example.com"
    )
    assert service(**{url: "https://c.example.com", audience: "other"}) == ServiceAddress(
        url="https://c.example.com", audience="other"
    )
    found = service(**{url: "https://c.example.com", token: "secret"})
    assert found == ServiceAddress(url="https://c.example.com", token="secret")
    assert "secret" not in repr(found)
    assert service(**{url: "http://127.0.0.1:8080"}) == ServiceAddress(url="http://127.0.0.1:8080")


@pytest.mark.parametrize(
    "environ",
    [
        {"SEGMENTSTREAM_CONNECTIONS_URL": "http://connections.example.com"},
        {"SEGMENTSTREAM_CONNECTIONS_URL": "https://me:hunter2@connections.example.com"},
        {"SEGMENTSTREAM_CONNECTIONS_URL": "connections"},
        {"SEGMENTSTREAM_CONNECTIONS_URL": "https://c.example.com/?hunter2"},
        {
            "SEGMENTSTREAM_CONNECTIONS_URL": "https://c.example.com",
            "SEGMENTSTREAM_CONNECTIONS_TOKEN": "hunter2\n",
        },
    ],
)
def test_settings_that_cannot_work_are_named(environ: dict[str, str]) -> None:
    """The variable is named, and what it holds is not repeated."""
    with pytest.raises(ConnectionAccessError, match=[*environ][-1]) as caught:
        ClientSettings.from_environ(environ)
    assert "hunter2" not in str(caught.value)
    assert caught.value.code == "client_configuration"


def test_a_file_of_certificates_must_be_one(tmp_path: Path) -> None:
    """A CA file that cannot be read is said when the broker is made."""
    file = tmp_path / "ca.pem"
    for make in (lambda: None, lambda: file.write_text("no certificate")):
        make()
        with pytest.raises(ConnectionAccessError, match="CA_FILE"):
            ServiceBroker(ServiceAddress(url="https://c.example.com", ca_file=str(file)))


_DECLARED = """
connections += (
    OAuth2Connection(
        key="fake", name="Fake", provider="fake", authorization_url="{url}/authorize",
        token_url="{url}/token", client_id=secret_ref("fake-client-id"),
        client_secret=secret_ref("fake-client-secret"), scopes=["read"],
        api_base_url="{url}/api",
    ),
)
"""


def test_the_real_service_gives_tokens(tmp_path: Path) -> None:
    """A pipeline reads through the service that a person has connected, and only with its token."""
    folder = tmp_path / "connections"
    folder.mkdir()
    with FakeProvider(consent="automatic", lifetime_seconds=1) as provider:
        provider.serve("/me", {})
        variables = {**provider.environment, "HOME": str(tmp_path)}
        hashed = {"SEGMENTSTREAM_CONNECTIONS_BEARER_SHA256": sha256(b"open").hexdigest()}
        with running_service(
            folder, {}, variables | hashed, more=_DECLARED.format(url=provider.url)
        ) as service:
            run(CONNECT, folder, variables)
            [token] = provider._grants._access_tokens
            while provider._grants.is_live(token):
                threading.Event().wait(0)
            provider._grants._lifetime_seconds = 3600
            elsewhere = tmp_path / "elsewhere"
            elsewhere.mkdir()
            asking = {"SEGMENTSTREAM_CONNECTIONS_URL": service.url}
            given = {"SEGMENTSTREAM_CONNECTIONS_TOKEN": "open"}
            assert run(USE, elsewhere, asking | given) == "40\n"
            assert provider.refreshes == 1
            with pytest.raises(AssertionError, match="unauthorized"):
                run(USE, elsewhere, asking)
            assert "fake-access" not in service.log


_IDENTITY = """
import sys
from segmentstream._clients.identity import IdentityTokens
from segmentstream._clients.remote import ServiceBroker
from segmentstream._clients.settings import ServiceAddress
from segmentstream import ConnectionAccessError

now = [1000.0]
tokens = IdentityTokens("https://c.example.com", clock=lambda: now[0])
try:
    first = tokens.token("ads")
    assert tokens.token("ads") == first
    now[0] = 1000.0 + 3600 - 300
    tokens.token("ads")
    broker = ServiceBroker(ServiceAddress(url=sys.argv[1], audience="https://c.example.com"))
    broker.access("ads", "default")
    broker.close()
except ConnectionAccessError as error:
    print(error.code)
"""


class Metadata(Service):
    """A metadata server, which gives identity tokens that end at 4600."""

    def __init__(self) -> None:
        super().__init__()
        self.token = ".".join(map(_part, ({"alg": "none"}, {"exp": 4600}, {"sig": 1})))

    def answer_to(self, path: str) -> tuple[int, dict[str, str], bytes]:
        headers = {"Metadata-Flavor": "Google", "Content-Type": "application/json"}
        if "/identity" in path:
            return 200, headers | {"Content-Type": "text/html"}, self.token.encode()
        account = {"email": "pipeline@project.iam.gserviceaccount.com", "scopes": []}
        return 200, headers, json.dumps(account).encode()


def _part(document: object) -> str:
    return urlsafe_b64encode(json.dumps(document).encode()).decode().rstrip("=")


def _identify(metadata: str, service: str) -> str:
    variables = {
        "GCE_METADATA_HOST": metadata,
        "GCE_METADATA_IP": metadata,
        "GCE_METADATA_DETECT_RETRIES": "1",
        "PATH": "/nowhere",
    }
    done = subprocess.run(
        [sys.executable, "-c", _IDENTITY, service],
        env=variables,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_on_google_cloud_the_metadata_server_says_who_asks(service: Service) -> None:
    """The identity token is for the audience, kept until shortly before its end, and sent."""
    with Metadata() as metadata:
        thread = threading.Thread(target=metadata.serve_forever, args=(0.02,))
        thread.start()
        printed = _identify(f"127.0.0.1:{metadata.server_port}", service.address.url)
        metadata.shutdown()
        thread.join()
    assert printed == ""
    identities = [path for path, _, _ in metadata.asked if "/identity" in path]
    assert len(identities) == 3  # the first, the one after its end, and that of the broker
    assert all("audience=https%3A%2F%2Fc.example.com" in path for path in identities)
    [(_, headers, _)] = service.asked
    assert headers["authorization"] == f"Bearer {metadata.token}"


def test_without_an_identity_the_service_is_not_asked(service: Service) -> None:
    """Where nobody can say who asks, the error says so, and nothing is sent."""
    assert _identify(f"127.0.0.1:{free_port()}", service.address.url) == "identity_unavailable\n"
    assert service.asked == []
