"""What docs/connections.md says about the tests."""

from __future__ import annotations

import re
import subprocess
import sys
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


def test_the_asset_and_its_test_work_as_they_stand_there(tmp_path: Path) -> None:
    """Copied from the page into three files, they are an asset and a test of it that passes."""
    asset, tests = (
        re.search(
            rf"^## {title}\n\n```python\n(.*?)```", PAGE.read_text(), re.MULTILINE | re.DOTALL
        )
        for title in ("In pipelines", "Test assets without an account")
    )
    assert asset
    assert tests
    plugin, test = tests.group(1).split("# test_deals.py\n")
    (tmp_path / "deals_asset.py").write_text(asset.group(1))
    (tmp_path / "conftest.py").write_text(plugin)
    (tmp_path / "test_deals.py").write_text("from deals_asset import deals\n" + test)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_deals.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    assert "1 passed" in done.stdout
