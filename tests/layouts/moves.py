"""Changes of directories, modelled as changes of a tree that contains the trash, and a search for
an order of them that explains the result of several clients."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from s3k_async import _native
from s3k_async.errors import (
    ConflictError,
    NotDirectoryError,
    PathExistsError,
    PathNotFoundError,
    RenameIntoSelfError,
    S3kError,
)
from tests.layouts.trees import TreeVolume
from tests.races.operations import Operation, Outcome, Refusal, Tree
from tests.races.order import Done, explain

__all__ = ["DIRECTORY", "TRASH", "Move", "Restoration", "Together", "require_explained", "tree_of"]

TRASH = "/.trash"
FILE, DIRECTORY = b"file ", b"directory "
NEW = DIRECTORY + b"new"


@dataclass(frozen=True)
class Move:
    """A rename, a deletion (into the trash) or a restoration (out of it), in a tree that contains
    the trash. The tree maps each path to the kind and id of its object."""

    source: str
    target: str
    object_id: str = ""
    """For a deletion: the id of the object to be deleted."""

    def apply(self, tree: Tree) -> tuple[Outcome, Tree] | Refusal:
        if refusals := set(self._refusals(tree)):
            return Refusal(refusals)
        moving = {path for path in tree if (path + "/").startswith(self.source + "/")}
        return None, {
            self.target + path.removeprefix(self.source) if path in moving else path: object_id
            for path, object_id in tree.items()
        }

    def _refusals(self, tree: Tree) -> Iterator[type[S3kError]]:
        source = tree.get(self.source)
        if source is None:
            yield PathNotFoundError
        elif self.object_id and source != DIRECTORY + self.object_id.encode():
            yield ConflictError
        elif source.startswith(FILE):
            yield NotDirectoryError
        if (self.target + "/").startswith(self.source + "/"):
            yield RenameIntoSelfError
        for above in _native.ancestors(self.target):
            if above != TRASH and above not in tree:
                yield PathNotFoundError
            elif (tree.get(above) or b"").startswith(FILE):
                yield NotDirectoryError
        if self.target in tree:
            yield PathExistsError

    async def run(self, client: object, place: str) -> bytes | None:
        """Calls are made by `begin`."""
        raise NotImplementedError


@dataclass(frozen=True)
class Restoration(Move):
    """A restoration, which creates missing parents."""

    def apply(self, tree: Tree) -> tuple[Outcome, Tree] | Refusal:
        missing = [path for path in _native.ancestors(self.target) if path not in tree]
        return super().apply(
            {**tree, **dict.fromkeys(missing, NEW)} if self.source in tree else tree
        )


@dataclass(frozen=True)
class Together:
    """A transaction of several moves. Its sources were read before, so it is refused if another
    client has moved one of them, even if that move was undone."""

    moves: Sequence[Move]

    def apply(self, tree: Tree) -> tuple[Outcome, Tree] | Refusal:
        for move in self.moves:
            result = move.apply(tree)
            if isinstance(result, Refusal):
                return Refusal({*result, ConflictError})
            tree = result[1]
        return None, tree

    async def run(self, client: object, place: str) -> bytes | None:
        """Calls are made by the tests."""
        raise NotImplementedError


async def tree_of(volume: TreeVolume, known: Tree | None = None) -> Tree:
    """The volume's tree with its trash; objects that are not in `known` are new. Fails for a cycle,
    an entry that no path leads to, and an object at two places."""
    kinds = {entry.id: entry.is_dir for entry in await volume.stored()}
    found: Tree = {
        path: (DIRECTORY if kinds[object_id] else FILE) + object_id.encode()
        for path, object_id in (await volume.tree()).items()
    }
    if known is None:
        return found
    return {path: each if each in known.values() else NEW for path, each in found.items()}


async def require_explained(
    volume: TreeVolume, start: Tree, moves: Sequence[Operation], outcomes: Sequence[Outcome]
) -> None:
    """Require that some order of the moves explains the outcomes and the tree, and that nothing is
    pending."""
    end = await tree_of(volume, start)
    done = [Done(move, outcome, 0.0, 1.0) for move, outcome in zip(moves, outcomes, strict=True)]
    story = "\n  ".join(map(str, done))
    assert explain(start, done, end) is not None, f"from {start}\n  {story}\nto {end}"
    assert [entry.path for entry in await volume.stored() if entry.pending] == []
    assert all(truth.pending == () for truth in (await volume.truths()).values())
