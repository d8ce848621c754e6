"""Which warehouse a process works on, read once from variables; engine-neutral.

Imports `_core` only.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from segmentstream._core.errors import WarehouseConfigurationError
from segmentstream._core.names import (
    BILLING_PROJECT_VARIABLE,
    CATALOG_VARIABLE,
    DEFAULT_NAMESPACE_VARIABLE,
    EMULATOR_VARIABLE,
    ENGINE_VARIABLE,
    LOCATION_VARIABLE,
    STAGING_NAMESPACE_VARIABLE,
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
        billing_project: The BigQuery project that pays for the work; the catalog when left out.
        staging_namespace: Where results wait before they are committed, on engines that stage
            them in tables; beside their target when left out.
        endpoint: Address of a server that stands in for BigQuery, such as an emulator.
        credentials: A credentials object of the engine's client library; found in the
            surroundings when left out.
    """

    engine: str
    catalog: str
    default_namespace: str
    location: str | None = None
    wait_seconds: float = 300.0
    billing_project: str | None = None
    staging_namespace: str | None = None
    endpoint: str | None = None
    credentials: object | None = field(default=None, repr=False)

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
        billing_project: str | None = None,
        staging_namespace: str | None = None,
        credentials: object | None = None,
    ) -> WarehouseSettings:
        """Reads the settings from variables; an argument that is given wins over its variable.

        Args:
            environ: Usually `os.environ`.
            engine: Overrides `SEGMENTSTREAM_WAREHOUSE_ENGINE`.
            catalog: Overrides `SEGMENTSTREAM_WAREHOUSE_CATALOG`.
            default_namespace: Overrides `SEGMENTSTREAM_WAREHOUSE_DEFAULT_NAMESPACE`.
            location: Overrides `SEGMENTSTREAM_WAREHOUSE_LOCATION`.
            wait_seconds: How long one operation may wait for a warehouse that is busy.
            billing_project: Overrides `SEGMENTSTREAM_WAREHOUSE_BILLING_PROJECT`.
            staging_namespace: Overrides `SEGMENTSTREAM_WAREHOUSE_STAGING_NAMESPACE`.
            credentials: A credentials object of the engine's client library.

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
            billing_project=billing_project or environ.get(BILLING_PROJECT_VARIABLE) or None,
            staging_namespace=(
                staging_namespace or environ.get(STAGING_NAMESPACE_VARIABLE) or None
            ),
            endpoint=environ.get(EMULATOR_VARIABLE) or None,
            credentials=credentials,
        )


def _listed(names: list[str]) -> str:
    return f"{names[0]} is" if len(names) == 1 else f"{', '.join(names)} are"
