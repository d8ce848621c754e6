"""The connections service: its start, its requests, its memory and what is installed for it."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from peers import PEERS_PYTHON
from processes import HERE, PROJECT_PYTHON, WORK, in_turn, median_ratio, run_child
from report import Benchmark, Goal

TITLE = "f. The connections service"

_STARTS = 21
_LOADS = 5
_REQUESTS = 8_000
_CONNECTIONS = 8
_REFRESHES = 200
_ROUNDS = 4
_CHILDREN = HERE / "connections_children.py"
_PATIENCE_SECONDS = 30.0
_MEGABYTE = 1_000_000

_FASTAPI = """
import os

import uvicorn
from fastapi import FastAPI

app = FastAPI()


@app.post("/internal/v1/connections/{key}/authorization/start")
async def start(key: str) -> dict[str, str]:
    return {}


@app.post("/internal/v1/connections/{key}/token/exchange")
async def exchange(key: str) -> dict[str, str]:
    return {}


@app.post("/internal/v1/connections/{key}/token/refresh")
async def refresh(key: str) -> dict[str, str]:
    return {}


@app.get("/health")
async def health() -> dict[str, str]:
    return {"status": "ok"}


@app.get("/ready")
async def ready() -> dict[str, str]:
    return {"status": "ok"}


uvicorn.run(app, port=int(os.environ["PORT"]), access_log=False, log_config=None)
"""
_DECLARED = """
from segmentstream.connections import OAuth2Connection, secret_ref

