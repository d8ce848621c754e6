"""The login of Slack."""

from __future__ import annotations

from collections.abc import Sequence

from segmentstream.connections._oauth2 import OAuth2Connection
from segmentstream.connections._secrets import SecretReference


def slack(
    *,
    key: str,
    name: str,
    client_id: SecretReference,
    client_secret: SecretReference,
    scopes: Sequence[str],
    token_rotation: bool = False,
) -> OAuth2Connection:
    """Declares a login at Slack as a bot (docs.slack.dev/authentication/installing-with-oauth).

    Scopes are parted by commas, `ok` says whether a request succeeded, whatever its status, and
    the type of a token is `bot`. With token rotation ("Using token rotation", same place) a token
    lives for 12 hours and each refresh token works once; without it a token stays, and there is no
    refresh token. PKCE beside a client secret is to be tried before it is promised, so it is off.
    Redirect addresses must be https, on localhost too. The token of a person, which an answer has
    under `authed_user`, is not asked for. Tokens are revoked by the method `auth.revoke`, which is
    not RFC 7009.

    Args:
        key: As in `OAuth2Connection`.
        name: As in `OAuth2Connection`.
        client_id: As in `OAuth2Connection`.
        client_secret: As in `OAuth2Connection`.
        scopes: The scopes of the bot.
        token_rotation: Whether the app has token rotation, which cannot be switched off again.

    Raises:
        ConnectionDeclarationError: As `OAuth2Connection`.
    """
    return OAuth2Connection(
        key=key,
        name=name,
        provider="slack",
        authorization_url="https://slack.com/oauth/v2/authorize",
        token_url="https://slack.com/api/oauth.v2.access",
        client_id=client_id,
        client_secret=client_secret,
        scopes=scopes,
        pkce=False,
        require_refresh_token=token_rotation,
        scope_separator=",",
        bearer_types=["bot"],
        success_field="ok",
        metadata_fields=["team.id", "team.name", "enterprise.id", "bot_user_id", "app_id"],
        api_base_url="https://slack.com/api",
        https_redirect=True,
    )
