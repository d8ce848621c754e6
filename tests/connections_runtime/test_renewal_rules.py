"""The rules by which credentials are renewed, one after the other, against a real TLS server."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from connections_runtime.authority import Authority
from connections_runtime.keeping import EXPIRED, OLD_REFRESH, START, Keeping, keeping
from connections_runtime.provider import Conversation, Provider, granted, response
from connections_runtime.running import free_port
from segmentstream_connections_runtime.authorizing import INCOMPLETE
from segmentstream_connections_runtime.credentials.base import (
    CredentialStore,
    Hold,
    Record,
    StoreError,
)
from segmentstream_connections_runtime.credentials.records import Failure, State
from segmentstream_connections_runtime.durable import DurableConnections, LiveAccess
from segmentstream_connections_runtime.errors import Code, ServiceError
from segmentstream_connections_runtime.freshness import Want
from segmentstream_connections_runtime.refreshing import (
    COOLDOWN_SECONDS,
    LOST_ANSWER,
    NOTHING_TO_REFRESH,
    REVOKED,
)

GOOD = response(granted())
DEAD = response({"error": "invalid_grant"}, status="400 Bad Request")

type Made = Callable[..., Keeping]


@pytest.fixture
def made(tmp_path: Path, authority: Authority) -> Made:
    """Makes what keeps credentials, for a connection at a token address."""

    def make(token_url: str, **changes: Any) -> Keeping:
        return keeping(tmp_path, authority.ca_file, token_url, **changes)

    return make


async def access(durable: DurableConnections, **want: Any) -> LiveAccess:
    return await durable.access("it", account="default", want=Want(**want))


async def refusal(durable: DurableConnections, **want: Any) -> Code:
    with pytest.raises(ServiceError) as refused:
        await access(durable, **want)
    return refused.value.code


# --- Rule 1: one refresh under way, shared by all who wait -----------------------------------------


def test_rule_1_all_who_ask_at_once_share_one_refresh(provider: Provider, made: Made) -> None:
    """Fifty callers on an expired token cause one request and get the same tokens."""
    it = made(provider.url("gated"))
    it.put()

    async def work(durable: DurableConnections) -> list[LiveAccess]:
        callers = [asyncio.create_task(access(durable)) for _ in range(50)]
        await asyncio.to_thread(provider.wait_for_requests, 1)
        provider.gate.set()
        return await asyncio.gather(*callers)

    answers = it.run(work)
    assert {answer.access_token for answer in answers} == {answers[0].access_token} != {EXPIRED}
    assert {answer.number for answer in answers} == {2}
    assert len(provider.requests) == 1


def test_rule_1_all_who_wait_hear_of_the_failure_and_the_next_tries_anew(
    provider: Provider, made: Made
) -> None:
    """A failure ends the refresh under way: nothing stays behind that a restart must clear."""
    it = made(provider.replies(response("", status="503 Service Unavailable"), GOOD))
    it.put()

    async def work(durable: DurableConnections) -> None:
        codes = await asyncio.gather(*(refusal(durable) for _ in range(20)))
        assert set(codes) == {Code.PROVIDER_UNAVAILABLE}
        assert len(provider.requests) == 1
        it.clock.time += 2 * COOLDOWN_SECONDS
        assert (await access(durable)).number == 2

    it.run(work)


def test_rule_1_a_caller_that_goes_away_does_not_end_it(provider: Provider, made: Made) -> None:
    """The one who caused the refresh hangs up: it is carried out, stored and given to the rest."""
    it = made(provider.url("gated"))
    it.put()

    async def work(durable: DurableConnections) -> None:
        first = asyncio.create_task(access(durable))
        await asyncio.to_thread(provider.wait_for_requests, 1)
        second = asyncio.create_task(access(durable))
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        provider.gate.set()
        assert (await second).number == 2

    it.run(work)
    assert it.stored().number == 2
    assert len(provider.requests) == 1


# --- Rule 2: decided while the credential is held ---------------------------------------------------


def test_rule_2_two_hosts_renew_once(provider: Provider, made: Made) -> None:
    """What another has renewed while one waited is used as it is."""
    it = made(provider.url("gated"))
    it.put()
    numbers: list[int] = []
    hosts = [threading.Thread(target=lambda: numbers.append(it.access().number)) for _ in range(2)]
    for host in hosts:
        host.start()
    provider.wait_for_requests(1)
    provider.gate.set()
    for host in hosts:
        host.join()
    assert numbers == [2, 2]
    assert len(provider.requests) == 1


# --- Rule 3: written down before it is sent ---------------------------------------------------------


def test_rule_3_the_intent_is_stored_before_the_request(provider: Provider, made: Made) -> None:
    """While the provider has the request, the store says so; after the answer it does not."""
    seen: list[Any] = []

    def scenario(conversation: Conversation) -> None:
        seen.append(it.stored().intent)
        conversation.send(GOOD)

    it = made(provider.acts(scenario))
    it.put()
    assert it.access().number == 2
    [intent] = seen
    assert intent is not None
    assert not intent.has_ended
    assert OLD_REFRESH not in repr(intent)
    assert it.stored().intent is None


def test_rule_3_report_14_an_answer_that_is_cut_is_an_unknown_outcome(
    provider: Provider, made: Made
) -> None:
    """One request, no blind repetition; the next attempt finds the grant dead, and says why."""
    cut = GOOD[: len(GOOD) // 2]
    answers = [cut, DEAD]

    def scenario(conversation: Conversation) -> None:
        conversation.send(answers.pop(0))
        conversation.close()

    it = made(provider.acts(scenario))
    it.put()
    assert it.refused().code is Code.OUTCOME_UNKNOWN
    assert len(provider.requests) == 1
    assert it.stored().state is State.CONNECTED
    again = it.refused()  # within the cooldown: told again without a request
    assert (again.code, len(provider.requests)) == (Code.OUTCOME_UNKNOWN, 1)
    assert again.retry_after_seconds
    it.clock.time += 2 * COOLDOWN_SECONDS
    refused = it.refused()
    assert (refused.code, refused.detail) == (Code.REAUTHORIZATION_REQUIRED, LOST_ANSWER)
    assert it.stored().reason == LOST_ANSWER


def test_rule_3_report_14_within_a_replay_window_the_pair_is_recovered(
    provider: Provider, made: Made
) -> None:
    """Where the provider takes the old refresh token once more, it is sent once more, at once."""
    answers = [GOOD[: len(GOOD) // 2], GOOD]

    def scenario(conversation: Conversation) -> None:
        conversation.send(answers.pop(0))
        conversation.close()

    it = made(provider.acts(scenario), replay_window_seconds=30)
    it.put()
    assert it.access().number == 2
    assert [request.form["refresh_token"] for request in provider.requests] == [OLD_REFRESH] * 2


def test_rule_3_an_unknown_outcome_is_remembered_over_other_failures(
    provider: Provider, made: Made
) -> None:
    """Cut, then busy, then dead: the reason is still the lost answer."""
    answers = [b"HTTP/1.1 200", response("", status="429 Too Many Requests"), DEAD]

    def scenario(conversation: Conversation) -> None:
        conversation.send(answers.pop(0))
        conversation.close()

    it = made(provider.acts(scenario))
    it.put()
    codes = []
    for _ in range(3):
        codes.append(it.refused().code)
        it.clock.time += 10 * COOLDOWN_SECONDS
    assert codes == [
        Code.OUTCOME_UNKNOWN,
        Code.RATE_LIMITED,
        Code.REAUTHORIZATION_REQUIRED,
    ]
    assert it.stored().reason == LOST_ANSWER


# --- Rule 4: a pair that the store does not take ----------------------------------------------------


class Refusing(CredentialStore):
    """Is a store that does not take what is written while a test says so."""

    def __init__(self, inner: CredentialStore) -> None:
        self.inner = inner
        self.hold_proves_end = inner.hold_proves_end
        self.writes_left = 10**9
        self.has_taken = threading.Event()

    def read(self, name: str) -> Record | None:
        return self.inner.read(name)

    def write(
        self, name: str, content: bytes, *, expected: int, expires_at: float | None = None
    ) -> int:
        if self.writes_left <= 0:
            raise StoreError("The disk is full. Make room.")
        self.writes_left -= 1
        generation = self.inner.write(name, content, expected=expected, expires_at=expires_at)
        self.has_taken.set()
        return generation

    def delete(self, name: str, *, expected: int) -> None:
        self.inner.delete(name, expected=expected)

    def names(self, prefix: str) -> list[str]:
        return self.inner.names(prefix)

    def try_hold(self, name: str) -> Hold | None:
        return self.inner.try_hold(name)

    def check(self) -> None:
        self.inner.check()

    def close(self) -> None:
        self.inner.close()


def test_rule_4_a_pair_that_the_store_refuses_is_kept_and_stored_later(
    provider: Provider, made: Made
) -> None:
    """The caller gets its token, nothing is renewed meanwhile, and the pair is stored in the end."""
    stores: list[Refusing] = []

    def wrap(store: CredentialStore) -> CredentialStore:
        stores.append(Refusing(store))
        return stores[-1]

    it = made(provider.replies(GOOD))
    it.put()
    it.wrap = wrap

    async def work(durable: DurableConnections) -> None:
        store = stores[-1]
        store.writes_left = 1  # the intent
        answer = await access(durable)
        assert (answer.number, answer.is_persisted) == (2, False)
        assert (await access(durable)).access_token == answer.access_token
        it.clock.time += 7200
        assert await refusal(durable) is Code.STORE_UNAVAILABLE
        it.clock.time -= 7200
        assert store.try_hold("default/it/default") is None  # nobody else renews it either
        store.has_taken.clear()
        store.writes_left = 10**9
        assert await asyncio.to_thread(store.has_taken.wait, 30)

    it.run(work)
    it.wrap = lambda store: store
    assert it.stored().number == 2
    assert it.stored().intent is None
    assert len(provider.requests) == 1
    assert it.access().number == 2


def test_rule_4_nothing_is_sent_that_could_not_be_written_down(
    provider: Provider, made: Made
) -> None:
    """A store that takes no intent costs no refresh token."""
    it = made(provider.replies(GOOD))
    it.put()

    def wrap(store: CredentialStore) -> CredentialStore:
        refusing = Refusing(store)
        refusing.writes_left = 0
        return refusing

    it.wrap = wrap
    assert it.refused().code is Code.STORE_UNAVAILABLE
    assert provider.requests == []


# --- Rule 6: the loser of a race ---------------------------------------------------------------------


def test_rule_6_a_refused_refresh_looks_for_the_winner(provider: Provider, made: Made) -> None:
    """The grant seems dead because somebody else renewed it: theirs is used, nothing is deleted."""

    def scenario(conversation: Conversation) -> None:
        it.put(number=2, access_token="token-of-the-winner", expires_at=START + 3600)
        conversation.send(DEAD)

    it = made(provider.acts(scenario))
    it.put()
    assert it.access().access_token == "token-of-the-winner"
    assert it.stored().state is State.CONNECTED


def test_rule_6_a_person_who_connects_anew_wins(provider: Provider, made: Made) -> None:
    """Tokens of an older grant never replace those of a newer one."""

    def scenario(conversation: Conversation) -> None:
        it.put(number=2, access_token="token-of-the-new-grant", expires_at=START + 3600,
               granted_at=START)  # fmt: skip
        conversation.send(GOOD)

    it = made(provider.acts(scenario))
    it.put()
    assert it.access().access_token == "token-of-the-new-grant"
    assert it.stored().granted_at == START


def test_rule_6_a_person_who_forgot_and_connected_anew_wins(provider: Provider, made: Made) -> None:
    """Also where the new record begins to count where the old one stood."""

    async def forget() -> None:
        custody = it.custody()
        await custody.forget("it", "default")
        await custody.close()

    def scenario(conversation: Conversation) -> None:
        asyncio.run(forget())
        it.put(number=1, access_token="token-of-the-new-grant", expires_at=START + 3600,
               granted_at=START)  # fmt: skip
        conversation.send(GOOD)

    it = made(provider.acts(scenario))
    it.put()
    assert it.access().access_token == "token-of-the-new-grant"
    assert it.stored().granted_at == START


# --- Rule 7: what is final and what passes ------------------------------------------------------------


def test_rule_7_a_dead_grant_is_final(provider: Provider, made: Made) -> None:
    """It is stored, told again without a request, and its record stays."""
    it = made(provider.replies(DEAD, GOOD))
    it.put()
    for _ in range(3):
        refused = it.refused()
        assert (refused.code, refused.detail) == (Code.REAUTHORIZATION_REQUIRED, REVOKED)
        it.clock.time += 100_000
    assert len(provider.requests) == 1
    assert it.stored().tokens is not None


@pytest.mark.parametrize(
    "answer",
    [
        response({"error": "invalid_client"}, status="401 Unauthorized"),
        response({"error": "unauthorized_client"}, status="400 Bad Request"),
        response("<html>", status="403 Forbidden", media_type="text/html"),
        response("", status="429 Too Many Requests"),
        response("", status="500 Internal Server Error"),
        response("<html>", media_type="text/html"),
        response({"error": "made_up"}, status="400 Bad Request"),
        response({"ok": False}),
        response({"access_token": "bad\r\ntoken"}),
        b"",
        b"\x00\x01\x02",
    ],
)
def test_rule_7_everything_else_passes(answer: bytes, provider: Provider, made: Made) -> None:
    """A failure that is not the grant's leaves it as it was, and the next attempt succeeds."""
    answers = [answer, GOOD]

    def scenario(conversation: Conversation) -> None:
        conversation.send(answers.pop(0))
        conversation.close()

    it = made(provider.acts(scenario))
    it.put()
    assert it.refused().code is not Code.REAUTHORIZATION_REQUIRED
    stored = it.stored()
    assert stored.state is State.CONNECTED
    assert stored.tokens is not None
    assert stored.tokens.refresh_token == OLD_REFRESH
    it.clock.time += 2 * COOLDOWN_SECONDS
    assert it.access().number == 2


