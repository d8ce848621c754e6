from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest

from segmentstream.testing import FakeProvider
from segmentstream.testing._fake import CLIENT_ID, CLIENT_SECRET
from testing import flows


@pytest.fixture
def provider() -> Iterator[FakeProvider]:
    with FakeProvider(consent="automatic") as running:
        running.serve("/me", {"name": "me"})
        yield running


@pytest.fixture
def code(provider: FakeProvider) -> str:
    return flows.sent_back(flows.ask(provider))["code"]


def test_a_login_gives_tokens_that_open_the_api(provider: FakeProvider, code: str) -> None:
    """A code and its verifier become tokens, which the API takes."""
    answer = flows.exchange(provider, code)
    tokens = answer.json()

    assert (tokens["token_type"], tokens["expires_in"]) == ("Bearer", 3600)
    assert tokens["scope"] == "read offline_access"
    assert answer.headers["Cache-Control"] == "no-store"
    assert flows.get(provider, "/me", tokens["access_token"]).json() == {"name": "me"}


def test_state_and_issuer_come_back_with_the_code(provider: FakeProvider) -> None:
    """The callback brings the state as it was sent, and the issuer (RFC 9207)."""
    back = flows.sent_back(flows.ask(provider))

    assert back["state"] == "state of the client"
    assert back["iss"] == provider.url


def test_a_person_is_asked_and_may_say_no() -> None:
    """By default nobody is connected before a button is pressed, and each button does its part."""
    with FakeProvider() as provider:
        page = flows.ask(provider)
        assert page.status_code == 200
        assert "offline_access" in page.text

        assert flows.sent_back(flows.decide(provider, page, "deny"))["error"] == "access_denied"
        allowed = flows.sent_back(flows.decide(provider, flows.ask(provider), "allow"))
        assert flows.exchange(provider, allowed["code"]).status_code == 200
        assert flows.decide(provider, page, "allow").status_code == 400


@pytest.mark.parametrize(
    "change",
    [
        {"client_id": "another"},
        {"redirect_uri": "https://attacker.example/callback"},
        {"redirect_uri": "http://127.0.0.1@attacker.example/callback"},
        {"redirect_uri": "http://attacker.example@127.0.0.1:8765/callback"},
        {"redirect_uri": "http://127.0.0.1:8765/callback#fragment"},
        {"redirect_uri": "http://["},
        {"redirect_uri": None},
    ],
)
def test_nobody_is_sent_to_an_address_that_is_not_registered(
    provider: FakeProvider, change: dict[str, str | None]
) -> None:
    """With a wrong client or address the person sees a page, and no redirect happens."""
    answer = flows.ask(provider, **change)

    assert answer.status_code == 400
    assert "Location" not in answer.headers


def test_an_address_that_is_registered_is_sent_to() -> None:
    """An https address counts when the provider was made with it."""
    address = "https://app.example.com/callback?of=it"
    with FakeProvider(consent="automatic", redirect_uris=[address]) as provider:
        answer = flows.ask(provider, redirect_uri=address)
    assert answer.headers["Location"].startswith(f"{address}&code=")


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"response_type": "token"}, "unsupported_response_type"),
        ({"code_challenge": None}, "invalid_request"),
        ({"code_challenge": "short"}, "invalid_request"),
        ({"code_challenge_method": "plain"}, "invalid_request"),
        ({"code_challenge_method": None}, "invalid_request"),
    ],
)
def test_a_request_without_pkce_goes_back_as_an_error(
    provider: FakeProvider, change: dict[str, str | None], error: str
) -> None:
    """What is wrong with a request of a known client is said to the client, with its state."""
    back = flows.sent_back(flows.ask(provider, **change))

    assert (back["error"], back["state"]) == (error, "state of the client")
    assert "code" not in back


@pytest.mark.parametrize(
    ("change", "status", "error"),
    [
        ({"code": "another"}, 400, "invalid_grant"),
        ({"redirect_uri": "http://127.0.0.1:8766/callback"}, 400, "invalid_grant"),
        ({"code_verifier": "x" * 43}, 400, "invalid_grant"),
        ({"code_verifier": None}, 400, "invalid_request"),
        ({"grant_type": "password"}, 400, "unsupported_grant_type"),
        ({"client_secret": "wrong"}, 401, "invalid_client"),
        ({"client_secret": None}, 401, "invalid_client"),
    ],
)
def test_an_exchange_that_does_not_fit_is_refused(
    provider: FakeProvider, code: str, change: dict[str, str | None], status: int, error: str
) -> None:
    """Each part of the request is checked, and the error is the one of RFC 6749 section 5.2."""
    answer = flows.exchange(provider, code, **change)

    assert (answer.status_code, answer.json()["error"]) == (status, error)


def test_a_code_is_old_after_a_minute() -> None:
    """A code that was not used in time is refused."""
    now = [0.0]
    with FakeProvider(consent="automatic", clock=lambda: now[0]) as provider:
        code = flows.sent_back(flows.ask(provider))["code"]
        now[0] = 60.0
        assert flows.exchange(provider, code).json()["error"] == "invalid_grant"


def test_a_code_that_comes_again_ends_the_grant(provider: FakeProvider, code: str) -> None:
    """The second use of a code is refused, and the tokens of the first are dead."""
    tokens = flows.exchange(provider, code).json()

    assert flows.exchange(provider, code).json()["error"] == "invalid_grant"
    assert flows.get(provider, "/me", tokens["access_token"]).status_code == 401
    assert flows.refresh(provider, tokens["refresh_token"]).status_code == 400


