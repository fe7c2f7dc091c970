"""The filesystem as a dictionary: what each call answers, and what it leaves behind, when it is
alone with a tree.

Written from what the documentation promises, without a look at how it is kept. A tree maps paths to
what is there; the root is not in it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any, ClassVar, Protocol, TypeAlias

from s3k_async import S3kClient
from s3k_async.errors import (
    ConflictError,
    DirectoryNotEmptyError,
    InvalidArgumentError,
    IsDirectoryError,
    LeaseExpiredError,
    NotDirectoryError,
    PartialFailureError,
    PathExistsError,
    PathNotFoundError,
    PermissionDeniedError,
    RenameIntoSelfError,
    S3kError,
    UncommittedFileError,
    UnsupportedError,
)
from s3k_async.files.open_files import FileWriter

__all__ = [
    "Answer",
    "Append",
    "Commit",
    "Compact",
    "Concat",
    "Copy",
    "Delete",
    "Early",
    "Exchange",
    "File",
    "Filling",
    "Label",
    "MakeDirectory",
    "Node",
    "Operation",
    "Outcome",
    "Refusal",
    "Rename",
    "Reserve",
    "Reserved",
    "Touch",
    "Tree",
    "Truncate",
    "Write",
    "WriteRange",
    "abandoned",
    "ancestors",
    "below",
    "expire",
    "fill",
    "is_below",
    "is_directory",
    "matches",
    "parent_of",
    "with_parents",
]


@dataclass(frozen=True, slots=True)
class File:
    """A committed file. `stamp` is the number of the operation that changed it last: the same bytes
    written again, or moved away and back, are another file to whoever has it open."""

    data: bytes
    stamp: int
    label: bytes = b""
    """The value of the metadata `Label.NAME`, empty without one; what changes the bytes keeps it.
    """


@dataclass(frozen=True, slots=True)
class Early(File):
    """A new file that is seen by its path while it is being written, and belongs to no directory
    yet: one that is listed, moved or removed at that time may leave it where it is.
    """


@dataclass(frozen=True, slots=True)
class Reserved:
    """What a writer has put at a new path that it has not published."""

    stamp: int
    expired: bool = False


Node: TypeAlias = File | Reserved | None
"""None is a directory."""
Tree: TypeAlias = Mapping[str, Node]
Outcome: TypeAlias = Any
"""What a caller was told: the class of an error, or a value."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What a call that succeeds answers, and the tree after it."""

    value: Outcome
    tree: Tree


class Refusal(frozenset[type[S3kError]]):
    """The errors any of which is right; nothing changes."""


def matches(expected: Outcome, outcome: Outcome) -> bool:
    """Whether what was told is what was expected: equal, or one of the errors."""
    return outcome in expected if isinstance(expected, Refusal) else bool(outcome == expected)


class Operation(Protocol):
    """One call of a client."""

    async def run(self, fs: S3kClient) -> Outcome:
        """Make the call. Raises what it raises."""

    def apply(self, tree: Tree) -> Answer | Refusal:
        """What it answers and leaves behind."""

    def leftovers(self, tree: Tree) -> Iterator[Tree]:
        """What may be there after it was interrupted, beside the tree as it was and the tree that
        it leads to."""


def parent_of(path: str) -> str:
    return path.rpartition("/")[0] or "/"


def ancestors(path: str) -> list[str]:
    """The directories above a path, the topmost first, without the root."""
    parts = path.strip("/").split("/")
    return ["/" + "/".join(parts[:depth]) for depth in range(1, len(parts))]


def is_below(path: str, directory: str) -> bool:
    """Whether a path is a directory or lies below it."""
    return path == directory or path.startswith("/" if directory == "/" else directory + "/")


def below(tree: Tree, directory: str) -> Iterator[str]:
    """Every path below a directory, itself excluded, but for those of files that belong to no
    directory yet."""
    return (
        path
        for path, node in tree.items()
        if path != directory and is_below(path, directory) and not isinstance(node, Early)
    )


