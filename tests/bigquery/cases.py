"""Writes for tests to break: what each does, and what may be found after it, past proxy and SDK."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from http.client import HTTPConnection
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

import ibis
import ibis.expr.types as ir

from segmentstream._core.errors import SegmentStreamError
from segmentstream._warehouse.engine import DEFAULT_OPTIONS, WarehouseEngine, WriteResult
from segmentstream._warehouse.options import TableOptions
from segmentstream._warehouse.tables import TableRef

type Row = tuple[tuple[str, str], ...]  # the columns that are not NULL, in order of their names
type State = list[Row] | None  # all rows, sorted; None where there is no table

SOURCE = ("shared", "source")
type Write = Callable[[WarehouseEngine, ir.Table, TableRef], WriteResult]

STAGING = "_segmentstream_staging"
_LONGEST_LIFE = timedelta(hours=24, minutes=1)


def may(day: int) -> date:
    """A day of May 2024."""
    return date(2024, 5, day)


def row(**values: object) -> Row:
    """A row as `Server.state` gives it."""
    return tuple(sorted((name, str(value)) for name, value in values.items()))


def old_rows(*days: int) -> list[Row]:
    """What tables hold before the write: three rows a day."""
    return [row(day=may(day), n=10 * day + i) for day in days for i in range(3)]


def new_rows(*days: int, **extra: object) -> list[Row]:
    """What the source holds: two rows a day."""
    return [row(day=may(day), n=100 * day + i, **extra) for day in days for i in range(2)]


class Server:
    """A project on the test server, past the proxy and the SDK."""

    def __init__(self, url: str, project: str) -> None:
        self.project = project
        self._address = urlsplit(url).netloc

    def ask(
        self, method: str, path: str, document: Mapping[str, Any] | None = None
    ) -> tuple[int, dict[str, Any]]:
        """Sends one request; gives the status and the JSON of the answer."""
        body = None if document is None else json.dumps(document)
        address = f"/bigquery/v2/projects/{self.project}{path}"
        with closing(HTTPConnection(self._address, timeout=60)) as connection:
            connection.request(method, address, body, {"Content-Type": "application/json"})
            answer = connection.getresponse()
            content = answer.read()
        return answer.status, json.loads(content or b"{}")

    def sql(self, text: str) -> list[Row]:
        """Runs a statement and gives its rows."""
        status, answer = self.ask("POST", "/queries", {"query": text, "useLegacySql": False})
        assert status == 200, answer
        return _rows_in(answer.get("schema", {}), answer)

    def name(self, table: TableRef) -> str:
        """The quoted name of a table."""
        return f"`{self.project}.{table.namespace}.{table.name}`"

    def state(self, table: TableRef) -> State:
        """What a table holds."""
        path = f"/datasets/{table.namespace}/tables/{table.name}"
        status, found = self.ask("GET", path)
        if status == 404:
            return None
        _, data = self.ask("GET", f"{path}/data")
        return _rows_in(found["schema"], data)

    def fill(self, table: TableRef, rows: Collection[Row], *, day: str | None = None) -> None:
        """Makes a table with rows as someone else would; `day` is what it is partitioned by."""
        self.make_dataset(table.namespace)
        names = {"projectId": self.project, "datasetId": table.namespace, "tableId": table.name}
        fields = [{"name": "day", "type": "DATE"}, {"name": "n", "type": "INT64"}]
        made: dict[str, Any] = {"tableReference": names, "schema": {"fields": fields}}
        if day:
            made["timePartitioning"] = {"type": "DAY", "field": day}
        self._done("POST", f"/datasets/{table.namespace}/tables", made)
        path = f"/datasets/{table.namespace}/tables/{table.name}/insertAll"
        self._done("POST", path, {"rows": [{"json": dict(each)} for each in rows]})

    def insert(self, table: TableRef, rows: Collection[Row]) -> None:
        """Adds rows as someone else would, with a statement."""
        texts = (f"(DATE '{row['day']}', {row['n']})" for row in map(dict, rows))
        self.sql(f"INSERT INTO {self.name(table)} (day, n) VALUES {', '.join(texts)}")

    def make_dataset(self, name: str) -> None:
        """Makes a dataset that is perhaps there."""
        reference = {"projectId": self.project, "datasetId": name}
        self.ask("POST", "/datasets", {"datasetReference": reference})

    def _done(self, method: str, path: str, document: Mapping[str, Any]) -> None:
        status, answer = self.ask(method, path, document)
        assert status == 200, answer

    def staging(self, dataset: str) -> dict[str, datetime | None]:
        """The staging tables of a dataset and when they expire."""
        _, answer = self.ask("GET", f"/datasets/{dataset}/tables?maxResults=1000")
        names = [each["tableReference"]["tableId"] for each in answer.get("tables", [])]
        found: dict[str, datetime | None] = {}
        for name in names:
            if name.startswith(STAGING):
                _, table = self.ask("GET", f"/datasets/{dataset}/tables/{name}")
                moment = table.get("expirationTime")
                found[name] = datetime.fromtimestamp(int(moment) / 1000, UTC) if moment else None
        return found


def _rows_in(schema: Mapping[str, Any], answer: Mapping[str, Any]) -> list[Row]:
    names = [each["name"] for each in schema.get("fields", [])]
    return sorted(
        tuple(
            sorted(
                (name, str(value["v"]))
                for name, value in zip(names, found["f"], strict=True)
                if value["v"] is not None
            )
        )
        for found in answer.get("rows", [])
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """Is one kind of write.

    Attributes:
        name: What tests call it.
        write: Does it, from an engine, the source and the target.
        new: What the table holds afterwards.
        rows: The number of rows written.
        by_date: The same for each date; None for whole tables.
        old: What the table held before; None where there was none.
        day: What the table was partitioned by.
    """

    name: str
    write: Write = field(repr=False)
    new: list[Row] = field(repr=False)
    rows: int
    by_date: Mapping[date, int] | None = None
    old: list[Row] | None = None
    day: str | None = None

    def prepare(self, server: Server) -> TableRef:
        """Names a target in a dataset of its own and makes it as it was before."""
        table = TableRef(catalog=server.project, namespace=f"d{uuid4().hex[:10]}", name="target")
        if self.old is not None:
            server.fill(table, self.old, day=self.day)
        return table


def _dates(*days: int, options: TableOptions = DEFAULT_OPTIONS) -> Write:
    def write(engine: WarehouseEngine, source: ir.Table, table: TableRef) -> WriteResult:
        dates = {may(day) for day in days}
        rows = source.filter(source.day.isin(dates)).select("day", "n")
        return engine.replace_partitions(table, rows, "day", dates, options=options)

    return write


def _whole(engine: WarehouseEngine, source: ir.Table, table: TableRef) -> WriteResult:
    return engine.replace(table, source.select("day", "n"))


def _other_shape(engine: WarehouseEngine, source: ir.Table, table: TableRef) -> WriteResult:
    return engine.replace(table, source.select("n", word=source.n.cast("string")))


def _upload(engine: WarehouseEngine, _source: ir.Table, table: TableRef) -> WriteResult:
    rows = [{"day": may(2), "n": 200 + i} for i in range(2)]
    data = ibis.memtable(rows, schema={"day": "date", "n": "int64"})
    return engine.replace_partitions(table, data, "day", {may(2)})


def _grow(engine: WarehouseEngine, source: ir.Table, table: TableRef) -> WriteResult:
    rows = source.filter(source.day == may(2)).mutate(extra=ibis.literal("x"))
    return engine.replace_partitions(table, rows.select("day", "n", "extra"), "day", {may(2)})


_OLD_AND_NEW = [*old_rows(1, 3, 4), *new_rows(2)]


def _of_one_date(name: str, write: Write, new: list[Row] = _OLD_AND_NEW) -> Operation:
    return Operation(
        name=name,
        write=write,
        new=new,
        rows=2,
        by_date={may(2): 2},
        old=old_rows(1, 2, 3, 4),
        day="day",
    )


_ALL_DAYS = (1, 2, 3, 4)

OPERATIONS: dict[str, Operation] = {
    each.name: each
    for each in (
        Operation(
            name="first write of dates",
            write=_dates(1, 2),
            new=new_rows(1, 2),
            rows=4,
            by_date={may(1): 2, may(2): 2},
        ),
        _of_one_date("replace of one date", _dates(2)),
        Operation(
            name="replace of several dates",
            write=_dates(1, 2, 4),
            new=old_rows(3) + new_rows(1, 2, 4),
            rows=6,
            by_date={may(1): 2, may(2): 2, may(4): 2},
            old=old_rows(*_ALL_DAYS),
            day="day",
        ),
        _of_one_date(
            "replace of a date in a transaction",
            _dates(2, options=TableOptions(commit="transaction")),
        ),
        Operation(name="first write of a table", write=_whole, new=new_rows(*_ALL_DAYS), rows=8),
        Operation(
            name="replace of a table",
            write=_whole,
            new=new_rows(*_ALL_DAYS),
            rows=8,
            old=old_rows(1, 2),
        ),
        Operation(
            name="replace by another shape",
            write=_other_shape,
            new=[row(n=100 * day + i, word=100 * day + i) for day in _ALL_DAYS for i in range(2)],
            rows=8,
            old=old_rows(1, 2),
        ),
        _of_one_date("write of rows in memory", _upload),
        _of_one_date(
            "write that adds a column", _grow, [*old_rows(1, 3, 4), *new_rows(2, extra="x")]
        ),
    )
}


def make_source(server: Server) -> TableRef:
    """Makes the table that the writes read."""
    table = TableRef(catalog=server.project, namespace=SOURCE[0], name=SOURCE[1])
    server.fill(table, new_rows(*_ALL_DAYS))
    return table


@dataclass(slots=True, kw_only=True)
class Ending:
    """Is how a write came back: with a result or with an error."""

    result: WriteResult | None = None
    error: BaseException | None = None

    @property
    def text(self) -> str:
        """The words of the error and of its notes."""
        return " ".join([str(self.error), *getattr(self.error, "__notes__", [])])


def ending_of(write: Callable[[], WriteResult]) -> Ending:
    """Runs a write to its end."""
    try:
        return Ending(result=write())
    except Exception as error:  # noqa: BLE001 - which one it is, is what is tested
        return Ending(error=error)


def violations(
    operation: Operation, server: Server, table: TableRef, ending: Ending, *, may_be_unknown: bool
) -> Iterator[str]:
    """Gives each way in which the ending is not true, or the table is neither old nor new.

    Args:
        operation: What was written.
        server: Where.
        table: The target.
        ending: How the write came back.
        may_be_unknown: Whether BigQuery could not be asked for the outcome; if not, no doubt may
            be told.
    """
    state = server.state(table)
    is_new = state == sorted(operation.new)
    is_old = state == (None if operation.old is None else sorted(operation.old))
    if operation.old is None and state == []:  # it was made, and nothing was written
        is_old = True
    if not is_new and not is_old:
        yield f"the table holds neither the old nor the new rows: {state}"
    if ending.result is not None:
        yield from _untrue(operation, ending.result, is_new, may_be_unknown)
    elif not isinstance(ending.error, SegmentStreamError):
        yield f"no error of ours: {ending.error!r}"
    elif tells_doubt(ending.text):
        if not may_be_unknown:
            yield f"doubt was told where the outcome could be known: {ending.text}"
    elif tells_success(ending.text) != is_new:
        yield f"the error is not true, new={is_new}: {ending.text}"
    soon = datetime.now(UTC) + _LONGEST_LIFE
    for name, expires in server.staging(table.namespace).items():
        if expires is None or expires > soon:
            yield f"the staging table {name} stays: {expires}"


def tells_doubt(text: str) -> bool:
    """Whether an error says that it does not know whether the rows are there."""
    return "may have finished" in text or "may still finish" in text


def tells_success(text: str) -> bool:
    """Whether an error says that the rows are there all the same."""
    return "what it wrote stays" in text or "was written, and" in text


def _untrue(
    operation: Operation, result: WriteResult, is_new: bool, may_be_unknown: bool
) -> Iterator[str]:
    if not is_new:
        yield "a result was given, and the new rows are not there"
    if result.rows != operation.rows and not (may_be_unknown and result.rows is None):
        yield f"{result.rows} rows were told instead of {operation.rows}"
    by_date = None if result.rows_by_date is None else dict(result.rows_by_date)
    if by_date != operation.by_date:
        yield f"rows by date were told as {by_date}"


@contextmanager
def patience(monkeypatch: Any, *, request_seconds: float = 60) -> Iterator[None]:
    """Shortens every pause of the engine; a request lasts as long as is said."""
    package = "segmentstream._warehouse.engines.bigquery"
    with monkeypatch.context() as patch:
        patch.setattr(f"{package}.client._FIRST_PAUSE_SECONDS", 0.01)
        patch.setattr(f"{package}.jobs._FIRST_PAUSE_SECONDS", 0.01)
        patch.setattr(f"{package}.jobs._POLL_SECONDS", 0.01)
        for module in ("jobs", "tables"):
            patch.setattr(f"{package}.{module}.REQUEST_SECONDS", request_seconds)
        yield
