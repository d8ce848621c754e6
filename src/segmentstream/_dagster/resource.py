"""The warehouse as a Dagster resource; imports Dagster, `_warehouse` and `_core`.

Annotations are not postponed here: Dagster reads those of the fields as objects.
"""

import os
import threading
from typing import Any

import ibis.expr.types as ir
from dagster import ConfigurableResource, InitResourceContext, ResourceDependency
from pydantic import Field, PrivateAttr

from segmentstream._warehouse.engine import WarehouseEngine
from segmentstream._warehouse.registry import create_engine
from segmentstream._warehouse.settings import WarehouseSettings
from segmentstream._warehouse.tables import TableRef


class WarehouseResource(ConfigurableResource[None]):
    """Gives assets and checks the warehouse itself, for what an input cannot express.

    Every field may be left out; its variable is then read when the warehouse is first used, so
    that definitions load without any.

    Attributes:
        engine: `duckdb` or `bigquery`; else `SEGMENTSTREAM_WAREHOUSE_ENGINE`.
        catalog: A DuckDB file or a BigQuery project; else `SEGMENTSTREAM_WAREHOUSE_CATALOG`.
        default_namespace: Namespace of assets whose key has one part; else
            `SEGMENTSTREAM_WAREHOUSE_DEFAULT_NAMESPACE`.
        location: Where namespaces are created, on engines that have locations; else
            `SEGMENTSTREAM_WAREHOUSE_LOCATION`.
        wait_seconds: How long one operation may wait for a warehouse that is busy.
        billing_project: The BigQuery project that pays for queries; else
            `SEGMENTSTREAM_WAREHOUSE_BILLING_PROJECT`, else the catalog.
        staging_namespace: The dataset in which BigQuery keeps results that wait to be committed;
            else `SEGMENTSTREAM_WAREHOUSE_STAGING_NAMESPACE`, else the dataset of their table.
        credentials: A credentials object of `google.auth` for BigQuery; Application Default
            Credentials when left out. It is used for everything, and never stored or shown.
    """

    engine: str | None = None
    catalog: str | None = None
    default_namespace: str | None = None
    location: str | None = None
    wait_seconds: float = 300.0
    billing_project: str | None = None
    staging_namespace: str | None = None
    credentials: ResourceDependency[Any] = Field(default=None, repr=False)  # type: ignore[arg-type]  # any object

    _engine: WarehouseEngine | None = PrivateAttr(default=None)
    _making: threading.Lock = PrivateAttr(default_factory=threading.Lock)

    @property
    def settings(self) -> WarehouseSettings:
        """The warehouse that is configured, read anew each time.

        Raises:
            WarehouseConfigurationError: A variable is missing or invalid; it is named.
        """
        return WarehouseSettings.from_environ(
            os.environ,
            engine=self.engine,
            catalog=self.catalog,
            default_namespace=self.default_namespace,
            location=self.location,
            wait_seconds=self.wait_seconds,
            billing_project=self.billing_project,
            staging_namespace=self.staging_namespace,
            credentials=self.credentials,
        )

    def table(self, *, name: str, namespace: str | None = None) -> ir.Table:
        """Gives a lazy Ibis table of the warehouse.

        Args:
            name: The table.
            namespace: Its namespace; the default one when left out.

        Raises:
            WarehouseConfigurationError: The warehouse is not configured.
            WarehouseReadError: There is no such table.
            WarehouseConnectionError: The warehouse cannot be asked.
        """
        settings = self.settings
        return self.open_engine().read(
            TableRef(
                catalog=settings.catalog,
                namespace=namespace or settings.default_namespace,
                name=name,
            )
        )

    # What comes back depends on the expression: a frame, a series or a plain value.
    def execute(self, expression: ir.Expr, *, limit: int | None = None) -> Any:
        """Runs an expression and gives its result: a pandas frame, a series or a plain value.

        Args:
            expression: A table, column or scalar of the warehouse.
            limit: The largest number of rows to fetch; all of them when left out.

        Raises:
            WarehouseReadError: The expression cannot be computed.
            WarehouseConnectionError: The warehouse cannot be reached.
        """
        return expression.execute(limit=limit)

    def open_engine(self) -> WarehouseEngine:
        """Gives the engine that this resource's threads share; opens no connection by itself.

        Raises:
            WarehouseConfigurationError: The warehouse is not configured, or cannot work here.
        """
        with self._making:
            if self._engine is None:
                self._engine = create_engine(self.settings)
            return self._engine

    def teardown_after_execution(self, context: InitResourceContext) -> None:  # noqa: ARG002
        """Gives back what the engine holds open."""
        with self._making:
            if self._engine is not None:
                self._engine.close()
