"""Restoration of a subtree to an earlier time: the differences from its state at that time, and
the changes that restore it.

Files are restored one by one, as in `undeletion`; a directory in the trash as a whole.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Final, Literal, TypeAlias

from s3k_async._core.concurrency import gather, run_all
from s3k_async._core.worker_threads import in_thread
from s3k_async.bulk.file_versions import LOOKS, has_data, log_of, read_log, was_there
from s3k_async.bulk.past_tree import PastTree
from s3k_async.bulk.publish import ProgressCallback, ProgressTally
from s3k_async.bulk.undeletion import bring_back_many, kept_attributes, replace_by
from s3k_async.errors import ConflictError, PathNotFoundError, PermissionDeniedError
from s3k_async.listing.listings import Listing
from s3k_async.model import ROOT, ChangeResult, Entry, TrashItem
from s3k_async.volumes.volume import Volume

__all__ = ["PastChange", "PastChangeKind", "PastResult", "restore_to"]

PastChangeKind: TypeAlias = Literal[
    "restore_directory", "create_directory", "create", "replace", "delete", "none"
]
"""`restore_directory`: from the trash, with everything below it. `create`, `replace`: a file gets
the content of that time. `delete`: a file that was created later. `none`: the state of that time
cannot be recovered."""
FILES: Final = 16
"""Files that are replaced, or deleted, at the same time."""
_COLLECTED: Final = "its data does not exist any more"


@dataclass(frozen=True, slots=True)
class PastChange:
    """One difference between a subtree and its state at an earlier time."""

    kind: PastChangeKind
    path: str
    size: int = 0
    version: str = ""
    """The id of the version that the file gets, as `FileVersion.id`."""
    problem: str = ""
    """Why the state of that time cannot be recovered; empty for every other kind than `none`."""


@dataclass(frozen=True, slots=True)
class PastResult:
    """The result of a restoration to an earlier time."""

    changes: tuple[PastChange, ...]
    """All differences, by path."""
    done: ChangeResult
    """The changes that were made, with those that failed; nothing for a dry run."""
    history_ms: int | None = None
    """Since when the log has every operation, epoch milliseconds, if the requested time is earlier:
    files that were deleted or moved before may then be missing among the changes. None if the
    history of the requested time is complete."""

    @property
    def unrecoverable(self) -> int:
        """The number of differences that cannot be undone."""
        return sum(each.kind == "none" for each in self.changes)


@dataclass(frozen=True, slots=True)
class _Difference:
    """A change to be made, with the entries that it needs."""

    change: PastChange
    past: Entry | None = None
    seen: Entry | None = None
    item: TrashItem | None = None


async def restore_to(
    volume: Volume,
    path: str,
    time_ms: int,
    *,
    delete: bool,
    dry_run: bool,
    progress: ProgressCallback | None,
) -> PastResult:
    """Bring everything at and below a path to its state at a time. `delete`: also delete files that
    were created later. Raises PathNotFoundError if nothing is, or ever was, at the path."""
    if not dry_run:
        volume.store.require_writable(path)
    volume.store.access.require_superuser("restore a subtree to an earlier time", path)
    log = await read_log(volume, path)
    try:
        history_ms = await log_of(volume, path).checkpoints.history_ms()
        if history_ms is not None and history_ms <= time_ms:
            history_ms = None
        past = PastTree(log, volume.store, path, time_ms, history_ms)
        await in_thread(past.build)
        found = await _Comparison(volume, path, time_ms, past, delete=delete).run()
        is_there = bool(found) or path == ROOT or await volume.store.get(path) is not None
        if not is_there and not await in_thread(was_there, log, volume.store, path):
            reason = (
                "no file or directory is or was at the path, as far as the operation log goes back"
            )
            if history_ms is not None:
                reason += ": compaction has removed history of that time"
            raise PathNotFoundError(reason, path=path)
    finally:
        log.close()
    found.sort(key=lambda each: each.change.path)
    changes = tuple(each.change for each in found)
    if dry_run:
        return PastResult(changes, ChangeResult(), history_ms)
    return PastResult(changes, await _apply(volume, found, progress), history_ms)


class _Comparison:
    """The comparison of the present tree with that of an earlier time."""

    def __init__(
        self, volume: Volume, path: str, time_ms: int, past: PastTree, *, delete: bool
    ) -> None:
        self._volume = volume
        self._path = path
        self._time_ms = time_ms
        self._past = past
        self._delete = delete
        self._found: list[_Difference] = []
        self._directories: set[str] = set()
        """Paths of directories that come from the trash."""

    async def run(self) -> list[_Difference]:
        """All differences."""
        unknown = {each.path: each.reason for each in self._past.unknown}
        self._found += [_problem(path, reason) for path, reason in unknown.items()]
        async for page in self._present():
            await in_thread(self._compare_page, page, unknown)
        for item in await self._trashed():
            await self._compare_trashed(item, unknown)
        await in_thread(self._add_left)
        return _without_losses(await self._with_data())

    def _add_left(self) -> None:
        """Add what is at no path now."""
        for past in self._past.left():
            if past.is_dir:
                self._found.append(_Difference(PastChange("create_directory", past.path), past))
            else:
                self._found.append(_difference("create", past))

    async def _present(self) -> AsyncIterator[Iterable[Entry]]:
        store = self._volume.store
        top = await store.get(self._path)
        if top is None:
            return
        if top.is_dir and self._path != ROOT:
            yield [top]
        try:
            pages = Listing(recursive=True).pages(store, self._path)
            async with aclosing(pages):
                async for page in pages:
                    yield page
        except PathNotFoundError:
            return  # removed meanwhile

    def _compare_page(self, page: Iterable[Entry], unknown: dict[str, str]) -> None:
        for entry in page:
            self._compare(entry, unknown)

    def _compare(self, entry: Entry, unknown: dict[str, str]) -> None:
        past = self._past.take(entry.path)
        if past is None:
            if self._delete and not entry.is_dir and entry.path not in unknown:
                self._found.append(self._surplus(entry))
        elif past.is_dir != entry.is_dir:
            kind = "directory" if entry.is_dir else "file"
            self._found.append(_problem(entry.path, f"a {kind} is at the path now", past))
        elif not entry.is_dir and not _is_same(past, entry):
            self._found.append(_difference("replace", past, entry))

    def _surplus(self, entry: Entry) -> _Difference:
        """The deletion of a file that was created later, or whose state of that time is restored to
        another path."""
        if reason := self._past.reason_to_keep(entry):
            return _problem(entry.path, reason)
        return _Difference(PastChange("delete", entry.path, entry.size), seen=entry)

    async def _trashed(self) -> Sequence[TrashItem]:
        """The directories in the trash that were in the tree at that time, the topmost first."""
        store = self._volume.store
        if not store.layout.has_trash:
            return ()
        items = [
            each
            for each in await store.layout.trash().items()
            if not each.state
            and each.when_ms > self._time_ms
            and self._past.directory(each.id) is not None
        ]

        def depth(item: TrashItem) -> tuple[int, str]:
            return str(self._past.directory(item.id)).count("/"), item.id

        return sorted(items, key=depth)

    async def _compare_trashed(self, item: TrashItem, unknown: dict[str, str]) -> None:
        """Restore a directory from the trash, if its path of that time is free, and compare what is
        below it. Otherwise its files are copied."""
        store, place = self._volume.store, self._past.directory(item.id)
        if place is None or place in self._directories or await store.get(place) is not None:
            return
        try:
            pages = store.layout.trash().walk(item)
            async with aclosing(pages):
                async for page in pages:
                    found = [
                        replace(entry, path=place + entry.path[len(item.was) :])
                        for entry in page.without_reservations()
                    ]
                    self._directories.update(each.path for each in found if each.is_dir)
                    await in_thread(self._compare_page, found, unknown)
        except (PathNotFoundError, PermissionDeniedError):
            return  # reclaimed meanwhile, or another user's: its files are copied
        self._directories.add(place)
        self._past.take(place)
        self._found.append(_Difference(PastChange("restore_directory", place), item=item))

    async def _with_data(self) -> list[_Difference]:
        """The differences; those whose data is gone cannot be undone."""

        async def checked(difference: _Difference) -> _Difference:
            past = difference.past
            if past is None or past.is_dir or difference.change.kind == "none":
                return difference
            if await has_data(self._volume, past):
                return difference
            return _problem(past.path, _COLLECTED, past)

        return await gather(checked, self._found, limit=LOOKS)


def _is_same(past: Entry, entry: Entry) -> bool:
    """Whether a file has the content of an earlier one: the same object or checksum; without a
    checksum, as after changes in place, the same size and modification time."""
    if (past.id, past.physical) == (entry.id, entry.physical):
        return True
    if past.size != entry.size or past.checksum != entry.checksum:
        return False
    return bool(past.checksum) or past.mtime_ms == entry.mtime_ms


def _difference(kind: PastChangeKind, past: Entry, seen: Entry | None = None) -> _Difference:
    version = f"{past.id}.{past.version}"
    return _Difference(PastChange(kind, past.path, past.size, version), past, seen)


def _problem(path: str, reason: str, past: Entry | None = None) -> _Difference:
    return _Difference(PastChange("none", path, problem=reason), past)


def _without_losses(found: Sequence[_Difference]) -> list[_Difference]:
    """The differences, without deletions of files that cannot be restored to their former paths."""
    lost = {
        each.past.id: each.past.path
        for each in found
        if each.change.kind == "none" and each.past is not None
    }

    def kept(each: _Difference) -> _Difference:
        if each.change.kind != "delete" or each.seen is None or each.seen.id not in lost:
            return each
        return _problem(each.seen.path, f"its state at {lost[each.seen.id]} cannot be recovered")

    return [kept(each) for each in found]


async def _apply(
    volume: Volume, found: Sequence[_Difference], progress: ProgressCallback | None
) -> ChangeResult:
    """Make the changes: directories first, the topmost before those below them, so that each gets
    its attributes, and nothing is created at the path of one from the trash; deletions last."""
    store = volume.store
    tally = ProgressTally("restore", progress)

    async def directory(difference: _Difference) -> None:
        path, past = difference.change.path, difference.past
        with tally.noting(path):
            if difference.item is not None:
                tally.add(await store.layout.trash().restore(difference.item, path))
            elif past is not None:
                kept = kept_attributes(volume, past)
                stored = "" if kept is None else kept.to_json()
                tally.add(await store.make_directory(path, attributes=stored))

    async def file(difference: _Difference) -> None:
        with tally.noting(difference.change.path):
            past, seen = difference.past, difference.seen
            if past is None and seen is not None:
                await store.delete_file(seen)
                tally.add(seen)
            elif past is not None and seen is not None:
                tally.add(await replace_by(volume, past, seen))

    def of(*kinds: PastChangeKind) -> list[_Difference]:
        return [each for each in found if each.change.kind in kinds]

    directories = of("restore_directory", "create_directory")
    for each in sorted(directories, key=lambda each: each.change.path.count("/")):
        await directory(each)
    created = [each.past for each in of("create") if each.past is not None]
    await bring_back_many(
        volume,
        [(past, past.path) for past in created],
        lambda path, size: tally.count(ChangeResult(1, 0, size), path),
        lambda path, error: tally.failures.append((path, error)),
    )
    await run_all(file, of("replace"), limit=FILES)
    await run_all(file, _deletable(of("delete"), found, tally), limit=FILES)
    return tally.result


def _deletable(
    deletions: Sequence[_Difference], found: Sequence[_Difference], tally: ProgressTally
) -> list[_Difference]:
    """The deletions, except those of files whose restoration to the former path failed; these are
    recorded as failures."""
    failed = {path for path, _ in tally.failures}
    lost = {
        each.past.id: each.past.path
        for each in found
        if each.past is not None and each.change.path in failed
    }
    left: list[_Difference] = []
    for each in deletions:
        former = None if each.seen is None else lost.get(each.seen.id)
        if former is None:
            left.append(each)
            continue
        path = each.change.path
        kept = ConflictError(f"the file was not restored to {former}, and was kept", path=path)
        tally.failures.append((path, kept))
    return left
