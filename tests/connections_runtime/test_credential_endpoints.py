"""The addresses of the service for those who leave their tokens with it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest
import schemathesis
from hypothesis import given, settings
from schemathesis import GenerationMode
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    negative_data_rejection,
    response_schema_conformance,
    status_code_conformance,
)

from connections_runtime.authority import Authority
from connections_runtime.keeping import OLD_REFRESH, Keeping, keeping
from connections_runtime.provider import ACCESS, REFRESH, Provider, granted, response
from connections_runtime.running import (
    CLIENT_SECRET,
    REDIRECT,
    ServiceProcess,
    address,
    error_code,
    running_service,
)
from segmentstream_connections_runtime import openapi
from segmentstream_connections_runtime.app import make_app
from segmentstream_connections_runtime.composition import provider_client
from segmentstream_connections_runtime.durable import DurableConnections
from segmentstream_connections_runtime.oauth import OAuthClient
from segmentstream_connections_runtime.secrets.environment import EnvironmentSecrets
from segmentstream_connections_runtime.service import ConnectionService
from segmentstream_connections_runtime.settings import ServiceSettings

GOOD = response(granted())
DEAD = response({"error": "invalid_grant"}, status="400 Bad Request")
COMPLETE = "/internal/v1/credential/complete"
LIST = "/internal/v1/credentials"
RESOLVE = address("it", "access-token/resolve")
BEGIN = address("it", "credential/start")
REFRESH_NOW = address("it", "credential/refresh")
DISCONNECT = address("it", "credential/disconnect")

type Call = Callable[..., httpx.Response]
type Made = Callable[..., Keeping]


@pytest.fixture
def made(tmp_path: Path, authority: Authority) -> Made:
    """Makes what keeps credentials, for a connection at a token address."""

    def make(token_url: str, **changes: Any) -> Keeping:
        return keeping(tmp_path, authority.ca_file, token_url, **changes)

    return make


def served[T](it: Keeping, work: Callable[[httpx.AsyncClient], Awaitable[T]]) -> T:
    """Runs work that calls a service with those credentials."""

    async def all_of_it(durable: DurableConnections | None) -> T:
        how = ServiceSettings(allows_private_providers=True, ca_file=str(it.ca_file))
        provider = provider_client(how)
        secrets = EnvironmentSecrets(it.variables)
        service = ConnectionService(it.connections, OAuthClient(provider, secrets), secrets)
        app = make_app(service, provider, how, durable=durable, checks_store=True)
        transport = httpx.ASGITransport(app, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://service") as client:
            try:
                return await work(client)
            finally:
                await provider.close()

    return it.run(all_of_it)


def call(it: Keeping, path: str, body: object = None) -> httpx.Response:
    """Calls it once."""
    return served(it, lambda client: client.post(path, json={} if body is None else body))


# --- The way of a person, and of a pipeline ----------------------------------------------------------


def test_a_person_authorizes_and_a_pipeline_gets_tokens(provider: Provider, made: Made) -> None:
    """From the beginning to a token that works, to another, to the end, over HTTP alone."""
    second = response(granted(access_token="second", refresh_token="rotated"))
    it = made(provider.replies(GOOD, second), revocation_url=provider.replies(response("")))

    async def work(client: httpx.AsyncClient) -> list[httpx.Response]:
        listed = await client.get(LIST)
        assert [each["state"] for each in listed.json()["credentials"]] == ["not_connected"]
        begun = await client.post(BEGIN, json={"redirectUri": REDIRECT})
        state = parse_qs(urlsplit(begun.json()["authorizationUrl"]).query)["state"][0]
        body = {"callback": {"state": state, "code": "x"}, "binding": begun.json()["binding"]}
        completed = await client.post(COMPLETE, json=body)
        assert completed.json()["state"] == "connected"
        resolved = await client.post(RESOLVE, json={})
        assert resolved.json()["accessToken"] == ACCESS
        assert resolved.json()["tokenNumber"] == 1
        again = await client.post(RESOLVE, json={"rejectedTokenNumber": 1})
        assert again.json()["accessToken"] == ACCESS  # it is seconds old: not refused for its age
        it.clock.time += 60
        again = await client.post(RESOLVE, json={"rejectedTokenNumber": 1})
        assert (again.json()["accessToken"], again.json()["tokenNumber"]) == ("second", 2)
        now = await client.post(REFRESH_NOW, json={})
        assert now.json()["tokenNumber"] == 3
        ended = await client.post(DISCONNECT, json={})
        assert ended.json() == {"revoked": True}
        gone = await client.post(RESOLVE, json={})
        assert (gone.status_code, error_code(gone)) == (404, "credential_not_found")
        return [listed, begun, completed, resolved, again, now, ended, gone]

    answers = served(it, work)
    assert {answer.headers["cache-control"] for answer in answers} == {"no-store"}
    told = "".join(answer.text for answer in answers)
    for secret in (REFRESH, "rotated", OLD_REFRESH, CLIENT_SECRET):
        assert secret not in told


def test_fifty_callers_get_the_same_token_from_one_refresh(provider: Provider, made: Made) -> None:
    """P1: the provider sees one refresh, and the next one works."""
    it = made(provider.url("gated"))
    it.put()

    async def work(client: httpx.AsyncClient) -> list[httpx.Response]:
        calls = [asyncio.create_task(client.post(RESOLVE, json={})) for _ in range(50)]
        await asyncio.to_thread(provider.wait_for_requests, 1)
        provider.gate.set()
        return await asyncio.gather(*calls)

    answers = served(it, work)
    assert {answer.status_code for answer in answers} == {200}
    assert len({answer.json()["accessToken"] for answer in answers}) == 1
    assert len(provider.requests) == 1


def test_a_dead_grant_is_told_as_such_and_not_as_a_passing_fault(
    provider: Provider, made: Made
) -> None:
    """P5: the caller hears that a person has to authorize again, with a code of its own."""
    it = made(provider.replies(DEAD))
    it.put()
    answer = call(it, RESOLVE)
    assert (answer.status_code, error_code(answer)) == (400, "oauth_reauthorization_required")


def test_no_answer_ever_holds_what_renews_a_token(provider: Provider, made: Made) -> None:
    """P31: neither schema nor answer of a durable address has a place for it."""
    schemas = openapi.document()["components"]["schemas"]
    durable = {"AccessAnswer", "CredentialAnswer", "CredentialsAnswer", "CredentialStartAnswer"}
    for name in durable:
        fields = {field.lower() for field in schemas[name]["properties"]}
        assert not fields & {"refreshtoken", "clientsecret", "clientid", "codeverifier"}


def test_a_service_that_keeps_nothing_says_so(provider: Provider, made: Made) -> None:
    """Where no store is named on Cloud Run, these addresses answer 503 with the reason."""
    it = made(provider.replies(GOOD))
    how = ServiceSettings(allows_private_providers=True, ca_file=str(it.ca_file))

    async def work() -> httpx.Response:
        client_of_providers = provider_client(how)
        secrets = EnvironmentSecrets(it.variables)
        oauth = OAuthClient(client_of_providers, secrets)
        service = ConnectionService(it.connections, oauth, secrets)
        transport = httpx.ASGITransport(make_app(service, client_of_providers, how))
        async with httpx.AsyncClient(transport=transport, base_url="http://service") as client:
            return await client.get(LIST)

    answer = asyncio.run(work())
    assert (answer.status_code, error_code(answer)) == (503, "runtime_unavailable")
    assert "SEGMENTSTREAM_CREDENTIAL_STORE" in answer.json()["error"]["message"]


def test_it_is_ready_only_while_the_store_works(provider: Provider, made: Made) -> None:
    """A store that cannot be opened is named, and nothing about its address."""
    it = made(provider.replies(GOOD))
    it.put()
    assert served(it, lambda client: client.get("/ready")).json()["status"] == "ok"
    file = it.folder / ".segmentstream" / "credentials.db"
    file.write_bytes(b"no database at all, but long enough to be read as one" * 10)
    answer = served(it, lambda client: client.get("/ready"))
    assert (answer.status_code, answer.json()["missing"]) == (503, ["credential store"])
    assert str(it.folder) not in answer.text


# --- As the document says -----------------------------------------------------------------------------

DURABLE = [
    (path, mode)
    for path, operation in openapi.OPERATIONS.items()
    if "authorization/" not in path and "/token/" not in path
    for mode in (GenerationMode.POSITIVE, GenerationMode.NEGATIVE)
    if operation.request is not None or mode is GenerationMode.POSITIVE
]
CHECKS = [status_code_conformance, content_type_conformance, response_schema_conformance]


@pytest.mark.slow
@pytest.mark.parametrize(("path", "mode"), DURABLE)
def test_any_request_gets_an_answer_that_the_document_declares(
    path: str, mode: GenerationMode, provider: Provider, made: Made
) -> None:
    """Of the described form or of another, with a credential or without: never 500."""
    it = made(provider.replies(GOOD))
    it.put()
    operation = openapi.OPERATIONS[path]
    method = "GET" if operation.request is None else "POST"
    described = schemathesis.openapi.from_dict(openapi.document())[f"/internal/v1/{path}"][method]

    @settings(deadline=None, max_examples=25)
    @given(case=described.as_strategy(generation_mode=mode))
    def each(*, case: schemathesis.Case[Any]) -> None:
        if "key" in case.path_parameters and mode is GenerationMode.NEGATIVE:
            case.path_parameters["key"] = "it"
        sent: dict[str, Any] = case.as_transport_kwargs(base_url="http://service")
        if "data" in sent:
            sent["content"] = sent.pop("data")
        known = {"method", "url", "params", "headers", "json", "content"}
        request = {name: value for name, value in sent.items() if name in known}
        answer = served(it, lambda client: client.request(**request))
        assert answer.status_code != 500
        # A body beyond 64 KiB is refused unread, which schemathesis does not count as rejected.
        is_judged = mode is GenerationMode.NEGATIVE and answer.status_code != 413
        checks = [*CHECKS, negative_data_rejection] if is_judged else CHECKS
        case.validate_response(answer, checks=checks)

    each()


# --- The service as users run it -----------------------------------------------------------------------


@pytest.fixture
def process(
    tmp_path: Path, provider: Provider, trusting: dict[str, str]
) -> Iterator[ServiceProcess]:
    """The service with a store of its own in the workspace."""
    folder = tmp_path / "workspace" / "connections"
    folder.mkdir(parents=True)
    variables = {**trusting, "XDG_CONFIG_HOME": str(tmp_path / "configuration")}
    with running_service(folder, {"it": provider.replies(GOOD)}, variables) as service:
        yield service


def test_the_process_keeps_credentials_in_the_workspace(
    process: ServiceProcess, tmp_path: Path
) -> None:
    """Without any setting: a sealed file beside the declarations, its key elsewhere, no secret in logs."""
    begun = process.post("it", "credential/start", {"redirectUri": REDIRECT}).json()
    state = parse_qs(urlsplit(begun["authorizationUrl"]).query)["state"][0]
    body = {"callback": {"state": state, "code": "the-code"}, "binding": begun["binding"]}
    with httpx.Client(base_url=process.url, trust_env=False) as client:
        assert client.post(COMPLETE, json=body).json()["state"] == "connected"
    resolved = process.post("it", "access-token/resolve", {})
    assert resolved.json()["accessToken"] == ACCESS
    assert 3500 < resolved.json()["expiresIn"] <= 3600
    process.wait_for_log(resolved.headers["x-request-id"])

    file = tmp_path / "workspace" / ".segmentstream" / "credentials.db"
    keys = tmp_path / "configuration" / "segmentstream" / "credential-keys.json"
    assert file.stat().st_mode & 0o777 == 0o600
    assert keys.stat().st_mode & 0o777 == 0o600
    for secret in (ACCESS, REFRESH, state, begun["binding"], "the-code"):
        assert secret.encode() not in file.read_bytes()
        assert secret not in process.log
