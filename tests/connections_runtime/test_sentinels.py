from __future__ import annotations

import asyncio
import io
import json
import logging
import pickle
import traceback
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote, quote_plus

import httpx
import pytest

from connections_runtime.conftest import Serve
from connections_runtime.provider import SCENARIOS, Provider, granted, response
from connections_runtime.running import (
    CLIENT_ID,
    REDIRECT,
    LocalService,
    address,
    connection,
    running_service,
)
from segmentstream_connections_runtime import oauth
from segmentstream_connections_runtime.app import log_to_standard_error
from segmentstream_connections_runtime.errors import Code, ServiceError
from segmentstream_connections_runtime.http import Answer
from segmentstream_connections_runtime.oauth import Granted
from segmentstream_connections_runtime.secrets.base import Secret
from segmentstream_connections_runtime.secrets.environment import EnvironmentSecrets
from segmentstream_connections_runtime.settings import ServiceSettings
from segmentstream_connections_runtime.tokens import Rules, read_answer

# What may be shown nowhere; each has characters that an encoding changes.
CLIENT_SECRET = "sentinel+client/secret=="
CALLER = {
    "code": "sentinel+code/of+the/callback",
    "codeVerifier": "sentinel-verifier-" + "v" * 40,
    "refreshToken": "sentinel+refresh/token+of/the/caller",
    "bearer": "sentinel-bearer-of-a-stranger",
    "query": "sentinel-in-a-query",
}
PROVIDER = {
    "access": "sentinel-access-token-of-the-provider",
    "refresh": "sentinel-refresh-token-of-the-provider",
    "text": "sentinel-text-of-the-provider",
}
SENTINELS = (CLIENT_SECRET, *CALLER.values(), *PROVIDER.values())
VARIABLES = {
    "SEGMENTSTREAM_CONNECTION_SECRET_THE_ID": CLIENT_ID,
    "SEGMENTSTREAM_CONNECTION_SECRET_THE_SECRET": CLIENT_SECRET,
}
ENDLESS = {
    "gated",
    "gated_refusal",
    "hang",
    "hang_after_headers",
    "slow_drip",
    "slow_headers",
    "endless_interim",
}
GOOD_BODY = granted(access_token=PROVIDER["access"], refresh_token=PROVIDER["refresh"])
ANSWERS = [
    response(GOOD_BODY | {"error": PROVIDER["text"]}),
    response({"error": "invalid_grant", "error_description": PROVIDER["text"]}, status="400 No"),
    response({"error": "invalid_client", "error_uri": PROVIDER["text"]}, status="401 No"),
    response({"error": {"code": PROVIDER["text"]}}, status="400 No"),
    response({"errors": [{"code": PROVIDER["text"]}]}, status="400 No"),
    response({PROVIDER["text"]: PROVIDER["text"]}),
    response(GOOD_BODY | {"token_type": PROVIDER["text"]}),
    response(GOOD_BODY | {"expires_in": PROVIDER["text"]}),
    response(GOOD_BODY | {"access_token": PROVIDER["access"] + " " + PROVIDER["text"]}),
    response(GOOD_BODY | {"refresh_token": [PROVIDER["refresh"]]}),
    response(json.dumps(GOOD_BODY)[:-1]),
    response(json.dumps(GOOD_BODY).encode()[:-1] + b"\xff"),
    response(f"<html>{PROVIDER['text']}</html>", status="403 No", media_type="text/html"),
    response(PROVIDER["text"], media_type=PROVIDER["text"]),
    response(PROVIDER["text"], headers=[("Content-Encoding", PROVIDER["text"])]),
    response(PROVIDER["text"], headers=[("Content-Encoding", "gzip")]),
    response("", status="302 No", headers=[("Location", f"https://{PROVIDER['text']}/")]),
    response({}, status="429 No", headers=[("Retry-After", PROVIDER["text"])]),
    f"HTTP/1.1 2{PROVIDER['text']}\r\n\r\n".encode(),
    f"HTTP/1.1 200 OK\r\n{PROVIDER['text']}\r\n\r\n".encode(),
    f"HTTP/1.1 200 OK\r\nContent-Length: {PROVIDER['text']}\r\n\r\n".encode(),
    PROVIDER["text"].encode() + b"\r\n\r\n",
]


