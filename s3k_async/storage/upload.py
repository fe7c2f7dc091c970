"""Uploads of one blob, in one request or in parts, with size and checksum."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, Final

import anyio

from s3k_async._core.concurrency import to_the_end
from s3k_async._native import Xxh3_128
from s3k_async.backends.ports.blobs import BlobInfo, BlobStore, Buffer, Upload
from s3k_async.config import Tuning
from s3k_async.errors import CorruptDataError, S3kError, StreamClosedError
from s3k_async.model import Content
from s3k_async.storage.cached_reads import CachedReads
from s3k_async.storage.pending_bytes import PendingBytes

__all__ = ["CHECKSUM_PREFIX", "CLEANUP_SECONDS", "LEAST_COPY", "PhysicalWriter", "abort_upload"]

_LOG = logging.getLogger(__name__)

CHECKSUM_PREFIX = "xxh128:"
CLEANUP_SECONDS = 10.0
"""Limit for the abort of a failed or cancelled upload. Shielded from cancellation."""
PARTS_BEFORE_GROWTH = 1000
"""Number of parts after which the part size doubles: S3 allows 10,000 parts, so this reaches 5
TiB."""
COPIED_PART: Final = 512 * 1024**2
"""Bytes of a part that is copied inside the service, until parts of uploads are larger."""
_LONGEST_COPY: Final = 4 * 1024**3
LEAST_COPY: Final = 5 * 1024**2
"""Bytes from which on a range is copied, unless parts are smaller: the smallest part of S3."""


class PhysicalWriter:
    """Writer of one blob: nothing is visible before `finish`, nothing is left after `abort`.

    Content of more than `tuning.multipart_threshold` bytes is sent in parts during writing; each
    holds a slot of `slots`, so that the bytes in flight are bounded for all writers together. Any
    failure or cancellation aborts the upload. Ranges of stored objects can be among the content
    without being read; its checksum is unknown then, and empty.
    """

    def __init__(
        self,
        blobs: BlobStore,
        physical: str,
        tuning: Tuning,
        slots: anyio.Semaphore,
        *,
        cache: CachedReads | None = None,
    ) -> None:
        """`cache`: where content is added that is sent by one request."""
        self.physical = physical
        self._cache = cache
        self.size = 0
        """Bytes accepted so far."""
        self._blobs = blobs
        self._threshold = tuning.multipart_threshold
        self._base_part_size = max(tuning.part_size, blobs.min_part, 1)
        self._least_copy = max(blobs.min_part, min(tuning.part_size, LEAST_COPY), 1)
        self._slots = slots
        self._digest: Xxh3_128 | None = Xxh3_128()
        """Of the content so far; None once bytes were copied."""
        self._pending = PendingBytes()
        self._upload: Upload | None = None
        self._parts: set[asyncio.Task[None]] = set()
        self._sent = 0
        self._failure: BaseException | None = None
        self._content: Content | None = None

    @property
    def part_size(self) -> int:
        """Bytes of the next part."""
        return int(self._base_part_size * 2 ** (self._sent // PARTS_BEFORE_GROWTH))

    async def write(self, data: Buffer) -> None:
        """Accept bytes; waits while too many parts are in flight. Raises the error of a failed
        part."""
        view = memoryview(data).cast("B")
        while len(view):
            part_size = self.part_size
            if not self._pending.size and len(view) > max(
                part_size, self._threshold if self._upload is None else 0
            ):
                await self._send_whole(view[:part_size])
            elif self.add(view[:part_size]):
                await self.drain()
            view = view[part_size:]

    def add(self, data: Buffer) -> bool:
        """Accept bytes without waiting; True if `drain` must be awaited before more are added."""
        self._need_open()
        self._hash(data)
        self._pending.add(data)
        self.size += memoryview(data).nbytes
        return self._pending.size > (self._threshold if self._upload is None else self.part_size)

    def before_copy(self, blobs: BlobStore, length: int, *, is_last: bool = False) -> int:
        """How many bytes of a range of a blob have to be written, so that `copy` can add the rest:
        some if parts would become too small, all if none can be copied. `is_last`: no more bytes
        follow the range."""
        if not (self._blobs.composes and self._blobs.can_copy_from(blobs)):
            return length
        waiting = self._pending.size
        head = max(0, self._blobs.min_part - waiting) if waiting else 0
        rest, ends_parts = length - head, is_last and self._upload is not None and not waiting
        return head if rest >= self._least_copy or (ends_parts and rest > 0) else length

    async def copy(
        self,
        copy_part: Callable[[Upload, int, int, int], Coroutine[Any, Any, None]],
        start: int,
        end: int,
    ) -> None:
        """Add the bytes [start, end) of a blob, inside the service, where `before_copy` allows it.
        Raises the error of a failed part. `copy_part`: stores a range as a part of an upload, by
        the upload, the number of the part, start and end."""

        async def store(number: int, upload: Upload, start: int, stop: int) -> None:
            await copy_part(upload, number, start, stop)

        try:
            upload = await self._started()
            if self._pending.size:
                await self._send_bytes(upload, self._pending.take(self._pending.size))
            self._digest = None
            while start < end:
                stop = start + min(max(COPIED_PART, self.part_size), _LONGEST_COPY)
                if stop > end - self._least_copy:
                    stop = end  # the last one is not too small for a part
                await self._send(partial(store, upload=upload, start=start, stop=stop))
                self.size += stop - start
                start = stop
        except BaseException as error:
            await self._fail(error)
            raise

    async def drain(self) -> None:
        """Send the complete parts."""
        try:
            upload = await self._started()
            while self._pending.size > self.part_size:
                await self._send_bytes(upload, self._pending.take(self.part_size))
        except BaseException as error:
            await self._fail(error)
            raise

    async def finish(self) -> Content:
        """Make the blob visible; durable when this returns. Idempotent."""
        if self._content is not None:
            return self._content
        self._need_open()
        try:
            info = await self._store()
            if info.size != self.size:
                raise CorruptDataError(
                    f"{self.size} bytes were sent and {info.size} stored", path=self.physical
                )
        except BaseException as error:
            await self._fail(error)
            raise
        checksum = "" if self._digest is None else CHECKSUM_PREFIX + self._digest.hexdigest()
        self._content = Content(self.physical, self.size, info.etag, checksum)
        return self._content

    def take_unsent(self) -> Buffer | None:
        """All accepted bytes, which then are not stored, if none of them was sent yet; else
        None."""
        self._need_open()
        if self._upload is not None:
            return None
        data = self._pending.take(self._pending.size)
        self._failure = StreamClosedError("the upload was ended", path=self.physical)
        return data

    async def abort(self) -> None:
        """Abort the upload. Harmless after `finish` and after `abort`."""
        if self._content is None:
            await self._fail(StreamClosedError("the upload was aborted", path=self.physical))

    async def _store(self) -> BlobInfo:
        if self._upload is None:
            data = self._pending.take(self._pending.size)
            info = await self._blobs.put(self.physical, data)
            if self._cache is not None and info.size == self.size:
                await self._cache.add(self.physical, data)
            return info
        if self._pending.size or not self._sent:
            await self._send_bytes(self._upload, self._pending.take(self._pending.size))
        while self._parts:
            await asyncio.wait(self._parts)
        self._need_open()
        info = await self._upload.complete()
        return info if self._digest is not None else await self._found()

    async def _found(self) -> BlobInfo:
        """The blob as it is stored: not every service refuses a range past the end of its source.
        Raises CorruptDataError for another size than that of the parts; then it is removed."""
        info = await self._blobs.head(self.physical)
        if info is not None and info.size == self.size:
            return info
        await self._blobs.delete(self.physical)
        raise CorruptDataError(
            "the physical object that was composed of others is not as long as their ranges",
            path=self.physical,
        )

    def _hash(self, data: Buffer) -> None:
        if self._digest is not None:
            self._digest.update(data)

    async def _started(self) -> Upload:
        self._need_open()
        if self._upload is None:
            self._upload = await self._blobs.start_upload(self.physical)
        return self._upload

    async def _send_whole(self, part: memoryview) -> None:
        """Accept a part and send it at once. Immutable bytes are not copied."""
        try:
            upload = await self._started()
            kept = part if isinstance(part.obj, bytes) else bytes(part)
            self._hash(kept)
            self.size += len(kept)
            await self._send_bytes(upload, kept)
        except BaseException as error:
            await self._fail(error)
            raise

    async def _send_bytes(self, upload: Upload, part: Buffer) -> None:
        await self._send(partial(upload.put_part, data=part))

    async def _send(self, store: Callable[[int], Coroutine[Any, Any, None]]) -> None:
        """Send a part in the background, as soon as a slot is free. `store`: by its number."""
        await self._slots.acquire()
        try:
            self._need_open()
        except BaseException:
            self._slots.release()
            raise
        self._sent += 1
        task = asyncio.create_task(store(self._sent))
        self._parts.add(task)
        task.add_done_callback(self._part_done)

    def _part_done(self, task: asyncio.Task[None]) -> None:
        self._parts.discard(task)
        self._slots.release()
        if (
            not task.cancelled()
            and (error := task.exception()) is not None
            and self._failure is None
        ):
            self._failure = error
            for other in self._parts:
                other.cancel()

    def _need_open(self) -> None:
        if self._failure is not None:
            raise self._failure
        if self._content is not None:
            raise StreamClosedError("the upload is finished", path=self.physical)

    async def _fail(self, error: BaseException) -> None:
        """Record the error, and abort the upload."""
        if self._failure is None:
            stays = isinstance(error, Exception)
            self._failure = (
                error
                if stays
                else StreamClosedError("the upload was cancelled", path=self.physical)
            )
        self._pending = PendingBytes()
        upload, self._upload = self._upload, None
        await to_the_end(partial(self._end, upload))

    async def _end(self, upload: Upload | None) -> None:
        with anyio.move_on_after(CLEANUP_SECONDS):
            for task in self._parts:
                task.cancel()
            if self._parts:
                await asyncio.wait(self._parts)
            if upload is not None:
                await abort_upload(upload, self.physical)


async def abort_upload(upload: Upload, key: str) -> None:
    """Abort an upload to a key, in at most `CLEANUP_SECONDS`. A failure is logged."""
    try:
        with anyio.move_on_after(CLEANUP_SECONDS):
            await upload.abort()
    except S3kError as error:
        # The unfinished upload is invisible, and garbage collection removes it.
        _LOG.warning("the upload of %s could not be aborted: %s", key, error)
