"""What fsck holds in memory does not grow with the volume."""

from __future__ import annotations

import tracemalloc
from collections.abc import AsyncIterator

import pytest

from s3k_async.backends.ports.key_ranges import KeyRange
from s3k_async.integrity import collector, shuffle
from s3k_async.integrity.collector import Collector
from s3k_async.integrity.repair import scope_of
from s3k_async.integrity.scans import FactPage
from s3k_async.integrity.scope import ScanCounts, Scope
from s3k_async.integrity.shuffle import Shuffle
from s3k_async.model import Entry
from tests.torture.damage import Scene

SMALL = 200_000


def entry(number: int) -> Entry:
    identity = f"00000000-0000-4000-8000-{number:012d}"
    return Entry(
        f"/d/part-{number:06d}", False, identity, 2, 1, 1, 1, f"{identity}.id={identity}", True
    )


def test_what_was_scanned_is_in_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sixty-four things for each of 256 files of each pile stayed in memory: most of a volume of
    30,000 files."""
    monkeypatch.setattr(shuffle, "BUFFERED", SMALL)
    kept = Shuffle(held=100)
    try:
        tracemalloc.start()
        for number in range(10_000):
            kept.add("entries", str(number), entry(number))
        held, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert held < 8 * SMALL
        found = [each for number in range(kept.count) for each in kept.read("entries", number)]
        assert sorted(found, key=lambda each: each.path) == [
            entry(number) for number in range(10_000)
        ]
    finally:
        tracemalloc.stop()
        kept.close()


async def test_few_listings_are_open_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each holds a page: sixteen of 10,000 keys were those of 160,000 files, 50 MiB."""
    under_way = 0
    most = 0

    async def listing(_: Scope, keys: KeyRange, counts: ScanCounts) -> AsyncIterator[FactPage]:
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        yield FactPage()
        under_way -= 1

    monkeypatch.setattr(collector, "blob_facts", listing)
    scene = await Scene.start()
    kept = Shuffle()
    try:
        await Collector(scope_of(scene.volume), kept).scan(lambda _: None)
    finally:
        kept.close()
        await scene.end()
    assert 0 < most <= 4