def is_directory(tree: Tree, path: str) -> bool:
    return path == "/" or (path in tree and tree[path] is None)


def with_parents(tree: Tree, path: str) -> Tree | None:
    """The tree with the missing ancestors of a path; None if one of them is a file."""
    above = ancestors(path)
    if any(tree.get(each) is not None for each in above):
        return None
    return {**dict.fromkeys(above), **tree}


def expire(tree: Tree) -> Tree:
    """The tree when every lease has run out."""
    return {
        path: replace(node, expired=True) if isinstance(node, Reserved) else node
        for path, node in tree.items()
    }


def abandoned(tree: Tree, paths: Iterable[str]) -> Iterator[Tree]:
    """The trees without some of the reservations at the paths whose leases have run out, from none
    to all: a writer removes one before it writes there."""
    expired = [
        path for path in paths if isinstance(node := tree.get(path), Reserved) and node.expired
    ]
    for count in range(len(expired) + 1):
        for removed in combinations(expired, count):
            yield {path: node for path, node in tree.items() if path not in removed}


class _Changing:
    """A call that is there or not, apart from parents that it may have made."""

    def leftovers(self, tree: Tree) -> Iterator[Tree]:
        return iter(())


class Filling(ABC):
    """A call that puts something at `path`, whose missing parents come first."""

    stamp: int
    path: str

    @abstractmethod
    def apply(self, tree: Tree) -> Answer | Refusal:
        """As `Operation.apply`."""

    def leftovers(self, tree: Tree) -> Iterator[Tree]:
        grown = with_parents(tree, self.path)
        if grown is not None:
            yield from abandoned(grown, [self.path])

    def early(self, tree: Tree) -> Tree | None:
        """The tree in which a new file is seen by its path, and nowhere else; None if it would be
        none or refused."""
        answer = self.apply(tree)
        if (
            self.path in tree
            or isinstance(answer, Refusal)
            or not isinstance(file := answer.tree[self.path], File)
        ):
            return None
        return {**tree, self.path: Early(file.data, file.stamp, file.label)}


def fill(
    tree: Tree, path: str, node: Node, *, overwrite: bool = True, with_label: bool = False
) -> Tree | Refusal:
    """The tree with a file at the path; one that it replaces leaves it its label, unless it comes
    `with_label`."""
    grown = with_parents(tree, path)
    if path == "/" or is_directory(tree, path):
        return Refusal({IsDirectoryError})
    if grown is None:
        return Refusal({NotDirectoryError})
    there = tree.get(path)
    taken = there is not None and not (isinstance(there, Reserved) and there.expired)
    if taken and not overwrite:
        return Refusal({PathExistsError})
    if isinstance(node, File) and isinstance(there, File) and not with_label:
        node = replace(node, label=there.label)
    return {**grown, path: node}


def answered(tree: Tree | Refusal, value: Outcome = None) -> Answer | Refusal:
    return tree if isinstance(tree, Refusal) else Answer(value, tree)


@dataclass(frozen=True)
class Write(Filling):
    """`write`."""

    stamp: int
    path: str
    data: bytes
    overwrite: bool = True

    async def run(self, fs: S3kClient) -> Outcome:
        status = await fs.write(self.path, self.data, overwrite=self.overwrite)
        assert (status.path, status.size, status.committed) == (self.path, len(self.data), True)

    def apply(self, tree: Tree) -> Answer | Refusal:
        return answered(
            fill(tree, self.path, File(self.data, self.stamp), overwrite=self.overwrite)
        )


@dataclass(frozen=True)
class Touch(Filling):
    """`touch`."""

    stamp: int
    path: str

    async def run(self, fs: S3kClient) -> Outcome:
        await fs.touch(self.path)

    def apply(self, tree: Tree) -> Answer | Refusal:
        there = tree.get(self.path)
        if isinstance(there, Reserved) and not there.expired:
            return Refusal({UncommittedFileError})
        data = there.data if isinstance(there, File) else b""
        return answered(fill(tree, self.path, File(data, self.stamp)))


