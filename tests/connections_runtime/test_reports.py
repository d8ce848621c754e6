"""Public bug reports about other OAuth clients, tried on this service; the number is that of the list.

| No | Report | Here |
|---|---|---|
| 1 | golang/oauth2#441 | tested |
| 2 | oauthlib/oauthlib#267 | tested |
| 3 | ramosbugs/oauth2-rs#269, better-auth/better-auth#9758 | tested |
| 4 | oauthlib/oauthlib#888 | tested |
| 5 | OpenFn/lightning#3363 | tested |
| 6 | ericdude4/shopifex#45 | tested |
| 7 | requests/requests-oauthlib#509 | tested |
| 8 | authlib/authlib#628, #629, requests/requests-oauthlib#568 | tested for the default |
| 9 | NangoHQ/nango#748 | tested in `test_renewal_rules.py` |
| 10 | HQBase/hqbase#41 | tested here for a caller that keeps tokens, in `test_renewal_races.py` across processes |
| 11 | airbytehq/airbyte#82783 | tested in `test_renewal_races.py` |
| 12 | n8n-io/n8n#12742 | tested |
| 13 | xorbitsai/xagent#1544 | tested |
| 14 | kurrent-io/kcap-cli#946 | tested here, and with a replay window in `test_renewal_rules.py` |
| 15 | NangoHQ/nango#5505 | tested in `test_renewal_rules.py` |
| 16 | UsefulSoftwareCo/executor#2087 | tested |
| 17 | trycompai/comp#3229 | tested for the reader of answers, and in `test_authorizing.py` up to the client |
| 18 | kentcdodds/kody#711 | tested |
| 19 | adcontextprotocol/adcp-client#2427 | tested |
| 20 | modelcontextprotocol/typescript-sdk#2408 | tested |
| 21 | supabase/auth#2340 | tested: the state is the caller's, and nothing is added to it |
| 22 | streamlit/streamlit#15589, Foundry376/Mailspring#2792 | tested for the exchange, in `test_authorizing.py` and in `tests/cli`, with a real browser too |
| 23 | better-auth/better-auth#11278 | tested |
| 24 | agentjido/req_llm#811 | tested in `credentials/test_sqlite.py` |
| 25 | anthropics/claude-code#76561 | tested in `credentials/test_sqlite.py` |
| 26 | mnfst/llm-gateway#2818 | tested in `credentials/test_keys.py` |
"""

from __future__ import annotations

import asyncio
import gzip
import json
from base64 import b64decode
from typing import Any
from urllib.parse import unquote_plus

import httpx
import pytest

from connections_runtime.conftest import Serve
from connections_runtime.provider import (
    ACCESS,
    GOOD,
    REFRESH,
    Conversation,
    Provider,
    granted,
    response,
)
from connections_runtime.running import CLIENT_ID, CLIENT_SECRET, EXCHANGE, address, error_code
from segmentstream_connections_runtime.errors import Code, ServiceError
from segmentstream_connections_runtime.tokens import Rules, read_answer

REFRESHES = address("it", "token/refresh")
EXCHANGES = address("it", "token/exchange")


def of_both(serve: Serve, url: str, **declared: Any) -> list[dict[str, Any]]:
    """Gives what an exchange and a refresh are answered, both of which have to succeed."""
    answers = [serve(url, **declared).exchange(), serve(url, **declared).refresh()]
    assert [answer.status_code for answer in answers] == [200, 200]
    return [answer.json() for answer in answers]


def test_report_01_an_error_beside_200_is_a_refusal(provider: Provider, serve: Serve) -> None:
    """GitHub's answer to a wrong code is no success, and its code is told to the log alone."""
    url = provider.replies(response({"error": "bad_verification_code", "error_description": "x"}))
    assert error_code(serve(url).exchange()) == "oauth_provider_rejected"
    with pytest.raises(ServiceError) as caught:
        read_answer(
            200,
            {},
            b'{"error":"bad_verification_code"}',
            grant="authorization_code",
            rules=Rules(),
        )
    assert caught.value.provider_code == "bad_verification_code"


def test_report_02_a_form_is_a_token_answer(provider: Provider, serve: Serve) -> None:
    """A form with `expires` in place of `expires_in` connects, and the lifetime is known."""
    body = b"access_token=A&refresh_token=R&expires=5184000"
    for media_type in ("application/x-www-form-urlencoded", "text/plain", ""):
        url = provider.replies(response(body, media_type=media_type))
        for told in of_both(serve, url):
            assert (told["accessToken"], told["expiresIn"]) == ("A", 5184000)


