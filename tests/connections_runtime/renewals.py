"""Credentials that several processes renew, as a test makes and drives them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from connections_runtime import renewal_host
from connections_runtime.oidc_server import OidcServer
from connections_runtime.provider import PATIENCE, Conversation, Provider, granted, response
from connections_runtime.running import VARIABLES, kept_environment
from segmentstream_connections_runtime.credentials.keys import KeyFile
from segmentstream_connections_runtime.credentials.sealing import KeyRing

FORCED = {"is_forced": True}


class Host:
    """Is a process that uses a credential."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process

    def send(self, do: str, **more: Any) -> None:
        """Sends a command."""
        assert self.process.stdin
        self.process.stdin.write(json.dumps({"do": do, **more}) + "\n")
        self.process.stdin.flush()

    def answer(self) -> Any:
        """Waits for the answer to the oldest command without one."""
        assert self.process.stdout
        line = self.process.stdout.readline()
        assert line, "the host has ended"
        return json.loads(line)

    def ask(self, do: str, **more: Any) -> Any:
        """Sends a command and gives its answer."""
        self.send(do, **more)
        return self.answer()

    def access(self, *, callers: int = 1, ahead: float = 0, **want: Any) -> Any:
        """Asks for a token so many times at once, and gives the outcomes."""
        return self.ask("access", callers=callers, ahead=ahead, want=want)


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Is where a credential is kept, and which connection it is of.

    Attributes:
        connection: The fields of the connection.
        environ: The variables of whoever uses it.
        folder: Where its processes run.
    """

    connection: Mapping[str, Any]
    environ: Mapping[str, str] = field(repr=False)
    folder: Path

    @contextmanager
    def host(self, *how: str) -> Iterator[Host]:
        """Runs a process that uses it."""
        command = [sys.executable, renewal_host.__file__, json.dumps(self.connection), *how]
        with subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=self.folder,
            env=self.environ,
        ) as process:
            try:
                yield Host(process)
            finally:
                process.kill()


def with_key_file(place: Place, path: Path) -> Place:
    """Gives the place with keys in a file instead of a variable."""
    given = "SEGMENTSTREAM_CREDENTIAL_KEYS"
    environ = {name: value for name, value in place.environ.items() if name != given}
    return replace(place, environ=environ | {f"{given}_FILE": str(path)})


def rotate_keys(path: Path, place: Place) -> None:
    """Seals everything with a new key, and throws the old one away."""
    keys = KeyFile(path)
    keys.write(keys.reread().with_new_key())
    with place.host() as host:
        resealed = host.ask("reseal")
        assert resealed["changed"] == resealed["total"] > 0
    keys.write(keys.reread().with_first_key_only())


def place_at(
    server: OidcServer, folder: Path, store: str, *, client: str = "by-basic", **changes: Any
) -> Place:
    """Gives a place in a store for a credential of that server; nobody has authorized it yet."""
    return Place(
        connection={
            "authorization_url": f"{server.issuer}/auth",
            "token_url": f"{server.issuer}/token",
            "revocation_url": f"{server.issuer}/token/revocation",
            "scopes": ["openid", "offline_access", "read"],
            "authorization_parameters": {"prompt": "consent"},
            "client_authentication": "client_secret_basic",
            **changes,
        },
        environ=environ_of(store, server.ca_file, client_id=client, client_secret=server.secret),
        folder=folder,
    )


def environ_of(
    store: str, ca_file: Path, *, client_id: str = "", client_secret: str = ""
) -> dict[str, str]:
    """Gives the variables of a process that uses credentials of a provider of the tests."""
    the_id, the_secret = VARIABLES
    return {
        **kept_environment(),
        the_id: client_id or VARIABLES[the_id],
        the_secret: client_secret or VARIABLES[the_secret],
        "SEGMENTSTREAM_CREDENTIAL_STORE": store,
        "SEGMENTSTREAM_CREDENTIAL_KEYS": KeyRing.new().to_text(),
        "SEGMENTSTREAM_CONNECTIONS_CA_FILE": str(ca_file),
        "SEGMENTSTREAM_CONNECTIONS_ALLOW_PRIVATE_PROVIDERS": "true",
        "SSL_CERT_FILE": os.devnull,
    }


def authorize(host: Host, server: OidcServer) -> dict[str, Any]:
    """Connects as a person does, and gives what came of it."""
    return complete(host, server, host.ask("start"))


def complete(host: Host, server: OidcServer, started: Mapping[str, Any]) -> dict[str, Any]:
    """Says yes in a browser to what was begun."""
    # A fork tells its answer among other things.
    begun = started.get("answer", started)
    callback = server.authorize(begun["url"])
    done = host.ask("complete", callback=callback, binding=begun["binding"])
    answer: dict[str, Any] = done.get("answer", done)
    assert answer["state"] == "connected", done
    return answer


# A provider of `provider.py` that rotates


@dataclass(frozen=True, slots=True, kw_only=True)
class Gate:
    """Is what one answer waits for.

    Attributes:
        is_reached: Whether the provider has decided about a request and waits with its answer.
        is_open: Whether it may answer.
    """

    is_reached: threading.Event = field(default_factory=threading.Event)
    is_open: threading.Event = field(default_factory=threading.Event)


@dataclass(slots=True, kw_only=True)
class Rotation:
    """Issues tokens as strictly as can be: whoever brings a spent refresh token loses its grant.

    Attributes:
        provider: The provider at which it does so.
        replays: Whether the last spent refresh token brings the same successors again.
        is_down: Whether it refreshes nothing and says so.
        refreshes: How many were asked for.
        revoked: The tokens that were revoked.
    """

    provider: Provider
    replays: bool = False
    is_down: bool = False
    refreshes: int = 0
    revoked: list[str] = field(default_factory=list)
    _issued: int = 0
    _live: str = ""
    _spent: str = ""
    _gate: Gate | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def place(self, folder: Path, store: str, ca_file: Path, **changes: Any) -> Place:
        """Gives a place in a store for a credential of it; nobody has authorized it yet."""
        return Place(
            connection={
                "authorization_url": "https://provider.example/authorize",
                "token_url": self.provider.acts(self._exchange),
                "refresh_url": self.provider.acts(self._refresh),
                "revocation_url": self.provider.acts(self._revoke),
                "scopes": ["read", "write"],
                **changes,
            },
            environ=environ_of(store, ca_file),
            folder=folder,
        )

    def connect(self, host: Host, account: str = "default") -> dict[str, Any]:
        """Connects as a person does, and gives what came of it."""
        begun = host.ask("start", account=account)
        begun = begun.get("answer", begun)
        done = host.ask("complete", callback=callback_of(begun["url"]), binding=begun["binding"])
        answer: dict[str, Any] = done.get("answer", done)
        return answer

    def gate_next(self) -> Gate:
        """Lets the next answer wait."""
        self._gate = gate = Gate()
        return gate

    def in_flight(self, host: Host, do: str = "access", **more: Any) -> threading.Event:
        """Sends a command, waits until the provider has decided, and gives what it waits for."""
        gate = self.gate_next()
        host.send(do, **more)
        assert gate.is_reached.wait(PATIENCE)
        return gate.is_open

    def end_grant(self) -> None:
        """Lets nobody renew the newest tokens any more."""
        self._live = ""

    def _exchange(self, conversation: Conversation) -> None:
        with self._lock:
            answer = self._next()
        self._tell(conversation, answer)

    def _refresh(self, conversation: Conversation) -> None:
        brought = conversation.request.form["refresh_token"]
        with self._lock:
            self.refreshes += 1
            if self.is_down:
                answer = response("", status="503 Service Unavailable")
            elif brought == self._live:
                self._spent = brought
                answer = self._next()
            elif self.replays and brought == self._spent:
                answer = self._newest()
            else:
                self._live = self._spent = ""
                answer = response({"error": "invalid_grant"}, status="400 Bad Request")
        self._tell(conversation, answer)

    def _revoke(self, conversation: Conversation) -> None:
        with self._lock:
            self.revoked.append(conversation.request.form["token"])
        self._tell(conversation, response(b""))

    def _next(self) -> bytes:
        self._issued += 1
        self._live = f"refresh-{self._issued}"
        return self._newest()

    def _newest(self) -> bytes:
        return response(granted(access_token=f"access-{self._issued}", refresh_token=self._live))

    def _tell(self, conversation: Conversation, answer: bytes) -> None:
        with self._lock:
            gate, self._gate = self._gate, None
        if gate is not None:
            gate.is_reached.set()
            gate.is_open.wait(PATIENCE)
        conversation.close()
        with suppress(OSError):  # who asked may have been killed
            conversation.send(answer)


def callback_of(url: str) -> dict[str, str]:
    """Gives what comes back from an authorization address whose person says yes."""
    [state] = parse_qs(urlsplit(url).query)["state"]
    return {"code": "code", "state": state}
