"""The login of Stripe Connect."""

from __future__ import annotations

from collections.abc import Sequence

from segmentstream.connections._oauth2 import OAuth2Connection
from segmentstream.connections._secrets import SecretReference


def stripe_connect(
    *,
    key: str,
    name: str,
    client_id: SecretReference,
    client_secret: SecretReference,
    scopes: Sequence[str] = ("read_only",),
) -> OAuth2Connection:
    """Declares a login of a Stripe account at a platform (docs.stripe.com/connect/oauth-reference).

    The client id is that of the platform, the client secret its secret API key. A token does not
    expire; a request is better made with the platform's key and the `stripe_user_id` of the answer.
    An account is let go by `POST /oauth/deauthorize`, which is not RFC 7009. PKCE is not
    documented, so it is off. That the token request may hold `client_id` and `redirect_uri`, which
    the page does not list, is to be tried before it is promised.

    Args:
        key: As in `OAuth2Connection`.
        name: As in `OAuth2Connection`.
        client_id: As in `OAuth2Connection`.
        client_secret: As in `OAuth2Connection`.
        scopes: `read_only` or `read_write`.

    Raises:
        ConnectionDeclarationError: As `OAuth2Connection`.
    """
    return OAuth2Connection(
        key=key,
        name=name,
        provider="stripe",
        authorization_url="https://connect.stripe.com/oauth/authorize",
        token_url="https://connect.stripe.com/oauth/token",
        client_id=client_id,
        client_secret=client_secret,
        scopes=scopes,
        pkce=False,
        metadata_fields=["stripe_user_id", "livemode"],
        api_base_url="https://api.stripe.com",
    )
