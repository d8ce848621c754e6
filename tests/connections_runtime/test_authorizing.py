"""How an authorization is begun, completed and ended, against a real TLS server."""

from __future__ import annotations

import asyncio
import base64
import hashlib
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from connections_runtime.authority import Authority
from connections_runtime.keeping import START, Keeping, keeping
from connections_runtime.provider import ACCESS, Conversation, Provider, granted, response
from connections_runtime.running import REDIRECT, connection
from segmentstream_connections_runtime.authorizing import ATTEMPT_SECONDS, INCOMPLETE, Started
from segmentstream_connections_runtime.credentials.records import State
from segmentstream_connections_runtime.durable import DurableConnections, Status
from segmentstream_connections_runtime.errors import Code, ServiceError

GOOD = response(granted())
LOOPBACK = "http://127.0.0.1:53682/callback"

type Made = Callable[..., Keeping]


@pytest.fixture
def made(tmp_path: Path, authority: Authority) -> Made:
    """Makes what keeps credentials, for a connection at a token address."""

    def make(token_url: str, **changes: Any) -> Keeping:
        return keeping(tmp_path, authority.ca_file, token_url, **changes)

    return make


async def begin(durable: DurableConnections, **changes: Any) -> Started:
    asked: dict[str, Any] = {"account": "default", "redirect_uri": REDIRECT, "variables": {}}
    return await durable.start("it", **asked | changes)


def sent(started: Started) -> dict[str, str]:
    """Gives the parameters of the address that the person is sent to."""
    return {name: values[0] for name, values in parse_qs(urlsplit(started.url).query).items()}


def callback(started: Started, **changes: str) -> dict[str, str]:
    """Gives what the browser brings back."""
    return {"code": "the-code", "state": sent(started)["state"], **changes}


def authorized(it: Keeping, **changes: str) -> Status:
    """Goes through the whole of it."""

    async def work(durable: DurableConnections) -> Status:
        started = await begin(durable)
        return await durable.complete(callback(started, **changes), binding=started.binding)

    return it.run(work)


def refusal(it: Keeping, **changes: str) -> ServiceError:
    """Goes through the whole of it, and is refused."""
    with pytest.raises(ServiceError) as refused:
        authorized(it, **changes)
    return refused.value


# --- Beginning ---------------------------------------------------------------------------------------


def test_state_verifier_and_binding_are_random_and_stay_short(
    provider: Provider, made: Made
) -> None:
    """Report 21: the state has 43 characters however long other names are; none comes twice."""
    it = made(provider.replies(GOOD), key="it")
    it.connections = (replace(connection(provider.replies(GOOD)), name="n" * 80),)

    async def work(durable: DurableConnections) -> list[Started]:
        return [await begin(durable, account="a" * 64) for _ in range(20)]

    all_begun = it.run(work)
    assert {len(sent(each)["state"]) for each in all_begun} == {43}
    assert len({sent(each)["state"] for each in all_begun}) == 20
    assert len({sent(each)["code_challenge"] for each in all_begun}) == 20
    assert len({each.binding for each in all_begun}) == 20
    assert sent(all_begun[0])["state"] not in repr(all_begun[0])
    assert all_begun[0].binding not in all_begun[0].url


def test_the_verifier_that_is_sent_fits_the_challenge(provider: Provider, made: Made) -> None:
    """PKCE with S256 (RFC 7636 section 4.6), its secret kept in the store and never in an address."""
    it = made(provider.replies(GOOD))
    begun: list[Started] = []

    async def work(durable: DurableConnections) -> None:
        started = await begin(durable)
        begun.append(started)
        await durable.complete(callback(started), binding=started.binding)

    it.run(work)
    [request] = provider.requests
    verifier = request.form["code_verifier"]
    digest = base64.urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest())
    assert sent(begun[0])["code_challenge"] == digest.rstrip(b"=").decode()
    assert verifier not in begun[0].url


