"""The images: of the pipeline, and of the connections service; imports the settings."""

from __future__ import annotations

from segmentstream._cloud_run.settings import DeploymentSettings

BASE = "python:3.12-slim-bookworm"
# The requirements of a workspace, and wheels that no index has, lie there while the image is built.
_FROM_FILE = """\
COPY {requirements} wheel[s] /requirements/
RUN python -m venv /pipeline \\
    && /pipeline/bin/pip install --no-cache-dir --no-compile --no-deps --require-hashes \\
       --find-links /requirements -r /requirements/{file} \\
    && /pipeline/bin/pip uninstall --yes pip
"""
_FROM_PROJECT = """\
# Whatever is newest on the day of the build. A requirements.txt with hashes in the workspace, written by
# `uv pip compile pyproject.toml --generate-hashes -o requirements.txt`, makes every build the same.
COPY pyproject.toml wheel[s] /requirements/
RUN python -c "import tomllib; \\
print(*tomllib.load(open('/requirements/pyproject.toml', 'rb'))['project']['dependencies'], sep='\\n')" \\
       > /requirements/requirements.txt \\
    && python -m venv /pipeline \\
    && /pipeline/bin/pip install --no-cache-dir --no-compile \\
       --find-links /requirements -r /requirements/requirements.txt \\
    && /pipeline/bin/pip uninstall --yes pip
"""


def dockerfile(settings: DeploymentSettings) -> str:
    """Writes the Dockerfile of jobs, migration and web server: one image for all three."""
    file = settings.requirements
    install = (
        _FROM_PROJECT
        if file is None
        else _FROM_FILE.format(requirements=file, file=file.rsplit("/", 1)[-1])
    )
    return f"""\
# Jobs, migration and web server of {settings.name}: one image, told by variables what to do.
#   docker build -f Dockerfile -t IMAGE {settings.workspace}
# Add --build-arg DIGEST=sha256:... for the very same base each time.
ARG DIGEST
FROM {BASE}${{DIGEST:+@$DIGEST}} AS build
{install}\
COPY . /workspace
# Compiled once, here: a start is then twice as fast. By content, so that copying changes nothing.
RUN rm -rf /workspace/wheels \\
    && /pipeline/bin/python -m compileall -q --invalidation-mode unchecked-hash /pipeline/lib /workspace

FROM {BASE}${{DIGEST:+@$DIGEST}}
RUN useradd --system --uid 10001 --no-create-home pipeline && install -d -o pipeline /data
COPY --from=build /pipeline /pipeline
COPY --from=build /workspace /workspace
USER pipeline
WORKDIR /workspace
ENV PATH=/pipeline/bin:$PATH PYTHONUNBUFFERED=1 HOME=/tmp DAGSTER_HOME=/tmp/dagster
# No shell in between: SIGTERM reaches the runtime.
CMD ["python", "-m", "segmentstream.runtime"]
"""


def dockerignore() -> str:
    """Writes what of a workspace goes into no image: secrets, data and what can be made again."""
    return """\
# What goes into no image: secrets, data, and what can be made again.
.git
.env
.env.*
**/*.env
.venv*
.segmentstream
.dagster
**/__pycache__
**/.*_cache
**/*.duckdb
**/*.duckdb.wal
deploy
tests
"""


def connections_dockerfile(settings: DeploymentSettings) -> str:
    """Writes the Dockerfile that puts the declarations into the image of the service."""
    return f"""\
# The connections service of {settings.name}: the service, and the declarations of this workspace.
#   docker build -f Dockerfile.connections --build-arg SERVICE=... -t IMAGE {settings.workspace}
# SERVICE is what the Dockerfile of segmentstream-pipeline builds, with --build-arg SET=connections-google.
ARG SERVICE
FROM ${{SERVICE}}
COPY connections /workspace/connections
"""
