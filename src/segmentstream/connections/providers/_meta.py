"""The login of Meta: Facebook, Instagram and their ads."""

from __future__ import annotations

from collections.abc import Sequence

from segmentstream.connections._oauth2 import OAuth2Connection
from segmentstream.connections._secrets import SecretReference


def meta(
    *,
    key: str,
    name: str,
    client_id: SecretReference,
    client_secret: SecretReference,
    scopes: Sequence[str],
    version: str,
) -> OAuth2Connection:
    """Declares a login at Meta (developers.facebook.com, "Manually Build a Login Flow").

    Scopes are parted by commas. There is no refresh token: a token is exchanged for one of 60 days
    by a request of Meta's own, which this login does not make, and a server should use the token of
    a system user (facebook/facebook-java-business-sdk#296). PKCE is documented for logins with
    OpenID Connect only, as a test, so it is off. The page documents the token request as GET; that
    POST is taken too is to be tried before it is promised; so is that the API takes the token in a
    header.

    Args:
        key: As in `OAuth2Connection`.
        name: As in `OAuth2Connection`.
        client_id: As in `OAuth2Connection`.
        client_secret: As in `OAuth2Connection`.
        scopes: As in `OAuth2Connection`.
        version: The version of the Graph API, such as `v21.0`. It has no default, since each ends
            some two years after its release.

    Raises:
        ConnectionDeclarationError: As `OAuth2Connection`.
    """
    return OAuth2Connection(
        key=key,
        name=name,
        provider="meta",
        authorization_url=f"https://www.facebook.com/{version}/dialog/oauth",
        token_url=f"https://graph.facebook.com/{version}/oauth/access_token",
        client_id=client_id,
        client_secret=client_secret,
        scopes=scopes,
        pkce=False,
        require_refresh_token=False,
        scope_separator=",",
        api_base_url=f"https://graph.facebook.com/{version}",
    )
