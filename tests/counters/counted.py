"""What the counters of a volume say, and what a walk through it finds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from s3k_async.backends.ports.items import PARTITION, SORT, Item
from s3k_async.backends.ports.pagination import scan_all
from s3k_async.client import S3kClient
from s3k_async.model import FileStatus
from s3k_async.txn.bucket_counters import is_counter_partition
from s3k_async.txn.bucket_totals import BucketTotal
from s3k_async.volumes.volume import Volume
from tests.torture.crash import client_of

__all__ = ["Counted", "check_counters", "counted", "counter_items", "numbers", "walked"]

Totals = dict[str, BucketTotal]
PREFIX = "s3k:counters/"


@dataclass(frozen=True)
class Counted:
    """The totals of the buckets by their counters, without those that are zero."""

    totals: Totals
    is_stale: bool
    """Whether one of them has to be counted again."""

    def agrees_with(self, walked: Totals) -> bool:
        """Whether all are counted and have the numbers and sizes that a walk found, and no time
        before that of the newest object that it found."""
        if self.is_stale or numbers(self.totals) != numbers(walked):
            return False
        newest = {bucket: total.newest_ms or 0 for bucket, total in self.totals.items()}
        return all(newest[bucket] >= (total.newest_ms or 0) for bucket, total in walked.items())


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
            if total is not None and (total.objects or total.size):
                totals[partition.removeprefix(PREFIX)] = total
        else:
            is_stale = True
    return Counted(totals, is_stale)


def numbers(totals: Totals) -> Totals:
    """Totals without times."""
    return {bucket: replace(total, newest_ms=None) for bucket, total in totals.items()}


async def walked(fs: S3kClient) -> Totals:
    """What listings find: of the tree, and of what is in the trash."""
    totals: Totals = {}

    def add(path: str, status: FileStatus) -> None:
        bucket, separator, _ = path[1:].partition("/")
        if separator:
            one = BucketTotal(1, status.size, status.mtime_ms)
            totals[bucket] = totals.get(bucket, BucketTotal()) + one

    async for status in fs.list("/", recursive=True):
        if status.is_file:
            add(status.path, status)
    trash = fs.trash()
    for item in await trash.list():
        async for status in trash.walk(item):
            if status.is_file and status.committed:
                add(status.path, status)
    return totals


async def check_counters(
    volume: Volume, allowed: Callable[[Counted], bool] = lambda found: not found.is_stale
) -> Totals:
    """The counters agree with a walk, whose totals are returned without times, unless they have to
    be counted again where that is allowed."""
    expected = await walked(client_of(volume))
    found = await counted(volume)
    assert allowed(found)
    assert found.is_stale or found.agrees_with(expected), (found, expected)
    return numbers(expected)
