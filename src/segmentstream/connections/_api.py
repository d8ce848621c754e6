"""Where a provider's API is and how it takes the token; imports the addresses, rules and `_core`.

The address of an API may depend on whose token it is. A name in braces stands there for a variable
of the host, for a field of the token's answer or for one of the callback.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Final
from urllib.parse import quote, unquote, urlsplit

from segmentstream._core.errors import ConnectionDeclarationError
from segmentstream.connections._addresses import (
    FIXED_LABELS,
    is_host_name,
    is_label,
    url_problem,
    variable_value,
)
from segmentstream.connections._answers import PROVEN_TYPES
from segmentstream.connections._rules import FieldPlace, text

_NAME = re.compile(r"\{([A-Za-z0-9_.-]{1,640})\}")
_WHOLE = re.compile(rf"(?P<authority>{_NAME.pattern})(?P<path>(?:/.*)?)", re.DOTALL)
_ADDRESS = re.compile(
    r"(?P<scheme>https?://)(?P<authority>[^/]*)(?P<path>.*)", re.IGNORECASE | re.DOTALL
)
_DOT_BETWEEN_LABELS = re.compile(r"\.(?![^{}]*\})")  # a dotted path in braces is one name

_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,64}")  # RFC 9110 section 5.6.2
# What says where a request goes, how its body is framed or who else it is from.
_HEADERS_OF_THE_CLIENT: Final = frozenset(
    {
        "connection",
        "cookie",
        "expect",
        "host",
        "keep-alive",
        "set-cookie",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)


def api_base_url(place: FieldPlace, value: object) -> str | None:
    """Accepts the address under which the API is; names in braces are filled in later."""
    if value is None:
        return None
    url = text(place, value)
    if problem := _template_problem(url):
        raise place.error(
            problem,
            'Write an https address such as "https://api.example.com/v1"; {name} in place of a '
            "label of its host, or in its path, stands for a declared variable or metadata field.",
        )
    return url


def api_header(place: FieldPlace, value: object) -> str:
    """Accepts the header in which the API takes the token (RFC 6750 section 2.1: Authorization)."""
    name = text(place, value)
    if not _TOKEN.fullmatch(name):
        raise place.error(
            "is not the name of a header (RFC 9110 section 5.1)",
            'Write the name that the provider documents, such as "X-Access-Token".',
        )
    if name.casefold() in _HEADERS_OF_THE_CLIENT or name.casefold().startswith(
        ("content-", "proxy-")
    ):
        raise place.error(
            "is a header that the client sets itself",
            "Write the one in which the provider takes the token.",
        )
    return name


def api_scheme(place: FieldPlace, value: object) -> str:
    """Accepts the word before the token (RFC 9110 section 11.1); empty for the token alone."""
    word = text(place, value)
    if word and not _TOKEN.fullmatch(word):
        raise place.error(
            "is no authentication scheme (RFC 9110 section 11.1)",
            'Write one word such as "Bearer", or "" where the token stands alone.',
        )
    if word.casefold() in PROVEN_TYPES:
        raise place.error(
            "is a scheme in which the token must be proven with each request",
            "Only tokens that are sent as they are can be used.",
        )
    return word


def names_of(url: str) -> tuple[str, ...]:
    """Lists the names in an accepted address, in order."""
    return tuple(_NAME.findall(url))


def names_before_domain(url: str) -> tuple[str, ...]:
    """Lists the names that stand before the last two labels of the host of an accepted address."""
    return _names_among(_labels(url)[:-FIXED_LABELS])


def names_in_domain(url: str) -> tuple[str, ...]:
    """Lists the names in the last two labels of the host, or in place of scheme and host."""
    return _names_among(_labels(url)[-FIXED_LABELS:])


def names_in_path(url: str) -> tuple[str, ...]:
    """Lists the names in the path of an accepted address."""
    return tuple(_NAME.findall(_parts(url)[2]))


def with_variables(place: FieldPlace, url: str, values: Mapping[str, str]) -> str:
    """Fills the variables that stand in the host of an accepted address, and no other name."""
    scheme, authority, path = _parts(url)

    def label(found: re.Match[str]) -> str:
        name = found[1]
        return variable_value(place, name, values) if name in values else found[0]

    return scheme + _NAME.sub(label, authority) + path


def address(
    place: FieldPlace,
    url: str,
    metadata: Mapping[str, str | int | bool],
    *,
    tenants: Collection[str],
) -> str:
    """Fills the names of an accepted address; `tenants` may choose one label of its host only."""
    scheme, authority, path = _parts(url)

    def host(found: re.Match[str]) -> str:
        value = _value(place, found[1], metadata)
        if not (is_label(value) or (found[1] not in tenants and is_host_name(value))):
            raise _wrong(place, found[1], "is no name of a host")
        return value

    def segment(found: re.Match[str]) -> str:
        try:
            return quote(_value(place, found[1], metadata), safe="")
        except UnicodeEncodeError:  # a lone surrogate
            raise _wrong(place, found[1], "is no text") from None

    if scheme:
        start = scheme + _NAME.sub(host, authority)
    else:
        start = _origin(place, authority[1:-1], metadata)
    rest = _NAME.sub(segment, path)
    filled = (start.rstrip("/") if rest else start) + rest
    if problem := _problem(filled):
        raise place.error(
            f"{problem} once its names are filled", "Authorize again, or correct the address."
        )
    return filled


def _origin(place: FieldPlace, name: str, metadata: Mapping[str, str | int | bool]) -> str:
    value = _value(place, name, metadata)
    # Not even http on loopback: it is the provider's word, and no declaration of whoever runs this.
    if _problem(value) or urlsplit(value).scheme != "https":
        raise _wrong(place, name, "is no https address")
    return value


def _value(place: FieldPlace, name: str, metadata: Mapping[str, str | int | bool]) -> str:
    value: object = metadata.get(name)  # it may have lain in a file
    if value is None:
        raise place.error(
            f"needs {name!r}, which came with no answer of the provider",
            "Authorize again, so that the provider sends it, or correct the address.",
        )
    if isinstance(value, bool) or not isinstance(value, str | int) or value == "":
        raise _wrong(place, name, "is neither a text nor a whole number")
    return str(value)


def _wrong(place: FieldPlace, name: str, problem: str) -> ConnectionDeclarationError:
    return place.error(
        f"needs {name!r}, whose value {problem}",
        "Compare the address with what the provider documents, and authorize again.",
    )


def _parts(url: str) -> tuple[str, str, str]:
    """Parts scheme, authority and path; an address that begins with a name has no scheme."""
    if found := _WHOLE.fullmatch(url):
        return "", found["authority"], found["path"]
    if found := _ADDRESS.fullmatch(url):
        return found["scheme"], found["authority"], found["path"]
    return "", "", url


def _labels(url: str) -> list[str]:
    authority = _parts(url)[1]
    return _DOT_BETWEEN_LABELS.split(authority.partition(":")[0])


def _names_among(labels: list[str]) -> tuple[str, ...]:
    return tuple(found[1] for label in labels if (found := _NAME.fullmatch(label)))


def _template_problem(url: str) -> str | None:
    scheme, authority, path = _parts(url)
    if scheme:
        if any("{" in label and not _NAME.fullmatch(label) for label in _labels(url)):
            return "has in its host a name that is not in place of a whole label"
        sample = scheme + _NAME.sub("x", authority)
    else:
        sample = "https://x" if authority else ""
    return _problem(sample + _NAME.sub("x", path))


def _problem(url: str) -> str | None:
    if problem := url_problem(url):
        return problem
    if "?" in url:
        return "has a query"
    # Clients resolve these, so that what is behind them would not be under the declared path.
    if not {".", ".."}.isdisjoint(unquote(part) for part in urlsplit(url).path.split("/")):
        return "has a step to another folder in its path"
    return None