def test_report_03_scopes_may_be_a_list(provider: Provider, serve: Serve) -> None:
    """A list of scopes is read on an exchange and on a refresh alike."""
    url = provider.replies(response(granted(scope=["read", "write"])))
    assert [told["scopes"] for told in of_both(serve, url)] == [["read", "write"]] * 2


def test_report_04_more_scopes_than_asked_for_are_no_error(
    provider: Provider, serve: Serve
) -> None:
    """What a provider grants on top is listed."""
    url = provider.replies(response(granted(scope="read write admin")))
    for told in of_both(serve, url):
        assert told["scopes"] == ["read", "write", "admin"]
        assert told["missingScopes"] == []


def test_report_05_offline_access_is_proved_by_a_refresh_token(
    provider: Provider, serve: Serve
) -> None:
    """Microsoft never names offline_access; without a refresh token it is missing indeed."""
    scopes = ["offline_access", "User.Read"]
    url = provider.replies(response(granted(scope="User.Read")))
    for told in of_both(serve, url, scopes=scopes):
        assert (told["scopes"], told["missingScopes"]) == (["User.Read"], [])
    url = provider.replies(response(granted(scope="User.Read", refresh_token=None)))
    answer = serve(url, scopes=scopes, require_refresh_token=False).exchange()
    assert answer.json()["missingScopes"] == ["offline_access"]


def test_report_06_fewer_scopes_than_asked_for_cost_no_token(
    provider: Provider, serve: Serve
) -> None:
    """Shopify drops the reading that a writing implies; the tokens stay, what is missing is told."""
    url = provider.replies(response(granted(scope="write_products")))
    for told in of_both(serve, url, scopes=["read_products", "write_products"]):
        assert told["accessToken"] == ACCESS
        assert told["missingScopes"] == ["read_products"]


def test_report_07_an_expiry_of_zero_and_no_scope_connect(provider: Provider, serve: Serve) -> None:
    """A lifetime of 0 has passed unless the declaration says that it means never."""
    body = granted(expires_in=0, scope=None)
    for told in of_both(serve, provider.replies(response(body))):
        assert (told["expiresIn"], told["scopes"]) == (0, ["read", "write"])
    never = Rules(zero_expiry_means_never=True)
    raw = json.dumps(body).encode()
    assert read_answer(200, {}, raw, grant="refresh_token", rules=never).expires_in is None


def test_report_08_basic_credentials_are_encoded(provider: Provider, serve: Serve) -> None:
    """A strict server, which decodes both halves as a form (RFC 6749 2.3.1), gets the secret."""

    def strict(conversation: Conversation) -> None:
        kind, _, encoded = conversation.request.headers["authorization"].partition(" ")
        name, _, secret = b64decode(encoded).decode("ascii").partition(":")
        is_right = (kind, unquote_plus(name), unquote_plus(secret)) == (
            "Basic",
            CLIENT_ID,
            CLIENT_SECRET,
        )
        refusal = response({"error": "invalid_client"}, status="401 Unauthorized")
        conversation.send(GOOD if is_right else refusal)

    of_both(serve, provider.acts(strict), client_authentication="client_secret_basic")
    for request in provider.requests:
        assert not {"client_id", "client_secret"} & set(request.form)


def test_report_08_body_credentials_are_encoded(provider: Provider, serve: Serve) -> None:
    """In the body the secret arrives as it is, and the header stays away."""
    of_both(serve, provider.url("good"), client_authentication="client_secret_post")
    for request in provider.requests:
        assert request.form["client_id"] == CLIENT_ID
        assert request.form["client_secret"] == CLIENT_SECRET
        assert "authorization" not in request.headers


class Rotating:
    """Is a strict provider: a refresh token works once, and a second use ends the grant."""

    def __init__(self) -> None:
        self.valid = "r0"
        self.is_revoked = False

    def __call__(self, conversation: Conversation) -> None:
        conversation.provider.gate.wait(30)
        if self.is_revoked or conversation.request.form["refresh_token"] != self.valid:
            self.is_revoked = True
            body = response({"error": "invalid_grant"}, status="400 Bad Request")
        else:
            self.valid = f"r{int(self.valid[1:]) + 1}"
            body = response(granted(access_token=f"for-{self.valid}", refresh_token=self.valid))
        conversation.send(body)


