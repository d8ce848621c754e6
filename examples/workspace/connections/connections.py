"""Declares the logins of this workspace as data; secrets stand here by name only."""

from segmentstream.connections import providers, secret_ref

connections = (
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
