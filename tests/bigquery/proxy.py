"""A proxy in front of a BigQuery API server.

It tells what was asked, breaks what it is told to break, and makes jobs take as long as a test wants.

    with Proxy(emulator.url) as proxy:
        proxy.inject(cut_after, on="jobs.insert:query")  # the job runs, its answer is lost
        ...                                              # a client of `proxy.url`
        assert proxy.kinds() == ["jobs.insert:query", "jobs.get"]

A fault is a function of a `Call`: it returns the answer, or None to cut the connection.
"""

from __future__ import annotations

import gzip
import json
import re
import select
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self
from urllib.parse import parse_qsl, urlsplit

_SECONDS_FOR_A_REQUEST = 300
_DEFAULT_TIMEOUT_MS = 10_000  # of getQueryResults
_STATUS_OF_REASON = {
    "accessDenied": 403,
    "backendError": 503,
    "duplicate": 409,
    "notFound": 404,
    "quotaExceeded": 403,
    "rateLimitExceeded": 403,
    "stopped": 499,
}

# The first that matches a path names the resource; `{}` is one part of it.
_KINDS = (
    ("/projects/{}/datasets", {"GET": "datasets.list", "POST": "datasets.insert"}),
    ("/projects/{}/datasets/{}", "datasets"),
    ("/projects/{}/datasets/{}/tables", {"GET": "tables.list", "POST": "tables.insert"}),
    ("/projects/{}/datasets/{}/tables/{}", "tables"),
    ("/projects/{}/datasets/{}/tables/{}/data", {"GET": "tabledata.list"}),
    ("/projects/{}/datasets/{}/tables/{}/insertAll", {"POST": "tabledata.insertAll"}),
    ("/projects/{}/jobs", {"GET": "jobs.list", "POST": "jobs.insert"}),
    ("/projects/{}/jobs/{job}", {"GET": "jobs.get", "DELETE": "jobs.delete"}),
    ("/projects/{}/jobs/{job}/cancel", {"POST": "jobs.cancel"}),
    ("/projects/{}/jobs/{job}/delete", {"DELETE": "jobs.delete"}),
    ("/projects/{}/queries", {"POST": "jobs.query"}),
    ("/projects/{}/queries/{job}", {"GET": "queries.get"}),
)
_VERBS = {"GET": "get", "PATCH": "patch", "PUT": "update", "DELETE": "delete"}
_PATTERNS = tuple(
    (
        re.compile(
            "/bigquery/v2" + path.replace("{job}", "(?P<job>[^/]+)").replace("{}", "[^/]+") + "/?"
        ),
        {method: f"{verbs}.{verb}" for method, verb in _VERBS.items()}
        if isinstance(verbs, str)
        else verbs,
    )
    for path, verbs in _KINDS
)
_HOP_BY_HOP = {"connection", "content-length", "keep-alive", "transfer-encoding"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What a client asked, and the status of the answer it got: None if it got none."""

    number: int
    method: str
    target: str = field(repr=False)  # the path and the parameters, as they were sent
    kind: str  # such as tables.get, jobs.insert:query, upload, queries.get (getQueryResults)
    headers: Mapping[str, str] = field(repr=False)  # names are in lower case
    content: bytes = field(repr=False)
    body: Mapping[str, Any]  # the JSON that was sent; empty if there was none
    job_id: str | None
    status: int | None = None

    @property
    def path(self) -> str:
        """The path that was asked for."""
        return urlsplit(self.target).path

    @property
    def parameters(self) -> Mapping[str, str]:
        """The parameters in the address, such as the location of a job."""
        return dict(parse_qsl(urlsplit(self.target).query))

    @property
    def project(self) -> str:
        """The project in the path."""
        found = re.search(r"/projects/([^/]+)", self.path)
        return found[1] if found else ""

    @property
    def labels(self) -> Mapping[str, str]:
        """The labels of the job or the resource that was sent."""
        found = self.body.get("configuration", self.body).get("labels") or {}
        return dict(found)

    @property
    def sql(self) -> str | None:
        """The text of the query that was sent."""
        query = self.body.get("configuration", {}).get("query") or self.body
        text = query.get("query")
        return text if isinstance(text, str) else None

    @property
    def starts_job(self) -> bool:
        """Whether a load, query or other job runs because of this request."""
        if self.kind != "upload":
            return self.kind.startswith("jobs.insert:")
        if self.method == "POST":
            return self.parameters.get("uploadType") == "multipart"
        sent = re.fullmatch(r"bytes \d+-(\d+)/(\d+)", self.headers.get("content-range", ""))
        return sent is None or int(sent[1]) + 1 == int(sent[2])


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a client gets."""

    status: int
    headers: tuple[tuple[str, str], ...] = ()
    content: bytes = field(default=b"", repr=False)

    @classmethod
    def of(cls, status: int, document: Mapping[str, Any]) -> Answer:
        """An answer in JSON."""
        headers = (("Content-Type", "application/json; charset=UTF-8"),)
        return cls(status=status, headers=headers, content=json.dumps(document).encode())

    def json(self) -> dict[str, Any]:
        """The JSON of the answer; empty if there is none."""
        zipped = any(name.lower() == "content-encoding" for name, _ in self.headers)
        return _json_in(gzip.decompress(self.content) if zipped else self.content)


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A request on its way, as a fault sees it."""

    request: Request
    forward: Callable[[], Answer]
    fail_job: Callable[[str, str], Answer]


type Fault = Callable[[Call], Answer | None]


def cut_before(_call: Call) -> None:
    """Cuts the connection before the server has seen the request."""


def cut_after(call: Call) -> None:
    """Cuts the connection after the server has acted."""
    call.forward()


def refuse(status: int, reason: str, message: str = "Injected.") -> Fault:
    """Answers with an HTTP status and Google's JSON for it; the server sees nothing."""
    return lambda _call: _refusal(status, reason, message)


def fail_job(reason: str, message: str = "Injected.") -> Fault:
    """Says that the job has failed, now and whenever it is asked for; the server sees nothing."""
    return lambda call: call.fail_job(reason, message)


def described_as(**fields: Any) -> Fault:
    """Lets the server answer, and puts these fields of the resource in the place of its own."""

    def fault(call: Call) -> Answer:
        answer = call.forward()
        return Answer.of(200, answer.json() | fields) if answer.status == HTTPStatus.OK else answer

    return fault


def hold(until: threading.Event | float) -> Fault:
    """Holds the request back until the event, or for so many seconds."""

    def fault(call: Call) -> Answer:
        _wait(until)
        return call.forward()

    return fault


def hold_answer(until: threading.Event | float) -> Fault:
    """Lets the server act, and holds its answer back until the event, or for so many seconds."""

    def fault(call: Call) -> Answer:
        answer = call.forward()
        _wait(until)
        return answer

    return fault


@dataclass(slots=True, kw_only=True)
class _Injection:
    fault: Fault
    matches: Callable[[Request], bool]
    at: int
    always: bool
    seen: int = 0

    def fires(self, request: Request) -> bool:
        if not self.matches(request):
            return False
        self.seen += 1
        return self.seen >= self.at if self.always else self.seen == self.at


@dataclass(slots=True, kw_only=True)
class _Job:
    """A job that the proxy answers for."""

    request: Request
    created: str = field(default_factory=lambda: str(time.time_ns() // 1_000_000))
    changed: threading.Condition = field(default_factory=threading.Condition)
    forwarded: bool = False
    cancelled: bool = False
    outcome: Mapping[str, Any] | None = None  # the job as the server, or a fault, has ended it

    @property
    def error(self) -> Mapping[str, str] | None:
        found = (self.outcome or {}).get("status", {}).get("errorResult")
        return dict(found) if found else None

    def resource(self) -> dict[str, Any]:
        """The job as jobs.get tells it, with the reference and the labels that were sent."""
        sent, outcome = self.request.body, self.outcome or {}
        reference = {"projectId": self.request.project, "location": "US", **sent["jobReference"]}
        return {
            "kind": "bigquery#job",
            "id": f"{reference['projectId']}:{reference['location']}.{reference['jobId']}",
            "status": {"state": "RUNNING"},
            "statistics": {"creationTime": self.created, "startTime": self.created},
            **outcome,
            "configuration": {**sent["configuration"], **outcome.get("configuration", {})}
            | {"labels": dict(self.request.labels)},
            "jobReference": reference,
        }

    def end(self, outcome: Mapping[str, Any]) -> None:
        with self.changed:
            self.outcome = outcome
            self.changed.notify_all()


class Proxy:
    """A proxy that serves while it is a context; safe to use from any thread."""

    def __init__(self, upstream: str) -> None:
        self._upstream = urlsplit(upstream).netloc
        self._lock = threading.Lock()
        self._log: dict[int, Request] = {}
        self._changed = threading.Condition(self._lock)
        self._injections: list[_Injection] = []
        self._jobs: dict[tuple[str, str], _Job] = {}
        self._uploads: dict[str, Request] = {}
        self._count = 0
        self._start_jobs: threading.Event | None = None
        self._server = _Server(self)

    def __enter__(self) -> Self:
        """Begins to serve on a free port."""
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stops; who still waits for an answer is cut off."""
        self._server.shutdown()
        self._server.server_close()
        self._server.cut_all()

    @property
    def url(self) -> str:
        """The address that a client takes as its API endpoint."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    # What was asked

    def requests(self, kind: str = "") -> list[Request]:
        """What was asked so far, in order; only kinds that start with this text."""
        with self._lock:
            return [request for request in self._log.values() if request.kind.startswith(kind)]

    def kinds(self) -> list[str]:
        """The kinds of what was asked so far."""
        return [request.kind for request in self.requests()]

    def clear(self) -> None:
        """Forgets what was asked; faults and jobs stay."""
        with self._lock:
            self._log.clear()

    def wait_for(self, kind: str, *, count: int = 1, seconds: float = 30) -> list[Request]:
        """Waits until so many requests whose kind starts with this text have arrived."""
        with self._changed:
            arrived = self._changed.wait_for(
                lambda: sum(each.kind.startswith(kind) for each in self._log.values()) >= count,
                seconds,
            )
        if not arrived:
            raise TimeoutError(
                f"{count} x {kind} did not arrive within {seconds} s: {self.kinds()}"
            )
        return self.requests(kind)

    # What goes wrong

    def inject(
        self,
        fault: Fault,
        *,
        on: str | Callable[[Request], bool] = "",
        at: int = 1,
        always: bool = False,
    ) -> None:
        """Breaks the request number `at` from now on, and with `always` each one after it.

        Counted are the requests whose kind starts with `on`, or for which `on` returns true. Of
        several faults that hit one request the first injected acts.
        """

        def of_that_kind(request: Request) -> bool:
            return request.kind.startswith(str(on))

        matches = on if callable(on) else of_that_kind
        with self._lock:
            self._injections.append(_Injection(fault=fault, matches=matches, at=at, always=always))

    def heal(self) -> None:
        """Takes back all faults."""
        with self._lock:
            self._injections.clear()

    # How long jobs take

    @contextmanager
    def background_jobs(self, start: threading.Event | None = None) -> Iterator[None]:
        """Makes jobs run in the background, as in BigQuery: a job is RUNNING when it is inserted.

        A job goes to the server once `start` is set. One that is cancelled before never does. Jobs
        that choose no id, and jobs.query, are not affected.
        """
        self._start_jobs = start or _set_event()
        try:
            yield
        finally:
            self._start_jobs = None

    # How a request is answered

    def handle(self, handler: _Handler) -> Answer | None:
        """Answers one request; None cuts the connection."""
        request, fault = self._receive(handler)
        call = Call(
            request=request,
            forward=lambda: self._serve(request, handler.forward),
            fail_job=lambda reason, message: self._fail_job(request, reason, message),
        )
        try:
            answer = fault(call) if fault else call.forward()
        except (OSError, HTTPException) as error:
            answer = _refusal(502, "badGateway", f"The server did not answer: {error!r}")
        with self._lock:
            if request.number in self._log:
                status = answer.status if answer else None
                self._log[request.number] = replace(request, status=status)
        return answer

    def _receive(self, handler: _Handler) -> tuple[Request, Fault | None]:
        headers = {name.lower(): value for name, value in handler.headers.items()}
        content = handler.read_content()
        with self._changed:
            url = urlsplit(handler.path)
            started = self._uploads.get(dict(parse_qsl(url.query)).get("upload_id", ""))
            body = started.body if started else _document_in(content, headers)
            kind, job_id = _kind_of(handler.command, url.path, body)
            self._count += 1
            request = Request(
                number=self._count,
                method=handler.command,
                target=handler.path,
                kind=kind,
                headers=headers,
                content=content,
                body=body,
                job_id=job_id,
            )
            self._log[request.number] = request
            self._changed.notify_all()
            fired = [each.fault for each in self._injections if each.fires(request)]
        return request, fired[0] if fired else None

    def _serve(self, request: Request, forward: Callable[[Request], Answer]) -> Answer:
        start, key = self._start_jobs, (request.project, request.job_id or "")
        with self._lock:
            job = self._jobs.get(key)
            if request.starts_job and request.job_id and job is None and start is not None:
                fresh = self._jobs[key] = _Job(request=request)
                return self._start(fresh, start)
        if request.starts_job and job is not None:
            return _refusal(409, "duplicate", f"Already Exists: Job {job.resource()['id']}")
        if job is not None:
            match request.kind:
                case "jobs.get":
                    return Answer.of(200, job.resource())
                case "jobs.cancel":
                    return self._cancel(job)
                case "queries.get":
                    return _results(request, job, lambda: forward(request))
        answer = forward(request)
        for name, value in answer.headers:
            if name.lower() == "x-guploader-uploadid":  # its parts are sent with this id alone
                self._uploads[value] = request
        return answer

    def _start(self, job: _Job, start: threading.Event) -> Answer:
        def run() -> None:
            start.wait()
            with job.changed:
                if job.cancelled:
                    return
                job.forwarded = True
            connection = HTTPConnection(self._upstream, timeout=_SECONDS_FOR_A_REQUEST)
            try:
                answer = _forward(connection, job.request)
            except (OSError, HTTPException) as error:
                answer = _refusal(502, "backendError", f"The server did not answer: {error!r}")
            finally:
                connection.close()
            job.end(answer.json() if answer.status == 200 else _failure(_error_in(answer)))

        threading.Thread(target=run, daemon=True).start()
        return Answer.of(200, job.resource())

    def _cancel(self, job: _Job) -> Answer:
        with job.changed:
            job.cancelled = True
            if not job.forwarded and job.outcome is None:
                message = "Job execution was cancelled: User requested cancellation"
                job.end(_failure({"reason": "stopped", "message": message}))
        return Answer.of(200, {"kind": "bigquery#jobCancelResponse", "job": job.resource()})

    def _fail_job(self, request: Request, reason: str, message: str) -> Answer:
        if not request.job_id:  # jobs.query tells it at once
            return _refusal(_STATUS_OF_REASON.get(reason, 400), reason, message)
        job = _Job(request=request, outcome=_failure({"reason": reason, "message": message}))
        self._jobs[request.project, request.job_id] = job
        return Answer.of(200, job.resource())


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def __init__(self, proxy: Proxy) -> None:
        self.proxy = proxy
        self.upstream = proxy._upstream
        self._open: set[socket.socket] = set()
        super().__init__(("127.0.0.1", 0), _Handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        self._open.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        self._open.discard(request)
        super().shutdown_request(request)

    def cut_all(self) -> None:
        for connection in list(self._open):
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)


class _Handler(BaseHTTPRequestHandler):
    """One connection of a client, and one to the server, both kept alive."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: _Server

    def setup(self) -> None:
        super().setup()
        self._upstream = HTTPConnection(self.server.upstream, timeout=_SECONDS_FOR_A_REQUEST)

    def finish(self) -> None:
        self._upstream.close()
        with suppress(OSError):  # the client has left
            super().finish()

    def handle(self) -> None:
        with suppress(ConnectionError):  # the client has left
            super().handle()

    def do_GET(self) -> None:
        """Answers any request."""
        answer = self.server.proxy.handle(self)
        if answer is None:
            self.close_connection = True
            return
        self.send_response_only(answer.status)
        for name, value in answer.headers:
            self.send_header(name, value)
        if answer.status >= 200 and answer.status != 204:
            self.send_header("Content-Length", str(len(answer.content)))
        self.end_headers()
        self.wfile.write(answer.content)

    do_DELETE = do_HEAD = do_PATCH = do_POST = do_PUT = do_GET  # noqa: N815  # names of the library

    def forward(self, request: Request) -> Answer:
        return _forward(self._upstream, request)

    def read_content(self) -> bytes:
        if self.headers.get("Transfer-Encoding", "").lower() != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length", 0)))
        parts = []
        while size := int(self.rfile.readline().split(b";")[0], 16):
            parts.append(self.rfile.read(size))
            self.rfile.readline()
        while self.rfile.readline().strip():
            """Trailers carry nothing that BigQuery reads."""
        return b"".join(parts)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # as the library has it
        """The proxy keeps its own log."""


def _forward(connection: HTTPConnection, request: Request) -> Answer:
    """Sends a request on, on a connection that is renewed if the server has closed it."""
    if connection.sock is not None and select.select([connection.sock], [], [], 0)[0]:
        connection.close()
    try:
        connection.putrequest(
            request.method, request.target, skip_host=True, skip_accept_encoding=True
        )
        for name, value in request.headers.items():
            if name not in _HOP_BY_HOP:
                connection.putheader(name, value)
        if request.content or request.method in {"PATCH", "POST", "PUT"}:
            connection.putheader("Content-Length", str(len(request.content)))
        connection.endheaders(request.content or None)
        response = connection.getresponse()
        content = response.read()
    except BaseException:
        connection.close()
        raise
    headers = tuple(each for each in response.getheaders() if each[0].lower() not in _HOP_BY_HOP)
    return Answer(status=response.status, headers=headers, content=content)


def _results(request: Request, job: _Job, forward: Callable[[], Answer]) -> Answer:
    """Answers getQueryResults: waits as long as it is asked to, and raises what the job did."""
    timeout = int(request.parameters.get("timeoutMs", _DEFAULT_TIMEOUT_MS))
    with job.changed:
        job.changed.wait_for(lambda: job.outcome is not None, timeout / 1000)
    resource = job.resource()
    if job.outcome is None:
        document = {"kind": "bigquery#getQueryResultsResponse", "jobComplete": False}
        return Answer.of(200, {**document, "jobReference": resource["jobReference"]})
    if error := job.error:
        status = _STATUS_OF_REASON.get(error["reason"], 400)
        return _refusal(status, error["reason"], error["message"])
    return forward()


def _kind_of(method: str, path: str, body: Mapping[str, Any]) -> tuple[str, str | None]:
    """The kind of a request, and the job that it starts or asks for."""
    sent = body.get("jobReference", {}).get("jobId")
    if path.startswith(("/upload/", "/resumable/")):
        return "upload", sent
    for pattern, kinds in _PATTERNS:
        if (found := pattern.fullmatch(path)) and method in kinds:
            kind = kinds[method]
            if kind == "jobs.insert":
                types = ("query", "load", "copy", "extract")
                configuration = body.get("configuration", {})
                kind += ":" + next((each for each in types if each in configuration), "other")
            return kind, found.groupdict().get("job") or sent
    return "other", None


def _document_in(content: bytes, headers: Mapping[str, str]) -> dict[str, Any]:
    """The JSON of a request: its body, or the first part of an upload in several parts."""
    if headers.get("content-encoding") == "gzip":
        content = gzip.decompress(content)
    if headers.get("content-type", "").startswith("multipart/"):
        boundary = content.split(b"\r\n", 1)[0]
        part = content[len(boundary) :].split(boundary, 1)[0]
        content = part.split(b"\r\n\r\n", 1)[-1]
    return _json_in(content)


def _json_in(content: bytes) -> dict[str, Any]:
    try:
        document = json.loads(content)
    except ValueError:
        return {}
    return document if isinstance(document, dict) else {}


def _refusal(status: int, reason: str, message: str) -> Answer:
    """Google's JSON for an error."""
    detail = {"message": message, "domain": "global", "reason": reason}
    return Answer.of(
        status,
        {"error": {"code": status, "message": message, "errors": [detail], "status": reason}},
    )


def _error_in(answer: Answer) -> dict[str, str]:
    error = answer.json().get("error", {})
    (detail, *_) = error.get("errors") or [{}]
    return {
        "reason": detail.get("reason", "backendError"),
        "message": error.get("message", f"HTTP status {answer.status}"),
    }


def _failure(error: Mapping[str, str]) -> dict[str, Any]:
    """The part of a job that tells how it failed."""
    return {"status": {"state": "DONE", "errorResult": dict(error), "errors": [dict(error)]}}


def _set_event() -> threading.Event:
    event = threading.Event()
    event.set()
    return event


def _wait(until: threading.Event | float) -> None:
    if isinstance(until, threading.Event):
        until.wait()
    else:
        threading.Event().wait(until)
