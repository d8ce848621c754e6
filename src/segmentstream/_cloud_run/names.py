"""How the resources of a deployment are named; imports `_manifest` and the settings."""

from __future__ import annotations

import hashlib
import re

from segmentstream._cloud_run.settings import DeploymentSettings
from segmentstream._manifest import Schedule

_LONGEST = 49  # what Cloud Run allows for jobs and services
_PLAIN = re.compile(r"[a-z0-9_]*[a-z0-9]")

ROLES = ("pipeline", "webserver", "connections", "scheduler")


def resource(settings: DeploymentSettings, part: str) -> str:
    """Names a job, a service or an account."""
    return f"{settings.name}-{part}"


def email(settings: DeploymentSettings, role: str) -> str:
    """Gives the address of the service account of a role."""
    return f"{resource(settings, role)}@{settings.project}.iam.gserviceaccount.com"


def password_secret(settings: DeploymentSettings) -> str:
    """Names the secret that holds the password of Postgres."""
    return resource(settings, "postgres-password")


def keys_secret(settings: DeploymentSettings) -> str:
    """Names the secret that holds the keys of the connections service."""
    return resource(settings, "credential-keys")


def schedule_job(settings: DeploymentSettings, schedule: Schedule) -> str:
    """Names the Cloud Run job of a schedule.

    Dagster tells names apart that are one in small letters, and takes longer ones; those get a
    part of their hash.
    """
    prefix = resource(settings, "cron-")
    plain = prefix + schedule.name.replace("_", "-")
    if _PLAIN.fullmatch(schedule.name) and len(plain) <= _LONGEST:
        return plain
    part = hashlib.sha256(schedule.name.encode()).hexdigest()[:8]
    short = plain.lower()[: _LONGEST - len(part) - 1].rstrip("-")
    return f"{short}-{part}"


def connections_url(settings: DeploymentSettings) -> str:
    """Gives the address of the connections service, which Cloud Run makes of these three.

    Raises:
        ValueError: The workspace has no connections.
    """
    if settings.connections is None:
        raise ValueError("a workspace without connections has no such address")
    number = settings.connections.project_number
    return f"https://{resource(settings, 'connections')}-{number}.{settings.region}.run.app"
