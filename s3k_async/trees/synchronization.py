"""One-way synchronization of two trees: files that the target lacks or that differ are copied."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import aclosing
from dataclasses import dataclass, field
from itertools import groupby
from typing import Final, Literal, TypeAlias

from s3k_async._core.concurrency import run_all
from s3k_async.bulk.publish import ProgressCallback
from s3k_async.bulk.transfer import TransferTally
from s3k_async.errors import (
    InvalidArgumentError,
    IsDirectoryError,
    NotDirectoryError,
    OverlapError,
    PathExistsError,
    PathNotFoundError,
    S3kError,
    UnsupportedError,
)
from s3k_async.listing.selection import Selection
from s3k_async.model import Failure
from s3k_async.trees.comparison import ComparisonRule, Difference, TreeComparison
from s3k_async.trees.file_tree import FileTree, TreeEntry, TreeTarget

__all__ = [
    "Change",
    "ChangeKind",
    "SyncOptions",
    "SyncResult",
    "kind_conflict",
    "require_apart",
    "synchronize",
]

ChangeKind: TypeAlias = Literal["copy", "make", "delete"]
Change: TypeAlias = Callable[[ChangeKind, TreeEntry], object]
"""Called for each file to copy, directory to make, and entry to delete, before that is done."""

WINDOW: Final = 1000
"""Changes whose directories are created together, and removals of one call."""
DIRECTORIES: Final = 16
"""Directories that are created at the same time."""


@dataclass(frozen=True, slots=True)
class SyncOptions:
    """What is compared, and what is done about the differences."""

    rule: ComparisonRule = "time"
    selection: Selection = field(default_factory=Selection)
    overwrite: bool = True
    """Whether files that differ are replaced; otherwise they are failures."""
    delete: bool = False
    """Whether entries that exist only in the target are removed."""
    force: bool = False
    """Whether they are removed even if the source has no files."""
    dry_run: bool = False
    """Whether nothing is changed."""


@dataclass(frozen=True, slots=True)
class SyncResult:
    """What was copied, made and deleted; in a dry run, what would be."""

    files: int
    """Copied files, and their size in `bytes`."""
    directories: int
    bytes: int
    unchanged: int
    """Files that do not differ."""
    deleted: int
    """Deleted files."""
    deleted_directories: int
    failures: tuple[Failure, ...] = ()
    """By the full names of entries. After a failure nothing is deleted."""

    @property
    def changed(self) -> int:
        """The number of changes."""
        return self.files + self.directories + self.deleted + self.deleted_directories


async def synchronize(
    source: FileTree,
    target: FileTree,
    options: SyncOptions | None = None,
    *,
    on_change: Change | None = None,
    progress: ProgressCallback | None = None,
) -> SyncResult:
    """Synchronize the target with the source: copy files that it lacks, or that differ by the rule,
    and create directories; with `delete`, remove what exists only in the target, after all copies.

    A copy has the modification time of its source. Each file is copied by itself; failures are in
    the result. The same call continues an interrupted one. Raises PathNotFoundError (no source),
    NotDirectoryError (one of the roots is a file), OverlapError, UnsupportedError (a target that
    cannot be changed, a source without contents), InvalidArgumentError (`delete`, and no file in
    the source), and errors that affect every file (`bulk.transfer.HOPELESS`).
    """
    if not isinstance(target, TreeTarget):
        raise UnsupportedError(
            "this kind of tree cannot be changed; the target is a directory of a volume, or a "
            "local one",
            path=target.label,
        )
    if not source.has_contents:
        raise UnsupportedError(
            "a listing has no contents to copy: give the tree itself", path=source.label
        )
    require_apart(source, target)
    if not await source.exists():
        raise PathNotFoundError("no such directory", path=source.label)
    run = _SyncRun(source, target, options or SyncOptions(), on_change, progress)
    return await run.run(target)


def require_apart(source: FileTree, target: FileTree) -> None:
    """Raise OverlapError if one of two trees contains the other, or the volume of the other."""
    for one, other in ((source, target), (target, source)):
        root = one.places[0]
        if any(root.contains(place) or place.contains(root) for place in other.places):
            raise OverlapError(
                f"source and target overlap: {other.label}; choose separate directories",
                path=one.label,
            )


def kind_conflict(entry: TreeEntry, where: str) -> S3kError:
    """The error of a file at whose path the target has a directory, or the reverse."""
    if entry.is_dir:
        return NotDirectoryError("the target has a file at the path", path=where)
    return IsDirectoryError("the target has a directory at the path", path=where)


class _SyncRun:
    """One synchronization: a pass that copies, one that deletes, and another one that copies what
    was in the way of a deleted entry."""

    def __init__(
        self,
        source: FileTree,
        target: FileTree,
        options: SyncOptions,
        on_change: Change | None,
        progress: ProgressCallback | None,
    ) -> None:
        self._source = source
        self._target = target
        self._options = options
        self._on_change = on_change
        self._copies = TransferTally("sync", None, progress)
        self._failures: dict[str, Exception] = {}
        self._deleted = [0, 0]
        """Files and directories."""
        self._surplus = 0
        """Entries that exist only in the target."""
        self._blocked = 0
        """Entries to copy once another kind of entry at their paths is deleted."""
        self._comparison = self._compare()

    async def run(self, target: TreeTarget) -> SyncResult:
        options = self._options
        if not options.dry_run:
            await target.make_directory(self._source, TreeEntry("", True))
        await self._copy(target)
        if options.delete and (self._surplus or self._blocked):
            self._require_files()
            unchanged = self._comparison.same
            if not options.dry_run and not self._failures:
                await self._delete(target)
                if self._blocked and not self._failures:
                    await self._copy(target)
                self._comparison.same = unchanged
        done = self._copies.tally
        return SyncResult(
            done.files,
            done.directories,
            done.bytes,
            self._comparison.same,
            self._deleted[0],
            self._deleted[1],
            tuple(self._failures.items()),
        )

    def _require_files(self) -> None:
        """Raise InvalidArgumentError if the comparison, at its end, has seen no file of the source,
        unless the deletion is forced."""
        if not self._comparison.left_files and not self._options.force:
            raise InvalidArgumentError(
                "the source has no files, and nothing was deleted; to empty the target "
                "anyway, force the deletion (--force)",
                path=self._source.label,
            )

    def _tell(self, kind: ChangeKind, entry: TreeEntry) -> None:
        if self._on_change is not None:
            self._on_change(kind, entry)

    def _compare(self) -> TreeComparison:
        options = self._options
        return TreeComparison(self._source, self._target, options.rule, options.selection)

    async def _copy(self, target: TreeTarget) -> None:
        """Copy what differs; or, in a dry run, count it."""
        self._comparison = self._compare()
        self._surplus = self._blocked = 0
        changes = self._changes()
        if self._options.dry_run:
            async with aclosing(changes):
                async for entry in changes:
                    self._count(entry)
        else:
            files = self._files(changes, target)
            await target.copy_files(
                self._source,
                files,
                overwrite=self._options.overwrite,
                done=lambda entry, size: self._copies.done(entry.path, size),
                failed=self._fail,
            )
        self._note_skipped()

    def _count(self, entry: TreeEntry) -> None:
        if entry.is_dir:
            self._copies.tally.directories += 1
        else:
            self._copies.done(entry.path, entry.size)

    def _fail(self, entry: TreeEntry, error: S3kError) -> None:
        self._copies.failed(entry.path, error)  # raises it if it ends the run
        self._failures[self._target.full_name(entry.path)] = error

    def _note_skipped(self) -> None:
        self._failures = {**self._comparison.skipped, **self._failures}

    async def _changes(self) -> AsyncGenerator[TreeEntry, None]:
        """The files to copy and directories to make, in order."""
        blocked: str | None = None
        """A directory of the source at whose path the target has a file."""
        async with aclosing(self._comparison.differences()) as differences:
            async for each in differences:
                if each.left is None:
                    self._note_surplus(each.right)
                    continue
                if blocked is not None and each.path.startswith(f"{blocked}/"):
                    if not (self._options.dry_run and self._options.delete):
                        continue
                elif each.kind == "type":
                    blocked = each.path if each.left.is_dir else blocked
                    if not self._may_replace(each):
                        continue
                elif each.right is not None and not self._options.overwrite:
                    error = PathExistsError("the file exists, and differs", path=each.path)
                    self._fail(each.left, error)
                    continue
                self._tell("make" if each.left.is_dir else "copy", each.left)
                yield each.left

    def _note_surplus(self, entry: TreeEntry | None) -> None:
        self._surplus += 1
        if self._options.dry_run and self._options.delete and entry is not None:
            self._tell("delete", entry)
            self._deleted[entry.is_dir] += 1

    def _may_replace(self, each: Difference) -> bool:
        """Whether a file takes the place of a directory, or the reverse, now: only in a dry run,
        since the target's entry has to be deleted before."""
        assert each.left is not None
        if not self._options.delete:
            where = self._target.full_name(each.path)
            self._fail(each.left, kind_conflict(each.left, where))
            return False
        self._blocked += 1
        if self._options.dry_run:
            self._note_surplus(each.right)
        return self._options.dry_run

    async def _files(
        self, changes: AsyncGenerator[TreeEntry, None], target: TreeTarget
    ) -> AsyncGenerator[TreeEntry, None]:
        """The files to copy. Directories are made before files in them are returned."""
        async with aclosing(changes):
            window: list[TreeEntry] = []
            async for entry in changes:
                window.append(entry)
                if len(window) == WINDOW:
                    async with aclosing(self._with_directories(window, target)) as files:
                        async for file in files:
                            yield file
                    window = []
            async with aclosing(self._with_directories(window, target)) as files:
                async for file in files:
                    yield file

    async def _with_directories(
        self, window: Iterable[TreeEntry], target: TreeTarget
    ) -> AsyncGenerator[TreeEntry, None]:
        async def make(entry: TreeEntry) -> None:
            try:
                await target.make_directory(self._source, entry)
            except S3kError as error:
                self._fail(entry, error)
            else:
                self._copies.tally.directories += 1

        directories = sorted((each for each in window if each.is_dir), key=_depth)
        for _, level in groupby(directories, _depth):
            await run_all(make, list(level), limit=DIRECTORIES)
        for entry in window:
            if not entry.is_dir:
                yield entry

    async def _delete(self, target: TreeTarget) -> None:
        """Remove what exists only in the target, the content of each directory before the
        directory; nothing before a file of the source was seen again, since the source may have
        become empty."""
        self._comparison = self._compare()
        batch: list[TreeEntry] = []
        async with aclosing(self._surplus_entries()) as entries:
            async for entry in entries:
                batch.append(entry)
                if len(batch) >= WINDOW and (self._comparison.left_files or self._options.force):
                    await self._remove(batch, target)
                    batch = []
        self._note_skipped()
        if not self._comparison.skipped:
            self._require_files()
            await self._remove(batch, target)

    async def _remove(self, batch: list[TreeEntry], target: TreeTarget) -> None:
        failed: set[str] = set()

        def fail(entry: TreeEntry, error: S3kError) -> None:
            failed.add(entry.path)
            self._fail(entry, error)

        for entry in batch:
            self._tell("delete", entry)
        await target.remove_listed(batch, failed=fail)
        for entry in batch:
            self._deleted[entry.is_dir] += entry.path not in failed

    async def _surplus_entries(self) -> AsyncGenerator[TreeEntry, None]:
        waiting: list[TreeEntry] = []
        """Directories whose content is being returned, topmost first."""
        async with aclosing(self._comparison.differences()) as differences:
            async for each in differences:
                if self._comparison.skipped:
                    return  # the source may have what it does not list
                while waiting and not each.path.startswith(f"{waiting[-1].path}/"):
                    yield waiting.pop()
                if each.right is None or each.kind not in ("only_right", "type"):
                    continue
                if each.right.is_dir:
                    waiting.append(each.right)
                else:
                    yield each.right
        while waiting and not self._comparison.skipped:
            yield waiting.pop()


def _depth(entry: TreeEntry) -> int:
    return entry.path.count("/")
