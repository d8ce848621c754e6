"""What `segmentstream connections` does with credentials: list, show, test, renew and end them.

Imports the workspace and the runtime below it.
"""

from __future__ import annotations

import asyncio
import time
from http import HTTPStatus

from segmentstream.cli import telling
from segmentstream.cli.exits import CommandError, Exit, Output, of_service
from segmentstream.cli.telling import NOTHING
from segmentstream.cli.workspace import Workspace, opened
from segmentstream_connections_runtime.durable import LiveAccess, Status
from segmentstream_connections_runtime.errors import Code, ServiceError
from segmentstream_connections_runtime.freshness import Want

_COLUMNS = ("CONNECTION", "ACCOUNT", "STATE", "NOT GRANTED", "RENEWAL", "LAST FAILURE")
# After these nothing was wiped; after all others of `disconnect` it was.
_NOT_WIPED = {Code.STORE_UNAVAILABLE, Code.INVALID_REQUEST, Code.CREDENTIAL_NOT_FOUND}


def list_all(workspace: Workspace, output: Output) -> Exit:
    """Lists what is declared and what is stored."""

    async def work() -> list[Status]:
        async with opened(workspace) as opened_one:
            return await opened_one.connections.statuses()

    statuses, now = asyncio.run(work()), time.time()
    rows = [
        (
            status.connection,
            status.account,
            _state(status),
            ", ".join(status.missing_scopes) or NOTHING,
            telling.renewal(status, now) or NOTHING,
            telling.last_failure(status, now) or NOTHING,
        )
        for status in statuses
    ]
    text = telling.table(_COLUMNS, rows) if rows else "No connection is declared or stored."
    output.result([telling.document(status) for status in statuses], text)
    return Exit.OK


def show(workspace: Workspace, output: Output, key: str, account: str) -> Exit:
    """Shows one connection."""

    async def work() -> Status:
        async with opened(workspace) as opened_one:
            return await opened_one.status(key, account)

    status = asyncio.run(work())
    declared = {each.key: each for each in workspace.declared()}.get(key)
    lines = [("connection", key), ("account", account)]
    if declared is None:
        lines.append(("declared", "no"))
    else:
        lines += [("name", declared.name), ("provider", declared.provider)]
        lines.append(("asked for", ", ".join(declared.scopes) or NOTHING))
    lines += telling.summary(status)
    lines.append(("stored in", workspace.store_for_people()))
    output.result(telling.document(status), telling.aligned(lines))
    return Exit.OK


def test(workspace: Workspace, output: Output, key: str, account: str, path: str | None) -> Exit:
    """Makes sure that a token can be had, and perhaps that the interface takes it."""

    async def work() -> tuple[LiveAccess, int | None]:
        async with opened(workspace) as opened_one:
            opened_one.connection(key)
            access = await opened_one.connections.access(key, account=account, want=Want())
            return access, None if path is None else await _asked(workspace, access, path)

    access, status = asyncio.run(work())
    until = None if access.expires_at is None else telling.moment(access.expires_at)
    said = {"connection": key, "account": account, "expiresAt": until, "requestStatus": status}
    text = f"{key}, account {account}: there is a token"
    text += (
        "."
        if access.expires_at is None
        else (f"; it ends {telling.span(access.expires_at, time.time())}.")
    )
    if status is not None:
        text += f"\nGET {path}: {_named(status)}"
    output.result(said, text)
    return Exit.OK if status is None or status < HTTPStatus.BAD_REQUEST else Exit.FAILED


def refresh(workspace: Workspace, output: Output, key: str, account: str) -> Exit:
    """Renews a credential now."""

    async def work() -> Status:
        async with opened(workspace) as opened_one:
            opened_one.connection(key)
            return await opened_one.connections.refresh(key, account=account)

    status = asyncio.run(work())
    text = f"{key}, account {account}, is renewed."
    output.result(telling.document(status), f"{text}\n{telling.aligned(telling.summary(status))}")
    return Exit.OK if status.is_persisted else Exit.STORE


def disconnect(workspace: Workspace, output: Output, key: str, account: str) -> Exit:
    """Ends a credential, at the provider too where that can be."""

    async def work() -> bool:
        async with opened(workspace) as opened_one:
            return await opened_one.connections.disconnect(key, account=account)

    try:
        was_told = asyncio.run(work())
    except ServiceError as error:
        if error.code is Code.CREDENTIAL_NOT_FOUND:
            raise CommandError(
                f"There is no credential of {key}, account {account}.",
                "`segmentstream connections list` shows what there is.",
                code=error.code.value,
            ) from None
        if error.code in _NOT_WIPED:
            raise
        raise CommandError(
            f"The credential is wiped here, but the provider was not told: "
            f"{of_service(error).problem}",
            "It may be valid there until it ends: take the access back in your account at the "
            "provider.",
            code="not_revoked",
        ) from None
    text = f"{key}, account {account}: wiped here, and taken back by the provider."
    if not was_told:
        text = (
            f"{key}, account {account}: wiped here. The connection declares no revocation_url: "
            "take the access back in your account at the provider."
        )
    output.result({"connection": key, "account": account, "wasRevoked": was_told}, text)
    return Exit.OK


def forget(workspace: Workspace, output: Output, key: str, account: str) -> Exit:
    """Removes a record, whether or not it opens."""

    async def work() -> None:
        async with opened(workspace) as opened_one:
            await opened_one.durable.custody.forget(key, account)

    asyncio.run(work())
    text = f"Nothing is kept of {key}, account {account}. The provider was not told."
    output.result({"connection": key, "account": account, "wasRevoked": False}, text)
    return Exit.OK


async def _asked(workspace: Workspace, access: LiveAccess, path: str) -> int:
    from segmentstream.cli.requesting import status_of  # noqa: PLC0415 - seldom wanted, and slow

    return await status_of(workspace, access, path)


def _state(status: Status) -> str:
    told = status.state.replace("_", " ")
    return told if status.is_declared else f"{told}, not declared"


def _named(status: int) -> str:
    try:
        return f"{status} {HTTPStatus(status).phrase}"
    except ValueError:
        return str(status)
