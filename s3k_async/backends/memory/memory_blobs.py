"""The blob port in this process's memory: exact semantics."""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from itertools import takewhile
from urllib.parse import quote, unquote

from s3k_async._core.concurrency import interleaved
from s3k_async._core.runtime import SYSTEM, Runtime
from s3k_async.backends.memory.sorted_keys import SortedKeys
from s3k_async.backends.ports.blob_keys import (
    check_copied_part,
    check_key,
    check_page,
    check_put,
    check_range,
    check_source,
    check_unchanged,
    part_numbers,
)
from s3k_async.backends.ports.blobs import (
    BlobInfo,
    BlobPage,
    BlobStore,
    Buffer,
    DeleteFailure,
    Unfinished,
)
from s3k_async.errors import (
    BlobChangedError,
    BlobExistsError,
    BlobNotFoundError,
    ServiceError,
    UnsupportedError,
    VolumeNotFoundError,
)
from s3k_async.storage_space import StorageSpace

__all__ = ["MemoryBlobs"]

_PAGE = 1000


@dataclass(frozen=True, slots=True)
class _Blob:
    data: bytes
    info: BlobInfo


class _Bucket:
    """Blobs and unfinished uploads. Changes and walks run under `lock`; a forked child gets a new
    one."""

    def __init__(self) -> None:
        self.blobs: dict[str, _Blob] = {}
        self.order: SortedKeys[str] = SortedKeys()
        self.uploads: dict[str, tuple[Unfinished, MemoryUpload]] = {}
        self.begun = 0
        self._lock = threading.Lock()
        self._process = os.getpid()

    @property
    def lock(self) -> threading.Lock:
        if self._process != os.getpid():
            self._lock = threading.Lock()
            self._process = os.getpid()
        return self._lock

    def put(self, key: str, data: bytes, mtime_ms: int) -> BlobInfo:
        etag = hashlib.md5(data, usedforsecurity=False).hexdigest()
        info = BlobInfo(key, len(data), etag, mtime_ms)
        if key not in self.blobs:
            self.order.add(key)
        self.blobs[key] = _Blob(data, info)
        return info

    def delete(self, key: str) -> None:
        if self.blobs.pop(key, None) is not None:
            self.order.remove(key)


_buckets: dict[str, _Bucket] = {}


