"""Tokens from the connections service, over HTTP; imports httpx, `access` and the errors.

The service is ours and still not believed blindly: it is asked where the variables say and nowhere
else, and what it answers is checked before it becomes a header.
"""

from __future__ import annotations

import json
import ssl
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

import httpx

from segmentstream._clients.access import Access
from segmentstream._clients.identity import IdentityTokens
from segmentstream._clients.refusals import refusal
from segmentstream._clients.settings import CA_FILE_VARIABLE, CONFIGURATION, ServiceAddress
from segmentstream._core.errors import ConnectionAccessError
from segmentstream.connections._addresses import url_problem

# Longer than the service takes for a provider that does not answer.
_TIMEOUT: Final = httpx.Timeout(30.0, connect=5.0)
_CONNECT_RETRIES: Final = 2
_ANSWER_BYTES: Final = 256 * 1024
_NOT_RETRYABLE: Final = frozenset({"oauth_client_rejected"})
_LATER: Final = frozenset({429, 500, 502, 503, 504})
_TEXT_LENGTH: Final = 500


class ServiceBroker:
    """Asks the connections service for tokens; see `Broker`.

    Args:
        service: Where it is.
        clock: The wall clock, in seconds since 1970.
    """

    def __init__(self, service: ServiceAddress, *, clock: Callable[[], float] = time.time) -> None:
        self._service = service
        self._clock = clock
        self._identity = None if service.audience is None else IdentityTokens(service.audience)
        self._http = httpx.Client(
            transport=httpx.HTTPTransport(verify=_trust(service), retries=_CONNECT_RETRIES),
            timeout=_TIMEOUT,
            follow_redirects=False,
            trust_env=False,
        )

    def access(
        self, key: str, account: str, *, min_ttl_seconds: int = 0, rejected: int | None = None
    ) -> Access:
        """As `Broker.access`."""
        asked_at = self._clock()
        response, body = self._post(
            key,
            {"account": account, "minTtlSeconds": min_ttl_seconds, "rejectedTokenNumber": rejected},
        )
        if response.status_code != httpx.codes.OK:
            raise _refused(key, account, response, body)
        try:
            return _access(json.loads(body), asked_at)
        except (ValueError, RecursionError):
            raise _unreadable(key) from None

    def close(self) -> None:
        """As `Broker.close`."""
        self._http.close()

    def _post(self, key: str, document: Mapping[str, object]) -> tuple[httpx.Response, bytes]:
        url = f"{self._service.url}/internal/v1/connections/{key}/access-token/resolve"
        headers = {}
        token = self._service.token if self._identity is None else self._identity.token(key)
        if token is not None:
            headers["Authorization"] = f"Bearer {token}"
        body = bytearray()
        try:
            with self._http.stream("POST", url, json=document, headers=headers) as response:
                for part in response.iter_bytes():
                    body += part
                    if len(body) > _ANSWER_BYTES:
                        raise _unreadable(key)
        except httpx.HTTPError as error:
            raise ConnectionAccessError(
                f"The connections service could not be asked for connection {key!r}: "
                f"{type(error).__name__}.",
                "See that it runs and can be reached from here, and try again.",
                connection=key,
                code="service_unavailable",
                retryable=True,
            ) from None
        return response, bytes(body)


def _trust(service: ServiceAddress) -> ssl.SSLContext:
    context = ssl.create_default_context()
    if service.ca_file is not None:
        try:
            context.load_verify_locations(cafile=service.ca_file)
        except OSError:  # also what ssl raises
            raise ConnectionAccessError(
                f"{CA_FILE_VARIABLE} names no readable file of certificates in PEM form.",
                "Correct it, or remove it.",
                code=CONFIGURATION,
            ) from None
    return context


def _refused(
    key: str, account: str, response: httpx.Response, body: bytes
) -> ConnectionAccessError:
    status = response.status_code
    try:
        error = json.loads(body)["error"]
        code, message, number = error["code"], error["message"], error.get("id", "")
    except (ValueError, RecursionError, LookupError, TypeError, AttributeError):
        code, message, number = f"http_{status}", "", ""
    if not isinstance(code, str) or not isinstance(message, str) or not message:
        code, message = f"http_{status}", f"the connections service answered {status}."
    after = response.headers.get("Retry-After", "")
    return refusal(
        key,
        account,
        code=_shown(code),
        message=_shown(message) + (f" (error {_shown(str(number))})" if number else ""),
        retryable=status in _LATER and code not in _NOT_RETRYABLE,
        retry_after_seconds=int(after) if after.isdecimal() and len(after) < 10 else None,  # noqa: PLR2004
    )


def _shown(text: str) -> str:
    return "".join(letter for letter in text if letter.isprintable())[:_TEXT_LENGTH]


def _unreadable(key: str) -> ConnectionAccessError:
    return ConnectionAccessError(
        f"The answer of the connections service for connection {key!r} cannot be read.",
        "See that the address is that of a connections service, and that it is as new as this SDK.",
        connection=key,
        code="service_unreadable",
    )


# A document of JSON: checked here, field by field.
def _access(document: Any, asked_at: float) -> Access:
    """Reads an answer.

    Raises:
        ValueError: It is not of the documented form; its text is not for anybody to see.
    """
    if not isinstance(document, dict):
        raise ValueError  # noqa: TRY004 - one error for all that is wrong
    token = _typed(document, "accessToken", str)
    base_url = _typed(document, "baseUrl", str, type(None))
    header = _typed(document, "header", str)
    scheme = _typed(document, "scheme", str)
    lifetime = _typed(document, "expiresIn", int, float, type(None))
    metadata = _typed(document, "metadata", dict)
    if not token or not all(_is_visible(text) for text in (token, header, scheme)):
        raise ValueError
    if base_url is not None and url_problem(base_url):
        raise ValueError
    return Access(
        access_token=token,
        token_number=_typed(document, "tokenNumber", int),
        expires_at=None if lifetime is None else asked_at + lifetime,
        scopes=_all_typed(document, "scopes", str),
        missing_scopes=_all_typed(document, "missingScopes", str),
        metadata=metadata,
        base_url=base_url,
        header=header,
        scheme=scheme,
        refresh_statuses=_all_typed(document, "refreshStatuses", int),
        persisted=_typed(document, "persisted", bool),
    )


def _typed(document: Mapping[str, Any], name: str, *kinds: type) -> Any:
    value = document.get(name)
    if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
        raise ValueError  # as above
    return value


def _all_typed(document: Mapping[str, Any], name: str, kind: type) -> tuple[Any, ...]:
    values = tuple(_typed(document, name, list))
    if not all(isinstance(value, kind) for value in values):
        raise ValueError
    return values


def _is_visible(text: str) -> bool:
    return all("!" <= letter <= "~" for letter in text)