def test_report_10_parallel_refreshes_do_not_revoke_the_grant(
    provider: Provider, serve: Serve
) -> None:
    """Twenty calls in one process are one request; the pair that comes back is alive."""
    rotating = Rotating()
    service = serve(provider.acts(rotating))

    async def work(client: httpx.AsyncClient) -> tuple[list[httpx.Response], httpx.Response]:
        calls = [
            asyncio.create_task(client.post(REFRESHES, json={"refreshToken": "r0"}))
            for _ in range(20)
        ]
        await asyncio.to_thread(provider.wait_for_requests, 1)
        provider.gate.set()
        answers = await asyncio.gather(*calls)
        return answers, await client.post(REFRESHES, json={"refreshToken": "r1"})

    answers, next_one = service.run(work)
    assert {answer.json()["refreshToken"] for answer in answers} == {"r1"}
    assert next_one.json()["refreshToken"] == "r2"
    assert not rotating.is_revoked
    assert len(provider.requests) == 2


def test_report_12_a_limit_changes_nothing(provider: Provider, serve: Serve) -> None:
    """After a refusal for too many requests the pair of before is still the one that works."""
    limit = response({}, status="429 Too Many Requests", headers=[("Retry-After", "2")])
    service_url = provider.replies(response(granted(refresh_token="r1")), limit, GOOD)
    first = serve(service_url).refresh()
    limited = serve(service_url).refresh()
    assert first.json()["refreshToken"] == "r1"
    assert (limited.status_code, error_code(limited)) == (429, "oauth_rate_limited")
    assert limited.headers["retry-after"] == "2"
    assert serve(service_url).refresh().status_code == 200


def test_report_13_a_connection_survives_outages(provider: Provider, serve: Serve) -> None:
    """An error of the provider and one of TLS are outages; neither says to authorize again."""
    calls: list[int] = []

    def scenario(conversation: Conversation) -> None:
        calls.append(1)
        if len(calls) == 1:
            conversation.send(response({}, status="500 Internal Server Error"))
        elif len(calls) == 2:
            conversation.socket.unwrap()
            conversation.close()
        else:
            conversation.send(GOOD)

    service = serve(provider.acts(scenario))

    async def work(client: httpx.AsyncClient) -> list[httpx.Response]:
        return [await client.post(REFRESHES, json={"refreshToken": "r"}) for _ in range(3)]

    first, second, third = service.run(work)
    assert error_code(first) == error_code(second) == "oauth_provider_unavailable"
    assert third.json()["accessToken"] == ACCESS


def test_report_14_a_lost_answer_is_not_asked_for_again(provider: Provider, serve: Serve) -> None:
    """When the answer is cut at the deadline nobody knows what became of it: no blind second try."""
    answer = serve(provider.url("hang_after_headers"), seconds=0.3).refresh()
    assert error_code(answer) == "oauth_provider_unavailable"
    provider.wait_until(lambda: provider.hung_up == 1)
    assert len(provider.requests) == 1


def test_report_16_without_pkce_there_is_none(provider: Provider, serve: Serve) -> None:
    """A provider that refuses PKCE sees neither challenge nor verifier, even if the caller has."""
    service = serve(provider.url("good"), pkce=False)
    assert "code_challenge" not in service.start().json()["authorizationUrl"]
    assert serve(provider.url("good"), pkce=False).exchange().status_code == 200
    assert "code_verifier" not in provider.requests[0].form


def test_report_17_declared_fields_reach_the_caller() -> None:
    """The address that a provider gives for its API is handed on where that is declared."""
    body = json.dumps(granted(api_domain="https://acme.example.com")).encode()
    told = read_answer(
        200, {}, body, grant="authorization_code", rules=Rules(metadata_fields=("api_domain",))
    )
    assert told.metadata == {"api_domain": "https://acme.example.com"}
    assert read_answer(200, {}, body, grant="authorization_code", rules=Rules()).metadata == {}


def test_report_18_a_refused_client_is_not_an_unknown_caller(
    provider: Provider, serve: Serve
) -> None:
    """The provider's 401 about the client is our 502: the caller's own session is fine."""
    url = provider.replies(response({"error": "invalid_client"}, status="401 Unauthorized"))
    answer = serve(url, client_authentication="client_secret_basic").exchange()
    assert (answer.status_code, error_code(answer)) == (502, "oauth_client_rejected")
    assert "www-authenticate" not in answer.headers


