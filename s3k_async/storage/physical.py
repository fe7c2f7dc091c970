"""Physical objects: file data, written once under fresh keys and immutable."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from copy import copy
from dataclasses import replace
from functools import partial
from typing import TypeVar

import anyio

from s3k_async._core.concurrency import run_all
from s3k_async._core.error_handling import on_error
from s3k_async._core.object_version import digest_in, version_in
from s3k_async._core.runtime import Runtime
from s3k_async.backends.ports.blob_keys import check_key
from s3k_async.backends.ports.blobs import BlobInfo, BlobStore, Buffer, Upload, get_into
from s3k_async.backends.ports.object_versions import at_version
from s3k_async.backends.ports.storage_terms import StorageTerms, stored_by
from s3k_async.config import Tuning
from s3k_async.errors import (
    BlobChangedError,
    BlobNotFoundError,
    ConfigError,
    CorruptDataError,
    DataMissingError,
    InvalidPathError,
    S3kError,
    UnsupportedError,
)
from s3k_async.model import Content
from s3k_async.storage.cached_reads import CachedReads
from s3k_async.storage.change_detection import (
    ChangeDetection,
    RecordedObject,
    checksum_of,
    is_uri,
    missing_version,
)
from s3k_async.storage.extents import (
    Extent,
    content_of,
    cut,
    has_extents,
    is_stored,
    object_of,
    parse_extents,
    physical_keys,
)
from s3k_async.storage.hot_fills import HotFills
from s3k_async.storage.object_uris import find_elsewhere, key_below, root_of
from s3k_async.storage.planned_upload import DigestTags, PlannedUpload
from s3k_async.storage.storage_rules import StorageRules
from s3k_async.storage.tiered_blobs import TieredBlobs
from s3k_async.storage.upload import PhysicalWriter

__all__ = ["PhysicalStorage", "checksum_of", "is_uri"]

T = TypeVar("T")

_READ_AT_ONCE = 8 * 1024 * 1024
"""Bytes of a range that are read at once, to be added to an object."""
PARTS_IN_FLIGHT = 16
"""Parts in flight of all uploads of a client together, unless the client's concurrency is lower."""
SERVICE_COPY_LIMIT = 5 * 1024**3
"""Most bytes of one CopyObject request of S3; longer objects are streamed."""
EXTENTS_AT_ONCE = 4
"""Extents of one file that are read, or copied, at the same time."""


