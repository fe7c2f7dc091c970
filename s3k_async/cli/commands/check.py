"""fsck, as far as it reads only."""

from __future__ import annotations

from collections import Counter
from typing import Any

import click

from s3k_async.cli.addresses import Address, parse_volume_address
from s3k_async.cli.command import VolumeCommand
from s3k_async.cli.exit_codes import ExitCode
from s3k_async.cli.invocation import Invocation
from s3k_async.cli.output import plural
from s3k_async.errors import PathNotFoundError
from s3k_async.fsck.decide import Finding
from s3k_async.fsck.verify import GRACE_SECONDS, Report, Verifier
from s3k_async.model import ROOT
from s3k_async.oplog.reader import JavaLogReader, LogReader
from s3k_async.paths import normalize
from s3k_async.sources import SYSTEM
from s3k_async.volumes import Volume, open_volume

__all__ = ["fsck"]


@click.command(cls=VolumeCommand)
@click.argument("arguments", nargs=-1, metavar="[verify] [VOLUME]")
@click.option("--path", metavar="PATH", help="Only what is below this path of the volume.")
@click.option(
    "--grace",
    type=click.FloatRange(min=0),
    default=GRACE_SECONDS,
    show_default=True,
    metavar="SECONDS",
    help="What is younger may be under way, and is not reported.",
)
@click.option("--deep", is_flag=True, help="Read every byte too and compare checksums.")
@click.pass_obj
def fsck(invocation: Invocation, arguments: tuple[str, ...], path: str | None, grace: float, deep: bool) -> None:
    """Compare table, log and bytes of a volume, and list what does not fit; changes nothing.

    The last line sums up. Exits with 9 if there are problems. VOLUME may have a path (./vol:/a), as --path.
    """
    address = _address(arguments)
    if path is not None and address.path != ROOT:
        raise click.UsageError("the path is given twice: in VOLUME and by --path")
    top = normalize(path if path is not None else address.path)

    async def work() -> Report:
        volume = await open_volume(invocation.resolve(address.volume))
        try:
            if await volume.store.get(top) is None:
                raise PathNotFoundError("no such file or directory", path=top)
            verifier = Verifier(volume.store, volume.blobs, _log(volume), SYSTEM, grace=grace)
            with invocation.meter("fsck") as meter:
                return await verifier.verify(top, deep=deep, progress=meter.part())
        finally:
            await volume.close()

    import anyio

    report = anyio.run(work)
    if invocation.json:
        invocation.output.json(_document(report))
    else:
        for finding in report.problems:
            invocation.output.line(
                f"{finding.kind}: {finding.path or finding.key or finding.object_id}: {finding.detail}"
            )
        invocation.output.line(_summary(report))
    if not report.clean:
        raise click.exceptions.Exit(ExitCode.DAMAGE)


def _address(arguments: tuple[str, ...]) -> Address:
    if arguments[:1] == ("verify",):
        arguments = arguments[1:]
    if len(arguments) > 1:
        raise click.UsageError(f"one volume at a time, not {len(arguments)}")
    return parse_volume_address(arguments[0]) if arguments else Address(None, ROOT, "")


def _log(volume: Volume) -> LogReader | JavaLogReader | None:
    if volume.log_blobs is None:
        return None
    if volume.record.log_mode == "binary":
        return JavaLogReader(volume.log_blobs, volume=volume.record.name)
    return LogReader(volume.log_blobs)


def _counts(report: Report) -> dict[str, int]:
    notes = [finding for finding in report.findings if not finding.is_problem]
    return {
        "files": report.files,
        "directories": report.directories,
        "reservations": report.reservations,
        "bytes": report.bytes,
        "log_records": report.log_records,
        "blobs": report.blobs,
        "blob_bytes": report.blob_bytes,
        "collectable": len(notes),
        "collectable_bytes": sum(finding.size for finding in notes),
    }


def _summary(report: Report) -> str:
    counts = _counts(report)
    text = (
        f"{plural(report.files, 'file')}, {plural(report.directories, 'directory')}, {report.bytes:,} bytes,"
        f" {plural(report.log_records, 'log record')}"
    )
    if report.reservations:
        text += f", {plural(report.reservations, 'reservation')}"
    if counts["collectable"]:
        text += f", {plural(counts['collectable'], 'object')} to collect"
    if report.clean:
        return f"clean: {text}"
    kinds = Counter(finding.kind for finding in report.problems)
    found = ", ".join(f"{count:,} {kind}" for kind, count in sorted(kinds.items()))
    return f"damaged: {plural(len(report.problems), 'problem')} ({found}) in {text}"


def _document(report: Report) -> dict[str, Any]:
    return {
        "clean": report.clean,
        **_counts(report),
        "problems": [_finding(finding) for finding in report.problems],
        "notes": [_finding(finding) for finding in report.findings if not finding.is_problem],
    }


def _finding(finding: Finding) -> dict[str, Any]:
    return {
        "kind": finding.kind,
        "detail": finding.detail,
        "path": finding.path or None,
        "object_id": finding.object_id or None,
        "key": finding.key or None,
        "size": finding.size,
    }
