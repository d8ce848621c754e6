"""The mode that becomes the web server, up to the moment at which it does.

What it is from then on is tried in `tests/cloud_run/test_images.py`.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from runtime.shops import Shop
from segmentstream.runtime import webserver
from segmentstream.runtime.exits import Exit, RunRefusedError
from segmentstream.runtime.settings import InstanceSettings, WebserverSettings

WEBSERVER = {"SEGMENTSTREAM_DAGSTER_MODE": "webserver"}


def test_tables_of_another_release_are_not_served(shop: Shop) -> None:
    """The server is not started on tables that its release cannot read."""
    shop.postgres.run("UPDATE alembic_version SET version_num = '7e2f3204cf8e'", url=shop.url)
    ended = shop.run("lookup", **WEBSERVER)
    assert ended.code == Exit.SCHEMA, ended.told
    assert "listens" not in ended.told


def test_a_port_that_is_none_is_named(shop: Shop) -> None:
    """The variable is named, and no job is run instead."""
    ended = shop.run("lookup", **WEBSERVER, PORT="http")
    assert ended.code == Exit.CONFIGURATION
    assert "PORT is 'http'" in ended.told
    assert shop.statuses() == []


def test_it_listens_for_this_machine_unless_told_otherwise() -> None:
    """The server asks nobody who they are, so other addresses are asked for by name."""
    assert WebserverSettings.from_environ({}).host == "127.0.0.1"
    elsewhere = {"SEGMENTSTREAM_DAGSTER_WEBSERVER_HOST": "0.0.0.0", "PORT": "8080"}
    assert WebserverSettings.from_environ(elsewhere) == WebserverSettings(host="0.0.0.0", port=8080)


def test_a_workspace_without_the_server_is_told_so(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The package that is missing is named, before Postgres is asked for anything."""
    monkeypatch.setattr(webserver, "_PACKAGE", "dagster_webserver_that_is_missing")
    with pytest.raises(RunRefusedError, match="Add it to the dependencies") as refused:
        webserver.become_webserver(InstanceSettings(home=tmp_path), {})
    assert refused.value.exit is Exit.CONFIGURATION