def test_rule_7_report_15_a_dead_provider_is_asked_once_a_cooldown(
    provider: Provider, made: Made
) -> None:
    """A thousand calls within ten seconds, from two processes' worth of state, cost one request."""
    it = made(provider.replies(response("", status="503 Service Unavailable")))
    it.put()

    async def work(durable: DurableConnections) -> None:
        for _ in range(10):
            codes = await asyncio.gather(*(refusal(durable) for _ in range(50)))
            assert set(codes) == {Code.PROVIDER_UNAVAILABLE}
            it.clock.time += 0.5

    it.run(work)
    it.run(work)
    assert len(provider.requests) == 1
    it.clock.time += 2 * COOLDOWN_SECONDS
    it.refused()
    assert len(provider.requests) == 2


def test_rule_7_a_cooldown_grows_and_honours_retry_after(provider: Provider, made: Made) -> None:
    """Each failure waits longer than the last, up to five minutes, or as long as was asked for."""
    busy = response("", status="429 Too Many Requests", headers=[("Retry-After", "900")])
    it = made(provider.replies(*[response("", status="503 Service Unavailable")] * 6, busy))
    it.put()
    waits = []
    for _ in range(7):
        it.refused()
        failure = it.stored().failure
        assert failure is not None
        waits.append(failure.retry_at - it.clock.time)
        it.clock.time = failure.retry_at + 1
    assert all(30 <= wait <= 375 for wait in waits[:6])
    assert waits[0] < waits[1] < waits[2] < waits[3]
    assert waits[6] >= 900


