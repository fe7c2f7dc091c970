"""What the verbs for lists of paths, and all that only looks, answer according to the
dictionary."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Literal, Protocol, TypeAlias

from s3k_async import S3kClient
from s3k_async._native import Xxh3_128
from s3k_async.errors import (
    InvalidArgumentError,
    IsDirectoryError,
    PartialFailureError,
    PathNotFoundError,
    S3kError,
    UncommittedFileError,
)
from s3k_async.model import ChangeResult
from tests.torture.model import (
    Answer,
    Delete,
    File,
    Label,
    Node,
    Operation,
    Outcome,
    Refusal,
    Rename,
    Reserved,
    Tree,
    Write,
    abandoned,
    below,
    is_directory,
    parent_of,
    with_parents,
)

__all__ = [
    "DeleteMany",
    "Find",
    "Glob",
    "Kind",
    "List",
    "Read",
    "ReadMany",
    "ReadRanges",
    "RenameMany",
    "Stat",
    "StatMany",
    "Summary",
    "Walk",
    "WriteMany",
]

Failures: TypeAlias = dict[str, type[S3kError]]


class Failed(dict[str, Refusal]):
    """What a list expects to fail, and why; equal to what did fail if each error is one of
    those."""

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, dict)
            and self.keys() == other.keys()
            and all(other[path] in refusal for path, refusal in self.items())
        )

    __hash__ = None


def told(result: ChangeResult) -> tuple[Failures, int, int]:
    """What failed, and how many files and directories were changed."""
    failures: Failures = {}
    for path, error in result.failures:
        assert isinstance(error, S3kError), error
        assert failures.setdefault(path, type(error)) is type(error), result.failures
    return failures, result.files, result.directories


class Step(Protocol):
    """An operation, or how it is applied in another layout."""

    def apply(self, tree: Tree, /) -> Answer | Refusal: ...


def in_turn(tree: Tree, steps: Iterable[tuple[str, Step]]) -> tuple[Tree, Failed]:
    """The tree after each step that is not refused, and the refusals by the step's name."""
    failed = Failed()
    for name, step in steps:
        result = step.apply(tree)
        if isinstance(result, Refusal):
            failed[name] = result
        else:
            tree = result.tree
    return tree, failed


def subsets(tree: Tree, steps: Iterable[tuple[str, Operation]]) -> Iterator[Tree]:
    """The trees after any of the steps: each is done or not by itself."""
    steps = list(steps)
    for chosen in itertools.product((False, True), repeat=len(steps)):
        yield in_turn(tree, itertools.compress(steps, chosen))[0]


@dataclass(frozen=True)
class WriteMany:
    """`write_many`."""

    stamp: int
    files: tuple[tuple[str, bytes], ...]
    overwrite: bool = True

    async def run(self, fs: S3kClient) -> Outcome:
        return told(await fs.write_many(self.files, overwrite=self.overwrite))

    def apply(self, tree: Tree) -> Answer | Refusal:
        steps = list(self._steps())
        after, failed = in_turn(tree, steps)
        done = len(steps) - len(failed)
        named = Counter(path for path, _ in self.files)
        failed.update(
            {path: Refusal({InvalidArgumentError}) for path, count in named.items() if count > 1}
        )
        return Answer((failed, done, 0), after)

    def leftovers(self, tree: Tree) -> Iterator[Tree]:
        for parents in itertools.product((False, True), repeat=len(self.files)):
            start = tree
            for path, _ in itertools.compress(self.files, parents):
                grown = with_parents(start, path)
                start = start if grown is None else grown
            for begun in abandoned(start, [path for path, _ in self.files]):
                yield from subsets(begun, self._steps())

    def _steps(self) -> Iterator[tuple[str, Operation]]:
        named = Counter(path for path, _ in self.files)
        for path, data in self.files:
            if named[path] == 1:
                yield path, Write(self.stamp, path, data, overwrite=self.overwrite)


