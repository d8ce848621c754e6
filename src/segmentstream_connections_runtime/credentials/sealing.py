"""How records are sealed: AES-256-GCM under one of several keys.

Imports `cryptography` when it seals or opens, so that a service starts without it. A sealed record
is `ss1.<key id>.<nonce and ciphertext>`. What it belongs to is authenticated with it and not kept
in it, so a record that was put in another's place does not open.
"""

from __future__ import annotations

import json
import os
import re
import secrets
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Mapping
from dataclasses import dataclass, field

_VERSION = b"ss1"
_NONCE_BYTES = 12  # NIST SP 800-38D section 8.2.2: random, of 96 bits
_KEY_BYTES = 32
_KEY_ID = re.compile(r"[A-Za-z0-9_-]{1,32}")


class KeyRingError(Exception):
    """Says what is wrong with the keys, and what to do about it; never shows one."""


class WrongKeyError(Exception):
    """Says that a record does not open with the keys at hand, and what to do about it.

    Attributes:
        key_id: The key it asks for; None where it has been changed or is no sealed record.
    """

    def __init__(self, text: str, *, key_id: str | None = None) -> None:
        super().__init__(text)
        self.key_id = key_id


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyRing:
    """Seals with its first key and opens with all of them. Its repr shows no key.

    Attributes:
        keys: The keys by id, the one to seal with first.
    """

    keys: Mapping[str, bytes] = field(repr=False)

    @classmethod
    def new(cls) -> KeyRing:
        """Makes a ring with one random key."""
        return cls(keys={f"k-{secrets.token_hex(4)}": secrets.token_bytes(_KEY_BYTES)})

    @classmethod
    def from_text(cls, text: str) -> KeyRing:
        """Reads a JSON Web Key Set of symmetric keys (RFC 7517 section 5, RFC 7518 section 6.4).

        Raises:
            KeyRingError: It is none, or a key cannot be used.
        """
        try:
            document = json.loads(text)
            keys = {str(key["kid"]): _decoded(key["k"]) for key in document["keys"]}
            is_whole = len(keys) == len(document["keys"]) > 0
        except (ValueError, KeyError, TypeError, AttributeError):
            is_whole, keys = False, {}
        if not is_whole or not all(
            _KEY_ID.fullmatch(key_id) and len(key) == _KEY_BYTES for key_id, key in keys.items()
        ):
            raise KeyRingError(
                "The credential keys are no JSON Web Key Set of 256-bit symmetric keys, each with "
                "a `kid` of its own. Give the text that `segmentstream connections rotate-key "
                "--print-new` writes, unchanged."
            ) from None
        return cls(keys=keys)

    def to_text(self) -> str:
        """Writes the ring as a JSON Web Key Set."""
        return json.dumps(
            {
                "keys": [
                    {"kty": "oct", "kid": key_id, "alg": "A256GCM", "k": _encoded(key).decode()}
                    for key_id, key in self.keys.items()
                ]
            }
        )

    @property
    def key_id(self) -> str:
        """Names the key that is sealed with."""
        return next(iter(self.keys))

    def with_new_key(self) -> KeyRing:
        """Gives the ring with a new key to seal with; the old ones still open."""
        return KeyRing(keys={**KeyRing.new().keys, **self.keys})

    def with_first_key_only(self) -> KeyRing:
        """Gives the ring without the keys that are no longer sealed with."""
        return KeyRing(keys={self.key_id: self.keys[self.key_id]})

    def seal(self, content: bytes, *, belonging_to: str) -> bytes:
        """Seals a record for the place it belongs to."""
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # noqa: PLC0415

        nonce = os.urandom(_NONCE_BYTES)
        key_id = self.key_id
        sealed = AESGCM(self.keys[key_id]).encrypt(nonce, content, _bound(key_id, belonging_to))
        return b".".join((_VERSION, key_id.encode(), _encoded(nonce + sealed)))

    def open(self, sealed: bytes, *, belonging_to: str) -> bytes:
        """Opens a record of that place.

        Raises:
            WrongKeyError: Its key is not in the ring, or it was changed or belongs elsewhere.
        """
        from cryptography.exceptions import InvalidTag  # noqa: PLC0415
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # noqa: PLC0415

        key_id, content = _parts(sealed)
        if key_id not in self.keys:
            raise WrongKeyError(
                f"The record was sealed with the key {key_id!r}, which is not in the key ring "
                f"({', '.join(self.keys)}). Add that key to the ring; nothing was changed.",
                key_id=key_id,
            )
        nonce, ciphertext = content[:_NONCE_BYTES], content[_NONCE_BYTES:]
        try:
            return AESGCM(self.keys[key_id]).decrypt(
                nonce, ciphertext, _bound(key_id, belonging_to)
            )
        except (InvalidTag, ValueError):
            raise _changed() from None

    def seals_like(self, sealed: bytes) -> bool:
        """Says whether a record is sealed with the key that is sealed with now."""
        return _parts(sealed)[0] == self.key_id


def _parts(sealed: bytes) -> tuple[str, bytes]:
    match sealed.split(b"."):
        case [version, key_id, content] if version == _VERSION:
            try:
                return key_id.decode("ascii"), _decoded(content.decode("ascii"))
            except (UnicodeDecodeError, ValueError):
                raise _changed() from None
        case _:
            raise _changed()


def _changed() -> WrongKeyError:
    return WrongKeyError(
        "The record was changed, or belongs to another workspace, connection or account. Restore "
        "it from a backup, or disconnect and connect again; nothing was changed."
    )


def _bound(key_id: str, belonging_to: str) -> bytes:
    return b"\x00".join((b"segmentstream credential 1", key_id.encode(), belonging_to.encode()))


def _encoded(content: bytes) -> bytes:
    return urlsafe_b64encode(content).rstrip(b"=")


def _decoded(text: str) -> bytes:
    return urlsafe_b64decode(text + "=" * (-len(text) % 4))