def test_rule_7_a_token_that_still_lives_is_given_while_the_provider_is_down(
    provider: Provider, made: Made
) -> None:
    """A renewal that was only due, not overdue, fails without harm."""
    it = made(provider.replies(response("", status="503 Service Unavailable")))
    it.put(obtained_at=START - 3500, expires_at=START + 100)
    assert it.access().access_token == EXPIRED
    assert it.access().access_token == EXPIRED
    assert len(provider.requests) == 1
    assert it.refused(min_ttl_seconds=200).code is Code.PROVIDER_UNAVAILABLE


def test_rule_7_report_12_a_later_failure_leaves_the_stored_pair(
    provider: Provider, made: Made
) -> None:
    """Five at once, then a second renewal that is told to wait: the first pair is still there."""
    it = made(provider.replies(GOOD, response("", status="429 Too Many Requests")))
    it.put()

    async def work(durable: DurableConnections) -> None:
        await asyncio.gather(*(access(durable) for _ in range(5)))
        it.clock.time += 7200
        assert await refusal(durable) is Code.RATE_LIMITED

    it.run(work)
    stored = it.stored()
    assert stored.number == 2
    assert stored.tokens is not None
    assert stored.tokens.refresh_token == granted()["refresh_token"]


def test_rule_7_report_13_a_failing_provider_does_not_end_the_connection(
    provider: Provider, made: Made
) -> None:
    """500, then a broken TLS record, then an answer: the third call succeeds."""
    answers = [response("", status="500 Internal Server Error"), None, GOOD]

    def scenario(conversation: Conversation) -> None:
        answer = answers.pop(0)
        if answer is None:
            conversation.socket.shutdown(2)
            conversation.close()
            return
        conversation.send(answer)

    it = made(provider.acts(scenario))
    it.put()
    for _ in range(2):
        assert it.refused().code in {Code.PROVIDER_UNAVAILABLE, Code.OUTCOME_UNKNOWN}
        it.clock.time += 10 * COOLDOWN_SECONDS
    assert it.access().number == 2


