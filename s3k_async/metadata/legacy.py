"""Whether a table that S3-FileSystem 1.0 wrote has the suffix count it is said to have.

Such a table has no record. Read with another count, directories would seem to lack most of their children, so the
suffix of a sample of its items is computed again and has to come out as it is stored.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from s3k_async import _native
from s3k_async.concurrency import gather
from s3k_async.errors import ItemFormatError, NotAVolumeError, VolumeMismatchError
from s3k_async.metadata.codec import from_item
from s3k_async.metadata.keys import ENTRY_PREFIX, KeyScheme
from s3k_async.model import ROOT
from s3k_async.stores.items import PARTITION, SORT, Item, ItemStore

__all__ = ["check_suffixes"]

SEGMENTS: Final = 4
SAMPLE: Final = 400
"""Items read from the table's segments together."""
ROOT_SAMPLE: Final = 10
"""Items read from each partition of the root."""


async def check_suffixes(items: ItemStore, keys: KeyScheme, where: str) -> int:
    """Compare a sample of the table with the scheme; how many items of the volume were compared (0: it is empty).

    Reads the start of the root's partitions and of several segments. Items of other volumes that share the table are
    passed over. Raises VolumeMismatchError when a suffix comes out otherwise, NotAVolumeError when an item is no entry.
    """
    compared = 0
    for page in await gather(lambda partition: _start(items, partition), keys.partitions(ROOT), limit=SEGMENTS):
        compared += _compare(page, keys, where)
    for page in await gather(lambda segment: _segment(items, segment), range(SEGMENTS), limit=SEGMENTS):
        compared += _compare(page, keys, where)
    return compared


async def _start(items: ItemStore, partition: str) -> list[Item]:
    return list((await items.query(partition, limit=ROOT_SAMPLE)).items)


async def _segment(items: ItemStore, segment: int) -> list[Item]:
    found: list[Item] = []
    cursor: str | None = None
    while len(found) < SAMPLE // SEGMENTS:
        page = await items.scan(segment, SEGMENTS, cursor=cursor, limit=SAMPLE // SEGMENTS)
        found.extend(page.items)
        if page.next is None:
            break
        cursor = page.next
    return found


def _compare(items: Iterable[Item], keys: KeyScheme, where: str) -> int:
    compared = 0
    for item in items:
        partition, name = str(item[PARTITION]), str(item[SORT])
        if not partition.startswith(ENTRY_PREFIX):
            raise NotAVolumeError(f"the table holds an item that is no entry: {partition!r}, {name!r}", path=where)
        if not partition.startswith(f"{ENTRY_PREFIX}{keys.volume}/"):
            continue
        try:
            path = from_item(item, keys).path
        except ItemFormatError as error:
            raise NotAVolumeError(f"the table holds an item that is no entry: {error}", path=where) from error
        stored = partition.rpartition("-")[2]
        computed = f"sf{_native.suffix_index(name, keys.suffix_count, keys.hash)}"
        if stored != computed:
            raise VolumeMismatchError(
                f"the table was not written with suffix count {keys.suffix_count}: {path} is in {stored}, not in"
                f" {computed}",
                path=where,
            )
        compared += 1
    return compared
