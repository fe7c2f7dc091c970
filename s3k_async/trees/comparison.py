"""Comparison of two trees: a merge join of their sorted listings."""

from __future__ import annotations

import hashlib
import re
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias

from s3k_async._core.concurrency import gather
from s3k_async._native import Xxh3_128
from s3k_async.bulk.transfer import is_hopeless
from s3k_async.errors import PathNotFoundError, S3kError, UnsupportedError
from s3k_async.listing.selection import Selection
from s3k_async.storage.upload import CHECKSUM_PREFIX
from s3k_async.trees.file_tree import FileTree, TreeEntry

__all__ = ["ComparisonRule", "Difference", "DifferenceKind", "TreeComparison"]

ComparisonRule: TypeAlias = Literal["time", "size", "checksum"]
"""When two files differ: `time`, in size, or if the left one is newer; `size`, in size alone;
`checksum`, in size or content."""
DifferenceKind: TypeAlias = Literal["only_left", "only_right", "type", "size", "time", "content"]

WINDOW: Final = 500
"""Pairs of entries that are compared together."""
READS: Final = 16
"""Pairs of files whose contents are compared concurrently."""

_DIGEST: Final = re.compile(r"[0-9a-f]{32}(-[0-9]+)?")
"""Entity tags that depend on the content: MD5, of one part or of the parts of an upload. Source:
Amazon S3 API Reference, data type Object, ETag."""

_Pair: TypeAlias = tuple[TreeEntry | None, TreeEntry | None]


@dataclass(frozen=True, slots=True)
class Difference:
    """A path at which two trees differ."""

    path: str
    kind: DifferenceKind
    left: TreeEntry | None
    right: TreeEntry | None


