"""spark dump, load, reshard: tables that move, by Spark."""

from __future__ import annotations

import click

from s3k_async.cli.commands.moving import resharding, tell_dump, tell_load, tell_reshard
from s3k_async.cli.commands.spark import job, spark_session, volume_address, volume_in, whole_volume
from s3k_async.cli.invocation import Invocation
from s3k_async.model import ROOT, HashName
from s3k_async.paths import normalize

__all__ = ["dump", "load", "reshard"]


@job("dump")
@click.argument("volume", required=False)
@click.option(
    "-o", "--output", "target", metavar="DIR", required=True, help="Directory to write the dump to."
)
@click.option("--path", metavar="PATH", help="Only what is at and below this path of the volume.")
@click.option(
    "--uncommitted", is_flag=True, help="With the reservations of writers that have not finished."
)
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
    """Write the tree of a volume, without the bytes of its files, to DIR, as Parquet files that s3k
    load reads.

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
    tell_dump(invocation, done, target, path=top, requests=done.requests.as_dict())


@job("load")
@click.argument("source", metavar="DIR")
@click.argument("volume")
@click.option(
    "--check", is_flag=True, help="First make sure that the bytes of every file are here."
)
def load(
    invocation: Invocation,
    /,
    source: str,
    volume: str,
    check: bool,
    master: str | None,
    tasks: int | None,
) -> None:
    """Load a dump that s3k spark dump has written to DIR into an empty VOLUME, as s3k load.

    DIR is one that driver and executors share. A volume that does not exist is made. Nobody else
    can open it meanwhile; interrupted, it is finished by the same command, or by s3k load. Bytes
    are not copied along.
    """
    address = whole_volume(volume)
    with spark_session(master) as session, invocation.meter("load") as meter:
        from s3k_async import spark as jobs

        opened = volume_in(session, invocation, address)
        done = jobs.load(
            session, opened, source, check=check, partitions=tasks, progress=meter.part()
        )
    tell_load(invocation, done, source, volume, requests=done.requests.as_dict())


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
    """Give VOLUME another suffix count, as s3k reshard.

    Nobody can use the volume meanwhile, and who has it open has to open it again. 40 seconds pass
    before anything is changed, and 40 after. Interrupted, it is finished by the same command, or by
    s3k reshard.
    """
    address = whole_volume(volume)
    with spark_session(master) as session, invocation.meter("reshard") as meter:
        from s3k_async import spark as jobs

        opened = volume_in(session, invocation, address)
        done = jobs.reshard(
            session, opened, suffix_count, hash=hash_name, partitions=tasks, progress=meter.part()
        )
    tell_reshard(invocation, done, volume, requests=done.requests.as_dict())
