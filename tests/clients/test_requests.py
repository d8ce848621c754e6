"""Which requests are sent at all, which are sent again, and after how long."""

from __future__ import annotations

import asyncio
import io
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import httpx
import pytest

from clients.brokers import BASE, CountingBroker, ProviderBroker
from segmentstream import Connection, ConnectionAccessError, ConnectionRequestError, get_connection
from segmentstream._clients.client import AsyncConnectionClient, ConnectionClient
from segmentstream._clients.exchange import RetryPolicy, Terms
from segmentstream._clients.process import using
from segmentstream._clients.sharing import SharedAccess
from segmentstream._clients.transport import AsyncAuthorizedTransport, AuthorizedTransport
from segmentstream.testing import FakeProvider

NOW = 1_700_000_000.0  # Tue, 14 Nov 2023 22:13:20 GMT


@dataclass(slots=True)
class Api:
    """An API that answers what a list says, one after another, and then 200.

    Attributes:
        answers: Status and headers of each.
        sent: What it was sent, each with its body.
        waits: How long was waited before each further attempt.
        closed: How many answers were closed.
    """

    answers: list[tuple[int, dict[str, str]]]
    sent: list[tuple[httpx.Request, bytes]] = field(default_factory=list)
    waits: list[float] = field(default_factory=list)
    closed: int = 0

    def respond(self, request: httpx.Request) -> httpx.Response:
        """Answers a request."""
        self.sent.append((request, request.content))
        status, headers = self.answers.pop(0) if self.answers else (200, {})
        return httpx.Response(status, headers=headers, stream=_Body(self))

    def client(self, broker: CountingBroker | None = None, **changes: Any) -> ConnectionClient:
        """Makes a client whose clock stands still and whose waits are noted."""
        terms, share = _terms(broker, changes)
        transport = AuthorizedTransport(
            httpx.MockTransport(self._read_and_respond), share, terms, sleep=self.waits.append
        )
        return ConnectionClient(transport, follow_redirects=True)

    def async_client(
        self, broker: CountingBroker | None = None, **changes: Any
    ) -> AsyncConnectionClient:
        """Makes an async client of the same kind."""
        terms, share = _terms(broker, changes)

        async def wait(seconds: float) -> None:
            self.waits.append(seconds)

        transport = AsyncAuthorizedTransport(
            httpx.MockTransport(self.respond), share, terms, sleep=wait
        )
        return AsyncConnectionClient(transport)

    def _read_and_respond(self, request: httpx.Request) -> httpx.Response:
        request.read()
        return self.respond(request)


class _Body(httpx.SyncByteStream, httpx.AsyncByteStream):
    def __init__(self, api: Api) -> None:
        self._api = api

    def __iter__(self) -> Iterator[bytes]:
        yield b"body"

    async def __aiter__(self) -> AsyncIterator[bytes]:
        yield b"body"

    def close(self) -> None:
        self._api.closed += 1

    async def aclose(self) -> None:
        self._api.closed += 1


def _terms(
    broker: CountingBroker | None, changes: dict[str, Any]
) -> tuple[Terms, Callable[[], SharedAccess]]:
    terms = Terms(
        connection="it",
        base_url=None,
        read_only=False,
        policy=RetryPolicy(),
        clock=lambda: NOW,
        random=lambda: 0.5,
    )
    shared = SharedAccess(broker or CountingBroker(), "it", "default", clock=lambda: NOW)
    return replace(terms, **changes), lambda: shared


def busy(status: int = 429, after: str | None = None) -> tuple[int, dict[str, str]]:
    """An answer that asks to wait."""
    return status, {} if after is None else {"Retry-After": after}


def refused() -> tuple[int, dict[str, str]]:
    """An answer to a dead token."""
    return 401, {"Content-Length": "4"}


def chunks() -> Iterator[bytes]:
    """A body that comes out of a generator."""
    yield b"part"


BODIES: dict[str, tuple[dict[str, Any], bool]] = {
    "nothing": ({}, True),
    "bytes": ({"content": b"bytes"}, True),
    "json": ({"json": {"a": 1}}, True),
    "form": ({"data": {"a": "1"}}, True),
    "generator": ({"content": chunks}, False),
    "file": ({"content": lambda: io.BytesIO(b"file")}, False),
    "multipart": ({"files": {"a": b"file"}}, False),
}


