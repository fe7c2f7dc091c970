"""spark dump, load, reshard."""

from __future__ import annotations

import click

from s3k_async._core.paths import normalize
from s3k_async.cli.commands.migrate import print_dump, print_load, print_reshard, resharding
from s3k_async.cli.commands.spark import job, volume_address
from s3k_async.cli.invocation import Invocation
from s3k_async.cli.spark_sessions import session_for
from s3k_async.cli.volume_addresses import whole_volume
from s3k_async.model import ROOT, HashName

__all__ = ["dump", "load", "reshard"]


@job("dump")
@click.argument("volume", required=False)
@click.option(
    "-o", "--output", "target", metavar="DIR", required=True, help="Directory to write the dump to."
)
@click.option("--path", metavar="PATH", help="Dump only this path and everything below it.")
@click.option("--uncommitted", is_flag=True, help="Include reservations of unfinished writers.")
def dump(
    invocation: Invocation,
    /,
    volume: str | None,
    target: str,
    path: str | None,
    uncommitted: bool,
    master: str | None,
    tasks: int | None,
) -> None:
    """Export the file tree of a volume, without file contents, to Parquet files in DIR; s3k load
    reads them.

    Driver and executors must share DIR. VOLUME may include a path (./vol:/a), as with --path.
    """
    address = volume_address(volume)
    if path is not None and address.path != ROOT:
        raise click.UsageError("give the path either in VOLUME or by --path")
    top = normalize(path if path is not None else address.path)
    with (
        session_for(invocation, address, master) as (session, opened),
        invocation.meter("dump") as meter,
    ):
        from s3k_async.spark import dump

        done = dump(
            session,
            opened,
            target,
            path=top,
            tasks=tasks,
            include_uncommitted=uncommitted,
            progress=meter.part(),
        )
    print_dump(invocation, opened.driver, top, done, target, requests=done.requests.as_dict())


@job("load")
@click.argument("source", metavar="DIR")
@click.argument("volume")
@click.option("--check", is_flag=True, help="First verify that the data of every file exists.")
def load(
    invocation: Invocation,
    /,
    source: str,
    volume: str,
    check: bool,
    master: str | None,
    tasks: int | None,
) -> None:
    """Import the dump in DIR, the output of s3k spark dump, into an empty VOLUME, as s3k load.

    Driver and executors must share DIR. A missing volume is created. The volume is locked while it
    is loaded. Repeat this command, or run s3k load, to finish an interrupted load. File contents
    are not copied.
    """
    address = whole_volume(volume)
    with (
        session_for(invocation, address, master) as (session, opened),
        invocation.meter("load") as meter,
    ):
        from s3k_async.spark import load

        done = load(session, opened, source, check=check, tasks=tasks, progress=meter.part())
    print_load(invocation, done, source, volume, requests=done.requests.as_dict())


@job("reshard")
@click.argument("volume")
@resharding
def reshard(
    invocation: Invocation,
    /,
    volume: str,
    suffix_count: int,
    hash_name: HashName | None,
    master: str | None,
    tasks: int | None,
) -> None:
    """Change the suffix count of VOLUME, as s3k reshard.

    The volume is locked: other clients cannot use it, and must open it again afterwards. The job
    waits 40 seconds before the first change and 40 after the last. Repeat this command, or run s3k
    reshard, to finish an interrupted run.
    """
    address = whole_volume(volume)
    with (
        session_for(invocation, address, master) as (session, opened),
        invocation.meter("reshard") as meter,
    ):
        from s3k_async.spark import reshard

        done = reshard(
            session, opened, suffix_count, hash=hash_name, tasks=tasks, progress=meter.part()
        )
    print_reshard(invocation, done, volume, requests=done.requests.as_dict())
