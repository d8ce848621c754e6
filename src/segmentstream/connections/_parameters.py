"""The rules of the parameters of requests; imports the rules and `_core`."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from typing import Final

from segmentstream.connections._answers import MOST_METADATA_FIELDS, SECRET_FIELDS
from segmentstream.connections._rules import FieldPlace, Frozen, distinct, text

# What the service itself writes into a request, and what would override that: a request object
# replaces every other parameter (RFC 9101 section 5), a client assertion replaces the client
# secret (RFC 7521 section 4.2).
RESERVED_PARAMETERS: Final = frozenset(
    {
        "client_assertion",
        "client_assertion_type",
        "client_id",
        "client_secret",
        "code",
        "code_challenge",
        "code_challenge_method",
        "code_verifier",
        "grant_type",
        "nonce",
        "redirect_uri",
        "refresh_token",
        "request",
        "request_uri",
        "response_type",
        "scope",
        "state",
    }
)
# RFC 6749 section 4.1.2.1, RFC 9207 and RFC 8707.
_OTHER_PARAMETERS = frozenset({"error", "error_description", "error_uri", "iss", "resource"})
# What a callback brings for the protocol (also as a JWT), and what nobody should find elsewhere.
_CALLBACK_PARAMETERS = SECRET_FIELDS | {
    "code",
    "code_verifier",
    "error",
    "error_description",
    "error_uri",
    "iss",
    "response",
    "state",
}

_PARAMETER_NAME = re.compile(r"[^\s\x00-\x1f\x7f\ud800-\udfff]+")
_PARAMETER_VALUE = re.compile(r"[^\x00-\x1f\x7f\ud800-\udfff]*")
_RENAMED = re.compile(r"[A-Za-z0-9_.-]{1,64}")


def parameters(place: FieldPlace, value: object) -> Frozen[str]:
    """Accepts what goes along with a request, unless the service sets it itself."""
    return _accepted(place, value, RESERVED_PARAMETERS)


def refresh_parameters(place: FieldPlace, value: object) -> Frozen[str]:
    """Accepts the same for a refresh, where a scope may be sent (RFC 6749 section 6)."""
    return _accepted(place, value, RESERVED_PARAMETERS - {"scope"})


def client_id_parameter(place: FieldPlace, value: object) -> str:
    """Accepts the name under which a provider takes the client id."""
    return _renamed(place, value, "client_id")


def code_parameter(place: FieldPlace, value: object) -> str:
    """Accepts the name under which a provider's callback brings the code."""
    return _renamed(place, value, "code")


def callback_metadata_fields(place: FieldPlace, value: object) -> tuple[str, ...]:
    """Accepts which parameters of a callback are handed on, such as QuickBooks' `realmId`."""
    names = distinct(place, value, _RENAMED, "name of a parameter of a callback")
    if name := reserved_name(names, _CALLBACK_PARAMETERS):
        raise place.error(
            f"names {name}, which is no metadata",
            "Remove it; the protocol has its own place for it.",
        )
    if len(names) > MOST_METADATA_FIELDS:
        raise place.error(
            f"names more than {MOST_METADATA_FIELDS} fields", "Name those that pipelines need."
        )
    return names


def reserved_name(
    names: Iterable[str], reserved: Collection[str] = RESERVED_PARAMETERS
) -> str | None:
    """Gives the first of the names that the service sets itself, in small letters."""
    # Some servers ignore the case of a name, so `Scope` would be a second `scope`.
    return next((name.casefold() for name in names if name.casefold() in reserved), None)


def _renamed(place: FieldPlace, value: object, standard: str) -> str:
    name = text(place, value)
    if not _RENAMED.fullmatch(name):
        raise place.error(
            "is not 1 to 64 letters, digits, underscores, hyphens and dots",
            f'Write the name that the provider documents, such as "{standard}".',
        )
    if name != standard and name.casefold() in RESERVED_PARAMETERS | _OTHER_PARAMETERS:
        raise place.error(
            "is the name of another parameter of the protocol",
            f'Write the name that the provider documents, or leave it at "{standard}".',
        )
    return name


def _accepted(place: FieldPlace, value: object, reserved: Collection[str]) -> Frozen[str]:
    if not isinstance(value, Mapping):
        raise place.error(
            f"is of type {type(value).__name__} and not a mapping of strings",
            'Write a dict such as {"prompt": "consent"}.',
        )
    copied = dict(value)  # what is checked is what is stored
    for number, (name, content) in enumerate(copied.items(), start=1):
        if not isinstance(name, str) or not _PARAMETER_NAME.fullmatch(name):
            raise place.error(
                f"has at position {number} a name that is no string, is empty, or holds white "
                "space or a control character",
                "Write each name as the provider documents it.",
            )
        if not isinstance(content, str) or not _PARAMETER_VALUE.fullmatch(content):
            raise place.error(
                f"gives {name!r} what is no string or holds a control character",
                'Write the text that the provider expects, such as "true" and not True.',
            )
    if name := reserved_name(copied, reserved):
        raise place.error(
            f"sets {name}, which the service sets itself",
            "Remove it; scopes, secrets and PKCE have fields of their own.",
        )
    return Frozen(copied)
