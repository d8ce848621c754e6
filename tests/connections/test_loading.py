from __future__ import annotations

from pathlib import Path

import pytest

from segmentstream._core.errors import ConnectionsFileError
from segmentstream.connections import ConnectionDeclarationError
from segmentstream.connections._loading import load_connections

EXAMPLE = Path(__file__).parents[2] / "examples/workspace"
DECLARATION = """
from segmentstream.connections import OAuth2Connection, secret_ref

def declared(key):
    return OAuth2Connection(
        key=key, name="Mine", provider="mine", scopes=[],
        authorization_url="https://mine.example/auth", token_url="https://mine.example/token",
        client_id=secret_ref("mine-id"), client_secret=secret_ref("mine-secret"),
    )
"""


def folder_with(folder: Path, text: str) -> Path:
    (folder / "connections.py").write_text(DECLARATION + text)
    return folder


def test_the_declarations_of_a_folder_are_loaded() -> None:
    """The connections of the example come in the order in which they are written."""
    keys = [connection.key for connection in load_connections(EXAMPLE / "connections")]

    assert keys == ["aircraft_registry", "google_ads", "hubspot"]


@pytest.mark.parametrize("written", ["[declared('a'), declared('b')]", "()"])
def test_a_list_and_no_connection_at_all_are_declarations_too(tmp_path: Path, written: str) -> None:
    """Any sequence will do, also an empty one, and what is given back cannot change."""
    loaded = load_connections(folder_with(tmp_path, f"connections = {written}"))

    assert isinstance(loaded, tuple)
    assert [connection.key for connection in loaded] == ["a", "b"][: len(loaded)]


@pytest.mark.parametrize(
    "text", ["", "connections = None", "connections = declared('a')", "connections = ['a']"]
)
def test_a_file_without_declarations_is_refused(tmp_path: Path, text: str) -> None:
    """What is missing, or no sequence of connections, is said, and what to write."""
    with pytest.raises(ConnectionsFileError) as caught:
        load_connections(folder_with(tmp_path, text))

    assert caught.value.problem == "connections.py declares no `connections`."
    assert caught.value.remedy == "Write connections = (OAuth2Connection(...),)."


def test_a_folder_without_the_file_is_refused(tmp_path: Path) -> None:
    """Where there is no file, the error says so and where to go."""
    with pytest.raises(ConnectionsFileError) as caught:
        load_connections(tmp_path)

    assert str(caught.value) == (
        "There is no connections.py in this folder. Run it in the folder that holds it."
    )


def test_the_workspace_itself_leads_to_its_folder() -> None:
    """Whoever stands one folder too high is told which one it is."""
    with pytest.raises(ConnectionsFileError) as caught:
        load_connections(EXAMPLE)

    assert caught.value.remedy == "Change into connections/ and run it there."


def test_two_connections_of_one_key_are_refused(tmp_path: Path) -> None:
    """Tokens are stored under a key, so a file may use it once."""
    with pytest.raises(ConnectionDeclarationError, match="'a'"):
        load_connections(folder_with(tmp_path, "connections = [declared('a'), declared('a')]"))