connections = (
    OAuth2Connection(
        key="it", name="The one", provider="someone",
        authorization_url="https://provider.example/authorize",
        token_url="https://localhost:{port}/token",
        client_id=secret_ref("the-id"), client_secret=secret_ref("the-secret"),
        scopes=["read", "write"],
    ),
)
"""


@dataclass(slots=True, kw_only=True)
class Server:
    """Is a server process.

    Attributes:
        port: Where it listens.
        start_seconds: From the start of the process to its first answer.
        cpu_seconds: User and system time of the whole process, once it has ended.
        peak_bytes: The most memory it held at once, once it has ended.
    """

    port: int
    start_seconds: float = 0.0
    cpu_seconds: float = 0.0
    peak_bytes: int = 0


def measure() -> Benchmark:
    """Starts the service in the environment of the Dockerfile, in turn with FastAPI."""
    service, installed_bytes = _make_environment()
    (WORK / "fastapi_app.py").write_text(_FASTAPI)
    folder = WORK / "connections"
    folder.mkdir()
    ours = [service, "-m", "segmentstream_connections_runtime", "serve"]
    theirs = [PEERS_PYTHON, WORK / "fastapi_app.py"]
    with _provider(folder) as variables:

        def start(command: Sequence[str | Path]) -> Server:
            with _running(command, folder, variables) as server:
                pass
            return server

        variants = {"this service": lambda: start(ours), "FastAPI": lambda: start(theirs)}
        in_turn(variants, rounds=1)  # Compiles what was not compiled yet.
        starts = in_turn(variants, rounds=_STARTS)
        idle = median(server.cpu_seconds for server in starts["this service"])
        loads = []
        for _ in range(_LOADS):
            with _running(ours, folder, variables) as server:
                parameters = (server.port, _REQUESTS, _CONNECTIONS)
                told = run_child([_CHILDREN, "load", *map(str, parameters)]).answer
            told["cpu"] = (server.cpu_seconds - idle) / told["requests"]
            loads.append(told)
        refreshed = {}
        for rounds in (1, _ROUNDS):
            with _running(ours, folder, variables) as server:
                parameters = (server.port, _REFRESHES, rounds)
                taken = run_child([_CHILDREN, "refresh", *map(str, parameters)]).answer
            refreshed[rounds] = (taken, server)
    cpu = median(told["cpu"] for told in loads)
    p99 = median(told["p99"] for told in loads)
    slowest = max(refreshed[_ROUNDS][0])
    once, often = (refreshed[rounds][1].peak_bytes for rounds in (1, _ROUNDS))
    of = {name: [each.cpu_seconds for each in servers] for name, servers in starts.items()}
    return Benchmark(
        title=TITLE,
        method="Start: from the start of the process to the first answer of `/health` "
        f"({_STARTS} processes each, in turn); the FastAPI application has the same five routes "
        "and imports nothing else. The service loads pydantic and its HTTP client later, with the "
        "first request that needs them. "
        "Requests: the service's own CPU time beyond that of a start, "
        f"for {_REQUESTS:,} requests over {_CONNECTIONS} kept connections from another process "
        f"({_LOADS} processes). Refreshes: {_REFRESHES} different ones at once, of a provider that "
        "answers after 2 s over TLS. The service runs in the environment of the Dockerfile.",
        columns=("What", "Wall", "CPU", "Peak memory"),
        rows=[
            *(
                (
                    f"start, {name}",
                    f"{median(each.start_seconds for each in servers):.3f} s",
                    f"{median(of[name]):.3f} s",
                    _megabytes(median(each.peak_bytes for each in servers)),
                )
                for name, servers in starts.items()
            ),
            (
                f"`authorization/start`, {1 / cpu:,.0f} a second and core",
                f"99 % within {p99 * 1000:.1f} ms",
                f"{cpu * 1000:.2f} ms",
                "",
            ),
            *(
                (
                    f"{_REFRESHES} refreshes at once, {rounds} time{'s' * (rounds > 1)}",
                    f"at most {max(taken):.2f} s",
                    f"{server.cpu_seconds - idle:.2f} s",
                    _megabytes(server.peak_bytes),
                )
                for rounds, (taken, server) in refreshed.items()
            ),
            ("what is installed, without bytecode", "", "", _megabytes(installed_bytes)),
        ],
        goals=[
            Goal(
                name="CPU time to the first answer of `/health` against FastAPI",
                figure=median_ratio(of["this service"], of["FastAPI"]),
                limit=0.6,
            ),
            Goal(
                name="CPU time of an `authorization/start` (0.5 ms are 2,000 a second and core)",
                figure=cpu * 1000,
                limit=0.5,
                unit=" ms",
            ),
            Goal(
                name=f"{_REFRESHES} refreshes at once of a provider that takes 2 s",
                figure=slowest,
                limit=3,
                unit=" s",
            ),
            Goal(
                name=f"Peak memory after {_ROUNDS} times {_REFRESHES} refreshes against once",
                figure=often / once,
                limit=1.1,
            ),
            Goal(
                name="Size of what the service needs installed",
                figure=installed_bytes / _MEGABYTE,
                limit=60,
                unit=" MB",
            ),
        ],
    )


def _make_environment() -> tuple[Path, int]:
    """Makes the environment of the Dockerfile; gives its Python and its size without bytecode."""
    folder = WORK / "service"
    python = folder / "bin" / "python"
    into = ("pip", "install", "--python", str(python), "--no-deps")
    wheels = WORK / "wheel"
    _uv("venv", "--python", str(PROJECT_PYTHON), str(folder))
    _uv(*into, "--require-hashes", "-r", str(HERE.parent / "constraints" / "connections.txt"))
    built = ("--wheel", "--no-build-isolation", "--python", str(PROJECT_PYTHON))
    _uv("build", str(HERE.parent), *built, "-o", str(wheels))
    _uv(*into, *map(str, wheels.glob("*.whl")))
    size = sum(each.stat().st_size for each in folder.glob("lib/**/*") if _is_installed(each))
    subprocess.run([python, "-m", "compileall", "-q", folder / "lib"], check=True)
    return python, size


def _is_installed(path: Path) -> bool:
    return path.is_file() and path.suffix != ".pyc"


@contextmanager
def _provider(folder: Path) -> Iterator[Mapping[str, str]]:
    """Runs the slow provider; gives the variables with which the service trusts it."""
    with subprocess.Popen(
        [PROJECT_PYTHON, _CHILDREN, "provide", folder], cwd=WORK, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            port = json.loads(process.stdout.readline() if process.stdout else "")
            (folder / "connections.py").write_text(_DECLARED.format(port=port))
            yield {
                "SEGMENTSTREAM_CONNECTION_SECRET_THE_ID": "id",
                "SEGMENTSTREAM_CONNECTION_SECRET_THE_SECRET": "secret",
                "SEGMENTSTREAM_CONNECTIONS_CA_FILE": str(folder / "ca.pem"),
                "SEGMENTSTREAM_CONNECTIONS_ALLOW_PRIVATE_PROVIDERS": "true",
            }
        finally:
            process.kill()


@contextmanager
def _running(
    command: Sequence[str | Path], folder: Path, variables: Mapping[str, str]
) -> Iterator[Server]:
    """Runs a server until the block ends, and then says what it cost."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = Server(port=listener.getsockname()[1])
    environment = {"PATH": os.environ["PATH"], **variables, "PORT": str(server.port)}
    started = time.monotonic()
    with (
        (WORK / "server.log").open("w") as log,
        subprocess.Popen(command, cwd=folder, env=environment, stderr=log) as process,
    ):
        try:
            _ask_for_health(server.port)
            server.start_seconds = time.monotonic() - started
            yield server
        finally:
            process.kill()
            _, _, usage = os.wait4(process.pid, 0)
            process.returncode = 0
    server.cpu_seconds = usage.ru_utime + usage.ru_stime
    server.peak_bytes = usage.ru_maxrss * 1024


def _ask_for_health(port: int) -> None:
    ends = time.monotonic() + _PATIENCE_SECONDS
    while True:
        try:
            with socket.create_connection(("127.0.0.1", port), 5) as caller:
                caller.sendall(b"GET /health HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
                if b" 200 " in caller.recv(1024):
                    return
        except ConnectionRefusedError:
            time.sleep(0.002)
        if time.monotonic() > ends:
            raise SystemExit(f"A server did not start:\n{(WORK / 'server.log').read_text()}")


def _megabytes(size: float) -> str:
    return f"{size / _MEGABYTE:.0f} MB"


def _uv(*arguments: str) -> None:
    uv = PROJECT_PYTHON.with_name("uv")
    subprocess.run([str(uv), "--quiet", *arguments], cwd=HERE.parent, check=True)
