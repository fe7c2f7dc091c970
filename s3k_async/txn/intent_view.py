"""The readers' view of items with write intents: the old state before the transaction commits, the
new one after. See docs/design/004-nothing-lost.md, "Marks and job records"."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import replace
from typing import TypeAlias

from s3k_async._native import Entries
from s3k_async.backends.ports.items import ItemStore
from s3k_async.errors import ItemFormatError
from s3k_async.model import Entry
from s3k_async.table.codec import from_items, in_columns
from s3k_async.table.keys import KeyScheme
from s3k_async.txn.txn_record import TransactionRecord, job_key, record_from
from s3k_async.txn.write_intent import CREATED, REMOVED, WriteIntent, parse_intent

__all__ = ["IntentView", "Seeing"]

Seeing: TypeAlias = Callable[[Entries], Awaitable[Entries]]
"""The visible states of stored entries: `IntentView.seen`."""


class IntentView:
    """The states of jobs as seen by one call. The record of each job is read once, after an entry
    with its mark was read, so that all entries of the call are on the same side of it.

    With `holds`, records of jobs that only hold an entry without changing it are read too.
    """

    def __init__(self, items: ItemStore, keys: KeyScheme, *, holds: bool = False) -> None:
        self._items = items
        self._keys = keys
        self._holds = holds
        self._records: dict[str, TransactionRecord | None] = {}

    async def seen(self, entries: Entries) -> Entries:
        """The visible entries of one directory's page, or of different paths; sorted by path if the
        input is. A marked entry keeps its mark.

        Raises ItemFormatError for an unreadable record of a job.
        """
        marked = entries.marked()
        if not marked:
            return entries
        marks = {text: _understood(text) for text in {text for _, text in marked}}
        await self._look(
            mark.job for mark in marks.values() if self._holds or mark.new_state is not None
        )
        left = set(range(len(entries)))
        others: list[Entry] = []
        again: list[Entry] = []
        for place, text in marked:
            mark = marks[text]
            if mark.new_state is None:
                continue
            record = self._records[mark.job]
            if record is None:
                left.discard(place)
                again.append(entries[place])
            elif mark.new_state == (REMOVED if record.is_published else CREATED):
                left.discard(place)
            elif record.is_published and isinstance(mark.new_state, Entry):
                left.discard(place)
                others.append(replace(mark.new_state, pending=text))
        kept = entries if len(left) == len(entries) else entries.take(sorted(left))
        parts = [kept] if not others else [kept, in_columns(others, self._keys)]
        if again:
            parts.append(await self._seen_again(again))
        return kept if len(parts) == 1 else Entries.sorted(parts)

    async def is_unchanged(self) -> bool:
        """Whether the jobs that this call treated as unpublished still are."""
        open_jobs = [
            job
            for job, record in self._records.items()
            if record is not None and record.state == "preparing"
        ]
        records = await self._read(open_jobs) if open_jobs else {}
        # A job without a record is over: it may have been published, and all of its marks applied.
        return all(job in records and not records[job].is_published for job in open_jobs)

    async def _seen_again(self, marked: list[Entry]) -> Entries:
        """Read entries again whose jobs had no record. A mark that is still present was written
        late by an owner that lost its job before publication: the old side is visible.
        """
        before = {entry.path: entry.pending for entry in marked}
        found = await self._items.get_many(self._keys.keys(list(before)))
        current = from_items(list(found.values()), self._keys)
        late: list[Entry] = []
        others: list[int] = []
        for place, path in enumerate(current.paths()):
            entry = current[place]
            if entry.pending != before[path]:
                others.append(place)
            elif _understood(entry.pending).new_state != CREATED:
                late.append(entry)
        return Entries.sorted([in_columns(late, self._keys), await self.seen(current.take(others))])

    async def _look(self, jobs: Iterable[str]) -> None:
        unknown = [job for job in dict.fromkeys(jobs) if job not in self._records]
        if not unknown:
            return
        found = await self._read(unknown)
        for job in unknown:
            # Of two concurrent reads, the first result counts for both.
            self._records.setdefault(job, found.get(job))

    async def _read(self, jobs: Iterable[str]) -> dict[str, TransactionRecord]:
        found = await self._items.get_many([job_key(job) for job in jobs])
        return {key.sort: record_from(item) for key, item in found.items()}


def _understood(text: str) -> WriteIntent:
    """The write intent of a mark; an unreadable one leaves the stored state visible."""
    try:
        return parse_intent(text)
    except ItemFormatError:
        return WriteIntent("-")
