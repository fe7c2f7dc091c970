"""restore over Spark decides and writes exactly what it does on one machine."""

from __future__ import annotations

import asyncio
import random
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import pytest
from pyspark.errors import PySparkException

from s3k_async import S3kClient, S3kSyncClient
from s3k_async._core.concurrency import gather
from s3k_async._core.runtime import SYSTEM
from s3k_async.backends.ports.items import ABSENT, Item, Put
from s3k_async.config import VolumeConfig
from s3k_async.errors import BusyError
from s3k_async.integrity.restore_plan import entry_line
from s3k_async.integrity.restore_report import UNTOLD, RestoreOutcome, RestoreReport
from s3k_async.integrity.restore_rules import RuleName
from s3k_async.model import Entry, LayoutName
from s3k_async.oplog.entries import Operation
from s3k_async.spark import restore_job
from s3k_async.spark.restore_job import restore
from s3k_async.spark.restore_tasks import WRITTEN, writer
from s3k_async.spark.task_rows import spark_schema
from s3k_async.table.codec import to_item
from s3k_async.table.keys import KeyScheme
from s3k_async.table.stored_reader import ROOT_ENTRY
from s3k_async.txn import volume_lock
from s3k_async.volumes import Volume, init_volume, open_volume
from s3k_async.volumes.restoration import restore_volume
from tests.spark.places import embedded, entry_items, on

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

NAMES = "abc"
TREES = 150


