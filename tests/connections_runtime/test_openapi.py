from __future__ import annotations

import json
import string
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import jsonschema_rs
import pytest
import schemathesis
from hypothesis import given, settings
from hypothesis import strategies as st
from schemathesis import Case, GenerationMode
from schemathesis.core.failures import FailureGroup
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    negative_data_rejection,
    response_schema_conformance,
    status_code_conformance,
)

from connections_runtime.authority import Authority
from connections_runtime.provider import (
    Conversation,
    Provider,
    granted,
    response,
    running_provider,
)
from connections_runtime.running import (
    EXCHANGE,
    REFRESH,
    START,
    LocalService,
    address,
    connection,
    error_code,
)
from segmentstream_connections_runtime import openapi
from segmentstream_connections_runtime.endpoints import routes
from segmentstream_connections_runtime.errors import OUTCOMES, Code

PREFIX = "/internal/v1/connections/{key}"
DOCUMENT = openapi.document()
UNDER = "connections/{key}/"
# What a service that keeps no credentials does; test_credential_endpoints.py tries the rest.
OPERATIONS = ["authorization/start", "token/exchange", "token/refresh"]
# What the provider of each connection answers, by the connection's key.
ANSWERS = {
    "good": response(granted()),
    "all": response(granted(expires_in=None, scope=None, refresh_token=None)),
    "refused": response({"error": "invalid_grant"}, status="400 Bad Request"),
    "client": response({"error": "invalid_client"}, status="401 Unauthorized"),
    "odd": response({"error": "made_up"}, status="400 Bad Request"),
    "empty": response({}),
    "page": response("<html>", media_type="text/html"),
    "later": response("", status="429 Too Many Requests", headers=[("Retry-After", "7")]),
    "away": response("", status="503 Service Unavailable"),
    "cut": b"HTTP/1.1 200 OK\r\nContent-Le",
    "garbage": b"\x00\xff\r\n\r\n",
}
BODIES = {"authorization/start": START, "token/exchange": EXCHANGE, "token/refresh": REFRESH}
OPEN = ["/internal/v1/openapi.json", "/health", "/ready"]
DECLARES = [status_code_conformance, content_type_conformance, response_schema_conformance]


@pytest.fixture(scope="module")
def provider(authority: Authority) -> Iterator[Provider]:
    """The provider of all those connections."""

    def answering(answer: bytes) -> Any:
        def scenario(conversation: Conversation) -> None:
            conversation.send(answer)
            conversation.close()

        return scenario

    with running_provider(authority.server_context("localhost")) as running:
        running.scenarios |= {key: answering(answer) for key, answer in ANSWERS.items()}
        yield running


class Connections:
    """Makes a service with all those connections, and one that lacks its secrets."""

    def __init__(self, provider: Provider, ca_file: Path) -> None:
        self._connections = [connection(provider.url(key), key=key) for key in ANSWERS]
        self._ca_file = ca_file

    def call(self, case: Case[Any], *, has_secrets: bool) -> httpx.Response:
        """Sends what was made up, by a way that a real request takes."""
        options: dict[str, Any] = {} if has_secrets else {"variables": {}}
        service = LocalService(*self._connections, ca_file=self._ca_file, **options)
        # Any: what its transport for `requests` takes.
        sent: dict[str, Any] = case.as_transport_kwargs(base_url="http://service")
        if "data" in sent:
            sent["content"] = sent.pop("data")
        known = {"method", "url", "params", "headers", "json", "content"}
        request = {name: value for name, value in sent.items() if name in known}
        return service.run(lambda client: client.request(**request))


@pytest.fixture(scope="module")
def connections(provider: Provider, authority: Authority) -> Connections:
    return Connections(provider, authority.ca_file)


def operation(path: str) -> Any:
    """Gives an operation of the document, as schemathesis reads it."""
    return schemathesis.openapi.from_dict(DOCUMENT)[f"{PREFIX}/{path}"]["POST"]


# --- The document ------------------------------------------------------------------------------


def test_the_document_is_openapi_3_1() -> None:
    """It keeps to the schema of OpenAPI 3.1, and every schema in it to JSON Schema 2020-12."""
    assert DOCUMENT["openapi"].startswith("3.1.")
    schemathesis.openapi.from_dict(DOCUMENT).validate()
    for schema in DOCUMENT["components"]["schemas"].values():
        jsonschema_rs.meta.validate(schema)
    broken = DOCUMENT | {"paths": {PREFIX: {"post": {"responses": []}}}}
    with pytest.raises(Exception, match="responses|\\[\\]"):
        schemathesis.openapi.from_dict(broken).validate()


def test_every_reference_of_the_document_leads_somewhere() -> None:
    """A reader of the document needs nothing else."""
    held = {f"#/components/schemas/{name}" for name in DOCUMENT["components"]["schemas"]}
    assert set(references(DOCUMENT)) == held


def references(value: object) -> Iterator[str]:
    match value:
        case {"$ref": str(found)}:
            yield found
        case dict():
            for inner in value.values():
                yield from references(inner)
        case list():
            for inner in value:
                yield from references(inner)


def test_the_document_has_every_address_of_a_connection() -> None:
    """What callers can call is described, and nothing else is."""
    served = {
        route.path: (route.methods or set()) - {"HEAD"}
        for route in routes()
        if route.path not in OPEN
    }
    described = {
        path: {method.upper() for method in methods} for path, methods in DOCUMENT["paths"].items()
    }
    assert served == described


