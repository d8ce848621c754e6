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
import re
import sys
from contextvars import ContextVar
from datetime import UTC, datetime
from functools import partial, partialmethod
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

import duckdb
import sqlglot
from bqemulator import server
from bqemulator.api.routes import jobs, tables, upload
from bqemulator.catalog import ddl_sync
from bqemulator.catalog.etag import generate_etag
from bqemulator.catalog.memory_repository import MemoryCatalogRepository
from bqemulator.catalog.models import Clustering, DatasetMeta, TableSchema
from bqemulator.config import LogLevel, Settings
from bqemulator.domain.errors import AlreadyExistsError, DomainError, ValidationError
from bqemulator.jobs import executor
from bqemulator.scripting import interpreter
from bqemulator.storage import sql_identifiers, type_map
from bqemulator.storage.engine import DuckDBEngine
from bqemulator.storage.sql_identifiers import quoted_schema, quoted_table_ref
from bqemulator.types import geography
from starlette.responses import JSONResponse

RESULTS = "_bqemu_anonymous"  # the dataset that the emulator names as destination of every query

DETERMINISTIC = re.compile(r"\b(?:NOT\s+)?DETERMINISTIC\s+(?=LANGUAGE\b)")  # it would not parse
WITHOUT_DML_STATS = "TEST_SERVER_WITHOUT_DML_STATS"  # leaves them out; the benchmarks set it

IF_MATCH: ContextVar[str] = ContextVar("if_match", default="")
STATEMENTS: dict[str, list[dict[str, Any]]] = {}  # by script: its statements as jobs
EXTRAS: dict[tuple[str, str, str], dict[str, Any]] = {}  # by table: what the emulator would drop
REMOVABLE = {
    "clustering": "clustering",
    "description": "description",
    "expirationTime": "expiration_time",
    "friendlyName": "friendly_name",
    "timePartitioning": "time_partitioning",
}


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


def mend_query_jobs() -> None:
    """Refuses ids that are taken, writes to destinations and remembers what a job was asked."""
    handle = jobs._handle_query_job

    async def handle_query_job(
        project_id: str, job_id: str, config: dict[str, Any], *, ctx: Any, **others: Any
    ) -> Any:
        refuse_taken(project_id, job_id, ctx)
        make_dataset_of_results(project_id, ctx)
        query = config["query"]
        # The emulator would only pretend to append.
        asked = {**config, "query": {k: v for k, v in query.items() if k != "writeDisposition"}}
        asked["query"]["query"] = DETERMINISTIC.sub("", query["query"])
        deleted = rows_to_delete(query["query"], project_id, ctx)
        replaced = Replacement.of(query["query"], project_id, ctx)
        job = await handle(project_id, job_id, asked, ctx=ctx, **others)
        if isinstance(job, dict):  # a dry run
            return job
        if job.error_result is None and "destinationTable" in query:
            job = await write_to_destination(job, query, ctx=ctx, **others)
        told = {**config, "query": {**job.configuration.get("query", {}), **query}}
        if deleted is not None and job.error_result is None:
            counts = job.statistics["query"]
            counts["dmlStats"] = {
                "insertedRowCount": str(int(counts["numDmlAffectedRows"]) - deleted),
                "deletedRowCount": str(deleted),
            }
        if replaced is not None and job.error_result is None:
            STATEMENTS[job_id] = replaced.statements(project_id, job_id)
        return job.model_copy(update={"configuration": told})

    jobs._handle_query_job = handle_query_job


def rows_to_delete(sql: str, project_id: str, ctx: Any) -> int | None:
    """Counts the rows that a MERGE without updates will delete; None for another statement."""
    if sql.lstrip()[:5].upper() != "MERGE" or WITHOUT_DML_STATS in os.environ:
        return None
    merge = sqlglot.parse_one(sql, read="bigquery")
    cases = merge.args["whens"].expressions
    deletes = [each for each in cases if each.args.get("source")]
    if len(deletes) != 1 or len(cases) != 2 or merge.args["on"] != sqlglot.exp.false():
        return None
    target = merge.this
    name = quoted_table_ref(target.catalog or project_id, target.db, target.name)
    condition = deletes[0].args.get("condition") or sqlglot.exp.true()
    where = condition.sql(dialect="duckdb", identify=True)
    rows = f'SELECT count(*) FROM {name} AS "{target.alias_or_name}" WHERE {where}'
    return int(ctx.engine.execute(rows).fetchone()[0])


