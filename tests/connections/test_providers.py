from __future__ import annotations

import dataclasses
import inspect
import subprocess
import sys
from typing import Any

import pytest

from segmentstream.connections import (
    ConnectionDeclarationError,
    OAuth2Connection,
    providers,
    secret_ref,
)

FUNCTIONS = {
    name: getattr(providers, name)
    for name in providers.__all__
    if inspect.isfunction(getattr(providers, name))
}
OWN_ARGUMENTS: dict[str, dict[str, Any]] = {"meta": {"version": "v21.0"}}

# What each provider does otherwise than a standard server, by its documentation.
DIFFERENCES: dict[str, dict[str, Any]] = {
    "github": {
        "require_refresh_token": False,
        "metadata_fields": ("refresh_token_expires_in",),
        "api_base_url": "https://api.github.com",
    },
    "google": {
        "authorization_parameters": {"access_type": "offline", "prompt": "consent"},
        "revocation_url": "https://oauth2.googleapis.com/revoke",
    },
    "hubspot": {
        "pkce": False,
        "metadata_fields": ("hub_id", "user_id"),
        "revocation_url": "https://api.hubapi.com/oauth/2026-03/token/revoke",
        "api_base_url": "https://api.hubapi.com",
    },
    "linkedin": {
        "pkce": False,
        "require_refresh_token": False,
        "metadata_fields": ("refresh_token_expires_in",),
        "api_base_url": "https://api.linkedin.com",
    },
    "meta": {
        "pkce": False,
        "require_refresh_token": False,
        "scope_separator": ",",
        "api_base_url": "https://graph.facebook.com/v21.0",
    },
    "microsoft": {},
    "quickbooks": {
        "client_authentication": "client_secret_basic",
        "pkce": False,
        "metadata_fields": ("x_refresh_token_expires_in",),
        "revocation_url": "https://developer.api.intuit.com/v2/oauth2/tokens/revoke",
        "callback_metadata_fields": ("realmId",),
        "api_base_url": "https://quickbooks.api.intuit.com/v3/company/{realmId}",
    },
    "salesforce": {
        "metadata_fields": ("instance_url", "id"),
        "revocation_url": "https://login.salesforce.com/services/oauth2/revoke",
        "api_base_url": "{instance_url}",
    },
    "shopify": {
        "pkce": False,
        "scope_separator": ",",
        "token_parameters": {"expiring": "1"},
        "url_variables": ("shop",),
        "metadata_fields": ("refresh_token_expires_in",),
        "replay_window_seconds": 30 * 24 * 3600,
        "api_base_url": "https://{shop}.myshopify.com/admin/api",
        "api_header": "X-Shopify-Access-Token",
        "api_scheme": "",
    },
    "slack": {
        "pkce": False,
        "require_refresh_token": False,
        "scope_separator": ",",
        "bearer_types": ("bot",),
        "success_field": "ok",
        "metadata_fields": ("team.id", "team.name", "enterprise.id", "bot_user_id", "app_id"),
        "api_base_url": "https://slack.com/api",
        "https_redirect": True,
    },
    "stripe_connect": {
        "pkce": False,
        "metadata_fields": ("stripe_user_id", "livemode"),
        "api_base_url": "https://api.stripe.com",
    },
    "tiktok": {
        "pkce": False,
        "client_id_parameter": "client_key",
        "scope_separator": ",",
        "metadata_fields": ("open_id", "refresh_expires_in"),
        "revocation_url": "https://open.tiktokapis.com/v2/oauth/revoke/",
        "api_base_url": "https://open.tiktokapis.com/v2",
        "https_redirect": True,
    },
    "xero": {
        "client_authentication": "client_secret_basic",
        "pkce": False,
        "revocation_url": "https://identity.xero.com/connect/revocation",
        "replay_window_seconds": 1800,
        "api_base_url": "https://api.xero.com",
    },
}

