"""The BigQuery API that tests talk to."""

from collections.abc import Iterator

import pytest

from bigquery.emulator import Emulator, EmulatorError, running_emulator
from bigquery.judge_fixtures import judge

__all__ = ["emulator", "judge"]


@pytest.fixture(scope="session")
def emulator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Emulator]:
    """A BigQuery API server; one for each pytest process, started when a test asks for it."""
    try:
        with running_emulator(tmp_path_factory.mktemp("emulator") / "output.txt") as running:
            yield running
    except EmulatorError as error:
        pytest.fail(str(error), pytrace=False)
