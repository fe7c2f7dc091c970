"""gc: garbage collection of unreferenced physical objects."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from tempfile import TemporaryDirectory
from typing import Any

import click

from s3k_async._core.os_errors import TEMPORARY_ROOM, os_errors
from s3k_async._core.runtime import SYSTEM
from s3k_async.alerts.finding_alerts import collection_alerts
from s3k_async.cli.command import (
    Amount,
    OutputFile,
    Seconds,
    VolumeCommand,
    capacity_options,
    grace_option,
)
from s3k_async.cli.command_alerts import CommandAlerts
from s3k_async.cli.durations import duration_option
from s3k_async.cli.event_loop import run_loop
from s3k_async.cli.invocation import Invocation
from s3k_async.cli.output import plural
from s3k_async.cli.reporting import FailedOperandsError
from s3k_async.cli.volume_addresses import shown_in, whole_volume
from s3k_async.config import VolumeConfig
from s3k_async.errors import ConfigError
from s3k_async.integrity.audit import AuditTrail
from s3k_async.integrity.gc_mark import CollectedData, Marked, ObjectCount
from s3k_async.integrity.gc_rules import DELETABLE, GRACE_SECONDS, Ages
from s3k_async.integrity.gc_sweep import GarbageCollector, Swept, failed_reclamations
from s3k_async.integrity.last_runs import last_collection, record_run
from s3k_async.model import ChangeResult
from s3k_async.volumes import Volume, open_volume
from s3k_async.volumes.table_capacity import limited_capacity

__all__ = ["gc", "print_collection", "sweeping"]


@dataclass(frozen=True, slots=True)
class _Asked:
    """The options of the command."""

    yes: bool
    mark_to: str | None
    sweep_from: str | None
    grace: float
    lease: float | None
    rate: float | None
    exclusive: bool
    audit: str | None
    no_trash: bool
    trash_retention: int | None
    read_units: float | None
    write_units: float | None


def sweeping(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options of commands that sweep: yes, grace, lease, rate."""
    options = (
        click.option(
            "--yes", is_flag=True, help="Delete. Without it, only show what would be deleted."
        ),
        grace_option(
            GRACE_SECONDS,
            "Minimum time an object has been unreferenced; longer than the longest read or job.",
        ),
        click.option(
            "--lease",
            type=Seconds(),
            metavar="DURATION",
            help="Longest lease configured for any client of the volume [default: the "
            "volume's setting].",
        ),
        click.option(
            "--rate",
            type=Amount(min_open=True),
            metavar="KEYS",
            help="Maximum number of deletions per second.",
        ),
    )
    for option in reversed(options):
        command = option(command)
    return command


