"""Manifests, settings and kits to look at."""

from __future__ import annotations

from typing import Any

import yaml

from segmentstream._cloud_run.kit import render
from segmentstream._cloud_run.settings import ConnectionsSettings, DeploymentSettings
from segmentstream._manifest import Asset, Job, Manifest, Schedule, Sensor, Table, Versions

IMAGES = "europe-west1-docker.pkg.dev/acme-data/shop"
CONNECTIONS = ConnectionsSettings(
    image=f"{IMAGES}/connections:7",
    project_number="123456789012",
    secrets=("google-oauth-client-id", "google-oauth-client-secret"),
)


def settings(**given: Any) -> DeploymentSettings:
    """Gives settings that work; each can be given otherwise."""
    working: dict[str, Any] = {
        "name": "shop",
        "project": "acme-data",
        "region": "europe-west1",
        "image": f"{IMAGES}/pipeline:7",
        "sql_instance": "shop-dagster",
        "namespace": "analytics",
        "location": "EU",
        "workspace": "../..",
        "kit": "deploy/cloud-run",
        "connections": CONNECTIONS,
        "variables": {"TEAM": "shop, \"north\" & 'south' $5"},
        "secret_variables": {"API_KEY": "shop-api-key"},
    }
    return DeploymentSettings(**(working | given))


def schedule(name: str = "nightly", **given: Any) -> Schedule:
    """Gives a schedule."""
    working: dict[str, Any] = {
        "name": name,
        "description": None,
        "job": "load",
        "cron": ("0 6 * * *",),
        "timezone": "America/New_York",
        "is_on": True,
    }
    return Schedule(**(working | given))


def manifest(*schedules: Schedule, **given: Any) -> Manifest:
    """Gives a manifest with two datasets that are written and one that is read."""
    working: dict[str, Any] = {
        "versions": Versions(sdk="0", dagster="0"),
        "location": "shop",
        "module": "pipeline.definitions",
        "assets": (
            asset("orders", None),
            asset("sessions", "silver"),
            asset("events", "raw", is_external=True),
        ),
        "checks": (),
        "jobs": (_job("load"),),
        "schedules": schedules
        or (schedule(), schedule("twice", cron=("0 6 * * *", "@hourly"), is_on=False)),
        "sensors": (),
    }
    return Manifest(**(working | given))


def asset(name: str, namespace: str | None, **given: Any) -> Asset:
    """Gives an asset that is a table."""
    key = (namespace, name) if namespace else (name,)
    working: dict[str, Any] = {
        "key": key,
        "dependencies": (),
        "description": None,
        "group": "default",
        "owners": (),
        "kinds": (),
        "tags": {},
        "metadata": {},
        "code_version": None,
        "is_external": False,
        "table": Table(namespace=namespace, name=name),
        "partitioning": None,
        "backfill": None,
        "automation": None,
        "freshness": None,
    }
    return Asset(**(working | given))


def sensor(name: str) -> Sensor:
    """Gives a sensor."""
    return Sensor(name=name, description=None, jobs=("load",), assets=(), is_on=True)


def kit(**given: Any) -> dict[str, str]:
    """Renders a kit."""
    return render(manifest(), settings(**given))


def loaded(text: str) -> dict[str, Any]:
    """Reads YAML as every other reader of YAML does."""
    document: dict[str, Any] = yaml.safe_load(text)
    return document


def _job(name: str) -> Job:
    return Job(
        name=name,
        description=None,
        assets=(("orders",),),
        checks=(),
        partitioning=None,
        backfill=None,
        tags={},
    )
