"""The declaration of an OAuth 2.0 login; no I/O and no protocol. Imports `_core` and the rules."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields, replace
from typing import Final, NotRequired, TypedDict, Unpack

from segmentstream._core.errors import ConnectionDeclarationError
from segmentstream._core.names import CONNECTION_KEY
from segmentstream.connections import _addresses as addresses
from segmentstream.connections import _answers as answers
from segmentstream.connections import _api as api
from segmentstream.connections import _combinations as combinations
from segmentstream.connections import _parameters as parameters
from segmentstream.connections import _renewal as renewal
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
    client_secret: NotRequired[SecretReference | None]
    scopes: Sequence[str]
    authorization_parameters: NotRequired[Mapping[str, str]]
    token_parameters: NotRequired[Mapping[str, str]]
    client_authentication: NotRequired[rules.ClientAuthentication]
    pkce: NotRequired[bool]
    require_refresh_token: NotRequired[bool]
    basic_encoding: NotRequired[rules.BasicEncoding]
    client_id_parameter: NotRequired[str]
    code_parameter: NotRequired[str]
    scope_separator: NotRequired[str]
    implied_scopes: NotRequired[Mapping[str, Sequence[str]]]
    resource: NotRequired[Sequence[str]]
    token_request_format: NotRequired[rules.TokenRequestFormat]
    refresh_url: NotRequired[str | None]
    refresh_parameters: NotRequired[Mapping[str, str]]
    url_variables: NotRequired[Sequence[str]]
    token_path: NotRequired[Sequence[str]]
    bearer_types: NotRequired[Sequence[str]]
    success_field: NotRequired[str | None]
    success_value: NotRequired[str | int | bool]
    zero_expiry: NotRequired[answers.ZeroExpiry]
    expiry_unit: NotRequired[answers.ExpiryUnit]
    default_lifetime_seconds: NotRequired[int | None]
    metadata_fields: NotRequired[Sequence[str]]
    issuer: NotRequired[str | None]
    revocation_url: NotRequired[str | None]
    refresh_token_rotation: NotRequired[bool]
    replay_window_seconds: NotRequired[int]
    callback_metadata_fields: NotRequired[Sequence[str]]
    refresh_margin_seconds: NotRequired[int]
    refresh_statuses: NotRequired[Sequence[int]]
    api_base_url: NotRequired[str | None]
    api_header: NotRequired[str]
    api_scheme: NotRequired[str]
    https_redirect: NotRequired[bool]


# The generated __init__ would answer a misspelt or a missing field with TypeError, and a list of
# scopes would stay the caller's list; hence init=False. dataclasses.replace, copies and pickles
# work all the same, and replace checks every rule again.
@dataclass(frozen=True, slots=True, kw_only=True, init=False)
class OAuth2Connection:
    """Declares a login by authorization code (RFC 6749 section 4.1) as data that cannot change.

    Making one authorizes nothing, opens nothing and resolves no secret. Every field is given by
    name. The defaults are right for a server that keeps to the standard; the fields from
    `basic_encoding` on say how a provider differs.

    Attributes:
        key: The stable identifier: a lowercase letter, then up to 63 lowercase letters, digits
            and underscores. Tokens are stored under it.
        name: The label a person sees, 2 to 80 characters.
        provider: Who grants the tokens, such as `google`: a lowercase letter, then up to 63
            lowercase letters, digits and hyphens.
        authorization_url: The https address a person is sent to; http only on loopback hosts. A
            label of its host may be a variable, as in `https://{shop}.example.com/authorize`.
        token_url: The https address that issues and refreshes tokens, by the same rules.
        client_id: Reference to the client identifier.
        client_secret: Reference to the client secret; left out exactly for a public client.
        scopes: What to ask for, in order, each once; empty where a provider has no scopes.
        authorization_parameters: What else goes into the authorization request, such as
            `{"access_type": "offline"}`. What the protocol sets at run time (`client_id`,
            `redirect_uri`, `state`, `scope` and the like) is refused, here and in the query of
            both addresses.
        token_parameters: What else goes into the requests for tokens, by the same rule.
        client_authentication: How the client shows its secret: in the body
            (`client_secret_post`) or in the header (`client_secret_basic`); `none` for a public
            client, which has no secret (RFC 6749 section 2.1, RFC 8252 section 8.5).
        pkce: Whether to use PKCE with S256 (RFC 7636). Turn it off only for a provider that
            refuses it; a public client cannot.
        require_refresh_token: Whether a grant without a refresh token counts as failed.
        basic_encoding: Whether id and secret are form-encoded before they go into a Basic header
            (`form`, RFC 6749 section 2.3.1 and appendix B) or go into it as they are (`raw`).
        client_id_parameter: The name under which the provider takes the client id.
        code_parameter: The name under which the provider's callback brings the code, for whoever
            receives the callback.
        scope_separator: What stands between two scopes in a request: a space (RFC 6749 section
            3.3), or one of the characters comma, semicolon, bar and plus.
        implied_scopes: Which scopes a granted scope stands for where the provider does not name
            them, such as `{"write_orders": ["read_orders"]}`.
        resource: The absolute URIs that tokens are asked for, each sent as a `resource` of its own
            (RFC 8707 section 2).
        token_request_format: Whether the body of a token request is a form (RFC 6749 section
            4.1.3) or a JSON object.
        refresh_url: Where tokens are refreshed, if not at `token_url`.
        refresh_parameters: What a refresh sends besides `token_parameters`, and instead of one of
            the same name. Here a `scope` is allowed (RFC 6749 section 6).
        url_variables: The variables in the hosts of the addresses. Each stands for one label of
            a host name, and for none of the last two; `with_variables` fills them.
        token_path: Under which fields of an answer the token stands, outermost first; at the top
            when empty (RFC 6749 section 5.1).
        bearer_types: Which values of `token_type` mean a bearer token besides `Bearer`, such as
            Slack's `bot` (RFC 6749 section 7.1).
        success_field: A field at the top of an answer that says whether the request succeeded.
        success_value: What it holds then.
        zero_expiry: What an `expires_in` of 0 means: that the token has expired, or never does.
        expiry_unit: What `expires_in` is counted in (seconds in RFC 6749 section 5.1).
        default_lifetime_seconds: How long a token lives whose answer does not say so; unknown
            when left out.
        metadata_fields: Which further fields of an answer are handed on, such as `instance_url`,
            by dotted path from the top.
        issuer: Who the callback must say it is from: when declared, its `iss` must be there and be
            equal byte for byte (RFC 9207 section 2.4). An https address without a query.
        revocation_url: Where tokens are revoked (RFC 7009 section 2), by the rules of `token_url`.
        refresh_token_rotation: Whether a refresh may make the old refresh token invalid (RFC 6749
            section 6, RFC 9700 section 4.14.2). False says that sending the same refresh again is
            safe.
        replay_window_seconds: For how long after a refresh the provider takes the old refresh
            token once more, as Xero does for 1800 seconds; up to 30 days.
        callback_metadata_fields: Which parameters of the callback are kept, such as QuickBooks'
            `realmId`, beside the `metadata_fields` of the answer.
        refresh_margin_seconds: How long before its end a token is renewed, up to one day.
        refresh_statuses: Which statuses of the API say that a token is dead (401 in RFC 6750
            section 3.1); 400 to 499, and never 429.
        api_base_url: The https address under which the API is; http only on loopback hosts.
            `{name}` stands for what depends on the login: in place of a label of the host for one
            of `url_variables`; there, in the path or at the very beginning (for an address with
            its scheme) for one of `metadata_fields`; in the path, or in place of a label before
            the last two, for one of `callback_metadata_fields`.
        api_header: The header in which the API takes the token (RFC 6750 section 2.1).
        api_scheme: The word before the token there; empty where the token stands alone.
        https_redirect: Whether the provider takes https redirect addresses only, on loopback hosts
            too, which RFC 8252 section 7.3 has with http.

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
    client_secret: SecretReference | None = None
    scopes: tuple[str, ...]
    authorization_parameters: Mapping[str, str] = rules.Frozen({})
    token_parameters: Mapping[str, str] = rules.Frozen({})
    client_authentication: rules.ClientAuthentication = "client_secret_post"
    pkce: bool = True
    require_refresh_token: bool = True
    basic_encoding: rules.BasicEncoding = "form"
    client_id_parameter: str = "client_id"
    code_parameter: str = "code"
    scope_separator: str = " "
    implied_scopes: Mapping[str, tuple[str, ...]] = rules.Frozen({})
    resource: tuple[str, ...] = ()
    token_request_format: rules.TokenRequestFormat = "form"  # noqa: S105 - a format, no secret
    refresh_url: str | None = None
    refresh_parameters: Mapping[str, str] = rules.Frozen({})
    url_variables: tuple[str, ...] = ()
    token_path: tuple[str, ...] = ()
    bearer_types: tuple[str, ...] = ()
    success_field: str | None = None
    success_value: str | int | bool = True
    zero_expiry: answers.ZeroExpiry = "expired"
    expiry_unit: answers.ExpiryUnit = "seconds"
    default_lifetime_seconds: int | None = None
    metadata_fields: tuple[str, ...] = ()
    issuer: str | None = None
    revocation_url: str | None = None
    refresh_token_rotation: bool = True
    replay_window_seconds: int = 0
    callback_metadata_fields: tuple[str, ...] = ()
    refresh_margin_seconds: int = 300
    refresh_statuses: tuple[int, ...] = (401,)
    api_base_url: str | None = None
    api_header: str = "Authorization"
    api_scheme: str = "Bearer"
    https_redirect: bool = False

    def __init__(self, **declared: Unpack[_Declared]) -> None:
        connection = _called(declared.get("key"))
        values = _completed(declared, connection)
        places = {field: rules.FieldPlace(connection=connection, field=field) for field in _RULES}
        for field, rule in _RULES.items():
            object.__setattr__(self, field, rule(places[field], values[field]))
        combinations.check(self, places)

    def with_variables(self, values: Mapping[str, str]) -> OAuth2Connection:
        """Gives the connection with its `url_variables` filled, one DNS label for each.

        Args:
            values: A value for each variable, such as `{"shop": "example"}`; for no other name.

        Raises:
            ConnectionDeclarationError: A value is missing, is one too many, or is no label. It is
                not repeated.
        """
        place = rules.FieldPlace(connection=_called(self.key), field="url_variables")
        if values.keys() != set(self.url_variables):
            wanted = ", ".join(self.url_variables) or "none"
            raise place.error(
                "does not have the variables that were given",
                f"Give a value for each of: {wanted}.",
            )
        if not self.url_variables:
            return self
        return replace(
            self,
            authorization_url=addresses.filled(place, self.authorization_url, values),
            token_url=addresses.filled(place, self.token_url, values),
            refresh_url=self.refresh_url and addresses.filled(place, self.refresh_url, values),
            revocation_url=self.revocation_url
            and addresses.filled(place, self.revocation_url, values),
            api_base_url=self.api_base_url and api.with_variables(place, self.api_base_url, values),
            url_variables=(),
        )

    def api_address(self, metadata: Mapping[str, str | int | bool]) -> str | None:
        """Gives the address of the API for one login, or None where none is declared.

        A value is one segment of a path, percent-encoded, or the name of a host, and cannot lead
        elsewhere: the result is an https address without user, query and fragment.

        Args:
            metadata: What the provider sent of the `metadata_fields` and the
                `callback_metadata_fields`, by name; the rest is not looked at.

        Raises:
            ConnectionDeclarationError: A value is missing or cannot stand where it should, or
                `url_variables` are not filled. No value is repeated.
        """
        if self.api_base_url is None:
            return None
        place = rules.FieldPlace(connection=_called(self.key), field="api_base_url")
        if set(api.names_of(self.api_base_url)) & set(self.url_variables):
            raise place.error(
                "has variables that are not filled", "Fill them by with_variables first."
            )
        tenants = self.callback_metadata_fields
        return api.address(place, self.api_base_url, metadata, tenants=tenants)


