from __future__ import annotations

from typing import Any

import pytest

from connections_runtime.conftest import Serve
from connections_runtime.provider import ACCESS, REFRESH, Provider, granted, response
from connections_runtime.running import error_code

UNREADABLE = (502, "oauth_provider_unreadable")
UNAVAILABLE = (502, "oauth_provider_unavailable")
INVALID = (400, "oauth_token_response_invalid")
REJECTED = (400, "oauth_provider_rejected")
REAUTHORIZE = (400, "oauth_reauthorization_required")
CLIENT = (502, "oauth_client_rejected")
LIMITED = (429, "oauth_rate_limited")

BYTES = {
    "drop_before_headers": UNAVAILABLE,
    "drop_in_headers": UNAVAILABLE,
    "drop_after_headers": UNAVAILABLE,
    "reset": UNAVAILABLE,
    "broken_tls": UNAVAILABLE,
    "truncated": UNAVAILABLE,
    "garbage": UNAVAILABLE,
    "other_protocol": UNAVAILABLE,
    "http2_preface": UNAVAILABLE,
    "no_http_version": UNAVAILABLE,
    "status_of_two_digits": UNAVAILABLE,
    "status_of_words": UNAVAILABLE,
    "switched_protocols": UNAVAILABLE,
    "null_in_header": UNAVAILABLE,
    "header_without_name": UNAVAILABLE,
    "two_lengths": UNAVAILABLE,
    "negative_length": UNAVAILABLE,
    "length_of_words": UNAVAILABLE,
    "header_flood": UNAVAILABLE,
    "endless_headers": UNAVAILABLE,
    "long_header": UNREADABLE,
    "huge_body": UNREADABLE,
    "body_over_cap": UNREADABLE,
    "endless_body": UNREADABLE,
    "endless_chunks": UNREADABLE,
    "empty": UNREADABLE,
    "no_content": UNREADABLE,
    "chunked_bad_size": UNAVAILABLE,
    "chunked_huge_size": UNAVAILABLE,
    "chunked_negative_size": UNAVAILABLE,
    "chunked_truncated": UNAVAILABLE,
    "gzip_unlabelled": UNREADABLE,
    "gzip_label_on_plain": UNREADABLE,
    "gzip_truncated": UNREADABLE,
    "gzip_without_checksum": UNREADABLE,
    "gzip_bomb": UNREADABLE,
    "gzip_twice": UNREADABLE,
    "deflate_bomb": UNREADABLE,
    "brotli": UNREADABLE,
    "zstandard": UNREADABLE,
    "page_200": UNREADABLE,
    "page_403": UNREADABLE,
    "page_404": UNREADABLE,
    "page_503": UNAVAILABLE,
}


@pytest.mark.parametrize("scenario", BYTES)
def test_no_bytes_of_a_provider_are_a_fault_of_the_service(
    scenario: str, provider: Provider, serve: Serve
) -> None:
    """Whatever a provider sends that is no token answer has a code of its own, and one try only."""
    answer = serve(provider.url(scenario)).refresh()
    assert (answer.status_code, error_code(answer)) == BYTES[scenario]
    assert len(provider.requests) == 1


@pytest.mark.parametrize(
    "scenario",
    [
        "good",
        "no_length",
        "no_reason",
        "no_media_type",
        "body_at_cap",
        "chunked_well",
        "chunked_by_byte",
        "chunked_extension",
        "gzip_labelled",
        "gzip_old_name",
        "deflate",
        "deflate_bare",
    ],
)
def test_an_unusual_answer_that_is_allowed_is_read(
    scenario: str, provider: Provider, serve: Serve
) -> None:
    """What HTTP allows in framing and compression costs nobody a token."""
    answer = serve(provider.url(scenario)).refresh()
    assert answer.status_code == 200
    assert answer.json() == {
        "accessToken": ACCESS,
        "refreshToken": REFRESH,
        "tokenType": "Bearer",
        "expiresIn": 3600,
        "scopes": ["read", "write"],
        "missingScopes": [],
        "metadata": {},
    }


@pytest.mark.parametrize(
    "scenario",
    ["hang", "hang_after_headers", "slow_drip", "slow_headers", "endless_interim"],
)
def test_one_deadline_covers_the_whole_answer(
    scenario: str, provider: Provider, serve: Serve
) -> None:
    """A provider that is silent, or sends a byte just in time for ever, is hung up on."""
    answer = serve(provider.url(scenario), seconds=0.5).refresh()
    assert (answer.status_code, error_code(answer)) == UNAVAILABLE
    assert "too long" in answer.json()["error"]["message"]
    provider.wait_until(lambda: provider.hung_up == 1)


