"""Declares the logins of this workspace as data; secrets stand here by name only."""

from segmentstream.connections import OAuth2Connection, secret_ref

connections = (
    # https://developers.google.com/google-ads/api/docs/oauth/internals (the scope), and
    # https://developers.google.com/identity/protocols/oauth2/web-server: a refresh token comes
    # only with offline access, and on a repeated login only with a new consent.
    OAuth2Connection(
        key="google_ads",
        name="Google Ads",
        provider="google",
        authorization_url="https://accounts.google.com/o/oauth2/v2/auth",
        token_url="https://oauth2.googleapis.com/token",
        client_id=secret_ref("google-oauth-client-id"),
        client_secret=secret_ref("google-oauth-client-secret"),
        scopes=["https://www.googleapis.com/auth/adwords"],
        authorization_parameters={"access_type": "offline", "prompt": "consent"},
    ),
    # https://developers.hubspot.com/docs/api-reference/latest/authentication/manage-oauth-tokens:
    # the token endpoint carries its date; its v1 ends on 2027-02-16. The scopes must be those of
    # the app's settings.
    OAuth2Connection(
        key="hubspot",
        name="HubSpot",
        provider="hubspot",
        authorization_url="https://app.hubspot.com/oauth/authorize",
        token_url="https://api.hubapi.com/oauth/2026-03/token",
        client_id=secret_ref("hubspot-oauth-client-id"),
        client_secret=secret_ref("hubspot-oauth-client-secret"),
        scopes=["oauth", "crm.objects.contacts.read", "crm.objects.deals.read"],
    ),
)