class MemoryBlobs:
    """A BlobStore, shared by all clients in this process with the same name. A forked child has a
    copy."""

    def __init__(
        self,
        name: str,
        runtime: Runtime = SYSTEM,
        *,
        min_part: int = 1,
    ) -> None:
        self._name = name
        self.runtime = runtime
        self.min_part = min_part
        self.composes = True

    def __repr__(self) -> str:
        return f"MemoryBlobs({self._name!r})"

    def in_bucket(self, bucket: str) -> MemoryBlobs | None:
        """As `ReachesBuckets.in_bucket`."""
        if not bucket:
            return None
        return MemoryBlobs(unquote(bucket), self.runtime, min_part=self.min_part)

    def bucket(self) -> _Bucket:
        """The shared state. Raises VolumeNotFoundError."""
        bucket = _buckets.get(self._name)
        if bucket is None:
            raise VolumeNotFoundError("no such bucket", path=f"memory://{self._name}")
        return bucket

    def blob(self, key: str) -> _Blob:
        """A stored blob. Raises BlobNotFoundError."""
        blob = self.bucket().blobs.get(key)
        if blob is None:
            raise BlobNotFoundError("no blob has this key", path=key)
        return blob

    def uri(self, key: str) -> str:
        return f"memory://{quote(self._name)}/{quote(check_key(key))}"

    async def put(
        self, key: str, data: Buffer, *, if_absent: bool = False, if_match: str | None = None
    ) -> BlobInfo:
        check_key(key)
        check_put(if_absent, if_match)
        async with interleaved:
            bucket = self.bucket()
            with bucket.lock:
                stored = bucket.blobs.get(key)
                if if_absent and stored is not None:
                    raise BlobExistsError("a blob has this key already", path=key)
                if if_match is not None and (stored is None or stored.info.etag != if_match):
                    raise BlobChangedError("the blob is not the expected one", path=key)
                return bucket.put(key, bytes(data), self.runtime.now_ms())

    async def get(
        self,
        key: str,
        start: int = 0,
        end: int | None = None,
        *,
        if_match: str | None = None,
        if_size: int | None = None,
    ) -> bytes:
        check_key(key)
        check_range(start, end)
        async with interleaved:
            blob = self.blob(key)
            check_unchanged(blob.info, if_match, if_size)
            return blob.data[start:end]

    async def get_into(
        self,
        key: str,
        start: int,
        buffer: memoryview,
        *,
        if_match: str | None = None,
        if_size: int | None = None,
    ) -> int:
        check_key(key)
        check_range(start, None)
        async with interleaved:
            blob = self.blob(key)
            check_unchanged(blob.info, if_match, if_size)
            data = memoryview(blob.data)[start : start + len(buffer)]
            buffer[: len(data)] = data
            return len(data)

    async def head(self, key: str) -> BlobInfo | None:
        check_key(key)
        async with interleaved:
            blob = self.bucket().blobs.get(key)
            return None if blob is None else blob.info

    def can_copy_from(self, source: BlobStore) -> bool:
        return isinstance(source, MemoryBlobs)

    async def copy(
        self,
        source: BlobStore,
        source_key: str,
        key: str,
        *,
        found: BlobInfo | None = None,  # noqa: ARG002 - the port's
        if_match: str | None = None,
    ) -> BlobInfo:
        check_key(source_key)
        check_key(key)
        if not isinstance(source, MemoryBlobs):
            raise UnsupportedError("memory cannot copy from another kind of store", path=key)
        async with interleaved:
            blob = source.blob(source_key)
            check_unchanged(blob.info, if_match)
            bucket = self.bucket()
            with bucket.lock:
                return bucket.put(key, blob.data, self.runtime.now_ms())

    async def delete(self, key: str) -> None:
        check_key(key)
        async with interleaved:
            bucket = self.bucket()
            with bucket.lock:
                bucket.delete(key)

    async def delete_many(self, keys: Sequence[str]) -> list[DeleteFailure]:
        for key in keys:
            check_key(key)
        async with interleaved:
            bucket = self.bucket()
            with bucket.lock:
                for key in dict.fromkeys(keys):
                    bucket.delete(key)
        return []

    async def list(
        self,
        prefix: str = "",
        *,
        cursor: str | None = None,
        limit: int | None = None,
        after: str = "",
    ) -> BlobPage:
        check_page(limit)
        async with interleaved:
            bucket = self.bucket()
            size = limit or _PAGE
            with bucket.lock:
                # NUL makes the least key after a key, and no key holds it.
                start = max(prefix, (after if cursor is None else cursor) + "\0")
                keys = bucket.order.page(start, size + 1)
                if keys and not keys[-1].startswith(prefix):
                    keys = list(takewhile(lambda key: key.startswith(prefix), keys))
                page = keys[:size]
                return BlobPage(
                    [bucket.blobs[key].info for key in page],
                    page[-1] if len(keys) > size else None,
                )

    async def start_upload(self, key: str) -> MemoryUpload:
        check_key(key)
        async with interleaved:
            bucket = self.bucket()
            bucket.begun += 1
            upload = MemoryUpload(self, key, f"upload-{bucket.begun}")
            bucket.uploads[upload.name] = (
                Unfinished(key, upload.name, self.runtime.now_ms()),
                upload,
            )
            return upload

    async def list_uploads(self, prefix: str = "") -> AsyncIterator[Unfinished]:
        async with interleaved:
            begun = [
                begun for begun, _ in self.bucket().uploads.values() if begun.key.startswith(prefix)
            ]
        for each in begun:
            yield each

    async def abort_upload(self, upload: Unfinished) -> None:
        async with interleaved:
            if upload.id in (uploads := self.bucket().uploads):
                uploads[upload.id][1].end()

    async def now_ms(self) -> int:
        async with interleaved:
            return self.runtime.now_ms()

    async def space(self) -> StorageSpace:
        async with interleaved:
            return StorageSpace()

    async def create(self) -> bool:
        async with interleaved:
            return _buckets.setdefault(self._name, bucket := _Bucket()) is bucket

    async def exists(self) -> bool:
        async with interleaved:
            return self._name in _buckets

    async def drop(self, *, if_empty: bool = False) -> bool:
        async with interleaved:
            bucket = _buckets.get(self._name)
            if if_empty and bucket is not None and bucket.blobs:
                return False
            _buckets.pop(self._name, None)
            return True

    async def close(self) -> None:
        """No effect: the blobs live as long as the process."""


class MemoryUpload:
    """Parts in memory until `complete`; removed with the bucket."""

    def __init__(self, store: MemoryBlobs, key: str, name: str) -> None:
        self._store = store
        self._bucket = store.bucket()
        self._key = key
        self.name = name
        self._parts: dict[int, bytes] | None = {}
        self._published: BlobInfo | None = None

    def _open_parts(self) -> dict[int, bytes]:
        if self._parts is None or self._store.bucket() is not self._bucket:
            raise ServiceError("no such upload", path=self._key, service_code="NoSuchUpload")
        return self._parts

    async def put_part(self, number: int, data: Buffer) -> None:
        if number < 1:
            raise ValueError("parts are numbered from 1")
        async with interleaved:
            self._open_parts()[number] = bytes(data)

    async def copy_part(
        self,
        number: int,
        source: BlobStore,
        source_key: str,
        start: int,
        end: int,
        *,
        if_match: str | None = None,
    ) -> None:
        check_copied_part(number, start, end)
        check_key(source_key)
        if not isinstance(source, MemoryBlobs):
            raise UnsupportedError("memory cannot copy from another kind of store", path=self._key)
        async with interleaved:
            parts, blob = self._open_parts(), source.blob(source_key)
            check_source(blob.info, if_match, end)
            parts[number] = blob.data[start:end]

    async def complete(self) -> BlobInfo:
        async with interleaved:
            if self._published is not None:
                return self._published
            parts = self._open_parts()
            numbers = part_numbers(
                {number: len(data) for number, data in parts.items()}, self._store.min_part
            )
            data = b"".join(parts[number] for number in numbers)
            with self._bucket.lock:
                self._published = self._bucket.put(self._key, data, self._store.runtime.now_ms())
            self.end()
            return self._published

    async def abort(self) -> None:
        async with interleaved:
            self.end()

    def end(self) -> None:
        """Remove the upload and its parts."""
        self._parts = None
        self._bucket.uploads.pop(self.name, None)