def forms(secret: str) -> set[str]:
    """Gives a secret as it stands in a text, in addresses, in a header of Basic and in JSON."""
    pairs = (f"{CLIENT_ID}:{secret}", f"{quote_plus(CLIENT_ID)}:{quote_plus(secret)}")
    return {
        secret,
        quote(secret, safe=""),
        quote_plus(secret),
        b64encode(secret.encode()).decode().rstrip("="),
        *(b64encode(pair.encode()).decode().rstrip("=") for pair in pairs),
        json.dumps(secret)[1:-1],
    }


def shown(text: str | bytes) -> list[str]:
    """Lists the sentinels that a text shows, in any form."""
    if isinstance(text, bytes):
        text = text.decode("latin-1")
    return [secret for secret in SENTINELS if any(form in text for form in forms(secret))]


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> Iterator[io.StringIO]:
    """What the service and every library write to their logs, down to the last detail."""
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


async def every_call(client: httpx.AsyncClient, key: str) -> list[httpx.Response]:
    """Makes a refresh and an exchange that carry the sentinels of a caller."""
    exchange = {
        "code": CALLER["code"],
        "redirectUri": REDIRECT,
        "codeVerifier": CALLER["codeVerifier"],
    }
    refresh = {"refreshToken": CALLER["refreshToken"]}
    query = {"q": CALLER["query"]}
    return [
        await client.post(address(key, "token/refresh"), json=refresh, params=query),
        await client.post(address(key, "token/exchange"), json=exchange, params=query),
        await client.post(address(key, "token/refresh"), json=refresh | {CALLER["code"]: 1}),
        await client.post(
            address(key, "token/exchange"), json=exchange | {"code": [CALLER["code"]]}
        ),
        await client.post(address(key, "token/refresh"), content=json.dumps(refresh)),
        await client.post(address(key, "authorization/start"), json=exchange),
    ]


@pytest.mark.parametrize("authentication", ["client_secret_basic", "client_secret_post"])
def test_no_refusal_and_no_log_shows_a_secret(
    authentication: str, provider: Provider, authority_file: Path, written: io.StringIO
) -> None:
    """Whatever a provider sends, refusals and all logs at their finest hold no sentinel."""
    urls = [provider.replies(raw) for raw in ANSWERS]
    urls += [provider.url(name) for name in SCENARIOS if name not in ENDLESS]
    service = LocalService(
        *(
            connection(url, key=f"k{number}", client_authentication=authentication)
            for number, url in enumerate(urls)
        ),
        ca_file=authority_file,
        variables=VARIABLES,
    )

    async def work(client: httpx.AsyncClient) -> list[httpx.Response]:
        answers = await asyncio.gather(
            *(every_call(client, f"k{number}") for number in range(len(urls)))
        )
        return [answer for several in answers for answer in several]

    answers = service.run(work)
    refusals = [answer for answer in answers if answer.status_code >= 400]
    assert len(refusals) > 300
    for answer in refusals:
        assert shown(answer.text + repr(answer.headers)) == []
    assert "oauth_provider_unavailable" in written.getvalue()
    assert shown(written.getvalue()) == []
    # The sentinels were there to be shown.
    sent = "".join(request.body + repr(request.headers) for request in provider.requests)
    assert set(shown(sent)) >= {CLIENT_SECRET, CALLER["code"], CALLER["refreshToken"]}


