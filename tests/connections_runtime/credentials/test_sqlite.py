"""The credential store in a SQLite file."""

from __future__ import annotations

import os
import resource
import shutil
import sqlite3
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from itertools import count
from pathlib import Path

import pytest

from connections_runtime.credentials import crash_host as crash_host_module
from connections_runtime.credentials.crash_host import content_of
from connections_runtime.credentials.store_contract import Outage, StoreContract, running_host
from segmentstream_connections_runtime.credentials.base import CredentialStore, Record, StoreError
from segmentstream_connections_runtime.credentials.database import DatabaseStore
from segmentstream_connections_runtime.credentials.registry import open_store
from segmentstream_connections_runtime.credentials.sqlite import SqliteFile


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """The file of the store; neither it nor its folder exists yet."""
    return tmp_path / "private" / "credentials.db"


@pytest.fixture
def url(path: Path) -> str:
    """The address of the store."""
    return f"sqlite:///{path}"


class TestSqlite(StoreContract):
    @pytest.fixture
    def outage(self, path: Path) -> Outage:
        """A folder stands where the file was, for root may read every file."""

        @contextmanager
        def gone() -> Iterator[None]:
            path.rename(path.with_name(f"{path.name}-aside"))
            path.mkdir()
            try:
                yield
            finally:
                path.rmdir()
                path.with_name(f"{path.name}-aside").rename(path)

        return gone


@pytest.fixture
def store(url: str) -> CredentialStore:
    """The store under test."""
    return open_store(url)


def generations_of(path: Path) -> list[int]:
    """Reads the generations past the store, from a file that must be whole."""
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        found = connection.execute("SELECT generation FROM segmentstream_credentials ORDER BY name")
        return [row[0] for row in found]


# A kill