@dataclass(slots=True)
class TreeComparison:
    """The comparison of two trees. Directories differ by presence alone; if one of the trees is a
    bucket, only those that are objects of it; with a selection, not at all."""

    left: FileTree
    right: FileTree
    rule: ComparisonRule = "time"
    selection: Selection = field(default_factory=Selection)
    equal: Callable[[TreeEntry, TreeEntry], bool] | None = None
    """Whether two files do not differ, instead of the rule."""
    left_files: int = 0
    """The number of selected files in the left tree so far."""
    same: int = 0
    """Files so far that do not differ."""
    skipped: dict[str, S3kError] = field(default_factory=dict)
    """Entries that a listing left out or whose content could not be read, by their full names, and
    why."""

    async def differences(self) -> AsyncGenerator[Difference, None]:
        """The differences in ascending order. A right tree without a root is empty. Raises
        PathNotFoundError (no root of the left tree)."""
        async with aclosing(self._pairs()) as pairs:
            window: list[_Pair] = []
            async for pair in pairs:
                window.append(pair)
                if len(window) == WINDOW:
                    for each in await self._compared(window):
                        yield each
                    window = []
            for each in await self._compared(window):
                yield each

    async def _pairs(self) -> AsyncGenerator[_Pair, None]:
        """The entries of both trees, those of one path together."""
        async with (
            aclosing(self._listed(self.left)) as lefts,
            aclosing(self._listed(self.right, missing_ok=True)) as rights,
        ):
            left, right = await anext(lefts, None), await anext(rights, None)
            while left is not None or right is not None:
                if right is None or (left is not None and left.order < right.order):
                    yield left, None
                    left = await anext(lefts, None)
                elif left is None or right.order < left.order:
                    yield None, right
                    right = await anext(rights, None)
                else:
                    yield left, right
                    left, right = await anext(lefts, None), await anext(rights, None)

    async def _listed(
        self, tree: FileTree, *, missing_ok: bool = False
    ) -> AsyncGenerator[TreeEntry, None]:
        """The selected entries of a tree."""
        if not await tree.exists():
            if missing_ok:
                return
            raise PathNotFoundError("no such directory", path=tree.label)
        select = self.selection
        async with aclosing(tree.entries(self._skip)) as entries:
            async for entry in entries:
                if not select or (not entry.is_dir and select.takes_below(entry.path)):
                    yield entry

    def _skip(self, name: str, error: S3kError) -> None:
        self.skipped[name] = error

    async def _compared(self, window: list[_Pair]) -> list[Difference]:
        kinds = [self._kind(left, right) for left, right in window]
        if self.rule == "checksum":
            same = [at for at, kind in enumerate(kinds) if kind is None and _are_files(window[at])]
            contents = await gather(self._content, [window[at] for at in same], limit=READS)
            for at, kind in zip(same, contents, strict=True):
                kinds[at] = kind
        found = []
        for (left, right), kind in zip(window, kinds, strict=True):
            either = left or right
            assert either is not None
            self.left_files += left is not None and not left.is_dir
            if kind is not None:
                found.append(Difference(either.path, kind, left, right))
        return found

    def _kind(self, left: TreeEntry | None, right: TreeEntry | None) -> DifferenceKind | None:
        """The difference of two entries, apart from content."""
        if left is None or right is None:
            either = left or right
            assert either is not None
            both = self.left.lists_directories and self.right.lists_directories
            if either.is_dir and not both and not either.etag:
                return None
            return "only_left" if right is None else "only_right"
        if left.is_dir != right.is_dir:
            return "type"
        if left.is_dir:
            return None
        if self.equal is not None:
            kind: DifferenceKind | None = None if self.equal(left, right) else "content"
        elif left.size != right.size:
            kind = "size"
        else:
            kind = "time" if self.rule == "time" and _is_newer(left, right) else None
        self.same += kind is None and self.rule != "checksum"
        return kind

    async def _content(self, pair: _Pair) -> DifferenceKind | None:
        """The difference in content of two files of one size."""
        left, right = pair
        assert left is not None
        assert right is not None
        try:
            if not await self._is_same(left, right):
                return "content"
        except S3kError as error:
            if is_hopeless(error) or isinstance(error, UnsupportedError):
                raise
            self.skipped[self.left.full_name(left.path)] = error
        else:
            self.same += 1
        return None

    async def _is_same(self, left: TreeEntry, right: TreeEntry) -> bool:
        """Whether the contents of two files of one size are equal: by recorded checksums or entity
        tags, or else by reading what is not recorded."""
        if left.checksum and right.checksum:
            return left.checksum == right.checksum
        if left.etag == right.etag and _DIGEST.fullmatch(left.etag):
            return True
        if self.left.is_local and await _has_etag(self.left, left, right.etag):
            return True
        if self.right.is_local and await _has_etag(self.right, right, left.etag):
            return True
        return await _checksum(self.left, left) == await _checksum(self.right, right)


def _are_files(pair: _Pair) -> bool:
    return all(side is not None and not side.is_dir for side in pair)


def _is_newer(left: TreeEntry, right: TreeEntry) -> bool:
    if left.mtime_ms is None or right.mtime_ms is None:
        return False
    return left.mtime_ms > right.mtime_ms


async def _has_etag(tree: FileTree, entry: TreeEntry, etag: str) -> bool:
    """Whether an entity tag is the MD5 digest of a file; False also if it is none."""
    if "-" in etag or not _DIGEST.fullmatch(etag):
        return False
    digest = hashlib.md5(usedforsecurity=False)
    async for piece in _pieces(tree, entry):
        digest.update(piece)
    return digest.hexdigest() == etag


async def _checksum(tree: FileTree, entry: TreeEntry) -> str:
    """The recorded checksum of a file, or else that of its content."""
    if entry.checksum:
        return entry.checksum
    digest = Xxh3_128()
    async for piece in _pieces(tree, entry):
        digest.update(piece)
    return CHECKSUM_PREFIX + digest.hexdigest()


async def _pieces(tree: FileTree, entry: TreeEntry) -> AsyncIterator[bytes]:
    async with aclosing(tree.content(entry)) as pieces:
        async for piece in pieces:
            yield piece
