"""What docs/connections.md says about the tests."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "connections.md"
SHORT = "tests/connections_runtime/test_renewal_"

pytestmark = pytest.mark.skipif(not PAGE.is_file(), reason="needs docs/ of the source tree")


def named() -> list[tuple[str, str]]:
    """Gives each test file that the page names, and what it names in it."""
    text = re.sub(r"`R([a-z]+\.py)", rf"`{SHORT}\1", PAGE.read_text())
    found = re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+)| -k (\w+))?`", text)
    return [(file, test or part) for file, test, part in found]


def test_the_page_names_tests_that_exist() -> None:
    """Every file is there, and holds a test of that name, or some that a part of a name selects."""
    assert len(named()) > 35
    for file, name in named():
        tests = re.findall(r"def (test_\w+)", (ROOT / file).read_text())
        assert tests, file
        assert not name or any(name in test for test in tests), (file, name)


@pytest.mark.parametrize("number", range(1, 11))
def test_every_rule_has_its_row(number: int) -> None:
    """The ten rules of renewal each name their tests."""
    [row] = re.findall(rf"^\| {number}\. .*$", PAGE.read_text(), re.MULTILINE)
    assert row.count("`") >= 2
