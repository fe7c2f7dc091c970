"""The object API over a volume, for asyncio."""

from __future__ import annotations

import builtins
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import aclosing, contextmanager
from datetime import datetime, timedelta
from functools import partial
from typing import Final, TypeVar

from s3k_async._core.active_calls import call, counted_call
from s3k_async._native import ancestors, split
from s3k_async.attributes import AttributeChange, Attributes, check_name
from s3k_async.backends.ports.blobs import Buffer
from s3k_async.bulk.entry_attributes import need_attributes, set_attributes
from s3k_async.bulk.publish import publish_new
from s3k_async.client import S3kClient, volume_of
from s3k_async.errors import (
    ArgumentTypeError,
    ConflictError,
    DirectoryNotEmptyError,
    InvalidArgumentError,
    IsDirectoryError,
    NotDirectoryError,
    PathExistsError,
    PathNotFoundError,
    UncommittedFileError,
    UploadNotFoundError,
)
from s3k_async.files import multipart
from s3k_async.files.edits import need_extents, need_range, need_size, write_range
from s3k_async.files.file_ranges import read_spans
from s3k_async.files.open_files import bytes_of
from s3k_async.lifecycle_rules import LifecycleRule
from s3k_async.listing.batch_listing import RowList, RowListing
from s3k_async.listing.file_pages import file_page
from s3k_async.listing.listings import Listing, list_pages, milliseconds
from s3k_async.model import (
    ROOT,
    ChangeResult,
    Content,
    Entry,
    FileStatus,
    need_time,
    status_of,
)
from s3k_async.namespace.attribute_changes import change_attributes
from s3k_async.namespace.conflict_backoff import ConflictBackoff
from s3k_async.namespace.directories import requiring_directory
from s3k_async.namespace.store import WriteTarget
from s3k_async.objects.buckets import (
    abort_uploads,
    has_uploads,
    listed_statistics,
    purge,
    refuse_read_only,
    remove_empty,
    with_statistics,
)
from s3k_async.objects.byte_ranges import (
    copy_range,
    create_from_pieces,
    create_from_range,
    pieces_of,
    repeated,
    write_pieces,
)
from s3k_async.objects.local_bytes import Source, Target, pieces, store_pieces
from s3k_async.objects.names import bucket_path, check_new_bucket, check_prefix, object_path
from s3k_async.objects.object_info import (
    BucketInfo,
    ObjectInfo,
    ObjectPage,
    TouchTime,
    UploadInfo,
    bucket_info,
    object_info,
    upload_info,
)
from s3k_async.objects.object_metadata import (
    copy_metadata,
    move_metadata,
    objects_with,
    remove_metadata,
    value_of,
)
from s3k_async.storage.extents import Extent, content_of
from s3k_async.storage_space import StorageInfo
from s3k_async.txn.upload_items import MultipartUpload, PartInfo
from s3k_async.volumes.volume import Volume

__all__ = ["ObjectStore"]

T = TypeVar("T")

PAGE: Final = 1000
"""Objects that an iteration reads together."""


