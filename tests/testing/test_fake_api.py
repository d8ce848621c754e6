from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from segmentstream.testing import FakeProvider, ProviderAnswer, ProviderRequest
from testing import flows


@pytest.fixture
def provider() -> Iterator[FakeProvider]:
    with FakeProvider() as running:
        yield running


@pytest.fixture
def http(provider: FakeProvider) -> Iterator[httpx.Client]:
    """A client of the API with a token that lives."""
    token = provider.issue_tokens()["access_token"]
    with httpx.Client(
        base_url=f"{provider.url}/api",
        headers={"Authorization": f"Bearer {token}"},
        trust_env=False,
    ) as client:
        yield client


def test_a_document_is_served_to_who_has_a_token(provider: FakeProvider) -> None:
    """Without a live token the API answers 401 and says why, whatever the path."""
    provider.serve("/me", {"id": 1})
    with flows.browser(provider) as client:
        for headers in (
            {},
            {"Authorization": "Bearer unknown"},
            {"Authorization": provider.issue_tokens()["access_token"]},
            {"Authorization": f"Bearer {provider.issue_tokens()['refresh_token']}"},
        ):
            answer = client.get("/api/me", headers=headers)
            assert answer.status_code == 401
            assert "invalid_token" in answer.headers["WWW-Authenticate"]
        assert client.get("/api/nothing").status_code == 401


def test_an_unknown_path_is_not_found(provider: FakeProvider, http: httpx.Client) -> None:
    """What nobody has set is 404, below /api and beside it."""
    assert http.get("/nothing").status_code == 404
    assert http.get(provider.url).status_code == 404


def test_a_function_sees_the_request_and_chooses_the_answer(
    provider: FakeProvider, http: httpx.Client
) -> None:
    """A path can be answered by a function, with a document or with all of an answer."""

    def orders(request: ProviderRequest) -> object:
        if request.method == "POST":
            return ProviderAnswer(
                status=201, document=request.json() | {"id": 7}, headers={"X-Seen": "yes"}
            )
        return {"status": request.query["status"], "language": request.headers["accept-language"]}

    provider.serve("/orders", orders)

    made = http.post("/orders", json={"name": "ä"})
    assert (made.status_code, made.headers["X-Seen"]) == (201, "yes")
    assert made.json() == {"name": "ä", "id": 7}
    found = http.get("/orders", params={"status": "open"}, headers={"Accept-Language": "de"})
    assert found.json() == {"status": "open", "language": "de"}


def test_bytes_and_text_are_sent_as_they_are(provider: FakeProvider, http: httpx.Client) -> None:
    """An API that answers with a file can be played too, and one that answers nothing."""
    provider.serve("/file", lambda _: ProviderAnswer(document=b"a,b", media_type="text/csv"))
    provider.serve("/text", lambda _: ProviderAnswer(document="a;b", media_type="text/csv"))
    provider.serve("/gone", lambda _: ProviderAnswer(status=204))

    assert http.get("/file").content == b"a,b"
    assert http.get("/text").text == "a;b"
    assert http.delete("/gone").content == b""
    assert http.head("/file").content == b""


def test_a_body_may_come_in_chunks(provider: FakeProvider, http: httpx.Client) -> None:
    """A body that is streamed arrives whole, and the connection can be used again."""
    provider.serve("/upload", lambda request: {"size": len(request.body)})

    for _ in range(2):
        assert http.post("/upload", content=iter([b"a" * 70_000, b"b"])).json() == {"size": 70_001}


def test_a_function_that_fails_is_seen(
    provider: FakeProvider, http: httpx.Client, capfd: pytest.CaptureFixture[str]
) -> None:
    """A fault in the test's own function is a 500, and its traceback is printed."""
    provider.serve("/broken", lambda request: request.query["missing"])

    assert http.get("/broken").status_code == 500
    assert "KeyError: 'missing'" in capfd.readouterr().err


