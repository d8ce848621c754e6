"""How the service runs, read once from variables; imports the service's errors only."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from ipaddress import ip_address
from pathlib import Path

PORT_VARIABLE = "PORT"
HOST_VARIABLE = "SEGMENTSTREAM_CONNECTIONS_HOST"
TOKEN_HASH_VARIABLE = "SEGMENTSTREAM_CONNECTIONS_BEARER_SHA256"  # noqa: S105 - names a variable
OIDC_ISSUER_VARIABLE = "SEGMENTSTREAM_CONNECTIONS_OIDC_ISSUER"
OIDC_AUDIENCE_VARIABLE = "SEGMENTSTREAM_CONNECTIONS_OIDC_AUDIENCE"
OIDC_KEYS_VARIABLE = "SEGMENTSTREAM_CONNECTIONS_OIDC_KEYS_URL"
OIDC_SUBJECTS_VARIABLE = "SEGMENTSTREAM_CONNECTIONS_OIDC_SUBJECTS"
CLOUD_RUN_VARIABLE = "K_SERVICE"  # set by Cloud Run, whose front end has checked the caller
ALLOW_PRIVATE_VARIABLE = "SEGMENTSTREAM_CONNECTIONS_ALLOW_PRIVATE_PROVIDERS"
CA_FILE_VARIABLE = "SEGMENTSTREAM_CONNECTIONS_CA_FILE"
REDIRECTS_VARIABLE = "SEGMENTSTREAM_CONNECTIONS_REDIRECT_URIS"
STORE_VARIABLE = "SEGMENTSTREAM_CREDENTIAL_STORE"
KEYS_VARIABLE = "SEGMENTSTREAM_CREDENTIAL_KEYS"
KEYS_FILE_VARIABLE = "SEGMENTSTREAM_CREDENTIAL_KEYS_FILE"
WORKSPACE_VARIABLE = "SEGMENTSTREAM_WORKSPACE_NAME"
CLOUD_RUN_JOB_VARIABLE = "CLOUD_RUN_JOB"  # set by Cloud Run in a job

_SQLITE = "sqlite:///"
_STORE_FILE = ".segmentstream/credentials.db"
# Apart from the store, so that a copy of the workspace opens nothing.
_KEYS_FILE = "segmentstream/credential-keys.json"
_PORT = re.compile(r"[0-9]{1,5}")
_PORTS = range(1, 65536)
_OIDC_VARIABLES = (OIDC_ISSUER_VARIABLE, OIDC_AUDIENCE_VARIABLE, OIDC_KEYS_VARIABLE)
_WORKSPACE = re.compile(r"[a-z][a-z0-9_-]{0,62}")
_LOOPBACK_PORT = re.compile(r"^(http://(?:127\.0\.0\.1|\[::1\]|localhost)):[0-9]+(?=[/?]|$)")
_HTTPS = re.compile(r"https://[\x21-\x7e]+")
_SHA256 = re.compile(r"[0-9a-f]{64}")


class SettingsError(Exception):
    """Says which variable cannot work, in two sentences."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OidcSettings:
    """Says whose identity tokens are accepted.

    Attributes:
        issuer: The `iss` of a token.
        audience: The `aud` of a token: this service.
        keys_url: Where the issuer publishes its keys.
        subjects: The `sub` values or verified addresses that may call; everyone of the issuer when
            empty.
    """

    issuer: str
    audience: str
    keys_url: str
    subjects: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceSettings:
    """Says how the service runs.

    Attributes:
        host: The address it listens on.
        port: The port it listens on.
        bearer_sha256: SHA-256 of the token that callers send, in hexadecimal; None where none is
            asked for.
        oidc: Whose identity tokens are accepted; None where none is asked for.
        is_behind_cloud_run: Whether Cloud Run's front end has checked the caller.
        allows_private_providers: Whether a provider may live at a private or local address.
        ca_file: A file of certificates that are trusted besides the usual ones.
        redirect_uris: Where browsers may be sent back to; anywhere when empty.
        provider_seconds: How long one request to a provider may take in all.
        drain_seconds: How long requests under way may take once the service is told to stop.
    """

    host: str = "127.0.0.1"
    port: int = 8080
    bearer_sha256: str | None = field(default=None, repr=False)
    oidc: OidcSettings | None = None
    is_behind_cloud_run: bool = False
    allows_private_providers: bool = False
    ca_file: str | None = None
    redirect_uris: frozenset[str] = frozenset()
    provider_seconds: float = 20.0
    drain_seconds: float = 10.0

    def allows_redirect(self, uri: str) -> bool:
        """Says whether browsers may be sent back there: to the letter (RFC 9700 section 4.1.3).

        Of a loopback address the port may differ (RFC 8252 section 7.3).
        """
        if not self.redirect_uris:
            return True
        return uri in self.redirect_uris or _LOOPBACK_PORT.sub(r"\1", uri) in {
            _LOOPBACK_PORT.sub(r"\1", allowed) for allowed in self.redirect_uris
        }

    @classmethod
    def from_environ(cls, environ: Mapping[str, str]) -> ServiceSettings:
        """Reads the settings from variables.

        Raises:
            SettingsError: One of them cannot work, or the service would listen to the network
                without asking callers who they are.
        """
        port = environ.get(PORT_VARIABLE, "8080")
        if not _PORT.fullmatch(port) or int(port) not in _PORTS:
            raise SettingsError(
                f"{PORT_VARIABLE} is {port[:20]!r}, no port. Give a number from 1 to 65535."
            )
        digest = environ.get(TOKEN_HASH_VARIABLE) or None
        if digest is not None and not _SHA256.fullmatch(digest):
            raise SettingsError(
                f"{TOKEN_HASH_VARIABLE} is no SHA-256 in hexadecimal. Give the 64 digits that "
                '`printf %s "$TOKEN" | sha256sum` prints; never the token itself.'
            )
        oidc = _oidc(environ)
        is_behind_cloud_run = bool(environ.get(CLOUD_RUN_VARIABLE))
        host = environ.get(HOST_VARIABLE) or ("0.0.0.0" if is_behind_cloud_run else "127.0.0.1")  # noqa: S104
        if not _is_loopback(host) and not (is_behind_cloud_run or digest or oidc):
            raise SettingsError(
                f"{HOST_VARIABLE} is {host!r}, which the network reaches, and no caller would be "
                f"asked who it is. Set {TOKEN_HASH_VARIABLE} or {OIDC_ISSUER_VARIABLE}, or listen "
                "on 127.0.0.1."
            )
        return cls(
            host=host,
            port=int(port),
            bearer_sha256=digest,
            oidc=oidc,
            is_behind_cloud_run=is_behind_cloud_run,
            allows_private_providers=environ.get(ALLOW_PRIVATE_VARIABLE) == "true",
            ca_file=environ.get(CA_FILE_VARIABLE) or None,
            redirect_uris=_listed(environ.get(REDIRECTS_VARIABLE, "")),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class CredentialSettings:
    """Says where credentials are kept and what seals them.

    Attributes:
        store: The address of the store, which can hold a password.
        is_named: Whether a variable names it.
        is_embedded: Whether the store is a file of this machine, which makes its key itself.
        keys: The key ring as text; None where it is in a file.
        keys_file: The file of the key ring, where it is not given as text.
        workspace: Whose credentials they are, in a store that several share.
    """

    store: str = field(repr=False)
    is_named: bool
    is_embedded: bool
    keys: str | None = field(default=None, repr=False)
    keys_file: Path
    workspace: str = "default"

    @classmethod
    def from_environ(cls, environ: Mapping[str, str], *, folder: Path) -> CredentialSettings | None:
        """Reads the settings from variables.

        Args:
            environ: The variables.
            folder: The workspace, from which the path of a file counts.

        Returns:
            The settings; None where no store is named on Cloud Run, whose files do not last.

        Raises:
            SettingsError: One of them cannot work.
        """
        store = environ.get(STORE_VARIABLE, "")
        if not store and (environ.get(CLOUD_RUN_VARIABLE) or environ.get(CLOUD_RUN_JOB_VARIABLE)):
            return None
        workspace = environ.get(WORKSPACE_VARIABLE, "default")
        if not _WORKSPACE.fullmatch(workspace):
            raise SettingsError(
                f"{WORKSPACE_VARIABLE} is {workspace[:64]!r}, no name of a workspace. Give up to "
                "63 lowercase letters, digits, `_` and `-`, a letter first."
            )
        configuration = environ.get("XDG_CONFIG_HOME") or str(Path.home() / ".config")
        keys_file = environ.get(KEYS_FILE_VARIABLE) or f"{configuration}/{_KEYS_FILE}"
        if not store or store.startswith(_SQLITE):
            # From the same file whatever folder a process runs in.
            path = Path(store.removeprefix(_SQLITE) or _STORE_FILE).expanduser()
            address = f"{_SQLITE}{folder / path}"
        else:
            address = store
        return cls(
            store=address,
            is_named=bool(store),
            is_embedded=address.startswith(_SQLITE),
            keys=environ.get(KEYS_VARIABLE) or None,
            keys_file=folder / Path(keys_file).expanduser(),
            workspace=workspace,
        )


def _oidc(environ: Mapping[str, str]) -> OidcSettings | None:
    issuer, audience, keys_url = map(environ.get, _OIDC_VARIABLES)
    subjects = environ.get(OIDC_SUBJECTS_VARIABLE)
    if not (issuer or audience or keys_url or subjects):
        return None
    if not issuer or not audience or not keys_url:
        missing = [name for name in _OIDC_VARIABLES if not environ.get(name)]
        raise SettingsError(
            f"{', '.join(missing)} must be set where one of the other OIDC variables is. Without "
            "an audience a token meant for another service would be accepted."
        )
    if not _HTTPS.fullmatch(keys_url):
        raise SettingsError(
            f"{OIDC_KEYS_VARIABLE} is no https address. Give the `jwks_uri` of the issuer; keys "
            "that came unprotected would prove nothing."
        )
    allowed = _listed(subjects or "")
    if subjects and not allowed:
        raise SettingsError(
            f"{OIDC_SUBJECTS_VARIABLE} is set and names nobody. Give `sub` values or addresses, "
            "parted by commas, or leave it out to accept everyone of the issuer."
        )
    return OidcSettings(issuer=issuer, audience=audience, keys_url=keys_url, subjects=allowed)


def _listed(text: str) -> frozenset[str]:
    return frozenset(filter(None, map(str.strip, text.split(","))))


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
