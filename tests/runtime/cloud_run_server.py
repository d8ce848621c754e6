"""A server that behaves as Cloud Run's REST API does, where the runtime relies on it.

Requests are read into the types of Google's own client, and answers written from them, so a field
that the API does not have fails. An execution is a real process, forked from the tests' host: it
gets the image's variables, then the job's, then the overrides. Like Cloud Run it sends a cancelled
execution SIGTERM. It can refuse, hang, keep its answer to itself, and keep executions from starting.
"""

from __future__ import annotations

import json
import os
import re
import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, urlsplit
from uuid import uuid4

from google.cloud import run_v2
from google.protobuf import json_format

from runtime.shops import SHOP, Shop

JOB = "projects/test-project/locations/europe-west1/jobs/runs"
_PAGE = 5  # few, so that a list has further pages
_CODES = {
    "INVALID_ARGUMENT": 400,
    "FAILED_PRECONDITION": 400,
    "PERMISSION_DENIED": 403,
    "NOT_FOUND": 404,
    "RESOURCE_EXHAUSTED": 429,
    "UNAVAILABLE": 503,
}
_PATH = re.compile(rf"/v2/({JOB})(:run)?(/executions)?(?:/([a-z0-9-]+))?(:cancel)?")
_ROUTES = {
    ("GET", ""): "get_job",
    ("POST", ":run"): "run_job",
    ("GET", "/executions"): "list_executions",
    ("GET", "/executions/ID"): "get_execution",
    ("POST", "/executions/ID:cancel"): "cancel_execution",
}

type Json = dict[str, Any]


class RefusedError(Exception):
    """Is an answer that is no success."""


@dataclass(slots=True, kw_only=True)
class Running:
    """Is an execution and its process; it has none while it is queued."""

    execution: run_v2.Execution
    process: int | None = None
    is_cancelled: bool = False


