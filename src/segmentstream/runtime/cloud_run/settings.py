"""Whether runs go to Cloud Run, and what an execution is told of its run; imports `settings`."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from segmentstream.runtime.exits import Exit, RunRefusedError
from segmentstream.runtime.launching import Attempt
from segmentstream.runtime.plans import Request
from segmentstream.runtime.records import EXECUTION_TAG, attempt_at, planned_run_of
from segmentstream.runtime.settings import (
    DEPLOYMENT_VARIABLE,
    FIRST_DAY_VARIABLE,
    JOB_VARIABLE,
    LAST_DAY_VARIABLE,
    MODE_VARIABLE,
    RUN_ID_VARIABLE,
    SCHEDULE_VARIABLE,
    Mode,
    RunSettings,
)

LAUNCHER_VARIABLE = "SEGMENTSTREAM_DAGSTER_LAUNCHER"
CLOUD_RUN_JOB_VARIABLE = "SEGMENTSTREAM_CLOUD_RUN_JOB"
ENDPOINT_VARIABLE = "SEGMENTSTREAM_CLOUD_RUN_ENDPOINT"
DAYS_VARIABLE = "SEGMENTSTREAM_DAGSTER_WORK_DAYS"
ATTEMPT_VARIABLE = "SEGMENTSTREAM_DAGSTER_WORK_ATTEMPT"
TAGS_VARIABLE = "SEGMENTSTREAM_DAGSTER_WORK_TAGS"
_EXECUTION_VARIABLE = "CLOUD_RUN_EXECUTION"  # which Cloud Run sets itself

_PROCESS, _CLOUD_RUN = "process", "cloud-run"
_JOB_NAME = re.compile(r"projects/[^/\s]+/locations/[^/\s]+/jobs/[^/\s]+")
_SHOWN = 80


@dataclass(frozen=True, slots=True, kw_only=True)
class CloudRunSettings:
    """Says which Cloud Run job carries runs out.

    Attributes:
        job: Its full name.
        endpoint: A server to ask instead of Google's, by HTTP and without credentials; for tests.
    """

    job: str
    endpoint: str | None = None

    @classmethod
    def from_environ(cls, environ: Mapping[str, str]) -> CloudRunSettings | None:
        """Reads the settings from variables; None where runs are processes of this machine.

        Raises:
            RunRefusedError: One of them is missing or cannot work; it is named.
        """
        launcher = environ.get(LAUNCHER_VARIABLE) or _PROCESS
        if launcher == _PROCESS:
            return None
        if launcher != _CLOUD_RUN:
            raise _refused(
                f"{LAUNCHER_VARIABLE} is {launcher[:_SHOWN]!r}.",
                f"Use one of: {_PROCESS}, {_CLOUD_RUN}.",
            )
        return cls(job=_job_name(environ), endpoint=environ.get(ENDPOINT_VARIABLE) or None)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkSettings:
    """Says which run of a request this execution carries out.

    Attributes:
        label: Its days in short.
        number: Which attempt it is.
        execution: The full name of this execution.
        tags: Further tags of the run.
    """

    label: str
    number: int
    execution: str
    tags: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def from_environ(cls, environ: Mapping[str, str]) -> WorkSettings:
        """Reads the settings from variables.

        Raises:
            RunRefusedError: One of them is missing or cannot work; it is named.
        """
        label, number = environ.get(DAYS_VARIABLE, ""), environ.get(ATTEMPT_VARIABLE, "")
        execution = environ.get(_EXECUTION_VARIABLE, "")
        if not (label and execution and number.isascii() and number.isdigit()):
            raise _refused(
                f"{DAYS_VARIABLE}, {ATTEMPT_VARIABLE} or {_EXECUTION_VARIABLE} is missing.",
                f"{MODE_VARIABLE}={Mode.WORK} is for executions that the runtime starts itself.",
            )
        job = _job_name(environ)
        return cls(
            label=label,
            number=int(number),
            execution=f"{job}/executions/{execution}",
            tags=_tags(environ),
        )

    def attempt(self, request: Request, settings: RunSettings) -> Attempt:
        """Gives what is to be run, tagged with who runs it.

        Raises:
            RunRefusedError: The request has no such days.
        """
        run = planned_run_of(request, self.label)
        if run.label != self.label:
            raise _refused(f"{DAYS_VARIABLE} is {self.label[:_SHOWN]!r}.", "Leave it to us.")
        planned = attempt_at(settings, run, self.number)
        tags = {**self.tags, **planned.tags, EXECUTION_TAG: self.execution}
        return Attempt(run=run, number=self.number, run_id=planned.run_id, tags=tags)


def variables_of(
    attempt: Attempt, settings: RunSettings, place: CloudRunSettings
) -> dict[str, str]:
    """Gives what an execution is told; all of them, so that none of the job's own stays."""
    return {
        MODE_VARIABLE: Mode.WORK,
        **_request_variables(settings),
        CLOUD_RUN_JOB_VARIABLE: place.job,
        DAYS_VARIABLE: attempt.run.label,
        ATTEMPT_VARIABLE: str(attempt.number),
        TAGS_VARIABLE: json.dumps(dict(settings.tags)),
    }


def attempt_told(
    variables: Mapping[str, str], request: Request, settings: RunSettings
) -> Attempt | None:
    """Gives the attempt that an execution was told of; None where it is of another request."""
    wanted = {MODE_VARIABLE: Mode.WORK, RUN_ID_VARIABLE: str(settings.run_id)}
    label, number = variables.get(DAYS_VARIABLE, ""), variables.get(ATTEMPT_VARIABLE, "")
    is_ours = all(variables.get(name) == value for name, value in wanted.items())
    if not (is_ours and label and number.isascii() and number.isdigit()):
        return None
    return attempt_at(settings, planned_run_of(request, label), int(number))


def _request_variables(settings: RunSettings) -> dict[str, str]:
    return {
        JOB_VARIABLE: settings.job,
        SCHEDULE_VARIABLE: "",
        RUN_ID_VARIABLE: str(settings.run_id),
        FIRST_DAY_VARIABLE: str(settings.first_day or ""),
        LAST_DAY_VARIABLE: str(settings.last_day or ""),
        DEPLOYMENT_VARIABLE: settings.deployment_id or "",
    }


def _tags(environ: Mapping[str, str]) -> Mapping[str, str]:
    try:
        told = json.loads(environ.get(TAGS_VARIABLE) or "{}")
    except ValueError:
        told = None
    if not isinstance(told, dict):
        raise _refused(f"{TAGS_VARIABLE} holds no tags.", "Leave it to us.")
    return {str(key): str(value) for key, value in told.items()}


def _job_name(environ: Mapping[str, str]) -> str:
    name = environ.get(CLOUD_RUN_JOB_VARIABLE, "")
    if not _JOB_NAME.fullmatch(name):
        problem = f"is {name[:_SHOWN]!r}, no job of Cloud Run" if name else "is not set"
        raise _refused(
            f"{CLOUD_RUN_JOB_VARIABLE} {problem}.",
            "Give its full name: projects/my-project/locations/europe-west1/jobs/my-runs.",
        )
    return name


def _refused(problem: str, remedy: str) -> RunRefusedError:
    return RunRefusedError(problem, remedy, exit_code=Exit.CONFIGURATION)