class CrashHost:
    """Is a process whose children write and are killed."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def write(self, path: Path, expected: int, version: int, *, killed_at: tuple[str, int]) -> bool:
        """Writes in a child that is killed at a system call; says whether it got to the end."""
        pid = self._ask(f"{path} {expected} {version}")
        call, number = killed_at
        tracer = subprocess.Popen(
            [
                "strace",
                "-p",
                pid,
                "-e",
                f"trace={call}",
                "-e",
                f"inject={call}:signal=KILL:when={number}",
            ],
            stderr=subprocess.PIPE,
            text=True,
        )
        with tracer:
            assert tracer.stderr
            attached = tracer.stderr.readline()
            if "attached" not in attached:
                pytest.skip(f"needs strace that may attach to a process: {attached}")
            ended = self._ask("")
            tracer.stderr.read()
        return ended == "written"

    def _ask(self, line: str) -> str:
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.write(f"{line}\n")
        self._process.stdin.flush()
        return self._process.stdout.readline().strip()


@pytest.fixture
def crash_host() -> Iterator[CrashHost]:
    """Starts it and ends it."""
    if shutil.which("strace") is None:
        pytest.skip("needs strace")
    with subprocess.Popen(
        [sys.executable, crash_host_module.__file__],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        yield CrashHost(process)
        process.kill()


# Which a write makes; with `?` where only some processors have it. Strace counts each kind by itself.
CALLS = [
    "openat", "close", "fcntl", "pread64", "pwrite64", "fdatasync", "ftruncate", "?unlink,unlinkat",
    "?newfstatat", "?fstat", "?mkdir,mkdirat", "?link,linkat", "write",
]  # fmt: skip


@pytest.mark.slow
def test_report_24_a_write_that_is_killed_leaves_the_old_or_the_new(
    path: Path, store: CredentialStore, crash_host: CrashHost
) -> None:
    """After a kill -9 at any of its system calls the file is whole, and the next write goes on."""
    kept = {"old": 0, "new": 0}
    expected, version = store.write("a", content_of(0), expected=0), 0
    for call in CALLS:
        for number in count(1):
            is_done = crash_host.write(path, expected, version + 1, killed_at=(call, number))
            found = store.read("a")
            assert found in {
                Record(content=content_of(version), generation=expected),
                Record(content=content_of(version + 1), generation=expected + 1),
            }
            assert generations_of(path) == [found.generation]
            kept["old" if found.generation == expected else "new"] += 1
            version += found.generation - expected
            expected = found.generation
            if is_done:
                break
    assert kept["old"] > 60
    assert kept["new"] > len(CALLS)  # more than those that were not killed


@pytest.mark.slow
def test_a_store_whose_making_is_killed_can_be_made(tmp_path: Path, crash_host: CrashHost) -> None:
    """After a kill -9 at any system call of the first write ever, the store can be used."""
    for call in CALLS:
        for number in count(1):
            path = tmp_path / f"{call.strip('?')}-{number}" / "credentials.db"
            is_done = crash_host.write(path, 0, 1, killed_at=(call, number))
            store = open_store(f"sqlite:///{path}")
            found = store.read("a")
            assert found in {None, Record(content=content_of(1), generation=1)}
            generation = store.write("a", content_of(2), expected=1 if found else 0)
            assert generations_of(path) == [generation]
            if is_done:
                assert found
                break


@pytest.mark.slow
def test_report_24_kills_at_any_moment_lose_no_record(
    path: Path, url: str, store: CredentialStore
) -> None:
    """Writers that are killed at work, one after another, leave a count that goes on."""
    for _ in range(3):
        before = store.read("a")
        with running_host(url) as host:
            host.send("count a 1000000")
            while store.read("a") == before:
                pass
            host.kill()
        found = store.read("a")
        assert found
        assert int(found.content) == found.generation
        assert generations_of(path) == [found.generation]


# Where it lies


def test_report_25_a_link_stays_and_its_file_is_written(tmp_path: Path) -> None:
    """A store that is a symbolic link is that file: records, journal and holds are there."""
    target = tmp_path / "real" / "credentials.db"
    link = tmp_path / "link.db"
    link.symlink_to(target)
    (tmp_path / "other").touch()
    through, direct = open_store(f"sqlite:///{link}"), open_store(f"sqlite:///{target}")
    through.write("a", b"1", expected=0)
    direct.write("a", b"2", expected=1)
    assert through.read("a") == Record(content=b"2", generation=2)
    assert link.is_symlink()
    assert generations_of(target) == [2]
    hold = through.try_hold("a")
    assert hold
    assert direct.try_hold("a") is None
    hold.release()
    assert sorted(each.name for each in tmp_path.iterdir()) == ["link.db", "other", "real"]


def test_all_that_it_makes_is_private(path: Path, store: CredentialStore) -> None:
    """Whatever the umask, nobody else reads the folder, the file, its journal or its locks."""
    before = os.umask(0)
    try:
        hold = store.try_hold("a")
        store.write("a", b"1", expected=0)
        with closing(sqlite3.connect(path, isolation_level=None)) as connection:
            connection.execute("BEGIN IMMEDIATE")
            connection.execute("UPDATE segmentstream_credentials SET generation = 7")
            modes = {
                each.relative_to(path.parent).as_posix(): stat.S_IMODE(each.stat().st_mode)
                for each in [path.parent, *path.parent.rglob("*")]
            }
            connection.execute("ROLLBACK")
    finally:
        os.umask(before)
    assert hold
    hold.release()
    locks = [name for name in modes if "-holds/" in name]
    assert len(locks) == 1
    assert modes == {
        ".": 0o700,
        ".gitignore": modes[".gitignore"],
        "credentials.db": 0o600,
        "credentials.db-journal": 0o600,
        "credentials.db-holds": 0o700,
        locks[0]: 0o600,
    }


def test_its_folder_is_not_committed(path: Path, store: CredentialStore) -> None:
    """Git sees nothing of a folder that the store has made."""
    subprocess.run(["git", "init", "--quiet", path.parents[1]], check=True)
    store.write("a", b"1", expected=0)
    told = subprocess.run(
        ["git", "status", "--porcelain", "--untracked-files=all"],
        cwd=path.parents[1], capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert told.stdout == ""


def test_what_has_become_readable_is_made_private_again(path: Path, store: CredentialStore) -> None:
    """A file and a folder of our own that others may read are tightened by the next call."""
    store.write("a", b"1", expected=0)
    path.chmod(0o644)
    path.parent.chmod(0o755)
    assert store.read("a")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_a_folder_of_other_things_is_left_as_it_is(tmp_path: Path) -> None:
    """A store in the folder of a project hides nothing of it from git, and changes no rights."""
    (tmp_path / "credentials.dbml").touch()
    tmp_path.chmod(0o755)
    open_store(f"sqlite:///{tmp_path}/credentials.db").write("a", b"1", expected=0)
    assert stat.S_IMODE(tmp_path.stat().st_mode) == 0o755
    assert not (tmp_path / ".gitignore").exists()


def test_a_folder_that_others_write_to_is_refused(tmp_path: Path) -> None:
    """Whoever may write to the folder could put another file in the place of the store."""
    (tmp_path / "code.py").touch()
    tmp_path.chmod(0o777)
    with pytest.raises(StoreError, match="folder of its own"):
        open_store(f"sqlite:///{tmp_path}/credentials.db").read("a")
    assert [each.name for each in tmp_path.iterdir()] == ["code.py"]


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to give a file to somebody else")
@pytest.mark.parametrize("whose", ["file", "folder"])
def test_what_belongs_to_somebody_else_is_refused(
    path: Path, store: CredentialStore, whose: str
) -> None:
    """Its owner could read it or make it readable, so it is neither used nor changed."""
    store.write("a", b"1", expected=0)
    os.chown(path if whose == "file" else path.parent, 65534, 65534)
    with pytest.raises(StoreError, match="belongs to somebody else"):
        store.read("a")


def test_a_folder_that_cannot_be_entered_is_an_outage(path: Path, store: CredentialStore) -> None:
    """Without the right to look, nothing is told as absent, neither records nor holds."""
    store.write("a", b"1", expected=0)
    is_root = os.geteuid() == 0  # who may enter everywhere, and can be somebody else for a while
    os.seteuid(65534) if is_root else path.parent.chmod(0)
    try:
        for call in (store.read, store.try_hold, open_store(f"sqlite:///{path}").read):
            with pytest.raises(StoreError, match="Check who owns it"):
                call("a")
    finally:
        os.seteuid(0) if is_root else path.parent.chmod(0o700)


def test_a_relative_address_stays_where_it_was_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Changing the folder of the process later does not move the store."""
    monkeypatch.chdir(tmp_path)
    store = open_store("sqlite:///private/credentials.db")
    monkeypatch.chdir("/")
    store.write("a", b"1", expected=0)
    assert generations_of(tmp_path / "private" / "credentials.db") == [1]


