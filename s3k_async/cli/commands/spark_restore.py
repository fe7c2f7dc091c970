"""spark fsck-restore: restore of a lost table on Spark."""

from __future__ import annotations

import click

from s3k_async.alerts.finding_alerts import restore_alerts
from s3k_async.cli.command_alerts import CommandAlerts
from s3k_async.cli.commands.restore import print_restore
from s3k_async.cli.commands.spark import job, write_output
from s3k_async.cli.invocation import Invocation
from s3k_async.cli.spark_sessions import session_for
from s3k_async.cli.volume_addresses import whole_volume

__all__ = ["fsck_restore"]


@job("fsck-restore")
@click.argument("volume", required=False)
@click.option(
    "--subtree",
    metavar="PATH",
    help="Restore only lost entries at and below this path, into the existing table.",
)
@click.option("-o", "--output", metavar="DIR", help="Write the decisions to DIR, as Parquet.")
@click.option(
    "--checkpoint", metavar="DIR", help="Keep finished stages in DIR instead of on executors."
)
@click.option("--temporary", metavar="DIR", help="Directory for a temporary file of the driver.")
@click.option("--yes", is_flag=True, help="Restore. Without it, only show what would be restored.")
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
    """Rebuild a lost table from the log, as s3k fsck restore. A dry run without --yes."""
    address = whole_volume(volume, " (--subtree)")
    with CommandAlerts(invocation, None, "spark fsck-restore") as alerts:
        with (
            session_for(invocation, address, master, output) as (session, opened),
            invocation.meter("restore") as meter,
        ):
            alerts.start(opened.driver)
            from s3k_async.spark.restore_job import restore

            outcomes, report = restore(
                session,
                opened,
                subtree=subtree,
                dry_run=not yes,
                tasks=tasks,
                checkpoint=checkpoint,
                temporary=temporary,
                progress=meter.part(),
            )
            write_output(outcomes, output)
        alerts.add(lambda source: restore_alerts(source, report))
        print_restore(invocation, report, yes=yes)
