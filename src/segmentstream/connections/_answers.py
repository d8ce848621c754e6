"""The rules of what a provider's token answers look like; imports the rules and `_core`."""

from __future__ import annotations

import re
from typing import Final, Literal

from segmentstream.connections._rules import FieldPlace, choice, distinct, listed, text

ZeroExpiry = Literal["expired", "never"]
ExpiryUnit = Literal["seconds", "milliseconds"]

_ZERO_EXPIRIES: Final[tuple[ZeroExpiry, ...]] = ("expired", "never")
_EXPIRY_UNITS: Final[tuple[ExpiryUnit, ...]] = ("seconds", "milliseconds")
_LIFETIMES = range(1, 10 * 365 * 24 * 3600 + 1)

# Names of fields as JSON documents have them; a dot parts the fields of a path.
_NAME = re.compile(r"[A-Za-z0-9_@$:/-][A-Za-z0-9_@$:/.-]{0,63}")
_PATH = re.compile(r"[A-Za-z0-9_@$:/-]{1,64}(?:\.[A-Za-z0-9_@$:/-]{1,64}){0,9}")
_TYPE = re.compile(r"[A-Za-z0-9_.-]{1,64}")  # RFC 6749 appendix A.13, without type URIs
# What these types ask of a request is more than to send the token (RFC 9449 section 7).
PROVEN_TYPES = frozenset({"dpop", "mac", "pop"})
_LONGEST_PATH = 10
MOST_METADATA_FIELDS = 50
# These have places of their own in a token set, where nothing shows them by accident.
SECRET_FIELDS = frozenset({"access_token", "client_secret", "refresh_token"})


def token_path(place: FieldPlace, value: object) -> tuple[str, ...]:
    """Accepts under which fields the token stands, outermost first; at the top when empty."""
    path: list[str] = []
    for number, name in enumerate(listed(place, value), start=1):
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise place.error(
                f"has at position {number} what is no name of a field of an answer",
                'Write the fields from the outside in, such as ("data",).',
            )
        path.append(name)
    if len(path) > _LONGEST_PATH:
        raise place.error(
            f"has more than {_LONGEST_PATH} fields", "Write the way to the token and no more."
        )
    return tuple(path)


def bearer_types(place: FieldPlace, value: object) -> tuple[str, ...]:
    """Accepts which types of tokens are sent as bearer tokens besides `Bearer` (RFC 6750)."""
    types = distinct(place, value, _TYPE, "type of a token")
    if any(kind.casefold() in PROVEN_TYPES for kind in types):
        raise place.error(
            "names a type of token that must be proven with each request",
            "Remove it: only tokens that are sent as they are can be used.",
        )
    return types


def success_field(place: FieldPlace, value: object) -> str | None:
    """Accepts the field at the top of an answer that says whether a request succeeded."""
    if value is None:
        return None
    name = text(place, value)
    if not _NAME.fullmatch(name):
        raise place.error(
            "is no name of a field of an answer",
            'Write the name that the provider documents, such as "ok".',
        )
    return name


def success_value(place: FieldPlace, value: object) -> str | int | bool:
    """Accepts what that field holds when a request has succeeded."""
    if isinstance(value, int) or (isinstance(value, str) and value.isprintable()):
        return value
    raise place.error(
        "is neither a printable string, nor a whole number, nor a bool",
        "Write what the provider documents, such as True or 0.",
    )


def zero_expiry(place: FieldPlace, value: object) -> ZeroExpiry:
    """Accepts what a lifetime of 0 says: that a token has expired, or that it never does."""
    return choice(place, value, _ZERO_EXPIRIES)


def expiry_unit(place: FieldPlace, value: object) -> ExpiryUnit:
    """Accepts what a lifetime is counted in (seconds in RFC 6749 section 5.1)."""
    return choice(place, value, _EXPIRY_UNITS)


def default_lifetime_seconds(place: FieldPlace, value: object) -> int | None:
    """Accepts how long a token lives whose answer does not say so."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or value not in _LIFETIMES:
        raise place.error(
            "is not a whole number of seconds between 1 and ten years",
            "Write the lifetime that the provider documents, or leave the field out.",
        )
    return value


def metadata_fields(place: FieldPlace, value: object) -> tuple[str, ...]:
    """Accepts which further fields of an answer are handed on, each by its dotted path."""
    paths = distinct(place, value, _PATH, "dotted path of a field of an answer")
    if any(path.rpartition(".")[2].casefold() in SECRET_FIELDS for path in paths):
        raise place.error(
            "names a token or a secret, which is no metadata",
            "Remove it; token_path says where a token stands.",
        )
    if len(paths) > MOST_METADATA_FIELDS:
        raise place.error(
            f"names more than {MOST_METADATA_FIELDS} fields", "Name those that pipelines need."
        )
    return paths
