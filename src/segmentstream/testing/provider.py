"""The fake provider as a process of its own: `python -m segmentstream.testing.provider`.

It ends with the process that started it, so that a demo which dies leaves nothing behind.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

from segmentstream.testing._fake import FakeProvider

_PARENT_SECONDS = 0.5


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the provider until it is told to stop or its parent has ended."""
    parent = os.getppid()  # before anything that takes time
    given = _parser().parse_args(arguments)
    documents = {} if given.data is None else _documents(given.data)
    stopping = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopping.set())
    with FakeProvider(
        port=given.port, consent=given.consent, lifetime_seconds=given.lifetime_seconds
    ) as provider:
        for path, document in documents.items():
            provider.serve(path, document)
        print(f"Fake provider: {provider.url}", flush=True)  # noqa: T201 - what starts it waits for it
        # Asking again and again is the one way that every system knows.
        while os.getppid() == parent and not stopping.wait(_PARENT_SECONDS):
            pass
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m segmentstream.testing.provider",
        description="Runs an OAuth provider with a JSON API on 127.0.0.1, for demos and tests.",
    )
    parser.add_argument("--port", type=int, default=0, help="where to listen; any free port if 0")
    parser.add_argument(
        "--data", type=Path, help='a JSON file of documents by path: {"/customers": [...]}'
    )
    parser.add_argument(
        "--consent", choices=("asked", "automatic"), default="asked", help="who says yes"
    )
    parser.add_argument(
        "--lifetime-seconds", type=int, default=3600, help="how long an access token lives"
    )
    return parser


def _documents(file: Path) -> dict[str, object]:
    try:
        documents = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        sys.exit(f"{file} cannot be read: {error}. Give a JSON file of documents by path.")
    if not isinstance(documents, dict):
        sys.exit(f'{file} holds no object. Write documents by path: {{"/customers": [...]}}.')
    return documents


if __name__ == "__main__":
    sys.exit(main())