class Replacement:
    """The two statements of a transaction that deletes rows of a table and inserts others."""

    def __init__(self, deletion: Any, target: Any, project_id: str, ctx: Any) -> None:
        self._kind = (
            "TRUNCATE_TABLE" if isinstance(deletion, sqlglot.exp.TruncateTable) else "DELETE"
        )
        self._table = (target.catalog or project_id, target.db, target.name)
        self._ctx = ctx
        self._before = count_rows(self._table, ctx)
        self._deleted = self._before
        if where := deletion.args.get("where"):
            rows = quoted_table_ref(*self._table)
            condition = where.sql(dialect="duckdb", identify=True)
            counted = ctx.engine.execute(f"SELECT count(*) FROM {rows} {condition}").fetchone()
            self._deleted = int(counted[0])

    @classmethod
    def of(cls, sql: str, project_id: str, ctx: Any) -> Replacement | None:
        """Reads a script before it runs; None for another one."""
        if not sql.startswith("BEGIN TRANSACTION") or WITHOUT_DML_STATS in os.environ:
            return None
        match sqlglot.parse(sql, read="bigquery"):
            case [
                _,
                sqlglot.exp.TruncateTable() | sqlglot.exp.Delete() as deletion,
                sqlglot.exp.Insert() as insert,
                _,
            ]:
                target: Any = insert.find(sqlglot.exp.Table)
                key = (target.catalog or project_id, target.db, target.name)
                if ctx.catalog.get_table(*key) is not None:
                    return cls(deletion, target, project_id, ctx)
        return None

    def statements(self, project_id: str, job_id: str) -> list[dict[str, Any]]:
        """The jobs of the statements, once the script has run."""
        inserted = count_rows(self._table, self._ctx) - (self._before - self._deleted)
        counts = {self._kind: (0, self._deleted), "INSERT": (inserted, 0)}
        return [
            {
                "jobReference": {"projectId": project_id, "jobId": f"{job_id}_{kind}"},
                "configuration": {"query": {"query": kind}},
                "status": {"state": "DONE"},
                "statistics": {
                    "parentJobId": job_id,
                    "query": {
                        "statementType": kind,
                        "dmlStats": {"insertedRowCount": str(new), "deletedRowCount": str(gone)},
                    },
                },
            }
            for kind, (new, gone) in counts.items()
        ]


async def write_to_destination(
    job: Any, query: dict[str, Any], *, ctx: Any, caller: Any, now: Any, **_others: Any
) -> Any:
    """Writes the result of a query to its destination; answers the job as it ends."""
    if jobs.classify_statement_type(query["query"]) != "SELECT":
        return job
    to = query["destinationTable"]
    key = (to.get("projectId", job.project_id), to["datasetId"], to["tableId"])
    name = f"`{'.'.join(key)}`"
    table = ctx.catalog.get_table(*key)
    disposition = query.get("writeDisposition", "WRITE_EMPTY")
    layout = ""
    if partitioning := query.get("timePartitioning", {}).get("field"):
        layout += f" PARTITION BY {partitioning}"
    if clustering := query.get("clustering", {}).get("fields"):
        layout += f" CLUSTER BY {', '.join(clustering)}"
    if table is None:
        sql = f"CREATE TABLE {name}{layout} AS {query['query']}"
    elif disposition == "WRITE_TRUNCATE":
        sql = f"CREATE OR REPLACE TABLE {name}{layout} AS {query['query']}"
    else:
        columns = ", ".join(f"`{each['name']}`" for each in jobs.JOB_SCHEMAS[job.job_id])
        sql = f"INSERT INTO {name} ({columns}) {query['query']}"
    try:
        if table is not None and disposition == "WRITE_EMPTY" and count_rows(key, ctx):
            raise AlreadyExistsError(f"Already Exists: Table {key[0]}:{key[1]}.{key[2]}")
        await jobs.execute_query_job(
            job.project_id,
            f"{job.job_id}_write",
            sql,
            query.get("queryParameters"),
            ctx,
            caller=caller,
        )
    except jobs._SQL_EXECUTION_DOMAIN_ERRORS as error:
        told = jobs._domain_error_to_error_result(error)
        return job.model_copy(update={"error_result": told})
    if table is not None and disposition == "WRITE_TRUNCATE":
        written = ctx.catalog.get_table(*key)
        kept = ["description", "friendly_name", "labels", "expiration_time", "creation_time"]
        kept += [] if layout else ["time_partitioning", "clustering"]
        ctx.catalog.update_table(
            written.model_copy(update={each: getattr(table, each) for each in kept})
        )
    return job


