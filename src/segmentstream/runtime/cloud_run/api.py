"""The calls that are made to Cloud Run; imports Google's client late, and nobody else does.

Every call is tried once, with a time limit; whoever makes it decides whether to try again. Calls
are made in threads, for none may keep the process from ending when it is told to.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from threading import Lock
from typing import TYPE_CHECKING, Any

from segmentstream.runtime.cloud_run.settings import CLOUD_RUN_JOB_VARIABLE, CloudRunSettings
from segmentstream.runtime.exits import Exit, RunRefusedError
from segmentstream.runtime.telling import tell

if TYPE_CHECKING:
    from google.api_core.exceptions import GoogleAPICallError
    from google.cloud.run_v2 import ExecutionsClient, JobsClient

_SECONDS = 20.0
_FIRST_PAUSE, _LONGEST_PAUSE, _GROWTH = 1.0, 30.0, 1.6
_PAGE = 100
_SHOWN = 300
# Of an execution only what the runtime itself has told it; other variables may hold secrets.
_OURS = ("SEGMENTSTREAM_DAGSTER_", "SEGMENTSTREAM_RUN_ID")
_ENGINE_VARIABLE = "SEGMENTSTREAM_WAREHOUSE_ENGINE"
_CONCLUDED = {3, 4}  # Condition.State: CONDITION_FAILED, CONDITION_SUCCEEDED
_TRANSIENT_CODES = {408, 409, 429, 500, 502, 503, 504}
_REMEDIES = {
    "NOT_FOUND": f"Make the job, or correct {CLOUD_RUN_JOB_VARIABLE}.",
    "PERMISSION_DENIED": (
        "Grant the service account of this process what docs/runtime.md lists under Many machines."
    ),
    "UNAUTHENTICATED": "Attach a service account, or log in with application default credentials.",
}


class UnansweredError(Exception):
    """Says that Cloud Run gave no answer, or told to come again.

    Attributes:
        may_have_happened: Whether what was asked may have been done all the same.
    """

    def __init__(self, told: str, *, may_have_happened: bool = True) -> None:
        super().__init__(told)
        self.may_have_happened = may_have_happened


class AbsentError(Exception):
    """Says that there is no such execution, or that it is over already."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobShape:
    """Is what a job says of its executions.

    Attributes:
        task_count: How many tasks each has.
        max_retries: How often a task is started again.
        timeout_seconds: How long a task may take.
        containers: How many containers a task has.
        words: The command of its first container and its arguments; none where the image decides.
        variables: The names of that container's variables.
        engine: The warehouse engine among them, where it is no secret.
    """

    task_count: int
    max_retries: int
    timeout_seconds: int
    containers: int
    words: tuple[str, ...]
    variables: frozenset[str]
    engine: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Execution:
    """Is one execution of the job.

    Attributes:
        name: Its name within the job.
        variables: What the runtime has told it.
        is_over: Whether it has ended, or never will start.
        ending: How it ended, for a person; empty while it has not.
        log: Where its log can be read.
    """

    name: str
    variables: Mapping[str, str] = field(repr=False)
    is_over: bool
    ending: str
    log: str


class CloudRunApi:
    """Makes the calls for one job.

    Each raises `UnansweredError` where the same call may succeed later, and `RunRefusedError` where
    it will not.
    """

    def __init__(self, settings: CloudRunSettings) -> None:
        self._job = settings.job
        self._endpoint = settings.endpoint
        self._made: tuple[JobsClient, ExecutionsClient] | None = None
        self._making = Lock()

    def job(self) -> JobShape:
        """Says what the job's executions are like."""
        return _shape(self._call("get_job", {"name": self._job}))

    def run(self, variables: Mapping[str, str]) -> str:
        """Starts an execution that is told these variables; gives its name."""
        env = [{"name": name, "value": value} for name, value in variables.items()]
        overrides = {"container_overrides": [{"env": env}]}
        operation = self._call("run_job", {"name": self._job, "overrides": overrides})
        return _short(operation.metadata.name)

    def executions(self, wanted: Collection[str] | None = None) -> list[Execution]:
        """Lists executions page by page, until those wanted are among them; all where None."""
        found: list[Execution] = []
        missing, token = set(wanted or ()), ""
        while True:
            request = {"parent": self._job, "page_size": _PAGE, "page_token": token}
            page = self._call("list_executions", request)
            found += [_read(each) for each in page.executions]
            missing -= {each.name for each in found}
            token = page.next_page_token
            if not token or (wanted is not None and not missing):
                return found

    def execution(self, name: str) -> Execution:
        """Gives an execution.

        Raises:
            AbsentError: There is none.
        """
        return _read(self._call("get_execution", {"name": self._path(name)}, {"NOT_FOUND"}))

    def cancel(self, name: str) -> None:
        """Tells an execution to end.

        Raises:
            AbsentError: There is none, or it has ended.
        """
        over = {"NOT_FOUND", "FAILED_PRECONDITION"}
        self._call("cancel_execution", {"name": self._path(name)}, over)

    def _call(self, method: str, request: dict[str, Any], absent: Collection[str] = ()) -> Any:
        jobs, executions = self._clients()
        import requests  # noqa: PLC0415 - as the client
        from google.api_core.exceptions import GoogleAPICallError, RetryError  # noqa: PLC0415
        from google.auth.exceptions import GoogleAuthError, TransportError  # noqa: PLC0415

        client = jobs if method.endswith("_job") else executions
        try:
            answer = getattr(client, method)(request=request, retry=None, timeout=_SECONDS)
            # A list is given as a pager, which would ask for further pages by itself.
            return next(iter(answer.pages)) if method.startswith("list_") else answer
        except GoogleAPICallError as error:
            raise self._told(method, error, absent) from None
        except (TransportError, RetryError, requests.RequestException) as error:
            raise UnansweredError(f"{method} was not answered: {type(error).__name__}") from None
        except GoogleAuthError:
            raise _refused(
                f"There are no Google credentials for {self._job}.", "UNAUTHENTICATED"
            ) from None

    def _told(self, method: str, error: GoogleAPICallError, absent: Collection[str]) -> Exception:
        status = _status(error)
        if status in absent:
            return AbsentError(status)
        if error.code in _TRANSIENT_CODES or not status:
            is_quota = status == "RESOURCE_EXHAUSTED"
            return UnansweredError(
                f"{method} was refused for now: {status or error.code}",
                may_have_happened=not is_quota,
            )
        reason = " ".join(str(error.message).split())[:_SHOWN]
        return _refused(f"Cloud Run refuses {method} for {self._job}: {status}, {reason}", status)

    def _clients(self) -> tuple[JobsClient, ExecutionsClient]:
        with self._making:
            if self._made is None:
                self._made = _make_clients(self._endpoint)
            return self._made

    def _path(self, name: str) -> str:
        return f"{self._job}/executions/{name}"


