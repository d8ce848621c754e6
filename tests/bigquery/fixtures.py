"""What tests of the BigQuery engine start from: a project of their own on the test server."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any
from uuid import uuid4

from google.auth.credentials import AnonymousCredentials
from google.cloud import bigquery

from segmentstream._warehouse.settings import WarehouseSettings
from segmentstream._warehouse.tables import TableRef

type RunSql = Callable[[str, TableRef], None]


def new_settings(url: str, **changes: Any) -> WarehouseSettings:
    """A warehouse that nobody else uses, on the server at that address."""
    usual = WarehouseSettings(
        engine="bigquery",
        catalog=f"test-{uuid4().hex[:12]}",
        default_namespace="main",
        endpoint=url,
        wait_seconds=30,
    )
    return replace(usual, **changes)


def new_client(url: str, project: str) -> bigquery.Client:
    """A client of the server that the SDK has nothing to do with."""
    return bigquery.Client(
        project=project,
        credentials=AnonymousCredentials(),
        client_options={"api_endpoint": url},
    )
