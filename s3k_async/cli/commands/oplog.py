"""oplog: show, follow, compact and retire the operation log."""

from __future__ import annotations

import heapq
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, aclosing
from dataclasses import dataclass, fields
from types import MappingProxyType
from typing import Any, Final, TypeAlias

import anyio
import click

from s3k_async._core.paths import normalize
from s3k_async._core.runtime import SYSTEM
from s3k_async.bulk.publish import is_below
from s3k_async.cli.command import CommandGroup, VolumeCommand, grace_option
from s3k_async.cli.durations import time_or_age
from s3k_async.cli.event_loop import run_loop
from s3k_async.cli.exit_codes import ExitCode
from s3k_async.cli.invocation import Invocation
from s3k_async.cli.output import plural, time_text
from s3k_async.cli.volume_addresses import (
    Address,
    object_id_of,
    parse_address,
    shown_in,
    whole_volume,
)
from s3k_async.errors import (
    InvalidArgumentError,
    PathNotFoundError,
    ReadOnlyVolumeError,
    UnsupportedError,
)
from s3k_async.integrity.verify import GRACE_SECONDS as FSCK_GRACE
from s3k_async.migrate.retirement import GRACE_SECONDS as RETIREMENT_GRACE
from s3k_async.migrate.retirement import RETIRED, Retirement, retire_log
from s3k_async.model import ROOT, Entry
from s3k_async.oplog.compaction import GRACE_SECONDS, Compaction, Compactor
from s3k_async.oplog.entries import LogRecord, LogState, Operation, deletion_document
from s3k_async.oplog.log_reader import DamagedLog, Finding, JavaLogReader, LogReader
from s3k_async.oplog.log_size import LogSize, measure_log
from s3k_async.volumes import Volume, open_volume

__all__ = ["oplog"]

_POLL_SECONDS: Final = 2.0
SLACK: Final = 100
"""Operations read in addition to the requested ones."""
_WINDOW_MS: Final = int(2 * FSCK_GRACE * 1000)
"""How much earlier than the newest operation one that is logged later may have started: by a clock
that is behind, and as long as operations take."""
_PRUNED: Final = 10_000
"""Operations in memory before older ones than these are dropped."""
_SHOWN: Final = tuple(
    field.name
    for field in fields(Entry)
    if field.name not in ("id", "operation", "lease_ms", "pending", "directory")
)
"""Fields of every entry in JSON; the operation has its ids."""


oplog = CommandGroup(
    name="oplog", help="Show, follow, compact and retire the operation log of a volume."
)


@oplog.command("show", cls=VolumeCommand)
@click.argument("what", metavar="OBJECT-ID|PATH")
@click.pass_obj
def show(invocation: Invocation, what: str) -> None:
    """Show the logged operations of one object, by version.

    An OBJECT-ID is looked up in the default volume. A PATH selects the object that is currently at
    it.
    """
    given = object_id_of(what)
    address = Address(None, ROOT, what) if given else parse_address(what)
    path = normalize(address.path)
    if not given and path == ROOT:
        raise InvalidArgumentError("the root directory has no log records", path=ROOT)

    async def work() -> tuple[str, list[Finding]]:
        volume = await open_volume(invocation.resolve(address.volume))
        try:
            object_id = given
            if not object_id:
                entry = await volume.store.get(path)
                if entry is None:
                    raise PathNotFoundError(
                        "no such file or directory; give the object's id", path=path
                    )
                object_id = entry.id
            return object_id, await _reader(volume).history(object_id)
        finally:
            await volume.close()

    object_id, findings = run_loop(work)
    known = [finding for finding in findings if isinstance(finding, LogRecord)]
    damage = [finding for finding in findings if isinstance(finding, DamagedLog)]
    if not known and not damage:
        raise PathNotFoundError("the operation log has no records of this object", path=object_id)
    _tell(invocation, known, with_ids=True)
    _print_damage(invocation, damage)


