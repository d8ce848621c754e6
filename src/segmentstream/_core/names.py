"""The one home of names that several parts must agree on: resource keys, variables, identifiers.

Imports the standard library only.
"""

from __future__ import annotations

import re
import string

WAREHOUSE_RESOURCE_KEY = "warehouse"
WAREHOUSE_IO_MANAGER_KEY = "warehouse_io"

ENGINE_VARIABLE = "SEGMENTSTREAM_WAREHOUSE_ENGINE"
CATALOG_VARIABLE = "SEGMENTSTREAM_WAREHOUSE_CATALOG"
DEFAULT_NAMESPACE_VARIABLE = "SEGMENTSTREAM_WAREHOUSE_DEFAULT_NAMESPACE"
LOCATION_VARIABLE = "SEGMENTSTREAM_WAREHOUSE_LOCATION"
BILLING_PROJECT_VARIABLE = "SEGMENTSTREAM_WAREHOUSE_BILLING_PROJECT"
STAGING_NAMESPACE_VARIABLE = "SEGMENTSTREAM_WAREHOUSE_STAGING_NAMESPACE"
EMULATOR_VARIABLE = "BIGQUERY_EMULATOR_HOST"  # the name that Google's own clients read

_LOWER_ASCII = str.maketrans(string.ascii_uppercase, string.ascii_lowercase)
_CONTROL_CHARACTER = re.compile(r"[\x00-\x1f\x7f]")


def identifier_problem(name: str) -> str | None:
    """Says why no engine can carry `name` as an identifier, or None where one may.

    Only what holds everywhere is ruled out here; each engine adds its own rules. A name is
    never changed to make it fit.
    """
    if not name:
        return "is empty"
    if name != name.strip():
        return "begins or ends with white space"
    if _CONTROL_CHARACTER.search(name):
        return "contains a control character"
    return None


def fold_case(name: str) -> str:
    """Gives what is the same for all names that a warehouse takes for one.

    Only the letters a to z fold, as in DuckDB: to it `Ö` and `ö` are two names. Python's own
    `casefold` and SQL's `lower` would make one of them.
    """
    return name.translate(_LOWER_ASCII)


# Connections. Each pattern is meant for `fullmatch`: with `match` and `$`, a final line break
# would pass.
CONNECTION_KEY = re.compile(r"[a-z][a-z0-9_]{0,63}")
CONNECTION_PROVIDER = re.compile(r"[a-z][a-z0-9-]{0,63}")
CONNECTION_NAME_LENGTHS = range(2, 81)

SECRET_NAME = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")
SECRET_NAME_LENGTHS = range(2, 81)
SECRET_VARIABLE_PREFIX = "SEGMENTSTREAM_CONNECTION_SECRET_"  # noqa: S105 - names a variable
