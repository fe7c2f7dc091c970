"""s3fs: fsspec over aiobotocore. A directory is a prefix: renaming it copies and deletes."""

from __future__ import annotations

from typing import Any

import s3fs

from benchmarks.contenders.keys import bounded, total_of
from benchmarks.contenders.small_files import SmallFiles
from tests.engines.process import Engine

__all__ = ["S3fs", "S3fsFiles"]


class S3fs:
    """A bucket as a filesystem."""

    def __init__(self, server: Engine, bucket: str, *, asynchronous: bool = True) -> None:
        self.bucket = bucket
        self.fs: Any = s3fs.S3FileSystem(
            key=server.access_key,
            secret=server.secret_key,
            client_kwargs={"endpoint_url": server.endpoint, "region_name": server.region},
            config_kwargs={
                "max_pool_connections": 256,
                "request_checksum_calculation": "when_required",
                "response_checksum_validation": "when_required",
            },
            asynchronous=asynchronous,
            use_listings_cache=False,
            skip_instance_cache=True,
        )

    async def close(self) -> None:
        """Close its connections."""
        session = await self.fs.set_session()
        await session.close()

    async def put(self, path: str, files: int, data: bytes, in_flight: int) -> int:
        """Write small files."""

        async def write(number: int) -> None:
            await self.fs._pipe_file(f"{self.bucket}{path}/part-{number:08}", data)

        await bounded(write, range(files), in_flight)
        return files

    async def read(self, path: str, files: int, in_flight: int) -> int:
        """Read them."""

        async def size(number: int) -> int:
            return len(await self.fs._cat_file(f"{self.bucket}{path}/part-{number:08}"))

        return await total_of(size, files, in_flight)

    async def list(self, path: str) -> int:
        """List a directory."""
        return len(await self.fs._ls(f"{self.bucket}{path}", detail=True))

    async def rename(self, path: str, target: str) -> None:
        """What fsspec's `mv` does, within a running loop: copy recursively, then remove."""
        await self.fs._copy(f"{self.bucket}{path}/", f"{self.bucket}{target}/", recursive=True)
        await self.fs._rm(f"{self.bucket}{path}", recursive=True)

    async def delete(self, path: str) -> None:
        """Remove a directory."""
        await self.fs._rm(f"{self.bucket}{path}", recursive=True)


class S3fsFiles(SmallFiles):
    """Objects through s3fs, in its own loop's coroutines."""

    def __init__(self, fs: Any, bucket: str) -> None:
        self.fs = fs
        self.bucket = bucket

    async def put(self, path: str, data: bytes) -> object:
        return await self.fs._pipe_file(self.bucket + path, data)

    async def read(self, path: str) -> int:
        return len(await self.fs._cat_file(self.bucket + path))

    async def stat(self, path: str) -> int:
        return int((await self.fs._info(self.bucket + path))["size"])

    async def copy(self, source: str, target: str) -> object:
        return await self.fs._cp_file(self.bucket + source, self.bucket + target)

    async def delete(self, path: str) -> object:
        return await self.fs._rm_file(self.bucket + path)
