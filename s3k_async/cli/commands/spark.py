"""spark: jobs over whole volumes, on this machine or on a cluster."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, Literal

import click

from s3k_async._core.runtime import SYSTEM
from s3k_async.alerts.finding_alerts import repair_alerts, verify_alerts
from s3k_async.cli.command import CommandGroup, VolumeCommand, capacity_options, grace_option
from s3k_async.cli.command_alerts import CommandAlerts
from s3k_async.cli.commands.check import print_repair, print_report
from s3k_async.cli.event_loop import run_loop
from s3k_async.cli.invocation import Invocation
from s3k_async.cli.output import human_size, plural
from s3k_async.cli.reporting import FailedOperandsError
from s3k_async.cli.spark_lists import Form, read_list
from s3k_async.cli.spark_sessions import session_for
from s3k_async.cli.volume_addresses import (
    Address,
    parse_address,
    parse_volume_address,
    shown_in,
    whole_volume,
)
from s3k_async.errors import S3kError
from s3k_async.integrity.last_runs import LastRun, last_repair, last_verification, record_run
from s3k_async.integrity.verify import GRACE_SECONDS
from s3k_async.model import ROOT

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from s3k_async.spark import JobReport, JobResult, SparkVolume

__all__ = ["job", "spark", "volume_address", "write_output"]

_ELSEWHERE: Final = {
    "fsck-restore": "spark_restore",
    "dump": "spark_migrate",
    "load": "spark_migrate",
    "reshard": "spark_migrate",
    "gc": "spark_gc",
}
"""Jobs by name to the module beside this one that adds them to the group."""


class _SparkCommands(CommandGroup):
    """The jobs; those of `_ELSEWHERE` are imported when they are run."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted({*super().list_commands(ctx), *_ELSEWHERE})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name in _ELSEWHERE and cmd_name not in self.commands:
            import_module(f"s3k_async.cli.commands.{_ELSEWHERE[cmd_name]}")
        return super().get_command(ctx, cmd_name)


spark = _SparkCommands(
    name="spark",
    help="""Run bulk operations and fsck on Spark, locally or, with spark-submit, on a cluster.

    Settings of the volume are also read from the Spark configuration. Jobs that change something
    are a dry run without --yes.""",
)


def _set_verbose(ctx: click.Context, _: click.Parameter, value: bool) -> None:
    ctx.ensure_object(Invocation).verbose = value


