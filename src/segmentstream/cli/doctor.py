"""What connections need, checked one by one; imports the workspace and the runtime below it.

A check finds something wrong and says what to do, or finds nothing; none of them changes anything,
and none shows a secret.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import asdict, dataclass
from email.utils import parsedate_to_datetime
from itertools import combinations
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

import click

from segmentstream._core.errors import SegmentStreamError
from segmentstream.cli import telling
from segmentstream.cli.connect import DEFAULT_PORT
from segmentstream.cli.exits import CommandError, Exit, Output
from segmentstream.cli.loopback import AddressTakenError, Loopback
from segmentstream.cli.workspace import Opened, Workspace, opened
from segmentstream.connections import OAuth2Connection
from segmentstream_connections_runtime.credentials.base import StoreError
from segmentstream_connections_runtime.credentials.sealing import KeyRingError
from segmentstream_connections_runtime.durable import DEFAULT_ACCOUNT, Status, status_of
from segmentstream_connections_runtime.errors import Code, ServiceError
from segmentstream_connections_runtime.http import Answer
from segmentstream_connections_runtime.settings import KEYS_VARIABLE, SettingsError

_CLOCK_SECONDS = 60.0
_PROXIES = ("https_proxy", "http_proxy", "all_proxy")
_OTHERS = 0o077
_SIGNS = {"ok": ("ok", "green"), "warning": ("look", "yellow"), "problem": ("bad", "red")}


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """Is what one check found.

    Attributes:
        check: What was checked.
        outcome: Whether it is right; a warning may be.
        text: What was found.
        remedy: What to do about it.
    """

    check: str
    outcome: Literal["ok", "warning", "problem"] = "ok"
    text: str = ""
    remedy: str = ""


def run(workspace: Workspace, output: Output, key: str | None) -> Exit:
    """Carries out `segmentstream connections doctor`."""

    async def work() -> list[Finding]:
        return [finding async for finding in _findings(workspace, key)]

    findings = asyncio.run(work())
    lines = [line for finding in findings for line in _lines(finding)]
    problems = sum(finding.outcome == "problem" for finding in findings)
    lines.append("")
    lines.append(f"{problems or 'No'} problem{'' if problems == 1 else 's'} found.")
    output.result(
        {"problems": problems, "checks": [asdict(finding) for finding in findings]},
        "\n".join(lines),
    )
    return Exit.FAILED if problems else Exit.OK


async def _findings(workspace: Workspace, key: str | None) -> AsyncIterator[Finding]:
    yield Finding(check="workspace", text=str(workspace.folder))
    try:
        async with opened(workspace) as work:
            async for finding in _of_workspace(work, key):
                yield finding
    except SettingsError as error:
        yield _problem("variables", str(error), "")
    except SegmentStreamError as error:
        yield _problem("declarations", error.problem, error.remedy)
    except CommandError as error:
        if error.exit is Exit.USAGE:
            raise
        yield _problem("declarations", error.problem, error.remedy)
    yield await _redirect_address()


async def _of_workspace(work: Opened, key: str | None) -> AsyncIterator[Finding]:
    looked_at = dict(work.declared) if key is None else {key: work.connection(key)}
    yield Finding(check="declarations", text=f"{len(work.declared)} declared")
    for connection in looked_at.values():
        yield _secrets(work, connection)
    for finding in _shared_clients(work):
        yield finding
    yield _proxies(work.workspace.environ)
    statuses: list[Status] = []
    async for finding in _store(work, statuses):
        yield finding
    variables = await _variables(work, statuses)
    async for finding in _endpoints(work, looked_at, variables):
        yield finding
    for status in statuses:
        if key in {None, status.connection}:
            yield _credential(status)


def _secrets(work: Opened, connection: OAuth2Connection) -> Finding:
    check = f"{connection.key}: secrets"
    references = filter(None, (connection.client_id, connection.client_secret))
    missing = [name for each in references if (name := work.secrets.missing(each))]
    if not missing:
        return Finding(check=check, text="set")
    return _problem(
        check,
        f"Not set, or no text of one line: {', '.join(missing)}.",
        f"Set it where the command runs, or in {work.workspace.folder / '.env'}.",
    )


def _shared_clients(work: Opened) -> Iterator[Finding]:
    """Finds connections whose logins may end each other: many providers keep one per client."""
    for one, other in combinations(work.declared.values(), 2):
        both = [each.client_id for each in (one, other)]
        if one.provider != other.provider or any(work.secrets.missing(each) for each in both):
            continue
        first, second = (work.secrets.resolve(each).reveal() for each in both)
        if first == second:
            yield Finding(
                check=f"{one.key}, {other.key}: client",
                outcome="warning",
                text="Both log in to the same provider with the same client id.",
                remedy="Some providers keep one login for each client and person: the second ends "
                "the first. Give each a client of its own, or connect different people.",
            )


def _proxies(environ: Mapping[str, str]) -> Finding:
    found = sorted(name for name in environ if name.lower() in _PROXIES and environ[name])
    if not found:
        return Finding(check="proxies", text="none set")
    return Finding(
        check="proxies",
        outcome="warning",
        text=f"{', '.join(found)} {'is' if len(found) == 1 else 'are'} set and not used.",
        remedy="Requests to providers go out directly. Where that is not possible here, the "
        "checks of addresses below fail.",
    )


async def _store(work: Opened, statuses: list[Status]) -> AsyncIterator[Finding]:
    """Opens every record by itself, so that one that does not open is named; notes the others."""
    custody, prefix = work.durable.custody, f"{work.workspace.credential_settings().workspace}/"
    try:
        await asyncio.to_thread(custody.store.check)
        names = await asyncio.to_thread(custody.store.names, prefix)
    except (StoreError, KeyRingError) as error:
        yield _problem("store", str(error), "")
        return
    yield Finding(check="store", text=f"{work.workspace.store_for_people()} can be used")
    yield _keys(work.workspace, is_needed=bool(names))
    for name in names:
        key, _, account = name.removeprefix(prefix).partition("/")
        if key.startswith("."):  # a login under way
            continue
        try:
            held = await custody.credential(key, account)
        except ServiceError as error:
            remedy = f"segmentstream connections disconnect {key} --account {account} --forget"
            yield _problem(
                f"{key}: credential {account}",
                error.detail,
                f"Where it cannot be opened any more, remove it (`{remedy}`) and connect again.",
            )
            continue
        if held is not None:
            is_declared = key in work.declared
            statuses.append(status_of(held.record, is_persisted=True, is_declared=is_declared))
    lacking = work.declared.keys() - {name.removeprefix(prefix).partition("/")[0] for name in names}
    statuses += [
        Status(connection=key, account=DEFAULT_ACCOUNT, state="not_connected")
        for key in sorted(lacking)
    ]


def _keys(workspace: Workspace, *, is_needed: bool) -> Finding:
    settings = workspace.credential_settings()
    if settings.keys is not None:
        return Finding(check="keys", text=f"from {KEYS_VARIABLE}")
    path: Path = settings.keys_file
    if not path.exists():
        if settings.is_embedded and not is_needed:
            return Finding(check="keys", text=f"{path}, made with the first login")
        return _problem(
            "keys", f"{path} is not there.", f"Restore it, or give the keys in {KEYS_VARIABLE}."
        )
    if path.stat().st_mode & _OTHERS:
        return _problem("keys", f"Others may read {path}.", f"chmod 600 {path}")
    return Finding(check="keys", text=f"{path}, for its owner alone")


async def _variables(work: Opened, statuses: list[Status]) -> dict[str, Mapping[str, str]]:
    """Gives the values with which the hosts of connections were filled, as far as stored."""
    found: dict[str, Mapping[str, str]] = {}
    for status in statuses:
        held = await work.durable.custody.credential(status.connection, status.account)
        if held is not None and held.record.variables:
            found[status.connection] = held.record.variables
    return found


async def _endpoints(
    work: Opened,
    connections: Mapping[str, OAuth2Connection],
    variables: Mapping[str, Mapping[str, str]],
) -> AsyncIterator[Finding]:
    offsets: dict[str, float] = {}
    seen: set[str] = set()
    for connection in connections.values():
        check = f"{connection.key}: addresses"
        try:
            filled = connection.with_variables(variables.get(connection.key, {}))
        except SegmentStreamError:
            names = ", ".join(connection.url_variables)
            yield Finding(check=check, text=f"not asked: known once connected ({names})")
            continue
        for url in (filled.authorization_url, filled.token_url, filled.revocation_url):
            if url is None or url in seen:
                continue
            seen.add(url)
            finding, answer = await _asked(work, connection.key, url)
            yield finding
            if answer is not None and (offset := _offset(answer)) is not None:
                offsets[urlsplit(url).hostname or ""] = offset
    yield _clock(offsets)


async def _asked(work: Opened, key: str, url: str) -> tuple[Finding, Answer | None]:
    check = f"{key}: {url.partition('?')[0]}"
    try:
        answer = await work.provider.get(url)
    except ServiceError as error:
        if error.code is Code.PROVIDER_UNREADABLE:  # it answered, at length
            return Finding(check=check, text="answers"), None
        return _problem(check, error.detail, _advice(error.detail)), None
    return Finding(check=check, text=f"answers ({answer.status})"), answer


def _advice(detail: str) -> str:
    """Says what to do about an address that does not answer, by what the transport said."""
    if "certificate" in detail:
        return (
            "Where it is one of your own, name its authority in SEGMENTSTREAM_CONNECTIONS_CA_FILE; "
            "else somebody may be in between."
        )
    if "private" in detail:
        return "Where that is meant, set SEGMENTSTREAM_CONNECTIONS_ALLOW_PRIVATE_PROVIDERS=true."
    return "Check the address in the declaration, and that this machine reaches the internet."


def _offset(answer: Answer) -> float | None:
    try:
        return time.time() - parsedate_to_datetime(answer.headers["date"]).timestamp()
    except (KeyError, ValueError):
        return None


def _clock(offsets: Mapping[str, float]) -> Finding:
    """Compares this machine's clock with those of the providers; one of them may be wrong."""
    if not offsets:
        return Finding(check="clock", text="no provider told the time")
    host, offset = min(offsets.items(), key=lambda each: abs(each[1]))
    if abs(offset) <= _CLOCK_SECONDS:
        return Finding(check="clock", text="agrees with providers")
    way = "ahead of" if offset > 0 else "behind"
    return _problem(
        "clock",
        f"This machine's clock is {abs(offset):.0f} seconds {way} that of {host}.",
        "Set the clock, best by NTP: tokens are renewed by it.",
    )


