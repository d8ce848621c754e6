"""What is kept of a credential, and of an authorization under way; imports the standard library.

Both are written as one JSON document each. Their reprs show no secret.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any

type Metadata = Mapping[str, str | int | bool]


class State(StrEnum):
    """Says what a credential is good for."""

    CONNECTED = "connected"
    INCOMPLETE = "incomplete"  # usable until it expires: the provider gave no refresh token
    REAUTHORIZE = "reauthorize"  # dead: a person has to authorize again
    DISCONNECTED = "disconnected"


@dataclass(frozen=True, slots=True, kw_only=True)
class Tokens:
    """Is one pair of tokens.

    Attributes:
        access_token: The token to send.
        refresh_token: The token to renew it with, None where there is none.
        scopes: The scopes in force.
        missing_scopes: Scopes that were asked for and not granted.
        obtained_at: When it was asked for, in seconds since 1970.
        expires_at: When it expires, in seconds since 1970; None where that is unknown.
    """

    access_token: str = field(repr=False)
    refresh_token: str | None = field(repr=False)
    scopes: tuple[str, ...]
    missing_scopes: tuple[str, ...]
    obtained_at: float
    expires_at: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Intent:
    """Is a refresh that was begun and whose answer is not stored.

    Attributes:
        started_at: When, in seconds since 1970.
        refresh_token_sha256: Which refresh token was about to be sent.
        has_ended: Whether the one who began it saw it end without an answer.
    """

    started_at: float
    refresh_token_sha256: str
    has_ended: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """Is the last refresh that failed, told again until it is time for the next.

    Attributes:
        code: The code of its outcome.
        detail: What was known beyond the code.
        at: When, in seconds since 1970.
        attempts: How many have failed since the last success.
        retry_at: When the next may be made, in seconds since 1970.
    """

    code: str
    detail: str
    at: float
    attempts: int
    retry_at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Credential:
    """Is what a person has authorized for one account of a connection.

    Attributes:
        connection: The key of the connection.
        account: Which account of it.
        state: What it is good for.
        reason: Why it has to be authorized again, for people; empty otherwise.
        number: How many pairs of tokens this place has had: a refresh gives the next, and so does
            a new authorization.
        tokens: The newest of them; None once it is disconnected.
        metadata: What the provider told besides, such as where its interface is.
        variables: The values of the connection's variables, such as the name of a shop.
        granted_at: When the person authorized it, in seconds since 1970.
        intent: A refresh whose answer is not known; None normally.
        failure: The last failed refresh; None after a success.
    """

    connection: str
    account: str
    state: State
    reason: str = ""
    number: int
    tokens: Tokens | None = None
    metadata: Metadata = field(default_factory=dict, repr=False)
    variables: Mapping[str, str] = field(default_factory=dict)
    granted_at: float
    intent: Intent | None = None
    failure: Failure | None = None

    def to_bytes(self) -> bytes:
        """Writes it as JSON."""
        return _written(self)

    @classmethod
    def from_bytes(cls, content: bytes) -> Credential:
        """Reads what `to_bytes` wrote."""
        told: dict[str, Any] = json.loads(content)
        tokens, intent, failure = told["tokens"], told["intent"], told["failure"]
        if tokens is not None:
            tokens["scopes"] = tuple(tokens["scopes"])
            tokens["missing_scopes"] = tuple(tokens["missing_scopes"])
        return cls(
            **told
            | {
                "state": State(told["state"]),
                "tokens": None if tokens is None else Tokens(**tokens),
                "intent": None if intent is None else Intent(**intent),
                "failure": None if failure is None else Failure(**failure),
            }
        )


class Progress(StrEnum):
    """Says how far an authorization has come."""

    BEGUN = "begun"
    USED = "used"  # the browser has come back
    DONE = "done"  # its tokens are stored
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """Is an authorization that a person has begun in a browser.

    Attributes:
        connection: The key of the connection.
        account: For which account of it.
        redirect_uri: Where the browser comes back to, exactly as it was sent.
        verifier: The secret of PKCE; None where it is off.
        variables: The values of the connection's variables.
        binding_sha256: The digest of what only the one who began it knows.
        expires_at: Until when it can be completed, in seconds since 1970.
        progress: How far it has come.
    """

    connection: str
    account: str
    redirect_uri: str
    verifier: str | None = field(repr=False)
    variables: Mapping[str, str] = field(default_factory=dict)
    binding_sha256: str
    expires_at: float
    progress: Progress = Progress.BEGUN

    def to_bytes(self) -> bytes:
        """Writes it as JSON."""
        return _written(self)

    @classmethod
    def from_bytes(cls, content: bytes) -> Attempt:
        """Reads what `to_bytes` wrote."""
        told: dict[str, Any] = json.loads(content)
        return cls(**told | {"progress": Progress(told["progress"])})


def _written(record: Credential | Attempt) -> bytes:
    return json.dumps(asdict(record), separators=(",", ":")).encode()
