"""This package: the public client, and below it the port to the table."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

from benchmarks.contenders.keys import ITEM, bounded, item_of
from benchmarks.contenders.small_files import SmallFiles
from s3k_async import S3kClient, _native
from s3k_async.backends.dynamodb.dynamodb_codec import decode_item, decode_key
from s3k_async.backends.ports.items import ABSENT, Condition, Delete, Put
from s3k_async.config import VolumeConfig
from s3k_async.objects import ObjectStore
from s3k_async.volumes import init_volume

__all__ = [
    "READ_FILES",
    "ClientFiles",
    "ObjectFiles",
    "Ours",
    "PortFiles",
    "client",
    "fill",
    "without_log",
]

LOADED_AT_ONCE = 10_000
READ_FILES = "/single/read-"
"""Prefix of the paths of files that `Ours.verb` reads; a number follows."""

UNCHANGED = Condition(
    equals={"id": "00000000-0000-4000-8000-000000000000", "ver": 2}, missing=("next",)
)


@asynccontextmanager
async def client(config: VolumeConfig) -> AsyncIterator[S3kClient]:
    """A client of a volume that is made if it is not there."""
    await init_volume(config, exist_ok=True)
    async with S3kClient(config=config) as entered:
        yield entered


def without_log(config: VolumeConfig) -> VolumeConfig:
    """The same volume as if it had no log: what the other contenders do."""
    return replace(config, log_mode="disabled")


async def fill(fs: S3kClient, path: str, entries: int) -> None:
    """Put a directory of files without data, `part-00000000` and so on, into a table that no other
    client uses. The files are not logged, and the writes have no conditions."""
    await fs.makedirs(path)
    volume = fs._volume()
    entry = await volume.store.get(path)
    assert entry is not None
    keys, directory = volume.store.keys, volume.store.keys.directory(entry).key
    item = decode_item({**ITEM, "path": {"S": ""}, "children": {"S": ""}})
    with volume.items.loading(lambda: None):
        for start in range(0, entries, LOADED_AT_ONCE):
            numbers = range(start, min(entries, start + LOADED_AT_ONCE))
            places = keys.keys([keys.child(directory, f"part-{number:08}") for number in numbers])
            entropy = os.urandom(16 * len(places))
            ids = _native.uuid_texts(entropy)
            physical = _native.physical_keys(ids, entropy)
            await volume.items.load(
                [
                    {**item, "path": key.partition, "children": key.sort, "id": own, "physpath": at}
                    for key, own, at in zip(places, ids, physical, strict=True)
                ]
            )


class Ours:
    """The rows' work over a client."""

    def __init__(self, fs: S3kClient) -> None:
        self.fs = fs

    async def single(self, operation: str, count: int, in_flight: int) -> int:
        """`count` requests of one kind through the port that everything goes through, retries and
        all."""
        items = self.fs._volume().items
        item = decode_item(item_of(0))

        async def get(number: int) -> None:
            await items.get(decode_key(item_of(number)))

        async def put(number: int) -> None:
            key = decode_key(item_of(number))
            await items.write(Put({**item, "path": key.partition, "children": key.sort}, ABSENT))

        async def delete(number: int) -> None:
            await items.write(Delete(decode_key(item_of(number)), UNCHANGED))

        await bounded(
            {"get": get, "put": put, "delete": delete}[operation], range(count), in_flight
        )
        return count

    async def verb(self, operation: str, count: int, in_flight: int) -> int:
        """`count` calls of one of the client's verbs."""
        fs = self.fs

        async def stat(number: int) -> None:
            await fs.stat(f"/single/part-{number:08}")

        async def create(number: int) -> None:
            await fs.write(f"/single/new-{number:08}", b"0123456789")

        async def read(number: int) -> None:
            await fs.read(f"{READ_FILES}{number:08}")

        async def rename(number: int) -> None:
            await fs.rename(f"/single/part-{number:08}", f"/single/moved-{number:08}")

        async def delete(number: int) -> None:
            await fs.delete(f"/single/part-{number:08}")

        verbs = {"stat": stat, "read": read, "create": create, "rename": rename, "delete": delete}
        await bounded(verbs[operation], range(count), in_flight)
        return count

    async def list(self, path: str) -> int:
        """One object for each entry."""
        found = 0
        async for _ in self.fs.list(path):
            found += 1
        return found

    async def list_batches(self, path: str) -> int:
        """Arrow record batches."""
        found = 0
        async for batch in self.fs.list_batches(path):
            found += batch.num_rows
        return found

    async def rename(self, path: str, target: str, *, atomic: bool) -> int:
        """The whole verb: job, mark, target directory, files, and the source's removal."""
        return (await self.fs.rename(path, target, atomic=atomic)).files

    async def delete(self, path: str, *, atomic: bool) -> int:
        """The whole verb."""
        return (await self.fs.delete(path, recursive=True, atomic=atomic)).files


class ClientFiles(SmallFiles):
    """Files of a volume, by the client's verbs: table, data and log."""

    def __init__(self, fs: S3kClient) -> None:
        self.fs = fs

    async def put(self, path: str, data: bytes) -> object:
        return await self.fs.write(path, data)

    async def read(self, path: str) -> int:
        return len(await self.fs.read(path))

    async def stat(self, path: str) -> int:
        return (await self.fs.stat(path)).size

    async def copy(self, source: str, target: str) -> object:
        return await self.fs.copy(source, target)

    async def rename(self, source: str, target: str) -> object:
        return await self.fs.rename(source, target)

    async def delete(self, path: str) -> object:
        return await self.fs.delete(path)


class ObjectFiles(SmallFiles):
    """Objects of a bucket, by the verbs of the object API."""

    def __init__(self, fs: S3kClient, bucket: str) -> None:
        self.store = ObjectStore(fs)
        self.bucket = bucket

    async def put(self, path: str, data: bytes) -> object:
        return await self.store.put(self.bucket, path[1:], data)

    async def read(self, path: str) -> int:
        return len(await self.store.read(self.bucket, path[1:]))

    async def stat(self, path: str) -> int:
        return (await self.store.info(self.bucket, path[1:])).size

    async def copy(self, source: str, target: str) -> object:
        return await self.store.copy(self.bucket, source[1:], target[1:])

    async def rename(self, source: str, target: str) -> object:
        return await self.store.move(self.bucket, source[1:], target[1:])

    async def delete(self, path: str) -> None:
        await self.store.delete(self.bucket, path[1:])


class PortFiles(SmallFiles):
    """Objects through the port that the client's bytes go through, retries and all."""

    def __init__(self, fs: S3kClient) -> None:
        self.blobs = fs._volume().blobs

    async def put(self, path: str, data: bytes) -> object:
        return await self.blobs.put(path[1:], data)

    async def read(self, path: str) -> int:
        return len(await self.blobs.get(path[1:]))

    async def stat(self, path: str) -> int:
        info = await self.blobs.head(path[1:])
        return -1 if info is None else info.size

    async def copy(self, source: str, target: str) -> object:
        return await self.blobs.copy(self.blobs, source[1:], target[1:])

    async def delete(self, path: str) -> None:
        await self.blobs.delete(path[1:])
