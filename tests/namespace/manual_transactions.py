"""Transactions written by hand: their records and write intents, put into the item store in the
specified order.

Each transaction is a list of steps, so that a test can let a reader run between any two of them.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeAlias

from s3k_async._core.runtime import SYSTEM
from s3k_async.backends.memory.memory_items import MemoryItems
from s3k_async.backends.ports.items import (
    ABSENT,
    OPERATION,
    PARTITION,
    SORT,
    Condition,
    Delete,
    Put,
    Update,
    Value,
)
from s3k_async.model import Entry
from s3k_async.table.codec import NEXT, from_item, to_item
from s3k_async.table.keys import ROOT_KEY, KeyScheme
from s3k_async.txn.txn_record import TRANSACTION_PARTITION, TransactionState, transaction_key
from s3k_async.txn.write_intent import CREATED, REMOVED, NewState, WriteIntent, parse_intent

__all__ = ["Hand", "Step", "a_directory", "a_file"]

Step: TypeAlias = Callable[[], Awaitable[None]]


def a_file(path: str, version: int = 2) -> Entry:
    """A committed file whose id is told by its name."""
    name = path.rpartition("/")[2]
    return Entry(
        path, False, f"id-{name}", version, 5, 5000, 3, "key", True, "tag", "", SYSTEM.uuid()
    )


def a_directory(path: str) -> Entry:
    return Entry(path, True, f"id-{path.rpartition('/')[2]}", 1, 5, 5000, operation=SYSTEM.uuid())


@dataclass(frozen=True)
class Hand:
    """Writes items of a table in memory."""

    items: MemoryItems
    keys: KeyScheme

    async def put(self, *entries: Entry) -> None:
        for entry in entries:
            await self.items.write(Put(to_item(entry, self.keys), ABSENT))

    async def record(
        self, txn: str, state: TransactionState = "preparing", kind: str = "rename", lease: int = 1
    ) -> None:
        """Write a transaction record, new or again; its lease is over, unless one in epoch
        milliseconds is given."""
        item: dict[str, Value] = {
            PARTITION: TRANSACTION_PARTITION,
            SORT: txn,
            "kind": kind,
            "lease": lease,
            OPERATION: SYSTEM.uuid(),
        }
        stored = await self.items.get(transaction_key(txn))
        await self.items.write(
            Put(
                item | ({"state": state} if state else {}),
                ABSENT if stored is None else Condition(),
            )
        )

    async def forget(self, txn: str) -> None:
        await self.items.write(Delete(transaction_key(txn), Condition()))

    async def add_intent(self, path: str, txn: str, then: NewState) -> None:
        """Add an intent to the entry at a path."""
        change = {NEXT: WriteIntent(txn, then).text(), OPERATION: SYSTEM.uuid()}
        await self.items.write(Update(self.keys.key(path), Condition(missing=(NEXT,)), set=change))

    async def drop(self, path: str, txn: str) -> None:
        """Resolve the intent at a path: to its new side if the transaction was published, else to
        the old one."""
        item = await self.items.get(self.keys.key(path))
        assert item is not None
        record = await self.items.get(transaction_key(txn))
        assert record is not None
        entry = from_item(item, self.keys)
        side = parse_intent(entry.pending).resolve(entry, published=record["state"] == "published")
        key = self.keys.key(path)
        if side is None:
            await self.items.write(Delete(key, Condition()))
        elif side.id != entry.id or side.version != entry.version:
            await self.items.write(Put(to_item(replace(side, pending=""), self.keys), Condition()))
        else:
            await self.items.write(
                Update(key, Condition(), set={OPERATION: SYSTEM.uuid()}, remove=(NEXT,))
            )

    async def touch(self, path: str) -> None:
        """Change the operation of a directory, as a transaction does before it is published."""
        if path != "/":
            await self.items.write(
                Update(self.keys.key(path), Condition(), set={OPERATION: SYSTEM.uuid()})
            )
            return
        stored = await self.items.get(ROOT_KEY)
        record = {PARTITION: ROOT_KEY.partition, SORT: ROOT_KEY.sort, OPERATION: SYSTEM.uuid()}
        await self.items.write(Put(record, ABSENT if stored is None else Condition()))

    def rename(self, txn: str, entries: Sequence[Entry], source: str, target: str) -> list[Step]:
        """An atomic rename of the directory at `source`, of which `entries` are the whole subtree,
        parents first."""
        below = [
            entry
            for entry in entries
            if entry.path == source or entry.path.startswith(source + "/")
        ]
        moved = [target + entry.path[len(source) :] for entry in below]
        steps: list[Step] = [partial(self.record, txn)]
        for entry, path in zip(below, moved, strict=True):
            steps.append(partial(self.add_intent, entry.path, txn, REMOVED))
            here = replace(entry, path=path, version=entry.version + 1, operation=SYSTEM.uuid())
            steps.append(partial(self.put, replace(here, pending=WriteIntent(txn, CREATED).text())))
        steps += [
            partial(self.touch, parent) for parent in sorted({_parent(source), _parent(target)})
        ]
        paths = [
            path for pair in zip(below, moved, strict=True) for path in (pair[0].path, pair[1])
        ]
        return [*steps, *self._end(txn, paths, "published")]

    def change(self, txn: str, thens: Sequence[tuple[Entry, NewState]]) -> list[Step]:
        """A transaction that changes entries in directories without an intent of its own."""
        steps: list[Step] = [partial(self.record, txn, kind="transaction")]
        for entry, then in thens:
            if then == CREATED:
                steps.append(
                    partial(self.put, replace(entry, pending=WriteIntent(txn, CREATED).text()))
                )
            else:
                steps.append(partial(self.add_intent, entry.path, txn, then))
        steps += [
            partial(self.touch, parent)
            for parent in sorted({_parent(entry.path) for entry, _ in thens})
        ]
        return [*steps, *self._end(txn, [entry.path for entry, _ in thens], "published")]

    def aborted(self, steps: Sequence[Step], txn: str, paths: Sequence[str]) -> list[Step]:
        """The first steps of a transaction, and then its abortion; by then it has intents on these
        paths."""
        return [*steps, *self._end(txn, paths, "aborted")]

    def _end(self, txn: str, paths: Sequence[str], state: TransactionState) -> list[Step]:
        """The record in its last state, then the intents, children before directories, then the
        record."""
        folded: list[Step] = [partial(self.drop, path, txn) for path in reversed(paths)]
        return [partial(self.record, txn, state), *folded, partial(self.forget, txn)]


def _parent(path: str) -> str:
    return path.rpartition("/")[0] or "/"
