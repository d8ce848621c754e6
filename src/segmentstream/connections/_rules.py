"""What the fields of a connection may hold; imports `_core` and its neighbour `_secrets` only.

Every rule takes the place of a value and the value, and gives back what to store. A refusal never
repeats the value, because a secret may have been pasted into the wrong field; it may name a
parameter. The rules of addresses, of parameters and of a provider's answers have modules of their
own; what two fields may not hold together is in `_combinations`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from segmentstream._core.errors import ConnectionDeclarationError
from segmentstream._core.names import CONNECTION_KEY, CONNECTION_NAME_LENGTHS, CONNECTION_PROVIDER
from segmentstream.connections._secrets import SecretReference

ClientAuthentication = Literal["client_secret_basic", "client_secret_post", "none"]
BasicEncoding = Literal["form", "raw"]
TokenRequestFormat = Literal["form", "json"]

_SCOPE = re.compile(r"[\x21\x23-\x5b\x5d-\x7e]+")  # RFC 6749 section 3.3
_SCOPE_SEPARATOR = re.compile(r"[ ,;|+]")


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldPlace:
    """Says where a value stands, so that its rule can refuse it by name.

    Attributes:
        connection: The connection as an error calls it.
        field: The field of the connection.
    """

    connection: str
    field: str

    def error(self, problem: str, remedy: str) -> ConnectionDeclarationError:
        """Makes the error to raise; `problem` goes on after "The field ... of connection ..."."""
        return ConnectionDeclarationError(
            f"The field {self.field} of {self.connection} {problem}.", remedy, field=self.field
        )


class Frozen[Value](Mapping[str, Value]):
    """Is a copy of a declared mapping that nobody can change.

    It can be hashed, copied and pickled, which `types.MappingProxyType` over a dict cannot.
    """

    __slots__ = ("_values",)

    def __init__(self, values: Mapping[str, Value]) -> None:
        self._values = dict(values)

    def __getitem__(self, name: str) -> Value:
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __hash__(self) -> int:
        return hash(frozenset(self._values.items()))

    def __repr__(self) -> str:
        return repr(self._values)


def connection_key(place: FieldPlace, value: object) -> str:
    """Accepts the stable identifier of a connection."""
    key = text(place, value)
    if not CONNECTION_KEY.fullmatch(key):
        raise place.error(
            "is not a lowercase letter followed by at most 63 lowercase letters, digits and "
            "underscores",
            'Write a key such as "google_ads", and keep it: tokens are stored under it.',
        )
    return key


def connection_name(place: FieldPlace, value: object) -> str:
    """Accepts the label that a person sees."""
    name = text(place, value)
    if len(name) not in CONNECTION_NAME_LENGTHS or name != name.strip() or not name.isprintable():
        raise place.error(
            "is not 2 to 80 printable characters without white space at either end",
            'Write the label that a person sees, such as "Google Ads".',
        )
    return name


def provider(place: FieldPlace, value: object) -> str:
    """Accepts the identifier of who grants the tokens."""
    identifier = text(place, value)
    if not CONNECTION_PROVIDER.fullmatch(identifier):
        raise place.error(
            "is not a lowercase letter followed by at most 63 lowercase letters, digits and "
            "hyphens",
            'Write the provider\'s identifier, such as "google".',
        )
    return identifier


def secret(place: FieldPlace, value: object) -> SecretReference:
    """Accepts a reference to a secret, and no secret."""
    if not isinstance(value, SecretReference):
        raise place.error(
            f"is of type {type(value).__name__} and not a reference to a secret",
            f'Write {place.field}=secret_ref("...") with the name of the secret, and put its '
            "value into the secret's variable; a declaration never holds a secret.",
        )
    return value


def optional_secret(place: FieldPlace, value: object) -> SecretReference | None:
    """Accepts a reference to a secret, or None for a client that has none."""
    return None if value is None else secret(place, value)


def scopes(place: FieldPlace, value: object) -> tuple[str, ...]:
    """Accepts the scopes to ask for, in order; there may be none."""
    what = "a string of visible ASCII characters without white space, quotation marks and "
    return distinct(place, value, _SCOPE, f"scope: {what}backslashes")


def implied_scopes(place: FieldPlace, value: object) -> Frozen[tuple[str, ...]]:
    """Accepts which scopes a granted scope stands for, such as a reading one for a writing one."""
    if not isinstance(value, Mapping):
        raise place.error(
            f"is of type {type(value).__name__} and not a mapping of lists",
            'Write a dict such as {"write_orders": ["read_orders"]}.',
        )
    copied = dict(value)
    scopes(place, list(copied))
    implied = {scope: scopes(place, others) for scope, others in copied.items()}
    if not all(implied.values()):
        raise place.error("has a scope that implies nothing", "Remove that scope.")
    return Frozen(implied)


def scope_separator(place: FieldPlace, value: object) -> str:
    """Accepts what stands between two scopes in a request (a space in RFC 6749 section 3.3)."""
    separator = text(place, value)
    if not _SCOPE_SEPARATOR.fullmatch(separator):
        raise place.error(
            "is not one of the characters space, comma, semicolon, bar and plus",
            'Write the character that the provider documents, such as ",".',
        )
    return separator


# The three fields that take one of some words each have a rule, so that each has its sentence.
_CLIENT_AUTHENTICATIONS: Final[tuple[ClientAuthentication, ...]] = (
    "client_secret_basic",
    "client_secret_post",
    "none",
)
_BASIC_ENCODINGS: Final[tuple[BasicEncoding, ...]] = ("form", "raw")
_TOKEN_REQUEST_FORMATS: Final[tuple[TokenRequestFormat, ...]] = ("form", "json")


def client_authentication(place: FieldPlace, value: object) -> ClientAuthentication:
    """Accepts one of the ways a client shows its secret (RFC 6749 section 2.3.1), or `none`."""
    return choice(place, value, _CLIENT_AUTHENTICATIONS)


def basic_encoding(place: FieldPlace, value: object) -> BasicEncoding:
    """Accepts how id and secret go into a Basic header (RFC 6749 section 2.3.1, appendix B)."""
    return choice(place, value, _BASIC_ENCODINGS)


def token_request_format(place: FieldPlace, value: object) -> TokenRequestFormat:
    """Accepts how the body of a token request is written (a form in RFC 6749 section 4.1.3)."""
    return choice(place, value, _TOKEN_REQUEST_FORMATS)


def flag(place: FieldPlace, value: object) -> bool:
    """Accepts True or False and nothing that merely counts as one."""
    if not isinstance(value, bool):
        raise place.error(
            f"is of type {type(value).__name__} and not a bool", "Write True or False."
        )
    return value


def text(place: FieldPlace, value: object) -> str:
    """Accepts a string of any content."""
    if not isinstance(value, str):
        raise place.error(f"is of type {type(value).__name__} and not a string", "Write a string.")
    return value


def listed(place: FieldPlace, value: object) -> Sequence[object]:
    """Accepts a list or a tuple of anything, and copies it."""
    if not isinstance(value, Sequence) or isinstance(value, str | bytes):
        raise place.error(
            f"is of type {type(value).__name__} and not a list of strings",
            'Write a list such as ["read", "write"], one string for each.',
        )
    return tuple(value)


def distinct(
    place: FieldPlace, value: object, pattern: re.Pattern[str], what: str
) -> tuple[str, ...]:
    """Accepts a list of different strings of one form, in order."""
    accepted: list[str] = []
    for number, item in enumerate(listed(place, value), start=1):
        if not isinstance(item, str) or not pattern.fullmatch(item):
            raise place.error(
                f"has at position {number} what is no {what}",
                "Write each as one string of the list, as the provider documents it.",
            )
        if item in accepted:
            raise place.error(
                f"repeats at position {number} what stands before it", "Write each once."
            )
        accepted.append(item)
    return tuple(accepted)


def choice[Word: str](place: FieldPlace, value: object, words: Sequence[Word]) -> Word:
    """Accepts one of some words."""
    for word in words:
        if value == word:
            return word
    raise place.error(
        f"is none of {', '.join(words)}", "Write the one that the provider documents."
    )
