from __future__ import annotations

import pytest

from segmentstream._core.errors import WarehouseConfigurationError
from segmentstream._warehouse.registry import check_engine_name, create_engine
from segmentstream._warehouse.settings import WarehouseSettings

ENVIRON = {
    "SEGMENTSTREAM_WAREHOUSE_ENGINE": "duckdb",
    "SEGMENTSTREAM_WAREHOUSE_CATALOG": "warehouse.duckdb",
    "SEGMENTSTREAM_WAREHOUSE_DEFAULT_NAMESPACE": "main",
}


def test_settings_come_from_the_variables() -> None:
    """Three variables are enough; the location is optional."""
    settings = WarehouseSettings.from_environ(ENVIRON)
    assert (settings.engine, settings.catalog, settings.default_namespace, settings.location) == (
        "duckdb",
        "warehouse.duckdb",
        "main",
        None,
    )
    located = WarehouseSettings.from_environ(ENVIRON | {"SEGMENTSTREAM_WAREHOUSE_LOCATION": "EU"})
    assert located.location == "EU"


def test_an_argument_wins_over_its_variable() -> None:
    """What a resource is given needs no variable."""
    settings = WarehouseSettings.from_environ(
        {}, engine="duckdb", catalog="a.duckdb", default_namespace="analytics", location="EU"
    )
    assert settings == WarehouseSettings(
        engine="duckdb", catalog="a.duckdb", default_namespace="analytics", location="EU"
    )


@pytest.mark.parametrize("blank", [None, "", "  "])
@pytest.mark.parametrize("variable", ENVIRON)
def test_a_missing_variable_is_named(variable: str, blank: str | None) -> None:
    """No engine, file or namespace is ever guessed."""
    environ = {name: value for name, value in ENVIRON.items() if name != variable}
    if blank is not None:
        environ[variable] = blank
    with pytest.raises(WarehouseConfigurationError, match=f"{variable} is not set"):
        WarehouseSettings.from_environ(environ)


def test_all_missing_variables_are_named_at_once() -> None:
    """A newcomer is told everything in one message."""
    with pytest.raises(WarehouseConfigurationError) as refused:
        WarehouseSettings.from_environ({})
    assert all(variable in str(refused.value) for variable in ENVIRON)


@pytest.mark.parametrize("variable", ENVIRON)
def test_a_value_that_cannot_be_a_name_is_refused(variable: str) -> None:
    """The variable is named, and its value shown."""
    with pytest.raises(WarehouseConfigurationError, match=rf"{variable} is 'a\\nb'"):
        WarehouseSettings.from_environ(ENVIRON | {variable: "a\nb"})


@pytest.mark.parametrize("name", ["postgres", "DuckDB", "bigqueri"])
def test_an_engine_that_does_not_exist_is_refused(name: str) -> None:
    """The message names the variable and what there is."""
    settings = WarehouseSettings(engine=name, catalog="x", default_namespace="main")
    for check in (check_engine_name, create_engine):
        with pytest.raises(
            WarehouseConfigurationError, match=f"SEGMENTSTREAM_WAREHOUSE_ENGINE is '{name}'.*duckdb"
        ):
            check(settings)