class PhysicalStorage:
    """The bytes of a volume. `physical` is a key relative to the volume's own blobs, a full URI, or
    a list of extents (`storage.extents`), each of which has such a key.

    Adopted files and s3k-1.0 volumes have URIs; they are compared with `s3`, `s3a` and `s3n` as one
    scheme and must lie in the volume's data location, or in another bucket of its service. One
    event loop owns an instance.
    """

    def __init__(
        self,
        blobs: BlobStore,
        runtime: Runtime,
        tuning: Tuning,
        *,
        place: BlobStore | None = None,
        scope: str = "",
        extents: bool = False,
        cache: CachedReads | None = None,
        fills: HotFills | None = None,
    ) -> None:
        """`blobs`: the volume's own blobs, which it writes and may delete. `place`: the whole data
        location, if it is larger, and `scope` the prefix of `blobs` there. `extents`: whether files
        of the volume may have extents. `cache`, `fills`: of the volume's own blobs."""
        self.blobs = blobs
        self.cache = cache
        self.fills = fills
        self.extents = extents
        self.place = place or blobs
        """The data location. Adopted objects, which are never written or deleted, are below it, or
        in another bucket of its service."""
        self.tuning = tuning
        self._runtime = runtime
        self._scope = scope
        self._rules = StorageRules.parse(tuning.storage_rules)
        self._views: dict[StorageTerms, PhysicalStorage] = {}
        self._detection = ChangeDetection(
            tuning.change_detection, tags_change=isinstance(blobs, TieredBlobs)
        )
        self._tags = DigestTags()
        self._slots = anyio.Semaphore(max(1, min(tuning.max_concurrency, PARTS_IN_FLIGHT)))

    def __repr__(self) -> str:
        return f"PhysicalStorage({self.blobs!r})"

    def at(self, path: str) -> PhysicalStorage:
        """The storage for the content of a new file at a path, by the storage rules. Raises
        ConfigError in a volume with a hot location, where moves would lose class and tags."""
        if not self._rules:
            return self
        if isinstance(self.blobs, TieredBlobs):
            raise ConfigError(
                "storage_rules cannot be used in a volume with a hot location, whose objects are "
                "moved without them: write without the setting",
                path=path,
            )
        terms = self._rules.at(path)
        view = self._views.get(terms)
        if view is None:
            view = self._views[terms] = copy(self)
            view.blobs = stored_by(self.blobs, terms)
        return view

    def from_source(self) -> PhysicalStorage:
        """The storage for reads of content that is stored again: without the cache, since parts of
        an object cannot be verified, and wrong bytes would be stored as if they were right."""
        if self.cache is None:
            return self
        view = copy(self)
        view.cache = None
        view._views = {}  # noqa: SLF001 - of the same class
        return view

    async def put(self, object_id: str, data: Buffer) -> Content:
        """Store bytes under a fresh physical key, in parts above the multipart threshold.

        `data` must not change before this returns. Raises NoSpaceError and the errors of the blob
        port.
        """
        view = memoryview(data).cast("B")
        if len(view) <= self.tuning.multipart_threshold:
            content = await self._put_whole(self._runtime.physical_key(object_id), view)
            self._tags.learn(view, content.etag)
            return content
        writer = self.writer(object_id)
        try:
            await writer.write(data)
            return await writer.finish()
        except BaseException:
            await writer.abort()
            raise

    async def put_in_bulk(self, object_id: str, data: Buffer) -> Content:
        """As `put`, for one of many files: an empty one has no object, where files may have
        extents."""
        if self.extents and not memoryview(data).nbytes:
            return content_of(object_id, ())
        return await self.put(object_id, data)

    def planned(self, object_id: str, data: Buffer) -> PlannedUpload | None:
        """A planned upload of bytes under a fresh physical key; None if their entity tag cannot be
        computed, so that `put` has to store them first. `data` must not change before it is
        stored."""
        view = memoryview(data).cast("B")
        etag = self._tags.of(view)
        if etag is None or len(view) > self.tuning.multipart_threshold:
            return None
        key = self._runtime.physical_key(object_id)
        content = Content(key, len(view), etag, checksum_of(view))
        return PlannedUpload(content, partial(self._put_whole, key, view), self._tags)

    async def _put_whole(self, key: str, view: memoryview) -> Content:
        whole = view.obj if isinstance(view.obj, bytes) and len(view.obj) == len(view) else view
        info = await self.blobs.put(key, whole)
        if info.size != len(view):
            raise CorruptDataError(f"{len(view)} bytes were sent and {info.size} stored", path=key)
        if self.cache is not None:
            await self.cache.add(key, whole)
        return Content(key, info.size, info.etag, checksum_of(whole))

    def writer(self, object_id: str) -> PhysicalWriter:
        """A writer to a fresh physical key."""
        return PhysicalWriter(
            self.blobs,
            self._runtime.physical_key(object_id),
            self.tuning,
            self._slots,
            cache=self.cache,
        )

    async def read(
        self,
        physical: str,
        start: int = 0,
        end: int | None = None,
        *,
        size: int | None = None,
        etag: str = "",
        checksum: str = "",
    ) -> bytes:
        """Bytes [start, end) of an object, truncated at its end.

        `size`, `etag`, `checksum`: the recorded ones. Every object must have the size, and the etag
        as `ChangeDetection` compares it. Raises DataMissingError, CorruptDataError (the object is
        another one), UnsupportedError (a URI that cannot be read from the data location).
        """
        if has_extents(physical):
            total = _total(physical, size)
            buffer = bytearray(max(0, (total if end is None else min(end, total)) - start))
            with memoryview(buffer) as view:
                await self._read_extents(physical, start, view)
            return bytes(buffer)
        stop = size if end is None else end

        async def read(tag: str | None) -> bytes:
            if stop is not None and (cache := self._cache_of(source, tag, start, stop)):
                return await cache.get(source.blobs, source.key, start, stop, size=size, etag=tag)
            return await source.blobs.get(source.key, start, end, if_match=tag, if_size=size)

        with _reading(physical, version_in(checksum)):
            content = Content(physical, size or 0, etag, checksum)
            source = self._filling(self.recorded(content, size=size))
            is_whole = start == 0 and stop is not None and stop == size
            return await self._detection.unchanged(
                source, read, (lambda data: data) if is_whole else None
            )

    async def read_content(self, content: Content, start: int, end: int) -> bytes:
        """As `read`, with all that is recorded. `content.size`: 0 if it is not known."""
        return await self.read(
            content.physical,
            start,
            end,
            size=content.size or None,
            etag=content.etag,
            checksum=content.checksum,
        )

    async def read_into(
        self,
        physical: str,
        start: int,
        buffer: memoryview,
        *,
        size: int,
        etag: str = "",
        checksum: str = "",
    ) -> int:
        """Fill a buffer with the bytes from `start` on; returns their number, fewer only at the end
        of the object. Otherwise as `read`."""
        if has_extents(physical):
            length = max(0, min(len(buffer), _total(physical, size) - start))
            with buffer[:length] as view:
                await self._read_extents(physical, start, view)
            return length

        async def read(tag: str | None) -> int:
            end = start + len(buffer)
            if cache := self._cache_of(source, tag, start, end):
                return await cache.get_into(
                    source.blobs, source.key, start, buffer, size=size, etag=tag
                )
            blobs, key = source.blobs, source.key
            return await get_into(blobs, key, start, buffer, if_match=tag, if_size=size)

        with _reading(physical, version_in(checksum)):
            source = self._filling(self.recorded(Content(physical, size, etag, checksum)))
            is_whole = start == 0 and len(buffer) == size
            return await self._detection.unchanged(
                source, read, (lambda count: buffer[:count]) if is_whole else None
            )

    def recorded(self, content: Content, *, size: int | None = -1) -> RecordedObject:
        """The object of content that is not extents, where it is. `size`: None if the recorded one
        is not known. Raises as `located`."""
        blobs, key = self.located(content.physical)
        known = content.size if size == -1 else size
        version = version_in(content.checksum) if is_uri(content.physical) else ""
        return RecordedObject(
            at_version(blobs, version),
            key,
            content.physical,
            known,
            content.etag,
            digest_in(content.checksum),
            version,
        )

    def _filling(self, source: RecordedObject) -> RecordedObject:
        """An object, for a read that fills the hot location if the client does so."""
        if self.fills is None or source.is_adopted:
            return source
        return replace(source, blobs=self.fills.blobs_of(source.checksum))

    def _cache_of(
        self, source: RecordedObject, tag: str | None, start: int, end: int
    ) -> CachedReads | None:
        """The cache for a range of an object that must have the tag; none for one without bytes,
        whose object is checked, for adopted objects, which other programs may replace, and for own
        ones that may have been replaced."""
        if source.is_adopted or start >= (end if source.size is None else min(end, source.size)):
            return None
        is_sure = tag == self._detection.expected(source)
        is_sure &= not self._detection.is_doubtful(source.physical)
        return self.cache if is_sure else None

    def distrust(self, content: Content) -> None:
        """Read content from its source from now on, since its checksum was wrong: a cached block
        may have been damaged before it was stored."""
        if self.cache is not None and not is_uri(content.physical):
            self.cache.distrust(physical_keys(content.physical))

    async def _read_extents(self, physical: str, start: int, buffer: memoryview) -> None:
        """Fill a buffer with the bytes from `start` on, which are there. Extents that are read as a
        whole are verified, if their checksum is known."""
        parts: list[tuple[int, Extent]] = []
        position = 0
        for each in cut(parse_extents(physical), start, start + len(buffer)):
            parts.append((position, each))
            position += each.length

        async def fill(part: tuple[int, Extent]) -> None:
            place, extent = part
            with buffer[place : place + extent.length] as view:
                await self._read_extent(extent, view)

        await run_all(fill, parts, limit=EXTENTS_AT_ONCE)

    async def _read_extent(self, extent: Extent, buffer: memoryview) -> None:
        if extent.is_hole:
            buffer[:] = bytes(len(buffer))
            return
        cache = self.cache
        with_cache = cache is not None and cache.trusts(extent.key)
        await self._fill(extent, buffer)
        if not extent.checksum or checksum_of(buffer) == extent.checksum:
            return
        if cache is not None and with_cache:
            cache.distrust([extent.key])
            await self._fill(extent, buffer)
        if (found := checksum_of(buffer)) != extent.checksum:
            raise CorruptDataError(
                f"the checksum of the bytes of {extent.key} is {found} instead of "
                f"{extent.checksum}: restore them from a copy, or delete the file",
                path=extent.key,
            )

    async def _fill(self, extent: Extent, buffer: memoryview) -> None:
        """Fill a buffer with the bytes of an extent."""
        content = object_of(extent)
        size = content.size or None

        async def fill(tag: str | None) -> int:
            blobs, key, start = source.blobs, source.key, extent.offset
            if cache := self._cache_of(source, tag, start, extent.end):
                return await cache.get_into(blobs, key, start, buffer, size=size, etag=tag)
            return await get_into(blobs, key, start, buffer, if_match=tag, if_size=size)

        with _reading(extent.key):
            source = self._filling(self.recorded(content, size=size))
            read = await self._detection.unchanged(
                source, fill, (lambda _: buffer) if extent.checksum else None
            )
        if read != extent.length:
            raise CorruptDataError(
                f"the physical object ends before byte {extent.end}", path=extent.key
            )

    async def check(self, content: Content) -> None:
        """Check that an object exists and has the recorded size, and an adopted one its etag.
        Raises as `read`."""
        if has_extents(content.physical):
            sizes: dict[str, int] = {}
            for key in physical_keys(content.physical):
                found = await self.blobs.head(key)
                if found is None:
                    raise DataMissingError("the physical object does not exist", path=key)
                sizes[key] = found.size
            if not is_stored(content.physical, content.size, sizes):
                raise CorruptDataError(
                    "a physical object of the file is not as long as its extents: restore it from "
                    "a copy, or delete the file",
                    path=content.physical,
                )
            return
        is_adopted = is_uri(content.physical)
        await self._found(self.recorded(content if is_adopted else replace(content, etag="")))

    async def adopted(self, content: Content) -> Content:
        """An object of another system below the data location: its URI here and its etag. Raises as
        `check`, and UnsupportedError for extents."""
        self._require_one_object(content.physical)
        if is_uri(content.physical) and self._below(content.physical) is None:
            raise _outside(content.physical)
        source = self.recorded(replace(content, etag=""))
        info = await self._found(source)
        return Content(source.blobs.uri(source.key), info.size, info.etag, content.checksum)

    async def _found(self, source: RecordedObject) -> BlobInfo:
        """The object as it is stored. Raises DataMissingError, CorruptDataError."""
        with _reading(source.physical, source.version):
            info = await source.blobs.head(source.key)
            if info is None:
                raise BlobNotFoundError("no blob has this key", path=source.physical)
            await self._detection.check(source, info)
            return info

    async def copy_from(self, source: PhysicalStorage, content: Content, object_id: str) -> Content:
        """Copy bytes of `source` to a fresh key here: inside the service if it can, else through
        this process.

        An unknown checksum of the content is empty. Raises DataMissingError, CorruptDataError (the
        source does not have the size or checksum, or is an adopted object that was replaced),
        UnsupportedError.
        """
        physical, size = content.physical, content.size
        if has_extents(physical):
            if not self.extents:
                return await self._stream_from(source, content, object_id)
            return await self._copy_extents(source, content, object_id)
        with _reading(physical, version_in(content.checksum)):
            copied = source.recorded(content)
        if size > SERVICE_COPY_LIMIT or not self.blobs.can_copy_from(copied.blobs):
            return await self._stream_from(source, content, object_id)
        key = self._runtime.physical_key(object_id)
        with _reading(physical, version_in(content.checksum)):
            info = await source.copied(copied, partial(self._copy_object, copied, content, key))
        return Content(key, size, info.etag, digest_in(content.checksum))

    async def copied(self, source: RecordedObject, copy: Callable[[str | None], Awaitable[T]]) -> T:
        """The result of a copy of an object here, a request that requires the tag that it is given.
        Raises as `read`."""
        with _reading(source.physical, source.version):
            return await self._detection.unchanged(source, copy)

    async def _copy_object(
        self, source: RecordedObject, content: Content, key: str, tag: str | None
    ) -> BlobInfo:
        """Copy an object that has the tag inside the service. Raises BlobChangedError."""
        recorded = _as_recorded(source.key, content) if tag in (None, content.etag) else None
        if self.tuning.change_detection == "client":
            recorded = None
        found: BlobInfo | None
        found = copied = await self.blobs.copy(
            source.blobs, source.key, key, found=recorded, if_match=tag
        )
        if recorded is not None and copied.etag != recorded.etag:
            found = await self.blobs.head(key)
            if tag is not None and not isinstance(source.blobs, TieredBlobs):
                there = await source.blobs.head(source.key)
                if there is not None and there.etag not in ("", tag):
                    # The service does not support the condition.
                    found = None
        if found is None or found.size != content.size:
            await self.delete(key)
            raise BlobChangedError("the blob is not the expected one", path=source.physical)
        return found

    async def _copy_extents(
        self, source: PhysicalStorage, content: Content, object_id: str
    ) -> Content:
        """Copy each physical object of a file. Its extents stay as they are, so that holes and
        objects of which only a part is used cost no more than in the source."""
        copies: dict[str, Content] = {}
        failures: list[S3kError] = []

        async def copy_one(extent: Extent) -> None:
            if failures:
                return
            key = extent.key
            try:
                found = await source.blobs.head(key)
                if found is None:
                    raise DataMissingError("the physical object does not exist", path=key)
                one = replace(object_of(extent), size=found.size)
                copies[key] = await self.copy_from(source, one, object_id)
            except S3kError as error:
                # The other copies end, so that their objects are known and can be removed.
                failures.append(error)

        extents = parse_extents(content.physical)
        objects = {each.key: each for each in extents if each.key}
        try:
            await run_all(copy_one, objects.values(), limit=EXTENTS_AT_ONCE)
            if failures:
                raise failures[0]
        except BaseException:
            for copied in copies.values():
                await self.delete(copied.physical)
            raise
        own = [_moved(each, copies[each.key]) if each.key else each for each in extents]
        return content_of(object_id, own)

    async def copy_range(self, content: Content, object_id: str, start: int, end: int) -> Content:
        """Copy the bytes [start, end) of content here to a fresh key, as `add_range` does."""
        writer = self.writer(object_id)
        try:
            await self.add_range(writer, content, start, end, is_last=True)
            return await writer.finish()
        except BaseException:
            await writer.abort()
            raise

    async def add_range(
        self,
        writer: PhysicalWriter,
        content: Content,
        start: int,
        end: int,
        *,
        is_last: bool = False,
    ) -> None:
        """Add the bytes [start, end) of content here to a new object: inside the service where it
        can, else through this process.

        `content.size`: 0 if it is not known. `is_last`: no more bytes follow. Raises
        DataMissingError, CorruptDataError (the object ends before `end`, or is another one),
        UnsupportedError.
        """
        physical = content.physical
        whole = (Extent(physical, start, end - start),)
        pieces = cut(parse_extents(physical), start, end) if has_extents(physical) else whole
        for piece in pieces:
            stop = start + piece.length
            source = None
            if not piece.is_hole:
                one = content if piece.key == physical else object_of(piece)
                source = self.recorded(one, size=one.size or None)
            read = stop
            if source is not None:
                ends = is_last and stop == end
                read = start + writer.before_copy(source.blobs, piece.length, is_last=ends)
            await self._add_bytes(writer, content, start, read)
            if source is not None and read < stop:
                copy = partial(self._copy_part, source)
                await writer.copy(copy, piece.offset + read - start, piece.end)
            start = stop

    async def _copy_part(
        self, source: RecordedObject, upload: Upload, number: int, start: int, end: int
    ) -> None:
        """Add the bytes [start, end) of an object here to an upload, inside the service."""

        async def copy(tag: str | None) -> None:
            await upload.copy_part(number, source.blobs, source.key, start, end, if_match=tag)

        await self.copied(source, copy)

    async def _add_bytes(
        self, writer: PhysicalWriter, content: Content, start: int, end: int
    ) -> None:
        """As `add_range`, through this process."""
        source = self.from_source()
        for begin in range(start, end, _READ_AT_ONCE):
            stop = min(end, begin + _READ_AT_ONCE)
            data = await source.read_content(content, begin, stop)
            if len(data) != stop - begin:
                raise CorruptDataError(
                    f"the physical object ends before byte {stop}", path=content.physical
                )
            await writer.write(data)

    def uri(self, physical: str) -> str:
        """The full URI of an object. Raises UnsupportedError for extents, and for objects of a
        volume with tiers, which may be moved at any time."""
        self._require_one_object(physical)
        if isinstance(self.blobs, TieredBlobs) and not is_uri(physical):
            raise UnsupportedError(
                "the volume has a hot location, so that a physical object has no lasting URI: read "
                "the file through this package",
                path=physical,
            )
        return physical if is_uri(physical) else self.blobs.uri(physical)

    async def exists(self, physical: str) -> bool:
        """Whether the object exists; of extents, whether all of their objects do."""
        for name in physical_keys(physical):
            blobs, key = self.located(name)
            if await blobs.head(key) is None:
                return False
        return True

    async def has_size(self, key: str, size: int) -> bool:
        """Whether an object of the volume's own has so many bytes."""
        info = await self.blobs.head(key)
        return info is not None and info.size == size

    async def delete(self, physical: str) -> None:
        """Remove an object of the volume's own, or all objects of extents; absent is fine. Only for
        unreferenced bytes that no reader can have open. Raises UnsupportedError for an adopted
        object."""
        for name in physical_keys(physical):
            key = self.own_key(name)
            if key is None:
                raise UnsupportedError("the object is not the volume's own", path=physical)
            await self.blobs.delete(key)

    async def _stream_from(
        self, source: PhysicalStorage, content: Content, object_id: str
    ) -> Content:
        physical, size = content.physical, content.size
        source = source.from_source()
        writer = self.writer(object_id)
        try:
            if not size:
                await source.check(content)
            for start in range(0, size, writer.part_size):
                end = min(size, start + writer.part_size)
                data = await source.read_content(content, start, end)
                if len(data) != end - start:
                    raise CorruptDataError(
                        f"the physical object ends before byte {end}", path=physical
                    )
                await writer.write(data)
            copied = await writer.finish()
        except BaseException:
            await writer.abort()
            raise
        digest = digest_in(content.checksum)
        if digest and copied.checksum != digest:
            await self.delete(copied.physical)
            raise CorruptDataError(
                f"the checksum is {copied.checksum} instead of {digest}", path=physical
            )
        return copied

    @staticmethod
    def _require_one_object(physical: str) -> None:
        if not has_extents(physical):
            return
        if not parse_extents(physical):
            raise UnsupportedError(
                "the file is empty, and has no physical object: s3k put of this file alone creates "
                "one, as does writing it by itself",
                path=physical,
            )
        raise UnsupportedError(
            "the bytes of the file are not in one physical object, since it was appended to or "
            "changed in place: s3k compact --whole makes them one object",
            path=physical,
        )

    def own_key(self, physical: str) -> str | None:
        """The key of an entry's object among the volume's own blobs; None for an adopted object: a
        URI not below the volume's scope."""
        try:
            blobs, key = self.located(physical)
        except (DataMissingError, UnsupportedError):
            return None
        if blobs not in (self.blobs, self.place):
            return None
        if not is_uri(physical):
            return key
        return key[len(self._scope) :] if self._scope and key.startswith(self._scope) else None

    def find(self, uri: str) -> tuple[BlobStore, str] | None:
        """Store and key of an object that can be adopted; None for a URI that cannot be read from
        the data location, or has an invalid key."""
        try:
            return self.located(uri) if is_uri(uri) else None
        except (DataMissingError, UnsupportedError):
            return None

    def place_key(self, uri: str) -> str | None:
        """The key of a URI below the data location; None for one elsewhere or with an invalid
        key."""
        key = self._below(uri)
        with suppress(InvalidPathError):
            return None if key is None else check_key(key)
        return None

    def _below(self, uri: str) -> str | None:
        return key_below(root_of(self.place), uri)

    def can_read(self, physical: str) -> bool:
        """Whether an entry's physical name is a key, or a URI below the data location or in another
        bucket of its service."""
        return not is_uri(physical) or self._holder(physical) is not None

    def _holder(self, uri: str) -> tuple[BlobStore, str] | None:
        """Store and key of a URI; None for one that cannot be read from the data location."""
        key = self._below(uri)
        return find_elsewhere(self.place, uri) if key is None else (self.place, key)

    def located(self, physical: str) -> tuple[BlobStore, str]:
        """Store and key of an object. Raises UnsupportedError for a URI outside the data location
        and the other buckets of its service, DataMissingError for an invalid key."""
        found = self._holder(physical) if is_uri(physical) else (self.blobs, physical)
        if found is None:
            raise _outside(physical)
        blobs, key = found
        try:
            return blobs, check_key(key)
        except InvalidPathError as error:
            raise DataMissingError(
                f"the entry names an invalid physical key ({error.message})",
                path=physical,
            ) from error


