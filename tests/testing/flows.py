"""A client of the fake provider that knows nothing of ours: plain requests, as RFC 6749 has them."""

from __future__ import annotations

import re
from urllib.parse import parse_qs, urlsplit

import httpx

from segmentstream.testing import FakeProvider
from segmentstream.testing._fake import CLIENT_ID, CLIENT_SECRET

REDIRECT = "http://127.0.0.1:8765/callback"
# The pair of RFC 7636 appendix B.
VERIFIER = "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk"
CHALLENGE = "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM"
ASKED = {
    "response_type": "code",
    "client_id": CLIENT_ID,
    "redirect_uri": REDIRECT,
    "scope": "read offline_access",
    "state": "state of the client",
    "code_challenge": CHALLENGE,
    "code_challenge_method": "S256",
}


def browser(provider: FakeProvider) -> httpx.Client:
    """Gives a client that follows nothing."""
    return httpx.Client(base_url=provider.url, trust_env=False)


def ask(provider: FakeProvider, **changes: str | None) -> httpx.Response:
    """Opens the authorization page; a parameter that is None is left out."""
    given = {name: value for name, value in (ASKED | changes).items() if value is not None}
    with browser(provider) as client:
        return client.get("/authorize", params=given)


def decide(provider: FakeProvider, page: httpx.Response, decision: str) -> httpx.Response:
    """Presses a button of the page."""
    [ticket] = re.findall(r'name="ticket" value="([^"]+)"', page.text)
    with browser(provider) as client:
        return client.post("/authorize", data={"ticket": ticket, "decision": decision})


def sent_back(answer: httpx.Response) -> dict[str, str]:
    """Reads what the client is sent."""
    assert answer.status_code == 302, answer.text
    location = urlsplit(answer.headers["Location"])
    assert location._replace(query="").geturl() == REDIRECT
    return {name: values[0] for name, values in parse_qs(location.query).items()}


def token(provider: FakeProvider, **form: str | None) -> httpx.Response:
    """Asks the token endpoint, with the secret in the body; None leaves a parameter out."""
    given = {"client_id": CLIENT_ID, "client_secret": CLIENT_SECRET, **form}
    with browser(provider) as client:
        return client.post(
            "/token", data={name: value for name, value in given.items() if value is not None}
        )


def exchange(provider: FakeProvider, code: str, /, **changes: str | None) -> httpx.Response:
    """Asks for the tokens of a code."""
    form = {
        "grant_type": "authorization_code",
        "code": code,
        "redirect_uri": REDIRECT,
        "code_verifier": VERIFIER,
    }
    return token(provider, **(form | changes))


def refresh(provider: FakeProvider, refresh_token: str) -> httpx.Response:
    """Asks for a refresh."""
    return token(provider, grant_type="refresh_token", refresh_token=refresh_token)


def get(provider: FakeProvider, path: str, access_token: str) -> httpx.Response:
    """Asks the API, with a token."""
    with browser(provider) as client:
        return client.get(f"/api{path}", headers={"Authorization": f"Bearer {access_token}"})