class CloudRunServer:
    """Is the server and what it keeps.

    Attributes:
        job: The one job that there is.
        image: The variables that the job's image sets.
        calls: The names of the calls it was sent.
        refuses: The status that each call named here is refused with.
        refuses_once: Statuses that the next starts of an execution are refused with, one each.
        loses: The calls whose next answer is not sent, though they are carried out.
        hangs: The calls that are not answered while the server runs.
        holds: Whether executions stay queued.
        hides: Whether lists are empty, as if they lagged behind.
        before: What is called before an execution starts.
    """

    def __init__(self, shop: Shop) -> None:
        self._shop = shop
        self.job = _job(shop)
        self.image = shop.environ(DAGSTER_POSTGRES_URL=None, SEGMENTSTREAM_RUN_ID=None)
        self.calls: list[str] = []
        self.refuses: dict[str, str] = {}
        self.refuses_once: list[str] = []
        self.loses: set[str] = set()
        self.hangs: set[str] = set()
        self.holds = self.hides = False
        self.before: Callable[[str], object] = lambda _name: None
        self._kept: dict[str, Running] = {}
        self._lock = threading.RLock()
        self._is_over = threading.Event()
        self._server = _Server(("127.0.0.1", 0), _Handler)
        self._server.cloud_run = self

    @property
    def endpoint(self) -> str:
        """Where it listens."""
        return f"127.0.0.1:{self._server.server_port}"

    def variables(self) -> dict[str, str | None]:
        """What a coordinator is told: where runs go, and nothing of the warehouse."""
        return {
            "SEGMENTSTREAM_DAGSTER_LAUNCHER": "cloud-run",
            "SEGMENTSTREAM_CLOUD_RUN_JOB": JOB,
            "SEGMENTSTREAM_CLOUD_RUN_ENDPOINT": self.endpoint,
            "SEGMENTSTREAM_WAREHOUSE_ENGINE": None,
            "SEGMENTSTREAM_WAREHOUSE_CATALOG": None,
        }

    def executions(self) -> list[run_v2.Execution]:
        """What it keeps, oldest first."""
        with self._lock:
            return [self._looked_at(each).execution for each in self._kept.values()]

    def processes(self) -> list[int]:
        """The processes of its executions, oldest first."""
        with self._lock:
            return [each.process for each in self._kept.values() if each.process]

    def told(self) -> str:
        """What its executions told."""
        return "".join(each.read_text() for each in self._shop.folder.glob("execution-*/stderr"))

    def kill(self, name: str) -> None:
        """Ends an execution as a lack of memory does."""
        process = self._kept[name].process
        assert process is not None
        os.killpg(process, signal.SIGKILL)

    def cancel(self, name: str) -> None:
        """Cancels an execution, as a person does."""
        self._cancel_execution(f"{JOB}/executions", name, {})

    def repeat(self, name: str) -> None:
        """Queues a second execution that is told the same."""
        with self._lock:
            execution = run_v2.Execution(self._kept[name].execution)
            second = f"runs-{uuid4().hex[:5]}"
            execution.name = f"{JOB}/executions/{second}"
            self._kept[second] = Running(execution=execution)

    def delete(self, name: str) -> None:
        """Removes an execution, and what runs of it."""
        with self._lock:
            if self._kept[name].process:
                self.kill(name)
            del self._kept[name]

    def release(self) -> None:
        """Starts what is queued."""
        with self._lock:
            self.holds = False
            for running in self._kept.values():
                if running.process is None and not running.is_cancelled:
                    self._start(running)

    def serve(self) -> None:
        """Serves until it is stopped."""
        self._server.serve_forever(poll_interval=0.01)

    def stop(self) -> None:
        """Stops serving, and ends its executions."""
        self._is_over.set()
        self._server.shutdown()
        self._server.server_close()
        for running in self._kept.values():
            if running.process and not running.execution.completion_time:
                with suppress(ProcessLookupError):
                    os.killpg(running.process, signal.SIGKILL)

    def answer(self, method: str, address: str, body: Json) -> tuple[str, Json]:
        """Carries a request out; gives the name of the call and the answer."""
        split = urlsplit(address)
        found = _PATH.fullmatch(split.path)
        if found is None:
            return "unknown", {"error": "NOT_FOUND"}
        job, run, executions, name, cancel = (each or "" for each in found.groups())
        call = _ROUTES[method, run + executions + (f"/ID{cancel}" if name else "")]
        self.calls.append(call)
        if call in self.hangs:
            self._is_over.wait()
        if status := self.refuses.get(call):
            return call, {"error": status}
        asked = dict(parse_qsl(split.query)) | body
        asked.pop("$alt", None)
        try:
            with self._lock:
                return call, getattr(self, f"_{call}")(
                    f"{job}{executions}" if name else job, name, asked
                )
        except RefusedError as refused:
            return call, {"error": str(refused)}

    def _get_job(self, job: str, _name: str, asked: Json) -> Json:
        _parsed(run_v2.GetJobRequest, asked | {"name": job})
        return _written(self.job)

    def _run_job(self, job: str, _name: str, asked: Json) -> Json:
        request = _parsed(run_v2.RunJobRequest, asked | {"name": job})
        if self.refuses_once:
            raise RefusedError(self.refuses_once.pop(0))
        name = f"runs-{uuid4().hex[:5]}"
        execution = run_v2.Execution(
            name=f"{job}/executions/{name}",
            job="runs",
            create_time=datetime.now(UTC),
            task_count=1,
            log_uri=f"https://logs.example/{name}",
        )
        execution.template = run_v2.TaskTemplate(self.job.template.template)
        (override,) = request.overrides.container_overrides
        env = {each.name: each for each in execution.template.containers[0].env}
        env |= {each.name: each for each in override.env}
        execution.template.containers[0].env = list(env.values())
        self._kept[name] = running = Running(execution=execution)
        if not self.holds:
            self._start(running)
        return _operation(execution)

    def _list_executions(self, job: str, _name: str, asked: Json) -> Json:
        request = _parsed(run_v2.ListExecutionsRequest, asked | {"parent": job})
        newest_first = [] if self.hides else list(reversed(self.executions()))
        start = int(request.page_token or 0)
        end = start + min(_PAGE, request.page_size or _PAGE)
        further = str(end) if end < len(newest_first) else ""
        return _written(
            run_v2.ListExecutionsResponse(
                executions=newest_first[start:end], next_page_token=further
            )
        )

    def _get_execution(self, path: str, name: str, asked: Json) -> Json:
        _parsed(run_v2.GetExecutionRequest, asked | {"name": f"{path}/{name}"})
        return _written(self._looked_at(self._found(name)).execution)

    def _cancel_execution(self, path: str, name: str, asked: Json) -> Json:
        _parsed(run_v2.CancelExecutionRequest, asked | {"name": f"{path}/{name}"})
        running = self._looked_at(self._found(name))
        if running.execution.completion_time:
            raise RefusedError("FAILED_PRECONDITION")
        running.is_cancelled = True
        if running.process:
            os.kill(running.process, signal.SIGTERM)
        return _operation(self._looked_at(running).execution)

    def _found(self, name: str) -> Running:
        if name not in self._kept:
            raise RefusedError("NOT_FOUND")
        return self._kept[name]

    def _start(self, running: Running) -> None:
        name = running.execution.name.rpartition("/")[2]
        self.before(name)
        folder = self._shop.folder / f"execution-{name}"
        folder.mkdir()
        env = running.execution.template.containers[0].env
        told = {"CLOUD_RUN_JOB": "runs", "CLOUD_RUN_EXECUTION": name, "DAGSTER_HOME": str(folder)}
        running.process = self._shop.host.ask(
            {
                "cwd": str(SHOP),
                "environ": self.image | told | {each.name: each.value for each in env},
                "stdout": str(folder / "stdout"),
                "stderr": str(folder / "stderr"),
            }
        )

    def _looked_at(self, running: Running) -> Running:
        """Notes that an execution's process has ended meanwhile."""
        execution = running.execution
        if execution.completion_time:
            return running
        code = None
        if running.process:
            code = self._shop.host.ask({"pid": running.process})
            if code is None:
                return running
        elif not running.is_cancelled:
            return running
        execution.completion_time = datetime.now(UTC)
        if running.is_cancelled:
            execution.cancelled_count = 1
            _conclude(execution, "The execution was cancelled.")
        elif code == 0:
            execution.succeeded_count = 1
            _conclude(execution, "")
        else:
            execution.failed_count = 1
            _conclude(execution, f"The container ended with {code}.")
        return running


