"""A process that is killed while it writes leaves the old rows or the new ones."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import duckdb
import ibis
import pytest

from warehouse import crash_host
from warehouse.crash_host import DATES, ROWS_PER_DATE, TABLES, open_engine, write

pytestmark = pytest.mark.slow

type Command = Callable[[str], str]
KINDS = ["dates", "table"]


@pytest.fixture
def tables(catalog: Path) -> Path:
    """A file with a source of ten days and both tables at version 0."""
    engine = open_engine(str(catalog))
    numbers = ibis.range(len(DATES) * ROWS_PER_DATE).unnest().name("n").as_table()
    source = numbers.mutate(
        day=ibis.literal(DATES[0]) + (numbers.n // ROWS_PER_DATE).as_interval("D"),
        text=numbers.n.cast("string").concat(" some text of a row"),
    )
    engine.replace(TABLES["source"], source.mutate(day=source.day.cast("date")))
    for kind in KINDS:
        write(engine, kind, 0)
    return catalog


@pytest.fixture
def host(tables: Path) -> Iterator[Command]:
    """Sends one command to the process that forks, and gives its answer."""
    with subprocess.Popen(
        [sys.executable, crash_host.__file__, str(tables)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"OPENBLAS_NUM_THREADS": "1"},  # a process that forks has one thread
    ) as process:
        assert process.stdin
        assert process.stdout
        stdin, stdout = process.stdin, process.stdout

        def command(line: str) -> str:
            stdin.write(line + "\n")
            stdin.flush()
            return stdout.readline().strip()

        yield command
        stdin.close()


def version_of(catalog: Path, kind: str) -> int:
    """Opens the file and gives the one version that all rows of a table carry."""
    with duckdb.connect(catalog) as connection:
        found = connection.execute(
            f'SELECT version, count(*), sum(n)::BIGINT FROM crash."{kind}" GROUP BY version'
        ).fetchall()
    total = len(DATES) * ROWS_PER_DATE
    assert len(found) == 1, f"rows of several writes: {found}"
    version, rows, checksum = found[0]
    assert (rows, checksum) == (total, total * (total - 1) // 2)
    return int(version)


def assert_nothing_is_left_over(catalog: Path, kind: str) -> None:
    """A later write works, and then there is one file with the three tables and no more."""
    write(open_engine(str(catalog)), kind, 10_000)
    assert version_of(catalog, kind) == 10_000
    assert [path.name for path in catalog.parent.iterdir()] == [catalog.name]
    with duckdb.connect(catalog) as connection:
        names = connection.execute("SELECT table_name FROM duckdb_tables()").fetchall()
    assert sorted(name for (name,) in names) == sorted(TABLES)


@pytest.mark.parametrize("kind", KINDS)
def test_killed_between_any_two_statements(host: Command, tables: Path, kind: str) -> None:
    """Whatever the last statement was, the table holds one version whole."""
    version, kills = 0, 0
    for boundary in range(1, 200):
        answer = host(f"{kind} {boundary} boundary {boundary}")
        if answer.startswith("finished"):
            break
        assert answer == "killed"
        kills += 1
        found = version_of(tables, kind)
        assert found in {version, boundary}
        version = found
    else:
        pytest.fail("the write never came to its end")
    assert kills > 10
    assert version_of(tables, kind) == boundary
    assert_nothing_is_left_over(tables, kind)


@pytest.mark.parametrize("kind", KINDS)
def test_killed_at_any_moment(host: Command, tables: Path, kind: str) -> None:
    """Fifty kills spread over a large write leave one version whole each time."""
    seconds = min(float(host(f"{kind} 1 boundary 100000").split()[1]) for _ in range(2))
    version, kills = 1, 0
    for attempt in range(2, 52):
        moment = random.uniform(0, seconds)
        answer = host(f"{kind} {attempt} moment {moment:.4f}")
        found = version_of(tables, kind)
        if answer == "killed":
            kills += 1
            assert found in {version, attempt}
        else:
            assert found == attempt
            seconds = min(seconds, float(answer.split()[1]))
        version = found
    assert kills > 25
    assert_nothing_is_left_over(tables, kind)


@pytest.mark.parametrize("kind", KINDS)
def test_an_interrupt_comes_through_as_itself(host: Command, tables: Path, kind: str) -> None:
    """What a signal handler raises during any call of DuckDB ends the write, whole or undone."""
    version, interrupts = 0, 0
    for call in range(1, 200):
        answer = host(f"{kind} {call} interrupt {call}")
        found = version_of(tables, kind)
        if answer.startswith("finished"):
            assert found == call
            version = found
            break
        assert answer == "raised Interrupted"
        interrupts += 1
        assert found in {version, call}
        version = found
    assert interrupts > 10
    assert_nothing_is_left_over(tables, kind)
