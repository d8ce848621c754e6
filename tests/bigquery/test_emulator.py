import io
import json
import os
import socket
import subprocess
import sys
import textwrap
import threading
from collections.abc import Mapping
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib import request
from uuid import uuid4

import pyarrow as pa
import pytest
from pyarrow import parquet

from bigquery import emulator as module
from bigquery.emulator import Emulator, EmulatorError, running_emulator

_PROJECT = "/bigquery/v2/projects/p"


class Api:
    """Asks the server, in a dataset of this test's own."""

    def __init__(self, emulator: Emulator) -> None:
        self._port, self.url = emulator.rest, emulator.url
        self.dataset = f"d{uuid4().hex[:8]}"
        self("POST", "/datasets", {"datasetReference": {"datasetId": self.dataset}})

    def __call__(
        self,
        method: str,
        path: str,
        document: Mapping[str, Any] | None = None,
        **headers: str,
    ) -> dict[str, Any]:
        """Answers the JSON of the answer."""
        connection = HTTPConnection("127.0.0.1", self._port, timeout=60)
        connection.request(method, _PROJECT + path, json.dumps(document), headers)
        answer = connection.getresponse().read()
        connection.close()
        return dict(json.loads(answer or "{}"))

    def query(self, sql: str, **configuration: Any) -> dict[str, Any]:
        """Inserts a query job; answers how jobs.get tells it."""
        query = {"query": sql.replace("$", self.dataset), "useLegacySql": False}
        job = {"configuration": {"query": query | configuration, "labels": {"a": "b"}}}
        inserted = self("POST", "/jobs", job)["jobReference"]["jobId"]
        return self("GET", f"/jobs/{inserted}")

    def rows(self, sql: str) -> list[list[Any]]:
        """The rows of a query."""
        query = {"query": sql.replace("$", self.dataset), "useLegacySql": False}
        answer = self("POST", "/queries", query)
        return [[value["v"] for value in row["f"]] for row in answer["rows"]]

    def table(self, name: str) -> dict[str, Any]:
        """What tables.get tells."""
        return self("GET", f"/datasets/{self.dataset}/tables/{name}")


@pytest.fixture
def api(emulator: Emulator) -> Api:
    return Api(emulator)


def test_it_answers_a_query(api: Api) -> None:
    """The server runs a query and answers with its row."""
    assert api.rows("SELECT 1 AS one") == [["1"]]


def test_a_query_that_fails_is_an_error(api: Api) -> None:
    """A failed query is an error of jobs.query and an error result of its job."""
    answer = api("POST", "/queries", {"query": "SELECT ERROR('no luck')", "useLegacySql": False})

    assert (answer["error"]["code"], "no luck" in answer["error"]["message"]) == (400, True)
    assert "no luck" in api.query("SELECT ERROR('no luck')")["status"]["errorResult"]["message"]


def test_a_job_remembers_what_it_was_asked(api: Api) -> None:
    """The configuration and the labels of a job are told afterwards."""
    configuration = api.query("SELECT 1")["configuration"]

    assert (configuration["labels"], configuration["query"]["query"]) == ({"a": "b"}, "SELECT 1")


def test_a_script_that_fails_is_undone(api: Api) -> None:
    """A transaction whose script fails leaves the table as it was, TRUNCATE included."""
    api.query("CREATE TABLE $.t AS SELECT 1 AS id")
    begun = "BEGIN TRANSACTION; TRUNCATE TABLE $.t; INSERT INTO $.t (id) SELECT "

    failed = api.query(f"{begun} CAST(ERROR('no luck') AS INT64); COMMIT TRANSACTION;")

    assert failed["status"]["errorResult"]["reason"] == "invalidQuery"
    assert api.rows("SELECT id FROM $.t") == [["1"]]
    api.query(f"{begun} 2; COMMIT TRANSACTION;")
    assert api.rows("SELECT id FROM $.t") == [["2"]]


@pytest.mark.parametrize(
    ("disposition", "rows", "reason"),
    [
        ("WRITE_TRUNCATE", [["2"]], None),
        ("WRITE_APPEND", [["1"], ["2"]], None),
        ("WRITE_EMPTY", [["1"]], "duplicate"),
    ],
)
def test_a_query_writes_to_its_destination(
    api: Api, disposition: str, rows: list[list[str]], reason: str | None
) -> None:
    """The result of a query is in its destination as the disposition says, whose text is kept."""
    to = {"projectId": "p", "datasetId": api.dataset, "tableId": "t"}
    api.query("CREATE TABLE $.t (id INT64) OPTIONS(description='kept')")
    api.query("SELECT 1 AS id", destinationTable=to)

    job = api.query("SELECT 2 AS id", destinationTable=to, writeDisposition=disposition)

    assert job["status"].get("errorResult", {}).get("reason") == reason
    assert api.rows("SELECT id FROM $.t ORDER BY id") == rows
    assert api.table("t")["description"] == "kept"


