"""Physical objects: file data, written once under fresh keys and immutable."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from urllib.parse import unquote

import anyio

from s3k_async._core.concurrency import run_all
from s3k_async._core.runtime import Runtime
from s3k_async._native import Xxh3_128
from s3k_async.backends.ports.blob_keys import check_key, check_unchanged
from s3k_async.backends.ports.blobs import BlobInfo, BlobStore, Buffer, get_into
from s3k_async.config import Tuning
from s3k_async.errors import (
    BlobChangedError,
    BlobNotFoundError,
    CorruptDataError,
    DataMissingError,
    InvalidPathError,
    S3kError,
    UnsupportedError,
)
from s3k_async.model import Content
from s3k_async.storage.cached_reads import CachedReads
from s3k_async.storage.extents import (
    Extent,
    content_of,
    cut,
    has_extents,
    is_stored,
    parse_extents,
    physical_keys,
)
from s3k_async.storage.tiered_blobs import TieredBlobs
from s3k_async.storage.upload import CHECKSUM_PREFIX, PhysicalWriter

__all__ = ["PhysicalStorage", "checksum_of", "is_uri", "key_below"]

_URI = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*)://(?P<rest>.*)", re.DOTALL)
_S3_SCHEMES = frozenset({"s3", "s3a", "s3n"})

_READ_AT_ONCE = 8 * 1024 * 1024
"""Bytes of a range that are read at once, to be added to an object."""
PARTS_IN_FLIGHT = 16
"""Parts in flight of all uploads of a client together, unless the client's concurrency is lower."""
SERVICE_COPY_LIMIT = 5 * 1024**3
"""Most bytes of one CopyObject request of S3; longer objects are streamed."""
EXTENTS_AT_ONCE = 4
"""Extents of one file that are read, or copied, at the same time."""


def checksum_of(data: Buffer) -> str:
    """`xxh128:<32 hex digits>`: XXH3 of 128 bits over the data, canonical form."""
    digest = Xxh3_128()
    digest.update(data)
    return CHECKSUM_PREFIX + digest.hexdigest()