def test_a_second_response_is_not_the_answer_to_the_next_request(
    provider: Provider, serve: Serve
) -> None:
    """Bytes after an answer never reach the caller of the next request."""
    service = serve(provider.url("second_response"))

    async def twice(client: Any) -> list[str]:
        path = "/internal/v1/connections/it/token/refresh"
        answers = [await client.post(path, json={"refreshToken": text}) for text in ("a", "b")]
        return [str(answer.json().get("accessToken")) for answer in answers]

    assert "smuggled" not in service.run(twice)


def test_a_cookie_of_a_provider_is_not_sent_back(provider: Provider, serve: Serve) -> None:
    """What one answer sets does not travel with the request of another caller."""
    service = serve(provider.url("sets_cookie"))

    async def twice(client: Any) -> None:
        path = "/internal/v1/connections/it/token/refresh"
        for text in ("a", "b"):
            await client.post(path, json={"refreshToken": text})

    service.run(twice)
    assert [request.headers.get("cookie") for request in provider.requests] == [None, None]


@pytest.mark.parametrize(
    "status",
    ["301 Moved", "302 Found", "303 See Other", "307 Temporary Redirect", "308 Permanent Redirect"],
)
@pytest.mark.parametrize("authentication", ["client_secret_basic", "client_secret_post"])
def test_a_redirect_is_never_followed(
    status: str, authentication: str, provider: Provider, serve: Serve
) -> None:
    """No second request is made, neither to another host nor to the same."""
    elsewhere = provider.url("good").replace("localhost", "127.0.0.1")
    for target in (elsewhere, "/good"):
        url = provider.replies(response(b"", status=status, headers=[("Location", target)]))
        answer = serve(url, client_authentication=authentication).refresh()
        assert (answer.status_code, error_code(answer)) == UNREADABLE
        assert elsewhere not in answer.text
    assert "/good" not in [request.path for request in provider.requests]
    assert len(provider.requests) == 2


STATUSES: list[tuple[str, object, tuple[int, str], tuple[int, str]]] = [
    # what it answers, and what that means on an exchange and on a refresh
    ("401 Unauthorized", {"error": "invalid_client"}, CLIENT, CLIENT),
    ("400 Bad Request", {"error": "invalid_client"}, CLIENT, CLIENT),
    ("400 Bad Request", {"error": "unauthorized_client"}, CLIENT, CLIENT),
    ("401 Unauthorized", {}, CLIENT, CLIENT),
    ("400 Bad Request", {"error": "invalid_grant"}, REJECTED, REAUTHORIZE),
    ("401 Unauthorized", {"error": "invalid_grant"}, REJECTED, REAUTHORIZE),
    ("200 OK", granted(error="invalid_grant"), REJECTED, REAUTHORIZE),
    ("200 OK", granted(error="anything_else"), REJECTED, REJECTED),
    ("200 OK", {"ok": False, "error": "invalid_refresh_token"}, REJECTED, REAUTHORIZE),
    ("200 OK", granted(ok=False), REJECTED, REJECTED),
    ("200 OK", {"error": "bad_refresh_token"}, REJECTED, REAUTHORIZE),
    ("200 OK", {"error": "incorrect_client_credentials"}, CLIENT, CLIENT),
    ("200 OK", {"ok": False, "error": "bad_client_secret"}, CLIENT, CLIENT),
    ("400 Bad Request", {"error": "invalid_scope"}, REJECTED, REJECTED),
    ("400 Bad Request", {"errors": [{"errorType": "invalid_grant"}]}, REJECTED, REAUTHORIZE),
    ("400 Bad Request", {"errors": [{"message": "no"}]}, REJECTED, REJECTED),
    ("400 Bad Request", {"error": {"code": "invalid_client"}}, CLIENT, CLIENT),
    ("400 Bad Request", {"error": {"code": 190, "type": "OAuthException"}}, REJECTED, REJECTED),
    ("400 Bad Request", {"error": 17}, REJECTED, REJECTED),
    ("200 OK", granted(error=17), REJECTED, REJECTED),
    ("200 OK", granted(error=1.5), REJECTED, REJECTED),
    ("200 OK", granted(error=True), REJECTED, REJECTED),
    ("200 OK", granted(error={"code": "invalid_client"}), CLIENT, CLIENT),
    ("200 OK", granted(errors=["no"]), REJECTED, REJECTED),
    ("403 Forbidden", {"message": "no"}, REJECTED, REJECTED),
    ("404 Not Found", {"message": "no"}, REJECTED, REJECTED),
    ("429 Too Many Requests", {}, LIMITED, LIMITED),
    ("429 Too Many Requests", "slow down", LIMITED, LIMITED),
    ("400 Bad Request", {"error": "slow_down"}, LIMITED, LIMITED),
    ("500 Internal Server Error", {}, UNAVAILABLE, UNAVAILABLE),
    ("500 Internal Server Error", granted(), UNAVAILABLE, UNAVAILABLE),
    ("502 Bad Gateway", "", UNAVAILABLE, UNAVAILABLE),
    ("503 Service Unavailable", {"error": "temporarily_unavailable"}, UNAVAILABLE, UNAVAILABLE),
    ("200 OK", {"error": "server_error"}, UNAVAILABLE, UNAVAILABLE),
    ("400 Bad Request", "no", UNREADABLE, UNREADABLE),
    ("200 OK", "[]", UNREADABLE, UNREADABLE),
    ("200 OK", "null", UNREADABLE, UNREADABLE),
    ("200 OK", '"access_token"', UNREADABLE, UNREADABLE),
    ("200 OK", {}, INVALID, INVALID),
    ("200 OK", {"data": granted()}, INVALID, INVALID),
]