def count_rows(table: tuple[str, str, str], ctx: Any) -> int:
    """Counts the rows of a table."""
    counted = ctx.engine.execute(f"SELECT count(*) FROM {quoted_table_ref(*table)}").fetchone()
    return int(counted[0])


def make_dataset_of_results(project_id: str, ctx: Any) -> None:
    """Makes the hidden dataset in which clients expect the results of queries."""
    if ctx.catalog.get_dataset(project_id, RESULTS) is not None:
        return
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


def hide_dataset_of_results() -> None:
    """Leaves datasets whose name starts with an underscore out of lists, as BigQuery does."""
    list_datasets = MemoryCatalogRepository.list_datasets
    MemoryCatalogRepository.list_datasets = lambda self, project_id: tuple(
        each for each in list_datasets(self, project_id) if not each.dataset_id.startswith("_")
    )


def fail_synchronous_queries() -> None:
    """Answers a failed jobs.query with an HTTP error; the emulator answers with no rows."""
    inserting: ContextVar[bool] = ContextVar("inserting", default=False)
    execute, failed_job = jobs._execute_query_or_failed_meta, jobs._failed_job_meta

    async def execute_inserted(**arguments: Any) -> Any:
        inserting.set(True)
        return await execute(**arguments)

    def failed(**arguments: Any) -> Any:
        if arguments["job_type"] == "QUERY" and not inserting.get():
            error = arguments["error_result"]
            status = {"accessDenied": 403, "duplicate": 409, "notFound": 404}
            raise refusal(status.get(error["reason"], 400), error["reason"], error["message"])
        return failed_job(**arguments)

    jobs._execute_query_or_failed_meta = execute_inserted
    jobs._failed_job_meta = failed


def roll_back_truncate() -> None:
    """Makes TRUNCATE TABLE part of a transaction, so that a script that fails undoes it."""
    targets = interpreter._dml_targets

    def dml_targets(sql: str, project_id: str) -> Any:
        sql = re.sub(r"^\s*TRUNCATE\s+TABLE\b", "DELETE FROM", sql, flags=re.IGNORECASE)
        return targets(sql, project_id)

    interpreter._dml_targets = dml_targets


def load_parquet_by_name() -> None:
    """Matches the columns of a Parquet file by name; the emulator goes by position."""
    execute = DuckDBEngine.execute

    def execute_by_name(self: DuckDBEngine, sql: str, parameters: Any = None) -> Any:
        by_name = " BY NAME SELECT * FROM read_parquet(?)"
        return execute(self, sql.replace(" SELECT * FROM read_parquet(?)", by_name), parameters)

    DuckDBEngine.execute = execute_by_name


def keep_results_readable() -> None:
    """Lets the Storage Read API read the result of a query, which is no table of the emulator."""
    fetch_arrow = DuckDBEngine.fetch_arrow
    result = re.compile(rf'"[^"]*__{RESULTS}"\."anon([^"]+)"')

    def fetch(self: DuckDBEngine, sql: str, parameters: Any = None) -> Any:
        if asked := result.search(sql):
            for job_id, table in jobs.JOB_RESULTS.items():
                if job_id.replace("-", "") == asked[1]:
                    self.connection.register("_bqemu_result", table)
            sql = result.sub("_bqemu_result", sql)
        return fetch_arrow(self, sql, parameters)

    DuckDBEngine.fetch_arrow = fetch


