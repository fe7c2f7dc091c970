"""The intent resolver: applies write intents if their transaction committed, removes them if it
aborted.

A client that has to change an entry with an intent resolves the intent first. It waits while the
transaction's lease is valid, and takes over a transaction whose lease has expired. Intents are
resolved from the stored items, directories after their children, so that the next client finds the
remaining ones by a walk from the top.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing

from s3k_async._core.concurrency import Budget
from s3k_async._core.runtime import Sources
from s3k_async._native import Entries
from s3k_async.backends.ports.items import (
    OPERATION,
    Condition,
    Delete,
    Put,
    Update,
    Value,
)
from s3k_async.errors import BusyError, ConditionFailedError, ItemFormatError, OutcomeUnknownError
from s3k_async.model import Entry
from s3k_async.table.codec import NEXT, in_columns, to_item
from s3k_async.table.stored_reader import StoredReader
from s3k_async.txn.chunking import PARTS, cost, mixed_chunks
from s3k_async.txn.column_plan import plan_resolutions
from s3k_async.txn.executor import Lane, by_transaction, execute, unlogged
from s3k_async.txn.row_plan import RowPlan
from s3k_async.txn.txn_manifest import ManifestPart, read_part, remove_parts
from s3k_async.txn.txn_record import (
    POLL_CAP_SECONDS,
    POLL_SECONDS,
    Job,
    Jobs,
    TransactionRecord,
)
from s3k_async.txn.write_intent import CREATED, REMOVED, NewState, job_of, parse_intent

__all__ = ["IntentResolver"]


class IntentResolver:
    """Resolves the write intents of a volume for calls that encounter them."""

    def __init__(
        self, reader: StoredReader, jobs: Jobs, sources: Sources, busy_timeout: float
    ) -> None:
        self._reader = reader
        self._jobs = jobs
        self._sources = sources
        self._busy_timeout = busy_timeout

    async def settle(self, entry: Entry) -> None:
        """Wait until the stored item no longer carries the mark of `entry`, or may not; read it
        again afterwards.

        Raises BusyError when another client's job has not ended within the busy timeout.
        """
        deadline = self._sources.monotonic() + self._busy_timeout
        delay = POLL_SECONDS
        while True:
            record = await self._jobs.record(job_of(entry.pending))
            if record is None or (record.kind == "mark" and not self._jobs.lease_runs(record)):
                await self._end_one(entry, published=False)
                return
            if record.is_published and not entry.is_dir:
                # The mark of a file affects only that file; the mark of a directory affects
                # everything below it.
                await self._end_one(entry, published=True)
                return
            if not self._jobs.lease_runs(record):
                await self._complete_around(entry, record)
            elif self._sources.monotonic() >= deadline:
                raise BusyError(
                    "gave up: another client is moving or deleting this entry", path=entry.path
                )
            else:
                await self._sources.sleep(self._sources.uniform(delay / 2, delay))
                delay = min(POLL_CAP_SECONDS, delay * 2)
            if await self._is_over(entry):
                return

    async def _complete_around(self, entry: Entry, record: TransactionRecord) -> None:
        """Finish a job, or, if a damaged item prevents that, at least this entry. The remaining
        marks mean the old side, with the record and without it.
        """
        try:
            await self.complete(record)
        except ItemFormatError:
            if record.is_published:
                raise
            await self._end_one(entry, published=False)

    async def keeps_directory(self, directory: Entry) -> bool:
        """Whether no transaction removes or moves a directory with an intent. An intent without
        effect is removed.
        """
        record = await self._jobs.record(job_of(directory.pending))
        state = _new_state(directory)
        if record is not None and record.is_published:
            return state == CREATED
        if record is not None and (record.kind != "mark" or self._jobs.lease_runs(record)):
            return False
        return await self._end_one(directory, published=False) and state != CREATED

    async def complete(self, record: TransactionRecord) -> bool:
        """Take over a job whose lease has expired, and finish it. False if another client was
        faster."""
        async with self._jobs.take_over(record) as job:
            if job is None:
                return False
            await self.end(job, record.source, record.target, published=record.is_published)
            return True

    async def end(self, job: Job, source: str, target: str, *, published: bool) -> None:
        """Apply or remove all marks of a job. Raises the first failure; can be repeated."""
        if job.kind == "transaction":
            await self._end_parts(job, published=published)
        await self._end_trees(job, source, target, published=published)
        job.over = True

    async def _end_trees(self, job: Job, source: str, target: str, *, published: bool) -> None:
        reader, sources = self._reader, self._sources
        if source:
            await _TreeResolution(reader, job, job.removal_intent, published, sources).run(source)
        if target:
            intent = job.creation_intent
            await _TreeResolution(reader, job, intent, not published, sources).run(target)

    async def _end_parts(self, job: Job, *, published: bool) -> None:
        """From the last part to the first, so that a directory that the transaction created comes
        after its content."""
        damage: ItemFormatError | None = None
        for number in reversed(range(job.parts)):
            try:
                part = await read_part(self._reader.items, job.id, number)
            except ItemFormatError as error:
                damage = error
                continue
            if part is not None:
                await self._end_part(job, part, published=published)
        if damage is not None and published:
            # The listed marks mean the new side only as long as the record exists.
            raise damage
        await remove_parts(self._reader.items, job)

    async def _end_part(self, job: Job, part: ManifestPart, *, published: bool) -> None:
        for top in part.trees:
            await self._end_trees(job, top, top, published=published)
        stored = await self._reader.stored_many(part.paths)
        marked = [
            entry for entry in stored if entry is not None and job_of(entry.pending) == job.id
        ]
        plan = RowPlan(marked, lambda entry: [self._resolution(entry, published=published)])
        files = [row for row, entry in enumerate(marked) if not entry.is_dir]
        directories = [row for row, entry in enumerate(marked) if entry.is_dir][::-1]
        await self._carry_out(job, plan, [(rows,) for rows in by_transaction(files)])
        await self._carry_out(job, plan, [by_transaction(directories)])

    async def _carry_out(self, job: Job, plan: RowPlan[Entry], lanes: Sequence[Lane]) -> None:
        """Entries that have changed since the read were resolved by another client."""
        report = await execute(
            self._reader.items, unlogged, plan, lanes, self._sources.uuid, turn=job.turn
        )
        report.raise_failure()

    async def _is_over(self, entry: Entry) -> bool:
        stored = await self._reader.stored(entry.path)
        return stored is None or stored.pending != entry.pending

    async def _end_one(self, entry: Entry, *, published: bool) -> bool:
        """Apply or remove one mark. False if it may still exist."""
        try:
            await self._reader.items.write(self._resolution(entry, published=published))
        except (ConditionFailedError, OutcomeUnknownError):
            return False
        return True

    def _resolution(self, entry: Entry, *, published: bool) -> Put | Update | Delete:
        """The write that applies an intent, or removes it."""
        state, keys = _new_state(entry), self._reader.keys
        key, marked = keys.key(entry.path), Condition(equals={NEXT: entry.pending})
        if state == (REMOVED if published else CREATED):
            return Delete(key, marked)
        if published and isinstance(state, Entry):
            return Put(to_item(state, keys), marked)
        # Listings detect changes of a directory by its operation id.
        stamp: dict[str, Value] = {OPERATION: self._sources.uuid()} if entry.is_dir else {}
        return Update(key, marked, set=stamp, remove=(NEXT,))


def _new_state(entry: Entry) -> NewState:
    """The new state of a marked entry; an unreadable mark changes nothing."""
    try:
        return parse_intent(entry.pending).new_state
    except ItemFormatError:
        return None


class _TreeResolution:
    """The walk over one side of a job: entries with its mark are removed, or lose the mark."""

    def __init__(
        self, reader: StoredReader, job: Job, mark: str, remove: bool, sources: Sources
    ) -> None:
        self._reader = reader
        self._job = job
        self._mark = mark
        self._remove = remove
        self._sources = sources
        self._budget = Budget(PARTS)

    async def run(self, top: str) -> None:
        """Resolve the entry at `top` and everything below it."""
        entry = await self._reader.stored(top)
        if entry is None or entry.pending != self._mark:
            return
        await self._below(top)
        await self._end(in_columns([entry], self._reader.keys))

    async def _below(self, directory: str) -> None:
        async def chunk(entries: Entries) -> None:
            await self._budget.run_all(self._below, entries.directories().paths())
            await self._end(entries)

        await self._budget.run_all(chunk, mixed_chunks(self._marked(directory)), cost=cost)

    async def _marked(self, directory: str) -> AsyncGenerator[Entries, None]:
        async with aclosing(self._reader.stored_children(directory)) as pages:
            async for page in pages:
                yield page.carrying(self._mark)

    async def _end(self, entries: Entries) -> None:
        """Entries that have changed since the listing were resolved by another client."""
        plan = plan_resolutions(entries, remove=self._remove)
        items, token = self._reader.items, self._sources.uuid
        report = await execute(items, unlogged, plan, plan.lanes(), token, turn=self._job.turn)
        report.raise_failure()
