"""The requests and answers of the HTTP interface, in camelCase; imports pydantic and the errors."""

from __future__ import annotations

from typing import Annotated

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    StringConstraints,
    ValidationError,
)
from pydantic.alias_generators import to_camel

from segmentstream_connections_runtime.errors import Code, ServiceError

_CHALLENGE = r"^[A-Za-z0-9_-]{43}$"  # RFC 7636 section 4.2, S256
_VERIFIER = r"^[A-Za-z0-9._~-]{43,128}$"  # RFC 7636 section 4.1
_VISIBLE = r"^[\x21-\x7e]+$"
# RFC 3986 with https, or http of a loopback host (RFC 8252 section 7.3), without user and fragment;
# nothing in it that a browser and a server could read differently.
_PORT = r"(:(6553[0-5]|655[0-2][0-9]|65[0-4][0-9]{2}|6[0-4][0-9]{3}|[1-5]?[0-9]{1,4}))?"
_REDIRECT = (
    r"^(https://([A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])|http://(127\.0\.0\.1|\[::1\]|localhost))"
    + _PORT
    + r"([/?][\x21\x22\x24-\x5b\x5d-\x7e]*)?$"
)

RedirectUri = Annotated[str, StringConstraints(max_length=2048, pattern=_REDIRECT)]


class _Message(BaseModel):
    model_config = ConfigDict(
        extra="forbid", frozen=True, strict=True, alias_generator=to_camel,
        validate_by_alias=True, hide_input_in_errors=True,
    )  # fmt: skip


class _Answer(_Message):
    model_config = ConfigDict(validate_by_name=True)


class _ForConnection(_Message):
    # A value for each of the connection's url_variables; the connection checks that it is a label.
    variables: Annotated[
        dict[
            Annotated[str, StringConstraints(max_length=32)],
            Annotated[str, StringConstraints(min_length=1, max_length=63)],
        ],
        Field(max_length=16),
    ] = Field(default_factory=dict)


class StartRequest(_ForConnection):
    """Asks for the address that a person is sent to."""

    redirect_uri: RedirectUri
    state: Annotated[str, StringConstraints(min_length=1, max_length=256, pattern=_VISIBLE)]
    code_challenge: Annotated[str, StringConstraints(pattern=_CHALLENGE)] | None = None


class StartAnswer(_Answer):
    """Is that address."""

    authorization_url: str


class ExchangeRequest(_ForConnection):
    """Brings the code that the provider gave."""

    code: Annotated[str, StringConstraints(min_length=1, max_length=4096, pattern=_VISIBLE)]
    redirect_uri: RedirectUri
    code_verifier: Annotated[str, StringConstraints(pattern=_VERIFIER)] | None = None


class RefreshRequest(_ForConnection):
    """Brings the refresh token of a token set."""

    refresh_token: Annotated[
        str, StringConstraints(min_length=1, max_length=16384, pattern=_VISIBLE)
    ]


class TokenSetAnswer(_Answer):
    """Is a token set."""

    access_token: str
    refresh_token: str | None
    token_type: str
    expires_in: int | None
    scopes: list[str]
    missing_scopes: list[str]
    metadata: dict[str, str | int | bool]


Account = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9_.-]{0,63}$")]


class _ForCredential(_Message):
    account: Account = "default"


class CredentialStartRequest(_ForCredential, _ForConnection):
    """Asks for the address that a person is sent to, the rest of the authorization kept here."""

    redirect_uri: RedirectUri


class CredentialStartAnswer(_Answer):
    """Is that address, and what the one who asked for it brings back with the callback."""

    authorization_url: str
    binding: str
    expires_in: int


class CredentialCompleteRequest(_Message):
    """Brings the query of the callback, each parameter of it."""

    callback: Annotated[
        dict[
            Annotated[str, StringConstraints(max_length=64)],
            Annotated[str, StringConstraints(max_length=4096)],
        ],
        Field(max_length=32),
    ]
    binding: Annotated[str, StringConstraints(min_length=1, max_length=256, pattern=_VISIBLE)]


class CredentialRequest(_ForCredential):
    """Names a credential."""


class CredentialAnswer(_Answer):
    """Tells of a credential what is no secret; times are seconds since 1970."""

    connection: str
    account: str
    state: str
    reason: str
    scopes: list[str]
    missing_scopes: list[str]
    granted_at: float | None
    obtained_at: float | None
    expires_at: float | None
    has_refresh_token: bool
    is_declared: bool
    last_failure: str | None
    retry_at: float | None
    token_number: int
    persisted: bool
    metadata: dict[str, str | int | bool]


class CredentialsAnswer(_Answer):
    """Tells of all credentials."""

    credentials: list[CredentialAnswer]


class DisconnectAnswer(_Answer):
    """Says whether the provider was told."""

    revoked: bool


class AccessRequest(_ForCredential):
    """Asks for a token that can be used now.

    `rejectedTokenNumber` names the token that the provider's interface has refused.
    """

    min_ttl_seconds: Annotated[int, Field(ge=0, le=86400)] = 0
    rejected_token_number: Annotated[int, Field(ge=1, le=2**53)] | None = None


class AccessAnswer(_Answer):
    """Is that token, and how the provider's interface takes it."""

    access_token: str
    token_type: str
    expires_in: int | None
    token_number: int
    scopes: list[str]
    missing_scopes: list[str]
    metadata: dict[str, str | int | bool]
    base_url: str | None
    header: str
    scheme: str
    refresh_statuses: list[int]
    persisted: bool


class ErrorBody(_Answer):
    """Says what went wrong."""

    code: str
    message: str
    id: str


class ErrorAnswer(_Answer):
    """Is the answer of every request that did not succeed."""

    error: ErrorBody


def read_json[M: _Message](kind: type[M], body: bytes) -> M:
    """Reads a request.

    Raises:
        ServiceError: It is not of that form; the detail names fields, never values.
    """
    try:
        return kind.model_validate_json(body)
    except ValidationError as error:
        # Names of fields that are declared; what else the caller wrote is not repeated.
        known = {to_camel(name) for name in kind.model_fields}
        wrong = sorted({str(part) for each in error.errors() for part in each["loc"][:1]} & known)
        raise ServiceError(
            Code.INVALID_REQUEST, f"Wrong: {', '.join(wrong)}." if wrong else ""
        ) from None
