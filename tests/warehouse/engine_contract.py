"""What every warehouse engine must do: one suite, run once an engine.

A test module of an engine subclasses `EngineContract` and gives the fixtures `engine`, an engine
on an empty warehouse, and `run_sql`, which runs one statement past the SDK; `{table}` in it stands
for the quoted full name of a table. `make_engine` gives one more empty warehouse at each call.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import ibis
import ibis.expr.types as ir
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from segmentstream._core.errors import (
    ColumnMismatchError,
    PartitionDatesError,
    WarehouseConfigurationError,
    WarehouseMaterializationError,
    WarehouseReadError,
)
from segmentstream._warehouse.engine import WarehouseEngine, WriteResult
from segmentstream._warehouse.tables import TableRef

type RunSql = Callable[[str, TableRef], None]
type Rows = list[dict[str, Any]]

ORDERS = TableRef(catalog="ignored by DuckDB", namespace="shop", name="orders")
SCHEMA = {"order_id": "int64", "day": "date", "amount": "decimal(12, 2)"}


def may(day: int) -> date:
    """A day of May 2024."""
    return date(2024, 5, day)


def orders(*rows: tuple[int, int | None, str]) -> ir.Table:
    """Rows of orders in memory: id, day of May (or None), amount."""
    return ibis.memtable(
        [
            {"order_id": order_id, "day": day and may(day), "amount": Decimal(amount)}
            for order_id, day, amount in rows
        ],
        schema=SCHEMA,
    )


def rows_of(engine: WarehouseEngine, table: TableRef = ORDERS) -> Rows:
    """All rows of a table, ordered, as the engine reads them."""
    found = engine.read(table)
    rows: Rows = found.to_pyarrow().to_pylist()
    return sorted(rows, key=lambda row: [str(value) for value in row.values()])


def ids_by_day(engine: WarehouseEngine, table: TableRef = ORDERS) -> dict[date, list[int]]:
    """The order ids of each day that has any."""
    days: dict[date, list[int]] = {}
    for row in rows_of(engine, table):
        days.setdefault(row["day"], []).append(row["order_id"])
    return {day: sorted(ids) for day, ids in days.items()}


class EngineContract:
    """The suite; see the module.

    Attributes:
        names_refused: The names among those tried that the engine cannot hold.
        partitioned_by_day: What makes a table that a person creates one of daily partitions.
        model_examples: How many sequences of writes are tried.
    """

    names_refused: Collection[tuple[str, str]] = ()
    partitioned_by_day = ""
    model_examples = 25

    # Whole tables

    def test_a_table_that_does_not_exist_is_described_as_none(
        self, engine: WarehouseEngine
    ) -> None:
        """Absence is an answer, not an error, and reading it says what to do."""
        assert engine.describe(ORDERS) is None
        with pytest.raises(WarehouseReadError, match="does not exist.*Materialize"):
            engine.read(ORDERS)

    def test_replacing_creates_the_namespace_and_the_table(self, engine: WarehouseEngine) -> None:
        """The first write needs nothing to be there and tells what it did."""
        result = engine.replace(ORDERS, orders((1, 1, "9.90"), (2, None, "0.10")))
        assert (result.rows, result.rows_by_date) == (2, None)
        assert rows_of(engine) == [
            {"order_id": 1, "day": may(1), "amount": Decimal("9.90")},
            {"order_id": 2, "day": None, "amount": Decimal("0.10")},
        ]

    def test_replacing_leaves_nothing_of_the_old_table(self, engine: WarehouseEngine) -> None:
        """An unpartitioned table takes the new rows and the new shape whole."""
        engine.replace(ORDERS, orders((1, 1, "1"), (2, 2, "2")))
        engine.replace(ORDERS, ibis.memtable({"name": ["a"], "order_id": ["x"]}))
        info = engine.describe(ORDERS)
        assert info is not None
        assert dict(info.schema) == dict(ibis.schema({"name": "string", "order_id": "string"}))
        assert rows_of(engine) == [{"name": "a", "order_id": "x"}]

    def test_a_table_can_be_replaced_from_itself(self, engine: WarehouseEngine) -> None:
        """The result is complete before the old rows go."""
        engine.replace(ORDERS, orders((1, 1, "1"), (2, 2, "-2"), (3, 3, "3")))
        current = engine.read(ORDERS)
        engine.replace(ORDERS, current.filter(current.amount > 0))
        assert [row["order_id"] for row in rows_of(engine)] == [1, 3]

    def test_replacing_by_an_empty_result_keeps_the_types(self, engine: WarehouseEngine) -> None:
        """No rows is a result like any other: the table is empty and typed."""
        engine.replace(ORDERS, orders((1, 1, "1")))
        result = engine.replace(ORDERS, orders())
        info = engine.describe(ORDERS)
        assert info is not None
        assert (result.rows, rows_of(engine)) == (0, [])
        assert dict(info.schema) == dict(ibis.schema(SCHEMA))

    def test_a_failed_replace_leaves_the_old_table(self, engine: WarehouseEngine) -> None:
        """An expression that fails while it is computed changes nothing."""
        engine.replace(ORDERS, orders((1, 1, "1")))
        broken = ibis.memtable({"word": ["1", "two"]}).mutate(number=ibis._.word.cast("int64"))
        with pytest.raises(WarehouseMaterializationError):
            engine.replace(ORDERS, broken)
        assert ids_by_day(engine) == {may(1): [1]}

    # Dates

    def test_replacing_dates_changes_exactly_those_dates(self, engine: WarehouseEngine) -> None:
        """The other days keep their rows, whatever the result holds for the selected ones."""
        engine.replace_partitions(
            ORDERS, orders((1, 1, "1"), (2, 2, "2"), (3, 3, "3")), "day", {may(1), may(2), may(3)}
        )
        result = engine.replace_partitions(
            ORDERS, orders((20, 2, "2"), (21, 2, "2")), "day", {may(2)}
        )
        assert dict(result.rows_by_date or {}) == {may(2): 2}
        assert ids_by_day(engine) == {may(1): [1], may(2): [20, 21], may(3): [3]}

    def test_writing_the_same_dates_again_doubles_nothing(self, engine: WarehouseEngine) -> None:
        """A date holds what its last write gave it."""
        for _ in range(3):
            engine.replace_partitions(ORDERS, orders((1, 2, "1"), (2, 2, "2")), "day", [may(2)])
        assert ids_by_day(engine) == {may(2): [1, 2]}

    def test_dates_with_gaps_leave_the_gaps_alone(self, engine: WarehouseEngine) -> None:
        """A set of dates is not a range: days between two of them are not touched."""
        every = [may(day) for day in range(1, 8)]
        engine.replace_partitions(
            ORDERS, orders(*((day.day, day.day, "1") for day in every)), "day", every
        )
        result = engine.replace_partitions(
            ORDERS, orders((20, 2, "1"), (70, 7, "1")), "day", {may(2), may(4), may(7)}
        )
        assert dict(result.rows_by_date or {}) == {may(2): 1, may(4): 0, may(7): 1}
        assert ids_by_day(engine) == {
            may(1): [1], may(2): [20], may(3): [3], may(5): [5], may(6): [6], may(7): [70],
        }  # fmt: skip

    def test_many_dates_are_one_write(self, engine: WarehouseEngine) -> None:
        """Years of days, with gaps, are replaced by one call."""
        start = date(2020, 1, 1)
        days = [start + timedelta(days=2 * step) for step in range(1000)]
        data = ibis.memtable({"order_id": range(1000), "day": days})
        result = engine.replace_partitions(ORDERS, data, "day", days)
        assert result.rows == 1000
        assert set((result.rows_by_date or {}).values()) == {1}
        engine.replace_partitions(ORDERS, data.filter(data.order_id < 0), "day", days[1:])
        assert list(ids_by_day(engine)) == [start]

    def test_an_empty_result_empties_its_dates(self, engine: WarehouseEngine) -> None:
        """No rows for a day makes the day empty; on a new table it fixes the types."""
        result = engine.replace_partitions(ORDERS, orders(), "day", [may(2)])
        info = engine.describe(ORDERS)
        assert info is not None
        assert (result.rows, dict(info.schema)) == (0, dict(ibis.schema(SCHEMA)))
        engine.replace_partitions(ORDERS, orders((1, 1, "1")), "day", [may(1)])
        engine.replace_partitions(ORDERS, orders((2, 2, "2")), "day", [may(2)])
        engine.replace_partitions(ORDERS, orders(), "day", [may(2)])
        assert ids_by_day(engine) == {may(1): [1]}

    def test_a_write_without_dates_is_refused(self, engine: WarehouseEngine) -> None:
        """Nothing selected is a mistake of the caller, never a write of nothing."""
        with pytest.raises(WarehouseMaterializationError, match="no dates"):
            engine.replace_partitions(ORDERS, orders((1, 1, "1")), "day", [])

    def test_a_day_can_be_computed_from_its_own_table(self, engine: WarehouseEngine) -> None:
        """A result that reads the day it replaces is complete before the day goes."""
        engine.replace_partitions(ORDERS, orders((1, 1, "1"), (2, 2, "2")), "day", [may(1), may(2)])
        current = engine.read(ORDERS)
        again = current.filter(current.day == may(2)).mutate(order_id=current.order_id + 10)
        engine.replace_partitions(ORDERS, again, "day", [may(2)])
        before = engine.read(ORDERS)
        shifted = before.filter(before.day == may(2)).mutate(
            day=ibis.literal(may(3)), order_id=before.order_id + 1
        )
        engine.replace_partitions(ORDERS, shifted, "day", [may(3)])
        assert ids_by_day(engine) == {may(1): [1], may(2): [12], may(3): [13]}

    @pytest.mark.parametrize("exists", [False, True], ids=["first write", "later write"])
    def test_rows_of_other_dates_are_refused(self, engine: WarehouseEngine, exists: bool) -> None:
        """Rows that the run does not own change nothing; the message counts them by date."""
        if exists:
            engine.replace_partitions(ORDERS, orders((9, 2, "9")), "day", [may(2)])
        stray = orders((1, 1, "1"), (2, 2, "2"), (3, 3, "3"), (4, 3, "4"), (5, None, "5"))
        with pytest.raises(PartitionDatesError) as refused:
            engine.replace_partitions(ORDERS, stray, "day", [may(2)])
        error = refused.value
        assert (error.column, error.stray_rows, error.null_rows) == ("day", 3, 1)
        assert error.stray_dates == {may(1): 1, may(3): 2}
        assert "2024-05-03 (2 rows)" in str(error)
        if exists:
            assert ids_by_day(engine) == {may(2): [9]}
        else:
            assert engine.describe(ORDERS) is None

    def test_only_five_stray_dates_are_told(self, engine: WarehouseEngine) -> None:
        """A result of all days does not flood the message."""
        with pytest.raises(PartitionDatesError, match="and 3 more dates") as refused:
            engine.replace_partitions(
                ORDERS, orders(*((day, day, "1") for day in range(1, 10))), "day", [may(9)]
            )
        assert list(refused.value.stray_dates) == [may(day) for day in range(1, 6)]
        assert refused.value.stray_rows == 8

    def test_a_failed_write_of_a_day_leaves_the_day(self, engine: WarehouseEngine) -> None:
        """An expression that fails while it is computed changes nothing, on a new table too."""
        broken = orders((1, 2, "1")).mutate(amount=ibis.literal("x").cast("decimal(12, 2)"))
        with pytest.raises(WarehouseMaterializationError):
            engine.replace_partitions(ORDERS, broken, "day", [may(2)])
        assert engine.describe(ORDERS) is None
        engine.replace_partitions(ORDERS, orders((7, 2, "1")), "day", [may(2)])
        with pytest.raises(WarehouseMaterializationError):
            engine.replace_partitions(ORDERS, broken, "day", [may(2)])
        assert ids_by_day(engine) == {may(2): [7]}

    @pytest.mark.parametrize("dtype", ["timestamp", "string", "timestamp('UTC')"])
    def test_a_partition_column_of_another_type_is_refused(
        self, engine: WarehouseEngine, dtype: str
    ) -> None:
        """The partition column is a DATE; anything else is named with its type."""
        moment = ibis.memtable({"day": ["2024-05-02"]}).mutate(day=ibis._.day.cast(dtype))
        with pytest.raises(WarehouseMaterializationError, match="'day' of the result is of type"):
            engine.replace_partitions(ORDERS, moment, "day", [may(2)])

    def test_a_missing_partition_column_is_refused(self, engine: WarehouseEngine) -> None:
        """The message lists the columns there are."""
        with pytest.raises(WarehouseMaterializationError, match="'date'.*order_id, day, amount"):
            engine.replace_partitions(ORDERS, orders((1, 2, "1")), "date", [may(2)])

    def test_a_daily_table_is_never_replaced_whole(self, engine: WarehouseEngine) -> None:
        """An asset that lost its partitions does not take the history with it."""
        engine.replace_partitions(ORDERS, orders((1, 1, "1")), "day", [may(1)])
        with pytest.raises(WarehouseMaterializationError, match="'day'.*remove every day"):
            engine.replace(ORDERS, orders((2, 2, "2")))
        assert ids_by_day(engine) == {may(1): [1]}

    def test_another_partition_column_is_refused(self, engine: WarehouseEngine) -> None:
        """A table that is replaced by one date is not suddenly replaced by another."""
        both = orders((1, 1, "1")).mutate(paid_on=ibis.literal(may(9)))
        engine.replace_partitions(ORDERS, both, "day", [may(1)])
        with pytest.raises(WarehouseMaterializationError, match="'day'.*'paid_on'"):
            engine.replace_partitions(ORDERS, both, "paid_on", [may(9)])
        assert ids_by_day(engine) == {may(1): [1]}

    # Columns

    def test_columns_are_matched_by_name(self, engine: WarehouseEngine) -> None:
        """Another order of the columns changes nothing about where values land."""
        engine.replace_partitions(ORDERS, orders((1, 1, "1.50")), "day", [may(1)])
        turned = orders((2, 2, "2.50")).select("amount", "day", "order_id")
        engine.replace_partitions(ORDERS, turned, "day", [may(2)])
        assert rows_of(engine)[1] == {"order_id": 2, "day": may(2), "amount": Decimal("2.50")}

    def test_column_names_ignore_case_and_keep_the_tables_spelling(
        self, engine: WarehouseEngine
    ) -> None:
        """Upper and lower case do not make another column."""
        engine.replace_partitions(ORDERS, orders((1, 1, "1")), "day", [may(1)])
        shouted = orders((2, 2, "2")).rename("ALL_CAPS")
        engine.replace_partitions(ORDERS, shouted, "DAY", [may(2)])
        assert list(rows_of(engine)[0]) == ["order_id", "day", "amount"]
        assert ids_by_day(engine) == {may(1): [1], may(2): [2]}

    def test_two_columns_that_differ_in_case_are_refused(self, engine: WarehouseEngine) -> None:
        """What a warehouse would take for one column is named before anything is opened."""
        twice = orders((1, 1, "1")).mutate(AMOUNT=ibis.literal(1))
        with pytest.raises(ColumnMismatchError, match="'amount' and 'AMOUNT'"):
            engine.replace(ORDERS, twice)

    def test_a_new_column_is_added_and_older_days_read_null(self, engine: WarehouseEngine) -> None:
        """A daily table grows at the end, and says so."""
        engine.replace_partitions(ORDERS, orders((1, 1, "1")), "day", [may(1)])
        grown = orders((2, 2, "2")).mutate(channel=ibis.literal("web"), rank=ibis.literal(1))
        result = engine.replace_partitions(ORDERS, grown, "day", [may(2)])
        assert result.added_columns == ("channel", "rank")
        assert [(row["channel"], row["rank"]) for row in rows_of(engine)] == [
            (None, None),
            ("web", 1),
        ]
        assert list(rows_of(engine)[0]) == ["order_id", "day", "amount", "channel", "rank"]

    def test_a_failed_write_adds_no_column(self, engine: WarehouseEngine) -> None:
        """Growing the table belongs to the write: both happen or neither."""
        engine.replace_partitions(ORDERS, orders((1, 1, "1")), "day", [may(1)])
        grown = orders((2, 3, "2")).mutate(channel=ibis.literal("web"))
        with pytest.raises(PartitionDatesError):
            engine.replace_partitions(ORDERS, grown, "day", [may(2)])
        assert list(rows_of(engine)[0]) == ["order_id", "day", "amount"]

    def test_a_missing_column_is_refused_and_null_keeps_it(self, engine: WarehouseEngine) -> None:
        """A renamed column is named from both sides; NULL is how one is given up."""
        engine.replace_partitions(ORDERS, orders((1, 1, "1")), "day", [may(1)])
        renamed = orders((2, 2, "2")).rename(total="amount")
        with pytest.raises(ColumnMismatchError, match="lacks.*amount.*total") as refused:
            engine.replace_partitions(ORDERS, renamed, "day", [may(2)])
        assert (refused.value.missing, refused.value.extra) == (("amount",), ("total",))
        engine.replace_partitions(
            ORDERS, orders((2, 2, "2")).mutate(amount=ibis.null()), "day", [may(2)]
        )
        assert [row["amount"] for row in rows_of(engine)] == [Decimal(1), None]

    @pytest.mark.parametrize(
        ("column", "offered"),
        [
            ("order_id", "float64"),
            ("order_id", "string"),
            ("order_id", "decimal(20, 0)"),
            ("amount", "float64"),
            ("amount", "decimal(12, 3)"),
            ("amount", "int64"),
        ],
    )
    def test_a_type_that_could_lose_values_is_refused(
        self, engine: WarehouseEngine, column: str, offered: str
    ) -> None:
        """Column, stored type and offered type are named, and nothing changes."""
        engine.replace_partitions(ORDERS, orders((1, 1, "1")), "day", [may(1)])
        retyped = orders((2, 2, "2")).mutate(**{column: ibis._[column].cast(offered)})
        with pytest.raises(ColumnMismatchError) as refused:
            engine.replace_partitions(ORDERS, retyped, "day", [may(2)])
        assert list(refused.value.lossy) == [column]
        assert str(ibis.dtype(offered)) in str(refused.value)
        assert ids_by_day(engine) == {may(1): [1]}

    @pytest.mark.parametrize(
        ("column", "offered"),
        [("order_id", "int8"), ("amount", "decimal(5, 1)"), ("amount", "int32")],
    )
    def test_a_narrower_type_is_stored_as_the_table_has_it(
        self, engine: WarehouseEngine, column: str, offered: str
    ) -> None:
        """A type whose every value fits is converted to the stored one."""
        engine.replace_partitions(ORDERS, orders((1, 1, "1")), "day", [may(1)])
        retyped = orders((2, 2, "2")).mutate(**{column: ibis._[column].cast(offered)})
        engine.replace_partitions(ORDERS, retyped, "day", [may(2)])
        info = engine.describe(ORDERS)
        assert info is not None
        assert dict(info.schema) == dict(ibis.schema(SCHEMA))
        assert rows_of(engine)[1] == {"order_id": 2, "day": may(2), "amount": Decimal(2)}

    def test_a_literal_of_the_first_day_does_not_narrow_the_column(
        self, engine: WarehouseEngine
    ) -> None:
        """Integers are stored 64 bits wide and floats double, whatever the first result used."""
        first = orders((1, 1, "1")).mutate(
            n=ibis.literal(1), share=ibis.literal(0.5).cast("float32")
        )
        engine.replace_partitions(ORDERS, first, "day", [may(1)])
        second = orders((2, 2, "1")).mutate(n=ibis.literal(2**40), share=ibis.literal(0.25))
        engine.replace_partitions(ORDERS, second, "day", [may(2)])
        assert [(row["n"], row["share"]) for row in rows_of(engine)] == [(1, 0.5), (2**40, 0.25)]

    def test_the_sum_of_integers_is_an_integer(self, engine: WarehouseEngine) -> None:
        """A column has the type that Ibis tells, however wide the engine computes."""
        table = orders((1, 1, "1"), (2, 1, "1")).group_by("day").agg(total=ibis._.order_id.sum())
        engine.replace(ORDERS, table)
        info = engine.describe(ORDERS)
        assert info is not None
        assert info.schema["total"] == ibis.dtype("int64")

    def test_columns_without_a_type_are_refused_by_name(self, engine: WarehouseEngine) -> None:
        """A column of nothing but NULL has no type until a table gives it one."""
        untyped = orders((1, 1, "1")).mutate(coupon=ibis.null())
        writes: list[Callable[[], WriteResult]] = [
            lambda: engine.replace(ORDERS, untyped),
            lambda: engine.replace_partitions(ORDERS, untyped, "day", [may(1)]),
        ]
        for write in writes:
            with pytest.raises(ColumnMismatchError, match="'coupon'") as refused:
                write()
            assert refused.value.untyped == ("coupon",)
        assert engine.describe(ORDERS) is None

    @pytest.mark.parametrize(
        ("dtype", "values"),
        [
            ("boolean", [True, False, None]),
            ("int64", [-(2**63), 2**63 - 1, None]),
            ("float64", [0.1, -1e308, None]),
            ("decimal(38, 9)", [Decimal("12345678901234567890.123456789"), None]),
            ("string", ["", "naïve ' \" ` \\ \n", None]),
            ("binary", [b"\x00\xff", b"", None]),
            ("date", [date(1, 1, 1), date(9999, 12, 31), None]),
            ("timestamp", [datetime(2024, 3, 31, 2, 30, 0, 1), None]),  # noqa: DTZ001
            ("timestamp('UTC')", [datetime(2024, 3, 31, 2, 30, 0, 1, tzinfo=UTC), None]),
            ("array<int64>", [[1, 2], []]),
            ("struct<a: int64, b: string>", [{"a": 1, "b": "x"}]),
        ],
    )
    def test_values_survive_the_warehouse(
        self, engine: WarehouseEngine, dtype: str, values: list[Any]
    ) -> None:
        """What goes in comes out, at the edges of each type too."""
        schema = {"n": "int64", "value": dtype}
        rows = [{"n": n, "value": value} for n, value in enumerate(values)]
        typed = pa.Table.from_pylist(rows, schema=ibis.schema(schema).to_pyarrow())
        engine.replace(ORDERS, ibis.memtable(typed))
        table = engine.read(ORDERS).order_by("n")
        assert [row["value"] for row in table.to_pyarrow().to_pylist()] == values

    # Names

    @pytest.mark.parametrize(
        ("namespace", "name"),
        [
            ("my-shop", "daily orders"),
            ("shop", "daily orders"),
            ("shop", "v1.orders"),
            ("select", "order"),
            ("Raw", "Orders"),
            ("shop", "größe"),
            ("sho'p", 'o"rders'),
        ],
    )
    def test_names_are_kept_as_given_or_refused(
        self, engine: WarehouseEngine, namespace: str, name: str
    ) -> None:
        """Every identifier is quoted: reserved words, dashes, dots and case are kept.

        A name that the engine cannot hold is refused before anything is made, never changed.
        """
        table = TableRef(catalog=ORDERS.catalog, namespace=namespace, name=name)
        if engine.capabilities.name_problem(table):
            assert (namespace, name) in self.names_refused
            with pytest.raises(WarehouseConfigurationError, match="cannot exist"):
                engine.replace_partitions(table, orders((1, 1, "1")), "day", [may(1)])
            return
        assert (namespace, name) not in self.names_refused
        engine.replace_partitions(table, orders((1, 1, "1")), "day", [may(1)])
        engine.replace_partitions(table, orders((2, 1, "1")), "day", [may(1)])
        assert ids_by_day(engine, table) == {may(1): [2]}

    def test_reserved_words_work_as_columns(self, engine: WarehouseEngine) -> None:
        """Also for the partition column, in the delete of a day."""
        words = ibis.memtable(
            {"order": [1], "group": [2], "select": ["x"], "by": [1.5], "date": [may(1)]}
        )
        engine.replace_partitions(ORDERS, words, "date", [may(1)])
        engine.replace_partitions(ORDERS, words.mutate(order=ibis.literal(3)), "date", [may(1)])
        assert rows_of(engine) == [
            {"order": 3, "group": 2, "select": "x", "by": 1.5, "date": may(1)}
        ]

    def test_a_view_in_the_way_is_not_destroyed(
        self, engine: WarehouseEngine, run_sql: RunSql
    ) -> None:
        """A view can be read, and no write replaces it."""
        engine.ensure_namespace(ORDERS.namespace)
        run_sql("CREATE VIEW {table} AS SELECT 1 AS order_id, DATE '2024-05-01' AS day", ORDERS)
        assert ids_by_day(engine) == {may(1): [1]}
        writes: list[Callable[[], WriteResult]] = [
            lambda: engine.replace(ORDERS, orders((2, 1, "1"))),
            lambda: engine.replace_partitions(ORDERS, orders((2, 1, "1")), "day", [may(1)]),
        ]
        for write in writes:
            with pytest.raises(WarehouseMaterializationError, match="is a view"):
                write()
        assert ids_by_day(engine) == {may(1): [1]}

    def test_a_table_someone_else_made_is_read_and_written_by_day(
        self, engine: WarehouseEngine, run_sql: RunSql
    ) -> None:
        """A table with a DATE column that the SDK did not make is a daily table like any other."""
        engine.ensure_namespace(ORDERS.namespace)
        run_sql(
            "CREATE TABLE {table}" + self.partitioned_by_day + " AS "
            "SELECT 1 AS order_id, DATE '2024-05-01' AS day"
            " UNION ALL SELECT 2, DATE '2024-05-02'",
            ORDERS,
        )
        engine.replace_partitions(
            ORDERS,
            orders((9, 2, "1")).select("day", order_id=ibis._.order_id.cast("int32")),
            "day",
            [may(2)],
        )
        assert ids_by_day(engine) == {may(1): [1], may(2): [9]}

    def test_a_namespace_can_be_made_twice(self, engine: WarehouseEngine) -> None:
        """Making a namespace that exists changes nothing."""
        engine.ensure_namespace("shop")
        engine.replace(ORDERS, orders((1, 1, "1")))
        engine.ensure_namespace("shop")
        assert ids_by_day(engine) == {may(1): [1]}

    # Expressions

    def test_rows_in_memory_join_with_tables(self, engine: WarehouseEngine) -> None:
        """A table in memory is part of the result and leaves nothing behind."""
        engine.replace(ORDERS, orders((1, 1, "1"), (2, 2, "2")))

        def joined() -> ir.Table:
            rates = ibis.memtable({"order_id": [1, 2], "rate": [2.0, 3.0]})
            return engine.read(ORDERS).join(rates, "order_id")

        target = TableRef(catalog=ORDERS.catalog, namespace="shop", name="rated")
        engine.replace(target, joined())
        engine.replace(target, joined())
        assert [row["rate"] for row in rows_of(engine, target)] == [2.0, 3.0]

    def test_an_expression_of_another_connection_is_refused(self, engine: WarehouseEngine) -> None:
        """Its rows would have to pass through this process; the message says what to do."""
        elsewhere = ibis.duckdb.connect()
        elsewhere.raw_sql("CREATE TABLE t AS SELECT 1 AS x")
        with pytest.raises(WarehouseMaterializationError, match="another connection.*memtable"):
            engine.replace(ORDERS, elsewhere.table("t"))
        with pytest.raises(WarehouseMaterializationError, match="unbound table"):
            engine.replace(ORDERS, ibis.table({"x": "int64"}, name="t"))
        assert engine.describe(ORDERS) is None

    def test_tables_of_two_engines_on_one_warehouse_can_be_joined(
        self, engine: WarehouseEngine, twin: WarehouseEngine
    ) -> None:
        """A second engine on the same warehouse is the same warehouse."""
        engine.replace(ORDERS, orders((1, 1, "1")))
        both = engine.read(ORDERS).join(twin.read(ORDERS), ["order_id", "day", "amount"])
        target = TableRef(catalog=ORDERS.catalog, namespace="shop", name="both")
        engine.replace(target, both)
        assert ids_by_day(engine, target) == {may(1): [1]}

    def test_rows_in_memory_that_do_not_fit_their_types_are_refused(
        self, engine: WarehouseEngine
    ) -> None:
        """A value that its declared type cannot hold is the caller's, and nothing is written."""
        wrong = ibis.memtable({"order_id": ["one"]}, schema={"order_id": "int64"})
        with pytest.raises(WarehouseMaterializationError, match="in memory"):
            engine.replace(ORDERS, wrong)
        assert engine.describe(ORDERS) is None

    def test_reading_gives_values_tables_and_batches(self, engine: WarehouseEngine) -> None:
        """A lazy table answers like any Ibis table, more than once and after a later write."""
        engine.replace(ORDERS, orders((1, 1, "1"), (2, 2, "2")))
        table = engine.read(ORDERS)
        assert table.count().execute() == 2
        assert sorted(table.order_id.execute()) == [1, 2]
        engine.replace(ORDERS, orders((3, 3, "3")))
        assert table.to_pandas()["order_id"].tolist() == [3]
        assert table.to_pyarrow_batches().read_all()["order_id"].to_pylist() == [3]

    # The model

    @pytest.mark.slow
    def test_any_sequence_of_writes_leaves_what_a_model_holds(
        self, make_engine: Callable[[], WarehouseEngine]
    ) -> None:
        """After each of a random sequence of writes the tables equal a model kept in memory."""
        run_state_machine_as_test(
            lambda: WarehouseModel(make_engine()),  # type: ignore[arg-type]  # any factory will do
            settings=settings(
                max_examples=self.model_examples,
                stateful_step_count=12,
                deadline=None,
                suppress_health_check=list(HealthCheck),
            ),
        )