ADDRESSES = {
    "github": (
        "https://github.com/login/oauth/authorize",
        "https://github.com/login/oauth/access_token",
    ),
    "google": (
        "https://accounts.google.com/o/oauth2/v2/auth",
        "https://oauth2.googleapis.com/token",
    ),
    "hubspot": (
        "https://app.hubspot.com/oauth/authorize",
        "https://api.hubapi.com/oauth/2026-03/token",
    ),
    "linkedin": (
        "https://www.linkedin.com/oauth/v2/authorization",
        "https://www.linkedin.com/oauth/v2/accessToken",
    ),
    "meta": (
        "https://www.facebook.com/v21.0/dialog/oauth",
        "https://graph.facebook.com/v21.0/oauth/access_token",
    ),
    "microsoft": (
        "https://login.microsoftonline.com/common/oauth2/v2.0/authorize",
        "https://login.microsoftonline.com/common/oauth2/v2.0/token",
    ),
    "quickbooks": (
        "https://appcenter.intuit.com/connect/oauth2",
        "https://oauth.platform.intuit.com/oauth2/v1/tokens/bearer",
    ),
    "salesforce": (
        "https://login.salesforce.com/services/oauth2/authorize",
        "https://login.salesforce.com/services/oauth2/token",
    ),
    "shopify": (
        "https://{shop}.myshopify.com/admin/oauth/authorize",
        "https://{shop}.myshopify.com/admin/oauth/access_token",
    ),
    "slack": ("https://slack.com/oauth/v2/authorize", "https://slack.com/api/oauth.v2.access"),
    "stripe_connect": (
        "https://connect.stripe.com/oauth/authorize",
        "https://connect.stripe.com/oauth/token",
    ),
    "tiktok": (
        "https://www.tiktok.com/v2/auth/authorize/",
        "https://open.tiktokapis.com/v2/oauth/token/",
    ),
    "xero": (
        "https://login.xero.com/identity/connect/authorize",
        "https://identity.xero.com/connect/token",
    ),
}

SAME_FOR_ALL = {
    "key",
    "name",
    "provider",
    "authorization_url",
    "token_url",
    "client_id",
    "client_secret",
    "scopes",
    "implied_scopes",  # follow from the scopes; tested by themselves
}

each = pytest.mark.parametrize("provider", sorted(FUNCTIONS))


def made(provider: str, **changes: Any) -> OAuth2Connection:
    arguments: dict[str, Any] = {
        "key": "mine",
        "name": "Mine",
        "client_id": secret_ref("mine-id"),
        "client_secret": secret_ref("mine-secret"),
        "scopes": ["read"],
    }
    connection: OAuth2Connection = FUNCTIONS[provider](
        **(arguments | OWN_ARGUMENTS.get(provider, {}) | changes)
    )
    return connection


def refusal(provider: str, **changes: Any) -> ConnectionDeclarationError:
    with pytest.raises(ConnectionDeclarationError) as caught:
        made(provider, **changes)
    return caught.value


def test_every_provider_is_in_the_tables() -> None:
    """No provider is shipped without its differences and its addresses being written down here."""
    assert set(FUNCTIONS) == set(DIFFERENCES) == set(ADDRESSES)


@each
def test_a_provider_makes_a_declaration_of_what_was_given(provider: str) -> None:
    """Key, name, references and scopes are the caller's, and asked for in that order."""
    connection = made(provider, scopes=["b", "a"])

    assert (connection.key, connection.name) == ("mine", "Mine")
    assert connection.client_id == secret_ref("mine-id")
    assert connection.client_secret == secret_ref("mine-secret")
    assert connection.scopes[:2] == ("b", "a")


@each
def test_a_provider_has_its_documented_differences_and_no_others(provider: str) -> None:
    """Beyond the table above, every field has the default of a standard server."""
    connection = made(provider)
    differences = {
        field.name: getattr(connection, field.name)
        for field in dataclasses.fields(connection)
        if field.name not in SAME_FOR_ALL and getattr(connection, field.name) != field.default
    }

    assert differences == DIFFERENCES[provider]


@each
def test_a_provider_has_its_documented_addresses(provider: str) -> None:
    """People are sent to the provider's own hosts, and so are the requests for tokens."""
    connection = made(provider)

    assert (connection.authorization_url, connection.token_url) == ADDRESSES[provider]