def test_the_document_tells_every_code() -> None:
    """Each outcome that a call of a connection can have stands by its name at its status."""
    told: dict[str, set[int]] = {}
    answers = [
        each
        for methods in DOCUMENT["paths"].values()
        for operation in methods.values()
        for each in operation["responses"].items()
    ]
    for status, answer in answers:
        for code in Code:
            if f"`{code.value}`" in answer["description"]:
                told.setdefault(code.value, set()).add(int(status))
    elsewhere = {Code.NOT_FOUND, Code.METHOD_NOT_ALLOWED}
    assert told == {code.value: {OUTCOMES[code].status} for code in Code if code not in elsewhere}


# --- What is answered --------------------------------------------------------------------------


@pytest.mark.parametrize("path", OPERATIONS)
def test_every_status_that_the_document_declares_is_answered(
    path: str, connections: Connections
) -> None:
    """Each comes with the body that stands there, and none is declared that never comes."""
    statuses = set()
    tried = [(key, BODIES[path], "application/json", True) for key in [*ANSWERS, "none"]] + [
        ("good", BODIES[path], "application/json", False),
        ("good", BODIES[path], "text/plain", True),
        ("good", BODIES[path] | {"variables": {"a": "b" * 70_000}}, "application/json", True),
        ("good", {}, "application/json", True),
    ]
    for key, body, media_type, has_secrets in tried:
        case = operation(path).Case(path_parameters={"key": key}, body=body)
        case.media_type = "application/json"
        case.headers = {"Content-Type": media_type}
        answer = connections.call(case, has_secrets=has_secrets)
        conforms(case, answer)
        statuses.add(str(answer.status_code))
    declared = set(DOCUMENT["paths"][f"{PREFIX}/{path}"]["post"]["responses"])
    assert statuses == declared - {"401", "500"}  # an authenticator, and a fault of the service


@pytest.mark.slow
@pytest.mark.parametrize("path", OPERATIONS)
def test_what_the_document_allows_gets_an_answer_that_it_declares(
    path: str, connections: Connections
) -> None:
    """A request of the described form is answered with a described status and body, never 500."""

    @settings(deadline=None, max_examples=60)
    @given(
        case=operation(path).as_strategy(generation_mode=GenerationMode.POSITIVE),
        key=st.sampled_from([*ANSWERS, ""]),
        is_plain=st.booleans(),
        has_secrets=st.integers(0, 9).map(bool),
    )
    def each(*, case: Case[Any], key: str, is_plain: bool, has_secrets: bool) -> None:
        if key:
            case.path_parameters["key"] = key
        if is_plain:  # the connections have no variables, and want PKCE
            assert isinstance(case.body, dict)
            case.body.pop("variables", None)
            for name in {"codeChallenge", "codeVerifier"} & set(PROPERTIES[path]):
                case.body[name] = "a" * 43
        answer = connections.call(case, has_secrets=has_secrets)
        conforms(case, answer)
        if is_plain and answer.status_code == 400:
            assert error_code(answer) != "invalid_request"

    each()


@pytest.mark.slow
@pytest.mark.parametrize("path", OPERATIONS)
def test_what_the_document_does_not_allow_is_refused_as_it_declares(
    path: str, connections: Connections
) -> None:
    """A request of another form is refused with a described status and body, never with 500."""

    @settings(deadline=None, max_examples=60)
    @given(
        case=operation(path).as_strategy(generation_mode=GenerationMode.NEGATIVE),
        key=st.sampled_from([*ANSWERS, ""]),
    )
    def each(*, case: Case[Any], key: str) -> None:
        if key:
            case.path_parameters["key"] = key
        answer = connections.call(case, has_secrets=True)
        # A body beyond 64 KiB is refused unread, which schemathesis does not count as rejected.
        conforms(case, answer, *[negative_data_rejection] * (answer.status_code != 413))
        assert answer.is_client_error

    each()


PROPERTIES = {
    path: DOCUMENT["components"]["schemas"][request.__name__]["properties"]
    for path in OPERATIONS
    if (request := openapi.OPERATIONS[UNDER + path].request) is not None
}


def conforms(case: Case[Any], answer: httpx.Response, *checks: Any) -> None:
    """Checks that the document declares what was answered."""
    assert answer.status_code != 500
    try:
        case.validate_response(answer, checks=[*DECLARES, *checks])
    except FailureGroup as failures:
        pytest.fail("\n".join(str(failure) for failure in failures.exceptions))


@settings(deadline=None, max_examples=200)
@given(
    method=st.sampled_from(
        ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "QUERY"]
    )
    | st.text(string.ascii_uppercase, min_size=1, max_size=20),
    path=st.text(string.printable[:-6] + "é%", max_size=40).map(lambda text: "/" + text)
    | st.sampled_from(
        [
            *(address("it", path) for path in OPERATIONS),
            *OPEN,
        ]
    ),
)
def test_unknown_addresses_and_methods_are_told_in_the_envelope(*, method: str, path: str) -> None:
    """Whatever method and address are made up, the answer is one of the table of outcomes."""
    service = LocalService(connection("https://localhost:1/token"), allows_private=False)
    answer = service.run(
        lambda client: client.request(method, "http://service" + quote(path, safe="/%"))
    )
    if answer.status_code == 200:
        assert method in {"GET", "HEAD"}
        assert path in OPEN
    elif method != "HEAD":
        found = {code.value: outcome.status for code, outcome in OUTCOMES.items()}
        assert found[error_code(answer)] == answer.status_code
        assert answer.status_code in {404, 405, 415}
        assert jsonschema_rs.is_valid(envelope(), answer.json())


def envelope() -> dict[str, Any]:
    """Gives the schema of a refusal on its own."""
    text = json.dumps(DOCUMENT["components"]["schemas"])
    return {
        "$ref": "#/$defs/ErrorAnswer",
        "$defs": json.loads(text.replace("#/components/schemas/", "#/$defs/")),
    }
