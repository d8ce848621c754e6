"""Ready-made declarations of the providers that people connect first.

Each function gives an `OAuth2Connection` with the provider's differences from the standard set, and
names the vendor's page that documents them. What a page leaves open is said, and not guessed: PKCE
is off where a vendor does not document it. To change a field of the result, use
`dataclasses.replace`, which checks every rule again.
"""

from __future__ import annotations

from segmentstream.connections.providers._github import github
from segmentstream.connections.providers._google import GOOGLE_SCOPES, GoogleProduct, google
from segmentstream.connections.providers._hubspot import hubspot
from segmentstream.connections.providers._linkedin import linkedin
from segmentstream.connections.providers._meta import meta
from segmentstream.connections.providers._microsoft import microsoft
from segmentstream.connections.providers._quickbooks import quickbooks
from segmentstream.connections.providers._salesforce import SalesforceLogin, salesforce
from segmentstream.connections.providers._shopify import shopify
from segmentstream.connections.providers._slack import slack
from segmentstream.connections.providers._stripe import stripe_connect
from segmentstream.connections.providers._tiktok import tiktok
from segmentstream.connections.providers._xero import xero

__all__ = [
    "GOOGLE_SCOPES",
    "GoogleProduct",
    "SalesforceLogin",
    "github",
    "google",
    "hubspot",
    "linkedin",
    "meta",
    "microsoft",
    "quickbooks",
    "salesforce",
    "shopify",
    "slack",
    "stripe_connect",
    "tiktok",
    "xero",
]
