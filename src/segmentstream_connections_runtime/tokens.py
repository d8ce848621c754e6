"""What a provider's answer to a token request says, read strictly and without trust.

Imports the service's errors only. Nothing of a body that is refused leaves this module: no text,
no value, no name of an unknown field.
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite
from typing import Any, Literal
from urllib.parse import parse_qsl

from segmentstream_connections_runtime.errors import Code, ServiceError

BODY_BYTES = 256 * 1024  # after decoding
_DEPTH = 20
_DIGITS = 20
_TOKEN_CHARACTERS = 16 * 1024
_LONGEST_LIFETIME_SECONDS = 10 * 365 * 24 * 3600
_FORM_FIELDS = 100

_TOKEN = re.compile(r"[\x21-\x7e]+")
_NUMBER = re.compile(rf"[0-9]{{1,{_DIGITS}}}(?:\.[0-9]{{1,{_DIGITS}}})?")
_SCOPE = re.compile(r"[\x21\x23-\x5b\x5d-\x7e]+")
# RFC 6749 section 5.2, RFC 6750, and what GitHub and Slack write; anything else stays there.
_KNOWN_CODES = frozenset(
    {
        "access_denied",
        "bad_client_secret",
        "bad_refresh_token",
        "bad_verification_code",
        "expired_token",
        "incorrect_client_credentials",
        "insufficient_scope",
        "invalid_client",
        "invalid_client_id",
        "invalid_grant",
        "invalid_refresh_token",
        "invalid_request",
        "invalid_scope",
        "invalid_token",
        "server_error",
        "slow_down",
        "temporarily_unavailable",
        "token_expired",
        "token_revoked",
        "unauthorized_client",
        "unsupported_grant_type",
    }
)
_DEAD_GRANT = frozenset(
    {
        "bad_refresh_token",
        "expired_token",
        "invalid_grant",
        "invalid_refresh_token",
        "token_expired",
        "token_revoked",
    }
)
_BAD_CLIENT = frozenset(
    {
        "bad_client_secret",
        "incorrect_client_credentials",
        "invalid_client",
        "invalid_client_id",
        "unauthorized_client",
    }
)
_PASSING = frozenset({"server_error", "temporarily_unavailable"})

type Grant = Literal["authorization_code", "refresh_token"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """Says how one provider's answers differ from RFC 6749, in the terms of a declaration.

    Attributes:
        scope_separator: What parts the scopes in an answer besides a space.
        token_path: Under which fields the token stands, outermost first; at the top when empty.
        bearer_types: Further values of `token_type` that mean a bearer token.
        success_field: A field that says whether the request succeeded, such as Slack's `ok`.
        success_value: What it then holds.
        zero_expiry_means_never: Whether an `expires_in` of 0 says that a token never expires.
        expiry_in_milliseconds: Whether `expires_in` counts milliseconds.
        default_lifetime_seconds: How long a token lives whose answer does not say so.
        metadata_fields: Further fields of the answer that are handed on, by dotted path.
    """

    scope_separator: str = " "
    token_path: tuple[str, ...] = ()
    bearer_types: tuple[str, ...] = ()
    success_field: str | None = None
    success_value: object = True
    zero_expiry_means_never: bool = False
    expiry_in_milliseconds: bool = False
    default_lifetime_seconds: int | None = None
    metadata_fields: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenSet:
    """Is what a provider granted. Its repr shows no token.

    Attributes:
        access_token: The token to send.
        refresh_token: The token to renew it with, None where there is none.
        token_type: Always `Bearer`.
        expires_in: Seconds from the request until it expires; None when that is unknown.
        scopes: What was granted, in order; None when the provider did not say.
        metadata: The declared further fields that the answer has.
    """

    access_token: str = field(repr=False)
    refresh_token: str | None = field(repr=False)
    token_type: str
    expires_in: int | None
    scopes: tuple[str, ...] | None
    metadata: Mapping[str, str | int | bool] = field(default_factory=dict, repr=False)


def read_answer(
    status: int, headers: Mapping[str, str], body: bytes, *, grant: Grant, rules: Rules
) -> TokenSet:
    """Reads the answer to a token request.

    Args:
        status: Its HTTP status.
        headers: Its headers, by name in small letters.
        body: Its body as it came, perhaps compressed.
        grant: What was asked for: a refused code and a dead refresh token differ.
        rules: How this provider answers.

    Raises:
        ServiceError: It holds no token; the code says whose fault that is.
    """
    if 300 <= status < 400:  # noqa: PLR2004 - RFC 9110 section 15.4
        raise ServiceError(
            Code.PROVIDER_UNREADABLE,
            "The token address answers with a redirect, which is never followed: declare the "
            "address it leads to.",
            provider_status=status,
        )
    document = _document(status, headers, body)
    if document is None:
        raise _without_document(status, headers)
    _refuse_failure(status, headers, document, grant=grant, rules=rules)
    return _token_set(status, document, rules)


def decoded(headers: Mapping[str, str], body: bytes) -> bytes:
    """Gives the body of an answer decompressed, up to `BODY_BYTES`.

    Raises:
        ServiceError: It is too long, or cannot be decompressed.
    """
    coding = headers.get("content-encoding", "identity").strip().lower()
    if coding in {"", "identity"}:
        text = body
    elif coding in {"gzip", "x-gzip", "deflate"}:
        text = _inflated(body, coding)
    else:
        raise ServiceError(Code.PROVIDER_UNREADABLE, "Its compression is not supported.")
    if len(text) > BODY_BYTES:
        raise ServiceError(Code.PROVIDER_UNREADABLE, "Its answer is too long.")
    return text


def _inflated(body: bytes, coding: str) -> bytes:
    # 32 + MAX_WBITS takes gzip and zlib by their headers; some servers send bare deflate.
    for bits in (32 + zlib.MAX_WBITS, -zlib.MAX_WBITS) if coding == "deflate" else (47,):
        stream = zlib.decompressobj(bits)
        try:
            text = stream.decompress(body, BODY_BYTES + 1)
        except zlib.error:
            continue
        if stream.eof or len(text) > BODY_BYTES:
            return text
        break  # the end is missing, and with it the checksum
    raise ServiceError(Code.PROVIDER_UNREADABLE, "Its answer cannot be decompressed.")


def _document(status: int, headers: Mapping[str, str], body: bytes) -> dict[str, Any] | None:
    """Gives the fields of an answer; None when it has none, such as a page."""
    try:
        text = _text(decoded(headers, body))
    except ServiceError as error:
        if status >= 400:  # noqa: PLR2004 - the status alone says enough
            return None
        raise ServiceError(error.code, error.detail, provider_status=status) from None
    media_type = headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type == "application/x-www-form-urlencoded":
        return _form(text)
    found = _json(text)
    if found is None and media_type in {"", "text/plain", "text/html", "application/json"}:
        form = _form(text)
        return form if form and ("access_token" in form or "error" in form) else None
    return found


def _text(body: bytes) -> str | None:
    try:
        # json.detect_encoding knows UTF-8, -16 and -32, with and without a byte order mark.
        return body.decode(json.detect_encoding(body)).removeprefix("\ufeff")
    except (UnicodeDecodeError, LookupError):
        return None


def _json(text: str | None) -> dict[str, Any] | None:
    if text is None or _too_deep(text):
        return None
    try:
        found = json.loads(
            text, object_pairs_hook=_object, parse_int=_integer, parse_constant=_constant
        )
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _too_deep(text: str) -> bool:
    depth = deepest = 0
    is_string = is_escaped = False
    for character in text:
        if is_string:
            is_string = is_escaped or character != '"'
            is_escaped = not is_escaped and character == "\\"
        elif character == '"':
            is_string = True
        elif character in "[{":
            depth += 1
            deepest = max(deepest, depth)
        elif character in "]}":
            depth -= 1
    return deepest > _DEPTH


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("duplicate field")
    return found


def _integer(digits: str) -> int:
    if len(digits.lstrip("-")) > _DIGITS:
        raise ValueError("number too long")
    return int(digits)


def _constant(name: str) -> float:
    raise ValueError(name)  # NaN and Infinity are no JSON


def _form(text: str | None) -> dict[str, Any] | None:
    if not text:
        return None
    try:
        pairs = parse_qsl(
            text.strip(), keep_blank_values=True, strict_parsing=True, max_num_fields=_FORM_FIELDS
        )
    except ValueError:
        return None
    try:
        return _object(list(pairs))
    except ValueError:
        return None


def _without_document(status: int, headers: Mapping[str, str]) -> ServiceError:
    if status == 429:  # noqa: PLR2004 - RFC 6585 section 4
        return _rate_limited(status, headers)
    if status >= 500:  # noqa: PLR2004 - RFC 9110 section 15.6
        return ServiceError(
            Code.PROVIDER_UNAVAILABLE,
            retry_after_seconds=retry_after(headers.get("retry-after")),
            provider_status=status,
        )
    return ServiceError(Code.PROVIDER_UNREADABLE, provider_status=status)


def _rate_limited(status: int, headers: Mapping[str, str]) -> ServiceError:
    return ServiceError(
        Code.RATE_LIMITED,
        retry_after_seconds=retry_after(headers.get("retry-after")),
        provider_status=status,
    )


def retry_after(header: str | None, *, longest_seconds: int = 3600) -> int | None:
    """Reads a Retry-After of seconds; a date, or nonsense, counts as unknown."""
    text = (header or "").strip()
    return min(int(text), longest_seconds) if re.fullmatch(r"[0-9]{1,9}", text) else None


def _refuse_failure(
    status: int,
    headers: Mapping[str, str],
    document: Mapping[str, Any],
    *,
    grant: Grant,
    rules: Rules,
) -> None:
    told = _told_code(document)
    has_failed = (
        told is not None
        or status >= 400  # noqa: PLR2004 - RFC 9110 section 15.5
        or document.get("ok") is False
        or (
            rules.success_field is not None
            and not _is_same(document.get(rules.success_field), rules.success_value)
        )
    )
    if not has_failed:
        return
    known = told if told in _KNOWN_CODES else None
    if status == 429 or told == "slow_down":  # noqa: PLR2004
        raise _rate_limited(status, headers)
    if told in _BAD_CLIENT:
        code = Code.CLIENT_REJECTED
    elif told in _DEAD_GRANT:
        is_refresh = grant == "refresh_token"
        code = Code.REAUTHORIZATION_REQUIRED if is_refresh else Code.PROVIDER_REJECTED
    elif status >= 500 or told in _PASSING:  # noqa: PLR2004
        code = Code.PROVIDER_UNAVAILABLE
    elif status == 401 and told is None:  # noqa: PLR2004
        code = Code.CLIENT_REJECTED
    else:
        code = Code.PROVIDER_REJECTED
    is_passing = code is Code.PROVIDER_UNAVAILABLE
    raise ServiceError(
        code,
        retry_after_seconds=retry_after(headers.get("retry-after")) if is_passing else None,
        provider_status=status,
        provider_code=known,
    )


def _is_same(told: object, declared: object) -> bool:
    # Python takes False for 0 and True for 1; a provider's answer does not.
    return type(told) is type(declared) and told == declared


def _told_code(document: Mapping[str, Any]) -> str | None:
    """Gives the error code of an answer, in any of the shapes that providers use."""
    match document:
        case {"error": str(code)} if code:
            return code
        case {"error": {"code": str(code)} | {"type": str(code)}}:
            return code
        case {"error": something} if something:
            return "unknown"
        case {"errors": [{"errorType": str(code)} | {"code": str(code)}, *_]}:
            return code
        case {"errors": [_, *_]}:
            return "unknown"
        case _:
            return None


def _token_set(status: int, document: Mapping[str, Any], rules: Rules) -> TokenSet:
    place: Any = document
    for name in rules.token_path:
        place = place.get(name) if isinstance(place, dict) else None
    if not isinstance(place, dict):
        raise _invalid("It has no token at the declared path.", status)
    access_token = _token(place.get("access_token"), status)
    if access_token is None:
        raise _invalid("It has no access token.", status)
    token_type = place.get("token_type") or document.get("token_type") or "Bearer"
    known = {"bearer", *(kind.lower() for kind in rules.bearer_types)}
    if not isinstance(token_type, str) or token_type.lower() not in known:
        raise _invalid("Its token is not a bearer token.", status)
    return TokenSet(
        access_token=access_token,
        # On a refresh null and "" mean that the old one stays (RFC 6749 section 6).
        refresh_token=_token(place.get("refresh_token") or None, status),
        token_type="Bearer",  # noqa: S106 - the type, no token
        expires_in=_lifetime(place, document, rules, status),
        scopes=_scopes(place.get("scope", document.get("scope")), rules.scope_separator),
        metadata=_metadata(document, rules.metadata_fields),
    )


def _token(value: object, status: int) -> str | None:
    if value is None:
        return None
    if not isinstance(value, str) or len(value) > _TOKEN_CHARACTERS or not _TOKEN.fullmatch(value):
        raise _invalid("A token holds what no token may, or is too long.", status)
    return value


def _invalid(detail: str, status: int) -> ServiceError:
    return ServiceError(Code.TOKEN_RESPONSE_INVALID, detail, provider_status=status)


def _lifetime(
    place: Mapping[str, Any], document: Mapping[str, Any], rules: Rules, status: int
) -> int | None:
    told = next(
        (
            source[name]
            for source in (place, document)
            for name in ("expires_in", "expires")
            if source.get(name) not in (None, "")
        ),
        None,
    )
    if told is None:
        return rules.default_lifetime_seconds
    seconds = _number(told)
    if seconds is None or seconds < 0:
        raise _invalid("Its expiry cannot be read.", status)
    if rules.expiry_in_milliseconds:
        seconds /= 1000
    if seconds == 0 and rules.zero_expiry_means_never:
        return None
    return int(min(seconds, _LONGEST_LIFETIME_SECONDS))


def _number(value: object) -> float | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, int | float):
        return float(value) if isfinite(value) else None
    if isinstance(value, str) and _NUMBER.fullmatch(value.strip()):
        return float(value)
    return None


def _scopes(value: object, separator: str) -> tuple[str, ...] | None:
    """Reads scopes as text, parted by spaces, commas or what is declared, or as a list."""
    if value is None:
        return None
    if isinstance(value, str):
        parts: Sequence[object] = re.split(rf"[\s,{re.escape(separator)}]+", value)
    elif isinstance(value, list):
        parts = value
    else:
        return None
    return tuple(dict.fromkeys(_readable(parts)))


def _readable(parts: Iterable[object]) -> Iterable[str]:
    # A scope that is none is left out: it must not cost the tokens that came with it.
    return (part for part in parts if isinstance(part, str) and _SCOPE.fullmatch(part))


def _metadata(document: Mapping[str, Any], fields: Iterable[str]) -> dict[str, str | int | bool]:
    found: dict[str, str | int | bool] = {}
    for path in fields:
        value: Any = document
        for name in path.split("."):
            value = value.get(name) if isinstance(value, dict) else None
        if isinstance(value, bool | int) or (
            isinstance(value, str) and len(value) <= _TOKEN_CHARACTERS and value.isprintable()
        ):
            found[path] = value
    return found