def test_troubles_come_first_and_once(provider: FakeProvider, http: httpx.Client) -> None:
    """Throttling and refusals are answered as often as asked for, in order, then the document."""
    provider.serve("/me", {"id": 1})
    provider.throttle("/me", times=2, retry_after=3)
    provider.throttle("/me")
    provider.refuse("/me")
    provider.refuse("/me", status=503)

    answers = [http.get("/me") for _ in range(6)]
    assert [answer.status_code for answer in answers] == [429, 429, 429, 401, 503, 200]
    assert [answer.headers.get("Retry-After") for answer in answers[:3]] == ["3", "3", None]


def test_a_path_can_lead_elsewhere(provider: FakeProvider, http: httpx.Client) -> None:
    """A redirect has the status and the address that were set."""
    provider.redirect("/old", "https://elsewhere.example/new", status=307)

    answer = http.get("/old")
    assert answer.status_code == 307
    assert answer.headers["Location"] == "https://elsewhere.example/new"


def test_pages_lead_from_one_to_the_next(provider: FakeProvider, http: httpx.Client) -> None:
    """Each page names the next in its body and as a link, and the last names none."""
    provider.serve_pages("/orders", [[1, 2], [3], []])

    items, address = [], "/orders"
    while address:
        page = http.get(address)
        items += page.json()["items"]
        assert page.links.get("next", {}).get("url") == page.json()["next"]
        address = page.json()["next"]
    assert items == [1, 2, 3]
    assert http.get("/orders", params={"page": "4"}).status_code == 404
    assert http.get("/orders", params={"page": "x"}).status_code == 404


def test_the_token_may_stand_in_another_header() -> None:
    """An API with a header and a scheme of its own is played with both."""
    with FakeProvider(token_header="X-Token", token_scheme="") as provider:
        provider.serve("/me", {"id": 1})
        token = provider.issue_tokens()["access_token"]
        with flows.browser(provider) as client:
            assert client.get("/api/me", headers={"X-Token": token}).json() == {"id": 1}
        assert flows.get(provider, "/me", token).status_code == 401
        assert "x-token" not in provider.requests[0].headers


def test_requests_are_noted_without_tokens(provider: FakeProvider) -> None:
    """The log says what was asked and answered; no repr, header or body in it holds a token."""
    provider.serve("/me", {"id": 1})
    tokens = provider.issue_tokens()
    flows.get(provider, "/me?a=b", tokens["access_token"])
    renewed = flows.refresh(provider, tokens["refresh_token"]).json()
    flows.ask(provider)

    seen = provider.requests
    assert [(one.method, one.path, one.status) for one in seen] == [
        ("GET", "/api/me", 200),
        ("POST", "/token", 200),
        ("GET", "/authorize", 200),
    ]
    assert seen[0].query == {"a": "b"}
    secrets = {*tokens.values(), *renewed.values()} - {"Bearer", 3600}
    everything = f"{seen!r}{[(one.headers, one.body) for one in seen]!r}"
    assert not [secret for secret in secrets if str(secret) in everything]
    assert flows.CHALLENGE not in repr(seen)


def test_many_clients_are_answered_at_once(provider: FakeProvider) -> None:
    """Twenty requests can be under way together: each waits for all of the others."""
    barrier = threading.Barrier(20)
    provider.serve("/together", lambda _: barrier.wait(30) * 0)
    token = provider.issue_tokens()["access_token"]
    with ThreadPoolExecutor(20) as pool:
        answers = list(pool.map(lambda _: flows.get(provider, "/together", token), range(20)))
    assert [answer.json() for answer in answers] == [0] * 20


def test_the_end_of_the_block_ends_connections() -> None:
    """After the block nothing answers, also for who has kept a connection open."""
    with httpx.Client(trust_env=False) as client:
        with FakeProvider() as provider:
            assert client.get(provider.url).status_code == 404
        with pytest.raises(httpx.TransportError):
            client.get(provider.url)


def test_importing_the_package_loads_no_library() -> None:
    """Users' tests start fast: nothing but the standard library and ourselves is loaded."""
    code = (
        "import sys; before = set(sys.modules); import segmentstream.testing\n"
        "new = {name.partition('.')[0] for name in set(sys.modules) - before}\n"
        "print(*sorted(new - sys.stdlib_module_names))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.split() == ["segmentstream"]
