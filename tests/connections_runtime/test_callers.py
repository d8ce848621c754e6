from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
import time
import warnings
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from joserfc import jwt
from joserfc.jwk import ECKey, OctKey, OKPKey, RSAKey
from joserfc.util import to_bytes

from connections_runtime.authority import Authority
from connections_runtime.provider import Conversation, Provider, response
from connections_runtime.running import START, LocalService, address, connection, error_code
from segmentstream_connections_runtime import callers
from segmentstream_connections_runtime.settings import (
    OidcSettings,
    ServiceSettings,
    SettingsError,
)

ISSUER = "https://issuer.example"
AUDIENCE = "https://connections.example"
TOKEN = "token-of-the-caller"
OIDC = {
    "SEGMENTSTREAM_CONNECTIONS_OIDC_ISSUER": ISSUER,
    "SEGMENTSTREAM_CONNECTIONS_OIDC_AUDIENCE": AUDIENCE,
    "SEGMENTSTREAM_CONNECTIONS_OIDC_KEYS_URL": "https://issuer.example/keys",
}

type Key = RSAKey | ECKey | OKPKey
type Headers = Mapping[str, str]


@pytest.fixture(scope="module")
def keys() -> dict[str, Key]:
    """The keys of the issuer by algorithm, each with the algorithm as its id."""
    return {
        "RS256": RSAKey.generate_key(2048, {"kid": "RS256"}),
        "ES256": ECKey.generate_key("P-256", {"kid": "ES256"}),
        "EdDSA": OKPKey.generate_key("Ed25519", {"kid": "EdDSA"}),
    }


class Issuer:
    """Is an issuer of identity tokens, its keys served by the provider of the tests."""

    def __init__(self, provider: Provider, keys: Mapping[str, Key]) -> None:
        self.keys = dict(keys)
        self.further: list[object] = []  # what else its key set holds
        self.answer: bytes | None = None  # in place of the key set
        self.provider = provider
        self.keys_url = provider.acts(self._serve)

    # Any: claims of any form beside the options.
    def token(self, alg: str = "ES256", **changes: Any) -> str:
        """Signs a token that is right but for the changes; a claim of None is left out.

        `kid` and `key` name another key than that of the algorithm.
        """
        kid, key = changes.pop("kid", alg), changes.pop("key", self.keys.get(alg))
        claims = {
            "iss": ISSUER,
            "aud": AUDIENCE,
            "sub": "caller",
            "exp": int(time.time()) + 300,
        } | changes
        given = {name: value for name, value in claims.items() if value is not None}
        with warnings.catch_warnings(action="ignore", category=UserWarning):
            return jwt.encode({"alg": alg, "kid": kid}, given, key, algorithms=[alg])

    def asked(self) -> int:
        """Counts how often its keys were asked for."""
        return len(self.provider.requests)

    def _serve(self, conversation: Conversation) -> None:
        public = [key.as_dict(private=False) for key in self.keys.values()]
        conversation.send(self.answer or response({"keys": [*self.further, *public]}))


@pytest.fixture
def issuer(provider: Provider, keys: dict[str, Key]) -> Issuer:
    return Issuer(provider, keys)


