"""What an asset may return, checked before anything is opened; imports Ibis and `_core`."""

from __future__ import annotations

from typing import NoReturn

import ibis.expr.operations as ops
import ibis.expr.types as ir
from ibis.backends import BaseBackend

from segmentstream._core.errors import (
    WarehouseConfigurationError,
    WarehouseMaterializationError,
)
from segmentstream._core.names import WAREHOUSE_IO_MANAGER_KEY


def refuse_pickling() -> NoReturn:
    """Says why a table of the warehouse cannot be pickled; a backend calls it when it would be.

    Raises:
        WarehouseConfigurationError: Always.
    """
    raise WarehouseConfigurationError(
        "An Ibis table of the warehouse was about to be pickled. That happens when an asset "
        "returns it without the warehouse's IO manager: its rows would be stored nowhere.",
        f"Set io_manager_key={WAREHOUSE_IO_MANAGER_KEY!r} on the asset.",
    )


def check_table(value: object) -> ir.Table:
    """Gives `value` back when it is a table expression.

    Raises:
        WarehouseMaterializationError: It is something else; says what to return instead.
    """
    if not isinstance(value, ir.Table):
        raise _not_a_table(value)
    return value


def check_bound(rows: ir.Table, *, backend: BaseBackend) -> None:
    """Checks that `backend` can compute an expression.

    Raises:
        WarehouseMaterializationError: It reads another connection, or a table bound to none.
    """
    for table in rows.op().find((ops.UnboundTable, ops.DatabaseTable, ops.SQLQueryResult)):
        if isinstance(table, ops.UnboundTable):
            raise WarehouseMaterializationError(
                f"The expression reads {table.name!r}, an unbound table that no warehouse holds.",
                "Take the table as an input of the asset, or from WarehouseResource.table().",
            )
        if table.source != backend:
            raise WarehouseMaterializationError(
                f"The expression reads {table.name!r} through another connection than the "
                "warehouse's.",
                "Take the table as an input of the asset, or from WarehouseResource.table(); bring "
                "outside data in with ibis.memtable(...).",
            )


def _not_a_table(value: object) -> WarehouseMaterializationError:
    kind = f"{type(value).__module__}.{type(value).__qualname__}"
    if value is None:
        return WarehouseMaterializationError(
            "The asset returned None instead of an Ibis table expression.",
            "Return the expression, or annotate the function `-> None` when it writes nothing.",
        )
    if isinstance(value, ir.Expr):
        return WarehouseMaterializationError(
            f"The asset returned an Ibis {type(value).__name__}, not a table.",
            "Return a table, for example with `.as_table()`.",
        )
    return WarehouseMaterializationError(
        f"The asset returned a {kind} instead of an Ibis table expression.",
        "Return an expression; wrap rows that are in memory with ibis.memtable(rows).",
    )
