from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cloud_run import kits
from cloud_run.published import annotations_of, problems
from segmentstream._clients.settings import URL_VARIABLE
from segmentstream._cloud_run import names
from segmentstream._warehouse.settings import WarehouseSettings
from segmentstream.runtime.settings import InstanceSettings, Mode, WebserverSettings, mode_of
from segmentstream_connections_runtime.settings import CredentialSettings

KIT = kits.kit()
DOCUMENTS = [name for name in KIT if name.endswith(".yaml") and name != "compose.yaml"]
ENTRIES = [name for name in KIT if name.startswith("scheduler/")]


@pytest.mark.parametrize("name", DOCUMENTS)
def test_cloud_run_knows_every_field(name: str) -> None:
    """Each document is what Google publishes of jobs and services, without a field of its own."""
    document = kits.loaded(KIT[name])
    assert problems("run.v1", document["kind"], document) == []


@pytest.mark.parametrize("name", ENTRIES)
def test_cloud_scheduler_knows_every_field(name: str) -> None:
    """Each entry is what Google publishes of entries, and sets nothing that the server tells."""
    assert problems("cloudscheduler.v1", "Job", json.loads(KIT[name])) == []


def test_a_misspelt_field_would_be_noticed() -> None:
    """The schema refuses a field, a type and a state that the server alone may tell."""
    job = kits.loaded(KIT["pipeline.yaml"])
    task = job["spec"]["template"]["spec"]["template"]["spec"]
    task["maxRetry"] = task.pop("maxRetries")
    assert any("maxRetry" in each for each in problems("run.v1", "Job", job))
    service = kits.loaded(KIT["webserver.yaml"])
    service["spec"]["template"]["spec"]["timeoutSeconds"] = "long"
    assert problems("run.v1", "Service", service)
    entry = json.loads(KIT[ENTRIES[0]])
    assert problems("cloudscheduler.v1", "Job", entry | {"state": "PAUSED"})
    assert problems("cloudscheduler.v1", "Job", entry | {"attemptDeadline": "3 minutes"})


@pytest.mark.parametrize("name", DOCUMENTS)
def test_annotations_stand_where_cloud_run_takes_them(name: str) -> None:
    """Google lists which annotation belongs on which resource; one elsewhere is refused there."""
    document = kits.loaded(KIT[name])
    kind = document["kind"]
    assert document["metadata"].get("annotations", {}).keys() <= annotations_of(kind)
    template = document["spec"]["template"]["metadata"]["annotations"]
    assert template.keys() <= annotations_of({"Job": "Execution", "Service": "Revision"}[kind])


@pytest.mark.parametrize("name", [each for each in DOCUMENTS if each.startswith(("s", "p"))])
def test_a_run_has_what_the_runtime_reads(name: str) -> None:
    """The variables of a job lead the runtime to the warehouse and to the socket of Cloud SQL."""
    environ = _environ(name) | {"DAGSTER_HOME": "/tmp/dagster"}
    instance = InstanceSettings.from_environ(environ)
    assert instance.url is not None
    assert instance.url.query == {"host": "/cloudsql/acme-data:europe-west1:shop-dagster"}
    warehouse = WarehouseSettings.from_environ(environ)
    assert (warehouse.engine, warehouse.catalog) == ("bigquery", "acme-data")
    assert (warehouse.default_namespace, warehouse.location) == ("analytics", "EU")
    assert environ[URL_VARIABLE] == "https://shop-connections-123456789012.europe-west1.run.app"
    assert mode_of(environ) is Mode.EXECUTE


def test_modes_and_ports_are_those_of_the_runtime() -> None:
    """The job of the tables migrates, and the web server listens where Cloud Run asks."""
    assert mode_of(_environ("migrate.yaml")) is Mode.MIGRATE
    environ = _environ("webserver.yaml") | {"PORT": "3000"}
    assert mode_of(environ) is Mode.WEBSERVER
    listening = WebserverSettings.from_environ(environ)
    [container] = _containers("webserver.yaml")
    assert listening.host == "0.0.0.0"
    assert {"containerPort": listening.port} in container["ports"]