class PhysicalStorage:
    """The bytes of a volume. `physical` is a key relative to the volume's own blobs, a full URI, or
    a list of extents (`storage.extents`), each of which has such a key.

    Adopted files and s3k-1.0 volumes have URIs; they are compared with `s3`, `s3a` and `s3n` as one
    scheme and must lie in the volume's data location. One event loop owns an instance.
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
    ) -> None:
        """`blobs`: the volume's own blobs, which it writes and may delete. `place`: the whole data
        location, if it is larger, and `scope` the prefix of `blobs` there. `extents`: whether files
        of the volume may have extents. `cache`: of the volume's own blobs."""
        self.blobs = blobs
        self.cache = cache
        self.extents = extents
        self.place = place or blobs
        """The data location. Adopted objects are below it, and never written or deleted."""
        self.tuning = tuning
        self._runtime = runtime
        self._scope = scope
        self._slots = anyio.Semaphore(max(1, min(tuning.max_concurrency, PARTS_IN_FLIGHT)))

    def __repr__(self) -> str:
        return f"PhysicalStorage({self.blobs!r})"

    async def put(self, object_id: str, data: Buffer) -> Content:
        """Store bytes under a fresh physical key, in parts above the multipart threshold.

        `data` must not change before this returns. Raises NoSpaceError and the errors of the blob
        port.
        """
        view = memoryview(data).cast("B")
        if len(view) <= self.tuning.multipart_threshold:
            return await self._put_whole(object_id, view)
        writer = self.writer(object_id)
        try:
            await writer.write(data)
            return await writer.finish()
        except BaseException:
            await writer.abort()
            raise

    async def _put_whole(self, object_id: str, view: memoryview) -> Content:
        whole = view.obj if isinstance(view.obj, bytes) and len(view.obj) == len(view) else view
        key = self._runtime.physical_key(object_id)
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
    ) -> bytes:
        """Bytes [start, end) of an object, truncated at its end.

        `size`, `etag`: the recorded ones. Every object must have the size; an adopted one, which
        other programs may have replaced, also the etag, if one was recorded. Raises
        DataMissingError, CorruptDataError (the object is another one), UnsupportedError (a URI
        outside the volume's data location).
        """
        if has_extents(physical):
            total = _total(physical, size)
            buffer = bytearray(max(0, (total if end is None else min(end, total)) - start))
            with memoryview(buffer) as view:
                await self._read_extents(physical, start, view)
            return bytes(buffer)
        with _reading(physical):
            blobs, key = self.located(physical)
            stop = size if end is None else end
            if stop is not None and (cache := self._cache_of(physical, start, stop, size)):
                return await cache.get(blobs, key, start, stop, size=size)
            return await blobs.get(key, start, end, if_match=_match(physical, etag), if_size=size)

    async def read_into(
        self, physical: str, start: int, buffer: memoryview, *, size: int, etag: str = ""
    ) -> int:
        """Fill a buffer with the bytes from `start` on; returns their number, fewer only at the end
        of the object. Otherwise as `read`."""
        if has_extents(physical):
            length = max(0, min(len(buffer), _total(physical, size) - start))
            with buffer[:length] as view:
                await self._read_extents(physical, start, view)
            return length
        with _reading(physical):
            blobs, key = self.located(physical)
            if cache := self._cache_of(physical, start, start + len(buffer), size):
                return await cache.get_into(blobs, key, start, buffer, size=size)
            match = _match(physical, etag)
            return await get_into(blobs, key, start, buffer, if_match=match, if_size=size)

    def _cache_of(
        self, physical: str, start: int, end: int, size: int | None
    ) -> CachedReads | None:
        """The cache for a range of an object; none for one without bytes, whose object is checked,
        and for adopted objects, which other programs may replace."""
        has_bytes = start < (end if size is None else min(end, size))
        return self.cache if has_bytes and not is_uri(physical) else None

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
        size = extent.length if extent.checksum else None
        with _reading(extent.key):
            if self.cache is not None:
                read = await self.cache.get_into(
                    self.blobs, extent.key, extent.offset, buffer, size=size
                )
            else:
                read = await get_into(self.blobs, extent.key, extent.offset, buffer, if_size=size)
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
                raise _changed(content.physical)
            return
        blobs, key = self.located(content.physical)
        info = await blobs.head(key)
        if info is None:
            raise DataMissingError("the physical object does not exist", path=content.physical)
        try:
            check_unchanged(info, _match(content.physical, content.etag), content.size)
        except BlobChangedError as error:
            raise _changed(content.physical) from error

    async def adopted(self, content: Content) -> Content:
        """An object of another system below the data location: its URI here and its etag. Raises as
        `check`, and UnsupportedError for extents."""
        self._require_one_object(content.physical)
        blobs, key = self.located(content.physical)
        info = await blobs.head(key)
        if info is None:
            raise DataMissingError("the physical object does not exist", path=content.physical)
        if info.size != content.size:
            raise _changed(content.physical)
        return Content(blobs.uri(key), info.size, info.etag, content.checksum)

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
        if size > SERVICE_COPY_LIMIT or not self.blobs.can_copy_from(source.blobs):
            return await self._stream_from(source, content, object_id)
        key = self._runtime.physical_key(object_id)
        blobs, source_key = source.located(physical)
        recorded = _as_recorded(source_key, content)
        info: BlobInfo | None
        try:
            info = await self.blobs.copy(
                blobs,
                source_key,
                key,
                found=recorded,
                if_match=_match(physical, content.etag),
            )
        except BlobNotFoundError as error:
            raise DataMissingError("the physical object does not exist", path=physical) from error
        except BlobChangedError as error:
            raise _changed(physical) from error
        if recorded is not None and info.etag != recorded.etag:
            info = await self.blobs.head(key)
        if info is None or info.size != size:
            await self.delete(key)
            raise _changed(physical)
        return Content(key, size, info.etag, content.checksum)

    async def _copy_extents(
        self, source: PhysicalStorage, content: Content, object_id: str
    ) -> Content:
        """Copy each physical object of a file. Its extents stay as they are, so that holes and
        objects of which only a part is used cost no more than in the source."""
        copies: dict[str, str] = {}
        failures: list[S3kError] = []

        async def copy_one(key: str) -> None:
            if failures:
                return
            try:
                found = await source.blobs.head(key)
                if found is None:
                    raise DataMissingError("the physical object does not exist", path=key)
                one = Content(key, found.size, "", "")
                copies[key] = (await self.copy_from(source, one, object_id)).physical
            except S3kError as error:
                # The other copies end, so that their objects are known and can be removed.
                failures.append(error)

        extents = parse_extents(content.physical)
        try:
            await run_all(copy_one, physical_keys(content.physical), limit=EXTENTS_AT_ONCE)
            if failures:
                raise failures[0]
        except BaseException:
            for key in copies.values():
                await self.delete(key)
            raise
        own = [replace(each, key=copies.get(each.key, "")) for each in extents]
        return content_of(object_id, own)

    async def copy_range(self, content: Content, object_id: str, start: int, end: int) -> Content:
        """Copy the bytes [start, end) of content here to a fresh key, as `add_range` does.
        `content.size`: 0 if it is not known."""
        writer, size = self.writer(object_id), content.size or None
        try:
            await self.add_range(
                writer, content.physical, start, end, size=size, etag=content.etag, is_last=True
            )
            return await writer.finish()
        except BaseException:
            await writer.abort()
            raise

    async def add_range(
        self,
        writer: PhysicalWriter,
        physical: str,
        start: int,
        end: int,
        *,
        size: int | None = None,
        etag: str = "",
        is_last: bool = False,
    ) -> None:
        """Add the bytes [start, end) of an object here, or of extents, to a new one: inside the
        service where it can, else through this process.

        `size`, `etag`: those recorded, as for `read`. `is_last`: no more bytes follow. Raises
        DataMissingError, CorruptDataError (the object ends before `end`, or is another one),
        UnsupportedError.
        """
        whole = (Extent(physical, start, end - start),)
        pieces = cut(parse_extents(physical), start, end) if has_extents(physical) else whole
        for piece in pieces:
            stop = start + piece.length
            blobs, key = (None, "") if piece.is_hole else self.located(piece.key)
            read = stop
            if blobs is not None:
                ends = is_last and stop == end
                read = start + writer.before_copy(blobs, piece.length, is_last=ends)
            await self._add_bytes(writer, physical, start, read, size, etag)
            if blobs is not None and read < stop:
                await writer.copy(
                    blobs,
                    key,
                    piece.offset + read - start,
                    piece.end,
                    if_match=_match(piece.key, etag),
                    mapped=partial(_reading, piece.key),
                )
            start = stop

    async def _add_bytes(
        self,
        writer: PhysicalWriter,
        physical: str,
        start: int,
        end: int,
        size: int | None,
        etag: str,
    ) -> None:
        """As `add_range`, through this process."""
        for begin in range(start, end, _READ_AT_ONCE):
            stop = min(end, begin + _READ_AT_ONCE)
            data = await self.read(physical, begin, stop, size=size, etag=etag)
            if len(data) != stop - begin:
                raise CorruptDataError(
                    f"the physical object ends before byte {stop}", path=physical
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
        writer = self.writer(object_id)
        try:
            if not size:
                await source.check(content)
            for start in range(0, size, writer.part_size):
                end = min(size, start + writer.part_size)
                data = await source.read(physical, start, end, size=size, etag=content.etag)
                if len(data) != end - start:
                    raise CorruptDataError(
                        f"the physical object ends before byte {end}", path=physical
                    )
                await writer.write(data)
            copied = await writer.finish()
        except BaseException:
            await writer.abort()
            raise
        if content.checksum and copied.checksum != content.checksum:
            await self.delete(copied.physical)
            raise CorruptDataError(
                f"the checksum is {copied.checksum} instead of {content.checksum}", path=physical
            )
        return copied

    @staticmethod
    def _require_one_object(physical: str) -> None:
        if not has_extents(physical):
            return
        if not parse_extents(physical):
            raise UnsupportedError("the file is empty, and has no physical object", path=physical)
        raise UnsupportedError(
            "the bytes of the file are not in one physical object, since it was appended to or "
            "changed in place: s3k compact --whole makes them one object",
            path=physical,
        )

    def own_key(self, physical: str) -> str | None:
        """The key of an entry's object among the volume's own blobs; None for an adopted object: a
        URI not below the volume's scope."""
        try:
            _, key = self.located(physical)
        except (DataMissingError, UnsupportedError):
            return None
        if not is_uri(physical):
            return key
        return key[len(self._scope) :] if self._scope and key.startswith(self._scope) else None

    def place_key(self, uri: str) -> str | None:
        """The key of a URI below the data location; None for one elsewhere or with an invalid
        key."""
        key = self._below(uri)
        with suppress(InvalidPathError):
            return None if key is None else check_key(key)
        return None

    def _below(self, uri: str) -> str | None:
        return key_below(self.place.uri("-").removesuffix("-"), uri)

    def can_read(self, physical: str) -> bool:
        """Whether an entry's physical name is a key, or a URI below the data location."""
        return not is_uri(physical) or self._below(physical) is not None

    def located(self, physical: str) -> tuple[BlobStore, str]:
        """Store and key of an object. Raises UnsupportedError for a URI outside the data location,
        DataMissingError for an invalid key."""
        blobs, key = (
            (self.place, self._below(physical)) if is_uri(physical) else (self.blobs, physical)
        )
        if key is None:
            raise UnsupportedError(
                "the physical object lies outside the volume's data location", path=physical
            )
        try:
            return blobs, check_key(key)
        except InvalidPathError as error:
            raise DataMissingError(
                f"the entry names an invalid physical key ({error.message})",
                path=physical,
            ) from error


def is_uri(physical: str) -> bool:
    """Whether an entry's physical name is a full URI."""
    return _URI.fullmatch(physical) is not None


@contextmanager
def _reading(physical: str) -> Iterator[None]:
    """Maps the errors of the blob port in a read of an object."""
    try:
        yield
    except BlobNotFoundError as error:
        raise DataMissingError("the physical object does not exist", path=physical) from error
    except BlobChangedError as error:
        raise _changed(physical) from error


def _total(physical: str, size: int | None) -> int:
    """The number of bytes in extents. Raises CorruptDataError unless it is the recorded size."""
    total = sum(each.length for each in parse_extents(physical))
    if size is not None and size != total:
        raise CorruptDataError(
            f"the extents have {total} bytes instead of the {size} of the entry", path=physical
        )
    return total


def _match(physical: str, etag: str) -> str | None:
    """The required etag of an object. The volume's own keys are written once; a copy or restore of
    their objects keeps the bytes, but not the etags."""
    return etag if etag and is_uri(physical) else None


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


def _changed(physical: str) -> CorruptDataError:
    if is_uri(physical):
        return CorruptDataError(
            f"the object {physical} was replaced since it was adopted (its size or its entity tag "
            "is another): put the "
            "old object back, or adopt the new one in its place",
            path=physical,
        )
    return CorruptDataError(
        f"the physical object {physical} does not have the size that was recorded: restore it from "
        "a copy, or delete "
        "the file",
        path=physical,
    )


def key_below(root: str, uri: str) -> str | None:
    """The key of a URI below that of a place, which ends in the separator; None if it lies
    elsewhere. Keys in S3 are not escaped; those of other URIs are."""
    there, own = _URI.fullmatch(uri), _URI.fullmatch(root)
    if there is None or own is None or not there["rest"].startswith(own["rest"]):
        return None
    if _family(own["scheme"]) != _family(there["scheme"]):
        return None
    key = there["rest"][len(own["rest"]) :]
    return key if _family(own["scheme"]) == "s3" else unquote(key)


def _family(scheme: str) -> str:
    lower = scheme.lower()
    return "s3" if lower in _S3_SCHEMES else lower
