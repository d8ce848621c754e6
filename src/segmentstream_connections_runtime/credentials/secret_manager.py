"""Records in Google Secret Manager, one secret each; imports its port and `secret_api`.

The content is a version of the secret. Annotations say which, and count the generations; Secret
Manager changes them only while the etag of the secret is the one that was read, so that a write is
done when the annotations are, and whoever loses destroys the version it had added. A hold is an
annotation too, with an end: nobody tells Google that a process has died.

Apart from reading a version by its number, Google promises only that reads catch up in time. So a
store never falls behind what it has seen itself, and a read that is led to a version that has been
destroyed says that it does not know.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from hashlib import sha256
from threading import Lock
from uuid import uuid4

from segmentstream_connections_runtime.credentials.base import (
    CredentialStore,
    GenerationMovedError,
    Hold,
    Record,
    StoreError,
)
from segmentstream_connections_runtime.credentials.secret_api import Secret, SecretApi, Version

HOLD_SECONDS = 45.0
_NAME = "segmentstream-name"
_GENERATION = "segmentstream-generation"
_VERSION = "segmentstream-version"
_CHANGES = "segmentstream-changes"
_HOLD = "segmentstream-hold"
_ID_LENGTH = 255
_DIGEST_LENGTH = 64
_ATTEMPTS = 10
_SOONEST_EXPIRY_SECONDS = 3600.0  # Google refuses a time that is near or past
_UNSETTLED = (
    "Secret Manager gives a state of a credential that has passed, or others keep changing it. Try "
    "again."
)


class SecretManagerStore(CredentialStore):
    """Keeps each record in a secret whose name begins with a prefix.

    A hold ends after 45 seconds by the clock of whoever looks: clocks must agree to some seconds.
    """

    hold_proves_end = False

    def __init__(
        self, api: SecretApi, *, prefix: str, clock: Callable[[], float] = time.time
    ) -> None:
        self._api = api
        self._prefix = prefix
        self._clock = clock
        self._seen: dict[str, Secret] = {}
        self._seeing = Lock()

    def read(self, name: str) -> Record | None:
        """As `CredentialStore.read`."""
        for _ in range(_ATTEMPTS):
            secret = self._find(name)
            if secret is None or not _generation(secret):
                return None
            content = self._api.access_version(secret.id, _version(secret))
            if content is not None:
                return Record(content=content, generation=_generation(secret))
        raise StoreError(_UNSETTLED)

    def write(
        self, name: str, content: bytes, *, expected: int, expires_at: float | None = None
    ) -> int:
        """As `CredentialStore.write`."""
        if expires_at is not None:
            expires_at = max(expires_at, self._clock() + _SOONEST_EXPIRY_SECONDS)
        made_at, version = 0.0, None
        for _ in range(_ATTEMPTS):
            secret = self._find(name)
            if secret is None and not expected:
                secret = self._create(name, {}, expires_at=expires_at)
            is_other = version is not None and secret is not None and secret.created_at != made_at
            if secret is None or _generation(secret) != expected or (is_other and expected):
                self._take_back(name, version)
                raise _moved(name)
            if version is None or is_other:
                made_at, version = secret.created_at, self._api.add_version(secret.id, content)
            # When no answer comes, the version stays: it may be the record.
            if version and self._point(secret, version, expected + 1, expires_at):
                self._destroy_before(secret.id, version)
                return expected + 1
        self._take_back(name, version)
        raise StoreError(_UNSETTLED)

    def delete(self, name: str, *, expected: int) -> None:
        """As `CredentialStore.delete`; while the name is held, its secret stays without content."""
        for _ in range(_ATTEMPTS):
            secret = self._find(name)
            if secret is None or not expected or _generation(secret) != expected:
                raise _moved(name)
            if not self._holder(secret):
                if self._api.delete(secret):
                    return
                continue
            contents = self._api.enabled_versions(secret.id)
            kept = _without(secret, _GENERATION, _VERSION)
            if self._change(secret, kept, expires_at=secret.expires_at):
                self._destroy(
                    secret.id, (each for each in contents if each.number <= _version(secret))
                )
                return
        raise StoreError(_UNSETTLED)

    def names(self, prefix: str) -> list[str]:
        """As `CredentialStore.names`."""
        return sorted(
            name
            for secret in self._api.secrets()
            if (name := secret.annotations.get(_NAME, "")).startswith(prefix)
            and secret.id == self._id(name)
            and _generation(secret)
        )

    def try_hold(self, name: str) -> Hold | None:
        """As `CredentialStore.try_hold`, for 45 seconds at most."""
        owner = uuid4().hex
        secret = self._find(name)
        for _ in range(_ATTEMPTS):
            noted = {_HOLD: f"{owner} {round(self._clock() + HOLD_SECONDS)}"}
            if secret is None:
                secret = self._create(name, noted, expires_at=None)
            elif self._holder(secret):
                return None
            else:
                changed = self._change(
                    secret, {**secret.annotations, **noted}, expires_at=secret.expires_at
                )
                secret = changed or self._find(name)
            if secret is not None and self._holder(secret) == owner:
                return _AnnotatedHold(lambda: self._release(name, owner))
        raise StoreError(_UNSETTLED)

    def check(self) -> None:
        """As `CredentialStore.check`; the rights to write are asked for, not used."""
        self._api.check()

    def close(self) -> None:
        """As `CredentialStore.close`."""
        self._api.close()

    def _release(self, name: str, owner: str) -> None:
        for _ in range(_ATTEMPTS):
            secret = self._find(name)
            if secret is None or self._holder(secret) != owner:
                return
            if not _generation(secret):
                if self._api.delete(secret):
                    return
            elif self._change(secret, _without(secret, _HOLD), expires_at=secret.expires_at):
                return

    def _holder(self, secret: Secret) -> str | None:
        owner, _, until = secret.annotations.get(_HOLD, " 0").partition(" ")
        return owner if _count(secret, until) > self._clock() else None

    def _find(self, name: str) -> Secret | None:
        """Gives a secret as it is, or as it was seen already where Google lags behind that."""
        found = self._api.get(self._id(name))
        return self._newest(found) if found else None

    def _create(
        self, name: str, noted: Mapping[str, str], *, expires_at: float | None
    ) -> Secret | None:
        """Makes the secret of a name, or gives the one that somebody else has just made."""
        annotations = {_NAME: name, _CHANGES: "1", **noted}
        made = self._api.create(self._id(name), annotations, expires_at=expires_at)
        return self._newest(made) if made else self._find(name)

    def _change(
        self, secret: Secret, annotations: Mapping[str, str], *, expires_at: float | None
    ) -> Secret | None:
        counted = {**annotations, _CHANGES: str(_changes(secret) + 1)}
        changed = self._api.update(secret, counted, expires_at=expires_at)
        return self._newest(changed) if changed else None

    def _newest(self, found: Secret) -> Secret:
        with self._seeing:
            seen = self._seen.get(found.id, found)
            newest = max(found, seen, key=lambda each: (each.created_at, _changes(each)))
            self._seen[found.id] = newest
            return newest

    def _point(
        self, secret: Secret, version: Version, generation: int, expires_at: float | None
    ) -> Secret | None:
        pointers = {_GENERATION: str(generation), _VERSION: str(version.number)}
        return self._change(secret, {**secret.annotations, **pointers}, expires_at=expires_at)

    def _take_back(self, name: str, version: Version | None) -> None:
        if version is not None:
            self._destroy(self._id(name), [version])

    def _destroy_before(self, secret_id: str, version: Version) -> None:
        # Whoever added an earlier version has been overtaken, also where it still tries. One with a
        # smaller number that is younger is of a secret that was made anew meanwhile.
        with suppress(StoreError):  # the record is written; the next write destroys them too
            self._destroy(
                secret_id,
                (
                    each
                    for each in self._api.enabled_versions(secret_id)
                    if each.number < version.number and each.created_at <= version.created_at
                ),
            )

    def _destroy(self, secret_id: str, versions: Iterable[Version]) -> None:
        with suppress(StoreError):  # nothing leads to them, and the next write destroys them too
            for each in versions:
                self._api.destroy_version(secret_id, each)

    def _id(self, name: str) -> str:
        """Gives the secret of a name: readable, and never that of another name or prefix."""
        # Capitals are in no name and no prefix, so they can stand for what a secret may not have.
        readable = f"{self._prefix}S{name.replace('/', 'S').replace('.', 'D')}"
        if len(readable) <= _ID_LENGTH:
            return readable
        digest = sha256(readable.encode()).hexdigest()
        return f"{readable[: _ID_LENGTH - _DIGEST_LENGTH - 1]}H{digest}"


class _AnnotatedHold:
    """Is a note on a secret."""

    def __init__(self, release: Callable[[], None]) -> None:
        self._release = release

    def release(self) -> None:
        """As `Hold.release`."""
        with suppress(StoreError):  # it ends by itself
            self._release()


def _generation(secret: Secret) -> int:
    return _count(secret, secret.annotations.get(_GENERATION, "0"))


def _version(secret: Secret) -> int:
    return _count(secret, secret.annotations.get(_VERSION, "0"))


def _changes(secret: Secret) -> int:
    return _count(secret, secret.annotations.get(_CHANGES, "0"))


def _count(secret: Secret, noted: str) -> int:
    if not (noted.isascii() and noted.isdecimal()):
        raise StoreError(
            f"The annotations of the secret {secret.id} are not those of a credential store. "
            "Remove the secret, and authorize again."
        )
    return int(noted)


def _without(secret: Secret, *keys: str) -> dict[str, str]:
    return {key: value for key, value in secret.annotations.items() if key not in keys}


def _moved(name: str) -> GenerationMovedError:
    return GenerationMovedError(
        f"The record {name} was changed by somebody else. Read it again and decide anew."
    )