@pytest.mark.parametrize(
    ("provider", "changes", "metadata", "address"),
    [
        (
            "quickbooks",
            {},
            {"realmId": "123145"},
            "https://quickbooks.api.intuit.com/v3/company/123145",
        ),
        (
            "quickbooks",
            {"sandbox": True},
            {"realmId": "123145"},
            "https://sandbox-quickbooks.api.intuit.com/v3/company/123145",
        ),
        (
            "salesforce",
            {},
            {"instance_url": "https://acme.my.salesforce.com", "id": "https://login.example/id"},
            "https://acme.my.salesforce.com",
        ),
        ("shopify", {"shop": "acme"}, {}, "https://acme.myshopify.com/admin/api"),
        ("microsoft", {}, {}, None),
        ("google", {}, {}, None),
    ],
)
def test_the_api_of_a_login_is_where_the_provider_says(
    provider: str, changes: dict[str, Any], metadata: dict[str, Any], address: str | None
) -> None:
    """The address of the API follows from the callback, the answer or the store of a login."""
    assert made(provider, **changes).api_address(metadata) == address


@each
def test_a_provider_cites_its_documentation(provider: str) -> None:
    """The docstring names the vendor's page that the differences come from."""
    first, _, _ = (inspect.getdoc(FUNCTIONS[provider]) or "").partition("\n")

    assert any(f".{end}" in first for end in ("com", "dev"))


@each
def test_a_provider_takes_its_arguments_by_name(provider: str) -> None:
    """No argument can be given by its place, where an id and a secret could change theirs."""
    kinds = {
        parameter.kind for parameter in inspect.signature(FUNCTIONS[provider]).parameters.values()
    }

    assert kinds == {inspect.Parameter.KEYWORD_ONLY}


@each
@pytest.mark.parametrize("scopes", ["read", None, ["re ad"], [7], {"read"}])
def test_wrong_scopes_are_refused_by_name(provider: str, scopes: object) -> None:
    """What is no list of scopes is refused as in a declaration written by hand."""
    assert refusal(provider, scopes=scopes).field == "scopes"


@each
def test_a_secret_itself_is_refused(provider: str) -> None:
    """A plain value in place of a reference is refused and not repeated."""
    error = refusal(provider, client_secret="s3cr3t")

    assert error.field == "client_secret"
    assert "s3cr3t" not in str(error)


@pytest.mark.parametrize(
    ("provider", "scope"),
    [("microsoft", "offline_access"), ("salesforce", "refresh_token"), ("xero", "offline_access")],
)
def test_the_scope_that_brings_a_refresh_token_is_added_once(provider: str, scope: str) -> None:
    """Where a refresh token has a scope of its own, it is asked for, and never twice."""
    assert made(provider, scopes=["read"]).scopes == ("read", scope)
    assert made(provider, scopes=[scope, "read"]).scopes == (scope, "read")


@pytest.mark.parametrize(
    ("products", "scopes"),
    [
        (["ad_manager"], ["admanager.readonly"]),
        (["ads"], ["adwords"]),
        (["analytics"], ["analytics.readonly"]),
        (["bigquery"], ["bigquery"]),
        (["business_profile"], ["business.manage"]),
        (["campaign_manager"], ["dfareporting"]),
        (["display_video"], ["display-video", "doubleclickbidmanager"]),
        (["drive"], ["drive.readonly"]),
        (["merchant_center"], ["content"]),
        (["search_ads"], ["doubleclicksearch"]),
        (["search_console"], ["webmasters.readonly"]),
        (["sheets"], ["spreadsheets.readonly"]),
        (["tag_manager"], ["tagmanager.readonly"]),
        (["youtube"], ["youtube.readonly", "yt-analytics.readonly"]),
        (["ads", "analytics", "ads"], ["adwords", "analytics.readonly"]),
    ],
)
def test_a_google_product_brings_its_scopes(products: list[str], scopes: list[str]) -> None:
    """The scopes of a product are asked for, each once, in the order of the products."""
    connection = made("google", products=products, scopes=[])

    assert connection.scopes == tuple(f"https://www.googleapis.com/auth/{each}" for each in scopes)