class Clock:
    """Is the time of the key cache."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """A clock that stands still until a test moves it."""
    made = Clock()
    monkeypatch.setattr(callers, "time", SimpleNamespace(monotonic=made.monotonic))
    return made


@pytest.fixture
def guarded(authority: Authority, issuer: Issuer) -> Callable[..., LocalService]:
    """Makes a service that asks for a token of the issuer."""

    def made(*subjects: str, keys_url: str = "", **options: Any) -> LocalService:
        oidc = OidcSettings(
            issuer=ISSUER,
            audience=AUDIENCE,
            keys_url=keys_url or issuer.keys_url,
            subjects=frozenset(subjects),
        )
        return local(ServiceSettings(oidc=oidc), ca_file=authority.ca_file, **options)

    return made


def local(settings: ServiceSettings, **options: Any) -> LocalService:
    return LocalService(connection("https://localhost:1/token"), settings=settings, **options)


async def call(client: httpx.AsyncClient, headers: Headers) -> int:
    """Asks for an address with these headers; what is refused is refused in the envelope."""
    answer = await client.post(address("it", "authorization/start"), json=START, headers=headers)
    expected = {401: "unauthorized", 503: "runtime_unavailable"}
    if answer.status_code != 200:
        assert error_code(answer) == expected[answer.status_code]
    return answer.status_code


def status(service: LocalService, headers: Headers) -> int:
    return service.run(lambda client: call(client, headers))


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def segment(value: object) -> str:
    text = value if isinstance(value, bytes) else json.dumps(value).encode()
    return base64.urlsafe_b64encode(text).rstrip(b"=").decode()


# --- One token for all -------------------------------------------------------------------------


def test_the_one_token_is_accepted_however_its_scheme_is_written() -> None:
    """The name of the scheme has no case (RFC 9110 section 11.1); the token is the caller's own."""
    service = local(ServiceSettings(bearer_sha256=hashlib.sha256(TOKEN.encode()).hexdigest()))
    for kind in ("Bearer", "bearer", "BEARER"):
        assert status(service, {"Authorization": f"{kind} {TOKEN}"}) == 200


def test_the_one_token_is_not_taken_from_the_header_of_cloud_run() -> None:
    """Behind Cloud Run the token stands in Authorization, beside the one of the platform."""
    digest = hashlib.sha256(TOKEN.encode()).hexdigest()
    settings = ServiceSettings(bearer_sha256=digest, is_behind_cloud_run=True)
    platform = {"X-Serverless-Authorization": "Bearer of-the-platform"}
    assert status(local(settings), platform | bearer(TOKEN)) == 200
    assert status(local(settings), platform) == 401
    assert status(local(settings), {"X-Serverless-Authorization": f"Bearer {TOKEN}"}) == 401
    assert status(local(settings), platform | bearer("another")) == 401


def test_a_token_is_never_cut_to_a_length_that_fits() -> None:
    """What follows the longest token that there may be is not overlooked."""
    longest = "t" * 16 * 1024
    settings = ServiceSettings(bearer_sha256=hashlib.sha256(longest.encode()).hexdigest())
    assert status(local(settings), bearer(longest)) == 200
    assert status(local(settings), bearer(longest + "t")) == 401


# --- Cloud Run ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["Authorization", "X-Serverless-Authorization"])
def test_cloud_run_tells_in_either_header_whom_it_checked(name: str) -> None:
    """Its front end accepts a token in both, and the second leaves the first to the application."""
    settings = ServiceSettings(is_behind_cloud_run=True)
    assert status(local(settings), {name: "Bearer checked"}) == 200
    for wrong in ("", "Bearer", "Bearer ", "Basic checked", "checked"):
        assert status(local(settings), {name: wrong}) == 401
    assert status(local(settings), {}) == 401


def test_cloud_run_leaves_the_other_header_to_the_application() -> None:
    """An Authorization of another kind does no harm beside the header of the platform."""
    settings = ServiceSettings(is_behind_cloud_run=True)
    both = {"X-Serverless-Authorization": "Bearer checked", "Authorization": "Basic eDp5"}
    assert status(local(settings), both) == 200


# --- Identity tokens ---------------------------------------------------------------------------


@pytest.mark.parametrize("alg", ["RS256", "ES256", "EdDSA"])
def test_a_right_identity_token_is_accepted(
    alg: str, issuer: Issuer, guarded: Callable[..., LocalService]
) -> None:
    """A token of the issuer for this service passes with every algorithm that is allowed."""
    assert status(guarded(), bearer(issuer.token(alg))) == 200
    assert issuer.asked() == 1


