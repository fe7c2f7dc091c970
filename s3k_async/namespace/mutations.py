"""Mutations of a caller's transaction, and their effect on the entries in the table.

A mutation is recorded when its verb is called, with the entry as it was then. At commit all are
evaluated together from one read of the table: the state of each path before and after. A mutation
of a given entry (a move, a removal) applies to exactly that entry; a write replaces whatever file
is at its path then.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias

from s3k_async import _native
from s3k_async._core.concurrency import run_all
from s3k_async.backends.ports.items import Condition, Item, Put
from s3k_async.errors import (
    BusyError,
    ConflictError,
    IsDirectoryError,
    NotDirectoryError,
    PathExistsError,
    PathNotFoundError,
    UncommittedFileError,
)
from s3k_async.model import ROOT, ChangeTally, Content, Entry
from s3k_async.namespace.conflict_backoff import ObstructedError
from s3k_async.namespace.directories import require_directories
from s3k_async.namespace.store import MetadataStore
from s3k_async.oplog.entries import Operation, OperationKind
from s3k_async.table.codec import to_item
from s3k_async.table.keys import Directory, KeyScheme
from s3k_async.table.stored_reader import ROOT_ENTRY
from s3k_async.txn.lease import require_unexpired
from s3k_async.txn.write_intent import transaction_of

__all__ = [
    "Change",
    "CommitPlan",
    "MakeDirectory",
    "Move",
    "Mutation",
    "Remove",
    "ReplaceDirectory",
    "SubtreeMutation",
    "WriteFile",
    "decide",
]

RESOLVED_AT_ONCE = 16
"""Entries with intents of other transactions that are awaited concurrently."""


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


@dataclass(frozen=True, slots=True)
class Move:
    """Move the entry that was seen at a path to another path, whose parent must exist at commit."""

    source: Entry
    target: str
    overwrite: bool


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


Mutation: TypeAlias = WriteFile | Move | Remove | MakeDirectory | ReplaceDirectory


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
        """Whether a new directory comes to the place of another one."""
        before, after = self.before, self.after
        return before is not None and before.is_dir and after is not None and after.id != before.id

    def put(self, keys: KeyScheme, when: Condition, intent: str = "") -> Put:
        """The action that writes the new entry, with an intent."""
        assert self.after is not None
        item = to_item(replace(self.after, pending=intent), keys)
        return Put(item if self.trashed is None else {**self.trashed, **item}, when)


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


async def decide(store: MetadataStore, mutations: Sequence[Mutation]) -> CommitPlan:
    """The effect of the mutations on the current table. Changes nothing except for resolving
    intents of finished transactions.

    Raises PathNotFoundError, PathExistsError, IsDirectoryError, NotDirectoryError,
    UncommittedFileError, ConflictError (an entry to be moved or removed has another version by
    now), LeaseExpiredError, BusyError; ObstructedError if some paths were read before a concurrent
    change, and others after it.
    """
    replaced = [each.path for each in mutations if isinstance(each, ReplaceDirectory)]
    if replaced and not store.keys.by_id:
        mutations = [*mutations, *await _removals(store, mutations, replaced)]
    wanted = list(dict.fromkeys(_paths(mutations, all_parents=store.keys.by_id)))
    since = store.runtime.monotonic()
    evaluation = _Evaluation(store, await _look(store, wanted), replaced)
    evaluation.plan.since = since
    if store.keys.by_id:
        evaluation.replace(mutations)
    # Directories first: a file can be moved into one that the transaction creates, in any order of
    # the calls.
    for mutation in mutations:
        if isinstance(mutation, MakeDirectory | ReplaceDirectory):
            evaluation.make(mutation)
        elif isinstance(mutation, WriteFile):
            evaluation.write(mutation)
    for mutation in mutations:
        if isinstance(mutation, Move):
            evaluation.move(mutation)
        elif isinstance(mutation, Remove):
            evaluation.remove(mutation)
    evaluation.require_places()
    return evaluation.plan


def _paths(mutations: Iterable[Mutation], *, all_parents: bool) -> Iterable[str]:
    """The paths to read. `all_parents`: also the parents of entries that are moved or removed,
    whose ids are not known."""
    for mutation in mutations:
        match mutation:
            case Remove():
                if all_parents:
                    yield from _native.ancestors(mutation.entry.path)
                yield mutation.entry.path
            case Move():
                if all_parents:
                    yield from _native.ancestors(mutation.source.path)
                yield mutation.source.path
                yield from (*_native.ancestors(mutation.target), mutation.target)
            case _:
                yield from (*_native.ancestors(mutation.path), mutation.path)


async def _look(store: MetadataStore, paths: list[str]) -> dict[str, Entry | None]:
    """The entries at the paths; intents are resolved first. Raises BusyError."""
    deadline = store.deadline()
    late = False
    while True:
        found = dict(zip(paths, await store.get_many(paths), strict=True))
        held = [entry for entry in found.values() if entry is not None and entry.pending]
        if not held:
            return found
        if late:
            raise BusyError(
                "gave up: other transactions kept changing this path", path=held[0].path
            )
        # Before this wait, after which no intent may be left.
        late = store.runtime.monotonic() >= deadline
        # Usually the end of a transaction resolves all of its intents.
        first = {transaction_of(entry.pending): entry for entry in reversed(held)}
        for entry in first.values():
            await store.resolve(entry)
        rest = [entry for entry in held if first[transaction_of(entry.pending)] is not entry]
        await run_all(store.resolve, rest, limit=RESOLVED_AT_ONCE)


async def _removals(
    store: MetadataStore, mutations: Iterable[Mutation], replaced: Iterable[str]
) -> list[Remove]:
    """In layout `path`, the removals of what is below the directories to replace. Files to be
    written, and directories above them, are left out. Raises NotDirectoryError for a file where
    a directory is needed."""
    needed: set[str] = set(replaced)
    files: set[str] = set()
    for mutation in mutations:
        match mutation:
            case Move():
                needed.update(_native.ancestors(mutation.target))
                files.add(mutation.target)
            case WriteFile():
                needed.update(_native.ancestors(mutation.path))
                files.add(mutation.path)
            case MakeDirectory():
                needed.update((*_native.ancestors(mutation.path), mutation.path))
            case _:
                pass
    found: list[Remove] = []
    left = set(replaced)
    walked: set[str] = set()
    while left:
        walked.add(directory := left.pop())
        async for page in store.children(Directory.at(directory)):
            for entry in page:
                if entry.path in needed and entry.is_dir:
                    left.update({entry.path} - walked)
                elif entry.path in needed:
                    raise NotDirectoryError(
                        "a file is where a directory of files is written", path=entry.path
                    )
                elif entry.path not in files:
                    seen = replace(entry, pending="")
                    found.append(Remove(seen, recursive=True, missing_ok=False, is_replaced=True))
    return found


def _is_there(mutation: WriteFile, current: Entry) -> bool:
    """Whether an earlier transaction, perhaps of unknown outcome, has published this data."""
    content = mutation.content
    found = (current.physical, current.size, current.etag) == (
        content.physical,
        content.size,
        content.etag,
    )
    return found and (mutation.source == "adopted" or current.id == mutation.object_id)


class _Evaluation:
    """One read of the table, and the evaluation of the mutations on it."""

    def __init__(
        self, store: MetadataStore, found: dict[str, Entry | None], replaced: Iterable[str] = ()
    ) -> None:
        self._store = store
        self._found = found
        self._replaced = frozenset(replaced)
        self._now = store.runtime.now_ms()
        self.plan = CommitPlan()

    def replace(self, mutations: Iterable[Mutation]) -> None:
        """In layout `tree`: replace directories, so that nothing is below them any more. If an
        earlier transaction, perhaps of unknown outcome, has published data of this one below a
        directory, it has also replaced it. Adopted objects show nothing: other transactions can
        have adopted them there."""
        left = {path for path in self._replaced if self._is_directory(path)}
        for mutation in mutations:
            if isinstance(mutation, WriteFile) and mutation.source != "adopted":
                current = self._found[mutation.path]
                if current is not None and _is_there(mutation, current):
                    left.difference_update(_native.ancestors(mutation.path))
        for path in self._found:
            if not left.isdisjoint(_native.ancestors(path)):
                self._found[path] = None
        for path in sorted(left):
            old = self._found[path]
            if old is not None:
                self._replace(old)

    def _is_directory(self, path: str) -> bool:
        entry = self._found[path]
        return entry is not None and entry.is_dir

    def _replace(self, old: Entry) -> None:
        path, removal = old.path, self._operation("delete", old, None)
        self._remove_tree(old, removal)
        made = self._store.new_directory(path, self._entry(_native.split(path)[0]))
        self._change(path, old, made, [self._operation("create", None, made)])
        self._count(old)
        self._count(made)

    def make(self, mutation: MakeDirectory | ReplaceDirectory) -> None:
        there = self._found[mutation.path]
        if there is not None and not there.is_dir:
            if isinstance(mutation, ReplaceDirectory):
                raise NotDirectoryError("a file is at the path", path=mutation.path)
            raise PathExistsError("a file is at the path", path=mutation.path)
        self._need_directory(mutation.path)

    def write(self, mutation: WriteFile) -> None:
        path, current = mutation.path, self._found[mutation.path]
        same = current is not None and current.id == mutation.object_id
        if current is not None and _is_there(mutation, current):
            return
        if mutation.source != "adopted":
            require_unexpired(mutation.lease_ms, self._now, path)
        if current is not None and current.is_dir:
            raise IsDirectoryError("a directory is at the path", path=path)
        if (
            current is not None
            and not (mutation.overwrite or self._is_replaced(path))
            and not self._store.ran_out(current)
        ):
            raise PathExistsError("the file exists", path=path)
        if mutation.replaces and not same:
            self.plan.displaced.append(mutation)
            return
        self._need_directory(_native.split(path)[0])
        base = (
            current
            if same and current
            else self._store.new_file(path, mutation.object_id, self._parent(path))
        )
        after = base.with_content(
            mutation.content, mtime_ms=self._now, operation=self._store.runtime.uuid()
        )
        operations = [self._operation("update", current if same else None, after)]
        if current is not None and not same:
            operations.append(self._operation("delete", current, None))
        self._change(path, current, after, operations)
        self._count(after)

    def _is_replaced(self, path: str) -> bool:
        return bool(self._replaced) and not self._replaced.isdisjoint(_native.ancestors(path))

    def move(self, mutation: Move) -> None:
        source = self._unchanged(mutation.source)
        if source.is_reservation:
            raise UncommittedFileError(
                "the file is still being written and cannot be renamed", path=source.path
            )
        made = self.plan.changes
        require_directories(
            (path, made[path].after if path in made else self._found[path])
            for path in _native.ancestors(mutation.target)
        )
        replaced = self._found[mutation.target]
        overwrite = mutation.overwrite or self._is_replaced(mutation.target)
        if replaced is not None and (replaced.is_dir or source.is_dir or not overwrite):
            raise PathExistsError("the target exists", path=mutation.target)
        parent = self._parent(mutation.target)
        moved, operations, _ = self._store.plan_move(source, mutation.target, parent, replaced)
        self._change(source.path, source, None, [])
        self._change(mutation.target, replaced, moved, operations)
        self._count(moved)
        if source.is_dir:
            self.plan.subtrees.append(SubtreeMutation(source, mutation.target))

    def remove(self, mutation: Remove) -> None:
        if mutation.missing_ok and self._found[mutation.entry.path] is None:
            return
        seen = self._found[mutation.entry.path]
        if mutation.is_replaced and (
            seen is None or (seen.id, seen.version) != (mutation.entry.id, mutation.entry.version)
        ):
            raise ObstructedError(mutation.entry.path)
        entry = self._unchanged(mutation.entry)
        removal = self._operation("delete", entry, None)
        if not entry.is_dir:
            self._change(entry.path, entry, None, [removal])
        elif not mutation.recursive:
            marker = self._store.layout.trashed(entry, removal.id, empty=True)
            self._change(entry.path, entry, None, [removal])
            self.plan.subtrees.append(
                SubtreeMutation(
                    entry, "", must_be_empty=True, marker=None if marker is None else marker.item
                )
            )
        else:
            self._remove_tree(entry, removal)
        self._count(entry)

    def _remove_tree(self, entry: Entry, removal: Operation) -> None:
        trashed = self._store.layout.trashed(entry, removal.id, empty=False)
        self._change(entry.path, entry, None, [removal] if trashed is None else [])
        if trashed is not None:
            move = self._store.changes.operation("rename", entry, trashed.entry, trashed.deletion)
            self.plan.trashed.append(
                Change(
                    entry.path,
                    None,
                    trashed.entry,
                    self._parent(entry.path),
                    (move,),
                    trashed.item,
                )
            )
        self.plan.subtrees.append(SubtreeMutation(entry, ""))

    def require_places(self) -> None:
        """In layout `tree`: store the directories above all changes in the plan. Raises
        ObstructedError if some were read before a concurrent change, and others after it."""
        if not self._store.keys.by_id:
            return
        plan = self.plan
        moving = {place for each in plan.subtrees for place in (each.source.path, each.target)}
        required: dict[str, Directory] = {}
        above: dict[str, Directory] = {}
        for path in plan.changes:
            found = required if path in moving else above
            for place in _native.ancestors(path):
                if place not in plan.changes and place not in found:
                    found[place] = self._in_place(place)
        plan.required, plan.above = list(required.values()), list(above.values())

    def _in_place(self, path: str) -> Directory:
        """The directory at a path. Raises ObstructedError if it is not in the directory that was
        found at its parent's path."""
        entry = self._entry(path)
        if entry.directory != self._parent(path).key:
            raise ObstructedError(path)
        return self._store.keys.directory(entry)

    def _unchanged(self, seen: Entry) -> Entry:
        """The entry at the path of one that was seen, if it is still the same."""
        current = self._found[seen.path]
        if current is None:
            raise PathNotFoundError("no such file or directory", path=seen.path)
        if (current.id, current.version) != (seen.id, seen.version):
            raise ConflictError(
                "the entry was changed since it was read; no changes were applied", path=seen.path
            )
        return current

    def _need_directory(self, path: str) -> None:
        """Add the creation of a missing directory and its missing ancestors."""
        if path == ROOT:
            return
        for place in (*_native.ancestors(path), path):
            if place in self.plan.changes:
                continue
            there = self._found[place]
            if there is None:
                made = self._store.new_directory(place, self._entry(_native.split(place)[0]))
                self._change(place, None, made, [self._operation("create", None, made)])
                self._count(made)
            elif not there.is_dir:
                raise NotDirectoryError("the path leads through a file", path=place)

    def _operation(
        self, kind: OperationKind, before: Entry | None, after: Entry | None
    ) -> Operation:
        return self._store.changes.operation(kind, before, after)

    def _change(
        self,
        path: str,
        before: Entry | None,
        after: Entry | None,
        operations: Sequence[Operation],
    ) -> None:
        parent = self._parent(path)
        for entry in (before, after):
            if entry is not None and entry.directory not in ("", parent.key):
                # Layout `tree`: its directory was replaced between the reads of two paths.
                raise ObstructedError(path)
        self.plan.changes[path] = Change(path, before, after, parent, tuple(operations))

    def _parent(self, path: str) -> Directory:
        """The parent of a path that changes."""
        above = _native.split(path)[0]
        if not self._store.keys.by_id:
            # Parents of entries that are moved or removed are not read.
            return Directory.at(above)
        return self._store.keys.directory(self._entry(above))

    def _entry(self, path: str) -> Entry:
        """A directory that exists, or that the transaction creates. Raises ObstructedError if it
        was missing when it was read, although an entry below it was found."""
        made = self.plan.changes.get(path)
        entry = ROOT_ENTRY if path == ROOT else made.after if made else self._found[path]
        if entry is None:
            raise ObstructedError(path)
        return entry

    def _count(self, entry: Entry) -> None:
        tally = self.plan.tally
        tally.directories += entry.is_dir
        tally.files += not entry.is_dir
        tally.bytes += entry.size
