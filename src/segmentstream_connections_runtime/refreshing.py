"""How a credential is renewed: once for everybody, and never so that its newest tokens are lost.

Imports `custody`, `freshness`, `storing`, `oauth` and the errors.

The steps of a renewal, each of which a crash may follow:

1. hold the credential against other processes, and read it again: somebody may have renewed it;
2. write down that a refresh is about to be sent (the intent);
3. send it, once;
4. write the new tokens, in place of intent and old tokens;
5. let it go, and answer.

A crash between 3 and 4 loses the answer. The intent tells the next process so: it sends the same
refresh token once more, which succeeds where the provider allows it, and otherwise says that a
person has to authorize again, and why.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import random
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

from segmentstream.connections import OAuth2Connection
from segmentstream_connections_runtime.credentials.base import GenerationMovedError, Hold
from segmentstream_connections_runtime.credentials.records import (
    Credential,
    Failure,
    Intent,
    State,
)
from segmentstream_connections_runtime.custody import Custody, Held, found
from segmentstream_connections_runtime.errors import Code, ServiceError
from segmentstream_connections_runtime.freshness import Freshness, Want
from segmentstream_connections_runtime.oauth import Granted, OAuthClient
from segmentstream_connections_runtime.storing import (
    HOLD_SECONDS,
    TRIES,
    Live,
    TokenStoring,
    tokens_of,
    usable,
)

# Longer than the two requests that one refresh can make at most.
LEASE_SECONDS = 45.0
# After that, longer than the pauses in which `storing` tries to store a pair: the store may have
# come back just now.
_SETTLING_SECONDS = 12.0
COOLDOWN_SECONDS = 30.0
_LONGEST_COOLDOWN_SECONDS = 300.0
_LONGEST_RETRY_AFTER_SECONDS = 3600.0
_POLL_SECONDS = 0.5

LOST_ANSWER = "The answer to an earlier refresh was lost, and its tokens with it."
REVOKED = "The provider no longer accepts the grant."
NOTHING_TO_REFRESH = "The token has expired, and there is no refresh token to renew it with."

_log = logging.getLogger("segmentstream.connections")


class Refresher:
    """Gives usable tokens of credentials, renewing them where that is due."""

    def __init__(
        self,
        custody: Custody,
        oauth: OAuthClient,
        storing: TokenStoring,
        *,
        now: Callable[[], float] = time.time,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self._custody = custody
        self._oauth = oauth
        self._now = now
        self._chance = chance
        self._storing = storing
        self._freshness = Freshness(now)
        self._under_way: dict[tuple[str, str], asyncio.Task[Live]] = {}

    async def live(self, connection: OAuth2Connection, account: str, want: Want) -> Live:
        """Gives usable tokens; whoever asks at the same time gets the same.

        Args:
            connection: The connection, without its variables filled in.
            account: Which account of it.
            want: What the caller needs.

        Raises:
            ServiceError: There are none. `oauth_reauthorization_required` stays until a person
                authorizes again; the others pass.
        """
        place = (connection.key, account)
        if (unsaved := self._storing.unsaved(*place)) is not None:
            return self._unsaved(connection, unsaved, want)
        while True:
            is_mine = False
            if place not in self._under_way:
                held = found(await self._custody.credential(*place))
                if self._freshness.serves(connection, held.record, want):
                    return Live(credential=held.record)
                is_mine = place not in self._under_way
            try:
                live = await _result(self._begun(connection, account, want))
            except ServiceError:
                if (enough := await self._enough(place, want)) is None:
                    raise
                return enough
            # What was begun for others may have found that there was nothing to renew.
            if is_mine or live.credential.number != want.rejected:
                return live

    def give_up(self) -> None:
        """Ends refreshes under way, whose callers hear of it: the process stops."""
        for task in self._under_way.values():
            task.cancel()

    async def close(self, *, seconds: float) -> None:
        """Waits for refreshes under way and ends the rest."""
        if under_way := [*self._under_way.values()]:
            _, late = await asyncio.wait(under_way, timeout=seconds)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)

    def _begun(self, connection: OAuth2Connection, account: str, want: Want) -> asyncio.Task[Live]:
        place = (connection.key, account)
        if place not in self._under_way:
            task = asyncio.create_task(self._renewed(connection, account, want))
            self._under_way[place] = task

            def over(task: asyncio.Task[Live]) -> None:
                self._under_way.pop(place, None)
                if not task.cancelled():
                    task.exception()  # every caller may have gone

            task.add_done_callback(over)
        return self._under_way[place]

    async def _enough(self, place: tuple[str, str], want: Want) -> Live | None:
        """Gives the old tokens where they still do, whatever it was for that new ones failed."""
        held = await self._custody.credential(*place)
        if held is None or held.record.state is State.REAUTHORIZE:
            return None
        is_enough = self._freshness.outlives(held.record, want)
        return Live(credential=held.record) if is_enough else None

    def _unsaved(self, connection: OAuth2Connection, unsaved: Credential, want: Want) -> Live:
        is_enough = self._freshness.outlives(unsaved, want)
        if is_enough or self._freshness.serves(connection, unsaved, want):
            return Live(credential=unsaved, is_persisted=False)
        raise ServiceError(
            Code.STORE_UNAVAILABLE,
            "Its newest tokens could not be stored yet; it is not renewed before they are.",
        )

    async def _renewed(self, connection: OAuth2Connection, account: str, want: Want) -> Live:
        place = (connection.key, account)
        hold = await self._custody.hold(*place, seconds=HOLD_SECONDS)
        try:
            for _ in range(TRIES):
                held = found(await self._custody.credential(*place))
                if self._has_lease(held.record) and self._freshness.outlives(held.record, want):
                    return Live(credential=held.record)
                held = await self._after_lease(held)
                if self._freshness.serves(connection, held.record, want):
                    return Live(credential=held.record)
                self._refuse_early(held.record, want)
                with suppress(GenerationMovedError):  # somebody wrote who did not hold it
                    return await self._renew(connection, held, hold)
            raise ServiceError(Code.STORE_UNAVAILABLE, "Others keep changing the record.")
        finally:
            await self._storing.release(*place, hold)

    def _is_open(self, credential: Credential) -> bool:
        """Says whether another process may go on with a refresh, though it holds nothing now."""
        intent, is_over = credential.intent, self._custody.store.hold_proves_end
        return intent is not None and not intent.has_ended and not is_over

    def _has_lease(self, credential: Credential) -> bool:
        """Says whether that refresh may not have been answered yet."""
        if credential.intent is None or not self._is_open(credential):
            return False
        return abs(self._now() - credential.intent.started_at) < LEASE_SECONDS

    async def _after_lease(self, held: Held[Credential]) -> Held[Credential]:
        """Waits until that refresh has been stored or cannot be any more."""
        place = (held.record.connection, held.record.account)
        loop = asyncio.get_running_loop()
        begun = loop.time()
        while self._is_open(held.record) and (waited := loop.time() - begun) < LEASE_SECONDS:
            if waited >= _SETTLING_SECONDS and not self._has_lease(held.record):
                break
            await asyncio.sleep(_POLL_SECONDS)
            held = found(await self._custody.credential(*place))
        return held

    def _refuse_early(self, credential: Credential, want: Want) -> None:
        """Refuses without a request while a failure cools down, or where none can help."""
        tokens = credential.tokens
        if tokens is None or tokens.refresh_token is None:
            raise ServiceError(Code.REAUTHORIZATION_REQUIRED, NOTHING_TO_REFRESH)
        failure = credential.failure
        if failure is None or want.is_forced:
            return
        left = failure.retry_at - self._now()
        if not 0 < left <= _LONGEST_RETRY_AFTER_SECONDS * 1.5:  # the clock was put back
            return
        raise ServiceError(Code(failure.code), failure.detail, retry_after_seconds=int(left) + 1)

    async def _renew(
        self, connection: OAuth2Connection, held: Held[Credential], hold: Hold
    ) -> Live:
        old = held.record
        assert old.tokens is not None  # noqa: S101 - `_refuse_early` has looked
        assert old.tokens.refresh_token is not None  # noqa: S101
        refresh_token = old.tokens.refresh_token
        intent = Intent(started_at=self._now(), refresh_token_sha256=_digest(refresh_token))
        generation = await self._custody.keep(replace(old, intent=intent), expected=held.generation)
        begun = Held(record=old, generation=generation)
        try:
            granted, asked_at = await self._asked(connection, old, refresh_token)
        except _RefusedError as refused:
            return await self._failed(begun, refused)
        new = replace(
            old,
            state=State.CONNECTED,
            reason="",
            number=old.number + 1,
            tokens=tokens_of(granted, asked_at),
            metadata={**old.metadata, **granted.tokens.metadata},
            intent=None,
            failure=None,
        )
        return await self._storing.saved(new, over=begun, hold=hold)

    async def _asked(
        self, connection: OAuth2Connection, old: Credential, refresh_token: str
    ) -> tuple[Granted, float]:
        """Sends the refresh: again only where the first surely did nothing, or does no harm."""
        filled = connection.with_variables(old.variables)
        has_unknown = old.intent is not None
        is_repeatable = (
            not connection.refresh_token_rotation or connection.replay_window_seconds > 0
        )
        for is_last in (False, True):
            asked_at = self._now()
            try:
                return await self._oauth.refresh(filled, refresh_token=refresh_token), asked_at
            except ServiceError as error:
                is_unknown = _is_unknown(error)
                has_unknown = has_unknown or is_unknown
                is_safe = not error.was_sent or (is_unknown and is_repeatable)
                if is_last or not is_safe:
                    if is_unknown and error.provider_status is None:
                        error = ServiceError(Code.OUTCOME_UNKNOWN, error.detail)
                    raise _RefusedError(error, may_have_spent=has_unknown) from None
            await asyncio.sleep(0.2 + 0.3 * self._chance())
        raise AssertionError  # the last try returned or raised

    async def _failed(self, begun: Held[Credential], refused: _RefusedError) -> Live:
        error, old = refused.error, begun.record
        if error.code is Code.REAUTHORIZATION_REQUIRED:
            # Perhaps because somebody else was first, who did not hold the credential.
            now = await self._custody.credential(old.connection, old.account)
            if now is not None and now.record.number != old.number:
                return Live(credential=usable(now.record))
            reason = LOST_ANSWER if refused.may_have_spent else REVOKED
            dead = replace(old, state=State.REAUTHORIZE, reason=reason, intent=None, failure=None)
            await self._noted(dead, expected=begun.generation)
            raise ServiceError(
                Code.REAUTHORIZATION_REQUIRED,
                reason,
                provider_status=error.provider_status,
                provider_code=error.provider_code,
            )
        failed = replace(
            old, failure=self._failure(old, error), intent=_ended(old, refused, self._now())
        )
        await self._noted(failed, expected=begun.generation)
        raise error

    def _failure(self, old: Credential, error: ServiceError) -> Failure:
        attempts = 1 + (old.failure.attempts if old.failure else 0)
        seconds = min(COOLDOWN_SECONDS * 2 ** (attempts - 1), _LONGEST_COOLDOWN_SECONDS)
        asked = min(error.retry_after_seconds or 0, _LONGEST_RETRY_AFTER_SECONDS)
        seconds = max(seconds, asked) * (1 + self._chance() / 4)
        now = self._now()
        return Failure(
            code=error.code.value,
            detail=error.detail,
            at=now,
            attempts=attempts,
            retry_at=now + seconds,
        )

    async def _noted(self, told: Credential, *, expected: int) -> None:
        """Writes down a failure; where that fails too, the failure itself is what is told."""
        try:
            await self._note(told, expected=expected)
        except ServiceError:
            _log.warning("a failed refresh could not be noted in the store")

    async def _note(self, told: Credential, *, expected: int) -> None:
        try:
            await self._custody.keep(told, expected=expected)
        except GenerationMovedError:
            there = await self._custody.credential(told.connection, told.account)
            # Sealed with another key meanwhile, or no longer what has failed.
            if there is not None and there.record.tokens == told.tokens:
                await self._note(told, expected=there.generation)


class _RefusedError(Exception):
    """Is a refresh that brought no tokens.

    Attributes:
        error: What came of it.
        may_have_spent: Whether this or an earlier one may have spent the refresh token.
    """

    def __init__(self, error: ServiceError, *, may_have_spent: bool) -> None:
        super().__init__(error)
        self.error = error
        self.may_have_spent = may_have_spent


async def _result(task: asyncio.Task[Live]) -> Live:
    # A caller that goes is not the only one, and does not stop a refresh half-way.
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        if not task.cancelled():
            raise
        raise ServiceError(
            Code.OUTCOME_UNKNOWN, "It took longer than the process, which stops, can wait."
        ) from None


def _ended(old: Credential, refused: _RefusedError, now: float) -> Intent | None:
    """Says what to remember of a refresh that failed: that it may have been carried out."""
    if not refused.may_have_spent or old.tokens is None:
        return None
    return Intent(
        started_at=now,
        refresh_token_sha256=_digest(old.tokens.refresh_token or ""),
        has_ended=True,
    )


def _is_unknown(error: ServiceError) -> bool:
    """Says whether the provider may have renewed the tokens though the answer has none."""
    status = error.provider_status
    is_definite = status is not None and 300 <= status < 500  # noqa: PLR2004 - RFC 9110 section 15
    return error.was_sent and not is_definite and error.code in _PROVIDER_FAULTS


_PROVIDER_FAULTS = frozenset(
    {
        Code.PROVIDER_UNAVAILABLE,
        Code.PROVIDER_UNREADABLE,
        Code.TOKEN_RESPONSE_INVALID,
    }
)


def _digest(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()
