import gzip
import json
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection, RemoteDisconnected
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

import pytest

from bigquery.emulator import Emulator
from bigquery.proxy import (
    Fault,
    Proxy,
    cut_after,
    cut_before,
    fail_job,
    hold,
    hold_answer,
    refuse,
)

type Document = dict[str, Any]
type Ask = Callable[..., tuple[int, Document]]

_PROJECT = "/bigquery/v2/projects/p"


@pytest.fixture
def ask(proxy: Proxy) -> Ask:
    """Sends a request through the proxy, each on a connection of its own."""
    return lambda *args, **kwargs: _ask(proxy.url, *args, **kwargs)


@pytest.fixture
def ask_server(emulator: Emulator) -> Ask:
    """Sends a request past the proxy."""
    return lambda *args, **kwargs: _ask(emulator.url, *args, **kwargs)


@pytest.fixture
def dataset(ask_server: Ask) -> str:
    """A dataset of this test's own."""
    name = f"d{uuid4().hex[:8]}"
    reference = {"projectId": "p", "datasetId": name}
    assert ask_server("POST", f"{_PROJECT}/datasets", {"datasetReference": reference})[0] == 200
    return name


def test_it_tells_each_request_by_kind(proxy: Proxy, ask: Ask, dataset: str) -> None:
    """The log names every request after the method of the API that it calls, with its status."""
    tables = f"{_PROJECT}/datasets/{dataset}/tables"
    table = {
        "tableReference": {"projectId": "p", "datasetId": dataset, "tableId": "t"},
        "schema": {"fields": [{"name": "id", "type": "INT64"}]},
    }
    ask("GET", f"{_PROJECT}/datasets/{dataset}")
    ask("POST", tables, table)
    ask("POST", tables, table)
    ask("GET", f"{tables}/t")
    ask("PATCH", f"{tables}/t", {"description": "text"})
    ask("GET", f"{tables}/t/data")
    ask("POST", f"{_PROJECT}/jobs", _query_job("one", "SELECT 1"))
    ask("GET", f"{_PROJECT}/jobs/one")
    ask("GET", f"{_PROJECT}/queries/one")
    ask("POST", f"{_PROJECT}/jobs/one/cancel")
    ask("POST", f"{_PROJECT}/queries", {"query": "SELECT 1", "useLegacySql": False})
    ask("DELETE", f"{tables}/t")
    ask("GET", "/healthz")

    assert [(each.kind, each.status) for each in proxy.requests()] == [
        ("datasets.get", 200),
        ("tables.insert", 200),
        ("tables.insert", 409),
        ("tables.get", 200),
        ("tables.patch", 200),
        ("tabledata.list", 200),
        ("jobs.insert:query", 200),
        ("jobs.get", 200),
        ("queries.get", 200),
        ("jobs.cancel", 200),
        ("jobs.query", 200),
        ("tables.delete", 204),
        ("other", 200),
    ]


def test_it_tells_what_a_job_was_asked_to_do(proxy: Proxy, ask: Ask) -> None:
    """The log has the id, the labels, the query and the parameters of a job."""
    job_id = _new_id()
    ask("POST", f"{_PROJECT}/jobs?location=EU", _query_job(job_id, "SELECT 2", labels={"a": "b"}))

    (request,) = proxy.requests("jobs.insert")

    assert (request.project, request.job_id, request.sql) == ("p", job_id, "SELECT 2")
    assert (request.labels, request.parameters) == ({"a": "b"}, {"location": "EU"})


def test_the_log_can_be_cleared(proxy: Proxy, ask: Ask) -> None:
    """After clearing, only what is asked later is told."""
    ask("GET", f"{_PROJECT}/datasets")
    proxy.clear()
    ask("GET", f"{_PROJECT}/jobs")

    assert proxy.kinds() == ["jobs.list"]


