"""How a person's login goes, from the address they are sent to until the tokens are stored.

Imports the workspace, the loopback server and the runtime's errors.
"""

from __future__ import annotations

import asyncio
import os
import ssl
import webbrowser
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from urllib.parse import parse_qsl, urlsplit

from segmentstream.cli import pages, telling
from segmentstream.cli.exits import CommandError, Exit, Output
from segmentstream.cli.loopback import CALLBACK_PATH, AddressTakenError, Loopback
from segmentstream.cli.pages import Page
from segmentstream.cli.pasting import pasted_line
from segmentstream.cli.workspace import Connections, Opened, Workspace, opened
from segmentstream.connections import OAuth2Connection
from segmentstream_connections_runtime.authorizing import Started
from segmentstream_connections_runtime.durable import Status
from segmentstream_connections_runtime.errors import ServiceError

_PAGE_SECONDS = 5.0
_REPEATS_SECONDS = 2.0  # browsers that come twice do so at once


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """Is what the options of `connect` say; see there."""

    key: str
    account: str
    variables: Mapping[str, str]
    opens_browser: bool
    is_pasted: bool
    redirect_uri: str | None
    is_https: bool
    host: str
    port: int
    seconds: int


def run(workspace: Workspace, asked: Asked, output: Output) -> Exit:
    """Carries out `segmentstream connect`."""
    return asyncio.run(_connect(workspace, asked, output))


async def _connect(workspace: Workspace, asked: Asked, output: Output) -> Exit:
    async with opened(workspace) as work:
        connection = work.connection(asked.key)
        _check_secrets(work, connection)
        if asked.is_pasted:
            return await _by_pasting(work, connection, asked, output)
        return await _by_loopback(work, connection, asked, output)


def _check_secrets(work: Opened, connection: OAuth2Connection) -> None:
    """Refuses to send a person to a login whose code could not be exchanged."""
    references = filter(None, (connection.client_id, connection.client_secret))
    missing = [name for each in references if (name := work.secrets.missing(each))]
    if missing:
        raise CommandError(
            f"Not set, or no text of one line: {', '.join(missing)}.",
            f"Set it where the command runs, or in {work.workspace.folder / '.env'}.",
            exit_code=Exit.CONFIGURATION,
            code="runtime_unavailable",
        )


async def _by_loopback(
    work: Opened, connection: OAuth2Connection, asked: Asked, output: Output
) -> Exit:
    is_https = asked.is_https or connection.https_redirect
    tls = _certificate(work, output) if is_https else None
    try:
        async with Loopback(host=asked.host, port=asked.port, tls=tls) as loopback:
            login = await _Login.begun(work.connections, asked, loopback.redirect_uri)
            try:
                loopback.expect(login.state, lambda callback: login.complete(callback, connection))
                await _send_person(login.url, loopback, asked, output)
                async with asyncio.timeout(asked.seconds):
                    await loopback.visit()
                page = await loopback.outcome()  # which has limits of its own
            except TimeoutError:
                raise _too_late(asked) from None
            finally:
                if not loopback.has_come:
                    await login.give_up()
            code = None if login.status is None else _tell(work, connection, login.status, output)
            await _last_visits(loopback, page)
            return login.ended(code)
    except AddressTakenError as error:
        raise CommandError(
            f"Nothing can listen on {asked.host}, port {asked.port} ({error}).",
            "End what uses it, or choose another with --port; 0 takes any that is free. Many "
            "providers want the redirect address registered with its port.",
            code="address_taken",
        ) from None


async def _by_pasting(
    work: Opened, connection: OAuth2Connection, asked: Asked, output: Output
) -> Exit:
    scheme = "https" if asked.is_https or connection.https_redirect else "http"
    redirect_uri = asked.redirect_uri or f"{scheme}://{asked.host}:{asked.port}{CALLBACK_PATH}"
    login = await _Login.begun(work.connections, asked, redirect_uri)
    is_over = False
    try:
        output.say("Open this address in a browser and log in:\n")
        output.say(f"{login.url}\n")
        output.say(
            f"The browser ends at a page under {redirect_uri} that it may not find. Paste the "
            "whole address of that page here; it holds a code, so it is not shown."
        )
        if asked.opens_browser:
            await asyncio.to_thread(webbrowser.open, login.url)
        async with asyncio.timeout(asked.seconds):
            callback = _pasted(await pasted_line(), redirect_uri)
        is_over = True
        await login.complete(callback, connection)
    except TimeoutError:
        raise _too_late(asked) from None
    finally:
        if not is_over:
            await login.give_up()
    code = None if login.status is None else _tell(work, connection, login.status, output)
    return login.ended(code)


