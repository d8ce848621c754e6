"""Keeps what assets return in the warehouse and loads what they take from it.

Imports Dagster, `_warehouse` and `_core`. Annotations are not postponed here: Dagster reads those
of the IO manager's fields as objects.
"""

import typing
from collections.abc import Mapping
from typing import Any

import ibis.expr.types as ir
from dagster import (
    AllPartitionMapping,
    AssetExecutionContext,
    AssetKey,
    AssetsDefinition,
    ConfigurableIOManager,
    DagsterInvariantViolationError,
    InitResourceContext,
    InputContext,
    OutputContext,
    ResourceDependency,
)

from segmentstream._core.errors import (
    WarehouseConfigurationError,
    WarehouseMaterializationError,
    WarehouseReadError,
)
from segmentstream._core.names import WAREHOUSE_IO_MANAGER_KEY, WAREHOUSE_RESOURCE_KEY
from segmentstream._dagster.declarations import WarehouseAsset, dates_of, read_declaration
from segmentstream._dagster.metadata import (
    PARTITION_ROW_COUNT,
    describe_write,
    partition_column_of,
    table_options_of,
)
from segmentstream._dagster.preflight import check_run
from segmentstream._dagster.resource import WarehouseResource
from segmentstream._warehouse.columns import find_partition_column
from segmentstream._warehouse.engine import WriteResult
from segmentstream._warehouse.expressions import check_table
from segmentstream._warehouse.options import TableOptions
from segmentstream._warehouse.partitions import describe_dates, rows_of_dates


def warehouse_resources(*, warehouse: WarehouseResource | None = None) -> dict[str, Any]:
    """Gives the resources of a workspace; pass the result to `Definitions(resources=...)`.

    Args:
        warehouse: Which warehouse to use; one configured by variables when left out.

    Returns:
        The IO manager as `warehouse_io` and the warehouse itself as `warehouse`.
    """
    warehouse = warehouse or WarehouseResource()
    return {
        WAREHOUSE_IO_MANAGER_KEY: WarehouseIOManager(warehouse=warehouse),
        WAREHOUSE_RESOURCE_KEY: warehouse,
    }


class WarehouseIOManager(ConfigurableIOManager):
    """Writes the Ibis table expression an asset returns, and gives inputs as lazy Ibis tables.

    Attributes:
        warehouse: The warehouse that holds the tables.
    """

    warehouse: ResourceDependency[WarehouseResource]

    def setup_for_execution(self, context: InitResourceContext) -> None:
        """Finds what is wrong with the settings and the run's assets before any of them runs.

        Raises:
            WarehouseConfigurationError: Names what is wrong; nothing was run or written.
        """
        engine = self.warehouse.open_engine()
        check_run(context, self.warehouse.settings, engine.capabilities)

    def handle_output(self, context: OutputContext, obj: object) -> None:
        """Replaces the asset's table, or exactly the dates of this run.

        Raises:
            WarehouseError: The write was refused or failed; the table is as it was.
        """
        asset = self._written_asset(context)
        engine = self.warehouse.open_engine()
        rows = check_table(obj)
        options, labels = _options_of(context), _labels_of(context)
        if asset.partition_column is None:
            result = engine.replace(asset.table, rows, options=options, labels=labels)
        else:
            dates = dates_of(context.asset_partition_keys)
            result = engine.replace_partitions(
                asset.table,
                rows,
                asset.partition_column,
                dates,
                options=options,
                labels=labels,
            )
        _report(context, result, storage_kind=engine.capabilities.storage_kind)

    def load_input(self, context: InputContext) -> ir.Table:
        """Gives the upstream table, filtered to the dates that this run maps to.

        Raises:
            WarehouseConfigurationError: The upstream asset is declared in a way that cannot work.
            WarehouseReadError: The upstream table does not exist.
        """
        _refuse_other_types(context)
        asset = self._loaded_asset(context)
        table = self._read(asset)
        column = partition_column_of(context.definition_metadata) or asset.partition_column
        if column is None or not _is_sliced(context):
            return table
        dates = dates_of(context.asset_partition_keys)
        return rows_of_dates(table, _date_column(table, column, asset), dates)

    def _read(self, asset: WarehouseAsset) -> ir.Table:
        try:
            return self.warehouse.open_engine().read(asset.table)
        except WarehouseReadError as error:
            consumer = _consumer()
            if consumer is None or asset.key not in consumer.keys:
                raise
            raise WarehouseReadError(
                error.problem,
                "The asset takes its own table as an input, so nothing can write it first: make it "
                "empty with its columns once, or take it inside the function, from "
                "WarehouseResource.table(), and handle this error there.",
            ) from error

    def _written_asset(self, context: OutputContext) -> WarehouseAsset:
        if not context.has_asset_key:
            raise WarehouseConfigurationError(
                f"The output {context.name!r} of {context.step_key!r} belongs to no asset, so it "
                "has no table.",
                "Use the warehouse's IO manager on assets only.",
            )
        partitions_def = context.asset_partitions_def if context.has_asset_partitions else None
        return read_declaration(
            context.asset_key,
            context.definition_metadata,
            partitions_def,
            self.warehouse.settings,
        )

    def _loaded_asset(self, context: InputContext) -> WarehouseAsset:
        if not context.has_asset_key:
            raise WarehouseConfigurationError(
                f"The input {context.name!r} belongs to no asset, so there is no table to load.",
                "Take an asset as the input.",
            )
        upstream = context.upstream_output
        return read_declaration(
            context.asset_key,
            upstream.definition_metadata if upstream else {},
            context.asset_partitions_def if context.has_asset_partitions else None,
            self.warehouse.settings,
        )


