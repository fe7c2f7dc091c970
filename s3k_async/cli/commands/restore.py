"""fsck restore: a lost table, or lost entries, from the log."""

from __future__ import annotations

from typing import Any

import click

from s3k_async._core.paths import normalize
from s3k_async.alerts.finding_alerts import restore_alerts
from s3k_async.cli.command import OutputFile, VolumeCommand
from s3k_async.cli.command_alerts import CommandAlerts
from s3k_async.cli.event_loop import run_loop
from s3k_async.cli.exit_codes import ExitCode
from s3k_async.cli.invocation import Invocation
from s3k_async.cli.output import plural
from s3k_async.cli.volume_addresses import whole_volume
from s3k_async.integrity.restore_report import RestoreReport
from s3k_async.volumes.restoration import restore_volume

__all__ = ["print_restore", "restore"]


@click.command(cls=VolumeCommand)
@click.argument("volume", required=False)
@click.option(
    "--subtree",
    metavar="PATH",
    help="Restore only lost entries at and below this path, into the existing table.",
)
@click.option("--yes", is_flag=True, help="Restore. Without it, only show what would be restored.")
@click.option(
    "--audit", type=OutputFile(), metavar="FILE", help="Also write the audit trail to a local file."
)
@click.option(
    "--temporary",
    metavar="DIRECTORY",
    help="Directory for a temporary file of about the size of the log.",
)
@click.pass_obj
def restore(
    invocation: Invocation,
    volume: str | None,
    subtree: str | None,
    yes: bool,
    audit: str | None,
    temporary: str | None,
) -> None:
    """Rebuild a lost table, or lost entries, from the operation log. A dry run without --yes.

    The volume is locked during the restore. Repeat the command to finish an interrupted run. Exits
    with 9 if anything could not be decided or restored. Run fsck repair afterwards to resolve
    pending operations of the log.
    """
    config = invocation.resolve(whole_volume(volume, " (--subtree)").volume)
    top = None if subtree is None else normalize(subtree)

    async def work() -> RestoreReport:
        with invocation.meter("restore") as meter:
            return await restore_volume(
                config,
                subtree=top,
                dry_run=not yes,
                audit=audit,
                directory=temporary,
                progress=meter.part(),
            )

    with CommandAlerts(invocation, config, "fsck restore") as alerts:
        report = run_loop(work)
        alerts.add(lambda source: restore_alerts(source, report))
        print_restore(invocation, report, yes=yes)


def print_restore(invocation: Invocation, report: RestoreReport, *, yes: bool) -> None:
    """Print the result of a restore. Exits with 9 if anything could not be decided or restored."""
    if invocation.json:
        invocation.output.json(_document(report))
    else:
        for outcome in report.outcomes:
            what = f"{outcome.rule}: {outcome.path or outcome.object_id}"
            invocation.output.line(f"{what}: {outcome.detail}" if outcome.detail else what)
        if not invocation.quiet:
            invocation.output.line(_summary(report, yes=yes))
    if not report.clean:
        raise click.exceptions.Exit(ExitCode.DAMAGE)


def _summary(report: RestoreReport, *, yes: bool) -> str:
    text = (
        f"{plural(report.files, 'file')}, {plural(report.directories, 'directory')}, "
        f"{report.bytes:,} bytes"
    )
    if report.reservations:
        text += f", {plural(report.reservations, 'reservation')}"
    text += f" from {plural(report.log_records, 'log record')}"
    return (
        f"restored {text}; audit/{report.run}" if yes else f"would restore {text} (--yes restores)"
    )


def _document(report: RestoreReport) -> dict[str, Any]:
    return {
        "clean": report.clean,
        "files": report.files,
        "directories": report.directories,
        "reservations": report.reservations,
        "bytes": report.bytes,
        "log_records": report.log_records,
        "written": report.written,
        "run": report.run or None,
        "counts": dict(sorted(report.counts.items())),
        "outcomes": [
            {
                "rule": outcome.rule,
                "path": outcome.path,
                "object_id": outcome.object_id or None,
                "detail": outcome.detail,
                "is_problem": outcome.is_problem,
            }
            for outcome in report.outcomes
        ],
    }
