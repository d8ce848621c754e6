"""A connection as a Dagster resource; imports Dagster and `_clients`.

Annotations are not postponed here: Dagster reads those of the fields as objects. httpx is named in
types only, so that definitions load where it is not installed.
"""

from typing import TYPE_CHECKING, Any

from dagster import ConfigurableResource

from segmentstream._clients.access import Metadata
from segmentstream._clients.connection import Connection, get_connection

if TYPE_CHECKING:
    import httpx


class ConnectionResource(ConfigurableResource[None]):
    """Gives assets the clients of a declared connection.

    Definitions load without any token: nothing is asked for before an asset uses a client.

    Attributes:
        connection: The key that `connections/connections.py` declares.
        account: Which account of it, where several were authorized.
        base_url: Where the API is, instead of the declaration's `api_base_url`.
        read_only: Whether its clients send only what changes nothing: GET, HEAD and OPTIONS.
    """

    connection: str
    account: str = "default"
    base_url: str | None = None
    read_only: bool = False

    # What httpx.Client takes, each in its own type.
    def client(self, **options: Any) -> "httpx.Client":
        """Makes an `httpx.Client` whose requests carry a token, as `Connection.client`."""
        return self.get_connection().client(**options)

    def async_client(self, **options: Any) -> "httpx.AsyncClient":
        """Makes an `httpx.AsyncClient`, as `Connection.async_client`."""
        return self.get_connection().async_client(**options)

    @property
    def metadata(self) -> Metadata:
        """What the provider told besides the token, such as `instance_url`.

        Raises:
            ConnectionAccessError: The connection cannot be used now.
        """
        return self.get_connection().metadata

    def get_connection(self) -> Connection:
        """Gives the connection itself, for its token and its scopes.

        Raises:
            ConnectionRequestError: The key or the address cannot be one.
        """
        return get_connection(
            self.connection,
            account=self.account,
            base_url=self.base_url,
            read_only=self.read_only,
        )
