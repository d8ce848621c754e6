"""Every statement that the engine can send, judged by Google's own parser and analyzer.

The engine is put through all it does on the test server. What it sends is judged with the tables
that are there at that moment.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import date
from decimal import Decimal
from typing import Any

import ibis
import ibis.expr.types as ir
import pytest
import sqlglot.expressions as sge
from google.api_core.exceptions import NotFound
from google.cloud import bigquery
from sqlglot import parse

from bigquery.judge import Judge, Verdict
from segmentstream._core.errors import PartitionDatesError
from segmentstream._warehouse.engine import WarehouseEngine
from segmentstream._warehouse.engines.bigquery import sql
from segmentstream._warehouse.engines.bigquery.jobs import Jobs
from segmentstream._warehouse.options import TableOptions
from segmentstream._warehouse.registry import create_engine
from segmentstream._warehouse.settings import WarehouseSettings
from segmentstream._warehouse.tables import TableRef

_STANDARD_NAMES = {"INTEGER": "INT64", "FLOAT": "FLOAT64", "BOOLEAN": "BOOL"}
# What makes no statement of its own.
_PARTS = {"render", "table_options"}
_MAKERS = {
    name: function
    for name, function in inspect.getmembers(sql, inspect.isfunction)
    if function.__module__ == sql.__name__ and not name.startswith("_") and name not in _PARTS
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """Is a text that was sent, and the tables it could see, as the judge wants them."""

    phase: str
    text: str
    tables: Mapping[str, Mapping[str, str]]


@dataclass(slots=True, kw_only=True)
class Sending:
    """Is all that an engine has sent, and which functions of `sql` made it."""

    engine: WarehouseEngine
    texts: list[Sent] = field(default_factory=list)
    makers: set[str] = field(default_factory=set)


@pytest.fixture
def sending(
    settings: WarehouseSettings, client: bigquery.Client, monkeypatch: pytest.MonkeyPatch
) -> Sending:
    """An engine whose statements are kept."""
    kept = Sending(engine=create_engine(settings))
    query = Jobs.query

    def recorded(self: Jobs, text: str, **how: Any) -> Any:
        kept.texts.append(
            Sent(phase=how["phase"], text=text, tables=dict(_tables_in(text, client)))
        )
        return query(self, text, **how)

    monkeypatch.setattr(Jobs, "query", recorded)
    for name, maker in _MAKERS.items():
        monkeypatch.setattr(sql, name, _noting(name, maker, kept.makers))
    return kept


def test_every_statement_is_valid_in_bigquery(sending: Sending, judge: Judge) -> None:
    """Whatever the engine does, Google's analyzer takes each statement, names and types too.

    A function of `sql` that nothing here makes use of fails the test: a new form of statement
    needs its case below.
    """
    _do_everything(sending.engine)
    seen = {sent.text: sent.tables for sent in sending.texts}
    verdicts = {text: judge.check(text, tables) for text, tables in seen.items()}

    refused = {text: verdict.error for text, verdict in verdicts.items() if verdict.error}
    assert not refused, "\n\n".join(f"{error}\n{text}" for text, error in refused.items())
    assert all(verdict.analyzed and verdict.parsed for verdict in verdicts.values())
    assert sending.makers == set(_MAKERS)
    assert _kinds(verdicts) == {
        "begin", "commit", "create_function", "create_table", "delete", "insert", "merge", "query",
        "truncate",
    }  # fmt: skip


def test_a_date_is_a_literal_beside_the_bare_column(sending: Sending) -> None:
    """The delete of a date compares the partition column itself with DATE literals.

    That is what lets BigQuery skip other partitions, satisfies require_partition_filter and makes
    deleting whole days free of charge.
    """
    _do_everything(sending.engine)
    conditions = [
        condition
        for sent in sending.texts
        if "commit" in sent.phase
        for condition in _conditions(sent.text)
    ]

    assert len(conditions) >= 4
    for condition in conditions:
        assert isinstance(condition, sge.Between | sge.In)
        assert isinstance(condition.this, sge.Column)
        assert condition.this.name == "day"
    texts = " ".join(sent.text for sent in sending.texts if "commit" in sent.phase)
    assert "`day` BETWEEN DATE '2024-05-01' AND DATE '2024-05-02'" in texts
    assert "`day` IN (DATE '2024-05-01', DATE '2024-05-03')" in texts


def _do_everything(engine: WarehouseEngine) -> None:
    """Writes and reads in all the ways there are."""
    daily, whole, bare = _table("orders"), _table("order by"), _table("bare")
    first = [date(2024, 5, 1), date(2024, 5, 2)]
    gaps = [date(2024, 5, 1), date(2024, 5, 3)]
    alone = TableOptions(commit="transaction")
    engine.replace_partitions(daily, _rows(1, 2), "day", first)
    engine.replace_partitions(daily, _rows(1, 2), "day", first)
    engine.replace_partitions(daily, _rows(1, 3), "day", gaps)
    engine.replace_partitions(daily, _rows(1), "day", first[:1], options=alone)
    engine.replace_partitions(daily, _rows(1, 3), "day", gaps, options=alone)
    current = engine.read(daily)
    of_first = current.filter(current.day == first[0])
    engine.replace_partitions(daily, of_first, "day", first[:1])
    engine.replace_partitions(daily, of_first, "day", first[:1], options=alone)
    more = of_first.mutate(channel=ibis.literal("web"), share=ibis.literal(0.5), null=ibis.now())
    engine.replace_partitions(daily, more, "day", first[:1])
    engine.replace_partitions(
        daily, more.mutate(amount=_twice(more.amount.cast("float64")).cast("decimal(9, 2)")),
        "day", first[:1],
    )  # fmt: skip
    with pytest.raises(PartitionDatesError):
        engine.replace_partitions(daily, engine.read(daily), "day", first[1:])
    with pytest.raises(PartitionDatesError):
        engine.replace_partitions(
            daily, engine.read(daily).mutate(share=_twice(ibis._.share)), "day", first[1:]
        )
    options = TableOptions(
        description='All `orders`, it\'s "all" of them.\n',
        column_descriptions={"id": "Which 'order'."},
        labels={"team": "shop"},
        cluster_by=("id", "day"),
    )
    engine.replace(whole, _rows(1, 2), options=options)
    engine.replace(whole, _rows(1, 2), options=options)
    engine.replace(whole, engine.read(whole).filter(ibis._.id > 1), options=options)
    renamed = engine.read(whole).rename(total="amount").drop("info")
    engine.replace(whole, renamed, options=TableOptions(column_descriptions={"total": "Euros."}))
    engine.replace(bare, engine.read(whole).select("id"))
    engine.replace(bare, engine.read(whole).select(n=_twice(ibis._.total.cast("float64"))))
    engine.replace(bare, ibis.memtable({"only": ["x"]}))
    engine.read(daily).count().execute()
    engine.read(daily).join(ibis.memtable({"id": [1]}), "id").to_pyarrow()


@ibis.udf.scalar.python  # type: ignore[untyped-decorator]  # Ibis ships no types
def _twice(number: float) -> float:
    return number * 2


def _rows(*days: int) -> ir.Table:
    return ibis.memtable(
        [
            {
                "id": day,
                "day": date(2024, 5, day),
                "amount": Decimal("1.25"),
                "long": Decimal(1),
                "tags": ["a", "b"],
                "info": {"n": 1, "list": [{"x": "y"}]},
                "raw": '{"a": 1}',
                "moment": "2024-05-01T00:00:00",
                "bytes": b"\x00",
            }
            for day in days
        ],
        schema={
            "id": "int64",
            "day": "date",
            "amount": "decimal(12, 2)",
            "long": "decimal(38, 9)",
            "tags": "array<string>",
            "info": "struct<n: int64, list: array<struct<x: string>>>",
            "raw": "json",
            "moment": "string",
            "bytes": "binary",
        },
    ).mutate(
        moment=ibis._.moment.cast("timestamp"), moment_utc=ibis._.moment.cast("timestamp('UTC')")
    )


def _table(name: str) -> TableRef:
    return TableRef(catalog="", namespace="Select", name=name)


def _noting(name: str, maker: Callable[..., Any], makers: set[str]) -> Callable[..., Any]:
    def noting(*arguments: Any, **options: Any) -> Any:
        makers.add(name)
        return maker(*arguments, **options)

    return noting


def _tables_in(text: str, client: bigquery.Client) -> Iterator[tuple[str, dict[str, str]]]:
    for statement in parse(text, read="bigquery"):
        for table in statement.find_all(sge.Table) if statement else ():
            if table.catalog:
                name = f"{table.catalog}.{table.db}.{table.name}"
                try:
                    found = client.get_table(name)
                except NotFound:
                    continue  # It is what the statement makes.
                yield name, {column.name: _type_of(column) for column in found.schema}


def _type_of(column: bigquery.SchemaField) -> str:
    kind = _STANDARD_NAMES.get(column.field_type, column.field_type)
    if kind == "RECORD":
        inner = ", ".join(f"`{each.name}` {_type_of(each)}" for each in column.fields)
        kind = f"STRUCT<{inner}>"
    if column.precision is not None:
        kind += f"({column.precision}, {column.scale or 0})"
    return f"ARRAY<{kind}>" if column.mode == "REPEATED" else kind


def _kinds(verdicts: Mapping[str, Verdict]) -> set[str]:
    return {kind for verdict in verdicts.values() for kind in verdict.parsed}


def _conditions(text: str) -> Iterator[sge.Expression]:
    for statement in parse(text, read="bigquery"):
        if isinstance(statement, sge.Merge):
            for when in statement.args["whens"].expressions:
                if when.args.get("source"):
                    yield when.args["condition"]
        if isinstance(statement, sge.Delete):
            yield statement.args["where"].this
