from __future__ import annotations

import gzip
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from connections_runtime.provider import ACCESS, REFRESH, granted
from segmentstream_connections_runtime.errors import OUTCOMES, Code, ServiceError
from segmentstream_connections_runtime.tokens import Grant, Rules, TokenSet, read_answer

JSON = {"content-type": "application/json"}
FORM = {"content-type": "application/x-www-form-urlencoded"}
ABSENT = object()
TEN_YEARS = 10 * 365 * 24 * 3600

patient = settings(deadline=None)  # a busy machine is no failure


def read(
    body: object,
    *,
    status: int = 200,
    headers: dict[str, str] = JSON,
    grant: Grant = "refresh_token",
    **rules: Any,
) -> TokenSet:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    return read_answer(status, headers, raw, grant=grant, rules=Rules(**rules))


def refused(body: object, **how: Any) -> Code:
    with pytest.raises(ServiceError) as caught:
        read(body, **how)
    return caught.value.code


def answer_with(**changes: object) -> dict[str, object]:
    """Gives the fields of a good answer with changes; a field of ABSENT is left out."""
    return {k: v for k, v in granted(**changes).items() if v is not ABSENT}


@pytest.mark.parametrize(
    ("told", "seconds"),
    [
        (ABSENT, None),
        (None, None),
        ("", None),
        (0, 0),
        ("0", 0),
        (0.0, 0),
        (3600, 3600),
        ("3600", 3600),
        (" 3600 ", 3600),
        (3600.0, 3600),
        ("3600.0", 3600),
        (3599.5, 3599),
        ("3599.9", 3599),
        (1, 1),
        (10**18, TEN_YEARS),
        ("9" * 20, TEN_YEARS),
    ],
)
def test_a_lifetime_is_read_in_every_shape(told: object, seconds: int | None) -> None:
    """A lifetime is whole seconds, never more than remain; absent means unknown, 0 means over."""
    assert read(answer_with(expires_in=told)).expires_in == seconds


@pytest.mark.parametrize(
    "told",
    [
        -1,
        "-1",
        True,
        False,
        "soon",
        "1e3",
        "0x10",
        "٣",
        "3600;",
        [],
        [3600],
        {},
        1e308 * 10,
        "9" * 21,
    ],
)
def test_a_lifetime_that_cannot_be_read_is_refused(told: object) -> None:
    """No guess is made about a lifetime that is none, nor about a negative one."""
    body = json.dumps(answer_with(expires_in=told)).replace("Infinity", "1e999").encode()
    assert refused(body) is Code.TOKEN_RESPONSE_INVALID


def test_a_lifetime_of_zero_can_mean_never() -> None:
    """Where a provider writes 0 for tokens without an end, that is declared, and only then holds."""
    assert read(answer_with(expires_in=0), zero_expiry_means_never=True).expires_in is None
    assert read(answer_with(expires_in=1), zero_expiry_means_never=True).expires_in == 1


def test_a_lifetime_can_be_in_milliseconds() -> None:
    """Where a provider counts milliseconds, whole seconds come out of it."""
    assert read(answer_with(expires_in=3_600_999), expiry_in_milliseconds=True).expires_in == 3600


@pytest.mark.parametrize("told", [ABSENT, None, ""])
def test_a_lifetime_that_is_not_told_can_be_declared(told: object) -> None:
    """The declared lifetime stands in only where the provider says nothing."""
    assert read(answer_with(expires_in=told), default_lifetime_seconds=60).expires_in == 60
    assert read(answer_with(expires_in=5), default_lifetime_seconds=60).expires_in == 5


@pytest.mark.parametrize(
    ("told", "scopes"),
    [
        (ABSENT, None),
        (None, None),
        ("", ()),
        ("read write", ("read", "write")),
        ("read,write", ("read", "write")),
        ("read, write", ("read", "write")),
        ("write read", ("write", "read")),
        ("read read", ("read",)),
        ("  read\twrite\n", ("read", "write")),
        (["read", "write"], ("read", "write")),
        ([], ()),
        (["read", "read", 1, None, {}, "a b", 'a"b', "é"], ("read",)),
        ("https://a.example/x:y/z read", ("https://a.example/x:y/z", "read")),
        (7, None),
        ({}, None),
        (True, None),
    ],
)
def test_scopes_are_read_in_every_shape(told: object, scopes: tuple[str, ...] | None) -> None:
    """Scopes keep their order, each once; what is no scope never costs the token beside it."""
    assert read(answer_with(scope=told)).scopes == scopes


