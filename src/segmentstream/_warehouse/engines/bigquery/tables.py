"""Tables as BigQuery describes them: looked up, created with their full spec, compared, patched.

Imports google-cloud-bigquery, Ibis and `_warehouse`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from datetime import UTC, date, datetime, timedelta

from google.api_core.exceptions import GoogleAPICallError, NotFound, PreconditionFailed
from google.cloud import bigquery

from segmentstream._core.errors import (
    WarehouseConfigurationError,
    WarehouseMaterializationError,
)
from segmentstream._core.names import LOCATION_VARIABLE, fold_case
from segmentstream._warehouse.columns import Column, ColumnPlan
from segmentstream._warehouse.engine import TableInfo
from segmentstream._warehouse.engines.bigquery.client import REQUEST_SECONDS, Clients
from segmentstream._warehouse.engines.bigquery.errors import meaning_of
from segmentstream._warehouse.engines.bigquery.types import field_of, schema_of
from segmentstream._warehouse.options import TableOptions
from segmentstream._warehouse.partitions import describe_dates
from segmentstream._warehouse.tables import TableRef

_PATCH_ATTEMPTS = 5
_DAY_MILLISECONDS = 24 * 60 * 60 * 1000
_KINDS = {
    "EXTERNAL": "an external table",
    "MATERIALIZED_VIEW": "a materialized view",
    "SNAPSHOT": "a snapshot",
}
_MOVE = (
    "move the table away (`ALTER TABLE ... RENAME TO`), let the asset make a new one and copy the "
    "rows; nothing is dropped for you."
)
_MISSING_TABLE = ("not found: table", "not found: dataset")


class Tables:
    """Asks for one table at a time, never for a list."""

    def __init__(self, clients: Clients, *, now: Callable[[], datetime] | None = None) -> None:
        self._clients = clients
        self._now = now or (lambda: datetime.now(UTC))

    def find(self, table: TableRef) -> bigquery.Table | None:
        """Looks a table up; None only when BigQuery says that there is no such table or dataset."""
        try:
            return self._clients.rest.get_table(
                reference(table), retry=self._clients.retry(), timeout=REQUEST_SECONDS
            )
        except NotFound as error:
            # Anything else that is not found, such as the project, is no missing table.
            if any(text in str(error.message).lower() for text in _MISSING_TABLE):
                return None
            raise

    def ensure_dataset(self, namespace: str) -> str:
        """Gives the location of a dataset, which is created only when there is none.

        Raises:
            WarehouseConfigurationError: It may not be created, or lives in another location.
        """
        place = bigquery.DatasetReference(self._clients.project, namespace)
        try:
            found = self._clients.rest.get_dataset(
                place, retry=self._clients.retry(), timeout=REQUEST_SECONDS
            )
        except NotFound:
            found = self._create_dataset(place)
        location = str(found.location or "")
        self._check_location(f"The dataset {place.project}.{place.dataset_id}", location)
        return location

    def check_location(self, found: bigquery.Table) -> None:
        """Refuses a table that lives elsewhere than the settings say, where its jobs would fail."""
        self._check_location(f"The table {found.full_table_id}", found.location)

    def create(
        self,
        table: TableRef,
        columns: Iterable[Column],
        day: str | None,
        options: TableOptions,
        *,
        expires_in: timedelta | None = None,
    ) -> bigquery.Table:
        """Makes an empty table, or gives the one that another writer made just now."""
        fields = [field_of(column, _description_of(column.name, options)) for column in columns]
        wanted = bigquery.Table(reference(table), schema=fields)
        if day:
            wanted.time_partitioning = bigquery.TimePartitioning(
                type_=bigquery.TimePartitioningType.DAY,
                field=day,
                expiration_ms=_expiration(options),
            )
            if options.require_partition_filter is not None:
                wanted.require_partition_filter = options.require_partition_filter
        if options.cluster_by:
            wanted.clustering_fields = _clustering(options, [field.name for field in fields])
        if options.description is not None:
            wanted.description = options.description
        if options.labels:
            wanted.labels = dict(options.labels)
        if expires_in:
            wanted.expires = self._now() + expires_in
        return self._clients.rest.create_table(
            wanted, exists_ok=True, retry=self._clients.retry(), timeout=REQUEST_SECONDS
        )

    def check_spec(self, found: bigquery.Table, day: str | None, options: TableOptions) -> None:
        """Refuses a table that is kept in another way than the asset declares.

        Raises:
            WarehouseMaterializationError: Shows what was found and what is wanted.
        """
        wanted, is_kept = _shown_partitioning(day), _shown_partitioning_of(found)
        if day and fold_case(wanted) != fold_case(is_kept):
            raise self._other_spec(found, is_kept, wanted)
        clustering = list(found.clustering_fields or [])
        if options.cluster_by and _folded(options.cluster_by) != _folded(clustering):
            raise self._other_spec(
                found,
                f"clustered by {', '.join(clustering)}" if clustering else "not clustered",
                f"clustered by {', '.join(options.cluster_by)}",
            )

    def check_replaceable(self, found: bigquery.Table, names: Collection[str]) -> list[str]:
        """Gives the clustering of a table that is made anew with columns of these names.

        Raises:
            WarehouseMaterializationError: It would be partitioned or clustered in another way,
                which BigQuery refuses.
        """
        if (is_kept := _shown_partitioning_of(found)) != _shown_partitioning(None):
            raise self._not_replaceable(found, is_kept, "it would have no partitions")
        spelled = {fold_case(name): name for name in names}
        clustering = list(found.clustering_fields or [])
        if gone := [name for name in clustering if fold_case(name) not in spelled]:
            is_kept = f"clustered by {', '.join(clustering)}"
            raise self._not_replaceable(found, is_kept, f"it would have no {', '.join(gone)}")
        return [spelled[fold_case(name)] for name in clustering]

    def check_expiry(
        self,
        table: TableRef,
        found: bigquery.Table | None,
        dates: Collection[date],
        options: TableOptions,
    ) -> None:
        """Refuses dates whose rows BigQuery would delete as soon as they are written.

        What the asset declares is what the table will have when they are.

        Raises:
            WarehouseMaterializationError: Names the dates and the table's expiry.
        """
        partitioning = found.time_partitioning if found else None
        expiration = _expiration(options) or (partitioning and partitioning.expiration_ms)
        if not expiration:
            return
        kept_for = timedelta(milliseconds=int(expiration))
        oldest = self._now() - kept_for
        expired = {
            day for day in dates if datetime(day.year, day.month, day.day, tzinfo=UTC) <= oldest
        }
        if expired:
            raise WarehouseMaterializationError(
                f"{table} keeps a date for {kept_for.days} days, so the rows of "
                f"{describe_dates(expired)} would be deleted at once. Nothing was written.",
                "Select later dates, or raise partition_expiration_days.",
            )

    def patch(
        self, found: bigquery.Table, plan: ColumnPlan, options: TableOptions
    ) -> bigquery.Table:
        """Changes what differs from the declaration, and asks for nothing where nothing does."""
        for attempt in range(_PATCH_ATTEMPTS):
            changed = _apply(found, plan, options)
            if not changed:
                break
            try:
                return self._clients.rest.update_table(
                    found, changed, retry=self._clients.retry(), timeout=REQUEST_SECONDS
                )
            except PreconditionFailed:
                if attempt + 1 == _PATCH_ATTEMPTS:
                    raise
                found = self._clients.rest.get_table(
                    found.reference, retry=self._clients.retry(), timeout=REQUEST_SECONDS
                )
        return found

    def has_row_policies(self, table: TableRef) -> bool:
        """Says whether row access policies protect a table."""
        path = f"{reference(table).path}/rowAccessPolicies"
        answer = self._clients.rest._call_api(  # noqa: SLF001 - the client has no method for it
            self._clients.retry(), method="GET", path=path, timeout=REQUEST_SECONDS
        )
        return bool(answer.get("rowAccessPolicies"))

    def _create_dataset(self, place: bigquery.DatasetReference) -> bigquery.Dataset:
        wanted = bigquery.Dataset(place)
        if self._clients.location:
            wanted.location = self._clients.location
        try:
            return self._clients.rest.create_dataset(
                wanted, exists_ok=True, retry=self._clients.retry(), timeout=REQUEST_SECONDS
            )
        except GoogleAPICallError as error:
            if meaning_of(error).kind != "configuration":
                raise
            raise WarehouseConfigurationError(
                f"The dataset {place.dataset_id} of project {place.project} does not exist and "
                f"could not be created: {error.message}",
                "Create it, or let the account create datasets (bigquery.datasets.create).",
            ) from error

    def _check_location(self, what: str, location: str | None) -> None:
        wanted = self._clients.location
        if wanted and location and wanted.lower() != location.lower():
            raise WarehouseConfigurationError(
                f"{what} lives in {location}, and {LOCATION_VARIABLE} is {wanted!r}.",
                "Set the variable to the location of the data, or use another dataset; BigQuery "
                "moves no data between locations.",
            )

    def _not_replaceable(
        self, found: bigquery.Table, is_kept: str, problem: str
    ) -> WarehouseMaterializationError:
        return WarehouseMaterializationError(
            f"{found.full_table_id} is {is_kept}, and the asset's columns have changed in a way "
            f"that needs a new table: {problem}. Nothing was written.",
            f"Keep the columns and add new ones only, or {_MOVE}",
        )

    def _other_spec(
        self, found: bigquery.Table, is_kept: str, wanted: str
    ) -> WarehouseMaterializationError:
        return WarehouseMaterializationError(
            f"{found.full_table_id} is {is_kept}; the asset declares one that is {wanted}. "
            "Nothing was written.",
            f"Correct the declaration, or {_MOVE}",
        )


def reference(table: TableRef) -> bigquery.TableReference:
    """Names a table for the client."""
    return bigquery.TableReference(
        bigquery.DatasetReference(table.catalog, table.namespace), table.name
    )


def info_of(table: TableRef, found: bigquery.Table) -> TableInfo:
    """Describes a table in the terms of every engine."""
    return TableInfo(
        table=table,
        kind="table" if found.table_type == "TABLE" else "view",
        schema=schema_of(found.schema),
        partition_column=_daily_column(found),
        uri=uri_of(table),
    )


def kind_of(found: bigquery.Table) -> str:
    """Says what a table that cannot be written is."""
    return _KINDS.get(str(found.table_type), "a view")


def uri_of(table: TableRef) -> str:
    """Gives the address at which BigQuery's own tools know a table."""
    return f"bq://{table.catalog}.{table.namespace}.{table.name}"


