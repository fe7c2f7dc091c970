"""Short ways of restore, lines that are not decoded and objects that need no rules: the plan is
that of decoded records and of the rules."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import chain, pairwise
from typing import Final
from unittest.mock import patch

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from s3k_async.integrity import local_restore
from s3k_async.integrity.restore_plan import entry_line
from s3k_async.integrity.restore_report import RestoreReport
from s3k_async.model import Entry, LayoutName
from s3k_async.oplog.compaction import Compactor
from s3k_async.oplog.entries import LogRecord, Operation, operation_line, segment_key
from s3k_async.oplog.external_sort import ExternalSort
from s3k_async.oplog.segments import SegmentCommit, encode_segment_commit, seal_segment
from s3k_async.volumes.restoration import TREE_PLANS
from tests.integrity.restore_ground import Ground, by_the_rules, new_ground

PATHS = ("/a", "/d/a", '/d/é"\\')
FORMS: Final[dict[str, Callable[[bytes], bytes]]] = {
    "spaced": lambda line: line.replace(b'{"id":', b'{ "id":', 1),
    "escaped": lambda line: line.replace(b'"path":"/', b'"path":"\\u002f'),
    "more fields": lambda line: line[:-1] + b',"new":1}',
    "contradiction": lambda line: line.replace(b'"version":', b'"version":7', 1),
    "no JSON": lambda _: b"?",
    "no object": lambda _: b"[]",
    "other layout": lambda line: line.replace(b'"path":"/', b'"path":"'),
    "damaged id": lambda line: line.replace(b'"object":"', b'"object":"\\u0041', 1),
}
"""Lines that the log of this version does not write, by name."""


@dataclass(frozen=True)
class Change:
    """An operation on one of three objects; the data of the last one is missing."""

    kind: str
    number: int = 0
    version: int = 2
    path: int = 0
    came_from: int = 0
    form: str = ""
    is_dir: bool = False


@dataclass(frozen=True)
class LogSegment:
    """`outcome`: all, some or none of the operations are committed. `repeats`: its first line
    occurs twice."""

    changes: Sequence[Change]
    outcome: str = "all"
    repeats: bool = False


CHANGES = st.builds(
    Change,
    st.sampled_from(["create", "update", "rename", "delete"]),
    st.integers(0, 2),
    st.integers(2, 4),
    st.integers(0, 2),
    st.integers(0, 2),
    st.sampled_from([""] * 12 + sorted(FORMS)),
    st.sampled_from([False, False, True]),
)
SEGMENTS = st.builds(
    LogSegment,
    st.lists(CHANGES, min_size=1, max_size=4),
    st.sampled_from(["all", "all", "all", "some", "none"]),
    st.sampled_from([False, False, False, True]),
)


class Log:
    """Writes segments to the log of a ground."""

    def __init__(self, ground: Ground) -> None:
        self.ground = ground
        self.ids = [ground.runtime.uuid() for _ in range(3)]
        self.physical = [ground.runtime.physical_key(object_id) for object_id in self.ids]

    async def store_data(self) -> None:
        for physical in self.physical[:2]:
            await self.ground.data.put(physical, b"xxx")

    def state(self, change: Change, version: int, path: int) -> Entry:
        place = PATHS[path]
        return Entry(
            place,
            change.is_dir,
            self.ids[change.number],
            version,
            1,
            1000,
            0 if change.is_dir else 3,
            None if change.is_dir else self.physical[change.number],
            committed=not change.is_dir,
            operation=self.ground.runtime.uuid(),
            directory=self.ground.parent(place),
        )

    def operation(self, change: Change) -> Operation:
        after = self.state(change, change.version, change.path)
        before = self.state(change, change.version - 1, change.came_from)
        if change.kind == "create":
            return self.ground.change("create", None, after)
        if change.kind == "delete":
            return self.ground.change("delete", before, None)
        return self.ground.change("rename" if change.kind == "rename" else "update", before, after)

    async def write(self, segment: LogSegment) -> None:
        identity = self.ground.runtime.uuid()
        operations = [self.operation(change) for change in segment.changes]
        lines = [
            FORMS.get(change.form, bytes)(operation_line(operation, "test"))
            for change, operation in zip(segment.changes, operations, strict=True)
        ]
        if segment.repeats:
            lines.append(lines[0])
        text = b"".join(line + b"\n" for line in lines)
        blobs = self.ground.log_blobs
        await blobs.put(segment_key(identity, "pending"), seal_segment(identity, len(lines), text))
        if segment.outcome != "none":
            succeeded = None if segment.outcome == "all" else (operations[0].id,)
            mark = SegmentCommit(identity, len(lines), succeeded)
            await blobs.put(segment_key(identity, "committed"), encode_segment_commit(mark))


async def both(
    layout: LayoutName, segments: Sequence[LogSegment], singles: Sequence[Change], path: str
) -> None:
    """Compare the plans of lines and of decoded records."""
    ground = await new_ground(layout)
    log = Log(ground)
    await log.store_data()
    for segment in segments:
        await log.write(segment)
    for number, change in enumerate(singles):
        if number % 2:
            await ground.begin(log.operation(change))
        else:
            await ground.commit(log.operation(change))
    with patch.object(local_restore, "ROWS_AT_ONCE", 2):
        found = await ground.restored(path), ground.items
    with by_the_rules():
        decoded = await ground.restored(path), ground.items
    assert seen(*found[0]) == seen(*decoded[0])
    assert found[1] == decoded[1]


def seen(entries: dict[str, Entry], report: RestoreReport) -> object:
    outcomes = sorted(map(repr, report.outcomes))
    return entries, report.counts, report.log_records, outcomes


@pytest.mark.parametrize("layout", ["path", "tree"])
@given(
    segments=st.lists(SEGMENTS, max_size=4),
    singles=st.lists(CHANGES, max_size=2),
    path=st.sampled_from(["/", "/", "/d"]),
)
@example(segments=[LogSegment([Change("create")])], singles=[], path="/")
@example(
    segments=[LogSegment([Change("create"), Change("create", 1)])], singles=[], path="/"
)  # one path
@example(
    segments=[LogSegment([Change("create")]), LogSegment([Change("update")])], singles=[], path="/"
)  # one version twice
@example(
    segments=[LogSegment([Change("create")]), LogSegment([Change("delete", version=3)])],
    singles=[],
    path="/",
)
def test_lines_and_records_give_one_plan(
    layout: LayoutName, segments: list[LogSegment], singles: list[Change], path: str
) -> None:
    asyncio.run(both(layout, segments, singles, path))


@pytest.mark.parametrize("form", sorted(FORMS))
def test_lines_in_another_form_are_decoded(form: str) -> None:
    segments = [LogSegment([Change("create"), Change("create", 1, path=1, form=form)])]
    asyncio.run(both("path", segments, [], "/"))


@pytest.mark.parametrize("compacted", [False, True])
@pytest.mark.parametrize("layout", ["path", "tree"])
async def test_plain_operations_are_sorted_as_lines(
    layout: LayoutName, compacted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither a segment nor a checkpoint is decoded, and the rules decide nothing."""
    ground = await new_ground(layout)
    files = [await ground.file(f"/file{number}") for number in range(5)]
    await ground.commit(*(ground.change("update", None, file) for file in files))
    if compacted:
        compactor = Compactor(ground.log_blobs, ground.runtime, grace=0.0)
        assert (await compactor.run(dry_run=False)).checkpoint

    def refuse(_: ExternalSort, records: Sequence[LogRecord]) -> None:
        assert not records

    monkeypatch.setattr(ExternalSort, "add", refuse)
    monkeypatch.setattr(local_restore, "decide_object", None)
    restored, report = await ground.restored()
    assert restored.keys() == {file.path for file in files}
    assert report.log_records == 5