def _reading(physical: str, version: str = "") -> on_error:
    """Map the errors of the blob port in a read of an object, perhaps at a version id."""
    return on_error(partial(_map_missing, physical, version))


def _map_missing(physical: str, version: str, error: BaseException) -> None:
    if isinstance(error, BlobNotFoundError):
        what = missing_version(version) if version else "the physical object does not exist"
        raise DataMissingError(what, path=physical) from error


def _outside(physical: str) -> UnsupportedError:
    reason = "the physical object lies outside the volume's data location"
    if physical.startswith("file:"):
        reason += (
            ": adopted files of a directory have absolute paths; if the volume was moved, open it "
            "by its former path (a symbolic link), or adopt them again (s3k import --adopt -f)"
        )
    return UnsupportedError(reason, path=physical)


def _total(physical: str, size: int | None) -> int:
    """The number of bytes in extents. Raises CorruptDataError unless it is the recorded size."""
    total = sum(each.length for each in parse_extents(physical))
    if size is not None and size != total:
        raise CorruptDataError(
            f"the extents have {total} bytes instead of the {size} of the entry", path=physical
        )
    return total


def _moved(extent: Extent, copied: Content) -> Extent:
    """The same bytes of a copy of the extent's object."""
    return replace(
        extent,
        key=copied.physical,
        digest=digest_in(copied.checksum) or extent.digest,
        etag=copied.etag,
    )


def _as_recorded(key: str, content: Content) -> BlobInfo | None:
    """An object of the volume's own as its entry describes it, if a copy with the same etag has the
    same bytes; None if only the service can tell its size.

    The etag of an object that was stored by one request is a digest of its bytes, which its copies
    share, or, encrypted with KMS, one that no other object has; that of a multipart upload ends in
    the number of its parts. Source: Amazon S3 API Reference, data type Object, ETag.
    """
    if is_uri(content.physical) or not content.etag or "-" in content.etag:
        return None
    return BlobInfo(key, content.size, content.etag)
