"""The readers' view of items with write intents: the old state before the transaction commits, the
new one after. See docs/design/004-nothing-lost.md, "Write intents and transaction
records"."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import replace
from typing import TypeAlias

from s3k_async._native import Entries
from s3k_async.backends.ports.items import ItemStore
from s3k_async.errors import ItemFormatError
from s3k_async.model import Entry
from s3k_async.table.codec import directory_paths, from_items, in_columns
from s3k_async.table.keys import KeyScheme
from s3k_async.txn.txn_record import TransactionRecord, record_from, transaction_key
from s3k_async.txn.write_intent import CREATED, REMOVED, WriteIntent, parse_intent

__all__ = ["IntentView", "Seeing", "is_held"]

Seeing: TypeAlias = Callable[[Entries], Awaitable[Entries]]
"""The visible states of stored entries: `IntentView.seen`."""


class IntentView:
    """The states of transactions as seen by one call. The record of each transaction is read once,
    after an entry with its intent was read, so that all entries of the call are on the same side of
    it.

    With `holds`, records of transactions that only hold an entry without changing it are read too.
    """

    def __init__(self, items: ItemStore, keys: KeyScheme, *, holds: bool = False) -> None:
        self._items = items
        self._keys = keys
        self._holds = holds
        self._records: dict[str, TransactionRecord | None] = {}

    async def seen(self, entries: Entries) -> Entries:
        """The visible entries of one directory's page, or of different paths; sorted by path if the
        input is. A held entry keeps its intent.

        Raises ItemFormatError for an unreadable record of a transaction.
        """
        held = entries.with_intents()
        if not held:
            return entries
        intents = {text: _understood(text) for text in {text for _, text in held}}
        await self._look(
            intent.txn for intent in intents.values() if self._holds or intent.new_state is not None
        )
        left = set(range(len(entries)))
        others: list[Entry] = []
        again: list[Entry] = []
        for place, text in held:
            intent = intents[text]
            if intent.new_state is None:
                continue
            record = self._records[intent.txn]
            if record is None:
                left.discard(place)
                again.append(entries[place])
            elif intent.new_state == (REMOVED if record.is_published else CREATED):
                left.discard(place)
            elif record.is_published and isinstance(intent.new_state, Entry):
                left.discard(place)
                stored = entries[place]
                others.append(
                    replace(
                        intent.new_state,
                        path=stored.path,
                        directory=stored.directory,
                        pending=text,
                    )
                )
        kept = entries if len(left) == len(entries) else entries.take(sorted(left))
        parts = [kept] if not others else [kept, in_columns(others, self._keys)]
        if again:
            parts.append(await self._seen_again(again))
        return kept if len(parts) == 1 else Entries.sorted(parts)

    async def is_unchanged(self) -> bool:
        """Whether the transactions that this call treated as unpublished still are."""
        unpublished = [
            txn
            for txn, record in self._records.items()
            if record is not None and record.state == "preparing"
        ]
        records = await self._read(unpublished) if unpublished else {}
        # A transaction without a record is over: it may have been published, and all of its intents
        # applied.
        return all(txn in records and not records[txn].is_published for txn in unpublished)

    async def _seen_again(self, held: list[Entry]) -> Entries:
        """Read entries again whose transactions had no record. An intent that is still present was
        written late by an owner that lost its transaction before publication: the old side is
        visible.
        """
        before = {entry.entry_key: entry.pending for entry in held}
        found = await self._items.get_many(self._keys.keys(list(before)))
        current = from_items(list(found.values()), self._keys, paths=directory_paths(held))
        late: list[Entry] = []
        others: list[int] = []
        for place, entry in enumerate(current):
            if entry.pending != before[entry.entry_key]:
                others.append(place)
            elif _understood(entry.pending).new_state != CREATED:
                late.append(entry)
        return Entries.sorted([in_columns(late, self._keys), await self.seen(current.take(others))])

    async def _look(self, transactions: Iterable[str]) -> None:
        unknown = [txn for txn in dict.fromkeys(transactions) if txn not in self._records]
        if not unknown:
            return
        found = await self._read(unknown)
        for txn in unknown:
            # Of two concurrent reads, the first result counts for both.
            self._records.setdefault(txn, found.get(txn))

    async def _read(self, transactions: Iterable[str]) -> dict[str, TransactionRecord]:
        found = await self._items.get_many([transaction_key(txn) for txn in transactions])
        return {key.sort: record_from(item) for key, item in found.items()}


def is_held(entry: Entry) -> bool:
    """Whether a transaction holds the entry without changing it, as the removal of an empty
    directory does."""
    return bool(entry.pending) and _understood(entry.pending).new_state is None


def _understood(text: str) -> WriteIntent:
    """The parsed text of an intent; an unreadable one leaves the stored state visible."""
    try:
        return parse_intent(text)
    except ItemFormatError:
        return WriteIntent("-")