def test_scopes_can_be_parted_by_what_is_declared() -> None:
    """A declared separator parts scopes, even one that means something in an expression."""
    assert read(answer_with(scope="a|b"), scope_separator="|").scopes == ("a", "b")
    assert read(answer_with(scope="a+b"), scope_separator="+").scopes == ("a", "b")


@pytest.mark.parametrize(
    "token",
    [
        "",
        "a b",
        " a",
        "a ",
        "a\r\nX-Injected: 1",
        "a\n",
        "a\x00b",
        "a\tb",
        "a\x7fb",
        "é",
        "\ud800",
        "a\u2028b",
        "a" * (16 * 1024 + 1),
        7,
        True,
        ["a"],
        {"a": 1},
    ],
)
def test_what_no_token_may_be_is_refused(token: object) -> None:
    """A token is visible ASCII of at most 16 KiB, so that it can stand in a header."""
    assert refused(answer_with(access_token=token)) is Code.TOKEN_RESPONSE_INVALID
    if token != "":
        assert refused(answer_with(refresh_token=token)) is Code.TOKEN_RESPONSE_INVALID


def test_a_long_token_is_accepted() -> None:
    """A token of 16 KiB is one, as providers with signed tokens of many claims send it."""
    assert len(read(answer_with(access_token="a" * 16 * 1024)).access_token) == 16 * 1024


@pytest.mark.parametrize("told", [ABSENT, None, ""])
def test_an_answer_may_lack_a_refresh_token(told: object) -> None:
    """Absent, null and empty all say that there is none."""
    assert read(answer_with(refresh_token=told)).refresh_token is None


@pytest.mark.parametrize("told", [ABSENT, None, "", "Bearer", "bearer", "BEARER"])
def test_a_bearer_token_is_always_called_bearer(told: object) -> None:
    """However a provider writes the type, or does not, the caller reads `Bearer`."""
    assert read(answer_with(token_type=told)).token_type == "Bearer"


@pytest.mark.parametrize("told", ["mac", "dpop", "DPoP", "N_A", 1, ["Bearer"], "Bearer "])
def test_a_token_that_is_no_bearer_token_is_refused(told: object) -> None:
    """A token that has to be sent in another way is not told as one that has not."""
    assert refused(answer_with(token_type=told)) is Code.TOKEN_RESPONSE_INVALID


ENCODED = json.dumps(granted())


@pytest.mark.parametrize(
    "body",
    [
        ENCODED.encode(),
        b"\xef\xbb\xbf" + ENCODED.encode(),
        ENCODED.encode("utf-16"),
        ENCODED.encode("utf-16-le"),
        ENCODED.encode("utf-16-be"),
        ENCODED.encode("utf-32"),
        f"\r\n\t {ENCODED} \n".encode(),
    ],
)
@pytest.mark.parametrize(
    "media_type",
    ["application/json", "application/json; charset=utf-8", "TEXT/PLAIN", "text/javascript", ""],
)
def test_json_is_read_in_every_encoding_of_unicode(body: bytes, media_type: str) -> None:
    """A byte order mark, UTF-16 or a loose media type costs nobody a token."""
    assert read(body, headers={"content-type": media_type}).access_token == ACCESS


def deep(levels: int) -> bytes:
    return b'{"access_token":"a","x":' + b"[" * levels + b"]" * levels + b"}"


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b" ",
        b"{",
        b"\xff\xfe\xfd",
        b'{"access_token":"' + b"\xff" + b'"}',
        b'{"access_token":"a","access_token":"b"}',
        b'{"access_token":"a","refresh_token":"b","refresh_token":"c"}',
        b'{"access_token":"a","x":{"y":1,"y":2}}',
        b'{"access_token":"a","expires_in":' + b"1" * 5000 + b"}",
        b'{"access_token":"a","x":-' + b"1" * 21 + b"}",
        b'{"access_token":"a","expires_in":NaN}',
        b'{"access_token":"a","x":Infinity}',
        b'{"access_token":"a","x":-Infinity}',
        b"{'access_token': 'a'}",
        b'{"access_token":"a"} trailing',
        b'{"access_token":"a"}{"access_token":"b"}',
        deep(20),
        deep(100_000),
        b"[" * 200_000,
        b'{"a":' * 50_000,
    ],
)
def test_what_is_no_strict_json_is_no_answer(body: bytes) -> None:
    """Duplicate names, long numbers, deep nesting and loose syntax are the provider's fault."""
    assert refused(body) is Code.PROVIDER_UNREADABLE


