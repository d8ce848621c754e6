"""Where a workspace is brought to, checked once; imports `_core` only."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from segmentstream._core.errors import SegmentStreamError
from segmentstream._core.names import SECRET_NAME, SECRET_NAME_LENGTHS

_PROJECT = re.compile(r"[a-z][a-z0-9-]{4,28}[a-z0-9]")
_REGION = re.compile(r"[a-z]+-[a-z]+[0-9]{1,2}")
_NUMBER = re.compile(r"[0-9]{6,20}")
# Accounts are named after it, and may have 30 characters: `<name>-connections`.
_NAME = re.compile(r"[a-z](?:-?[a-z0-9]){1,17}")
_LONGEST_NAME = 18
_INSTANCE = re.compile(r"[a-z](?:-?[a-z0-9])*")
_DATASET = re.compile(r"[A-Za-z0-9_]{1,1024}")
_LOCATION = re.compile(r"US|EU|[a-z]+-[a-z]+[0-9]{1,2}")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_SECRET = re.compile(r"[A-Za-z0-9_-]{1,255}")
_HOST = r"[a-z0-9.-]+(?::[0-9]+)?"
_PART = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
_IMAGE = re.compile(
    rf"(?:{_HOST}/)?{_PART}(?:/{_PART})*(?::(?P<tag>[\w][\w.-]{{0,127}}))?"
    r"(?P<digest>@sha256:[0-9a-f]{64})?",
    re.ASCII,
)
_MEMORY = re.compile(r"[1-9][0-9]*(?:Mi|Gi)")
_CPUS = ("1", "2", "4", "6", "8")
_LONGEST_TASK_SECONDS = 168 * 3600
_OURS = re.compile(
    r"(?:SEGMENTSTREAM_(?:DAGSTER|WAREHOUSE|CONNECTION)|DAGSTER_|K_|CLOUD_RUN_).*|PORT"
)


class DeploymentSettingsError(SegmentStreamError):
    """Says which option of a deployment cannot work.

    Attributes:
        option: The option's name on the command line.
    """

    def __init__(self, problem: str, remedy: str, *, option: str) -> None:
        super().__init__(problem, remedy)
        self.option = option


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionsSettings:
    """Says how the connections service of a workspace is deployed.

    Attributes:
        image: The image of the service.
        project_number: The number of the project, which is part of the service's address.
        secrets: The secrets that the declarations name.
    """

    image: str
    project_number: str
    secrets: tuple[str, ...]

    def __post_init__(self) -> None:
        """Refuses what cannot work."""
        _check_image("--connections-image", self.image)
        if not _NUMBER.fullmatch(self.project_number):
            raise _refused(
                "--project-number",
                self.project_number,
                "Give the number that `gcloud projects describe PROJECT "
                "--format 'value(projectNumber)'` prints.",
            )
        for name in self.secrets:
            if not SECRET_NAME.fullmatch(name) or len(name) not in SECRET_NAME_LENGTHS:
                raise _refused(
                    "--connections",
                    name,
                    "Write it anew: `python -m segmentstream_connections_runtime inspect`.",
                )


@dataclass(frozen=True, slots=True, kw_only=True)
class DeploymentSettings:
    """Says where a workspace is brought to.

    Attributes:
        name: What every resource is named after.
        project: The project on Google Cloud.
        region: Where jobs and services run.
        image: The image of the pipeline.
        sql_instance: The Cloud SQL instance of Dagster's history, in the same project and region.
        namespace: The dataset of assets whose key has one part.
        location: Where datasets are made.
        workspace: The way from the kit's folder to the workspace.
        kit: The way back.
        requirements: The hashed requirements of the workspace, within it; None without such a file.
        cpu: How many CPUs a run of a job has.
        memory: How much memory it has.
        timeout_seconds: How long it may take.
        variables: Further variables of the workspace's code.
        secret_variables: Further variables of runs, each with the secret that holds its value.
        connections: How the connections service is deployed; None for a workspace without one.
        is_behind_iap: Whether people come to the web server through Identity-Aware Proxy.
    """

    name: str
    project: str
    region: str
    image: str
    sql_instance: str
    namespace: str
    location: str
    workspace: str
    kit: str
    requirements: str | None = None
    cpu: str = "2"
    memory: str = "4Gi"
    timeout_seconds: int = 3600
    variables: dict[str, str] = field(default_factory=dict)
    secret_variables: dict[str, str] = field(default_factory=dict)
    connections: ConnectionsSettings | None = None
    is_behind_iap: bool = False

    def __post_init__(self) -> None:
        """Refuses what Google Cloud would refuse later, or would take for something else."""
        for option, told, pattern, remedy in (
            ("--name", self.name, _NAME, "Give 2 to 18 small letters, digits and hyphens."),
            ("--project", self.project, _PROJECT, "Give the id of a project, such as acme-data."),
            ("--region", self.region, _REGION, "Give a region, such as europe-west1."),
            (
                "--sql-instance",
                self.sql_instance,
                _INSTANCE,
                "Give the instance's name alone.",
            ),
            ("--namespace", self.namespace, _DATASET, "Give letters, digits and underscores."),
            ("--location", self.location, _LOCATION, "Give EU, US or a region."),
            ("--memory", self.memory, _MEMORY, "Give it as 512Mi or 4Gi."),
        ):
            if not pattern.fullmatch(told) or (option == "--name" and len(told) > _LONGEST_NAME):
                raise _refused(option, told, remedy)
        _check_image("--image", self.image)
        if self.cpu not in _CPUS:
            raise _refused("--cpu", self.cpu, f"Give one of {', '.join(_CPUS)}.")
        if not 1 <= self.timeout_seconds <= _LONGEST_TASK_SECONDS:
            raise _refused("--timeout", str(self.timeout_seconds), "Give seconds, up to 7 days.")
        self._check_variables()

    def _check_variables(self) -> None:
        for option, given in (("--env", self.variables), ("--secret-env", self.secret_variables)):
            for name in given:
                if not _VARIABLE.fullmatch(name):
                    raise _refused(option, name, "Give it as NAME=VALUE.")
                if _OURS.fullmatch(name):
                    raise _refused(option, name, "The kit sets it; other options decide its value.")
        if both := self.variables.keys() & self.secret_variables.keys():
            raise _refused("--secret-env", min(both), "Give it once; --env has it too.")
        for secret in self.secret_variables.values():
            if not _SECRET.fullmatch(secret):
                # What was given may be the secret itself, so it is not shown.
                raise DeploymentSettingsError(
                    "--secret-env was given what is no name of a secret.",
                    "Give NAME=SECRET, the name of a secret and never what it holds.",
                    option="--secret-env",
                )

    @property
    def sql_connection(self) -> str:
        """The instance as Cloud SQL names it."""
        return f"{self.project}:{self.region}:{self.sql_instance}"

    @property
    def release(self) -> str:
        """What tells the runs of one image from those of another."""
        return self.image.rsplit("/", 1)[-1]

    @property
    def repository(self) -> str | None:
        """The repository of the image, where it is one of Artifact Registry in this project."""
        host = f"{self.region}-docker.pkg.dev/{self.project}/"
        repository, is_image, _ = self.image.removeprefix(host).partition("/")
        return repository if is_image and self.image.startswith(host) else None


def _check_image(option: str, image: str) -> None:
    found = _IMAGE.fullmatch(image)
    if found is None:
        raise _refused(option, image, "Give one such as REGION-docker.pkg.dev/P/R/pipeline:1.")
    if found["digest"] is None and found["tag"] in {None, "latest"}:
        raise _refused(
            option,
            image,
            "Give a tag of its own to each image, or its digest: a tag that moves cannot be rolled "
            "back.",
        )


def _refused(option: str, told: str, remedy: str) -> DeploymentSettingsError:
    return DeploymentSettingsError(f"{option} cannot be {told!r}.", remedy, option=option)