def test_an_audience_among_others_is_accepted(
    issuer: Issuer, guarded: Callable[..., LocalService]
) -> None:
    """A token may be meant for several services (RFC 7519 section 4.1.3)."""
    assert status(guarded(), bearer(issuer.token(aud=["another", AUDIENCE]))) == 200


WRONG_CLAIMS: list[dict[str, object]] = [
    {"iss": "https://issuer.example/"},
    {"iss": "https://another.example"},
    {"iss": [ISSUER]},
    {"iss": None},
    {"aud": "another"},
    {"aud": AUDIENCE + "/"},
    {"aud": ["another"]},
    {"aud": []},
    {"aud": ""},
    {"aud": {AUDIENCE: 1}},
    {"aud": None},
    {"exp": None},
    {"exp": "tomorrow"},
    {"exp": True},
    {"exp": float("nan")},
    {"exp": float("inf")},
    {"exp": 0},
    {"sub": ["caller"]},
]


@pytest.mark.parametrize("changes", WRONG_CLAIMS, ids=str)
def test_a_claim_that_is_wrong_or_missing_is_refused(
    changes: dict[str, object], issuer: Issuer, guarded: Callable[..., LocalService]
) -> None:
    """Issuer, audience and expiry are compared as they are, and none of them may be left out."""
    assert status(guarded(), bearer(issuer.token("ES256", **changes))) == 401


@pytest.mark.parametrize("name", ["exp", "nbf", "iat"])
def test_the_clocks_may_differ_by_a_minute(
    name: str, issuer: Issuer, guarded: Callable[..., LocalService]
) -> None:
    """A time is taken with 60 seconds of leeway, and not with more."""
    late = -1 if name == "exp" else 1
    for seconds, expected in ((30, 200), (90, 401)):
        token = issuer.token("ES256", **{name: int(time.time()) + late * seconds})
        assert status(guarded(), bearer(token)) == expected


def test_a_signature_of_another_key_is_refused(
    issuer: Issuer, keys: dict[str, Key], guarded: Callable[..., LocalService]
) -> None:
    """Neither a key that claims the id of the issuer's, nor changed or cut bytes pass."""
    foreign = ECKey.generate_key("P-256")
    right = issuer.token()
    head, claims, signature = right.split(".")
    changed = segment(json.loads(base64.urlsafe_b64decode(claims + "==")) | {"sub": "another"})

    async def work(client: httpx.AsyncClient) -> list[int]:
        tokens = [
            issuer.token(key=foreign),
            f"{head}.{changed}.{signature}",
            f"{head}.{claims}.",
            f"{head}.{claims}",
            f"{head}.{claims}.{signature[:-8]}",
            f"{right}.{signature}",
            issuer.token("RS256", kid="ES256"),
            issuer.token("ES256", kid="RS256"),
            issuer.token("ES256", kid="EdDSA"),
        ]
        return [await call(client, bearer(token)) for token in tokens]

    assert set(guarded().run(work)) == {401}
    assert issuer.asked() == 1


def test_a_token_without_a_signature_is_refused(
    issuer: Issuer, guarded: Callable[..., LocalService]
) -> None:
    """The algorithm `none` is none, however it is written (RFC 8725 section 3.2)."""
    claims = issuer.token().split(".")[1]
    for alg in ("none", "None", "NONE", "", None, ["none"], {"a": 1}):
        head = segment({"alg": alg, "kid": "ES256"})
        assert status(guarded(), bearer(f"{head}.{claims}.")) == 401
        assert status(guarded(), bearer(f"{head}.{claims}.AAAA")) == 401