def test_a_request_can_be_lost_on_its_way(proxy: Proxy, ask: Ask, ask_server: Ask) -> None:
    """A connection that is cut before the server sees the request leaves no job behind."""
    job_id = _new_id()
    proxy.inject(cut_before, on="jobs.insert:query")

    with pytest.raises(RemoteDisconnected):
        ask("POST", f"{_PROJECT}/jobs", _query_job(job_id, "SELECT 1"))

    assert ask_server("GET", f"{_PROJECT}/jobs/{job_id}")[0] == 404
    assert [each.status for each in proxy.requests()] == [None]


def test_an_answer_can_be_lost_on_its_way(proxy: Proxy, ask: Ask, ask_server: Ask) -> None:
    """A connection that is cut after the server has acted leaves the job done."""
    job_id = _new_id()
    proxy.inject(cut_after, on="jobs.insert:query")

    with pytest.raises(RemoteDisconnected):
        ask("POST", f"{_PROJECT}/jobs", _query_job(job_id, "SELECT 1"))

    assert _state(ask_server("GET", f"{_PROJECT}/jobs/{job_id}")) == "DONE"
    assert ask("POST", f"{_PROJECT}/jobs", _query_job(job_id, "SELECT 1"))[0] == 409


def test_a_fault_hits_the_request_it_is_meant_for(proxy: Proxy, ask: Ask) -> None:
    """A fault counts the requests that its predicate selects and hits one of them."""
    proxy.inject(refuse(503, "backendError"), on=lambda request: request.method == "GET", at=2)

    asked = [("GET", "datasets"), ("POST", "none"), ("GET", "jobs"), ("GET", "jobs")]

    assert [ask(method, f"{_PROJECT}/{path}", {})[0] for method, path in asked] == [
        200,
        404,
        503,
        200,
    ]


def test_a_fault_can_stay(proxy: Proxy, ask: Ask) -> None:
    """A fault that stays hits every request from its first one, until it is taken back."""
    proxy.inject(refuse(500, "backendError"), at=2, always=True)

    statuses = [ask("GET", f"{_PROJECT}/jobs")[0] for _ in range(3)]
    proxy.heal()

    assert [*statuses, ask("GET", f"{_PROJECT}/jobs")[0]] == [200, 500, 500, 200]


@pytest.mark.parametrize(
    ("status", "reason", "message"),
    [
        (429, "rateLimitExceeded", "Exceeded rate limits: too many table update operations"),
        (
            400,
            "invalidQuery",
            "Could not serialize access to table p:d.t due to concurrent update",
        ),
    ],
)
def test_a_refusal_is_in_the_words_of_google(
    proxy: Proxy, ask: Ask, status: int, reason: str, message: str
) -> None:
    """A refusal has the JSON in which clients look for the reason and the message."""
    proxy.inject(refuse(status, reason, message))

    answered, document = ask("POST", f"{_PROJECT}/jobs", _query_job(_new_id(), "SELECT 1"))

    assert answered == document["error"]["code"] == status
    assert document["error"]["message"] == message
    assert document["error"]["errors"][0]["reason"] == reason


def test_a_job_can_fail_without_running(proxy: Proxy, ask: Ask, ask_server: Ask) -> None:
    """A failed job is accepted, tells the same error whenever it is asked for, and never ran."""
    job_id = _new_id()
    message = "Transaction is aborted due to concurrent update against table p:d.t"
    proxy.inject(fail_job("invalidQuery", message), on="jobs.insert")

    inserted = ask("POST", f"{_PROJECT}/jobs", _query_job(job_id, "SELECT 1"))
    told = ask("GET", f"{_PROJECT}/jobs/{job_id}")
    status, results = ask("GET", f"{_PROJECT}/queries/{job_id}")

    assert [_state(inserted), _state(told)] == ["DONE", "DONE"]
    assert inserted[1]["status"]["errorResult"] == told[1]["status"]["errorResult"]
    assert told[1]["status"]["errorResult"] == {"reason": "invalidQuery", "message": message}
    assert (status, results["error"]["message"]) == (400, message)
    assert ask_server("GET", f"{_PROJECT}/jobs/{job_id}")[0] == 404


