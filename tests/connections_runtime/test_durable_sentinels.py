"""Where credentials are kept, nothing that is shown holds a secret, nor does the store as it lies there."""

from __future__ import annotations

import io
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest

from connections_runtime.authority import Authority
from connections_runtime.keeping import Keeping, keeping
from connections_runtime.provider import Provider, response
from connections_runtime.running import REDIRECT, address
from connections_runtime.test_credential_endpoints import COMPLETE, served
from connections_runtime.test_sentinels import (
    ANSWERS,
    CALLER,
    GOOD_BODY,
    PROVIDER,
    VARIABLES,
    shown,
)
from segmentstream_connections_runtime.app import log_to_standard_error
from segmentstream_connections_runtime.authorizing import Started
from segmentstream_connections_runtime.credentials.base import Record
from segmentstream_connections_runtime.credentials.records import (
    Attempt,
    Credential,
    Intent,
    State,
    Tokens,
)
from segmentstream_connections_runtime.credentials.sealing import KeyRing
from segmentstream_connections_runtime.custody import Held
from segmentstream_connections_runtime.durable import LiveAccess, Status
from segmentstream_connections_runtime.settings import CredentialSettings
from segmentstream_connections_runtime.storing import Live


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> Iterator[io.StringIO]:
    """What is written to the logs, down to the last detail."""
    stream = io.StringIO()
    monkeypatch.setattr("sys.stderr", stream)
    loggers = [logging.getLogger(name) for name in ("", "segmentstream", "uvicorn")]
    before = [(each.handlers, each.level, each.propagate) for each in loggers]
    log_to_standard_error()
    loggers[0].setLevel(logging.DEBUG)
    yield stream
    for each, (handlers, level, propagate) in zip(loggers, before, strict=True):
        each.handlers, each.propagate = handlers, propagate
        each.setLevel(level)


async def every_call(client: httpx.AsyncClient) -> list[httpx.Response]:
    """Makes every call that brings or moves a secret."""
    begun = await client.post(address("it", "credential/start"), json={"redirectUri": REDIRECT})
    state = parse_qs(urlsplit(begun.json()["authorizationUrl"]).query)["state"][0]
    callback = {"state": state, "code": CALLER["code"], "error_description": CALLER["query"]}
    completing = {"callback": callback, "binding": begun.json()["binding"]}
    return [
        await client.post(address("it", "access-token/resolve"), json={}),
        await client.post(address("it", "credential/refresh"), json={}),
        await client.post(COMPLETE, json=completing),
        await client.post(COMPLETE, json=completing | {"binding": CALLER["bearer"]}),
        await client.post(COMPLETE, json=completing | {CALLER["query"]: CALLER["query"]}),
        await client.get("/internal/v1/credentials"),
        await client.post(address("it", "credential/disconnect"), json={}),
    ]


@pytest.mark.parametrize("answer", [*ANSWERS, response(GOOD_BODY)])
def test_no_refusal_no_log_and_no_store_shows_a_secret(
    answer: bytes, provider: Provider, authority: Authority, tmp_path: Path, written: io.StringIO
) -> None:
    """Whatever a provider sends: refusals, logs at their finest and the files hold no sentinel."""
    url = provider.replies(answer)
    it = keeping(tmp_path, authority.ca_file, url, variables=VARIABLES, revocation_url=url)
    it.put(access_token=PROVIDER["access"], refresh_token=CALLER["refreshToken"])

    answers = served(it, every_call)

    for each in answers:
        allowed = {PROVIDER["access"]} if each.url.path.endswith("resolve") else set()
        assert set(shown(each.text + repr(each.headers))) <= allowed
    assert shown(written.getvalue()) == []
    kept = b"".join(path.read_bytes() for path in files(it))
    assert kept
    assert shown(kept) == []
    sent = "".join(request.body + repr(request.headers) for request in provider.requests)
    assert CALLER["refreshToken"] in shown(sent)  # it was there to be shown


def files(it: Keeping) -> list[Path]:
    return [path for path in (it.folder / ".segmentstream").rglob("*") if path.is_file()]


def objects() -> Iterator[Any]:
    """Gives what is held in memory that knows a secret."""
    tokens = Tokens(
        access_token=PROVIDER["access"],
        refresh_token=PROVIDER["refresh"],
        scopes=(),
        missing_scopes=(),
        obtained_at=0,
        expires_at=None,
    )
    credential = Credential(
        connection="it",
        account="default",
        state=State.CONNECTED,
        number=1,
        tokens=tokens,
        metadata={"told": PROVIDER["text"]},
        granted_at=0,
        intent=Intent(started_at=0, refresh_token_sha256="0" * 64),
    )
    attempt = Attempt(
        connection="it",
        account="default",
        redirect_uri=REDIRECT,
        verifier=CALLER["codeVerifier"],
        binding_sha256="0" * 64,
        expires_at=0,
    )
    yield from (tokens, credential, attempt, Live(credential=credential))
    yield from (Held(record=credential, generation=1), Held(record=attempt, generation=1))
    yield Started(url=f"https://p/?state={CALLER['query']}", binding=CALLER["bearer"], expires_at=0)
    yield Record(content=PROVIDER["refresh"].encode(), generation=1)
    yield KeyRing(keys={"k": PROVIDER["text"].encode()})
    yield Status(connection="it", account="default", state="", metadata={"a": PROVIDER["text"]})
    yield LiveAccess(
        access_token=PROVIDER["access"],
        number=1,
        expires_at=None,
        scopes=(),
        missing_scopes=(),
        metadata={"a": PROVIDER["text"]},
        base_url=None,
        header="Authorization",
        scheme="Bearer",
        refresh_statuses=(401,),
        is_persisted=True,
    )
    settings = CredentialSettings.from_environ(
        {
            "SEGMENTSTREAM_CREDENTIAL_STORE": f"postgresql://u:{PROVIDER['text']}@h/d",
            "SEGMENTSTREAM_CREDENTIAL_KEYS": PROVIDER["text"],
        },
        folder=Path(),
    )
    yield settings


def test_nothing_that_knows_a_secret_prints_it() -> None:
    """Neither repr nor str nor format of any object shows a sentinel."""
    for each in objects():
        assert shown(f"{each!r} {each!s} {each} {[each]}") == []
