"""dev: local engines for development, and a volume on them."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from typing import Any

import click

from s3k_async.cli.command import CommandGroup, PlainCommand
from s3k_async.cli.event_loop import run_loop
from s3k_async.cli.invocation import Invocation
from s3k_async.cli.local_engines import VOLUME, EngineState, LocalEngines

__all__ = ["dev", "down", "status", "up"]

dev = CommandGroup(
    name="dev",
    help="""Local engines for development: dynoxide has the API of DynamoDB, SeaweedFS that of S3.

    The programs dynoxide and weed are looked up in the directory S3K_ENGINES, then in PATH. Data,
    logs and a configuration file are in one directory.""",
)

_directory: Callable[[Any], Any] = click.option(
    "--directory",
    default=".s3k-dev",
    show_default=True,
    metavar="DIR",
    help="Directory of the engines.",
)


@dev.command(cls=PlainCommand)
@_directory
@click.pass_obj
def up(invocation: Invocation, directory: str) -> None:
    """Start the engines that are not running, and create the volume s3k://dev on them.

    Prints the line that selects the volume in a shell.
    """
    engines = LocalEngines(directory)

    async def work() -> list[EngineState]:
        from s3k_async.settings import resolve
        from s3k_async.volumes import init_volume

        states = await engines.up()
        config = resolve(f"s3k://{VOLUME}", config=engines.config)
        await init_volume(config, exist_ok=True)
        return states

    _show(invocation, engines, run_loop(work))
    if not invocation.json and not invocation.quiet:
        invocation.output.line(f"export S3K_CONFIG={shlex.quote(engines.config)}")


@dev.command(cls=PlainCommand)
@_directory
@click.pass_obj
def down(invocation: Invocation, directory: str) -> None:
    """Stop the engines. Their data is kept for the next up."""
    engines = LocalEngines(directory)
    ended = run_loop(engines.down)
    names = ", ".join(each.program for each in ended) or "nothing"
    invocation.say(f"ended {names}", ended=[each.program for each in ended])


@dev.command(cls=PlainCommand)
@_directory
@click.pass_obj
def status(invocation: Invocation, directory: str) -> None:
    """Show the engines of the directory, and whether they are running."""
    engines = LocalEngines(directory)
    _show(invocation, engines, engines.states())


def _show(invocation: Invocation, engines: LocalEngines, states: Sequence[EngineState]) -> None:
    for each in states:
        if invocation.json:
            invocation.output.json(
                {
                    "name": each.name,
                    "program": each.program,
                    "pid": each.pid,
                    "endpoint": each.endpoint,
                    "runs": each.runs,
                }
            )
        else:
            runs = "runs" if each.runs else "ended"
            invocation.output.line(f"{each.name:<5} {runs:<5} {each.endpoint} {each.program}")
    if not states and not invocation.json:
        invocation.output.line(f"no engines in {engines.directory}: s3k dev up starts them")
