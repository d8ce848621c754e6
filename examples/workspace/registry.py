"""Plays a registry of aircraft on this machine: an OAuth provider with an API, and one person.

`make demo` and `make dev` run it. `python registry.py` runs it alone, with a page that asks for
consent, for whoever wants to log in by hand: `segmentstream connect aircraft_registry`.
"""

import argparse
import os
import runpy
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

from dotenv import load_dotenv
from pipeline import source

from segmentstream.testing import FakeProvider

WORKSPACE = Path(__file__).resolve().parent
CONNECTION = "aircraft_registry"
ROWS_PER_PAGE = 500


class NotConnectedError(Exception):
    """Says why the registry could not be authorized."""


@contextmanager
def running(*, asks: bool = False) -> Iterator[FakeProvider]:
    """Runs the registry where the declaration of the connection looks for it.

    Args:
        asks: Whether a page asks for consent; else the person is always there and says yes.
    """
    load_dotenv(WORKSPACE / ".env")
    declared = runpy.run_path(str(WORKSPACE / "connections" / "connections.py"))
    port = urlsplit(declared["REGISTRY"]).port or 0
    try:
        provider = FakeProvider(port=port, consent="asked" if asks else "automatic")
    except OSError as error:
        raise NotConnectedError(
            f"The aircraft registry cannot use port {port} ({error.strerror}). Stop what listens "
            "there, such as `make dev`, or change the port in connections/connections.py."
        ) from None
    with provider:
        rows = source.read_aircraft().to_pylist()
        pages = [rows[at : at + ROWS_PER_PAGE] for at in range(0, len(rows), ROWS_PER_PAGE)]
        provider.serve_pages("/aircraft", pages)
        yield provider


def connect() -> str:
    """Authorizes the connection as a person does, with this file for a browser.

    Returns:
        What the command printed.

    Raises:
        NotConnectedError: It did not succeed; the text is what the command said.
    """
    command = [str(Path(sys.executable).with_name("segmentstream")), "connect", CONNECTION]
    browser = f'"{sys.executable}" "{Path(__file__).resolve()}" --visit %s &'
    done = subprocess.run(
        [*command, "--port=0"],
        cwd=WORKSPACE,
        env={**os.environ, "BROWSER": browser},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise NotConnectedError(done.stderr.strip())
    return done.stdout.strip()


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the registry, alone or for as long as another command runs."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--visit", help=argparse.SUPPRESS)  # an address, as a browser visits it
    parser.add_argument("command", nargs="*", help="what to run with the registry, authorized")
    options = parser.parse_args(arguments)
    if options.visit:
        urllib.request.urlopen(options.visit, timeout=30).read()  # noqa: S310 - this machine
        return 0
    if options.command:
        with running():
            try:
                connect()
            except NotConnectedError as error:
                sys.stderr.write(f"The aircraft registry is not authorized. {error}\n")
            return _run(options.command)
    with running(asks=True) as provider:
        print(f"The aircraft registry runs on {provider.url}; Ctrl-C stops it.")
        signal.sigwait({signal.SIGINT, signal.SIGTERM})
    return 0


def _run(command: Sequence[str]) -> int:
    with subprocess.Popen(command) as process:
        # A terminal sends Ctrl-C to both: the command ends in its own time.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, lambda *_: process.terminate())
        return process.wait()


if __name__ == "__main__":
    sys.exit(main())
