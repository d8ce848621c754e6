"""The judge takes what BigQuery takes, and refuses what BigQuery refuses."""

from __future__ import annotations

import pytest

from bigquery.judge import Judge

TABLES = {
    "p.d.t": {"a": "INT64", "day": "DATE"},
    "my-proj.ds.t": {
        "n": "NUMERIC(12, 2)",
        "big": "BIGNUMERIC",
        "s": "STRUCT<a INT64, b ARRAY<STRING>>",
        "ts": "TIMESTAMP",
        "j": "JSON",
    },
}

_ROWS = "SELECT 1 AS `a`, DATE '2024-05-01' AS `day`"
_DATES = "DATE '2024-05-01' AND DATE '2024-05-02'"
_CHECKED = (
    f"IF(`day` BETWEEN {_DATES}, `day`, "
    "ERROR(CONCAT('x', IFNULL(CAST(`day` AS STRING), 'NULL')))) AS `day`"
)

STATEMENTS = {
    "a query": "SELECT `a` FROM `p`.`d`.`t` WHERE `day` >= DATE '2024-05-01'",
    "all types": (
        "SELECT n * 2, big + n, s.a, s.b[SAFE_OFFSET(0)], JSON_VALUE(j, '$.x'), "
        "TIMESTAMP_TRUNC(ts, HOUR, 'Europe/Berlin') FROM `my-proj`.`ds`.`t`"
    ),
    "one pair of backticks": "SELECT n FROM `my-proj.ds.t`",
    "qualify": "SELECT a FROM `p.d.t` QUALIFY ROW_NUMBER() OVER (PARTITION BY day ORDER BY a) = 1",
    "pivot": "SELECT * FROM `p.d.t` PIVOT(SUM(a) FOR day IN (DATE '2024-05-01' AS first))",
    "rows": "SELECT * FROM UNNEST(ARRAY<STRUCT<a INT64, b STRING>>[STRUCT(1, 'x'), (2, 'y')])",
    "merge": (
        f"MERGE INTO `p`.`d`.`t` AS `target` USING (SELECT CAST(`a` AS INT64) AS `a`, {_CHECKED} "
        f"FROM ({_ROWS}) AS `rows`) AS `source` ON FALSE "
        f"WHEN NOT MATCHED BY SOURCE AND `target`.`day` BETWEEN {_DATES} THEN DELETE "
        "WHEN NOT MATCHED BY TARGET THEN INSERT (`a`, `day`) VALUES (`a`, `day`)"
    ),
    "insert": f"INSERT INTO `p`.`d`.`t` (`a`, `day`) {_ROWS}",
    "delete": "DELETE FROM `p`.`d`.`t` WHERE `day` IN (DATE '2024-05-01', DATE '2024-05-02')",
    "truncate": "TRUNCATE TABLE `p`.`d`.`t`",
    "create table": (
        "CREATE TABLE `p`.`d`.`new` PARTITION BY `day` CLUSTER BY `a` "
        f"OPTIONS(description='x', require_partition_filter=FALSE) AS {_ROWS}"
    ),
    "create or replace table": (
        "CREATE OR REPLACE TABLE `p`.`d`.`t` (`n` NUMERIC(12, 2) NOT NULL OPTIONS(description='x'))"
    ),
    "create staging table": (
        "CREATE TABLE `p`.`d`.`staging` OPTIONS(expiration_timestamp="
        "TIMESTAMP_ADD(CURRENT_TIMESTAMP(), INTERVAL 24 HOUR), labels=[('k', 'v')]) "
        f"AS {_ROWS}"
    ),
    "add column": "ALTER TABLE `p`.`d`.`t` ADD COLUMN IF NOT EXISTS `n` NUMERIC(12, 2)",
    "drop table": "DROP TABLE IF EXISTS `p`.`d`.`t`",
}

REFUSED = {
    "unknown table": ("SELECT 1 FROM `p`.`d`.`nope`", "Table not found"),
    "unknown column": ("SELECT nope FROM `p`.`d`.`t`", "Unrecognized name"),
    "merge without a column": (
        (
            f"MERGE INTO `p`.`d`.`t` USING ({_ROWS}) AS `source` ON FALSE "
            "WHEN NOT MATCHED BY TARGET THEN INSERT (`a`, `nope`) VALUES (`a`, `day`)"
        ),
        "Column nope is not present",
    ),
    "type of an insert": ("INSERT INTO `p`.`d`.`t` (`a`) SELECT 'x'", "cannot be inserted"),
    "text as a date": ("INSERT INTO `p`.`d`.`t` (`day`) SELECT '2024-05-01'", "cannot be inserted"),
    "date and timestamp": (
        "SELECT `day` >= TIMESTAMP '2024-05-01' FROM `p`.`d`.`t`",
        "No matching signature for operator >=",
    ),
    "nanoseconds": ("SELECT TIMESTAMP '2024-05-01 00:00:00.123456789'", "Invalid TIMESTAMP"),
    "array to array": ("SELECT CAST([1] AS ARRAY<STRING>)", "Casting between arrays"),
    "unknown option": ("CREATE TABLE x OPTIONS(nope=1) AS SELECT 1 AS a", "Unknown option"),
    "type of an option": ("CREATE TABLE x (a INT64) OPTIONS(description=1)", "description"),
}


