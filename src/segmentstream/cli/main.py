"""The `segmentstream` command itself; each command imports its work when it is called."""

from __future__ import annotations

from pathlib import Path

import click

from segmentstream.cli.connect import connect
from segmentstream.cli.connections import connections
from segmentstream.cli.deploy import deploy


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="segmentstream-pipeline", prog_name="segmentstream")
@click.option(
    "--workspace",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="The workspace; else the nearest from here upwards.",
)
@click.pass_context
def main(context: click.Context, workspace: Path | None) -> None:
    """Connects a workspace to the services its pipelines read from, and brings it to production.

    Variables are read from the surroundings, and those not set there from the .env file of the
    workspace, as `dg dev` does.
    """
    context.obj = workspace or Path.cwd()


main.add_command(connect)
main.add_command(connections)
main.add_command(deploy)
