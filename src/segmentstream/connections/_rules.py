"""What each field of a connection may hold; imports `_core` and its neighbour `_secrets` only.

Every rule takes the place of a value and the value, and gives back what to store. A refusal never
repeats the value, because a secret may have been pasted into the wrong field; it may name a
parameter.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Literal
from urllib.parse import SplitResult, unquote_plus, urlsplit

from segmentstream._core.errors import ConnectionDeclarationError
from segmentstream._core.names import CONNECTION_KEY, CONNECTION_NAME_LENGTHS, CONNECTION_PROVIDER
from segmentstream.connections._secrets import SecretReference

ClientAuthentication = Literal["client_secret_basic", "client_secret_post"]

# What the service itself writes into a request, and what would override that: a request object
# replaces every other parameter (RFC 9101 section 5), a client assertion replaces the client
# secret (RFC 7521 section 4.2).
RESERVED_PARAMETERS = frozenset(
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

# The characters of RFC 3986 section 2. Left out on purpose: white space, control characters (also
# as escapes), backslashes, the braces of a template and everything outside ASCII. urlsplit would
# drop or accept some of these in silence.
_URL = re.compile(r"(?:[A-Za-z0-9\-._~:/?#\[\]@!$&'()*+,;=]|%(?![01]|7[Ff])[0-9A-Fa-f]{2})+")
_HOST_LABEL = r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?"
_HOST_NAME = re.compile(rf"(?=.{{1,253}}\Z){_HOST_LABEL}(?:\.{_HOST_LABEL})*")
# Such a last label makes clients read the whole host as an IPv4 address, in forms (127.1, 0x7f.1)
# that the loopback rule does not see.
_NUMERIC_LABEL = re.compile(r"[0-9]+|0x[0-9a-f]*")

_SCOPE = re.compile(r"[\x21\x23-\x5b\x5d-\x7e]+")  # RFC 6749 section 3.3
_PARAMETER_NAME = re.compile(r"[^\s\x00-\x1f\x7f\ud800-\udfff]+")
_PARAMETER_VALUE = re.compile(r"[^\x00-\x1f\x7f\ud800-\udfff]*")


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


class Parameters(Mapping[str, str]):
    """Is a copy of declared parameters that nobody can change.

    It can be hashed, copied and pickled, which `types.MappingProxyType` over a dict cannot.
    """

    __slots__ = ("_values",)

    def __init__(self, values: Mapping[str, str]) -> None:
        self._values = dict(values)

    def __getitem__(self, name: str) -> str:
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
    key = _text(place, value)
    if not CONNECTION_KEY.fullmatch(key):
        raise place.error(
            "is not a lowercase letter followed by at most 63 lowercase letters, digits and "
            "underscores",
            'Write a key such as "google_ads", and keep it: tokens are stored under it.',
        )
    return key


def connection_name(place: FieldPlace, value: object) -> str:
    """Accepts the label that a person sees."""
    name = _text(place, value)
    if len(name) not in CONNECTION_NAME_LENGTHS or name != name.strip() or not name.isprintable():
        raise place.error(
            "is not 2 to 80 printable characters without white space at either end",
            'Write the label that a person sees, such as "Google Ads".',
        )
    return name


def provider(place: FieldPlace, value: object) -> str:
    """Accepts the identifier of who grants the tokens."""
    identifier = _text(place, value)
    if not CONNECTION_PROVIDER.fullmatch(identifier):
        raise place.error(
            "is not a lowercase letter followed by at most 63 lowercase letters, digits and "
            "hyphens",
            'Write the provider\'s identifier, such as "google".',
        )
    return identifier


def endpoint(place: FieldPlace, value: object) -> str:
    """Accepts the address of an endpoint (RFC 6749 sections 3.1 and 3.2), kept as written."""
    url = _text(place, value)
    if problem := _url_problem(url):
        raise place.error(
            problem,
            "Copy the https address of the endpoint from the provider's documentation; plain "
            "http is for a provider on localhost.",
        )
    if reserved := _reserved(query_names(url)):
        raise place.error(
            f"sets {reserved} in its query, which the service sets itself",
            "Remove it from the address.",
        )
    return url


def secret(place: FieldPlace, value: object) -> SecretReference:
    """Accepts a reference to a secret, and no secret."""
    if not isinstance(value, SecretReference):
        raise place.error(
            f"is of type {type(value).__name__} and not a reference to a secret",
            f'Write {place.field}=secret_ref("...") with the name of the secret, and put its '
            "value into the secret's variable; a declaration never holds a secret.",
        )
    return value


def scopes(place: FieldPlace, value: object) -> tuple[str, ...]:
    """Accepts the scopes to ask for, in order; there may be none."""
    if not isinstance(value, Sequence) or isinstance(value, str):
        raise place.error(
            f"is of type {type(value).__name__} and not a list of strings",
            'Write a list such as ["read", "write"], one string for each scope.',
        )
    listed = tuple(value)
    for number, scope in enumerate(listed, start=1):
        if not isinstance(scope, str) or not _SCOPE.fullmatch(scope):
            raise place.error(
                f"has at position {number} what is no scope: a string of visible ASCII characters "
                "without white space, quotation marks and backslashes",
                "Write each scope as one string of the list, as the provider documents it.",
            )
        if scope in listed[: number - 1]:
            raise place.error(
                f"repeats at position {number} a scope that stands before it",
                "Write each scope once.",
            )
    return listed


def parameters(place: FieldPlace, value: object) -> Parameters:
    """Accepts what goes along with a request, unless the service sets it itself."""
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
    if reserved := _reserved(copied):
        raise place.error(
            f"sets {reserved}, which the service sets itself",
            "Remove it; scopes, secrets and PKCE have fields of their own.",
        )
    return Parameters(copied)


def sent_once(place: FieldPlace, extra: Mapping[str, str], url: str) -> None:
    """Refuses a parameter that the query of its endpoint has too (RFC 6749 sections 3.1, 3.2)."""
    in_query = {name.casefold() for name in query_names(url)}
    for name in extra:
        if name.casefold() in in_query:
            raise place.error(
                f"sets {name!r}, which the query of the address sets too",
                "Keep one of the two: a request may hold a parameter only once.",
            )


def client_authentication(place: FieldPlace, value: object) -> ClientAuthentication:
    """Accepts one of the ways a client shows its secret (RFC 6749 section 2.3.1)."""
    if value == "client_secret_post":
        return "client_secret_post"
    if value == "client_secret_basic":
        return "client_secret_basic"
    raise place.error(
        "is neither client_secret_post nor client_secret_basic",
        "Write the one that the provider documents.",
    )


def flag(place: FieldPlace, value: object) -> bool:
    """Accepts True or False and nothing that merely counts as one."""
    if not isinstance(value, bool):
        raise place.error(
            f"is of type {type(value).__name__} and not a bool", "Write True or False."
        )
    return value


def query_names(url: str) -> list[str]:
    """Lists the names of the parameters in the query of an accepted URL."""
    # Some servers still part a query at semicolons too.
    pairs = re.split("[&;]", urlsplit(url).query)
    return [unquote_plus(pair.partition("=")[0]) for pair in pairs if pair]


def _text(place: FieldPlace, value: object) -> str:
    if not isinstance(value, str):
        raise place.error(f"is of type {type(value).__name__} and not a string", "Write a string.")
    return value


def _url_problem(url: str) -> str | None:
    if not _URL.fullmatch(url):
        return (
            "is empty or holds what no address may: white space, a line break, another control "
            "character, a backslash, a brace or a letter outside ASCII"
        )
    if "#" in url:
        return "has a fragment"
    try:
        parts = urlsplit(url)
        return _origin_problem(parts, parts.port)
    except ValueError:
        return "has a host or a port that cannot be read"


def _origin_problem(parts: SplitResult, port: int | None) -> str | None:
    host = parts.hostname
    if parts.scheme not in {"http", "https"} or host is None:
        return "is not an absolute https address"
    if "@" in parts.netloc:
        return "holds a user name or a password"
    if port == 0 or not (_address(host) or _is_host_name(host)):
        return "has a host or a port that does not exist"
    if parts.scheme == "http" and not _is_loopback(host):
        return "would send secrets over plain http"
    return None


def _address(host: str) -> IPv4Address | IPv6Address | None:
    try:
        return None if "%" in host else ip_address(host)
    except ValueError:
        return None


def _is_host_name(host: str) -> bool:
    last = host.rpartition(".")[2]
    return bool(_HOST_NAME.fullmatch(host)) and not _NUMERIC_LABEL.fullmatch(last)


def _is_loopback(host: str) -> bool:
    address = _address(host)
    return host == "localhost" or (address is not None and address.is_loopback)


def _reserved(names: Iterable[str]) -> str | None:
    # Some servers ignore the case of a name, so `Scope` would be a second `scope`.
    return next((name.casefold() for name in names if name.casefold() in RESERVED_PARAMETERS), None)
