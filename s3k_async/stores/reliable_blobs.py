"""The blob port again, with retries; a conditional put whose answer was lost is settled by the stored bytes."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import TypeVar

import anyio

from s3k_async.errors import OutcomeUnknownError, S3kError
from s3k_async.retry import TRANSIENT, RetryPolicy, retry, retry_read
from s3k_async.sources import Sources
from s3k_async.stores.blobs import BlobInfo, BlobPage, BlobStore, Buffer, DeleteFailure, Upload
from s3k_async.stores.reliable_items import LOST

__all__ = ["ReliableBlobs"]

T = TypeVar("T")


class ReliableBlobs:
    """A BlobStore over another one that sends a request again after a transient error, as long as `policy` allows.

    When the answer to a conditional put was lost, stored bytes equal to ours are our success (whoever else stored
    the same bytes meant the same blob); anything else raises OutcomeUnknownError. `limiter` bounds the requests in
    flight.
    """

    def __init__(
        self, store: BlobStore, policy: RetryPolicy, sources: Sources, limiter: anyio.Semaphore | None = None
    ) -> None:
        self._store = store
        self._policy = policy
        self._sources = sources
        self._limiter = limiter
        self.min_part = store.min_part

    def __repr__(self) -> str:
        return f"ReliableBlobs({self._store!r})"

    def uri(self, key: str) -> str:
        return self._store.uri(key)

    async def put(self, key: str, data: Buffer, *, if_absent: bool = False, if_match: str | None = None) -> BlobInfo:
        if not if_absent and if_match is None:
            return await self._retry(lambda: self._store.put(key, data))
        delays = self._policy.delays(self._sources)
        lost = False
        while True:
            try:
                return await self._send(lambda: self._store.put(key, data, if_absent=if_absent, if_match=if_match))
            except S3kError as error:
                failure = error
            lost = lost or isinstance(failure, LOST)
            delay = next(delays, None) if isinstance(failure, TRANSIENT) else None
            if delay is not None:
                await self._sources.sleep(delay)
            elif lost:
                return await self._settle(key, data, failure)
            else:
                raise failure

    async def get(self, key: str, start: int = 0, end: int | None = None) -> bytes:
        return await self._read(lambda: self._store.get(key, start, end))

    async def head(self, key: str) -> BlobInfo | None:
        return await self._read(lambda: self._store.head(key))

    def can_copy_from(self, source: BlobStore) -> bool:
        return self._store.can_copy_from(_bare(source))

    async def copy(self, source: BlobStore, source_key: str, key: str) -> BlobInfo:
        return await self._retry(lambda: self._store.copy(_bare(source), source_key, key))

    async def delete(self, key: str) -> None:
        await self._retry(lambda: self._store.delete(key))

    async def delete_many(self, keys: Sequence[str]) -> list[DeleteFailure]:
        delays = self._policy.delays(self._sources)
        failures = await self._retry(lambda: self._store.delete_many(keys))
        while again := [failure.key for failure in failures if isinstance(failure.error, TRANSIENT)]:
            delay = next(delays, None)
            if delay is None:
                break
            await self._sources.sleep(delay)
            kept = [failure for failure in failures if failure.key not in again]
            failures = kept + await self._retry(partial(self._store.delete_many, again))
        return failures

    async def list(self, prefix: str = "", *, cursor: str | None = None, limit: int | None = None) -> BlobPage:
        return await self._read(lambda: self._store.list(prefix, cursor=cursor, limit=limit))

    async def list_all(self, prefix: str = "") -> AsyncIterator[BlobInfo]:
        cursor: str | None = None
        while True:
            page = await self.list(prefix, cursor=cursor)
            for info in page.blobs:
                yield info
            cursor = page.next
            if cursor is None:
                return

    async def start_upload(self, key: str) -> Upload:
        return _ReliableUpload(self, await self._retry(lambda: self._store.start_upload(key)))

    async def create(self) -> bool:
        return await self._retry(self._store.create)

    async def exists(self) -> bool:
        return await self._read(self._store.exists)

    async def drop(self) -> None:
        await self._retry(self._store.drop)

    async def close(self) -> None:
        await self._store.close()

    async def _send(self, request: Callable[[], Awaitable[T]]) -> T:
        if self._limiter is None:
            return await request()
        async with self._limiter:
            return await request()

    async def _read(self, request: Callable[[], Awaitable[T]]) -> T:
        return await retry_read(lambda: self._send(request), self._policy, self._sources)

    async def _retry(self, request: Callable[[], Awaitable[T]]) -> T:
        return await retry(lambda: self._send(request), self._policy, self._sources)

    async def _settle(self, key: str, data: Buffer, failure: S3kError) -> BlobInfo:
        with suppress(S3kError):  # it could not tell; `failure` is what the caller should know
            info = await self.head(key)
            if info is not None and info.size == memoryview(data).nbytes and await self.get(key) == data:
                return info
        raise OutcomeUnknownError(
            "the answer to a conditional put was lost, and the stored bytes are not the ones put", path=key
        ) from failure


class _ReliableUpload:
    def __init__(self, blobs: ReliableBlobs, upload: Upload) -> None:
        self._blobs = blobs
        self._upload = upload

    async def put_part(self, number: int, data: Buffer) -> None:
        await self._blobs._retry(lambda: self._upload.put_part(number, data))

    async def complete(self) -> BlobInfo:
        return await self._blobs._retry(self._upload.complete)

    async def abort(self) -> None:
        await self._blobs._retry(self._upload.abort)


def _bare(store: BlobStore) -> BlobStore:
    return store._store if isinstance(store, ReliableBlobs) else store
