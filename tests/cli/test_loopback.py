"""What the loopback server makes of whatever comes to it, over real sockets."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable, Mapping

import pytest

from connections_runtime.provider import PATIENCE
from segmentstream.cli import loopback as loopback_module
from segmentstream.cli import pages
from segmentstream.cli.connect import HOSTS
from segmentstream.cli.loopback import AddressTakenError, Loopback
from segmentstream.cli.pages import Page

_PAGE = Page(title="Done", text="All of it.", is_good=True)
_SECRET = "code-of-the-callback"

type Story = Callable[[Loopback], Awaitable[None]]


class Work:
    """Is what is done with a callback; it counts how often, and waits until it may end."""

    def __init__(self, *, waits: bool = False) -> None:
        self.callbacks: list[Mapping[str, str]] = []
        self.has_begun = asyncio.Event()
        self.may_end = asyncio.Event()
        if not waits:
            self.may_end.set()

    async def __call__(self, callback: Mapping[str, str]) -> Page:
        self.callbacks.append(callback)
        self.has_begun.set()
        await self.may_end.wait()
        return _PAGE


def run(story: Callable[[Loopback, Work], Awaitable[None]], *, waits: bool = False) -> None:
    """Tells a story with a server that expects the state `right`."""

    async def told() -> None:
        async with asyncio.timeout(PATIENCE), Loopback(host="127.0.0.1", port=0) as loopback:
            work = Work(waits=waits)
            loopback.expect("right", work)
            await story(loopback, work)

    asyncio.run(told())


async def send(loopback: Loopback, content: bytes) -> bytes:
    """Sends bytes and gives what comes back until the end."""
    reader, writer = await asyncio.open_connection("127.0.0.1", loopback.port)
    writer.write(content)
    try:
        await writer.drain()
        return await reader.read()
    except ConnectionError:
        return b""
    finally:
        writer.close()


async def ask(
    loopback: Loopback, target: str, *, method: str = "GET", host: str = "", more: str = ""
) -> str:
    """Asks as a browser does."""
    host = host or f"127.0.0.1:{loopback.port}"
    request = f"{method} {target} HTTP/1.1\r\nHost: {host}\r\n{more}\r\n"
    return (await send(loopback, request.encode("latin-1"))).decode()


def callback(state: str = "right") -> str:
    """Gives the target of a callback."""
    return f"/callback?code={_SECRET}&state={state}"


def test_the_code_leaves_the_address_before_a_page_is_shown() -> None:
    """The callback answers with a redirect to a clean address, and that with the page."""

    async def story(loopback: Loopback, work: Work) -> None:
        answer = await ask(loopback, callback())
        assert answer.startswith("HTTP/1.1 303 ")
        assert "Location: /done\r\n" in answer
        assert _SECRET not in answer
        assert await loopback.outcome() is _PAGE
        shown = await ask(loopback, "/done")
        assert shown.startswith("HTTP/1.1 200 ")
        assert "All of it." in shown
        await loopback.shown()
        assert work.callbacks == [{"code": _SECRET, "state": "right"}]

    run(story)


def test_report_22_visits_at_once_and_later_are_one_exchange() -> None:
    """Those that come while the exchange is under way wait for it; all get the same answer."""

    async def story(loopback: Loopback, work: Work) -> None:
        visits = [asyncio.create_task(ask(loopback, callback())) for _ in range(3)]
        await work.has_begun.wait()
        work.may_end.set()
        answers = {*await asyncio.gather(*visits), await ask(loopback, callback())}
        assert len(answers) == 1
        assert len(work.callbacks) == 1

    run(story, waits=True)


def test_report_22_a_browser_that_hangs_up_does_not_stop_the_exchange() -> None:
    """The exchange goes on, and the next visit gets its outcome."""

    async def story(loopback: Loopback, work: Work) -> None:
        _, writer = await asyncio.open_connection("127.0.0.1", loopback.port)
        writer.write(
            f"GET {callback()} HTTP/1.1\r\nHost: 127.0.0.1:{loopback.port}\r\n\r\n".encode()
        )
        await work.has_begun.wait()
        writer.close()
        await writer.wait_closed()
        work.may_end.set()
        assert (await ask(loopback, callback())).startswith("HTTP/1.1 303 ")
        assert len(work.callbacks) == 1

    run(story, waits=True)


@pytest.mark.parametrize(
    "more",
    [
        "Sec-Purpose: prefetch\r\n",
        "Sec-Purpose: prefetch;prerender\r\n",
        "Purpose: prefetch\r\n",
        "purpose: Prefetch\r\n",
    ],
)
def test_report_22_a_look_ahead_uses_no_code(more: str) -> None:
    """What is fetched in case a person goes there is not answered with success, and not kept."""

    async def story(loopback: Loopback, work: Work) -> None:
        answer = await ask(loopback, callback(), more=more)
        assert answer.startswith("HTTP/1.1 503 ")
        assert "Cache-Control: no-store" in answer
        assert work.callbacks == []

    run(story)


def test_head_uses_no_code() -> None:
    """A program that checks the address gets headers only."""

    async def story(loopback: Loopback, work: Work) -> None:
        answer = await ask(loopback, callback(), method="HEAD")
        assert answer.partition("\r\n\r\n")[2] == ""
        assert work.callbacks == []

    run(story)


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "TRACE", "CONNECT"])
def test_other_methods_are_refused(method: str) -> None:
    """Nothing but a link brings a code."""

    async def story(loopback: Loopback, work: Work) -> None:
        answer = await ask(loopback, callback(), method=method)
        assert answer.startswith("HTTP/1.1 405 ")
        assert "Allow: GET, HEAD" in answer
        assert work.callbacks == []

    run(story)


@pytest.mark.parametrize(
    "host",
    ["evil.example", "evil.example:{port}", "127.0.0.1", "127.0.0.1:1", "localhost:{port}", " "],
)
def test_another_host_name_is_refused(host: str) -> None:
    """A page whose name was made to lead here (DNS rebinding) reaches nothing."""

    async def story(loopback: Loopback, work: Work) -> None:
        answer = await ask(loopback, callback(), host=host.format(port=loopback.port))
        assert answer.startswith("HTTP/1.1 421 ")
        assert work.callbacks == []

    run(story)


def test_two_host_names_are_none() -> None:
    """The right name beside another is refused, whichever comes first."""

    async def story(loopback: Loopback, work: Work) -> None:
        answer = await ask(loopback, callback(), more="Host: evil.example\r\n")
        assert answer.startswith("HTTP/1.1 421 ")
        assert work.callbacks == []

    run(story)


@pytest.mark.parametrize(
    "query",
    [
        "",
        "?",
        "?code=x",
        "?code=x&state=wrong",
        "?code=x&state=",
        "?code=x&state=right&state=right",
        "?code=x&code=y&state=right",
        "?state=right%00",
        "?" + "&".join(f"a{number}=1" for number in range(200)) + "&state=right",
    ],
)
def test_a_callback_of_no_login_under_way_changes_nothing(query: str) -> None:
    """A wrong state, or a parameter that comes twice (RFC 6749 section 3.1), is turned away."""

    async def story(loopback: Loopback, work: Work) -> None:
        answer = await ask(loopback, f"/callback{query}")
        assert answer.startswith("HTTP/1.1 400 ")
        assert work.callbacks == []
        assert not loopback.has_come
        assert (await ask(loopback, callback())).startswith("HTTP/1.1 303 ")

    run(story)


@pytest.mark.parametrize(
    "target", ["/", "/favicon.ico", "/done", "/callback/", "/callbackx?state=right"]
)
def test_there_is_nothing_else(target: str) -> None:
    """Other addresses, also that of a page which is not there yet, are not found."""

    async def story(loopback: Loopback, work: Work) -> None:
        assert (await ask(loopback, target)).startswith("HTTP/1.1 404 ")
        assert work.callbacks == []

    run(story)


@pytest.mark.parametrize(
    "content",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(64) + b"\r\n\r\n",
        b"\x00" * 1000 + b"\r\n\r\n",
        b"GET\r\n\r\n",
        b"GET http://127.0.0.1/callback?state=right HTTP/1.1\r\n\r\n",
        b"GET /callback?state=right HTTP/2\r\n\r\n",
        b"GET /callback?state=right\r\n\r\n",
        b"GET /call back HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\nno colon\r\n\r\n",
        b"GET /\xff HTTP/1.1\r\n\r\n",
        b"GET /" + b"x" * 1_000_000 + b" HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\nX: " + b"x" * 1_000_000 + b"\r\n\r\n",
    ],
    ids=[
        "TLS", "zeros", "no target", "absolute", "version 2", "version 0.9", "space", "no colon",
        "byte", "long line", "long header",
    ],
)  # fmt: skip
def test_garbage_is_harmless(content: bytes) -> None:
    """What is no request of a browser is refused or cut off, and the login goes on."""

    async def story(loopback: Loopback, work: Work) -> None:
        answer = await send(loopback, content)
        assert answer == b"" or answer.startswith(b"HTTP/1.1 400 ")
        assert work.callbacks == []
        assert (await ask(loopback, callback())).startswith("HTTP/1.1 303 ")

    run(story)


def test_scanners_do_not_keep_a_person_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Connections that say nothing are bounded, and go when their visitors do."""
    monkeypatch.setattr(loopback_module, "_HEAD_SECONDS", 2 * PATIENCE)

    async def story(loopback: Loopback, work: Work) -> None:
        silent = [await asyncio.open_connection("127.0.0.1", loopback.port) for _ in range(100)]
        refused = [each for each in silent[64:] if await each[0].read() == b""]
        assert len(refused) == 36
        for _, writer in silent:
            writer.close()
        while not (await ask(loopback, callback())).startswith("HTTP/1.1 303 "):
            pass

    run(story)


