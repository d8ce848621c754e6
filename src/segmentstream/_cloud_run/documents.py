"""The jobs and services of a deployment, as Cloud Run's `replace` commands take them.

Imports PyYAML, `_manifest`, `_core` and the names. Each field is one of Google's published schema;
the tests compare.
"""

from __future__ import annotations

from typing import Any

import yaml

from segmentstream._cloud_run import names
from segmentstream._cloud_run.settings import ConnectionsSettings, DeploymentSettings
from segmentstream._core.names import (
    CATALOG_VARIABLE,
    DEFAULT_NAMESPACE_VARIABLE,
    ENGINE_VARIABLE,
    LOCATION_VARIABLE,
    SECRET_VARIABLE_PREFIX,
)
from segmentstream._manifest import Schedule

# A document is what YAML and JSON can hold, hence Any.
type Document = dict[str, Any]

DATABASE = USER = "dagster"
WEBSERVER_PORT = 3000
_POSTGRES = "SEGMENTSTREAM_DAGSTER_POSTGRES"
_MODE = "SEGMENTSTREAM_DAGSTER_MODE"
_SERVICE_PORT = 8080


class _Dumper(yaml.SafeDumper):  # type: ignore[misc]  # PyYAML ships no types
    """Writes what stands in two places twice, rather than as a reference."""

    def ignore_aliases(self, data: object) -> bool:
        """Says that nothing is written as a reference."""
        del data
        return True


def yaml_text(document: Document, *, says: str) -> str:
    """Writes a document as YAML, under a comment."""
    comment = "".join(f"# {line}\n" for line in says.splitlines())
    written: str = yaml.dump(
        document, Dumper=_Dumper, sort_keys=False, width=100, allow_unicode=True
    )
    return comment + written


def pipeline_job(settings: DeploymentSettings) -> Document:
    """Gives the job that runs any job of the workspace; who starts it says which."""
    return _job(settings, names.resource(settings, "pipeline"), _run_environment(settings))


def schedule_job(settings: DeploymentSettings, schedule: Schedule) -> Document:
    """Gives the job that runs what one schedule asks for."""
    environment = [
        _variable("SEGMENTSTREAM_DAGSTER_SCHEDULE", schedule.name),
        *_run_environment(settings),
    ]
    return _job(settings, names.schedule_job(settings, schedule), environment)


def migrate_job(settings: DeploymentSettings) -> Document:
    """Gives the job that brings the tables of Dagster to the release of the image."""
    environment = [_variable(_MODE, "migrate"), *_postgres(settings)]
    document = _job(settings, names.resource(settings, "migrate"), environment)
    task = document["spec"]["template"]["spec"]["template"]["spec"]
    # It touches no table of the warehouse, so it needs none of the pipeline's rights.
    task["serviceAccountName"] = names.email(settings, "webserver")
    task["containers"][0]["resources"] = _resources("1", "1Gi")
    return document


def webserver(settings: DeploymentSettings) -> Document:
    """Gives the service that shows runs and assets, and can start none."""
    container = {
        "image": settings.image,
        "ports": [{"containerPort": WEBSERVER_PORT}],
        "env": [
            _variable(_MODE, "webserver"),
            _variable("SEGMENTSTREAM_DAGSTER_WEBSERVER_HOST", "0.0.0.0"),  # noqa: S104 - in a container
            *_postgres(settings),
            *_plain(settings),
        ],
        "resources": _resources("1", "2Gi"),
        # It listens once the workspace's code is loaded.
        "startupProbe": {
            "httpGet": {"path": "/server_info", "port": WEBSERVER_PORT},
            "periodSeconds": 5,
            "timeoutSeconds": 4,
            "failureThreshold": 36,
        },
    }
    annotations = {
        "autoscaling.knative.dev/maxScale": "1",
        **_sql(settings),
        # The process that holds the workspace's code is asked by heartbeats between requests.
        "run.googleapis.com/cpu-throttling": "false",
        "run.googleapis.com/startup-cpu-boost": "true",
    }
    return _service(
        settings, "webserver", container, annotations, timeout_seconds=3600, ingress="all"
    )