@pytest.mark.parametrize("kid", ["RS256", "ES256", "EdDSA"])
@pytest.mark.parametrize("encoding", ["PEM", "DER", "JWK"])
def test_a_public_key_is_not_taken_for_a_shared_secret(
    kid: str,
    encoding: str,
    issuer: Issuer,
    keys: dict[str, Key],
    guarded: Callable[..., LocalService],
) -> None:
    """Who signs with HS256 and a key that everyone knows is refused (RFC 8725 section 3.1)."""
    text = {
        "PEM": keys[kid].as_pem(private=False),
        "DER": keys[kid].as_der(private=False),
        "JWK": json.dumps(keys[kid].as_dict(private=False)).encode(),
    }[encoding]
    claims = {"iss": ISSUER, "aud": AUDIENCE, "sub": "caller", "exp": int(time.time()) + 300}
    signed = f"{segment({'alg': 'HS256', 'kid': kid})}.{segment(claims)}"
    # joserfc refuses to do that.
    signature = hmac.digest(text, signed.encode(), "sha256")
    assert status(guarded(), bearer(f"{signed}.{segment(signature)}")) == 401


def test_a_shared_secret_in_the_key_set_serves_nobody(
    issuer: Issuer, guarded: Callable[..., LocalService]
) -> None:
    """The list of algorithms is the service's own, not that of the key set."""
    shared = OctKey.generate_key(256, {"kid": "shared"})
    issuer.further = [shared.as_dict(private=True)]
    claims = {"iss": ISSUER, "aud": AUDIENCE, "exp": int(time.time()) + 300}
    token = jwt.encode({"alg": "HS256", "kid": "shared"}, claims, shared, algorithms=["HS256"])
    assert status(guarded(), bearer(token)) == 401


BROKEN = [
    "a",
    "..",
    "a.b.c",
    "a.b.c.d.e",
    "\xff.\xff.\xff",
    f"{segment(b'[' * 10_000)}.a.a",
    f"{segment(b'1' * 10_000)}.a.a",
    f"{segment([])}.a.a",
    f"{segment({'alg': 'ES256', 'kid': ['ES256']})}.a.a",
    f"{segment({'alg': 'ES256', 'kid': 1})}.a.a",
    f"{segment({'alg': 'ES256', 'kid': 'ES256', 'crit': ['b64'], 'b64': False})}.a.a",
    f"{segment({'alg': 'ES256', 'kid': 'ES256', 'crit': ['x'], 'x': 1})}.a.a",
    f"{segment({'alg': 'dir', 'enc': 'A128GCM', 'kid': 'ES256'})}.a.a.a.a",
    f"{segment({'alg': 'ES256', 'jku': 'https://evil.example/keys', 'kid': 'other'})}.a.a",
]


def test_what_is_no_token_is_refused_and_costs_the_issuer_nothing(
    issuer: Issuer, clock: Clock, guarded: Callable[..., LocalService]
) -> None:
    """Bytes of any kind are the caller's fault; none but a new key id asks the issuer again."""

    async def work(client: httpx.AsyncClient) -> list[int]:
        assert await call(client, bearer(issuer.token())) == 200
        found = []
        for token in BROKEN[:-4]:
            clock.now += 40
            found.append(await call(client, {"Authorization": f"Bearer {token}".encode("latin-1")}))  # type: ignore[dict-item]
        found += [await call(client, bearer(token)) for token in BROKEN[-4:]]
        return found

    assert set(guarded().run(work)) == {401}
    # The key ids of two of them are none that a key has.
    assert issuer.asked() <= 3


def test_a_caller_without_a_token_costs_the_issuer_nothing(
    issuer: Issuer, guarded: Callable[..., LocalService]
) -> None:
    """Who sends none is refused before the keys are asked for, also with those of Cloud Run."""
    token = issuer.token()
    for headers in (
        {},
        {"Authorization": token},
        {"X-Serverless-Authorization": f"Bearer {token}"},
    ):
        assert status(guarded(), headers) == 401
    assert issuer.asked() == 0


def test_an_identity_token_stands_beside_that_of_cloud_run(
    issuer: Issuer, guarded: Callable[..., LocalService]
) -> None:
    """The service checks its own token in Authorization where the platform took the other header."""
    platform = {"X-Serverless-Authorization": "Bearer of-the-platform"}
    assert status(guarded(), platform | bearer(issuer.token())) == 200
    assert status(guarded(), platform | bearer(issuer.token(aud="another"))) == 401