@pytest.fixture(autouse=True)
def nobody_else(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody has these volumes open, so that there is nobody to wait for."""
    monkeypatch.setattr(volume_lock, "QUIET_SECONDS", 0.0)


class Tangle:
    """A log by chance: objects that were made, changed, moved and deleted at few paths, with
    pending operations, bytes that are missing, and entries that the table still has.
    """

    def __init__(self, volume: Volume, seed: int) -> None:
        self.volume = volume
        self.chance = random.Random(seed)
        self.existing: dict[str, Entry] = {}
        self.operations: dict[bool, list[Operation]] = {True: [], False: []}
        self.bytes: list[tuple[str, bytes]] = []

    async def grow(self, trees: int) -> None:
        for number in range(trees):
            for _ in range(self.chance.randint(2, 9)):
                self.object(f"/t{number:03d}")
        for committed, operations in self.operations.items():
            for some in (operations[:20], operations[20:]):  # entries of their own, and segments
                begun = (
                    [await self.volume.log.begin([each]) for each in some]
                    if len(some) <= 20
                    else []
                )
                begun += [await self.volume.log.begin(some)] if len(some) > 20 else []
                for each in begun if committed else ():
                    assert await each.commit()
        await gather(lambda each: self.volume.blobs.put(*each), self.bytes, limit=16)

    def path(self, top: str) -> str:
        depth = self.chance.choice((1, 2, 2, 3, 3))
        return "/".join([top, *(self.chance.choice(NAMES) for _ in range(depth))])

    def object(self, top: str) -> None:
        entry = self.first(self.path(top), is_dir=self.chance.random() < 0.45)
        self.log(self.change(None, entry), committed=self.chance.random() < 0.9)
        for _ in range(self.chance.choice((0, 0, 0, 1, 1, 2))):
            after = self.next(top, entry)
            committed = self.chance.random() < 0.5
            self.log(self.change(entry, after), committed=committed)
            if self.chance.random() < 0.1:
                self.log(self.change(entry, self.next(top, entry)), committed=committed)
            if after is None or not committed:
                break
            entry = after
        if self.chance.random() < 0.1 and entry.path not in self.existing:
            self.existing[entry.path] = entry
        elif self.chance.random() < 0.05:
            other = self.first(entry.path, is_dir=self.chance.random() < 0.5)
            self.existing.setdefault(other.path, other)

    def first(self, path: str, *, is_dir: bool) -> Entry:
        identity, operation = SYSTEM.uuid(), SYSTEM.uuid()
        moment = self.chance.randint(1_600_000_000, 1_700_000_000)
        if is_dir:
            return Entry(path, True, identity, 1, moment, moment * 1000, operation=operation)
        if self.chance.random() < 0.1:
            lease = SYSTEM.now_ms() + self.chance.choice((-1, 1)) * 10_000_000
            return Entry(
                path, False, identity, 1, moment, moment * 1000, lease_ms=lease, operation=operation
            )
        physical = self.bytes_of(identity)
        return Entry(
            path,
            False,
            identity,
            1,
            moment,
            moment * 1000,
            3,
            physical,
            committed=True,
            operation=operation,
        )

    def bytes_of(self, identity: str) -> str:
        if self.chance.random() < 0.05:
            return "s3a://elsewhere/" + identity
        physical = SYSTEM.physical_key(identity)
        if self.chance.random() < 0.93:
            self.bytes.append((physical, b"xyz" if self.chance.random() < 0.95 else b"cut?"))
        return physical

    def next(self, top: str, entry: Entry) -> Entry | None:
        kind = self.chance.choice(("rename", "rename", "delete", "update"))
        if kind == "delete":
            return None
        if kind == "rename" or entry.is_dir:
            return entry.moved(self.path(top), operation=SYSTEM.uuid())
        return self.rewritten(entry)

    def rewritten(self, entry: Entry) -> Entry:
        """The file with other data."""
        physical = self.bytes_of(entry.id)
        return replace(
            entry,
            version=entry.version + 1,
            physical=physical,
            size=3,
            committed=True,
            operation=SYSTEM.uuid(),
        )

    def change(self, before: Entry | None, after: Entry | None) -> Operation:
        state = after or before
        assert state is not None
        version = after.version if after else state.version + 1
        kind = "delete" if after is None else "create" if before is None else "update"
        if before is not None and after is not None and before.entry_key != after.entry_key:
            kind = "rename"
        identity = after.operation if after else SYSTEM.uuid()
        return Operation(identity, kind, state.id, version, SYSTEM.now_ms(), before, after)  # type: ignore[arg-type]

    def log(self, operation: Operation, *, committed: bool) -> None:
        self.operations[committed].append(operation)


async def tangle(config: VolumeConfig, seed: int, trees: int, *, keep: bool) -> None:
    """A volume of such a log; its table is lost, or, with `keep`, lacks most entries."""
    await init_volume(config)
    volume = await open_volume(config)
    try:
        made = Tangle(volume, seed)
        await made.grow(trees)
        if keep:
            for entry in made.existing.values():
                await volume.items.transact([put_of(volume, entry)], SYSTEM.uuid())
        else:
            await volume.table.drop()
    finally:
        await volume.close()


def put_of(volume: Volume, entry: Entry) -> Put:
    return Put(to_item(entry, volume.store.keys), ABSENT)


def told(outcomes: list[RestoreOutcome]) -> list[tuple[str, str, str, str]]:
    return sorted((each.rule, each.path, each.object_id, each.detail) for each in outcomes)


def rows_of(frame: DataFrame) -> list[tuple[str, str, str, str]]:
    return sorted(tuple(row) for row in frame.collect())


def same(report: RestoreReport, other: RestoreReport) -> None:
    assert report.counts == other.counts
    assert told(report.outcomes) == told(other.outcomes)
    for name in ("files", "directories", "reservations", "bytes", "log_records", "written"):
        assert getattr(report, name) == getattr(other, name), name


@pytest.mark.parametrize("keep", [pytest.param(False, marks=pytest.mark.slow), True])
def test_a_tangled_log_is_restored_as_by_one_machine(
    spark: SparkSession, tmp_path: Path, keep: bool
) -> None:
    """Every rule of the layout is reached; the records of both tables are equal to the last
    field."""
    one, many = tmp_path / "one", tmp_path / "many"
    asyncio.run(tangle(embedded(one), 5, TREES, keep=keep))
    shutil.copytree(one, many)
    subtree = "/" if keep else None
    if keep:
        _, report = restore(spark, embedded(many), subtree=subtree)
        same(report, asyncio.run(restore_volume(embedded(one), subtree=subtree)))
        assert report.written == 0
    alone = asyncio.run(restore_volume(embedded(one), subtree=subtree, dry_run=False))
    frame, report = restore(
        spark, embedded(many), subtree=subtree, dry_run=False, checkpoint=str(tmp_path / "stages")
    )
    same(report, alone)
    assert rows_of(frame) == told(report.outcomes)
    assert report.written == report.restored > 0
    assert on(embedded(many), entry_items) == on(embedded(one), entry_items)
    expected = (
        set(get_args(RuleName))
        - {"log_damaged", "other_layout", "reclaimed"}
        - (set() if keep else {"present", "occupied"})
    )
    assert {rule for rule, count in report.counts.items() if count} == expected


@pytest.mark.slow
def test_a_hundred_thousand_objects_are_restored_as_by_one_machine(
    spark: SparkSession, tmp_path: Path
) -> None:
    """As above, of a size at which the parts are many."""
    one, many = tmp_path / "one", tmp_path / "many"
    asyncio.run(tangle(embedded(one), 9, 18_500, keep=False))
    shutil.copytree(one, many)
    alone = asyncio.run(restore_volume(embedded(one), dry_run=False))
    frame, report = restore(spark, embedded(many), dry_run=False)
    assert sum(report.counts.values()) > 100_000
    assert report.counts == alone.counts
    for name in ("files", "directories", "reservations", "bytes", "log_records", "written"):
        assert getattr(report, name) == getattr(alone, name), name
    assert frame.count() == sum(
        count for rule, count in report.counts.items() if rule not in UNTOLD
    )
    assert set(told(alone.outcomes)) <= set(rows_of(frame))
    assert on(embedded(many), entry_items) == on(embedded(one), entry_items)


async def written(config: VolumeConfig, number: int) -> list[Item]:
    """A volume of files and directories whose table is lost; what the table was."""
    await init_volume(config)
    async with S3kClient(config=config) as fs:
        names = [f"/in/day={each % 7}/part-{each:04d}" for each in range(number)]
        await fs.write_many([(name, name.encode()) for name in names])
        await fs.makedirs("/empty/one")
        await fs.rename("/in/day=1", "/moved")
        await fs.delete("/in/day=3", recursive=True)
    before = await asyncio.to_thread(on, config, entry_items)
    volume = await open_volume(config)
    await volume.table.drop()
    await volume.close()
    return before


def fails(*arguments: Any) -> Callable[[Any], Any]:
    """Writing in tasks that fails half-way."""
    work = writer(*arguments)

    def write(batches: Any) -> Iterator[Any]:
        for batch in batches:
            yield from work(iter([batch.slice(0, batch.num_rows // 2)]))
            raise OSError("the machine is gone")

    return write


@pytest.mark.slow
@pytest.mark.layouts("path", "tree")
def test_a_restore_that_was_interrupted_is_finished_by_either_and_no_task_outlives_it(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, layout: LayoutName
) -> None:
    """Until then nobody can open the volume. A task that everybody took for dead, and that comes
    back when the volume is in use again, writes nothing.
    """
    one, many = (replace(embedded(tmp_path / name), layout=layout) for name in ("one", "many"))
    before = asyncio.run(written(many, 140))
    with monkeypatch.context() as broken:
        broken.setattr(restore_job, "writer", fails)
        with pytest.raises(PySparkException, match="the machine is gone"):
            restore(spark, many, dry_run=False, tasks=2)
    with pytest.raises(BusyError, match="a restore of the volume"):
        asyncio.run(open_volume(many))
    shutil.copytree(tmp_path / "many", tmp_path / "one")
    alone = asyncio.run(restore_volume(one, dry_run=False))
    late: list[Callable[[Any], Any]] = []

    def remembered(*arguments: Any) -> Callable[[Any], Any]:
        late.append(writer(*arguments))
        return late[0]

    with monkeypatch.context() as kept:
        kept.setattr(restore_job, "writer", remembered)
        _, report = restore(spark, many, dry_run=False, tasks=2)
    assert report.written == alone.written
    assert 0 < report.written == len(before) - report.counts["present"] < len(before)
    after = on(many, entry_items)
    assert after == on(one, entry_items)
    assert [{**item, "op": ""} for item in after] == [
        {**item, "op": ""} for item in before
    ]  # transactions have intents on some
    entry = Entry("/late", True, SYSTEM.uuid(), 1, 1, 1000, operation=SYSTEM.uuid())
    placed = KeyScheme("spark", 4, layout=layout).placed(entry, ROOT_ENTRY.id)
    rows = spark.createDataFrame([(entry_line(placed), "/late")], "line string, path string")
    rows = rows.mapInArrow(late[0], spark_schema(WRITTEN))
    with pytest.raises(PySparkException, match="is no longer held"):
        rows.collect()
    with S3kSyncClient(config=many) as fs:
        assert not fs.exists("/late")
