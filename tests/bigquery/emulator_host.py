"""Runs the emulator in a process of its own; started by the interpreter of .venv-emulator.

Its argument is an open file, to which it writes one line of JSON, its ports, when it serves. It ends
when its standard input does: whoever started it may be killed without a word. What it mends is listed
in README.md.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import os
import sys
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import duckdb
from bqemulator.api.routes import jobs, upload
from bqemulator.catalog.etag import generate_etag
from bqemulator.catalog.models import DatasetMeta
from bqemulator.config import LogLevel, Settings
from bqemulator.domain.errors import AlreadyExistsError
from bqemulator.server import EmulatorServer
from bqemulator.storage.engine import DuckDBEngine
from bqemulator.storage.sql_identifiers import quoted_schema
from bqemulator.types import geography

RESULTS = "_bqemu_anonymous"  # the dataset that the emulator names as destination of every query


def load_extensions_from_packages() -> None:
    """Loads DuckDB's extensions from their packages, so that nothing is downloaded or installed."""

    def load(connection: duckdb.DuckDBPyConnection, *names: str) -> None:
        for name in names:
            package = Path(str(importlib.import_module(f"duckdb_extension_{name}").__file__)).parent
            (file,) = package.glob(f"extensions/*/{name}.duckdb_extension")
            connection.execute(f"LOAD '{file}'")

    pragmas = DuckDBEngine._apply_session_pragmas

    def apply_session_pragmas(self: DuckDBEngine) -> None:
        load(self.connection, "icu", "spatial")
        pragmas(self)

    DuckDBEngine._apply_session_pragmas = apply_session_pragmas
    DuckDBEngine._load_spatial = lambda _self: None
    geography._CONV_CONN = duckdb.connect()
    load(geography._CONV_CONN, "spatial")


def check_job_ids() -> None:
    """Refuses a job id that is taken, and makes the dataset of results, before a query runs."""
    handle = jobs._handle_query_job

    async def handle_query_job(
        project_id: str, job_id: str, *args: Any, ctx: Any, **kwargs: Any
    ) -> Any:
        refuse_taken(project_id, job_id, ctx)
        if ctx.catalog.get_dataset(project_id, RESULTS) is None:
            now = ctx.clock.now()
            ctx.engine.execute(f"CREATE SCHEMA IF NOT EXISTS {quoted_schema(project_id, RESULTS)}")
            ctx.catalog.create_dataset(
                DatasetMeta(
                    project_id=project_id,
                    dataset_id=RESULTS,
                    creation_time=now,
                    last_modified_time=now,
                    etag=generate_etag(project_id, RESULTS, str(now)),
                )
            )
        return await handle(project_id, job_id, *args, ctx=ctx, **kwargs)

    jobs._handle_query_job = handle_query_job


def keep_ids_of_uploads() -> None:
    """Takes any media type in an upload, and gives the load job the id that the client chose."""
    upload._PERMITTED_MEDIA_CONTENT_TYPES = ("",)
    configuration_of, run_load = upload._load_configuration_from_envelope, upload._run_load
    new_job_id = upload._new_job_id
    chosen: ContextVar[str | None] = ContextVar("chosen", default=None)

    def configuration_with_id(envelope: dict[str, Any]) -> dict[str, Any]:
        job_id = envelope.get("jobReference", {}).get("jobId")
        return {**configuration_of(envelope), "_jobId": job_id}

    async def run_load_with_id(
        *, project_id: str, configuration: dict[str, Any], media_path: str, ctx: Any
    ) -> Any:
        configuration = dict(configuration)
        job_id = configuration.pop("_jobId")
        if job_id is not None:
            refuse_taken(project_id, job_id, ctx)
        chosen.set(job_id)
        return await run_load(
            project_id=project_id, configuration=configuration, media_path=media_path, ctx=ctx
        )

    upload._load_configuration_from_envelope = configuration_with_id
    upload._run_load = run_load_with_id
    upload._new_job_id = lambda: chosen.get() or new_job_id()


def refuse_taken(project_id: str, job_id: str, ctx: Any) -> None:
    """Answers 409 as BigQuery does when a job of that id exists."""
    if ctx.catalog.get_job(project_id, job_id) is not None:
        raise AlreadyExistsError(f"Already Exists: Job {project_id}:US.{job_id}")


async def serve() -> None:
    """Serves on free ports until standard input ends."""
    settings = Settings(
        rest_port=0, grpc_port=0, enable_format_extensions=False, log_level=LogLevel.WARNING
    )
    server = EmulatorServer(settings)
    await server.start()
    with os.fdopen(int(sys.argv[1]), "w") as answer:
        answer.write(json.dumps({"rest": server.rest_port, "grpc": server.grpc_port}) + "\n")
    await asyncio.to_thread(sys.stdin.read)
    os._exit(0)


if __name__ == "__main__":
    load_extensions_from_packages()
    check_job_ids()
    keep_ids_of_uploads()
    asyncio.run(serve())