@pytest.mark.parametrize(("status", "body", "on_exchange", "on_refresh"), STATUSES)
def test_a_refusal_says_whose_fault_it_is(
    *,
    status: str,
    body: Any,
    on_exchange: tuple[int, str],
    on_refresh: tuple[int, str],
    provider: Provider,
    serve: Serve,
) -> None:
    """A dead grant, a wrong client, a limit and an outage have codes of their own."""
    url = provider.replies(response(body, status=status))
    exchanged, refreshed = serve(url).exchange(), serve(url).refresh()
    assert (exchanged.status_code, error_code(exchanged)) == on_exchange
    assert (refreshed.status_code, error_code(refreshed)) == on_refresh


@pytest.mark.parametrize(
    ("sent", "told"),
    [
        ("7", "7"),
        (" 7 ", "7"),
        ("0", "0"),
        ("999999", "3600"),
        ("9" * 5000, None),
        ("-1", None),
        ("1.5", None),
        ("soon", None),
        ("Wed, 21 Oct 2099 07:28:00 GMT", None),
        (None, None),
    ],
)
@pytest.mark.parametrize("status", ["429 Too Many Requests", "503 Service Unavailable"])
def test_how_long_to_wait_is_passed_on(
    status: str, sent: str | None, told: str | None, provider: Provider, serve: Serve
) -> None:
    """Retry-After of whole seconds reaches the caller, an hour at most; anything else does not."""
    headers = [] if sent is None else [("Retry-After", sent)]
    answer = serve(provider.replies(response({}, status=status, headers=headers))).refresh()
    assert answer.headers.get("retry-after") == told


@pytest.mark.parametrize("nothing", [None, "", False, 0, {}, []])
def test_an_error_that_says_there_is_none_costs_no_token(
    nothing: object, provider: Provider, serve: Serve
) -> None:
    """Some providers write an empty error beside a success."""
    answer = serve(provider.replies(response(granted(error=nothing)))).refresh()
    assert answer.status_code == 200


def test_each_request_has_a_connection_of_its_own(provider: Provider, serve: Serve) -> None:
    """A request never depends on what became of the connection of an earlier one."""
    service = serve(provider.url("good"))

    async def twice(client: Any) -> None:
        path = "/internal/v1/connections/it/token/refresh"
        for text in ("a", "b"):
            await client.post(path, json={"refreshToken": text})

    service.run(twice)
    assert [request.connection for request in provider.requests] == [1, 2]
    assert {request.headers["connection"] for request in provider.requests} == {"close"}


@pytest.mark.parametrize(
    ("status", "code"), [("429 Too Many Requests", LIMITED), ("503 Unavailable", UNAVAILABLE)]
)
def test_a_body_that_cannot_be_decompressed_hides_no_status(
    status: str, code: tuple[int, str], provider: Provider, serve: Serve
) -> None:
    """A limit and an outage are told as such, whatever stands beside them."""
    headers = [("Content-Encoding", "br"), ("Retry-After", "3")]
    answer = serve(provider.replies(response(b"\x0b", status=status, headers=headers))).refresh()
    assert (answer.status_code, error_code(answer)) == code
    assert answer.headers["retry-after"] == "3"
