"""What the operations of a history do in layout `tree`: the trash, and places that directories take
along.

An operation on files finds its directory at one moment of the call and takes effect in it at a
later one. In between the directory may be renamed, moved into the trash or restored: the operation
is *bound* to it, and its place is where the directory is by then. What it does in the trash it did
before the deletion, as far as anybody can tell. Directories are moved, deleted and listed at one
moment; they are never bound.

Relaxations have the numbers of `docs/design/011-directories-by-id.md`, section 6.12.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Final, Literal, NamedTuple, Protocol, TypeAlias

from s3k_async.errors import PathNotFoundError
from tests.torture.model import (
    Answer,
    Commit,
    Delete,
    File,
    Filling,
    MakeDirectory,
    Node,
    Outcome,
    Refusal,
    Rename,
    Reserve,
    Reserved,
    Tree,
    Truncate,
    Write,
    WriteRange,
    ancestors,
    below,
    is_below,
    is_directory,
    with_parents,
)

__all__ = [
    "Change",
    "Deleted",
    "Move",
    "Place",
    "Purge",
    "Trash",
    "Undelete",
    "Verb",
    "apply_at",
    "apply_in_tree",
    "expected_by",
    "find_place",
    "follow",
    "locate",
    "newest_of",
    "node_at",
    "paths_of",
    "published_in_trash",
    "rebase",
    "restore",
]


TRASH: Final = "/.trash"
"""Above the directories in the trash; no path of a scene leads there."""


class Verb(Protocol):
    """What the checker needs of an operation."""

    def apply(self, tree: Tree) -> Answer | Refusal:
        """What it answers and leaves behind."""

    def leftovers(self, tree: Tree) -> Iterator[Tree]:
        """What may be there after it was interrupted."""


@dataclass(frozen=True)
class Undelete:
    """The newest deleted directory that was at `path` is there again, with all below it."""

    stamp: int
    path: str

    def apply(self, tree: Tree) -> Answer | Refusal:
        """In layout `path`, which has no trash."""
        return Refusal({PathNotFoundError})

    def leftovers(self, tree: Tree) -> Iterator[Tree]:
        grown = with_parents(tree, self.path)
        if grown is not None:
            yield grown


@dataclass(frozen=True)
class Purge:
    """A recursive deletion of a directory whose caller waits until it is reclaimed: it cannot be
    restored."""

    stamp: int
    path: str

    def apply(self, tree: Tree) -> Answer | Refusal:
        return Delete(self.stamp, self.path, recursive=True).apply(tree)

    def leftovers(self, tree: Tree) -> Iterator[Tree]:
        return iter(())


@dataclass(frozen=True, slots=True)
class Deleted:
    """A directory in the trash: all that was at `was` and below it is at `place` and below."""

    place: str
    was: str
    is_reclaimed: bool
    """Whether its files are being deleted, each at any time."""
    content: frozenset[tuple[str, Node]]


Trash: TypeAlias = tuple[Deleted, ...]
"""The oldest first."""


def node_at(path: str, tree: Tree, trash: Trash) -> Node | Literal["missing"]:
    """What is at a path of the tree or of the trash."""
    for item in trash:
        if is_below(path, item.place):
            return dict(item.content).get(path, "missing")
    return tree.get(path, "missing")


class Move(NamedTuple):
    """What became of a directory, with all below it."""

    source: str
    target: str | None
    """None: it was removed as empty."""


class Change(NamedTuple):
    """What a call that succeeds answers, and the volume after it."""

    value: Outcome
    tree: Tree
    trash: Trash
    move: Move | None = None


@dataclass(frozen=True, slots=True, order=True)
class Place:
    """Where an operation takes effect that has found its directory: at `rest` below it."""

    directory: str
    """The path of the directory at present; empty for the root."""
    rest: str

    @property
    def path(self) -> str:
        return self.directory + self.rest


def find_place(path: str, tree: Tree) -> Place | None:
    """The place of a path whose directory, the deepest there is, is found now; None if a file is in
    the way."""
    directory = ""
    for above in ancestors(path):
        if above not in tree:
            break
        if tree[above] is not None:
            return None
        directory = above
    return Place(directory, path.removeprefix(directory))


def follow(place: Place, move: Move) -> Place | None:
    """The place after the directory, or one above it, has moved; None if it was removed."""
    if not is_below(place.directory, move.source):
        return place
    if move.target is None:
        return None
    directory = move.target + place.directory.removeprefix(move.source)
    return Place(directory, place.rest)


def paths_of(operation: Verb) -> tuple[str, ...]:
    """The paths whose directories an operation finds before it takes effect; none for what happens
    at one moment. A rename or deletion counts if it is that of a file."""
    match operation:
        case Rename() if operation.source != operation.target:
            return operation.source, operation.target
        case (
            Filling() | Commit() | Delete() | Purge() | MakeDirectory() | WriteRange() | Truncate()
        ):
            return (operation.path,)
    return ()


def rebase(operation: Verb, paths: tuple[str, ...]) -> Verb:
    """The operation with other paths in the place of its own."""
    match operation:
        case Rename():
            return replace(operation, source=paths[0], target=paths[1])
        case (
            Filling() | Commit() | Delete() | Purge() | MakeDirectory() | WriteRange() | Truncate()
        ):
            return replace(operation, path=paths[0])  # type: ignore[type-var]
    return operation


def locate(operation: Verb, tree: Tree) -> Verb:
    """The commit of an open file where its reservation, or what it replaces, is by now: directories
    take it along. Other operations as they are."""
    if isinstance(operation, Commit) and not _is_opened(tree.get(operation.path), operation):
        for path in _opened_in(operation, tree.items()):
            return rebase(operation, (path,))
    return operation


def expected_by(commit: Commit) -> Node:
    """What the commit of an open file replaces."""
    return Reserved(commit.opened) if commit.seen is None else commit.seen


def _is_opened(node: Node, commit: Commit) -> bool:
    """Whether this is what the commit replaces, or its reservation after the end of its lease."""
    expected = expected_by(commit)
    if isinstance(node, Reserved) and isinstance(expected, Reserved):
        return node.stamp == expected.stamp
    return node == expected


def _opened_in(commit: Commit, nodes: Iterable[tuple[str, Node]]) -> Iterator[str]:
    name = commit.path.rpartition("/")[2]
    for path, node in nodes:
        if _is_opened(node, commit) and path.rpartition("/")[2] == name:
            yield path


def apply_in_tree(operation: Verb, tree: Tree, trash: Trash) -> Change | Refusal:
    """What an operation that finds its directories now does at this moment."""
    match operation:
        case Undelete():
            return restore(operation, newest_of(trash, operation.path), tree, trash)
        case Rename() if operation.source != operation.target and is_directory(
            tree, operation.source
        ):
            return _rename_directory(operation, tree, trash)
        case Delete() | Purge() if operation.path in tree and tree[operation.path] is None:
            return _delete_directory(operation, tree, trash)
    answer = locate(operation, tree).apply(tree)
    return answer if isinstance(answer, Refusal) else Change(answer.value, answer.tree, trash)


def _rename_directory(rename: Rename, tree: Tree, trash: Trash) -> Change | Refusal:
    """What is below is not touched, reservations included."""
    source, target = rename.source, rename.target
    without_reservations = {
        path: node
        for path, node in tree.items()
        if not (isinstance(node, Reserved) and is_below(path, source))
    }
    answer = rename.apply(without_reservations)
    if isinstance(answer, Refusal):
        return answer
    return Change(answer.value, _moved(tree.items(), source, target), trash, Move(source, target))


def _moved(nodes: Iterable[tuple[str, Node]], source: str, target: str) -> dict[str, Node]:
    return {
        target + path.removeprefix(source) if is_below(path, source) else path: node
        for path, node in nodes
    }


def _delete_directory(operation: Delete | Purge, tree: Tree, trash: Trash) -> Change | Refusal:
    answer = operation.apply(tree)
    if isinstance(answer, Refusal):
        return answer
    if isinstance(operation, Delete) and not operation.recursive:
        return Change(answer.value, answer.tree, trash, Move(operation.path, None))
    was, place = operation.path, f"{TRASH}/{operation.stamp}"
    content = [(path, tree[path]) for path in (was, *below(tree, was))]
    item = Deleted(
        place,
        was,
        isinstance(operation, Purge),
        frozenset(_moved(content, was, place).items()),
    )
    return Change(answer.value, answer.tree, (*trash, item), Move(was, place))


def newest_of(trash: Trash, was: str) -> Deleted | None:
    """The directory deleted last of those that were at a path and can be restored."""
    for item in reversed(trash):
        if item.was == was and not item.is_reclaimed:
            return item
    return None


def restore(
    operation: Undelete, item: Deleted | None, tree: Tree, trash: Trash
) -> Change | Refusal:
    """What an undelete does that has chosen a directory of the trash, or found none. Any of the
    errors may be what it names."""
    answer = MakeDirectory(operation.stamp, operation.path, exist_ok=False).apply(tree)
    if item is None:
        return Refusal({PathNotFoundError, *(answer if isinstance(answer, Refusal) else ())})
    if isinstance(answer, Refusal):
        return answer
    back = _moved(item.content, item.place, operation.path)
    return Change(
        answer.value,
        {**answer.tree, **back},
        tuple(each for each in trash if each is not item),
        Move(item.place, operation.path),
    )


def apply_at(
    operation: Verb, places: tuple[Place | str, ...], tree: Tree, trash: Trash
) -> Change | None:
    """What an operation does at places of directories that it found earlier, in the tree or in the
    trash, or at paths whose directories it finds now; None if it does nothing there.
    """
    paths = tuple(place if isinstance(place, str) else place.path for place in places)
    within = [item for item in trash if any(is_below(path, item.place) for path in paths)]
    nodes = dict(tree)
    if within:
        nodes[TRASH] = None
    for item in within:
        nodes.update(item.content)
    if nodes.get(paths[0], "missing") is None and isinstance(operation, Rename | Delete | Purge):
        return None  # a directory
    path = paths[-1]
    if (
        isinstance(nodes.get(path), File | Reserved)
        and any(item.is_reclaimed and is_below(path, item.place) for item in within)
        and _may_come_twice(operation)
    ):
        del nodes[path]
    answer = rebase(operation, paths).apply(nodes)
    if isinstance(answer, Refusal):
        return None
    if not within:
        return Change(answer.value, answer.tree, trash)
    kept = tuple(
        replace(
            item,
            content=frozenset(
                (path, node) for path, node in answer.tree.items() if is_below(path, item.place)
            ),
        )
        if item in within
        else item
        for item in trash
    )
    outside = {path: node for path, node in answer.tree.items() if not is_below(path, TRASH)}
    return Change(answer.value, outside, kept)


def _may_come_twice(operation: Verb) -> bool:
    """Whether it may succeed where a file was before that was reclaimed: relaxation 4."""
    match operation:
        case Rename() | Write():
            return not operation.overwrite
        case Reserve():
            return operation.exclusive
    return False


def published_in_trash(commit: Commit, trash: Trash) -> Iterator[Place]:
    """Where a file is published whose directory was renamed, and deleted later: relaxation 5."""
    for item in trash:
        for path in _opened_in(commit, item.content):
            rest = path.removeprefix(item.place)
            if item.was + rest != commit.path:
                yield Place(item.place, rest)