@pytest.mark.parametrize("layout", ["path", "tree"])
async def test_objects_that_the_table_has_are_not_restored(layout: LayoutName) -> None:
    ground = await new_ground(layout)
    files = [await ground.file(f"/file{number}") for number in range(4)]
    await ground.commit(*(ground.change("update", None, file) for file in files))
    restored, report = await ground.restored("/", files[:3])
    assert restored == {"/file3": files[3]}
    assert report.counts == {"committed": 1, "present": 3}


async def test_the_bytes_of_all_files_together_may_exceed_64_bits() -> None:
    ground = await new_ground("path")
    with ExternalSort() as sorter:
        plan = TREE_PLANS["path"](sorter, "v", "/")
        sizes = [2**63 - 1, 2**63 - 1, 2**33 + 5, 0]
        files = [replace(await ground.file(f"/f{each}"), size=each) for each in range(4)]
        plan.claim_committed(
            [
                (file.id, file.path, "/", 1, False, size, 1, entry_line(file), 2)
                for file, size in zip(files, sizes, strict=True)
            ]
        )
        plan.make_a_tree(ground.clock.now_ms())
        assert (plan.report.files, plan.report.bytes) == (4, sum(sizes))
        assert plan.report.counts == {"committed": 4}


def test_lists_of_sorted_lines_have_whole_objects() -> None:
    counts = [1, 3, 1, 1, 6, 2, 1]
    with ExternalSort() as sorter:
        rows = [(f"o{place}", place, count) for place, count in enumerate(counts)]
        for object_id, place, count in reversed(rows):
            line = b'{"id":"p","kind":"update","object":"%s"' % object_id.encode()
            sorter.add_lines([line] * count, f"key{place}")
        for size in (1, 2, 3, 100):
            found = list(sorter.batches(size))
            ids = [[line[0] for line in lines] for lines in found]
            assert list(chain(*ids)) == [each for each, _, count in rows for _ in range(count)]
            assert all(one[-1] < next_one[0] for one, next_one in pairwise(ids))
            assert max(map(len, ids)) <= size + max(counts)
