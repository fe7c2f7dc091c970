"""Recursive changes and summaries: concurrent over directories and suffixes, resumed by repeating
the call.

This is the plain mode, without a transaction record: directories get an intent before they are
listed, additions go top-down, removals bottom-up, and a reader may see part of the change.
`atomic_changes` has the atomic mode.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass, field, replace
from functools import partial

from s3k_async import _native
from s3k_async._core.concurrency import Budget, to_the_end
from s3k_async._native import Entries
from s3k_async.errors import (
    ConditionFailedError,
    ConflictError,
    LeaseExpiredError,
    NotDirectoryError,
    PathExistsError,
    PathNotFoundError,
    RenameIntoSelfError,
    S3kError,
)
from s3k_async.metadata.bulk_moves import BulkOutcome, delete_files, move_files
from s3k_async.metadata.chunking import PARTS, chunks, cost_of_files
from s3k_async.metadata.codec import NEXT, in_columns, is_unmarked_directory, to_item, unchanged
from s3k_async.metadata.ordered_walk import walk
from s3k_async.metadata.store import MetadataStore
from s3k_async.metadata.txn_record import POLL_CAP_SECONDS, POLL_SECONDS, Job
from s3k_async.model import ROOT, ChangeResult, ChangeTally, Entry, Progress
from s3k_async.stores.items import ABSENT, Action, Check, Put

__all__ = ["Tree"]

_LOG = logging.getLogger(__name__)


@dataclass(slots=True)
class _Run:
    """One recursive change under way."""

    kind: str
    job: Job
    tally: ChangeTally
    progress: Callable[[Progress], object] | None
    budget: Budget = field(default_factory=lambda: Budget(PARTS))

    def done(self, done: BulkOutcome, path: str) -> None:
        self.tally.files += done.files
        self.tally.bytes += done.bytes
        self.tally.failures += done.failures
        self.report(path)

    def report(self, path: str) -> None:
        if self.progress is not None:
            done = self.tally.files + self.tally.directories
            self.progress(Progress(self.kind, done, bytes=self.tally.bytes, path=path))


class Tree:
    """Recursive operations over a metadata store."""

    def __init__(self, store: MetadataStore) -> None:
        self._store = store

    def walk(self, path: str) -> AsyncGenerator[Entries, None]:
        """Every descendant of a directory, as readers see them: see `ordered.walk`."""
        return walk(self._store, path)

    async def delete(
        self, entry: Entry, *, progress: Callable[[Progress], object] | None = None
    ) -> ChangeResult:
        """Delete a directory and all below it, bottom-up. The bytes are left to garbage collection.

        Raises PathNotFoundError, NotDirectoryError, ConflictError (another directory is there),
        BusyError for the directory itself; what fails below it is listed in the result, and then
        the directories above it stay.
        """
        self._store.require_writable(entry.path)
        async with self._store.jobs.hold("mark", entry.path) as job:
            run = _Run("delete", job, ChangeTally(), progress)
            marked = await self._store.mark_current(entry, job, same=True)
            await self._delete_below(marked, run)
            return run.tally.result()

    async def _delete_below(self, marked: Entry, run: _Run) -> bool:
        """Delete what a marked directory holds, then the directory. False if something below failed
        and it stays."""
        try:
            if not await self._empty(marked, run):
                await self._store.release(marked, run.job)
                return False
            await self._store.delete_marked(marked, run.job)
        except S3kError:
            await self._store.release(marked, run.job)
            raise
        run.tally.directories += 1
        run.report(marked.path)
        return True

    async def _empty(self, marked: Entry, run: _Run) -> bool:
        clean = True

        async def delete_chunk(chunk: Entries) -> None:
            nonlocal clean
            run.job.check()
            entries = await self._settled(chunk, run.job)
            done = await delete_files(self._store, entries.files(), run.job.turn)
            run.done(done, marked.path)
            clean = clean and not done.failures
            await run.budget.run_all(delete_child, entries.directories())

        async def delete_child(entry: Entry) -> None:
            nonlocal clean
            deleted = await self._delete_child(entry, run)
            clean = clean and deleted

        await run.budget.run_all(
            delete_chunk, chunks(self._store.stored_children(marked.path)), cost=cost_of_files
        )
        return clean

    async def _delete_child(self, entry: Entry, run: _Run) -> bool:
        try:
            return await self._delete_below(await self._store.mark_current(entry, run.job), run)
        except PathNotFoundError:
            return True
        except LeaseExpiredError:
            raise
        except S3kError as error:
            run.tally.failures.append((entry.path, error))
            return False

    async def rename(
        self, source: Entry, target: str, *, progress: Callable[[Progress], object] | None = None
    ) -> ChangeResult:
        """Move a directory and all below it; object ids stay, versions grow by one.

        The target must not exist, unless it is what an interrupted rename of this very directory
        left there (it has the same object id): then the work is finished. Raises
        RenameIntoSelfError, PathExistsError, PathNotFoundError (source, or target's parent),
        NotDirectoryError, BusyError; what fails below is listed in the result, and then both
        directories exist.
        """
        self._store.require_writable(target)
        if target == source.path or target.startswith(source.path + "/"):
            raise RenameIntoSelfError("a directory cannot be moved into itself", path=target)
        # Looked at before anything is marked, too: a refusal changes nothing.
        await self._look_ahead(source, target)
        deadline = self._store.deadline()
        pause = POLL_SECONDS
        while True:
            async with self._store.jobs.hold("mark", source.path, target) as job:
                run = _Run("rename", job, ChangeTally(), progress)
                marked = await self._store.mark_current(source, job)
                made, obstacle = await self._begin(marked, target, job)
                if made is not None:
                    await self._move_below(marked, made, run)
                    return run.tally.result()
            self._store.still_time(deadline, target)
            if obstacle is not None:
                await self._store.settle(obstacle)
            # Two renames into each other that stood back at the same time must not come back at the
            # same time.
            await self._store.sources.sleep(self._store.sources.uniform(0.0, pause))
            pause = min(POLL_CAP_SECONDS, pause * 2)

    async def _begin(
        self, marked: Entry, target: str, job: Job
    ) -> tuple[Entry | None, Entry | None]:
        """Make the directory at the target. Or, where another job is at work above it, drop our
        mark and return no directory, and the entry that is in the way if it is known.
        """
        try:
            # The mark is set before these are read: of two renames into each other one sees the
            # other.
            obstacle = await self._look_ahead(marked, target)
            made = None
            if obstacle is None:
                made, obstacle = await self._make_top(marked, target, job)
        except S3kError:
            await self._store.release(marked, job)
            raise
        if made is None:
            await self._store.unmark(marked, job)
        return made, obstacle

    async def _look_ahead(self, marked: Entry, target: str) -> Entry | None:
        """Check the target and its ancestors; the first of these that a live job marks, or None."""
        chain = await self._store.chain(target)
        for path, entry in chain[:-1]:
            if entry is None:
                raise PathNotFoundError("no such parent directory", path=path)
            if not entry.is_dir:
                raise NotDirectoryError("the path leads through a file", path=path)
        existing = chain[-1][1]
        if existing is not None and existing.id != marked.id:
            raise PathExistsError("the target exists", path=target)
        for _, entry in chain:
            if (
                entry is not None
                and entry.pending
                and await self._store.jobs.is_live(entry.pending)
            ):
                return entry
        return None

    async def _make_top(
        self, marked: Entry, target: str, job: Job
    ) -> tuple[Entry | None, Entry | None]:
        """The directory at the target; none if its parent is gone by now, or marked, or if a job
        has hidden something at the target, which comes second. Waiting for a mark while ours is set
        could be waiting for somebody who waits for us.
        """
        parent = _native.split(target)[0]
        if not await self._store.stands(parent):
            return None, None
        checks: list[Action] = []
        if parent != ROOT:
            checks.append(Check(self._store.keys.key(parent), is_unmarked_directory()))
        try:
            return await self._make_target(marked, target, job, checks), None
        except ConflictError:
            hidden = await self._store.stored(target)
            return None, hidden if hidden is not None and hidden.pending else None

    async def _make_target(
        self, marked: Entry, target: str, job: Job, checks: list[Action]
    ) -> Entry:
        """The directory at the target, marked by our job: made now, or left there by an interrupted
        rename. Raises PathExistsError, ConflictError (a check failed).
        """
        existing = await self._store.get(target)
        if existing is not None:
            if existing.id != marked.id:
                raise PathExistsError("the target exists", path=target)
            existing = await self._store.mark_current(existing, job)
            if existing.version > marked.version:
                return existing
            # An interrupted rename went the other way: what is there is the older of the two.
        moved = replace(
            marked.moved(target, operation=self._store.sources.uuid()),
            pending=job.mark,
        )
        job.check()
        try:
            await self._store.transact(
                [self._store.changes.operation("rename", marked, moved)],
                [
                    Put(
                        to_item(moved, self._store.keys),
                        ABSENT if existing is None else unchanged(existing),
                    ),
                    *checks,
                ],
            )
        except ConditionFailedError as error:
            there = error.current.get(0)
            if existing is None and there is not None and not there.get(NEXT):
                raise PathExistsError("the target exists", path=target) from error
            raise ConflictError(
                "the target or its parent is being moved or deleted", path=target
            ) from error
        return moved

    async def _move_below(self, marked: Entry, made: Entry, run: _Run) -> bool:
        """Move what a marked directory holds below `made`, then remove it. False if something
        failed and it stays."""
        try:
            clean = await self._move_all(marked, made, run)
            if clean:
                run.job.check()
                await self._store.forget(marked)
        except BaseException as error:
            await to_the_end(partial(self._stop, marked, made, run.job, error))
            raise
        if clean:
            run.tally.directories += 1
        else:
            await self._store.release(marked, run.job)
        # A mark that stays behind does not undo what was done.
        await self._store.release(made, run.job)
        run.report(marked.path)
        return clean

    async def _stop(self, marked: Entry, made: Entry, job: Job, error: BaseException) -> None:
        """After a failure or a cancellation: drop the marks, and see to it that what was moved has
        its parents."""
        if isinstance(error, S3kError):
            await self._store.release(marked, job)
            await self._store.release(made, job)
        if not job.expired:
            return
        # A client that took the job for expired may have removed the directory that we were moving
        # into.
        try:
            await self._store.keep_existing(made.path)
        except S3kError as failure:
            _LOG.warning("what was moved into %s may lack its parents: %s", made.path, failure)

    async def _move_all(self, marked: Entry, made: Entry, run: _Run) -> bool:
        clean = True

        async def move_chunk(chunk: Entries) -> None:
            nonlocal clean
            run.job.check()
            entries = await self._reap(await self._settled(chunk, run.job))
            files = entries.files()
            if len(files) > 0:
                done = await move_files(self._store, files, made.path, run.job.turn)
                run.done(done, marked.path)
                clean = clean and not done.failures
                await self._confirm(made, run.job)
            await run.budget.run_all(move_child, entries.directories())

        async def move_child(entry: Entry) -> None:
            nonlocal clean
            target = _native.join(made.path, _native.split(entry.path)[1])
            moved = await self._move_child(entry, made, target, run)
            clean = clean and moved

        await run.budget.run_all(
            move_chunk, chunks(self._store.stored_children(marked.path)), cost=cost_of_files
        )
        return clean

    async def _settled(self, chunk: Entries, job: Job) -> Entries:
        """The entries once no other job marks one of them; its own marks, of directories, are
        left."""
        foreign = {place for place, text in chunk.marked() if text != job.mark}
        if not foreign:
            return chunk
        kept = []
        for place, entry in enumerate(chunk):
            current = await self._store.settled(entry) if place in foreign else entry
            kept += [current] if current is not None else []
        return in_columns(kept, self._store.keys)

    async def _reap(self, page: Entries) -> Entries:
        """The entries without the reservations whose writers are gone; one that was changed
        meanwhile as it is now."""
        if len(page.without_reservations()) == len(page):
            return page
        kept = []
        for entry in page:
            current: Entry | None = entry
            if self._store.ran_out(entry):
                await self._store.abandon(entry)
                current = await self._store.get(entry.path)
            if current is not None:
                kept.append(current)
        return in_columns(kept, self._store.keys)

    async def _move_child(self, entry: Entry, into: Entry, target: str, run: _Run) -> bool:
        try:
            marked = await self._store.mark_current(entry, run.job)
        except PathNotFoundError:
            return True
        except S3kError as error:
            run.tally.failures.append((entry.path, error))
            return False
        try:
            made = await self._make_target(marked, target, run.job, [])
        except LeaseExpiredError:
            raise
        except S3kError as error:
            await self._store.release(marked, run.job)
            run.tally.failures.append((entry.path, error))
            return False
        try:
            await self._confirm(into, run.job)
            return await self._move_below(marked, made, run)
        except LeaseExpiredError:
            raise
        except S3kError as error:
            run.tally.failures.append((entry.path, error))
            return False

    async def _confirm(self, made: Entry, job: Job) -> None:
        """After a batch: the directory that we move into must still be ours, or nobody could be
        told where its files are.
        """
        current = await self._store.stored(made.path)
        if current is not None and current.pending == job.mark:
            return
        job.lose()
        raise LeaseExpiredError(
            "transaction lease expired; repeat the call to finish the operation", path=made.path
        )
