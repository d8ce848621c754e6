"""The whole way in a real browser: log in, say yes, come back, read the page.

Set SCREENSHOTS to a folder to look at the pages.
"""

from __future__ import annotations

import json
import os
import shutil
import threading
from collections.abc import Callable, Iterator
from html import escape
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Literal

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

from cli.workspaces import Browser as Visitor
from cli.workspaces import Workspace
from connections_runtime.oidc_server import OidcServer
from connections_runtime.provider import PATIENCE
from segmentstream.cli import pages

type Served = Callable[[str], str]

# What the browser says when it got an answer that it does not give to a page from elsewhere.
_ANSWERED = "net::ERR_BLOCKED_BY_RESPONSE.NotSameOrigin"
_BROWSERS = ("chromium", "chromium-browser", "google-chrome")
_CHROMIUM = next(filter(None, map(shutil.which, _BROWSERS)), None)
_SCREENSHOTS = os.environ.get("SCREENSHOTS")

pytestmark = pytest.mark.skipif(
    _CHROMIUM is None, reason="needs Chromium: apt-get install chromium"
)


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    """A real browser without a window."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=_CHROMIUM,
            args=["--no-sandbox"] if os.geteuid() == 0 else [],
        )
        yield browser
        browser.close()


@pytest.fixture
def page(chromium: Browser) -> Iterator[Page]:
    """A page of a fresh browser, which takes the certificate of the tests' server."""
    with chromium.new_context(ignore_https_errors=True) as context:
        context.set_default_timeout(PATIENCE * 1000)
        yield context.new_page()


@pytest.fixture
def served() -> Iterator[Served]:
    """Serves a page of somebody else's on this machine, and gives its address."""
    content = ""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(content.encode())

        def log_message(self, *arguments: object) -> None:
            """Says nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as listening:
        threading.Thread(target=listening.serve_forever).start()

        def serve(page: str) -> str:
            nonlocal content
            content = page
            return f"http://127.0.0.1:{listening.server_port}/"

        yield serve
        listening.shutdown()


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_a_person_logs_in_and_says_yes(
    workspace: Workspace, page: Page, theme: Literal["light", "dark"]
) -> None:
    """The browser ends at a page without the code, which says that it is done."""
    page.emulate_media(color_scheme=theme)
    complaints: list[str] = []
    page.on("pageerror", lambda error: complaints.append(str(error)))
    with workspace.connecting("asking", "--no-browser", "--port=0") as login:
        page.goto(login.url())
        page.get_by_role("button", name="Log in").click()
        page.get_by_role("button", name="Allow").click()
        page.get_by_role("heading", name="The asking <one> is connected").wait_for()
        assert page.url == login.redirect_uri().replace("/callback", "/done")
        style = page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert style == {"light": "rgb(244, 245, 247)", "dark": "rgb(18, 21, 27)"}[theme]
        _keep(page, f"connected-{theme}")
        assert login.end() == 0
    assert "code=" not in page.evaluate("document.referrer + document.documentElement.outerHTML")
    assert complaints == []


def test_a_person_says_no(workspace: Workspace, page: Page) -> None:
    """The page says that nothing was connected, in our words and not in the provider's."""
    with workspace.connecting("asking", "--no-browser", "--port=0") as login:
        page.goto(login.url())
        page.get_by_role("button", name="Log in").click()
        page.get_by_role("button", name="Refuse").click()
        page.get_by_role("heading", name="Access was not granted").wait_for()
        assert login.end() == 1
    assert page.locator("b").count() == 0
    assert "said no" in login.said


def test_report_22_a_browser_that_looks_ahead_does_not_spend_the_code(
    workspace: Workspace, server: OidcServer, page: Page, served: Served
) -> None:
    """Chromium fetches the callback ahead of time, then goes there: the login succeeds."""
    with workspace.connecting("basic", "--no-browser", "--port=0") as login:
        callback = Visitor(server).callback(login.url())
        start = served(f'<link rel="prefetch" href="{escape(callback)}">')
        with page.expect_event("requestfailed") as looked_ahead:
            page.goto(start)
        assert looked_ahead.value.url == callback
        assert looked_ahead.value.failure == _ANSWERED
        told = workspace.json("connections", "list")
        assert {each["state"] for each in told} == {"not_connected"}
        page.goto(callback)
        page.get_by_role("heading", name="is connected").wait_for()
        assert login.end() == 0


def test_report_22_three_visits_of_a_real_browser_are_one_exchange(
    workspace: Workspace, server: OidcServer, page: Page, served: Served
) -> None:
    """Chromium asks for the same callback three times at once: one exchange, and the page."""
    with workspace.connecting("basic", "--no-browser", "--port=0") as login:
        address = json.dumps(Visitor(server).callback(login.url()))
        ask = f"fetch({address}, {{mode: 'no-cors'}})"
        start = served(
            f"<script>Promise.allSettled([{ask}, {ask}]).then(() => location = {address})</script>"
        )
        answered: list[str | None] = []
        page.on("requestfailed", lambda request: answered.append(request.failure))
        page.goto(start)
        page.get_by_role("heading", name="is connected").wait_for()
        assert answered == [_ANSWERED, _ANSWERED]
        assert login.end() == 0
    [basic] = [each for each in workspace.json("connections", "list") if each["number"]]
    assert basic["number"] == 1
    assert workspace.run("connections", "refresh", "basic").returncode == 0


def test_https_in_a_real_browser(workspace: Workspace, page: Page, web_port: int) -> None:
    """A browser that goes past its warning reaches the page over TLS."""
    with workspace.connecting("web", "--no-browser", f"--port={web_port}") as login:
        page.goto(login.url())
        page.get_by_role("heading", name="The web <one> is connected").wait_for()
        assert page.url == f"https://127.0.0.1:{web_port}/done"
        assert login.end() == 0


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize(
    "name", ["REFUSED", "FAILED", "EXPIRED", "WRONG_HOST", "NOT_HERE", "ONLY_GET", "missing"]
)
def test_every_page_fits_a_telephone(
    page: Page, name: str, theme: Literal["light", "dark"]
) -> None:
    """No page is wider than a narrow window."""
    shown = (
        pages.connected("A connection with a rather long name of its own", is_whole=False)
        if name == "missing"
        else getattr(pages, name)
    )
    page.emulate_media(color_scheme=theme)
    page.set_viewport_size({"width": 360, "height": 640})
    page.set_content(shown.to_html())
    assert page.evaluate("document.documentElement.scrollWidth") == 360
    _keep(page, f"{name.lower()}-{theme}")


def _keep(page: Page, name: str) -> None:
    if _SCREENSHOTS:
        folder = Path(_SCREENSHOTS)
        folder.mkdir(parents=True, exist_ok=True)
        page.screenshot(path=folder / f"{name}.png")
