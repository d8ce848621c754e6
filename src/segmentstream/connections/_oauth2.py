"""The declaration of an OAuth 2.0 login; no I/O and no protocol. Imports `_core` and its rules."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields
from typing import Final, NotRequired, TypedDict, Unpack

from segmentstream._core.errors import ConnectionDeclarationError
from segmentstream._core.names import CONNECTION_KEY
from segmentstream.connections import _rules as rules
from segmentstream.connections._secrets import SecretReference


class _Declared(TypedDict):
    """What a caller writes: the fields, in the types they may be given in."""

    key: str
    name: str
    provider: str
    authorization_url: str
    token_url: str
    client_id: SecretReference
    client_secret: SecretReference
    scopes: Sequence[str]
    authorization_parameters: NotRequired[Mapping[str, str]]
    token_parameters: NotRequired[Mapping[str, str]]
    client_authentication: NotRequired[rules.ClientAuthentication]
    pkce: NotRequired[bool]
    require_refresh_token: NotRequired[bool]


# The generated __init__ would answer a misspelt or a missing field with TypeError, and a list of
# scopes would stay the caller's list; hence init=False. dataclasses.replace, copies and pickles
# work all the same, and replace checks every rule again.
@dataclass(frozen=True, slots=True, kw_only=True, init=False)
class OAuth2Connection:
    """Declares a login by authorization code (RFC 6749 section 4.1) as data that cannot change.

    Making one authorizes nothing, opens nothing and resolves no secret. Every field is given by
    name.

    Attributes:
        key: The stable identifier: a lowercase letter, then up to 63 lowercase letters, digits
            and underscores. Tokens are stored under it.
        name: The label a person sees, 2 to 80 characters.
        provider: Who grants the tokens, such as `google`: a lowercase letter, then up to 63
            lowercase letters, digits and hyphens.
        authorization_url: The https address a person is sent to; http only on loopback hosts.
        token_url: The https address that issues and refreshes tokens; http only on loopback hosts.
        client_id: Reference to the client identifier.
        client_secret: Reference to the client secret.
        scopes: What to ask for, in order, each once; empty where a provider has no scopes.
        authorization_parameters: What else goes into the authorization request, such as
            `{"access_type": "offline"}`. What the protocol sets at run time (`client_id`,
            `redirect_uri`, `state`, `scope` and the like) is refused, here and in the query of
            both addresses.
        token_parameters: What else goes into the requests for tokens, by the same rule.
        client_authentication: How the client shows its secret: in the body
            (`client_secret_post`) or in the header (`client_secret_basic`).
        pkce: Whether to use PKCE with S256 (RFC 7636). Turn it off only for a provider that
            refuses it.
        require_refresh_token: Whether a grant without a refresh token counts as failed.

    Raises:
        ConnectionDeclarationError: A field is unknown, missing or cannot work; it is named, and
            its value is not repeated.
    """

    key: str
    name: str
    provider: str
    authorization_url: str
    token_url: str
    client_id: SecretReference
    client_secret: SecretReference
    scopes: tuple[str, ...]
    authorization_parameters: Mapping[str, str] = rules.Parameters({})
    token_parameters: Mapping[str, str] = rules.Parameters({})
    client_authentication: rules.ClientAuthentication = "client_secret_post"
    pkce: bool = True
    require_refresh_token: bool = True

    def __init__(self, **declared: Unpack[_Declared]) -> None:
        connection = _called(declared.get("key"))
        values = _completed(declared, connection)
        places = {field: rules.FieldPlace(connection=connection, field=field) for field in _RULES}
        for field, rule in _RULES.items():
            object.__setattr__(self, field, rule(places[field], values[field]))
        rules.sent_once(
            places["authorization_parameters"],
            self.authorization_parameters,
            self.authorization_url,
        )
        rules.sent_once(places["token_parameters"], self.token_parameters, self.token_url)


# One rule for each field; the first field in this order that is wrong is the one an error names.
_RULES: Final[Mapping[str, Callable[[rules.FieldPlace, object], object]]] = {
    "key": rules.connection_key,
    "name": rules.connection_name,
    "provider": rules.provider,
    "authorization_url": rules.endpoint,
    "token_url": rules.endpoint,
    "client_id": rules.secret,
    "client_secret": rules.secret,
    "scopes": rules.scopes,
    "authorization_parameters": rules.parameters,
    "token_parameters": rules.parameters,
    "client_authentication": rules.client_authentication,
    "pkce": rules.flag,
    "require_refresh_token": rules.flag,
}


def check_unique_keys(connections: Iterable[OAuth2Connection]) -> None:
    """Refuses a workspace in which two connections have the same key.

    Raises:
        ConnectionDeclarationError: Names the first key that comes a second time.
    """
    seen: set[str] = set()
    for connection in connections:
        if connection.key in seen:
            raise ConnectionDeclarationError(
                f"Two connections have the key {connection.key!r}.",
                "Give each connection a key of its own, since tokens are stored under it.",
                field="key",
            )
        seen.add(connection.key)


def _called(key: object) -> str:
    """Says what errors call the connection; a key that is not valid is not repeated."""
    if isinstance(key, str) and CONNECTION_KEY.fullmatch(key):
        return f"connection {key!r}"
    return "a connection"


def _completed(declared: Mapping[str, object], connection: str) -> dict[str, object]:
    """Adds the defaults of the fields that were left out."""
    for field in declared:
        if field not in _RULES:
            raise ConnectionDeclarationError(
                f"{field!r} in {connection} is no field of OAuth2Connection.",
                f"Correct or remove it; the fields are {', '.join(_RULES)}.",
                field=field,
            )
    defaults = {field.name: field.default for field in fields(OAuth2Connection)}
    values = {**defaults, **declared}
    missing = [field for field, value in values.items() if value is MISSING]
    if missing:
        raise ConnectionDeclarationError(
            f"The declaration of {connection} lacks {', '.join(missing)}.",
            "Add what is missing; help(OAuth2Connection) describes each field.",
            field=missing[0],
        )
    return values
