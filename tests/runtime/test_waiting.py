"""When a process that waits for another with the same run id goes on by itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import pytest

from segmentstream.runtime import run_job
from segmentstream.runtime.claims import Claim
from segmentstream.runtime.stopping import Stop


class Answers:
    """Is a claim that is ours or not as a test says; what a lost connection does is such a mix."""

    def __init__(self, answers: Sequence[bool]) -> None:
        self.answers = list(answers)

    def take(self) -> bool:
        return self.answers.pop(0)

    def release(self) -> None:
        """Was ours."""


@pytest.mark.parametrize(
    ("answers", "is_unfinished", "pauses"),
    [
        ([True], True, []),  # a later start finds a dead run, and does not wait
        ([False, True], False, [0.5]),  # the other has come to its end
        ([False, True, True], True, [0.5, 15.0]),  # the other has died
        ([False, True, False, True, True], True, [0.5, 15.0, 0.5, 15.0]),  # it came back for it
    ],
)
def test_a_waiting_process_lets_the_holder_come_back_first(
    monkeypatch: pytest.MonkeyPatch,
    answers: Sequence[bool],
    is_unfinished: bool,
    pauses: Sequence[float],
) -> None:
    """A holder that was cut off has time to return; one that never does is taken for dead."""
    slept: list[float] = []
    monkeypatch.setattr(run_job, "_pause", lambda seconds, _stop: slept.append(seconds))
    claim = Answers(answers)
    assert run_job._take(cast("Claim", claim), lambda: is_unfinished, Stop())
    assert (slept, claim.answers) == (pauses, [])
