"""What the two peers of the service get wrong, by the number of the list, tried on this one.

| No | Here |
|---|---|
| P1, P2 | one refresh in flight: here and in test_reports (10); across processes in test_renewal_races |
| P3 | here |
| P4 | test_renewal_rules (rule 4), test_renewal_outages |
| P5 | here |
| P6, P7 | here |
| P8 | the reader hands declared fields on: test_reports (17) |
| P9, P10 | here and in test_tokens |
| P11 to P18 | here, in all their forms in test_hostile_answers and test_tokens |
| P19 to P22 | here and in test_inbound |
| P23, P24 | here |
| P25 | here and in test_inbound |
| P26 to P29 | refused or expressed by declarations: tests/connections; what the service adds is here |
| P30 | here; the size of the environment is the container's test |
| P31 | here |
| P32 | here and in test_addresses; each request has a connection of its own on purpose |
"""

from __future__ import annotations

import asyncio
import json
import logging
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from connections_runtime.authority import Authority, make_authority
from connections_runtime.conftest import Serve
from connections_runtime.provider import ACCESS, PATIENCE, Provider, granted, response
from connections_runtime.running import (
    CHALLENGE,
    CLIENT_ID,
    CLIENT_SECRET,
    EXCHANGE,
    VERIFIER,
    LocalService,
    address,
    command,
    connection,
    error_code,
    kept_environment,
)
from segmentstream.connections import ConnectionDeclarationError
from segmentstream_connections_runtime.app import JsonFormatter
from segmentstream_connections_runtime.schemas import TokenSetAnswer

REFRESHES = address("it", "token/refresh")
EXCHANGES = address("it", "token/exchange")


@pytest.fixture
def log() -> Iterator[list[dict[str, Any]]]:
    """The lines of the service's log, as an operator sees them."""
    lines: list[dict[str, Any]] = []

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append(json.loads(JsonFormatter().format(record)))

    logger, handler = logging.getLogger("segmentstream"), Handler()
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    yield lines
    logger.removeHandler(handler)
    logger.setLevel(level)


@pytest.mark.parametrize(
    ("path", "body"), [(REFRESHES, {"refreshToken": "r"}), (EXCHANGES, EXCHANGE)], ids=["P2", "P3"]
)
def test_p1_p2_p3_parallel_calls_are_one_request(
    path: str, body: dict[str, str], provider: Provider, serve: Serve
) -> None:
    """Five parallel calls send one request, and all of them succeed."""
    service = serve(provider.url("gated"))

    async def work(client: httpx.AsyncClient) -> list[httpx.Response]:
        calls = [asyncio.create_task(client.post(path, json=body)) for _ in range(5)]
        await asyncio.to_thread(provider.wait_for_requests, 1)
        provider.gate.set()
        return await asyncio.gather(*calls)

    assert [answer.status_code for answer in service.run(work)] == [200] * 5
    assert len(provider.requests) == 1


def test_p5_a_caller_hears_what_to_do(provider: Provider, serve: Serve) -> None:
    """A dead grant, a wrong client, a limit and an outage have four codes, not one."""
    answers = {
        "oauth_reauthorization_required": response(
            {"error": "invalid_grant"}, status="400 Bad Request"
        ),
        "oauth_client_rejected": response({"error": "invalid_client"}, status="401 Unauthorized"),
        "oauth_rate_limited": response({}, status="429 Too Many Requests"),
        "oauth_provider_unavailable": response({}, status="500 Internal Server Error"),
    }
    told = [error_code(serve(provider.replies(raw)).refresh()) for raw in answers.values()]
    assert told == list(answers)


@pytest.mark.parametrize(
    ("scope", "scopes", "missing"),
    [
        ("read,write", ["read", "write"], []),
        (["read", "write"], ["read", "write"], []),
        (["write", "read"], ["write", "read"], []),
        (None, ["read", "write"], []),
        ("", [], ["read", "write"]),
        ("read read write", ["read", "write"], []),
        ("read é write", ["read", "write"], []),
        ("read", ["read"], ["write"]),
        ("other", ["other"], ["read", "write"]),
        ("read write more", ["read", "write", "more"], []),
    ],
)
def test_p6_p7_scopes_that_differ_cost_no_token(
    scope: object, scopes: list[str], missing: list[str], provider: Provider, serve: Serve
) -> None:
    """After a code is spent its tokens are always told, and so is what they do not cover."""
    answer = serve(provider.replies(response(granted(scope=scope)))).exchange()
    assert answer.status_code == 200
    told = answer.json()
    assert (told["accessToken"], told["scopes"], told["missingScopes"]) == (ACCESS, scopes, missing)


