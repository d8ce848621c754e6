"""The fixture of the judge; the `conftest.py` beside it imports it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from bigquery.judge import Judge


@pytest.fixture(scope="session")
def judge() -> Iterator[Judge]:
    """What says whether BigQuery would take a statement."""
    if not Judge.is_installed():
        pytest.skip("needs ZetaSQL: make .venv-zetasql/ready")
    with Judge() as judge:
        yield judge
