"""What a Cloud Run job must be like before runs are given to it; imports no Google client."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from segmentstream.runtime.cloud_run.api import JobShape
from segmentstream.runtime.cloud_run.settings import CLOUD_RUN_JOB_VARIABLE
from segmentstream.runtime.exits import Exit, RunRefusedError
from segmentstream.runtime.settings import (
    DATABASE_VARIABLE,
    HOST_VARIABLE,
    PASSWORD_VARIABLE,
    PORT_VARIABLE,
    URL_VARIABLE,
    USER_VARIABLE,
)

_ENGINE_VARIABLE = "SEGMENTSTREAM_WAREHOUSE_ENGINE"
_MODULE = "segmentstream.runtime"
_POSTGRES = (
    URL_VARIABLE, HOST_VARIABLE, PORT_VARIABLE, USER_VARIABLE, PASSWORD_VARIABLE, DATABASE_VARIABLE,
)  # fmt: skip


def check_job(job: str, shape: JobShape, environ: Mapping[str, str]) -> None:
    """Refuses a job whose executions could not carry runs out.

    Raises:
        RunRefusedError: Naming everything that is wrong with it.
    """
    findings = list(_findings(shape, environ))
    if findings:
        told = "\n".join(f"- {each}" for each in findings)
        raise RunRefusedError(
            f"The Cloud Run job {job} cannot carry out runs:\n{told}\n",
            f"Change the job, or name another in {CLOUD_RUN_JOB_VARIABLE}.",
            exit_code=Exit.CONFIGURATION,
        )


def _findings(shape: JobShape, environ: Mapping[str, str]) -> Iterator[str]:
    if shape.task_count != 1:
        yield f"It has {shape.task_count} tasks. A run is one task: set --tasks=1."
    if shape.max_retries:
        yield (
            f"Its tasks are started again {shape.max_retries} times when they fail. The runtime "
            "decides that itself: set --max-retries=0."
        )
    if shape.containers != 1:
        yield f"It has {shape.containers} containers. Give it one; a run has no sidecar."
    command = " ".join(shape.words)
    if command and not command.endswith(_MODULE):
        yield (
            f"Its command ends with {shape.words[-1][:40]!r}. Set it to python -m {_MODULE}, or "
            "leave it to the image."
        )
    for name in _POSTGRES:
        if environ.get(name) and name not in shape.variables:
            yield f"It has no {name}, which this process has. Give it the same Postgres."
    if "duckdb" in {shape.engine, environ.get(_ENGINE_VARIABLE)}:
        yield (
            f"{_ENGINE_VARIABLE} is duckdb, a file that one machine has. Use a warehouse that all "
            "can reach."
        )
