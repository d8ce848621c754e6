"""The login of Xero."""

from __future__ import annotations

from collections.abc import Sequence

from segmentstream.connections._oauth2 import OAuth2Connection
from segmentstream.connections._secrets import SecretReference
from segmentstream.connections.providers._scopes import with_scopes


def xero(
    *,
    key: str,
    name: str,
    client_id: SecretReference,
    client_secret: SecretReference,
    scopes: Sequence[str],
) -> OAuth2Connection:
    """Declares a login at Xero (developer.xero.com/documentation/guides/oauth2/auth-flow).

    A refresh token comes only with the scope `offline_access`, which is added where it is missing.
    Id and secret go into a Basic header. Access tokens live for 30 minutes, an unused refresh token
    for 60 days; a used one can be repeated for 30 minutes (developer.xero.com/faq/oauth2). PKCE is
    documented for apps without a secret only, so it is off. Revoking a refresh token takes all
    organisations from the app (XeroAPI/xero-node release 4.10.1). Which ones a token is for is told
    by `GET https://api.xero.com/connections`.

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
        provider="xero",
        authorization_url="https://login.xero.com/identity/connect/authorize",
        token_url="https://identity.xero.com/connect/token",
        client_id=client_id,
        client_secret=client_secret,
        scopes=with_scopes(scopes, "offline_access"),
        client_authentication="client_secret_basic",
        pkce=False,
        revocation_url="https://identity.xero.com/connect/revocation",
        replay_window_seconds=30 * 60,
        api_base_url="https://api.xero.com",
    )
