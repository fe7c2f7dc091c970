"""spark dump: tables that move, by Spark."""

from __future__ import annotations

import click

from s3k_async.cli.commands.spark import job, spark_session, volume_address, volume_in
from s3k_async.cli.invocation import Invocation
from s3k_async.cli.output import plural
from s3k_async.model import ROOT
from s3k_async.paths import normalize

__all__ = ["dump"]


@job("dump")
@click.argument("volume", required=False)
@click.option("-o", "--output", "target", metavar="DIR", required=True, help="Directory to write the dump to.")
@click.option("--path", metavar="PATH", help="Only what is at and below this path of the volume.")
@click.option("--uncommitted", is_flag=True, help="With the reservations of writers that have not finished.")
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
    """Write the tree of a volume, without the bytes of its files, to DIR, as Parquet files that s3k load reads.

    DIR is one that driver and executors share. VOLUME may have a path (./vol:/a), as --path.
    """
    address = volume_address(volume)
    if path is not None and address.path != ROOT:
        raise click.UsageError("the path is given twice: in VOLUME and by --path")
    top = normalize(path if path is not None else address.path)
    with spark_session(master) as session, invocation.meter("dump") as meter:
        from s3k_async import spark as jobs

        opened = volume_in(session, invocation, address)
        done = jobs.dump(
            session,
            opened,
            target,
            path=top,
            partitions=tasks,
            include_uncommitted=uncommitted,
            progress=meter.part(),
        )
    invocation.say(
        f"dumped {plural(done.files, 'file')}, {plural(done.directories, 'directory')} to {target}",
        file=target,
        path=top,
        entries=done.entries,
        files=done.files,
        directories=done.directories,
        bytes=done.bytes,
        requests=done.requests.as_dict(),
    )
