"""The login of Microsoft's identity platform."""

from __future__ import annotations

from collections.abc import Sequence

from segmentstream.connections._oauth2 import OAuth2Connection
from segmentstream.connections._secrets import SecretReference
from segmentstream.connections.providers._scopes import with_scopes


def microsoft(
    *,
    key: str,
    name: str,
    client_id: SecretReference,
    client_secret: SecretReference,
    scopes: Sequence[str],
    tenant: str = "common",
) -> OAuth2Connection:
    """Declares a login at Microsoft (learn.microsoft.com, "OAuth 2.0 authorization code flow").

    A refresh token comes only with the scope `offline_access`, which is added where it is missing
    and is never named in an answer (learn.microsoft.com/answers 1526860). Access tokens live for a
    random 60 to 90 minutes, and refresh tokens rotate. Microsoft Advertising wants a scope on
    refresh too, and each API has an address of its own. There is no endpoint of RFC 7009. Add with
    `dataclasses.replace(..., refresh_parameters={"scope": ...}, api_base_url=...)` what is needed.

    Args:
        key: As in `OAuth2Connection`.
        name: As in `OAuth2Connection`.
        client_id: As in `OAuth2Connection`.
        client_secret: As in `OAuth2Connection`.
        scopes: As in `OAuth2Connection`.
        tenant: A tenant's id or domain, or `common`, `organizations` or `consumers`.

    Raises:
        ConnectionDeclarationError: As `OAuth2Connection`.
    """
    return OAuth2Connection(
        key=key,
        name=name,
        provider="microsoft",
        authorization_url=f"https://login.microsoftonline.com/{tenant}/oauth2/v2.0/authorize",
        token_url=f"https://login.microsoftonline.com/{tenant}/oauth2/v2.0/token",
        client_id=client_id,
        client_secret=client_secret,
        scopes=with_scopes(scopes, "offline_access"),
    )