@pytest.mark.parametrize("expires_in", [0, "", 3599.5, "3600.0", None])
def test_p9_p10_a_lifetime_of_any_shape_costs_no_token(
    expires_in: object, provider: Provider, serve: Serve
) -> None:
    """A lifetime as text, with a fraction, or none at all, connects."""
    answer = serve(provider.replies(response(granted(expires_in=expires_in)))).exchange()
    assert answer.json()["accessToken"] == ACCESS


@pytest.mark.parametrize(
    "body",
    [b'{"access_token":"a","expires_in":' + b"1" * 5000 + b"}", b"[" * 100_000],
    ids=["P11 digits", "P11 depth"],
)
def test_p11_a_hostile_answer_is_the_providers_fault(
    body: bytes, provider: Provider, serve: Serve
) -> None:
    """Neither the caller nor the service is blamed for a number or a nesting without end."""
    answer = serve(provider.replies(response(body))).refresh()
    assert (answer.status_code, error_code(answer)) == (502, "oauth_provider_unreadable")


def test_p13_a_redirect_takes_no_secret_along(
    authority: Authority, provider: Provider, serve: Serve
) -> None:
    """Client credentials in a header go to the declared host and to no other."""
    location = [("Location", provider.url("good").replace("localhost", "127.0.0.1"))]
    for status in ("301 Moved", "302 Found", "307 Temporary Redirect", "308 Permanent Redirect"):
        url = provider.replies(response(b"", status=status, headers=location))
        serve(url, client_authentication="client_secret_basic").refresh()
    assert len(provider.requests) == 4
    assert "/good" not in {request.path for request in provider.requests}


def test_p16_a_token_with_a_line_break_is_refused(provider: Provider, serve: Serve) -> None:
    """A token that would end a header early never leaves the service."""
    for token in ("a\r\nX-Injected: 1", "a b", " "):
        answer = serve(provider.replies(response(granted(access_token=token)))).refresh()
        assert error_code(answer) == "oauth_token_response_invalid"


def test_p17_an_error_beside_tokens_is_a_refusal(provider: Provider, serve: Serve) -> None:
    """Tokens that stand beside an error are not taken."""
    answer = serve(provider.replies(response(granted(error="invalid_grant")))).refresh()
    assert error_code(answer) == "oauth_reauthorization_required"


def test_p18_a_page_of_a_firewall_is_no_verdict(provider: Provider, serve: Serve) -> None:
    """A page with 403 says nothing about the grant: the call may be made again."""
    answer = serve(provider.url("page_403")).refresh()
    assert error_code(answer) == "oauth_provider_unreadable"


def test_p19_the_log_tells_failures_apart(
    authority: Authority,
    provider: Provider,
    serve: Serve,
    log: list[dict[str, Any]],
    tmp_path: Path,
) -> None:
    """A wrong certificate, a missing secret, an unknown name and a refusal look different."""
    serve(provider.url("good"), ca_file=make_authority(tmp_path).ca_file).refresh()
    serve(provider.url("good"), variables={}).refresh()
    serve("https://no-such-host.invalid/token").refresh()
    serve(provider.url("good"), allows_private=False).refresh()
    serve(provider.url("page_403")).refresh()
    serve(
        provider.replies(response({"error": "invalid_grant"}, status="400 Bad Request"))
    ).refresh()
    told = [
        (line["code"], line.get("detail"), line.get("provider_status"), line.get("provider_code"))
        for line in log
    ]
    assert told == [
        (
            "oauth_provider_unavailable",
            "Its certificate is not trusted, or is for another name.",
            None,
            None,
        ),
        (
            "runtime_unavailable",
            (
                "The variable SEGMENTSTREAM_CONNECTION_SECRET_THE_ID is not set, or holds a line break "
                "or what is no text."
            ),
            None,
            None,
        ),
        ("oauth_provider_unavailable", "Its name is not known.", None, None),
        (
            "oauth_provider_unavailable",
            "Its name leads to a private or local address, which is refused.",
            None,
            None,
        ),
        ("oauth_provider_unreadable", None, 403, None),
        ("oauth_reauthorization_required", None, 400, "invalid_grant"),
    ]
    assert all(line["path"] == REFRESHES and line["milliseconds"] >= 0 for line in log)
    assert len({line["request_id"] for line in log}) == len(log)


