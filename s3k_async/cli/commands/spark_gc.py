"""spark gc: garbage collection on Spark."""

from __future__ import annotations

from typing import Any

import click

from s3k_async._core.runtime import SYSTEM
from s3k_async.alerts.finding_alerts import collection_alerts
from s3k_async.cli.command import capacity_options
from s3k_async.cli.command_alerts import CommandAlerts
from s3k_async.cli.commands.gc import print_collection, sweeping
from s3k_async.cli.commands.spark import job, record, write_output
from s3k_async.cli.invocation import Invocation
from s3k_async.cli.spark_sessions import session_for
from s3k_async.cli.volume_addresses import whole_volume
from s3k_async.integrity.last_runs import last_collection

__all__ = ["gc"]


@job("gc")
@click.argument("volume", required=False)
@sweeping
@capacity_options("read", "write")
@click.option(
    "--checkpoint",
    metavar="DIR",
    help="Keep finished stages in DIR; repeat the command to resume, or with --yes to sweep.",
)
@click.option("--no-trash", is_flag=True, help="Leave deleted directories in the trash.")
@click.option("-o", "--output", metavar="DIR", help="Write all candidates to DIR, as Parquet.")
def gc(
    invocation: Invocation,
    /,
    volume: str | None,
    yes: bool,
    no_trash: bool,
    output: str | None,
    master: str | None,
    **options: Any,
) -> None:
    """Delete unreferenced physical objects, as s3k gc. A dry run without --yes.

    Safe beside writers, readers and other runs.
    """
    address = whole_volume(volume)
    with CommandAlerts(invocation, None, "spark gc") as alerts:
        with (
            session_for(invocation, address, master, output) as (session, opened),
            invocation.meter("gc") as meter,
        ):
            alerts.start(opened.driver)
            from s3k_async.spark import gc

            frame, report = gc(
                session,
                opened,
                dry_run=not yes,
                trash=not no_trash,
                progress=meter.part(),
                **options,
            )
            write_output(frame, output)
        record(opened, last_collection(report.swept, report.reclaimed, SYSTEM.now_ms()))
        alerts.add(lambda source: collection_alerts(source, report.marked, report.swept))
        print_collection(invocation, opened.driver, report.marked, report.swept, report.reclaimed)