@dataclass(frozen=True)
class RenameMany:
    """`rename_many`: files first, then directories in the order of the list."""

    stamp: int
    pairs: tuple[tuple[str, str], ...]
    overwrite: bool = False
    missing_ok: bool = False

    async def run(self, fs: S3kClient) -> Outcome:
        failures, _, _ = told(
            await fs.rename_many(self.pairs, overwrite=self.overwrite, missing_ok=self.missing_ok)
        )
        return failures

    def apply(
        self, tree: Tree, step: Callable[[Operation], Step] = lambda operation: operation
    ) -> Answer | Refusal:
        """`step`: each rename as it is in the layout of the volume."""
        steps = ((name, step(operation)) for name, operation in self._steps(tree))
        after, failed = in_turn(tree, steps)
        for source, target in self._apart():
            if (
                self.missing_ok
                and source not in tree
                and source != "/"
                and (target in tree or target == "/")
            ):
                failed.pop(source, None)
        shared = set(self.pairs) - set(self._apart())
        failed.update({source: Refusal({InvalidArgumentError}) for source, _ in shared})
        return Answer(failed, after)

    def leftovers(self, tree: Tree) -> Iterator[Tree]:
        return subsets(tree, self._steps(tree))

    def _apart(self) -> list[tuple[str, str]]:
        """The pairs that share no path with another; the same pair twice is one."""
        pairs = list(dict.fromkeys(self.pairs))
        uses = Counter(path for pair in pairs for path in set(pair))
        return [pair for pair in pairs if all(uses[path] == 1 for path in pair)]

    def _steps(self, tree: Tree) -> Iterator[tuple[str, Operation]]:
        for source, target in sorted(self._apart(), key=lambda pair: is_directory(tree, pair[0])):
            yield source, Rename(self.stamp, source, target, overwrite=self.overwrite)


@dataclass(frozen=True)
class DeleteMany:
    """`delete_many`: files first, then directories, the deepest first."""

    stamp: int
    paths: tuple[str, ...]
    recursive: bool = False
    missing_ok: bool = False

    async def run(self, fs: S3kClient) -> Outcome:
        failures, _, _ = told(
            await fs.delete_many(self.paths, recursive=self.recursive, missing_ok=self.missing_ok)
        )
        return failures

    def apply(self, tree: Tree) -> Answer | Refusal:
        after, failed = in_turn(tree, self._steps(tree))
        return Answer(failed, after)

    def leftovers(self, tree: Tree) -> Iterator[Tree]:
        return subsets(tree, self._steps(tree))

    def _steps(self, tree: Tree) -> Iterator[tuple[str, Operation]]:
        ordered = sorted(
            dict.fromkeys(self.paths), key=lambda path: (is_directory(tree, path), -path.count("/"))
        )
        for path in ordered:
            yield (
                path,
                Delete(self.stamp, path, recursive=self.recursive, missing_ok=self.missing_ok),
            )


# Looking. Nothing below changes anything.


class _Look:
    def apply(self, tree: Tree) -> Answer | Refusal:
        value = self.look(tree)
        return value if isinstance(value, Refusal) else Answer(value, tree)

    def look(self, tree: Tree) -> Outcome | Refusal:
        raise NotImplementedError

    def leftovers(self, tree: Tree) -> Iterator[Tree]:
        return iter(())


def seen(node: Node) -> tuple[bool, int, bool]:
    """Whether it is a directory, its size, whether it is committed; the sizes of reservations are
    nobody's business."""
    return (
        node is None,
        len(node.data) if isinstance(node, File) else 0,
        not isinstance(node, Reserved),
    )


def shown(
    tree: Tree, paths: Iterable[str], *, uncommitted: bool = False
) -> set[tuple[str, bool, int]]:
    return {
        (path, tree[path] is None, seen(tree[path])[1])
        for path in paths
        if uncommitted or not isinstance(tree[path], Reserved)
    }


def content(tree: Tree, path: str) -> bytes | Refusal:
    if is_directory(tree, path):
        return Refusal({IsDirectoryError})
    node = tree.get(path)
    if path not in tree or node is None:
        return Refusal({PathNotFoundError})
    return node.data if isinstance(node, File) else Refusal({UncommittedFileError})