def alter_step_by_step() -> None:
    """Runs ALTER TABLE with several actions one by one, since DuckDB takes one at a time."""
    fetch_arrow = DuckDBEngine.fetch_arrow

    def fetch(self: DuckDBEngine, sql: str, parameters: Any = None) -> Any:
        if sql.upper().startswith("ALTER TABLE "):
            statement = sqlglot.parse_one(sql, read="duckdb")
            *others, last = statement.args.get("actions") or [None]
            for action in others:
                statement.set("actions", [action])
                self.execute(statement.sql(dialect="duckdb"))
            if others:
                statement.set("actions", [last])
                sql = statement.sql(dialect="duckdb")
        return fetch_arrow(self, sql, parameters)

    DuckDBEngine.fetch_arrow = fetch


def join_nothing_quickly() -> None:
    """Gives a MERGE on FALSE another condition that never holds.

    DuckDB compares every row with every row for the first, and hashes for the second.
    """

    def rewritten(sql: str) -> str:
        if not sql.startswith("MERGE ") or " ON FALSE WHEN " not in sql:
            return sql
        merge = sqlglot.parse_one(sql, read="duckdb")
        insert = next(merge.find_all(sqlglot.exp.Insert), None)
        column = insert and insert.expression.find(sqlglot.exp.Column)
        if not column:
            return sql
        name = f"{quoted(merge.args['using'].alias)}.{quoted(column.name)}"
        never = (
            f"{quoted(merge.this.alias_or_name)}.rowid = CASE WHEN {name} IS NULL THEN -1 ELSE -2"
        )
        return sql.replace(" ON FALSE WHEN ", f" ON {never} END WHEN ", 1)

    for name in ("execute", "fetch_arrow"):

        def run(self: DuckDBEngine, sql: str, parameters: Any = None, *, of: Any = None) -> Any:
            return of(self, rewritten(sql), parameters)

        setattr(DuckDBEngine, name, partialmethod(run, of=getattr(DuckDBEngine, name)))


def quoted(name: str) -> str:
    """A name as DuckDB's SQL has it."""
    return '"' + name.replace('"', '""') + '"'


def keep_what_tables_are_given() -> None:
    """Keeps what the emulator drops of a table, and minds If-Match."""
    make_app = server.create_app
    server.create_app = lambda context: Edge(make_app(context))
    from_rest, to_rest = tables._rest_to_table_meta, tables._table_to_rest
    tables._rest_to_table_meta = partial(table_from_rest, from_rest)
    tables._table_to_rest = partial(table_to_rest, to_rest)
    for module in (executor, interpreter):
        module.sync_created_table = partial(sync_created_table, module.sync_created_table)


class Edge:
    """Tells a handler which version of a table it is meant for; lists the statements of scripts."""

    def __init__(self, app: Any) -> None:
        self._app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        IF_MATCH.set(dict(scope.get("headers", ())).get(b"if-match", b"").decode())
        asked = dict(parse_qsl(scope.get("query_string", b"").decode()))
        if parent := asked.get("parentJobId"):
            answer = JSONResponse({"kind": "bigquery#jobList", "jobs": STATEMENTS.get(parent, [])})
            await answer(scope, receive, send)
        else:
            await self._app(scope, receive, send)


def table_from_rest(  # noqa: PLR0917  # as the emulator calls it
    from_rest: Any, project: str, dataset: str, body: Any, clock: Any, existing: Any = None
) -> Any:
    """Reads a table from a request, with what the emulator would drop."""
    if existing is not None and IF_MATCH.get() not in {"", "*", existing.etag}:
        raise refusal(412, "conditionNotMet", "Precondition check failed.")
    labels = {**(existing.labels if existing else {}), **(body.get("labels") or {})}
    sent = {name: value for name, value in body.items() if value is not None} | {
        "labels": {name: value for name, value in labels.items() if value is not None}
    }
    table = from_rest(project, dataset, sent, clock, existing)
    update: dict[str, Any] = {"expiration_time": existing and existing.expiration_time}
    for name, attribute in REMOVABLE.items():
        if name in body and body[name] is None:
            update[attribute] = None
    if expires := sent.get("expirationTime"):
        update["expiration_time"] = datetime.fromtimestamp(int(expires) / 1000, UTC)
    extra = EXTRAS.setdefault(key_of(table), {}) if existing else {}
    kept = ("requirePartitionFilter", "schema")
    extra |= {name: sent[name] for name in kept if name in sent}
    EXTRAS[key_of(table)] = extra
    return table.model_copy(update=update)


