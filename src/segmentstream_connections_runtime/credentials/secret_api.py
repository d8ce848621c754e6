"""The calls that a store makes to Google Secret Manager; imports Google's client late.

Every call is tried once, with a time limit: Google's clients would try again for minutes, when
whoever asked has long gone. What a reply says beyond its status reaches no error.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice
from threading import Lock
from typing import TYPE_CHECKING, Any

from segmentstream_connections_runtime.credentials.base import StoreError

if TYPE_CHECKING:
    from google.api_core.exceptions import GoogleAPICallError
    from google.cloud.secretmanager_v1 import SecretManagerServiceClient

_SECONDS = 10.0
_LABELS = {"segmentstream": "credentials"}
_FILTER = "labels.segmentstream=credentials"
_NEEDED = [
    "secretmanager.secrets.delete",
    "secretmanager.secrets.get",
    "secretmanager.secrets.update",
    "secretmanager.versions.access",
    "secretmanager.versions.add",
    "secretmanager.versions.destroy",
    "secretmanager.versions.list",
]
_DENIED = (
    "Secret Manager denies access to the credential store. Enable its API in the project, and "
    "grant the service's account the role roles/secretmanager.admin there."
)
_UNREACHABLE = "Secret Manager, which keeps the credentials, cannot be reached. Try again."
_UNNAMED = (
    "Secret Manager knows no such project or location. Check the address of the credential store."
)
_NO_CREDENTIALS = (
    "There are no Google credentials for the credential store, or they have ended. On a laptop run "
    "`gcloud auth application-default login`; on Google Cloud attach a service account."
)
# https://cloud.google.com/apis/design/errors#handling_errors
_REASONS = {
    "INVALID_ARGUMENT": "Secret Manager refused what the credential store sent. Report this.",
    "NOT_FOUND": _UNNAMED,
    "PERMISSION_DENIED": _DENIED,
    "RESOURCE_EXHAUSTED": "The quota of Secret Manager is used up. Raise it, or try again later.",
    "UNAUTHENTICATED": _NO_CREDENTIALS,
}
_CHANGED = {"FAILED_PRECONDITION", "ABORTED", "NOT_FOUND"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Secret:
    """Is a secret without its content.

    Attributes:
        id: Its name in the project.
        etag: What it has to have still, to be changed.
        created_at: When it was made, in seconds since 1970.
        annotations: What is noted on it.
        expires_at: When Google removes it, in seconds since 1970.
    """

    id: str
    etag: str
    created_at: float
    annotations: Mapping[str, str]
    expires_at: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Version:
    """Is a content of a secret.

    Attributes:
        number: Which, counted from 1 in each secret.
        etag: What it has to have still, to be destroyed; no secret made anew under the same name
            has it again.
        created_at: When it was added, in seconds since 1970.
    """

    number: int
    etag: str
    created_at: float


class SecretApi:
    """Makes the calls in one project.

    Every method raises `StoreError` where Secret Manager cannot be reached or refuses for a reason
    that the method does not name.
    """

    def __init__(
        self, project: str, *, locations: tuple[str, ...] = (), endpoint: str | None = None
    ) -> None:
        self._project = f"projects/{project}"
        self._locations = locations
        self._endpoint = endpoint
        self._made: SecretManagerServiceClient | None = None
        self._making = Lock()

    def get(self, secret_id: str) -> Secret | None:
        """Gives a secret; None where there is none."""
        try:
            return _read(self._call("get_secret", {"name": self._path(secret_id)}, {"NOT_FOUND"}))
        except _RefusedError:
            return None

    def create(
        self, secret_id: str, annotations: Mapping[str, str], *, expires_at: float | None
    ) -> Secret | None:
        """Makes a secret without content; None where there is one."""
        secret = {
            "replication": self._replication(),
            "labels": _LABELS,
            "annotations": dict(annotations),
        } | _expiry(expires_at)
        request = {"parent": self._project, "secret_id": secret_id, "secret": secret}
        try:
            return _read(self._call("create_secret", request, {"ALREADY_EXISTS"}))
        except _RefusedError:
            return None

    def update(
        self, secret: Secret, annotations: Mapping[str, str], *, expires_at: float | None
    ) -> Secret | None:
        """Notes other things on a secret; None where it has changed since it was read."""
        changed = {
            "name": self._path(secret.id),
            "etag": secret.etag,
            "annotations": dict(annotations),
        } | _expiry(expires_at)
        paths = ["annotations"] + (["expire_time"] if expires_at != secret.expires_at else [])
        request = {"secret": changed, "update_mask": {"paths": paths}}
        try:
            return _read(self._call("update_secret", request, _CHANGED))
        except _RefusedError:
            return None

    def delete(self, secret: Secret) -> bool:
        """Removes a secret with all it holds; says whether it was as it had been read."""
        try:
            request = {"name": self._path(secret.id), "etag": secret.etag}
            self._call("delete_secret", request, _CHANGED)
        except _RefusedError:
            return False
        return True

    def secrets(self) -> list[Secret]:
        """Lists the secrets of all stores in the project."""
        request = {"parent": self._project, "filter": _FILTER, "page_size": 1000}
        return [_read(each) for each in self._call("list_secrets", request)]

    def add_version(self, secret_id: str, content: bytes) -> Version | None:
        """Adds a content to a secret; None where the secret has gone."""
        request = {"parent": self._path(secret_id), "payload": {"data": content}}
        try:
            return _read_version(self._call("add_secret_version", request, {"NOT_FOUND"}))
        except _RefusedError:
            return None

    def access_version(self, secret_id: str, version: int) -> bytes | None:
        """Gives a content; None where it was destroyed or its secret has gone."""
        request = {"name": f"{self._path(secret_id)}/versions/{version}"}
        try:
            answer = self._call("access_secret_version", request, _CHANGED)
        except _RefusedError:
            return None
        content: bytes = answer.payload.data
        return content

    def enabled_versions(self, secret_id: str) -> list[Version]:
        """Lists the contents of a secret that are not destroyed."""
        request = {"parent": self._path(secret_id), "filter": "state:ENABLED"}
        return [_read_version(each) for each in self._call("list_secret_versions", request)]

    def destroy_version(self, secret_id: str, version: Version) -> None:
        """Destroys a content, if it is still there."""
        path = f"{self._path(secret_id)}/versions/{version.number}"
        request = {"name": path, "etag": version.etag}
        with suppress(_RefusedError):
            self._call("destroy_secret_version", request, _CHANGED)

    def check(self) -> None:
        """Makes sure that secrets can be listed, and the first of them be changed."""
        request = {"parent": self._project, "filter": _FILTER, "page_size": 1}
        for secret in self._call("list_secrets", request, one=True):
            asked = {"resource": self._path(_read(secret).id), "permissions": _NEEDED}
            granted = set(self._call("test_iam_permissions", asked).permissions)
            if missing := sorted(set(_NEEDED) - granted):
                raise StoreError(f"{_DENIED} It lacks {', '.join(missing)}.")

    def close(self) -> None:
        """Closes the connections."""
        with self._making:
            made, self._made = self._made, None
        if made is not None:
            made.transport.close()

    # What Google's client takes and gives.
    def _call(
        self,
        method: str,
        request: dict[str, Any],
        refusals: Collection[str] = (),
        *,
        one: bool = False,
    ) -> Any:
        client = self._client()
        import requests  # noqa: PLC0415 - as the client
        from google.api_core.exceptions import GoogleAPICallError  # noqa: PLC0415
        from google.auth.exceptions import GoogleAuthError, TransportError  # noqa: PLC0415

        # Texts of these errors hold addresses and what Google's servers wrote.
        try:
            answer = getattr(client, method)(request=request, retry=None, timeout=_SECONDS)
            if method.startswith("list_"):
                return list(islice(answer, 1 if one else None))  # which asks for further pages
        except GoogleAPICallError as error:
            status = _status(error)
            if status in refusals:
                raise _RefusedError from None
            raise StoreError(_REASONS.get(status, _UNREACHABLE)) from None
        except (TransportError, requests.RequestException):
            raise StoreError(_UNREACHABLE) from None
        except GoogleAuthError:
            raise StoreError(_NO_CREDENTIALS) from None
        return answer

    def _client(self) -> SecretManagerServiceClient:
        with self._making:
            if self._made is None:
                self._made = _make_client(self._endpoint)
            return self._made

    def _path(self, secret_id: str) -> str:
        return f"{self._project}/secrets/{secret_id}"

    def _replication(self) -> dict[str, Any]:
        if not self._locations:
            return {"automatic": {}}
        return {"user_managed": {"replicas": [{"location": each} for each in self._locations]}}


class _RefusedError(Exception):
    """Is an answer that is no success, and was to be expected."""


def _make_client(endpoint: str | None) -> SecretManagerServiceClient:
    try:
        from google.auth.credentials import AnonymousCredentials  # noqa: PLC0415
        from google.auth.exceptions import DefaultCredentialsError  # noqa: PLC0415
        from google.cloud.secretmanager_v1 import SecretManagerServiceClient  # noqa: PLC0415
    except ModuleNotFoundError:
        raise StoreError(
            "A credential store in Secret Manager needs Google's client. Install "
            "segmentstream-pipeline[secret-manager]."
        ) from None
    transport = SecretManagerServiceClient.get_transport_class("rest")
    if endpoint is not None:
        return SecretManagerServiceClient(
            transport=transport(
                host=endpoint, url_scheme="http", credentials=AnonymousCredentials()
            )
        )
    try:
        return SecretManagerServiceClient(transport=transport())
    except DefaultCredentialsError:
        raise StoreError(_NO_CREDENTIALS) from None


# Google's messages.
def _read(found: Any) -> Secret:
    return Secret(
        id=found.name.rpartition("/")[2],
        etag=found.etag,
        created_at=found.create_time.timestamp(),
        annotations=dict(found.annotations),
        expires_at=found.expire_time.timestamp() if "expire_time" in found else None,
    )


def _expiry(expires_at: float | None) -> dict[str, Any]:
    if expires_at is None:
        return {}
    return {"expire_time": datetime.fromtimestamp(expires_at, UTC)}


def _read_version(found: Any) -> Version:
    return Version(
        number=int(found.name.rpartition("/")[2]),
        etag=found.etag,
        created_at=found.create_time.timestamp(),
    )


def _status(error: GoogleAPICallError) -> str:
    """Gives the status by its name, which HTTP's number alone does not tell."""
    try:
        status = error.response.json()["error"]["status"]
    except (AttributeError, KeyError, TypeError, ValueError):
        return ""  # such as the page of a proxy
    return status if isinstance(status, str) else ""
