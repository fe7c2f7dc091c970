"""Mutations of a caller's transaction, and the plan of the commit that they become.

A mutation is recorded when its verb is called, with the entry as it was then. A mutation of a given
entry (a move, a removal) applies to exactly that entry; a write replaces whatever file is at its
path at commit, and an exchange takes whatever is at its paths.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias

from s3k_async.backends.ports.items import ABSENT, Action, Condition, Delete, Item, Put
from s3k_async.model import ChangeTally, Content, Entry
from s3k_async.oplog.entries import Operation
from s3k_async.table.codec import to_item, unchanged
from s3k_async.table.keys import Directory, KeyScheme

__all__ = [
    "Change",
    "CommitPlan",
    "ExchangePaths",
    "MakeDirectory",
    "Move",
    "Mutation",
    "Remove",
    "ReplaceDirectory",
    "SubtreeMutation",
    "WriteFile",
]


@dataclass(frozen=True, slots=True)
class WriteFile:
    """Publish uploaded data as the file at a path; missing parents are created."""

    path: str
    object_id: str
    """The object id in the key of the data."""
    content: Content
    lease_ms: int
    """Expiry of the lease for publishing it, epoch milliseconds."""
    replaces: bool
    """Whether the object id is that of the file at the path at the time of the upload."""
    overwrite: bool
    source: Literal["written", "staged", "adopted"] = "written"
    """Uploaded by this transaction, staged before it, or an object outside the volume that is
    adopted (without a lease)."""
    version: int = 0
    """The version that the file must still have; 0 for any."""
    attributes: str | None = None
    """Of the file, in their stored form; None: a file that is replaced keeps its own."""


@dataclass(frozen=True, slots=True)
class Move:
    """Move the entry that was seen at a path to another path, whose parent must exist at commit."""

    source: Entry
    target: str
    overwrite: bool


@dataclass(frozen=True, slots=True)
class ExchangePaths:
    """Let the entries at two paths change places, of which none is below the other."""

    first: str
    second: str


@dataclass(frozen=True, slots=True)
class Remove:
    """Remove the entry that was seen at a path."""

    entry: Entry
    recursive: bool
    missing_ok: bool
    is_replaced: bool = False
    """Whether the entry was found below a directory to replace: if it has changed since, everything
    is evaluated again."""


@dataclass(frozen=True, slots=True)
class MakeDirectory:
    """Create a directory and its missing parents."""

    path: str


@dataclass(frozen=True, slots=True)
class ReplaceDirectory:
    """Remove a directory with everything below it, and create one in its place, for what other
    mutations put there; without a directory at the path, create it and its missing parents."""

    path: str


Mutation: TypeAlias = WriteFile | Move | ExchangePaths | Remove | MakeDirectory | ReplaceDirectory


@dataclass(frozen=True, slots=True)
class Change:
    """The change of one path: the present entry, without an intent, and the new one; None: no
    entry."""

    path: str
    before: Entry | None
    after: Entry | None
    parent: Directory
    operations: tuple[Operation, ...]
    """Its log record."""
    trashed: Item | None = None
    """The item of a directory that is moved into the trash. Path and parent are the former ones."""

    @property
    def entry_key(self) -> str:
        """The key of the present entry, or of the new one."""
        entry = self.before or self.after
        assert entry is not None
        return entry.entry_key

    @property
    def is_directory(self) -> bool:
        """Whether a directory is created or removed."""
        return any(entry is not None and entry.is_dir for entry in (self.before, self.after))

    @property
    def replaces_directory(self) -> bool:
        """Whether something else comes to the place of a directory."""
        before, after = self.before, self.after
        return before is not None and before.is_dir and after is not None and after.id != before.id

    def put(self, keys: KeyScheme, when: Condition, intent: str = "") -> Put:
        """The action that writes the new entry, with an intent."""
        assert self.after is not None
        item = to_item(replace(self.after, pending=intent), keys)
        return Put(item if self.trashed is None else {**self.trashed, **item}, when)

    def action(self, keys: KeyScheme) -> Action:
        """The action that makes the change, on the condition that the entry is as it was read."""
        when = ABSENT if self.before is None else unchanged(self.before)
        return (
            Delete(keys.key(self.entry_key), when) if self.after is None else self.put(keys, when)
        )


@dataclass(frozen=True, slots=True)
class SubtreeMutation:
    """A directory that is moved or removed with its tree. The directory is among the changes, its
    children are not."""

    source: Entry
    target: str
    """Empty for a removal."""
    must_be_empty: bool = False
    marker: Item | None = None
    """In layout `tree`, the item of the removal marker for an empty directory."""


@dataclass(slots=True)
class CommitPlan:
    """The combined effect of all mutations."""

    changes: dict[str, Change] = field(default_factory=dict)
    """By path; a created directory precedes the entries created below it."""
    subtrees: list[SubtreeMutation] = field(default_factory=list)
    displaced: list[WriteFile] = field(default_factory=list)
    """Writes whose key has the id of an object that is no longer at the path: they need a new key,
    and then everything is evaluated again."""
    tally: ChangeTally = field(default_factory=ChangeTally)
    since: float = 0.0
    """Monotonic time before the entries were read."""
    trashed: list[Change] = field(default_factory=list)
    """In layout `tree`, the changes that put removed directories into the trash."""
    required: list[Directory] = field(default_factory=list)
    """In layout `tree`, the directories above those that are moved or removed. The commit requires
    them to be in place, without an intent."""
    above: list[Directory] = field(default_factory=list)
    """In layout `tree`, the directories above all other changes. The commit requires as many of
    them as fit: while they are in place, no other client can remove a part of the changes."""

    @property
    def rows(self) -> list[Change]:
        """The changes of all items, including those in the trash."""
        return [*self.changes.values(), *self.trashed]

    @property
    def going(self) -> list[Change]:
        """The directories that leave their paths."""
        return [
            change
            for change in self.changes.values()
            if (change.is_directory and change.after is None) or change.replaces_directory
        ]

    @property
    def coming(self) -> list[Change]:
        """The directories that appear, topmost first."""
        return [change for change in self.rows if change.is_directory and change.before is None]

    @property
    def files(self) -> list[Change]:
        """All changes of files."""
        return [change for change in self.changes.values() if not change.is_directory]

    @property
    def operations(self) -> list[Operation]:
        """The log records of all changes."""
        return [operation for change in self.rows for operation in change.operations]

    def placed(self) -> list[Entry]:
        """In layout `tree` the entries that change in directories that were read."""
        entries = (
            (change.parent.path, change.before or change.after) for change in self.changes.values()
        )
        return [
            entry
            for above, entry in entries
            if entry is not None and entry.directory and above not in self.changes
        ]

    def parents(self) -> list[Directory]:
        """The directories in which something changes, the root included, without those that the
        transaction creates."""
        found = {change.parent.path: change.parent for change in self.changes.values()}
        return [parent for path, parent in found.items() if path not in self.changes]
