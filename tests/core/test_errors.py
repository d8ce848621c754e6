from __future__ import annotations

import inspect
import pickle
import re

from segmentstream._core import errors
from segmentstream._core.errors import (
    ReauthorizationRequiredError,
    SegmentStreamError,
    WarehouseConnectionError,
)


def tree() -> list[type[SegmentStreamError]]:
    """Every error class of the module."""
    return [
        kind
        for kind in vars(errors).values()
        if inspect.isclass(kind) and issubclass(kind, SegmentStreamError)
    ]


def test_the_picture_of_the_tree_is_complete() -> None:
    """The drawing in the docstring names every error, under its own parent."""
    drawn = re.findall(r"(?m)^([│ ├└─]*)(\w+Error)", errors.__doc__ or "")
    assert {name for _, name in drawn} == {kind.__name__ for kind in tree()}
    parents: list[str] = []
    for indent, name in drawn:
        depth = len(indent) // 4
        parents[depth:] = [name]
        if depth:
            assert getattr(errors, name).__base__ is getattr(errors, parents[depth - 1])


def test_a_message_says_what_is_wrong_and_what_to_do() -> None:
    """Both parts stand in the text and apart as attributes."""
    error = WarehouseConnectionError("The file is busy.", "Wait.", retryable=True)
    assert str(error) == "The file is busy. Wait."
    assert (error.problem, error.remedy, error.retryable) == ("The file is busy.", "Wait.", True)


def test_only_what_may_help_is_retryable() -> None:
    """A plain error says that trying again changes nothing."""
    assert not SegmentStreamError("a", "b").retryable
    assert not WarehouseConnectionError("a", "b").retryable


def test_errors_survive_the_way_between_processes() -> None:
    """An error of two parts can be pickled, as an executor does, and keeps its text."""
    error = pickle.loads(pickle.dumps(SegmentStreamError("a.", "b.")))
    assert str(error) == "a. b."


def test_facts_survive_the_way_between_processes() -> None:
    """What an error of a connection knows is there after the way, too."""
    told = ReauthorizationRequiredError("a.", "b.", connection="ads", code="oauth_rate_limited")
    told.retry_after_seconds = 30
    assert vars(pickle.loads(pickle.dumps(told))) == vars(told)
