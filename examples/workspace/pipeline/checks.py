"""Checks: what must hold of the tables, told beside them in Dagster.

Each one reads its whole table: checks of single days are still a preview in Dagster.
"""

import ibis.expr.types as ir

import segmentstream.dagster as dg


@dg.asset_check(asset=dg.AssetKey(["silver", "flights"]))
def one_row_per_flight(flights: ir.Table) -> dg.AssetCheckResult:
    """A carrier uses a flight number once a day at each airport."""
    key = ["flight_date", "carrier", "flight_number", "origin"]
    repeated = _count(flights.group_by(key).having(flights.count() > 1).agg())
    return dg.AssetCheckResult(passed=repeated == 0, metadata={"repeated": repeated})


@dg.asset_check(asset=dg.AssetKey(["silver", "flights"]))
def air_time_is_positive(flights: ir.Table) -> dg.AssetCheckResult:
    """A flight that arrived was in the air for some time."""
    wrong = _count(flights.filter(flights.air_time_minutes <= 0))
    return dg.AssetCheckResult(passed=wrong == 0, metadata={"wrong": wrong})


@dg.asset_check(asset=dg.AssetKey(["gold", "departures_and_weather"]))
def weather_is_known(departures_and_weather: ir.Table) -> dg.AssetCheckResult:
    """At most one departure hour in twenty lacks its weather; more is worth a look, no failure."""
    hours = _count(departures_and_weather)
    unknown = _count(
        departures_and_weather.filter(departures_and_weather.temperature_fahrenheit.isnull())
    )
    return dg.AssetCheckResult(
        passed=unknown <= hours / 20,
        severity=dg.AssetCheckSeverity.WARN,
        metadata={"hours": hours, "unknown": unknown},
    )


@dg.asset_check(
    asset=dg.AssetKey(["gold", "carriers"]),
    additional_ins={"flights": dg.AssetIn(key=["silver", "flights"])},
)
def every_flight_is_counted(carriers: ir.Table, flights: ir.Table) -> dg.AssetCheckResult:
    """The carriers' flights add up to all flights."""
    counted = int(carriers.flights.sum().execute())
    expected = _count(flights)
    return dg.AssetCheckResult(
        passed=counted == expected, metadata={"counted": counted, "expected": expected}
    )


def _count(rows: ir.Table) -> int:
    return int(rows.count().execute())
