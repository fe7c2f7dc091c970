"""fsck."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Final, Generic, TypeVar

import click

from s3k_async._core.paths import normalize
from s3k_async.alerts.alert import Alert, AlertSource
from s3k_async.alerts.finding_alerts import repair_alerts, verify_alerts
from s3k_async.cli.command import (
    CommandGroup,
    OutputFile,
    VolumeCommand,
    capacity_options,
    grace_option,
)
from s3k_async.cli.command_alerts import CommandAlerts
from s3k_async.cli.event_loop import run_loop
from s3k_async.cli.exit_codes import ExitCode
from s3k_async.cli.invocation import Invocation
from s3k_async.cli.output import plural
from s3k_async.cli.volume_addresses import Address, parse_volume_address, shown_in
from s3k_async.config import VolumeConfig
from s3k_async.integrity.facts import PROBLEMS, Finding
from s3k_async.integrity.last_runs import LastRun, last_repair, last_verification, record_run
from s3k_async.integrity.repair import RepairReport, repair_volume, verify_volume
from s3k_async.integrity.verify import GRACE_SECONDS, Tell, VerifyReport
from s3k_async.model import ROOT
from s3k_async.volumes import Volume, open_volume
from s3k_async.volumes.table_capacity import limited_capacity

__all__ = [
    "finding_fields",
    "finding_line",
    "fsck",
    "print_repair",
    "print_report",
    "problem_counts",
    "repair",
    "verify",
]

T = TypeVar("T")


_PARTS: Final = {
    "verify": ("check", "Check the consistency of table, log and data; read-only."),
    "repair": ("check", "Repair what verify finds. A dry run without --yes."),
    "restore": ("restore", "Rebuild a lost table from the operation log."),
}
"""Name to module of `s3k_async.cli.commands` and a summary."""


_NOTED: Final = (
    "foreign_blob",
    "reclamation_unfinished",
    "rename_unfinished",
    "reservation_open",
    "trash_due",
)
"""Notes about foreign objects, about work in progress of S3-FileSystem 1.0, which cannot be
distinguished from its remains, and about directories in the trash that garbage collection should
have removed."""


class _FsckCommands(CommandGroup):
    """The commands of fsck, each imported when it is run; without the name of one, it is verify."""

    default = "verify"

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        return list(_PARTS)

    def get_command(
        self,
        ctx: click.Context,  # noqa: ARG002 - click's
        cmd_name: str,
    ) -> click.Command | None:
        if cmd_name not in _PARTS:
            return None
        module = import_module(f"s3k_async.cli.commands.{_PARTS[cmd_name][0]}")
        command: click.Command = getattr(module, cmd_name)
        return command


fsck = _FsckCommands(
    name="fsck",
    help="""Check, repair or restore a volume.

    The default command is verify: s3k fsck ./vol.""",
)


def _options(what: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """The options that the commands share; `what`: the participle for the help of `--grace`."""

    def add(command: Callable[..., None]) -> Callable[..., None]:
        for option in (
            click.option(
                "--resume",
                metavar="DIR",
                help="Keep intermediate results here; resume an interrupted run from them.",
            ),
            grace_option(
                GRACE_SECONDS,
                f"Grace period: newer entries, operations and objects are not {what}.",
            ),
            click.option(
                "--path",
                metavar="PATH",
                help="Restrict the scope to this path and everything below it.",
            ),
            click.argument("arguments", nargs=-1, metavar="[VOLUME]"),
        ):
            command = option(command)
        return command

    return add


@click.command(cls=VolumeCommand)
@_options("reported")
@click.option("--deep", is_flag=True, help="Also read all data and verify checksums.")
@capacity_options("read")
@click.pass_obj
def verify(
    invocation: Invocation,
    arguments: tuple[str, ...],
    path: str | None,
    grace: float,
    resume: str | None,
    deep: bool,
    read_units: float | None,
) -> None:
    """Check table, log and data, and list findings; read-only.

    The last line is a summary. Exits with 9 if there are problems. VOLUME may include a path
    (./vol:/a), as with --path.
    """

    async def work(volume: Volume, top: str, tell: Tell | None) -> VerifyReport:
        return await verify_volume(
            volume, path=top, grace=grace, deep=deep, directory=resume, progress=tell
        )

    _run(
        invocation,
        arguments,
        path,
        _Check("fsck verify", work, verify_alerts, print_report, last_verification, read_units),
    )


def print_report(
    invocation: Invocation, config: VolumeConfig, top: str, report: VerifyReport
) -> None:
    """List problems at and below a path of a volume, and sum up. Raises Exit if there are any."""
    if invocation.json:
        invocation.output.json({"volume": shown_in(config), **_document(report)})
    else:
        for finding in report.problems:
            invocation.output.line(finding_line(finding))
        if not invocation.quiet:
            invocation.output.line(_summary(report, shown_in(config, top)))
    if not report.clean:
        raise click.exceptions.Exit(ExitCode.DAMAGE)


@click.command(cls=VolumeCommand)
@_options("repaired")
@click.option(
    "--deep",
    is_flag=True,
    help="Compare the bytes of objects that are in the hot and in the cold location.",
)
@click.option("--yes", is_flag=True, help="Apply the repairs. Without it, only show them.")
@click.option(
    "--audit",
    type=OutputFile(),
    metavar="FILE",
    help="Also append the audit trail to a local file.",
)
@capacity_options("read", "write")
@click.pass_obj
def repair(
    invocation: Invocation,
    arguments: tuple[str, ...],
    path: str | None,
    grace: float,
    resume: str | None,
    deep: bool,
    yes: bool,
    audit: str | None,
    read_units: float | None,
    write_units: float | None,
) -> None:
    """Repair the findings of verify that can be repaired automatically. A dry run without --yes.

    Safe beside writers: every finding is rechecked immediately before its repair, every write is
    conditional, and the audit trail is written first. Exits with 9 if findings are left that need a
    manual decision.
    """

    async def work(volume: Volume, top: str, tell: Tell | None) -> RepairReport:
        return await repair_volume(
            volume,
            dry_run=not yes,
            path=top,
            grace=grace,
            deep=deep,
            audit_file=audit,
            directory=resume,
            progress=tell,
        )

    check = _Check(
        "fsck repair", work, repair_alerts, print_repair, last_repair, read_units, write_units
    )
    _run(invocation, arguments, path, check)


def print_repair(
    invocation: Invocation, config: VolumeConfig, top: str, report: RepairReport
) -> None:
    """List repairs, or planned ones, and remaining findings at and below a path of a volume, and
    sum up. Raises Exit if a problem is left."""
    remaining = [
        finding
        for finding in report.left.problems
        if not (report.dry_run and finding.is_repairable)
    ]
    if invocation.json:
        invocation.output.json({"volume": shown_in(config), **_repair_document(report)})
    else:
        for each in report.repairs:
            reason = f" ({each.reason})" if each.reason else ""
            invocation.output.line(
                f"{each.outcome}: {each.finding.action}: {_where(each.finding)}{reason}"
            )
        for finding in remaining:
            invocation.output.line(finding_line(finding))
        if not invocation.quiet:
            place = shown_in(config, top)
            invocation.output.line(_repair_summary(report, len(remaining), place))
    if not report.left.clean:
        raise click.exceptions.Exit(ExitCode.DAMAGE)


@dataclass(frozen=True, slots=True)
class _Check(Generic[T]):
    """A check of a volume, the alerts about its result, and its output."""

    operation: str
    work: Callable[[Volume, str, Tell | None], Awaitable[T]]
    alerts: Callable[[AlertSource, T], list[Alert]]
    show: Callable[[Invocation, VolumeConfig, str, T], None]
    record: Callable[[T, int], LastRun | None]
    read_units: float | None = None
    write_units: float | None = None


def _run(
    invocation: Invocation, arguments: tuple[str, ...], path: str | None, check: _Check[T]
) -> None:
    """Open the volume that is meant, check it below the path that is meant, and tell."""
    address = _address(arguments)
    if path is not None and address.path != ROOT:
        raise click.UsageError("give the path either in VOLUME or by --path")
    top = normalize(path if path is not None else address.path)
    config = invocation.resolve(address.volume)

    async def main() -> T:
        volume = await open_volume(config)
        try:
            async with limited_capacity(
                volume, read_units=check.read_units, write_units=check.write_units
            ):
                return await run(volume)
        finally:
            await volume.close()

    async def run(volume: Volume) -> T:
        with volume.freeing_space(), invocation.meter("fsck") as meter:
            report = await check.work(volume, top, meter.part())
            if top == ROOT:
                await record_run(volume, check.record(report, volume.store.runtime.now_ms()))
            return report

    with CommandAlerts(invocation, config, check.operation) as alerts:
        report = run_loop(main)
        alerts.add(lambda source: check.alerts(source, report))
        check.show(invocation, config, top, report)


def finding_line(finding: Finding) -> str:
    """A finding as a line of output."""
    return f"{finding.kind}: {_where(finding)}: {finding.detail}"


def _where(finding: Finding) -> str:
    return finding.path or finding.key or finding.object_id


def _repair_summary(report: RepairReport, remaining: int, place: str) -> str:
    counts: Counter[str] = Counter()
    for (_, outcome), count in report.outcomes.items():
        counts[outcome] += count
    if report.dry_run:
        text = f"dry run: {plural(counts['planned'], 'repair')} planned"
    else:
        text = f"repaired: {plural(counts['done'], 'finding')}"
        text += "".join(f", {counts[name]:,} {name}" for name in ("left", "failed") if counts[name])
    text += f" in {place}"
    if remaining:
        text += f"; {plural(remaining, 'problem')} left for manual repair"
    return text if report.dry_run or not report.run else f"{text}; audit trail audit/{report.run}"


def _repair_document(report: RepairReport) -> dict[str, Any]:
    return {
        "dry_run": report.dry_run,
        "run": report.run or None,
        "rounds": report.rounds,
        "clean": report.left.clean,
        "actions": [
            {"action": action, "outcome": outcome, "count": count}
            for (action, outcome), count in sorted(report.outcomes.items())
        ],
        "repairs": [
            {**finding_fields(each.finding), "outcome": each.outcome, "reason": each.reason or None}
            for each in report.repairs
        ],
        "problems": [finding_fields(finding) for finding in report.left.problems],
    }


def _address(arguments: tuple[str, ...]) -> Address:
    if len(arguments) > 1:
        raise click.UsageError(f"one volume at a time, not {len(arguments)}")
    return parse_volume_address(arguments[0]) if arguments else Address(None, ROOT, "")


def _counts(report: VerifyReport) -> dict[str, int]:
    return {
        "files": report.files,
        "directories": report.directories,
        "reservations": report.reservations,
        "bytes": report.bytes,
        "log_records": report.log_records,
        "blobs": report.blobs,
        "blob_bytes": report.blob_bytes,
        "collectable": report.kinds["collectable_data"],
        "collectable_bytes": report.collectable_bytes,
    }


def _summary(report: VerifyReport, place: str) -> str:
    counts = _counts(report)
    text = (
        f"{plural(report.files, 'file')}, {plural(report.directories, 'directory')}, "
        f"{report.bytes:,} bytes,"
        f" {plural(report.log_records, 'log record')}"
    )
    if report.reservations:
        text += f", {plural(report.reservations, 'reservation')}"
    if counts["collectable"]:
        text += f", {plural(counts['collectable'], 'object')} to collect"
    text += f" in {place}"
    if noted := [kind for kind in _NOTED if report.kinds[kind]]:
        text += f"; noted: {', '.join(f'{report.kinds[kind]:,} {kind}' for kind in noted)}"
    if report.clean:
        return f"clean: {text}"
    return f"{problem_counts(report)} in {text}"


def problem_counts(report: VerifyReport) -> str:
    """The number of problems of each kind, as the beginning of a summary."""
    kinds = {kind: count for kind, count in report.kinds.items() if kind in PROBLEMS}
    found = ", ".join(f"{count:,} {kind}" for kind, count in sorted(kinds.items()))
    return f"found {plural(sum(kinds.values()), 'problem')} ({found})"


def _document(report: VerifyReport) -> dict[str, Any]:
    return {
        "clean": report.clean,
        **_counts(report),
        "problems": [finding_fields(finding) for finding in report.problems],
        "notes": [finding_fields(finding) for finding in report.findings if not finding.is_problem],
    }


def finding_fields(finding: Finding) -> dict[str, Any]:
    """The JSON fields of a finding."""
    return {
        "kind": finding.kind,
        "detail": finding.detail,
        "path": finding.path or None,
        "object_id": finding.object_id or None,
        "key": finding.key or None,
        "size": finding.size,
        "action": finding.action,
    }
