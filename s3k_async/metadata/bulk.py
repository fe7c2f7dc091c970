"""Many files of one directory in few requests: moved or deleted by transactions, logged by the segment.

A transaction in which some conditions failed is sent again without those entries. What changed is decided anew from
what is stored, what is gone is done.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from s3k_async.concurrency import run_all
from s3k_async.errors import (
    BusyError,
    ConditionFailedError,
    PathExistsError,
    S3kError,
    UncommittedFileError,
)
from s3k_async.metadata.changes import Outcome
from s3k_async.metadata.codec import from_item, to_item, unchanged
from s3k_async.metadata.store import MetadataStore
from s3k_async.model import Entry
from s3k_async.oplog.entries import Operation
from s3k_async.stores.items import ABSENT, MAX_TRANSACTION, Action, Delete, Item, Put

__all__ = ["Failure", "delete_files", "move_files"]

Failure = tuple[str, Exception]

MOVES = MAX_TRANSACTION // 2
TRANSACTIONS = 8
"""Transactions of one call that are under way at the same time."""
ROUNDS = 8
"""How often an entry that keeps changing is decided anew."""


async def delete_files(store: MetadataStore, entries: Sequence[Entry]) -> list[Failure]:
    """Delete files and reservations; what is gone already counts as deleted. Returns what failed."""

    def plan(entry: Entry) -> tuple[Operation, list[Action]]:
        operation = store.changes.operation("delete", entry, None)
        return operation, [Delete(store.keys.key(entry.path), unchanged(entry))]

    return await _BulkChange(store, MAX_TRANSACTION, plan).apply(entries)


async def move_files(store: MetadataStore, entries: Sequence[Entry], target: Callable[[Entry], str]) -> list[Failure]:
    """Move files to the paths that `target` names; what is gone from its old path counts as moved by somebody else.
    Reservations are refused. Returns what failed.
    """
    reserved = [entry for entry in entries if entry.is_reservation]
    failures: list[Failure] = [
        (entry.path, UncommittedFileError("a reservation cannot be renamed", path=entry.path)) for entry in reserved
    ]

    def plan(entry: Entry) -> tuple[Operation, list[Action]]:
        moved = entry.moved(target(entry), operation=store.sources.uuid())
        operation = store.changes.operation("rename", entry, moved)
        return operation, [
            Delete(store.keys.key(entry.path), unchanged(entry)),
            Put(to_item(moved, store.keys), ABSENT),
        ]

    committed = [entry for entry in entries if not entry.is_reservation]
    return failures + await _BulkChange(store, MOVES, plan).apply(committed)


Plan = Callable[[Entry], tuple[Operation, list[Action]]]
"""What to log and do for one entry; the first action is on the entry's own item."""


class _BulkChange:
    """One change of many entries under way."""

    def __init__(self, store: MetadataStore, size: int, plan: Plan) -> None:
        self._store = store
        self._size = size
        self._plan = plan
        self._changed: list[Entry] = []
        self._failures: list[Failure] = []

    async def apply(self, entries: Sequence[Entry]) -> list[Failure]:
        """Change the entries, `size` in a transaction; returns what failed."""
        work = list(entries)
        for _ in range(ROUNDS):
            batches = [work[start : start + self._size] for start in range(0, len(work), self._size)]
            await run_all(self._transaction, batches, limit=TRANSACTIONS)
            work, self._changed = self._changed, []
            if not work:
                break
        self._failures += [(entry.path, BusyError("the file kept changing", path=entry.path)) for entry in work]
        return self._failures

    async def _transaction(self, batch: list[Entry]) -> None:
        """Change one batch, leaving out the entries whose conditions fail: those are changed, failed or gone."""
        left = {
            operation.id: (entry, operation, actions) for entry in batch for operation, actions in [self._plan(entry)]
        }

        async def transact(outcome: Outcome) -> None:
            while left and (error := await self._attempt([actions for _, _, actions in left.values()])):
                for identity, position in self._failed(left, error).items():
                    self._sort_out(left.pop(identity)[0], error, position)
            outcome.succeeded = set(left)

        try:
            await self._store.changes.run([operation for _, operation, _ in left.values()], transact)
        except S3kError as error:
            self._failures += [(entry.path, error) for entry, _, _ in left.values()]

    async def _attempt(self, actions: list[list[Action]]) -> ConditionFailedError | None:
        try:
            await self._store.items.transact(
                [action for group in actions for action in group], self._store.sources.uuid()
            )
        except ConditionFailedError as error:
            return error
        return None

    @staticmethod
    def _failed(left: dict[str, tuple[Entry, Operation, list[Action]]], error: ConditionFailedError) -> dict[str, int]:
        """The operations that failed conditions belong to, with the position of the first action of each."""
        failed: dict[str, int] = {}
        position = 0
        for identity, (_, _, actions) in left.items():
            if any(place in error.current for place in range(position, position + len(actions))):
                failed[identity] = position
            position += len(actions)
        return failed

    def _sort_out(self, entry: Entry, error: ConditionFailedError, position: int) -> None:
        if position not in error.current:
            self._failures.append((entry.path, PathExistsError("the target exists", path=entry.path)))
        elif (item := error.current[position]) is not None:
            self._again(entry, item)

    def _again(self, entry: Entry, item: Item) -> None:
        try:
            current = from_item(item, self._store.keys)
        except S3kError as error:
            self._failures.append((entry.path, error))
            return
        if current.is_dir:
            self._failures.append((entry.path, BusyError("the file became a directory", path=entry.path)))
        else:
            self._changed.append(current)
