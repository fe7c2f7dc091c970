"""The trash of layout `tree`: lists, restores and reclaims the directories in it."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Final

from s3k_async._core.concurrency import merge, run_all
from s3k_async._native import Entries
from s3k_async.backends.ports.items import PARTITION, SORT, Item
from s3k_async.backends.ports.pagination import query_all
from s3k_async.errors import (
    ItemFormatError,
    PathNotFoundError,
    PermissionDeniedError,
    S3kError,
)
from s3k_async.layouts.tree.directory_changes import DirectoryChanges
from s3k_async.layouts.tree.reclamation import Reclamation
from s3k_async.layouts.tree.trash_items import TrashedDirectory, in_trash
from s3k_async.model import ROOT, ChangeResult, ChangeTally, Entry, TrashItem
from s3k_async.namespace.layout import OnProgress
from s3k_async.namespace.ordered_walk import walk
from s3k_async.namespace.store import MetadataStore
from s3k_async.table.keys import TRASH_ID, Directory
from s3k_async.table.stored_reader import SUFFIX_STREAMS
from s3k_async.txn.write_intent import transaction_of

__all__ = ["TreeTrash"]

RECLAIMED: Final = 16
"""Items in the trash that are processed at the same time."""


class TreeTrash:
    """An implementation of `namespace.layout.TrashStore`."""

    def __init__(self, store: MetadataStore, changes: DirectoryChanges) -> None:
        self._store = store
        self._changes = changes

    async def items(self) -> list[TrashItem]:
        """The deleted directories, newest first; no removal markers or staged directories."""
        found = [_shown(each) async for each in self._deleted()]
        return sorted(found, key=_age)

    async def newest(self, path: str) -> TrashItem:
        """Of the directories deleted at a path that can be restored, the one deleted last."""
        newest: TrashItem | None = None
        async for each in self._deleted():
            if each.was == path and each.can_be_restored():
                shown = _shown(each)
                newest = shown if newest is None else min(newest, shown, key=_age)
        if newest is None:
            raise PathNotFoundError("no such directory in the trash", path=path)
        return newest

    async def restore(self, item: TrashItem, target: str) -> Entry:
        """Move a directory to a path, in one transaction."""
        self._store.require_writable(target)
        return await self._changes.restore(await self._need(item), target)

    async def walk(self, item: TrashItem) -> AsyncGenerator[Entries, None]:
        """The entries below a directory in the trash, found by directory ids."""
        trashed = await self._need(item)
        self._store.access.require_owner(trashed.entry, "list it")
        top = Directory(trashed.entry.id, trashed.was, trashed.entry.entry_key)
        async with aclosing(walk(self._store, top)) as pages:
            async for page in pages:
                yield page

    async def empty(
        self,
        items: Iterable[TrashItem] | None = None,
        *,
        before_ms: int | None = None,
        progress: OnProgress = None,
    ) -> ChangeResult:
        """Delete the files below deleted directories. Removal markers and staged directories are
        skipped."""
        self._store.require_writable(ROOT)
        tally = ChangeTally()
        reclamation = Reclamation(self._store, tally, progress)

        async def reclaim(trashed: TrashedDirectory) -> None:
            if before_ms is not None and trashed.when_ms >= before_ms:
                return
            try:
                self._store.access.require_owner(trashed.entry, "remove it from the trash")
            except PermissionDeniedError as error:
                tally.fail(trashed.was, error)
            else:
                await reclamation.run(trashed)

        async def reclaim_item(item: TrashItem) -> None:
            try:
                trashed = await self._need(item)
            except PathNotFoundError:
                return
            except S3kError as error:
                tally.fail(item.was, error)
                return
            await reclaim(trashed)

        if items is None:
            await run_all(reclaim, self._deleted(tally), limit=RECLAIMED)
        else:
            each_once = {item.id: item for item in items}
            await run_all(reclaim_item, each_once.values(), limit=RECLAIMED)
        return tally.result()

    async def collect(
        self,
        clock: Callable[[], Awaitable[int]],
        *,
        retention_ms: int,
        dry_run: bool = False,
        progress: OnProgress = None,
    ) -> ChangeResult:
        """Reclaim the items that are due, and staged directories that can no longer be
        published."""
        self._store.require_writable(ROOT)
        tally = ChangeTally()
        collection = _Collection(
            self._store,
            Reclamation(self._store, tally, progress),
            tally,
            retention_ms,
            dry_run=dry_run,
        )
        await run_all(collection.collect, self._timed(clock, tally), limit=RECLAIMED)
        return tally.result()

    async def _timed(
        self, clock: Callable[[], Awaitable[int]], tally: ChangeTally
    ) -> AsyncGenerator[tuple[TrashedDirectory, int], None]:
        """All items in the trash, each with a time of the data store that was read after the item.
        A time before the deletion would make the settle time too short."""
        async with aclosing(self._pages(tally)) as pages:
            async for page in pages:
                if page:
                    now_ms = await clock()
                    for each in page:
                        yield each, now_ms

    async def _need(self, item: TrashItem) -> TrashedDirectory:
        """The stored item of a TrashItem. Raises PathNotFoundError, also if the directory has been
        restored and deleted again."""
        keys = self._store.keys
        stored = await self._store.items.get(TrashedDirectory.key(item.id, keys))
        trashed = None if stored is None else TrashedDirectory.from_item(stored, keys)
        if (
            trashed is None
            or trashed.why != "deleted"
            or (trashed.was, trashed.when_ms) != (item.was, item.when_ms)
        ):
            raise PathNotFoundError("the directory is not in the trash", path=item.was)
        return trashed

    async def _deleted(
        self, tally: ChangeTally | None = None
    ) -> AsyncGenerator[TrashedDirectory, None]:
        async with aclosing(self._pages(tally)) as pages:
            async for page in pages:
                for each in page:
                    if each.why == "deleted":
                        yield each

    async def _pages(
        self, tally: ChangeTally | None = None
    ) -> AsyncGenerator[Sequence[TrashedDirectory], None]:
        """The items in the trash. Raises ItemFormatError for a damaged item, or adds the error to
        the failures of a tally."""
        store = self._store
        partitions = store.keys.partitions(TRASH_ID)
        stored = merge([query_all(store.items, each) for each in partitions], limit=SUFFIX_STREAMS)
        async with aclosing(stored) as pages:
            async for page in pages:
                read = [self._read(item, tally) for item in page]
                found = [each and await self._in_effect(each, tally) for each in read]
                yield [each for each in found if each is not None]

    async def _in_effect(
        self, trashed: TrashedDirectory, tally: ChangeTally | None
    ) -> TrashedDirectory | None:
        """An item that carries no intent, or that of a published transaction; None for one that is
        not in the trash yet. The intent of a transaction that is over is resolved."""
        store = self._store
        if not trashed.entry.pending:
            return trashed
        transactions = store.transactions
        record = await transactions.record(transaction_of(trashed.entry.pending))
        if record is not None and transactions.lease_runs(record):
            return trashed if record.is_published else None
        await store.resolve(trashed.entry, trashed.was)
        item = await store.items.get(TrashedDirectory.key(trashed.entry.id, store.keys))
        return None if item is None else self._read(item, tally)

    def _read(self, item: Item, tally: ChangeTally | None) -> TrashedDirectory | None:
        try:
            return TrashedDirectory.from_item(item, self._store.keys)
        except ItemFormatError as error:
            if tally is None:
                raise
            tally.fail(f"{item[PARTITION]} / {item[SORT]}", error)
            return None


@dataclass
class _Collection:
    """One run of `TreeTrash.collect`."""

    store: MetadataStore
    reclamation: Reclamation
    tally: ChangeTally
    retention_ms: int
    dry_run: bool

    async def collect(self, seen: tuple[TrashedDirectory, int]) -> None:
        """Reclaim an item if it is due; `seen`: with a time of the data store."""
        trashed, now_ms = seen
        if trashed.why == "empty":
            if not self.dry_run:
                await self.reclamation.note(trashed, now_ms)
        elif trashed.why == "staged":
            await self._collect_staged(trashed, now_ms)
        elif trashed.state or trashed.when_ms + self.retention_ms <= now_ms:
            await (self._count(trashed) if self.dry_run else self.reclamation.run(trashed, now_ms))

    async def _collect_staged(self, trashed: TrashedDirectory, now_ms: int) -> None:
        """Remove a staged directory that can no longer be published."""
        store, transactions = self.store, self.store.transactions
        try:
            record = await transactions.record(trashed.job)
            if record is not None and transactions.lease_runs(record):
                return
            # Read after the record: a transaction that has ended leaves no staged directory, and
            # one that is published has none.
            is_left = await self._is_left(trashed)
            if is_left and (self.dry_run or record is not None):
                await self._count(trashed)
            if self.dry_run:
                return
            if record is not None:
                ended = await store.resolver.complete(record)
                if ended and not record.is_published and not await self._is_left(trashed):
                    # A restore would take its pending operations as done.
                    await store.changes.log.withdraw(record.id)
            elif is_left:
                # The record was damaged: then fsck may have recorded that the content exists.
                await self.reclamation.run(trashed, now_ms)
        except S3kError as error:
            self.tally.fail(trashed.was, error)

    async def _is_left(self, trashed: TrashedDirectory) -> bool:
        """Whether the trash has an item of the directory."""
        store = self.store
        return await store.items.get(trashed.key(trashed.entry.id, store.keys)) is not None

    async def _count(self, trashed: TrashedDirectory) -> None:
        tally = self.tally
        tally.directories += 1
        try:
            async with aclosing(walk(self.store, in_trash(trashed.entry))) as pages:
                async for page in pages:
                    tally.files += len(page.files())
                    tally.directories += len(page.directories())
                    tally.bytes += page.totals()[2]
        except S3kError as error:
            tally.fail(trashed.was, error)


def _shown(trashed: TrashedDirectory) -> TrashItem:
    return TrashItem(trashed.entry.id, trashed.was, trashed.when_ms, trashed.by, trashed.state)


def _age(item: TrashItem) -> tuple[int, str]:
    """A sort key: newest first."""
    return -item.when_ms, item.id
