"""The same parts on one machine, with Docker Compose; imports the documents and the names.

Variables in `${...}` come from the file `.env` beside compose.yaml, which is for its owner alone.
"""

from __future__ import annotations

from segmentstream._cloud_run.documents import (
    DATABASE,
    USER,
    WEBSERVER_PORT,
    Document,
    secret_variable,
)
from segmentstream._cloud_run.settings import ConnectionsSettings, DeploymentSettings
from segmentstream._core.names import (
    CATALOG_VARIABLE,
    DEFAULT_NAMESPACE_VARIABLE,
    ENGINE_VARIABLE,
    LOCATION_VARIABLE,
)

_PASSWORD = "${POSTGRES_PASSWORD:?set it in .env}"  # noqa: S105 - names a variable
_MODE = "SEGMENTSTREAM_DAGSTER_MODE"
_HEALTHY = {"postgres": {"condition": "service_healthy"}}


def compose(settings: DeploymentSettings) -> Document:
    """Gives compose.yaml: what is always there, and `pipeline`, which is run."""
    services: Document = {
        "postgres": _postgres(),
        "migrate": {
            **_image(settings),
            "environment": {_MODE: "migrate", **_instance()},
            "depends_on": _HEALTHY,
            "restart": "no",
        },
        "webserver": _webserver(settings),
        "pipeline": _pipeline(settings),
    }
    if settings.connections:
        services["connections"] = _connections(settings, settings.connections)
    return {
        "name": settings.name,
        "services": services,
        "volumes": {"postgres": {}, "warehouse": {}},
    }


def env_example(settings: DeploymentSettings) -> str:
    """Writes what `.env` holds, without a secret."""
    secret = "".join(f"{name}=\n" for name in sorted(settings.secret_variables))
    return f"""\
# Copy to .env, for its owner alone: install -m 600 env.example .env
# Letters and digits, such as `openssl rand -hex 24` gives.
POSTGRES_PASSWORD=
{secret}
# A DuckDB file in a volume, unless these say otherwise. On BigQuery, with the account of the machine:
# {ENGINE_VARIABLE}=bigquery
# {CATALOG_VARIABLE}={settings.project}
# {DEFAULT_NAMESPACE_VARIABLE}={settings.namespace}
# {LOCATION_VARIABLE}={settings.location}
"""


def connections_env_example(declared: ConnectionsSettings) -> str:
    """Writes what `connections.env` holds, without a secret."""
    clients = "".join(f"{secret_variable(name)}=\n" for name in declared.secrets)
    return f"""\
# Copy to connections.env, for its owner alone: install -m 600 connections.env.example connections.env
# One line of JSON between single quotes, as `segmentstream connections rotate-key --print-new` prints it.
SEGMENTSTREAM_CREDENTIAL_KEYS=''
{clients}"""


def _postgres() -> Document:
    return {
        "image": "postgres:17-alpine",
        "environment": {
            "POSTGRES_USER": USER,
            "POSTGRES_DB": DATABASE,
            "POSTGRES_PASSWORD": _PASSWORD,
        },
        "volumes": ["postgres:/var/lib/postgresql/data"],
        "healthcheck": {
            "test": ["CMD", "pg_isready", "-h", "127.0.0.1", "-U", USER, "-d", DATABASE],
            "interval": "5s",
            "timeout": "5s",
            "retries": 12,
        },
        "restart": "unless-stopped",
    }


def _webserver(settings: DeploymentSettings) -> Document:
    return {
        **_image(settings),
        "environment": {
            _MODE: "webserver",
            "PORT": str(WEBSERVER_PORT),
            "SEGMENTSTREAM_DAGSTER_WEBSERVER_HOST": "0.0.0.0",  # noqa: S104 - in a container
            **_instance(),
            **_plain(settings),
        },
        # It asks nobody who they are, so it is there for this machine alone.
        "ports": [f"127.0.0.1:{WEBSERVER_PORT}:{WEBSERVER_PORT}"],
        "depends_on": {**_HEALTHY, "migrate": {"condition": "service_completed_successfully"}},
        "init": True,
        "restart": "unless-stopped",
    }


def _pipeline(settings: DeploymentSettings) -> Document:
    document: Document = {
        **_image(settings),
        "environment": {
            "SEGMENTSTREAM_DEPLOYMENT_ID": settings.release,
            **_instance(),
            ENGINE_VARIABLE: f"${{{ENGINE_VARIABLE}:-duckdb}}",
            CATALOG_VARIABLE: f"${{{CATALOG_VARIABLE}:-/data/warehouse.duckdb}}",
            DEFAULT_NAMESPACE_VARIABLE: f"${{{DEFAULT_NAMESPACE_VARIABLE}:-main}}",
            LOCATION_VARIABLE: f"${{{LOCATION_VARIABLE}:-}}",
            **_plain(settings),
            **{name: f"${{{name}:?set it in .env}}" for name in sorted(settings.secret_variables)},
        },
        "volumes": ["warehouse:/data"],
        "depends_on": dict(_HEALTHY),
        "profiles": ["run"],
        "restart": "no",
    }
    if settings.connections:
        document["environment"]["SEGMENTSTREAM_CONNECTIONS_URL"] = "http://127.0.0.1:8080"
        # The service listens on its own loopback only; runs share that, and nobody else does.
        document["network_mode"] = "service:connections"
        document["depends_on"]["connections"] = {"condition": "service_started"}
    return document


def _connections(settings: DeploymentSettings, declared: ConnectionsSettings) -> Document:
    return {
        "image": declared.image,
        "build": {
            "context": settings.workspace,
            "dockerfile": f"{settings.kit}/Dockerfile.connections",
            "args": {"SERVICE": "${CONNECTIONS_SERVICE:-segmentstream-connections}"},
        },
        "environment": {
            "PORT": "8080",
            "SEGMENTSTREAM_CREDENTIAL_STORE": (
                f"postgresql://{USER}:{_PASSWORD}@postgres/{DATABASE}"
            ),
            "SEGMENTSTREAM_WORKSPACE_NAME": settings.name,
        },
        "env_file": ["connections.env"],
        "depends_on": dict(_HEALTHY),
        "restart": "unless-stopped",
    }


def _image(settings: DeploymentSettings) -> Document:
    return {
        "image": settings.image,
        "build": {"context": settings.workspace, "dockerfile": f"{settings.kit}/Dockerfile"},
    }


def _plain(settings: DeploymentSettings) -> Document:
    # A dollar sign would begin a variable of Compose.
    return {name: value.replace("$", "$$") for name, value in sorted(settings.variables.items())}


def _instance() -> Document:
    prefix = "SEGMENTSTREAM_DAGSTER_POSTGRES"
    return {
        f"{prefix}_HOST": "postgres",
        f"{prefix}_USER": USER,
        f"{prefix}_DATABASE": DATABASE,
        f"{prefix}_PASSWORD": _PASSWORD,
    }
