"""The login of Shopify."""

from __future__ import annotations

from collections.abc import Sequence

from segmentstream.connections._oauth2 import OAuth2Connection
from segmentstream.connections._secrets import SecretReference
from segmentstream.connections.providers._scopes import texts_of


def shopify(
    *,
    key: str,
    name: str,
    client_id: SecretReference,
    client_secret: SecretReference,
    scopes: Sequence[str],
    shop: str | None = None,
) -> OAuth2Connection:
    """Declares a login at a Shopify store (shopify.dev, "About offline access tokens").

    Each store has a host of its own: the variable `shop` stands for its name before
    `.myshopify.com`, unless `shop` is given. Scopes are parted by commas, and an answer leaves out
    a reading scope beside the writing one that implies it (ericdude4/shopifex#45). `expiring=1`
    asks for tokens of 60 minutes with a refresh token of 90 days, which public apps must use from
    2027 on. It is sent on refresh too, which is to be tried before it is promised. An old refresh
    token is taken until its successor is used, for 30 days (shopify.dev/changelog, "More resilient
    refreshes for expiring offline access tokens"). The API takes the token in a header of its own,
    and its version is the first part of each path. PKCE is not documented, so it is off. Whoever
    receives the callback must check its `hmac`.

    Args:
        key: As in `OAuth2Connection`.
        name: As in `OAuth2Connection`.
        client_id: As in `OAuth2Connection`.
        client_secret: As in `OAuth2Connection`.
        scopes: As in `OAuth2Connection`.
        shop: The store, such as `example` for example.myshopify.com, where there is one only.

    Raises:
        ConnectionDeclarationError: As `OAuth2Connection`.
    """
    connection = OAuth2Connection(
        key=key,
        name=name,
        provider="shopify",
        authorization_url="https://{shop}.myshopify.com/admin/oauth/authorize",
        token_url="https://{shop}.myshopify.com/admin/oauth/access_token",
        client_id=client_id,
        client_secret=client_secret,
        scopes=scopes,
        token_parameters={"expiring": "1"},
        pkce=False,
        scope_separator=",",
        implied_scopes={
            scope: [scope.replace("write_", "read_", 1)]
            for scope in texts_of(scopes)
            if scope.startswith(("write_", "unauthenticated_write_"))
        },
        url_variables=["shop"],
        metadata_fields=["refresh_token_expires_in"],
        replay_window_seconds=30 * 24 * 3600,
        api_base_url="https://{shop}.myshopify.com/admin/api",
        api_header="X-Shopify-Access-Token",
        api_scheme="",
    )
    return connection if shop is None else connection.with_variables({"shop": shop})