@oplog.command("tail", cls=VolumeCommand)
@click.argument("volume", required=False)
@click.option(
    "-n",
    "number",
    type=click.IntRange(min=0),
    default=20,
    show_default=True,
    help="Maximum number of operations.",
)
@click.option(
    "--since",
    metavar="TIME",
    help="Only operations since a time (2026-11-21T04:30:12Z) or within an age (90s, 15m, 2h, 3d).",
)
@click.option(
    "--path",
    metavar="PATH",
    help="Only operations at and below a path in the volume, as it was then. Reads the whole log.",
)
@click.option("--follow", "-f", is_flag=True, help="Keep showing new operations until interrupted.")
@click.pass_obj
def tail(
    invocation: Invocation,
    volume: str | None,
    number: int,
    since: str | None,
    path: str | None,
    follow: bool,
) -> None:
    """Show the most recent operations of the log, newest last. Lists the log and reads its newest
    objects."""
    config = invocation.resolve(whole_volume(volume).volume)
    since_ms = time_or_age(since, "--since") or 0
    top = None if path is None else normalize(path)

    async def work() -> list[DamagedLog]:
        opened = await open_volume(config)
        try:
            reader = _reader(opened)
            newest = _Newest(number, since_ms, top)
            in_part = top is None and not follow
            await newest.read(_last(reader, number) if in_part else reader.records())
            _tell(invocation, newest.records())
            while follow:
                invocation.output.flush()
                await anyio.sleep(_POLL_SECONDS)
                newest = newest.next()
                await newest.read(reader.records())
                _tell(invocation, newest.records())
            return newest.damage
        finally:
            await opened.close()

    _print_damage(invocation, run_loop(work))


@oplog.command("size", cls=VolumeCommand)
@click.argument("volume", required=False)
@click.pass_obj
def size(invocation: Invocation, volume: str | None) -> None:
    """Show the number and size of the log's objects, and whether compaction would help.

    Lists the log, and reads none of it.
    """
    config = invocation.resolve(whole_volume(volume).volume)

    async def work() -> LogSize:
        opened = await open_volume(config)
        try:
            if opened.log_blobs is None:
                raise UnsupportedError("the volume has no operation log")
            if opened.read_only:
                raise UnsupportedError(
                    "the log of a volume of S3-FileSystem 1.0 is not measured: its objects, which "
                    "compaction never replaces, are among those of other volumes in their bucket"
                )
            now_ms = await opened.log_blobs.now_ms()
            return await measure_log(opened.log_blobs, now_ms - int(GRACE_SECONDS * 1000))
        finally:
            await opened.close()

    found = run_loop(work)
    if not invocation.json:
        for kind, count in found.kinds.items():
            what = f"{plural(count.objects, 'object')}, {plural(count.bytes, 'byte')}"
            invocation.output.line(f"{kind:<12}{what}")
    place = shown_in(config)
    advice = f"; s3k oplog compact replaces up to {found.compactable:,} of them by a checkpoint"
    invocation.say(
        f"{plural(found.objects, 'object')}, {plural(found.bytes, 'byte')} in {place}"
        f"{advice if found.compactable else ''}",
        volume=place,
        objects=found.objects,
        bytes=found.bytes,
        compactable=found.compactable,
        kinds={
            kind: {"objects": count.objects, "bytes": count.bytes}
            for kind, count in found.kinds.items()
        },
    )


@oplog.command("compact", cls=VolumeCommand)
@click.argument("volume", required=False)
@grace_option(GRACE_SECONDS, "Grace period: newer operations are kept, with their history.")
@click.option("--yes", is_flag=True, help="Apply the changes. Without it, only show them.")
@click.pass_obj
def compact(invocation: Invocation, volume: str | None, grace: float, yes: bool) -> None:
    """Write a checkpoint of the log, and remove the log objects that it covers. A dry run without
    --yes.

    Safe beside readers, writers and other runs. The last state of every object and all pending
    operations are kept; the history before the checkpoint is removed.
    """
    config = invocation.resolve(whole_volume(volume).volume)

    async def work() -> Compaction:
        opened = await open_volume(config)
        try:
            if opened.read_only:
                raise ReadOnlyVolumeError(
                    "the log of a volume of S3-FileSystem 1.0 cannot be compacted"
                )
            if opened.log_blobs is None:
                raise UnsupportedError("the volume has no operation log")
            with opened.freeing_space(), invocation.meter("compact") as meter:
                compactor = Compactor(
                    opened.log_blobs, SYSTEM, grace=grace, need_volume=opened.need_record
                )
                return await compactor.run(dry_run=not yes, progress=meter.part())
        finally:
            await opened.close()

    done = run_loop(work)
    place = shown_in(config)
    invocation.say(
        _summary(done, place, yes=yes),
        volume=place,
        objects=done.objects,
        tombstones=done.tombstones,
        dropped=done.dropped,
        removable=done.removable,
        removed=done.removed,
        checkpoint=done.checkpoint or None,
        damaged=[{"key": each.key, "message": str(each.error)} for each in done.damaged],
    )
    if done.damaged:
        if not invocation.json:
            _print_damage(invocation, done.damaged)
        raise click.exceptions.Exit(ExitCode.DAMAGE)


