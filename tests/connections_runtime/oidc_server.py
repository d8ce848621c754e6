"""An independent OAuth server that judges the service: npm's oidc-provider, over HTTPS."""

from __future__ import annotations

import json
import shutil
import ssl
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import httpx

_INSTALLED = Path(__file__).parents[2] / ".node-oidc"
REDIRECT_URI = "https://app.example/callback"


@dataclass(frozen=True, slots=True, kw_only=True)
class OidcServer:
    """Is a running server.

    Attributes:
        issuer: Its address.
        secret: The secret of its confidential clients `by-basic`, `by-post`, `asking` and `web`.
        ca_file: What to trust to reach it.
        process: Its process.
    """

    issuer: str
    secret: str = field(repr=False)
    ca_file: Path
    process: subprocess.Popen[str] = field(repr=False)

    def refreshes(self) -> int:
        """Says how many refreshes it has carried out or refused."""
        assert self.process.stdin
        assert self.process.stdout
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        return int(self.process.stdout.readline())

    def authorize(self, url: str) -> dict[str, str]:
        """Goes to an authorization address as a person who says yes; gives what comes back."""
        trust = ssl.create_default_context(cafile=self.ca_file)
        with httpx.Client(verify=trust, trust_env=False) as browser:
            while not url.startswith(REDIRECT_URI):
                answer = browser.get(url)
                assert answer.is_redirect, answer.text
                url = str(answer.next_request.url if answer.next_request else "")
        return {name: values[0] for name, values in parse_qs(urlsplit(url).query).items()}


def missing() -> str | None:
    """Says what is needed to run the server, None where all is there."""
    if shutil.which("node") is None:
        return "needs Node.js"
    if not (_INSTALLED / "ready").exists():
        return "needs oidc-provider: make .node-oidc/ready"
    return None


@contextmanager
def running_oidc_server(
    pem: Path, ca_file: Path, *, redirects: Sequence[str] = ()
) -> Iterator[OidcServer]:
    """Starts the server and ends it; `redirects` are those of its client `web`."""
    program = Path(__file__).with_name("oidc_server.mjs")
    with subprocess.Popen(
        ["node", str(program), str(pem), str(_INSTALLED), *redirects],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        assert process.stdout
        try:
            told = json.loads(process.stdout.readline())
            yield OidcServer(**told, ca_file=ca_file, process=process)
        finally:
            process.kill()
