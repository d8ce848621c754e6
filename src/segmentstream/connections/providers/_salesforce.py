"""The login of Salesforce."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, Literal

from segmentstream._core.errors import ConnectionDeclarationError
from segmentstream.connections._oauth2 import OAuth2Connection
from segmentstream.connections._secrets import SecretReference
from segmentstream.connections.providers._scopes import with_scopes

type SalesforceLogin = Literal["production", "sandbox", "my_domain"]

_HOSTS: Final[Mapping[str, str]] = {
    "production": "login.salesforce.com",
    "sandbox": "test.salesforce.com",
    "my_domain": "{domain}.my.salesforce.com",
}


def salesforce(
    *,
    key: str,
    name: str,
    client_id: SecretReference,
    client_secret: SecretReference,
    scopes: Sequence[str],
    login: SalesforceLogin = "production",
) -> OAuth2Connection:
    """Declares a login at Salesforce (help.salesforce.com, "OAuth 2.0 Web Server Flow").

    A refresh token comes only with the scope `refresh_token`, which is added where it is missing.
    An answer has no `expires_in` although tokens end with the session, whose length an
    administrator sets: refresh after a 401, or declare `default_lifetime_seconds` for an org that
    is known. Refresh tokens may rotate. Requests go to the `instance_url` of the answer.
    Tokens are revoked ("Revoke OAuth Tokens Programmatically", same place) where people log in; the
    page shows a My Domain, so that the other logins take it is to be tried before it is promised.

    Args:
        key: As in `OAuth2Connection`.
        name: As in `OAuth2Connection`.
        client_id: As in `OAuth2Connection`.
        client_secret: As in `OAuth2Connection`.
        scopes: As in `OAuth2Connection`.
        login: Where people log in. `my_domain` leaves the host to the variable `domain`.

    Raises:
        ConnectionDeclarationError: As `OAuth2Connection`; or there is no such login.
    """
    if login not in _HOSTS:
        raise ConnectionDeclarationError(
            "The argument login of salesforce() is none of its choices.",
            f"Write one of {', '.join(_HOSTS)}.",
            field="login",
        )
    host = _HOSTS[login]
    return OAuth2Connection(
        key=key,
        name=name,
        provider="salesforce",
        authorization_url=f"https://{host}/services/oauth2/authorize",
        token_url=f"https://{host}/services/oauth2/token",
        client_id=client_id,
        client_secret=client_secret,
        scopes=with_scopes(scopes, "refresh_token"),
        url_variables=["domain"] if login == "my_domain" else [],
        metadata_fields=["instance_url", "id"],
        revocation_url=f"https://{host}/services/oauth2/revoke",
        api_base_url="{instance_url}",
    )
