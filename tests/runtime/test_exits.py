"""The exit codes, in the code and on the page."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from segmentstream.runtime.exits import MEANINGS, Exit

PAGE = Path(__file__).parents[2] / "docs" / "runtime.md"


@pytest.mark.skipif(not PAGE.is_file(), reason="needs docs/ of the source tree")
def test_the_page_has_the_table_of_the_code() -> None:
    """Every exit code has one meaning, the same in both places."""
    rows = re.findall(r"^\| (\d+) \| (.+) \|$", PAGE.read_text(), re.MULTILINE)
    assert rows == [(str(int(code)), MEANINGS[code]) for code in Exit]