@dataclass(frozen=True)
class Read(_Look):
    """`read`, and by `streamed` an open file read in small pieces, and its checksum."""

    path: str
    streamed: bool = False

    async def run(self, fs: S3kClient) -> Outcome:
        if not self.streamed:
            return await fs.read(self.path)
        async with fs.open(self.path) as file:
            pieces = []
            while piece := await file.read(50):
                pieces.append(piece)
        data = b"".join(pieces)
        digest = Xxh3_128()
        digest.update(data)
        assert await fs.checksum(self.path) == f"xxh128:{digest.hexdigest()}"
        return data

    def look(self, tree: Tree) -> Outcome | Refusal:
        return content(tree, self.path)


@dataclass(frozen=True)
class ReadRanges(_Look):
    """`read_ranges`."""

    path: str
    ranges: tuple[tuple[int, int], ...]

    async def run(self, fs: S3kClient) -> Outcome:
        return await fs.read_ranges(self.path, self.ranges)

    def look(self, tree: Tree) -> Outcome | Refusal:
        data = content(tree, self.path)
        return (
            data if isinstance(data, Refusal) else [data[start:end] for start, end in self.ranges]
        )


@dataclass(frozen=True)
class ReadMany(_Look):
    """`read_each`, with errors in their places, or `read_many`, with errors raised together."""

    paths: tuple[str, ...]
    each: bool = True

    async def run(self, fs: S3kClient) -> Outcome:
        read = await (fs.read_each(self.paths) if self.each else fs.read_many(self.paths))
        return [data if isinstance(data, bytes) else type(data) for data in read]

    def look(self, tree: Tree) -> Outcome | Refusal:
        found = [content(tree, path) for path in self.paths]
        if any(isinstance(each, Refusal) for each in found) and not self.each:
            return Refusal({PartialFailureError})
        return [next(iter(each)) if isinstance(each, Refusal) else each for each in found]


@dataclass(frozen=True)
class Stat(_Look):
    """`stat`."""

    path: str

    async def run(self, fs: S3kClient) -> Outcome:
        status = await fs.stat(self.path)
        label = b"" if status.is_dir else status.attributes.metadata.get(Label.NAME, b"")
        return status.is_dir, status.size, status.committed, label

    def look(self, tree: Tree) -> Outcome | Refusal:
        if self.path != "/" and self.path not in tree:
            return Refusal({PathNotFoundError})
        node = tree.get(self.path)
        return *seen(node), node.label if isinstance(node, File) else b""


@dataclass(frozen=True)
class Kind(_Look):
    """`exists`, `is_file` and `is_dir`."""

    path: str

    async def run(self, fs: S3kClient) -> Outcome:
        return await fs.exists(self.path), await fs.is_file(self.path), await fs.is_dir(self.path)

    def look(self, tree: Tree) -> Outcome | Refusal:
        directory = is_directory(tree, self.path)
        return directory or self.path in tree, not directory and self.path in tree, directory


@dataclass(frozen=True)
class StatMany(_Look):
    """`stat_many` and `exists_many`."""

    paths: tuple[str, ...]

    async def run(self, fs: S3kClient) -> Outcome:
        found = await fs.stat_many(self.paths)
        assert await fs.exists_many(self.paths) == [each is not None for each in found]
        return [each and (each.is_dir, each.size, each.committed) for each in found]

    def look(self, tree: Tree) -> Outcome | Refusal:
        return [
            seen(tree.get(path)) if path == "/" or path in tree else None for path in self.paths
        ]


Form: TypeAlias = Literal["plain", "sorted", "batches"]


def in_order(path: str) -> list[bytes]:
    return [part.encode() for part in path.split("/")]


@dataclass(frozen=True)
class List(_Look):
    """`list` in each of its forms."""

    path: str
    recursive: bool = False
    form: Form = "plain"
    uncommitted: bool = False

    async def run(self, fs: S3kClient) -> Outcome:
        rows: list[tuple[str, bool, int]] = []
        if self.form == "batches":
            async for batch in fs.list_batches(
                self.path, recursive=self.recursive, include_uncommitted=self.uncommitted
            ):
                columns = (batch.column(name).to_pylist() for name in ("path", "is_dir", "size"))
                rows += zip(*columns, strict=True)
        else:
            in_turn = self.form == "sorted"
            async for status in fs.list(
                self.path,
                recursive=self.recursive,
                include_uncommitted=self.uncommitted,
                sorted=in_turn,
            ):
                rows.append((status.path, status.is_dir, status.size))
            assert not in_turn or rows == sorted(rows, key=lambda row: in_order(row[0]))
        assert len(set(rows)) == len({path for path, _, _ in rows}) == len(rows), (
            f"twice in one listing: {rows}"
        )
        return set(rows)

    def look(self, tree: Tree) -> Outcome | Refusal:
        if not is_directory(tree, self.path):
            if self.path not in tree:
                return Refusal({PathNotFoundError})
            return shown(tree, [self.path], uncommitted=self.uncommitted)
        inside = below(tree, self.path)
        paths = (
            inside if self.recursive else (path for path in inside if parent_of(path) == self.path)
        )
        return shown(tree, paths, uncommitted=self.uncommitted)


