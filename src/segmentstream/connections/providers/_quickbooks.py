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
) -> OAuth2Connection:
    """Declares a login at Intuit QuickBooks (developer.intuit.com, "Set up OAuth 2.0").

    Id and secret go into a Basic header. Access tokens live for one hour, refresh tokens for 100
    days and 5 years at most; an old refresh token ends 24 hours after its successor was made
    (intuit/QuickBooks-V3-Java-SDK release 6.5.4). The company, `realmId`, is in the query of the
    callback and not in an answer: whoever receives the callback must keep it. PKCE is not
    documented, so it is off; it is to be tried before it is promised.

    Args:
        key: As in `OAuth2Connection`.
        name: As in `OAuth2Connection`.
        client_id: As in `OAuth2Connection`.
        client_secret: As in `OAuth2Connection`.
        scopes: As in `OAuth2Connection`.

    Raises:
        ConnectionDeclarationError: As `OAuth2Connection`.
    """
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
    )