@oplog.command("retire", cls=VolumeCommand)
@click.argument("volume")
@click.option(
    "--successor",
    metavar="VOLUME",
    required=True,
    help="Native volume that has adopted the files.",
)
@grace_option(
    RETIREMENT_GRACE,
    "Refuse if a log object is newer than this: the volume is still being written to.",
)
@click.option(
    "--force",
    is_flag=True,
    help="Proceed even if the files of the two volumes differ.",
)
@click.option("--yes", is_flag=True, help="Apply the changes. Without it, only show them.")
@click.pass_obj
def retire(
    invocation: Invocation, volume: str, successor: str, grace: float, force: bool, yes: bool
) -> None:
    """Move the log of a volume of S3-FileSystem 1.0 below retired-1.0-log/.

    A dry run without --yes.

    VOLUME must no longer be written to. Each log object is copied and compared before it is
    deleted. Repeat the command to finish an interrupted run. Settings given as flags are those of
    VOLUME.
    """
    config = invocation.resolve(whole_volume(volume).volume)
    plain = Invocation(
        config=invocation.config, context=invocation.context, hadoop=invocation.hadoop
    )
    successor_config = plain.resolve(whole_volume(successor).volume)

    async def work() -> Retirement:
        async with AsyncExitStack() as stack:
            old = await open_volume(config)
            stack.push_async_callback(old.close)
            new = await open_volume(successor_config)
            stack.push_async_callback(new.close)
            meter = stack.enter_context(invocation.meter("retire"))
            return await retire_log(
                old, new, dry_run=not yes, force=force, grace=grace, progress=meter.part()
            )

    done = run_loop(work)
    what = "moved" if yes else "dry run: would move"
    text = f"{what} {plural(done.moved if yes else done.objects, 'log object')} below {RETIRED}"
    if done.reservations:
        text += f"; {plural(done.reservations, 'file')} not committed, not migrated"
    if done.differing:
        text += f"; {plural(len(done.differing), 'file')} missing in {successor} or others there"
    invocation.say(
        text,
        objects=done.objects,
        moved=done.moved,
        reservations=done.reservations,
        differing=done.differing,
        dry_run=not yes,
    )


_Order: TypeAlias = tuple[int, str, int, str]


@dataclass(order=True, slots=True)
class _Timed:
    """A record, ordered by the start time of its operation."""

    order: _Order
    record: LogRecord

    def __init__(self, record: LogRecord) -> None:
        operation = record.operation
        self.order = (operation.time_ms, operation.object_id, operation.version, operation.id)
        self.record = record


async def _last(reader: LogReader | JavaLogReader, number: int) -> AsyncIterator[Finding]:
    """The log objects stored last, or all, if these are not many more: they include the newest
    operations. Some operations are committed in another order than they started."""
    if isinstance(reader, LogReader):
        most, read = 2 * number + SLACK, 0
        async with aclosing(reader.newest(most)) as parts:
            async for part in parts:
                read += len(part.findings)
                for finding in part.findings:
                    yield finding
                if read >= most:
                    return
        async for finding in reader.checkpoints.records():
            yield finding
        return
    async for finding in reader.records():
        yield finding


class _Newest:
    """The newest records of a log: limited in number and age, none twice in one state."""

    def __init__(
        self,
        number: int,
        since_ms: int,
        path: str | None = None,
        known: Mapping[_Order, LogState] = MappingProxyType({}),
        newest_ms: int = 0,
    ) -> None:
        """`path`: the one at and below which operations are shown; None: all. `known`: operations
        of earlier reads, shown or not. `newest_ms`: the start time of the newest of them."""
        self._number = number
        self._since_ms = since_ms
        self._path = path
        self._known = known
        self._newest_ms = newest_ms
        self._found: dict[_Order, _Timed] = {}
        self._read: dict[_Order, LogState] = {}
        self._most = _PRUNED
        self.damage: list[DamagedLog] = []

    async def read(self, findings: AsyncIterator[Finding]) -> None:
        async for finding in findings:
            if isinstance(finding, DamagedLog):
                self.damage.append(finding)
                continue
            timed = _Timed(finding)
            known = self._known.get(timed.order)
            if known in (finding.state, "committed"):
                continue
            if known is None and finding.operation.time_ms < self._since_ms:
                continue
            if self._path is not None and not _concerns(finding.operation, self._path):
                continue
            self._newest_ms = max(self._newest_ms, finding.operation.time_ms)
            if self._read.get(timed.order) != "committed":
                self._read[timed.order] = finding.state
                self._found[timed.order] = timed
            if len(self._found) > 2 * max(self._number, 1000):
                self._found = {timed.order: timed for timed in self._top()}
            if len(self._read) > self._most:
                self._read = _possible(self._read, self._window_ms())
                self._most = 2 * max(len(self._read), _PRUNED)

    def _top(self) -> list[_Timed]:
        return heapq.nlargest(self._number, self._found.values(), key=lambda timed: timed.order)

    def records(self) -> list[LogRecord]:
        return [timed.record for timed in reversed(self._top())]

    def next(self) -> _Newest:
        """The state for the next read: what was not logged at this one, or has been committed since
        then."""
        since_ms = self._window_ms()
        known = _possible({**self._known, **self._read}, since_ms)
        return _Newest(10**9, since_ms, self._path, known, self._newest_ms)

    def _window_ms(self) -> int:
        """The start time of the oldest operations that can still be new."""
        newest_ms = min(self._newest_ms, SYSTEM.now_ms())  # the clock of a writer may be ahead
        return max(self._since_ms, newest_ms - _WINDOW_MS)


