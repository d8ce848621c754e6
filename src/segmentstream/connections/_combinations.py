"""What two fields of a connection may not hold together; imports the rules of single fields."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from segmentstream.connections import _api as api
from segmentstream.connections._addresses import query_names, variables_of
from segmentstream.connections._parameters import reserved_name
from segmentstream.connections._rules import FieldPlace

if TYPE_CHECKING:
    from segmentstream.connections._oauth2 import OAuth2Connection

type _Places = Mapping[str, FieldPlace]


def check(connection: OAuth2Connection, places: _Places) -> None:
    """Refuses what cannot work though each field alone can; names the field to change."""
    _client(connection, places)
    _requests(connection, places)
    _names_sent_once(connection, places)
    _callback(connection, places)
    _renewal(connection, places)
    _names_in_api_address(connection, places)
    _variables(connection, places)


def _client(connection: OAuth2Connection, places: _Places) -> None:
    is_public = connection.client_authentication == "none"
    if is_public and connection.client_secret is not None:
        raise places["client_authentication"].error(
            "is none, though the connection has a client_secret",
            "Remove client_secret for a public client (RFC 6749 section 2.1), or say how the "
            "secret is sent.",
        )
    if is_public and not connection.pkce:
        raise places["pkce"].error(
            "is off, though the client has no secret: nothing would protect the code",
            "Leave PKCE on for a public client (RFC 8252 section 6, RFC 9700 section 2.1.1).",
        )
    if (
        connection.basic_encoding == "raw"
        and connection.client_authentication != "client_secret_basic"
    ):
        raise places["basic_encoding"].error(
            "is raw, though no Basic header is sent",
            'Remove it, or write client_authentication="client_secret_basic".',
        )


def _requests(connection: OAuth2Connection, places: _Places) -> None:
    if any(connection.scope_separator in scope for scope in connection.scopes):
        raise places["scopes"].error(
            "has a scope that holds the scope_separator",
            "Write each scope as one string of the list.",
        )
    sends_json = connection.token_request_format == "json"  # noqa: S105 - a format, no secret
    if sends_json and len(connection.resource) > 1:
        raise places["resource"].error(
            "has more than one URI, which a JSON object cannot send under one name",
            "Declare one resource: RFC 8707 section 2 repeats the parameter in a form.",
        )
    if connection.success_field is None and connection.success_value is not True:
        raise places["success_value"].error(
            "is set without a success_field that could hold it",
            "Write success_field too, or remove success_value.",
        )


def _names_sent_once(connection: OAuth2Connection, places: _Places) -> None:
    """Refuses a parameter that would be sent twice (RFC 6749 sections 3.1 and 3.2)."""
    own = {connection.client_id_parameter.casefold()} | (
        {"resource"} if connection.resource else set()
    )
    refresh = "refresh_url" if connection.refresh_url else "token_url"
    pairs = (
        ("authorization_url", "authorization_parameters"),
        ("token_url", "token_parameters"),
        (refresh, "token_parameters"),
        (refresh, "refresh_parameters"),
    )
    spellings = {name.casefold(): name for name in connection.token_parameters}
    for spelling in connection.refresh_parameters:
        if spellings.get(spelling.casefold(), spelling) != spelling:
            raise places["refresh_parameters"].error(
                f"sets {spelling!r}, which token_parameters writes in other letters",
                "Write it alike in both: the one here replaces the other.",
            )
    if name := reserved_name(query_names(connection.revocation_url or ""), own):
        raise places["revocation_url"].error(
            f"sets {name} in its query, which the service sets itself",
            "Remove it from the address.",
        )
    for url_field, parameters_field in pairs:
        in_query = {name.casefold() for name in query_names(getattr(connection, url_field))}
        if name := reserved_name(in_query, own):
            raise places[url_field].error(
                f"sets {name} in its query, which the service sets itself",
                "Remove it from the address.",
            )
        sent = getattr(connection, parameters_field)
        if name := reserved_name(sent, own):
            raise places[parameters_field].error(
                f"sets {name}, which the service sets itself", "Remove it here."
            )
        for name in sent:
            if name.casefold() in in_query:
                raise places[parameters_field].error(
                    f"sets {name!r}, which the query of the address sets too",
                    "Keep one of the two: a request may hold a parameter only once.",
                )


def _callback(connection: OAuth2Connection, places: _Places) -> None:
    for name in connection.callback_metadata_fields:
        if name.casefold() == connection.code_parameter.casefold():
            raise places["callback_metadata_fields"].error(
                "names the parameter that brings the code, which is no metadata", "Remove it."
            )
        if name in connection.metadata_fields:
            raise places["callback_metadata_fields"].error(
                f"names {name!r}, which metadata_fields names too",
                "Keep one of the two: a name stands for one value.",
            )


def _renewal(connection: OAuth2Connection, places: _Places) -> None:
    if connection.replay_window_seconds and not connection.refresh_token_rotation:
        raise places["replay_window_seconds"].error(
            "is set, though refresh_token_rotation is False and an old refresh token stays good",
            "Remove one of the two.",
        )


def _names_in_api_address(connection: OAuth2Connection, places: _Places) -> None:
    url = connection.api_base_url or ""
    place = places["api_base_url"]
    variables, callback = set(connection.url_variables), set(connection.callback_metadata_fields)
    metadata = callback | set(connection.metadata_fields)
    named = set(api.names_of(url))
    if unknown := sorted(named - variables - metadata):
        raise place.error(
            f"holds {{{unknown[0]}}}, which is declared nowhere",
            "Add it to url_variables, metadata_fields or callback_metadata_fields.",
        )
    if twice := sorted(named & variables & metadata):
        raise place.error(
            f"holds {{{twice[0]}}}, which is both a variable and a metadata field",
            "Give the variable another name.",
        )
    if variables & set(api.names_in_path(url)):
        raise place.error(
            "has a variable in its path", "Write url_variables in the place of labels of a host."
        )
    # Whoever fills these chooses where the token goes: a caller, or who makes up a callback.
    if (variables | callback) & set(api.names_in_domain(url)):
        raise place.error(
            "lets a variable or a field of the callback choose more of its host than a label "
            "before the last two, which must be the provider's own",
            "Write the domain of the provider, or take the host from a field of metadata_fields.",
        )


def _variables(connection: OAuth2Connection, places: _Places) -> None:
    used: set[str] = set()
    for field in ("authorization_url", "token_url", "refresh_url", "revocation_url"):
        found = variables_of(getattr(connection, field) or "")
        if not set(found) <= set(connection.url_variables):
            raise places[field].error(
                "has in its host a variable that url_variables does not declare",
                "Add the variable to url_variables, or write the host as it is.",
            )
        used.update(found)
    used.update(api.names_before_domain(connection.api_base_url or ""))
    for number, name in enumerate(connection.url_variables, start=1):
        if name not in used:
            raise places["url_variables"].error(
                f"declares at position {number} a variable that no address has in its host",
                "Remove it, or write it in braces in place of one label of a host.",
            )