def test_p19_a_fault_of_the_service_is_placed(
    serve: Serve, log: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log names the class and the place of a bug; the caller gets the id of that line."""
    service = serve("https://localhost:1/token")

    def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError("a text with a secret")

    monkeypatch.setattr(service.service, "start", broken)
    answer = service.start()
    [line] = log
    assert (line["fault"], line["status"]) == ("ZeroDivisionError", 500)
    assert "broken" in line["at"]
    assert line["request_id"] == answer.json()["error"]["id"]
    assert "secret" not in json.dumps(line)


def test_p24_a_provider_on_this_machine_can_be_declared(provider: Provider, serve: Serve) -> None:
    """For tests and a local login, loopback addresses are allowed, and one setting opens them."""
    assert serve(provider.url("good")).exchange(redirectUri="http://127.0.0.1:5000/").json()


def test_p26_an_authorization_address_has_each_parameter_once(serve: Serve) -> None:
    """RFC 6749 section 3.1 allows each once: what the service sets cannot be declared beside it."""
    service = serve(
        "https://localhost:1/token",
        authorization_url="https://provider.example/authorize?tenant=a%20b",
        authorization_parameters={"access_type": "offline", "prompt": "consent select_account"},
        scopes=["read", "https://provider.example/auth/x"],
    )
    url = service.start().json()["authorizationUrl"]
    assert httpx.URL(url).params.multi_items() == [
        ("tenant", "a b"),
        ("access_type", "offline"),
        ("prompt", "consent select_account"),
        ("response_type", "code"),
        ("client_id", CLIENT_ID),
        ("redirect_uri", "https://app.example.com/callback"),
        ("state", "state-of-the-caller"),
        ("scope", "read https://provider.example/auth/x"),
        ("code_challenge", CHALLENGE),
        ("code_challenge_method", "S256"),
    ]
    assert "+" not in url
    with pytest.raises(ConnectionDeclarationError):
        connection(
            "https://localhost:1/token",
            authorization_url="https://provider.example/authorize?state=mine",
        )


@pytest.mark.parametrize(
    "token_url",
    [
        "https://169.254.169.254/token",
        "https://localhost/token",
        "https://[::1]/token",
        "https://127.0.0.1/token",
    ],
)
def test_p27_a_token_address_inside_is_not_called(token_url: str, serve: Serve) -> None:
    """Metadata servers and this machine are refused before a connection is made."""
    answer = serve(token_url, allows_private=False).refresh()
    assert error_code(answer) == "oauth_provider_unavailable"
    assert "private or local address" in answer.json()["error"]["message"]


def test_p25_p26_a_request_for_tokens_has_each_parameter_once(
    provider: Provider, serve: Serve
) -> None:
    """The exchange is exactly that of RFC 6749 section 4.1.3 and RFC 7636 section 4.5."""
    serve(provider.url("good"), token_parameters={"audience": "a b&c"}).exchange()
    assert provider.requests[0].form == {
        "grant_type": "authorization_code",
        "code": EXCHANGE["code"],
        "redirect_uri": EXCHANGE["redirectUri"],
        "code_verifier": VERIFIER,
        "audience": "a b&c",
        "client_id": CLIENT_ID,
        "client_secret": CLIENT_SECRET,
    }
    assert provider.requests[0].body.count("&") == 6
    assert provider.requests[0].headers["content-type"] == "application/x-www-form-urlencoded"
    assert provider.requests[0].headers["accept"] == "application/json"
    assert provider.requests[0].headers["user-agent"] == "segmentstream-connections"


def test_a_refresh_asks_for_no_scope(provider: Provider, serve: Serve) -> None:
    """A refresh is exactly that of RFC 6749 section 6, and narrows nothing."""
    serve(provider.url("good")).refresh()
    assert provider.requests[0].form == {
        "grant_type": "refresh_token",
        "refresh_token": "refresh-token-of-the-caller",
        "client_id": CLIENT_ID,
        "client_secret": CLIENT_SECRET,
    }


@pytest.mark.parametrize("value", [True, None, ["a", "b"], 1])
def test_p28_a_parameter_that_is_no_text_is_refused(value: object) -> None:
    """Nothing is made a text in silence."""
    with pytest.raises(ConnectionDeclarationError):
        connection("https://localhost:1/token", token_parameters={"audience": value})


def test_p29_a_connection_may_have_no_scopes(provider: Provider, serve: Serve) -> None:
    """Where a provider has none, none is asked for and none is missed."""
    service = serve(provider.url("good"), scopes=[])
    assert "scope" not in httpx.URL(service.start().json()["authorizationUrl"]).params
    assert serve(provider.url("good"), scopes=[]).exchange().json()["missingScopes"] == []


@pytest.mark.parametrize("folder", ["workspace", "nothing"])
def test_p30_a_wrong_folder_is_told_in_a_sentence(folder: str, tmp_path: Path) -> None:
    """From the workspace's root the way is named; nowhere is there a traceback."""
    if folder == "workspace":
        (tmp_path / "connections").mkdir()
        (tmp_path / "connections" / "connections.py").write_text("connections = ()\n")
    ended = run("serve", folder=tmp_path)
    assert ended.returncode == 1
    assert "connections.py" in ended.stderr
    assert ("Change into connections/" in ended.stderr) == (folder == "workspace")
    assert "Traceback" not in ended.stderr


def test_p30_help_is_help(tmp_path: Path) -> None:
    """Both commands are described without a file to be there."""
    ended = run("--help", folder=tmp_path)
    assert ended.returncode == 0
    assert "inspect" in ended.stdout
    assert "serve" in ended.stdout


def run(*arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(*arguments),
        cwd=folder,
        env=kept_environment(),
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )


def test_p31_no_answer_holds_the_secret_of_the_client(provider: Provider, serve: Serve) -> None:
    """A caller gets tokens and never what would let it ask for tokens itself."""
    service = serve(provider.url("good"))
    started = service.start()
    answers = [
        started,
        serve(provider.url("good")).exchange(),
        serve(provider.url("good")).refresh(),
    ]
    assert [answer.status_code for answer in answers] == [200, 200, 200]
    assert all(CLIENT_SECRET not in answer.text for answer in answers)
    fields = {field.alias for field in TokenSetAnswer.model_fields.values()}
    assert set(answers[1].json()) == fields
    assert fields == {
        "accessToken",
        "refreshToken",
        "tokenType",
        "expiresIn",
        "scopes",
        "missingScopes",
        "metadata",
    }


def test_p32_certificates_are_loaded_once(
    provider: Provider, serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The slow part of TLS is done once, with the first request, and not for each."""
    service = serve(provider.url("good"))

    def loads(*_: object, **__: object) -> None:
        raise AssertionError("loads certificates again")

    async def twice(client: httpx.AsyncClient) -> list[int]:
        first = await client.post(REFRESHES, json={"refreshToken": "a"})
        monkeypatch.setattr("ssl.SSLContext.load_default_certs", loads)
        monkeypatch.setattr("ssl.create_default_context", loads)
        second = await client.post(REFRESHES, json={"refreshToken": "b"})
        return [first.status_code, second.status_code]

    assert service.run(twice) == [200, 200]


def test_p22_p23_two_connections_need_no_cloud(provider: Provider, authority_file: Path) -> None:
    """Variables and declarations are all that the service needs, however many connections."""
    url = provider.url("good")
    service = LocalService(connection(url), connection(url, key="two"), ca_file=authority_file)

    async def both(client: httpx.AsyncClient) -> list[int]:
        return [
            (
                await client.post(address(key, "token/refresh"), json={"refreshToken": "r"})
            ).status_code
            for key in ("it", "two")
        ]

    assert service.run(both) == [200, 200]