@pytest.mark.parametrize("kind", BODIES)
@pytest.mark.parametrize("answer", [refused(), busy(after="1")])
def test_only_a_body_that_is_still_there_is_sent_again(
    kind: str, answer: tuple[int, dict[str, str]]
) -> None:
    """What was given whole is sent twice and equal; of a stream the first answer stands."""
    given, is_replayable = BODIES[kind]
    given = {name: value() if callable(value) else value for name, value in given.items()}
    api = Api([answer])
    with api.client() as http:
        response = http.post("/x", **given)
    assert response.status_code == (200 if is_replayable else answer[0])
    assert len({body for _, body in api.sent}) == 1
    assert len(api.sent) == (2 if is_replayable else 1)
    assert api.closed == len(api.sent)


def test_a_stream_that_was_read_before_is_sent_again() -> None:
    """A body that httpx has read into memory counts as given whole."""
    api = Api([refused()])
    with api.client() as http:
        request = http.build_request("POST", "/x", content=chunks())
        request.read()
        assert http.send(request).status_code == 200
    assert [body for _, body in api.sent] == [b"part", b"part"]


def test_a_stream_that_is_refused_still_gets_the_next_request_a_new_token() -> None:
    """The token is known to be dead, although the request could not be sent again."""
    broker = CountingBroker()
    api = Api([refused()])
    with api.client(broker) as http:
        assert http.post("/x", content=chunks()).status_code == 401
        assert http.get("/x").status_code == 200
    assert broker.asked == [None, 1]
    assert [request.headers["Authorization"] for request, _ in api.sent] == [
        "Bearer token-1",
        "Bearer token-2",
    ]


def test_a_refresh_that_fails_is_told() -> None:
    """Where no newer token can be had, its error is raised and not hidden behind a 401."""
    broker = CountingBroker()
    api = Api([refused()])

    def dies() -> None:
        if broker.asked[-1] is not None:
            raise ConnectionAccessError("It is dead.", "Connect again.")

    broker.meanwhile = dies
    with api.client(broker) as http, pytest.raises(ConnectionAccessError, match="It is dead"):
        http.get("/x")


@pytest.mark.parametrize(
    ("after", "wait"),
    [
        ("0", []),
        ("7", [7.0]),
        (" 7 ", [7.0]),
        ("Tue, 14 Nov 2023 22:13:35 GMT", [15.0]),
        ("Tue, 14 Nov 2023 22:13:35 -0000", [15.0]),
        ("Tue, 14 Nov 2023 22:13:00 GMT", []),  # has passed
        (None, [0.5]),
        ("soon", [0.5]),
        ("-3", [0.5]),
        ("1.5", [0.5]),
        ("Tue, 99 Nov 2023 22:13:35 GMT", [0.5]),
        ("", [0.5]),
    ],
)
def test_retry_after_is_kept(after: str | None, wait: list[float]) -> None:
    """Seconds and dates are waited for; without one that can be read, a moment of our own."""
    api = Api([busy(after=after)])
    with api.client() as http:
        assert http.get("/x").status_code == 200
    assert api.waits == wait


def test_waits_grow_and_end() -> None:
    """Without a word of the API each wait is twice as long, and there are four."""
    api = Api([busy()] * 9)
    with api.client() as http:
        assert http.get("/x").status_code == 429
    assert api.waits == [0.5, 1.0, 2.0, 4.0]
    assert len(api.sent) == 5
    assert api.closed == 5


def test_a_minute_is_all_that_is_waited() -> None:
    """What would take longer than the budget in all is not begun; the answer is handed on."""
    api = Api([busy(after="61")])
    with api.client() as http:
        assert http.get("/x").headers["Retry-After"] == "61"
    assert api.waits == []
    api = Api([busy(after="40"), busy(after="20"), busy(after="1")])
    with api.client() as http:
        assert http.get("/x").status_code == 429
    assert api.waits == [40.0, 20.0]


