"""The OAuth endpoints of the fake provider: authorize, token, revoke; imports `_grants`."""

from __future__ import annotations

import binascii
import re
import secrets
from base64 import b64decode
from collections.abc import Mapping
from html import escape
from typing import Final, Literal
from urllib.parse import parse_qs, unquote_plus, urlencode, urlsplit

from segmentstream.testing._exchanges import ProviderAnswer, ProviderRequest
from segmentstream.testing._grants import Consent, Grants, OAuthError

type ConsentMode = Literal["asked", "automatic"]

_LOOPBACK = frozenset({"127.0.0.1", "::1", "localhost"})
_CHALLENGE = re.compile(r"[A-Za-z0-9_-]{43}")
_PAGE_HEADERS: Final[Mapping[str, str]] = {
    "Cache-Control": "no-store",
    # No form-action: browsers apply it to where the answer redirects to, which is the client.
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
}
_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Fake provider</title></head>
<body><h1>Fake provider</h1>{content}</body></html>
"""
_FORM = """<p><b>{client}</b> asks for:</p><ul>{scopes}</ul>
<form method="post" action="/authorize"><input type="hidden" name="ticket" value="{ticket}">
<button name="decision" value="allow">Allow</button>
<button name="decision" value="deny">Deny</button></form>"""


class OAuthEndpoints:
    """Answers what clients and browsers ask, for one client.

    Attributes:
        refreshes: How often a refresh was asked for, granted or not.
    """

    def __init__(
        self,
        grants: Grants,
        *,
        issuer: str,
        client_id: str,
        client_secret: str,
        redirect_uris: tuple[str, ...],
        consent: ConsentMode,
        token_fields: Mapping[str, object],
    ) -> None:
        self._grants = grants
        self._issuer = issuer
        self._client_id = client_id
        self._client_secret = client_secret
        self._redirect_uris = redirect_uris
        self._consent = consent
        self._token_fields = dict(token_fields)
        self._asked: dict[str, Consent] = {}
        self.refreshes = 0

    def authorize(self, request: ProviderRequest) -> ProviderAnswer:
        """Shows what a client asks for, or answers the client (RFC 6749 section 4.1.1)."""
        if request.method == "POST":
            return self._decide(_form(request))
        try:
            self._check_client(request.query)
        except OAuthError as refusal:  # to the person alone: the address may be an attacker's
            return _page(f"<p>{escape(refusal.description)}</p>", status=400)
        try:
            asked = _consent(request.query)
        except OAuthError as refusal:
            return self._send_back(
                request.query["redirect_uri"],
                request.query.get("state"),
                error=refusal.error,
                error_description=refusal.description,
            )
        if self._consent == "automatic":
            return self._allow(asked)
        ticket = secrets.token_urlsafe(24)
        self._asked[ticket] = asked
        scopes = "".join(f"<li>{escape(scope)}</li>" for scope in asked.scopes)
        return _page(_FORM.format(client=escape(self._client_id), scopes=scopes, ticket=ticket))

    def allow(self, query: Mapping[str, str]) -> str:
        """Says yes to an authorization request, and gives the address of the callback.

        Raises:
            OAuthError: The request is not one that this client may make.
        """
        self._check_client(query)
        return self._allow(_consent(query)).headers["Location"]

    def token(self, request: ProviderRequest, authorization: str | None) -> ProviderAnswer:
        """Answers a request for tokens (RFC 6749 sections 4.1.3 and 6)."""
        try:
            form = _form(request)
            self._authenticate(form, authorization)
            return _json(200, {**self._token_fields, **self._granted(form)})
        except OAuthError as refusal:
            return _refused(refusal)

    def revoke(self, request: ProviderRequest, authorization: str | None) -> ProviderAnswer:
        """Ends the grant of a token (RFC 7009 section 2)."""
        try:
            form = _form(request)
            self._authenticate(form, authorization)
            self._grants.revoke(_needed(form, "token"))
        except OAuthError as refusal:
            return _refused(refusal)
        return _json(200, {})

    def _check_client(self, query: Mapping[str, str]) -> None:
        if query.get("client_id") != self._client_id:
            raise OAuthError("unauthorized_client", "client_id is not that of a known client.")
        if not self._is_registered(query.get("redirect_uri", "")):
            raise OAuthError(
                "invalid_request",
                "redirect_uri is not registered. The fake provider knows loopback addresses and "
                "what its redirect_uris name.",
            )

    def _is_registered(self, redirect_uri: str) -> bool:
        if redirect_uri in self._redirect_uris:
            return True
        try:
            parts = urlsplit(redirect_uri)
        except ValueError:
            return False
        # Any port of the loopback host, by RFC 8252 section 7.3.
        return (
            parts.scheme == "http"
            and parts.hostname in _LOOPBACK
            and "@" not in parts.netloc
            and not parts.fragment
        )

    def _decide(self, form: Mapping[str, str]) -> ProviderAnswer:
        asked = self._asked.pop(form.get("ticket", ""), None)
        if asked is None:
            return _page(
                "<p>This page has been answered. Start again at the client.</p>", status=400
            )
        if form.get("decision") == "allow":
            return self._allow(asked)
        return self._send_back(
            asked.redirect_uri,
            asked.state,
            error="access_denied",
            error_description="The person said no.",
        )

    def _allow(self, asked: Consent) -> ProviderAnswer:
        return self._send_back(asked.redirect_uri, asked.state, code=self._grants.allow(asked))

    def _send_back(self, redirect_uri: str, state: str | None, **answer: str) -> ProviderAnswer:
        answer |= {} if state is None else {"state": state}
        answer["iss"] = self._issuer  # RFC 9207
        joint = "&" if urlsplit(redirect_uri).query else "?"
        location = redirect_uri + joint + urlencode(answer)
        return _page("", status=302, headers={"Location": location})

    def _authenticate(self, form: Mapping[str, str], authorization: str | None) -> None:
        given = form.get("client_id", ""), form.get("client_secret", "")
        if authorization is not None:
            if form.get("client_secret"):
                raise OAuthError("invalid_request", "The client secret was given twice.")
            given = _basic(authorization)
        if given != (self._client_id, self._client_secret):
            raise OAuthError("invalid_client", "The client id or the client secret is wrong.")

    def _granted(self, form: Mapping[str, str]) -> Mapping[str, object]:
        match form.get("grant_type"):
            case "authorization_code":
                return self._grants.exchange(
                    code=_needed(form, "code"),
                    redirect_uri=_needed(form, "redirect_uri"),
                    verifier=_needed(form, "code_verifier"),
                )
            case "refresh_token":
                self.refreshes += 1
                return self._grants.refresh(_needed(form, "refresh_token"))
            case _:
                raise OAuthError(
                    "unsupported_grant_type", "Use authorization_code or refresh_token."
                )


def _consent(query: Mapping[str, str]) -> Consent:
    if query.get("response_type") != "code":
        raise OAuthError("unsupported_response_type", "response_type must be code.")
    challenge = query.get("code_challenge", "")
    if query.get("code_challenge_method") != "S256" or not _CHALLENGE.fullmatch(challenge):
        raise OAuthError("invalid_request", "PKCE with the method S256 is required.")
    return Consent(
        redirect_uri=query["redirect_uri"],
        scopes=tuple(query.get("scope", "").split()),
        challenge=challenge,
        state=query.get("state"),
    )


def _form(request: ProviderRequest) -> dict[str, str]:
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if request.method != "POST" or media_type != "application/x-www-form-urlencoded":
        raise OAuthError("invalid_request", "Send a form, by POST.")
    found = parse_qs(request.body.decode("utf-8", "replace"), keep_blank_values=True)
    if any(len(values) > 1 for values in found.values()):  # RFC 6749 section 3.2
        raise OAuthError("invalid_request", "A parameter came more than once.")
    return {name: values[0] for name, values in found.items()}


def _needed(form: Mapping[str, str], name: str) -> str:
    if not form.get(name):
        raise OAuthError("invalid_request", f"{name} is missing.")
    return form[name]


def _basic(authorization: str) -> tuple[str, str]:
    """Reads a Basic header whose two parts are form-encoded (RFC 6749 section 2.3.1)."""
    scheme, _, encoded = authorization.partition(" ")
    try:
        client_id, colon, secret = b64decode(encoded, validate=True).decode().partition(":")
    except (binascii.Error, UnicodeDecodeError):
        colon = ""
    if scheme.lower() != "basic" or not colon:
        raise OAuthError("invalid_client", "The Authorization header is not Basic.")
    return unquote_plus(client_id), unquote_plus(secret)


def _refused(refusal: OAuthError) -> ProviderAnswer:
    document = {"error": refusal.error, "error_description": refusal.description}
    if refusal.error == "invalid_client":
        return _json(401, document, {"WWW-Authenticate": 'Basic realm="fake"'})
    return _json(400, document)


def _json(
    status: int, document: object, headers: Mapping[str, str] | None = None
) -> ProviderAnswer:
    return ProviderAnswer(
        status=status, document=document, headers={"Cache-Control": "no-store", **(headers or {})}
    )


def _page(
    content: str, *, status: int = 200, headers: Mapping[str, str] | None = None
) -> ProviderAnswer:
    return ProviderAnswer(
        status=status,
        document=_PAGE.format(content=content),
        headers={**_PAGE_HEADERS, **(headers or {})},
        media_type="text/html; charset=utf-8",
    )
