"""Codes, grants and tokens of the fake provider; no sockets. Imports the standard library only.

The rules are those of RFC 6749 with what RFC 9700 asks for: PKCE with S256, codes for one use, and
refresh tokens that rotate. Whoever brings a code or a refresh token a second time ends the grant,
because one of the two who held it must have stolen it (RFC 9700 section 4.14).
"""

from __future__ import annotations

import secrets
import threading
from base64 import urlsafe_b64encode
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from hashlib import sha256

_CODE_SECONDS = 60


class OAuthError(Exception):
    """Says why a request is refused, in the words of RFC 6749 sections 4.1.2.1 and 5.2.

    Attributes:
        error: The code of the error.
        description: What a developer can do about it.
    """

    def __init__(self, error: str, description: str) -> None:
        super().__init__(error, description)
        self.error = error
        self.description = description


@dataclass(frozen=True, slots=True, kw_only=True)
class Consent:
    """Is what a person is asked to allow.

    Attributes:
        redirect_uri: Where the answer goes.
        scopes: What is asked for.
        challenge: SHA-256 of the verifier, in base64url.
        state: What the client wants back with the answer.
    """

    redirect_uri: str
    scopes: tuple[str, ...]
    challenge: str = field(repr=False)
    state: str | None = field(default=None, repr=False)


@dataclass(slots=True, kw_only=True, eq=False)
class _Grant:
    scopes: tuple[str, ...]
    is_revoked: bool = False


@dataclass(slots=True, kw_only=True, eq=False)
class _Code:
    consent: Consent
    expires_at: float
    grant: _Grant
    is_used: bool = False


@dataclass(slots=True, kw_only=True, eq=False)
class _RefreshToken:
    grant: _Grant
    is_used: bool = False


@dataclass(slots=True, kw_only=True, eq=False)
class _AccessToken:
    grant: _Grant
    expires_at: float


class Grants:
    """Keeps who was granted what, in memory; safe to call from many threads."""

    def __init__(self, *, lifetime_seconds: int, clock: Callable[[], float]) -> None:
        self._lifetime_seconds = lifetime_seconds
        self._clock = clock
        self._lock = threading.Lock()
        self._codes: dict[str, _Code] = {}
        self._refresh_tokens: dict[str, _RefreshToken] = {}
        self._access_tokens: dict[str, _AccessToken] = {}

    def allow(self, consent: Consent) -> str:
        """Gives the code for what a person has allowed."""
        with self._lock:
            code = _random("code")
            self._codes[code] = _Code(
                consent=consent,
                expires_at=self._clock() + _CODE_SECONDS,
                grant=_Grant(scopes=consent.scopes),
            )
            return code

    def exchange(self, *, code: str, redirect_uri: str, verifier: str) -> Mapping[str, object]:
        """Gives tokens for a code (RFC 6749 section 4.1.3, RFC 7636 section 4.6).

        Raises:
            OAuthError: The code is unknown, used or too old, or belongs to another request.
        """
        with self._lock:
            known = self._codes.get(code)
            if known is None:
                raise _invalid_grant("The code is not known.")
            if known.is_used:
                known.grant.is_revoked = True
                raise _invalid_grant("The code has been used; what it granted is revoked.")
            known.is_used = True
            if self._clock() >= known.expires_at:
                raise _invalid_grant("The code has expired.")
            if redirect_uri != known.consent.redirect_uri:
                raise _invalid_grant("redirect_uri is not the one of the authorization request.")
            if not secrets.compare_digest(challenge_of(verifier), known.consent.challenge):
                raise _invalid_grant("code_verifier does not fit code_challenge.")
            return self._issue(known.grant)

    def refresh(self, token: str) -> Mapping[str, object]:
        """Gives new tokens for a refresh token, which it spends.

        Raises:
            OAuthError: The refresh token is unknown, used or revoked.
        """
        with self._lock:
            known = self._refresh_tokens.get(token)
            if known is None:
                raise _invalid_grant("The refresh token is not known.")
            if known.grant.is_revoked:
                raise _invalid_grant("The grant has been revoked.")
            if known.is_used:
                known.grant.is_revoked = True
                raise _invalid_grant("The refresh token has been used; its grant is revoked.")
            known.is_used = True
            return self._issue(known.grant)

    def grant(self, scopes: tuple[str, ...]) -> Mapping[str, object]:
        """Gives the tokens of a new grant, without asking anybody."""
        with self._lock:
            return self._issue(_Grant(scopes=scopes))

    def revoke(self, token: str) -> None:
        """Ends the grant of a token; one that is not known is no error (RFC 7009 section 2.2)."""
        with self._lock:
            if token in self._refresh_tokens:
                self._refresh_tokens[token].grant.is_revoked = True
            elif token in self._access_tokens:
                self._access_tokens[token].grant.is_revoked = True

    def revoke_all(self) -> None:
        """Ends every grant."""
        with self._lock:
            for known in self._access_tokens.values():  # no grant is without one
                known.grant.is_revoked = True

    def expire_all(self) -> None:
        """Lets every access token expire; refresh tokens stay good."""
        with self._lock:
            for known in self._access_tokens.values():
                known.expires_at = self._clock()

    def is_live(self, access_token: str) -> bool:
        """Says whether an access token opens the API now."""
        with self._lock:
            known = self._access_tokens.get(access_token)
            return (
                known is not None
                and not known.grant.is_revoked
                and self._clock() < known.expires_at
            )

    def _issue(self, grant: _Grant) -> Mapping[str, object]:
        access_token, refresh_token = _random("access"), _random("refresh")
        self._access_tokens[access_token] = _AccessToken(
            grant=grant, expires_at=self._clock() + self._lifetime_seconds
        )
        self._refresh_tokens[refresh_token] = _RefreshToken(grant=grant)
        return {
            "access_token": access_token,
            "token_type": "Bearer",
            "expires_in": self._lifetime_seconds,
            "refresh_token": refresh_token,
            "scope": " ".join(grant.scopes),
        }


def challenge_of(verifier: str) -> str:
    """Computes the S256 challenge of a verifier (RFC 7636 section 4.2)."""
    digest = sha256(verifier.encode()).digest()
    return urlsafe_b64encode(digest).rstrip(b"=").decode()


def _random(kind: str) -> str:
    return f"fake-{kind}-{secrets.token_urlsafe(24)}"


def _invalid_grant(description: str) -> OAuthError:
    return OAuthError("invalid_grant", description)