def test_nesting_is_counted_outside_of_strings() -> None:
    """Brackets in a text are no nesting, also after an escaped quotation mark."""
    assert read(granted(x='\\"[[[' + "[{" * 50)).access_token == ACCESS
    assert read(deep(19)).access_token == "a"


@pytest.mark.parametrize("headers", [FORM, {}, {"content-type": "text/plain; charset=utf-8"}])
def test_a_form_is_read(headers: dict[str, str]) -> None:
    """A form with a token is an answer where it is called one, or called nothing."""
    found = read(
        b"access_token=A&refresh_token=R&expires=5184000&scope=a%20b,c&token_type=bearer",
        headers=headers,
    )
    assert (found.access_token, found.refresh_token) == ("A", "R")
    assert (found.expires_in, found.scopes) == (5184000, ("a", "b", "c"))


@pytest.mark.parametrize(
    "body",
    [
        b"access_token=a&access_token=b",
        b"access_token",
        b"&".join(b"a%d=1" % number for number in range(101)),
        b"hello=world",
        b"<p class=x>&error",
    ],
)
def test_a_form_that_is_none_is_no_answer(body: bytes) -> None:
    """Duplicate or too many fields, and text that only looks like a form, hold no token."""
    assert refused(body, headers={"content-type": "text/plain"}) is Code.PROVIDER_UNREADABLE


def test_a_refusal_in_a_form_is_read() -> None:
    """GitHub answers 200 with a form that holds an error."""
    assert refused(b"error=invalid_grant&error_description=x", headers=FORM) is (
        Code.REAUTHORIZATION_REQUIRED
    )


def test_a_token_is_found_at_the_declared_path_only() -> None:
    """No search is made: a token at another place may be the wrong one."""
    body = {"authed_user": granted(access_token="of-the-user"), "bot": granted()}
    assert read(body, token_path=("authed_user",)).access_token == "of-the-user"
    assert refused(body, token_path=("nobody",)) is Code.TOKEN_RESPONSE_INVALID
    assert refused(body, token_path=("authed_user", "scope")) is Code.TOKEN_RESPONSE_INVALID
    assert refused(body) is Code.TOKEN_RESPONSE_INVALID


def test_a_declared_success_field_decides() -> None:
    """An answer without the declared value is a refusal, even with tokens in it."""
    rules: dict[str, Any] = {"success_field": "code", "success_value": 0}
    assert read(granted(code=0), **rules).access_token == ACCESS
    assert refused(granted(code=1), **rules) is Code.PROVIDER_REJECTED
    assert refused(granted(), **rules) is Code.PROVIDER_REJECTED


def test_true_is_not_the_success_value_one() -> None:
    """A value is compared with its type: `true` is not 1, and `false` is not 0."""
    rules: dict[str, Any] = {"success_field": "code", "success_value": 0}
    assert refused(granted(code=False), **rules) is Code.PROVIDER_REJECTED


def test_declared_fields_are_handed_on() -> None:
    """Only declared fields of a plain and printable value leave the answer."""
    body = granted(
        instance_url="https://na1.example.com",
        team={"id": "T1", "size": 3, "paid": True, "list": []},
        line="a\nb",
        secret="not declared",
    )
    fields = ("instance_url", "team.id", "team.size", "team.paid", "team.list", "line", "no.where")
    assert read(body, metadata_fields=fields).metadata == {
        "instance_url": "https://na1.example.com",
        "team.id": "T1",
        "team.size": 3,
        "team.paid": True,
    }


def test_what_a_reader_prints_shows_no_token() -> None:
    """The repr of a token set holds neither its tokens nor what was handed on."""
    shown = repr(read(granted(realm="realm-of-the-user"), metadata_fields=("realm",)))
    assert ACCESS not in shown
    assert REFRESH not in shown
    assert "realm-of-the-user" not in shown