def test_the_connections_service_keeps_credentials_where_its_account_may() -> None:
    """Its store is a prefix of Secret Manager that the service itself accepts."""
    environ = _environ("connections.yaml")
    settings = CredentialSettings.from_environ(environ | {"K_SERVICE": "it"}, folder=Path("/"))
    assert settings is not None
    assert settings.store == "secretmanager://acme-data/shop"
    assert environ["SEGMENTSTREAM_CONNECTION_SECRET_GOOGLE_OAUTH_CLIENT_ID"]


def test_a_schedule_has_a_job_that_names_it() -> None:
    """Cloud Scheduler sends nothing, so the job itself says which schedule it is for."""
    documents = [KIT[name] for name in KIT if name.startswith("schedules/")]
    told = {_environ_of(kits.loaded(text))["SEGMENTSTREAM_DAGSTER_SCHEDULE"] for text in documents}
    assert told == {"nightly", "twice"}
    uris = {json.loads(KIT[name])["httpTarget"]["uri"] for name in ENTRIES}
    jobs = {kits.loaded(text)["metadata"]["name"] for text in documents}
    place = "https://run.googleapis.com/v2/projects/acme-data/locations/europe-west1/jobs"
    assert uris == {f"{place}/{job}:run" for job in jobs}


def test_each_time_of_a_schedule_is_an_entry() -> None:
    """A schedule with two times has two entries for one job, in the cron that Google knows."""
    found = {name: json.loads(KIT[name])["schedule"] for name in ENTRIES}
    assert found == {
        "scheduler/shop-cron-nightly.json": "0 6 * * *",
        "scheduler/shop-cron-twice-1.json": "0 6 * * *",
        "scheduler/shop-cron-twice-2.json": "0 * * * *",
    }


def test_no_run_is_tried_again_by_cloud_run() -> None:
    """A second attempt would start where the runtime has already said how it ended."""
    for name in DOCUMENTS:
        document = kits.loaded(KIT[name])
        if document["kind"] == "Job":
            task = document["spec"]["template"]["spec"]["template"]["spec"]
            assert task["maxRetries"] == 0
            assert task["timeoutSeconds"] == 3600


def test_values_keep_every_character() -> None:
    """Quotes, ampersands and dollar signs of a variable arrive as they were given."""
    told = kits.settings().variables["TEAM"]
    assert _environ("pipeline.yaml")["TEAM"] == told
    assert _environ("webserver.yaml")["TEAM"] == told
    assert "API_KEY" not in _environ("webserver.yaml")


@pytest.mark.parametrize(
    "others",
    [("Nightly", "nightly"), ("a_b", "a__b"), ("x" * 60, "x" * 61), ("_", "__"), ("migrate", "m_")],
)
def test_two_schedules_never_share_a_job(others: tuple[str, str]) -> None:
    """Names that Dagster tells apart give names that Cloud Run takes and tells apart."""
    settings = kits.settings()
    jobs = [names.schedule_job(settings, kits.schedule(name)) for name in others]
    assert len({*jobs, "shop-migrate"}) == 3
    for job in jobs:
        assert re.fullmatch(r"[a-z][a-z0-9-]{0,47}[a-z0-9]", job)


def test_a_kit_is_the_same_each_time() -> None:
    """The same manifest and options give the same bytes."""
    assert kits.kit() == KIT


def _environ(name: str) -> dict[str, str]:
    return _environ_of(kits.loaded(KIT[name]))


def _environ_of(document: dict[str, Any]) -> dict[str, str]:
    # A secret's value is not known here; its name stands for it.
    return {
        each["name"]: each.get("value") or each["valueFrom"]["secretKeyRef"]["name"]
        for container in _find(document, "containers")
        for each in container["env"]
    }


def _containers(name: str) -> list[dict[str, Any]]:
    return list(_find(kits.loaded(KIT[name]), "containers"))


def _find(document: Any, field: str) -> Iterator[dict[str, Any]]:
    if isinstance(document, dict):
        yield from document.get(field, [])
        for value in document.values():
            yield from _find(value, field)