# --- Rule 8: what is sent again ------------------------------------------------------------------------


def test_rule_8_what_was_surely_not_sent_is_sent_again(
    tmp_path: Path, provider: Provider, made: Made
) -> None:
    """Where no connection comes about there is one more attempt, and the outcome is known."""
    attempts = 0

    def count(conversation: Conversation) -> None:
        nonlocal attempts
        attempts += 1

    it = made(f"https://localhost:{free_port()}/token")
    it.put()
    refused = it.refused()
    assert refused.code is Code.PROVIDER_UNAVAILABLE
    assert not refused.was_sent
    assert it.stored().intent is None

    # A server whose certificate is not trusted sees how often it is tried.
    it = keeping(tmp_path / "untrusting", Path(_nobody(tmp_path)), provider.acts(count))
    it.put()
    assert it.refused().code is Code.PROVIDER_UNAVAILABLE
    provider.wait_until(lambda: provider._connections == 2)
    assert (attempts, provider.requests) == (0, [])


def _nobody(folder: Path) -> Path:
    """Gives a file of certificates that the provider's does not belong to."""
    from connections_runtime.authority import make_authority

    other = folder / "other-authority"
    other.mkdir()
    return make_authority(other).ca_file


@pytest.mark.parametrize(
    ("declared", "requests"),
    [({}, 1), ({"replay_window_seconds": 30}, 2), ({"refresh_token_rotation": False}, 2)],
)
def test_rule_8_what_was_sent_is_sent_again_only_where_that_does_no_harm(
    declared: dict[str, Any], requests: int, provider: Provider, made: Made
) -> None:
    """A cut answer is asked for again within a replay window, or where tokens do not rotate."""

    def scenario(conversation: Conversation) -> None:
        conversation.send(b"HTTP/1.1 2")
        conversation.close()

    it = made(provider.acts(scenario), **declared)
    it.put()
    assert it.refused().code is Code.OUTCOME_UNKNOWN
    assert len(provider.requests) == requests