def test_report_16_without_pkce_there_is_no_verifier_anywhere(
    provider: Provider, made: Made
) -> None:
    """A connection that declares it off sends neither challenge nor verifier."""
    it = made(provider.replies(GOOD), pkce=False)
    assert authorized(it).state == "connected"
    assert "code_verifier" not in provider.requests[0].form


def test_report_23_the_redirect_address_is_repeated_byte_for_byte(
    provider: Provider, made: Made
) -> None:
    """The exchange carries the very string that the browser was sent away with."""
    it = made(provider.replies(GOOD))

    async def work(durable: DurableConnections) -> str:
        started = await begin(durable, redirect_uri=LOOPBACK)
        await durable.complete(callback(started), binding=started.binding)
        return sent(started)["redirect_uri"]

    assert it.run(work) == LOOPBACK == provider.requests[0].form["redirect_uri"]


# --- Completing --------------------------------------------------------------------------------------


def test_what_was_granted_is_stored_and_told(provider: Provider, made: Made) -> None:
    """Scopes that were not granted are named; the tokens are kept; nothing secret is told."""
    it = made(provider.replies(response(granted(scope="read extra"))))
    status = authorized(it)
    assert (status.state, status.scopes) == ("connected", ("read", "extra"))
    assert status.missing_scopes == ("write",)
    assert (status.granted_at, status.expires_at) == (START, START + 3600)
    assert ACCESS not in repr(status)
    assert it.access().access_token == ACCESS


def test_another_process_completes_what_one_began(provider: Provider, made: Made) -> None:
    """State, verifier and redirect address are in the store, not in the process."""
    it = made(provider.replies(GOOD))
    started = it.run(begin)
    status = it.run(lambda durable: durable.complete(callback(started), binding=started.binding))
    assert status.state == "connected"


def test_report_22_a_callback_that_comes_three_times_makes_one_exchange(
    provider: Provider, made: Made
) -> None:
    """At once and later, here and in another process: one code is spent, all get the same."""
    it = made(provider.url("gated"))
    begun: list[Started] = []

    async def at_once(durable: DurableConnections) -> list[Status]:
        started = await begin(durable)
        begun.append(started)
        both = [
            asyncio.create_task(durable.complete(callback(started), binding=started.binding))
            for _ in range(2)
        ]
        await asyncio.to_thread(provider.wait_for_requests, 1)
        provider.gate.set()
        return await asyncio.gather(*both)

    first, second = it.run(at_once)
    third = it.run(lambda durable: durable.complete(callback(begun[0]), binding=begun[0].binding))
    assert first == second == third
    assert len(provider.requests) == 1


def test_an_exchange_that_failed_is_not_repeated(provider: Provider, made: Made) -> None:
    """The code may be spent: the second callback is told to begin again, without a request."""
    it = made(provider.replies(response({"error": "invalid_grant"}, status="400 Bad Request")))

    async def work(durable: DurableConnections) -> list[Code]:
        started = await begin(durable)
        codes = []
        for _ in range(2):
            with pytest.raises(ServiceError) as refused:
                await durable.complete(callback(started), binding=started.binding)
            codes.append(refused.value.code)
        return codes

    assert it.run(work) == [Code.PROVIDER_REJECTED, Code.AUTHORIZATION_NOT_FOUND]
    assert len(provider.requests) == 1


@pytest.mark.parametrize("state", ["", "made-up", "\ud800", "x" * 5000])
def test_a_callback_needs_the_state_of_an_authorization_under_way(
    state: str, provider: Provider, made: Made
) -> None:
    """Neither a code nor an error of a stranger does anything (RFC 6749 section 10.12)."""
    it = made(provider.replies(GOOD))
    for extra in ({}, {"error": "access_denied"}):
        assert refusal(it, state=state, **extra).code is Code.AUTHORIZATION_NOT_FOUND
    assert provider.requests == []


def test_only_the_one_who_began_it_completes_it(provider: Provider, made: Made) -> None:
    """A callback that an attacker's browser brings is worth nothing without the binding."""
    it = made(provider.replies(GOOD))

    async def work(durable: DurableConnections) -> None:
        mine, other = await begin(durable), await begin(durable)
        for binding in (other.binding, "", "x"):
            with pytest.raises(ServiceError) as refused:
                await durable.complete(callback(mine), binding=binding)
            assert refused.value.code is Code.AUTHORIZATION_NOT_FOUND
        assert provider.requests == []
        assert (await durable.complete(callback(mine), binding=mine.binding)).state == "connected"

    it.run(work)


