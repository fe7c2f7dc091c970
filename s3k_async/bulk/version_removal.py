"""Permanent removal: the data of deleted files is deleted at once, so that no version of them can
be brought back.

The rules and the sweep of garbage collection decide and delete, without its grace period: only for
files whose last committed operation is their deletion, after which no entry ever references their
data again.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Collection, Iterator, Sequence
from contextlib import aclosing, closing, suppress
from dataclasses import dataclass, replace
from itertools import islice
from typing import Final

from s3k_async._core.concurrency import gather
from s3k_async._core.worker_threads import in_thread
from s3k_async.bulk.file_versions import FormerAccess, log_of, place_of, require_visible
from s3k_async.bulk.path_changes import delete
from s3k_async.bulk.publish import ProgressCallback, is_below
from s3k_async.errors import (
    BusyError,
    PartialFailureError,
    PathNotFoundError,
    PermissionDeniedError,
)
from s3k_async.integrity.audit import AuditTrail
from s3k_async.integrity.gc_mark import CollectedData, need_collectable
from s3k_async.integrity.gc_rules import (
    LATE_SECONDS,
    PHYSICAL_KEY,
    Ages,
    GcFacts,
    History,
    Verdict,
    judge,
    named_by,
)
from s3k_async.integrity.gc_sweep import BATCH, MarkedState, Sweeper
from s3k_async.integrity.sorted_log import SortedLog
from s3k_async.model import ChangeResult, Entry, Failure, FileStatus, TrashItem
from s3k_async.oplog.entries import LogRecord
from s3k_async.oplog.entry_states import history_of
from s3k_async.oplog.tail import position_of
from s3k_async.storage.extents import physical_keys
from s3k_async.volumes.volume import Volume

__all__ = ["delete_permanently", "remove_versions"]

FILES: Final = 16
"""Files whose data is looked up at the same time,"""
LOOKS: Final = 4
"""and data objects of each."""
WINDOW: Final = 1000
"""Files whose log records are in memory."""
NOW: Final = Ages(grace=0.0)
"""No delay for open readers: permanent removal does not wait for them."""


@dataclass(frozen=True, slots=True)
class _RemovableFile:
    """A deleted file, with all of its log records."""

    last: Entry
    """Its state before the deletion."""
    records: tuple[LogRecord, ...]
    is_undecided: bool
    """Whether the log has a later operation of unknown outcome, or that of the deletion is."""
    is_being_created: bool
    """Whether its writer may create it again, since the answer to the first request was lost."""

    @property
    def is_without_data(self) -> bool:
        """Whether it was empty and had no object, so that there is nothing to delete."""
        return not physical_keys(self.last.physical)


async def delete_permanently(
    volume: Volume,
    path: str,
    *,
    recursive: bool,
    missing_ok: bool,
    atomic: bool,
    expected: FileStatus | None,
    progress: ProgressCallback | None,
) -> ChangeResult:
    """Remove a file or directory, and the data of everything that was deleted at, or with
    `recursive` also below, the path. The result counts what was removed, or, if nothing was at the
    path, the deleted files that had data or needed none. Raises as `delete` and `remove_versions`.
    """
    log_of(volume, path)
    has_trash = recursive and volume.store.layout.has_trash
    top = await volume.store.get(path) if has_trash else None
    removed = await delete(
        volume,
        path,
        recursive=recursive,
        missing_ok=True,
        atomic=atomic,
        expected=expected,
        progress=progress,
        wait=True,
    )
    directories: set[str] = set()
    if has_trash:
        trash = volume.store.layout.trash()
        items = [each for each in await trash.items() if is_below(each.was, path)]
        if top is not None and top.is_dir:
            directories.add(volume.store.keys.directory(top).key)
        for item in items:
            directories |= await _directories(volume, item)
        (await trash.empty(items)).raise_for_failures(path=path)
    former = await remove_versions(volume, path, below=recursive, directories=directories)
    if removed.files or removed.directories:
        return removed
    if not former.files and not missing_ok:
        raise PathNotFoundError("no file is at the path, and no deleted one has data", path=path)
    return former


async def _directories(volume: Volume, item: TrashItem) -> set[str]:
    """The keys of a directory in the trash, and of those below it."""
    keys = {item.id}
    with suppress(PathNotFoundError, PermissionDeniedError):  # reclaimed, or another user's
        async with aclosing(volume.store.layout.trash().walk(item)) as pages:
            async for page in pages:
                keys.update(volume.store.keys.directory(each).key for each in page.directories())
    return keys


async def remove_versions(
    volume: Volume, path: str, *, below: bool, directories: Collection[str] = ()
) -> ChangeResult:
    """Delete the data of all deleted files that were at a path, or with `below` also below it, by
    their paths of that time, and in layout `tree` also by the directory that they were in.
    `directories`: the keys of those that were at and below the path. The result counts the files
    that had data, and empty files without an object: the log alone describes them, so that they can
    be brought back until it is compacted.

    Raises UnsupportedError (no log), LogFormatError, PermissionDeniedError (the removal of an entry
    from its directory is not permitted), BusyError, ConflictError (the log was compacted
    meanwhile), PartialFailureError.
    """
    volume.store.require_writable(path)
    await require_visible(volume, path)
    place = CollectedData.of(volume)
    record = await need_collectable(place)
    now_ms = volume.store.runtime.now_ms()  # no age matters here
    reader = log_of(volume, path)
    await volume.log.drained()
    position = await position_of(reader)
    seen = MarkedState(position.segments, position.checkpoints, lost=0)
    audit = AuditTrail(volume.log_blobs, volume.store.runtime.uuid())
    sweeper = Sweeper(place, volume.store.runtime, NOW, audit, seen, record, now_ms)
    with closing(SortedLog()) as log, closing(sweeper):
        await log.read(reader, volume.store.keys, operation="delete")
        log.require_readable()
        wanted = _Wanted(path, below, await place_of(volume, path), frozenset(directories))
        removal = _Removal(volume, place, log, wanted)
        await removal.require_permitted()
        files, size, failures = 0, 0, list[Failure]()
        async for some in removal.windows():
            failures += [(each.last.path, _undecided(each)) for each in some if each.is_undecided]
            decided = [each for each in some if not each.is_undecided]
            failures += [
                (each.last.path, _unfinished(each)) for each in decided if each.is_being_created
            ]
            known = [each for each in decided if not each.is_being_created]
            found = await removal.verdicts(known, now_ms)
            verdicts = [verdict for each in found for verdict in each]
            for start in range(0, len(verdicts), BATCH):
                await sweeper.sweep(verdicts[start : start + BATCH])
            files += sum(
                bool(each) or file.is_without_data for file, each in zip(known, found, strict=True)
            )
            size += sum(verdict.blob.size for verdict in verdicts)
    failures += sweeper.swept.failures
    for reason, kept in sweeper.swept.kept.items():
        busy = f"{kept.objects} objects are in use by other clients ({reason}): left to s3k gc"
        failures.append((path, BusyError(busy, path=path)))
    if failures:
        raise PartialFailureError(
            "not all data could be deleted; s3k gc deletes the rest", path=path, failures=failures
        )
    return ChangeResult(files, 0, size)


@dataclass(frozen=True, slots=True)
class _Wanted:
    """Which files are meant."""

    path: str
    below: bool
    place: str | None
    """In layout `tree`, the entry key of the path."""
    directories: frozenset[str]
    """In layout `tree`, the keys of the directories at and below the path."""

    def includes(self, last: Entry) -> bool:
        """Whether a file with this last state is meant."""
        if self.below and (is_below(last.path, self.path) or last.directory in self.directories):
            return True
        return last.path == self.path or (self.place is not None and last.entry_key == self.place)

    def histories(self, log: SortedLog) -> Iterator[list[LogRecord]]:
        """The records of the files that may be meant."""
        if self.directories:
            return log.objects()
        return log.objects_with(self.path if self.below else "/" + self.path.rpartition("/")[2])


@dataclass(frozen=True, slots=True)
class _Removal:
    """The deleted files whose data is to be removed, of which a window is in memory."""

    volume: Volume
    place: CollectedData
    log: SortedLog
    wanted: _Wanted

    async def require_permitted(self) -> None:
        """Raise PermissionDeniedError unless all may be removed."""
        access = self.volume.store.access
        if not access.is_enforced:
            return
        former = FormerAccess(self.volume)
        async for some in self.windows():
            for file in some:
                if file.is_undecided:
                    continue
                if not await former.may_see(file.last):
                    access.require_owner(file.last, "remove its versions")
                await access.permit_removal(file.last)

    async def windows(self) -> AsyncGenerator[list[_RemovableFile], None]:
        """The files, some at a time."""
        files = self._files()
        while some := await in_thread(lambda: list(islice(files, WINDOW))):
            yield some

    async def verdicts(self, files: Sequence[_RemovableFile], now_ms: int) -> list[list[Verdict]]:
        """The verdicts of the rules of garbage collection on the existing data of each file."""
        return await gather(
            lambda each: _verdicts(self.volume, self.place, each, now_ms), files, limit=FILES
        )

    def _files(self) -> Iterator[_RemovableFile]:
        """The files that were at, or below, a path, and whose last operation is a deletion. A file
        that was moved away is another one's concern."""
        for records in self.wanted.histories(self.log):
            history = history_of(records)
            is_undecided = any(each.after is None for each in history.pending)
            if not (history.is_deleted or is_undecided) or not history.states:
                continue
            last = history.states[-1].entry
            if self.wanted.includes(last) and not last.is_dir:
                yield _RemovableFile(
                    last,
                    tuple(records),
                    bool(history.pending),
                    _is_being_created(records, self.volume.store.runtime.now_ms()),
                )


