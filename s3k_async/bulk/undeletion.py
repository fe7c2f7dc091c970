"""Undeletion: a former version of a file becomes a file again.

Its data is copied, by the service where it can, and the copy is published as any new file is: so no
two files ever share an object, and garbage collection, which may delete the former data at any
moment, either leaves the copy nothing to read, or finds a young object
(docs/design/014-operators.md).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

import anyio.to_thread

from s3k_async._core.concurrency import run_all
from s3k_async.attributes import Attributes
from s3k_async.bulk.file_versions import (
    has_data,
    histories_at,
    logged_versions,
    require_visible,
)
from s3k_async.bulk.publish import ProgressCallback, ProgressTally, is_below, publish_new
from s3k_async.errors import (
    ConflictError,
    DataMissingError,
    IsDirectoryError,
    PathExistsError,
    PathNotFoundError,
    S3kError,
)
from s3k_async.files.file_ranges import require_readable
from s3k_async.files.open_files import drop_unpublished
from s3k_async.model import ChangeResult, Content, Entry, TrashItem
from s3k_async.namespace.store import WriteTarget
from s3k_async.oplog.entry_states import EntryState
from s3k_async.volumes.volume import Volume

__all__ = ["bring_back", "kept_attributes", "replace_by", "undelete", "undelete_tree"]

FILES: Final = 16
"""Files that are brought back at the same time."""
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

    async def copy(at: WriteTarget) -> Content:
        return await _copied(volume, entry, at)

    require_readable(volume.store, entry)
    return await publish_new(
        volume,
        target,
        copy,
        overwrite=False,
        attributes=kept_attributes(volume, entry),
        mtime_ms=entry.mtime_ms,
    )


async def replace_by(volume: Volume, entry: Entry, seen: Entry) -> Entry:
    """Give a file the content and attributes of a former version, if it is still as it was seen.
    Raises ConflictError, and as `bring_back`."""
    store = volume.store
    require_readable(store, entry)
    at = await store.prepare_existing(seen.path)
    if at.current is None or (at.current.id, at.current.version) != (seen.id, seen.version):
        raise ConflictError("the file was changed meanwhile; it was left as it is", path=seen.path)
    content = await _copied(volume, entry, at)
    attributes = kept_attributes(volume, entry)
    try:
        return await store.publish(
            at,
            content,
            mtime_ms=entry.mtime_ms,
            attributes=None if attributes is None else attributes.to_json(),
        )
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
    wanted = await _deleted_below(volume, path, since_ms)
    if not wanted:
        raise await _nothing_at(volume, path, "", recursive=True)

    async def one(deleted: _DeletedFile) -> None:
        place = target.rstrip("/") + deleted.entry.path[len(path.rstrip("/")) :]
        with tally.noting(place):
            if await store.get(place) is None:
                tally.add(await bring_back(volume, deleted.entry, place))

    await run_all(one, wanted, limit=FILES)
    return tally.result


async def _copied(volume: Volume, entry: Entry, at: WriteTarget) -> Content:
    try:
        return await volume.storage.copy_from(volume.storage, entry.content, at.object_id)
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
    below = [] if recursive else await histories_at(volume, path, below=True)
    places = [state.entry.path for history in below for state in history.states]
    if any(place != path and is_below(place, path) for place in places):
        return IsDirectoryError(
            "a directory was at the path; undeleting one has to be asked for",
            path=path,
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


@dataclass(frozen=True, slots=True)
class _DeletedFile:
    entry: Entry
    deleted_ms: int


async def _deleted_below(volume: Volume, path: str, since_ms: int | None) -> list[_DeletedFile]:
    """Of each path below a directory, the file that was deleted there last."""
    histories = await histories_at(volume, path, below=True)

    def newest() -> list[_DeletedFile]:
        found: dict[str, _DeletedFile] = {}
        for history in histories:
            last = history.states[-1]
            if not (_is_deleted_file(last) and is_below(last.entry.path, path)):
                continue
            deleted = _DeletedFile(last.entry, last.until_ms or 0)
            other = found.get(last.entry.path)
            if (since_ms is None or deleted.deleted_ms >= since_ms) and (
                other is None or other.deleted_ms < deleted.deleted_ms
            ):
                found[last.entry.path] = deleted
        return [found[place] for place in sorted(found)]

    return await anyio.to_thread.run_sync(newest)


def _is_deleted_file(state: EntryState) -> bool:
    return state.end == "delete" and not state.entry.is_dir and not state.entry.is_reservation
