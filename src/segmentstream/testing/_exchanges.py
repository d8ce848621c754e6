"""What the fake provider is asked and what it answers; imports the standard library only."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

_WITHOUT_BODY = (204, 304)
_NOTHING: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderRequest:
    """Is a request that the provider was sent. Its repr shows neither query, headers nor body.

    Attributes:
        method: Such as `GET`.
        path: The path without the query, such as `/api/customers`.
        status: What it was answered with; 0 as long as it has not been.
        query: The parameters of the address, the last of each name.
        headers: The headers, by name in small letters; never the one that held the token.
        body: The body as it came.
    """

    method: str
    path: str
    status: int = 0
    query: Mapping[str, str] = field(default=_NOTHING, repr=False)
    headers: Mapping[str, str] = field(default=_NOTHING, repr=False)
    body: bytes = field(default=b"", repr=False)

    # A document has the type that its sender gave it.
    def json(self) -> Any:
        """Reads the body as JSON."""
        return json.loads(self.body)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderAnswer:
    """Is an answer that is more than a document with status 200.

    Attributes:
        status: The HTTP status.
        document: What the body says, as JSON; `bytes` and `str` are sent as they are.
        headers: Further headers.
        media_type: The media type of the body.
    """

    status: int = 200
    document: object = field(default=None, repr=False)
    headers: Mapping[str, str] = field(default=_NOTHING, repr=False)
    media_type: str = "application/json"

    @property
    def body(self) -> bytes:
        """The body as it is sent."""
        if self.status in _WITHOUT_BODY:
            return b""
        match self.document:
            case bytes():
                return self.document
            case str() if self.media_type != "application/json":
                return self.document.encode()
            case _:
                return json.dumps(self.document).encode()