def test_a_refresh_token_that_comes_again_ends_the_family(provider: FakeProvider) -> None:
    """Refresh tokens rotate; an old one kills its successors too."""
    first = provider.issue_tokens()
    second = flows.refresh(provider, first["refresh_token"]).json()
    third = flows.refresh(provider, second["refresh_token"]).json()
    assert len({tokens["access_token"] for tokens in (first, second, third)}) == 3
    assert flows.get(provider, "/me", third["access_token"]).status_code == 200

    assert flows.refresh(provider, first["refresh_token"]).json()["error"] == "invalid_grant"
    assert flows.refresh(provider, third["refresh_token"]).json()["error"] == "invalid_grant"
    assert flows.get(provider, "/me", third["access_token"]).status_code == 401
    assert provider.refreshes == 4


def test_a_client_may_use_basic_but_not_both(provider: FakeProvider, code: str) -> None:
    """The secret is taken from a form-encoded Basic header; given twice it is refused."""
    form = {
        "grant_type": "authorization_code",
        "code": code,
        "redirect_uri": flows.REDIRECT,
        "code_verifier": flows.VERIFIER,
    }
    with flows.browser(provider) as client:
        twice = client.post(
            "/token",
            data={**form, "client_id": CLIENT_ID, "client_secret": CLIENT_SECRET},
            auth=(CLIENT_ID, CLIENT_SECRET),
        )
        wrong = client.post("/token", data=form, auth=(CLIENT_ID, "wrong"))
        garbled = client.post("/token", data=form, headers={"Authorization": "Basic $"})
        right = client.post("/token", data=form, auth=(CLIENT_ID, CLIENT_SECRET))

    assert twice.json()["error"] == "invalid_request"
    assert wrong.status_code == garbled.status_code == 401
    assert wrong.headers["WWW-Authenticate"].startswith("Basic")
    assert right.status_code == 200


def test_the_token_endpoint_takes_forms_only(provider: FakeProvider) -> None:
    """JSON, a query or a parameter that comes twice is refused."""
    with flows.browser(provider) as client:
        answers = [
            client.post("/token", json={"grant_type": "refresh_token"}),
            client.get("/token", params={"grant_type": "refresh_token"}),
            client.post(
                "/token",
                content="grant_type=refresh_token&grant_type=refresh_token",
                headers={"Content-Type": "application/x-www-form-urlencoded"},
            ),
        ]
    assert [answer.json()["error"] for answer in answers] == ["invalid_request"] * 3


def test_revoking_a_token_ends_its_grant(provider: FakeProvider) -> None:
    """Revocation takes either token, and one it does not know too; a stranger it refuses."""
    tokens = provider.issue_tokens()
    form = {"client_id": CLIENT_ID, "client_secret": CLIENT_SECRET}

    def revoke(token: str, **changes: str) -> httpx.Response:
        with flows.browser(provider) as client:
            return client.post("/revoke", data={**form, "token": token, **changes})

    assert revoke(tokens["refresh_token"], client_secret="wrong").status_code == 401
    assert flows.get(provider, "/me", tokens["access_token"]).status_code == 200
    assert revoke("unknown").status_code == 200
    assert revoke(tokens["refresh_token"]).status_code == 200
    assert flows.get(provider, "/me", tokens["access_token"]).status_code == 401
    assert flows.refresh(provider, tokens["refresh_token"]).status_code == 400


def test_tokens_expire_by_the_clock() -> None:
    """A token lives as long as the answer said, and a refresh gives one that lives again."""
    now = [1000.0]
    with FakeProvider(lifetime_seconds=10, clock=lambda: now[0]) as provider:
        provider.serve("/me", {})
        tokens = provider.issue_tokens()
        assert tokens["expires_in"] == 10
        now[0] = 1009.9
        assert flows.get(provider, "/me", tokens["access_token"]).status_code == 200
        now[0] = 1010.0
        assert flows.get(provider, "/me", tokens["access_token"]).status_code == 401
        renewed = flows.refresh(provider, tokens["refresh_token"]).json()
        assert flows.get(provider, "/me", renewed["access_token"]).status_code == 200


def test_tokens_can_be_ended_at_any_time(provider: FakeProvider) -> None:
    """Expired tokens can be refreshed; revoked grants cannot."""
    tokens = provider.issue_tokens()
    provider.expire_tokens()
    assert flows.get(provider, "/me", tokens["access_token"]).status_code == 401
    renewed = flows.refresh(provider, tokens["refresh_token"]).json()
    assert flows.get(provider, "/me", renewed["access_token"]).status_code == 200

    provider.revoke_grants()
    assert flows.get(provider, "/me", renewed["access_token"]).status_code == 401
    assert flows.refresh(provider, renewed["refresh_token"]).status_code == 400


def test_answers_can_hold_what_a_provider_adds() -> None:
    """Fields such as instance_url come with the tokens."""
    fields = {"instance_url": "https://eu.example.com"}
    with FakeProvider(consent="automatic", token_fields=fields) as provider:
        tokens = flows.exchange(provider, flows.sent_back(flows.ask(provider))["code"]).json()
    assert tokens["instance_url"] == "https://eu.example.com"
