"""Copies of files and trees, within a volume or between two."""

from __future__ import annotations

import stat
from collections.abc import AsyncGenerator
from dataclasses import replace

from s3k_async import _native
from s3k_async._core.concurrency import run_all
from s3k_async.attributes import AttributeChange, Attributes
from s3k_async.bulk.file_writes import LARGE, NewFile, write_files, written_alone
from s3k_async.bulk.publish import ProgressCallback, ProgressTally, Upload, is_below, publish_new
from s3k_async.errors import (
    CorruptDataError,
    DataMissingError,
    IsDirectoryError,
    RenameIntoSelfError,
    S3kError,
)
from s3k_async.files.file_ranges import LOOKS, naming_file, require_readable
from s3k_async.model import ROOT, ChangeResult, Content, Entry
from s3k_async.namespace.access_control import CheckedReads
from s3k_async.namespace.attribute_changes import change_attributes
from s3k_async.namespace.entry_reader import existing
from s3k_async.namespace.ordered_walk import walk
from s3k_async.namespace.store import WriteTarget
from s3k_async.permissions import DIRECTORY_MODE, Ownership
from s3k_async.volumes.volume import Volume

__all__ = ["attributes_of_copy", "copied", "copied_file", "copy", "make_directory_like"]

DIRECTORIES = 16
"""Directories that are created at the same time."""


async def copy(
    origin: Volume,
    source: str,
    destination: Volume,
    target: str,
    *,
    overwrite: bool,
    recursive: bool,
    progress: ProgressCallback | None,
) -> ChangeResult:
    """Copy a file, or with `recursive` a directory, within a volume or between two."""
    tally = ProgressTally("copy", progress)
    with destination.calls.running():
        entry = await existing(origin.store, source)
        if not entry.is_dir:
            require_readable(origin.store, entry)
            upload = copied(origin, entry, destination)
            tally.add(
                await publish_new(
                    destination,
                    target,
                    upload,
                    overwrite=overwrite,
                    attributes=attributes_of_copy(entry, destination),
                )
            )
            return tally.result
        if not recursive:
            raise IsDirectoryError(
                "the source is a directory, and the copy is not recursive", path=source
            )
        if origin.is_same(destination) and is_below(target, source):
            raise RenameIntoSelfError(
                "a directory cannot be copied to itself or below itself", path=target
            )
        made = await make_directory_like(entry, destination, target, exist_ok=overwrite)
        tally.add(made)
        tree = _TreeCopy(origin, entry, destination, target, overwrite, tally)
        await write_files(
            destination, tree.files(), overwrite=overwrite, done=tree.done, failed=tree.failed
        )
        tally.result.raise_for_failures(path=entry.path)
        return tally.result


def attributes_of_copy(entry: Entry, destination: Volume) -> Attributes | None:
    """The attributes of a copy: those of the original, except read-only, if the volume has any.
    In a volume with permissions the copy belongs to the identity, and has the mode of the original
    without the bits of the umask, and without those above the permission bits, as by `cp`; a
    directory allows its owner everything, so that it can be filled."""
    if not destination.record.attributes:
        return None
    former = Attributes.from_json(entry.attributes)
    attributes = replace(former, read_only=False, changed_ms=None)
    if not destination.store.access.is_evaluated:
        return attributes
    mode = Ownership.of(entry).mode & DIRECTORY_MODE | (stat.S_IRWXU if entry.is_dir else 0)
    return replace(attributes, mode=mode, uid=None, gid=None)


