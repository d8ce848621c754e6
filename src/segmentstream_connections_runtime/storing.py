"""How new tokens are stored so that they are never lost; imports `custody` and the errors.

Where the store does not take them, they stay in memory, and the credential stays held, until it
does: the provider may have made their predecessors invalid.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace

from segmentstream_connections_runtime.credentials.base import GenerationMovedError, Hold
from segmentstream_connections_runtime.credentials.records import Credential, State, Tokens
from segmentstream_connections_runtime.custody import Custody, Held, found, off_loop
from segmentstream_connections_runtime.errors import Code, ServiceError
from segmentstream_connections_runtime.oauth import Granted

TRIES = 3
HOLD_SECONDS = 60.0
_FIRST_BACKOFF_SECONDS = 0.5
_LONGEST_BACKOFF_SECONDS = 5.0
_CLOSING_BACKOFF_SECONDS = 0.1

_log = logging.getLogger("segmentstream.connections")


@dataclass(frozen=True, slots=True, kw_only=True)
class Live:
    """Is a credential with usable tokens.

    Attributes:
        credential: The credential.
        is_persisted: Whether its tokens are in the store.
    """

    credential: Credential
    is_persisted: bool = True


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Unsaved:
    """Is a credential that waits for the store, what was there before it, and what holds it."""

    new: Credential
    over: Held[Credential] | None
    hold: Hold

    @property
    def place(self) -> tuple[str, str]:
        return (self.new.connection, self.new.account)


class TokenStoring:
    """Stores new tokens, and keeps those that the store has not taken yet."""

    def __init__(self, custody: Custody, *, chance: Callable[[], float] = random.random) -> None:
        self._custody = custody
        self._chance = chance
        self._unsaved: dict[tuple[str, str], _Unsaved] = {}
        self._saving: set[asyncio.Task[None]] = set()
        self._is_closing = asyncio.Event()

    def unsaved(self, connection: str, account: str) -> Credential | None:
        """Gives a credential whose newest tokens wait for the store."""
        unsaved = self._unsaved.get((connection, account))
        return None if unsaved is None else unsaved.new

    def drop(self, connection: str, account: str) -> None:
        """Stops waiting for the store, since a person has ended the credential."""
        self._unsaved.pop((connection, account), None)

    async def release(self, connection: str, account: str, hold: Hold) -> None:
        """Lets a credential go, unless its newest tokens wait for the store."""
        unsaved = self._unsaved.get((connection, account))
        if unsaved is None or unsaved.hold is not hold:
            await off_loop(hold.release)

    async def saved(self, new: Credential, *, over: Held[Credential] | None, hold: Hold) -> Live:
        """Stores new tokens; where the store does not take them, keeps them and goes on trying.

        Until they are stored the credential stays held and it is given with
        `is_persisted` off. The caller ends with `release`.

        Args:
            new: The credential with its new tokens.
            over: What was there before they were asked for.
            hold: What holds it.
        """
        unsaved = _Unsaved(new=new, over=over, hold=hold)
        # A hold that was lost let somebody else have it: what waits is no longer the newest.
        self.drop(*unsaved.place)
        try:
            return Live(credential=usable(await self._stored(new, over)))
        except ServiceError as error:
            if error.code is not Code.STORE_UNAVAILABLE:
                raise
        _log.error(
            "new tokens could not be stored and are kept in memory",
            extra={"fields": {"credential": "/".join(unsaved.place)}},
        )
        self._unsaved[unsaved.place] = unsaved
        task = asyncio.create_task(self._save_later(unsaved))
        self._saving.add(task)
        task.add_done_callback(self._saving.discard)
        return Live(credential=new, is_persisted=False)

    async def close(self, *, seconds: float) -> None:
        """Goes on trying for a while, then gives up what the store did not take."""
        self._is_closing.set()
        if self._saving:
            _, late = await asyncio.wait(self._saving, timeout=seconds)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)
        if self._unsaved:
            _log.critical(
                "new tokens are lost: the store did not take them until the end",
                extra={"fields": {"credentials": sorted("/".join(p) for p in self._unsaved)}},
            )

    async def _save_later(self, unsaved: _Unsaved) -> None:
        seconds = _FIRST_BACKOFF_SECONDS
        try:
            while self._is_newest(unsaved):
                await self._pause(seconds * (0.5 + self._chance() / 2))
                seconds = min(seconds * 2, _LONGEST_BACKOFF_SECONDS)
                if self._is_newest(unsaved):
                    await self._try_again(unsaved)
        finally:
            await off_loop(unsaved.hold.release)

    async def _try_again(self, unsaved: _Unsaved) -> None:
        try:
            await self._stored(unsaved.new, unsaved.over)
        except ServiceError as error:
            if error.code is Code.STORE_UNAVAILABLE:
                return
        if self._is_newest(unsaved):
            self.drop(*unsaved.place)
        _log.warning(
            "tokens that were kept in memory are settled",
            extra={"fields": {"credential": "/".join(unsaved.place)}},
        )

    def _is_newest(self, unsaved: _Unsaved) -> bool:
        return self._unsaved.get(unsaved.place) is unsaved

    async def _pause(self, seconds: float) -> None:
        """Waits for so long; once the process ends, hardly at all."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._is_closing.wait()
                await asyncio.sleep(_CLOSING_BACKOFF_SECONDS)

    async def _stored(self, new: Credential, over: Held[Credential] | None) -> Credential:
        """Stores new tokens, and gives what is stored: those, or what somebody put there instead.

        Raises:
            ServiceError: The store does not take them; or the record was removed.
        """
        for _ in range(TRIES):
            try:
                await self._custody.keep(new, expected=0 if over is None else over.generation)
            except GenerationMovedError:
                there = found(await self._custody.credential(new.connection, new.account))
                if over is None or not _gives_way(there.record, old=over.record, new=new):
                    return there.record
                new, over = replace(new, number=there.record.number + 1), there
            else:
                return new
        raise ServiceError(Code.STORE_UNAVAILABLE, "Others keep changing the record.")


def _gives_way(there: Credential, *, old: Credential, new: Credential) -> bool:
    """Says whether what was written since the old tokens were read is no more than those.

    It is where a record was sealed with another key, or a failure noted. It is not where a person
    has connected or disconnected, or where a write succeeded that seemed to fail.
    """
    if there.granted_at != old.granted_at:
        return False
    if there.state is State.DISCONNECTED and old.state is not State.DISCONNECTED:
        return False
    return there.number == old.number or new.granted_at != old.granted_at


def tokens_of(granted: Granted, asked_at: float) -> Tokens:
    """Gives what is kept of a token set; its life counts from when it was asked for."""
    tokens = granted.tokens
    return Tokens(
        access_token=tokens.access_token,
        refresh_token=tokens.refresh_token,
        scopes=granted.scopes,
        missing_scopes=granted.missing_scopes,
        obtained_at=asked_at,
        expires_at=None if tokens.expires_in is None else asked_at + tokens.expires_in,
    )


def usable(credential: Credential) -> Credential:
    """Gives a credential that holds tokens.

    Raises:
        ServiceError: It was disconnected.
    """
    if credential.state is State.DISCONNECTED or credential.tokens is None:
        raise ServiceError(Code.CREDENTIAL_NOT_FOUND, "It was disconnected.")
    return credential
