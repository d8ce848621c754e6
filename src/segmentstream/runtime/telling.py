"""How the process tells what goes on: lines for a person, or JSON for Cloud Logging.

Imports Dagster for the logger of its runs. JSON has the names that Cloud Logging looks for, see
https://cloud.google.com/logging/docs/structured-logging.
"""

from __future__ import annotations

import json
import logging
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

from dagster import InitLoggerContext, JobDefinition, LoggerDefinition, colored_console_logger

_NAME = "segmentstream.runtime"
_RUNS = "segmentstream.runtime.runs"
_CONSOLE = "console"  # the name that Dagster gives the logger of every job
_log = logging.getLogger(_NAME)


class JsonLines(logging.Formatter):
    """Writes each record as one line of JSON."""

    def format(self, record: logging.LogRecord) -> str:
        """Gives the line."""
        document: dict[str, Any] = {
            "severity": record.levelname,
            "message": record.getMessage(),
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(),
        }
        if record.exc_info:
            document["message"] += "\n" + self.formatException(record.exc_info)
        document |= getattr(record, "fields", {})
        return json.dumps(document, allow_nan=False, default=str)


def start_telling(*, is_terminal: bool) -> None:
    """Tells on standard error from now on; what libraries warn of too."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(message)s") if is_terminal else JsonLines())
    logging.basicConfig(level=logging.WARNING, handlers=[handler], force=True)
    _log.setLevel(logging.INFO)
    logging.captureWarnings(capture=True)


def tell(message: str, *, level: int = logging.INFO, **fields: object) -> None:
    """Tells one thing; the fields are for machines."""
    _log.log(level, "%s", message, extra={"fields": fields})


def tell_fault(message: str) -> None:
    """Tells of an error that nobody expected, with its traceback."""
    _log.exception("%s", message)


def write_summary(summary: Mapping[str, object]) -> None:
    """Writes the outcome on standard output, as one line of JSON."""
    try:
        sys.stdout.write(json.dumps(summary, allow_nan=False) + "\n")
        sys.stdout.flush()
    except BrokenPipeError:
        # The outcome is recorded, and the exit code tells it: whoever read has gone.
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123, SIM115 - until the end
        tell("Nobody reads the summary on standard output.", level=logging.WARNING)


@contextmanager
def only_the_result_on_stdout() -> Iterator[None]:
    """Sends to standard error what code and the processes it starts print meanwhile."""
    sys.stdout.flush()
    kept = os.dup(1)
    python_stdout = sys.stdout
    os.dup2(2, 1)
    sys.stdout = sys.stderr
    try:
        yield
    finally:
        sys.stdout.flush()
        sys.stdout = python_stdout
        os.dup2(kept, 1)
        os.close(kept)


def with_own_logger(job: JobDefinition) -> JobDefinition:
    """Lets runs of a job log like this process, unless the workspace chose loggers itself."""
    return job if has_loggers(job) else job.with_logger_defs({_CONSOLE: _run_logger})


def has_loggers(job: JobDefinition) -> bool:
    """Says whether the workspace chose the loggers of a job, or maps its whole configuration."""
    return dict(job.loggers) != {_CONSOLE: colored_console_logger} or bool(job.config_mapping)


def logging_config(config: Mapping[str, Any]) -> dict[str, Any]:
    """Adds our logger to the configuration of a run: Dagster uses only those that it names."""
    return {"loggers": {_CONSOLE: {"config": {}}}, **config}


def _make_logger(_context: InitLoggerContext) -> logging.Logger:
    told = logging.getLogger(_RUNS)
    told.setLevel(logging.INFO)
    told.filters[:] = [_is_told]
    return told


def _is_told(record: logging.LogRecord) -> bool:
    # Of Dagster's own events, which its instance keeps, only failures are repeated here; that of a
    # run says once more how its steps failed.
    event = getattr(record, "dagster_meta", {}).get("dagster_event")
    if event is None:
        return True
    why = getattr(event.event_specific_data, "failure_reason", None)
    return record.levelno >= logging.ERROR and getattr(why, "value", None) != "STEP_FAILURE"


_run_logger = LoggerDefinition(_make_logger, colored_console_logger.config_schema)
