"""spark gc: bytes that nobody names, by Spark."""

from __future__ import annotations

import click

from s3k_async.cli.command import Amount
from s3k_async.cli.commands.gc import tell_collection
from s3k_async.cli.commands.spark import job, keep, spark_session, volume_address, volume_in
from s3k_async.cli.invocation import Invocation
from s3k_async.cli.reporting import FailedOperandsError
from s3k_async.errors import InvalidArgumentError
from s3k_async.fsck.verdicts import GRACE_SECONDS
from s3k_async.model import ROOT

__all__ = ["gc"]


@job("gc")
@click.argument("volume", required=False)
@click.option("--yes", is_flag=True, help="Delete. Without it, only tell what would be deleted.")
@click.option(
    "--grace",
    type=Amount(),
    default=GRACE_SECONDS,
    show_default=True,
    metavar="SECONDS",
    help="How long nobody must have named what is deleted: longer than any read or job takes.",
)
@click.option(
    "--lease",
    type=Amount(),
    metavar="SECONDS",
    help="The longest lease that any client of the volume is configured with [default: the volume's setting].",
)
@click.option("--rate", type=Amount(min_open=True), metavar="KEYS", help="At most so many a second.")
@click.option("--checkpoint", metavar="DIR", help="Keep the stages there; the same command goes on, and sweeps later.")
@click.option("-o", "--output", metavar="DIR", help="Write all candidates there, as Parquet.")
def gc(
    invocation: Invocation,
    /,
    volume: str | None,
    yes: bool,
    grace: float,
    lease: float | None,
    rate: float | None,
    checkpoint: str | None,
    output: str | None,
    master: str | None,
    tasks: int | None,
) -> None:
    """Delete bytes that no file names, as s3k gc. A dry run without --yes.

    Safe beside writers, readers and other runs. VOLUME as for fsck.
    """
    address = volume_address(volume)
    if address.path != ROOT:
        raise InvalidArgumentError("a volume is meant here, not a path in one", path=volume)
    with spark_session(master, output) as session, invocation.meter("gc") as meter:
        from s3k_async import spark as jobs

        frame, report = jobs.gc(
            session,
            volume_in(session, invocation, address),
            dry_run=not yes,
            grace=grace,
            lease=lease,
            rate=rate,
            partitions=tasks,
            checkpoint=checkpoint,
            progress=meter.part(),
        )
        keep(frame, output)
    tell_collection(invocation, report.marked, report.swept)
    if report.swept is not None and report.swept.failures:
        raise FailedOperandsError(report.swept.failures, some_succeeded=bool(report.swept.deleted))
