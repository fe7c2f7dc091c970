"""What racing clients do, and what each of it would do to a tree if it were alone.

A tree is a mapping of paths to bytes, or to None for a directory; the root is not in it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from s3k_async import S3kClient, _native
from s3k_async.errors import (
    ConflictError,
    DirectoryNotEmptyError,
    IsDirectoryError,
    NotDirectoryError,
    PathExistsError,
    PathNotFoundError,
    RenameIntoSelfError,
    S3kError,
    UncommittedFileError,
)

__all__ = [
    "Content",
    "Create",
    "Delete",
    "MakeDirectory",
    "Operation",
    "Outcome",
    "Read",
    "Refusal",
    "Rename",
    "Reserved",
    "Tree",
    "Write",
    "parent_of",
    "with_parents",
]

Content: TypeAlias = bytes | None
Tree: TypeAlias = dict[str, Content]
Outcome: TypeAlias = type[S3kError] | bytes | None
"""What a caller was told: an error, the bytes of a read, or None for any other success."""


class Refusal(frozenset[type[S3kError]]):
    """The errors any of which is right; nothing changes."""


class Operation(Protocol):
    """One call of a client."""

    async def run(self, fs: S3kClient, place: str) -> bytes | None:
        """Do it, with every path below `place`."""

    def apply(self, tree: Tree) -> tuple[Outcome, Tree] | Refusal:
        """What it answers and leaves behind when it is alone with a tree."""


def parent_of(path: str) -> str:
    """The directory that a path is in."""
    return _native.split(path)[0]


def ancestors(path: str) -> list[str]:
    return _native.ancestors(path)


def with_parents(tree: Tree, path: str) -> Tree | None:
    """The tree with the missing ancestors of a path; None if one of them is a file."""
    above = ancestors(path)
    if any(tree.get(each) is not None for each in above):
        return None
    return {**dict.fromkeys(above), **tree}


def below(tree: Tree, path: str) -> Iterator[str]:
    return (each for each in tree if each.startswith(path + "/"))


@dataclass(frozen=True)
class Write:
    """`write`: the whole file in one call."""

    path: str
    data: bytes
    overwrite: bool = True

    async def run(self, fs: S3kClient, place: str) -> None:
        await fs.write(place + self.path, self.data, overwrite=self.overwrite)

    def apply(self, tree: Tree) -> tuple[Outcome, Tree] | Refusal:
        grown = with_parents(tree, self.path)
        if grown is None:
            return Refusal({NotDirectoryError})
        if self.path in tree and tree[self.path] is None:
            return Refusal({IsDirectoryError})
        if self.path in tree and not self.overwrite:
            return Refusal({PathExistsError})
        return None, grown | {self.path: self.data}


class Reserved(bytes):
    """The content of a file whose writer has it open; the bytes say which writer."""


@dataclass(frozen=True)
class Create(Write):
    """`open(path, "xb")`, a write and a close. In an order it is two steps: a reservation, and its
    publication."""

    overwrite: bool = False

    async def run(self, fs: S3kClient, place: str) -> None:
        async with fs.open(place + self.path, "xb") as file:
            await file.write(self.data)

    @property
    def reservation(self) -> Reserved:
        return Reserved(self.data)

    def apply(self, tree: Tree) -> tuple[Outcome, Tree] | Refusal:
        result = super().apply(tree)
        return (
            result
            if isinstance(result, Refusal)
            else (None, result[1] | {self.path: self.reservation})
        )

    def publish(self, tree: Tree) -> tuple[Outcome, Tree] | Refusal:
        """The second step: of what somebody removed or replaced meanwhile, nothing is published."""
        found = tree.get(self.path)
        if not isinstance(found, Reserved) or found != self.reservation:
            return Refusal({ConflictError})
        return None, tree | {self.path: self.data}


@dataclass(frozen=True)
class Read:
    """`read`."""

    path: str

    async def run(self, fs: S3kClient, place: str) -> bytes:
        return await fs.read(place + self.path)

    def apply(self, tree: Tree) -> tuple[Outcome, Tree] | Refusal:
        if self.path not in tree:
            return Refusal({PathNotFoundError})
        data = tree[self.path]
        if data is None or isinstance(data, Reserved):
            return Refusal({IsDirectoryError if data is None else UncommittedFileError})
        return data, tree


@dataclass(frozen=True)
class MakeDirectory:
    """`makedirs`."""

    path: str

    async def run(self, fs: S3kClient, place: str) -> None:
        await fs.makedirs(place + self.path)

    def apply(self, tree: Tree) -> tuple[Outcome, Tree] | Refusal:
        grown = with_parents(tree, self.path)
        if grown is None:
            return Refusal({NotDirectoryError})
        if tree.get(self.path) is not None:
            return Refusal({PathExistsError})
        return None, grown | {self.path: None}


@dataclass(frozen=True)
class Delete:
    """`delete`."""

    path: str
    recursive: bool = False

    async def run(self, fs: S3kClient, place: str) -> None:
        await fs.delete(place + self.path, recursive=self.recursive)

    def apply(self, tree: Tree) -> tuple[Outcome, Tree] | Refusal:
        if self.path not in tree:
            return Refusal({PathNotFoundError})
        doomed = {self.path, *below(tree, self.path)}
        if len(doomed) > 1 and not self.recursive:
            return Refusal({DirectoryNotEmptyError})
        return None, {path: data for path, data in tree.items() if path not in doomed}


@dataclass(frozen=True)
class Rename:
    """`rename`."""

    source: str
    target: str
    overwrite: bool = False

    async def run(self, fs: S3kClient, place: str) -> None:
        await fs.rename(place + self.source, place + self.target, overwrite=self.overwrite)

    def apply(self, tree: Tree) -> tuple[Outcome, Tree] | Refusal:
        refusals = set(self._refusals(tree))
        if refusals:
            return Refusal(refusals)
        moving = {self.source, *below(tree, self.source)}
        return None, {
            self.target + path.removeprefix(self.source) if path in moving else path: data
            for path, data in tree.items()
            if path in moving or path != self.target
        }

    def _refusals(self, tree: Tree) -> Iterator[type[S3kError]]:
        """All that stands against it. A call looks at one after the other, so any of them may be
        what it names."""
        directory = self.source in tree and tree[self.source] is None
        if self.source not in tree:
            yield PathNotFoundError
        elif any(
            isinstance(tree[path], Reserved) for path in (self.source, *below(tree, self.source))
        ):
            yield UncommittedFileError
        if directory and (self.target == self.source or self.target.startswith(self.source + "/")):
            yield RenameIntoSelfError
        for above in ancestors(self.target):
            if above not in tree:
                yield PathNotFoundError
            elif tree[above] is not None:
                yield NotDirectoryError
        if self.target in tree and (directory or tree[self.target] is None or not self.overwrite):
            yield PathExistsError