async def make_directory_like(
    entry: Entry, destination: Volume, target: str, *, exist_ok: bool = True
) -> Entry:
    """The directory at the target, with the attributes of the original, if that has any. Raises
    PermissionDeniedError for a read-only one that would change."""
    store, attributes = destination.store, attributes_of_copy(entry, destination)
    wanted = "" if attributes is None or target == ROOT else attributes.to_json()
    made = await store.make_directory(target, exist_ok=exist_ok, attributes=wanted)
    present = Attributes.from_json(made.attributes)
    if attributes is None or not wanted or attributes == present:
        return made
    change = replace(AttributeChange.to(attributes), read_only=None)
    if store.access.is_evaluated:
        # An existing directory keeps its owner and mode, and a new one has those of the copy.
        change = AttributeChange(metadata=attributes.metadata)
        if present.metadata == attributes.metadata:
            return made
    store.refuse_read_only(made)
    return await change_attributes(store, target, change)


def copied(origin: Volume, entry: Entry, destination: Volume) -> Upload:
    """An upload that copies the data of the entry; if its version was replaced and collected
    meanwhile, that of the present one."""

    async def upload(at: WriteTarget) -> Content:
        current = entry
        for _ in range(LOOKS):
            try:
                return await _copied_version(origin, current, destination, at)
            except (CorruptDataError, DataMissingError):
                found = await origin.store.get(entry.path)
                if found is None or found.is_dir or found.content == current.content:
                    raise
                current = found
        return await _copied_version(origin, current, destination, at)

    return upload


def copied_file(
    origin: Volume,
    entry: Entry,
    destination: Volume,
    place: str,
    *,
    overwrite: bool,
    mtime_ms: int | None = None,
) -> NewFile:
    """The copy of a file at a path. `mtime_ms`: its modification time; None is when it is
    published."""
    upload = copied(origin, entry, destination)
    is_streamed = not destination.storage.blobs.can_copy_from(origin.storage.blobs)
    file = NewFile(
        place,
        entry.size if is_streamed else 0,
        upload,
        source=entry.path,
        attributes=attributes_of_copy(entry, destination),
        mtime_ms=mtime_ms,
    )
    return written_alone(destination, file, overwrite=overwrite) if entry.size >= LARGE else file


async def _copied_version(
    origin: Volume, entry: Entry, destination: Volume, at: WriteTarget
) -> Content:
    require_readable(origin.store, entry)
    with naming_file(entry):
        target = destination.storage.at(at.path)
        return await target.copy_from(origin.storage, entry.content, at.object_id)


class _TreeCopy:
    """The copy of everything below one directory."""

    def __init__(
        self,
        origin: Volume,
        top: Entry,
        destination: Volume,
        target: str,
        overwrite: bool,
        tally: ProgressTally,
    ) -> None:
        self._origin = origin
        self._top = top
        self._destination = destination
        self._target = target
        self._overwrite = overwrite
        self._tally = tally

    async def files(self) -> AsyncGenerator[NewFile, None]:
        """The files. Directories are created before those in them are returned."""
        skip = len(self._top.path.rstrip("/")) + 1
        top = CheckedReads(self._origin.store, self._top)
        async for page in walk(top, self._origin.store.keys.directory(self._top)):
            placed: list[tuple[Entry, str]] = []
            for entry in page:
                if entry.is_reservation:
                    continue
                with self._tally.noting(entry.path):
                    placed.append((entry, _native.normalize(f"{self._target}/{entry.path[skip:]}")))
            directories = [each for each in placed if each[0].is_dir]
            await run_all(self._make_directory, directories, limit=DIRECTORIES)
            for entry, place in placed:
                if not entry.is_dir:
                    yield copied_file(
                        self._origin, entry, self._destination, place, overwrite=self._overwrite
                    )

    async def _make_directory(self, placed: tuple[Entry, str]) -> None:
        entry, place = placed
        with self._tally.noting(entry.path):
            self._tally.add(await make_directory_like(entry, self._destination, place))

    def done(self, file: NewFile, size: int) -> None:
        """Count a copied file."""
        self._tally.count(ChangeResult(1, 0, size), file.path)

    def failed(self, file: NewFile, error: S3kError) -> None:
        """Record a file that could not be copied."""
        self._tally.failures.append((file.source, error))
