"""fsck."""

from __future__ import annotations

from collections import Counter
from importlib import import_module
from typing import Any, Final

import click

from s3k_async.cli.addresses import Address, parse_volume_address
from s3k_async.cli.command import VolumeCommand, common_options
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

__all__ = ["fsck", "verify"]


_PARTS: Final = {
    "verify": ("check", "Compare table, log and bytes; changes nothing."),
    "restore": ("restore", "Make a lost table again from the operation log."),
}
"""Name to module of `s3k_async.cli.commands` and a summary."""


class _Parts(click.Group):
    """The commands of fsck, each imported when it is run; without the name of one, it is verify."""

    def __init__(self, *arguments: Any, **attributes: Any) -> None:
        super().__init__(*arguments, **attributes)
        self.params += common_options(hidden=True)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        named = next((each for each in args if not each.startswith("-")), None)
        if named not in _PARTS and "--help" not in args:
            args = ["verify", *args]
        return super().parse_args(ctx, args)

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        return list(_PARTS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - click's
        if cmd_name not in _PARTS:
            return None
        module = import_module(f"s3k_async.cli.commands.{_PARTS[cmd_name][0]}")
        command: click.Command = getattr(module, cmd_name)
        return command


fsck = _Parts(
    name="fsck",
    help="""Compare table, log and bytes of a volume, and mend what does not fit.

    Without the name of a command it is verify: s3k fsck ./vol.""",
)


@click.command(cls=VolumeCommand)
@click.argument("arguments", nargs=-1, metavar="[VOLUME]")
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
def verify(invocation: Invocation, arguments: tuple[str, ...], path: str | None, grace: float, deep: bool) -> None:
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
