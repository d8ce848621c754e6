"""The login of LinkedIn."""

from __future__ import annotations

from collections.abc import Sequence

from segmentstream.connections._oauth2 import OAuth2Connection
from segmentstream.connections._secrets import SecretReference


def linkedin(
    *,
    key: str,
    name: str,
    client_id: SecretReference,
    client_secret: SecretReference,
    scopes: Sequence[str],
    has_refresh_tokens: bool = False,
) -> OAuth2Connection:
    """Declares a login at LinkedIn (learn.microsoft.com/linkedin, "Authorization Code Flow").

    PKCE is off: a `code_verifier` is answered with invalid_client (UsefulSoftwareCo/executor#2087;
    PKCE is for native clients that LinkedIn has enabled). Access tokens live for 60 days. Refresh
    tokens are for approved products only, so by default a grant without one is accepted.

    Args:
        key: As in `OAuth2Connection`.
        name: As in `OAuth2Connection`.
        client_id: As in `OAuth2Connection`.
        client_secret: As in `OAuth2Connection`.
        scopes: As in `OAuth2Connection`.
        has_refresh_tokens: Whether the app is approved for programmatic refresh tokens.

    Raises:
        ConnectionDeclarationError: As `OAuth2Connection`.
    """
    return OAuth2Connection(
        key=key,
        name=name,
        provider="linkedin",
        authorization_url="https://www.linkedin.com/oauth/v2/authorization",
        token_url="https://www.linkedin.com/oauth/v2/accessToken",
        client_id=client_id,
        client_secret=client_secret,
        scopes=scopes,
        pkce=False,
        require_refresh_token=has_refresh_tokens,
        metadata_fields=["refresh_token_expires_in"],
        api_base_url="https://api.linkedin.com",
    )