def _conclude(execution: run_v2.Execution, message: str) -> None:
    states = run_v2.Condition.State
    state = states.CONDITION_FAILED if message else states.CONDITION_SUCCEEDED
    execution.conditions = [run_v2.Condition(type_="Completed", state=state, message=message)]


def _job(shop: Shop) -> run_v2.Job:
    env = [run_v2.EnvVar(name="DAGSTER_POSTGRES_URL", value=shop.url)]
    command = ["python", "-m", "segmentstream.runtime"]
    container = run_v2.Container(image="example.com/shop", command=command, env=env)
    task = run_v2.TaskTemplate(containers=[container], max_retries=0, timeout="3600s")
    return run_v2.Job(
        name=JOB, template=run_v2.ExecutionTemplate(task_count=1, parallelism=1, template=task)
    )


def _parsed(kind: Any, asked: Mapping[str, Any]) -> Any:
    """Reads a request strictly; a field that its type does not have is an error of the test."""
    return kind(json_format.ParseDict(dict(asked), kind.pb()()))


def _written(message: Any) -> Json:
    written: Json = json_format.MessageToDict(type(message).pb(message))
    return written


def _operation(execution: run_v2.Execution) -> Json:
    kind = {"@type": "type.googleapis.com/google.cloud.run.v2.Execution"}
    name = f"projects/test-project/locations/europe-west1/operations/{uuid4()}"
    return {"name": name, "metadata": kind | _written(execution), "done": False}


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    cloud_run: CloudRunServer


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: _Server

    def do_GET(self) -> None:
        self._serve()

    def do_POST(self) -> None:
        self._serve()

    def _serve(self) -> None:
        cloud_run = self.server.cloud_run
        size = int(self.headers.get("Content-Length") or 0)
        body = json.loads(self.rfile.read(size) or b"{}")
        call, answer = cloud_run.answer(self.command, self.path, body)
        if call in cloud_run.loses:
            cloud_run.loses.remove(call)
            self.close_connection = True
            return
        status = answer.get("error", "")
        code = _CODES[status] if status else 200
        told = {"code": code, "status": status, "message": f"{call} is refused"}
        encoded = json.dumps({"error": told} if status else answer).encode()
        with suppress(BrokenPipeError, ConnectionResetError):  # a process that was killed meanwhile
            self.send_response(code)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(encoded)))
            self.end_headers()
            self.wfile.write(encoded)

    def log_message(self, *_: object) -> None:
        """Says nothing."""


@contextmanager
def running_cloud_run(shop: Shop) -> Iterator[CloudRunServer]:
    """Starts a server and ends it."""
    server = CloudRunServer(shop)
    thread = threading.Thread(target=server.serve)
    thread.start()
    try:
        yield server
    finally:
        server.stop()
        thread.join()
