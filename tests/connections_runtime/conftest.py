from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from connections_runtime.authority import Authority, make_authority
from connections_runtime.provider import Provider, running_provider
from connections_runtime.running import LocalService, connection

type Serve = Callable[..., LocalService]


@pytest.fixture(scope="package", autouse=True)
def _few_authorities() -> Iterator[None]:
    """Keeps the many authorities of the machine out: no test needs them, and they load slowly."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("SSL_CERT_FILE", os.devnull)
        yield


@pytest.fixture(scope="session")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """The certificate authority that the tests trust."""
    return make_authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture
def provider(authority: Authority) -> Iterator[Provider]:
    """A provider that behaves as badly as a test wants; it has seen nothing yet."""
    context = authority.server_context("localhost", "127.0.0.1", "::1", "provider.test")
    with running_provider(context) as running:
        yield running


@pytest.fixture
def serve(authority: Authority) -> Serve:
    """Makes a service in this process with one connection, `it`, at a token address."""

    def made(token_url: str, **changes: Any) -> LocalService:
        options = {
            name: changes.pop(name)
            for name in ("seconds", "variables", "allows_private", "settings", "ca_file")
            if name in changes
        }
        options.setdefault("ca_file", authority.ca_file)
        return LocalService(connection(token_url, **changes), **options)

    return made


@pytest.fixture
def trusting(authority: Authority) -> dict[str, str]:
    """The variables with which a service process trusts and reaches the provider."""
    ca_file: Path = authority.ca_file
    return {
        "SEGMENTSTREAM_CONNECTIONS_CA_FILE": str(ca_file),
        "SEGMENTSTREAM_CONNECTIONS_ALLOW_PRIVATE_PROVIDERS": "true",
    }


@pytest.fixture
def authority_file(authority: Authority) -> Path:
    """The certificate file that the tests trust."""
    return authority.ca_file
