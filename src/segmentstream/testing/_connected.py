"""A process whose connections are those of a fake provider; imports the runtime and `_clients`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from segmentstream._clients.local import LocalBroker
from segmentstream._clients.process import using
from segmentstream.connections import OAuth2Connection
from segmentstream_connections_runtime.composition import keys_of, provider_client
from segmentstream_connections_runtime.credentials.registry import open_store
from segmentstream_connections_runtime.custody import Custody
from segmentstream_connections_runtime.durable import DEFAULT_ACCOUNT, DurableConnections
from segmentstream_connections_runtime.oauth import OAuthClient
from segmentstream_connections_runtime.secrets.environment import EnvironmentSecrets
from segmentstream_connections_runtime.settings import CredentialSettings, ServiceSettings

if TYPE_CHECKING:
    from segmentstream.testing._fake import FakeProvider

_CALLBACK = "http://127.0.0.1/callback"  # nobody listens there: the callback is handed over


@contextmanager
def connected(provider: FakeProvider, connections: Sequence[OAuth2Connection]) -> Iterator[None]:
    """Lets this process use these connections meanwhile, each authorized."""
    with TemporaryDirectory() as folder:
        client = provider_client(ServiceSettings(allows_private_providers=True))
        secrets = EnvironmentSecrets(provider.environment)
        durable = DurableConnections(
            connections, _custody(Path(folder)), OAuthClient(client, secrets), now=provider.now
        )
        broker = LocalBroker(durable, client)
        with using(broker):
            for connection in connections:
                broker.run(_authorize(durable, provider, connection.key))
            yield


def _custody(folder: Path) -> Custody:
    settings = CredentialSettings(
        store=f"sqlite:///{folder / 'credentials.db'}",
        is_named=True,
        is_embedded=True,
        keys_file=folder / "keys.json",
    )
    store = open_store(settings.store)
    return Custody(store, keys_of(settings, store), workspace=settings.workspace)


async def _authorize(durable: DurableConnections, provider: FakeProvider, key: str) -> None:
    started = await durable.start(
        key, account=DEFAULT_ACCOUNT, redirect_uri=_CALLBACK, variables={}
    )
    await durable.complete(provider.allow(started.url), binding=started.binding)
