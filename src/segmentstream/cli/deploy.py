"""`segmentstream deploy`: the options of its commands; their work is in `_cloud_run`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from segmentstream.cli.connect import pairs
from segmentstream.cli.exits import Exit, Output, command_work, exit_table


@click.group(epilog=exit_table())
def deploy() -> None:
    """Brings a workspace to Google Cloud Run, or to one machine with Docker Compose."""


@deploy.command("render", epilog=exit_table())
@click.argument("manifest", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--project", required=True, help="The project on Google Cloud.")
@click.option("--region", required=True, help="Where jobs and services run: europe-west1.")
@click.option("--image", required=True, help="The image of the pipeline, with a tag of its own.")
@click.option(
    "--output",
    type=click.Path(file_okay=False, path_type=Path),
    help="The folder to write to.  [default: deploy/cloud-run in the workspace]",
)
@click.option("--name", help="What resources are named after.  [default: the code location]")
@click.option("--sql-instance", help="The Cloud SQL instance.  [default: NAME-dagster]")
@click.option(
    "--namespace", help="The dataset of assets whose key has one part.  [default: after NAME]"
)
@click.option("--location", help="Where datasets are made.  [default: the region]")
@click.option(
    "--requirements",
    help="Pinned, hashed requirements in the workspace.  [default: requirements.txt if it has "
    "hashes]",
)
@click.option("--cpu", default="2", show_default=True, help="CPUs of a run.")
@click.option("--memory", default="4Gi", show_default=True, help="Memory of a run.")
@click.option(
    "--timeout", type=int, default=3600, show_default=True, help="Seconds that a run may take."
)
@click.option(
    "--env", multiple=True, metavar="NAME=VALUE", callback=pairs, help="A variable of your code."
)
@click.option(
    "--secret-env",
    multiple=True,
    metavar="NAME=SECRET",
    callback=pairs,
    help="A variable of your code, from a secret of Secret Manager.",
)
@click.option(
    "--connections",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="The declarations, as `python -m segmentstream_connections_runtime inspect` writes them.",
)
@click.option("--connections-image", help="The image of the connections service.")
@click.option("--project-number", help="The project's number, for the address of that service.")
@click.option("--iap", is_flag=True, help="Put Identity-Aware Proxy before the web server.")
@click.option("--force", is_flag=True, help="Overwrite what a person has changed, too.")
@click.pass_obj
@command_work
def render(output: Output, start: Path, /, **given: Any) -> Exit:  # options, as click names them
    """Writes what brings a workspace to Cloud Run or to one machine; asks no account or network.

    MANIFEST is what `python -m segmentstream.runtime inspect MANIFEST` has written.
    """
    from segmentstream.cli import rendering  # noqa: PLC0415 - not for `--help`

    return rendering.render(output, start, rendering.Options(**given))