@pytest.mark.parametrize(("fault", "known"), [(hold, 404), (hold_answer, 200)])
def test_a_request_can_be_held(
    proxy: Proxy,
    ask: Ask,
    ask_server: Ask,
    fault: Callable[[threading.Event], Fault],
    known: int,
) -> None:
    """A request is held before, or its answer after, the server has acted; then all goes on."""
    job_id, release = _new_id(), threading.Event()
    proxy.inject(fault(release), on="jobs.insert")
    path = f"{_PROJECT}/jobs/{job_id}"

    with ThreadPoolExecutor() as pool:
        inserting = pool.submit(ask, "POST", f"{_PROJECT}/jobs", _query_job(job_id, "SELECT 1"))
        proxy.wait_for("jobs.insert")
        if known == 200:
            _until(lambda: ask_server("GET", path)[0] == 200)
        held = (inserting.done(), ask_server("GET", path)[0])
        release.set()

        assert held == (False, known)
        assert _state(inserting.result()) == "DONE"


def test_a_job_in_the_background_is_running_at_first(proxy: Proxy, ask: Ask) -> None:
    """A job in the background is RUNNING when inserted and has no results until it is let go."""
    job_id, start = _new_id(), threading.Event()
    results = f"{_PROJECT}/queries/{job_id}"
    job = _query_job(job_id, "SELECT 7", labels={"a": "b"}, location="EU")
    with proxy.background_jobs(start):
        inserted = ask("POST", f"{_PROJECT}/jobs", job)
        running = ask("GET", f"{_PROJECT}/jobs/{job_id}")
        waiting = ask("GET", f"{results}?timeoutMs=1")
        start.set()
        finished = ask("GET", f"{results}?timeoutMs=30000")
        done = ask("GET", f"{_PROJECT}/jobs/{job_id}")

    assert [_state(each) for each in (inserted, running, done)] == ["RUNNING", "RUNNING", "DONE"]
    assert waiting[1]["jobComplete"] is False
    assert finished[1]["rows"] == [{"f": [{"v": "7"}]}]
    assert done[1]["jobReference"] == {"projectId": "p", "jobId": job_id, "location": "EU"}
    assert done[1]["configuration"]["labels"] == {"a": "b"}
    assert ask("POST", f"{_PROJECT}/jobs", job)[0] == 409


def test_a_job_in_the_background_fails_as_the_server_says(proxy: Proxy, ask: Ask) -> None:
    """The error with which the server ends a job is what its results and its state tell."""
    job_id = _new_id()
    with proxy.background_jobs():
        ask("POST", f"{_PROJECT}/jobs", _query_job(job_id, "SELECT ERROR('no luck')"))
        status, results = ask("GET", f"{_PROJECT}/queries/{job_id}?timeoutMs=30000")
        told = ask("GET", f"{_PROJECT}/jobs/{job_id}")[1]["status"]

    assert status == 400
    assert "no luck" in results["error"]["message"]
    assert told["errorResult"]["message"] == results["error"]["message"]


def test_a_job_cancelled_before_it_starts_never_runs(
    proxy: Proxy, ask: Ask, ask_server: Ask
) -> None:
    """A job that is cancelled while it is held ends as stopped and never reaches the server."""
    job_id, start = _new_id(), threading.Event()
    with proxy.background_jobs(start):
        ask("POST", f"{_PROJECT}/jobs", _query_job(job_id, "SELECT 1"))
        ask("POST", f"{_PROJECT}/jobs/{job_id}/cancel")
        start.set()
        told = ask("GET", f"{_PROJECT}/jobs/{job_id}")

    assert _state(told) == "DONE"
    assert told[1]["status"]["errorResult"]["reason"] == "stopped"
    assert ask_server("GET", f"{_PROJECT}/jobs/{job_id}")[0] == 404


