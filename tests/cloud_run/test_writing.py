from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from segmentstream._cloud_run.writing import RECORD, KitRecordError, write_kit

KIT = {"a.yaml": "a: 1\n", "more/run.sh": "#!/bin/sh\n"}


def test_a_kit_is_written_and_written_again(tmp_path: Path) -> None:
    """The first time writes everything, scripts to be run; the second time nothing."""
    assert write_kit(tmp_path, KIT).written == ("a.yaml", "more/run.sh")
    assert {name: (tmp_path / name).read_text() for name in KIT} == KIT
    assert os.access(tmp_path / "more" / "run.sh", os.X_OK)
    again = write_kit(tmp_path, KIT)
    assert (again.written, again.unchanged) == ((), ("a.yaml", "more/run.sh"))


def test_what_nobody_changed_is_renewed(tmp_path: Path) -> None:
    """A file as it was last written is ours, and follows the options."""
    write_kit(tmp_path, KIT)
    assert write_kit(tmp_path, KIT | {"a.yaml": "a: 2\n"}).written == ("a.yaml",)


def test_what_a_person_changed_is_kept_until_it_is_forced(tmp_path: Path) -> None:
    """A change by hand that a new rendering would undo is told of each time, and stays."""
    write_kit(tmp_path, KIT)
    (tmp_path / "a.yaml").write_text("a: mine\n")
    newer = KIT | {"a.yaml": "a: 2\n"}
    for _ in range(2):
        assert write_kit(tmp_path, newer).kept == ("a.yaml",)
        assert (tmp_path / "a.yaml").read_text() == "a: mine\n"
    assert write_kit(tmp_path, newer, is_forced=True).written == ("a.yaml",)
    assert (tmp_path / "a.yaml").read_text() == "a: 2\n"


def test_a_change_that_nothing_undoes_is_not_told_of(tmp_path: Path) -> None:
    """While the kit itself stays as it was, a person's change is theirs."""
    write_kit(tmp_path, KIT)
    (tmp_path / "a.yaml").write_text("a: mine\n")
    assert write_kit(tmp_path, KIT).kept == ()
    assert (tmp_path / "a.yaml").read_text() == "a: mine\n"


def test_a_file_from_elsewhere_is_kept(tmp_path: Path) -> None:
    """What stood there before the first kit is a person's."""
    (tmp_path / "a.yaml").write_text("a: mine\n")
    assert write_kit(tmp_path, KIT).kept == ("a.yaml",)


def test_what_the_kit_has_no_more_is_removed(tmp_path: Path) -> None:
    """A schedule that is gone leaves no file, unless a person changed it."""
    write_kit(tmp_path, KIT)
    assert write_kit(tmp_path, {"a.yaml": "a: 1\n"}).removed == ("more/run.sh",)
    assert not (tmp_path / "more" / "run.sh").exists()
    (tmp_path / "a.yaml").write_text("a: mine\n")
    assert write_kit(tmp_path, {}).kept == ("a.yaml",)


@pytest.mark.parametrize(
    "record",
    [
        "",
        "[]",
        '{"version": 2, "files": {}}',
        json.dumps({"version": 1, "files": {"../outside": "0"}}),
        json.dumps({"version": 1, "files": {"/etc/passwd": "0"}}),
    ],
)
def test_a_record_that_cannot_be_read_is_refused(tmp_path: Path, record: str) -> None:
    """Nothing is written or removed on the word of a record that is none of ours."""
    (tmp_path / RECORD).write_text(record)
    with pytest.raises(KitRecordError):
        write_kit(tmp_path, KIT)
    assert not (tmp_path / "a.yaml").exists()
