"""Change of a volume's layout, in place. Design: docs/design/011-directories-by-id.md, section 8.6.

Under the volume lock, as a reshard: check, copy every entry under its key of the new layout, change
the record (the commit point), remove the old items. The same call again finishes an interrupted
change.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from typing import Final

from s3k_async import _native
from s3k_async._core.metering import RequestCounter, Requests, counted
from s3k_async._core.runtime import SYSTEM, Runtime
from s3k_async._core.worker_threads import in_thread
from s3k_async.config import VolumeConfig
from s3k_async.errors import BlobExistsError, BusyError, ItemFormatError
from s3k_async.integrity.facts import FindingKind
from s3k_async.integrity.repair import verify_volume
from s3k_async.migrate.layout_pass import (
    LayoutPass,
    LayoutPassName,
    NewPlaces,
    PlacesById,
    PlacesByPath,
)
from s3k_async.migrate.table_walk import PassResult, walk_table
from s3k_async.model import LayoutName, Progress
from s3k_async.oplog.entries import segment_key, transaction_segments
from s3k_async.oplog.log_reader import LogReader
from s3k_async.oplog.segments import SegmentCommit, encode_segment_commit
from s3k_async.table.keys import KeyScheme
from s3k_async.txn.volume_lock import VolumeLock
from s3k_async.txn.volume_record import (
    LOCK,
    LOCK_DONE,
    RECORD_KEY,
    RETENTION,
    TREE,
    VolumeRecord,
    write_tag,
)
from s3k_async.volumes import Volume
from s3k_async.volumes.claims import rewrite
from s3k_async.volumes.exclusive_volume import exclusive_volume
from s3k_async.volumes.volume import metadata_store, open_volume

__all__ = ["LayoutResult", "change_layout"]

_DECIDED_BY_LOG: Final[frozenset[FindingKind]] = frozenset(
    {"entry_missing", "interrupted_change", "log_conflict", "log_disagrees", "log_pending"}
)
"""Findings that are repaired with the states in the log, whose keys are of the old layout."""
_NO_GRACE: Final = -86_400.0
"""Seconds. No client is active, so that nothing is too young, even by a clock that is a day ahead.
"""


@dataclass(frozen=True, slots=True)
class LayoutResult:
    """Result of a change of the layout. `entries`: of the volume; `moved`: those that this call
    moved to another key."""

    layout: LayoutName
    entries: int
    moved: int
    requests: Requests = field(default_factory=Requests, compare=False)


@counted
async def change_layout(
    config: VolumeConfig,
    layout: LayoutName,
    *,
    check: bool = True,
    progress: Callable[[Progress], object] | None = None,
    runtime: Runtime = SYSTEM,
    session: object | Mapping[str, object] | None = None,
    counter: RequestCounter | None = None,
) -> LayoutResult:
    """Change the layout of a volume. No effect if it has it. The layout in `config` is not used.

    Every entry gets its next version, which is logged. Data is not touched. Other clients cannot
    use the volume meanwhile, and must open it again afterwards, with the new layout (BusyError,
    then VolumeMismatchError; see `txn.volume_lock`). An interrupted change leaves the volume
    locked; the same call again finishes it. Needs the space of a second copy of the table.

    `check`: first compare table, log and data as `s3k fsck`, and refuse the change while fsck has
    something to repair by the log, since the log has what was lost before the change, or not
    decided, at keys that do not exist afterwards.

    Raises ItemFormatError (the check failed, or the table has damaged or misplaced items, entries
    without a parent, or a directory id twice: run fsck repair first), DirectoryNotEmptyError (to
    layout `path`, which has no trash: there are directories in it), InvalidPathError (a key would
    be too long), BusyError (also for an unfinished transaction), PermissionDeniedError (the table's
    tag or the mark of the data location cannot be written), NotAVolumeError (the mark is damaged),
    with nothing changed; LeaseExpiredError; and the services' errors.
    """
    config = replace(config, suffix_count=None, hash=None, layout=None)
    opened = await open_volume(
        config, runtime=runtime, session=session, counter=counter, locked=True
    )
    try:
        if not opened.read_only and await _has_layout(opened, layout):
            return LayoutResult(layout, 0, 0)
    finally:
        await opened.close()
    lock = VolumeLock("migration", layout, runtime)
    async with exclusive_volume(
        config, lock, runtime=runtime, session=session, counter=counter
    ) as volume:
        if volume.record.layout == layout and not lock.touched:
            return LayoutResult(layout, 0, 0)
        change = _LayoutChange(volume, layout, lock, progress or (lambda _: None))
        change.target.to_tag()  # checked before the first change
        await lock.wait_for_clients_to_stop()
        return await change.run(runtime, check=check)


class _LayoutChange:
    """One change in progress."""

    def __init__(
        self,
        volume: Volume,
        layout: LayoutName,
        lock: VolumeLock,
        progress: Callable[[Progress], object],
    ) -> None:
        record = volume.record
        self._volume = volume
        self._lock = lock
        self._progress = progress
        other: LayoutName = "path" if layout == "tree" else "tree"
        self._old = KeyScheme(record.name, record.suffix_count, record.hash, other)
        self._new = KeyScheme(record.name, record.suffix_count, record.hash, layout)
        self.target = _in_layout(record, layout)

    async def run(self, runtime: Runtime, *, check: bool) -> LayoutResult:
        volume, lock, target = self._volume, self._lock, self.target
        policy = volume.config.tuning.retry.write
        copied = PassResult()
        if target != volume.record:
            with closing(self._places(self._old)) as places:
                await self._walk("index", places, self._old)
                # In a thread, so that the lock can be renewed.
                await in_thread(places.end)
                if not lock.done:
                    lock.touched = False  # the interrupted run had not started to copy
                    await self._require_no_transaction()
                    await self._walk("check", places, self._old)
                    if check:
                        await self._require_no_finding()
                    # checks that must not fail later
                    await write_tag(volume.table, volume.record, runtime, policy)
                    await self._mark(volume.record)
                    lock.touched = True
                    lock.done = runtime.now_ms()
                    await lock.change(volume.items, {LOCK_DONE: lock.done})
                copied = await self._walk("copy", places, self._old)
            # A retention that was set in layout `tree` must not come back with the layout.
            await lock.change(volume.items, {"flags": " ".join(target.flags)}, (RETENTION,))
        lock.check()
        await write_tag(volume.table, target, runtime, policy)
        await self._mark(target)
        await self._commit_segments()
        with closing(self._places(self._new)) as places:
            if not self._new.by_id:
                await self._walk("index", places, self._new)
            cleaned = await self._walk("clean", places, self._new)
        return LayoutResult(
            target.layout,
            max(copied.entries, cleaned.entries),
            max(copied.moved, cleaned.moved),
        )

    async def _mark(self, record: VolumeRecord) -> None:
        """Write the flags of a record into the mark, from which a restore takes the layout."""
        await rewrite(self._volume.place, record.volume_id, {"flags": " ".join(record.flags)})

    @property
    def _txn(self) -> str:
        """The id in the names of the segments: the same in every attempt."""
        text = f"{self._volume.record.volume_id} {self.target.layout} {self._lock.done}"
        return _native.uuid_text(hashlib.sha256(text.encode()).digest()[:16])

    def _places(self, complete: KeyScheme) -> NewPlaces:
        if not self._new.by_id:
            return PlacesByPath()
        volume = self._volume
        return PlacesById(
            metadata_store(
                volume.items,
                complete,
                volume.log,
                volume.store.runtime,
                volume.config.tuning,
                read_only=False,
            )
        )

    async def _walk(
        self, name: LayoutPassName, places: NewPlaces, complete: KeyScheme
    ) -> PassResult:
        work = LayoutPass(
            name,
            self._old,
            self._new,
            places,
            complete,
            txn=self._txn,
            time_ms=self._lock.done,
        )
        return await walk_table(
            self._volume,
            work,
            self._lock,
            lambda done: self._progress(Progress("migrate", done, phase=name)),
        )

    async def _require_no_transaction(self) -> None:
        async for record in self._volume.store.transactions.records():
            raise BusyError(
                "a transaction is unfinished; run s3k fsck repair first", path=record.source
            )

    async def _require_no_finding(self) -> None:
        report = await verify_volume(
            self._volume,
            grace=_NO_GRACE,
            progress=lambda each: self._progress(replace(each, operation="migrate")),
        )
        needed = [
            each for each in report.findings if each.kind in _DECIDED_BY_LOG and each.is_repairable
        ]
        if needed:
            counts = Counter(each.kind for each in needed)
            kinds = ", ".join(f"{kind} ({count})" for kind, count in sorted(counts.items()))
            raise ItemFormatError(
                f"fsck has findings that cannot be repaired in the new layout: {kinds}; run "
                "s3k fsck repair first (which skips what is younger than 5 minutes)",
                path=needed[0].path or None,
            )

    async def _commit_segments(self) -> None:
        """Record that all copies were made, those of interrupted attempts included."""
        blobs = self._volume.log_blobs
        if blobs is None:
            return
        log = LogReader(blobs)
        for segment in await log.open_segments(transaction_segments(self._txn)):
            begun = await log.begun(segment)
            if begun is not None:
                commit = SegmentCommit(segment, len(begun.operations))
                self._lock.check()
                with suppress(BlobExistsError):
                    await blobs.put(
                        segment_key(segment, "committed"),
                        encode_segment_commit(commit),
                        if_absent=True,
                    )


async def _has_layout(volume: Volume, layout: LayoutName) -> bool:
    """Whether there is nothing to change or to finish, which is seen without the lock: taking it
    ends all open clients."""
    item = await volume.items.get(RECORD_KEY)
    return volume.record.layout == layout and item is not None and LOCK not in item


def _in_layout(record: VolumeRecord, layout: LayoutName) -> VolumeRecord:
    flags = tuple(flag for flag in record.flags if flag != TREE)
    return replace(record, flags=(*flags, TREE) if layout == "tree" else flags)
