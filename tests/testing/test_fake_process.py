from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

_COMMAND = [sys.executable, "-m", "segmentstream.testing.provider"]
# Starts the provider and dies as a process does that was killed.
_DYING_PARENT = f"""
import os, subprocess
child = subprocess.Popen({_COMMAND!r}, stdout=subprocess.PIPE, text=True)
print(child.stdout.readline().split()[-1], flush=True)
os.kill(os.getpid(), 9)
"""


@contextmanager
def running(*arguments: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Runs the provider as a process, and gives it with its address."""
    with subprocess.Popen(
        [*_COMMAND, *arguments], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        assert process.stdout is not None
        try:
            yield process, process.stdout.readline().split()[-1]
        finally:
            process.kill()


def test_the_process_serves_a_file_and_stops_when_told(tmp_path: Path) -> None:
    """It answers with the documents of its file, and ends well on SIGTERM."""
    data = tmp_path / "data.json"
    data.write_text(json.dumps({"/customers": [{"id": 1}]}))
    with running("--data", str(data), "--consent", "automatic") as (process, url):
        assert httpx.get(f"{url}/api/customers", trust_env=False).status_code == 401
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0


def test_the_process_ends_with_its_parent() -> None:
    """When what started it is killed, it goes too."""
    # The provider holds the pipe of the standard error too: this comes back once both have ended.
    parent = subprocess.run(
        [sys.executable, "-c", _DYING_PARENT],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    url = parent.stdout.strip()
    assert parent.returncode == -signal.SIGKILL
    with pytest.raises(httpx.ConnectError):
        httpx.get(url, trust_env=False)


@pytest.mark.parametrize("text", ["[]", "{", None])
def test_a_file_that_cannot_be_served_is_said(tmp_path: Path, text: str | None) -> None:
    """A file that is missing or holds something else ends it with a sentence, no traceback."""
    data = tmp_path / "data.json"
    if text is not None:
        data.write_text(text)
    done = subprocess.run(
        [*_COMMAND, "--data", str(data)], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 1
    assert str(data) in done.stderr
    assert "Traceback" not in done.stderr