@click.command(cls=VolumeCommand)
@click.argument("volume", required=False)
@sweeping
@click.option(
    "--list",
    "mark_to",
    type=OutputFile(),
    metavar="FILE",
    help="Write the candidates to FILE, for a later --sweep.",
)
@click.option(
    "--sweep",
    "sweep_from",
    metavar="FILE",
    help="Recheck and delete the candidates in FILE, written by --list; resumable.",
)
@click.option(
    "--exclusive",
    is_flag=True,
    help="Assert that no other client changes the volume; required without an operation log.",
)
@click.option("--no-trash", is_flag=True, help="Leave deleted directories in the trash.")
@duration_option(
    "--trash-retention",
    help="How long a deleted directory stays in the trash, such as 7d [default: the volume's "
    "setting].",
)
@click.option(
    "--audit", type=OutputFile(), metavar="FILE", help="Also write the audit trail to a local file."
)
@capacity_options("read", "write")
@click.pass_obj
def gc(invocation: Invocation, /, volume: str | None, **options: Any) -> None:
    """Delete unreferenced physical objects, abandoned reservations and unfinished uploads.

    A dry run without --yes.

    Safe beside writers, readers and other runs.
    """
    asked = _Asked(**options)
    if asked.mark_to is not None and asked.sweep_from is not None:
        raise click.UsageError("--list and --sweep cannot be combined")
    if asked.sweep_from is not None and not asked.yes:
        raise click.UsageError("nothing was deleted: confirm with --yes")
    if asked.trash_retention is not None and (asked.no_trash or asked.sweep_from is not None):
        option = "--no-trash" if asked.no_trash else "--sweep"
        raise click.UsageError(f"--trash-retention cannot be combined with {option}")
    config = invocation.resolve(whole_volume(volume).volume)

    async def work() -> tuple[Marked | None, Swept | None, ChangeResult | None]:
        opened = await open_volume(config)
        try:
            async with limited_capacity(
                opened, read_units=asked.read_units, write_units=asked.write_units
            ):
                return await run(opened)
        finally:
            await opened.close()

    async def run(opened: Volume) -> tuple[Marked | None, Swept | None, ChangeResult | None]:
        if asked.trash_retention is not None and not opened.store.layout.has_trash:
            raise ConfigError(
                "the volume has layout path, which has no trash: leave out --trash-retention",
                path=config.where,
            )
        with opened.freeing_space(), invocation.meter("gc") as meter:
            collector, reclaimed = _collector(opened, asked, meter.part()), None
            if opened.store.layout.has_trash and not asked.no_trash and not asked.sweep_from:
                reclaimed = await collector.reclaim(asked.trash_retention, dry_run=not asked.yes)
            marked, swept = await _collect(collector, asked)
            await record_run(opened, last_collection(swept, reclaimed, SYSTEM.now_ms()))
            return marked, swept, reclaimed

    with CommandAlerts(invocation, config, "gc") as alerts:
        marked, swept, reclaimed = run_loop(work)
        alerts.add(lambda source: collection_alerts(source, marked, swept))
        print_collection(invocation, config, marked, swept, reclaimed)


def _collector(volume: Volume, asked: _Asked, progress: Any) -> GarbageCollector:
    place = CollectedData.of(volume)
    lease = volume.config.tuning.lease if asked.lease is None else asked.lease
    audit = AuditTrail(volume.log_blobs, SYSTEM.uuid(), asked.audit)
    return GarbageCollector(
        place,
        SYSTEM,
        Ages(asked.grace, lease),
        audit,
        exclusive=asked.exclusive,
        rate=asked.rate,
        progress=progress,
    )


async def _collect(
    collector: GarbageCollector, asked: _Asked
) -> tuple[Marked | None, Swept | None]:
    if asked.sweep_from is not None:
        return None, await collector.sweep(asked.sweep_from)
    with os_errors("the directory of temporary files", TEMPORARY_ROOM):
        room = TemporaryDirectory(prefix="s3k-gc-")
    with room as directory:
        path = os.path.join(directory, "candidates") if asked.mark_to is None else asked.mark_to
        marked = await collector.mark(path)
        if not asked.yes:
            return marked, None
        await collector.clean_up(marked)
        return marked, await collector.sweep(path)


def print_collection(
    invocation: Invocation,
    config: VolumeConfig,
    marked: Marked | None,
    swept: Swept | None,
    reclaimed: ChangeResult | None = None,
) -> None:
    """Print the candidates in a volume, and the deletions unless it was a dry run; before them
    `reclaimed`, of a volume with a trash. Raises FailedOperandsError for failed deletions, and for
    entries in the trash that were kept for another reason than a live transaction.
    """
    if invocation.json:
        trash = {} if reclaimed is None else {"reclaimed": _reclaimed_fields(reclaimed)}
        volume = {"volume": shown_in(config)}
        invocation.output.json(volume | _document(marked, swept) | trash)
    else:
        if reclaimed is not None:
            _print_reclaimed(invocation, reclaimed, dry_run=swept is None)
        _print_lines(invocation, marked, swept, shown_in(config))
    if failures := failed_reclamations(reclaimed):
        raise FailedOperandsError(
            [*failures, *(swept.failures if swept else ())], some_succeeded=True
        )
    if swept is not None and swept.failures:
        raise FailedOperandsError(swept.failures, some_succeeded=bool(swept.deleted))


