"""Every outcome of the service that is no success: one code, one HTTP status, one place.

Imports the standard library only. A text here is for the caller and for the log; it never holds
what a provider wrote, nor a secret.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """Says what a code means to the caller.

    Attributes:
        status: The HTTP status it is answered with.
        retryable: Whether the same request may succeed later without any change.
        meaning: What happened and what to do, in a sentence or two.
    """

    status: int
    retryable: bool
    meaning: str


class Code(Enum):
    """Lists the codes; the value is what stands in the answer."""

    INVALID_REQUEST = "invalid_request"
    UNAUTHORIZED = "unauthorized"
    NOT_FOUND = "not_found"
    METHOD_NOT_ALLOWED = "method_not_allowed"
    PAYLOAD_TOO_LARGE = "payload_too_large"
    UNSUPPORTED_MEDIA_TYPE = "unsupported_media_type"
    CONNECTION_NOT_FOUND = "connection_not_found"
    PROVIDER_REJECTED = "oauth_provider_rejected"
    REAUTHORIZATION_REQUIRED = "oauth_reauthorization_required"
    CLIENT_REJECTED = "oauth_client_rejected"
    RATE_LIMITED = "oauth_rate_limited"
    TOKEN_RESPONSE_INVALID = "oauth_token_response_invalid"  # noqa: S105 - a code, no secret
    PROVIDER_UNREADABLE = "oauth_provider_unreadable"
    PROVIDER_UNAVAILABLE = "oauth_provider_unavailable"
    OUTCOME_UNKNOWN = "oauth_outcome_unknown"
    CREDENTIAL_NOT_FOUND = "credential_not_found"
    AUTHORIZATION_NOT_FOUND = "authorization_not_found"
    STORE_UNAVAILABLE = "credential_store_unavailable"
    RUNTIME_UNAVAILABLE = "runtime_unavailable"
    INTERNAL_ERROR = "internal_error"


OUTCOMES: dict[Code, Outcome] = {
    Code.INVALID_REQUEST: Outcome(
        status=400, retryable=False, meaning="The request is not of the documented form."
    ),
    Code.UNAUTHORIZED: Outcome(
        status=401, retryable=False, meaning="The caller did not prove who it is."
    ),
    Code.NOT_FOUND: Outcome(status=404, retryable=False, meaning="There is no such address."),
    Code.METHOD_NOT_ALLOWED: Outcome(
        status=405, retryable=False, meaning="The address exists, but not for this method."
    ),
    Code.PAYLOAD_TOO_LARGE: Outcome(
        status=413, retryable=False, meaning="The body of the request is too large."
    ),
    Code.UNSUPPORTED_MEDIA_TYPE: Outcome(
        status=415, retryable=False, meaning="The body must be application/json."
    ),
    Code.CONNECTION_NOT_FOUND: Outcome(
        status=404, retryable=False, meaning="No connection of this key is declared."
    ),
    Code.PROVIDER_REJECTED: Outcome(
        status=400, retryable=False, meaning="The provider refused the request."
    ),
    Code.REAUTHORIZATION_REQUIRED: Outcome(
        status=400,
        retryable=False,
        meaning="The grant is no longer valid: a person has to authorize again.",
    ),
    Code.CLIENT_REJECTED: Outcome(
        status=502,
        retryable=False,
        meaning="The provider did not accept the client: check its id, its secret and how it "
        "authenticates.",
    ),
    Code.RATE_LIMITED: Outcome(
        status=429, retryable=True, meaning="The provider asks to wait before the next request."
    ),
    Code.TOKEN_RESPONSE_INVALID: Outcome(
        status=400, retryable=False, meaning="The provider's answer holds no usable token."
    ),
    Code.PROVIDER_UNREADABLE: Outcome(
        status=502,
        retryable=True,
        meaning="The provider answered with something that is no token answer, such as a page.",
    ),
    Code.PROVIDER_UNAVAILABLE: Outcome(
        status=502, retryable=True, meaning="The provider could not be reached, or failed."
    ),
    Code.OUTCOME_UNKNOWN: Outcome(
        status=502,
        retryable=True,
        meaning="The connection to the provider ended before its answer to a refresh: whether the "
        "refresh token is spent is not known.",
    ),
    Code.CREDENTIAL_NOT_FOUND: Outcome(
        status=404,
        retryable=False,
        meaning="Nobody has authorized the connection for this account, or it was disconnected.",
    ),
    Code.AUTHORIZATION_NOT_FOUND: Outcome(
        status=400,
        retryable=False,
        meaning="No authorization with this state is under way: it is over, took longer than ten "
        "minutes or was begun elsewhere. Begin again.",
    ),
    Code.STORE_UNAVAILABLE: Outcome(
        status=503,
        retryable=True,
        meaning="The credentials cannot be read or written now.",
    ),
    Code.RUNTIME_UNAVAILABLE: Outcome(
        status=503,
        retryable=True,
        meaning="The service lacks something it needs, such as a secret, which /ready names.",
    ),
    Code.INTERNAL_ERROR: Outcome(status=500, retryable=True, meaning="A fault of the service."),
}


class ServiceError(Exception):
    """Is an outcome that ends a request.

    Attributes:
        code: Which.
        detail: What is known beyond the code, in the service's own words.
        retry_after_seconds: How long to wait, where the provider said so.
        provider_status: The status of the provider's answer, where there was one.
        provider_code: The provider's own error code, where it is one that RFC 6749 defines.
        was_sent: Whether the provider may have got the request; False only when it surely did not.
    """

    def __init__(
        self,
        code: Code,
        detail: str = "",
        *,
        retry_after_seconds: int | None = None,
        provider_status: int | None = None,
        provider_code: str | None = None,
        was_sent: bool = True,
    ) -> None:
        super().__init__(code, detail)
        self.code = code
        self.detail = detail
        self.retry_after_seconds = retry_after_seconds
        self.provider_status = provider_status
        self.provider_code = provider_code
        self.was_sent = was_sent

    @property
    def outcome(self) -> Outcome:
        """What the code means."""
        return OUTCOMES[self.code]

    def __str__(self) -> str:
        """Says what it means and what is known beyond that."""
        return f"{self.outcome.meaning} {self.detail}".strip()