def _undecided(file: _RemovableFile) -> BusyError:
    return BusyError(
        "its deletion is pending in the log, since a client was interrupted: s3k fsck repair "
        "completes it, then repeat the call",
        path=file.last.path,
    )


def _is_being_created(records: Sequence[LogRecord], now_ms: int) -> bool:
    """Whether a creation is not committed, and so young that its request may be on its way: it
    requires only that nothing is at the path."""
    committed = {each.operation.id for each in records if each.state == "committed"}
    return any(
        each.operation.before is None
        and (after := each.operation.after) is not None
        and after.committed
        and each.operation.id not in committed
        and each.operation.time_ms + LATE_SECONDS * 1000 > now_ms
        for each in records
    )


def _unfinished(file: _RemovableFile) -> BusyError:
    return BusyError(
        "its creation is pending in the log, since its writer lacks an answer, or was interrupted, "
        "and may be repeated: repeat the call later, or leave the data to s3k gc",
        path=file.last.path,
    )


async def _verdicts(
    volume: Volume, place: CollectedData, file: _RemovableFile, now_ms: int
) -> list[Verdict]:
    """The verdicts of the rules of garbage collection on the existing data of a deleted file."""
    history = History(file.records, place.key_of)
    keys = sorted(named_by([each.operation for each in file.records], place.key_of))
    blobs = await gather(volume.blobs.head, keys, limit=LOOKS)
    found = [
        judge(GcFacts(blob, history, damaged=False, now_ms=now_ms, logged=True))
        for blob in blobs
        if blob is not None and PHYSICAL_KEY.fullmatch(blob.key)
    ]
    # Its age protects readers, who are not waited for.
    return [replace(each, since_ms=0) for each in found if each.reason == "deleted"]
