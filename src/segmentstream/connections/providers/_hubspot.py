"""The login of HubSpot."""

from __future__ import annotations

from collections.abc import Sequence

from segmentstream.connections._oauth2 import OAuth2Connection
from segmentstream.connections._secrets import SecretReference


def hubspot(
    *,
    key: str,
    name: str,
    client_id: SecretReference,
    client_secret: SecretReference,
    scopes: Sequence[str],
) -> OAuth2Connection:
    """Declares a login at HubSpot (developers.hubspot.com/docs, "Manage OAuth tokens").

    The token endpoint carries its date, as does that for revoking ("Revoke an OAuth token", same
    place); v1 ends on 2027-02-16. Access tokens live for 30 minutes, so a long load crosses an
    expiry. The scopes must be those of the app's settings. That page does not mention PKCE, so it
    is off; it is to be tried before it is promised.

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
        provider="hubspot",
        authorization_url="https://app.hubspot.com/oauth/authorize",
        token_url="https://api.hubapi.com/oauth/2026-03/token",
        client_id=client_id,
        client_secret=client_secret,
        scopes=scopes,
        pkce=False,
        metadata_fields=["hub_id", "user_id"],
        revocation_url="https://api.hubapi.com/oauth/2026-03/token/revoke",
        api_base_url="https://api.hubapi.com",
    )
