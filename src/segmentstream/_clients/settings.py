"""Where clients get their tokens from, read once from variables; imports `_core`, declarations."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from segmentstream._core.errors import ConnectionAccessError
from segmentstream.connections._addresses import url_problem

URL_VARIABLE = "SEGMENTSTREAM_CONNECTIONS_URL"
TOKEN_VARIABLE = "SEGMENTSTREAM_CONNECTIONS_TOKEN"  # noqa: S105 - names a variable
AUDIENCE_VARIABLE = "SEGMENTSTREAM_CONNECTIONS_AUDIENCE"
CA_FILE_VARIABLE = "SEGMENTSTREAM_CONNECTIONS_CA_FILE"  # the same that the service reads

CONFIGURATION = "client_configuration"  # the code of an error


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceAddress:
    """Says where the connections service is, and how to show it who calls.

    Attributes:
        url: Its address, without a slash at the end.
        token: The token that it asks for; None where an identity token is sent, or none.
        audience: The audience of the identity token; None where none is sent.
        ca_file: A file of certificates that are trusted besides the usual ones.
    """

    url: str
    token: str | None = field(default=None, repr=False)
    audience: str | None = None
    ca_file: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientSettings:
    """Says where tokens come from.

    Attributes:
        service: The connections service; None where this process keeps credentials by itself.
    """

    service: ServiceAddress | None = None

    @classmethod
    def from_environ(cls, environ: Mapping[str, str]) -> ClientSettings:
        """Reads the settings from variables.

        Raises:
            ConnectionAccessError: One of them cannot work.
        """
        url = environ.get(URL_VARIABLE, "").rstrip("/")
        if not url:
            return cls()
        problem = url_problem(url) or ("has a query" if "?" in url else None)
        if problem:
            raise ConnectionAccessError(
                f"{URL_VARIABLE} {problem}.",
                "Give the https address of the connections service; plain http is for one on "
                "this machine.",
                code=CONFIGURATION,
            )
        token = environ.get(TOKEN_VARIABLE) or None
        if token is not None and not _is_sendable(token):
            raise ConnectionAccessError(
                f"{TOKEN_VARIABLE} holds what no header can, such as a line break.",
                "Set it to the token alone.",
                code=CONFIGURATION,
            )
        is_asked = token is None and urlsplit(url).scheme == "https"
        return cls(
            service=ServiceAddress(
                url=url,
                token=token,
                audience=(environ.get(AUDIENCE_VARIABLE) or url) if is_asked else None,
                ca_file=environ.get(CA_FILE_VARIABLE) or None,
            )
        )


def _is_sendable(token: str) -> bool:
    return token.isascii() and token.isprintable() and " " not in token
