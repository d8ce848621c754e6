"""Secrets from environment variables; imports `connections`, its base and the errors."""

from __future__ import annotations

from collections.abc import Mapping

from segmentstream.connections import SecretReference
from segmentstream_connections_runtime.errors import Code, ServiceError
from segmentstream_connections_runtime.secrets.base import Secret


class EnvironmentSecrets:
    """Reads each secret from the variable that its reference names."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = environ

    def resolve(self, reference: SecretReference) -> Secret:
        """As `SecretResolver.resolve`."""
        if variable := self.missing(reference):
            raise ServiceError(
                Code.RUNTIME_UNAVAILABLE,
                f"The variable {variable} is not set, or holds a line break or what is no text.",
            )
        return Secret(self._environ[reference.variable])

    def missing(self, reference: SecretReference) -> str | None:
        """As `SecretResolver.missing`."""
        value = self._environ.get(reference.variable, "")
        return None if value and value.isprintable() else reference.variable

    def __repr__(self) -> str:
        return "EnvironmentSecrets()"
