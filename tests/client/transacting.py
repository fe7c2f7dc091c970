"""What the tests of transactions share: trees before and after, and how they look at them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TypeVar

import pytest

from s3k_async._core.runtime import SYSTEM
from s3k_async._native import object_id_of
from s3k_async.backends.memory.memory_blobs import MemoryBlobs
from s3k_async.backends.ports.pagination import list_all
from s3k_async.client import S3kClient
from s3k_async.config import VolumeConfig
from s3k_async.errors import S3kError, StreamClosedError
from s3k_async.model import LayoutName
from s3k_async.oplog.log_reader import LogReader
from s3k_async.testing import FaultPlan
from s3k_async.transaction import Transaction
from s3k_async.txn.txn_record import TRANSACTION_PARTITION
from s3k_async.volumes import init_volume
from tests.client.rig import faulty_client, memory_config
from tests.integrity.verifier import Verifier
from tests.layouts.trees import contradictions

__all__ = [
    "CHANGED",
    "START",
    "both_ways",
    "change",
    "contents",
    "delete",
    "fill",
    "makedirs",
    "move_from",
    "move_to",
    "problems",
    "refused_at_the_end",
    "replace_at",
    "stored_bytes",
    "transaction_items",
    "two_clients",
    "write",
]

Test = TypeVar("Test", bound=Callable[..., object])


def both_ways(test: Test) -> Test:
    """Run the test with transactions of either kind."""
    each_way = pytest.mark.parametrize("way", ["in one", "by a record"], indirect=True)
    using: Test = pytest.mark.usefixtures("way")(each_way(test))
    return using


async def contents(fs: S3kClient) -> dict[str, bytes | None]:
    """Everything that is there: the bytes of files, None for directories and reservations."""
    return {
        status.path: await fs.read(status.path) if status.is_file and status.committed else None
        async for status in fs.list("/", recursive=True, include_uncommitted=True)
    }


async def stored_bytes(config: VolumeConfig) -> set[str]:
    """The keys of the data of a volume in memory."""
    return {
        info.key
        async for info in list_all(MemoryBlobs(config.name))
        if object_id_of(info.key) is not None
    }


async def problems(fs: S3kClient) -> list[str]:
    """What fsck says once everything is written, and nothing is young."""
    volume = fs._volume()
    await volume.log.drained()
    assert volume.log_blobs is not None
    if volume.store.keys.layout == "tree":
        return sorted(await contradictions(volume.store, volume.log_blobs))
    later = replace(SYSTEM, now_ms=lambda: SYSTEM.now_ms() + 10**9)
    verifier = Verifier(
        volume.store,
        volume.blobs,
        LogReader(volume.log_blobs),
        later,
        grace=60.0,
        place=volume.place,
    )
    return [
        finding.kind
        for finding in (await verifier.verify(deep=True)).findings
        if finding.is_problem
    ]


@asynccontextmanager
async def two_clients(layout: LayoutName) -> AsyncIterator[tuple[S3kClient, S3kClient]]:
    config = memory_config(layout=layout)
    await init_volume(config)
    async with (
        faulty_client(FaultPlan(), config) as one,
        faulty_client(FaultPlan(), config) as other,
    ):
        yield one, other


async def transaction_items(fs: S3kClient) -> AsyncIterator[object]:
    """Records of transactions and their parts."""
    for item in (await fs._volume().items.query(TRANSACTION_PARTITION)).items:
        yield item


START = {"/d": None, "/d/f": b"one", "/d/g": b"two", "/d/h": b"three", "/e": None, "/e/k": b"four"}
"""What most tests begin with."""


async def fill(fs: S3kClient) -> None:
    for path, data in START.items():
        await (fs.makedirs(path) if data is None else fs.write(path, data))


async def change(tx: Transaction) -> None:
    await tx.write("/d/f", b"new")
    await tx.write("/n/m/x", b"deep", overwrite=False)
    async with tx.open("/e/y", "xb") as file:
        await file.write(b"long" * 200)
    await tx.rename("/d/g", "/e/k", overwrite=True)
    await tx.rename("/d/h", "/o/h")
    await tx.makedirs("/o/p")


CHANGED = {
    "/d": None,
    "/d/f": b"new",
    "/e": None,
    "/e/k": b"two",
    "/e/y": b"long" * 200,
    "/n": None,
    "/n/m": None,
    "/n/m/x": b"deep",
    "/o": None,
    "/o/h": b"three",
    "/o/p": None,
}


async def write(tx: Transaction, path: str) -> None:
    await tx.write(path, b"x")


async def move_to(tx: Transaction, path: str) -> None:
    await tx.rename("/e/k", path)


async def move_from(tx: Transaction, path: str) -> None:
    await tx.rename(path, "/e/zz")


async def delete(tx: Transaction, path: str) -> None:
    await tx.delete(path, recursive=True)


async def makedirs(tx: Transaction, path: str) -> None:
    await tx.makedirs(path)


async def replace_at(tx: Transaction, path: str) -> None:
    await tx.replace(path)


async def refused_at_the_end(
    verb: Callable[[Transaction], Awaitable[None]],
    meanwhile: Callable[[S3kClient], Awaitable[object]],
    error: type[S3kError],
    layout: LayoutName,
    before: Callable[[S3kClient], Awaitable[None]] = fill,
) -> None:
    config = memory_config(layout=layout)
    await init_volume(config)
    async with (
        faulty_client(FaultPlan(), config) as fs,
        faulty_client(FaultPlan(), config) as other,
    ):
        await before(fs)
        tx = fs.transaction()
        await verb(tx)
        await tx.write("/another", b"which is fine")
        await meanwhile(other)
        expected, data = await contents(other), await stored_bytes(config)
        with pytest.raises(error):
            await tx.commit()
        assert await contents(other) == expected
        assert await stored_bytes(config) < data
        assert await other.transactions() == []
        assert set(await problems(other)) <= {"reservation_expired"}
        with pytest.raises(StreamClosedError):
            await tx.commit()