def patiently[T](ask: Callable[[], T], seconds: float, what: str) -> T:
    """Asks again, with longer and longer pauses, while there is no answer.

    Raises:
        UnansweredError: There was none for so many seconds.
    """
    try:
        from google.api_core.exceptions import RetryError  # noqa: PLC0415 - as the client
        from google.api_core.retry import Retry, if_exception_type  # noqa: PLC0415
    except ModuleNotFoundError:
        raise _missing() from None
    retry = Retry(
        predicate=if_exception_type(UnansweredError),
        initial=_FIRST_PAUSE,
        maximum=_LONGEST_PAUSE,
        multiplier=_GROWTH,
        timeout=seconds,
        on_error=lambda error: tell(f"{what}: {error}; asking again.", level=logging.WARNING),
    )
    try:
        return retry(ask)()
    except RetryError as error:
        raise UnansweredError(str(error.cause)) from None


def _make_clients(endpoint: str | None) -> tuple[JobsClient, ExecutionsClient]:
    try:
        from google.auth.credentials import AnonymousCredentials  # noqa: PLC0415
        from google.auth.exceptions import DefaultCredentialsError  # noqa: PLC0415
        from google.cloud.run_v2 import ExecutionsClient, JobsClient  # noqa: PLC0415
    except ModuleNotFoundError:
        raise _missing() from None
    jobs = JobsClient.get_transport_class("rest")
    executions = ExecutionsClient.get_transport_class("rest")
    if endpoint is not None:
        plain: dict[str, Any] = {
            "host": endpoint,
            "url_scheme": "http",
            "credentials": AnonymousCredentials(),
        }
        return JobsClient(transport=jobs(**plain)), ExecutionsClient(transport=executions(**plain))
    try:
        return JobsClient(transport=jobs()), ExecutionsClient(transport=executions())
    except DefaultCredentialsError:
        raise _no_credentials() from None


def _missing() -> RunRefusedError:
    return RunRefusedError(
        "Runs on Cloud Run need Google's client.",
        "Install segmentstream-pipeline[cloud-run].",
        exit_code=Exit.CONFIGURATION,
    )


# Google's messages.
def _shape(job: Any) -> JobShape:
    task = job.template.template
    containers = list(task.containers)
    env = list(containers[0].env) if containers else []
    return JobShape(
        task_count=job.template.task_count or 1,
        max_retries=task.max_retries,
        timeout_seconds=int(task.timeout.total_seconds()) if task.timeout else 600,
        containers=len(containers),
        words=(*containers[0].command, *containers[0].args) if containers else (),
        variables=frozenset(each.name for each in env),
        engine=next((each.value for each in env if each.name == _ENGINE_VARIABLE), "") or None,
    )


def _read(found: Any) -> Execution:
    env = [each for container in found.template.containers for each in container.env]
    completed = next((each for each in found.conditions if each.type_ == "Completed"), None)
    has_concluded = completed is not None and int(completed.state) in _CONCLUDED
    is_over = bool(found.completion_time or found.delete_time or has_concluded)
    return Execution(
        name=_short(found.name),
        variables={each.name: each.value for each in env if each.name.startswith(_OURS)},
        is_over=is_over,
        ending=_ending(found, completed) if is_over else "",
        log=found.log_uri,
    )


def _ending(found: Any, completed: Any) -> str:
    how = "was cancelled" if found.cancelled_count else "failed"
    if found.succeeded_count and not found.failed_count:
        how = "ended well"
    said = completed.message.strip().rstrip(".") if completed is not None else ""
    return f"{how} ({said})" if said else how


def _short(name: str) -> str:
    return name.rpartition("/")[2]


def _status(error: GoogleAPICallError) -> str:
    """Gives the status by its name, which HTTP's number alone does not tell."""
    try:
        status = error.response.json()["error"]["status"]
    except (AttributeError, KeyError, TypeError, ValueError):
        return ""  # such as the page of a proxy
    return status if isinstance(status, str) else ""


def _no_credentials() -> RunRefusedError:
    return _refused("There are no Google credentials, or they have ended.", "UNAUTHENTICATED")


def _refused(problem: str, status: str) -> RunRefusedError:
    remedy = _REMEDIES.get(status, "Correct the job, or report this.")
    return RunRefusedError(problem, remedy, exit_code=Exit.CONFIGURATION)
