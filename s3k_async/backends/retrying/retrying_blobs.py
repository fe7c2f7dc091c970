"""The blob port with retries; a conditional put whose response was lost is resolved by the stored
bytes."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from copy import copy
from functools import partial
from itertools import chain

from s3k_async._core.concurrency import AdaptiveLimit, gather
from s3k_async._core.metering import Meter
from s3k_async._core.observation import Observer
from s3k_async._core.retry import TRANSIENT, Retries, RetryPolicy, backoff
from s3k_async._core.runtime import Runtime
from s3k_async.backends.ports.blob_keys import check_unchanged
from s3k_async.backends.ports.blobs import (
    MAX_DELETION,
    BlobInfo,
    BlobPage,
    BlobStore,
    Buffer,
    DeleteFailure,
    Unfinished,
    Upload,
    get_into,
)
from s3k_async.backends.ports.object_versions import at_version
from s3k_async.backends.ports.other_buckets import in_bucket
from s3k_async.backends.ports.presigning import PresignedMethod, PresignedUrl, Presigner
from s3k_async.backends.ports.storage_terms import StorageTerms, stored_by
from s3k_async.backends.retrying.prefixed_blobs import PrefixedBlobs, origin_of
from s3k_async.backends.retrying.request_pipeline import (
    ONE_ATTEMPT,
    Request,
    Sender,
    at_once,
)
from s3k_async.backends.retrying.retrying_items import LOST
from s3k_async.errors import (
    BlobNotFoundError,
    OutcomeUnknownError,
    RequestTimeoutError,
    ResponseLostError,
    S3kError,
    ThrottledError,
    UnsupportedError,
)
from s3k_async.storage_space import StorageSpace

__all__ = ["RetryingBlobs"]

_BATCHES = 16
"""Batches of one deletion under way at once."""
_PUT = "PutObject"
_WHOLE = 64 * 1024 * 1024
"""Bytes assumed for the time limit of a blob of unknown size."""


class RetryingBlobs:
    """A BlobStore over another one, with retries of transient errors within `retries`.

    If the answer to a conditional put was lost, equal stored bytes count as success (the same bytes
    of another client are the same blob); anything else raises OutcomeUnknownError. `limiter` bounds
    the requests in flight, `meter` counts them, `observer` observes them.
    """

    def __init__(
        self,
        store: BlobStore,
        retries: Retries | RetryPolicy,
        runtime: Runtime,
        limiter: AdaptiveLimit | None = None,
        meter: Meter | None = None,
        observer: Observer | None = None,
    ) -> None:
        self.store = store
        self._runtime = runtime
        self._sender = Sender(retries, runtime, limiter, meter or Meter("data"), observer)
        self._retries = self._sender.retries
        self.min_part = store.min_part
        self.composes = store.composes

    def __repr__(self) -> str:
        return f"RetryingBlobs({self.store!r})"

    def below(self, prefix: str) -> RetryingBlobs:
        """The blobs below `prefix` (empty, or ending in `/`), with keys relative to it. Both share
        one concurrency limit and one meter."""
        if not prefix:
            return self
        view = copy(self)
        view.store = PrefixedBlobs(self.store, prefix)
        return view

    def stored_by(self, terms: StorageTerms) -> RetryingBlobs:
        """As `StoresByTerms.stored_by`."""
        view = copy(self)
        view.store = stored_by(self.store, terms)
        return view

    def at_version(self, version: str) -> RetryingBlobs:
        """As `KeepsVersions.at_version`."""
        view = copy(self)
        view.store = at_version(self.store, version)
        return view

    def in_bucket(self, bucket: str) -> RetryingBlobs | None:
        """As `ReachesBuckets.in_bucket`."""
        store = in_bucket(self.store, bucket)
        if store is None:
            return None
        view = copy(self)
        view.store = store
        return view

    def uri(self, key: str) -> str:
        return self.store.uri(key)

    async def presign(self, key: str, seconds: int, method: PresignedMethod) -> PresignedUrl:
        """As `Presigner.presign`. Raises UnsupportedError if the store signs no URLs."""
        store, full = _unwrap(self, key)
        if not isinstance(store, Presigner):
            raise UnsupportedError(
                "only data in S3 has URLs that can be signed", path=self.uri(key)
            )
        return await store.presign(full, seconds, method)

    async def put(
        self, key: str, data: Buffer, *, if_absent: bool = False, if_match: str | None = None
    ) -> BlobInfo:
        policy, size = self._retries.write, memoryview(data).nbytes
        if not if_absent and if_match is None:
            call = partial(self.store.put, key, data)
            return await self._sender.send(_PUT, call, policy, size=size)
        request = Request(self._sender, _PUT, policy, size=size)
        lost = False
        while True:
            try:
                async with request:
                    return await self.store.put(key, data, if_absent=if_absent, if_match=if_match)
            except S3kError as error:
                failure = error
            lost = lost or isinstance(failure, LOST)
            delay = request.delay(failure) if isinstance(failure, TRANSIENT) else None
            if delay is not None and request.left() > delay:
                await self._runtime.sleep(delay)
            elif lost and not isinstance(failure, OutcomeUnknownError):
                return await self._resolve(key, data, failure)
            else:
                raise failure

    async def get(
        self,
        key: str,
        start: int = 0,
        end: int | None = None,
        *,
        if_match: str | None = None,
        if_size: int | None = None,
    ) -> bytes:
        call = partial(self.store.get, key, start, end, if_match=if_match, if_size=if_size)
        wanted = _WHOLE if end is None else max(0, end - start)
        policy = self._retries.read
        return await self._sender.send("GetObject", call, policy, expected=wanted, received=len)

    async def get_into(
        self,
        key: str,
        start: int,
        buffer: memoryview,
        *,
        if_match: str | None = None,
        if_size: int | None = None,
    ) -> int:
        call = partial(get_into, self.store, key, start, buffer, if_match=if_match, if_size=if_size)
        policy, wanted = self._retries.read, len(buffer)
        return await self._sender.send("GetObject", call, policy, expected=wanted, received=int)

    async def head(self, key: str) -> BlobInfo | None:
        call = partial(self.store.head, key)
        return await self._sender.send("HeadObject", call, self._retries.read)

    def can_copy_from(self, source: BlobStore) -> bool:
        return self.store.can_copy_from(_unwrap(source, "")[0])

    async def copy(
        self,
        source: BlobStore,
        source_key: str,
        key: str,
        *,
        found: BlobInfo | None = None,
        if_match: str | None = None,
    ) -> BlobInfo:
        found = found or await source.head(source_key)
        if found is None:
            raise BlobNotFoundError("no blob has this key", path=source.uri(source_key))
        check_unchanged(found, if_match)
        adapter, adapter_key = _unwrap(source, source_key)
        call = partial(self.store.copy, adapter, adapter_key, key, found=found, if_match=if_match)
        return await self._sender.send("CopyObject", call, self._retries.write, many=True)

    async def delete(self, key: str) -> None:
        call = partial(self.store.delete, key)
        await self._sender.send("DeleteObject", call, self._retries.write)

    async def delete_many(self, keys: Sequence[str]) -> list[DeleteFailure]:
        wanted = list(dict.fromkeys(keys))
        batches = [
            wanted[start : start + MAX_DELETION] for start in range(0, len(wanted), MAX_DELETION)
        ]
        return list(chain.from_iterable(await gather(self._delete_batch, batches, limit=_BATCHES)))

    async def _delete_batch(self, keys: Sequence[str]) -> list[DeleteFailure]:
        """Delete the keys of one request. Transient failures are retried; permanent failures are
        returned; the other keys are deleted."""
        policy = self._retries.write
        delays = backoff(policy, self._runtime)
        kept: list[DeleteFailure] = []
        again = False
        while True:
            call = partial(self.store.delete_many, keys)
            failures = await self._sender.send(
                "DeleteObjects", call, policy, again=again, throttled=_any_throttled
            )
            left = {
                failure.key: failure.error
                for failure in failures
                if isinstance(failure.error, TRANSIENT)
            }
            kept += [failure for failure in failures if failure.key not in left]
            delay = self._sender.next_delay(delays, next(iter(left.values()))) if left else None
            if delay is None:
                return kept + [
                    DeleteFailure(key, _final_error(error)) for key, error in left.items()
                ]
            await self._runtime.sleep(delay)
            keys, again = list(left), True

    async def list(
        self,
        prefix: str = "",
        *,
        cursor: str | None = None,
        limit: int | None = None,
        after: str = "",
    ) -> BlobPage:
        call = partial(self.store.list, prefix, cursor=cursor, limit=limit, after=after)
        return await self._sender.send("ListObjectsV2", call, self._retries.scan)

    async def start_upload(self, key: str) -> Upload:
        call = partial(self.store.start_upload, key)
        upload = await self._sender.send("CreateMultipartUpload", call, self._retries.write)
        return _RetryingUpload(self._sender, upload)

    async def list_uploads(self, prefix: str = "") -> AsyncIterator[Unfinished]:
        async def whole() -> list[Unfinished]:
            return [each async for each in self.store.list_uploads(prefix)]

        uploads = await self._sender.send(
            "ListMultipartUploads", whole, self._retries.scan, many=True
        )
        for upload in uploads:
            yield upload

    async def abort_upload(self, upload: Unfinished) -> None:
        call = partial(self.store.abort_upload, upload)
        await self._sender.send("AbortMultipartUpload", call, self._retries.write)

    async def now_ms(self) -> int:
        return await self._sender.send("HeadBucket", self.store.now_ms, self._retries.read)

    async def space(self) -> StorageSpace:
        return await self._sender.uncounted(self.store.space)

    async def probe(self, key: str) -> BlobInfo | None:
        """As `head`, in one attempt, which does not wait for other requests: a health check."""
        with at_once():
            return await self._sender.send("HeadObject", partial(self.store.head, key), ONE_ATTEMPT)

    async def create(self) -> bool:
        return await self._sender.send("CreateBucket", self.store.create, self._retries.write)

    async def exists(self) -> bool:
        return await self._sender.send("HeadBucket", self.store.exists, self._retries.read)

    async def drop(self, *, if_empty: bool = False) -> bool:
        return await self._sender.uncounted(lambda: self.store.drop(if_empty=if_empty))

    async def close(self) -> None:
        await self.store.close()

    async def _resolve(self, key: str, data: Buffer, failure: S3kError) -> BlobInfo:
        with suppress(S3kError):  # the check failed too; the caller gets `failure`
            info = await self.head(key)
            if (
                info is not None
                and info.size == memoryview(data).nbytes
                and await self.get(key) == data
            ):
                return info
        raise OutcomeUnknownError(
            "the answer to a conditional put was lost, and the stored bytes are not the ones put "
            f"({failure.message})",
            path=key,
        ) from failure


class _RetryingUpload:
    def __init__(self, sender: Sender, upload: Upload) -> None:
        self._sender = sender
        self._policy = sender.retries.write
        self._upload = upload

    async def put_part(self, number: int, data: Buffer) -> None:
        call = partial(self._upload.put_part, number, data)
        size = memoryview(data).nbytes
        await self._sender.send("UploadPart", call, self._policy, size=size)

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
        adapter, key = _unwrap(source, source_key)
        call = partial(self._upload.copy_part, number, adapter, key, start, end, if_match=if_match)
        await self._sender.send("UploadPartCopy", call, self._policy, many=True)

    async def complete(self) -> BlobInfo:
        call = self._upload.complete
        return await self._sender.send("CompleteMultipartUpload", call, self._policy, many=True)

    async def abort(self) -> None:
        await self._sender.send("AbortMultipartUpload", self._upload.abort, self._policy)


def _final_error(error: Exception) -> Exception:
    """The error of a deletion that is not retried. A deletion is idempotent, so a lost answer is
    reported as a timeout."""
    if not isinstance(error, ResponseLostError):
        return error
    return RequestTimeoutError(f"no whole answer came ({error.message})", path=error.path)


def _any_throttled(failures: Sequence[DeleteFailure]) -> bool:
    return any(isinstance(failure.error, ThrottledError) for failure in failures)


def _unwrap(store: BlobStore, key: str) -> tuple[BlobStore, str]:
    """The adapter underlying a store, and the key in it."""
    return origin_of(store.store if isinstance(store, RetryingBlobs) else store, key)
