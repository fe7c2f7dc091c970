"""obstore: Rust's object_store, called from asyncio."""

from __future__ import annotations

from typing import Any

import obstore
from obstore.store import S3Store

from benchmarks.contenders.keys import bounded, total_of
from benchmarks.contenders.small_files import SmallFiles
from tests.engines.process import Engine

__all__ = ["Obstore", "ObstoreFiles"]


class Obstore:
    """A bucket's objects."""

    def __init__(self, server: Engine, bucket: str) -> None:
        self.store: Any = S3Store(
            bucket,
            access_key_id=server.access_key,
            secret_access_key=server.secret_key,
            endpoint=server.endpoint,
            region=server.region,
            virtual_hosted_style_request=False,
            client_options={"allow_http": True},
        )

    async def put(self, path: str, files: int, data: bytes, in_flight: int) -> int:
        """Write small files."""

        async def write(number: int) -> None:
            await obstore.put_async(self.store, f"{path[1:]}/part-{number:08}", data)

        await bounded(write, range(files), in_flight)
        return files

    async def read(self, path: str, files: int, in_flight: int) -> int:
        """Read them."""

        async def size(number: int) -> int:
            answer = await obstore.get_async(self.store, f"{path[1:]}/part-{number:08}")
            return len(await answer.bytes_async())

        return await total_of(size, files, in_flight)

    async def list(self, path: str) -> int:
        """List a directory."""
        found = 0
        async for batch in obstore.list(self.store, path[1:]):
            found += len(batch)
        return found

    async def rename(self, path: str, target: str, files: int, in_flight: int) -> None:
        """It has objects only: each is copied and deleted."""

        async def move(number: int) -> None:
            name = f"part-{number:08}"
            await obstore.rename_async(self.store, f"{path[1:]}/{name}", f"{target[1:]}/{name}")

        await bounded(move, range(files), in_flight)

    async def delete(self, path: str) -> None:
        """Remove what is below a prefix, in batches."""
        async for batch in obstore.list(self.store, path[1:]):
            await obstore.delete_async(self.store, [meta["path"] for meta in batch])


class ObstoreFiles(SmallFiles):
    """Objects through obstore."""

    def __init__(self, store: Any) -> None:
        self.store = store

    async def put(self, path: str, data: bytes) -> object:
        return await obstore.put_async(self.store, path[1:], data)

    async def read(self, path: str) -> int:
        answer = await obstore.get_async(self.store, path[1:])
        return len(await answer.bytes_async())

    async def stat(self, path: str) -> int:
        return int((await obstore.head_async(self.store, path[1:]))["size"])

    async def copy(self, source: str, target: str) -> None:
        await obstore.copy_async(self.store, source[1:], target[1:])

    async def delete(self, path: str) -> None:
        await obstore.delete_async(self.store, path[1:])
