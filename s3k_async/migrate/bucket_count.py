"""The initial count of all buckets for their maintained counters.

It is made under the exclusive lock of the volume, so that nothing changes meanwhile. Until it is
complete the mark is set, so that no client reads the counters.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing, suppress

from s3k_async._core.concurrency import run_all
from s3k_async._native import Entries
from s3k_async.backends.ports.items import PARTITION, SORT, Condition, Delete, Item, Key
from s3k_async.backends.ports.pagination import scan_all
from s3k_async.errors import ConditionFailedError
from s3k_async.namespace.ordered_walk import walk
from s3k_async.table.stored_reader import ROOT_ENTRY
from s3k_async.txn.bucket_counters import counter_put, is_counter_partition, stale_mark
from s3k_async.txn.bucket_totals import BucketTotal, bucket_above
from s3k_async.volumes.volume import Volume

__all__ = ["bucket_totals", "count_buckets", "suspend_counters"]

CHANGES = 16
"""Items that are removed at the same time."""


async def bucket_totals(volume: Volume) -> dict[str, BucketTotal]:
    """The total of each bucket with objects, by a walk through the tree and the trash. What was
    deleted with its directory and is not reclaimed counts for the bucket that it was in."""
    totals: dict[str, BucketTotal] = {}

    async def add(bucket: str | None, pages: AsyncGenerator[Entries, None]) -> None:
        async with aclosing(pages):
            async for page in pages:
                objects, _, size = page.totals()
                if bucket is not None and objects:
                    total = totals.get(bucket, BucketTotal())
                    totals[bucket] = total + BucketTotal(objects, size, page.newest())

    store = volume.store.unrestricted()
    trash = store.layout.trash()
    async for page in store.children(store.keys.directory(ROOT_ENTRY)):
        for each in page.directories():
            await add(bucket_above(each.path), walk(store, store.keys.directory(each)))
    for item in await trash.items():
        await add(bucket_above(item.was), trash.walk(item))
    return totals


async def suspend_counters(volume: Volume) -> None:
    """Set the mark of the counters: until a count is complete no client reads them."""
    with suppress(ConditionFailedError):
        await volume.items.write(stale_mark(volume.store.runtime.uuid()))


async def count_buckets(volume: Volume, held: Callable[[], object]) -> None:
    """Replace all counters and their journals by the result of a count. `held` raises unless the
    exclusive lock of the volume certainly is held. Can be repeated after an interruption. Raises
    ItemFormatError."""
    items, runtime = volume.items, volume.store.runtime
    mark = stale_mark(runtime.uuid())
    await suspend_counters(volume)

    async def remove(item: Item) -> None:
        held()
        with suppress(ConditionFailedError):
            await items.write(Delete(Key(str(item[PARTITION]), str(item[SORT])), Condition()))

    async with aclosing(scan_all(items)) as pages:
        async for page in pages:
            counted = [each for each in page if is_counter_partition(str(each[PARTITION]))]
            old = [each for each in counted if each[PARTITION] != mark.key.partition]
            await run_all(remove, old, limit=CHANGES)
    for bucket, total in (await bucket_totals(volume)).items():
        held()
        await items.write(counter_put(bucket, total, runtime.uuid()))
    held()
    await items.write(Delete(mark.key, Condition()))
