"""A server that behaves as Google Secret Manager's REST API does, where a store relies on it.

Etags are checked as https://cloud.google.com/secret-manager/docs/etags says: each change of a secret
or of a version renews that resource's own, and a request with another one is refused with 400 and
FAILED_PRECONDITION. It can fail, keep its answer to itself, and lag behind, as a test asks.
"""

from __future__ import annotations

import json
import re
import threading
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import deepcopy
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit
from uuid import uuid4

PROJECT = "test-project"
_CONTENT_BYTES = 65536
_PAGE = 3  # few, so that every list has further pages
_CODES = {
    "FAILED_PRECONDITION": 400,
    "INVALID_ARGUMENT": 400,
    "UNAUTHENTICATED": 401,
    "PERMISSION_DENIED": 403,
    "NOT_FOUND": 404,
    "ALREADY_EXISTS": 409,
    "ABORTED": 409,
    "RESOURCE_EXHAUSTED": 429,
    "INTERNAL": 500,
    "UNAVAILABLE": 503,
}
_ROUTES = {
    ("POST", ""): "create",
    ("GET", ""): "list",
    ("GET", "/ID"): "get",
    ("PATCH", "/ID"): "update",
    ("DELETE", "/ID"): "delete",
    ("POST", "/ID:addVersion"): "add",
    ("POST", "/ID:testIamPermissions"): "permissions",
    ("GET", "/ID/versions"): "versions_of",
    ("GET", "/ID/versions/N:access"): "access",
    ("POST", "/ID/versions/N:destroy"): "destroy",
}
_PATH = re.compile(
    rf"/v1/projects/{PROJECT}/secrets(?:/([A-Za-z0-9_-]{{1,255}})(/versions)?(?:/([0-9]+))?(:\w+)?)?"
)

type Json = dict[str, Any]
type Before = Callable[[str], None]


class RefusedError(Exception):
    """Is an answer that is no success."""

    def __init__(self, status: str) -> None:
        super().__init__(status)
        self.status = status


class SecretManagerServer:
    """Is the server and what it keeps.

    Attributes:
        calls: The names of the calls it was sent.
        refuses: The status that each call named here is refused with; `*` names all.
        loses: The calls whose next answer is not sent, though they are carried out.
        lags: Whether a secret is given as it was when this was set.
        before: What is called with the name of each call, before it is carried out.
        granted: The permissions that the caller has; None for all.
    """

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.refuses: dict[str, str] = {}
        self.loses: set[str] = set()
        self.before: Before = lambda _call: None
        self.granted: set[str] | None = None
        self.secrets: dict[str, Json] = {}
        self._versions: dict[str, dict[int, Json]] = {}  # by when their secret was made
        self._contents: dict[str, bytes] = {}  # by etag
        self._old: dict[str, Json] | None = None
        self._lock = threading.RLock()
        self._server = _Server(("127.0.0.1", 0), _Handler)
        self._server.secret_manager = self

    @property
    def url(self) -> str:
        """The address of a store on it."""
        return f"secretmanager://{PROJECT}/test?endpoint=127.0.0.1:{self._server.server_port}"

    @property
    def lags(self) -> bool:
        return self._old is not None

    @lags.setter
    def lags(self, lags: bool) -> None:
        self._old = deepcopy(self.secrets) if lags else None

    def enabled(self, secret_id: str) -> list[int]:
        """Lists the versions of a secret that hold a content."""
        versions = self._of(secret_id)
        return [number for number, each in versions.items() if each["state"] == "ENABLED"]

    def serve(self) -> None:
        """Serves until it is stopped."""
        self._server.serve_forever(poll_interval=0.01)

    def stop(self) -> None:
        """Stops serving."""
        self._server.shutdown()
        self._server.server_close()

    def answer(self, method: str, address: str, body: Json) -> tuple[str, Json]:
        """Carries a request out; gives the name of the call and the answer."""
        split = urlsplit(address)
        found = _PATH.fullmatch(split.path)
        if found is None:
            return "unknown", {"status": "NOT_FOUND"}
        secret_id, versions, number, verb = (each or "" for each in found.groups())
        shape = f"{secret_id and '/ID'}{versions}{number and '/N'}{verb}"
        call = _ROUTES[method, shape]
        self.before(call)
        asked = {name: values[0] for name, values in parse_qs(split.query).items()} | body
        with self._lock:
            self.calls.append(call)
            if status := self.refuses.get(call) or self.refuses.get("*"):
                return call, {"status": status}
            try:
                return call, getattr(self, f"_{call}")(secret_id, int(number or 0), asked)
            except RefusedError as refused:
                return call, {"status": refused.status}

    def _create(self, _id: str, _number: int, asked: Json) -> Json:
        secret_id = asked["secretId"]
        if secret_id in self.secrets:
            raise RefusedError("ALREADY_EXISTS")
        given = ("replication", "labels", "annotations", "expireTime")
        secret = {key: asked[key] for key in given if key in asked}
        secret |= {"name": f"projects/000000000000/secrets/{secret_id}", "createTime": _now()}
        _check_expiry(secret)
        self._versions[secret["createTime"]] = {}
        self.secrets[secret_id] = secret
        return _renewed(secret)

    def _list(self, _id: str, _number: int, asked: Json) -> Json:
        assert asked["filter"] == "labels.segmentstream=credentials"
        return _page("secrets", list(self.secrets.values()), asked)

    def _get(self, secret_id: str, _number: int, _asked: Json) -> Json:
        return _found(self.secrets if self._old is None else self._old, secret_id)

    def _update(self, secret_id: str, _number: int, asked: Json) -> Json:
        secret = _found(self.secrets, secret_id)
        _check_etag(secret, asked)
        changed = secret | {field: asked.get(field) for field in asked["updateMask"].split(",")}
        _check_expiry(changed)
        self.secrets[secret_id] = changed
        return _renewed(changed)

    def _delete(self, secret_id: str, _number: int, asked: Json) -> Json:
        _check_etag(_found(self.secrets, secret_id), asked)
        del self.secrets[secret_id]
        return {}

    def _permissions(self, _id: str, _number: int, asked: Json) -> Json:
        granted = self.granted
        return {"permissions": [p for p in asked["permissions"] if granted is None or p in granted]}

    def _add(self, secret_id: str, _number: int, asked: Json) -> Json:
        versions = self._of(secret_id)
        content = b64decode(asked["payload"]["data"])
        if len(content) > _CONTENT_BYTES:
            raise RefusedError("INVALID_ARGUMENT")
        number = len(versions) + 1
        name = f"projects/000000000000/secrets/{secret_id}/versions/{number}"
        versions[number] = _renewed({"name": name, "createTime": _now(), "state": "ENABLED"})
        self._contents[versions[number]["etag"]] = content
        return versions[number]

    def _versions_of(self, secret_id: str, _number: int, asked: Json) -> Json:
        assert asked["filter"] == "state:ENABLED"
        enabled = [each for each in self._of(secret_id).values() if each["state"] == "ENABLED"]
        return _page("versions", enabled, asked)

    def _access(self, secret_id: str, number: int, _asked: Json) -> Json:
        version = _enabled(self._of(secret_id), number)
        content = self._contents[version["etag"]]
        return {"name": version["name"], "payload": {"data": b64encode(content).decode()}}

    def _destroy(self, secret_id: str, number: int, asked: Json) -> Json:
        version = _enabled(self._of(secret_id), number)
        _check_etag(version, asked)
        del self._contents[version["etag"]]
        version["state"] = "DESTROYED"
        return _renewed(version)

    def _of(self, secret_id: str) -> dict[int, Json]:
        return self._versions[_found(self.secrets, secret_id)["createTime"]]


