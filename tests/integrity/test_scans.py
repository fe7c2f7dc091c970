"""A scan by pieces, however many: together they hold what one pass over the volume does, once."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import asdict
from operator import itemgetter
from typing import Any, cast

import pytest

from s3k_async import _native
from s3k_async.backends.ports.key_ranges import hex_ranges
from s3k_async.integrity.collector import LOOSE, Collector
from s3k_async.integrity.repair import scope_of
from s3k_async.integrity.scans import FactRecord, blob_facts, log_facts, table_facts
from s3k_async.integrity.scope import ScanCounts, Scope
from s3k_async.integrity.shuffle import FactKind, LonelyEntry, Shuffle, from_line, hash_of, to_line
from s3k_async.model import Entry, LayoutName
from s3k_async.oplog.checkpoints import Checkpoint
from s3k_async.oplog.compaction import Compactor
from s3k_async.oplog.entries import LogRecord, Operation
from s3k_async.oplog.log_reader import Finding, LogReader, entry_ranges
from tests.oplog import operations as samples
from tests.torture.damage import DAMAGES, GRACE, Scene

pytestmark = pytest.mark.layouts("path", "tree")

DAMAGED = (
    "foreign_items",
    "broken_item",
    "cut_log",
    "newer_log",
    "foreign_bytes",
    "stale_record",
    "same_id",
    "no_item",
)


KEYS: Mapping[FactKind, Callable[[Any], str]] = {
    "entries": lambda entry: entry.id,
    "records": lambda record: record.operation.object_id,
    "blobs": lambda blob: _native.object_id_of(blob.key) or blob.key,
    "directories": itemgetter(0),
    "children": itemgetter(0),
}
"""The shuffle keys of facts."""


async def test_pieces_hold_what_one_pass_does(layout: LayoutName) -> None:
    scene = await Scene.start(layout=layout)
    try:
        for name, path in zip(DAMAGED, scene.files, strict=False):
            await DAMAGES[name](scene, path)
        await scene.log_blobs.put("entries/zz/nobody", b"?")
        await scene.log_blobs.put("entries/0", b"?")
        ground = scope_of(scene.volume, grace=GRACE)
        whole = Collector(ground, Shuffle())
        await whole.scan(lambda _: None)
        expected = needed(piles_of(whole), layout)
        for count in (1, 3, 16, 300):
            counts = ScanCounts()
            facts = [fact async for fact in in_pieces(ground, count, counts)]
            assert needed(facts, layout) == expected, count
            assert counts == whole.counts
    finally:
        await scene.end()


def piles_of(collector: Collector) -> list[FactRecord]:
    kinds: tuple[FactKind, ...] = ("entries", "records", "blobs", "directories", "children")
    held = [(kind, "", fact) for kind in kinds for fact in collector.shuffle.read(kind, 0)]
    loose: list[FactRecord] = [
        (cast("FactKind", kind), "", fact)
        for kind in LOOSE
        for fact in getattr(collector.loose, kind)
    ]
    return [*held, *loose]


def needed(facts: list[FactRecord], layout: LayoutName) -> Counter[tuple[str, str]]:
    """The facts as lines; in layout `path` only the first child of each directory: which others are
    left out depends on the pages."""
    children: dict[str, list[FactRecord]] = {}
    for each in facts:
        if each[0] == "children":
            children.setdefault(each[2][0], []).append(each)
    kept = [each for each in facts if each[0] != "children"]
    for some in children.values():
        kept += [min(some, key=itemgetter(2))] if layout == "path" else some
    return Counter((kind, to_line(kind, fact)) for kind, _, fact in kept)


async def in_pieces(ground: Scope, count: int, counts: ScanCounts) -> AsyncIterator[FactRecord]:
    assert isinstance(ground.log, LogReader)
    scans = [table_facts(ground, segment, count, counts) for segment in range(count)]
    scans.append(log_facts(ground, log_in_pieces(ground.log, count), counts))
    scans += [blob_facts(ground, keys, counts) for group in hex_ranges(count) for keys in group]
    for scan in scans:
        async for page in scan:
            for fact in page.facts:
                yield fact
            for kind, lines in page.lines:
                for part, line in lines.rows():
                    fact = from_line(kind, line)
                    assert part == hash_of(KEYS[kind](fact))
                    assert line.decode("ascii") == to_line(kind, fact) + "\n"
                    yield kind, "", fact


async def log_in_pieces(log: LogReader, count: int) -> AsyncIterator[Finding]:
    for keys in entry_ranges(count):
        async for part in log.entries(keys=keys):
            for finding in part.findings:
                yield finding
    sizes, damage = await log.segment_sizes()
    assert all(sizes.values())
    for finding in damage:
        yield finding
    for segment in sizes:
        for finding in await log.segment(segment):
            yield finding
    for checkpoint in await log.checkpoints.valid():
        assert isinstance(checkpoint, Checkpoint)
        for number in range(len(checkpoint.parts)):
            for finding in await log.checkpoints.part(checkpoint, number) or ():
                yield finding


async def test_pieces_of_a_compacted_log_pass_over_what_its_checkpoint_covers(
    layout: LayoutName,
) -> None:
    scene = await Scene.start(layout=layout)
    try:
        compactor = Compactor(scene.log_blobs, scene.volume.store.runtime, grace=0, part_bytes=1000)
        assert (await compactor.run(dry_run=False)).checkpoint
        await scene.write("/top", b"after the checkpoint")
        await scene.settled()
        log = LogReader(scene.log_blobs)
        whole = Counter([repr(finding) async for finding in log.records()])
        assert Counter([repr(finding) async for finding in log_in_pieces(log, 5)]) == whole
    finally:
        await scene.end()


@pytest.mark.parametrize("count", [1, 2, 7, 256, 1000])
def test_ranges_of_entries_hold_every_beginning_once_and_evenly(count: int) -> None:
    ranges = entry_ranges(count)
    assert len(ranges) == min(count, 256)
    keys = [
        f"entries/{shard:02x}/{shard:02x}{rest}"
        for shard in range(256)
        for rest in ("", "-x.0.y.pending", "~")
    ]
    keys += ["entries/0", "entries/Zz/Zz.0000000001.x.pending", "entries/zz/zz", "entries/~"]
    held = [
        [key for key in keys if key > each.after and (not each.until or key <= each.until)]
        for each in ranges
    ]
    assert sorted(key for some in held for key in some) == sorted(keys)
    assert all(len(some) <= 3 * (256 // len(ranges) + 1) + 4 for some in held)


def test_a_line_is_the_thing_again_and_parts_are_the_same_everywhere() -> None:
    assert hash_of("/a/é") == 2061844914
    child = ("/a", "/a/\udcff", "id", 7)
    line = to_line("children", child)
    assert line.isascii()
    assert "\n" not in line
    assert from_line("children", line) == child
    assert from_line("children", line.encode()) == child
    assert to_line("lonely", LonelyEntry(child)) == line, "what earlier versions saved"
    after = Entry("/b", is_dir=True, id="b", version=2, ctime=1, mtime_ms=1000, directory="d")
    record = LogRecord(Operation("o", "create", "b", 2, 1, None, after), "committed", "key")
    lonely = LonelyEntry(child, (record, record))
    assert from_line("lonely", to_line("lonely", lonely)) == lonely
    for operation in (samples.TREE_TRASH, samples.TREE_RECLAIM, samples.RENAME):
        record = LogRecord(operation, "pending", "key")
        read = from_line("records", to_line("records", record))
        assert (read.operation, read.key) == (operation, "key")
    assert asdict(ScanCounts()) == dict.fromkeys(ScanCounts.__dataclass_fields__, 0)