# --- Rule 9: how long before its end ---------------------------------------------------------------------


def test_rule_9_report_9_a_short_token_is_not_renewed_early(provider: Provider, made: Made) -> None:
    """A token of ten minutes is used for its first half, whatever the margin."""
    it = made(provider.replies(GOOD))
    it.put(obtained_at=START, expires_at=START + 600)
    assert it.access().access_token == EXPIRED
    it.clock.time += 299
    assert it.access().access_token == EXPIRED
    it.clock.time += 2
    assert it.access().number == 2


@pytest.mark.parametrize("lifetime", [0, 1, 4, 60])
def test_rule_9_a_token_that_lives_shorter_than_any_margin_causes_no_loop(
    lifetime: int, provider: Provider, made: Made
) -> None:
    """Each call renews at most once, and gives what came."""
    it = made(provider.replies(response(granted(expires_in=lifetime))))
    it.put()
    assert it.access().number == 2
    assert len(provider.requests) == 1
    assert it.access(min_ttl_seconds=86400).number == (3 if lifetime == 0 else 2)


def test_rule_9_a_caller_can_ask_for_a_longer_life(provider: Provider, made: Made) -> None:
    """A job of half an hour asks for a token that lives so long, and gets a new one."""
    it = made(provider.replies(GOOD))
    it.put(obtained_at=START - 2000, expires_at=START + 1600)
    assert it.access().access_token == EXPIRED
    assert it.access(min_ttl_seconds=1700).number == 2