def test_an_authorization_ends_after_ten_minutes(provider: Provider, made: Made) -> None:
    """Just before it can be completed, just after not."""
    it = made(provider.replies(GOOD))

    async def work(durable: DurableConnections) -> None:
        early, late = await begin(durable), await begin(durable)
        it.clock.time += ATTEMPT_SECONDS - 1
        await durable.complete(callback(early), binding=early.binding)
        it.clock.time += 2
        with pytest.raises(ServiceError) as refused:
            await durable.complete(callback(late), binding=late.binding)
        assert refused.value.code is Code.AUTHORIZATION_NOT_FOUND

    it.run(work)


@pytest.mark.parametrize("told", [None, "", "https://other.example", "https://provider.example/"])
def test_a_declared_issuer_must_be_named(told: str | None, provider: Provider, made: Made) -> None:
    """RFC 9207: a callback without it, or with another, is refused before the code is sent."""
    it = made(provider.replies(GOOD), issuer="https://provider.example")
    named: Mapping[str, str] = {} if told is None else {"iss": told}
    assert refusal(it, **named).code is Code.PROVIDER_REJECTED
    assert provider.requests == []
    assert authorized(it, iss="https://provider.example").state == "connected"


@pytest.mark.parametrize("error", ["access_denied", "<script>alert(1)</script>", "made\r\nup"])
def test_a_refusal_is_told_without_the_words_of_the_provider(
    error: str, provider: Provider, made: Made
) -> None:
    """Known codes are explained, others are not repeated, and descriptions never are."""
    it = made(provider.replies(GOOD))
    refused = refusal(it, error=error, error_description="words of the provider")
    assert refused.code is Code.PROVIDER_REJECTED
    assert "words" not in str(refused)
    assert "script" not in str(refused)
    assert provider.requests == []


def test_a_grant_without_a_refresh_token_is_kept_and_told_to_be_incomplete(
    provider: Provider, made: Made
) -> None:
    """Its access token works until it ends, and the person is told what to change."""
    it = made(provider.replies(response(granted(refresh_token=None))))
    status = authorized(it)
    assert (status.state, status.reason) == ("incomplete", INCOMPLETE)
    assert it.access().access_token == ACCESS


def test_declared_fields_of_callback_and_answer_reach_the_client(
    provider: Provider, made: Made
) -> None:
    """Report 17: where the interface is comes from the answer, the company from the callback."""
    it = made(
        provider.replies(response(granted(api_domain="api.example.com", other="x"))),
        metadata_fields=["api_domain"],
        callback_metadata_fields=["realmId"],
        api_base_url="https://{api_domain}/v3/company/{realmId}",
    )
    status = authorized(it, realmId="123", ignored="y")
    assert dict(status.metadata) == {"api_domain": "api.example.com", "realmId": "123"}
    assert it.access().base_url == "https://api.example.com/v3/company/123"


def test_variables_are_kept_for_every_later_request(provider: Provider, made: Made) -> None:
    """A shop that was named at the beginning is the one whose tokens are renewed."""
    base = provider.replies(GOOD, response(granted(access_token="second")))
    it = made(
        base.replace("://localhost", "://{shop}.provider.test"),
        authorization_url="https://{shop}.provider.test/authorize",
        url_variables=["shop"],
    )

    async def work(durable: DurableConnections) -> None:
        with pytest.raises(ServiceError) as refused:
            await begin(durable, variables={"shop": "a.b"})
        assert refused.value.code is Code.INVALID_REQUEST
        started = await begin(durable, variables={"shop": "acme"})
        assert started.url.startswith("https://acme.provider.test/authorize?")

    it.run(work)


# --- Connecting again, and ending --------------------------------------------------------------------