@dataclass(frozen=True)
class Append(Filling):
    """`append`, and with `by_file` an open file that bytes are added to."""

    stamp: int
    path: str
    data: bytes
    by_file: bool = False

    async def run(self, fs: S3kClient) -> Outcome:
        if not self.by_file:
            status = await fs.append(self.path, self.data)
            assert status.committed
            return
        async with fs.open(self.path, "ab") as file:
            await file.write(self.data)

    def apply(self, tree: Tree) -> Answer | Refusal:
        there = tree.get(self.path)
        if isinstance(there, Reserved) and not there.expired:
            return Refusal({UncommittedFileError})
        if isinstance(there, File) and not self.data:
            return Answer(None, tree)
        before = there.data if isinstance(there, File) else b""
        return answered(fill(tree, self.path, File(before + self.data, self.stamp)))


def changed_in_place(
    tree: Tree, path: str, data: Callable[[bytes], bytes], stamp: int
) -> Tree | Refusal:
    """The tree with other bytes in a file that exists."""
    if is_directory(tree, path):
        return Refusal({IsDirectoryError})
    there = tree.get(path)
    if there is None:
        return Refusal({PathNotFoundError})
    if isinstance(there, Reserved):
        return Refusal({UncommittedFileError})
    # One that is seen early gets its directories by this.
    return {**(with_parents(tree, path) or tree), path: File(data(there.data), stamp, there.label)}


@dataclass(frozen=True)
class WriteRange(_Changing):
    """`write_range`."""

    stamp: int
    path: str
    offset: int
    data: bytes

    async def run(self, fs: S3kClient) -> Outcome:
        await fs.write_range(self.path, self.offset, self.data)

    def apply(self, tree: Tree) -> Answer | Refusal:
        def written(before: bytes) -> bytes:
            head = before[: self.offset].ljust(self.offset, b"\0")
            return head + self.data + before[self.offset + len(self.data) :]

        result = changed_in_place(tree, self.path, written, self.stamp)
        return (
            Answer(None, tree) if not self.data and isinstance(result, dict) else answered(result)
        )


@dataclass(frozen=True)
class Truncate(_Changing):
    """`truncate`."""

    stamp: int
    path: str
    size: int

    async def run(self, fs: S3kClient) -> Outcome:
        assert (await fs.truncate(self.path, self.size)).size == self.size

    def apply(self, tree: Tree) -> Answer | Refusal:
        there = tree.get(self.path)
        if isinstance(there, File) and len(there.data) == self.size:
            return Answer(None, tree)

        def cut(before: bytes) -> bytes:
            return before[: self.size].ljust(self.size, b"\0")

        return answered(changed_in_place(tree, self.path, cut, self.stamp))


@dataclass(frozen=True)
class Concat(_Changing):
    """`concat`, of one file or two to another one."""

    stamp: int
    path: str
    sources: tuple[str, ...]

    async def run(self, fs: S3kClient) -> Outcome:
        await fs.concat(self.path, self.sources)

    def apply(self, tree: Tree) -> Answer | Refusal:
        named = (self.path, *self.sources)
        if len(set(named)) < len(named):
            return Refusal({InvalidArgumentError})
        if any(path != "/" and path not in tree for path in named):
            return Refusal({PathNotFoundError})
        if any(not isinstance(tree.get(path), File) for path in named):
            return Refusal({IsDirectoryError, UncommittedFileError})
        files = [node for path in named if isinstance(node := tree[path], File)]
        joined = b"".join(file.data for file in files)
        left = {path: node for path, node in tree.items() if path not in self.sources}
        return Answer(None, {**left, self.path: File(joined, self.stamp, files[0].label)})


