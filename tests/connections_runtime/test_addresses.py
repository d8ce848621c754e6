from __future__ import annotations

import socket
from collections.abc import Callable
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import httpcore
import pytest

from connections_runtime.authority import Authority, make_authority
from connections_runtime.conftest import Serve
from connections_runtime.provider import GOOD, Provider, response, running_provider
from connections_runtime.running import LocalService, connection, error_code
from segmentstream_connections_runtime.transport import is_public

type Answers = Callable[..., list[list[str]]]


@pytest.fixture
def resolver(monkeypatch: pytest.MonkeyPatch) -> Answers:
    """Lets names resolve to given addresses: those of the first look-up, of the second and so on.

    Gives the list of what is left to answer.
    """

    def resolve(*answers: list[str]) -> list[list[str]]:
        left = list(answers)

        def getaddrinfo(host: str, port: int, *_: Any, **__: Any) -> list[Any]:
            if not left:
                raise AssertionError("one look-up too many")
            return [
                (
                    socket.AF_INET6 if ":" in address else socket.AF_INET,
                    socket.SOCK_STREAM,
                    6,
                    "",
                    (address, port),
                )
                for address in left.pop(0)
            ]

        monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
        return left

    return resolve


@pytest.fixture
def dialled(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The addresses that connections were made to; none of them can be reached."""
    addresses: list[str] = []

    async def connect_tcp(_: object, host: str, *__: Any, **___: Any) -> None:
        addresses.append(host)
        raise httpcore.ConnectError("unreachable")

    monkeypatch.setattr(httpcore.AnyIOBackend, "connect_tcp", connect_tcp)
    return addresses


PRIVATE = [
    "0.0.0.0",
    "10.0.0.1",
    "10.255.255.255",
    "100.64.0.1",
    "100.100.100.200",
    "127.0.0.1",
    "127.255.255.254",
    "168.63.129.16",
    "169.254.169.254",
    "169.254.170.2",
    "172.16.0.1",
    "192.0.2.1",
    "192.168.0.1",
    "198.18.0.1",
    "224.0.0.1",
    "240.0.0.1",
    "255.255.255.255",
    "::",
    "::1",
    "::127.0.0.1",
    "::ffff:10.0.0.1",
    "::ffff:127.0.0.1",
    "::ffff:169.254.169.254",
    "2001:db8::1",
    "2002:7f00:1::",
    "2002:a00:1::",
    "64:ff9b::169.254.169.254",
    "64:ff9b::10.0.0.1",
    "fc00::1",
    "fd00:ec2::254",
    "fe80::1",
    "fec0::1",
    "ff02::1",
]
PUBLIC = ["8.8.8.8", "172.32.0.1", "2606:4700::1111", "::ffff:8.8.8.8", "64:ff9b::8.8.8.8"]


@pytest.mark.parametrize("address", PRIVATE)
def test_a_private_address_is_none_of_a_provider(address: str) -> None:
    """Loopback, private, link-local, metadata and every IPv6 form of them are not public."""
    assert not is_public(ip_address(address))


@pytest.mark.parametrize("address", PUBLIC)
def test_an_address_of_the_internet_may_be_one_of_a_provider(address: str) -> None:
    """Public addresses are public in each of their forms."""
    assert is_public(ip_address(address))


@pytest.mark.parametrize("address", PRIVATE)
def test_a_name_that_leads_to_a_private_address_is_refused(
    address: str, serve: Serve, resolver: Answers, dialled: list[str]
) -> None:
    """What a name resolves to is judged, and nothing is connected to."""
    resolver([address])
    answer = serve("https://provider.test/token", allows_private=False).refresh()
    assert (answer.status_code, error_code(answer)) == (502, "oauth_provider_unavailable")
    assert "private" in answer.json()["error"]["message"]
    assert address not in answer.text
    assert dialled == []


def test_one_private_address_among_public_ones_is_refused(
    serve: Serve, resolver: Answers, dialled: list[str]
) -> None:
    """All addresses of a name are judged, not only the first."""
    for addresses in (["8.8.8.8", "10.0.0.1"], ["10.0.0.1", "8.8.8.8"]):
        resolver(addresses)
        serve("https://provider.test/token", allows_private=False).refresh()
    assert dialled == []


def test_the_address_that_was_judged_is_connected_to(
    serve: Serve, resolver: Answers, dialled: list[str]
) -> None:
    """A name is looked up once: a second answer, which may be private, is never asked for."""
    left = resolver(["8.8.8.8"], ["127.0.0.1"])
    serve("https://provider.test/token", allows_private=False).refresh()
    assert dialled == ["8.8.8.8"]
    assert left == [["127.0.0.1"]]


def test_every_address_of_a_name_is_tried(
    serve: Serve, resolver: Answers, dialled: list[str]
) -> None:
    """A provider is reached where only the last of its addresses answers."""
    resolver(["2606:4700::1111", "8.8.8.8"])
    answer = serve("https://provider.test/token", allows_private=False).refresh()
    assert dialled == ["2606:4700::1111", "8.8.8.8"]
    assert error_code(answer) == "oauth_provider_unavailable"


def test_the_next_address_is_tried_before_anything_is_sent(
    provider: Provider, serve: Serve, resolver: Answers
) -> None:
    """An address that refuses connections costs nothing; the request goes out once."""
    resolver(["127.0.0.2", "127.0.0.1"])  # nobody listens on the first
    assert serve(f"https://provider.test:{provider.port}/good").refresh().status_code == 200
    assert len(provider.requests) == 1


@pytest.mark.parametrize(
    "host",
    ["127.0.0.1", "localhost", "[::1]", "[::ffff:127.0.0.1]", "169.254.169.254", "10.1.2.3"],
)
def test_a_literal_private_address_is_refused_unless_allowed(
    host: str, provider: Provider, serve: Serve, dialled: list[str]
) -> None:
    """Where the operator says nothing, no private address is connected to; the setting opens it."""
    url = f"https://{host}:{provider.port}/good"
    assert error_code(serve(url, allows_private=False).refresh()) == "oauth_provider_unavailable"
    assert dialled == []
    serve(url, allows_private=True).refresh()
    assert dialled


def test_a_private_provider_that_is_allowed_answers(provider: Provider, serve: Serve) -> None:
    """With the setting, a provider on this machine works by name and by address."""
    for host in ("localhost", "127.0.0.1"):
        assert serve(f"https://{host}:{provider.port}/good").refresh().status_code == 200


def test_an_unknown_name_is_told_as_such(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    """A name that does not resolve is the provider's absence, and said in words of its own."""

    def fails(*_: object, **__: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "a text with provider.test in it")

    monkeypatch.setattr(socket, "getaddrinfo", fails)
    answer = serve("https://provider.test/token").refresh()
    assert (answer.status_code, error_code(answer)) == (502, "oauth_provider_unavailable")
    assert "name is not known" in answer.json()["error"]["message"]
    assert "provider.test" not in answer.text


# --- TLS ---------------------------------------------------------------------------------------


def refusal(authority: Authority, *names: str, ca_file: Path | None, **how: Any) -> str:
    """Asks a provider that shows such a certificate, and gives the message of the refusal."""
    with running_provider(authority.server_context(*names, **how)) as provider:
        answer = LocalService(connection(provider.url("good")), ca_file=ca_file).refresh()
        assert (answer.status_code, error_code(answer)) == (502, "oauth_provider_unavailable")
        assert provider.requests == []
        message = answer.json()["error"]["message"]
        assert isinstance(message, str)
        return message


def test_a_certificate_for_another_name_is_refused(authority: Authority) -> None:
    """A provider has to prove the declared name; nothing is sent to one that cannot."""
    assert "certificate" in refusal(authority, "other.test", ca_file=authority.ca_file)
    assert "certificate" in refusal(authority, "127.0.0.1", ca_file=authority.ca_file)


def test_an_expired_certificate_is_refused(authority: Authority) -> None:
    """A certificate that has ended proves nothing."""
    assert "certificate" in refusal(
        authority, "localhost", ca_file=authority.ca_file, has_expired=True
    )


def test_an_authority_that_nobody_trusts_is_refused(authority: Authority, tmp_path: Path) -> None:
    """Without the operator's file, or with another's, a certificate of our own is refused."""
    assert "certificate" in refusal(authority, "localhost", ca_file=None)
    other = make_authority(tmp_path)
    assert "certificate" in refusal(authority, "localhost", ca_file=other.ca_file)


def test_the_name_of_the_declaration_is_shown_and_checked(
    authority: Authority, resolver: Answers
) -> None:
    """The pinned address does not take the place of the name in SNI, certificate and Host."""
    context = authority.server_context("provider.test")
    shown: list[str | None] = []
    context.sni_callback = lambda _, name, __: shown.append(name)
    with running_provider(context, host="provider.test") as provider:
        resolver(["127.0.0.1"])
        answer = LocalService(connection(provider.url("good")), ca_file=authority.ca_file).refresh()
        assert answer.status_code == 200
        assert shown == ["provider.test"]
        assert provider.requests[0].headers["host"] == f"provider.test:{provider.port}"


def test_an_unencrypted_provider_is_an_outage(serve: Serve) -> None:
    """A server that speaks plain HTTP where TLS is declared gets no request."""
    received: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:
        import threading

        def answer() -> None:
            plain, _ = listener.accept()
            with plain:
                received.append(plain.recv(65536))
                plain.sendall(GOOD)

        thread = threading.Thread(target=answer)
        thread.start()
        told = serve(f"https://localhost:{listener.getsockname()[1]}/t").refresh()
        thread.join()
    assert error_code(told) == "oauth_provider_unavailable"
    assert b"POST" not in received[0]


def test_proxies_of_the_surroundings_are_not_used(
    provider: Provider, serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Variables for proxies do not send secrets another way."""
    for name in ("HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    assert serve(provider.url("good")).refresh().status_code == 200


def test_credentials_of_the_surroundings_are_not_used(
    provider: Provider, serve: Serve, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A .netrc of whoever runs the service adds nothing to a request."""
    (tmp_path / ".netrc").write_text("default login somebody password something\n")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("NETRC", str(tmp_path / ".netrc"))
    url = provider.replies(response({"error": "invalid_client"}, status="401 Unauthorized"))
    serve(url).refresh()
    assert "authorization" not in provider.requests[0].headers
