"""What differs between the layouts of a volume: `layouts` has an implementation for each."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from s3k_async.backends.ports.items import Condition
from s3k_async.errors import ItemFormatError, S3kError, UnsupportedError
from s3k_async.model import ChangeResult, ChangeTally, Entry, Progress
from s3k_async.table.keys import Directory, KeyScheme
from s3k_async.txn.intent_view import Seeing
from s3k_async.txn.logged_write import TransactionLog
from s3k_async.txn.txn_record import OwnedTransaction

__all__ = [
    "Chain",
    "Layout",
    "LocatedEntry",
    "OnProgress",
    "PreparedPaths",
    "require_supported",
]

Chain: TypeAlias = list[tuple[str, Entry | None]]
"""The root, every other ancestor of a path, and the path itself, topmost first."""
OnProgress: TypeAlias = Callable[[Progress], object] | None


@dataclass(frozen=True, slots=True)
class LocatedEntry:
    """The entry at a path, and what its being there depends on."""

    entry: Entry | None
    entry_key: str
    """That of the entry, or of the first missing one of its path."""
    above: Sequence[Entry] = ()
    """In layout `tree` the entries above it, which must not move."""


@dataclass(frozen=True, slots=True)
class PreparedPaths:
    """Paths that are to be written, after their parents were created."""

    entries: Mapping[str, Entry | None]
    """The present entry at each path whose parents exist."""
    errors: Mapping[str, S3kError]
    """Why the others have no parents."""
    again: Collection[str]
    """Paths of entries whose parents have intents: each has to be prepared by itself."""


class Layout(Protocol):
    """The layout of an open volume. All paths are normalised.

    Reads resolve write intents; a caller of several passes one `see` to all of them.
    """

    def check_path(self, path: str) -> None:
        """Raise InvalidPathError for a path that can have no entry, such as one that is too long.
        The root has none."""

    # Reads by path

    async def get(self, path: str, see: Seeing | None = None) -> Entry | None:
        """The entry at a path, or None. Raises InvalidPathError, ItemFormatError."""

    async def get_many(self, paths: Sequence[str], see: Seeing | None = None) -> list[Entry | None]:
        """The entries at the paths, in their order, in as few requests as possible. Not a
        snapshot."""

    async def get_each(self, paths: Sequence[str]) -> list[Entry | ItemFormatError | None]:
        """As `get_many`; for an invalid item the error takes the place of the entry."""

    async def locate(self, path: str, see: Seeing | None = None) -> LocatedEntry:
        """As `get`, with what the entry's being there depends on."""

    async def locate_many(
        self, paths: Sequence[str], see: Seeing | None = None
    ) -> list[LocatedEntry]:
        """As `get_many`, with what each entry's being there depends on."""

    async def chain(self, path: str) -> Chain:
        """A path and all of its ancestors, read in one batch."""

    # Parents of new entries

    def is_directory(self, directory: Directory) -> Condition:
        """The stored item is this directory, and no transaction is removing or moving it."""

    def remember(self, directory: Entry) -> None:
        """A directory without an intent was just read, or created."""

    def discard(self, directory: Directory) -> None:
        """A directory may be gone, or going away."""

    async def prepare(self, path: str) -> Entry | None:
        """The entry at a path that is to be written. Missing parents are created, and transactions
        on them are awaited. Raises NotDirectoryError (the path leads through a file), BusyError."""

    async def prepare_many(self, paths: Sequence[str]) -> PreparedPaths:
        """As `prepare` for different paths, in as few requests as possible. Raises ItemFormatError
        for a damaged item, and the errors of the service."""

    async def has_parent(self, entry: Entry) -> bool:
        """Whether the parent of a created entry is a directory that no transaction is removing or
        moving, by a read that begins now. Creations depend on this: it is called after the entry
        was written and before it is acknowledged."""

    async def need_parents(self, entry: Entry) -> None:
        """Create the missing parents of an entry that cannot be withdrawn, and wait for those with
        intents."""

    async def give_parents(self, entry: Entry) -> None:
        """Create the parents of a created entry again, if it still has none. A transaction that is
        changing them or the entry is awaited. Raises NotDirectoryError, BusyError and the errors of
        the table."""

    # Changes of directories with everything below them

    async def rename_directory(
        self, source: Entry, target: str, *, atomic: bool, progress: OnProgress = None
    ) -> ChangeResult:
        """Move a directory. The target must not exist.

        Raises RenameIntoSelfError, PathExistsError, PathNotFoundError (source, or target's parent),
        NotDirectoryError, UncommittedFileError (another client is writing a new file below),
        BusyError, and the services' errors: then nothing was changed, if `atomic`.
        OutcomeUnknownError: either everything was moved, or nothing. If not `atomic`, failures
        below the directory are listed in the result.
        """

    async def delete_directory(
        self, entry: Entry, *, atomic: bool, progress: OnProgress = None
    ) -> ChangeResult:
        """Delete a directory and everything below it, reservations included. The data is left to
        garbage collection.

        Raises PathNotFoundError, NotDirectoryError, ConflictError (another directory is there),
        BusyError, and as `rename_directory`.
        """

    async def remove_empty(self, held: Entry, txn: OwnedTransaction) -> None:
        """Remove a directory that carries the transaction's intent and is empty. Raises
        LeaseExpiredError, ConflictError (another client changed it, or obstructed its removal)."""

    async def prepare_subtree(
        self,
        txn: OwnedTransaction,
        log: TransactionLog,
        source: Entry,
        target: str,
        tally: ChangeTally,
    ) -> None:
        """Prepare everything below a directory that a caller's transaction moves to `target`, or
        removes if that is empty; `tally` counts it. The transaction holds the directory itself."""

    async def end_trees(
        self, txn: OwnedTransaction, source: str, target: str, *, published: bool
    ) -> None:
        """Apply or remove the intents of a transaction at and below a source and a target, both
        optional. Raises the first failure; can be repeated."""


def require_supported(keys: KeyScheme, work: str) -> None:
    """Raise UnsupportedError for work that only layout `path` supports so far."""
    if keys.layout != "path":
        raise UnsupportedError(f"{work} does not support layout {keys.layout} yet")
