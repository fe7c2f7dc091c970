"""The volume against the dictionary: random calls of two clients, deaths, lost answers and refusals
among them.

After an interruption there are several trees that may be there; what is seen next decides between
them, and nothing may decide otherwise later.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar, cast

from hypothesis import note
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule

from s3k_async import S3kClient
from s3k_async.config import VolumeConfig
from s3k_async.errors import (
    OutcomeUnknownError,
    PartialFailureError,
    ResponseLostError,
    S3kError,
    ServiceError,
    UploadNotFoundError,
)
from s3k_async.files.multipart import create_upload
from s3k_async.files.open_files import FileReader, FileWriter
from s3k_async.model import Feature
from s3k_async.testing import Died
from s3k_async.txn.bucket_totals import BucketTotal
from tests.torture.histories_places import apply_in_tree, locate
from tests.torture.model import (
    Answer,
    Append,
    Commit,
    Compact,
    Concat,
    Copy,
    Delete,
    Early,
    Exchange,
    File,
    Label,
    MakeDirectory,
    Node,
    Operation,
    Outcome,
    Refusal,
    Rename,
    Reserve,
    Reserved,
    Touch,
    Tree,
    Truncate,
    Write,
    WriteRange,
    ancestors,
    below,
    expire,
    is_below,
    matches,
    parent_of,
)
from tests.torture.model_lists import (
    DeleteMany,
    Find,
    Form,
    Glob,
    Kind,
    List,
    Read,
    ReadMany,
    ReadRanges,
    RenameMany,
    Stat,
    StatMany,
    Summary,
    Walk,
    WriteMany,
)
from tests.torture.model_transactions import Transact, paths_of
from tests.torture.model_uploads import (
    Abort,
    Complete,
    CopyPart,
    ListUploads,
    PutPart,
    Uploading,
)
from tests.torture.model_volume import EVER, LEASE, Member, ModelVolume, calm, dying, failing

__all__ = ["RepairedMachine", "TreeMachine", "VolumeMachine"]

T = TypeVar("T")

NAMES = ("a", "b", "ab", "é:")
DATA = (b"", b"x", b"two" * 11, b"parts" * 80)
TRANSACTION_LEASE = 100.0
"""Seconds after which the transaction of a killed client blocks no other client."""
RECOVERABLE = frozenset(
    {
        "interrupted_change",
        "log_pending",
        "stale_transaction",
        "stale_intent",
        "reservation_expired",
        "orphan_data",
        "log_missing",
    }
)
"""What interruptions may leave for fsck to finish."""
MOST_STATES = 256

paths = st.lists(st.sampled_from(NAMES), min_size=1, max_size=3).map(
    lambda names: "/" + "/".join(names)
)
some_paths = st.lists(paths, min_size=1, max_size=4).map(tuple)
data = st.sampled_from(DATA)
flags = st.booleans()
who = st.integers(0, 1)
number = st.integers(1, 14)
part_numbers = st.integers(0, 2)

writes = st.builds(Write, st.just(0), paths, data, flags)
touches = st.builds(Touch, st.just(0), paths)
appends = st.builds(Append, st.just(0), paths, data, flags)
in_place: st.SearchStrategy[WriteRange | Truncate] = st.one_of(
    st.builds(WriteRange, st.just(0), paths, st.sampled_from([0, 1, 40, 400]), data),
    st.builds(Truncate, st.just(0), paths, st.sampled_from([0, 1, 33, 500])),
)
labels = st.builds(Label, st.just(0), paths, flags)
compactions = st.builds(Compact, st.just(0), paths, flags)
concats = st.builds(Concat, st.just(0), paths, st.lists(paths, min_size=1, max_size=2).map(tuple))
directories = st.builds(MakeDirectory, st.just(0), paths, flags)
deletions = st.builds(Delete, st.just(0), paths, flags, flags)
renames = st.builds(Rename, st.just(0), paths, paths, flags)
plainly: st.SearchStrategy[Rename | Delete] = st.one_of(
    st.builds(Rename, st.just(0), paths, paths, flags, st.just(False)),
    st.builds(Delete, st.just(0), paths, st.just(True), flags, st.just(False)),
)
exchanges = st.builds(Exchange, st.just(0), paths, paths)
copies = st.builds(Copy, st.just(0), paths, paths, flags, flags)
lists_of_files = st.builds(
    WriteMany,
    st.just(0),
    st.lists(st.tuples(paths, data), min_size=1, max_size=3).map(tuple),
    flags,
)
lists_of_pairs = st.builds(
    RenameMany,
    st.just(0),
    st.lists(st.tuples(paths, paths), min_size=1, max_size=3).map(tuple),
    flags,
    flags,
)
lists_to_delete = st.builds(DeleteMany, st.just(0), some_paths, flags, flags)
steps = st.one_of(
    st.builds(Write, st.just(0), paths, data, flags),
    st.builds(Delete, st.just(0), paths, flags, flags),
    st.builds(Rename, st.just(0), paths, paths, flags),
    st.builds(MakeDirectory, st.just(0), paths),
)
transactions = st.builds(
    Transact,
    st.just(0),
    st.lists(steps, min_size=1, max_size=3).map(tuple),
    by_record=flags,
    staged=flags,
)
changes: st.SearchStrategy[Any] = st.one_of(
    transactions,
    writes,
    touches,
    appends,
    in_place,
    labels,
    concats,
    compactions,
    directories,
    deletions,
    renames,
    exchanges,
    st.builds(Copy, st.just(0), paths, paths, flags),
    lists_of_files,
    lists_of_pairs,
    lists_to_delete,
)


def entangled(named: Iterable[str]) -> bool:
    """Whether one of several paths lies below another: what a list of both leads to depends on
    their order."""
    named = list(named)
    return any(above in named for path in named for above in [*ancestors(path), "/"] if path != "/")


@dataclass
class Writing:
    """A file that somebody has open for writing."""

    member: Member
    writer: FileWriter
    path: str
    opened: int
    seen: Node
    """What it replaces; None if it reserved the path."""
    data: bytes = b""
    expired: bool = False


@dataclass
class Reading:
    """A file that somebody has open for reading."""

    member: Member
    reader: FileReader
    data: bytes
    """The content when it was opened, beyond what was read."""


def commit(writing: Writing, stamp: int) -> Commit:
    return Commit(
        stamp,
        writing.path,
        writing.data,
        writing.seen,
        writing.writer,
        writing.opened,
        writing.expired,
    )


def distinct(trees: Iterable[Tree]) -> list[Tree]:
    found: list[Tree] = []
    for tree in trees:
        if tree not in found:
            found.append(tree)
    assert len(found) <= MOST_STATES
    return found


class VolumeMachine(RuleBasedStateMachine):
    """Rules over a volume that a subclass chooses."""

    features: Sequence[Feature] = ()

    def new_config(self) -> VolumeConfig:
        raise NotImplementedError

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.volume = ModelVolume(self.new_config(), self.features)
        self.states: list[Tree] = [{}]
        self.writing: list[Writing] = []
        self.reading: list[Reading] = []
        self.uploads: list[Uploading] = []
        self.stamps = 0
        self.interrupted = self.unresolved = False
        self.do(self.volume.start())
        self.members = [self.do(self.volume.join()) for _ in range(2)]

    def teardown(self) -> None:
        try:
            try:
                self.whole_tree(0)
            finally:
                for member in self.members:
                    self.do(member.close())
            self.do(self.volume.lose_table())
        finally:
            self.do(self.volume.drop())
            self.runner.close()

    # How a call is made, and what is learnt from it

    def do(self, work: Awaitable[T]) -> T:
        async def awaited() -> T:
            return await work

        return self.runner.run(awaited())

    def fresh(self, operation: T) -> T:
        """The operation with a stamp of its own."""
        self.stamps += 1
        return cast(T, replace(cast(Any, operation), stamp=self.stamps))

    async def told(self, operation: Operation, fs: S3kClient) -> Outcome:
        try:
            return await operation.run(fs)
        except S3kError as error:
            return type(error)

    def call(self, operation: Operation, member: int) -> None:
        """Make a call; its outcome is one that the model gives."""
        self.learn(operation, self.do(self.told(operation, self.members[member].fs)))

    def learn(self, operation: Operation, outcome: Outcome) -> None:
        left = []
        expected = [self.applied(operation, tree) for tree in self.states]
        for tree, result in zip(self.states, expected, strict=True):
            if isinstance(result, Refusal):
                left += [tree] if matches(result, outcome) else []
            elif matches(result.value, outcome):
                left.append(result.tree)
        assert left, (
            f"{operation}\n  answered {outcome}\n  expected {expected}\n  with {self.states}"
        )
        self.states = distinct(left)

    def applied(self, operation: Operation, tree: Tree) -> Answer | Refusal:
        """The result of the operation and the tree after it, in the layout of the volume."""
        return operation.apply(tree)

    def discarded(self, writing: Commit, tree: Tree) -> Tree:
        """The tree without the reservation of a file that is not published."""
        return writing.discarded(tree)

    def between(self, operation: Operation, *, happened: bool = True) -> None:
        """The operation was interrupted: it is done, not done, or half done as far as that is
        allowed."""
        trees: list[Tree] = []
        for tree in self.states:
            trees += [tree, *operation.leftovers(tree)]
            result = self.applied(operation, tree)
            if happened and not isinstance(result, Refusal):
                trees.append(result.tree)
        self.states = distinct(trees)
        self.interrupted = self.unresolved = True

    def agreed(self, path: str) -> bool:
        """Whether it is certain what is at a path."""
        return all(
            tree.get(path, "none") == self.states[0].get(path, "none") for tree in self.states
        )

    async def seen(self, member: Member) -> dict[str, object]:
        """Everything that a client sees, with the bytes and labels of the files. A search finds
        what the listing shows."""
        found: dict[str, object] = {}
        labelled = set()
        async for status in member.fs.list("/", recursive=True, include_uncommitted=True):
            assert status.path not in found, f"{status.path} twice"
            label = status.attributes.metadata.get(Label.NAME, b"")
            content = (
                (await member.fs.read(status.path), label)
                if status.is_file and status.committed
                else Reserved(0)
            )
            found[status.path] = None if status.is_dir else content
            if label:
                labelled.add(status.path)
        searched = [status.path async for status in member.fs.find(metadata=Label.NAME)]
        assert sorted(searched) == sorted(labelled)
        return found

    def decide(self, member: int) -> None:
        """Look at everything: what is there is one of the trees that may be, and every entry has
        its parents."""
        found = self.do(self.seen(self.members[member]))
        left = [tree for tree in self.states if shown(tree) == found]
        assert left, f"seen {found}\n  expected {[shown(tree) for tree in self.states]}"
        self.states = left

    def recover(self) -> None:
        """After an interruption: what is seen at once is what is there for good."""
        self.decide(0)
        self.call(List("/", recursive=True, form="sorted", uncommitted=True), 1)
        self.volume.clock.advance(TRANSACTION_LEASE)
        self.whole_tree(1)

    # Changes

    @rule(operation=writes, member=who)
    def write(self, operation: Write, member: int) -> None:
        self.call(self.fresh(operation), member)

    @rule(operation=touches, member=who)
    def touch(self, operation: Touch, member: int) -> None:
        self.call(self.fresh(operation), member)

    @rule(operation=appends, member=who)
    def append(self, operation: Append, member: int) -> None:
        self.call(self.fresh(operation), member)

    @rule(choice=st.data(), data=data, by_file=flags, member=who)
    def append_to_what_is_there(
        self, choice: st.DataObject, data: bytes, by_file: bool, member: int
    ) -> None:
        path = choice.draw(st.sampled_from(["/a", *self.states[0]]))
        self.append(Append(0, path, data, by_file), member)

    @rule(operation=in_place, member=who)
    def change_in_place(self, operation: WriteRange | Truncate, member: int) -> None:
        self.call(self.fresh(operation), member)

    @rule(choice=st.data(), operation=in_place, member=who)
    def change_what_is_there(
        self, choice: st.DataObject, operation: WriteRange | Truncate, member: int
    ) -> None:
        path = choice.draw(st.sampled_from(["/a", *self.states[0]]))
        self.change_in_place(replace(operation, path=path), member)

    @rule(operation=labels, member=who)
    def label(self, operation: Label, member: int) -> None:
        self.call(self.fresh(operation), member)

    @rule(choice=st.data(), removes=flags, member=who)
    def label_what_is_there(self, choice: st.DataObject, removes: bool, member: int) -> None:
        path = choice.draw(st.sampled_from(["/a", *self.states[0]]))
        self.label(Label(0, path, removes), member)

    @rule(operation=compactions, member=who)
    def compact(self, operation: Compact, member: int) -> None:
        if not self.is_open(operation.path):
            self.call(self.fresh(operation), member)

    @rule(choice=st.data(), whole=flags, member=who)
    def compact_what_is_there(self, choice: st.DataObject, whole: bool, member: int) -> None:
        path = choice.draw(st.sampled_from(["/a", *self.states[0]]))
        self.compact(Compact(0, path, whole), member)

    def is_open(self, path: str) -> bool:
        """Whether somebody may be replacing the file at the path: a compaction that changes it, and
        one that has nothing to do, differ for the writer only."""
        return any(
            isinstance(node := tree.get(path), File) and node == writing.seen
            for tree in self.states
            for writing in self.writing
        )

    @rule(operation=concats, member=who)
    def concat(self, operation: Concat, member: int) -> None:
        self.call(self.fresh(operation), member)

    @rule(choice=st.data(), member=who)
    def concat_what_is_there(self, choice: st.DataObject, member: int) -> None:
        there = st.sampled_from(["/a", *self.states[0]])
        self.concat(Concat(0, choice.draw(there), (choice.draw(there),)), member)

    @rule(operation=directories, member=who)
    def makedirs(self, operation: MakeDirectory, member: int) -> None:
        self.call(self.fresh(operation), member)

    @rule(operation=deletions, member=who)
    def delete(self, operation: Delete, member: int) -> None:
        self.call(self.fresh(operation), member)

    @rule(member=who)
    def delete_the_root(self, member: int) -> None:
        self.call(Delete(0, "/", recursive=True), member)

    @rule(operation=renames, member=who)
    def rename(self, operation: Rename, member: int) -> None:
        self.call(self.fresh(operation), member)

    @rule(choice=st.data(), to=paths, overwrite=flags, member=who)
    def rename_what_is_there(
        self, choice: st.DataObject, to: str, overwrite: bool, member: int
    ) -> None:
        source = choice.draw(st.sampled_from(["/", *self.states[0]]))
        self.call(self.fresh(Rename(0, source, to, overwrite)), member)

    @rule(choice=st.data(), name=st.sampled_from(NAMES), member=who)
    def rename_to_and_fro(self, choice: st.DataObject, name: str, member: int) -> None:
        source = choice.draw(st.sampled_from(["/a", *self.states[0]]))
        target = f"/{name}"
        self.call(self.fresh(Rename(0, source, target)), member)
        self.call(self.fresh(Rename(0, target, source)), 1 - member)

    @rule(operation=exchanges, member=who)
    def exchange(self, operation: Exchange, member: int) -> None:
        if self.may_be_interrupted(operation):
            self.call(self.fresh(operation), member)

    @rule(choice=st.data(), member=who)
    def exchange_what_is_there(self, choice: st.DataObject, member: int) -> None:
        there = st.sampled_from(["/", *self.states[0]])
        self.exchange(Exchange(0, choice.draw(there), choice.draw(there)), member)

    @rule(operation=plainly, member=who, lost=st.integers(0, 14))
    def change_entry_by_entry(self, operation: Rename | Delete, member: int, lost: int) -> None:
        """Not `atomic`: alone it does the same. An answer may be lost; death half-way is for the
        crash rig."""
        if self.is_being_written_below(operation):
            return  # all but what is being written is moved then
        faults = self.members[member].faults
        if lost:
            failing(faults, lost, ResponseLostError("lost"), after=True, times=1)
        self.call(self.fresh(operation), member)
        self.do(self.members[member].volume.log.drained())
        calm(faults)

    def is_being_written_below(self, operation: Rename | Delete) -> bool:
        """Whether somebody may have reserved a path below the directory that is renamed."""
        if isinstance(operation, Delete):
            return False
        inside = (tree[path] for tree in self.states for path in below(tree, operation.source))
        return any(isinstance(node, Reserved) and not node.expired for node in inside)

    @rule(operation=copies, member=who)
    def copy(self, operation: Copy, member: int) -> None:
        if not is_below(
            operation.source, operation.target
        ):  # into what is being walked: as much as it meets
            self.call(self.fresh(operation), member)

    @rule(operation=lists_of_files, member=who)
    def write_many(self, operation: WriteMany, member: int) -> None:
        if not entangled(path for path, _ in operation.files):
            self.call(self.fresh(operation), member)

    @rule(operation=lists_of_pairs, member=who)
    def rename_many(self, operation: RenameMany, member: int) -> None:
        if not entangled(path for pair in operation.pairs for path in pair):
            self.call(self.fresh(operation), member)

    @rule(operation=lists_to_delete, member=who)
    def delete_many(self, operation: DeleteMany, member: int) -> None:
        self.call(self.fresh(operation), member)

    @rule(operation=transactions, member=who)
    def transaction(self, operation: Transact, member: int) -> None:
        if self.may_be_interrupted(operation):
            self.call(self.fresh(operation), member)

    # Files that are being written

    @rule(path=paths, exclusive=flags, member=who)
    def open(self, path: str, exclusive: bool, member: int) -> None:
        if not self.agreed(path):
            return
        there = self.states[0].get(path)
        operation = self.fresh(Reserve(0, path, exclusive))
        replaces = (
            there
            if there is not None and there != Reserved(getattr(there, "stamp", 0), True)
            else None
        )
        outcome = self.do(self.told(operation, self.members[member].fs))
        if isinstance(outcome, FileWriter):
            self.writing.append(
                Writing(self.members[member], outcome, path, operation.stamp, replaces)
            )
            outcome = None
        self.learn(operation, outcome)

    @precondition(lambda self: self.writing)
    @rule(choice=st.data(), content=data)
    def write_more(self, choice: st.DataObject, content: bytes) -> None:
        writing = choice.draw(st.sampled_from(self.writing))
        assert self.do(writing.writer.write(content)) == len(content)
        writing.data += content

    @precondition(lambda self: self.writing)
    @rule(choice=st.data())
    def commit(self, choice: st.DataObject) -> None:
        writing = choice.draw(st.sampled_from(self.writing))
        self.writing.remove(writing)
        operation = commit(writing, self.fresh(Touch(0, "/")).stamp)
        outcome = self.do(self.told(operation, writing.member.fs))
        self.learn(operation, outcome)
        if outcome is not None:
            self.states = distinct(self.discarded(operation, tree) for tree in self.states)

    @precondition(lambda self: self.writing)
    @rule(choice=st.data())
    def discard(self, choice: st.DataObject) -> None:
        self.drop(choice.draw(st.sampled_from(self.writing)))

    def drop(self, writing: Writing) -> None:
        self.writing.remove(writing)
        self.do(writing.writer.discard())
        assert writing.writer.closed
        self.states = distinct(self.discarded(commit(writing, 0), tree) for tree in self.states)

    # Files that are being read

    @rule(choice=st.data(), member=who)
    def open_to_read(self, choice: st.DataObject, member: int) -> None:
        path = choice.draw(st.sampled_from(["/a", *self.states[0]]))
        node = self.states[0].get(path)
        if not self.agreed(path) or not isinstance(node, File) or isinstance(node, Early):
            return

        async def opened(fs: S3kClient) -> FileReader:
            return await fs.open(path)

        reader = self.do(opened(self.members[member].fs))
        self.reading.append(Reading(self.members[member], reader, node.data))

    @precondition(lambda self: self.reading)
    @rule(choice=st.data(), size=st.sampled_from((1, 30, 500)))
    def read_more(self, choice: st.DataObject, size: int) -> None:
        """Of the version that was opened, whatever became of the file."""
        reading = choice.draw(st.sampled_from(self.reading))
        expected, reading.data = reading.data[:size], reading.data[size:]
        assert self.do(reading.reader.read(size)) == expected
        if not reading.data:
            self.close_readers(lambda each: each is reading)

    def close_readers(self, is_closed: Callable[[Reading], bool]) -> None:
        for reading in [each for each in self.reading if is_closed(each)]:
            self.reading.remove(reading)
            self.do(reading.reader.close())

    # Looks

    @rule(path=paths, member=who, streamed=flags)
    def read(self, path: str, member: int, streamed: bool) -> None:
        self.call(Read(path, streamed), member)

    @rule(
        path=paths,
        ranges=st.lists(st.tuples(st.integers(0, 9), st.integers(9, 420)), max_size=3),
        member=who,
    )
    def read_ranges(self, path: str, ranges: Sequence[tuple[int, int]], member: int) -> None:
        self.call(ReadRanges(path, tuple(ranges)), member)

    @rule(named=some_paths, member=who, each=flags)
    def read_many(self, named: tuple[str, ...], member: int, each: bool) -> None:
        self.call(ReadMany(named, each), member)

    @rule(path=st.one_of(paths, st.just("/")), member=who)
    def stat(self, path: str, member: int) -> None:
        self.call(Stat(path), member)
        self.call(Kind(path), member)

    @rule(named=some_paths, member=who)
    def stat_many(self, named: tuple[str, ...], member: int) -> None:
        self.call(StatMany((*named, "/")), member)

    @rule(
        path=st.one_of(paths, st.just("/")),
        recursive=flags,
        form=st.sampled_from(("plain", "sorted", "batches")),
        uncommitted=flags,
        member=who,
    )
    def list_(self, path: str, recursive: bool, form: Form, uncommitted: bool, member: int) -> None:
        self.call(List(path, recursive, form, uncommitted), member)

    @rule(path=st.one_of(paths, st.just("/")), member=who)
    def walk(self, path: str, member: int) -> None:
        self.call(Walk(path), member)

    @rule(
        path=st.one_of(paths, st.just("/")),
        pattern=st.sampled_from(("*", "a*", "?", "[ab]")),
        kind=st.sampled_from((None, "file", "directory")),
        min_size=st.sampled_from((None, 0, 2)),
        member=who,
    )
    def find(self, path: str, pattern: str, kind: Any, min_size: int | None, member: int) -> None:
        self.call(Find(path, pattern, kind, min_size), member)

    @rule(
        pattern=st.lists(st.sampled_from(("*", "a", "a*", "?", "b")), min_size=1, max_size=3),
        member=who,
    )
    def glob(self, pattern: Sequence[str], member: int) -> None:
        self.call(Glob("/" + "/".join(pattern)), member)

    @rule(path=st.one_of(paths, st.just("/")), member=who)
    def content_summary(self, path: str, member: int) -> None:
        self.call(Summary(path), member)

    @rule(member=who)
    def whole_tree(self, member: int) -> None:
        """What the listing says is what the table holds, and the bytes are there."""
        self.decide(member)
        scanned = self.do(self.volume.scanned(self.members[member]))
        if self.unresolved:
            # Entries with an intent of an interrupted transaction are hidden or removed until a
            # client needs them.
            scanned = {
                path: entry
                for path, entry in scanned.items()
                if path in self.states[0] or not entry.pending
            }
        assert scanned.keys() == self.states[0].keys(), (
            "the table holds what cannot be reached from the root"
        )
        assert all(parent_of(path) == "/" or scanned[parent_of(path)].is_dir for path in scanned)
        assert len({entry.id for entry in scanned.values()}) == len(scanned), "an id twice"
        counters = self.members[member].volume.store.changes.counters
        if counters is not None:
            for bucket, total in totals_of(self.states[0]).items():
                found = self.do(counters.total(bucket))
                # fsck may have repaired what it cannot count
                if found is None:
                    assert self.interrupted, f"bucket {bucket}"
                else:
                    assert replace(found, newest_ms=None) == total, f"bucket {bucket}"

    # Interruptions

    @rule(operation=changes, at=number, after=flags, member=who)
    def die(self, operation: Operation, at: int, after: bool, member: int) -> None:
        """The client is killed at a call; another takes its place."""
        if not self.may_be_interrupted(operation):
            return
        operation = self.fresh(operation)
        outcome = self.told_before_death(operation, at, after, member)
        if outcome is Died:
            self.between(operation)
        else:
            self.learn(operation, outcome)
            self.interrupted = self.unresolved = True
        self.recover()

    @rule(choice=st.data(), at=st.integers(1, 9), after=flags, member=who)
    def die_exchanging(self, choice: st.DataObject, at: int, after: bool, member: int) -> None:
        """Both paths are exchanged, or neither is."""
        self.die(self.exchange_of_files(choice, member), at, after, member)

    @rule(choice=st.data(), at=st.integers(1, 9), after=flags, member=who)
    def lose_all_answers_exchanging(
        self, choice: st.DataObject, at: int, after: bool, member: int
    ) -> None:
        self.lose_all_answers(self.exchange_of_files(choice, member), at, after, member)

    def exchange_of_files(self, choice: st.DataObject, member: int) -> Exchange:
        """Of two that are there; if one is missing, it is written before."""
        if sum(isinstance(node, File) for node in self.states[0].values()) < 2:
            self.write(Write(0, choice.draw(paths), b"one more"), member)
        files = [path for path, node in self.states[0].items() if isinstance(node, File)]
        first = choice.draw(st.sampled_from(files or ["/a"]))
        others = [path for path in files if path != first]
        return Exchange(0, first, choice.draw(st.sampled_from(others or ["/b"])))

    def told_before_death(self, operation: Operation, at: int, after: bool, member: int) -> Outcome:
        """The client is killed at a call, and another takes its place. What its caller was told;
        Died if nothing."""
        dead = self.members[member]
        dying(dead.faults, at, after=after)
        try:
            outcome = self.do(self.told(operation, dead.fs))
        except Died:
            note(f"died at call {at}")
            outcome = Died
        self.reading = [each for each in self.reading if each.member is not dead]
        self.do(dead.die())
        self.writing = [writing for writing in self.writing if writing.member is not dead]
        self.members[member] = self.do(self.volume.join())
        return outcome

    @rule(operation=changes, at=number, after=flags, times=st.integers(1, 2), member=who)
    def lose_answers(
        self, operation: Operation, at: int, after: bool, times: int, member: int
    ) -> None:
        """Some answers are lost, and nobody hears of it."""
        operation = self.fresh(operation)
        if not self.may_be_interrupted(operation):
            return
        faults = self.members[member].faults
        failing(faults, at, ResponseLostError("lost"), after=after, times=times)
        self.call(operation, member)
        self.do(self.members[member].volume.log.drained())
        calm(faults)

    @rule(operation=changes, at=number, after=flags, member=who)
    def lose_all_answers(self, operation: Operation, at: int, after: bool, member: int) -> None:
        self.cut_off(operation, at, ResponseLostError("lost"), after, member)

    @rule(operation=changes, at=number, member=who)
    def refuse_all_calls(self, operation: Operation, at: int, member: int) -> None:
        self.cut_off(operation, at, ServiceError("no", service_code="No"), False, member)

    def may_be_interrupted(self, operation: Operation) -> bool:
        """Whether it is certain what it leads to."""
        if isinstance(operation, Compact) and self.is_open(operation.path):
            return False
        if isinstance(operation, WriteMany) and entangled(path for path, _ in operation.files):
            return False
        if isinstance(operation, Transact):
            named = [path for step in operation.steps for path in paths_of(step)]
            return len(set(named)) == len(named) and not entangled(named)
        if isinstance(operation, RenameMany) and entangled(
            path for pair in operation.pairs for path in pair
        ):
            return False
        if isinstance(operation, Exchange):
            # What a directory takes along while it is being written is for `rename`.
            return not any(
                is_below(writing.path, path)
                for writing in self.writing
                for path in (operation.first, operation.second)
            )
        return not (isinstance(operation, Copy) and is_below(operation.source, operation.target))

    def cut_off(
        self, operation: Operation, at: int, error: S3kError, after: bool, member: int
    ) -> None:
        """From a call on the client reaches nothing; what it says of it agrees with what is
        there."""
        if not self.may_be_interrupted(operation):
            return
        operation = self.fresh(operation)
        outcome = self.told_while_cut_off(operation, at, error, after, member)
        expected = [self.applied(operation, tree) for tree in self.states]
        if any(
            matches(each if isinstance(each, Refusal) else each.value, outcome) for each in expected
        ):
            self.learn(operation, outcome)
            self.interrupted = self.unresolved = True
        else:
            unknown = not isinstance(outcome, type) or issubclass(
                outcome, OutcomeUnknownError | PartialFailureError
            )
            self.between(operation, happened=unknown)
        self.recover()

    def told_while_cut_off(
        self, operation: Operation, at: int, error: S3kError, after: bool, member: int
    ) -> Outcome:
        """From a call on the client reaches nothing, until it was told so."""
        faults = self.members[member].faults
        failing(faults, at, error, after=after, times=EVER)
        outcome = self.do(self.told(operation, self.members[member].fs))
        note(f"cut off at call {at}: {outcome}")
        self.do(self.members[member].volume.log.drained())
        calm(faults)
        return outcome

    # Multipart uploads

    @rule(path=paths, parts=st.dictionaries(part_numbers, data, max_size=2), member=who)
    def start_upload(self, path: str, parts: Mapping[int, bytes], member: int) -> None:
        volume = self.members[member].volume
        upload = self.do(create_upload(volume, path, lifetime=EVER))
        self.uploads.append(Uploading(upload.id, path))
        for number, content in parts.items():
            self.put(self.uploads[-1], number, content, 1 - member)

    def put(self, upload: Uploading, number: int, content: bytes, member: int) -> None:
        self.call(self.fresh(PutPart(0, upload.id, number, content)), member)
        upload.parts[number] = content

    @precondition(lambda self: self.uploads)
    @rule(choice=st.data(), number=part_numbers, content=data, member=who)
    def put_part(self, choice: st.DataObject, number: int, content: bytes, member: int) -> None:
        self.put(choice.draw(st.sampled_from(self.uploads)), number, content, member)

    @precondition(lambda self: self.uploads)
    @rule(choice=st.data(), number=part_numbers, offset=st.sampled_from([0, 1, 40]), member=who)
    def copy_part(self, choice: st.DataObject, number: int, offset: int, member: int) -> None:
        upload = choice.draw(st.sampled_from(self.uploads))
        source = choice.draw(st.sampled_from(["/a", *self.states[0]]))
        node = self.states[0].get(source)
        if not self.agreed(source) or isinstance(node, Early):
            return
        operation = self.fresh(CopyPart(0, upload.id, number, source, offset))
        self.call(operation, member)
        if isinstance(node, File) and offset <= len(node.data):
            upload.parts[number] = node.data[offset:]

    @precondition(lambda self: self.uploads)
    @rule(member=who)
    def list_uploads(self, member: int) -> None:
        found = self.do(self.told(ListUploads(), self.members[member].fs))
        assert found == {each.id: (each.path, each.sizes) for each in self.uploads}

    @precondition(lambda self: self.uploads)
    @rule(choice=st.data(), member=who)
    def complete_upload(self, choice: st.DataObject, member: int) -> None:
        upload = choice.draw(st.sampled_from(self.uploads))
        operation = self.completion(upload)
        outcome = self.do(self.told(operation, self.members[member].fs))
        self.learn(operation, outcome)
        if outcome is None:
            self.end(upload, 1 - member)

    @precondition(lambda self: self.uploads)
    @rule(choice=st.data(), member=who)
    def abort_upload(self, choice: st.DataObject, member: int) -> None:
        upload = choice.draw(st.sampled_from(self.uploads))
        self.call(self.fresh(Abort(0, upload.id)), member)
        self.end(upload, 1 - member)

    def completion(self, upload: Uploading) -> Complete:
        content = upload.data if upload.parts else None
        return self.fresh(Complete(0, upload.path, upload.id, content))

    def end(self, upload: Uploading, member: int) -> None:
        """Its id is invalid from now on."""
        self.uploads.remove(upload)
        late = self.fresh(PutPart(0, upload.id, 0, b"late"))
        assert self.do(self.told(late, self.members[member].fs)) is UploadNotFoundError

    @rule(
        choice=st.data(),
        verb=st.sampled_from(("put", "complete", "complete", "abort")),
        how=st.sampled_from(("dies", "hears nothing", "reaches nothing")),
        at=number,
        after=flags,
        member=who,
    )
    def interrupt_upload(
        self, choice: st.DataObject, verb: str, how: str, at: int, after: bool, member: int
    ) -> None:
        """A verb of an upload happened, or not: the file is published if and only if the upload is
        over."""
        if not self.uploads:
            self.start_upload(choice.draw(paths), {0: DATA[1], 2: DATA[3]}, member)
        upload = choice.draw(st.sampled_from(self.uploads))
        part = PutPart(0, upload.id, choice.draw(part_numbers), choice.draw(data))
        operations: dict[str, PutPart | Complete | Abort] = {
            "put": self.fresh(part),
            "complete": self.completion(upload),
            "abort": self.fresh(Abort(0, upload.id)),
        }
        operation = operations[verb]
        if how == "dies":
            outcome = self.told_before_death(operation, at, after, member)
        elif how == "hears nothing":
            lost = ResponseLostError("lost")
            outcome = self.told_while_cut_off(operation, at, lost, after, member)
        else:
            refused = ServiceError("no", service_code="No")
            outcome = self.told_while_cut_off(operation, at, refused, False, member)
        self.interrupted = self.unresolved = True
        is_certain = outcome is not Died and not (
            outcome is not None and issubclass(outcome, OutcomeUnknownError)
        )
        found = self.do(self.told(ListUploads(), self.members[member].fs))
        if isinstance(operation, PutPart):
            self.decide_part(upload, operation, found[upload.id][1], outcome, is_certain)
        else:
            self.decide_end(upload, operation, upload.id in found, outcome, is_certain)
        self.recover()

    def decide_part(
        self,
        upload: Uploading,
        part: PutPart,
        found: Mapping[int, int],
        outcome: Outcome,
        is_certain: bool,
    ) -> None:
        """The upload has the part, or what it had before."""
        before, after = upload.sizes, {**upload.sizes, part.number: len(part.data)}
        if is_certain:
            assert found == (after if outcome is None else before)
        assert found in (before, after)
        if before == after:
            self.put(upload, part.number, part.data, 0)
        elif found == after:
            upload.parts[part.number] = part.data

    def decide_end(
        self,
        upload: Uploading,
        operation: Complete | Abort,
        is_open: bool,
        outcome: Outcome,
        is_certain: bool,
    ) -> None:
        """The upload is over, and its file published unless it was aborted, or neither."""
        if outcome is None:
            assert not is_open
        if is_certain and outcome is not None and isinstance(operation, Complete):
            assert is_open
        results = [self.applied(operation, tree) for tree in self.states]
        if is_open:
            self.states = distinct(
                grown for tree in self.states for grown in (tree, *operation.leftovers(tree))
            )
        else:
            self.states = distinct(
                result.tree for result in results if not isinstance(result, Refusal)
            )
            assert self.states
            if isinstance(operation, Abort):  # the rest of it may be left
                self.do(self.told(operation, self.members[0].fs))
            self.end(upload, 0)

    # Time and clients

    @rule()
    def leases_run_out(self) -> None:
        """Reservations may be taken over, and who made them publishes nothing."""
        self.volume.clock.advance(2 * LEASE)
        self.states = distinct(expire(tree) for tree in self.states)
        for writing in self.writing:
            writing.expired = True

    @rule(seconds=st.sampled_from((0.001, 1.0, 600.0)))
    def time_passes(self, seconds: float) -> None:
        self.volume.clock.advance(seconds)

    @rule(member=who)
    def reopen(self, member: int) -> None:
        """What a client was writing when it is closed is not published."""
        closing = self.members[member]
        self.close_readers(lambda each: each.member is closing)
        self.do(closing.close())
        self.members[member] = self.do(self.volume.join())
        for writing in [each for each in self.writing if each.member is closing]:
            self.writing.remove(writing)
            self.states = distinct(self.discarded(commit(writing, 0), tree) for tree in self.states)


class RepairedMachine(VolumeMachine):
    """With the operator's tools, which support only layout `path` so far."""

    @rule(member=who)
    def verify(self, member: int) -> None:
        """fsck finds nothing, apart from what interruptions have left."""
        for each in self.members:
            self.do(each.volume.log.drained())
        findings = self.do(self.volume.findings(self.members[member]))
        allowed = set(RECOVERABLE) if self.interrupted else set()
        if any(isinstance(node, Reserved) and node.expired for node in self.states[0].values()):
            allowed.add("reservation_expired")
        assert [finding for finding in findings if finding.kind not in allowed] == []

    @rule(member=who)
    def repair(self, member: int) -> None:
        """Nothing that a client sees is changed, reservations that ran out are removed, and then
        fsck finds nothing but bytes that nobody names."""
        if self.interrupted:
            for writing in list(self.writing):  # an entry that is logged anew has another version
                self.drop(writing)
        for each in self.members:
            self.do(each.volume.log.drained())
        self.do(self.volume.repaired(self.members[member]))
        self.states = distinct(without_expired(tree) for tree in self.states)
        self.unresolved = False
        self.whole_tree(member)
        findings = self.do(self.volume.findings(self.members[member]))
        assert [
            finding for finding in findings if not self.interrupted or finding.kind != "orphan_data"
        ] == []

    @rule(member=who)
    def collect_garbage(self, member: int) -> None:
        """No byte of a file is collected."""
        self.close_readers(lambda _: True)  # what they read may be garbage by then
        for each in self.members:
            self.do(each.volume.log.drained())
        self.do(self.volume.collected(self.members[member]))
        self.states = distinct([*self.states, *(without_expired(tree) for tree in self.states)])
        self.whole_tree(1 - member)


