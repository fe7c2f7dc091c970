"""spark fsck-restore: a lost table, by Spark."""

from __future__ import annotations

import click

from s3k_async.cli.commands.restore import tell_restore
from s3k_async.cli.commands.spark import job, keep, spark_session, volume_address, volume_in
from s3k_async.cli.invocation import Invocation
from s3k_async.errors import InvalidArgumentError
from s3k_async.model import ROOT

__all__ = ["fsck_restore"]


@job("fsck-restore")
@click.argument("volume", required=False)
@click.option(
    "--subtree", metavar="PATH", help="Put back only what the table lost at and below this path."
)
@click.option(
    "-o", "--output", metavar="DIR", help="Write there, as Parquet, what is worth telling."
)
@click.option(
    "--checkpoint", metavar="DIR", help="Keep the stages of the run there, in place of executors."
)
@click.option("--temporary", metavar="DIR", help="Where the driver makes a temporary file.")
@click.option("--yes", is_flag=True, help="Restore. Without it, only tell what would be done.")
def fsck_restore(
    invocation: Invocation,
    /,
    volume: str | None,
    subtree: str | None,
    output: str | None,
    checkpoint: str | None,
    temporary: str | None,
    yes: bool,
    master: str | None,
    tasks: int | None,
) -> None:
    """Make a lost table again from the log, as s3k fsck restore. A dry run without --yes."""
    address = volume_address(volume)
    if address.path != ROOT:
        raise InvalidArgumentError(
            "a volume is meant here, not a path in one (--subtree)", path=volume
        )
    with spark_session(master, output) as session, invocation.meter("restore") as meter:
        from s3k_async.spark.restoring import restore

        outcomes, report = restore(
            session,
            volume_in(session, invocation, address),
            subtree=subtree,
            dry_run=not yes,
            partitions=tasks,
            checkpoint=checkpoint,
            temporary=temporary,
            progress=meter.part(),
        )
        keep(outcomes, output)
    tell_restore(invocation, report, yes=yes)