# --- Who of the issuer -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("claims", "expected"),
    [
        ({"sub": "caller"}, 200),
        ({"sub": "another"}, 401),
        ({"sub": None}, 401),
        ({"sub": "CALLER"}, 401),
        ({"sub": "another", "email": "a@example.com", "email_verified": True}, 200),
        ({"sub": "another", "email": "a@example.com", "email_verified": False}, 401),
        ({"sub": "another", "email": "a@example.com", "email_verified": "true"}, 401),
        ({"sub": "another", "email": "a@example.com", "email_verified": 1}, 401),
        ({"sub": "another", "email": "a@example.com"}, 401),
        ({"sub": "another", "email": "b@example.com", "email_verified": True}, 401),
        ({"sub": "another", "email": ["a@example.com"], "email_verified": True}, 401),
        ({"sub": "another", "email": {"a@example.com": 1}, "email_verified": True}, 401),
    ],
)
def test_only_who_is_on_the_list_may_call(
    claims: dict[str, object],
    expected: int,
    issuer: Issuer,
    guarded: Callable[..., LocalService],
) -> None:
    """A subject, or an address that the issuer has verified, is on the list as it stands there."""
    service = guarded("caller", "a@example.com")
    assert status(service, bearer(issuer.token("ES256", **claims))) == expected


# --- Keys of the issuer ------------------------------------------------------------------------


def test_a_renewed_key_is_picked_up(
    issuer: Issuer, clock: Clock, guarded: Callable[..., LocalService]
) -> None:
    """A token with a new key id makes the service ask once more; the old key is then unknown."""
    renewed = ECKey.generate_key("P-256", {"kid": "renewed"})

    async def work(client: httpx.AsyncClient) -> None:
        old = issuer.token()
        assert await call(client, bearer(old)) == 200
        issuer.keys = {"renewed": renewed}
        clock.now += 31
        assert await call(client, bearer(old)) == 200
        assert issuer.asked() == 1
        new = issuer.token(kid="renewed", key=renewed)
        assert await call(client, bearer(new)) == 200
        assert issuer.asked() == 2
        assert await call(client, bearer(old)) == 401

    guarded().run(work)


def test_an_unknown_key_asks_once_in_half_a_minute(
    issuer: Issuer, clock: Clock, guarded: Callable[..., LocalService]
) -> None:
    """However many callers make key ids up, at once or in turn, the issuer is asked rarely."""
    foreign = ECKey.generate_key("P-256")

    async def work(client: httpx.AsyncClient) -> None:
        assert await call(client, bearer(issuer.token())) == 200
        for asked in (2, 3):
            clock.now += 31
            made_up = [issuer.token(kid=f"made-up-{n}", key=foreign) for n in range(20)]
            found = await asyncio.gather(*(call(client, bearer(token)) for token in made_up))
            assert set(found) == {401}
            clock.now += 29
            assert await call(client, bearer(made_up[0])) == 401
            assert issuer.asked() == asked
        assert await call(client, bearer(issuer.token())) == 200

    guarded().run(work)


def test_a_withdrawn_key_serves_for_an_hour_at_most(
    issuer: Issuer, clock: Clock, guarded: Callable[..., LocalService]
) -> None:
    """The keys are asked for again hourly, so that one that is gone is not trusted for ever."""

    async def work(client: httpx.AsyncClient) -> None:
        withdrawn = issuer.token()
        assert await call(client, bearer(withdrawn)) == 200
        del issuer.keys["ES256"]
        clock.now += 3599
        assert await call(client, bearer(withdrawn)) == 200
        clock.now += 2
        assert await call(client, bearer(withdrawn)) == 401
        assert issuer.asked() == 2

    guarded().run(work)