def policy_tagged(found: bigquery.Table) -> list[str]:
    """Gives the columns that a policy tag protects."""
    return [field.name for field in found.schema if field.policy_tags and field.policy_tags.names]


def _daily_column(found: bigquery.Table) -> str | None:
    partitioning = found.time_partitioning
    if partitioning is None or partitioning.type_ != bigquery.TimePartitioningType.DAY:
        return None
    is_date = any(
        field.name == partitioning.field and field.field_type == "DATE" for field in found.schema
    )
    return str(partitioning.field) if is_date else None


def _shown_partitioning(day: str | None) -> str:
    return f"partitioned by DAY on {day!r}" if day else "not partitioned"


def _shown_partitioning_of(found: bigquery.Table) -> str:
    if found.range_partitioning is not None:
        return f"partitioned by ranges of {found.range_partitioning.field!r}"
    if found.time_partitioning is None:
        return "not partitioned"
    field = found.time_partitioning.field
    by = repr(field) if field else "the time of ingestion"
    return f"partitioned by {found.time_partitioning.type_} on {by}"


def _clustering(options: TableOptions, names: Collection[str]) -> list[str]:
    """Gives the clustering columns as the table spells them.

    Raises:
        WarehouseMaterializationError: The table has no such column.
    """
    spelled = {fold_case(name): name for name in names}
    missing = [name for name in options.cluster_by if fold_case(name) not in spelled]
    if missing:
        raise WarehouseMaterializationError(
            f"cluster_by names {', '.join(missing)}, and the columns are {', '.join(names)}.",
            "Correct cluster_by, or return the column.",
        )
    return [spelled[name] for name in _folded(options.cluster_by)]


