"""The suffix count of a table of S3-FileSystem 1.0, checked against its items.

Such a table has no record. Read with another count, directories would seem to lack most of their
children, so the suffix of a sample of its items is computed again and compared with the stored one.
The sample decides as a whole: a live table may hold a damaged, foreign or misplaced item, which
fsck reports.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Final

from s3k_async import _native
from s3k_async._core.concurrency import gather
from s3k_async.backends.ports.items import PARTITION, SORT, Item, ItemStore, Key
from s3k_async.backends.ports.pagination import scan_all
from s3k_async.errors import ItemFormatError, NotAVolumeError, VolumeMismatchError
from s3k_async.model import ROOT
from s3k_async.table.codec import from_item
from s3k_async.table.keys import KeyScheme, is_entry_partition

__all__ = ["check_suffixes"]

_LOG = logging.getLogger(__name__)

SEGMENTS: Final = 4
SAMPLE: Final = 400
"""Items read from the table's segments together."""
ROOT_SAMPLE: Final = 10
"""Items read from each partition of the root."""
COUNTS: Final = range(1, 1001)
"""Suffix counts that a sample is tried with, to tell a wrong count from misplaced items."""


async def check_suffixes(items: ItemStore, keys: KeyScheme, where: str) -> int:
    """Compare a sample of the table with the scheme; how many items of the volume were compared (0:
    it is empty).

    Reads the start of the root's partitions and of several segments. Items of other volumes that
    share the table are passed over. Raises VolumeMismatchError if at least half of the names are in
    another partition than their own, or another suffix count explains the sample as well;
    NotAVolumeError if no fewer items are no entries than are. Fewer are logged as a warning.
    """
    sample = _Sample(keys)
    for page in await gather(
        lambda partition: _start(items, partition), keys.partitions(ROOT), limit=SEGMENTS
    ):
        sample.add(page)
    for page in await gather(
        lambda segment: _segment(items, segment), range(SEGMENTS), limit=SEGMENTS
    ):
        sample.add(page)
    sample.judge(where)
    return sample.compared


async def _start(items: ItemStore, partition: str) -> list[Item]:
    return list((await items.query(partition, limit=ROOT_SAMPLE)).items)


async def _segment(items: ItemStore, segment: int) -> list[Item]:
    found: list[Item] = []
    async with aclosing(scan_all(items, segment, SEGMENTS, limit=SAMPLE // SEGMENTS)) as pages:
        async for page in pages:
            found.extend(page)
            if len(found) >= SAMPLE // SEGMENTS:
                break
    return found


@dataclass(slots=True)
class _Sample:
    """What some items say of the scheme. A name has one suffix in every directory, so it counts
    once."""

    keys: KeyScheme
    compared: int = 0
    fitting: set[tuple[str, str]] = field(default_factory=set)
    """Name and suffix of entries that are where they belong."""
    misplaced: dict[tuple[str, str], str] = field(default_factory=dict)
    """Those of the others, and their paths."""
    others: set[Key] = field(default_factory=set)
    """Entries of other volumes."""
    bad: dict[Key, str] = field(default_factory=dict)
    """Items that are no entries, and why."""

    def add(self, items: Iterable[Item]) -> None:
        for item in items:
            key = Key(str(item[PARTITION]), str(item[SORT]))
            if not is_entry_partition(key.partition):
                self.bad[key] = f"{key.partition!r}, {key.sort!r}"
            elif not self.keys.is_own(key.partition):
                self.others.add(key)
            else:
                self._compare(item, key)

    def _compare(self, item: Item, key: Key) -> None:
        try:
            path = from_item(item, self.keys).path
        except ItemFormatError as error:
            self.bad[key] = str(error)
            return
        self.compared += 1
        named = (key.sort, key.partition.rpartition("-")[2])
        if self._fits(named, self.keys.suffix_count):
            self.fitting.add(named)
        else:
            self.misplaced[named] = path

    def _fits(self, named: tuple[str, str], count: int) -> bool:
        name, stored = named
        return stored == f"sf{_native.suffix_index(name, count, self.keys.hash)}"

    def judge(self, where: str) -> None:
        """Raises VolumeMismatchError or NotAVolumeError if the table is not what it is said to
        be."""
        if self.bad and len(self.bad) >= len(self.fitting) + len(self.misplaced) + len(self.others):
            raise NotAVolumeError(
                f"the table holds an item that is no entry: {next(iter(self.bad.values()))}",
                path=where,
            )
        if self.misplaced:
            self._judge_count(where)
        doubtful = [*self.bad.values(), *self.misplaced.values()]
        if doubtful:
            _LOG.warning(
                "%d of the items that were looked at in %s are damaged, foreign or misplaced, as "
                "%s: run fsck",
                len(doubtful),
                where,
                doubtful[0],
            )

    def _judge_count(self, where: str) -> None:
        count = self.keys.suffix_count
        better = next((other for other in COUNTS if other != count and self._explains(other)), None)
        if better is None and len(self.misplaced) < len(self.fitting):
            return
        (name, stored), path = next(iter(self.misplaced.items()))
        computed = f"sf{_native.suffix_index(name, count, self.keys.hash)}"
        hint = "" if better is None else f"; it may be {better}"
        raise VolumeMismatchError(
            f"the table was not written with suffix count {count}: {path} is in {stored}, not in "
            f"{computed}{hint}",
            path=where,
        )

    def _explains(self, count: int) -> bool:
        """Whether no more names are misplaced with this count."""
        allowed = len(self.misplaced)
        for named in (*self.misplaced, *self.fitting):
            allowed -= not self._fits(named, count)
            if allowed < 0:
                return False
        return True
