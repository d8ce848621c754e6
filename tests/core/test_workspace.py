from __future__ import annotations

from pathlib import Path

import pytest

from segmentstream._core.workspace import find_workspace

EXAMPLE = Path(__file__).parents[2] / "examples/workspace"


def made(workspace: Path, *files: str) -> Path:
    for file in files:
        (workspace / file).parent.mkdir(parents=True, exist_ok=True)
        (workspace / file).touch()
    return workspace.resolve()


@pytest.mark.parametrize("below", ["", "connections", "pipeline"])
def test_the_example_is_a_workspace(below: str) -> None:
    """The workspace and its two folders lead to the same place."""
    assert find_workspace(EXAMPLE / below) == EXAMPLE.resolve()


@pytest.mark.parametrize("file", ["connections/connections.py", "pipeline/definitions.py"])
def test_either_file_makes_a_workspace(tmp_path: Path, file: str) -> None:
    """A workspace may have connections and no pipeline, or a pipeline and no connections."""
    workspace = made(tmp_path / "mine", file, "notes/deep/er/text.md")

    for below in ("", Path(file).parent, "notes/deep/er", file, "not/there"):
        assert find_workspace(workspace / below) == workspace


def test_the_nearest_workspace_is_the_one(tmp_path: Path) -> None:
    """Of two workspaces, one inside the other, the inner one is found from inside it."""
    outer = made(tmp_path / "outer", "pipeline/definitions.py")
    inner = made(outer / "pipeline" / "inner", "connections/connections.py")

    assert find_workspace(inner / "connections") == inner
    assert find_workspace(inner.parent) == outer


@pytest.mark.parametrize(
    "file", ["connections.py", "definitions.py", "connections/__init__.py", "pipeline/jobs.py"]
)
def test_other_files_make_no_workspace(tmp_path: Path, file: str) -> None:
    """Only the two files in their folders count, and a folder in the place of a file does not."""
    made(tmp_path, file)
    (tmp_path / "pipeline" / "definitions.py").mkdir(parents=True)

    assert find_workspace(tmp_path) is None


def test_a_relative_folder_is_found_from_where_one_stands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The folders above the current one count though a relative path does not name them."""
    workspace = made(tmp_path, "connections/connections.py")
    monkeypatch.chdir(workspace / "connections")

    assert find_workspace(Path()) == workspace


def test_a_link_leads_to_the_workspace_it_is_in(tmp_path: Path) -> None:
    """A link to a folder of a workspace leads to that workspace, and not to where the link is."""
    workspace = made(tmp_path / "mine", "pipeline/definitions.py")
    (tmp_path / "link").symlink_to(workspace / "pipeline")

    assert find_workspace(tmp_path / "link") == workspace
