"""The login of Google's APIs, and which scopes each product needs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, Literal

from segmentstream._core.errors import ConnectionDeclarationError
from segmentstream.connections._oauth2 import OAuth2Connection
from segmentstream.connections._secrets import SecretReference
from segmentstream.connections.providers._scopes import with_scopes

type GoogleProduct = Literal[
    "ad_manager",
    "ads",
    "analytics",
    "bigquery",
    "business_profile",
    "campaign_manager",
    "display_video",
    "drive",
    "merchant_center",
    "search_ads",
    "search_console",
    "sheets",
    "tag_manager",
    "youtube",
]

# https://developers.google.com/identity/protocols/oauth2/scopes; for reading where a product has
# a scope for that, since a pipeline reads.
GOOGLE_SCOPES: Final[Mapping[str, Sequence[str]]] = {
    "ad_manager": ("https://www.googleapis.com/auth/admanager.readonly",),
    "ads": ("https://www.googleapis.com/auth/adwords",),
    "analytics": ("https://www.googleapis.com/auth/analytics.readonly",),
    "bigquery": ("https://www.googleapis.com/auth/bigquery",),
    "business_profile": ("https://www.googleapis.com/auth/business.manage",),
    "campaign_manager": ("https://www.googleapis.com/auth/dfareporting",),
    "display_video": (
        "https://www.googleapis.com/auth/display-video",
        "https://www.googleapis.com/auth/doubleclickbidmanager",
    ),
    "drive": ("https://www.googleapis.com/auth/drive.readonly",),
    "merchant_center": ("https://www.googleapis.com/auth/content",),
    "search_ads": ("https://www.googleapis.com/auth/doubleclicksearch",),
    "search_console": ("https://www.googleapis.com/auth/webmasters.readonly",),
    "sheets": ("https://www.googleapis.com/auth/spreadsheets.readonly",),
    "tag_manager": ("https://www.googleapis.com/auth/tagmanager.readonly",),
    "youtube": (
        "https://www.googleapis.com/auth/youtube.readonly",
        "https://www.googleapis.com/auth/yt-analytics.readonly",
    ),
}


def google(
    *,
    key: str,
    name: str,
    client_id: SecretReference,
    client_secret: SecretReference,
    products: Sequence[GoogleProduct] = (),
    scopes: Sequence[str] = (),
) -> OAuth2Connection:
    """Declares a login at Google (developers.google.com/identity/protocols/oauth2/web-server).

    A refresh token comes only with offline access, and on a repeated login only with a new
    consent, so both are asked for. A project whose publishing status is Testing gets refresh
    tokens that end after 7 days (developers.google.com/identity/protocols/oauth2, "Refresh token
    expiration"). A person may grant a part of the scopes only. Revoking any token ends the whole
    grant (the first page, "Revoking a token"). Each product has an API address of its own, so none
    is declared.

    Args:
        key: As in `OAuth2Connection`.
        name: As in `OAuth2Connection`.
        client_id: As in `OAuth2Connection`; of a client of the type "Web application".
        client_secret: As in `OAuth2Connection`.
        products: The products to read from; each brings the scopes of `GOOGLE_SCOPES`.
        scopes: Further scopes, or all of them.

    Raises:
        ConnectionDeclarationError: As `OAuth2Connection`; or there is no such product.
    """
    needed: list[str] = []
    for number, product in enumerate(products, start=1):
        if product not in GOOGLE_SCOPES:
            raise ConnectionDeclarationError(
                f"The argument products of google() has at position {number} what is no product.",
                f"Write one of {', '.join(GOOGLE_SCOPES)}, or give its scopes.",
                field="products",
            )
        needed += GOOGLE_SCOPES[product]
    return OAuth2Connection(
        key=key,
        name=name,
        provider="google",
        authorization_url="https://accounts.google.com/o/oauth2/v2/auth",
        token_url="https://oauth2.googleapis.com/token",
        client_id=client_id,
        client_secret=client_secret,
        scopes=with_scopes(scopes, *needed),
        authorization_parameters={"access_type": "offline", "prompt": "consent"},
        revocation_url="https://oauth2.googleapis.com/revoke",
    )
