"""Declares the logins of this workspace as data; secrets stand here by name only."""

from segmentstream.connections import OAuth2Connection, providers, secret_ref

# On a laptop the registry is played by registry.py; it keeps to the standard.
REGISTRY = "http://127.0.0.1:8765"

connections = (
    OAuth2Connection(
        key="aircraft_registry",
        name="Aircraft registry",
        provider="aircraft-registry",
        authorization_url=f"{REGISTRY}/authorize",
        token_url=f"{REGISTRY}/token",
        revocation_url=f"{REGISTRY}/revoke",
        client_id=secret_ref("aircraft-registry-client-id"),
        client_secret=secret_ref("aircraft-registry-client-secret"),
        scopes=["read", "offline_access"],
        api_base_url=f"{REGISTRY}/api",
    ),
    providers.google(
        key="google_ads",
        name="Google Ads",
        client_id=secret_ref("google-oauth-client-id"),
        client_secret=secret_ref("google-oauth-client-secret"),
        products=["ads"],
    ),
    # The scopes must be those of the app's settings.
    providers.hubspot(
        key="hubspot",
        name="HubSpot",
        client_id=secret_ref("hubspot-oauth-client-id"),
        client_secret=secret_ref("hubspot-oauth-client-secret"),
        scopes=["oauth", "crm.objects.contacts.read", "crm.objects.deals.read"],
    ),
)
