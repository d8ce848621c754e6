"""The rules of addresses, and the variables in their hosts; imports the rules and `_core`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from ipaddress import IPv4Address, IPv6Address, ip_address
from urllib.parse import SplitResult, unquote_plus, urlsplit

from segmentstream.connections._parameters import reserved_name
from segmentstream.connections._rules import FieldPlace, distinct, text

# The characters of RFC 3986 section 2. Left out on purpose: white space, control characters (also
# as escapes), backslashes, the braces of a template and everything outside ASCII. urlsplit would
# drop or accept some of these in silence.
_URL = re.compile(r"(?:[A-Za-z0-9\-._~:/?#\[\]@!$&'()*+,;=]|%(?![01]|7[Ff])[0-9A-Fa-f]{2})+")
_HOST_LABEL = r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?"
_HOST_NAME = re.compile(rf"(?=.{{1,253}}\Z){_HOST_LABEL}(?:\.{_HOST_LABEL})*")
# Such a last label makes clients read the whole host as an IPv4 address, in forms (127.1, 0x7f.1)
# that the loopback rule does not see.
_NUMERIC_LABEL = re.compile(r"[0-9]+|0x[0-9a-f]*")
# One variable in place of one label, in the host of an https address.
_TEMPLATE = re.compile(
    r"(?P<scheme>https://)(?P<host>[^/?#:@\[\]]*)(?P<rest>.*)", re.IGNORECASE | re.DOTALL
)
_VARIABLE = re.compile(r"[a-z][a-z0-9_]{0,31}")
_VARIABLE_LABEL = re.compile(rf"\{{({_VARIABLE.pattern})\}}")
_LABEL = re.compile(_HOST_LABEL)
FIXED_LABELS = 2  # what is the provider's own at the end of a host with variables

_REVOCATION_PARAMETERS = frozenset({"token", "token_type_hint"})  # RFC 7009 section 2.1
_RESOURCE = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:[^#]+")  # RFC 3986 section 4.3


def endpoint(place: FieldPlace, value: object) -> str:
    """Accepts the address of an endpoint (RFC 6749 sections 3.1 and 3.2), kept as written.

    A label of its host may be a variable, such as `{shop}`.
    """
    url = text(place, value)
    if problem := _template_problem(url) or url_problem(_filled(url, {})):
        raise place.error(
            problem,
            "Copy the https address of the endpoint from the provider's documentation; plain "
            "http is for a provider on localhost.",
        )
    if reserved := reserved_name(query_names(url)):
        raise place.error(
            f"sets {reserved} in its query, which the service sets itself",
            "Remove it from the address.",
        )
    return url


def optional_endpoint(place: FieldPlace, value: object) -> str | None:
    """Accepts the address of an endpoint that a provider may have."""
    return None if value is None else endpoint(place, value)


def revocation_endpoint(place: FieldPlace, value: object) -> str | None:
    """Accepts the address of an endpoint that a provider may have (RFC 7009 section 2)."""
    url = optional_endpoint(place, value)
    if url and (reserved := reserved_name(query_names(url), _REVOCATION_PARAMETERS)):
        raise place.error(
            f"sets {reserved} in its query, which the service sets itself",
            "Remove it from the address.",
        )
    return url


def issuer(place: FieldPlace, value: object) -> str | None:
    """Accepts who a callback must say it is from (RFC 9207 section 2, RFC 8414 section 2)."""
    if value is None:
        return None
    url = text(place, value)
    if problem := url_problem(url) or ("has a query" if "?" in url else None):
        raise place.error(
            problem,
            "Copy the issuer from the provider's metadata, byte for byte; plain http is for a "
            "provider on localhost.",
        )
    return url


def resource(place: FieldPlace, value: object) -> tuple[str, ...]:
    """Accepts the resources that tokens are asked for: absolute URIs (RFC 8707 section 2)."""
    uris = distinct(place, value, _RESOURCE, "absolute URI without a fragment")
    if not all(_URL.fullmatch(uri) for uri in uris):
        raise place.error(
            "holds what no URI may: white space, a control character, a brace or a letter outside "
            "ASCII",
            "Copy each URI from the provider's documentation.",
        )
    return uris


def url_variables(place: FieldPlace, value: object) -> tuple[str, ...]:
    """Accepts the names of the variables in the hosts of the addresses."""
    what = "name of a variable: a lowercase letter, then up to 31 lowercase letters, digits and _"
    return distinct(place, value, _VARIABLE, what)


def variables_of(url: str) -> tuple[str, ...]:
    """Lists the variables in the host of an accepted address, in order."""
    found = _TEMPLATE.fullmatch(url)
    labels = found["host"].split(".") if found else []
    return tuple(match[1] for label in labels if (match := _VARIABLE_LABEL.fullmatch(label)))


def filled(place: FieldPlace, url: str, values: Mapping[str, str]) -> str:
    """Puts a value in the place of each variable of an accepted address: one DNS label each."""
    return _filled(url, {name: variable_value(place, name, values) for name in variables_of(url)})


def variable_value(place: FieldPlace, name: str, values: Mapping[str, str]) -> str:
    """Accepts the value of a variable: one DNS label."""
    value = values.get(name)
    if not isinstance(value, str) or not is_label(value):
        raise place.error(
            f"has the variable {name!r}, whose value is not one label of a host name",
            f"Give {name} 1 to 63 lowercase letters, digits and hyphens, such as the shop of "
            "shop.example.com; not a whole address.",
        )
    return value


def query_names(url: str) -> list[str]:
    """Lists the names of the parameters in the query of an accepted URL."""
    # Some servers still part a query at semicolons too.
    pairs = re.split("[&;]", urlsplit(url).query)
    return [unquote_plus(pair.partition("=")[0]) for pair in pairs if pair]


def url_problem(url: str) -> str | None:
    """Says why a text is no address for secrets: https, or http on a loopback host."""
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


def is_host_name(host: str) -> bool:
    """Tells whether a text is the name of a host, and no address of one."""
    last = host.rpartition(".")[2]
    return bool(_HOST_NAME.fullmatch(host)) and not _NUMERIC_LABEL.fullmatch(last)


def is_label(label: str) -> bool:
    """Tells whether a text is one label of the name of a host."""
    return bool(_LABEL.fullmatch(label))


def _filled(url: str, values: Mapping[str, str]) -> str:
    """Gives an address without variables; a variable without a value becomes the label x."""
    found = _TEMPLATE.fullmatch(url)
    if found is None:
        return url
    labels = (
        values.get(match[1], "x") if (match := _VARIABLE_LABEL.fullmatch(label)) else label
        for label in found["host"].split(".")
    )
    return found["scheme"] + ".".join(labels) + found["rest"]


def _template_problem(url: str) -> str | None:
    """Says what is wrong with the variables; other braces are refused with the address."""
    found = _TEMPLATE.fullmatch(url)
    if found is None or "{" not in found["host"]:
        return None
    fixed = found["host"].split(".")[-FIXED_LABELS:]
    # With less, whoever fills the variable would choose who gets the client's secret.
    if len(fixed) < FIXED_LABELS or any("{" in label for label in fixed):
        return "has a variable in the last two labels of its host, which must be the provider's own"
    return None


def _origin_problem(parts: SplitResult, port: int | None) -> str | None:
    host = parts.hostname
    if parts.scheme not in {"http", "https"} or host is None:
        return "is not an absolute https address"
    if "@" in parts.netloc:
        return "holds a user name or a password"
    if port == 0 or not (_address(host) or is_host_name(host)):
        return "has a host or a port that does not exist"
    if parts.scheme == "http" and not _is_loopback(host):
        return "would send secrets over plain http"
    return None


def _address(host: str) -> IPv4Address | IPv6Address | None:
    try:
        return None if "%" in host else ip_address(host)
    except ValueError:
        return None


def _is_loopback(host: str) -> bool:
    address = _address(host)
    return host == "localhost" or (address is not None and address.is_loopback)