def test_a_job_cancelled_too_late_ends_as_it_does(proxy: Proxy, ask: Ask) -> None:
    """A job that is cancelled after the server has it keeps its real outcome."""
    job_id = _new_id()
    with proxy.background_jobs():
        ask("POST", f"{_PROJECT}/jobs", _query_job(job_id, "SELECT 1"))
        ask("GET", f"{_PROJECT}/queries/{job_id}?timeoutMs=30000")
        ask("POST", f"{_PROJECT}/jobs/{job_id}/cancel")
        told = ask("GET", f"{_PROJECT}/jobs/{job_id}")

    assert (_state(told), told[1]["status"].get("errorResult")) == ("DONE", None)


@pytest.mark.parametrize("way", ["multipart", "resumable"])
def test_uploads_are_jobs_too(
    proxy: Proxy, ask: Ask, ask_server: Ask, dataset: str, way: str
) -> None:
    """An upload is told with its job id, runs in the background, and is found if its answer is lost."""
    job_id = _new_id()
    proxy.inject(cut_after, on=lambda request: request.kind == "upload" and request.starts_job)

    with proxy.background_jobs(), pytest.raises(RemoteDisconnected):
        _upload(proxy, dataset, job_id, way)
    _until(lambda: _state(ask("GET", f"{_PROJECT}/jobs/{job_id}")) == "DONE")

    assert {(each.kind, each.job_id) for each in proxy.requests("upload")} == {("upload", job_id)}
    assert _state(ask_server("GET", f"{_PROJECT}/jobs/{job_id}")) == "DONE"
    assert ask_server("GET", f"{_PROJECT}/datasets/{dataset}/tables/t/data")[1]["totalRows"] == "2"


def test_an_upload_can_fail(proxy: Proxy, ask: Ask, dataset: str) -> None:
    """A load job whose file is uploaded can be made to fail like any other job."""
    job_id = _new_id()
    proxy.inject(fail_job("backendError"), on="upload")

    assert _upload(proxy, dataset, job_id, "multipart")["status"]["state"] == "DONE"
    assert ask("GET", f"{_PROJECT}/jobs/{job_id}")[1]["status"]["errorResult"]["reason"] == (
        "backendError"
    )


def test_a_connection_serves_many_requests(proxy: Proxy) -> None:
    """Requests in chunks, zipped or plain follow each other on one connection of a client."""
    job_id, zipped = _new_id(), _new_id()
    connection = HTTPConnection(urlsplit(proxy.url).netloc)
    chunks = iter([json.dumps(_query_job(job_id, "SELECT 1")).encode()])
    connection.request("POST", f"{_PROJECT}/jobs", chunks, encode_chunked=True)
    connection.getresponse().read()
    first = connection.sock
    content = gzip.compress(json.dumps(_query_job(zipped, "SELECT 2")).encode())
    connection.request("POST", f"{_PROJECT}/jobs", content, {"Content-Encoding": "gzip"})
    connection.getresponse().read()
    connection.request("GET", f"{_PROJECT}/jobs/{zipped}")
    response = connection.getresponse()

    assert (json.load(response)["jobReference"]["jobId"], response.status) == (zipped, 200)
    assert [(each.job_id, each.sql) for each in proxy.requests("jobs.insert")] == [
        (job_id, "SELECT 1"),
        (zipped, "SELECT 2"),
    ]
    assert connection.sock is first
    connection.close()


