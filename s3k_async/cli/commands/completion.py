"""completion: scripts by which shells complete the command line."""

from __future__ import annotations

import click

from s3k_async.cli.command import PlainCommand
from s3k_async.cli.invocation import Invocation
from s3k_async.cli.shell_completion import SCRIPTS

__all__ = ["completion"]


@click.command(cls=PlainCommand)
@click.argument("shell", type=click.Choice(sorted(SCRIPTS)))
@click.pass_obj
def completion(invocation: Invocation, shell: str) -> None:
    """Print the script that completes commands, options, volumes and paths in SHELL.

    Add the line that the script names at its top to the startup file of the shell. Paths are listed
    in the volume, for at most two seconds; errors are not shown.
    """
    for line in SCRIPTS[shell].splitlines():
        invocation.output.line(line)
