"""The public trash of a volume: deleted directories, which can be restored or reclaimed."""

from __future__ import annotations

import builtins
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import aclosing
from datetime import datetime

from s3k_async._core.active_calls import call, counted_call
from s3k_async.bulk.publish import ProgressCallback
from s3k_async.listing.listings import PagedIterator, milliseconds
from s3k_async.model import ChangeResult, ContentSummary, FileStatus, TrashItem, status_of
from s3k_async.namespace.addresses import Path
from s3k_async.namespace.layout import TrashStore
from s3k_async.volumes.volume import Volume

__all__ = ["Trash"]


class Trash:
    """The directories that were deleted with everything below them, in a volume of layout `tree`.

    In a volume of layout `path` the trash is always empty: nothing is listed, and nothing can be
    restored. Every method may raise the errors that those of `S3kClient` may raise.
    """

    def __init__(self, volume: Callable[[], Volume], place: Callable[[Path], str]) -> None:
        self._volume = volume
        self._place = place

    @call
    async def list(self) -> builtins.list[TrashItem]:
        """The deleted directories, the latest first, all in memory.

        Raises ItemFormatError.
        """
        return await self._store().items()

    def walk(self, item: TrashItem) -> AsyncIterator[FileStatus]:
        """Everything below a deleted directory, in no order, with paths below its former path;
        without files that were being written.

        Each directory precedes its content. Memory is bounded. Not a snapshot: the directory may be
        restored or reclaimed meanwhile. Raises PathNotFoundError (no longer in the trash).
        """
        volume = self._volume()
        return PagedIterator(volume.calls.stream(_statuses(volume.store.layout.trash(), item)))

    @call
    async def restore(self, item: TrashItem | Path, target: Path | None = None) -> FileStatus:
        """Move a deleted directory with everything below it to a path, by default its former one,
        in one transaction.

        `item`: an item of the trash, or the former path of one, of several that which was deleted
        last. Missing parents are created. A call that raises has restored nothing; after
        OutcomeUnknownError, everything or nothing. Raises PathNotFoundError (no longer in the
        trash, or its content is being deleted), PathExistsError (the target), NotDirectoryError,
        UnsupportedError (too many directories above the target for one transaction), BusyError.
        """
        trash = self._store()
        found = item if isinstance(item, TrashItem) else await trash.newest(self._place(item))
        place = found.was if target is None else self._place(target)
        return status_of(await trash.restore(found, place))

    @call
    async def summary(self, item: TrashItem | None = None) -> ContentSummary:
        """Bytes, files and directories of a deleted directory, itself included, or of all; files
        that were being written are not counted.

        Raises PathNotFoundError (no longer in the trash), ItemFormatError.
        """
        trash = self._store()
        total = ContentSummary(0, 0, 0)
        for each in await trash.items() if item is None else [item]:
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
        """Delete the files below deleted directories, of `items` or of all; with `older_than`
        (exclusive; epoch milliseconds or an aware `datetime`), only of those deleted before.

        These directories can no longer be restored. They stay in the trash, as `reclaiming`, until
        garbage collection removes them; it frees the space of the files as well, after its grace
        period. The result counts the deleted files and the directories without files left. Failures
        are listed in it by former path; another call, or garbage collection, goes on with what is
        left. An item that is no longer in the trash is skipped. Raises InvalidArgumentError (a
        `datetime` without a time zone), ReadOnlyVolumeError.
        """
        before = milliseconds(older_than, up=True)
        volume = self._volume()
        with volume.freeing_space():
            return await volume.store.layout.trash().empty(
                items, before_ms=before, progress=progress
            )

    def _store(self) -> TrashStore:
        return self._volume().store.layout.trash()


async def _statuses(trash: TrashStore, item: TrashItem) -> AsyncIterator[builtins.list[FileStatus]]:
    async with aclosing(trash.walk(item)) as pages:
        async for page in pages:
            if shown := page.without_reservations():
                yield shown.statuses()


async def _added(total: ContentSummary, trash: TrashStore, item: TrashItem) -> ContentSummary:
    """The total and that of one directory."""
    length, files, directories = total.length, total.file_count, total.directory_count + 1
    async with aclosing(trash.walk(item)) as pages:
        async for page in pages:
            more_files, more_directories, more_bytes = page.totals()
            files += more_files
            directories += more_directories
            length += more_bytes
    return ContentSummary(length, files, directories)