def test_a_zipped_answer_stays_zipped() -> None:
    """What the server sends in chunks and zipped reaches the client zipped."""

    class Server(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            content = gzip.compress(b'{"a": 1}')
            self.send_response(200)
            self.send_header("Content-Encoding", "gzip")
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            self.wfile.write(b"%x\r\n%s\r\n0\r\n\r\n" % (len(content), content))

        def log_message(self, *args: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Server) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        with Proxy(f"http://127.0.0.1:{server.server_address[1]}") as proxy:
            connection = HTTPConnection(urlsplit(proxy.url).netloc)
            connection.request("GET", "/")
            response = connection.getresponse()
            content = response.read()
            connection.close()
        server.shutdown()

    assert response.getheader("Content-Encoding") == "gzip"
    assert gzip.decompress(content) == b'{"a": 1}'


def test_many_threads_may_ask_at_once(proxy: Proxy, ask: Ask) -> None:
    """Requests of many threads are all answered, and a fault hits exactly one of them."""
    proxy.inject(refuse(503, "backendError"), at=10)

    with ThreadPoolExecutor(8) as pool:
        asked = [pool.submit(ask, "GET", f"{_PROJECT}/datasets") for _ in range(40)]
        statuses = [each.result()[0] for each in asked]

    assert sorted(statuses) == [200] * 39 + [503]
    assert len(proxy.requests("datasets.list")) == 40


def _ask(
    url: str, method: str, path: str, document: Mapping[str, Any] | None = None
) -> tuple[int, Document]:
    content = None if document is None else json.dumps(document).encode()
    connection = HTTPConnection(urlsplit(url).netloc, timeout=60)
    try:
        connection.request(method, path, content, {"Content-Type": "application/json"})
        response = connection.getresponse()
        answered = response.read()
    finally:
        connection.close()
    try:
        return response.status, json.loads(answered)
    except ValueError:
        return response.status, {}


def _query_job(
    job_id: str, sql: str, *, labels: Mapping[str, str] | None = None, location: str = "US"
) -> Document:
    return {
        "jobReference": {"projectId": "p", "jobId": job_id, "location": location},
        "configuration": {
            "query": {"query": sql, "useLegacySql": False},
            "labels": dict(labels or {}),
        },
    }


def _upload(proxy: Proxy, dataset: str, job_id: str, way: str) -> Document:
    """Loads two rows into the table `t`; answers the job."""
    job = {
        "jobReference": {"projectId": "p", "jobId": job_id},
        "configuration": {
            "load": {
                "sourceFormat": "NEWLINE_DELIMITED_JSON",
                "schema": {"fields": [{"name": "id", "type": "INT64"}]},
                "destinationTable": {"projectId": "p", "datasetId": dataset, "tableId": "t"},
            }
        },
    }
    rows = b'{"id": 1}\n{"id": 2}\n'
    path = f"/upload{_PROJECT}/jobs?uploadType={way}"
    connection = HTTPConnection(urlsplit(proxy.url).netloc, timeout=60)
    try:
        if way == "multipart":
            parts = [(b"application/json", json.dumps(job).encode()), (b"*/*", rows)]
            content = b"".join(b"--cut\r\ncontent-type: %s\r\n\r\n%s\r\n" % part for part in parts)
            headers = {"Content-Type": "multipart/related; boundary=cut"}
            connection.request("POST", path, content + b"--cut--", headers)
        else:
            headers = {"Content-Type": "application/json"}
            connection.request("POST", path, json.dumps(job).encode(), headers)
            response = connection.getresponse()
            response.read()
            session = response.headers["Location"]
            assert session.startswith(proxy.url)
            headers = {"Content-Range": f"bytes 0-{len(rows) - 1}/{len(rows)}"}
            connection.request("PUT", session.removeprefix(proxy.url), rows, headers)
        return dict(json.load(connection.getresponse()))
    finally:
        connection.close()


def _state(answer: tuple[int, Document]) -> str:
    return str(answer[1]["status"]["state"])


def _new_id() -> str:
    return f"job-{uuid4().hex}"


def _until(holds: Callable[[], bool]) -> None:
    """Waits for a condition that only asking can tell."""
    waiting = threading.Event()
    for _ in range(3000):
        if holds():
            return
        waiting.wait(0.01)
    pytest.fail("What was waited for did not happen within 30 s.")