UNREADABLE = {
    "page": response("<html>Later</html>", media_type="text/html"),
    "failure": response({"error": "later"}, status="503 Service Unavailable"),
    "failure with keys": response({"keys": []}, status="500 Internal Server Error"),
    "redirect": b"HTTP/1.1 302 Found\r\nLocation: /good\r\nContent-Length: 0\r\n\r\n",
    "no keys": response({"keys": []}),
    "no set": response("[]"),
    "keys of another form": response({"keys": {"a": 1}}),
    "null": response("null"),
    "too deep": response("[" * 20_000),
    "too long": response(" " * 300_000 + '{"keys": []}'),
    "no text": response(b"\xff\xfe\xff"),
    "gone": b"HTTP/1.1 ",
}


@pytest.mark.parametrize("what", UNREADABLE)
def test_keys_that_cannot_be_had_are_a_lack_of_the_service(
    what: str, issuer: Issuer, clock: Clock, guarded: Callable[..., LocalService]
) -> None:
    """The caller is told to come back, is not blamed, and is let in once the issuer is well."""

    async def work(client: httpx.AsyncClient) -> None:
        issuer.answer = UNREADABLE[what]
        token = issuer.token()
        assert await call(client, bearer(token)) == 503
        issuer.answer = None
        assert await call(client, bearer(token)) == 503  # it was asked a moment ago
        assert issuer.asked() == 1
        clock.now += 6
        assert await call(client, bearer(token)) == 200

    if what == "gone":  # the connection ends in the middle of the answer

        def cut(conversation: Conversation) -> None:
            issuer._serve(conversation)
            conversation.close()

        issuer.keys_url = issuer.provider.acts(cut)
    guarded().run(work)


@pytest.mark.parametrize("allows_private", [True, False])
def test_an_issuer_that_cannot_be_reached_is_a_lack_of_the_service(
    allows_private: bool, issuer: Issuer, guarded: Callable[..., LocalService]
) -> None:
    """Whether nobody listens or the address is one that is refused, the answer is 503."""
    url = "https://localhost:1/keys" if allows_private else issuer.keys_url
    service = guarded(keys_url=url, allows_private=allows_private)
    assert status(service, bearer(issuer.token())) == 503
    assert issuer.asked() == 0


def test_an_issuer_that_is_away_for_an_hour_stops_nobody(
    issuer: Issuer, clock: Clock, guarded: Callable[..., LocalService]
) -> None:
    """Keys that could not be renewed serve on, for a day and no longer."""

    async def work(client: httpx.AsyncClient) -> None:
        token = issuer.token(exp=int(time.time()) + 1000)
        assert await call(client, bearer(token)) == 200
        issuer.answer = UNREADABLE["failure"]
        clock.now += 3601
        assert await call(client, bearer(token)) == 200
        assert await call(client, bearer(token)) == 200
        assert issuer.asked() == 2
        clock.now += 23 * 3600
        assert await call(client, bearer(token)) == 503
        issuer.answer = None
        clock.now += 6
        assert await call(client, bearer(token)) == 200

    guarded().run(work)


def test_a_caller_with_a_known_key_waits_for_nobody(
    issuer: Issuer, clock: Clock, guarded: Callable[..., LocalService]
) -> None:
    """While the issuer keeps one caller waiting for a key that is made up, others are let in."""
    is_slow = False

    def gated(conversation: Conversation) -> None:
        if is_slow:
            conversation.provider.gate.wait(60)
        issuer._serve(conversation)

    issuer.keys_url = issuer.provider.acts(gated)

    async def work(client: httpx.AsyncClient) -> None:
        nonlocal is_slow
        right = issuer.token()
        assert await call(client, bearer(right)) == 200
        is_slow = True
        clock.now += 31
        made_up = bearer(issuer.token(kid="made-up"))
        waiting = asyncio.create_task(call(client, made_up))
        await asyncio.to_thread(issuer.provider.wait_for_requests, 2)
        assert await call(client, bearer(right)) == 200
        assert not waiting.done()
        issuer.provider.gate.set()
        assert await waiting == 401

    guarded().run(work)