def job(name: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """A command of the group, with the options that all of them have."""

    def add(function: Callable[..., None]) -> Callable[..., None]:
        command = click.pass_obj(function)
        for option in (
            click.option(
                "-v",
                "--verbose",
                is_flag=True,
                expose_value=False,
                callback=_set_verbose,
                help="Show the log of Spark and its JVM.",
            ),
            click.option(
                "--tasks",
                type=click.IntRange(1),
                metavar="N",
                help="Number of Spark tasks [default: 4 per core].",
            ),
            click.option(
                "--master",
                metavar="URL",
                help="Spark master [default: that of spark-submit, else local[*]].",
            ),
        ):
            command = option(command)
        return spark.command(name=name, cls=VolumeCommand)(command)

    return add


def _form_option() -> Callable[[Callable[..., None]], Callable[..., None]]:
    return click.option(
        "--format",
        "form",
        type=click.Choice(["parquet", "csv", "json"]),
        help="Format of the list [default: from its file name extension, else from its content]; "
        "CSV needs a header.",
    )


def _changing(
    rows: tuple[str, str] | None = None,
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """The options of jobs that change something; `rows`: flag and help of the list."""

    def add(command: Callable[..., None]) -> Callable[..., None]:
        options: list[Callable[[Callable[..., None]], Callable[..., None]]] = [
            click.option(
                "-o",
                "--output",
                metavar="DIR",
                help="Write the result of each row to DIR, as Parquet.",
            ),
            click.option(
                "--yes", is_flag=True, help="Apply the changes. Without it, only show them."
            ),
        ]
        if rows is not None:
            flag, meaning = rows
            options += [
                click.option(
                    "--state",
                    metavar="DIR",
                    help="Keep the state of the job in DIR; repeat the command to resume.",
                ),
                _form_option(),
                click.option(flag, "rows", metavar="FILE", required=True, help=meaning),
            ]
        for option in options:
            command = option(command)
        return command

    return add


_by = click.option(
    "--by",
    type=click.Choice(["directories", "segments"]),
    default="directories",
    show_default=True,
    help="Division into tasks: by subtree, or by segment of the table.",
)


@job("listing")
@click.argument("path", required=False)
@click.option(
    "-o",
    "--output",
    metavar="DIR",
    required=True,
    help="Output directory; must not exist.",
)
@click.option(
    "--format",
    "form",
    type=click.Choice(["parquet", "csv", "json"]),
    default="parquet",
    show_default=True,
    help="File format.",
)
@_by
def listing(
    invocation: Invocation,
    /,
    path: str | None,
    output: str,
    form: Form,
    by: Literal["directories", "segments"],
    master: str | None,
    tasks: int | None,
) -> None:
    """Write a listing of everything below PATH as a table."""
    address = _address(path)
    with session_for(invocation, address, master, output, title="listing") as (session, opened):
        from s3k_async.spark import listing

        frame = listing(session, opened, address.path, by=by, tasks=tasks)
        frame.write.format(form).option("header", form == "csv").save(output)
        written = read_list(session, output, form).count()
    invocation.say(
        f"listed {plural(written, 'entry')} to {output}",
        volume=shown_in(opened.driver),
        path=address.path,
        output=output,
        entries=written,
    )


@job("du")
@click.argument("path", required=False)
@click.option(
    "-L",
    "--depth",
    type=click.IntRange(0, 1000),
    default=1,
    show_default=True,
    help="Number of levels below PATH.",
)
@click.option("-h", "--human", is_flag=True, help="Show sizes in K, M and G (powers of 1,024).")
@_by
def du(
    invocation: Invocation,
    /,
    path: str | None,
    depth: int,
    human: bool,
    by: Literal["directories", "segments"],
    master: str | None,
    tasks: int | None,
) -> None:
    """Show bytes, files, directories (including itself) and path of each directory, by path.

    With --json, one JSON object per line.
    """
    address = _address(path)
    with session_for(invocation, address, master, title="du") as (session, opened):
        from s3k_async.spark import du

        frame = du(session, opened, address.path, depth=depth, by=by, tasks=tasks)
        rows = frame.orderBy("path").collect()
    for row in rows:
        if invocation.json:
            invocation.output.json({"volume": shown_in(opened.driver), **row.asDict()})
            continue
        text = human_size(row.bytes) if human else str(row.bytes)
        invocation.output.line(
            f"{text:>{6 if human else 13}} {row.files:>8} {row.directories:>7}  {row.path}"
        )


@job("rename")
@click.argument("volume", required=False)
@_changing(("--pairs", "Table of path pairs, with the columns source and target."))
@click.option("-f", "--overwrite", is_flag=True, help="Replace existing files.")
@click.option("--missing-ok", is_flag=True, help="A pair of which only the target exists is done.")
def rename(invocation: Invocation, /, **options: Any) -> None:
    """Rename a list of path pairs, each independently. Spark reads the list."""
    _change_rows(invocation, lambda jobs: jobs.rename_files, "renamed", "rename", **options)


@job("delete")
@click.argument("volume", required=False)
@_changing(("--from", "Table of paths, with the column path."))
@click.option(
    "-r", "--recursive", is_flag=True, help="Include directories and everything below them."
)
@click.option("--missing-ok", is_flag=True, help="Ignore missing paths.")
def delete(invocation: Invocation, /, **options: Any) -> None:
    """Remove a list of paths, each independently. Spark reads the list."""
    _change_rows(invocation, lambda jobs: jobs.delete_files, "deleted", "delete", **options)


def _change_rows(
    invocation: Invocation,
    transaction_of: Callable[[Any], Callable[..., JobResult[JobReport]]],
    did: str,
    would: str,
    *,
    volume: str | None,
    rows: str,
    form: Form | None,
    master: str | None,
    yes: bool,
    output: str | None,
    **options: Any,
) -> None:
    """Run a job of `s3k_async.spark` for each row of a list."""
    with session_for(invocation, whole_volume(volume), master, output, title=would) as (
        session,
        opened,
    ):
        from s3k_async import spark as jobs

        listed = read_list(session, rows, form)
        result = transaction_of(jobs)(session, opened, listed, dry_run=not yes, **options)
        write_output(result.frame, output)
    _print_report(invocation, opened, result.report, did, would, whole=True)


@job("import")
@click.argument("volume", required=False)
@_changing()
@click.option(
    "--from", "rows", metavar="FILE", help="Table of objects, with the columns uri and path."
)
@_form_option()
@click.option("--below", metavar="URI", help="All objects below a URI.")
@click.option(
    "--inventory",
    metavar="FILE",
    help="All objects of an S3 Inventory, given by its manifest.json.",
)
@click.option(
    "--prefix", metavar="KEY", default="", help="Only inventory objects with this key prefix."
)
@click.option(
    "--to",
    "target",
    metavar="PATH",
    help="Target directory; required with --below and --inventory.",
)
@click.option("-f", "--overwrite", is_flag=True, help="Replace existing files.")
def import_(
    invocation: Invocation,
    /,
    volume: str | None,
    rows: str | None,
    form: Form | None,
    below: str | None,
    inventory: str | None,
    prefix: str,
    target: str | None,
    master: str | None,
    yes: bool,
    output: str | None,
    overwrite: bool,
    tasks: int | None,
) -> None:
    """Adopt existing objects as files, without a copy."""
    if sum(each is not None for each in (rows, below, inventory)) != 1:
        raise click.UsageError("give one of --from, --below and --inventory")
    if (target is None) != (rows is not None):
        raise click.UsageError(
            "--to is required with --below and --inventory, and not allowed with --from"
        )
    with session_for(invocation, whole_volume(volume), master, output, title="import") as (
        session,
        opened,
    ):
        from s3k_async import spark as jobs

        if rows is not None:
            objects = read_list(session, rows, form)
        elif below is not None:
            objects = jobs.objects_below(session, opened, below, str(target), tasks=tasks)
        else:
            objects = jobs.objects_of_inventory(
                session, opened, str(inventory), str(target), prefix=prefix
            )
        result = jobs.import_objects(
            session, opened, objects, overwrite=overwrite, dry_run=not yes, tasks=tasks
        )
        write_output(result.frame, output)
    _print_report(invocation, opened, result.report, "imported", "import")


@job("purge")
@click.argument("path")
@_changing()
@click.option("--missing-ok", is_flag=True, help="Ignore a missing directory.")
def purge(
    invocation: Invocation,
    /,
    path: str,
    master: str | None,
    yes: bool,
    output: str | None,
    **options: Any,
) -> None:
    """Remove the directory PATH and everything below it, entry by entry.

    The root of a volume is emptied.

    s3k gc deletes the data later. Repeat the command to finish an interrupted run.
    """
    address = parse_address(path)
    with session_for(invocation, address, master, output, title="purge") as (session, opened):
        from s3k_async.spark import purge

        result = purge(session, opened, address.path, dry_run=not yes, **options)
        write_output(result.frame, output)
    _print_report(invocation, opened, result.report, "deleted", "delete")


def _checking(what: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """The options of both fsck jobs; `what`: the participle for the help of `--grace`."""

    def add(command: Callable[..., None]) -> Callable[..., None]:
        for option in (
            click.option(
                "-o", "--output", metavar="DIR", help="Write all findings to DIR, as Parquet."
            ),
            click.option(
                "--checkpoint",
                metavar="DIR",
                help="Keep finished stages in DIR; repeat the command to resume.",
            ),
            grace_option(
                GRACE_SECONDS,
                f"Grace period: newer entries, operations and objects are not {what}.",
            ),
            click.argument("volume", required=False),
        ):
            command = option(command)
        return command

    return add


@job("fsck-verify")
@_checking("reported")
@capacity_options("read")
@click.option("--deep", is_flag=True, help="Also read all data and verify checksums.")
def fsck_verify(
    invocation: Invocation,
    /,
    volume: str | None,
    output: str | None,
    master: str | None,
    **options: Any,
) -> None:
    """Check the consistency of table, log and data, as s3k fsck verify; read-only. VOLUME may
    include a path."""
    address = volume_address(volume)
    with CommandAlerts(invocation, None, "spark fsck-verify") as alerts:
        with (
            session_for(invocation, address, master, output) as (session, opened),
            invocation.meter("fsck") as meter,
        ):
            alerts.start(opened.driver)
            from s3k_async.spark.fsck_job import verify

            frame, report = verify(
                session, opened, path=address.path, progress=meter.part(), **options
            )
            write_output(frame, output)
        if address.path == ROOT:
            record(opened, last_verification(report, SYSTEM.now_ms()))
        alerts.add(lambda source: verify_alerts(source, report))
        print_report(invocation, opened.driver, address.path, report)


@job("fsck-repair")
@_checking("repaired")
@capacity_options("read", "write")
@click.option(
    "--deep",
    is_flag=True,
    help="Compare the bytes of objects that are in the hot and in the cold location.",
)
@click.option("--yes", is_flag=True, help="Apply the repairs. Without it, only show them.")
def fsck_repair(
    invocation: Invocation,
    /,
    volume: str | None,
    output: str | None,
    master: str | None,
    yes: bool,
    **options: Any,
) -> None:
    """Repair the findings of fsck-verify, as s3k fsck repair. A dry run without --yes. VOLUME may
    include a path."""
    address = volume_address(volume)
    with CommandAlerts(invocation, None, "spark fsck-repair") as alerts:
        with (
            session_for(invocation, address, master, output) as (session, opened),
            invocation.meter("fsck") as meter,
        ):
            alerts.start(opened.driver)
            from s3k_async.spark.fsck_job import repair

            frame, report = repair(
                session,
                opened,
                path=address.path,
                dry_run=not yes,
                progress=meter.part(),
                **options,
            )
            write_output(frame, output)
        if address.path == ROOT:
            record(opened, last_repair(report, SYSTEM.now_ms()))
        alerts.add(lambda source: repair_alerts(source, report))
        print_repair(invocation, opened.driver, address.path, report)


# Addresses and reports


def _address(path: str | None) -> Address:
    return parse_address(path if path is not None else ":/")


def volume_address(volume: str | None) -> Address:
    """A volume, or the default one, which may have a path."""
    return parse_volume_address(volume) if volume is not None else Address(None, ROOT, "")


def record(volume: SparkVolume, run: LastRun | None) -> None:
    """Record a completed run, from the driver. An error is only a warning, since the report
    follows."""
    from s3k_async.volumes import open_volume

    async def write() -> None:
        opened = await open_volume(volume.driver)
        try:
            await record_run(opened, run)
        finally:
            await opened.close()

    if run is None:
        return
    try:
        run_loop(write)
    except S3kError as error:
        warnings.warn(f"the run was not recorded for s3k info: {error}", stacklevel=1)


def write_output(frame: DataFrame, output: str | None) -> None:
    """Write the rows of a result to the output directory, if there is one."""
    if output is not None:
        frame.write.parquet(output)


def _print_report(
    invocation: Invocation,
    volume: SparkVolume,
    report: JobReport,
    did: str,
    would: str,
    *,
    whole: bool = False,
) -> None:
    """Print the report. `whole`: a directory counts as one, regardless of its content. Raises
    FailedOperandsError if a row failed."""
    did_what = f"would {would}" if report.dry_run else did
    files, directories = plural(report.files, "file"), plural(report.directories, "directory")
    if not report.directories:
        text = f"{did_what} {files}, {report.bytes:,} bytes"
    elif not whole:
        text = f"{did_what} {files}, {directories}, {report.bytes:,} bytes"
    else:
        of_files = f"{files}, {report.bytes:,} bytes, " if report.files else ""
        text = f"{did_what} {of_files}{directories} with all below"
    place = shown_in(volume.driver)
    text += f" in {place}"
    if report.already:
        text += f"; {report.already:,} were done already"
    text += " (--yes applies it)" if report.dry_run else f"; {report.seconds:,.1f} s"
    invocation.say(
        text,
        volume=place,
        job=report.job,
        dry_run=report.dry_run,
        rows=report.rows,
        done=report.done,
        already=report.already,
        planned=report.planned,
        failed=report.failed,
        files=report.files,
        directories=report.directories,
        bytes=report.bytes,
        seconds=round(report.seconds, 3),
        requests=report.requests.as_dict(),
    )
    if report.failed:
        some = report.done + report.already + report.planned > 0
        raise FailedOperandsError(report.failures, some_succeeded=some, count=report.failed)
