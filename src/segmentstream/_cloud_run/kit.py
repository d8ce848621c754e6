"""Puts the files of a kit together: from a manifest and settings to texts by path."""

from __future__ import annotations

from collections import Counter

from segmentstream._cloud_run import (
    compose,
    documents,
    images,
    names,
    readme,
    scheduling,
    scripts,
    systemd,
)
from segmentstream._cloud_run.documents import yaml_text
from segmentstream._cloud_run.settings import DeploymentSettings
from segmentstream._core.jsonio import canonical_json
from segmentstream._manifest import Manifest

EXECUTABLE = ".sh"  # what a file ends with that is run
_GITIGNORE = "# The folder is committed, the secrets of one machine are not.\n.env\n*.env\n"


def render(manifest: Manifest, settings: DeploymentSettings) -> dict[str, str]:
    """Gives the text of each file of the kit, the same for the same input.

    Raises:
        ScheduleNotPortableError: A schedule has a time that no other cron understands.
    """
    kit = {
        ".gitignore": _GITIGNORE,
        "Dockerfile": images.dockerfile(settings),
        "Dockerfile.dockerignore": images.dockerignore(),
        "README.md": readme.readme(manifest, settings),
        "compose.yaml": yaml_text(
            compose.compose(settings),
            says="The workspace on one machine. `docker compose run --rm pipeline` runs a job.",
        ),
        "deploy.sh": scripts.deploy(manifest, settings),
        "env.example": compose.env_example(settings),
        "migrate.yaml": yaml_text(
            documents.migrate_job(settings), says="Run by deploy.sh, before anything else."
        ),
        "pipeline.yaml": yaml_text(
            documents.pipeline_job(settings),
            says="Runs the job and the days that whoever starts it names by variables.",
        ),
        "setup.sh": scripts.setup(manifest, settings),
        f"systemd/{settings.name}@.service": systemd.service_unit(settings),
        "webserver.yaml": yaml_text(
            documents.webserver(settings),
            says="Shows runs and assets; starts none. Callers need run.invoker.",
        ),
        **_schedules(manifest, settings),
    }
    if settings.connections:
        kit |= {
            "Dockerfile.connections": images.connections_dockerfile(settings),
            "connections.env.example": compose.connections_env_example(settings.connections),
            "connections.yaml": yaml_text(
                documents.connections(settings, settings.connections),
                says="Keeps the credentials of connections. Callers need run.invoker.",
            ),
        }
    return dict(sorted(kit.items()))


def _schedules(manifest: Manifest, settings: DeploymentSettings) -> dict[str, str]:
    found = {}
    jobs = Counter(names.schedule_job(settings, schedule) for schedule in manifest.schedules)
    assert all(count == 1 for count in jobs.values())  # noqa: S101 - by `names`
    for schedule in manifest.schedules:
        job = names.schedule_job(settings, schedule)
        found[f"schedules/{job}.yaml"] = yaml_text(
            documents.schedule_job(settings, schedule),
            says=f"Runs what the schedule {schedule.name} asks for, at its latest tick.",
        )
        for entry in scheduling.entries(settings, schedule):
            found[f"scheduler/{entry.name}.json"] = canonical_json(entry.document)
        found[f"systemd/{systemd.timer_file(settings, schedule)}"] = systemd.timer_unit(
            settings, schedule
        )
    return found
