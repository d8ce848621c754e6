"""Puts the parts together from settings: for the service, the command and pipelines alike."""

from __future__ import annotations

from collections.abc import Iterable

from segmentstream.connections import OAuth2Connection
from segmentstream_connections_runtime.credentials.base import CredentialStore, StoreError
from segmentstream_connections_runtime.credentials.keys import GivenKeys, KeyFile, Keys
from segmentstream_connections_runtime.credentials.registry import open_store
from segmentstream_connections_runtime.credentials.sealing import KeyRingError
from segmentstream_connections_runtime.custody import Custody
from segmentstream_connections_runtime.durable import DurableConnections
from segmentstream_connections_runtime.http import ProviderClient
from segmentstream_connections_runtime.oauth import OAuthClient
from segmentstream_connections_runtime.secrets.base import SecretResolver
from segmentstream_connections_runtime.settings import (
    CA_FILE_VARIABLE,
    CredentialSettings,
    ServiceSettings,
    SettingsError,
)
from segmentstream_connections_runtime.tokens import BODY_BYTES


def provider_client(settings: ServiceSettings) -> ProviderClient:
    """Makes the client for providers.

    Raises:
        SettingsError: The file of certificates cannot be read.
    """
    try:
        return ProviderClient(
            seconds=settings.provider_seconds,
            body_bytes=BODY_BYTES,
            allows_private=settings.allows_private_providers,
            ca_file=settings.ca_file,
        )
    except OSError:  # also what ssl raises
        raise SettingsError(
            f"{CA_FILE_VARIABLE} names no readable file of certificates in PEM form."
        ) from None


def durable_connections(
    connections: Iterable[OAuth2Connection],
    provider: ProviderClient,
    secrets: SecretResolver,
    settings: CredentialSettings,
) -> DurableConnections:
    """Makes what keeps credentials; opens neither store nor keys before they are needed.

    Raises:
        SettingsError: The address of the store, or the keys, cannot work.
    """
    try:
        store = open_store(settings.store)
        keys = keys_of(settings, store)
    except (StoreError, KeyRingError) as error:
        raise SettingsError(str(error)) from None
    custody = Custody(store, keys, workspace=settings.workspace)
    return DurableConnections(connections, custody, OAuthClient(provider, secrets))


def keys_of(settings: CredentialSettings, store: CredentialStore) -> Keys:
    """Gives the keys: from the variable, or from a file, which an embedded store makes itself.

    Raises:
        KeyRingError: They cannot be used.
    """
    if settings.keys is not None:
        return GivenKeys(settings.keys)
    return KeyFile(
        settings.keys_file, may_make=lambda: settings.is_embedded and not store.names("")
    )
