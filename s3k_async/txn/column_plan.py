"""Changes of entries in columns, as rows of transactions.

Request bodies and log lines are written from the columns. An object is built for a single entry
only after an error, or for a store that does not take columns.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from s3k_async._core.runtime import Runtime
from s3k_async._native import Deletes, Entries, Moves, Resolutions
from s3k_async.backends.ports.items import Action
from s3k_async.oplog.entries import Operation
from s3k_async.oplog.segments import operation_ids
from s3k_async.txn.executor import Lane, by_transaction

__all__ = ["ENTROPY", "ColumnPlan", "plan_deletes", "plan_resolutions"]

ENTROPY = 16
"""Bytes of entropy in an operation id."""


class ColumnPlan:
    """The changes of some entries, in columns: an `executor.Plan`."""

    def __init__(
        self,
        entries: Entries,
        changes: Moves | Deletes | Resolutions,
        operations: Sequence[Operation] = (),
    ) -> None:
        self.entries = entries
        self.operations = operations
        """The operations to log; none for a change that is already logged."""
        self.width = 2 if isinstance(changes, Moves) else 1
        """Actions for each entry; the first is on its own item."""
        self._changes = changes

    def __len__(self) -> int:
        return len(self.entries)

    def lanes(self) -> list[Lane]:
        """All rows, in full transactions that can be sent concurrently."""
        return [(rows,) for rows in by_transaction(range(len(self)), self.width)]

    def identities(self, rows: Iterable[int]) -> list[str]:
        wanted = list(rows)
        if not wanted or not self.operations:
            return []
        every = operation_ids(self.operations)
        return [every[row] for row in wanted]

    def actions(self, rows: Sequence[int]) -> Sequence[Action]:
        return self._changes.take(rows)

    def roles(self, rows: Sequence[int], position: int) -> list[tuple[int, int]]:
        return [(rows[position // self.width], position % self.width)]

    def path(self, row: int) -> str:
        return self.entries[row].path


def plan_deletes(entries: Entries, runtime: Runtime, intent: str | None = None) -> ColumnPlan:
    """Delete entries. With `intent`, prepare the deletion: the entries get the intent."""
    deletes = Deletes(entries, runtime.entropy(ENTROPY * len(entries)), intent)
    return ColumnPlan(entries, deletes, deletes.operations(runtime.now_ms()))


def plan_resolutions(entries: Entries, *, remove: bool) -> ColumnPlan:
    """Remove held entries, or remove their intents; already logged."""
    return ColumnPlan(entries, Resolutions(entries, remove))