def table_to_rest(to_rest: Any, table: Any) -> dict[str, Any]:
    """Tells of a table, with what the emulator would leave out."""
    extra = EXTRAS.get(key_of(table), {})
    told: dict[str, Any] = to_rest(table)
    if "schema" in told:
        fields = extra.get("schema", {}).get("fields", [])
        told["schema"]["fields"] = with_extras(told["schema"]["fields"], fields)
    if table.expiration_time is not None:
        told["expirationTime"] = str(int(table.expiration_time.timestamp() * 1000))
    if "requirePartitionFilter" in extra:
        told["requirePartitionFilter"] = extra["requirePartitionFilter"]
    if table.view_query:
        told["view"] = {"query": table.view_query, "useLegacySql": False}
    return told


def with_extras(fields: list[Any], sent: list[Any]) -> list[Any]:
    """Adds to each field what was sent with it, such as policy tags or a precision."""
    by_name = {each["name"].lower(): each for each in sent}
    merged = []
    for field in fields:
        extra = by_name.get(field["name"].lower(), {})
        inner = with_extras(field.get("fields", []), extra.get("fields", []))
        merged.append({**extra, **field} | ({"fields": inner} if inner else {}))
    return merged


def sync_created_table(sync: Any, sql: str, project_id: str, ctx: Any) -> None:
    """Registers what a statement did to a table, with what the emulator overlooks."""
    sync(sql, project_id, ctx)
    try:
        statement = sqlglot.parse_one(sql, read="bigquery")
    except sqlglot.errors.SqlglotError:
        return
    if not isinstance(statement, sqlglot.exp.Create | sqlglot.exp.Alter):
        return
    target = statement.find(sqlglot.exp.Table)
    key = ddl_sync._split_target(target, project_id)
    table = ctx.catalog.get_table(*key)
    if table is None or table.table_type != "TABLE":
        return
    if isinstance(statement, sqlglot.exp.Alter):
        known = {each.name: each for each in table.schema_.fields}
        found = ddl_sync._introspect_schema(*key, ctx).fields
        schema = TableSchema(fields=tuple(known.get(each.name, each) for each in found))
        ctx.catalog.update_table(table.model_copy(update={"schema_": schema}))
    elif not statement.args.get("exists"):
        EXTRAS[key] = {"schema": {"fields": precisions_of(statement)}}
        update = clauses_of(statement, ctx) | {"schema_": with_json(table, ctx)}
        ctx.catalog.update_table(table.model_copy(update=update))


def with_json(table: Any, ctx: Any) -> TableSchema:
    """The columns of a table made by SQL; the emulator takes JSON for text."""
    rows = ctx.engine.execute(f"DESCRIBE {quoted_table_ref(*key_of(table))}").fetchall()
    json_columns = {name for name, kind, *_ in rows if kind == "JSON"}
    return TableSchema(
        fields=tuple(
            each.model_copy(update={"type": "JSON"}) if each.name in json_columns else each
            for each in table.schema_.fields
        )
    )


def precisions_of(statement: Any) -> list[dict[str, Any]]:
    """The columns that are declared as decimals of a certain length."""
    fields = []
    for column in statement.find_all(sqlglot.exp.ColumnDef):
        lengths = [int(each.name) for each in column.kind.expressions if each.name.isdigit()]
        if lengths and column.kind.is_type("decimal", "bigdecimal"):
            told = dict(zip(("precision", "scale"), map(str, lengths), strict=False))
            fields.append({"name": column.name, **told})
    return fields


