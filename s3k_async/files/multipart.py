"""Multipart uploads: files whose parts are stored in any order, by any process, and published
together.

The data of each part is stored under the object id that the upload has chosen, so that completion
publishes the parts as extents of the file, without a copy. `txn.upload_records` has the records,
and the protocol between clients that store parts and those that complete or abort the upload.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterable, Awaitable, Callable, Sequence
from contextlib import aclosing
from dataclasses import replace
from functools import partial
from typing import Final

from s3k_async._core.active_calls import optional
from s3k_async._core.concurrency import gather, run_all
from s3k_async.attributes import Attributes
from s3k_async.backends.ports.blobs import Buffer
from s3k_async.backends.ports.pagination import list_all
from s3k_async.bulk.entry_attributes import checked_attributes
from s3k_async.errors import (
    ArgumentTypeError,
    ConditionFailedError,
    ConflictError,
    CorruptDataError,
    DataMissingError,
    InvalidArgumentError,
    IsDirectoryError,
    OutcomeUnknownError,
    PartialFailureError,
    PermissionDeniedError,
    S3kError,
    UnsupportedError,
    UploadNotFoundError,
)
from s3k_async.files.edits import LARGEST_FILE, compacted
from s3k_async.files.file_ranges import require_readable
from s3k_async.files.open_files import bytes_of, drop_unpublished
from s3k_async.model import ROOT, Content, Entry
from s3k_async.namespace.conflict_backoff import ConflictBackoff
from s3k_async.namespace.entry_reader import existing
from s3k_async.namespace.multi_path_commit import commit_mutations
from s3k_async.namespace.mutations import WriteFile
from s3k_async.oplog.entries import history_prefix
from s3k_async.storage.extents import (
    Extent,
    content_of,
    cut,
    extents_of,
    has_extents,
    joined,
    object_of,
    parse_extents,
    physical_keys,
    whole_object,
)
from s3k_async.storage.physical import EXTENTS_AT_ONCE, PhysicalStorage
from s3k_async.txn.upload_items import MultipartUpload, PartInfo
from s3k_async.txn.upload_records import UploadRecords
from s3k_async.volumes.volume import Volume

__all__ = [
    "LARGEST_NUMBER",
    "UPLOAD_LIFETIME",
    "abort_upload",
    "complete_upload",
    "copy_part",
    "create_upload",
    "expire_uploads",
    "list_parts",
    "list_uploads",
    "need_upload",
    "need_uploads",
    "put_part",
]

_LOG = logging.getLogger(__name__)

UPLOAD_LIFETIME: Final = 7 * 86_400.0
"""Seconds after which garbage collection may abort an upload, unless it was created with another
lifetime."""
LARGEST_NUMBER: Final = 10**10 - 1
"""The largest number of a part."""
_ENDED_AT_ONCE: Final = 8
_LONGEST_LIFETIME: Final = 10**10


async def create_upload(
    volume: Volume,
    path: str,
    *,
    lifetime: float = UPLOAD_LIFETIME,
    attributes: Attributes | None = None,
    bucket: str = "",
) -> MultipartUpload:
    """Begin a multipart upload of the file at a path, which may exist, and may have other uploads.
    Nothing is visible at the path before the upload is completed. `lifetime`: seconds after which
    garbage collection, or `expire_uploads`, may abort it. `attributes`: those of the file, in a
    volume with attributes; None: an existing file keeps its own. `bucket`: the object id of the
    directory that it belongs to.

    Raises IsDirectoryError (the root), InvalidPathError, ArgumentTypeError, InvalidArgumentError,
    UnsupportedError, ReadOnlyVolumeError.
    """
    need_uploads(volume, path)
    if path == ROOT:
        raise IsDirectoryError("the root is a directory", path=path)
    volume.store.layout.check_path(path)
    if isinstance(lifetime, bool) or not isinstance(lifetime, int | float):
        raise ArgumentTypeError(
            f"the lifetime of an upload is a number of seconds, not {type(lifetime).__name__}",
            path=path,
        )
    if not 0 < lifetime <= _LONGEST_LIFETIME:
        raise InvalidArgumentError(
            f"the lifetime of an upload is a number of seconds, not {lifetime!r}", path=path
        )
    checked = None if attributes is None else checked_attributes(volume, path, attributes)
    await _require_permission(volume, path)
    return await _records(volume).create(path, int(lifetime * 1000), checked, bucket)


async def list_uploads(
    volume: Volume,
    directory: str = ROOT,
    *,
    after: str = "",
    limit: int = 1000,
    include_denied: bool = False,
    bucket: str = "",
) -> list[MultipartUpload]:
    """The open uploads of files below a directory, in the order of their ids, at most `limit` of
    those after the id `after`; fewer at the end. `bucket`: the object id of the directory, for the
    uploads that belong to it, wherever it was at their start. An upload that is open for the whole
    call is listed; in a volume with permissions only if the caller may write its file, or with
    `include_denied`. Reads the records of all uploads of the volume. Raises ItemFormatError."""
    need_uploads(volume, directory)
    if limit < 1:
        raise InvalidArgumentError(f"the limit is at least 1, not {limit}", path=directory)
    below = ROOT if directory == ROOT else directory + "/"

    def is_there(upload: MultipartUpload) -> bool:
        if bucket:
            return upload.is_of(directory, bucket)
        return upload.path.startswith(below)

    found: list[MultipartUpload] = []
    async with aclosing(_records(volume).pages(after=after)) as pages:
        async for page in pages:
            there = [each for each in page if each.is_open and is_there(each)]
            found += [each for each in there if include_denied or await _is_permitted(volume, each)]
            if len(found) >= limit:
                break
    return found[:limit]


async def _is_permitted(volume: Volume, upload: MultipartUpload) -> bool:
    """Whether the caller may write the file of an upload."""
    try:
        await _require_permission(volume, upload.path)
    except PermissionDeniedError:
        return False
    return True


async def _require_permission(volume: Volume, path: str) -> None:
    """Check that the caller may write, or create, the file of an upload, in a volume with
    permissions. Raises PermissionDeniedError."""
    access = volume.store.access
    if access.is_enforced:
        await access.permit_write(path, await volume.store.get(path))


async def _require_own(volume: Volume, upload_id: str) -> None:
    """`_require_permission` for an upload that may have ended."""
    if volume.store.access.is_enforced:
        upload = await _records(volume).get(upload_id)
        if upload is not None:
            await _require_permission(volume, upload.path)


async def need_upload(volume: Volume, upload_id: str) -> MultipartUpload:
    """An open upload. Raises UploadNotFoundError, ItemFormatError, PermissionDeniedError."""
    need_uploads(volume, ROOT)
    upload = await _records(volume).need_open(upload_id)
    await _require_permission(volume, upload.path)
    return upload


async def put_part(
    volume: Volume, upload_id: str, number: int, data: Buffer | AsyncIterable[Buffer]
) -> PartInfo:
    """Store a part, in place of the one with this number. Any number from 0 is valid, and gaps are;
    the parts come one after the other in the order of their numbers. Of concurrent calls with one
    number the last one wins.

    Raises UploadNotFoundError: if the upload was completed during the call, the file may have the
    part. OutcomeUnknownError: the upload has the part, and a completion may miss it.
    """

    async def store(storage: PhysicalStorage) -> Content:
        if not isinstance(data, AsyncIterable):
            return await storage.put(upload_id, bytes_of(data, upload_id))
        writer = storage.writer(upload_id)
        try:
            async for piece in data:
                await writer.write(bytes_of(piece, upload_id))
            return await writer.finish()
        except BaseException:
            await writer.abort()
            raise

    return await _store_part(volume, upload_id, number, store)


async def copy_part(
    volume: Volume, upload_id: str, number: int, path: str, offset: int = 0, size: int | None = None
) -> PartInfo:
    """Store a range of a file as a part, otherwise as `put_part`: `size` bytes from `offset` on, to
    its end without `size`. Long ranges are copied inside the service, where it can.

    Raises InvalidArgumentError for a range that the file does not have, PathNotFoundError,
    IsDirectoryError, UncommittedFileError, DataMissingError, CorruptDataError.
    """
    for value in (offset, 0 if size is None else size):
        if isinstance(value, bool) or not isinstance(value, int):
            raise ArgumentTypeError("offset and size are numbers of bytes", path=path)
    need_uploads(volume, path)
    entry = await existing(volume.store, path)
    require_readable(volume.store, entry)
    end = entry.size if size is None else offset + size
    if not 0 <= offset <= end <= entry.size:
        raise InvalidArgumentError(
            f"the file has {entry.size:,} bytes, and not those from {offset:,} to {end:,}",
            path=path,
        )
    return await _store_part(
        volume,
        upload_id,
        number,
        lambda storage: _copy_range(storage, entry.content, upload_id, offset, end),
    )


async def list_parts(volume: Volume, upload_id: str) -> list[PartInfo]:
    """The parts of an upload, by number. Raises UploadNotFoundError, ItemFormatError."""
    need_uploads(volume, ROOT)
    records = _records(volume)
    await need_upload(volume, upload_id)
    parts = await records.parts(upload_id)
    await records.need_open(upload_id)
    return parts


async def complete_upload(volume: Volume, upload_id: str) -> Entry:
    """Publish the parts as the file at the path of the upload, in place of an existing one; missing
    parents are created. The id is invalid afterwards. If there are more parts than a file has
    extents, neighbours are joined, which reads and writes them. Returns the file.

    Parts that were stored before the call are in the file; a part that is stored during the call is
    there, or its caller gets UploadNotFoundError. After any error but OutcomeUnknownError the
    upload is as it was.

    Raises UploadNotFoundError, InvalidArgumentError (no parts, or too large), IsDirectoryError,
    NotDirectoryError, BusyError, ConflictError (parts were stored all the time).
    """
    need_uploads(volume, ROOT)
    records = _records(volume)
    await _require_own(volume, upload_id)
    race = ConflictBackoff(volume.store)
    while True:
        upload = await records.begin_completion(upload_id)
        parts = await records.parts(upload_id)
        _need_parts(upload, parts)
        try:
            content = await _publish(volume, records, upload, parts)
        except ConflictError as error:
            await race.lost(error)
            continue
        await _clean_up(volume, records, upload, parts, content)
        return await _published(volume, upload, content)


async def abort_upload(volume: Volume, upload_id: str) -> None:
    """Remove an upload and the data of its parts. The id is invalid afterwards. After an
    interruption, the same call again, or garbage collection, removes the rest. Data that a file of
    the upload may have, in a table that was restored from a backup, is left to garbage collection.

    Raises UploadNotFoundError, PartialFailureError (some data could not be deleted).
    """
    need_uploads(volume, ROOT)
    await _require_own(volume, upload_id)
    records = _records(volume)
    with volume.freeing_space():
        upload = await records.get(upload_id)
        await records.abort(upload_id, partial(_delete_data, volume, upload))


async def expire_uploads(volume: Volume) -> int:
    """Abort all uploads that have expired, and remove what is left of those that are not open;
    returns their number. `s3k gc` does the same, and a later run of it deletes their data. Raises
    ItemFormatError."""
    need_uploads(volume, ROOT)
    records, ended = _records(volume), 0

    async def end(upload: MultipartUpload) -> None:
        nonlocal ended
        was_over = await records.end_if_over(upload.id)
        ended += was_over

    now_ms = volume.store.runtime.now_ms()
    async with aclosing(records.pages()) as pages:
        async for page in pages:
            over = [each for each in page if not each.is_open or each.expires_ms <= now_ms]
            await run_all(end, over, limit=_ENDED_AT_ONCE)
    return ended


def need_uploads(volume: Volume, path: str) -> None:
    """Raise UnsupportedError unless the volume has multipart uploads, ReadOnlyVolumeError for one
    that cannot be changed."""
    volume.store.require_writable(path)
    if not (volume.record.uploads and volume.storage.extents):
        raise UnsupportedError(
            "the volume has no multipart uploads: s3k migrate --enable uploads adds them", path=path
        )


async def _delete_data(volume: Volume, upload: MultipartUpload | None, keys: list[str]) -> None:
    if upload is None or await _was_published(volume, upload):
        return
    failures = await volume.blobs.delete_many(keys)
    if failures:
        raise PartialFailureError(
            f"{len(failures)} objects of an aborted upload could not be deleted: abort it again, "
            "or leave them to s3k gc",
            path=failures[0].key,
            failures=[(each.key, each.error) for each in failures],
        )


async def _was_published(volume: Volume, upload: MultipartUpload) -> bool:
    """Whether the file of an upload that is not completed is at its path, or committed by an entry
    of the log: in a table that was restored from a backup, the upload may be from before its
    completion. Segments are not read, which takes the whole log; garbage collection does."""
    try:
        entry = await volume.store.get(upload.path)
        if entry is not None and entry.id == upload.id:
            return True
        if volume.log_blobs is None:
            return False
        logged = [info async for info in list_all(volume.log_blobs, history_prefix(upload.id))]
    except S3kError:
        return True  # perhaps: garbage collection decides
    return any(info.key.endswith(".committed") for info in logged)


def _records(volume: Volume) -> UploadRecords:
    return UploadRecords(volume.items, volume.store.runtime)


# Parts


async def _store_part(
    volume: Volume,
    upload_id: str,
    number: int,
    store: Callable[[PhysicalStorage], Awaitable[Content]],
) -> PartInfo:
    need_uploads(volume, ROOT)
    _need_number(number, upload_id)
    records = _records(volume)
    upload = await need_upload(volume, upload_id)
    content = await store(volume.storage.at(upload.path))
    part, before = await _put_item(volume, records, upload_id, number, content)
    try:
        await records.confirm_part(upload_id)
    except UploadNotFoundError:
        # Its data may be in the file; otherwise garbage collection removes it.
        await records.withdraw_part(upload_id, part)
        raise
    except S3kError as error:
        raise OutcomeUnknownError(
            "the part is stored, but a completion that has begun may publish the file without it: "
            f"store it again: {error}",
            path=upload.path,
            operation=part.operation,
        ) from error
    if before is not None and not await _was_published(volume, upload):
        # No completion that read the former part can succeed any more.
        unused = ConflictError("the part was replaced", path=upload_id)
        await drop_unpublished(volume.storage, before.content.physical, unused)
    return part


async def _put_item(
    volume: Volume, records: UploadRecords, upload_id: str, number: int, content: Content
) -> tuple[PartInfo, PartInfo | None]:
    """Store the item of a part; returns it, and the part that it replaces."""
    race = ConflictBackoff(volume.store)
    while True:
        before = await records.part(upload_id, number)
        try:
            return await records.put_part(upload_id, number, content, before), before
        except ConditionFailedError as error:
            reason = ConflictError("other clients kept storing this part", path=upload_id)
            reason.__cause__ = error
        try:
            await race.lost(reason)
        except ConflictError:
            await drop_unpublished(volume.storage, content.physical, reason)
            raise


def _need_number(number: int, upload_id: str) -> None:
    if isinstance(number, bool) or not isinstance(number, int):
        raise ArgumentTypeError(
            f"the number of a part is a number, not {type(number).__name__}", path=str(upload_id)
        )
    if not 0 <= number <= LARGEST_NUMBER:
        raise InvalidArgumentError(
            f"the number of a part is 0 to {LARGEST_NUMBER:,}, not {number:,}", path=str(upload_id)
        )


async def _copy_range(
    storage: PhysicalStorage, content: Content, object_id: str, start: int, end: int
) -> Content:
    """Copy the bytes [start, end) of a file; its holes stay holes."""
    if (start, end) == (0, content.size):
        return await storage.copy_from(storage, content, object_id)
    if not has_extents(content.physical):
        return await storage.copy_range(content, object_id, start, end)

    async def copied(extent: Extent) -> Extent:
        if extent.is_hole:
            return extent
        made = await storage.copy_range(object_of(extent), object_id, extent.offset, extent.end)
        return whole_object(made)

    pieces = cut(parse_extents(content.physical), start, end)
    return content_of(object_id, joined(await gather(copied, pieces, limit=EXTENTS_AT_ONCE)))


# Completion


def _need_parts(upload: MultipartUpload, parts: Sequence[PartInfo]) -> None:
    size = sum(each.size for each in parts)
    if not parts:
        raise InvalidArgumentError(
            "the upload has no parts: store one, or abort the upload", path=upload.path
        )
    if size > LARGEST_FILE:
        raise InvalidArgumentError(
            f"the parts have {size:,} bytes, and a file at most {LARGEST_FILE:,}", path=upload.path
        )


async def _publish(
    volume: Volume, records: UploadRecords, upload: MultipartUpload, parts: Sequence[PartInfo]
) -> Content:
    """Publish the parts; returns the content of the file. Raises ConflictError if parts were stored
    since they were read, or another completion has begun."""
    store = volume.store
    target = await store.prepare(upload.path)
    try:
        content = await _joined(volume, upload, parts)
    except (DataMissingError, CorruptDataError) as error:
        if await records.is_current(upload):
            raise
        raise _interrupted(upload) from error
    write = WriteFile(
        upload.path,
        upload.id,
        content,
        store.target(upload.path, target.current).lease_ms,
        replaces=False,
        overwrite=True,
        source="staged",
        attributes=_stored(upload),
    )
    try:
        await commit_mutations(store, [write], also=[records.completed(upload)])
    except ConditionFailedError as error:
        interrupted = _interrupted(upload)
        await _drop_joined(volume, parts, content, interrupted)
        raise interrupted from error
    except S3kError as error:
        await _drop_joined(volume, parts, content, error)
        raise
    return content


def _stored(upload: MultipartUpload) -> str | None:
    return None if upload.attributes is None else upload.attributes.to_json()


def _interrupted(upload: MultipartUpload) -> ConflictError:
    return ConflictError(
        "parts were stored while the upload was being completed; complete it again",
        path=upload.path,
    )


async def _joined(volume: Volume, upload: MultipartUpload, parts: Sequence[PartInfo]) -> Content:
    filled = [each for each in parts if each.size]
    if len(filled) == 1:
        return filled[0].content
    extents = [each for part in filled for each in extents_of(part.content, upload.id)]
    return content_of(upload.id, await compacted(volume.storage, upload.id, extents, upload.path))


async def _drop_joined(
    volume: Volume, parts: Sequence[PartInfo], content: Content, reason: S3kError
) -> None:
    """Remove the objects of joined parts, if the reason shows that they were not published."""
    for key in sorted(set(physical_keys(content.physical)) - _keys(parts)):
        await drop_unpublished(volume.storage, key, reason)


def _keys(parts: Sequence[PartInfo]) -> set[str]:
    return {key for each in parts for key in physical_keys(each.content.physical)}


async def _clean_up(
    volume: Volume,
    records: UploadRecords,
    upload: MultipartUpload,
    parts: Sequence[PartInfo],
    content: Content,
) -> None:
    """Remove what a completed upload leaves: its items, and the objects of parts that were joined.
    Garbage collection removes the rest."""
    unused = sorted(_keys(parts) - set(physical_keys(content.physical)))
    try:
        with optional():
            if unused:
                for failure in await volume.blobs.delete_many(unused):
                    raise failure.error
            await records.forget(upload.id)
    except S3kError as error:
        _LOG.warning(
            "the upload of %s is completed; what it leaves is left to garbage collection: %s",
            upload.path,
            error,
        )


async def _published(volume: Volume, upload: MultipartUpload, content: Content) -> Entry:
    """The file that was published, or, if it was changed since, as it was then."""
    store = volume.store
    try:
        found = await store.get(upload.path)
    except S3kError:
        found = None
    if found is not None and found.id == upload.id and found.content == content:
        return found
    given = store.access.attributes_of_new(_stored(upload) or "", upload.path, is_dir=False)
    made = replace(store.new_file(upload.path, upload.id), attributes=given)
    return made.with_content(content, mtime_ms=made.mtime_ms, operation="")