# --- Whatever comes ----------------------------------------------------------------------------

MARK = "secretmark"
texts = st.text(max_size=20).map(lambda text: MARK + text)
values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | texts
    | st.sampled_from(["Bearer", "invalid_grant", "3600", "", "read write"]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=12,
)
NAMES = [
    "access_token",
    "refresh_token",
    "token_type",
    "expires_in",
    "expires",
    "scope",
    "error",
    "errors",
    "ok",
    "data",
]
documents = st.dictionaries(st.sampled_from(NAMES) | texts, values, max_size=8)
bodies = (
    documents.map(lambda body: json.dumps(body).encode())
    | documents.map(lambda body: json.dumps(body).encode("utf-16", "surrogatepass"))
    | documents.map(lambda body: gzip.compress(json.dumps(body).encode(), 0))
    | st.binary(max_size=300).map(lambda raw: MARK.encode() + raw)
    | st.binary(max_size=300)
    | st.text(alphabet="access_token=&error%[]{}\"':,1.-+e \\u", max_size=200).map(str.encode)
)
answer_headers = st.fixed_dictionaries(
    {},
    optional={
        "content-type": st.sampled_from(
            ["application/json", "text/html", "text/plain", FORM["content-type"], "", ";", MARK]
        ),
        "content-encoding": st.sampled_from(["gzip", "deflate", "identity", "br", "", MARK]),
        "retry-after": st.sampled_from(["1", "", MARK, "9" * 400, "-1"]),
    },
)
every_rule = st.builds(
    Rules,
    scope_separator=st.sampled_from([" ", ",", "|", "\\", "]", "^", "-"]),
    token_path=st.sampled_from([(), ("data",), ("data", "access_token")]),
    success_field=st.sampled_from([None, "ok"]),
    zero_expiry_means_never=st.booleans(),
    expiry_in_milliseconds=st.booleans(),
    default_lifetime_seconds=st.sampled_from([None, 60]),
    metadata_fields=st.sampled_from([(), ("data", "data.access_token", "scope")]),
)


@settings(patient, max_examples=600)
@given(
    status=st.sampled_from([200, 201, 204, 302, 400, 401, 403, 429, 500, 503])
    | st.integers(min_value=200, max_value=599),
    headers=answer_headers,
    body=bodies,
    grant=st.sampled_from(["authorization_code", "refresh_token"]),
    rules=every_rule,
)
def test_any_answer_is_a_token_set_or_an_outcome(
    *, status: int, headers: dict[str, str], body: bytes, grant: Grant, rules: Rules
) -> None:
    """Whatever a provider sends becomes one of the two, and no refusal repeats any of it."""
    outcome: TokenSet | ServiceError
    try:
        outcome = read_answer(status, headers, body, grant=grant, rules=rules)
    except ServiceError as error:
        outcome = error
    if isinstance(outcome, ServiceError):
        told = (str(outcome), outcome.detail, outcome.provider_code, outcome.retry_after_seconds)
        assert MARK not in repr(told)
        assert outcome.code in OUTCOMES
        assert outcome.__suppress_context__ or outcome.__context__ is None
        return
    assert outcome.access_token.isascii()
    assert outcome.access_token.isprintable()
    assert " " not in outcome.access_token
    assert outcome.token_type == "Bearer"
    assert outcome.expires_in is None or 0 <= outcome.expires_in <= TEN_YEARS
    assert MARK not in repr(outcome)


plain = st.none() | st.booleans() | st.integers(-(10**19), 10**19) | texts | st.lists(texts)


@settings(patient, max_examples=200)
@given(
    expires_in=st.integers(min_value=0, max_value=10**19) | st.floats(min_value=0, max_value=1e300),
    scope=st.none() | st.text(max_size=50) | st.lists(plain, max_size=5),
    more=st.dictionaries(texts, plain | st.dictionaries(texts, plain), max_size=3),
)
def test_a_good_token_is_never_lost(
    expires_in: float, scope: object, more: dict[str, object]
) -> None:
    """Odd scopes, any lifetime that is a number and unknown fields cost nobody a spent code."""
    found = read(granted(expires_in=expires_in, scope=scope) | more, grant="authorization_code")
    assert (found.access_token, found.refresh_token) == (ACCESS, REFRESH)