def test_the_end_does_not_wait_for_silent_visitors(monkeypatch: pytest.MonkeyPatch) -> None:
    """A browser's connection in advance is cut when the login is over."""
    monkeypatch.setattr(loopback_module, "_HEAD_SECONDS", 2 * PATIENCE)

    async def story() -> None:
        async with asyncio.timeout(PATIENCE):
            async with Loopback(host="127.0.0.1", port=0) as loopback:
                reader, writer = await asyncio.open_connection("127.0.0.1", loopback.port)
                assert (await ask(loopback, "/")).startswith("HTTP/1.1 404 ")
            assert await reader.read() == b""
            writer.close()
            with pytest.raises(ConnectionError):
                await asyncio.open_connection("127.0.0.1", loopback.port)

    asyncio.run(story())


def test_every_answer_is_safe_to_show() -> None:
    """Each carries the headers that keep it out of caches, frames and other pages."""

    async def story(loopback: Loopback, work: Work) -> None:
        answers = [
            await ask(loopback, "/"),
            await ask(loopback, callback("wrong")),
            await ask(loopback, callback(), method="POST"),
            await ask(loopback, callback(), host="evil.example"),
            await ask(loopback, callback(), more="Purpose: prefetch\r\n"),
            (await send(loopback, b"nonsense\r\n\r\n")).decode(),
            await ask(loopback, callback()),
            await ask(loopback, "/done"),
        ]
        for answer in answers:
            head, _, body = answer.partition("\r\n\r\n")
            for header in (
                "Content-Security-Policy: default-src 'none'; style-src 'sha256-",
                "Referrer-Policy: no-referrer",
                "Cache-Control: no-store",
                "X-Content-Type-Options: nosniff",
                "X-Frame-Options: DENY",
            ):
                assert f"\r\n{header}" in head
            assert "Server:" not in head
            assert f"Content-Length: {len(body.encode())}" in head

    run(story)


