"""The fake provider as a whole; imports its parts and declarations."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from types import TracebackType
from typing import Any, Final, Self
from urllib.parse import parse_qsl, urlsplit

from segmentstream.connections import OAuth2Connection, secret_ref
from segmentstream.testing import _api as api
from segmentstream.testing._exchanges import ProviderAnswer, ProviderRequest
from segmentstream.testing._grants import Grants, OAuthError
from segmentstream.testing._oauth import ConsentMode, OAuthEndpoints
from segmentstream.testing._server import LoopbackServer

# Known to everybody, and good for nothing but this provider.
CLIENT_ID: Final = "fake-client-id"
CLIENT_SECRET: Final = "fake-client-secret"  # noqa: S105
SCOPES: Final = ("read", "offline_access")

_API = "/api"


class FakeProvider:
    """Is an OAuth provider with a JSON API, on this machine and in this process.

    It keeps to the standard: PKCE with S256 is required, codes are for one use, refresh tokens
    rotate, and whoever brings an old one loses the grant. Nothing it issues is worth anything
    elsewhere. It answers inside a `with` block:

    ```python
    with FakeProvider() as provider:
        provider.serve("/customers", [{"id": 1}])
        connection = provider.connection()
    ```

    Args:
        port: Where to listen on 127.0.0.1; any free port when 0.
        lifetime_seconds: How long an access token lives.
        consent: Whether a person is `asked` on a page, or `automatic`ally says yes.
        redirect_uris: Where answers may be sent besides loopback addresses.
        token_header: The header in which the API wants the access token.
        token_scheme: What stands before the token there; nothing when empty.
        token_fields: What else the answers of the token endpoint hold, such as `instance_url`.
        clock: The wall clock, in seconds, by which codes and tokens expire.
    """

    def __init__(
        self,
        *,
        port: int = 0,
        lifetime_seconds: int = 3600,
        consent: ConsentMode = "asked",
        redirect_uris: Sequence[str] = (),
        token_header: str = "Authorization",  # noqa: S107 - names a header
        token_scheme: str = "Bearer",  # noqa: S107 - names a scheme
        token_fields: Mapping[str, object] | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._server = LoopbackServer(port, self._respond)
        self._clock = clock
        self._passed_seconds = 0.0
        self._token_header = token_header
        self._token_scheme = token_scheme
        self._requests: list[ProviderRequest] = []
        self._api = api.Api()
        self._grants = Grants(lifetime_seconds=lifetime_seconds, clock=self.now)
        self._oauth = OAuthEndpoints(
            self._grants,
            issuer=self.url,
            client_id=CLIENT_ID,
            client_secret=CLIENT_SECRET,
            redirect_uris=tuple(redirect_uris),
            consent=consent,
            token_fields=token_fields or {},
        )

    def __enter__(self) -> Self:
        self._server.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._server.stop()

    @property
    def url(self) -> str:
        """Where the provider is, such as `http://127.0.0.1:40123`; its API is below `/api`."""
        return f"http://127.0.0.1:{self._server.server_port}"

    @property
    def environment(self) -> dict[str, str]:
        """The variables that a process needs to use `connection()`: secrets, and a permission.

        The connections service refuses private addresses otherwise, and this one is loopback.
        """
        from segmentstream_connections_runtime.settings import (  # noqa: PLC0415 - on use, as all of it
            ALLOW_PRIVATE_VARIABLE,
        )

        declared = self.connection()
        secret = declared.client_secret
        return {
            declared.client_id.variable: CLIENT_ID,
            **({} if secret is None else {secret.variable: CLIENT_SECRET}),
            ALLOW_PRIVATE_VARIABLE: "true",
        }

    @property
    def requests(self) -> tuple[ProviderRequest, ...]:
        """What has been asked and answered until now, oldest first."""
        return tuple(self._requests)

    @property
    def refreshes(self) -> int:
        """How often a refresh was asked for, granted or not."""
        return self._oauth.refreshes

    # The fields of a declaration, each in its own type.
    def connection(self, key: str = "fake", **changes: Any) -> OAuth2Connection:
        """Declares a connection to this provider.

        Args:
            key: The key of the connection.
            changes: Fields of `OAuth2Connection` that differ from what fits this provider.

        Raises:
            ConnectionDeclarationError: A change cannot work.
        """
        fields: dict[str, Any] = {
            "key": key,
            "name": "Fake provider",
            "provider": "fake",
            "authorization_url": f"{self.url}/authorize",
            "token_url": f"{self.url}/token",
            "client_id": secret_ref("fake-client-id"),
            "client_secret": secret_ref("fake-client-secret"),
            "scopes": SCOPES,
            "revocation_url": f"{self.url}/revoke",
            "api_base_url": f"{self.url}{_API}",
            "api_header": self._token_header,
            "api_scheme": self._token_scheme,
        }
        return OAuth2Connection(**fields | changes)

    def now(self) -> float:
        """Tells the time of this provider, in seconds since 1970."""
        return self._clock() + self._passed_seconds

    def allow(self, authorization_url: str) -> dict[str, str]:
        """Says yes at an authorization address, as a person does in a browser.

        Returns:
            What the callback brings, such as `code` and `state`.

        Raises:
            ValueError: The provider refuses the request; the text says why.
        """
        try:
            callback = self._oauth.allow(dict(parse_qsl(urlsplit(authorization_url).query)))
        except OAuthError as error:
            raise ValueError(error.description) from None
        return dict(parse_qsl(urlsplit(callback).query))

    @contextmanager
    def connected(self, *connections: OAuth2Connection) -> Iterator[None]:
        """Authorizes connections, so that `segmentstream.get_connection` works in this process.

        Credentials are kept in a temporary folder, by the same code as elsewhere. Variables, the
        workspace and its store are not looked at.

        Args:
            connections: Declarations from `connection()`; that of the key `fake` when left out.

        Raises:
            ConnectionAccessError: The extra `connections` is not installed.
        """
        from segmentstream.testing._connected import connected  # noqa: PLC0415 - loads the runtime

        with connected(self, connections or (self.connection(),)):
            yield

    def issue_tokens(self, scopes: Sequence[str] = SCOPES) -> dict[str, Any]:
        """Grants tokens without a login, as the token endpoint would answer."""
        return dict(self._grants.grant(tuple(scopes)))

    def serve(self, path: str, document: object) -> None:
        """Answers requests for a path of the API.

        Args:
            path: The path below `/api`, such as `/customers`.
            document: What to answer, as JSON; or a function that takes the `ProviderRequest` and
                gives that, or a `ProviderAnswer`.
        """
        self._api.serve(path, document if callable(document) else lambda _: document)

    def serve_pages(self, path: str, pages: Sequence[Sequence[object]]) -> None:
        """Answers a path page by page: `{"items": [...], "next": address or null}`.

        The address of the next page also comes as a `Link` header.
        """
        self._api.serve(path, api.paging(self.url + _API + path, pages))

    def redirect(self, path: str, to: str, *, status: int = 302) -> None:
        """Sends requests for a path of the API to another address."""
        self._api.serve(path, api.redirecting(to, status))

    def throttle(self, path: str, times: int = 1, retry_after: int | str | None = None) -> None:
        """Answers the next requests for a path with 429.

        Args:
            path: The path below `/api`.
            times: How many requests.
            retry_after: What the `Retry-After` header says: seconds or a date; no header if None.
        """
        self._api.trouble(path, [api.throttling(retry_after)] * times)

    def refuse(self, path: str, times: int = 1, *, status: int = 401) -> None:
        """Answers the next requests for a path with that status, however good their token is."""
        self._api.trouble(path, [api.refusal(status)] * times)

    def expire_tokens(self) -> None:
        """Lets every access token expire now, which only the API knows; each can be refreshed.

        A minute passes: who holds a token that is younger than some seconds may believe in it
        whatever the API says.
        """
        self._passed_seconds += 60.0
        self._grants.expire_all()

    def revoke_grants(self) -> None:
        """Ends every grant now, as a person does at a provider's settings."""
        self._grants.revoke_all()

    def _respond(self, request: ProviderRequest) -> ProviderAnswer:
        answer = self._route(request)
        hidden = {"authorization", self._token_header.lower()}
        seen = replace(
            request,
            status=answer.status,
            headers={name: value for name, value in request.headers.items() if name not in hidden},
            body=request.body if request.path.startswith(f"{_API}/") else b"",
        )
        self._requests.append(seen)
        return answer

    def _route(self, request: ProviderRequest) -> ProviderAnswer:
        authorization = request.headers.get("authorization")
        match request.path:
            case "/authorize":
                return self._oauth.authorize(request)
            case "/token":
                return self._oauth.token(request, authorization)
            case "/revoke":
                return self._oauth.revoke(request, authorization)
            case path if path.startswith(f"{_API}/"):
                return self._api.answer(
                    path.removeprefix(_API), request, is_authorized=self._is_authorized(request)
                )
            case _:
                return ProviderAnswer(status=404, document={"error": "not_found"})

    def _is_authorized(self, request: ProviderRequest) -> bool:
        given = request.headers.get(self._token_header.lower(), "")
        prefix = f"{self._token_scheme} " if self._token_scheme else ""
        return given.startswith(prefix) and self._grants.is_live(given.removeprefix(prefix))