def _possible(states: Mapping[_Order, LogState], since_ms: int) -> dict[_Order, LogState]:
    """Those that a later read may find again and would show: recent ones, and pending ones, which
    may be committed at any time."""
    return {
        order: state
        for order, state in states.items()
        if order[0] >= since_ms or state == "pending"
    }


def _concerns(operation: Operation, path: str) -> bool:
    """Whether an operation was on an entry at or below a path."""
    sides = (operation.before, operation.after)
    return any(side is not None and is_below(side.path, path) for side in sides)


def _reader(volume: Volume) -> LogReader | JavaLogReader:
    if volume.log_blobs is None:
        raise UnsupportedError("the volume has no operation log")
    if volume.record.log_mode == "binary":
        return JavaLogReader(volume.log_blobs, volume=volume.record.name)
    return LogReader(volume.log_blobs)


def _tell(invocation: Invocation, records: Sequence[LogRecord], *, with_ids: bool = False) -> None:
    for record in records:
        if invocation.json:
            invocation.output.json(_document(record))
        else:
            invocation.output.line(_line(record, with_ids=with_ids))


def _line(record: LogRecord, *, with_ids: bool) -> str:
    operation = record.operation
    text = (
        f"{time_text(operation.time_ms)}  {record.state:<9}  {operation.kind:<6}  "
        f"v{operation.version:<3} "
    )
    before, after = operation.before, operation.after
    text += _state(after or before)
    if before is not None and after is not None and before.path != after.path:
        text += f"  from {before.path}"
    return text + (f"  ({operation.id or record.key})" if with_ids else "")


def _state(entry: Entry | None) -> str:
    if entry is None:
        return ""
    if entry.is_dir:
        return f"{entry.path}/"
    return (
        f"{entry.path}  {plural(entry.size, 'byte')}"
        if entry.committed
        else f"{entry.path}  reserved"
    )


def _document(record: LogRecord) -> dict[str, Any]:
    operation = record.operation
    shown = {
        "object_id": operation.object_id,
        "version": operation.version,
        "kind": operation.kind,
        "state": record.state,
        "time_ms": operation.time_ms,
        "operation_id": operation.id or None,
        "key": record.key,
        "before": _entry(operation.before),
        "after": _entry(operation.after),
    }
    if operation.trash is not None:
        shown["trash"] = deletion_document(operation.trash)
    return shown


def _entry(entry: Entry | None) -> dict[str, Any] | None:
    if entry is None:
        return None
    shown = {name: getattr(entry, name) for name in _SHOWN}
    return shown | {"directory": entry.directory} if entry.directory else shown


def _print_damage(invocation: Invocation, damage: Sequence[DamagedLog]) -> None:
    for each in damage:
        if invocation.json:
            invocation.output.json({"damaged": each.key, "message": str(each.error)})
        else:
            invocation.output.line(f"damaged: {each.key}: {each.error}")
    if damage:
        raise click.exceptions.Exit(ExitCode.DAMAGE)


def _summary(done: Compaction, place: str, *, yes: bool) -> str:
    kept = (
        f"the state of {plural(done.objects, 'object')}, {done.tombstones:,} of them deleted, in "
        f"{place}"
    )
    if not done.removable:
        return f"nothing to compact: {kept}"
    if not yes:
        text = (
            f"would remove {plural(done.removable, 'object')} of the log and keep {kept} (--yes "
            "compacts)"
        )
    else:
        text = (
            f"checkpoint {done.checkpoint}: removed {plural(done.removed, 'object')} of the log, "
            f"kept {kept}"
        )
    return text + (f"; {plural(done.dropped, 'tombstone')} dropped" if done.dropped else "")