class ObjectStore:
    """The files of a volume as objects in buckets, for asyncio; `client` is an open `S3kClient`.

    A bucket is a directory of the root, and the object `a/b` of the bucket `x` the file `/x/a/b`:
    both views show the same data. Keys are relative paths (`s3k_async.objects.names`), so no object
    has a key that leads through another object; directories are not objects, and those that are
    empty do not stand in the way of a new one.

    Offsets and sizes are bytes, times epoch milliseconds. A range is cut at the end of what it is
    read from. Every method may raise InvalidArgumentError and NameTooLongError (the name of a
    bucket or object), PathNotFoundError (no such bucket or object), and what every method of
    `S3kClient` may raise. Methods that change an object in place raise UnsupportedError in a volume
    without extents.
    """

    def __init__(self, client: S3kClient) -> None:
        self._client = client

    def __repr__(self) -> str:
        return f"<ObjectStore {self._client.name!r}>"

    @call
    async def storage_info(self) -> StorageInfo:
        """The storage of the volume, as `S3kClient.storage_info`."""
        return await self._client.storage_info()

    # Buckets

    @call
    async def create_bucket(self, bucket: str, *, uid: int | None = None) -> BucketInfo:
        """Create a bucket, in one write. `uid`: the id of its owner.

        Raises PathExistsError, NameTooLongError (more than 64 characters).
        """
        path = check_new_bucket(bucket)
        attributes = ""
        if uid is not None:
            need_attributes(self._volume(), path)
            attributes = Attributes(uid=uid).checked(path).to_json()
        made = await self._volume().store.make_directory(
            path, exist_ok=False, attributes=attributes
        )
        return bucket_info(status_of(made))

    @call
    async def delete_bucket(self, bucket: str, *, force: bool = False) -> None:
        """Delete a bucket, with `force` also its pending uploads, and its objects in one moment.

        Without `force` the directories of the bucket are removed one by one, each on the condition
        that it is empty, so that no new object is lost. In a volume of layout `tree` a bucket that
        was deleted with its objects is in the trash. Raises DirectoryNotEmptyError, with `force`
        PermissionDeniedError (an object is read-only: nothing is deleted), for which the bucket is
        listed; an object that becomes read-only after that is deleted.
        """
        path = bucket_path(bucket)
        found = await self._need_bucket(path)
        if force:
            await refuse_read_only(self._volume(), path)
            await abort_uploads(self._volume(), found)
            await self._client.delete(path, recursive=True)
        elif await has_uploads(self._volume(), found):
            raise DirectoryNotEmptyError(
                "the bucket has pending uploads, which `force` aborts", path=path
            )
        elif not await remove_empty(self._client, path):
            raise DirectoryNotEmptyError(
                "the bucket has objects, which `force` deletes, too", path=path
            )

    @counted_call
    async def purge_bucket(self, bucket: str) -> ChangeResult:
        """Delete all objects and pending uploads of a bucket, and keep the bucket. The result
        counts the objects and lists those that could not be deleted. What is created meanwhile may
        remain."""
        path = bucket_path(bucket)
        await abort_uploads(self._volume(), await self._need_bucket(path))
        return await purge(self._client, path)

    def list_buckets(self) -> RowListing[BucketInfo]:
        """All buckets, by name: every directory of the root."""
        pages = self._volume().calls.stream(self._buckets(), "objects.list_buckets")
        return RowListing(pages, BucketInfo)

    @call
    async def bucket_info(
        self, bucket: str, *, statistics: bool = False, newest: bool = False
    ) -> BucketInfo:
        """A bucket; with `statistics` also the number and size of its objects and the time of the
        latest modification, from a listing of all of them. In a volume with the feature `counters`
        they are those of its counter, whose time may be that of an object that was since deleted,
        moved away or given an earlier one. With `newest` all of them are from a listing in any
        volume."""
        found = await self._need_bucket(bucket_path(bucket))
        if newest:
            return await listed_statistics(self._client, found)
        if statistics:
            return await with_statistics(self._client, self._volume(), found)
        return bucket_info(found)

    # Lifecycle rules

    @call
    async def set_rule(
        self,
        bucket: str,
        prefix: str = "",
        *,
        expire_at: int | datetime | None = None,
        expire_after: int | timedelta | None = None,
        read_only_after: int | timedelta | None = None,
    ) -> LifecycleRule:
        """Set the lifecycle rule of the objects of a bucket whose keys begin with `prefix`, in
        place of a former one. It applies to objects that are there, and that will be. Of several
        rules that have an action, the one with the longest prefix applies.

        The other arguments, and what is done when, are as of `S3kClient.set_rule`; `path` and
        `name_prefix` of the result are the directory of the prefix, and what follows its last `/`.
        Raises ArgumentTypeError, InvalidArgumentError, NotDirectoryError (an object is at the
        path), PathNotFoundError (no such bucket), UnsupportedError (a volume without the feature
        `rules`).
        """
        path, name_prefix = await self._rule_place(bucket, prefix)
        return await self._client.set_rule(
            path,
            name_prefix=name_prefix,
            expire_at=expire_at,
            expire_after=expire_after,
            read_only_after=read_only_after,
        )

    @call
    async def remove_rule(self, bucket: str, prefix: str = "") -> None:
        """Remove the lifecycle rule of a bucket, or of a prefix of its keys. Raises
        ArgumentTypeError, InvalidArgumentError, PathNotFoundError (no such bucket or rule),
        UnsupportedError."""
        path, name_prefix = await self._rule_place(bucket, prefix)
        await self._client.remove_rule(path, name_prefix=name_prefix)

    @call
    async def rules(self, bucket: str) -> builtins.list[LifecycleRule]:
        """The lifecycle rules of a bucket and of prefixes of its keys, by path and name prefix.
        Those of the root of the volume, which may apply, too, are not among them. Raises
        UnsupportedError."""
        path = bucket_path(bucket)
        await self._need_bucket(path)
        return [
            each
            for each in await self._client.rules()
            if each.path == path or each.path.startswith(path + "/")
        ]

    # Enumeration

    @call
    async def info(self, bucket: str, key: str) -> ObjectInfo:
        """An object."""
        return _info(await self._object(self._path(bucket, key)))

    @call
    async def exists(self, bucket: str, key: str) -> bool:
        """Whether an object exists. Raises PathNotFoundError without the bucket."""
        path = self._path(bucket, key)
        top, found = await self._client.stat_many([bucket_path(bucket), path])
        if top is None or not top.is_dir:
            raise _no_bucket(bucket_path(bucket))
        return found is not None and found.is_file and found.committed

    @call
    async def list(
        self, bucket: str, prefix: str = "", *, after: str = "", limit: int = 1000
    ) -> ObjectPage:
        """A page of at most `limit` objects, in the order of their keys: component by component, by
        UTF-8 bytes.

        `prefix`: only keys that begin with this text. `after`: only keys that follow this one,
        which no object need have; for the next page the `token` of the last one. An object that
        exists during the whole listing is on exactly one page, and a page costs as much as it
        shows: what precedes it is not read. Raises InvalidArgumentError (`limit`, or a prefix that
        no key can have).
        """
        _need_limit(limit)
        _need_token(after)
        return await self._page(bucket, prefix, after, limit)

    def iterate(self, bucket: str, prefix: str = "") -> RowListing[ObjectInfo]:
        """All objects whose keys begin with a prefix, in the order of `list`, a page at a time."""
        pages = self._pages(bucket, prefix)
        return RowListing(self._volume().calls.stream(pages, "objects.iterate", bucket), ObjectInfo)

    # Creation

    @call
    async def create(
        self, bucket: str, key: str, data: Buffer, *, attributes: Attributes | None = None
    ) -> ObjectInfo:
        """Create an object by one conditional write. Raises PathExistsError."""
        path = await self._new(bucket, key)
        write = partial(self._client.write, path, data, overwrite=False, attributes=attributes)
        return object_info(await self._created(path, write))

    @call
    async def put(
        self, bucket: str, key: str, data: Buffer, *, attributes: Attributes | None = None
    ) -> ObjectInfo:
        """Create or replace an object. Of concurrent writers the last one wins. `attributes`: those
        of the object from then on; None: an object that is replaced keeps its own."""
        path = await self._new(bucket, key)
        write = partial(self._client.write, path, data, attributes=attributes)
        return object_info(await self._created(path, write))

    @call
    async def create_from_file(
        self, bucket: str, key: str, source: Source, *, offset: int = 0, size: int | None = None
    ) -> ObjectInfo:
        """Create an object from a local file: a path, or an open binary file, which is read from
        its position. Of the file, `size` bytes from `offset` on.

        Raises PathExistsError, and as a local file does.
        """
        path = await self._new(bucket, key)
        _need_span(path, offset, size)
        async with aclosing(pieces(source, offset, size)) as parts:
            return object_info(
                await self._created(
                    path, lambda: create_from_pieces(self._client, path, parts), once=True
                )
            )

    @call
    async def create_copy(
        self,
        bucket: str,
        source: str,
        target: str,
        *,
        offset: int = 0,
        size: int | None = None,
        target_bucket: str | None = None,
    ) -> ObjectInfo:
        """Create an object from `size` bytes of another one, from `offset` on. Its attributes are
        not copied. All of an object, and a long range, is copied inside the service, where it
        can. Raises PathExistsError."""
        origin = self._path(bucket, source)
        _need_span(origin, offset, size)
        entry = await self._object(origin)
        path = await self._new(bucket if target_bucket is None else target_bucket, target)
        return object_info(
            await self._created(
                path, lambda: create_from_range(self._client, entry, path, offset, size)
            )
        )

    @call
    async def create_pseudo(
        self,
        bucket: str,
        key: str,
        size: int,
        *,
        attributes: Attributes | None = None,
        mtime_ms: int | None = None,
    ) -> ObjectInfo:
        """Create an object of a size that has no data, and reads as zeros. `mtime_ms`: its
        modification time; by default now. Raises PathExistsError."""
        path = await self._new(bucket, key)
        need_size(path, size)
        if mtime_ms is not None:
            need_time(mtime_ms, path)
        volume = self._volume()
        need_extents(volume, path)

        async def upload(target: WriteTarget) -> Content:
            return content_of(target.object_id, [Extent("", 0, size)] if size else [])

        publish = partial(
            publish_new,
            volume,
            path,
            upload,
            overwrite=False,
            attributes=attributes,
            mtime_ms=mtime_ms,
        )
        return _info(await self._created(path, publish))

    @call
    async def create_dummy(self, bucket: str, key: str, pattern: Buffer, size: int) -> ObjectInfo:
        """Create an object of a size that repeats a pattern of bytes, for measurements. Raises
        PathExistsError, InvalidArgumentError (an empty pattern)."""
        path = await self._new(bucket, key)
        need_size(path, size)
        parts = repeated(pattern, size, path)
        return object_info(
            await self._created(
                path, lambda: create_from_pieces(self._client, path, parts), once=True
            )
        )

    # Writing in place

    @call
    async def write(self, bucket: str, key: str, data: Buffer, *, offset: int = 0) -> ObjectInfo:
        """Replace the bytes of an object from an offset on, atomically; a missing object is
        created. It grows if they end after it, and what is between its end and the offset reads as
        zeros."""
        path = await self._new(bucket, key)
        volume = self._volume()
        return _info(
            await self._created(path, lambda: write_range(volume, path, offset, data, create=True))
        )

    @call
    async def write_copy(
        self,
        bucket: str,
        source: str,
        target: str,
        *,
        source_offset: int = 0,
        size: int | None = None,
        offset: int = 0,
        target_bucket: str | None = None,
    ) -> ObjectInfo:
        """As `write`, of `size` bytes of an object, from `source_offset` on: of one version of it,
        which may be the target itself.

        Raises ConflictError if the target was removed, replaced by another object or created
        meanwhile: repeat the call.
        """
        origin = self._path(bucket, source)
        _need_span(origin, source_offset, size)
        await self._object(origin)
        path = await self._new(bucket if target_bucket is None else target_bucket, target)
        return object_info(
            await self._created(
                path, lambda: copy_range(self._client, origin, source_offset, size, path, offset)
            )
        )

    @call
    async def write_from_file(
        self,
        bucket: str,
        key: str,
        source: Source,
        *,
        offset: int = 0,
        source_offset: int = 0,
        size: int | None = None,
    ) -> ObjectInfo:
        """As `write`, of `size` bytes of a local file, from `source_offset` on: a path, or an open
        binary file, which is read from its position.

        Raises as `write_copy`, and as a local file does.
        """
        path = await self._new(bucket, key)
        _need_span(path, source_offset, size)
        async with aclosing(pieces(source, source_offset, size)) as parts:
            return object_info(
                await self._created(
                    path, lambda: write_pieces(self._client, path, offset, parts), once=True
                )
            )

    # Reading

    @call
    async def read(
        self, bucket: str, key: str, *, offset: int = 0, size: int | None = None
    ) -> bytes:
        """At most `size` bytes of an object from an offset on, by default all; nothing is changed.
        What is read as a whole is verified. An offset after the end gives no bytes."""
        path = self._path(bucket, key)
        _need_span(path, offset, size)
        end = None if size is None else offset + size
        with _an_object(path):
            return (await read_spans(self._volume(), path, [(offset, end)]))[1][0]

    @call
    async def read_to_file(
        self, bucket: str, key: str, target: Target, *, offset: int = 0, size: int | None = None
    ) -> int:
        """Write bytes of an object, as of `read`, to a local file: a path, whose file is replaced
        when all of them are there, or an open binary file. Returns their number.

        Raises as a local file does.
        """
        path = self._path(bucket, key)
        _need_span(path, offset, size)
        with _an_object(path):
            opened = await self._client.open(path, "rb")
        async with opened as reader:
            return await store_pieces(pieces_of(reader, offset, size), target)

    @call
    async def read_dummy(self, bucket: str, key: str) -> int:
        """Read an object and drop its bytes, for measurements; returns their number."""
        path = self._path(bucket, key)
        with _an_object(path):
            async with self._client.open(path, "rb") as reader:
                return sum([len(piece) async for piece in pieces_of(reader, 0, None)])

    # Reorganisation

    @call
    async def touch(
        self, bucket: str, key: str, *, modified: TouchTime | int | datetime = TouchTime.NOW
    ) -> ObjectInfo:
        """Set the modification time of an object: `NOW`, `UNCHANGED`, epoch milliseconds or an
        aware `datetime`. Raises InvalidArgumentError (a time without a zone),
        PermissionDeniedError (a read-only object)."""
        path = self._path(bucket, key)
        entry = await self._object(path)
        if modified is TouchTime.UNCHANGED:
            return _info(entry)
        volume = self._volume()
        store = volume.store
        if modified is TouchTime.NOW:
            time = store.runtime.now_ms()
        elif (given := milliseconds(modified)) is not None:
            time = need_time(given, path)
        else:
            raise ArgumentTypeError("a time is epoch milliseconds or a datetime", path=path)
        with _an_object(path):
            return _info(
                await change_attributes(
                    store,
                    path,
                    AttributeChange(),
                    mtime_ms=time,
                    is_timed=volume.record.attributes,
                )
            )

    @call
    async def copy(
        self,
        bucket: str,
        source: str,
        target: str,
        *,
        overwrite: bool = True,
        target_bucket: str | None = None,
    ) -> ObjectInfo:
        """Copy an object with its attributes, inside the service where it can. A copy onto itself
        changes nothing. Raises PathExistsError (not `overwrite`)."""
        origin, path = await self._pair(bucket, source, target, target_bucket)
        entry = await self._object(origin)
        if origin == path:
            return _info(entry)
        await self._created(path, lambda: self._client.copy(origin, path, overwrite=overwrite))
        return _info(await self._object(path))

    @call
    async def move(
        self,
        bucket: str,
        source: str,
        target: str,
        *,
        overwrite: bool = True,
        target_bucket: str | None = None,
    ) -> ObjectInfo:
        """Move an object in one transaction, without copying its data. Moving it to its own key
        changes nothing. Raises PathExistsError (not `overwrite`)."""
        origin, path = await self._pair(bucket, source, target, target_bucket)
        entry = await self._object(origin)
        if origin == path:
            return _info(entry)
        return _info(await self._placed(path, lambda: self._move(origin, path, overwrite)))

    @call
    async def exchange(
        self, bucket: str, first: str, second: str, *, second_bucket: str | None = None
    ) -> None:
        """Let two objects change places in one transaction, with everything they have, so that at
        any time one of them has each key."""
        other = bucket if second_bucket is None else second_bucket
        paths = self._path(bucket, first), self._path(other, second)
        for path in paths:
            await self._object(path)
        await self._client.exchange(*paths)

    @call
    async def truncate(self, bucket: str, key: str, size: int = 0) -> None:
        """Cut an object off at a size, or extend it by zeros, which take no space."""
        path = self._path(bucket, key)
        with _an_object(path):
            await self._client.truncate(path, size)

    @call
    async def delete(self, bucket: str, key: str) -> None:
        """Delete an object. Readers that have it open can continue."""
        path = self._path(bucket, key)
        volume = self._volume()
        race = ConflictBackoff(volume.store)
        with volume.freeing_space():
            while True:
                try:
                    await volume.store.delete_file(await self._object(path))
                except ConflictError as error:
                    await race.lost(error)
                else:
                    return

    # Attributes and user metadata

    @call
    async def set_attributes(
        self,
        bucket: str,
        key: str,
        *,
        mode: int | None = None,
        uid: int | None = None,
        gid: int | None = None,
        read_only: bool | None = None,
    ) -> ObjectInfo:
        """Change the attributes of an object that are given, in one conditional write.

        The data, the key and the modification time of a read-only object do not change, and no verb
        replaces or deletes it. It stays read-only, unless `S3kClient.set_attributes` changes that.
        Raises InvalidArgumentError, UnsupportedError (a volume without attributes).
        """
        if read_only is False:
            raise InvalidArgumentError("an object stays read-only: only True can be set")
        path = self._path(bucket, key)
        await self._object(path)
        change = AttributeChange(mode, uid, gid, read_only)
        return _info(await set_attributes(self._volume(), path, change))

    @call
    async def set_metadata(self, bucket: str, key: str, name: str, value: Buffer) -> None:
        """Set or replace one value of the user metadata of an object.

        Names have 1 to 64 characters and do not begin with `#`; an object has up to 4 KiB of
        attributes together. Raises InvalidArgumentError, NameTooLongError, UnsupportedError (a
        volume without attributes).
        """
        path = self._path(bucket, key)
        data = bytes(bytes_of(value, path))
        check_name(name, path)
        await self._object(path)
        await set_attributes(self._volume(), path, AttributeChange(metadata={name: data}))

    @call
    async def get_metadata(self, bucket: str, key: str, name: str) -> bytes:
        """One value of the user metadata of an object. Raises MetadataNotFoundError."""
        path = self._path(bucket, key)
        return value_of(_attributes(await self._object(path)), name, path)

    @call
    async def list_metadata(self, bucket: str, key: str) -> dict[str, bytes]:
        """The user metadata of an object, by name."""
        return dict(_attributes(await self._object(self._path(bucket, key))).metadata)

    @call
    async def delete_metadata(self, bucket: str, key: str, name: str) -> None:
        """Remove one value of the user metadata of an object. Raises MetadataNotFoundError."""
        path = self._path(bucket, key)
        await self._object(path)
        await remove_metadata(self._volume(), path, name)

    @call
    async def copy_metadata(
        self, bucket: str, source: str, target: str, *, target_bucket: str | None = None
    ) -> None:
        """Give an existing object the user metadata of another one. Values of other names stay."""
        other = bucket if target_bucket is None else target_bucket
        entry, path = await self._object(self._path(bucket, source)), self._path(other, target)
        await self._object(path)
        await copy_metadata(self._volume(), entry, path)

    @call
    async def move_metadata(
        self, bucket: str, source: str, target: str, *, target_bucket: str | None = None
    ) -> None:
        """As `copy_metadata`, and remove them from the source, in one transaction."""
        other = bucket if target_bucket is None else target_bucket
        paths = self._path(bucket, source), self._path(other, target)
        for path in paths:
            await self._object(path)
        if paths[0] != paths[1]:
            await move_metadata(self._volume(), *paths)

    @call
    async def list_with_metadata(
        self, bucket: str, name: str, *, after: str = "", limit: int = 1000
    ) -> ObjectPage:
        """A page of at most `limit` objects that have user metadata of a name, from an index of the
        volume, which is read from `after` on: the `token` of the page before, and nothing else. In
        the order of the index. An object that has the name during the whole search is found.
        Raises InvalidArgumentError, NameTooLongError."""
        _need_limit(limit)
        _need_token(after)
        path = bucket_path(bucket)
        await self._need_bucket(path)
        found, token = await objects_with(self._volume(), name, path, after=after, limit=limit)
        return ObjectPage(tuple(map(object_info, found)), token or None)

    # Multipart uploads

    @call
    async def create_upload(
        self,
        bucket: str,
        key: str,
        *,
        lifetime: float = multipart.UPLOAD_LIFETIME,
        attributes: Attributes | None = None,
    ) -> UploadInfo:
        """Begin a multipart upload, one of any number for an object. Nothing is visible before it
        is completed. `lifetime`: seconds after which garbage collection may abort it. `attributes`:
        those of the object; None: one that is replaced keeps its own.

        Raises UnsupportedError (a volume without the feature `uploads`), as all verbs of uploads.
        """
        path, volume = self._path(bucket, key), self._volume()
        found = await self._need_bucket(bucket_path(bucket))
        if attributes is not None:
            need_attributes(volume, path)
        return upload_info(
            await multipart.create_upload(
                volume, path, lifetime=lifetime, attributes=attributes, bucket=found.id
            )
        )

    @call
    async def list_uploads(
        self, bucket: str, *, after: str = "", limit: int = 1000
    ) -> RowList[UploadInfo]:
        """At most `limit` pending uploads of a bucket, by id: those after the id `after`. They stay
        with their bucket if it is renamed, and have its name at their start. Raises
        InvalidArgumentError (`limit`)."""
        _need_limit(limit)
        _need_token(after)
        path = bucket_path(bucket)
        top = await self._need_bucket(path)
        found = await multipart.list_uploads(
            self._volume(), path, after=after, limit=limit, bucket=top.id
        )
        return RowList(map(upload_info, found), UploadInfo)

    @call
    async def put_part(self, upload_id: str, number: int, data: Buffer) -> PartInfo:
        """Store a part, from 0 to 9,999,999,999, of any size: one of the same number is replaced.
        The object has the parts in the order of their numbers, which may have gaps.

        Raises UploadNotFoundError: if the upload was completed during the call, the object may have
        the part. OutcomeUnknownError: the upload has the part, and a completion may miss it.
        """
        return await multipart.put_part(self._volume(), upload_id, number, data)

    @call
    async def copy_part(
        self,
        upload_id: str,
        number: int,
        bucket: str,
        key: str,
        *,
        offset: int = 0,
        size: int | None = None,
    ) -> PartInfo:
        """As `put_part`, of `size` bytes of an object, from `offset` on. A range that the object
        does not have is refused with InvalidArgumentError, not cut, so that no part is shorter than
        its caller believes."""
        path = self._path(bucket, key)
        _need_span(path, offset, size)
        with _an_object(path):
            return await multipart.copy_part(self._volume(), upload_id, number, path, offset, size)

    @call
    async def list_parts(self, upload_id: str) -> builtins.list[PartInfo]:
        """The parts of an upload, by number. Raises UploadNotFoundError."""
        return await multipart.list_parts(self._volume(), upload_id)

    @call
    async def complete_upload(self, upload_id: str) -> ObjectInfo:
        """Publish the parts as the object, which is created or replaced, in one moment. The id is
        invalid afterwards. After any error but OutcomeUnknownError the upload is as it was.

        Raises UploadNotFoundError (also if the bucket has been replaced by another one of its
        name), InvalidArgumentError (no parts, or too large), IsDirectoryError, PathNotFoundError
        (the bucket was deleted or renamed since the upload was created).
        """
        volume = self._volume()
        upload = await multipart.need_upload(volume, upload_id)
        info = upload_info(upload)
        path = self._path(info.bucket, info.key)
        complete = partial(multipart.complete_upload, volume, upload_id)

        async def need_own_bucket() -> None:
            _need_own(upload, await self._need_bucket(bucket_path(info.bucket)))

        await need_own_bucket()
        try:
            return _info(await self._created(path, complete, bucket_id=upload.bucket))
        except PathNotFoundError:
            await need_own_bucket()  # if another one has the name by now
            raise

    @call
    async def abort_upload(self, upload_id: str) -> None:
        """Remove an upload and the data of its parts. The id is invalid afterwards. Raises
        UploadNotFoundError, PartialFailureError (some data is left to garbage collection)."""
        await multipart.abort_upload(self._volume(), upload_id)

    @call
    async def expire_uploads(self) -> int:
        """Abort all uploads of the volume whose lifetime is over, as garbage collection does, and
        return their number. Their data is left to garbage collection."""
        return await multipart.expire_uploads(self._volume())

    # Internal

    def _volume(self) -> Volume:
        return volume_of(self._client)

    def _path(self, bucket: str, key: str) -> str:
        return object_path(self._volume().store.layout, bucket, key)

    async def _new(self, bucket: str, key: str) -> str:
        """The path of an object that may be created. Raises PathNotFoundError without its
        bucket."""
        path = self._path(bucket, key)
        await self._need_bucket(bucket_path(bucket))
        return path

    async def _pair(
        self, bucket: str, source: str, target: str, target_bucket: str | None
    ) -> tuple[str, str]:
        """The paths of an object and of its target."""
        other = bucket if target_bucket is None else target_bucket
        return self._path(bucket, source), await self._new(other, target)

    async def _need_bucket(self, path: str) -> FileStatus:
        found = await self._volume().store.get(path)
        if found is None or not found.is_dir:
            raise _no_bucket(path)
        return status_of(found)

    async def _object(self, path: str) -> Entry:
        """The entry of an object. Raises PathNotFoundError for anything else."""
        with _an_object(path):
            entry = await self._volume().store.get(path)
        return _need_object(entry, path)

    async def _created(
        self,
        path: str,
        change: Callable[[], Awaitable[T]],
        *,
        once: bool = False,
        bucket_id: str = "",
    ) -> T:
        """As `_placed`, for a change that writes the object: a bucket that another client removes
        meanwhile is not created again, and with `bucket_id` no other bucket takes its place. Raises
        PathNotFoundError."""
        bucket = ancestors(path)[0]
        try:
            with requiring_directory(bucket, bucket_id):
                return await self._placed(path, change, once=once)
        except PathNotFoundError as error:
            if error.path == bucket:
                raise _no_bucket(bucket) from error
            raise

    async def _placed(
        self, path: str, change: Callable[[], Awaitable[T]], *, once: bool = False
    ) -> T:
        """The result of a change that needs the path for an object: an empty directory there is
        removed. `once`: the change cannot be repeated, so the directory is removed before it."""
        if once:
            if await self._client.is_dir(path):
                await remove_empty(self._client, path)
            return await change()
        try:
            return await change()
        except (IsDirectoryError, PathExistsError):
            if not await remove_empty(self._client, path):
                raise
            return await change()

    async def _move(self, origin: str, path: str, overwrite: bool) -> Entry:
        store = self._volume().store
        race = ConflictBackoff(store)
        while True:
            with _an_object(origin):
                entry, found = await store.find_rename(origin, path)
            source = _need_object(entry, origin)
            try:
                return await store.rename_file(source, path, overwrite=overwrite, found=found)
            except PathNotFoundError as error:
                await self._object(origin)
                await store.need_directory(split(path)[0])  # of a key that is new
                await race.lost(error)
            except PathExistsError as error:
                if await self._client.is_dir(path):
                    raise IsDirectoryError("a directory is at the path", path=path) from error
                raise

    async def _buckets(self) -> AsyncIterator[builtins.list[BucketInfo]]:
        listing = Listing(sorted=True)
        async for page in list_pages(self._volume().store, ROOT, listing):
            if found := [bucket_info(status) for status in page if status.is_dir]:
                yield found

    async def _page(self, bucket: str, prefix: str, after: str, limit: int) -> ObjectPage:
        top = bucket_path(bucket)
        if after:
            self._path(bucket, after)
        found = await file_page(
            self._volume().store, top, prefix=check_prefix(prefix), after=after, limit=limit + 1
        )
        shown = tuple(object_info(status) for status in found[:limit])
        return ObjectPage(shown, shown[-1].key if len(found) > limit else None)

    async def _rule_place(self, bucket: str, prefix: str) -> tuple[str, str]:
        """The directory and the name prefix of a rule in a bucket that exists."""
        path = bucket_path(bucket)
        await self._need_bucket(path)
        directory, _, name = check_prefix(prefix).rpartition("/")
        return (self._path(bucket, directory) if directory else path), name

    async def _pages(self, bucket: str, prefix: str) -> AsyncIterator[builtins.list[ObjectInfo]]:
        after: str | None = ""
        while after is not None:
            page = await self._page(bucket, prefix, after, PAGE)
            after = page.token
            if page.objects:
                yield [*page.objects]