DAYS = [may(day) for day in range(1, 7)]
_some_days = st.sets(st.sampled_from(DAYS), min_size=1)
_rows = st.lists(
    st.tuples(
        st.sampled_from(DAYS),
        st.integers(min_value=-(2**63), max_value=2**63 - 1),
        st.one_of(st.none(), st.text(max_size=5).filter(lambda text: "\x00" not in text)),
    ),
    max_size=8,
)


class WarehouseModel(RuleBasedStateMachine):
    """Writes at random to a daily and a whole table, and keeps what they should hold."""

    def __init__(self, engine: WarehouseEngine) -> None:
        super().__init__()
        self.engine = engine
        self.daily = TableRef(catalog=ORDERS.catalog, namespace="model", name="daily")
        self.whole = TableRef(catalog=ORDERS.catalog, namespace="model", name="whole")
        self.daily_rows: Rows | None = None
        self.daily_columns = ["day", "n", "text"]
        self.whole_rows: Rows | None = None

    @initialize()
    def start_empty(self) -> None:
        assert self.engine.describe(self.daily) is None
        assert self.engine.describe(self.whole) is None

    @rule(dates=_some_days, rows=_rows, turned=st.booleans())
    def replace_dates(
        self, dates: set[date], rows: list[tuple[date, int, str | None]], turned: bool
    ) -> None:
        new = [self._row(*row) for row in rows if row[0] in dates]
        data = self._table(new, self.daily_columns[::-1] if turned else self.daily_columns)
        result = self.engine.replace_partitions(self.daily, data, "day", dates)
        assert result.rows == len(new)
        self._keep(dates, new)

    @rule(dates=_some_days, rows=_rows)
    def offer_stray_rows(self, dates: set[date], rows: list[tuple[date, int, str | None]]) -> None:
        stray = [row for row in rows if row[0] not in dates]
        if not stray:
            return
        data = self._table([self._row(*row) for row in rows], self.daily_columns)
        with pytest.raises(PartitionDatesError) as refused:
            self.engine.replace_partitions(self.daily, data, "day", dates)
        assert refused.value.stray_rows == len(stray)

    @precondition(lambda self: self.daily_rows is not None and len(self.daily_columns) < 6)
    @rule(dates=_some_days, rows=_rows)
    def bring_a_new_column(
        self, dates: set[date], rows: list[tuple[date, int, str | None]]
    ) -> None:
        self.daily_columns.append(f"extra_{len(self.daily_columns)}")
        for row in self.daily_rows or []:
            row[self.daily_columns[-1]] = None
        new = [self._row(*row) for row in rows if row[0] in dates]
        result = self.engine.replace_partitions(
            self.daily, self._table(new, self.daily_columns), "day", dates
        )
        assert result.added_columns == (self.daily_columns[-1],)
        self._keep(dates, new)

    @precondition(lambda self: self.daily_rows is not None)
    @rule(dates=_some_days, column=st.sampled_from(["n", "text"]))
    def leave_a_column_out(self, dates: set[date], column: str) -> None:
        data = self._table([], [name for name in self.daily_columns if name != column])
        with pytest.raises(ColumnMismatchError):
            self.engine.replace_partitions(self.daily, data, "day", dates)

    @precondition(lambda self: self.daily_rows is not None)
    @rule(day=st.sampled_from(DAYS), by=st.integers(min_value=1, max_value=3))
    def copy_a_day_onto_another(self, day: date, by: int) -> None:
        target = day + timedelta(days=by)
        current = self.engine.read(self.daily)
        copied = current.filter(current.day == day).mutate(day=ibis.literal(target))
        self.engine.replace_partitions(self.daily, copied, "day", [target])
        self._keep(
            [target], [row | {"day": target} for row in self.daily_rows or [] if row["day"] == day]
        )

    @rule(rows=_rows, columns=st.permutations(["day", "n", "text"]))
    def replace_whole(self, rows: list[tuple[date, int, str | None]], columns: list[str]) -> None:
        new = [self._row(*row) for row in rows]
        kept = columns[:2]
        self.engine.replace(self.whole, self._table(new, kept))
        self.whole_rows = [{name: row[name] for name in kept} for row in new]

    @invariant()
    def both_tables_equal_the_model(self) -> None:
        for table, rows in ((self.daily, self.daily_rows), (self.whole, self.whole_rows)):
            if rows is None:
                assert self.engine.describe(table) is None
            else:
                assert _sorted(self.engine.read(table).to_pyarrow().to_pylist()) == _sorted(rows)

    def _row(self, day: date, n: int, text: str | None) -> dict[str, Any]:
        return {"day": day, "n": n, "text": text} | dict.fromkeys(self.daily_columns[3:], n)

    def _table(self, rows: Rows, columns: list[str]) -> ir.Table:
        types = {"day": "date", "text": "string"}
        schema = {name: types.get(name, "int64") for name in columns}
        return ibis.memtable([{name: row[name] for name in columns} for row in rows], schema=schema)

    def _keep(self, dates: Collection[date], new: Rows) -> None:
        kept = [row for row in self.daily_rows or [] if row["day"] not in dates]
        self.daily_rows = kept + new


def _sorted(rows: Iterable[dict[str, Any]]) -> list[list[tuple[str, str]]]:
    return sorted(sorted((name, repr(value)) for name, value in row.items()) for row in rows)