@dataclass(frozen=True)
class Compact(_Changing):
    """`compact`, of a file that is not open for writing: another version, whose bytes are the
    same."""

    stamp: int
    path: str
    whole: bool = False

    async def run(self, fs: S3kClient) -> Outcome:
        before = await fs.stat(self.path)
        after = await fs.compact(self.path, whole=self.whole)
        assert (after.size, after.mtime_ms) == (before.size, before.mtime_ms)

    def apply(self, tree: Tree) -> Answer | Refusal:
        there = tree.get(self.path)
        result = changed_in_place(tree, self.path, lambda data: data, self.stamp)
        return result if isinstance(result, Refusal) else Answer(None, {**tree, self.path: there})


@dataclass(frozen=True)
class Label(_Changing):
    """`set_attributes` of metadata, with a new value, or without one: another version, whose bytes
    are the same. Labels of directories are not kept in a tree."""

    stamp: int
    path: str
    removes: bool = False

    NAME: ClassVar[str] = "label"

    async def run(self, fs: S3kClient) -> Outcome:
        value = self._value() or None
        # A value without meaning for the search makes sure that there is a new version.
        given = {self.NAME: value, "stamp": b"%d" % self.stamp}
        status = await fs.set_attributes(self.path, metadata=given)
        assert status.attributes.metadata.get(self.NAME) == value

    def apply(self, tree: Tree) -> Answer | Refusal:
        if self.path in tree and is_directory(tree, self.path):
            return Answer(None, tree)
        result = changed_in_place(tree, self.path, lambda data: data, self.stamp)
        if isinstance(result, Refusal):
            return result
        file = result[self.path]
        assert isinstance(file, File)
        return Answer(None, {**result, self.path: replace(file, label=self._value())})

    def _value(self) -> bytes:
        return b"" if self.removes else b"%d" % self.stamp


@dataclass(frozen=True)
class MakeDirectory(_Changing):
    """`makedirs`."""

    stamp: int
    path: str
    exist_ok: bool = True

    async def run(self, fs: S3kClient) -> Outcome:
        assert (await fs.makedirs(self.path, exist_ok=self.exist_ok)).is_dir

    def apply(self, tree: Tree) -> Answer | Refusal:
        if is_directory(tree, self.path):
            return Answer(None, tree) if self.exist_ok else Refusal({PathExistsError})
        grown = with_parents(tree, self.path)
        if grown is None:
            return Refusal({NotDirectoryError})
        return (
            Refusal({PathExistsError})
            if self.path in tree
            else Answer(None, {**grown, self.path: None})
        )


@dataclass(frozen=True)
class Delete(_Changing):
    """`delete`."""

    stamp: int
    path: str
    recursive: bool = False
    missing_ok: bool = False
    atomic: bool = True

    async def run(self, fs: S3kClient) -> Outcome:
        await fs.delete(
            self.path, recursive=self.recursive, missing_ok=self.missing_ok, atomic=self.atomic
        )

    def apply(self, tree: Tree) -> Answer | Refusal:
        if self.path == "/":
            return Refusal({PermissionDeniedError})
        if self.path not in tree:
            return Answer(None, tree) if self.missing_ok else Refusal({PathNotFoundError})
        doomed = {self.path, *below(tree, self.path)}
        if len(doomed) > 1 and not self.recursive:
            return Refusal({DirectoryNotEmptyError})
        return Answer(None, {path: node for path, node in tree.items() if path not in doomed})


def stamped(node: Node, stamp: int) -> Node:
    if isinstance(node, File):
        return File(node.data, stamp, node.label)
    return node and replace(node, stamp=stamp)


