"""What the counters of a volume say, and what a walk through it finds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from s3k_async.backends.ports.items import PARTITION, SORT, Item
from s3k_async.backends.ports.pagination import scan_all
from s3k_async.client import S3kClient
from s3k_async.txn.bucket_counters import is_counter_partition
from s3k_async.txn.bucket_totals import BucketTotal
from s3k_async.volumes.volume import Volume
from tests.torture.crash import client_of

__all__ = ["Counted", "check_counters", "counted", "counter_items", "walked"]

Totals = dict[str, BucketTotal]
PREFIX = "s3k:counters/"


@dataclass(frozen=True)
class Counted:
    """The totals of the buckets by their counters, without those that are zero."""

    totals: Totals
    is_stale: bool
    """Whether one of them has to be counted again."""


async def counter_items(volume: Volume) -> list[Item]:
    """Counters and journal items, by key."""
    found = [item async for page in scan_all(volume.items) for item in page]
    return sorted(
        (each for each in found if is_counter_partition(str(each[PARTITION]))),
        key=lambda item: (str(item[PARTITION]), str(item[SORT])),
    )


async def counted(volume: Volume) -> Counted:
    """What readers get."""
    counters = volume.store.changes.counters
    assert counters is not None
    totals: Totals = {}
    is_stale = False
    for partition in {str(item[PARTITION]) for item in await counter_items(volume)}:
        if partition.startswith(PREFIX):
            total = await counters.total(partition.removeprefix(PREFIX))
            is_stale |= total is None
            if total:
                totals[partition.removeprefix(PREFIX)] = total
        else:
            is_stale = True
    return Counted(totals, is_stale)


async def walked(fs: S3kClient) -> Totals:
    """What listings find: of the tree, and of what is in the trash."""
    totals: Totals = {}

    def add(path: str, size: int) -> None:
        bucket, separator, _ = path[1:].partition("/")
        if separator:
            totals[bucket] = totals.get(bucket, BucketTotal()) + BucketTotal(1, size)

    async for status in fs.list("/", recursive=True):
        if status.is_file:
            add(status.path, status.size)
    trash = fs.trash()
    for item in await trash.list():
        async for status in trash.walk(item):
            if status.is_file and status.committed:
                add(status.path, status.size)
    return totals


async def check_counters(
    volume: Volume, allowed: Callable[[Counted], bool] = lambda found: not found.is_stale
) -> Totals:
    """The counters equal a walk, unless they have to be counted again where that is allowed."""
    expected = await walked(client_of(volume))
    found = await counted(volume)
    assert allowed(found)
    if not found.is_stale:
        assert found.totals == expected
    return expected
