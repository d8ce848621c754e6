"""The login of GitHub."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from segmentstream.connections._oauth2 import OAuth2Connection
from segmentstream.connections._secrets import SecretReference

# https://docs.github.com/apps/oauth-apps/building-oauth-apps/scopes-for-oauth-apps: an answer
# leaves out a scope that another one includes.
_IMPLIED: Final[Mapping[str, Sequence[str]]] = {
    "repo": ("repo:status", "repo_deployment", "public_repo", "repo:invite", "security_events"),
    "admin:repo_hook": ("write:repo_hook",),
    "write:repo_hook": ("read:repo_hook",),
    "admin:org": ("write:org",),
    "write:org": ("read:org",),
    "admin:public_key": ("write:public_key",),
    "write:public_key": ("read:public_key",),
    "user": ("read:user", "user:email", "user:follow"),
    "project": ("read:project",),
    "write:packages": ("read:packages",),
}


def github(
    *,
    key: str,
    name: str,
    client_id: SecretReference,
    client_secret: SecretReference,
    scopes: Sequence[str] = (),
    expiring_tokens: bool = False,
) -> OAuth2Connection:
    """Declares a login at GitHub (docs.github.com, "Authorizing OAuth apps").

    Scopes are parted by spaces in a request and by commas in an answer, which leaves out what
    another scope includes; a failure comes with status 200 and `error`. The token of an OAuth app
    does not end. That of a GitHub App lives for 8 hours, with a refresh token of 6 months that
    works once, unless the app has opted out; such an app has permissions in place of scopes.
    A grant is deleted by a request of GitHub's own ("REST API endpoints for OAuth authorizations"),
    not by that of RFC 7009.

    Args:
        key: As in `OAuth2Connection`.
        name: As in `OAuth2Connection`.
        client_id: As in `OAuth2Connection`.
        client_secret: As in `OAuth2Connection`.
        scopes: As in `OAuth2Connection`.
        expiring_tokens: Whether this is a GitHub App whose user tokens expire.

    Raises:
        ConnectionDeclarationError: As `OAuth2Connection`.
    """
    return OAuth2Connection(
        key=key,
        name=name,
        provider="github",
        authorization_url="https://github.com/login/oauth/authorize",
        token_url="https://github.com/login/oauth/access_token",
        client_id=client_id,
        client_secret=client_secret,
        scopes=scopes,
        require_refresh_token=expiring_tokens,
        implied_scopes=_IMPLIED,
        metadata_fields=["refresh_token_expires_in"],
        api_base_url="https://api.github.com",
    )
