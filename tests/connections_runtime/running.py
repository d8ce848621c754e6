"""The service, in this process or in one of its own, and how a test calls it."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from connections_runtime.provider import PATIENCE
from segmentstream.connections import OAuth2Connection, secret_ref
from segmentstream_connections_runtime.app import make_app
from segmentstream_connections_runtime.http import ProviderClient
from segmentstream_connections_runtime.oauth import OAuthClient
from segmentstream_connections_runtime.secrets.environment import EnvironmentSecrets
from segmentstream_connections_runtime.service import ConnectionService
from segmentstream_connections_runtime.settings import ServiceSettings
from segmentstream_connections_runtime.tokens import BODY_BYTES

CLIENT_ID = "client-id"
CLIENT_SECRET = "a+b/c==: %"  # every character that a wrong encoding breaks
REDIRECT = "https://app.example.com/callback"
VERIFIER = "v" * 43
CHALLENGE = "c" * 43
VARIABLES = {
    "SEGMENTSTREAM_CONNECTION_SECRET_THE_ID": CLIENT_ID,
    "SEGMENTSTREAM_CONNECTION_SECRET_THE_SECRET": CLIENT_SECRET,
}
EXCHANGE = {"code": "code-of-the-callback", "redirectUri": REDIRECT, "codeVerifier": VERIFIER}
REFRESH = {"refreshToken": "refresh-token-of-the-caller"}
START = {"redirectUri": REDIRECT, "state": "state-of-the-caller", "codeChallenge": CHALLENGE}


def connection(token_url: str, **changes: Any) -> OAuth2Connection:
    """Declares a connection at that token address."""
    fields: dict[str, Any] = {
        "key": "it",
        "name": "The one",
        "provider": "someone",
        "authorization_url": "https://provider.example/authorize",
        "token_url": token_url,
        "client_id": secret_ref("the-id"),
        "client_secret": secret_ref("the-secret"),
        "scopes": ["read", "write"],
    }
    return OAuth2Connection(**fields | changes)


class LocalService:
    """Is the service in this process, called as over HTTP but without a socket of its own."""

    def __init__(
        self,
        *connections: OAuth2Connection,
        ca_file: Path | None = None,
        seconds: float = PATIENCE,
        variables: Mapping[str, str] = VARIABLES,
        allows_private: bool = True,
        settings: ServiceSettings | None = None,
    ) -> None:
        self.provider = ProviderClient(
            seconds=seconds,
            body_bytes=BODY_BYTES,
            allows_private=allows_private,
            ca_file=None if ca_file is None else str(ca_file),
        )
        secrets = EnvironmentSecrets(variables)
        self.service = ConnectionService(connections, OAuthClient(self.provider, secrets), secrets)
        self._app = make_app(self.service, self.provider, settings or ServiceSettings())

    def run[T](self, work: Callable[[httpx.AsyncClient], Awaitable[T]]) -> T:
        """Runs work that calls the service, and closes the service's connections after it."""

        async def all_of_it() -> T:
            transport = httpx.ASGITransport(self._app, raise_app_exceptions=False)
            async with httpx.AsyncClient(transport=transport, base_url="http://service") as client:
                try:
                    return await work(client)
                finally:
                    await self.provider.close()

        return asyncio.run(all_of_it())

    def call(
        self, method: str, path: str, *, body: object = None, **request: Any
    ) -> httpx.Response:
        """Calls the service once."""
        if body is not None:
            request["json"] = body
        return self.run(lambda client: client.request(method, path, **request))

    def refresh(self, key: str = "it") -> httpx.Response:
        """Asks for a refresh."""
        return self.call("POST", address(key, "token/refresh"), body=REFRESH)

    def exchange(self, key: str = "it", **changes: object) -> httpx.Response:
        """Asks for an exchange."""
        return self.call("POST", address(key, "token/exchange"), body=EXCHANGE | changes)

    def start(self, key: str = "it", **changes: object) -> httpx.Response:
        """Asks for the address that a person is sent to."""
        return self.call("POST", address(key, "authorization/start"), body=START | changes)