@pytest.mark.parametrize("place", ["post", "read", "secret"])
def test_a_fault_of_the_service_shows_no_secret(
    place: str,
    provider: Provider,
    serve: Serve,
    written: io.StringIO,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A bug whose text holds every sentinel is answered and logged without that text."""
    service = serve(provider.replies(response(GOOD_BODY)), variables=VARIABLES)

    def broken(*_: object, **__: object) -> None:
        raise RuntimeError(" ".join(SENTINELS))

    match place:
        case "post":
            monkeypatch.setattr(service.provider, "post", broken)
        case "read":
            monkeypatch.setattr(oauth, "read_answer", broken)
        case _:
            monkeypatch.setattr(Secret, "reveal", broken)
    answers = service.run(lambda client: every_call(client, "it"))
    assert [answer.status_code for answer in answers[:2]] == [500, 500]
    assert all(shown(answer.text) == [] for answer in answers)
    assert "RuntimeError" in written.getvalue()
    assert shown(written.getvalue()) == []


def test_a_process_shows_no_secret(
    provider: Provider, trusting: dict[str, str], tmp_path: Path
) -> None:
    """What a real process writes holds no sentinel, also after faults; connections outlast them."""
    urls = {f"k{number}": provider.replies(raw) for number, raw in enumerate(ANSWERS)}
    urls["fault"] = provider.url("good")
    with running_service(tmp_path, urls, trusting | VARIABLES, more=_BROKEN) as service:

        async def work() -> list[httpx.Response]:
            async with httpx.AsyncClient(base_url=service.url, trust_env=False) as client:
                answers = [answer for key in urls for answer in await every_call(client, key)]
                bearer = {"Authorization": f"Bearer {CALLER['bearer']}"}
                answers.append(await client.get(f"/x?q={CALLER['query']}", headers=bearer))
                return answers

        answers = asyncio.run(work())
        service.wait_for_log(answers[-1].headers["x-request-id"])
        assert sum(answer.status_code == 500 for answer in answers) == 2
        assert all(shown(answer.text) == [] for answer in answers if answer.status_code >= 400)
        service.wait_for_log("RuntimeError")
    assert shown(service.log) == []
    assert "Traceback" not in service.log
    assert all(json.loads(line) for line in service.lines)


_BROKEN = f"""
import asyncio, logging
from segmentstream_connections_runtime import oauth

_read = oauth.read_answer

def _broken(status, headers, body, **how):
    if b"access-token-of-the-provider" in body and b"sentinel" not in body:
        logging.getLogger("asyncio").error("%s", {" ".join(SENTINELS)!r})
        raise RuntimeError({" ".join(SENTINELS)!r})
    return _read(status, headers, body, **how)

oauth.read_answer = _broken
"""


def objects() -> Iterator[Any]:
    """Gives what the service holds that knows a secret."""
    body = json.dumps(GOOD_BODY | {"realm": PROVIDER["text"]}).encode()
    tokens = read_answer(
        200, {}, body, grant="refresh_token", rules=Rules(metadata_fields=("realm",))
    )
    yield tokens
    yield Granted(tokens=tokens, scopes=(), missing_scopes=())
    yield Answer(status=200, headers={"set-cookie": PROVIDER["text"]}, body=body)
    yield Secret(CLIENT_SECRET)
    yield EnvironmentSecrets(VARIABLES)
    yield ServiceSettings(bearer_sha256=CALLER["bearer"])


def test_nothing_that_knows_a_secret_prints_it() -> None:
    """Neither repr nor str nor format of any object shows a sentinel."""
    for each in objects():
        assert shown(f"{each!r} {each!s} {each} {[each]} {{}}") == []
        assert shown("%r %s" % (each, each)) == []  # noqa: UP031 - the old way must be safe too
    assert format(Secret(CLIENT_SECRET), ">20").strip() == "Secret(***)"


def test_a_secret_is_not_pickled_and_an_error_holds_none() -> None:
    """A pickle of a secret is refused; one of an error comes back whole and shows nothing."""
    with pytest.raises(TypeError):
        pickle.dumps(Secret(CLIENT_SECRET))
    for raw in (b'{"error": "invalid_grant"}', PROVIDER["text"].encode()):
        with pytest.raises(ServiceError) as caught:
            read_answer(400, {}, raw, grant="refresh_token", rules=Rules())
        assert shown(pickle.dumps(caught.value)) == []
        again = pickle.loads(pickle.dumps(caught.value))
        assert (again.code, str(again)) == (caught.value.code, str(caught.value))
        assert again.provider_status == 400


@pytest.mark.parametrize(
    "body",
    [
        json.dumps(GOOD_BODY | {"expires_in": PROVIDER["text"]}),
        "{" + PROVIDER["text"],
        "\udcff" + PROVIDER["text"],
        json.dumps({"error": PROVIDER["text"]}),
    ],
)
def test_a_traceback_of_a_refusal_shows_no_secret(body: str) -> None:
    """Not even the errors behind an error repeat what a provider wrote."""
    raw = body.encode("utf-8", "surrogateescape")
    with pytest.raises(ServiceError) as caught:
        read_answer(200, {}, raw, grant="refresh_token", rules=Rules())
    assert shown("".join(traceback.format_exception(caught.value))) == []
    behind: BaseException | None = caught.value
    while behind is not None:
        assert shown(repr(behind) + repr(behind.args)) == []
        behind = behind.__cause__ or behind.__context__
    assert caught.value.code in Code