class TreeMachine(VolumeMachine):
    """A volume of layout `tree`."""

    def applied(self, operation: Operation, tree: Tree) -> Answer | Refusal:
        return InTree(operation).apply(tree)

    def discarded(self, writing: Commit, tree: Tree) -> Tree:
        placed = locate(writing, tree)
        assert isinstance(placed, Commit)
        return placed.discarded(tree)


@dataclass(frozen=True)
class InTree:
    """An operation as it is in layout `tree`: a renamed directory takes reservations along."""

    operation: Operation

    def apply(self, tree: Tree) -> Answer | Refusal:
        if isinstance(self.operation, RenameMany | Transact):
            return self.operation.apply(tree, InTree)
        if isinstance(self.operation, Exchange):
            return replace(self.operation, directories=True).apply(tree)
        result = apply_in_tree(self.operation, tree, ())
        return result if isinstance(result, Refusal) else Answer(result.value, result.tree)


def totals_of(tree: Tree) -> dict[str, BucketTotal]:
    """What counters have to say of each directory of the root."""
    totals = {path[1:]: BucketTotal() for path in tree if path.count("/") == 1}
    for path, node in tree.items():
        bucket, separator, _ = path[1:].partition("/")
        if separator and isinstance(node, File):
            totals[bucket] += BucketTotal(1, len(node.data))
    return totals


def without_expired(tree: Tree) -> Tree:
    """The tree after what ran out was removed."""
    return {
        path: node
        for path, node in tree.items()
        if not (isinstance(node, Reserved) and node.expired)
    }


def shown(tree: Tree) -> dict[str, object]:
    """The tree as a client sees it."""
    return {
        path: (node.data, node.label)
        if isinstance(node, File)
        else Reserved(0)
        if isinstance(node, Reserved)
        else None
        for path, node in tree.items()
    }
