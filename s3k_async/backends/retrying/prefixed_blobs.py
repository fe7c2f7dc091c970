"""The blob port below a key prefix of another store: keys outside it cannot be read, listed or
removed."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

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
from s3k_async.backends.ports.storage_terms import StorageTerms, stored_by
from s3k_async.errors import PartialFailureError
from s3k_async.storage_space import StorageSpace

__all__ = ["PrefixedBlobs", "origin_of"]


class PrefixedBlobs:
    """A BlobStore of the blobs below `prefix`, which ends in `/`; keys are relative to it.

    `create`, `exists`, `now_ms` and `close` act on the bucket or directory of `store`.
    """

    def __init__(self, store: BlobStore, prefix: str) -> None:
        self.min_part = store.min_part
        self.composes = store.composes
        self._store = store
        self._prefix = prefix

    def __repr__(self) -> str:
        return f"PrefixedBlobs({self._store!r}, {self._prefix!r})"

    def stored_by(self, terms: StorageTerms) -> PrefixedBlobs:
        """As `StoresByTerms.stored_by`."""
        return PrefixedBlobs(stored_by(self._store, terms), self._prefix)

    def at_version(self, version: str) -> PrefixedBlobs:
        """As `KeepsVersions.at_version`."""
        return PrefixedBlobs(at_version(self._store, version), self._prefix)

    def uri(self, key: str) -> str:
        return self._store.uri(self._prefix + key)

    async def put(
        self, key: str, data: Buffer, *, if_absent: bool = False, if_match: str | None = None
    ) -> BlobInfo:
        return self.relative(
            await self._store.put(self._prefix + key, data, if_absent=if_absent, if_match=if_match)
        )

    async def get(
        self,
        key: str,
        start: int = 0,
        end: int | None = None,
        *,
        if_match: str | None = None,
        if_size: int | None = None,
    ) -> bytes:
        return await self._store.get(
            self._prefix + key, start, end, if_match=if_match, if_size=if_size
        )

    async def get_into(
        self,
        key: str,
        start: int,
        buffer: memoryview,
        *,
        if_match: str | None = None,
        if_size: int | None = None,
    ) -> int:
        return await get_into(
            self._store, self._prefix + key, start, buffer, if_match=if_match, if_size=if_size
        )

    async def head(self, key: str) -> BlobInfo | None:
        info = await self._store.head(self._prefix + key)
        return None if info is None else self.relative(info)

    def can_copy_from(self, source: BlobStore) -> bool:
        return self._store.can_copy_from(origin_of(source)[0])

    async def copy(
        self,
        source: BlobStore,
        source_key: str,
        key: str,
        *,
        found: BlobInfo | None = None,
        if_match: str | None = None,
    ) -> BlobInfo:
        store, full = origin_of(source, source_key)
        return self.relative(
            await self._store.copy(store, full, self._prefix + key, found=found, if_match=if_match)
        )

    async def delete(self, key: str) -> None:
        await self._store.delete(self._prefix + key)

    async def delete_many(self, keys: Sequence[str]) -> list[DeleteFailure]:
        failures = await self._store.delete_many([self._prefix + key for key in keys])
        return [
            DeleteFailure(failure.key.removeprefix(self._prefix), failure.error)
            for failure in failures
        ]

    async def list(
        self,
        prefix: str = "",
        *,
        cursor: str | None = None,
        limit: int | None = None,
        after: str = "",
    ) -> BlobPage:
        full = self._prefix + after if after else ""
        page = await self._store.list(self._prefix + prefix, cursor=cursor, limit=limit, after=full)
        start = len(self._prefix)
        blobs = [
            BlobInfo(key[start:], size, etag, mtime_ms, version)
            for key, size, etag, mtime_ms, version in page.blobs
        ]
        return BlobPage(blobs, page.next)

    async def start_upload(self, key: str) -> Upload:
        return _Upload(self, await self._store.start_upload(self._prefix + key))

    async def list_uploads(self, prefix: str = "") -> AsyncIterator[Unfinished]:
        async for upload in self._store.list_uploads(self._prefix + prefix):
            key = upload.key.removeprefix(self._prefix)
            yield Unfinished(key, upload.id, upload.started_ms)

    async def abort_upload(self, upload: Unfinished) -> None:
        key = self._prefix + upload.key if upload.key else ""
        await self._store.abort_upload(Unfinished(key, upload.id, upload.started_ms))

    async def now_ms(self) -> int:
        return await self._store.now_ms()

    async def space(self) -> StorageSpace:
        return await self._store.space()

    async def create(self) -> bool:
        return await self._store.create()

    async def exists(self) -> bool:
        return await self._store.exists()

    async def drop(self, *, if_empty: bool = False) -> bool:
        """Remove every blob below the prefix, and unfinished uploads there; the root is kept."""
        if if_empty:
            return not (await self.list(limit=1)).blobs
        async for upload in self.list_uploads():
            if upload.key:
                await self.abort_upload(upload)
        while keys := [info.key for info in (await self.list(limit=MAX_DELETION)).blobs]:
            if failures := await self.delete_many(keys):
                raise PartialFailureError(
                    f"{len(failures)} blobs could not be removed",
                    path=self._store.uri(self._prefix + failures[0].key),
                    failures=[(failure.key, failure.error) for failure in failures],
                )
        return True

    async def close(self) -> None:
        await self._store.close()

    def origin(self, key: str) -> tuple[BlobStore, str]:
        """The underlying store, and the key in it."""
        return self._store, self._prefix + key

    def relative(self, info: BlobInfo) -> BlobInfo:
        """A blob of the underlying store, with its key relative to the prefix."""
        return info._replace(key=info.key.removeprefix(self._prefix))


class _Upload:
    def __init__(self, blobs: PrefixedBlobs, upload: Upload) -> None:
        self._blobs = blobs
        self._upload = upload

    async def put_part(self, number: int, data: Buffer) -> None:
        await self._upload.put_part(number, data)

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
        store, key = origin_of(source, source_key)
        await self._upload.copy_part(number, store, key, start, end, if_match=if_match)

    async def complete(self) -> BlobInfo:
        return self._blobs.relative(await self._upload.complete())

    async def abort(self) -> None:
        await self._upload.abort()


def origin_of(store: BlobStore, key: str = "") -> tuple[BlobStore, str]:
    """The store underlying a view, and the key in it."""
    while isinstance(store, PrefixedBlobs):
        store, key = store.origin(key)
    return store, key