def _folded(names: Iterable[str]) -> list[str]:
    return [fold_case(name) for name in names]


def _description_of(column: str, options: TableOptions) -> str | None:
    return next(
        (
            text
            for name, text in options.column_descriptions.items()
            if fold_case(name) == fold_case(column)
        ),
        None,
    )


def _expiration(options: TableOptions) -> int | None:
    days = options.partition_expiration_days
    return None if days is None else days * _DAY_MILLISECONDS


def _apply(found: bigquery.Table, plan: ColumnPlan, options: TableOptions) -> list[str]:
    """Sets what differs on the description of a table and names what was set."""
    changed = []
    fields = _changed_fields(found, plan, options)
    if fields is not None:
        found.schema = fields
        changed.append("schema")
    if options.description is not None and options.description != (found.description or ""):
        found.description = options.description
        changed.append("description")
    if not options.labels.items() <= found.labels.items():
        found.labels = {**found.labels, **options.labels}
        changed.append("labels")
    wants_filter = options.require_partition_filter
    if wants_filter is not None and wants_filter != bool(found.require_partition_filter):
        found.require_partition_filter = wants_filter
        changed.append("require_partition_filter")
    expiration, partitioning = _expiration(options), found.time_partitioning
    if expiration and partitioning and partitioning.expiration_ms != expiration:
        partitioning.expiration_ms = expiration
        found.time_partitioning = partitioning
        changed.append("time_partitioning")
    return changed


def _changed_fields(
    found: bigquery.Table, plan: ColumnPlan, options: TableOptions
) -> list[bigquery.SchemaField] | None:
    there = {fold_case(field.name) for field in found.schema}
    fields = [_with_description(field, options) for field in found.schema] + [
        field_of(column, _description_of(column.name, options))
        for column in plan.added
        if fold_case(column.name) not in there
    ]
    return None if fields == list(found.schema) else fields


def _with_description(field: bigquery.SchemaField, options: TableOptions) -> bigquery.SchemaField:
    text = _description_of(field.name, options)
    if text is None or text == (field.description or ""):
        return field
    return bigquery.SchemaField.from_api_repr(field.to_api_repr() | {"description": text})