def _options_of(context: OutputContext) -> TableOptions:
    return table_options_of(context.definition_metadata, context.asset_spec.description)


def _labels_of(context: OutputContext) -> dict[str, str]:
    """Says what a job is for, so that its cost can be told by run and by asset."""
    return {
        "dagster_run_id": context.run_id,
        "dagster_asset": "-".join(context.asset_key.path),
        "dagster_step": context.step_key,
    }


def _is_sliced(context: InputContext) -> bool:
    """Says whether the input is some of the upstream partitions rather than the whole table.

    Every partition is the whole table to what has no partitions and no mapping of its own. It is
    no more than those days where a mapping selects them, as on the first day of the upstream.
    """
    if not context.has_asset_partitions:
        return False
    consumer = _consumer()
    if consumer is not None and _selects_days(consumer, context.asset_key):
        return True
    every_key = context.asset_partitions_def.get_partition_keys()
    return set(context.asset_partition_keys) != set(every_key)


def _selects_days(consumer: AssetsDefinition, upstream: AssetKey) -> bool:
    if consumer.partitions_def is not None:
        return True
    mappings = (
        dep.partition_mapping
        for spec in consumer.specs
        for dep in spec.deps
        if dep.asset_key == upstream
    )
    # Compared with None: a mapping without fields is an empty tuple, and false.
    return any(
        mapping is not None and not isinstance(mapping, AllPartitionMapping) for mapping in mappings
    )


def _consumer() -> AssetsDefinition | None:
    """Gives the asset that is being computed; None in an asset check or an op of its own."""
    try:
        context = AssetExecutionContext.get()
    except DagsterInvariantViolationError:
        return None
    return context.assets_def if context.has_assets_def else None


def _date_column(table: ir.Table, column: str, asset: WarehouseAsset) -> str:
    place = f"the table {asset.table.namespace}.{asset.table.name}"
    try:
        return find_partition_column(table.schema(), column, of=place)
    except WarehouseMaterializationError as error:
        raise WarehouseConfigurationError(
            error.problem, "Name a DATE column of that table in partition_by_date."
        ) from error


def _refuse_other_types(context: InputContext) -> None:
    wanted = context.dagster_type.typing_type
    if wanted is Any or not isinstance(wanted, type) or typing.get_origin(wanted):
        return
    if not issubclass(ir.Table, wanted):
        raise WarehouseConfigurationError(
            f"The input {context.name!r} is annotated as "
            f"{wanted.__module__}.{wanted.__qualname__}; the warehouse gives an Ibis table.",
            "Annotate it as ibis.Table, and call .to_pandas() or .to_pyarrow() on it where rows in "
            "memory are needed.",
        )


def _report(context: OutputContext, result: WriteResult, *, storage_kind: str) -> None:
    told = describe_write(result, storage_kind=storage_kind)
    own = context.output_metadata
    by_date = result.rows_by_date or {}
    if len(by_date) == 1:
        told[PARTITION_ROW_COUNT] = result.rows
    elif PARTITION_ROW_COUNT not in own:
        _report_by_date(context, {day.isoformat(): rows for day, rows in by_date.items()})
    context.add_output_metadata({key: value for key, value in told.items() if key not in own})
    of_dates = f" of {describe_dates(by_date)}" if by_date else ""
    rows = "the" if result.rows is None else f"{result.rows:,}"
    context.log.info("Wrote %s rows%s to %s.", rows, of_dates, result.table)


def _report_by_date(context: OutputContext, rows_by_key: Mapping[str, int]) -> None:
    # What is added to the output is stamped on every partition's event; the number of rows is
    # each partition's own. It must not fail a run whose write has committed.
    try:
        asset_context = AssetExecutionContext.get()
        for key, rows in rows_by_key.items():
            asset_context.add_asset_metadata(
                {PARTITION_ROW_COUNT: rows}, asset_key=context.asset_key, partition_key=key
            )
    except DagsterInvariantViolationError as error:
        context.log.debug("The rows of each day cannot be told: %s", error)
