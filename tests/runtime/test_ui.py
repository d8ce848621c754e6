"""What a person sees of runs: Dagster's own web server on the runtime's instance, in Chromium.

With SCREENSHOTS set to a folder, each page is kept there as a picture.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest
from playwright.sync_api import Page, expect, sync_playwright

from runtime.shops import PATIENCE, Shop, eventually

_BROWSERS = ("chromium", "chromium-browser", "google-chrome")
_CHROMIUM = next(filter(None, map(shutil.which, _BROWSERS)), None)
_SCREENSHOTS = os.environ.get("SCREENSHOTS")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(_CHROMIUM is None, reason="needs Chromium: apt-get install chromium"),
]


@pytest.fixture
def page() -> Iterator[Page]:
    """A page of a real browser without a window."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=_CHROMIUM, args=["--no-sandbox"] if os.geteuid() == 0 else []
        )
        page = browser.new_page(viewport={"width": 1400, "height": 900})
        page.set_default_timeout(PATIENCE * 1000)
        expect.set_options(timeout=PATIENCE * 1000)
        yield page
        browser.close()


def test_the_runs_of_a_backfill_are_seen(shop: Shop, page: Page) -> None:
    """The web server on the same instance lists the runs, their events and the days that are there.

    It starts nothing: what would launch a run is switched off. SIGTERM ends it.
    """
    run_id = str(uuid4())
    ended = shop.run(
        "one_by_one", "05-01", "05-04", SHOP_FAILING="2024-05-03", SEGMENTSTREAM_RUN_ID=run_id
    )
    port = _free_port()
    server = shop.start(
        "", SEGMENTSTREAM_DAGSTER_MODE="webserver", PORT=str(port), SHOP_IS_SOUND="1"
    )
    address = f"http://127.0.0.1:{port}"
    eventually(lambda: _answers(f"{address}/server_info"))

    page.goto(f"{address}/runs?q[]=tag:segmentstream/run_id={run_id}")
    expect(page.get_by_text("Success", exact=True)).to_have_count(3)
    expect(page.get_by_text("Failure", exact=True)).to_have_count(1)
    _keep(page, "runs")

    failed = ended.summary["days"]["2024-05-03"]["run"]
    page.get_by_role("link", name=failed[:8]).first.click()
    expect(page.get_by_text("STEP_FAILURE").first).to_be_visible()
    expect(page.get_by_text("no rows on 2024-05-03").first).to_be_visible()
    expect(page.get_by_role("button", name=re.compile("Re-execute"))).to_be_disabled()
    _keep(page, "run")

    page.goto(f"{address}/assets/shop/one_by_one?view=partitions")
    expect(page.get_by_text("Materialized (3)")).to_be_visible()
    expect(page.get_by_text("Failed (1)")).to_be_visible()
    _keep(page, "partitions")

    server.signal(signal.SIGTERM)
    assert server.code() in {0, -signal.SIGTERM}


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return int(listening.getsockname()[1])


def _answers(address: str) -> bool:
    try:
        with urllib.request.urlopen(address, timeout=5) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False


def _keep(page: Page, name: str) -> None:
    if _SCREENSHOTS:
        page.screenshot(path=Path(_SCREENSHOTS) / f"{name}.png")
