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

    return await _apply(store, entries, MAX_TRANSACTION, plan)


async def move_files(
    store: MetadataStore, entries: Sequence[Entry], target: Callable[[Entry], str]
) -> list[Failure]:
    """Move files to the paths that `target` names; what is gone from its old path counts as moved by somebody else.
    Reservations are refused. Returns what failed."""
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
    return failures + await _apply(store, committed, MOVES, plan)


Plan = Callable[[Entry], tuple[Operation, list[Action]]]


async def _apply(store: MetadataStore, entries: Sequence[Entry], size: int, plan: Plan) -> list[Failure]:
    failures: list[Failure] = []
    work = list(entries)
    for _ in range(ROUNDS):
        changed: list[Entry] = []
        batches = [work[start : start + size] for start in range(0, len(work), size)]
        await run_all(lambda batch: _transaction(store, batch, plan, changed, failures), batches, limit=TRANSACTIONS)
        if not changed:
            return failures
        work = changed
    failures += [(entry.path, BusyError("the file kept changing", path=entry.path)) for entry in work]
    return failures


async def _transaction(
    store: MetadataStore, batch: list[Entry], plan: Plan, changed: list[Entry], failures: list[Failure]
) -> None:
    """Apply one batch, leaving out the entries whose conditions fail; they end in `changed` or `failures`."""
    planned = [plan(entry) for entry in batch]
    try:
        async with store.changes.logged([operation for operation, _ in planned]) as outcome:
            left = list(zip(batch, planned, strict=True))
            while left:
                actions = [action for _, (_, actions) in left for action in actions]
                try:
                    await store.items.transact(actions, store.sources.uuid())
                    break
                except ConditionFailedError as error:
                    width = len(actions) // len(left)
                    for position in sorted({failed // width for failed in error.current}, reverse=True):
                        entry = left.pop(position)[0]
                        _sort_out(store, entry, error, position * width, changed, failures)
            outcome.succeeded = {operation.id for _, (operation, _) in left}
            if not left:
                raise _NothingAppliedError("no entry was as expected")
    except _NothingAppliedError:
        return
    except S3kError as error:
        done = {path for path, _ in failures} | {entry.path for entry in changed}
        failures += [(entry.path, error) for entry in batch if entry.path not in done]


def _sort_out(
    store: MetadataStore,
    entry: Entry,
    error: ConditionFailedError,
    position: int,
    changed: list[Entry],
    failures: list[Failure],
) -> None:
    if position in error.current:
        item: Item | None = error.current[position]
        if item is not None:
            _again(store, entry, item, changed, failures)
        return
    failures.append((entry.path, PathExistsError("the target exists", path=entry.path)))


def _again(
    store: MetadataStore, entry: Entry, item: Item, changed: list[Entry], failures: list[Failure]
) -> None:
    try:
        current = from_item(item, store.keys)
    except S3kError as error:
        failures.append((entry.path, error))
        return
    if current.is_dir:
        failures.append((entry.path, BusyError("the file became a directory", path=entry.path)))
    else:
        changed.append(current)


class _NothingAppliedError(S3kError):
    """Every entry of a batch fell out of it; the log is rolled back."""