@dataclass(frozen=True)
class Walk(_Look):
    """`walk`."""

    path: str

    async def run(self, fs: S3kClient) -> Outcome:
        walked: dict[str, tuple[list[str], list[str]]] = {}
        async for path, directories, files in fs.walk(self.path):
            assert path not in walked
            assert path == self.path or parent_of(path) in walked, (
                "a directory before the one it is in"
            )
            walked[path] = [each.path for each in directories], [each.path for each in files]
        return walked

    def look(self, tree: Tree) -> Outcome | Refusal:
        if not is_directory(tree, self.path):
            return {} if self.path in tree else Refusal({PathNotFoundError})
        directories = [self.path, *(path for path in below(tree, self.path) if tree[path] is None)]
        return {each: self._children(tree, each) for each in directories}

    @staticmethod
    def _children(tree: Tree, directory: str) -> tuple[list[str], list[str]]:
        children = sorted(
            (path for path in below(tree, directory) if parent_of(path) == directory), key=in_order
        )
        files = [path for path in children if isinstance(tree[path], File)]
        return [path for path in children if tree[path] is None], files


@dataclass(frozen=True)
class Find(_Look):
    """`find` by name, kind and size."""

    path: str
    pattern: str
    type: Literal["file", "directory"] | None
    min_size: int | None

    async def run(self, fs: S3kClient) -> Outcome:
        found = fs.find(self.path, pattern=self.pattern, type=self.type, min_size=self.min_size)
        return sorted([(each.path, each.is_dir, each.size) async for each in found])

    def look(self, tree: Tree) -> Outcome | Refusal:
        everything = List(self.path, recursive=True).look(tree)
        return (
            everything
            if isinstance(everything, Refusal)
            else sorted(row for row in everything if self._meets(row))
        )

    def _meets(self, row: tuple[str, bool, int]) -> bool:
        path, is_dir, size = row
        return (
            fnmatchcase(path.rpartition("/")[2], self.pattern)
            and (self.type is None or is_dir == (self.type == "directory"))
            and (self.min_size is None or (not is_dir and size >= self.min_size))
        )


@dataclass(frozen=True)
class Glob(_Look):
    """`glob` with patterns whose components each match one name."""

    pattern: str

    async def run(self, fs: S3kClient) -> Outcome:
        return sorted([each.path async for each in fs.glob(self.pattern)])

    def look(self, tree: Tree) -> Outcome | Refusal:
        wanted = self.pattern.strip("/").split("/")
        return sorted(
            path
            for path, _, _ in shown(tree, tree)
            if self._match(path.strip("/").split("/"), wanted)
        )

    @staticmethod
    def _match(names: list[str], wanted: list[str]) -> bool:
        return len(names) == len(wanted) and all(map(fnmatchcase, names, wanted))


@dataclass(frozen=True)
class Summary(_Look):
    """`content_summary`."""

    path: str

    async def run(self, fs: S3kClient) -> Outcome:
        summary = await fs.content_summary(self.path)
        return summary.length, summary.file_count, summary.directory_count

    def look(self, tree: Tree) -> Outcome | Refusal:
        if not is_directory(tree, self.path):
            node = tree.get(self.path)
            if self.path not in tree:
                return Refusal({PathNotFoundError})
            return (len(node.data), 1, 0) if isinstance(node, File) else (0, 0, 0)
        nodes = [tree[path] for path in below(tree, self.path)]
        files = [node for node in nodes if isinstance(node, File)]
        return (
            sum(len(node.data) for node in files),
            len(files),
            1 + sum(node is None for node in nodes),
        )