def _print_reclaimed(invocation: Invocation, reclaimed: ChangeResult, *, dry_run: bool) -> None:
    verb = "would reclaim" if dry_run else "reclaimed"
    counts = [
        plural(reclaimed.files, "file"),
        plural(reclaimed.directories, "directory"),
        f"{reclaimed.bytes:,} bytes",
    ]
    invocation.output.line(f"{verb} from the trash: {', '.join(counts)}")
    if reclaimed.failed:
        number = f"{reclaimed.failed:,}"
        path, error = reclaimed.failures[0]
        invocation.output.line(f"kept in the trash, entries: {number}; first {path}: {error}")


def _reclaimed_fields(reclaimed: ChangeResult) -> dict[str, int]:
    return {
        "files": reclaimed.files,
        "directories": reclaimed.directories,
        "bytes": reclaimed.bytes,
        "kept": reclaimed.failed,
    }


def _print_lines(
    invocation: Invocation, marked: Marked | None, swept: Swept | None, place: str
) -> None:
    dead = swept.deleted if swept is not None else {} if marked is None else _dead(marked)
    for reason, count in sorted(dead.items()):
        invocation.output.line(f"{reason}: {_sized(count)}")
    kept = dict(swept.kept) if swept is not None else {}
    if marked is not None:
        kept |= {
            reason: count
            for reason, count in marked.counts.items()
            if reason not in DELETABLE and count.objects
        }
    for reason, count in sorted(kept.items()):
        invocation.output.line(f"kept, {reason}: {_sized(count)}")
    if not invocation.quiet:
        invocation.output.line(_summary(marked, swept, dead, place))


def _summary(
    marked: Marked | None, swept: Swept | None, dead: Mapping[str, ObjectCount], place: str
) -> str:
    total = ObjectCount(
        sum(each.objects for each in dead.values()), sum(each.bytes for each in dead.values())
    )
    if swept is not None:
        reservations, uploads, verb = swept.reservations, swept.uploads, "deleted"
        multipart = swept.multipart
    else:
        assert marked is not None
        reservations, uploads, verb = len(marked.reservations), len(marked.uploads), "would delete"
        multipart = len(marked.over_multipart)
    text = f"{verb} {_sized(total)}"
    if reservations:
        text += f", {plural(reservations, 'reservation')}"
    if uploads:
        text += f", {plural(uploads, 'unfinished upload')}"
    if multipart:
        text += f", {plural(multipart, 'multipart upload')}"
    text += f" in {place}"
    return text if swept is not None else f"{text} (--yes deletes)"


def _sized(count: ObjectCount) -> str:
    return f"{plural(count.objects, 'object')}, {count.bytes:,} bytes"


def _dead(marked: Marked) -> dict[str, ObjectCount]:
    return {reason: count for reason, count in marked.counts.items() if reason in DELETABLE}


def _document(marked: Marked | None, swept: Swept | None) -> dict[str, Any]:
    def counts(found: Mapping[str, ObjectCount]) -> dict[str, dict[str, int]]:
        return {
            reason: {"objects": each.objects, "bytes": each.bytes}
            for reason, each in sorted(found.items())
        }

    return {
        "marked": None if marked is None else counts(marked.counts),
        "reservations": None if marked is None else len(marked.reservations),
        "uploads": None if marked is None else len(marked.uploads),
        "multipart": None if marked is None else len(marked.over_multipart),
        "deleted": None if swept is None else counts(swept.deleted),
        "kept": None if swept is None else counts(swept.kept),
        "failed": 0 if swept is None else len(swept.failures),
        "removed_reservations": 0 if swept is None else swept.reservations,
        "aborted_uploads": 0 if swept is None else swept.uploads,
        "ended_multipart": 0 if swept is None else swept.multipart,
    }
