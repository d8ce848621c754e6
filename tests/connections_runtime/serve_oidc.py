"""Starts the OAuth server of the tests for a person: `make oauth-server`; see docs/connections.md."""

from __future__ import annotations

import shlex
import sys
import tempfile
from pathlib import Path

from connections_runtime.authority import make_authority
from connections_runtime.oidc_server import missing, running_oidc_server

_DECLARATION = '''"""The connection to the authorization server on this machine."""

from segmentstream.connections import OAuth2Connection, secret_ref

connections = (
    OAuth2Connection(
        key="local",
        name="Local server",
        provider="oidc-provider",
        authorization_url="{issuer}/auth",
        token_url="{issuer}/token",
        client_id=secret_ref("local-client-id"),
        client_secret=secret_ref("local-client-secret"),
        scopes=["openid", "offline_access", "read"],
        authorization_parameters={{"prompt": "consent"}},
        client_authentication="client_secret_basic",
    ),
)
'''


def main() -> int:
    """Serves until Ctrl-C; 1 where something is missing."""
    if problem := missing():
        sys.stderr.write(f"The server cannot start: it {problem}.\n")
        return 1
    with tempfile.TemporaryDirectory(prefix="connections-") as name:
        folder = Path(name)
        authority = make_authority(folder)
        authority.server_context("localhost", "127.0.0.1")
        with running_oidc_server(folder / "localhost-127.0.0.1.pem", authority.ca_file) as server:
            (folder / "connections.py").write_text(_DECLARATION.format(issuer=server.issuer))
            (folder / "service.env").write_text(
                "".join(
                    f"export {variable}={shlex.quote(value)}\n"
                    for variable, value in {
                        "SEGMENTSTREAM_CONNECTION_SECRET_LOCAL_CLIENT_ID": "by-basic",
                        "SEGMENTSTREAM_CONNECTION_SECRET_LOCAL_CLIENT_SECRET": server.secret,
                        "SEGMENTSTREAM_CONNECTIONS_CA_FILE": str(authority.ca_file),
                        "SEGMENTSTREAM_CONNECTIONS_ALLOW_PRIVATE_PROVIDERS": "true",
                    }.items()
                )
            )
            print(f"An OAuth server is at {server.issuer}. In a second terminal:\n")
            print(f"  cd {folder} && source service.env")
            print(f"  {sys.executable} -m segmentstream_connections_runtime serve\n")
            print("Then follow docs/connections.md. Ctrl-C ends the server.", flush=True)
            try:
                sys.stdin.read()
            except KeyboardInterrupt:
                print()
    return 0


if __name__ == "__main__":
    sys.exit(main())
