"""What every credential store must do: one suite, run once a store.

A test module of a store subclasses `StoreContract` and gives the fixtures `url`, the address of an
empty store, and `outage`, a context in which that store cannot be reached.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, suppress
from uuid import uuid4

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from connections_runtime.credentials import store_host
from connections_runtime.credentials.store_host import count
from segmentstream_connections_runtime.credentials.base import (
    CredentialStore,
    GenerationMovedError,
    Hold,
    Record,
    StoreError,
)
from segmentstream_connections_runtime.credentials.registry import open_store

type Outage = Callable[[], AbstractContextManager[None]]

SENTINEL = b"sentinel-of-a-content"


class Host:
    """Is a process that uses the store."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process

    def send(self, line: str) -> None:
        """Sends a command."""
        assert self.process.stdin
        self.process.stdin.write(f"{line}\n")
        self.process.stdin.flush()

    def answer(self) -> str:
        """Waits for the answer to the oldest command without one."""
        assert self.process.stdout
        return self.process.stdout.readline().strip()

    def ask(self, line: str) -> str:
        """Sends a command and gives its answer."""
        self.send(line)
        return self.answer()

    def kill(self) -> None:
        """Ends it as a crash does, and waits until it has."""
        self.process.kill()
        self.process.wait()


@contextmanager
def running_host(url: str) -> Iterator[Host]:
    """Starts a process that uses a store, and ends it."""
    with subprocess.Popen(
        [sys.executable, store_host.__file__, url],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield Host(process)
        finally:
            process.kill()


class StoreContract:
    """The suite; see the module.

    Attributes:
        times: How often each of ten writers counts.
        model_examples: How many sequences of calls are tried.
    """

    times = 10
    model_examples = 25

    @pytest.fixture
    def store(self, url: str) -> Iterator[CredentialStore]:
        """The store under test."""
        opened = open_store(url)
        yield opened
        opened.close()

    @pytest.fixture
    def other(self, url: str) -> Iterator[CredentialStore]:
        """The same store as another part of the system sees it."""
        opened = open_store(url)
        yield opened
        opened.close()

    # Records

    def test_what_was_written_is_read(self, store: CredentialStore, other: CredentialStore) -> None:
        """A write is seen by everybody once it returns, and counted."""
        assert store.read("a") is None
        assert store.write("a", b"1", expected=0) == 1
        assert store.read("a") == other.read("a") == Record(content=b"1", generation=1)
        assert other.write("a", b"2", expected=1) == 2
        assert store.read("a") == other.read("a") == Record(content=b"2", generation=2)

    def test_a_content_is_kept_byte_for_byte(self, store: CredentialStore) -> None:
        """Every byte value comes back, up to the size that the port promises."""
        for size in (1, 256, 60_000):
            content = (bytes(range(256)) * (size // 256 + 1))[-size:]
            store.write(f"size/{size}", content, expected=0)
            assert store.read(f"size/{size}") == Record(content=content, generation=1)

    def test_only_the_expected_generation_is_written_over(self, store: CredentialStore) -> None:
        """A write that expects anything but what is there changes nothing."""
        with pytest.raises(GenerationMovedError):
            store.write("a", SENTINEL, expected=1)
        assert store.read("a") is None
        store.write("a", b"1", expected=0)
        store.write("a", b"2", expected=1)
        for expected in (0, 1, 3):
            with pytest.raises(GenerationMovedError) as moved:
                store.write("a", SENTINEL, expected=expected)
            assert SENTINEL.decode() not in str(moved.value)
        assert store.read("a") == Record(content=b"2", generation=2)

    def test_only_the_expected_generation_is_deleted(self, store: CredentialStore) -> None:
        """A delete that expects anything but what is there removes nothing; after one it is gone."""
        store.write("a", b"1", expected=0)
        for expected in (0, 2):
            with pytest.raises(GenerationMovedError):
                store.delete("a", expected=expected)
        store.delete("a", expected=1)
        assert store.read("a") is None
        assert store.names("") == []
        with pytest.raises(GenerationMovedError):
            store.delete("a", expected=1)
        assert store.write("a", b"again", expected=0) == 1

    def test_names_are_found_by_how_they_begin(self, store: CredentialStore) -> None:
        """The letters of a prefix stand for themselves, and the order is that of the letters."""
        names = ["a-b", "a.b", "a/b", "a/b/c", "a0b", "a_b", "aab", "b"]
        for name in names:
            store.write(name, b"x", expected=0)
        assert store.names("") == names
        assert store.names("a_") == ["a_b"]
        assert store.names("a.") == ["a.b"]
        assert store.names("a/") == ["a/b", "a/b/c"]
        assert store.names("A") == store.names("%") == store.names("a/b/c/") == []

    def test_long_names_stay_apart(self, store: CredentialStore) -> None:
        """Names of the greatest length that differ in one letter are two records."""
        for letter in "._-/":
            store.write("n" * 254 + letter, letter.encode(), expected=0)
        for letter in "._-/":
            found = store.read("n" * 254 + letter)
            assert found == Record(content=letter.encode(), generation=1)
        assert len(store.names("n" * 254)) == 4

    def test_a_record_without_an_end_is_never_removed(self, store: CredentialStore) -> None:
        """Only a record whose time has passed may go, whatever else is written."""
        store.write("ended", b"x", expected=0, expires_at=1.0)
        store.write("endless", b"x", expected=0)
        store.write("later", b"x", expected=0, expires_at=4e9)
        store.write("another", b"x", expected=0)
        assert set(store.names("")) - {"ended"} == {"another", "endless", "later"}

    def test_no_update_is_lost(self, store: CredentialStore, url: str) -> None:
        """Eight threads and two processes count in one record, and it has the sum."""
        with running_host(url) as one, running_host(url) as two, ThreadPoolExecutor(8) as threads:
            for host in (one, two):
                host.send(f"count sum {self.times}")
            done = [threads.submit(count, store, "sum", self.times) for _ in range(8)]
            for each in done:
                each.result()
            assert [one.answer(), two.answer()] == ["counted", "counted"]
        total = 10 * self.times
        assert store.read("sum") == Record(content=str(total).encode(), generation=total)

    def test_two_processes_may_make_the_store_at_once(self, url: str) -> None:
        """Whoever comes second to a store that is being made uses what the first has made."""
        with running_host(url) as one, running_host(url) as two:
            for host in (one, two):
                host.send("count a 1")
            assert [one.answer(), two.answer()] == ["counted", "counted"]
            assert one.ask("read a") == "2"

    def test_checking_changes_no_record(self, store: CredentialStore) -> None:
        """A store that can be read and written says so and is as it was."""
        store.check()
        store.write("a", b"1", expected=0)
        store.check()
        assert store.read("a") == Record(content=b"1", generation=1)
        assert store.names("") == ["a"]

    def test_a_store_may_be_used_after_it_was_closed(self, store: CredentialStore) -> None:
        """Closing lets go of what is open, and no more."""
        store.write("a", b"1", expected=0)
        store.close()
        store.close()
        assert store.read("a") == Record(content=b"1", generation=1)

    def test_any_sequence_of_calls_is_that_of_a_dictionary(
        self, store: CredentialStore, other: CredentialStore
    ) -> None:
        """Through two doors, a store does what a model in memory does."""
        run_state_machine_as_test(
            lambda: StoreModel(store, other),  # type: ignore[arg-type]  # any factory will do
            settings=settings(
                max_examples=self.model_examples,
                stateful_step_count=15,
                deadline=None,
                suppress_health_check=list(HealthCheck),
            ),
        )

    # Holds

    def test_a_hold_excludes_threads_and_processes(
        self, store: CredentialStore, other: CredentialStore, url: str
    ) -> None:
        """While a name is held nobody else holds it; other names are free, and it is afterwards."""
        hold = store.try_hold("a/b")
        assert hold
        assert store.try_hold("a/b") is None
        assert other.try_hold("a/b") is None
        with ThreadPoolExecutor(1) as thread:
            assert thread.submit(store.try_hold, "a/b").result() is None
        with running_host(url) as host:
            assert host.ask("hold a/b") == "busy"
            assert host.ask("hold a.b") == "held"
            hold.release()
            hold.release()
            assert host.ask("hold a/b") == "held"
            assert store.try_hold("a/b") is None

    def test_one_of_many_threads_holds(self, store: CredentialStore) -> None:
        """Of eight that try at once exactly one succeeds."""
        with ThreadPoolExecutor(8) as threads:
            holds = [hold for hold in threads.map(store.try_hold, ["a"] * 8) if hold]
        assert len(holds) == 1
        holds[0].release()

    def test_a_hold_leaves_records_alone(
        self, store: CredentialStore, other: CredentialStore
    ) -> None:
        """A held name needs no record and makes none; whoever holds it, all may write and delete."""
        hold = store.try_hold("a")
        assert hold
        assert store.read("a") is None
        assert store.names("") == []
        other.write("a", b"1", expected=0)
        store.write("a", b"2", expected=1)
        assert other.try_hold("a") is None
        store.delete("a", expected=2)
        assert other.read("a") is None
        assert other.try_hold("a") is None
        assert other.write("a", b"3", expected=0) == 1
        hold.release()
        assert store.read("a") == Record(content=b"3", generation=1)
        last = other.try_hold("a")
        assert last
        last.release()

    def test_a_hold_ends_with_its_process(self, store: CredentialStore, url: str) -> None:
        """After a kill -9 of the holder the name is free."""
        with running_host(url) as host:
            assert host.ask("hold a") == "held"
            assert store.try_hold("a") is None
            host.kill()
        hold = wait_for_hold(store, "a")
        hold.release()

    # Failure

    def test_an_outage_is_never_told_as_absence(
        self, store: CredentialStore, outage: Outage
    ) -> None:
        """Without its store every call fails with a text that shows nothing; after it all work."""
        store.write("a", SENTINEL, expected=0)
        calls: list[Callable[[], object]] = [
            lambda: store.read("a"),
            lambda: store.read("b"),
            lambda: store.write("a", SENTINEL, expected=1),
            lambda: store.write("b", SENTINEL, expected=0),
            lambda: store.delete("a", expected=1),
            lambda: store.names(""),
            lambda: store.try_hold("a"),
            store.check,
        ]
        with outage():
            for call in calls:
                with pytest.raises(StoreError) as failed:
                    call()
                assert not isinstance(failed.value, GenerationMovedError)
                assert SENTINEL.decode() not in str(failed.value)
                assert failed.value.__suppress_context__ or failed.value.__context__ is None
        with suppress(StoreError):  # the first call may be the one that finds a connection gone
            store.read("a")
        assert store.read("a") == Record(content=SENTINEL, generation=1)
        assert store.names("") == ["a"]
        hold = store.try_hold("a")
        assert hold
        hold.release()


def wait_for_hold(store: CredentialStore, name: str) -> Hold:
    """Tries until a name can be held: a server notices the end of its client soon, not at once."""
    while True:
        if hold := store.try_hold(name):
            return hold


_NAMES = st.sampled_from(["a", "a/b", "a_b", "b"])
_GENERATIONS = st.integers(0, 4)


class StoreModel(RuleBasedStateMachine):
    """Calls two doors of a store at random, and keeps what it should hold."""

    def __init__(self, *doors: CredentialStore) -> None:
        super().__init__()
        self.doors = doors
        self.under = f"model/{uuid4().hex}/"  # a store of its own, in effect
        self.records: dict[str, tuple[bytes, int]] = {}

    @rule(door=st.integers(0, 1), name=_NAMES, content=st.binary(min_size=1))
    def write_the_next(self, door: int, name: str, content: bytes) -> None:
        generation = self.records.get(name, (b"", 0))[1]
        written = self.doors[door].write(self.under + name, content, expected=generation)
        assert written == generation + 1
        self.records[name] = (content, written)

    @rule(door=st.integers(0, 1), name=_NAMES, expected=_GENERATIONS)
    def write_with_any_expectation(self, door: int, name: str, expected: int) -> None:
        generation = self.records.get(name, (b"", 0))[1]
        if expected == generation:
            self.write_the_next(door, name, b"guessed")
            return
        with pytest.raises(GenerationMovedError):
            self.doors[door].write(self.under + name, b"lost", expected=expected)

    @rule(door=st.integers(0, 1), name=_NAMES, expected=_GENERATIONS)
    def delete(self, door: int, name: str, expected: int) -> None:
        generation = self.records.get(name, (b"", 0))[1]
        if generation and expected == generation:
            self.doors[door].delete(self.under + name, expected=expected)
            del self.records[name]
            return
        with pytest.raises(GenerationMovedError):
            self.doors[door].delete(self.under + name, expected=expected)

    @rule(door=st.integers(0, 1), name=_NAMES)
    def hold(self, door: int, name: str) -> None:
        hold = self.doors[door].try_hold(self.under + name)
        assert hold
        assert self.doors[1 - door].try_hold(self.under + name) is None
        hold.release()

    @invariant()
    def both_doors_show_the_model(self) -> None:
        for door in self.doors:
            names = [self.under + name for name in sorted(self.records)]
            assert door.names(self.under) == names
            for name in ("a", "a/b", "a_b", "b"):
                found = door.read(self.under + name)
                assert (found and (found.content, found.generation)) == self.records.get(name)
