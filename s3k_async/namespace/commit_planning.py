"""The plan of the commit of a caller's transaction: all mutations are evaluated together from one
read of the table, which gives the state of each path before and after."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from s3k_async import _native
from s3k_async._core.concurrency import run_all
from s3k_async.errors import (
    BusyError,
    ConflictError,
    IsDirectoryError,
    NotDirectoryError,
    PathExistsError,
    PathNotFoundError,
    UncommittedFileError,
    UnsupportedError,
)
from s3k_async.model import ROOT, Entry
from s3k_async.namespace.conflict_backoff import ObstructedError
from s3k_async.namespace.directories import require_directories
from s3k_async.namespace.mutations import (
    Change,
    CommitPlan,
    ExchangePaths,
    MakeDirectory,
    Move,
    Mutation,
    Remove,
    ReplaceDirectory,
    SubtreeMutation,
    WriteFile,
)
from s3k_async.namespace.store import MetadataStore
from s3k_async.oplog.entries import Operation, OperationKind
from s3k_async.permissions import WRITE
from s3k_async.table.keys import Directory
from s3k_async.table.stored_reader import ROOT_ENTRY
from s3k_async.txn.lease import require_unexpired
from s3k_async.txn.write_intent import transaction_of

__all__ = ["decide"]

RESOLVED_AT_ONCE = 16
"""Entries with intents of other transactions that are awaited concurrently."""


async def decide(store: MetadataStore, mutations: Sequence[Mutation]) -> CommitPlan:
    """The effect of the mutations on the current table. Changes nothing except for resolving
    intents of finished transactions.

    Raises PathNotFoundError, PathExistsError, IsDirectoryError, NotDirectoryError,
    UncommittedFileError, ConflictError (an entry to be moved or removed has another version by
    now), UnsupportedError (an exchange of a directory in layout `path`), LeaseExpiredError,
    BusyError; ObstructedError if some paths were read before a concurrent
    change, and others after it.
    """
    replaced = [each.path for each in mutations if isinstance(each, ReplaceDirectory)]
    if replaced and not store.keys.by_id:
        mutations = [*mutations, *await _removals(store, mutations, replaced)]
    wanted = list(dict.fromkeys(_paths(mutations, all_parents=store.keys.by_id)))
    since = store.runtime.monotonic()
    found = await _look(store, wanted)
    pinned = store.required_among(found)
    evaluation = _Evaluation(store, found, replaced)
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
        elif isinstance(mutation, ExchangePaths):
            evaluation.exchange(mutation)
        elif isinstance(mutation, Remove):
            evaluation.remove(mutation)
    evaluation.require_places(pinned)
    await evaluation.require_permissions()
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
            case ExchangePaths():
                for path in (mutation.first, mutation.second):
                    if all_parents:
                        yield from _native.ancestors(path)
                    yield path
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
                    seen = entry.without_intent()
                    found.append(Remove(seen, recursive=True, missing_ok=False, is_replaced=True))
    return found


def _need_durable(entry: Entry) -> None:
    """Raise UncommittedFileError for a file whose data is not durable yet."""
    if entry.is_reservation:
        raise UncommittedFileError(
            "the file is still being written and cannot be renamed", path=entry.path
        )


def _is_there(mutation: WriteFile, current: Entry) -> bool:
    """Whether an earlier transaction, perhaps of unknown outcome, has published this data."""
    content = mutation.content
    found = (current.physical, current.size, current.etag) == (
        content.physical,
        content.size,
        content.etag,
    )
    if mutation.source != "adopted":
        return found and current.id == mutation.object_id
    # The same bytes may have been stored again, as another version.
    return found and (not mutation.overwrite or current.checksum == content.checksum)


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
        if isinstance(mutation, ReplaceDirectory) and not self._is_replaced(mutation.path):
            self._store.refuse_read_only(there)
        self._need_directory(mutation.path)

    def write(self, mutation: WriteFile) -> None:
        path, current = mutation.path, self._found[mutation.path]
        same = current is not None and current.id == mutation.object_id
        if current is not None and _is_there(mutation, current):
            return
        if mutation.source != "adopted":
            require_unexpired(mutation.lease_ms, self._now, path)
        if mutation.version and not (same and current and current.version == mutation.version):
            raise ConflictError("the file was changed; no changes were applied", path=path)
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
        # A file that is overwritten keeps its attributes, also as another object.
        keeps = current is not None and not self._is_replaced(path)
        base = replace(base, attributes=self._attributes(mutation, current if keeps else None))
        after = base.with_content(
            mutation.content, mtime_ms=self._now, operation=self._store.runtime.uuid()
        )
        operations = [self._operation("update", current if same else None, after)]
        if current is not None and not same:
            operations.append(self._operation("delete", current, None))
        self._change(path, current, after, operations)
        self._count(after)

    def _attributes(self, mutation: WriteFile, kept: Entry | None) -> str:
        """The attributes of a file that is written. `kept`: the file whose attributes it keeps."""
        access, given = self._store.access, mutation.attributes
        if kept is None:
            return access.attributes_of_new(given or "", mutation.path, is_dir=False)
        return kept.attributes if given is None else access.attributes_of_rewritten(given, kept)

    def _is_replaced(self, path: str) -> bool:
        return bool(self._replaced) and not self._replaced.isdisjoint(_native.ancestors(path))

    def move(self, mutation: Move) -> None:
        source = self._unchanged(mutation.source)
        _need_durable(source)
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
        moved, operations, _ = self._store.plan_move(source, mutation.target, parent, None)
        if replaced is not None:
            operations.append(self._operation("delete", replaced, None))
        self._change(source.path, source, None, [])
        self._change(mutation.target, replaced, moved, operations)
        self._count(moved)
        if source.is_dir:
            self.plan.subtrees.append(SubtreeMutation(source, mutation.target))

    def exchange(self, mutation: ExchangePaths) -> None:
        first, second = self._movable(mutation.first), self._movable(mutation.second)
        for entry, other in ((first, second), (second, first)):
            if entry.is_dir and not self._store.keys.by_id:
                raise UnsupportedError(
                    "a directory can be exchanged only in a volume of layout `tree`",
                    path=entry.path,
                )
            moved, operations, _ = self._store.plan_move(
                entry, other.path, self._parent(other.path), None
            )
            self._change(other.path, other, moved, operations)
            self._count(moved)
            if entry.is_dir:
                self.plan.subtrees.append(SubtreeMutation(entry, other.path))

    def _movable(self, path: str) -> Entry:
        """The entry at a path, whose data is durable."""
        entry = self._found[path]
        if entry is None:
            raise PathNotFoundError("no such file or directory", path=path)
        _need_durable(entry)
        return entry

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

    def require_places(self, pinned: list[Directory]) -> None:
        """In layout `tree`: store the directories above all changes in the plan. Raises
        ObstructedError if some were read before a concurrent change, and others after it. `pinned`:
        what layout `path` requires, whose directories keep no children when they are moved."""
        if not self._store.keys.by_id:
            self.plan.required = pinned
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

    async def require_permissions(self) -> None:
        """Check what the identity may do, by the change of each path. Of a directory that is
        replaced, the removal counts, and not what the transaction puts there."""
        access, changes = self._store.access, self.plan.changes
        if not access.is_enforced:
            return
        trees = {each.source.path for each in self.plan.subtrees if self._removes_tree(each)}
        for path in sorted(trees | self._replaced):
            entry = changes[path].before if path in changes else self._found[path]
            if entry is not None and entry.is_dir and not self._is_replaced_above(path):
                await access.permit_tree_removal(entry)
        for path, change in changes.items():
            if path not in trees and not self._is_replaced(path):
                await self._require_permission(change)

    @staticmethod
    def _removes_tree(subtree: SubtreeMutation) -> bool:
        return not subtree.target and not subtree.must_be_empty

    def _is_replaced_above(self, path: str) -> bool:
        return not self._replaced.isdisjoint(_native.ancestors(path))

    async def _require_permission(self, change: Change) -> None:
        access, before, after = self._store.access, change.before, change.after
        if after is None:
            assert before is not None
            await access.permit_removal(before)
        elif before is None:
            if _native.split(change.path)[0] not in self._made():
                await access.permit_creation(change.path)
        elif before.id == after.id:
            access.permit_change(before, after)
        elif change.operations[0].kind == "rename":
            await access.permit_removal(before)
        else:
            access.require(before, WRITE)

    def _made(self) -> set[str]:
        """The directories that the transaction creates, which belong to the identity."""
        return {
            path
            for path, change in self.plan.changes.items()
            if change.operations and change.operations[0].kind == "create"
        }

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
        if not self._is_replaced(path):
            self._store.refuse_read_only(before)
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