def address(key: str, action: str) -> str:
    """Gives the path of an action of a connection."""
    return f"/internal/v1/connections/{key}/{action}"


def error_code(answer: httpx.Response) -> str:
    """Gives the code of an answer that is an error in the documented envelope."""
    assert set(answer.json()) == {"error"}
    code = answer.json()["error"]["code"]
    assert isinstance(code, str)
    return code


@dataclass(slots=True, kw_only=True)
class ServiceProcess:
    """Is the service as users run it.

    Attributes:
        process: The running process.
        port: Where it listens.
        lines: What it wrote until now, to its log or elsewhere.
    """

    process: subprocess.Popen[str]
    port: int
    lines: list[str] = field(default_factory=list)
    _changed: threading.Condition = field(default_factory=threading.Condition)

    @property
    def url(self) -> str:
        """Where to call it."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def log(self) -> str:
        """What it wrote to its log until now."""
        return "".join(self.lines)

    def post(self, key: str, action: str, body: object, **request: Any) -> httpx.Response:
        """Calls it once, over a connection of its own."""
        with httpx.Client(base_url=self.url, trust_env=False, timeout=PATIENCE) as client:
            return client.post(address(key, action), json=body, **request)

    def get(self, path: str) -> httpx.Response:
        """Asks it for an address, over a connection of its own."""
        with httpx.Client(base_url=self.url, trust_env=False, timeout=PATIENCE) as client:
            return client.get(path)

    def stop(self) -> None:
        """Asks it to stop, as a container platform does."""
        self.process.send_signal(signal.SIGTERM)

    def resident_bytes(self) -> int:
        """Says how much memory it has needed at most."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        [line] = [line for line in status.splitlines() if line.startswith("VmHWM:")]
        return int(line.split()[1]) * 1024

    def wait_for_log(self, text: str) -> None:
        """Waits until the log holds that text."""
        with self._changed:
            found = self._changed.wait_for(
                lambda: text in self.log or self.process.poll() is not None, PATIENCE
            )
        assert found, self.log
        assert text in self.log, self.log

    def follow(self) -> None:
        """Takes in the log until it ends."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            with self._changed:
                self.lines.append(line)
                self._changed.notify_all()
        with self._changed:
            self._changed.notify_all()


@contextmanager
def running_service(
    folder: Path,
    connections: Mapping[str, str],
    variables: Mapping[str, str],
    *,
    more: str = "",
    python: Path = Path(sys.executable),
) -> Iterator[ServiceProcess]:
    """Runs the service in a folder, with connections by key and token address.

    What is in `more` stands in `connections.py` too.
    """
    declared = "\n".join(_DECLARED.format(key=key, url=url) for key, url in connections.items())
    (folder / "connections.py").write_text(_FILE.format(declared=declared) + more)
    port = free_port()
    environment = {**kept_environment(), **VARIABLES, "PORT": str(port), **variables}
    with subprocess.Popen(
        command("serve", python=python),
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        service = ServiceProcess(process=process, port=port)
        following = threading.Thread(target=service.follow)
        following.start()
        try:
            service.wait_for_log("Application startup complete")
            service.wait_for_log("Uvicorn running on")
            yield service
        finally:
            process.kill()
            following.join()


def command(*arguments: str, python: Path = Path(sys.executable)) -> Sequence[str]:
    """Gives the command line of the service."""
    return [str(python), "-m", "segmentstream_connections_runtime", *arguments]


def kept_environment() -> dict[str, str]:
    """Gives the variables that a process needs to run at all."""
    return {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}


def free_port() -> int:
    """Finds a port that nobody listens on."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        number: int = listener.getsockname()[1]
        return number


_FILE = """
from segmentstream.connections import OAuth2Connection, secret_ref

connections = ({declared})
"""
_DECLARED = """OAuth2Connection(
    key="{key}", name="The one", provider="someone",
    authorization_url="https://provider.example/authorize", token_url="{url}",
    client_id=secret_ref("the-id"), client_secret=secret_ref("the-secret"),
    scopes=["read", "write"],
),"""
