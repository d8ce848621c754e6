"""Which warehouse a process works on, read once from variables; engine-neutral.

Imports `_core` only.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from segmentstream._core.errors import WarehouseConfigurationError
from segmentstream._core.names import (
    CATALOG_VARIABLE,
    DEFAULT_NAMESPACE_VARIABLE,
    ENGINE_VARIABLE,
    LOCATION_VARIABLE,
    identifier_problem,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class WarehouseSettings:
    """Says which warehouse to use.

    Attributes:
        engine: Name of the engine, such as `duckdb`.
        catalog: The database every table lives in: a BigQuery project or a DuckDB file.
        default_namespace: Namespace of the assets whose key has one part.
        location: Where namespaces are created, for engines that have locations.
        wait_seconds: How long one operation may wait for a warehouse that is busy.
    """

    engine: str
    catalog: str
    default_namespace: str
    location: str | None = None
    wait_seconds: float = 300.0

    @classmethod
    def from_environ(
        cls,
        environ: Mapping[str, str],
        *,
        engine: str | None = None,
        catalog: str | None = None,
        default_namespace: str | None = None,
        location: str | None = None,
        wait_seconds: float = 300.0,
    ) -> WarehouseSettings:
        """Reads the settings from variables; an argument that is given wins over its variable.

        Args:
            environ: Usually `os.environ`.
            engine: Overrides `SEGMENTSTREAM_WAREHOUSE_ENGINE`.
            catalog: Overrides `SEGMENTSTREAM_WAREHOUSE_CATALOG`.
            default_namespace: Overrides `SEGMENTSTREAM_WAREHOUSE_DEFAULT_NAMESPACE`.
            location: Overrides `SEGMENTSTREAM_WAREHOUSE_LOCATION`.
            wait_seconds: How long one operation may wait for a warehouse that is busy.

        Raises:
            WarehouseConfigurationError: One or more of them are missing or invalid; every such
                variable is named. The engine is never guessed.
        """
        values = {
            ENGINE_VARIABLE: engine or environ.get(ENGINE_VARIABLE, ""),
            CATALOG_VARIABLE: catalog or environ.get(CATALOG_VARIABLE, ""),
            DEFAULT_NAMESPACE_VARIABLE: (
                default_namespace or environ.get(DEFAULT_NAMESPACE_VARIABLE, "")
            ),
        }
        missing = [variable for variable, value in values.items() if not value.strip()]
        if missing:
            raise WarehouseConfigurationError(
                f"The warehouse is not configured: {_listed(missing)} not set.",
                "Set each variable, for example in the workspace's .env file, or give the value "
                "to WarehouseResource(...). Nothing is guessed, so that a process without its "
                "variables never writes to a place nobody meant.",
            )
        for variable, value in values.items():
            if problem := identifier_problem(value):
                raise WarehouseConfigurationError(
                    f"{variable} is {value!r}, which {problem}.", "Correct the variable."
                )
        return cls(
            engine=values[ENGINE_VARIABLE],
            catalog=values[CATALOG_VARIABLE],
            default_namespace=values[DEFAULT_NAMESPACE_VARIABLE],
            location=location or environ.get(LOCATION_VARIABLE) or None,
            wait_seconds=wait_seconds,
        )


def _listed(names: list[str]) -> str:
    return f"{names[0]} is" if len(names) == 1 else f"{', '.join(names)} are"
