"""spark gc: garbage collection on Spark."""

from __future__ import annotations

from typing import Any

import click

from s3k_async.cli.commands.gc import print_collection, sweeping
from s3k_async.cli.commands.spark import job, keep, spark_session, volume_address, volume_in
from s3k_async.cli.invocation import Invocation
from s3k_async.errors import InvalidArgumentError
from s3k_async.model import ROOT

__all__ = ["gc"]


@job("gc")
@click.argument("volume", required=False)
@sweeping
@click.option(
    "--checkpoint",
    metavar="DIR",
    help="Keep finished stages in DIR; repeat the command to resume, or with --yes to sweep.",
)
@click.option("-o", "--output", metavar="DIR", help="Write all candidates to DIR, as Parquet.")
def gc(
    invocation: Invocation,
    /,
    volume: str | None,
    yes: bool,
    output: str | None,
    master: str | None,
    tasks: int | None,
    **options: Any,
) -> None:
    """Delete unreferenced physical objects, as s3k gc. A dry run without --yes.

    Safe beside writers, readers and other runs.
    """
    address = volume_address(volume)
    if address.path != ROOT:
        raise InvalidArgumentError("expected a volume, not a path in a volume", path=volume)
    with spark_session(master, output) as session, invocation.meter("gc") as meter:
        from s3k_async import spark as jobs

        frame, report = jobs.gc(
            session,
            volume_in(session, invocation, address),
            dry_run=not yes,
            partitions=tasks,
            progress=meter.part(),
            **options,
        )
        keep(frame, output)
    print_collection(invocation, report.marked, report.swept)
