"""The other side of the benchmark of the runtime: a Postgres, the source of the days, a count.

Run as a script; each command is a process of its own, for the one that measures stays small.
"""

from __future__ import annotations

import sys
from contextlib import ExitStack
from pathlib import Path

from processes import HERE, answer

ROWS_A_DAY = 100

_EVENTS = f"""
    CREATE SCHEMA raw;
    CREATE TABLE raw.events AS
    SELECT DATE '2025-01-01' + (i // {ROWS_A_DAY})::INTEGER AS event_date,
           i AS event_id,
           'channel ' || i % 5 AS channel,
           i % 7 AS quantity,
           i * 17 % 10000 AS price_cents
    FROM range(365 * {ROWS_A_DAY}) AS numbers(i)
"""
# What a table must hold for its days, computed past the SDK. The first says so of `purchases`.
_FIGURES = {
    "purchases": (
        "count(*), sum(event_id), sum(quantity * price_cents)",
        "count(*), sum(event_id), sum(revenue_cents)",
    ),
    "by_channel": (
        "count(DISTINCT channel), count(*), sum(quantity * price_cents)",
        "count(*), sum(purchases), sum(revenue_cents)",
    ),
    "revenue": (
        "1, count(*), sum(quantity * price_cents)",
        "count(*), sum(purchases), sum(revenue_cents)",
    ),
}


def _serve_postgres() -> None:
    """Runs a server with as many empty databases as asked for, until standard input ends."""
    sys.path.append(str(HERE.parent / "tests"))
    from postgres import running_postgres

    with running_postgres({}) as server, ExitStack() as databases:
        answer([databases.enter_context(server.database()) for _ in range(int(sys.argv[2]))])
        sys.stdin.read()


def _make_source(warehouse: Path) -> None:
    import duckdb

    with duckdb.connect(warehouse) as connection:
        connection.execute(_EVENTS)


def _check(warehouse: Path, namespace: str, first: str, last: str, tables: list[str]) -> None:
    """Compares each day of the tables with what the source gives; tells how many days are right."""
    import duckdb

    with duckdb.connect(warehouse, read_only=True) as connection:
        for table in tables:
            wanted, written = _FIGURES[table]
            expected = connection.execute(
                f"SELECT event_date, {wanted} FROM raw.events WHERE quantity > 0 "
                "AND event_date BETWEEN ?::DATE AND ?::DATE GROUP BY event_date ORDER BY 1",
                [first, last],
            ).fetchall()
            found = connection.execute(
                f"SELECT event_date, {written} FROM {namespace}.{table} "
                "GROUP BY event_date ORDER BY 1"
            ).fetchall()
            if found != expected:
                sys.exit(f"{namespace}.{table} has {len(found)} days, not {expected[:2]} ...")
    answer(len(expected))


if __name__ == "__main__":
    if sys.argv[1] == "postgres":
        _serve_postgres()
    elif sys.argv[1] == "source":
        _make_source(Path(sys.argv[2]))
    else:
        _check(Path(sys.argv[2]), *sys.argv[3:6], tables=sys.argv[6:])
