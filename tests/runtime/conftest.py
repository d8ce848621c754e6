"""A workspace of its own for each test, and one process that runtimes are forked from."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from postgres import Postgres
from runtime.shops import Host, Shop
from segmentstream.runtime.instance import migrate
from segmentstream.runtime.settings import InstanceSettings


@pytest.fixture(scope="session")
def host() -> Iterator[Host]:
    """The process that runtimes are forked from."""
    running = Host()
    yield running
    running.close()


@pytest.fixture(scope="session")
def template(postgres: Postgres, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The name of a database with the tables of Dagster; copying it is faster than making them."""
    with postgres.database() as url, pytest.MonkeyPatch.context() as patch:
        environ = {
            "DAGSTER_HOME": str(tmp_path_factory.mktemp("home")),
            "DAGSTER_POSTGRES_URL": url,
        }
        for name, value in environ.items():
            patch.setenv(name, value)
        migrate(InstanceSettings.from_environ(environ), environ)
        yield postgres.run("SELECT current_database()", url=url)[0][0]


@pytest.fixture
def shop(host: Host, postgres: Postgres, template: str, tmp_path: Path) -> Iterator[Shop]:
    """A workspace on an instance without runs."""
    name = f"test_{uuid4().hex}"
    postgres.run(f"CREATE DATABASE {name} TEMPLATE {template}")
    before, mark, query = postgres.url.partition("?")
    url = f"{before.rpartition('/')[0]}/{name}{mark}{query}"
    yield Shop(host=host, postgres=postgres, url=url, folder=tmp_path)
    postgres.run(f"DROP DATABASE {name} WITH (FORCE)")
