"""The `segmentstream` command itself; each command imports its work when it is called."""

from __future__ import annotations

import click


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="segmentstream-pipeline", prog_name="segmentstream")
def main() -> None:
    """Connects a workspace to the services its pipelines read from."""
