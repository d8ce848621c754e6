"""The login of QuickBooks Online."""

from __future__ import annotations

from collections.abc import Sequence

from segmentstream.connections._oauth2 import OAuth2Connection
from segmentstream.connections._secrets import SecretReference


def quickbooks(
    *,
    key: str,
    name: str,
    client_id: SecretReference,
    client_secret: SecretReference,
    scopes: Sequence[str] = ("com.intuit.quickbooks.accounting",),
    sandbox: bool = False,
) -> OAuth2Connection:
    """Declares a login at Intuit QuickBooks (developer.intuit.com, "Set up OAuth 2.0").

    Id and secret go into a Basic header. Access tokens live for one hour, refresh tokens for 100
    days and 5 years at most; an old refresh token ends 24 hours after its successor was made
    (intuit/QuickBooks-V3-Java-SDK release 6.5.4). The company, `realmId`, is in the query of the
    callback and not in an answer, and stands in the address of the API. Intuit's discovery document
    names the address for revoking; its own client sends JSON there (intuit/oauth-pythonclient), so
    that a form (RFC 7009 section 2.1) is taken too is to be tried before it is promised. PKCE is
    not documented, so it is off; it is to be tried before it is promised.

    Args:
        key: As in `OAuth2Connection`.
        name: As in `OAuth2Connection`.
        client_id: As in `OAuth2Connection`.
        client_secret: As in `OAuth2Connection`.
        scopes: As in `OAuth2Connection`.
        sandbox: Whether the companies are sandbox companies, whose API has a host of its own.

    Raises:
        ConnectionDeclarationError: As `OAuth2Connection`.
    """
    host = "sandbox-quickbooks.api.intuit.com" if sandbox else "quickbooks.api.intuit.com"
    return OAuth2Connection(
        key=key,
        name=name,
        provider="quickbooks",
        authorization_url="https://appcenter.intuit.com/connect/oauth2",
        token_url="https://oauth.platform.intuit.com/oauth2/v1/tokens/bearer",
        client_id=client_id,
        client_secret=client_secret,
        scopes=scopes,
        client_authentication="client_secret_basic",
        pkce=False,
        metadata_fields=["x_refresh_token_expires_in"],
        revocation_url="https://developer.api.intuit.com/v2/oauth2/tokens/revoke",
        callback_metadata_fields=["realmId"],
        api_base_url=f"https://{host}/v3/company/{{realmId}}",
    )