def test_a_table_keeps_what_it_is_given(api: Api) -> None:
    """Whatever describes a table, and each of its columns, is told afterwards."""
    given = {
        "schema": {
            "fields": [
                {"name": "day", "type": "DATE", "mode": "REQUIRED", "description": "text"},
                {"name": "n", "type": "NUMERIC", "mode": "NULLABLE", "precision": "9"},
                {"name": "s", "type": "STRING", "mode": "NULLABLE", "policyTags": {"names": ["x"]}},
            ]
        },
        "clustering": {"fields": ["n"]},
        "description": "text",
        "expirationTime": "2000000000000",
        "labels": {"a": "b"},
        "requirePartitionFilter": True,
        "timePartitioning": {"type": "DAY", "field": "day", "expirationMs": "86400000"},
    }
    api("POST", f"/datasets/{api.dataset}/tables", {"tableReference": {"tableId": "t"}} | given)

    assert {name: api.table("t")[name] for name in given} == given


def test_a_patch_changes_what_it_names(api: Api) -> None:
    """A patch adds columns, removes a label, and is refused if the table has changed since."""
    path = f"/datasets/{api.dataset}/tables/t"
    api.query("CREATE TABLE $.t (id INT64) OPTIONS(labels=[('a', 'b'), ('c', 'd')])")
    before = api.table("t")
    fields = [*before["schema"]["fields"], {"name": "new", "type": "DATE"}]
    patch = {"schema": {"fields": fields}, "labels": {"a": None}}

    patched = api("PATCH", path, patch, **{"If-Match": before["etag"]})
    refused = api("PATCH", path, patch, **{"If-Match": before["etag"]})

    assert patched["labels"] == {"c": "d"}
    assert api.rows("SELECT new FROM $.t") == []
    assert (refused["error"]["code"], refused["error"]["errors"][0]["reason"]) == (
        412,
        "conditionNotMet",
    )


def test_sql_describes_tables_too(api: Api) -> None:
    """Clustering, expiration, labels and columns that SQL sets are told of the table."""
    api.query(
        "CREATE TABLE $.t PARTITION BY day CLUSTER BY id"
        " OPTIONS(expiration_timestamp=TIMESTAMP '2033-05-18 03:33:20+00', labels=[('a', 'b')])"
        " AS SELECT DATE '2024-05-01' AS day, 1 AS id"
    )
    api.query(
        "ALTER TABLE $.t ADD COLUMN IF NOT EXISTS new STRING, ADD COLUMN more STRUCT<a ARRAY<INT64>>"
    )

    table = api.table("t")

    assert table["clustering"] == {"fields": ["id"]}
    assert (table["expirationTime"], table["labels"]) == ("2000000000000", {"a": "b"})
    assert [field["name"] for field in table["schema"]["fields"]] == ["day", "id", "new", "more"]


def test_parquet_is_loaded_by_name(api: Api) -> None:
    """The columns of a file find theirs by name, in whatever order the schema has them."""
    file = io.BytesIO()
    parquet.write_table(pa.table({"id": [1], "name": ["one"]}), file)
    types = {"name": "STRING", "id": "INT64"}
    to = {"projectId": "p", "datasetId": api.dataset, "tableId": "t"}
    fields = [{"name": name, "type": kind} for name, kind in types.items()]
    load = {"sourceFormat": "PARQUET", "schema": {"fields": fields}, "destinationTable": to}
    job = json.dumps({"configuration": {"load": load}}).encode()
    parts = [(b"application/json", job), (b"*/*", file.getvalue())]
    content = b"".join(b"--cut\r\ncontent-type: %s\r\n\r\n%s\r\n" % part for part in parts)

    with request.urlopen(
        request.Request(
            f"{api.url}/upload{_PROJECT}/jobs?uploadType=multipart",
            content + b"--cut--",
            {"Content-Type": "multipart/related; boundary=cut"},
        )
    ) as answer:
        assert "errorResult" not in json.load(answer)["status"]

    assert api.rows("SELECT id, name FROM $.t") == [["1", "one"]]


def test_the_server_ends_with_whoever_started_it(tmp_path: Path) -> None:
    """A server whose starter is killed, and could not end it, ends by itself."""
    program = """
        import pathlib, sys, bigquery.emulator
        with bigquery.emulator.running_emulator(pathlib.Path(sys.argv[1])) as emulator:
            print(emulator.rest, flush=True)
            sys.stdin.read()
    """
    with subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(program), str(tmp_path / "output.txt")],
        env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[1])},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as starter:
        assert starter.stdout is not None
        port = int(starter.stdout.readline())
        starter.kill()

    for _ in range(3000):
        try:
            socket.create_connection(("127.0.0.1", port)).close()
        except ConnectionRefusedError:
            return
        threading.Event().wait(0.01)
    pytest.fail("The server still listens after 30 s.")


def test_a_missing_environment_says_how_to_make_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without its environment the server is not skipped: the error says which command makes it."""
    monkeypatch.setattr(module, "_PYTHON", tmp_path / "bin" / "python")

    with (
        pytest.raises(EmulatorError, match="run `make .venv-emulator/ready`"),
        running_emulator(tmp_path / "output.txt"),
    ):
        pass


def test_a_server_that_does_not_start_leaves_its_last_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The output of a server that fails to start is in the error."""
    broken = tmp_path / "broken.py"
    broken.write_text("raise SystemExit('no port is free')")
    monkeypatch.setattr(module, "_HOST", broken)

    with (
        pytest.raises(EmulatorError, match="no port is free"),
        running_emulator(tmp_path / "output.txt"),
    ):
        pass
