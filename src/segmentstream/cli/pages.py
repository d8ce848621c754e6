"""The pages a person's browser shows when it comes back; imports the standard library only.

They are whole in themselves: no script, no image, nothing from elsewhere, and no word of what the
provider or the address said.
"""

from __future__ import annotations

import base64
import hashlib
from dataclasses import dataclass
from html import escape
from http import HTTPStatus

_STYLE = """
:root { color-scheme: light dark; --page: #f4f5f7; --card: #fff; --edge: #e3e5ea; --text: #1c2330;
  --soft: #5a6475; --good: #1a7f4b; --bad: #b3372f; }
@media (prefers-color-scheme: dark) { :root { --page: #12151b; --card: #1b2029; --edge: #2b323e;
  --text: #e8ebf1; --soft: #9aa5b6; --good: #4cc38a; --bad: #f0807a; } }
* { box-sizing: border-box; }
body { margin: 0; min-height: 100vh; display: grid; place-items: center; padding: 24px;
  background: var(--page); color: var(--text);
  font: 16px/1.55 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", sans-serif; }
main { width: 100%; max-width: 440px; padding: 44px 40px 36px; text-align: center;
  background: var(--card); border: 1px solid var(--edge); border-radius: 16px; }
svg { display: block; width: 56px; height: 56px; margin: 0 auto 22px; fill: none;
  stroke: currentColor; stroke-width: 2.5; stroke-linecap: round; stroke-linejoin: round; }
.good svg { color: var(--good); }
.bad svg { color: var(--bad); }
h1 { margin: 0 0 10px; font-size: 22px; line-height: 1.3; font-weight: 600;
  letter-spacing: -0.01em; text-wrap: balance; overflow-wrap: anywhere; }
p, footer { color: var(--soft); text-wrap: balance; }
p { margin: 0; }
footer { margin-top: 30px; padding-top: 18px; border-top: 1px solid var(--edge);
  font-size: 13px; }
"""
_STYLE_HASH = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
_RING = '<circle cx="28" cy="28" r="25"/>'
_TICK = f'{_RING}<path d="M18 29l7 7 14-15"/>'
_CROSS = f'{_RING}<path d="M20 20l16 16M36 20l-16 16"/>'

# What every answer of the loopback server carries; a page may show itself and its style, only.
HEADERS = {
    "Content-Security-Policy": f"default-src 'none'; style-src 'sha256-{_STYLE_HASH}'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """Is what a browser shows.

    Attributes:
        title: What happened, in some words.
        text: What that means and what to do now.
        is_good: Whether it is what the person wanted.
        status: The HTTP status it is answered with.
    """

    title: str
    text: str
    is_good: bool = False
    status: HTTPStatus = HTTPStatus.OK

    def to_html(self) -> str:
        """Writes the page."""
        return (
            '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
            '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
            f"<title>{escape(self.title)}</title>\n<style>{_STYLE}</style>\n</head>\n"
            f'<body>\n<main class="{"good" if self.is_good else "bad"}">\n'
            f'<svg viewBox="0 0 56 56" aria-hidden="true">'
            f"{_TICK if self.is_good else _CROSS}</svg>\n"
            f"<h1>{escape(self.title)}</h1>\n<p>{escape(self.text)}</p>\n"
            "<footer>SegmentStream connections, on this computer</footer>\n"
            "</main>\n</body>\n</html>\n"
        )


def connected(name: str, *, is_whole: bool) -> Page:
    """Says that a connection can be used; the name is the one that was declared."""
    text = "You can close this page and go back to the terminal."
    if not is_whole:
        text = "Not all that was asked for was granted: the terminal says what is missing."
    return Page(title=f"{name} is connected", text=text, is_good=True)


REFUSED = Page(
    title="Access was not granted",
    text="Nothing was connected. To try again, run the command once more and say yes.",
)
FAILED = Page(
    title="It could not be connected",
    text="The terminal says what went wrong and what to do. You can close this page.",
)
EXPIRED = Page(
    title="This login is not under way",
    text="It is over, or was begun elsewhere. Run the command again, and use the page it opens.",
    status=HTTPStatus.BAD_REQUEST,
)
WRONG_HOST = Page(
    title="This is not the address to come back to",
    text="The command answers under the address that it printed, and no other.",
    status=HTTPStatus.MISDIRECTED_REQUEST,
)
NOT_HERE = Page(
    title="There is nothing here",
    text="The command waits for the provider to send your browser back. Go on with the login.",
    status=HTTPStatus.NOT_FOUND,
)
ONLY_GET = Page(
    title="Only pages are given here",
    text="The provider has to send your browser back by a link.",
    status=HTTPStatus.METHOD_NOT_ALLOWED,
)
NOT_READABLE = Page(
    title="That could not be read",
    text="What came was no request of a browser, or was too long.",
    status=HTTPStatus.BAD_REQUEST,
)
