"""Processes that write, as tests hold them; see `writer_host.py`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

_HOST = Path(__file__).with_name("writer_host.py")


class Writers:
    """Starts tasks in processes of their own, and gives what came of them."""

    def __init__(self, stdin: IO[str], stdout: IO[str]) -> None:
        self._stdin, self._stdout = stdin, stdout

    def start(self, *tasks: dict[str, Any]) -> list[int]:
        """Starts tasks at the same time; gives the ids of their processes."""
        self._stdin.write(json.dumps(tasks) + "\n")
        self._stdin.flush()
        pids: list[int] = json.loads(self._stdout.readline())
        return pids

    def endings(self) -> list[dict[str, Any] | None]:
        """Waits for the tasks; gives what each told, None where it was killed."""
        told: list[dict[str, Any] | None] = json.loads(self._stdout.readline())
        return told

    def run(self, *tasks: dict[str, Any]) -> list[dict[str, Any] | None]:
        """Starts tasks and waits for them."""
        self.start(*tasks)
        return self.endings()


@contextmanager
def running_writers() -> Iterator[Writers]:
    """Starts the process that forks."""
    path = os.pathsep.join([str(_HOST.parents[1]), os.environ.get("PYTHONPATH", "")])
    with subprocess.Popen(
        [sys.executable, "-W", "ignore", _HOST],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": path, "OPENBLAS_NUM_THREADS": "1"},
    ) as process:
        assert process.stdin
        assert process.stdout
        try:
            yield Writers(process.stdin, process.stdout)
        finally:
            process.stdin.close()
