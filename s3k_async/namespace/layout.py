"""The operations that differ between the layouts of a volume, implemented in `layouts`."""

from __future__ import annotations

from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Awaitable,
    Callable,
    Collection,
    Iterable,
    Mapping,
    Sequence,
)
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

from s3k_async._native import Entries
from s3k_async.backends.ports.items import Condition, Item, Put, Value
from s3k_async.errors import S3kError
from s3k_async.model import (
    ChangeResult,
    ChangeTally,
    Deletion,
    Entry,
    Operation,
    Progress,
    TrashItem,
)
from s3k_async.namespace.mutations import CommitPlan
from s3k_async.table.keys import Directory
from s3k_async.txn.intent_view import Seeing
from s3k_async.txn.lease import Moment
from s3k_async.txn.logged_write import TransactionLog
from s3k_async.txn.txn_record import OwnedTransaction

__all__ = [
    "Chain",
    "ConfirmedChain",
    "Layout",
    "LayoutCheck",
    "LocatedEntry",
    "OnProgress",
    "PreparedPaths",
    "StagedCommit",
    "TrashStore",
    "TrashedEntry",
]

Chain: TypeAlias = list[tuple[str, Entry | None]]
"""The root, every other ancestor of a path, and the path itself, topmost first."""
StagedCommit: TypeAlias = Callable[[Callable[[], None]], Awaitable[None]]
"""Makes the changes of a plan. Raises ObstructedError if an entry has changed since the decision.
The argument is called after a failure if new entries may still be in the table, until another
client removes them, so that their data must not be deleted before."""
OnProgress: TypeAlias = Callable[[Progress], object] | None


@dataclass(frozen=True, slots=True)
class LocatedEntry:
    """The entry at a path, and the directories that its place depends on."""

    entry: Entry | None
    entry_key: str
    """The entry key of the entry, or of the first missing entry of its path."""
    above: Sequence[Entry] = ()
    """In layout `tree` the directories above it; while none of them moves, the path leads to
    the entry."""


@dataclass(frozen=True, slots=True)
class ConfirmedChain:
    """In layout `tree` the directories above a new entry at one moment. The entry is created in the
    last of them, even if that has been renamed since."""

    parent: Directory
    above: Sequence[Entry]
    """The directories, topmost first, without the root; the last is the parent."""
    since: Moment
    """The time before they were read."""


@dataclass(frozen=True, slots=True)
class PreparedPaths:
    """Paths that are to be written, after their parents were created."""

    entries: Mapping[str, Entry | None]
    """The present entry at each path whose parents exist."""
    errors: Mapping[str, S3kError]
    """The reasons why the others have no parents, by path."""
    again: Collection[str]
    """Paths whose parents have intents, or were removed since: each has to be prepared by itself.
    """
    chains: Mapping[str, ConfirmedChain] = field(default_factory=dict)
    """The chains that `prepare` returns, by path."""


@dataclass(frozen=True, slots=True)
class TrashedEntry:
    """In layout `tree`, the entry in the trash of a removed directory: the directory with its
    content, or a removal marker if it was removed as empty."""

    entry: Entry
    item: Item
    """The item that stores it, with attributes that entries outside the trash do not have."""
    deletion: Deletion
    """The same attributes for the log, which does not contain removal markers."""