@dataclass(frozen=True)
class Rename(_Changing):
    """`rename`, of a file or of a directory with all below it; reservations that ran out are left
    behind."""

    stamp: int
    source: str
    target: str
    overwrite: bool = False
    atomic: bool = True

    async def run(self, fs: S3kClient) -> Outcome:
        await fs.rename(self.source, self.target, overwrite=self.overwrite, atomic=self.atomic)

    def apply(self, tree: Tree) -> Answer | Refusal:
        refusals = Refusal(self._refusals(tree))
        if refusals:
            return refusals
        if self.source == self.target:
            return Answer(None, tree)
        moving = {self.source, *below(tree, self.source)}
        left = {
            path: node for path, node in tree.items() if path not in moving and path != self.target
        }
        staying = {path for path in moving if not isinstance(tree[path], Reserved)}
        moved = {
            self.target + path.removeprefix(self.source): stamped(tree[path], self.stamp)
            for path in staying
        }
        return Answer(None, {**left, **moved})

    def _refusals(self, tree: Tree) -> Iterator[type[S3kError]]:
        """All that stands against it. A call looks at one after the other, so any of them may be
        what it names."""
        directory = is_directory(tree, self.source)
        if self.source not in tree and not directory:
            yield PathNotFoundError
        elif isinstance(tree.get(self.source), Reserved) and self.source != self.target:
            yield UncommittedFileError
        inside = [tree[path] for path in below(tree, self.source)]
        if any(isinstance(node, Reserved) and not node.expired for node in inside):
            yield UncommittedFileError
        if directory and is_below(self.target, self.source):
            yield RenameIntoSelfError
        if self.target == self.source and isinstance(tree.get(self.source), Early):
            return  # it stays where it is, whatever is above it
        for above in ancestors(self.target):
            if above not in tree:
                yield PathNotFoundError
            elif tree[above] is not None:
                yield NotDirectoryError
        if self.target == self.source:
            return
        there = is_directory(tree, self.target)
        if there or (self.target in tree and (directory or not self.overwrite)):
            yield PathExistsError
        if any(
            isinstance(tree.get(self.target + path.removeprefix(self.source)), Early)
            for path in below(tree, self.source)
        ):
            yield PathExistsError


@dataclass(frozen=True)
class Exchange(_Changing):
    """`exchange`, of two files, or of directories with all below them."""

    stamp: int
    first: str
    second: str
    directories: bool = False
    """Whether one of them may be a directory."""

    async def run(self, fs: S3kClient) -> Outcome:
        await fs.exchange(self.first, self.second)

    def apply(self, tree: Tree) -> Answer | Refusal:
        both = (self.first, self.second)
        missing = {PathNotFoundError for path in both if path not in tree and path != "/"}
        if self.first == self.second:
            return Refusal(missing) if missing else Answer(None, tree)
        if is_below(*both) or is_below(*reversed(both)):
            return Refusal({RenameIntoSelfError})
        refusals: set[type[S3kError]] = {*missing}
        for path in both:
            if isinstance(tree.get(path), Reserved):
                refusals.add(UncommittedFileError)
            if is_directory(tree, path) and not self.directories:
                refusals.add(UnsupportedError)
        if refusals:
            return Refusal(refusals)
        places = {self.first: self.second, self.second: self.first}
        return Answer(None, dict(self._placed(tree, places)))

    def _placed(self, tree: Tree, places: Mapping[str, str]) -> Iterator[tuple[str, Node]]:
        for path, node in tree.items():
            top = next((top for top in places if is_below(path, top)), None)
            if top is None:
                yield path, node
            else:
                yield places[top] + path.removeprefix(top), stamped(node, self.stamp)


@dataclass(frozen=True)
class Place(Filling):
    """A copy of one file, with its label."""

    stamp: int
    path: str
    file: File
    overwrite: bool

    def apply(self, tree: Tree) -> Answer | Refusal:
        file = stamped(self.file, self.stamp)
        return answered(fill(tree, self.path, file, overwrite=self.overwrite, with_label=True))


