"""A workspace on a real Postgres and a DuckDB file, and the runtimes that tests start on it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

import duckdb

from postgres import Postgres

SHOP = Path(__file__).parent / "shop"
PATIENCE = 90.0


def eventually[T](ask: Callable[[], T], seconds: float = PATIENCE) -> T:
    """Waits until a question is answered with something; fails when that takes too long."""
    deadline = time.monotonic() + seconds
    while not (answer := ask()):
        assert time.monotonic() < deadline, "it never came"
        time.sleep(0.02)
    return answer


class Host:
    """Is the process that runtimes are forked from."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-W", "ignore", Path(__file__).with_name("host.py")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._asking = threading.Lock()

    def ask(self, request: Mapping[str, object]) -> Any:
        """Sends a request and gives its answer; threads may do so at once."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with self._asking:
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
            return json.loads(self._process.stdout.readline())

    def close(self) -> None:
        """Ends it."""
        self._process.communicate()


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """Is how a runtime ended."""

    code: int
    told: str
    summary: dict[str, Any]

    def states(self) -> dict[str, str]:
        """The state of each day."""
        return {day: each["state"] for day, each in self.summary["days"].items()}


class Started:
    """Is a runtime that was started."""

    def __init__(self, host: Host, process: int, folder: Path) -> None:
        self._host = host
        self._folder = folder
        self.process = process

    def told(self) -> str:
        """What it told so far."""
        return (self._folder / "stderr").read_text()

    def signal(self, number: signal.Signals) -> None:
        """Sends it a signal."""
        os.kill(self.process, number)

    def code(self) -> int:
        """Waits for its end and gives its exit code, negative for a signal."""
        codes: list[int] = []

        def is_over() -> bool:
            code = self._host.ask({"pid": self.process})
            if code is not None:
                codes.append(code)
            return bool(codes)

        eventually(is_over, 3 * PATIENCE)
        return codes[0]

    def end(self) -> Ended:
        """Waits for its end."""
        code = self.code()
        printed = (self._folder / "stdout").read_text()
        return Ended(code=code, told=self.told(), summary=json.loads(printed) if printed else {})


@dataclass(frozen=True, slots=True, kw_only=True)
class Shop:
    """Is a workspace with its Postgres, its warehouse and its gate."""

    host: Host
    postgres: Postgres
    url: str
    folder: Path
    extra: dict[str, str] = field(default_factory=dict)

    def environ(self, **variables: str | None) -> dict[str, str]:
        """The variables of a runtime; None removes one."""
        told: dict[str, str | None] = {
            "PATH": os.environ["PATH"],
            "DAGSTER_HOME": str(self.folder / "home"),
            "DAGSTER_POSTGRES_URL": self.url,
            "SEGMENTSTREAM_WAREHOUSE_ENGINE": "duckdb",
            "SEGMENTSTREAM_WAREHOUSE_CATALOG": str(self.folder / "warehouse.duckdb"),
            "SEGMENTSTREAM_WAREHOUSE_DEFAULT_NAMESPACE": "main",
            "SEGMENTSTREAM_RUN_ID": str(uuid4()),
            "SHOP_CALLS": str(self.folder / "calls.txt"),
            "SHOP_GATE": str(self.gate),
        }
        told |= self.extra | variables
        return {name: value for name, value in told.items() if value is not None}

    def start(
        self, job: str | None, first: str | None = None, last: str | None = None, *,
        cwd: Path = SHOP, constants: Mapping[str, float] | None = None,
        by_hand: Sequence[str] = (), **variables: str | None,
    ) -> Started:  # fmt: skip
        """Starts a runtime for a job, over days of May 2024; or one day of a job by hand.

        The constants are those of modules, by their full names, that its process has otherwise.
        """
        folder = self.folder / f"runtime-{uuid4().hex}"
        folder.mkdir()
        days: dict[str, str | None] = {}
        if first:
            days["SEGMENTSTREAM_PARTITION_START_DATE"] = f"2024-{first}"
        if last:
            days["SEGMENTSTREAM_PARTITION_END_DATE"] = f"2024-{last}"
        days["SEGMENTSTREAM_DAGSTER_JOB"] = job
        environ = self.environ(**days | variables)
        process = self.host.ask(
            {
                "cwd": str(cwd),
                "environ": environ,
                "constants": dict(constants or {}),
                "by_hand": list(by_hand),
                "stdout": str(folder / "stdout"),
                "stderr": str(folder / "stderr"),
            }
        )
        (folder / "stderr").touch()
        return Started(self.host, process, folder)

    def follow(self, schedule: str, **variables: str | None) -> Started:
        """Starts a runtime for a schedule, without a run id."""
        told: dict[str, Any] = {
            "SEGMENTSTREAM_DAGSTER_SCHEDULE": schedule,
            "SEGMENTSTREAM_RUN_ID": None,
        }
        return self.start(None, **told | variables)

    def run(
        self, job: str, first: str | None = None, last: str | None = None, **more: Any
    ) -> Ended:
        """Starts a runtime and waits for its end."""
        return self.start(job, first, last, **more).end()

    @property
    def gate(self) -> Path:
        """The file that keeps assets from going on while it exists."""
        return self.folder / "closed"

    def calls(self, asset: str | None = None) -> list[tuple[int, str]]:
        """The process and the days of each call of an asset so far, or of each asset."""
        path = self.folder / "calls.txt"
        lines = path.read_text().splitlines() if path.exists() else []
        told = [line.split(" ") for line in lines]
        return [(int(process), days) for name, process, days in told if asset in {name, None}]

    def called(self, times: int) -> list[tuple[int, str]]:
        """Waits until assets were called so often; gives those calls."""
        eventually(lambda: len(self.calls()) >= times)
        return self.calls()

    def rows(self, table: str) -> dict[str, int]:
        """The rows of each day in the warehouse."""
        with duckdb.connect(self.folder / "warehouse.duckdb", read_only=True) as connection:
            found = connection.execute(f"SELECT day, count(*) FROM shop.{table} GROUP BY day")
            return {day.isoformat(): count for day, count in found.fetchall()}

    def materialized(self) -> dict[str, int]:
        """How often each day was materialized, as Dagster has recorded it."""
        return dict(
            self.postgres.run(
                "SELECT partition, count(*) FROM event_logs"
                " WHERE dagster_event_type = 'ASSET_MATERIALIZATION' GROUP BY partition",
                url=self.url,
            )
        )

    def statuses(self) -> list[str]:
        """The status of each run that Dagster has recorded, in order."""
        found = self.postgres.run("SELECT status FROM runs ORDER BY id", url=self.url)
        return [status for (status,) in found]


def days(first: int, last: int) -> list[str]:
    """Days of May 2024."""
    return [f"2024-05-{day:02}" for day in range(first, last + 1)]
