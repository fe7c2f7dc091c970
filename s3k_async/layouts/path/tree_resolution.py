"""Resolution of the intents of a directory that was moved or removed entry by entry."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing

from s3k_async._core.concurrency import Budget
from s3k_async._core.runtime import Runtime
from s3k_async._native import Entries
from s3k_async.table.codec import in_columns
from s3k_async.table.keys import Directory
from s3k_async.table.stored_reader import StoredReader
from s3k_async.txn.chunking import PARTS, cost, mixed_chunks
from s3k_async.txn.column_plan import plan_resolutions
from s3k_async.txn.executor import execute, unlogged
from s3k_async.txn.txn_record import OwnedTransaction

__all__ = ["TreeResolution"]


class TreeResolution:
    """The walk over one side of a transaction: entries with its intent are removed, or lose the
    intent."""

    def __init__(
        self,
        reader: StoredReader,
        txn: OwnedTransaction,
        intent: str,
        remove: bool,
        runtime: Runtime,
    ) -> None:
        self._reader = reader
        self._txn = txn
        self._intent = intent
        self._remove = remove
        self._runtime = runtime
        self._budget = Budget(PARTS)

    async def run(self, top: str) -> None:
        """Resolve the entry at `top` and everything below it."""
        entry = await self._reader.stored(top)
        if entry is None or entry.pending != self._intent:
            return
        await self._below(top)
        await self._end(in_columns([entry], self._reader.keys))

    async def _below(self, directory: str) -> None:
        async def chunk(entries: Entries) -> None:
            await self._budget.run_all(self._below, entries.directories().paths())
            await self._end(entries)

        await self._budget.run_all(chunk, mixed_chunks(self._held(directory)), cost=cost)

    async def _held(self, directory: str) -> AsyncGenerator[Entries, None]:
        async with aclosing(self._reader.stored_children(Directory.at(directory))) as pages:
            async for page in pages:
                yield page.carrying(self._intent)

    async def _end(self, entries: Entries) -> None:
        """Entries that have changed since the listing were resolved by another client."""
        plan = plan_resolutions(entries, remove=self._remove)
        items, token = self._reader.items, self._runtime.uuid
        report = await execute(items, unlogged, plan, plan.lanes(), token, turn=self._txn.turn)
        report.raise_failure()
