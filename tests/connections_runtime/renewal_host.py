"""Uses the credentials of one connection in a process of its own; `renewals.py` drives it.

    python renewal_host.py CONNECTION [forks]

CONNECTION is a JSON object of the fields of the connection `it`; everything else comes from the
variables of the service. It serves commands on its standard input, a JSON object a line, and
answers each with one. `ahead` puts the clock forward, and `backoff` says how long a pair waits that
the store did not take.

With `forks` each command is carried out by a process of its own, a fork of this one, which has
imported everything: `kill_at` kills it at that step, `kill_after` once so many seconds have
passed. The answer then tells the steps that it took, and its own answer if it lived to give one.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Coroutine, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

import httpx

from segmentstream.connections import OAuth2Connection, secret_ref
from segmentstream_connections_runtime import refreshing, storing
from segmentstream_connections_runtime.composition import keys_of, provider_client
from segmentstream_connections_runtime.credentials.base import CredentialStore, Hold, Record
from segmentstream_connections_runtime.credentials.registry import open_store
from segmentstream_connections_runtime.custody import Custody
from segmentstream_connections_runtime.durable import DurableConnections
from segmentstream_connections_runtime.errors import ServiceError
from segmentstream_connections_runtime.freshness import Want
from segmentstream_connections_runtime.http import ProviderClient
from segmentstream_connections_runtime.oauth import OAuthClient
from segmentstream_connections_runtime.secrets.environment import EnvironmentSecrets
from segmentstream_connections_runtime.settings import CredentialSettings, ServiceSettings

REDIRECT_URI = "https://app.example/callback"

type Step = Callable[[str], None]
type Answer = dict[str, Any] | list[dict[str, Any]]


class SteppedStore(CredentialStore):
    """Is a store that says what it is about to do and what it has done."""

    def __init__(self, store: CredentialStore, step: Step) -> None:
        self.hold_proves_end = store.hold_proves_end
        self._store = store
        self._step = step

    def read(self, name: str) -> Record | None:
        return self._stepped("read", lambda: self._store.read(name))

    def write(
        self, name: str, content: bytes, *, expected: int, expires_at: float | None = None
    ) -> int:
        return self._stepped(
            "write",
            lambda: self._store.write(name, content, expected=expected, expires_at=expires_at),
        )

    def delete(self, name: str, *, expected: int) -> None:
        self._store.delete(name, expected=expected)

    def names(self, prefix: str) -> list[str]:
        return self._store.names(prefix)

    def try_hold(self, name: str) -> Hold | None:
        hold = self._stepped("hold", lambda: self._store.try_hold(name))
        return None if hold is None else SteppedHold(hold, self._step)

    def check(self) -> None:
        self._store.check()

    def close(self) -> None:
        self._store.close()

    def _stepped[T](self, what: str, work: Callable[[], T]) -> T:
        self._step(f"before {what}")
        result = work()
        self._step(f"after {what}")
        return result


class SteppedHold:
    """Is a hold that says so when it is let go."""

    def __init__(self, hold: Hold, step: Step) -> None:
        self._hold = hold
        self._step = step

    def release(self) -> None:
        self._step("before release")
        self._hold.release()
        self._step("after release")


class Clock:
    """Is the wall clock, put forward or back."""

    ahead = 0.0

    def __call__(self) -> float:
        return time.time() + self.ahead


def connection_of(fields: Mapping[str, Any]) -> OAuth2Connection:
    """Declares the connection `it`."""
    given: dict[str, Any] = {
        "key": "it",
        "name": "It",
        "provider": "it",
        "client_id": secret_ref("the-id"),
        "client_secret": secret_ref("the-secret"),
    }
    return OAuth2Connection(**given | dict(fields))


def durable_of(
    connection: OAuth2Connection,
    environ: Mapping[str, str],
    *,
    clock: Clock,
    step: Step | None = None,
) -> tuple[DurableConnections, ProviderClient]:
    """Puts the parts together as `composition` does, with a clock and with steps."""
    settings = CredentialSettings.from_environ(environ, folder=Path.cwd())
    assert settings is not None
    provider = provider_client(ServiceSettings.from_environ(environ))
    store = open_store(settings.store)
    keys = keys_of(settings, store)
    if step is not None:
        tell = step

        async def told(what: httpx.Request | httpx.Response) -> None:
            tell("asking" if isinstance(what, httpx.Request) else "answered")

        provider._client.event_hooks = {"request": [told], "response": [told]}
        store = SteppedStore(store, step)
    custody = Custody(store, keys, workspace=settings.workspace)
    oauth = OAuthClient(provider, EnvironmentSecrets(environ))
    return DurableConnections([connection], custody, oauth, now=clock), provider


async def carried_out(durable: DurableConnections, command: Mapping[str, Any]) -> Answer:
    """Carries out a command."""
    account = command.get("account", "default")
    match command["do"]:
        case "access":
            wants = command.get("wants") or [command.get("want", {})] * command.get("callers", 1)
            calls = [outcome(access(durable, account, Want(**want))) for want in wants]
            return list(await asyncio.gather(*calls))
        case "look":
            return await outcome(look(durable, account))
        case "statuses":
            found = await durable.statuses()
            return [{"number": each.number, "is_persisted": each.is_persisted} for each in found]
        case "recover":
            before = await outcome(look(durable, account))
            after = await outcome(access(durable, account, Want(is_forced=True)))
            return {"before": before, "after": after}
        case "start":
            return await outcome(start(durable, account))
        case "complete":
            return await outcome(complete(durable, command["callback"], command["binding"]))
        case "disconnect":
            return await outcome(disconnect(durable, account))
        case "reseal":
            return await outcome(reseal(durable))
        case unknown:
            raise AssertionError(unknown)


async def outcome(work: Coroutine[Any, Any, dict[str, Any]]) -> dict[str, Any]:
    """Tells what came of it, be it an error of the service."""
    try:
        return await work
    except ServiceError as error:
        return {"error": error.code.value, "detail": error.detail}


async def access(durable: DurableConnections, account: str, want: Want) -> dict[str, Any]:
    """Gives a token, as to a client."""
    live = await durable.access("it", account=account, want=want)
    return {"number": live.number, "token": live.access_token, "is_persisted": live.is_persisted}


async def look(durable: DurableConnections, account: str) -> dict[str, Any]:
    """Tells what is stored."""
    held = await durable.custody.credential("it", account)
    if held is None:
        return {"state": "none"}
    tokens = held.record.tokens
    return {
        "state": held.record.state.value,
        "reason": held.record.reason,
        "number": held.record.number,
        "token": None if tokens is None else tokens.access_token,
        "has_intent": held.record.intent is not None,
    }


async def start(durable: DurableConnections, account: str) -> dict[str, Any]:
    """Begins an authorization."""
    started = await durable.start("it", account=account, redirect_uri=REDIRECT_URI, variables={})
    return {"url": started.url, "binding": started.binding}


async def complete(
    durable: DurableConnections, callback: Mapping[str, str], binding: str
) -> dict[str, Any]:
    """Completes one."""
    status = await durable.complete(callback, binding=binding)
    return {"state": status.state, "number": status.number, "is_persisted": status.is_persisted}


async def disconnect(durable: DurableConnections, account: str) -> dict[str, Any]:
    """Ends the credential."""
    return {"was_revoked": await durable.disconnect("it", account=account)}


async def reseal(durable: DurableConnections) -> dict[str, Any]:
    """Seals every record anew."""
    total, changed = await durable.custody.reseal()
    return {"total": total, "changed": changed}


# As a process that goes on


async def serve(connection: OAuth2Connection) -> None:
    """Serves commands, one after the other, until the input ends."""
    clock = Clock()
    durable, provider = durable_of(connection, os.environ, clock=clock)
    while line := await asyncio.to_thread(sys.stdin.readline):
        command = json.loads(line)
        clock.ahead = command.get("ahead", clock.ahead)
        storing._FIRST_BACKOFF_SECONDS = command.get("backoff", storing._FIRST_BACKOFF_SECONDS)
        print(json.dumps(await carried_out(durable, command)), flush=True)
    await durable.close(seconds=1)
    await provider.close()


# As one that forks


def serve_forks(connection: OAuth2Connection) -> None:
    """Serves each command with a process of its own."""
    warm_up(os.environ)
    refreshing._SETTLING_SECONDS = 0.0  # who was killed does not come back to store anything
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
    for line in sys.stdin:
        command = json.loads(line)
        reading, writing = os.pipe()
        child = os.fork()
        if not child:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD})
            be_fork(connection, command, writing)
        os.close(writing)
        after = command.get("kill_after")
        if after is not None and signal.sigtimedwait({signal.SIGCHLD}, after) is None:
            os.kill(child, signal.SIGKILL)
        # What it wrote is in the pipe, however it ended, and far less than that takes.
        with os.fdopen(reading, "rb") as pipe:
            told = [json.loads(each) for each in pipe.read().splitlines()]
        _, status = os.waitpid(child, 0)
        while signal.sigtimedwait({signal.SIGCHLD}, 0) is not None:
            pass
        print(
            json.dumps(
                {
                    "was_killed": os.WIFSIGNALED(status),
                    "steps": [each for each in told if isinstance(each, str)],
                    "answer": next((each for each in told if not isinstance(each, str)), None),
                }
            ),
            flush=True,
        )


def warm_up(environ: Mapping[str, str]) -> None:
    """Imports what is otherwise imported on first use; starts no thread, which forks would lack."""
    for module in (
        "anyio._backends._asyncio",
        "encodings.idna",
        "segmentstream_connections_runtime.transport",
    ):
        import_module(module)
    settings = CredentialSettings.from_environ(environ, folder=Path.cwd())
    assert settings is not None
    store = open_store(settings.store)
    sealed = keys_of(settings, store).ring().seal(b"", belonging_to="nothing")
    keys_of(settings, store).ring().open(sealed, belonging_to="nothing")
    store.read("nothing")
    hold = store.try_hold("nothing")
    assert hold is not None
    hold.release()
    store.close()


def be_fork(connection: OAuth2Connection, command: Mapping[str, Any], writing: int) -> None:
    """Carries out one command and ends the process."""
    count = 0

    def step(name: str) -> None:
        nonlocal count
        count += 1
        tell(name)
        if count == command.get("kill_at"):
            os.kill(os.getpid(), signal.SIGKILL)

    def tell(what: object) -> None:
        os.write(writing, json.dumps(what).encode() + b"\n")

    async def work() -> None:
        clock = Clock()
        clock.ahead = command.get("ahead", 0.0)
        durable, provider = durable_of(connection, os.environ, clock=clock, step=step)
        tell(await carried_out(durable, command))
        await durable.close(seconds=0)
        await provider.close()

    try:
        asyncio.run(work())
    finally:
        os._exit(0)


def main(connection: str, *how: str) -> None:
    """Serves commands until the input ends."""
    declared = connection_of(json.loads(connection))
    if how == ("forks",):
        serve_forks(declared)
    else:
        asyncio.run(serve(declared))


if __name__ == "__main__":
    main(*sys.argv[1:])
