"""The transaction records of a volume, as both clients list them."""

from __future__ import annotations

import asyncio
from typing import Literal

import pytest

from s3k_async import TransactionRecord
from s3k_async._sync.sync_client import S3kSyncClient
from s3k_async.backends.memory.memory_blobs import MemoryBlobs as MemoryBlobStore
from s3k_async.backends.memory.memory_items import MemoryItems
from s3k_async.client import S3kClient
from s3k_async.config import MemoryBlobs, MemoryTable, VolumeConfig
from tests.engines.volumes import fresh_name, volume_backends
from tests.namespace.dying import DEAD, rename_and_die
from tests.test_volumes_legacy import Legacy

backends = volume_backends("memory", "embedded")


@backends
def test_nothing_is_under_way(sync_fs: S3kSyncClient) -> None:
    sync_fs.write("/d/f", b"1")
    sync_fs.rename("/d", "/e")
    sync_fs.delete("/e", recursive=True)
    assert sync_fs.transactions() == []


@backends
@pytest.mark.parametrize(("when", "state"), [("before", "preparing"), ("after", "published")])
def test_an_interrupted_rename_is_listed_until_it_is_finished(
    config: VolumeConfig, when: Literal["before", "after"], state: str
) -> None:
    with S3kSyncClient(config=config) as fs:
        fs.write("/d/f", b"1")
        txn_id = asyncio.run(rename_and_die(config, "/d", "/e", when))
        (record,) = fs.transactions()
        assert isinstance(record, TransactionRecord)
        assert (record.id, record.kind, record.state) == (txn_id, "rename", state)
        assert (record.source, record.target, record.lease_ms) == ("/d", "/e", DEAD)
        assert bool(record.published_ms) == record.is_published == (when == "after")
        assert fs.exists("/e/f") == record.is_published
        fs.write("/d/g", b"2")
        assert fs.transactions() == []


@backends
async def test_an_active_transaction_has_a_valid_lease(config: VolumeConfig, fs: S3kClient) -> None:
    await fs.write("/d/f", b"1")
    await rename_and_die(config, "/d", "/e", "before", lease=None)
    (record,) = await fs.transactions()
    assert record.lease_ms > record.started_ms > 0


async def test_a_volume_of_s3_filesystem_1_0_has_no_transactions() -> None:
    name = fresh_name("legacy")
    items = MemoryItems(name)
    await items.create()
    await MemoryBlobStore(name).create()
    config = VolumeConfig(
        "bucket", MemoryTable(name), MemoryBlobs(name), kind="s3k-1.0", suffix_count=10
    )
    await Legacy(items, config).fill()
    async with S3kClient(config=config) as fs:
        assert await fs.transactions() == []