def test_rule_9_an_unknown_expiry_is_used_until_it_is_refused(
    provider: Provider, made: Made
) -> None:
    """Where the provider does not say how long a token lives, time alone renews nothing."""
    it = made(provider.replies(GOOD))
    it.put(expires_at=None)
    it.clock.time += 10**7
    assert it.access().access_token == EXPIRED
    assert it.access(rejected=1).number == 2


# --- Rule 10: counted from the request; one renewal for each token that is refused ------------------------


def test_rule_10_life_counts_from_the_request(provider: Provider, made: Made) -> None:
    """An answer that takes long does not make the token live longer."""

    def scenario(conversation: Conversation) -> None:
        it.clock.time += 100
        conversation.send(GOOD)

    it = made(provider.acts(scenario))
    it.put()
    assert it.access().expires_at == START + 3600


def test_rule_10_many_refusals_of_one_token_renew_it_once(provider: Provider, made: Made) -> None:
    """Fifty requests that were answered with 401 cause one refresh; those who come late, none."""
    it = made(provider.replies(GOOD))
    it.put(expires_at=START + 3600)

    async def work(durable: DurableConnections) -> None:
        answers = await asyncio.gather(*(access(durable, rejected=1) for _ in range(50)))
        assert {answer.number for answer in answers} == {2}
        assert (await access(durable, rejected=1)).number == 2

    it.run(work)
    assert len(provider.requests) == 1


def test_rule_10_a_new_token_that_is_refused_at_once_is_not_renewed_again(
    provider: Provider, made: Made
) -> None:
    """An interface that refuses every token causes no loop; later it is tried again."""
    it = made(provider.replies(GOOD))
    it.put(expires_at=START + 3600)
    assert it.access(rejected=1).number == 2
    assert it.access(rejected=2).number == 2
    assert len(provider.requests) == 1
    it.clock.time += 60
    assert it.access(rejected=2).number == 3


# --- What is not there, and what is not complete ----------------------------------------------------------


def test_nothing_is_made_up_for_a_credential_that_is_not_there(
    provider: Provider, made: Made
) -> None:
    """Without an authorization there is a typed refusal and no request."""
    it = made(provider.replies(GOOD))
    assert it.refused().code is Code.CREDENTIAL_NOT_FOUND
    assert provider.requests == []


def test_a_credential_without_a_refresh_token_ends_with_its_token(
    provider: Provider, made: Made
) -> None:
    """It is used until then; after that a person has to authorize again, which is said."""
    it = made(provider.replies(GOOD))
    it.put(refresh_token=None, state=State.INCOMPLETE, reason=INCOMPLETE,
           obtained_at=START, expires_at=START + 600)  # fmt: skip
    assert it.access().access_token == EXPIRED
    it.clock.time += 500  # past its margin, before its end
    assert it.access().access_token == EXPIRED
    it.clock.time += 101
    refused = it.refused()
    assert (refused.code, refused.detail) == (Code.REAUTHORIZATION_REQUIRED, NOTHING_TO_REFRESH)
    assert provider.requests == []


def test_a_cooldown_that_the_clock_has_made_endless_is_not_waited_for(
    provider: Provider, made: Made
) -> None:
    """A clock that was put back by a day does not silence a connection for a day."""
    it = made(provider.replies(GOOD))
    it.put(failure=Failure(code=Code.PROVIDER_UNAVAILABLE.value, detail="", at=START + 86400,
                           attempts=1, retry_at=START + 86430))  # fmt: skip
    assert it.access().number == 2


def test_no_token_stays_in_what_is_thrown_or_shown(provider: Provider, made: Made) -> None:
    """Neither reprs nor refusals hold a token, and no task is left behind."""
    it = made(provider.replies(GOOD))
    it.put()
    shown = repr(it.access()) + repr(it.stored())
    it.clock.time += 7200
    provider.scenarios.clear()
    for secret in (EXPIRED, OLD_REFRESH, str(granted()["access_token"])):
        assert secret not in shown
    gc.collect()
