"""What the process tells, and to whom."""

from __future__ import annotations

import os
import sys

import pytest

from segmentstream.runtime.telling import write_summary


def test_a_reader_that_has_gone_does_not_change_the_outcome(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The summary of a recorded request has nowhere to go: that is told, and is no error."""
    reading, writing = os.pipe()
    os.close(reading)
    broken = os.fdopen(writing, "w")
    monkeypatch.setattr(sys, "stdout", broken)
    write_summary({"outcome": "succeeded"})
    sys.stdout.close()
    with pytest.raises(BrokenPipeError):
        broken.close()
    assert "Nobody reads" in caplog.text
