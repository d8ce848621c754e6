"""Which engines there are, each imported on first use; imports `_core` and the engine interface."""

from __future__ import annotations

from importlib import import_module

from segmentstream._core.errors import WarehouseConfigurationError
from segmentstream._core.names import ENGINE_VARIABLE
from segmentstream._warehouse.engine import WarehouseEngine
from segmentstream._warehouse.settings import WarehouseSettings

# engine name -> ("module:class", the extra that installs what the module imports)
_ENGINES = {
    "bigquery": ("segmentstream._warehouse.engines.bigquery.engine:BigQueryEngine", "bigquery"),
    "duckdb": ("segmentstream._warehouse.engines.duckdb.engine:DuckDBEngine", "duckdb"),
}


def check_engine_name(settings: WarehouseSettings) -> None:
    """Refuses an engine that does not exist, without importing any.

    Raises:
        WarehouseConfigurationError: Names the variable and the engines there are.
    """
    if settings.engine not in _ENGINES:
        raise WarehouseConfigurationError(
            f"{ENGINE_VARIABLE} is {settings.engine!r}, which is no engine of this version.",
            f"Use one of: {', '.join(sorted(_ENGINES))}.",
        )


def create_engine(settings: WarehouseSettings) -> WarehouseEngine:
    """Makes the engine that the settings name; opens no connection yet.

    Raises:
        WarehouseConfigurationError: There is no such engine, its extra is not installed, or its
            catalog cannot be one.
    """
    check_engine_name(settings)
    location, extra = _ENGINES[settings.engine]
    module_name, class_name = location.split(":")
    try:
        module = import_module(module_name)
    except ModuleNotFoundError as error:
        raise WarehouseConfigurationError(
            f"The {settings.engine} engine needs the Python module {error.name!r}, which is not "
            "installed.",
            f"Install the extra: pip install 'segmentstream-pipeline[{extra}]'.",
        ) from error
    engine: WarehouseEngine = getattr(module, class_name)(settings)
    return engine
