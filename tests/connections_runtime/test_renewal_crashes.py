"""Processes that are killed in the middle of a renewal, at every step and at any moment."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from connections_runtime.authority import Authority
from connections_runtime.oidc_server import OidcServer, missing, running_oidc_server
from connections_runtime.provider import Provider
from connections_runtime.renewals import FORCED, Host, Rotation, authorize, place_at
from postgres import Postgres
from segmentstream_connections_runtime.refreshing import LEASE_SECONDS, LOST_ANSWER

type Note = Callable[[str, object], None]

# What a renewal does, in order; it is killed before the first of them, and after each.
STEPS = [
    *("before read", "after read", "before hold", "after hold", "before read", "after read"),
    *("before write", "after write", "asking", "answered", "before write", "after write"),
    *("before release", "after release"),
]
LOST = {"error": "oauth_reauthorization_required", "detail": LOST_ANSWER}
NEEDS_NODE = pytest.mark.skipif(missing() is not None, reason=str(missing()))


@pytest.fixture(scope="module")
def server(authority: Authority) -> Iterator[OidcServer]:
    """An authorization server that revokes a grant whose refresh token comes twice."""
    authority.server_context("localhost", "127.0.0.1")
    pem = authority.folder / "localhost-127.0.0.1.pem"
    with running_oidc_server(pem, authority.ca_file) as running:
        yield running


@dataclass(slots=True, kw_only=True)
class Crashes:
    """Kills renewals of a credential one after the other, and judges what is left of it.

    Attributes:
        host: What forks the processes.
        connect: Lets a person authorize.
        ahead: How far the clock of those who come later has gone on.
        loses_nothing: Whether the provider brings lost tokens again.
        kills: How many it has killed.
        lost: How many answers were lost.
        violations: What should not have happened.
    """

    host: Host
    connect: Callable[[], object]
    ahead: float = 0.0
    loses_nothing: bool = False
    kills: int = 0
    lost: int = 0
    violations: list[object] = field(default_factory=list)
    _known: dict[str, Any] = field(default_factory=dict)

    def begin(self) -> None:
        """Lets a person authorize."""
        self.connect()
        self._known = self.host.ask("look")["answer"]

    def at_every_step(self) -> None:
        """Kills one at each step."""
        for at in range(1, len(STEPS) + 1):
            self._kill(kill_at=at)

    def at_moments(self, number: int) -> None:
        """Kills so many, each at another moment of the time that one takes."""
        started = time.monotonic()
        [self._known] = self.host.ask("access", want=FORCED)["answer"]
        seconds = time.monotonic() - started
        for moment in range(number):
            after = seconds * moment / number
            while not self._kill(kill_after=after):
                after /= 2  # it was over before

    def _kill(self, **when: float) -> bool:
        crashed = self.host.ask("access", want=FORCED, **when)
        if not crashed["was_killed"]:
            [self._known] = crashed["answer"]
            return False
        self.kills += 1
        recovered = self.host.ask("recover", ahead=self.ahead)
        if recovered["answer"] is None:
            self.violations.append((when, crashed, recovered))
            self.begin()
            return True
        found, after = recovered["answer"]["before"], recovered["answer"]["after"]
        if not self._is_right(found, after, crashed["steps"]):
            self.violations.append((when, crashed, self._known, found, after))
        self._known = after
        if "error" in after:
            self.lost += 1
            self.begin()
        return True

    def _is_right(self, found: dict[str, Any], after: dict[str, Any], steps: list[str]) -> bool:
        """Says whether the pair that was found is the old or the new, and was lost by right."""
        before = self._known
        is_old = (found["number"], found["token"]) == (before["number"], before["token"])
        is_new = found["number"] == before["number"] + 1 and found["token"] != before["token"]
        if found["state"] != "connected" or not (is_old or is_new):
            return False
        if "error" not in after:
            return bool(after["number"] == found["number"] + 1) and after["is_persisted"] is True
        was_sent, was_stored = "asking" in steps, "before release" in steps
        return after == LOST and is_old and was_sent and not was_stored and not self.loses_nothing


def judge(crashes: Crashes, note: Note) -> None:
    """Counts for the last line of the run, and fails where something was wrong."""
    note("renewal crashes", (crashes.kills, crashes.lost, len(crashes.violations)))
    assert crashes.violations == []


@NEEDS_NODE
def test_the_steps_are_these(server: OidcServer, tmp_path: Path) -> None:
    """A renewal takes these steps in this order: the intent is written before it is asked for."""
    place = place_at(server, tmp_path, f"sqlite:///{tmp_path}/store/credentials.db")
    with place.host("forks") as host:
        authorize(host, server)
        assert host.ask("access", want=FORCED)["steps"] == STEPS


@NEEDS_NODE
@pytest.mark.slow
def test_crashes_with_sqlite(server: OidcServer, tmp_path: Path, record_property: Note) -> None:
    """Killed anywhere, a renewal leaves a whole record, no hold, and a pair that can be renewed.

    Or the answer was lost for good: then that is what the next caller is told, and a person
    authorizes again. https://github.com/agentjido/req_llm/issues/811 is about torn files.
    """
    place = place_at(server, tmp_path, f"sqlite:///{tmp_path}/store/credentials.db")
    with place.host("forks") as host:
        crashes = Crashes(host=host, connect=lambda: authorize(host, server))
        crashes.begin()
        for _ in range(5):
            crashes.at_every_step()
        crashes.at_moments(50)
    judge(crashes, record_property)
    assert crashes.lost >= 10  # two of the steps are in the window


@NEEDS_NODE
@pytest.mark.slow
def test_crashes_with_postgres(
    server: OidcServer, postgres: Postgres, tmp_path: Path, record_property: Note
) -> None:
    """As with SQLite; who comes later comes after the lease."""
    with postgres.database() as url, place_at(server, tmp_path, url).host("forks") as host:
        crashes = Crashes(
            host=host, connect=lambda: authorize(host, server), ahead=LEASE_SECONDS + 1
        )
        crashes.begin()
        for _ in range(2):
            crashes.at_every_step()
        crashes.at_moments(24)
    judge(crashes, record_property)
    assert crashes.lost >= 4


@pytest.mark.slow
def test_crashes_with_a_replay_window(
    provider: Provider, authority_file: Path, tmp_path: Path, record_property: Note
) -> None:
    """Where the provider brings the same tokens again, a renewal killed anywhere loses nothing.

    https://github.com/kurrent-io/kcap-cli/issues/946
    """
    rotation = Rotation(provider=provider, replays=True)
    store = f"sqlite:///{tmp_path}/store/credentials.db"
    place = rotation.place(tmp_path, store, authority_file, replay_window_seconds=30)
    with place.host("forks") as host:
        crashes = Crashes(host=host, connect=lambda: rotation.connect(host), loses_nothing=True)
        crashes.begin()
        crashes.at_every_step()
        crashes.at_moments(14)
    judge(crashes, record_property)
    assert crashes.lost == 0
