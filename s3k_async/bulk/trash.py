"""The public trash of a volume: deleted directories that can be restored or reclaimed."""

from __future__ import annotations

import builtins
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import aclosing, suppress
from datetime import datetime

from s3k_async._core.active_calls import call, counted_call
from s3k_async.bulk.publish import ProgressCallback
from s3k_async.errors import PathNotFoundError
from s3k_async.listing.batch_listing import RowList, RowListing
from s3k_async.listing.listings import milliseconds
from s3k_async.model import (
    ROOT,
    ChangeResult,
    ContentSummary,
    FileStatus,
    TrashItem,
    status_of,
)
from s3k_async.namespace.addresses import Path
from s3k_async.namespace.layout import TrashStore
from s3k_async.table.stored_reader import ROOT_ENTRY
from s3k_async.txn.volume_record import change_trash_retention, read_trash_retention
from s3k_async.volumes.volume import Volume

__all__ = ["Trash"]


class Trash:
    """The trash of a volume of layout `tree`: directories that were deleted recursively.

    In a volume of layout `path` the trash is always empty: nothing is listed, and nothing can be
    restored. Every method can raise the errors that the methods of `S3kClient` can raise.
    """

    def __init__(
        self, volume: Callable[[], Volume], place: Callable[[Path], str], name: str
    ) -> None:
        self._volume = volume
        self._place = place
        self._name = name

    def __repr__(self) -> str:
        return f"<Trash of {self._name!r}>"

    @call
    async def list(self) -> RowList[TrashItem]:
        """The deleted directories, newest first, all in memory.

        Raises ItemFormatError.
        """
        return RowList(await self._store().items(), TrashItem)

    def walk(self, item: TrashItem) -> RowListing[FileStatus]:
        """All entries below a deleted directory, in no particular order, with paths below its
        former path. Files that were being written are omitted.

        Each directory precedes its content. Memory is bounded. Not a snapshot: the directory may be
        restored or reclaimed during the walk. Raises PathNotFoundError (no longer in the trash).
        """
        volume = self._volume()
        pages = _statuses(volume.store.layout.trash(), item)
        return RowListing(volume.calls.stream(pages, "trash.walk"), FileStatus)

    @call
    async def restore(self, item: TrashItem | Path, target: Path | None = None) -> FileStatus:
        """Move a deleted directory with everything below it to a path, by default its former one,
        in one transaction.

        `item`: an item in the trash, or its former path; of several directories with the same
        former path, the one deleted last is restored. Missing parents are created. A call that
        raises has restored nothing; after OutcomeUnknownError, everything or nothing. Raises
        PathNotFoundError (no longer in the trash, or its content is being deleted),
        PathExistsError (the target), NotDirectoryError, UnsupportedError (too many directories
        above the target for one transaction), BusyError.
        """
        trash = self._store()
        found = item if isinstance(item, TrashItem) else await trash.newest(self._place(item))
        place = found.was if target is None else self._place(target)
        return status_of(await trash.restore(found, place))

    @call
    async def summary(self, item: TrashItem | None = None) -> ContentSummary:
        """Bytes, files and directories of a deleted directory, itself included, or of all deleted
        directories. Files that were being written are not counted.

        Raises PathNotFoundError (no longer in the trash), ItemFormatError.
        """
        trash = self._store()
        total = ContentSummary(0, 0, 0)
        if item is not None:
            return await _added(total, trash, item)
        for each in await trash.items():
            with suppress(PathNotFoundError):  # it was restored or reclaimed meanwhile
                total = await _added(total, trash, each)
        return total

    @counted_call
    async def empty(
        self,
        items: Iterable[TrashItem] | None = None,
        *,
        older_than: int | datetime | None = None,
        progress: ProgressCallback | None = None,
    ) -> ChangeResult:
        """Delete the files below the deleted directories in `items`, by default below all of them;
        with `older_than` (exclusive; epoch milliseconds or an aware `datetime`), only below those
        that were deleted before that time.

        These directories can no longer be restored. They stay in the trash, in state `reclaiming`,
        until garbage collection removes them. Garbage collection also frees the space of the files,
        after its grace period. The result counts the deleted files and the directories that no
        longer contain files, and lists failures by former path. Another call, or garbage
        collection, continues with the remaining files. An item that is no longer in the trash is
        skipped. Raises InvalidArgumentError (a `datetime` without a time zone),
        ReadOnlyVolumeError.
        """
        before = milliseconds(older_than, up=True)
        volume = self._volume()
        with volume.freeing_space():
            return await volume.store.layout.trash().empty(
                items, before_ms=before, progress=progress
            )

    @call
    async def retention(self) -> int | None:
        """How long garbage collection leaves a deleted directory in the trash, in seconds; with 0
        the next run reclaims it. None in a volume of layout `path`, which has no trash.
        """
        volume = self._volume()
        return await read_trash_retention(volume.items, volume.record, volume.config.where)

    @call
    async def set_retention(self, seconds: int) -> int:
        """Change the retention of the volume for all clients; returns the previous one.

        It also applies to directories that are already in the trash, from the next run of garbage
        collection on. Raises InvalidArgumentError (not a whole number from 0 to ten billion),
        UnsupportedError (layout `path`), ReadOnlyVolumeError, BusyError; after OutcomeUnknownError
        repeat the call.
        """
        volume = self._volume()
        volume.store.require_writable(ROOT)
        volume.store.access.require_owner(ROOT_ENTRY, "change the retention of the trash")
        where = volume.config.where
        return await change_trash_retention(
            volume.items, volume.record, seconds, where, runtime=volume.store.runtime
        )

    def _store(self) -> TrashStore:
        return self._volume().store.layout.trash()


async def _statuses(trash: TrashStore, item: TrashItem) -> AsyncIterator[builtins.list[FileStatus]]:
    async with aclosing(trash.walk(item)) as pages:
        async for page in pages:
            if shown := page.without_reservations():
                yield shown.statuses()


async def _added(total: ContentSummary, trash: TrashStore, item: TrashItem) -> ContentSummary:
    """The sum of a total and the total of one deleted directory."""
    length, files, directories = total.length, total.file_count, total.directory_count + 1
    async with aclosing(trash.walk(item)) as pages:
        async for page in pages:
            more_files, more_directories, more_bytes = page.totals()
            files += more_files
            directories += more_directories
            length += more_bytes
    return ContentSummary(length, files, directories)