def _credential(status: Status) -> Finding:
    check = f"{status.connection}: credential {status.account}"
    connect = f"Run `segmentstream connect {status.connection}`."
    now = time.time()
    match status.state:
        case "connected" | "incomplete" if not status.is_declared:
            return Finding(
                check=check,
                outcome="warning",
                text="Stored, but its connection is not declared any more.",
                remedy=f"Declare it, or run `segmentstream connections disconnect "
                f"{status.connection} --account {status.account}`.",
            )
        case "reauthorize":
            return _problem(check, status.reason, connect)
        case "not_connected" | "disconnected":
            text = status.state.replace("_", " ")
            return Finding(check=check, outcome="warning", text=text, remedy=connect)
    by = telling.reconnect_by(status)
    if by is not None and by <= now:
        return _problem(check, f"It ended {telling.span(by, now)}, and nothing renews it.", connect)
    if by is not None:
        text = f"Nothing renews it: reconnect by {telling.day(by)}."
        return Finding(check=check, outcome="warning", text=text, remedy=connect)
    if status.last_failure is not None:
        text = f"Its last refresh failed: {telling.last_failure(status, now)}."
        remedy = f"`segmentstream connections refresh {status.connection}` says more."
        return Finding(check=check, outcome="warning", text=text, remedy=remedy)
    return Finding(check=check, text="connected")


async def _redirect_address() -> Finding:
    check = f"redirect address 127.0.0.1:{DEFAULT_PORT}"
    try:
        async with Loopback(host="127.0.0.1", port=DEFAULT_PORT):
            return Finding(check=check, text="free")
    except AddressTakenError as error:
        return _problem(check, f"{error}.", "End what uses it, or connect with another --port.")


def _problem(check: str, text: str, remedy: str) -> Finding:
    return Finding(check=check, outcome="problem", text=text, remedy=remedy)


def _lines(finding: Finding) -> Iterator[str]:
    word, colour = _SIGNS[finding.outcome]
    sign = click.style(word.ljust(5), fg=colour)
    yield f"{sign}{finding.check}: {telling.plain(finding.text)}"
    if finding.remedy:
        yield f"     {telling.plain(finding.remedy)}"