@pytest.mark.parametrize("sql", STATEMENTS.values(), ids=STATEMENTS.keys())
def test_takes_every_form_of_statement(judge: Judge, sql: str) -> None:
    """Each form that an engine on BigQuery needs is parsed and analyzed without complaint."""
    verdict = judge.check(sql, TABLES)

    assert verdict.error is None
    assert verdict.analyzed
    assert len(verdict.parsed) == 1


@pytest.mark.parametrize(("sql", "why"), REFUSED.values(), ids=REFUSED.keys())
def test_refuses_wrong_names_and_types(judge: Judge, sql: str, why: str) -> None:
    """A statement of right syntax that BigQuery would refuse is refused, and told why."""
    assert judge.check(sql).error is None

    verdict = judge.check(sql, TABLES)

    assert why in str(verdict.error)
    assert not verdict.analyzed


@pytest.mark.parametrize("sql", ["SELECT a::INT64", "SELECT * EXCLUDE (a) FROM t", "SELECT 7 // 2"])
def test_refuses_the_syntax_of_duckdb(judge: Judge, sql: str) -> None:
    """What only DuckDB reads is refused, also where no tables are known."""
    verdict = judge.check(sql)

    assert "Syntax error" in str(verdict.error)
    assert verdict.parsed == ()


def test_analyzes_each_statement_of_a_script(judge: Judge) -> None:
    """A transaction is judged as a whole, and one wrong statement refuses it."""
    script = (
        "BEGIN TRANSACTION; TRUNCATE TABLE `p`.`d`.`t`; "
        f"INSERT INTO `p`.`d`.`t` (`a`, `day`) {_ROWS}; COMMIT TRANSACTION;"
    )

    verdict = judge.check(script, TABLES)
    wrong = judge.check(script.replace("(`a`", "(`nope`"), TABLES)

    assert (verdict.error, verdict.analyzed) == (None, True)
    assert verdict.parsed == ("begin", "truncate", "insert", "commit")
    assert "nope" in str(wrong.error)


def test_a_script_knows_what_it_creates(judge: Judge) -> None:
    """A statement may use the tables and functions of those before it, with their types."""
    script = (
        "CREATE TEMP FUNCTION shout(x STRING) RETURNS STRING LANGUAGE js AS 'return x'; "
        f"CREATE TABLE `p`.`d`.`staging` AS {_ROWS}; SELECT {{use}} FROM `p`.`d`.`staging`"
    )

    right = judge.check(script.format(use="shout(CAST(`day` AS STRING))"), TABLES)
    wrong = judge.check(script.format(use="shout(`day`)"), TABLES)

    assert (right.error, right.analyzed) == (None, True)
    assert right.parsed == ("create_function", "create_table", "query")
    assert "No matching signature" in str(wrong.error)


def test_a_script_with_variables_is_parsed_only(judge: Judge) -> None:
    """The verdict admits that ZetaSQL does not analyze the statements of scripting."""
    verdict = judge.check("DECLARE x INT64; SET x = 1; SELECT x", TABLES)

    assert (verdict.error, verdict.analyzed) == (None, False)
    assert verdict.parsed == ("variable_declaration", "single_assignment", "query")


def test_judges_deep_queries(judge: Judge) -> None:
    """Generated queries nest deep, and are judged like others."""
    deep = "SELECT `a` FROM (" * 60 + "SELECT `a` FROM `p`.`d`.`t`" + ")" * 60

    assert judge.check(deep, TABLES).analyzed
    assert "Unrecognized name" in str(judge.check(deep.replace("`t`", "`t` WHERE b"), TABLES).error)


def test_goes_on_after_a_failure_of_its_own(judge: Judge) -> None:
    """A statement too large for ZetaSQL is told from a wrong one, and the next is judged."""
    failed = judge.check("SELECT " + "+".join(["1"] * 5000), TABLES)

    assert str(failed.error).startswith("ZetaSQL failed: ")
    assert judge.check("SELECT 1", TABLES).analyzed


def test_starts_no_process_before_it_is_asked() -> None:
    """A run that asks nothing pays nothing, whether or not ZetaSQL is installed."""
    with Judge() as judge:
        assert judge._host is None
