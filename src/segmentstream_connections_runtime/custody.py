"""Credentials as the rest of the service sees them: by connection and account, opened and typed.

Puts a store and a key ring together and takes their blocking work off the loop. Imports
`credentials` and the errors.
"""

from __future__ import annotations

import asyncio
import hashlib
import random
import re
import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from segmentstream_connections_runtime.credentials.base import (
    CredentialStore,
    GenerationMovedError,
    Hold,
    StoreError,
)
from segmentstream_connections_runtime.credentials.keys import Keys
from segmentstream_connections_runtime.credentials.records import Attempt, Credential
from segmentstream_connections_runtime.credentials.sealing import KeyRingError, WrongKeyError
from segmentstream_connections_runtime.errors import Code, ServiceError

ACCOUNT = re.compile(r"[a-z0-9][a-z0-9_.-]{0,63}")
_ATTEMPTS = ".attempts"  # no key of a connection begins with a dot
_FIRST_WAIT_SECONDS = 0.01
_LONGEST_WAIT_SECONDS = 0.25


@dataclass(frozen=True, slots=True, kw_only=True)
class Held[R: (Credential, Attempt)]:
    """Is a record that was read, with what a later write compares.

    Attributes:
        record: What it says.
        generation: How often it had been written.
    """

    record: R
    generation: int


class Custody:
    """Reads and writes the credentials of one workspace."""

    def __init__(self, store: CredentialStore, keys: Keys, *, workspace: str) -> None:
        self.store = store
        self._keys = keys
        self._workspace = workspace

    async def credential(self, connection: str, account: str) -> Held[Credential] | None:
        """Gives a credential; None where nobody has authorized it.

        Raises:
            ServiceError: The store cannot be read, or the record does not open.
        """
        return await self._read(self._name(connection, account), Credential.from_bytes)

    async def keep(self, credential: Credential, *, expected: int) -> int:
        """Writes a credential if it is still as it was read; gives its new generation.

        Raises:
            GenerationMovedError: It is not.
            ServiceError: The store cannot be written; the record may have been all the same.
        """
        name = self._name(credential.connection, credential.account)
        return await self._write(name, credential.to_bytes(), expected=expected)

    async def credentials(self) -> list[Held[Credential]]:
        """Gives all credentials of the workspace."""
        prefix = f"{self._workspace}/"
        names = await _in_thread(lambda: self.store.names(prefix))
        wanted = [name for name in names if not name.startswith(f"{prefix}{_ATTEMPTS}/")]
        found = [await self._read(name, Credential.from_bytes) for name in wanted]
        return [held for held in found if held is not None]

    async def forget(self, connection: str, account: str) -> None:
        """Removes a record, whether or not it opens."""
        name = self._name(connection, account)

        def remove() -> None:
            if record := self.store.read(name):
                self.store.delete(name, expected=record.generation)

        await _in_thread(remove)

    async def attempt(self, state: str) -> Held[Attempt] | None:
        """Gives the authorization under way that has that state."""
        return await self._read(self._name_of_attempt(state), Attempt.from_bytes)

    async def keep_attempt(self, state: str, attempt: Attempt, *, expected: int) -> int:
        """Writes an authorization under way, as `keep`."""
        return await self._write(
            self._name_of_attempt(state),
            attempt.to_bytes(),
            expected=expected,
            expires_at=attempt.expires_at,
        )

    async def hold(self, connection: str, account: str, *, seconds: float) -> Hold:
        """Waits until nobody else renews a credential, here or elsewhere; the caller releases it.

        Raises:
            ServiceError: Somebody held it all that time, or the store cannot be reached.
        """
        name = self._name(connection, account)
        loop = asyncio.get_running_loop()
        end = loop.time() + seconds
        wait = _FIRST_WAIT_SECONDS
        while (hold := await _in_thread(lambda: self.store.try_hold(name))) is None:
            if loop.time() > end:
                raise ServiceError(
                    Code.STORE_UNAVAILABLE, "Another process has been renewing it for too long."
                )
            await asyncio.sleep(wait * random.uniform(0.5, 1))  # noqa: S311 - no secret
            wait = min(wait * 2, _LONGEST_WAIT_SECONDS)
        return hold

    async def reseal(self) -> tuple[int, int]:
        """Seals every record with the first key; gives how many there are and how many it changed.

        Raises:
            ServiceError: A record does not open; those before it are sealed anew.
        """
        names = await _in_thread(lambda: self.store.names(f"{self._workspace}/"))
        changed = 0
        for name in names:
            changed += await _in_thread(partial(self._resealed, name))
        return len(names), changed

    async def check(self) -> None:
        """Makes sure that the store works and that the keys open what is in it.

        Raises:
            ServiceError: They do not.
        """
        await _in_thread(self.store.check)
        await self.credentials()

    async def close(self) -> None:
        """Lets go of the store."""
        await off_loop(self.store.close)

    def _resealed(self, name: str) -> bool:
        while (record := self.store.read(name)) is not None:
            ring = self._keys.ring()
            if ring.seals_like(record.content):
                return False
            sealed = ring.seal(self._opened(record.content, name), belonging_to=name)
            try:
                self.store.write(name, sealed, expected=record.generation)
            except GenerationMovedError:
                continue
            return True
        return False

    async def _read[R: (Credential, Attempt)](
        self, name: str, read: Callable[[bytes], R]
    ) -> Held[R] | None:
        def opened() -> Held[R] | None:
            record = self.store.read(name)
            if record is None:
                return None
            content = self._opened(record.content, name)
            return Held(record=read(content), generation=record.generation)

        return await _in_thread(opened)

    async def _write(
        self, name: str, content: bytes, *, expected: int, expires_at: float | None = None
    ) -> int:
        # Every write seals with the first key: old keys go out of use without a rotation.
        def written() -> int:
            sealed = self._keys.ring().seal(content, belonging_to=name)
            return self.store.write(name, sealed, expected=expected, expires_at=expires_at)

        return await _in_thread(written)

    def _opened(self, sealed: bytes, name: str) -> bytes:
        try:
            return self._keys.ring().open(sealed, belonging_to=name)
        except WrongKeyError as error:
            if error.key_id is None:
                raise
        return self._keys.reread().open(sealed, belonging_to=name)

    def _name(self, connection: str, account: str) -> str:
        if not ACCOUNT.fullmatch(account):
            raise ServiceError(
                Code.INVALID_REQUEST,
                "Wrong: account. It is 1 to 64 lowercase letters, digits, `_`, `.` and `-`.",
            )
        return f"{self._workspace}/{connection}/{account}"

    def _name_of_attempt(self, state: str) -> str:
        digest = hashlib.sha256(state.encode("utf-8", "surrogatepass")).hexdigest()
        return f"{self._workspace}/{_ATTEMPTS}/{digest}"


def found(held: Held[Credential] | None) -> Held[Credential]:
    """Gives a credential that was read.

    Raises:
        ServiceError: Nobody has authorized it.
    """
    if held is None:
        raise ServiceError(Code.CREDENTIAL_NOT_FOUND)
    return held


async def off_loop[T](work: Callable[[], T]) -> T:
    """Does blocking work in a thread; in this one where the interpreter starts no more of them.

    That is when it ends: what is not stored yet must be stored all the same.
    """
    if threading.main_thread().is_alive():
        return await asyncio.to_thread(work)
    return work()


async def _in_thread[T](work: Callable[[], T]) -> T:
    try:
        return await off_loop(work)
    except GenerationMovedError:
        raise
    except (StoreError, KeyRingError, WrongKeyError) as error:
        raise ServiceError(Code.STORE_UNAVAILABLE, str(error)) from None
