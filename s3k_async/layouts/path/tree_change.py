"""A change of a directory and everything below it, in either mode: `recursive` has the plain one,
`atomic_changes` the atomic one."""

from __future__ import annotations

from s3k_async._core.concurrency import Budget
from s3k_async.errors import PathExistsError
from s3k_async.model import ChangeTally, Entry, Progress
from s3k_async.namespace.conflict_backoff import ObstructedError
from s3k_async.namespace.directories import require_directories
from s3k_async.namespace.layout import Chain, OnProgress
from s3k_async.namespace.store import MetadataStore
from s3k_async.txn.chunking import PARTS
from s3k_async.txn.txn_record import OwnedTransaction

__all__ = ["TreeChange", "look_ahead"]


class TreeChange:
    """One change in progress: its counts, and its concurrency limit."""

    def __init__(
        self,
        store: MetadataStore,
        txn: OwnedTransaction,
        kind: str,
        tally: ChangeTally,
        progress: OnProgress,
    ) -> None:
        self.store = store
        self.txn = txn
        self.tally = tally
        self.budget = Budget(PARTS)
        self._kind = kind
        self._progress = progress

    def count(self, path: str, *, files: int = 0, directories: int = 0, size: int = 0) -> None:
        """Count completed changes and report progress."""
        tally = self.tally
        tally.files += files
        tally.directories += directories
        tally.bytes += size
        if self._progress is not None:
            done = tally.files + tally.directories
            self._progress(Progress(self._kind, done, bytes=tally.bytes, path=path))


async def look_ahead(
    store: MetadataStore,
    target: str,
    source: Entry | None = None,
    *,
    found: Chain | None = None,
) -> None:
    """Check that a directory can be moved to a target: the target is free, or created by an
    interrupted rename of `source`, and its ancestors carry no intent. `found`: the target with its
    ancestors, if it was just read.

    Raises PathExistsError, PathNotFoundError, NotDirectoryError, ObstructedError.
    """
    chain = await store.layout.chain(target) if found is None else found
    require_directories(chain[:-1])
    existing = chain[-1][1]
    same = existing is not None and source is not None and existing.id == source.id
    if existing is not None and not existing.pending and not same:
        raise PathExistsError("the target exists", path=target)
    held = next((entry for _, entry in chain if entry is not None and entry.pending), None)
    if held is not None:
        raise ObstructedError(target, [held])