def connections(settings: DeploymentSettings, declared: ConnectionsSettings) -> Document:
    """Gives the service that keeps the workspace's credentials."""
    container = {
        "image": declared.image,
        "ports": [{"containerPort": _SERVICE_PORT}],
        "env": [
            _variable(
                "SEGMENTSTREAM_CREDENTIAL_STORE",
                f"secretmanager://{settings.project}/{settings.name}",
            ),
            _secret("SEGMENTSTREAM_CREDENTIAL_KEYS", names.keys_secret(settings)),
            *(_secret(secret_variable(name), name) for name in declared.secrets),
        ],
        "resources": _resources("1", "512Mi"),
        "startupProbe": {"httpGet": {"path": "/health", "port": _SERVICE_PORT}},
    }
    annotations = {"autoscaling.knative.dev/maxScale": "3"}
    return _service(
        settings, "connections", container, annotations, timeout_seconds=60, ingress="all"
    )


def secret_variable(name: str) -> str:
    """Gives the variable from which the connections service reads a secret."""
    return SECRET_VARIABLE_PREFIX + name.upper().replace("-", "_")


def _job(settings: DeploymentSettings, name: str, environment: list[Document]) -> Document:
    return {
        "apiVersion": "run.googleapis.com/v1",
        "kind": "Job",
        "metadata": {"name": name, "labels": _labels(settings)},
        "spec": {
            "template": {
                "metadata": {"annotations": _sql(settings)},
                "spec": {
                    "taskCount": 1,
                    "template": {
                        "spec": {
                            "serviceAccountName": names.email(settings, "pipeline"),
                            # The runtime starts interrupted days again by itself.
                            "maxRetries": 0,
                            "timeoutSeconds": settings.timeout_seconds,
                            "containers": [
                                {
                                    "image": settings.image,
                                    "env": environment,
                                    "resources": _resources(settings.cpu, settings.memory),
                                }
                            ],
                        }
                    },
                },
            }
        },
    }


def _service(
    settings: DeploymentSettings,
    role: str,
    container: Document,
    annotations: Document,
    *,
    timeout_seconds: int,
    ingress: str,
) -> Document:
    return {
        "apiVersion": "serving.knative.dev/v1",
        "kind": "Service",
        "metadata": {
            "name": names.resource(settings, role),
            "labels": _labels(settings),
            "annotations": {"run.googleapis.com/ingress": ingress},
        },
        "spec": {
            "template": {
                "metadata": {"annotations": annotations},
                "spec": {
                    "serviceAccountName": names.email(settings, role),
                    "containerConcurrency": 80,
                    "timeoutSeconds": timeout_seconds,
                    "containers": [container],
                },
            }
        },
    }


def _run_environment(settings: DeploymentSettings) -> list[Document]:
    return [
        _variable("SEGMENTSTREAM_DEPLOYMENT_ID", settings.release),
        *_postgres(settings),
        _variable(ENGINE_VARIABLE, "bigquery"),
        _variable(CATALOG_VARIABLE, settings.project),
        _variable(DEFAULT_NAMESPACE_VARIABLE, settings.namespace),
        _variable(LOCATION_VARIABLE, settings.location),
        *(
            [_variable("SEGMENTSTREAM_CONNECTIONS_URL", names.connections_url(settings))]
            if settings.connections
            else []
        ),
        *_plain(settings),
        *(_secret(name, secret) for name, secret in sorted(settings.secret_variables.items())),
    ]


def _plain(settings: DeploymentSettings) -> list[Document]:
    return [_variable(name, value) for name, value in sorted(settings.variables.items())]


def _postgres(settings: DeploymentSettings) -> list[Document]:
    return [
        _variable(f"{_POSTGRES}_HOST", f"/cloudsql/{settings.sql_connection}"),
        _variable(f"{_POSTGRES}_USER", USER),
        _variable(f"{_POSTGRES}_DATABASE", DATABASE),
        _secret(f"{_POSTGRES}_PASSWORD", names.password_secret(settings)),
    ]


def _variable(name: str, value: str) -> Document:
    return {"name": name, "value": value}


def _secret(name: str, secret: str) -> Document:
    return {"name": name, "valueFrom": {"secretKeyRef": {"name": secret, "key": "latest"}}}


def _sql(settings: DeploymentSettings) -> Document:
    return {"run.googleapis.com/cloudsql-instances": settings.sql_connection}


def _labels(settings: DeploymentSettings) -> Document:
    return {"segmentstream-workspace": settings.name}


def _resources(cpu: str, memory: str) -> Document:
    return {"limits": {"cpu": cpu, "memory": memory}}
