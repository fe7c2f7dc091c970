"""Moves of many entries from one directory into another."""

from __future__ import annotations

from anyio.lowlevel import checkpoint_if_cancelled

from s3k_async._core.runtime import Runtime
from s3k_async._native import Entries, Moves
from s3k_async.errors import UncommittedFileError
from s3k_async.namespace.bulk_changes import BulkChange, BulkOutcome
from s3k_async.namespace.store import MetadataStore
from s3k_async.table.keys import KeyScheme
from s3k_async.txn.column_plan import ENTROPY, ColumnPlan
from s3k_async.txn.executor import Turn

__all__ = ["move_files", "plan_moves"]


def plan_moves(
    entries: Entries,
    target: str,
    keys: KeyScheme,
    runtime: Runtime,
    intents: tuple[str, str] | None = None,
) -> ColumnPlan:
    """Move entries into the directory `target`. With `intents`, prepare the move: the sources get
    the first intent, the targets the second.
    """
    entropy = runtime.entropy(ENTROPY * len(entries))
    moves = Moves(entries, keys.volume, target, keys.suffix_count, keys.hash, entropy, intents)
    return ColumnPlan(entries, moves, moves.operations(runtime.now_ms()))


async def move_files(
    store: MetadataStore, entries: Entries, target: str, turn: Turn = checkpoint_if_cancelled
) -> BulkOutcome:
    """Move files into the directory `target`; a file that is missing at its old path counts as
    moved by another client. Reservations are refused. `turn` as for `delete_files`.
    """

    def plan(entries: Entries) -> ColumnPlan:
        return plan_moves(entries, target, store.keys, store.runtime)

    committed = entries.without_reservations()
    refused = BulkOutcome()
    if len(committed) < len(entries):
        refused.failures += [
            (
                entry.path,
                UncommittedFileError(
                    "the file is still being written and cannot be renamed", path=entry.path
                ),
            )
            for entry in entries
            if entry.is_reservation
        ]
    done = await BulkChange(store, plan, turn).apply(committed)
    done.add(refused)
    return done
