"""Who may do what: one account for each role, and no more rights than it uses.

Imports `_manifest`, the settings and the names.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from segmentstream._cloud_run import names
from segmentstream._cloud_run.settings import DeploymentSettings
from segmentstream._manifest import Manifest

type Kind = Literal["project", "secret", "dataset", "job", "service"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """Gives an account one role on one resource.

    Attributes:
        account: Who, one of `names.ROLES`.
        role: The role, as IAM names it.
        kind: What the resource is.
        name: Which it is.
        reason: What the account does with it.
        condition: The condition of the grant, in IAM's own language; None for none.
    """

    account: str
    role: str
    kind: Kind
    name: str
    reason: str
    condition: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CustomRole:
    """Is a role of the project's own.

    Attributes:
        name: Its id.
        title: What people read.
        permissions: What it allows.
    """

    name: str
    title: str
    permissions: tuple[str, ...]


CREDENTIAL_ROLES = (
    CustomRole(
        name="segmentstreamCredentials",
        title="Keep credentials in secrets",
        permissions=(
            "secretmanager.secrets.delete",
            "secretmanager.secrets.get",
            "secretmanager.secrets.update",
            "secretmanager.versions.access",
            "secretmanager.versions.add",
            "secretmanager.versions.destroy",
            "secretmanager.versions.get",
            "secretmanager.versions.list",
        ),
    ),
    CustomRole(
        name="segmentstreamCredentialNames",
        title="Make and list secrets",
        permissions=("secretmanager.secrets.create", "secretmanager.secrets.list"),
    ),
)


def accounts(settings: DeploymentSettings) -> dict[str, str]:
    """Says which accounts there are, and what each is for."""
    told = {
        "pipeline": "runs jobs: reads and writes the warehouse, keeps history in Postgres",
        "webserver": "shows the history in Postgres, and migrates its tables",
        "connections": "keeps the credentials of connections",
        "scheduler": "starts the jobs of schedules",
    }
    absent = set() if settings.connections else {"connections"}
    return {role: told[role] for role in names.ROLES if role not in absent}


def grants(manifest: Manifest, settings: DeploymentSettings) -> list[Grant]:
    """Gives every right of every account."""
    found = [
        *_history(settings),
        *_warehouse(manifest, settings),
        *_connections(settings),
        *(
            Grant(
                account="scheduler",
                role="roles/run.invoker",
                kind="job",
                name=names.schedule_job(settings, schedule),
                reason="starts it",
            )
            for schedule in manifest.schedules
        ),
    ]
    return sorted(found, key=lambda grant: names.ROLES.index(grant.account))


def datasets(manifest: Manifest, settings: DeploymentSettings) -> dict[str, bool]:
    """Says which datasets the assets lie in, and whether runs write there."""
    found: dict[str, bool] = {}
    for asset in manifest.assets:
        if asset.table is not None:
            dataset = asset.table.namespace or settings.namespace
            found[dataset] = found.get(dataset, False) or not asset.is_external
    return dict(sorted(found.items()))


def secrets(settings: DeploymentSettings) -> list[str]:
    """Names the secrets that people fill; the password of Postgres is not among them."""
    declared = settings.connections
    of_connections = [names.keys_secret(settings), *declared.secrets] if declared else []
    return sorted({*of_connections, *settings.secret_variables.values()})


def _history(settings: DeploymentSettings) -> list[Grant]:
    found = []
    for account in ("pipeline", "webserver"):
        found += [
            Grant(
                account=account,
                role="roles/cloudsql.client",
                kind="project",
                name=settings.project,
                reason="opens the socket of Cloud SQL",
            ),
            Grant(
                account=account,
                role="roles/secretmanager.secretAccessor",
                kind="secret",
                name=names.password_secret(settings),
                reason="logs in to Postgres",
            ),
        ]
    return found


def _warehouse(manifest: Manifest, settings: DeploymentSettings) -> list[Grant]:
    on_project = {
        "roles/bigquery.jobUser": "queries",
        "roles/bigquery.readSessionUser": "reads large results into memory",
    }
    return [
        *(
            Grant(
                account="pipeline", role=role, kind="project", name=settings.project, reason=reason
            )
            for role, reason in on_project.items()
        ),
        *(
            Grant(
                account="pipeline",
                role="roles/bigquery.dataEditor" if is_written else "roles/bigquery.dataViewer",
                kind="dataset",
                name=dataset,
                reason="writes its tables" if is_written else "reads tables of others",
            )
            for dataset, is_written in datasets(manifest, settings).items()
        ),
        *(
            Grant(
                account="pipeline",
                role="roles/secretmanager.secretAccessor",
                kind="secret",
                name=secret,
                reason="a variable of the workspace",
            )
            for secret in sorted(set(settings.secret_variables.values()))
        ),
    ]


def _connections(settings: DeploymentSettings) -> list[Grant]:
    declared = settings.connections
    if declared is None:
        return []
    kept, listed = CREDENTIAL_ROLES
    # The store puts a capital S behind its prefix, which no other secret here has.
    prefix = f"projects/{declared.project_number}/secrets/{settings.name}S"
    return [
        Grant(
            account="pipeline",
            role="roles/run.invoker",
            kind="service",
            name=names.resource(settings, "connections"),
            reason="asks for tokens",
        ),
        *(
            Grant(
                account="connections",
                role="roles/secretmanager.secretAccessor",
                kind="secret",
                name=secret,
                reason="reads clients of OAuth, and the keys that seal",
            )
            for secret in (names.keys_secret(settings), *declared.secrets)
        ),
        Grant(
            account="connections",
            role=f"projects/{settings.project}/roles/{kept.name}",
            kind="project",
            name=settings.project,
            reason="keeps credentials, in secrets of this prefix alone",
            condition=f'resource.name.startsWith("{prefix}")',
        ),
        Grant(
            account="connections",
            role=f"projects/{settings.project}/roles/{listed.name}",
            kind="project",
            name=settings.project,
            reason="makes and lists secrets, which no condition can narrow",
        ),
    ]