def test_keys_of_unknown_kinds_are_passed_over(
    issuer: Issuer, guarded: Callable[..., LocalService]
) -> None:
    """A key set may hold what the service does not understand (RFC 7517 section 5)."""
    issuer.further = [
        {"kty": "AKP", "alg": "ML-DSA-44", "kid": "later", "pub": "AAAA"},
        {"kty": "EC", "crv": "P-9999", "x": "AAAA", "y": "AAAA", "kid": "curve"},
        {"kty": "EC", "crv": "P-256", "x": "a", "y": "b", "kid": "no-point"},
        {"kty": "RSA", "kid": "no-number"},
        {"kid": "no-kind"},
        1,
        None,
    ]
    for alg in ("RS256", "ES256"):
        assert status(guarded(), bearer(issuer.token(alg))) == 200


def test_a_key_for_encryption_verifies_nothing(
    issuer: Issuer, guarded: Callable[..., LocalService]
) -> None:
    """What the issuer says that a key is for is kept to (RFC 7517 section 4.2)."""
    key = ECKey.generate_key("P-256", {"kid": "for-encryption", "use": "enc"})
    issuer.further = [key.as_dict(private=False)]
    plain = ECKey.import_key(to_bytes(key.as_pem(private=True)))
    token = issuer.token(kid="for-encryption", key=plain)
    assert status(guarded(), bearer(token)) == 401


# --- Settings ----------------------------------------------------------------------------------


def test_the_settings_name_the_issuer() -> None:
    """The variables give an issuer, its keys, the audience and the list, without blanks."""
    subjects = {"SEGMENTSTREAM_CONNECTIONS_OIDC_SUBJECTS": " a@example.com,,b "}
    found = ServiceSettings.from_environ(OIDC | subjects).oidc
    assert found == OidcSettings(
        issuer=ISSUER,
        audience=AUDIENCE,
        keys_url=OIDC["SEGMENTSTREAM_CONNECTIONS_OIDC_KEYS_URL"],
        subjects=frozenset({"a@example.com", "b"}),
    )
    on_the_network = OIDC | {"SEGMENTSTREAM_CONNECTIONS_HOST": "0.0.0.0"}
    assert ServiceSettings.from_environ(on_the_network).oidc


@pytest.mark.parametrize("value", [None, ""])
@pytest.mark.parametrize("name", OIDC)
def test_half_an_issuer_is_refused(name: str, value: str | None) -> None:
    """An issuer without an audience, or any of the three alone, does not start the service."""
    variables = {key: given for key, given in OIDC.items() if key != name}
    if value is not None:
        variables[name] = value
    with pytest.raises(SettingsError, match=f"{name}.*must be set"):
        ServiceSettings.from_environ(variables)


def test_a_list_without_an_issuer_is_refused() -> None:
    """Who names callers and forgets the issuer does not get a service that is open to all."""
    with pytest.raises(SettingsError, match="OIDC_ISSUER"):
        ServiceSettings.from_environ({"SEGMENTSTREAM_CONNECTIONS_OIDC_SUBJECTS": "someone"})


@pytest.mark.parametrize("subjects", [",", " ", " , ,"])
def test_a_list_of_nobody_is_refused(subjects: str) -> None:
    """A list that came out empty is not taken for one that was left out."""
    variables = OIDC | {"SEGMENTSTREAM_CONNECTIONS_OIDC_SUBJECTS": subjects}
    with pytest.raises(SettingsError, match="OIDC_SUBJECTS"):
        ServiceSettings.from_environ(variables)


@pytest.mark.parametrize(
    "url", ["http://issuer.example/keys", "issuer.example", "https://", "https://a b", "file:///k"]
)
def test_keys_come_over_https_only(url: str) -> None:
    """Keys that anyone on the way could replace would prove nothing."""
    variables = OIDC | {"SEGMENTSTREAM_CONNECTIONS_OIDC_KEYS_URL": url}
    with pytest.raises(SettingsError, match="OIDC_KEYS_URL"):
        ServiceSettings.from_environ(variables)