@pytest.mark.parametrize(
    ("method", "status", "attempts"),
    [
        ("GET", 503, 2),
        ("PUT", 503, 2),
        ("DELETE", 503, 2),
        ("POST", 503, 1),
        ("PATCH", 503, 1),
        ("POST", 429, 2),
        ("PATCH", 429, 2),
        ("GET", 500, 1),
        ("GET", 502, 1),
    ],
)
def test_only_what_is_safe_is_sent_again(method: str, status: int, attempts: int) -> None:
    """After 429 nothing was done; after 503 something may have been, which only some may repeat."""
    api = Api([busy(status, "1")])
    with api.client() as http:
        http.request(method, "/x")
    assert len(api.sent) == attempts


def test_a_renewal_and_patience_go_together() -> None:
    """A request may be throttled, refused and throttled again, and succeeds all the same."""
    broker = CountingBroker()
    api = Api([busy(after="1"), refused(), busy(after="2")])
    with api.client(broker) as http:
        assert http.get("/x").status_code == 200
    assert api.waits == [1.0, 2.0]
    assert broker.asked == [None, 1]


def test_an_async_client_does_the_same() -> None:
    """Renewal, patience and closing are those of the other client."""
    broker = CountingBroker()
    api = Api([busy(after="1"), refused(), busy()])

    async def work() -> int:
        async with api.async_client(broker) as http:
            return (await http.get("/x")).status_code

    assert asyncio.run(work()) == 200
    assert api.waits == [1.0, 1.0]
    assert api.closed == 4
    assert broker.asked == [None, 1]


def test_a_connection_is_used_again_after_a_refusal(
    provider: FakeProvider, connection: Connection
) -> None:
    """The answer that is thrown away is read to its end, so that no new connection is needed."""
    opened = []

    def note(name: str, info: dict[str, Any]) -> None:
        if name == "connection.connect_tcp.complete":
            opened.append(name)

    provider.refuse("/me")
    with connection.client() as http:
        assert http.get("/me", extensions={"trace": note}).status_code == 200
    assert len(opened) == 1


def test_a_read_only_client_changes_nothing(provider: FakeProvider, broker: ProviderBroker) -> None:
    """Whatever could change something is refused before it is sent, also when a hook makes it."""
    connection = get_connection("fake", read_only=True)
    with connection.client() as http:
        for method in ("GET", "HEAD", "OPTIONS"):
            assert http.request(method, "/me").status_code == 200
        for method in ("POST", "PUT", "PATCH", "DELETE", "post", "TRACE", "MERGE"):
            with pytest.raises(ConnectionRequestError, match="read-only"):
                http.request(method, "/me")

    def make_it_a_post(request: httpx.Request) -> None:
        request.method = "POST"

    with (
        connection.client(event_hooks={"request": [make_it_a_post]}) as http,
        pytest.raises(ConnectionRequestError),
    ):
        http.get("/me")

    async def work() -> None:
        async with connection.async_client() as http:
            await http.post("/me")

    with pytest.raises(ConnectionRequestError):
        asyncio.run(work())
    assert {request.method for request in provider.requests} == {"GET", "HEAD", "OPTIONS"}


@pytest.mark.parametrize(
    ("path", "url"),
    [
        ("/customers", "https://api.example.com/v1/customers"),
        ("customers", "https://api.example.com/v1/customers"),
        ("/a b?x=1&y=%2F", "https://api.example.com/v1/a%20b?x=1&y=%2F"),
        ("", "https://api.example.com/v1/"),
        ("https://api.example.com/other", "https://api.example.com/other"),
        ("https://API.example.com:443/other", "https://api.example.com/other"),
    ],
)
def test_addresses_are_relative_to_the_api(path: str, url: str) -> None:
    """The first request and later ones go to the same place, with the right host."""
    api = Api([])
    with api.client() as http:
        first, second = http.get(path), http.get(path)
    assert str(first.request.url) == str(second.request.url) == url
    assert [request.headers["Host"] for request, _ in api.sent] == ["api.example.com"] * 2


def test_an_address_that_was_given_wins() -> None:
    """`base_url` stands in for the declaration's, and the token goes there and nowhere else."""
    api = Api([])
    with api.client(base_url="https://other.example.com") as http:
        http.get("/x")
        with pytest.raises(ConnectionRequestError):
            http.get(f"{BASE}/x")
    assert [str(request.url) for request, _ in api.sent] == ["https://other.example.com/x"]