def test_nothing_of_a_request_is_repeated() -> None:
    """Neither an address nor a header is part of any answer."""
    mark = "<script>mark</script>"

    async def story(loopback: Loopback, work: Work) -> None:
        for target in (f"/{mark}", f"/callback?state={mark}&error_description={mark}"):
            for host in ("", f"{mark}:1"):
                answer = await ask(loopback, target, host=host, more=f"X: {mark}\r\n")
                assert "mark" not in answer

    run(story)


@pytest.mark.parametrize("host", HOSTS)
def test_it_listens_on_loopback_alone(host: str) -> None:
    """No address that the network reaches is listened on."""

    async def story() -> None:
        async with Loopback(host=host, port=0) as loopback:
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
                probe.connect(("192.0.2.1", 9))  # sends nothing: it asks for our own address
                own = probe.getsockname()[0]
            with pytest.raises(ConnectionError):
                await asyncio.open_connection(own, loopback.port)
            _, writer = await asyncio.open_connection("127.0.0.1", loopback.port)
            writer.close()

    try:
        asyncio.run(story())
    except OSError as error:
        if "unreachable" not in str(error).lower():
            raise
        pytest.skip("needs a network address besides loopback")


def test_localhost_is_not_shared() -> None:
    """Where `localhost` leads a browser to IPv6, nobody else answers it."""
    if not socket.has_ipv6:
        pytest.skip("needs IPv6")
    try:
        other = socket.create_server(("::1", 0), family=socket.AF_INET6)
    except OSError:
        pytest.skip("needs IPv6")

    async def story() -> None:
        async with Loopback(host="localhost", port=other.getsockname()[1]):
            """Is not reached."""

    with other, pytest.raises(AddressTakenError):
        asyncio.run(story())


def test_before_a_login_is_begun_nothing_is_there() -> None:
    """A callback that comes too early finds nothing."""

    async def story() -> None:
        async with Loopback(host="127.0.0.1", port=0) as loopback:
            assert (await ask(loopback, callback())).startswith("HTTP/1.1 404 ")

    asyncio.run(story())


def test_pages_escape_names_and_hold_nothing_from_elsewhere() -> None:
    """The name of a connection is text; no page has a script, an address or an event."""
    page = pages.connected("<img src=x onerror=alert(1)>", is_whole=True)
    assert "&lt;img" in page.to_html()
    every = [page, *(each for each in vars(pages).values() if isinstance(each, Page))]
    assert len(every) > 5
    for each in every:
        for bad in ("<script", "<img", "<link", "src=", "href=", "style=", "url(", "http"):
            assert bad not in each.to_html().replace("&lt;img src=x", "")