def _enabled(versions: dict[int, Json], number: int) -> Json:
    version = _found(versions, number)
    if version["state"] != "ENABLED":
        raise RefusedError("FAILED_PRECONDITION")
    return version


def _found[Key](among: dict[Key, Json], key: Key) -> Json:
    if key not in among:
        raise RefusedError("NOT_FOUND")
    return among[key]


def _page(kind: str, found: list[Json], asked: Json) -> Json:
    start = int(asked.get("pageToken", "0"))
    end = start + min(_PAGE, int(asked.get("pageSize", _PAGE)))
    further = {"nextPageToken": str(end)} if end < len(found) else {}
    return {kind: found[start:end]} | further


def _check_etag(resource: Json, asked: Json) -> None:
    if asked.get("etag") not in {None, resource["etag"]}:
        raise RefusedError("FAILED_PRECONDITION")


def _check_expiry(secret: Json) -> None:
    if secret.get("expireTime") is None:
        secret.pop("expireTime", None)
    elif datetime.fromisoformat(secret["expireTime"]) <= datetime.now(UTC):
        raise RefusedError("INVALID_ARGUMENT")


def _renewed(resource: Json) -> Json:
    resource["etag"] = f'"{uuid4().hex}"'
    return resource


def _now() -> str:
    return datetime.now(UTC).isoformat().replace("+00:00", "Z")


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    secret_manager: SecretManagerServer


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: _Server

    def do_GET(self) -> None:
        self._serve()

    def do_POST(self) -> None:
        self._serve()

    def do_PATCH(self) -> None:
        self._serve()

    def do_DELETE(self) -> None:
        self._serve()

    def _serve(self) -> None:
        manager = self.server.secret_manager
        size = int(self.headers.get("Content-Length") or 0)
        body = json.loads(self.rfile.read(size) or b"{}")
        call, answer = manager.answer(self.command, self.path, body)
        if call in manager.loses:
            manager.loses.remove(call)
            self.close_connection = True
            return
        status = answer.get("status", "")
        told = {"error": {"code": _CODES[status], "status": status}} if status else answer
        encoded = json.dumps(told).encode()
        self.send_response(_CODES.get(status, 200))
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(encoded)))
        self.end_headers()
        self.wfile.write(encoded)

    def log_message(self, *_: object) -> None:
        """Says nothing."""


@contextmanager
def running_secret_manager() -> Iterator[SecretManagerServer]:
    """Starts a server and ends it."""
    server = SecretManagerServer()
    thread = threading.Thread(target=server.serve)
    thread.start()
    try:
        yield server
    finally:
        server.stop()
        thread.join()
