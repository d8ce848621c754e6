"""A BigQuery API server of our own: starts it, and ends it whatever happens to this process."""

from __future__ import annotations

import json
import os
import selectors
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

_ROOT = Path(__file__).parents[2]
_PYTHON = _ROOT / ".venv-emulator" / "bin" / "python"
_HOST = Path(__file__).with_name("emulator_host.py")
_SECONDS_TO_START = 60


class EmulatorError(Exception):
    """The server did not come up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Emulator:
    """Where a running server listens on this machine, and who it is."""

    rest: int
    grpc: int
    pid: int

    @property
    def url(self) -> str:
        """The address that a client takes as its API endpoint."""
        return f"http://127.0.0.1:{self.rest}"


@contextmanager
def running_emulator(log: Path) -> Iterator[Emulator]:
    """Starts a server with nothing in it, whose output goes to that file."""
    if not _PYTHON.exists():
        raise EmulatorError(
            "The BigQuery server is not installed: run `make .venv-emulator/ready`."
        )
    answer, ports = os.pipe()
    with (
        os.fdopen(answer) as answers,
        log.open("wb") as output,
        subprocess.Popen(
            [_PYTHON, "-I", _HOST, str(ports)],
            stdin=subprocess.PIPE,  # the server ends with it, even if this process is killed
            stdout=output,
            stderr=subprocess.STDOUT,
            pass_fds=[ports],
            start_new_session=True,  # Ctrl-C is for pytest, which then ends the server
        ) as process,
    ):
        os.close(ports)
        try:
            yield Emulator(**_when_ready(answers, log), pid=process.pid)
        finally:
            process.kill()


def _when_ready(answers: TextIO, log: Path) -> dict[str, int]:
    """Waits for the line with the ports."""
    with selectors.DefaultSelector() as selector:
        selector.register(answers, selectors.EVENT_READ)
        line = answers.readline() if selector.select(_SECONDS_TO_START) else ""
    if not line:
        tail = "\n".join(log.read_text(errors="replace").splitlines()[-30:])
        raise EmulatorError(f"The BigQuery server did not start. Its last words:\n{tail}")
    return dict(json.loads(line))
