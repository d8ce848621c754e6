"""A correct declaration for tests, and ways to change it."""

from __future__ import annotations

from typing import Any

import pytest

from segmentstream.connections import ConnectionDeclarationError, OAuth2Connection, secret_ref


def fields_of(**changes: object) -> dict[str, Any]:
    """Gives the fields of a correct declaration; Any, since tests put every wrong type in."""
    return {
        "key": "google_ads",
        "name": "Google Ads",
        "provider": "google",
        "authorization_url": "https://accounts.google.com/o/oauth2/v2/auth",
        "token_url": "https://oauth2.googleapis.com/token",
        "client_id": secret_ref("google-oauth-client-id"),
        "client_secret": secret_ref("google-oauth-client-secret"),
        "scopes": ["https://www.googleapis.com/auth/adwords"],
        "authorization_parameters": {"access_type": "offline", "prompt": "consent"},
    } | changes


def declared(**changes: object) -> OAuth2Connection:
    """Makes the declaration with some fields changed."""
    return OAuth2Connection(**fields_of(**changes))


def refusal(**changes: object) -> ConnectionDeclarationError:
    """Gives the error that the changed declaration raises."""
    with pytest.raises(ConnectionDeclarationError) as caught:
        declared(**changes)
    return caught.value