# What it finds


@pytest.mark.parametrize("what", ["text", "database", "torn", "cut"])
def test_a_file_that_is_no_store_is_left_as_it_is(
    path: Path, store: CredentialStore, what: str
) -> None:
    """Whatever is called, what is there is refused and keeps every byte."""
    path.parent.mkdir()
    if what == "text":
        path.write_text("something that a person wrote, and needs\n" * 50)
    elif what == "database":
        with closing(sqlite3.connect(path)) as connection:
            connection.execute("CREATE TABLE bookmarks (url)")
            connection.commit()
    else:
        maker = open_store(f"sqlite:///{path}")
        maker.write("a", b"x" * 20_000, expected=0)
        whole = path.read_bytes()
        path.write_bytes(b"\0" * 4096 + whole[4096:] if what == "torn" else whole[:6000])
    before = path.read_bytes()
    path.chmod(0o600)
    calls: list[Callable[[], object]] = [
        lambda: store.read("a"),
        lambda: store.write("a", b"2", expected=0),
        lambda: store.names(""),
        store.check,
    ]
    for call in calls:
        with pytest.raises(StoreError, match="left as it is"):
            call()
    assert path.read_bytes() == before


def test_a_store_of_a_newer_release_is_refused(path: Path, store: CredentialStore) -> None:
    """A layout that this release does not know is not written over."""
    store.write("a", b"1", expected=0)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("UPDATE segmentstream_credentials_schema SET version = 2")
        connection.commit()
    with pytest.raises(StoreError, match="Upgrade"):
        open_store(f"sqlite:///{path}").read("a")


def test_a_file_that_has_gone_is_not_made_anew(path: Path, store: CredentialStore) -> None:
    """An unmounted disk is no empty store; a new process may begin again."""
    store.write("a", b"1", expected=0)
    path.unlink()
    for call in (store.read, store.try_hold, store.names):
        with pytest.raises(StoreError, match="has gone"):
            call("a")
    assert not path.exists()
    assert open_store(f"sqlite:///{path}").read("a") is None


def test_another_file_in_its_place_is_seen(path: Path, store: CredentialStore) -> None:
    """A file that is put in the place of the store while it is in use is looked at first."""
    store.write("a", b"1", expected=0)
    with closing(sqlite3.connect(path.with_name("other"))) as connection:
        connection.execute("CREATE TABLE bookmarks (url)")
    path.with_name("other").replace(path)
    for _ in range(2):
        with pytest.raises(StoreError):
            store.write("a", b"2", expected=0)


def test_a_full_disk_changes_nothing(path: Path, store: CredentialStore) -> None:
    """A write for which there is no room is an error, and the record is as it was."""
    store.write("a", b"1", expected=0)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size, hard))
    try:
        with pytest.raises(StoreError, match="disk"):
            store.write("a", b"x" * 60_000, expected=1)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert store.read("a") == Record(content=b"1", generation=1)
    assert store.write("a", b"x" * 60_000, expected=1) == 2


def test_a_writer_that_goes_on_for_too_long_is_told(path: Path, store: CredentialStore) -> None:
    """Waiting for another process has an end."""
    store.write("a", b"1", expected=0)
    hasty = DatabaseStore(SqliteFile(path, wait_seconds=0.01))
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("BEGIN EXCLUSIVE")
        with pytest.raises(StoreError, match="in use by another process"):
            hasty.read("a")
    assert hasty.read("a")


def test_writes_remove_what_has_expired(path: Path) -> None:
    """Every ten minutes at most, and never a record that has no end."""
    now = 1_000_000.0
    store = DatabaseStore(SqliteFile(path), clock=lambda: now)
    store.write("endless", b"x", expected=0)
    store.write("short", b"x", expected=0, expires_at=now + 1)
    store.write("long", b"x", expected=0, expires_at=now + 5000)
    store.write("prolonged", b"x", expected=0, expires_at=now + 1)
    now += 300
    store.write("prolonged", b"x", expected=1)
    assert len(store.names("")) == 4
    now += 301
    store.write("endless", b"x", expected=1)
    assert store.names("") == ["endless", "long", "prolonged"]