def test_without_an_address_nothing_is_sent() -> None:
    """Where nobody said where the API is, no address is taken, and the error says what to do."""
    broker = CountingBroker()
    broker.access_now = replace(broker.access_now, base_url=None)
    api = Api([])
    with api.client(broker) as http:
        for url in ("/x", BASE):
            with pytest.raises(ConnectionRequestError, match="api_base_url"):
                http.get(url)
    assert api.sent == []


def test_a_token_of_another_place_is_not_sent_to_the_first() -> None:
    """When the connection moves, a request for the old place goes without the new token."""
    broker = CountingBroker()
    api = Api([refused()])
    with api.client(broker) as http:

        def moves() -> None:
            broker.access_now = replace(broker.access_now, base_url="https://moved.example.com")

        http.get("/first-refused-later-not", extensions={})
        broker.meanwhile = moves
        api.answers.append(refused())
        http.get("/x")
    old = [request for request, _ in api.sent if request.url.host == "api.example.com"]
    assert "Authorization" not in old[-1].headers
    assert len(api.sent) == 4


@pytest.mark.parametrize("name", ["auth", "base_url", "mounts"])
def test_what_would_go_past_the_connection_is_no_option(name: str) -> None:
    """An option that would replace the token, its place or the way is refused by name."""
    connection = get_connection("it")
    for make in (connection.client, connection.async_client):
        with pytest.raises(ConnectionRequestError, match=name):
            make(**{name: None})


def test_options_of_httpx_reach_it(provider: FakeProvider, connection: Connection) -> None:
    """Options of the client and of the transport below it work as in httpx."""
    seen = []
    with connection.client(
        headers={"User-Agent": "mine"}, params={"a": "b"}, timeout=3.0, http1=True, verify=True
    ) as http:
        http.get("/me", extensions={})
        assert http.timeout == httpx.Timeout(3.0)
    assert provider.requests[0].query == {"a": "b"}
    assert provider.requests[0].headers["user-agent"] == "mine"

    def answer(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        return httpx.Response(204)

    with connection.client(transport=httpx.MockTransport(answer)) as http:
        assert http.get("/me").status_code == 204
        assert http.timeout == httpx.Timeout(connect=10.0, read=60.0, write=60.0, pool=60.0)
    assert seen[0].headers["Authorization"].startswith("Bearer ")
    assert seen[0].headers["User-Agent"] == "segmentstream-pipeline"


def test_proxies_of_the_surroundings_are_not_used(
    connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Variables that name a proxy or certificates change nothing; the option does."""
    monkeypatch.setenv("SSL_CERT_FILE", "/nowhere/ca.pem")
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("NO_PROXY", "")
    with connection.client() as http:
        assert http.get("/me").status_code == 200
    with (
        connection.client(proxy="http://127.0.0.1:9") as http,
        pytest.raises(httpx.ConnectError),
    ):
        http.get("/me")


@pytest.mark.parametrize(
    "url",
    [
        "http://api.example.com",
        "https://user:hunter2@api.example.com",
        "api.example.com",
        "https://api.example.com?a=b",
        "https://api.example.com#a",
        "ftp://api.example.com",
        "https://api.example.com\n",
    ],
)
def test_a_base_url_that_cannot_be_one_is_refused(url: str) -> None:
    """An address that would show the token, or is none, is refused at once and not repeated."""
    with pytest.raises(ConnectionRequestError, match="base_url") as caught:
        get_connection("it", base_url=url)
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("key", ["", "It", "../it", "a" * 65, "it\n"])
def test_a_key_that_cannot_be_one_is_refused(key: str) -> None:
    """A key goes into an address; what no declaration can have is refused at once."""
    with pytest.raises(ConnectionRequestError, match="key"):
        get_connection(key)


def test_no_token_is_an_error_of_ours() -> None:
    """The broker's error reaches the caller as it is, and nothing was sent."""
    broker = CountingBroker(fails=ConnectionAccessError("No token.", "Connect it."))
    with using(broker), get_connection("it").client() as http:
        with pytest.raises(ConnectionAccessError, match="No token"):
            http.get("/x")
        with pytest.raises(ConnectionAccessError, match="No token"):
            _ = get_connection("it").metadata
