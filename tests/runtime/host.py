"""Starts runtimes as processes of their own, without the seconds that Dagster takes to import.

It imports Dagster once and forks; the runtime in a fork does all that it does when started anew.
Each line on standard input is a request, and is answered by one line.
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pandas as pd
from dagster import DagsterInstance

import segmentstream._warehouse.engines.duckdb.engine
from segmentstream.runtime import run_job
from segmentstream.runtime.loading import load_workspace

__all__ = ["pd", "segmentstream"]  # imported once, for all forks
with suppress(ModuleNotFoundError):
    importlib.import_module("google.cloud.run_v2")


def serve() -> None:
    """Answers until standard input ends, and then ends what a failed test has left."""
    running = set[int]()
    for line in sys.stdin:
        request = json.loads(line)
        if "cwd" in request:
            process = start(request)
            running.add(process)
            answer: int | None = process
        elif (answer := ended(request["pid"])) is not None:
            running.remove(request["pid"])
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()
    for process in running:
        os.killpg(process, signal.SIGKILL)


def start(request: dict[str, Any]) -> int:
    """Starts a runtime; gives the id of its process."""
    process = os.fork()
    if process:
        return process
    code = 99
    try:
        os.setsid()
        os.chdir(request["cwd"])
        for number, name in ((1, "stdout"), (2, "stderr")):
            opened = os.open(request[name], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
            os.dup2(opened, number)
            os.close(opened)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.environ.clear()
        os.environ.update(request["environ"])
        for name, value in request.get("constants", {}).items():
            module, _, constant = name.rpartition(".")
            setattr(importlib.import_module(module), constant, value)
        hand = request.get("by_hand")
        code = by_hand(*hand) if hand else run_job.main(os.environ)
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def by_hand(job: str, day: str) -> int:
    """Runs one day of a job as a person does with Dagster, without the runtime."""
    found = load_workspace(Path.cwd()).resolve_job_def(job)
    with DagsterInstance.get() as instance:
        return int(not found.execute_in_process(instance=instance, partition_key=day).success)


def ended(process: int) -> int | None:
    """Gives the exit code of a process, negative for a signal; None while it runs."""
    found, status = os.waitpid(process, os.WNOHANG)
    return os.waitstatus_to_exitcode(status) if found else None


if __name__ == "__main__":
    serve()
