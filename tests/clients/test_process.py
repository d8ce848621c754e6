"""What a process has: one broker, made on first use, and httpx only when it is used."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from clients.brokers import CountingBroker
from segmentstream import ConnectionAccessError, get_connection
from segmentstream._clients import process
from segmentstream._clients.local import LocalBroker
from segmentstream.testing import FakeProvider

TESTS = Path(__file__).parents[1]


def run(code: str, folder: Path, variables: Mapping[str, str] | None = None) -> str:
    """Runs code in a process of its own, and gives what it printed."""
    kept = {name: os.environ[name] for name in ("PATH",) if name in os.environ}
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", textwrap.dedent(code)],
        cwd=folder,
        env={**kept, "HOME": str(folder), "PYTHONPATH": str(TESTS), **(variables or {})},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""  # also nothing that ends the interpreter in disorder
    return done.stdout


def test_a_connection_costs_nothing_before_it_is_used(tmp_path: Path) -> None:
    """Getting one loads no library, reads no variable of ours and looks for no workspace."""
    printed = run(
        """
        import os, sys
        asked = []
        class Watched(dict):
            def get(self, name, default=None):
                asked.append(name)
                return super().get(name, default)
            def __getitem__(self, name):
                asked.append(name)
                return super().__getitem__(name)
        os.environ = Watched(os.environ)
        from segmentstream import get_connection
        connection = get_connection("ads", account="a", base_url="https://api.example.com")
        repr(connection)
        heavy = {"anyio", "dagster", "httpx", "ibis", "pydantic", "segmentstream_connections_runtime"}
        print(sorted(heavy & {name.partition(".")[0] for name in sys.modules}))
        print([name for name in asked if name.startswith("SEGMENTSTREAM_")])
        """,
        tmp_path,
    )
    assert printed.split("\n")[:2] == ["[]", "[]"]


def test_without_httpx_the_error_names_the_extra(tmp_path: Path) -> None:
    """Where the extra is missing, using a connection says what to install."""
    printed = run(
        """
        import sys
        sys.modules["httpx"] = None
        from segmentstream import ConnectionAccessError, get_connection
        connection = get_connection("ads")
        for use in (
            connection.client,
            connection.async_client,
            connection.access_token,
            lambda: connection.metadata,
        ):
            try:
                use()
            except ConnectionAccessError as error:
                print(error)
        """,
        tmp_path,
    )
    assert printed.count("segmentstream-pipeline[connections]") == 4


def test_threads_make_one_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many threads use a connection first, one broker is made."""
    made = []

    def make() -> CountingBroker:
        made.append(CountingBroker())
        return made[-1]

    monkeypatch.setattr(process, "_broker", make)
    monkeypatch.setattr(process, "_processes", {})
    with ThreadPoolExecutor(20) as pool:
        tokens = set(pool.map(lambda _: get_connection("it").access_token(), range(20)))
    assert tokens == {"token-1"}
    assert len(made) == 1
    assert made[0].asked == [None]


def test_a_child_makes_a_broker_of_its_own(tmp_path: Path) -> None:
    """After a fork the child uses none of its parent's, also while the parent is making one."""
    printed = run(
        """
        import os, threading, warnings
        from clients.brokers import CountingBroker
        from segmentstream import get_connection
        from segmentstream._clients import process

        warnings.simplefilter("ignore", DeprecationWarning)  # a fork with threads is the point
        makers, forked, making = [], threading.Event(), threading.Event()

        def make():
            makers.append(os.getpid())
            if makers == [parent]:
                making.set()
                forked.wait(30)
            return CountingBroker()

        parent = os.getpid()
        process._broker = make
        thread = threading.Thread(target=get_connection("it").access_token)
        thread.start()
        making.wait(30)
        child = os.fork()
        if child == 0:
            token = get_connection("it").access_token()
            os._exit(0 if token == "token-1" and makers == [parent, os.getpid()] else 1)
        forked.set()
        thread.join()
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        """,
        tmp_path,
    )
    assert printed == "0\n"


def test_a_folder_without_a_workspace_is_said(tmp_path: Path) -> None:
    """Where neither a service is named nor a workspace found, the error says both ways."""
    with pytest.raises(ConnectionAccessError, match="SEGMENTSTREAM_CONNECTIONS_URL") as caught:
        LocalBroker.from_environ({}, start=tmp_path)
    assert caught.value.code == "client_configuration"


_WORKSPACE = """
from segmentstream.connections import OAuth2Connection, secret_ref

connections = [
    OAuth2Connection(
        key="fake", name="Fake", provider="fake", authorization_url="{url}/authorize",
        token_url="{url}/token", client_id=secret_ref("fake-client-id"),
        client_secret=secret_ref("fake-client-secret"), scopes=["read"],
        api_base_url="{url}/api",
    )
]
"""

# What the command does when a person connects, without the person.
CONNECT = """
import os
from pathlib import Path
from segmentstream._clients.local import LocalBroker
from urllib.request import HTTPRedirectHandler, build_opener
from urllib.parse import parse_qsl, urlsplit

class Stay(HTTPRedirectHandler):
    def http_error_302(self, request, answer, status, message, headers):
        return headers["Location"]

broker = LocalBroker.from_environ(os.environ, start=Path.cwd())
started = broker.run(
    broker._durable.start(
        "fake", account="default", redirect_uri="http://127.0.0.1:1/x", variables={}
    )
)
callback = build_opener(Stay).open(started.url)
query = dict(parse_qsl(urlsplit(callback).query))
broker.run(broker._durable.complete(query, binding=started.binding))
broker.close()
"""

USE = """
from concurrent.futures import ThreadPoolExecutor
from segmentstream import get_connection

connection = get_connection("fake")
with connection.client() as http, ThreadPoolExecutor(8) as pool:
    print(sum(pool.map(lambda _: http.get("/me").status_code == 200, range(40))))
"""


def test_processes_of_a_workspace_share_a_login(tmp_path: Path) -> None:
    """What one process was authorized for, others use, from any folder of the workspace.

    Three processes with eight threads each, whose token has ended, make one refresh.
    """
    with FakeProvider(consent="automatic", lifetime_seconds=1) as provider:
        provider.serve("/me", {})
        folder = tmp_path / "connections"
        folder.mkdir()
        (folder / "connections.py").write_text(_WORKSPACE.format(url=provider.url))
        pipeline = tmp_path / "pipeline"
        pipeline.mkdir()
        variables = {**provider.environment, "HOME": str(tmp_path)}
        run(CONNECT, folder, variables)
        assert (tmp_path / ".segmentstream" / "credentials.db").exists()
        [token] = provider._grants._access_tokens
        while provider._grants.is_live(token):
            os.sched_yield()
        provider._grants._lifetime_seconds = 3600
        with ThreadPoolExecutor(3) as pool:
            used = pool.map(lambda place: run(USE, place, variables), [tmp_path, folder, pipeline])
        assert list(used) == ["40\n"] * 3
        assert provider.refreshes == 1
