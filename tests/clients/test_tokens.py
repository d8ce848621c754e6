"""What becomes of the token on its way: who gets it, how it is renewed, where it never shows."""

from __future__ import annotations

import asyncio
import logging
import pickle
import threading
import traceback
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import httpx
import pytest

from clients.brokers import ProviderBroker
from segmentstream import Connection, ConnectionRequestError, get_connection
from segmentstream._clients.process import using
from segmentstream.testing import FakeProvider


class Elsewhere(ThreadingHTTPServer):
    """Another server, which notes the headers it is sent."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Noting)
        self.seen: list[dict[str, str]] = []
        self.url = f"http://127.0.0.1:{self.server_port}"
        self.leads_to: str | None = None


class _Noting(BaseHTTPRequestHandler):
    server: Elsewhere

    def do_GET(self) -> None:
        self.server.seen.append({name.lower(): value for name, value in self.headers.items()})
        self.send_response(302 if self.server.leads_to else 200)
        if self.server.leads_to:
            self.send_header("Location", self.server.leads_to)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *arguments: Any) -> None: ...


@pytest.fixture
def elsewhere() -> Iterator[Elsewhere]:
    with Elsewhere() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def test_a_request_carries_the_token(connection: Connection, broker: ProviderBroker) -> None:
    """A relative address leads to the API, and the token is asked for once."""
    with connection.client() as http:
        assert http.get("/me").json() == {"method": "GET"}
        assert http.post("me", json={}).json() == {"method": "POST"}
        assert str(http.get("/me").request.url).endswith("/api/me")
        assert http.get(f"{broker.access_now.base_url}/me").status_code == 200
    assert broker.asked == [None]


def test_an_async_request_carries_the_token(connection: Connection, broker: ProviderBroker) -> None:
    """The async client does the same, with and without its block."""

    async def work() -> None:
        async with connection.async_client() as http:
            assert (await http.get("/me")).json() == {"method": "GET"}
        http = connection.async_client()
        assert (await http.get("me")).status_code == 200
        await http.aclose()

    asyncio.run(work())
    assert broker.asked == [None]


def test_twenty_threads_renew_once(
    provider: FakeProvider, connection: Connection, broker: ProviderBroker
) -> None:
    """Twenty requests of twenty clients that all hear 401 at once make one renewal; all succeed."""
    barrier = threading.Barrier(20)
    dead = broker.access_now.access_token

    def orders(request: Any) -> object:
        return {"id": 1}

    provider.serve("/orders", orders)
    with connection.client() as http:
        http.get("/me")
    provider.expire_tokens()

    def one(_: int) -> int:
        with connection.client() as http:
            barrier.wait(30)
            return http.get("/orders").status_code

    with ThreadPoolExecutor(20) as pool:
        assert set(pool.map(one, range(20))) == {200}
    assert broker.asked == [None, 1]
    assert provider.refreshes == 1
    assert broker.access_now.access_token != dead


def test_a_storm_of_tasks_renews_once(
    provider: FakeProvider, connection: Connection, broker: ProviderBroker
) -> None:
    """The same for a hundred tasks of one client; the loop goes on while a token is awaited."""
    ticks = 0

    async def work() -> None:
        nonlocal ticks
        async with connection.async_client() as http:
            await http.get("/me")
            provider.expire_tokens()
            answers = asyncio.gather(*(http.get("/me") for _ in range(100)))
            while not answers.done():
                ticks += 1
                await asyncio.sleep(0)
            assert {answer.status_code for answer in answers.result()} == {200}

    asyncio.run(work())
    assert broker.asked == [None, 1]
    assert provider.refreshes == 1
    assert ticks > 1


def test_a_refusal_that_stays_is_handed_on(
    provider: FakeProvider, connection: Connection, broker: ProviderBroker
) -> None:
    """A request that is refused with a new token too is answered so, and ends the renewing."""
    provider.refuse("/me", times=5)
    with connection.client() as http:
        assert http.get("/me").status_code == 401
        assert len(provider.requests) == 3  # two attempts, one refresh
        for _ in range(3):
            assert http.get("/me").status_code == 401
        assert http.get("/me").status_code == 200
    assert broker.asked == [None, 1]
    assert provider.refreshes == 1


def test_other_statuses_can_mean_a_dead_token(provider: FakeProvider) -> None:
    """What counts as a refusal is declared; by default a 403 is none."""
    provider.serve("/me", {})
    with using(ProviderBroker(provider)), get_connection("fake").client() as http:
        provider.refuse("/me", status=403)
        assert http.get("/me").status_code == 403
    broker = ProviderBroker(provider, refresh_statuses=(401, 403))
    with using(broker), get_connection("fake").client() as http:
        provider.refuse("/me", status=403)
        assert http.get("/me").status_code == 200
    assert broker.asked == [None, 1]


@pytest.mark.parametrize("is_async", [False, True])
def test_a_redirect_never_takes_the_token_elsewhere(
    provider: FakeProvider, connection: Connection, elsewhere: Elsewhere, is_async: bool
) -> None:
    """A redirect to another origin is followed without the token, whatever headers were set."""
    provider.redirect("/away", f"{elsewhere.url}/x")
    options: dict[str, Any] = {
        "follow_redirects": True,
        "headers": {"Authorization": "Basic mine", "X-Own": "kept"},
    }

    async def work() -> httpx.Response:
        async with connection.async_client(**options) as http:
            return await http.get("/away")

    if is_async:
        answer = asyncio.run(work())
    else:
        with connection.client(**options) as http:
            answer = http.get("/away")
    assert answer.status_code == 200
    [seen] = elsewhere.seen
    assert "authorization" not in seen
    assert seen["x-own"] == "kept"


def test_a_header_of_the_providers_own_stays_at_home_too(elsewhere: Elsewhere) -> None:
    """The declared header is kept from other origins like `Authorization`."""
    with FakeProvider(token_header="X-Token", token_scheme="") as provider:
        provider.serve("/me", {})
        provider.redirect("/away", elsewhere.url)
        with (
            using(ProviderBroker(provider, header="X-Token", scheme="")),
            get_connection("fake").client(follow_redirects=True) as http,
        ):
            assert http.get("/me").status_code == 200
            http.get("/away", headers={"X-Token": "own"})
    [seen] = elsewhere.seen
    assert "x-token" not in seen


def test_a_redirect_that_comes_back_gets_the_token_at_home(
    provider: FakeProvider, connection: Connection, elsewhere: Elsewhere
) -> None:
    """The token is bound to the origin: whoever leads back to it changes nothing."""
    provider.redirect("/away", elsewhere.url)
    elsewhere.leads_to = f"{provider.url}/api/me"
    with connection.client(follow_redirects=True) as http:
        assert http.get("/away").json() == {"method": "GET"}
    assert "authorization" not in elsewhere.seen[0]


def test_an_address_elsewhere_is_refused(
    connection: Connection, elsewhere: Elsewhere, provider: FakeProvider
) -> None:
    """A request to another origin is an error before anything is sent, however it is made."""
    port = provider.url.rpartition(":")[2]
    with connection.client() as http:
        for url in (
            f"{elsewhere.url}/x",
            f"http://localhost:{port}/api/me",
            f"https://127.0.0.1:{port}/api/me",
            f"http://127.0.0.1:{port}@{elsewhere.url.removeprefix('http://')}/",
        ):
            with pytest.raises(ConnectionRequestError):
                http.get(url)
        with pytest.raises(ConnectionRequestError):
            http.send(httpx.Request("GET", elsewhere.url))
        provider.redirect("/away", elsewhere.url)
        following = http.get("/away").next_request
        assert following is not None
        with pytest.raises(ConnectionRequestError, match="is for '127.0.0.1' only"):
            http.send(following)
    assert elsewhere.seen == []


def test_a_hook_sees_no_token_and_takes_none_elsewhere(
    connection: Connection, elsewhere: Elsewhere, broker: ProviderBroker
) -> None:
    """A hook sees requests without the token, and one that it redirects goes without it."""
    seen: list[str] = []

    def note(request: httpx.Request) -> None:
        seen.append(repr(dict(request.headers)))
        request.url = httpx.URL(elsewhere.url)

    with connection.client(event_hooks={"request": [note]}) as http:
        assert http.get("/me").status_code == 200
    assert "authorization" not in elsewhere.seen[0]
    assert broker.access_now.access_token not in seen[0]


def test_the_token_shows_nowhere(
    provider: FakeProvider,
    connection: Connection,
    broker: ProviderBroker,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """No log at any level, repr, pickle, response, error or traceback with variables holds it."""
    shown: list[object] = [connection, broker.access_now]
    with caplog.at_level(logging.DEBUG), connection.client() as http:
        answer = http.get("/me")
        shown += [http, answer, answer.request, dict(answer.request.headers), vars(http)]
        shown += [http._transport, pickle.dumps(connection)]
        http.headers["X-Bad"] = "line\nbreak"
        with pytest.raises(httpx.LocalProtocolError) as caught:
            http.get("/me")
    shown += [caught.value, caught.value.request.headers, caught.value.__context__]
    shown += traceback.TracebackException.from_exception(caught.value, capture_locals=True).format()
    shown += [record.getMessage() for record in caplog.records]
    assert f"GET {provider.url}/api/me" in " ".join(map(str, shown))
    # Not in a variable: the variables of this very function are shown too.
    assert [one for one in shown if broker.access_now.access_token in repr(one)] == []


def test_a_connection_is_a_name(broker: ProviderBroker) -> None:
    """It is equal to another of the same name, and its pickle works elsewhere."""
    connection = get_connection("fake", account="second", read_only=True)
    copy = pickle.loads(pickle.dumps(connection))
    assert copy == connection
    assert repr(copy) == (
        "Connection(key='fake', account='second', given_base_url=None, read_only=True)"
    )
    assert broker.asked == []


def test_what_is_known_of_a_connection(provider: FakeProvider) -> None:
    """Token, scopes, metadata and address can be asked for without a client."""
    broker = ProviderBroker(provider, scopes=("read",), metadata={"team": "a"})
    with using(broker):
        connection = get_connection("fake")
        assert connection.access_token() == broker.access_now.access_token
        assert connection.scopes == ("read",)
        assert connection.metadata == {"team": "a"}
        assert connection.base_url == f"{provider.url}/api"
    assert broker.asked == [None]
    assert broker.is_closed