def test_google_scopes_stand_beside_products() -> None:
    """Scopes that no product has are asked for too, and one that a product repeats only once."""
    ads = "https://www.googleapis.com/auth/adwords"

    assert made("google", products=["ads"], scopes=["openid", ads]).scopes == ("openid", ads)


def test_an_unknown_google_product_is_refused() -> None:
    """A product that does not exist is refused, and those that do are listed."""
    error = refusal("google", products=["ads", "s3cr3t"])

    assert error.field == "products"
    assert "search_console" in error.remedy
    assert "s3cr3t" not in str(error)


def test_a_microsoft_tenant_has_addresses_of_its_own() -> None:
    """A tenant in place of `common` is in both addresses."""
    connection = made("microsoft", tenant="contoso.example")

    assert connection.authorization_url.startswith("https://login.microsoftonline.com/contoso.ex")
    assert connection.token_url.startswith("https://login.microsoftonline.com/contoso.example/")


@pytest.mark.parametrize(
    ("login", "host"),
    [("sandbox", "test.salesforce.com"), ("my_domain", "acme--dev.my.salesforce.com")],
)
def test_salesforce_logs_in_where_it_is_told(login: str, host: str) -> None:
    """A sandbox and a domain of one's own have hosts of their own; the domain is a variable."""
    connection = made("salesforce", login=login)
    values = dict.fromkeys(connection.url_variables, "acme--dev")

    filled = connection.with_variables(values)

    assert filled.token_url == f"https://{host}/services/oauth2/token"
    assert filled.authorization_url == f"https://{host}/services/oauth2/authorize"


def test_an_unknown_salesforce_login_is_refused() -> None:
    """A place to log in that does not exist is refused by name."""
    assert refusal("salesforce", login="s3cr3t.example").field == "login"


def test_a_shopify_store_can_be_given_in_the_declaration() -> None:
    """With a store there is nothing left to fill."""
    connection = made("shopify", shop="acme")

    assert connection.token_url == "https://acme.myshopify.com/admin/oauth/access_token"
    assert connection.url_variables == ()


def test_a_shopify_store_that_is_no_label_is_refused() -> None:
    """A whole address in place of the store's name is refused."""
    assert refusal("shopify", shop="acme.myshopify.com").field == "url_variables"


def test_writing_at_shopify_implies_reading() -> None:
    """A granted writing scope stands for the reading one that an answer leaves out."""
    connection = made(
        "shopify", scopes=["write_orders", "read_products", "unauthenticated_write_checkouts"]
    )

    assert connection.implied_scopes == {
        "write_orders": ("read_orders",),
        "unauthenticated_write_checkouts": ("unauthenticated_read_checkouts",),
    }


def test_a_github_scope_implies_what_it_includes() -> None:
    """GitHub's answers leave out the smaller of two scopes, so it counts as granted."""
    implied = made("github").implied_scopes

    assert "user:email" in implied["user"]
    assert "public_repo" in implied["repo"]
    assert implied["write:org"] == ("read:org",)


@pytest.mark.parametrize(
    ("provider", "argument"),
    [
        ("github", "expiring_tokens"),
        ("linkedin", "has_refresh_tokens"),
        ("slack", "token_rotation"),
    ],
)
def test_a_refresh_token_is_required_where_the_app_gets_one(provider: str, argument: str) -> None:
    """What depends on the app's settings is said by the caller."""
    assert made(provider, **{argument: True}).require_refresh_token is True


def test_meta_has_no_version_by_default() -> None:
    """A version of the Graph API ends, so the caller chooses one."""
    with pytest.raises(TypeError, match="version"):
        providers.meta(  # type: ignore[call-arg]  # the point of the test
            key="mine",
            name="Mine",
            client_id=secret_ref("mine-id"),
            client_secret=secret_ref("mine-secret"),
            scopes=[],
        )


def test_declarations_do_not_load_the_providers() -> None:
    """Who writes declarations by hand does not pay for the ready-made ones."""
    code = "import sys, segmentstream.connections; print([n for n in sys.modules if 'provid' in n])"
    finished = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )

    assert finished.stdout.strip() == "[]"