# One rule for each field; the first field in this order that is wrong is the one an error names.
_RULES: Final[Mapping[str, Callable[[rules.FieldPlace, object], object]]] = {
    "key": rules.connection_key,
    "name": rules.connection_name,
    "provider": rules.provider,
    "authorization_url": addresses.endpoint,
    "token_url": addresses.endpoint,
    "client_id": rules.secret,
    "client_secret": rules.optional_secret,
    "scopes": rules.scopes,
    "authorization_parameters": parameters.parameters,
    "token_parameters": parameters.parameters,
    "client_authentication": rules.client_authentication,
    "pkce": rules.flag,
    "require_refresh_token": rules.flag,
    "basic_encoding": rules.basic_encoding,
    "client_id_parameter": parameters.client_id_parameter,
    "code_parameter": parameters.code_parameter,
    "scope_separator": rules.scope_separator,
    "implied_scopes": rules.implied_scopes,
    "resource": addresses.resource,
    "token_request_format": rules.token_request_format,
    "refresh_url": addresses.optional_endpoint,
    "refresh_parameters": parameters.refresh_parameters,
    "url_variables": addresses.url_variables,
    "token_path": answers.token_path,
    "bearer_types": answers.bearer_types,
    "success_field": answers.success_field,
    "success_value": answers.success_value,
    "zero_expiry": answers.zero_expiry,
    "expiry_unit": answers.expiry_unit,
    "default_lifetime_seconds": answers.default_lifetime_seconds,
    "metadata_fields": answers.metadata_fields,
    "issuer": addresses.issuer,
    "revocation_url": addresses.revocation_endpoint,
    "refresh_token_rotation": rules.flag,
    "replay_window_seconds": renewal.replay_window_seconds,
    "callback_metadata_fields": parameters.callback_metadata_fields,
    "refresh_margin_seconds": renewal.refresh_margin_seconds,
    "refresh_statuses": renewal.refresh_statuses,
    "api_base_url": api.api_base_url,
    "api_header": api.api_header,
    "api_scheme": api.api_scheme,
    "https_redirect": rules.flag,
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
    if values["client_authentication"] != "none" and values["client_secret"] is None:
        values["client_secret"] = MISSING
    missing = [field for field, value in values.items() if value is MISSING]
    if missing:
        raise ConnectionDeclarationError(
            f"The declaration of {connection} lacks {', '.join(missing)}.",
            "Add what is missing; help(OAuth2Connection) describes each field.",
            field=missing[0],
        )
    return values