def _info(entry: Entry) -> ObjectInfo:
    return object_info(status_of(entry))


def _need_own(upload: MultipartUpload, bucket: FileStatus) -> None:
    """Raise UploadNotFoundError for an upload of another bucket that had the name of this one."""
    if not upload.is_of(bucket.path, bucket.id):
        raise UploadNotFoundError(
            f"the upload began in another bucket of the name {bucket.name!r}, which was deleted or "
            "renamed: rename that one back, or abort the upload",
            path=upload.id,
        )


def _no_bucket(path: str) -> PathNotFoundError:
    return PathNotFoundError("no such bucket", path=path)


def _need_object(entry: Entry | None, path: str) -> Entry:
    """The entry at a path, if it is that of an object."""
    if entry is None or entry.is_dir or entry.is_reservation:
        raise _no_object(path)
    return entry


def _no_object(path: str) -> PathNotFoundError:
    return PathNotFoundError("no such object", path=path)


@contextmanager
def _an_object(path: str) -> Iterator[None]:
    """Raise PathNotFoundError where a file is needed, and something else is at the path."""
    try:
        yield
    except (IsDirectoryError, NotDirectoryError, UncommittedFileError) as error:
        raise _no_object(path) from error


def _attributes(entry: Entry) -> Attributes:
    return Attributes.from_json(entry.attributes)


def _need_limit(limit: int) -> None:
    if isinstance(limit, bool) or not isinstance(limit, int):
        raise ArgumentTypeError(f"a limit is a number, not {type(limit).__name__}")
    if limit < 1:
        raise InvalidArgumentError(f"a page has at least one object, not {limit:,}")


def _need_token(after: str) -> None:
    if not isinstance(after, str):
        raise ArgumentTypeError(f"the start of a page is text, not {type(after).__name__}")
    try:
        after.encode()
    except UnicodeEncodeError as error:
        raise InvalidArgumentError("the start of a page is not valid UTF-8") from error


def _need_span(path: str, offset: int, size: int | None) -> None:
    """Raise ArgumentTypeError or InvalidArgumentError for a range that no object has."""
    need_range(path, offset)
    if size is not None:
        need_size(path, size)
