"""The README of a kit: its files, who may do what, and what is scheduled; for people."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from segmentstream._cloud_run import access, names
from segmentstream._cloud_run.scheduling import entries
from segmentstream._cloud_run.settings import DeploymentSettings
from segmentstream._manifest import Manifest

_ABOUT = """\
Written by `segmentstream deploy render`. Render again with other options rather than editing: what
a person has changed is not overwritten without `--force`. The way from here to a scheduled pipeline
is in `docs/deploy.md` of segmentstream-pipeline.
"""


def readme(manifest: Manifest, settings: DeploymentSettings) -> str:
    """Writes README.md of the kit."""
    return "\n".join(
        (
            f"# {settings.name} on Cloud Run, or on one machine\n",
            _ABOUT,
            _files(settings),
            "## Who may do what\n",
            _access(manifest, settings),
            "## Schedules\n",
            _schedules(manifest, settings),
        )
    )


def _files(settings: DeploymentSettings) -> str:
    rows = [
        ("`Dockerfile`, `Dockerfile.dockerignore`", "the image of jobs, migration and web server"),
        ("`setup.sh`", "once: accounts, rights, secrets, Postgres, datasets"),
        ("`deploy.sh`", "for each release: the files below, to Cloud Run and Cloud Scheduler"),
        ("`pipeline.yaml`", f"the job `{settings.name}-pipeline`, which runs any job by variables"),
        ("`schedules/`", "a Cloud Run job for each schedule of the workspace"),
        ("`scheduler/`", "what starts those, as Cloud Scheduler's REST interface takes it"),
        ("`migrate.yaml`", "the job that brings the tables of Dagster to the image's release"),
        ("`webserver.yaml`", "Dagster's pages, which only show"),
    ]
    if settings.connections:
        rows += [
            ("`connections.yaml`", "the service that keeps the credentials of connections"),
            ("`Dockerfile.connections`", "its image, with the declarations of the workspace"),
        ]
    rows += [
        (
            "`compose.yaml`, `*env.example`",
            "the same on one machine, and which secrets it needs there",
        ),
        ("`systemd/`", "what starts the schedules there"),
        ("`kit.json`", "what was written here, so that a person's changes are noticed"),
    ]
    return _table(("file", "what it is"), rows)


def _access(manifest: Manifest, settings: DeploymentSettings) -> str:
    accounts = _table(
        ("account", "what it is for"),
        (
            (f"`{names.resource(settings, role)}`", told)
            for role, told in access.accounts(settings).items()
        ),
    )
    rights = _table(
        ("account", "role", "on", "what for"),
        (
            (
                names.resource(settings, grant.account),
                f"`{grant.role}`",
                f"{grant.kind} `{grant.name}`",
                grant.reason,
            )
            for grant in access.grants(manifest, settings)
        ),
    )
    return f"{accounts}\n{rights}"


def _schedules(manifest: Manifest, settings: DeploymentSettings) -> str:
    told = (
        _table(
            ("schedule", "runs", "when", "at first", "entry of Cloud Scheduler"),
            (
                (
                    f"`{schedule.name}`",
                    f"`{schedule.job}`",
                    f"`{entry.cron}` {schedule.timezone}",
                    "on" if schedule.is_on else "paused",
                    f"`{entry.name}`",
                )
                for schedule in manifest.schedules
                for entry in entries(settings, schedule)
            ),
        )
        if manifest.schedules
        else "The workspace has none.\n"
    )
    if ignored := ignored_triggers(manifest):
        told += f"\nNothing starts these, since no daemon runs: {', '.join(ignored)}.\n"
    return told


def ignored_triggers(manifest: Manifest) -> list[str]:
    """Names what starts runs elsewhere and not here, since it takes Dagster's daemon."""
    found = [f"the sensor `{sensor.name}`" for sensor in manifest.sensors]
    if automated := [asset for asset in manifest.assets if asset.automation]:
        found.append(f"automation conditions of {len(automated)} assets")
    return found


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)