def test_connecting_again_replaces_the_grant(provider: Provider, made: Made) -> None:
    """After a dead grant too: what was remembered of failures is gone, and the number goes on."""
    it = made(provider.replies(GOOD))
    it.put(state=State.REAUTHORIZE, reason="dead", number=7)
    assert authorized(it).state == "connected"
    assert it.stored().number == 8
    assert it.stored().reason == ""


def test_accounts_are_apart(provider: Provider, made: Made) -> None:
    """Two accounts of one connection have credentials of their own."""
    it = made(provider.replies(GOOD, response(granted(access_token="second-account"))))

    async def work(durable: DurableConnections) -> list[tuple[str, str]]:
        for account in ("one", "two"):
            started = await begin(durable, account=account)
            await durable.complete(callback(started), binding=started.binding)
        return [(each.account, each.state) for each in await durable.statuses()]

    assert it.run(work) == [("one", "connected"), ("two", "connected")]


@pytest.mark.parametrize("account", ["", "A", "a/b", "../x", ".", "a" * 65, "a\n"])
def test_an_account_that_is_none_is_refused(account: str, provider: Provider, made: Made) -> None:
    """Its name becomes part of where the record is kept, and must not lead elsewhere."""
    it = made(provider.replies(GOOD))

    async def work(durable: DurableConnections) -> None:
        with pytest.raises(ServiceError) as refused:
            await begin(durable, account=account)
        assert refused.value.code is Code.INVALID_REQUEST

    it.run(work)


def disconnected(it: Keeping) -> bool | Code:
    async def work(durable: DurableConnections) -> bool | Code:
        try:
            return await durable.disconnect("it", account="default")
        except ServiceError as error:
            return error.code

    return it.run(work)


def test_disconnecting_revokes_and_wipes(provider: Provider, made: Made) -> None:
    """The refresh token is revoked (RFC 7009), what is stored holds no token, and a second is none."""
    it = made(provider.replies(GOOD), revocation_url=provider.replies(response("")))
    it.put()
    assert disconnected(it) is True
    [request] = provider.requests
    assert request.form["token"] == "refresh-token-of-the-store"
    assert request.form["token_type_hint"] == "refresh_token"
    assert it.stored().state is State.DISCONNECTED
    assert it.stored().tokens is None
    assert it.refused().code is Code.CREDENTIAL_NOT_FOUND
    assert disconnected(it) is Code.CREDENTIAL_NOT_FOUND


@pytest.mark.parametrize(
    ("status", "code"),
    [
        ("503 Service Unavailable", Code.PROVIDER_UNAVAILABLE),
        ("400 Bad Request", Code.PROVIDER_REJECTED),
        ("307 Temporary Redirect", Code.PROVIDER_REJECTED),
    ],
)
def test_a_failed_revocation_is_told_and_the_tokens_are_wiped_all_the_same(
    status: str, code: Code, provider: Provider, made: Made
) -> None:
    """The provider is down or says no: the caller hears so, and nothing is left here."""
    it = made(provider.replies(GOOD), revocation_url=provider.replies(response("", status=status)))
    it.put()
    assert disconnected(it) is code
    assert it.stored().tokens is None


def test_disconnecting_waits_for_a_renewal_and_ends_its_tokens(
    provider: Provider, made: Made
) -> None:
    """Nango 6941: what is being renewed while it is disconnected neither breaks nor comes back."""
    revoked: list[str] = []

    def revoke(conversation: Conversation) -> None:
        revoked.append(conversation.request.form["token"])
        conversation.send(response(""))

    it = made(provider.url("gated"), revocation_url=provider.acts(revoke))
    it.put()

    async def work(durable: DurableConnections) -> None:
        renewing = asyncio.create_task(durable.refresh("it", account="default"))
        await asyncio.to_thread(provider.wait_for_requests, 1)
        ending = asyncio.create_task(durable.disconnect("it", account="default"))
        provider.gate.set()
        assert (await renewing).number == 2
        assert await ending is True

    it.run(work)
    assert revoked == [granted()["refresh_token"]]
    assert it.stored().state is State.DISCONNECTED
