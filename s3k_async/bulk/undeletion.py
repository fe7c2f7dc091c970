"""Undeletion: the creation of a file from a former version.

Its data is copied, by the service where it can, and the copy is published like any new file. So two
files never share an object, and garbage collection, which may delete the former data at any moment,
either does so before the copy is made, which then fails, or finds a young object
(docs/design/014-operators.md).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterable, Callable, Iterable
from contextlib import aclosing, closing
from dataclasses import replace
from functools import partial
from itertools import takewhile
from typing import Final

from s3k_async._core.concurrency import iterate
from s3k_async._core.worker_threads import in_thread
from s3k_async.attributes import Attributes
from s3k_async.bulk.deleted_files import DeletedFile, DeletedFiles
from s3k_async.bulk.file_versions import (
    has_data,
    logged_versions,
    read_log,
    require_visible,
    was_directory,
)
from s3k_async.bulk.file_writes import LARGE, NewFile, write_files
from s3k_async.bulk.publish import ProgressCallback, ProgressTally, publish_new
from s3k_async.errors import (
    ConflictError,
    DataMissingError,
    InvalidArgumentError,
    IsDirectoryError,
    PathExistsError,
    PathNotFoundError,
    S3kError,
)
from s3k_async.files.file_ranges import require_readable
from s3k_async.files.open_files import drop_unpublished
from s3k_async.listing.globbing import WILDCARDS, matcher
from s3k_async.model import ROOT, ChangeResult, Content, Entry, TrashItem
from s3k_async.namespace.store import WriteTarget
from s3k_async.volumes.volume import Volume

__all__ = [
    "bring_back_many",
    "kept_attributes",
    "replace_by",
    "undelete",
    "undelete_matching",
    "undelete_tree",
]

_BROUGHT_BACK: Final = frozenset({"deleted", "overwritten", "trash"})
"""States of the versions from which one is chosen. A file that was moved is not lost."""


async def undelete(volume: Volume, path: str, *, version: str, target: str) -> Entry:
    """Bring the version of a file with an id back, by default the newest one that was deleted or
    overwritten and has data."""
    volume.store.require_writable(target)
    found = await logged_versions(volume, path, version)
    wanted = [each for each in found if version or each.state in _BROUGHT_BACK]
    if not wanted:
        raise await _nothing_at(volume, path, version)
    await _require_free(volume, target)
    for each in wanted:
        if await has_data(volume, each.entry):
            return await bring_back(volume, each.entry, target)
    raise DataMissingError("the data of the file does not exist any more", path=path)


async def bring_back(volume: Volume, entry: Entry, target: str) -> Entry:
    """Create a file from a former version of one: with its content, checksum, attributes and
    modification time. Raises PathExistsError, DataMissingError (collected by now), and as a write.
    """
    return await publish_new(
        volume,
        target,
        partial(_copied, volume, entry),
        overwrite=False,
        attributes=kept_attributes(volume, entry),
        mtime_ms=entry.mtime_ms,
    )


async def bring_back_many(
    volume: Volume,
    wanted: Iterable[tuple[Entry, str]] | AsyncIterable[tuple[Entry, str]],
    done: Callable[[str, int], object],
    failed: Callable[[str, S3kError], object],
) -> None:
    """As `bring_back`, many versions at different paths, a hundred entries in a request. One of
    `done`, with the path and the size, and `failed` is called for each."""
    is_streamed = not volume.storage.blobs.can_copy_from(volume.storage.blobs)

    def new_file(entry: Entry, place: str) -> NewFile:
        async def alone() -> int:
            return (await bring_back(volume, entry, place)).size

        return NewFile(
            place,
            entry.size if is_streamed else 0,
            partial(_copied, volume, entry),
            alone if entry.size >= LARGE else None,
            attributes=kept_attributes(volume, entry),
            mtime_ms=entry.mtime_ms,
        )

    async def new_files() -> AsyncGenerator[NewFile, None]:
        async with aclosing(iterate(wanted)) as each:
            async for entry, place in each:
                yield new_file(entry, place)

    await write_files(
        volume,
        new_files(),
        overwrite=False,
        done=lambda file, size: done(file.path, size),
        failed=lambda file, error: failed(file.path, error),
    )


async def replace_by(volume: Volume, entry: Entry, seen: Entry) -> Entry:
    """Give a file the content and attributes of a former version, if it is still as it was seen.
    Raises ConflictError, and as `bring_back`."""
    store = volume.store
    at = await store.prepare_existing(seen.path)
    if at.current is None or (at.current.id, at.current.version) != (seen.id, seen.version):
        raise ConflictError("the file was changed meanwhile; it was left as it is", path=seen.path)
    content = await _copied(volume, entry, at)
    kept = kept_attributes(volume, entry) or Attributes()
    stored = kept.to_json() if volume.record.attributes else None
    try:
        return await store.publish(at, content, mtime_ms=entry.mtime_ms, attributes=stored)
    except S3kError as error:
        await drop_unpublished(volume.storage, content.physical, error)
        raise


async def undelete_tree(
    volume: Volume,
    path: str,
    *,
    target: str,
    since_ms: int | None,
    progress: ProgressCallback | None,
) -> ChangeResult:
    """Bring a deleted directory back: from the trash, or else the files that were deleted below
    it."""
    store = volume.store
    store.require_writable(target)
    current = await require_visible(volume, path)
    if current is not None and not current.is_dir:
        raise PathExistsError("a file is at the path of the directory", path=path)
    tally = ProgressTally("undelete", progress)
    item = await _trashed(volume, path, since_ms)
    if item is not None and await store.get(target) is None:
        tally.add(await store.layout.trash().restore(item, target))
        return tally.result
    is_wanted = partial(_is_wanted, volume, since_ms)
    with closing(await read_log(volume, path)) as log:
        deleted = DeletedFiles(log, path)
        if await in_thread(deleted.find, is_wanted):
            start = len(path.rstrip("/"))

            def place_of(path: str) -> str:
                return target.rstrip("/") + path[start:]

            await _bring_back(volume, deleted, place_of, tally)
            return tally.result
    if item is not None:
        await _require_free(volume, target)
    raise await _nothing_at(volume, path, "", recursive=True)


async def undelete_matching(
    volume: Volume,
    pattern: str,
    *,
    target: str | None,
    recursive: bool,
    since_ms: int | None,
    progress: ProgressCallback | None,
) -> ChangeResult | None:
    """Bring back the deleted files that match a pattern, the last one at each path, if the path is
    free; with `recursive` also those below directories that match, and matching directories of the
    trash. None if nothing matches, or if a deleted file has the pattern as its path.

    `target`: the directory for the matches, each under its own name; a path there that is not free
    is a failure. Raises InvalidArgumentError (two matches have the same name there),
    PartialFailureError, and as `undelete_tree`.
    """
    store = volume.store
    store.require_writable(target or pattern)
    await require_visible(volume, top := _literal_top(pattern))
    match = _Match(pattern, recursive)
    tally = ProgressTally("undelete", progress)
    with closing(await read_log(volume, top)) as log:
        deleted = DeletedFiles(log, top)
        matches: set[str] = set()

        def is_wanted(file: DeletedFile) -> bool:
            path = match(file.entry.path)
            if path is None or not _is_wanted(volume, since_ms, file):
                return False
            if target is not None or path == pattern:
                matches.add(path)
            return True

        count = await in_thread(deleted.find, is_wanted)
        items = [] if not recursive else await _trashed_matching(volume, match, since_ms)
        if not (count or items) or pattern in {*matches, *(item.was for item in items)}:
            return None
        if target is not None:
            _need_distinct({*matches, *(item.was for item in items)})

        def place_of(path: str) -> str:
            above = "" if target is None else str(match(path)).rpartition("/")[0]
            return path if target is None else target.rstrip("/") + path[len(above) :]

        for item in items:
            with tally.noting(item.was):
                place = place_of(item.was)
                if target is not None or await store.get(place) is None:
                    tally.add(await store.layout.trash().restore(item, place))
        await _bring_back(volume, deleted, place_of, tally, into_free=target is None)
    return tally.result.raise_for_failures(path=pattern)


class _Match:
    """Finds the path that matches a pattern: that of a file, or with `recursive` the uppermost
    directory above it."""

    def __init__(self, pattern: str, recursive: bool) -> None:
        self._matches = matcher(pattern)
        self._recursive = recursive

    def __call__(self, path: str) -> str | None:
        names = path[1:].split("/")
        levels = range(1 if self._recursive else len(names), len(names) + 1)
        found = ("/".join(names[:level]) for level in levels)
        return next((f"/{each}" for each in found if self._matches(each)), None)


def _literal_top(pattern: str) -> str:
    """The directory above the first component of a pattern with a wildcard."""
    names = pattern.split("/")
    literal = list(takewhile(WILDCARDS.isdisjoint, names[:-1]))
    return "/".join(literal) or ROOT


def _need_distinct(paths: Iterable[str]) -> None:
    """Raise InvalidArgumentError if two paths end with the same name."""
    names = Counter(path.rpartition("/")[2] for path in paths)
    for name, count in names.items():
        if count > 1:
            raise InvalidArgumentError(
                f"{count} matches have the name {name!r}, and would be at one path: undelete them "
                "one by one, or at their former paths"
            )


async def _trashed_matching(volume: Volume, match: _Match, since_ms: int | None) -> list[TrashItem]:
    """The directories of the trash that match; of each path the one that was deleted last."""
    if not volume.store.layout.has_trash:
        return []
    newest = {
        item.was: item
        for item in reversed(await volume.store.layout.trash().items())
        if match(item.was) == item.was and (since_ms is None or item.when_ms >= since_ms)
    }
    return list(newest.values())


def _is_wanted(volume: Volume, since_ms: int | None, file: DeletedFile) -> bool:
    access = volume.store.access
    # The modes of the directories that are gone are not known.
    may_see = not access.is_enforced or access.of(file.entry).is_owner(access.identity)
    return may_see and (since_ms is None or file.time_ms >= since_ms)


async def _bring_back(
    volume: Volume,
    deleted: DeletedFiles,
    place_of: Callable[[str], str],
    tally: ProgressTally,
    *,
    into_free: bool = True,
) -> None:
    """Bring deleted files back, each at the place of its path. `into_free`: omit those whose place
    is not free, instead of failing."""

    def done(place: str, size: int) -> None:
        tally.count(ChangeResult(1, 0, size), place)

    def failed(place: str, error: S3kError) -> None:
        is_taken = isinstance(error, PathExistsError | IsDirectoryError)
        if not (into_free and is_taken):
            tally.failures.append((place, error))

    async def places() -> AsyncGenerator[tuple[Entry, str], None]:
        for each in deleted.files():
            if not (each.is_pending and await _exists(volume, each.entry)):
                yield each.entry, place_of(each.entry.path)

    await bring_back_many(volume, places(), done, failed)


async def _copied(volume: Volume, entry: Entry, at: WriteTarget) -> Content:
    require_readable(volume.store, entry)
    try:
        target = volume.storage.at(at.path)
        return await target.copy_from(volume.storage, entry.content, at.object_id)
    except DataMissingError as error:
        raise DataMissingError(
            "the data of this version does not exist any more", path=entry.path
        ) from error


def kept_attributes(volume: Volume, entry: Entry) -> Attributes | None:
    """The attributes of a version that is brought back; those of its owner only for the
    superuser, as by `cp`."""
    if not (volume.record.attributes and entry.attributes):
        return None
    attributes = Attributes.from_json(entry.attributes)
    if volume.store.access.is_enforced:
        attributes = replace(attributes, uid=None, gid=None)
    return attributes


async def _exists(volume: Volume, entry: Entry) -> bool:
    there = await volume.store.get(entry.path)
    return there is not None and there.id == entry.id


async def _require_free(volume: Volume, target: str) -> None:
    if (there := await volume.store.get(target)) is not None:
        kind = "directory" if there.is_dir else "file"
        raise PathExistsError(f"a {kind} is at the path", path=target)


async def _nothing_at(
    volume: Volume, path: str, version: str, *, recursive: bool = False
) -> S3kError:
    """The error for a path without a version that can be brought back."""
    if version:
        return PathNotFoundError(f"the file has no version {version}", path=path)
    if not recursive and await was_directory(volume, path):
        return IsDirectoryError(
            "what was deleted here is a directory, and undelete is not recursive", path=path
        )
    return PathNotFoundError("the log has no deleted file at the path", path=path)


async def _trashed(volume: Volume, path: str, since_ms: int | None) -> TrashItem | None:
    """The directory that was deleted at a path last and can be restored."""
    if not volume.store.layout.has_trash:
        return None
    try:
        item = await volume.store.layout.trash().newest(path)
    except PathNotFoundError:
        return None
    return item if since_ms is None or item.when_ms >= since_ms else None
