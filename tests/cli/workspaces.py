"""A workspace with connections to the tests' OAuth server, and the command run in it."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from connections_runtime.oidc_server import OidcServer
from connections_runtime.provider import PATIENCE

COMMAND = str(Path(sys.executable).with_name("segmentstream"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Workspace:
    """Is a workspace whose connections are named after the clients they log in as.

    Attributes:
        folder: Where it is.
        environ: The variables that commands run with.
    """

    folder: Path
    environ: Mapping[str, str] = field(repr=False)

    @property
    def store(self) -> Path:
        """The file of its credentials."""
        return self.folder / ".segmentstream/credentials.db"

    @property
    def keys_file(self) -> Path:
        """The file of its keys."""
        return Path(self.environ["HOME"]) / ".config/segmentstream/credential-keys.json"

    def run(
        self, *arguments: str, text: str | None = None, **variables: str
    ) -> subprocess.CompletedProcess[str]:
        """Runs the command to its end."""
        return subprocess.run(
            [COMMAND, *arguments],
            cwd=self.folder,
            env={**self.environ, **variables},
            input=text,
            stdin=subprocess.DEVNULL if text is None else None,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )

    def json(self, *arguments: str, **variables: str) -> Any:
        """Runs the command to its end and reads the document that it prints."""
        return json.loads(self.run(*arguments, "--json", **variables).stdout)

    @contextmanager
    def connecting(self, *arguments: str, **variables: str) -> Iterator[Login]:
        """Begins a login; a person is to come to its address."""
        with subprocess.Popen(
            [COMMAND, "connect", *arguments],
            cwd=self.folder,
            env={**self.environ, **variables},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as process:
            login = Login(process=process)
            following = threading.Thread(target=login.follow)
            following.start()
            try:
                yield login
            finally:
                process.kill()
                following.join()

    def connect(self, server: OidcServer, key: str, *arguments: str) -> None:
        """Logs in, with a person who says yes to everything."""
        with self.connecting(key, "--no-browser", "--paste", *arguments) as login:
            assert login.process.stdin is not None
            login.process.stdin.write(Browser(server).callback(login.url()) + "\n")
            login.process.stdin.close()
            assert login.end() == 0, login.said


@dataclass(slots=True, kw_only=True)
class Login:
    """Is a running `segmentstream connect`.

    Attributes:
        process: The process.
        said: What it has written for people.
        output: What it has written when it ended.
    """

    process: subprocess.Popen[str]
    said: str = ""
    output: str = ""
    _changed: threading.Condition = field(default_factory=threading.Condition)

    def url(self) -> str:
        """Waits for the address that the person is sent to."""
        self.wait_for("&state=")
        return next(word for word in self.said.split() if "&state=" in word)

    def redirect_uri(self) -> str:
        """Gives where the person's browser is sent back to."""
        return str(httpx.URL(self.url()).params["redirect_uri"])

    def wait_for(self, text: str) -> None:
        """Waits until it has said that and ended the line."""
        with self._changed:
            found = self._changed.wait_for(
                lambda: text in self.said or self.process.poll() is not None, PATIENCE
            )
        assert found, self.said
        assert text in self.said, self.said

    def end(self) -> int:
        """Waits for its end; gives the exit code."""
        assert self.process.stdout is not None
        self.output += self.process.stdout.read()
        return self.process.wait(PATIENCE)

    def interrupt(self) -> None:
        """Does what Ctrl-C does."""
        self.process.send_signal(signal.SIGINT)

    def follow(self) -> None:
        """Takes in what it says until it ends."""
        assert self.process.stderr is not None
        for line in self.process.stderr:
            with self._changed:
                self.said += line
                self._changed.notify_all()
        with self._changed:
            self._changed.notify_all()


class Browser:
    """Is what a person logs in with who says yes to everything."""

    def __init__(self, server: OidcServer, *, trusts: Path | None = None) -> None:
        import ssl

        context = ssl.create_default_context(cafile=server.ca_file)
        if trusts is not None:
            context.load_verify_locations(cafile=trusts)
        self._context = context
        self.history: list[str] = []

    def get(self, url: str, **headers: str) -> httpx.Response:
        """Goes to an address and wherever that leads."""
        with httpx.Client(
            verify=self._context, trust_env=False, follow_redirects=True, timeout=PATIENCE
        ) as client:
            answer = client.get(url, headers=headers)
        self.history = [str(each.url) for each in [*answer.history, answer]]
        return answer

    def callback(self, url: str) -> str:
        """Goes to an address and on, until the browser would go to the redirect address."""
        wanted = str(httpx.URL(url).params["redirect_uri"])
        with httpx.Client(verify=self._context, trust_env=False, timeout=PATIENCE) as client:
            while not url.startswith(wanted):
                answer = client.get(url)
                assert answer.next_request is not None, answer.text
                url = str(answer.next_request.url)
        return url


def make_workspace(folder: Path, server: OidcServer, *, more: str = "") -> Workspace:
    """Makes a workspace with a connection for each client of the server."""
    (folder / "connections").mkdir(parents=True)
    (folder / "connections/connections.py").write_text(
        _FILE.format(issuer=server.issuer, more=more)
    )
    (folder / ".env").write_text(
        "".join(
            f"{name}={shlex.quote(value)}\n"
            for name, value in {
                **{
                    f"SEGMENTSTREAM_CONNECTION_SECRET_{client.upper().replace('-', '_')}": client
                    for client in ("by-basic", "asking", "web", "public")
                },
                "SEGMENTSTREAM_CONNECTION_SECRET_SECRET": server.secret,
                "SEGMENTSTREAM_CONNECTIONS_CA_FILE": str(server.ca_file),
                "SEGMENTSTREAM_CONNECTIONS_ALLOW_PRIVATE_PROVIDERS": "true",
            }.items()
        )
    )
    home = folder.with_name(folder.name + "-home")
    home.mkdir()
    return Workspace(
        folder=folder,
        environ={
            "PATH": os.environ["PATH"],
            "HOME": str(home),
            "PYTHONUNBUFFERED": "1",
            "BROWSER": "false",
        },
    )


_FILE = """
from segmentstream.connections import OAuth2Connection, secret_ref


def declared(key, client, **more):
    if client != "public":
        more = {{"client_secret": secret_ref("secret")}} | more
    return OAuth2Connection(
        **{{
            "key": key, "name": f"The {{key}} <one>", "provider": "oidc-provider",
            "authorization_url": "{issuer}/auth", "token_url": "{issuer}/token",
            "revocation_url": "{issuer}/token/revocation", "issuer": "{issuer}",
            "client_id": secret_ref(client), "scopes": ["openid", "offline_access", "read"],
            "authorization_parameters": {{"prompt": "consent"}},
            "client_authentication": "none" if client == "public" else "client_secret_basic",
            "api_base_url": "{issuer}",
        }} | more,
    )


connections = (
    declared("basic", "by-basic"),
    declared("asking", "asking"),
    declared("web", "web", https_redirect=True),
    {more}
)
"""