def hold_long_decimals() -> None:
    """Holds NUMERIC and BIGNUMERIC in the longest decimals that DuckDB has."""
    lengths = {"NUMERIC": "DECIMAL(38, 9)", "BIGNUMERIC": "DECIMAL(38, 18)"}
    type_map._BQ_TO_DUCKDB.update(lengths)
    write = sqlglot.dialects.DuckDB.Generator.datatype_sql

    def datatype_sql(self: Any, kind: Any) -> str:
        if not kind.expressions:
            if kind.is_type("decimal"):
                return lengths["NUMERIC"]
            if kind.is_type("bigdecimal"):
                return lengths["BIGNUMERIC"]
        return str(write(self, kind))

    sqlglot.dialects.DuckDB.Generator.datatype_sql = datatype_sql


def allow_letters_of_all_languages() -> None:
    """Takes the names of tables that BigQuery takes."""

    def validate(value: str, kind: str) -> str:
        if re.fullmatch(r"[\w\- :.]+" if kind == "project" else r"[\w\- ]+", value) is None:
            raise ValidationError(f"Invalid {kind} id for SQL: {value!r}")
        return value

    sql_identifiers._validate_sql_id = validate


def clauses_of(statement: Any, ctx: Any) -> dict[str, Any]:
    """The clauses of CREATE TABLE that the emulator overlooks."""
    update: dict[str, Any] = {}
    properties = statement.args.get("properties")
    for each in properties.expressions if properties else []:
        if isinstance(each, sqlglot.exp.ClusterProperty):
            fields = tuple(column.name for column in each.expressions)
            update["clustering"] = Clustering(fields=fields)
        elif each.name == "expiration_timestamp":
            value = each.args["value"].sql(dialect="duckdb")
            asked = ctx.engine.execute(f"SELECT CAST({value} AS TIMESTAMPTZ)")
            update["expiration_time"] = asked.fetchone()[0]
        elif each.name == "labels":
            pairs = [pair.expressions for pair in each.args["value"].find_all(sqlglot.exp.Tuple)]
            update["labels"] = {name.name: value.name for name, value in pairs}
    return update


def add_columns_that_are_patched_in() -> None:
    """Adds a column that tables.patch brings to the data, not only to the description."""
    update_table = MemoryCatalogRepository.update_table

    def update(self: Any, table: Any) -> Any:
        known = self.get_table(*key_of(table))
        names = {each.name for each in known.schema_.fields} if known else set()
        if table.table_type == "TABLE":
            fresh = [each for each in table.schema_.fields if each.name not in names]
            sent = [tables._field_to_rest(each) for each in fresh]
            for name, kind in tables.bq_schema_to_duckdb_columns(sent):
                place = quoted_table_ref(*key_of(table))
                self._engine.execute(
                    f'ALTER TABLE {place} ADD COLUMN IF NOT EXISTS "{name}" {kind}'
                )
        return update_table(self, table)

    MemoryCatalogRepository.update_table = update


def key_of(table: Any) -> tuple[str, str, str]:
    """The project, dataset and name of a table."""
    return table.project_id, table.dataset_id, table.table_id


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
        raise refusal(409, "duplicate", f"Already Exists: Job {project_id}:US.{job_id}")


def refusal(status: int, reason: str, message: str) -> Exception:
    """An error that the emulator answers with, as HTTP status and in Google's JSON."""
    kind = type("Refusal", (DomainError,), {"http_status": status, "bq_reason": reason})
    error: Exception = kind(message)
    return error


async def serve() -> None:
    """Serves on free ports until standard input ends."""
    settings = Settings(
        rest_port=0, grpc_port=0, enable_format_extensions=False, log_level=LogLevel.WARNING
    )
    emulator = server.EmulatorServer(settings)
    await emulator.start()
    with os.fdopen(int(sys.argv[1]), "w") as answer:
        answer.write(json.dumps({"rest": emulator.rest_port, "grpc": emulator.grpc_port}) + "\n")
    await asyncio.to_thread(sys.stdin.read)
    os._exit(0)


if __name__ == "__main__":
    load_extensions_from_packages()
    hold_long_decimals()
    allow_letters_of_all_languages()
    mend_query_jobs()
    hide_dataset_of_results()
    fail_synchronous_queries()
    roll_back_truncate()
    load_parquet_by_name()
    keep_results_readable()
    alter_step_by_step()
    join_nothing_quickly()
    keep_what_tables_are_given()
    add_columns_that_are_patched_in()
    keep_ids_of_uploads()
    asyncio.run(serve())
