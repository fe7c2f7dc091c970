"""A tiered store whose blobs do not stay where they are written."""

from __future__ import annotations

from zlib import crc32

from s3k_async.backends.ports.blobs import BlobInfo, BlobStore, Buffer, Upload
from s3k_async.storage.tiered_blobs import TieredBlobs

__all__ = ["MovedBlobs"]


class MovedBlobs(TieredBlobs):
    """Moves each second key, by its digest, to the cold store as soon as it is written."""

    async def put(
        self, key: str, data: Buffer, *, if_absent: bool = False, if_match: str | None = None
    ) -> BlobInfo:
        info = await super().put(key, data, if_absent=if_absent, if_match=if_match)
        return await self.moved(info)

    async def start_upload(self, key: str) -> Upload:
        return _MovedUpload(self, await super().start_upload(key))

    async def moved(self, info: BlobInfo) -> BlobInfo:
        """Move a blob, if it is one of those; what it is afterwards."""
        if crc32(info.key.encode()) % 2 or await self.hot.head(info.key) is None:
            return info
        copied = await self.cold.put(info.key, await self.hot.get(info.key))
        await self.hot.delete(info.key)
        return copied


class _MovedUpload:
    def __init__(self, blobs: MovedBlobs, upload: Upload) -> None:
        self._blobs = blobs
        self._upload = upload
        self._done: BlobInfo | None = None

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
        await self._upload.copy_part(number, source, source_key, start, end, if_match=if_match)

    async def complete(self) -> BlobInfo:
        if self._done is None:
            self._done = await self._blobs.moved(await self._upload.complete())
        return self._done

    async def abort(self) -> None:
        await self._upload.abort()
