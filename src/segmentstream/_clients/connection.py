"""What an asset holds of a connection: its name, from which clients and tokens come.

Imports `_core` and declarations; httpx and what gives tokens are loaded when they are used.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from segmentstream._clients.access import Access, Metadata
from segmentstream._clients.process import shared_access
from segmentstream._core.errors import ConnectionAccessError, ConnectionRequestError
from segmentstream._core.names import CONNECTION_KEY
from segmentstream.connections._addresses import url_problem

if TYPE_CHECKING:
    import httpx

    from segmentstream._clients.sharing import SharedAccess

DEFAULT_ACCOUNT = "default"


@dataclass(frozen=True, slots=True, kw_only=True)
class Connection:
    """Gives clients and tokens of one account of a declared connection.

    It holds names only: it can be kept, pickled and shown, and opens nothing before it is used.
    `get_connection` makes one.

    Attributes:
        key: The key of the declaration.
        account: Which account of it.
        given_base_url: Where the API is, instead of what the declaration says.
        read_only: Whether its clients send only what changes nothing: GET, HEAD and OPTIONS.
    """

    key: str
    account: str = DEFAULT_ACCOUNT
    given_base_url: str | None = None
    read_only: bool = False

    def __post_init__(self) -> None:
        if not CONNECTION_KEY.fullmatch(self.key):
            raise ConnectionRequestError(
                "The key of a connection is a lowercase letter, then up to 63 lowercase letters, "
                "digits and underscores.",
                "Write the key that connections/connections.py declares.",
            )
        problem = None if self.given_base_url is None else _base_url_problem(self.given_base_url)
        if problem:
            raise ConnectionRequestError(
                f"The base_url of connection {self.key!r} {problem}.",
                "Give the https address of the API; plain http is for one on this machine.",
                connection=self.key,
            )

    # What httpx.Client takes, each in its own type.
    def client(self, **options: Any) -> httpx.Client:
        """Makes an `httpx.Client` whose requests carry a token that lives.

        Addresses are relative to that of the API, and no other is taken. A token that the API
        refuses is renewed, and the request sent again, once. An API that asks to wait (429, 503)
        gets up to four more attempts within a minute. A body that comes from a file or a
        generator cannot be sent twice; there the first answer stands.

        Args:
            options: What `httpx.Client` takes, except `auth`, `base_url` and `mounts`. Proxies
                and certificates of the surroundings are not used: give `proxy` or `verify`.

        Raises:
            ConnectionAccessError: httpx is not installed.
            ConnectionRequestError: An option is not taken.
        """
        _require_httpx(self.key)
        from segmentstream._clients.client import make_client  # noqa: PLC0415 - loads httpx

        return make_client(
            self.key,
            share=self._share,
            base_url=self.given_base_url,
            read_only=self.read_only,
            options=options,
        )

    def async_client(self, **options: Any) -> httpx.AsyncClient:
        """Makes an `httpx.AsyncClient`, as `client`."""
        _require_httpx(self.key)
        from segmentstream._clients.client import make_async_client  # noqa: PLC0415 - loads httpx

        return make_async_client(
            self.key,
            share=self._share,
            base_url=self.given_base_url,
            read_only=self.read_only,
            options=options,
        )

    def access_token(self, *, min_ttl_seconds: int = 0) -> str:
        """Gives the bare token, for a library that wants one; prefer `client`.

        From here on nothing protects it: it is not renewed, it may be shown, logged and sent to
        anybody. Hand it on at once, and keep it nowhere.

        Args:
            min_ttl_seconds: How long it must live from now on.

        Raises:
            ConnectionAccessError: There is none.
        """
        _require_httpx(self.key)
        return self._share().get(min_ttl_seconds=min_ttl_seconds).access_token

    @property
    def metadata(self) -> Metadata:
        """What the provider told besides the token, such as `instance_url`; blocks.

        Raises:
            ConnectionAccessError: The connection cannot be used now.
        """
        return self._access.metadata

    @property
    def scopes(self) -> tuple[str, ...]:
        """The scopes in force; blocks, and raises, as `metadata`."""
        return self._access.scopes

    @property
    def base_url(self) -> str | None:
        """Where the API is; blocks, and raises, as `metadata`, unless it was given."""
        return self.given_base_url or self._access.base_url

    @property
    def _access(self) -> Access:
        _require_httpx(self.key)
        return self._share().get()

    @property
    def _share(self) -> functools.partial[SharedAccess]:
        return functools.partial(shared_access, self.key, self.account)


def get_connection(
    key: str,
    *,
    account: str = DEFAULT_ACCOUNT,
    base_url: str | None = None,
    read_only: bool = False,
) -> Connection:
    """Gives a declared connection by its key; touches nothing before it is used.

    ```python
    ads = segmentstream.get_connection("google_ads")
    with ads.client() as http:
        customers = http.get("/v1/customers").json()
    ```

    Args:
        key: The key that `connections/connections.py` declares.
        account: Which account of it, where several were authorized.
        base_url: Where the API is, instead of the declaration's `api_base_url`.
        read_only: Whether its clients send only what changes nothing: GET, HEAD and OPTIONS.

    Raises:
        ConnectionRequestError: The key or the address cannot be one.
    """
    return Connection(key=key, account=account, given_base_url=base_url, read_only=read_only)


def _base_url_problem(url: str) -> str | None:
    problem = url_problem(url)
    return "has a query" if problem is None and "?" in url else problem


def _require_httpx(key: str) -> None:
    try:
        import httpx  # noqa: F401, PLC0415 - asked for, not used
    except ModuleNotFoundError:
        raise ConnectionAccessError(
            f"httpx is not installed, which the clients of connection {key!r} are made of.",
            "Install segmentstream-pipeline[connections].",
            connection=key,
        ) from None
