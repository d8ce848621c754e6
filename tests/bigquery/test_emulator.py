import json
import urllib.request
from pathlib import Path

import pytest

from bigquery import emulator as module
from bigquery.emulator import Emulator, EmulatorError, running_emulator


def test_it_answers_a_query(emulator: Emulator) -> None:
    """The server runs a query and answers with its row."""
    request = urllib.request.Request(
        f"{emulator.url}/bigquery/v2/projects/p/queries",
        data=json.dumps({"query": "SELECT 1 AS one", "useLegacySql": False}).encode(),
    )

    with urllib.request.urlopen(request) as response:
        assert json.load(response)["rows"] == [{"f": [{"v": "1"}]}]


def test_a_missing_environment_says_how_to_make_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without its environment the server is not skipped: the error says which command makes it."""
    monkeypatch.setattr(module, "_PYTHON", tmp_path / "bin" / "python")

    with (
        pytest.raises(EmulatorError, match="run `make .venv-emulator/ready`"),
        running_emulator(tmp_path / "output.txt"),
    ):
        pass


def test_a_server_that_does_not_start_leaves_its_last_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The output of a server that fails to start is in the error."""
    broken = tmp_path / "broken.py"
    broken.write_text("raise SystemExit('no port is free')")
    monkeypatch.setattr(module, "_HOST", broken)

    with (
        pytest.raises(EmulatorError, match="no port is free"),
        running_emulator(tmp_path / "output.txt"),
    ):
        pass