class Layout(Protocol):
    """The layout of an open volume. All paths are normalised.

    Reads resolve write intents; a caller of several passes one `see` to all of them.
    """

    @property
    def has_trash(self) -> bool:
        """Whether deleted directories go into a trash."""

    def check_path(self, path: str) -> None:
        """Raise InvalidPathError for a path that can have no entry, such as one that is too long.
        The root has none."""

    # Reads by path

    async def get(
        self, path: str, see: Seeing | None = None, *, trusting: bool = False
    ) -> Entry | None:
        """The entry at a path, or None. `trusting`: as permitted by `Tuning.directory_trust`; for
        verbs that change nothing. Raises InvalidPathError, ItemFormatError."""

    async def get_many(
        self, paths: Sequence[str], see: Seeing | None = None, *, trusting: bool = False
    ) -> list[Entry | None]:
        """The entries at the paths, in their order, in as few requests as possible. Not a
        snapshot."""

    async def get_each(
        self, paths: Sequence[str], *, trusting: bool = False
    ) -> list[Entry | S3kError | None]:
        """As `get_many`; for an invalid item, or a path that the identity may not resolve, the
        error takes the place of the entry."""

    async def locate(self, path: str, see: Seeing | None = None) -> LocatedEntry:
        """As `get`, with the directories that the place of the entry depends on."""

    async def locate_many(
        self, paths: Sequence[str], see: Seeing | None = None
    ) -> list[LocatedEntry]:
        """As `get_many`, with the directories that the place of each entry depends on."""

    async def chain(self, path: str) -> Chain:
        """A path and all of its ancestors, read in one batch."""

    async def get_with_chain(self, path: str, other: str) -> tuple[Entry | None, Chain]:
        """`get` of a path and `chain` of another one, read in one batch."""

    # Parents of new entries

    def is_directory(self, directory: Directory) -> Condition:
        """The condition that the stored item is this directory, and that no transaction is removing
        or moving it."""

    def remember(self, directory: Entry) -> None:
        """Note a directory that was just read or created, without an intent."""

    def discard(self, directory: Directory) -> None:
        """Forget a directory that may have been, or may be about to be, moved or removed."""

    async def is_leaving(self, directory: Entry) -> bool:
        """In layout `tree`: whether another client is removing a directory in which an entry was
        found, or has removed it. The entry may be a new file that its creator will move into
        another directory."""

    async def prepare(self, path: str) -> tuple[Entry | None, ConfirmedChain | None]:
        """The entry at a path that is to be written, and in layout `tree` the directories above it.
        Missing parents are created, and transactions on them are awaited. Raises NotDirectoryError
        (the path leads through a file), BusyError."""

    async def prepare_many(self, paths: Sequence[str]) -> PreparedPaths:
        """As `prepare` for different paths, in as few requests as possible. Raises ItemFormatError
        for a damaged item, and the errors of the service."""

    async def misplaced(self, entries: Sequence[Entry]) -> Collection[str]:
        """The paths among those of `entries` that no longer lead to the directories of the
        entries. For entries with a directory key only, so never called in layout `path`."""

    async def confirm_publication(self, entry: Entry, chain: ConfirmedChain) -> None:
        """Called before a file is published that was opened a long time ago; `chain` is of the time
        of its opening. Raises ConflictError if its directories were deleted; they may have been
        moved."""

    async def has_parent(self, entry: Entry, chain: ConfirmedChain | None) -> bool:
        """Whether the parent of a created entry is a directory that no transaction is removing or
        moving, by a read that begins now. Creations depend on this: it is called after the entry
        was written and before it is acknowledged."""

    async def give_parents(self, entry: Entry, chain: ConfirmedChain | None) -> Entry:
        """Create the parents of a created entry again, if they were removed as empty, and return
        the entry, which in layout `tree` may have been moved into another directory at its path. A
        transaction that is changing them or the entry is awaited.

        Raises NotDirectoryError, BusyError, ConflictError (the path is taken, prepare it again) and
        the errors of the table: then the entry is to be withdrawn. OutcomeUnknownError of the
        entry's operation: it must not be.
        """

    async def keep_moved(
        self, moved: Entry, source: Entry, chain: ConfirmedChain | None, *, replaced: bool
    ) -> Entry | None:
        """Called if the parent of a rename's target was removed or moved. Returns the entry at the
        target; None if the rename was undone. `replaced`: whether the rename replaced a file, so
        that it cannot be undone.
        """

    # Changes of directories with everything below them

    async def rename_directory(
        self,
        source: Entry,
        target: str,
        *,
        atomic: bool,
        found: Chain | None = None,
        progress: OnProgress = None,
    ) -> ChangeResult:
        """Move a directory. The target must not exist. `found`: the target with its ancestors, if
        it was read together with the source; what has changed since is noticed.

        Raises RenameIntoSelfError, PathExistsError, PathNotFoundError (source, or target's parent),
        NotDirectoryError, UncommittedFileError (another client is writing a new file below),
        BusyError, and the services' errors: then nothing was changed, if `atomic`.
        OutcomeUnknownError: either everything was moved, or nothing. If not `atomic`, failures
        below the directory are listed in the result.
        """

    async def delete_directory(
        self, entry: Entry, *, atomic: bool, progress: OnProgress = None, wait: bool = False
    ) -> ChangeResult:
        """Delete a directory and everything below it, reservations included. The data is left to
        garbage collection. Layout `tree` moves the directory into the trash; with `wait` it also
        deletes and counts the files below it before the call returns, and the directory cannot be
        restored.

        Raises PathNotFoundError, NotDirectoryError, ConflictError (another directory is there),
        BusyError, and as `rename_directory`.
        """

    async def remove_empty(self, held: Entry, txn: OwnedTransaction) -> None:
        """Remove a directory that carries the transaction's intent and is empty. Raises
        LeaseExpiredError, ConflictError (another client changed it, or obstructed its removal)."""

    def trash(self) -> TrashStore:
        """The trash: deleted directories that can be restored. In layout `path` it is empty."""

    def scanned_paths(self, directories: Iterable[tuple[str, str]]) -> dict[str, str] | None:
        """The paths of the directories that a scan of the table has found, by directory key, for
        `StoredReader.scan`; those that no path leads to are left out. None in layout `path`, whose
        keys contain the paths. `directories`: their directory keys, with the entry keys of their
        items."""

    def check(self) -> LayoutCheck:
        """The layout's part of one run of fsck, which knows no directories yet."""

    # Directories in a caller's transaction

    def trashed(self, directory: Entry, operation: str, *, empty: bool) -> TrashedEntry | None:
        """The entry in the trash of a directory that is being removed; None in layout `path`, which
        has no trash. `operation`: the id of the removal."""

    async def staged_commit(self, plan: CommitPlan, name: str) -> StagedCommit | None:
        """How to commit a plan that creates entries in new directories, or replaces directories:
        the directories are stored with their content where no path leads, and published with
        everything else by one transaction of the table. None if that does not fit into one, for
        other plans, and in layout `path`, whose keys contain the paths. `name`: the path in errors.
        Raises the errors of the table."""

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
        optional; in layout `tree` remove a staged directory that was not published, with its
        content. Raises the first failure; can be repeated."""


class TrashStore(Protocol):
    """The trash of an open volume."""

    async def items(self) -> list[TrashItem]:
        """The deleted directories, newest first, all in memory. Raises ItemFormatError for a
        damaged item."""

    async def newest(self, path: str) -> TrashItem:
        """Of the directories deleted at a path that can be restored, the one deleted last. Raises
        PathNotFoundError, ItemFormatError."""

    async def restore(self, item: TrashItem, target: str) -> Entry:
        """Move a directory with everything below it to a path; missing parents are created.

        Raises PathNotFoundError (it is not in the trash, or is being reclaimed), PathExistsError,
        NotDirectoryError, BusyError: then nothing was restored. After OutcomeUnknownError,
        everything or nothing was.
        """

    def walk(self, item: TrashItem) -> AsyncGenerator[Entries, None]:
        """The entries below a directory in the trash, reservations included, in pages, with paths
        below its former path. Not a snapshot. Raises PathNotFoundError."""

    async def empty(
        self,
        items: Iterable[TrashItem] | None = None,
        *,
        before_ms: int | None = None,
        progress: OnProgress = None,
    ) -> ChangeResult:
        """Delete the files below the deleted directories in `items`, by default below all of them;
        with `before_ms`, only below those that were deleted before that time. These directories can
        no longer be restored; garbage collection deletes the rest of them. The result lists the
        entries that could not be deleted, and counts the directories that no longer contain files.
        """

    async def collect(
        self,
        clock: Callable[[], Awaitable[int]],
        *,
        retention_ms: int,
        dry_run: bool = False,
        progress: OnProgress = None,
    ) -> ChangeResult:
        """The part of garbage collection that concerns the trash: reclaim directories that were
        deleted longer ago than the retention, and delete removal markers. `clock` returns the time
        of the data store, epoch milliseconds. The result lists the entries that were kept, with the
        reasons. `dry_run`: change nothing, and count what would be reclaimed."""


class LayoutCheck(Protocol):
    """What differs between layouts in one run of fsck: the directories that its scan has found, and
    the writes of its repairs. In layout `tree`, items that were read by a scan have no paths, and
    nothing but the log tells the place of a directory whose id is known."""

    @property
    def by_id(self) -> bool:
        """Whether directory keys are object ids."""

    @property
    def roots(self) -> Collection[str]:
        """The directory keys that need no directory item."""

    @property
    def settle_ms(self) -> int:
        """How long after the removal of a directory, milliseconds, a client may still move an entry
        out of it that it has just created there."""

    # The scan

    async def begin(self, path: str) -> None:
        """Read the directories above the path that is checked. To be called once, before `pages`
        and before facts of an earlier scan are used."""

    def pages(self, path: str, segment: int, segments: int) -> AsyncIterator[Sequence[Item]]:
        """The items of one segment of a scan of the table; for a path other than the root they may
        be those at and below the path alone, all of them in the first segment."""

    def is_object(self, item: Item, entry: Entry) -> bool:
        """Whether the item of an entry stores a logged object, and is neither the removal marker of
        one nor a staged directory. Raises ItemFormatError for an item in the trash that cannot be
        read as one."""

    def is_staged(self, item: Item, entry: Entry) -> bool:
        """Whether the item of a directory stores one that is not published yet. The log does not
        have it, but entries may be below it. Raises as `is_object`."""

    def add_directories(self, directories: Iterable[tuple[str, str]]) -> None:
        """Add directories that were found, by their directory keys, with the entry keys of their
        items."""

    def save_directories(self, file: str) -> bool:
        """Write the directories into a new file, as `DirectoryFile`. False if none is needed, since
        directory keys are paths."""

    def open_directories(self, file: str) -> None:
        """Look up directories in a file that `save_directories` has written, in place of those that
        were added before."""

    def directory(self, key: str) -> Directory | None:
        """A directory at the place where the scan has found it; None if it is not known."""

    def with_path(self, entry: Entry) -> Entry:
        """An entry with a path for findings and for the log."""

    def cycles(self) -> list[list[Directory]]:
        """The directories found below themselves: those of each cycle."""

    async def is_below_file(self, entry: Entry) -> bool:
        """Whether a file is at the path of the entry's parent."""

    def close(self) -> None:
        """Remove temporary files. Idempotent."""

    # The writes of repairs

    async def put_for(self, before: Entry, after: Entry) -> Put:
        """The write of a new state of an entry that stays in its place and is unchanged."""

    def logged_item(self, operation: Operation) -> Mapping[str, Value]:
        """The item for the state of an entry after a logged operation."""

    def deletion(self, item: Item) -> Deletion | None:
        """The attributes of a directory in the trash that an item stores, as in the log; None for
        other entries. Raises ItemFormatError."""

    def moved_item(self, item: Item, entry: Entry) -> Mapping[str, Value]:
        """The item of an entry under its own key, which was found under another one."""

    async def make_parent(self, key: str, before: Entry | None, version: int) -> None:
        """Create a missing directory. In layout `tree` it gets its id as name, in `/lost+found`.
        `before`: its last state in the log; `version`: one that it never had. Raises
        ConditionFailedError if it is there by now."""

    async def remove_unreachable(self, entry: Entry) -> None:
        """Remove a file whose directory was removed, or move a directory of this kind into the
        trash. Raises ConditionFailedError, PathNotFoundError, ConflictError if it has changed."""

    async def break_cycle(self, entry: Entry, others: Sequence[Entry]) -> None:
        """Move one directory of a cycle into `/lost+found`, if nothing has changed in the cycle.
        Raises ConditionFailedError."""
