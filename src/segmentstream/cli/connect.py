"""`segmentstream connect`: its options; the work is in `authorizing`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import click

from segmentstream.cli.exits import Exit, Output, command_work, exit_table

DEFAULT_PORT = 8737
HOSTS = ("127.0.0.1", "localhost")  # what the loopback server can be called


def pairs(
    context: click.Context, parameter: click.Parameter, given: tuple[str, ...]
) -> Mapping[str, str]:
    """Reads an option that is given as NAME=VALUE, any number of times."""
    found = [each.partition("=") for each in given]
    if any(not name or not sign for name, sign, _ in found):
        raise click.BadParameter("Write it as NAME=VALUE, such as shop=acme.", context, parameter)
    return {name: value for name, _, value in found}


@click.command(epilog=exit_table())
@click.argument("key")
@click.option("--account", default="default", help="A name for this login, where there are more.")
@click.option(
    "--variable",
    "variables",
    multiple=True,
    metavar="NAME=VALUE",
    callback=pairs,
    help="A value for one of the connection's url_variables; may be repeated.",
)
@click.option("--no-browser", is_flag=True, help="Print the address instead of opening a browser.")
@click.option(
    "--paste",
    is_flag=True,
    help="Start no server: paste the address that the browser ended at, or pipe it in.",
)
@click.option("--redirect-uri", help="Where the provider sends the browser; with --paste only.")
@click.option(
    "--https",
    "is_https",
    is_flag=True,
    help="Listen with TLS; on by itself where the declaration asks for it (https_redirect).",
)
@click.option(
    "--callback-host",
    type=click.Choice(HOSTS),
    default="127.0.0.1",
    show_default=True,
    help="The host name in the redirect address.",
)
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=DEFAULT_PORT,
    show_default=True,
    help="The port in the redirect address; 0 takes one that is free.",
)
@click.option(
    "--timeout",
    "seconds",
    type=click.IntRange(1, 600),
    default=300,
    show_default=True,
    help="How many seconds to wait for the person.",
)
@click.pass_obj
@command_work
def connect(
    output: Output,
    start: Path,
    /,
    *,
    key: str,
    account: str,
    variables: Mapping[str, str],
    no_browser: bool,
    paste: bool,
    redirect_uri: str | None,
    is_https: bool,
    callback_host: str,
    port: int,
    seconds: int,
) -> Exit:
    """Lets a person log in at the provider of connection KEY, and keeps the tokens.

    It opens a browser, waits for it to come back to this machine and stores what was granted,
    sealed. Register the redirect address at the provider once: http://127.0.0.1:8737/callback
    unless options change it.
    """
    from segmentstream.cli import authorizing  # noqa: PLC0415 - not for `--help`
    from segmentstream.cli.workspace import Workspace  # noqa: PLC0415

    if redirect_uri is not None and not paste:
        raise click.UsageError("--redirect-uri goes with --paste only.")
    asked = authorizing.Asked(
        key=key,
        account=account,
        variables=variables,
        opens_browser=not no_browser,
        is_pasted=paste,
        redirect_uri=redirect_uri,
        is_https=is_https,
        host=callback_host,
        port=port,
        seconds=seconds,
    )
    return authorizing.run(Workspace.found(start, os.environ), asked, output)