def test_report_19_a_redirect_to_this_machine_is_not_followed(
    provider: Provider, serve: Serve
) -> None:
    """307 would send code and secret along; the second host sees no request."""
    target = f"http://127.0.0.1:{provider.port}/good"
    url = provider.replies(
        response(b"", status="307 Temporary Redirect", headers=[("Location", target)])
    )
    answer = serve(url).exchange()
    assert error_code(answer) == "oauth_provider_unreadable"
    assert "redirect" in answer.json()["error"]["message"]
    assert len(provider.requests) == 1


def test_report_20_gzip_is_read_where_it_is_declared(provider: Provider, serve: Serve) -> None:
    """With its header a compressed answer is read; without, it is unreadable and not guessed."""
    body = gzip.compress(json.dumps(granted()).encode())
    labelled = provider.replies(response(body, headers=[("Content-Encoding", "gzip")]))
    assert [told["accessToken"] for told in of_both(serve, labelled)] == [ACCESS, ACCESS]
    assert error_code(serve(provider.replies(response(body))).refresh()) == (
        "oauth_provider_unreadable"
    )
    assert {request.headers["accept-encoding"] for request in provider.requests} == {"identity"}


def test_report_21_nothing_is_added_to_a_state(provider: Provider, serve: Serve) -> None:
    """A state is as long as the caller's, whatever the connection is called."""
    key = "k" * 64
    service = serve(provider.url("good"), key=key, name="n" * 80)
    url = httpx.URL(service.start(key, state="s" * 43).json()["authorizationUrl"])
    assert url.params["state"] == "s" * 43
    assert key not in str(url)


def test_report_22_a_callback_that_comes_twice_spends_its_code_once(
    provider: Provider, serve: Serve
) -> None:
    """A prefetch and the real callback, both under way, are one exchange."""
    service = serve(provider.url("gated"))

    async def work(client: httpx.AsyncClient) -> list[httpx.Response]:
        calls = [asyncio.create_task(client.post(EXCHANGES, json=EXCHANGE)) for _ in range(3)]
        await asyncio.to_thread(provider.wait_for_requests, 1)
        provider.gate.set()
        return await asyncio.gather(*calls)

    assert [answer.status_code for answer in service.run(work)] == [200, 200, 200]
    assert len(provider.requests) == 1


@pytest.mark.parametrize(
    "redirect",
    [
        "http://127.0.0.1:5000/callback",
        "http://localhost:5000/callback",
        "https://app.example.com/Callback/?a=%2F&b=c+d",
    ],
)
def test_report_23_the_redirect_address_is_the_same_string_twice(
    redirect: str, provider: Provider, serve: Serve
) -> None:
    """The provider compares byte for byte what it got at the start and at the exchange."""
    started = serve(provider.url("good")).start(redirectUri=redirect).json()["authorizationUrl"]
    serve(provider.url("good")).exchange(redirectUri=redirect)
    assert httpx.URL(started).params["redirect_uri"] == redirect
    assert provider.requests[0].form["redirect_uri"] == redirect


def test_the_old_refresh_token_stays_where_no_new_one_comes(
    provider: Provider, serve: Serve
) -> None:
    """On a refresh absent, null and empty keep the caller's token; a new one takes its place."""
    absent = {k: v for k, v in granted().items() if k != "refresh_token"}
    for body in (absent, granted(refresh_token=None), granted(refresh_token="")):
        told = serve(provider.replies(response(body))).refresh().json()
        assert told["refreshToken"] == "refresh-token-of-the-caller"
    assert serve(provider.url("good")).refresh().json()["refreshToken"] == REFRESH


def test_a_required_refresh_token_is_required_of_a_grant(provider: Provider, serve: Serve) -> None:
    """A code that gives none is a refusal that names the remedy, unless none is required."""
    url = provider.replies(response(granted(refresh_token="")))
    answer = serve(url).exchange()
    assert error_code(answer) == Code.TOKEN_RESPONSE_INVALID.value
    assert "require_refresh_token" in answer.json()["error"]["message"]
    assert serve(url, require_refresh_token=False).exchange().json()["refreshToken"] is None