@dataclass(frozen=True)
class Copy:
    """`copy`, of a file or with `recursive` of a directory."""

    stamp: int
    source: str
    target: str
    overwrite: bool = False
    recursive: bool = False

    async def run(self, fs: S3kClient) -> Outcome:
        await fs.copy(self.source, self.target, overwrite=self.overwrite, recursive=self.recursive)

    def apply(self, tree: Tree) -> Answer | Refusal:
        if self.source not in tree and self.source != "/":
            return Refusal({PathNotFoundError})
        node = tree.get(self.source)
        if isinstance(node, Reserved):
            return Refusal({UncommittedFileError})
        if isinstance(node, File):
            return Place(self.stamp, self.target, node, self.overwrite).apply(tree)
        if not self.recursive:
            return Refusal({IsDirectoryError})
        if is_below(self.target, self.source):
            return Refusal({RenameIntoSelfError})
        return self._apply_steps(tree)

    def _apply_steps(self, tree: Tree) -> Answer | Refusal:
        first, *rest = self.steps(tree)
        made = first.apply(tree)
        if isinstance(made, Refusal):
            return made
        failed = False
        for step in rest:
            result = step.apply(made.tree)
            if isinstance(result, Refusal):
                failed = True
            else:
                made = result
        return Answer(PartialFailureError if failed else None, made.tree)

    def steps(self, tree: Tree) -> Iterator[Place | MakeDirectory]:
        """A recursive copy as the single changes it is made of."""
        yield MakeDirectory(self.stamp, self.target, exist_ok=self.overwrite)
        for path in sorted(below(tree, self.source)):
            place = ("" if self.target == "/" else self.target) + path.removeprefix(self.source)
            node = tree[path]
            if isinstance(node, File):
                yield Place(self.stamp, place, node, self.overwrite)
            elif node is None:
                yield MakeDirectory(self.stamp, place)

    def leftovers(self, tree: Tree) -> Iterator[Tree]:
        grown = with_parents(tree, self.target)
        if grown is not None:
            yield from abandoned(grown, [self.target])


@dataclass(frozen=True)
class Reserve(Filling):
    """`open` for writing. Answers the writer; whether a path is reserved by it, the tree tells."""

    stamp: int
    path: str
    exclusive: bool

    async def run(self, fs: S3kClient) -> Outcome:
        return await fs.open(self.path, "xb" if self.exclusive else "wb")

    def apply(self, tree: Tree) -> Answer | Refusal:
        there = tree.get(self.path)
        if isinstance(there, File) or (isinstance(there, Reserved) and not there.expired):
            return Refusal({PathExistsError}) if self.exclusive else Answer(None, tree)
        return answered(fill(tree, self.path, Reserved(self.stamp)))


@dataclass(frozen=True)
class Commit(_Changing):
    """`commit` of an open file: of one that reserved its path (`seen` is None), or that replaces
    what it saw."""

    stamp: int
    path: str
    data: bytes
    seen: Node
    writer: FileWriter
    opened: int
    expired: bool

    async def run(self, fs: S3kClient) -> Outcome:
        await self.writer.commit()

    def apply(self, tree: Tree) -> Answer | Refusal:
        if self.expired:
            return Refusal({LeaseExpiredError})
        expected = Reserved(self.opened) if self.seen is None else self.seen
        if tree.get(self.path) != expected:
            return Refusal({ConflictError})
        label = self.seen.label if isinstance(self.seen, File) else b""
        return Answer(None, {**tree, self.path: File(self.data, self.stamp, label)})

    def leftovers(self, tree: Tree) -> Iterator[Tree]:
        """What is not published is discarded."""
        yield self.discarded(tree)

    def discarded(self, tree: Tree) -> Tree:
        """The tree after the reservation, if it is still there, was removed."""
        there = tree.get(self.path)
        ours = self.seen is None and isinstance(there, Reserved) and there.stamp == self.opened
        return {path: node for path, node in tree.items() if not (ours and path == self.path)}