@dataclass(slots=True, kw_only=True)
class _Login:
    """Is one login under way, and what became of it. Its repr shows no secret."""

    connections: Connections = field(repr=False)
    started: Started
    status: Status | None = None
    error: ServiceError | None = None

    @classmethod
    async def begun(cls, connections: Connections, asked: Asked, redirect_uri: str) -> _Login:
        """Begins one."""
        started = await connections.start(
            asked.key,
            account=asked.account,
            redirect_uri=redirect_uri,
            variables=asked.variables,
        )
        return cls(connections=connections, started=started)

    @property
    def url(self) -> str:
        """Where the person's browser goes."""
        return self.started.url

    @property
    def state(self) -> str:
        """What the browser brings back."""
        return dict(parse_qsl(urlsplit(self.started.url).query))["state"]

    async def complete(self, callback: Mapping[str, str], connection: OAuth2Connection) -> Page:
        """Exchanges what the browser brought; gives the page that says how that went."""
        try:
            self.status = await self.connections.complete(callback, binding=self.started.binding)
        except ServiceError as error:
            self.error = error
            return pages.REFUSED if error.provider_code == "access_denied" else pages.FAILED
        return pages.connected(connection.name, is_whole=not self.status.missing_scopes)

    async def give_up(self) -> None:
        """Makes sure that nobody completes it later, and that its verifier is not kept."""
        with suppress(ServiceError):
            callback = {"state": self.state, "error": "access_denied"}
            await self.connections.complete(callback, binding=self.started.binding)

    def ended(self, code: Exit | None) -> Exit:
        """Gives how the command ends.

        Raises:
            ServiceError: Nothing was connected.
        """
        if self.error is not None:
            raise self.error
        assert code is not None  # noqa: S101 - a login without an error has a status
        return code


def _certificate(work: Opened, output: Output) -> ssl.SSLContext:
    from segmentstream.cli.certificates import server_context  # noqa: PLC0415 - seldom wanted

    context, authority = server_context(work.workspace.private_folder)
    output.say(
        "The provider comes back over https, so this machine answers with a certificate that it "
        "made itself. The browser will warn of it once: it cannot know who made it. Go on "
        "(Advanced, Proceed), or trust the authority, which can vouch for this machine alone:\n"
        f"  {authority}\n"
    )
    return context


async def _send_person(url: str, loopback: Loopback, asked: Asked, output: Output) -> None:
    output.say(f"The provider sends the browser back to {loopback.redirect_uri}")
    if asked.opens_browser and await asyncio.to_thread(webbrowser.open, url):
        output.say("A browser was opened; log in there. If you see none, open this address:\n")
        output.say(f"{url}\n")
        return
    output.say("Open this address in a browser and log in:\n")
    output.say(f"{url}\n")
    here = os.uname().nodename if hasattr(os, "uname") else "this-host"
    output.say(
        "Where that browser runs on another machine, first do this there, or use --paste:\n"
        f"  ssh -L {loopback.port}:127.0.0.1:{loopback.port} {here}\n"
    )


async def _last_visits(loopback: Loopback, page: Page) -> None:
    """Stays until the page was fetched, and a little longer for a browser that comes twice."""
    with suppress(TimeoutError):
        async with asyncio.timeout(_PAGE_SECONDS):
            await loopback.shown()
    if page.is_good:
        await asyncio.sleep(_REPEATS_SECONDS)


def _pasted(text: str, redirect_uri: str) -> dict[str, str]:
    """Reads the query of a pasted address, which is the one that the provider was given."""
    address, _, query = text.strip().partition("#")[0].partition("?")
    if address != redirect_uri or not query:
        raise CommandError(
            "What was pasted is not an address that the provider sent the browser to.",
            f"Copy all of it from the browser; it begins with {redirect_uri}?. Then begin again.",
            code="not_pasted",
        )
    return dict(parse_qsl(query, keep_blank_values=True))


def _too_late(asked: Asked) -> CommandError:
    return CommandError(
        f"Nobody came back from the provider within {asked.seconds} seconds.",
        "Run it again; --timeout gives up to 600 seconds. Where the provider showed an error "
        "about the redirect address, register the one above there, exactly.",
        code="timed_out",
    )


def _tell(work: Opened, connection: OAuth2Connection, status: Status, output: Output) -> Exit:
    """Prints what was granted."""
    store = work.workspace.store_for_people()
    lines = [*telling.summary(status), ("stored in", f"{store}, sealed")]
    text = f"{connection.name} is connected as {status.connection}, account {status.account}.\n"
    output.result(
        telling.document(status) | {"store": store},
        f"{text}\n{telling.aligned(lines)}",
    )
    if not status.is_persisted:
        return Exit.STORE
    return Exit.FAILED if status.state == "incomplete" else Exit.OK
