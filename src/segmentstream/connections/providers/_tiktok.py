"""The login of TikTok's Login Kit."""

from __future__ import annotations

from collections.abc import Sequence

from segmentstream.connections._oauth2 import OAuth2Connection
from segmentstream.connections._secrets import SecretReference


def tiktok(
    *,
    key: str,
    name: str,
    client_id: SecretReference,
    client_secret: SecretReference,
    scopes: Sequence[str],
) -> OAuth2Connection:
    """Declares a login at TikTok (developers.tiktok.com/doc/oauth-user-access-token-management).

    The client id is called `client_key`, scopes are parted by commas, and both addresses end with a
    slash, without which a POST is redirected. Access tokens live for 24 hours, refresh tokens for
    365 days; a later page says 2 hours and 180 days (developers.tiktok.com/docs, "Manage OAuth
    Access Tokens"), and an answer says what holds. What is revoked is an access token ("Revoke a
    User Access Token", same place). Redirect addresses must be https ("Login Kit for Web"). PKCE is
    off: it is for mobile and desktop apps only, and not with S256 as RFC 7636 has it. This is not
    the login of TikTok API for Business, which takes other parameters.

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
        provider="tiktok",
        authorization_url="https://www.tiktok.com/v2/auth/authorize/",
        token_url="https://open.tiktokapis.com/v2/oauth/token/",
        client_id=client_id,
        client_secret=client_secret,
        scopes=scopes,
        pkce=False,
        client_id_parameter="client_key",
        scope_separator=",",
        metadata_fields=["open_id", "refresh_expires_in"],
        revocation_url="https://open.tiktokapis.com/v2/oauth/revoke/",
        api_base_url="https://open.tiktokapis.com/v2",
        https_redirect=True,
    )
