"""fsck over Spark finds and mends exactly what fsck on one machine does."""

from __future__ import annotations

import asyncio
import os
import shutil
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import astuple, replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from unittest.mock import patch

import pyarrow as pa
import pytest
from pyspark import TaskContext
from pyspark.sql import functions as F  # noqa: N812 - everybody's name for it

from s3k_async import S3kClient, volumes
from s3k_async.backends.ports.items import Condition, Delete, Item
from s3k_async.backends.ports.pagination import list_all
from s3k_async.config import VolumeConfig
from s3k_async.errors import InvalidArgumentError
from s3k_async.integrity.facts import Finding
from s3k_async.integrity.repair import (
    RepairOutcome,
    RepairReport,
    RepairRound,
    repair_volume,
    verify_volume,
)
from s3k_async.integrity.repair_actions import Task
from s3k_async.integrity.rule_table import RuleCoverage
from s3k_async.integrity.scans import FactPage
from s3k_async.integrity.scope import ScanCounts, Scope
from s3k_async.integrity.verify import LISTED, VerifyReport
from s3k_async.integrity.verify_rules import TABLES
from s3k_async.model import Progress
from s3k_async.oplog.compaction import Compactor
from s3k_async.oplog.log_reader import LogReader, latest
from s3k_async.spark import repair_round, scan_job, scan_splits
from s3k_async.spark.finding_rows import FindingCounts, Result
from s3k_async.spark.fsck_job import repair, verify
from s3k_async.spark.shuffle_rows import batch_of, divided, parts_of
from s3k_async.table.codec import from_items
from s3k_async.volumes import Volume, init_volume, open_volume
from tests.engines.volumes import VolumeMaker, volume_backends
from tests.observation.recorder import Recorder
from tests.spark.places import all_items, embedded, on
from tests.support import FakeClock, fake_runtime
from tests.torture.damage import DAMAGES, GRACE, ONLY, YOUNG_BYTES, Scene

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

YOUNG = (
    "no_log_of_young",
    "young_child",
    "young_commit",
    "under_way",
    "same_id_young",
    "abandoned_young",
    "uploaded_and_alive",
    "reserved",
    "live_record",
)
"""Damages that are to be young when the volume is looked at: they come last."""
HOUR = 3_600.0
DAY = 24 * HOUR
OF_A_TREE = (
    "no_directory",
    "no_directory_nor_log",
    "no_directories_nor_files",
    "other_directory",
    "file_for_directory",
    "same_directory_id",
    "expired_transaction",
    "unreadable_intent",
)
"""Damages of a tree, each of which has one of its own."""
assert DAMAGES.keys() >= {*YOUNG, *OF_A_TREE}
LARGE, COPIES = 100_000, 40
"""Files, and of those so many for each damage."""


async def damage(
    place: VolumeConfig, names: list[str], *, copies: int = 1, files: int = 0
) -> Scene:
    """A volume that is damaged in every way, each at `copies` files of its own, days ago; and in
    those that are young, now. Beside them are `files` that are as they should be. Its scene,
    closed.
    """
    clock = FakeClock(time.time() - 10 * DAY)
    scene = await Scene.start(place=place, clock=clock, lease=8 * HOUR)
    try:
        await in_bulk(place, files, clock)
        scene.young_ms = int(8 * HOUR * 1000)
        for name, copy in product(names, range(copies)):
            await scene.write(f"/x{copy % 20}/{name}-{copy}", name.encode() * 3)
            for tree in ("d0/f0", "d0/f1", "d1/f0") if name in OF_A_TREE else ():
                await scene.write(f"/a-{name}-{copy}/{tree}", b"of a tree")
        await scene.settled()
        for name in [
            *(each for each in names if each not in YOUNG),
            *(each for each in names if each in YOUNG),
        ]:
            if name in YOUNG:
                # What is there by now is older than the grace period, and its leases run for hours,
                # however long a test takes.
                clock.seconds = max(clock.seconds, time.time() - 4 * HOUR)
            for copy in range(copies):
                path = f"/x{copy % 20}/{name}-{copy}"
                entry = await scene.find(path) if path not in scene.harmed else None
                assert entry is not None, name
                scene.top = f"/a-{name}-{copy}" if name in OF_A_TREE else "/a"
                await DAMAGES[name](scene, path)
    finally:
        await scene.volume.close()
    assert clock.seconds < time.time() - GRACE, "nothing may grow old between two looks"
    return scene


async def in_bulk(place: VolumeConfig, files: int, clock: FakeClock) -> None:
    """So many files in 700 directories."""
    opened = partial(volumes.open_volume, runtime=fake_runtime(clock, seed=4))
    with patch.object(volumes, "open_volume", opened):
        async with S3kClient(config=place) as fs:
            for start in range(0, files, 5000):
                numbers = range(start, min(start + 5000, files))
                await fs.write_many([(bulk_path(number), b"%d" % number) for number in numbers])


def bulk_path(number: int) -> str:
    return f"/d{number % 100}/e{number % 7}/{number}"


def made_old(data: Path) -> None:
    """All bytes are of yesterday, but for some that nobody names, which are young for hours."""
    young = time.time() + 8 * HOUR
    for where, _, names in os.walk(data):
        for name in names:
            path = Path(where, name)
            moment = (
                young
                if path.stat().st_size == len(YOUNG_BYTES) and path.read_bytes() == YOUNG_BYTES
                else 0
            )
            os.utime(path, (moment or time.time() - DAY,) * 2)


@pytest.fixture(scope="module")
def damaged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of such a volume; tests that change it take a copy."""
    directory = tmp_path_factory.mktemp("damaged")
    asyncio.run(damage(embedded(directory), list(DAMAGES)))
    made_old(directory / "data")
    return directory


def in_order(findings: list[Finding]) -> list[Finding]:
    return sorted(findings, key=astuple)


def findings_in(frame: DataFrame) -> list[Finding]:
    return in_order([Finding(**row.asDict()) for row in frame.collect()])


def same_counts(one: ScanCounts, other: ScanCounts) -> bool:
    return all(
        getattr(one, name) == getattr(other, name) for name in ScanCounts.__dataclass_fields__
    )


def test_a_directory_of_millions_fits_into_a_part() -> None:
    def child(parent: str, number: int) -> tuple[Any, str, Any]:
        return "children", parent, (parent, f"{parent}/{number:04d}", f"id-{number}", 0)

    pages = [
        [child("/a", number) for number in range(start + 999, start - 1, -1)]
        for start in (2000, 1000)
    ]
    batches = [batch_of([*page, child("/b", 7)]) for page in pages]
    assert [batch.num_rows for batch in batches] == [2, 2]
    lonely = [
        each
        for batch in batches
        for _, parts in parts_of([batch])
        for each in parts.read("children", 0)
    ]
    assert min(each[1] for each in lonely) == "/a/1000"


@pytest.mark.slow
@pytest.mark.parametrize("path", ["/", "/a/d1"])
def test_verify_finds_what_one_machine_does(spark: SparkSession, damaged: Path, path: str) -> None:
    place = embedded(damaged)
    told: list[Progress] = []
    frame, report = verify(
        spark, place, path=path, grace=GRACE, deep=True, tasks=3, progress=told.append
    )
    expected: VerifyReport = on(
        place, lambda volume: verify_volume(volume, path=path, grace=GRACE, deep=True)
    )
    assert len({finding.kind for finding in expected.findings}) > (15 if path == "/" else 2)
    assert findings_in(frame) == in_order(expected.findings) == in_order(report.findings)
    assert report.kinds == expected.kinds
    assert report.collectable_bytes == expected.collectable_bytes
    assert same_counts(report, expected)
    assert {progress.phase for progress in told} >= {"table", "log", "data"}
    assert max(progress.done for progress in told if progress.phase == "data") == expected.blobs


@pytest.mark.slow
def test_a_volume_without_a_log(spark: SparkSession, tmp_path: Path) -> None:
    async def without_log() -> None:
        scene = await Scene.start("disabled", place=embedded(tmp_path))
        await DAMAGES["stray_bytes"](scene, "/top")
        await scene.volume.close()

    asyncio.run(without_log())
    made_old(tmp_path / "data")
    place = replace(embedded(tmp_path), log_mode="disabled")
    frame, report = verify(spark, place, grace=GRACE, tasks=2)
    expected: VerifyReport = on(place, lambda volume: verify_volume(volume, grace=GRACE))
    assert {finding.kind for finding in expected.findings} == {"orphan_data", "collectable_data"}
    assert findings_in(frame) == in_order(expected.findings)
    assert same_counts(report, expected)


def test_each_repair_is_an_event_on_the_driver(spark: SparkSession, tmp_path: Path) -> None:
    place = embedded(tmp_path)

    async def without_entries() -> None:
        await init_volume(place)
        async with S3kClient(config=place) as client:
            await client.write_many([(f"/d/{number}", b"data") for number in range(3)])
        volume = await open_volume(place)
        for number in range(2):
            stored = await volume.store.get(f"/d/{number}")
            assert stored is not None
            await volume.items.write(Delete(volume.store.keys.of(stored), Condition()))
        await volume.close()

    asyncio.run(without_entries())
    recorder = Recorder()
    repair(spark, place, grace=0, tasks=2, metrics=[recorder])
    assert recorder.events == []
    _, report = repair(spark, place, grace=0, tasks=2, dry_run=False, metrics=[recorder])
    assert report.done == 2
    assert recorder.events == ["fsck.repaired.entry_missing"] * 2
    assert (recorder.started, recorder.sent) == ([], [])


@pytest.mark.slow
def test_repair_leaves_what_one_machine_does(
    spark: SparkSession, damaged: Path, tmp_path: Path
) -> None:
    places = {}
    for name in ("one", "spark"):
        shutil.copytree(damaged, tmp_path / name, symlinks=True)
        places[name] = embedded(tmp_path / name)
    expected: RepairReport = on(places["one"], lambda volume: repair_volume(volume, grace=GRACE))
    planned, dry = repair(spark, places["spark"], grace=GRACE, tasks=2)
    assert sorted(dry.outcomes.items()) == sorted(expected.outcomes.items())
    assert in_order([each.finding for each in dry.repairs]) == in_order(
        [each.finding for each in expected.repairs]
    )
    assert planned.count() == len(expected.repairs)
    assert (dry.run, dry.rounds) == ("", 1)
    assert in_order(dry.left.findings) == in_order(expected.left.findings)

    expected = on(places["one"], lambda volume: repair_volume(volume, grace=GRACE, dry_run=False))
    recorder = Recorder()
    repairs, report = repair(
        spark, places["spark"], grace=GRACE, tasks=2, dry_run=False, metrics=[recorder]
    )
    assert [each for each in report.repairs if each.outcome == "failed"] == []
    assert Counter(recorder.events) == Counter(
        f"fsck.repaired.{each.finding.kind}" for each in report.repairs if each.outcome == "done"
    )
    assert report.done >= 20
    assert {row.outcome for row in repairs.collect()} == {each.outcome for each in report.repairs}
    kinds = {
        name: sorted(left.kinds.items())
        for name, left in (("one", expected.left), ("spark", report.left))
    }
    assert kinds["spark"] == kinds["one"]
    assert on(places["spark"], contents) == on(places["one"], contents)
    again = on(places["spark"], lambda volume: repair_volume(volume, grace=GRACE, dry_run=False))
    assert again.repairs == []
    written = {path.name for path in (tmp_path / "spark" / "data").glob(f"**/audit/{report.run}/*")}
    assert any("-objects-" in name for name in written)


@pytest.mark.slow
def test_tasks_that_run_twice_at_the_same_time_mend_once(
    spark: SparkSession, damaged: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    places = {}
    for name in ("one", "spark"):
        shutil.copytree(damaged, tmp_path / name, symlinks=True)
        places[name] = embedded(tmp_path / name)
    met = tmp_path / "met"
    met.mkdir()

    def twice(facts: DataFrame, parts: int, partitions: int) -> DataFrame:
        """Two tasks, each with everything: 0 and 2 are hashed to different ones."""
        once = divided(facts, parts, partitions)
        twins = once.withColumn("task", F.lit(0)).unionAll(once.withColumn("task", F.lit(2)))
        return twins.repartition(2, "task").drop("task").sortWithinPartitions("part")

    async def together(task: TaskContext) -> None:
        """Go on when the other task of the stage is about to mend, too."""
        stage = met / str(task.stageId())
        stage.mkdir(exist_ok=True)
        (stage / str(task.partitionId())).touch()
        end = time.monotonic() + 60
        while len(list(stage.iterdir())) < 2:
            if time.monotonic() > end:
                raise TimeoutError("the other task has nothing to mend")
            await asyncio.sleep(0.01)

    def meeting(turn: repair_round.RepairTask) -> Any:
        def rows(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            task, repair_action = TaskContext.get(), RepairRound._repair_found
            assert task is not None
            waited = False

            async def after_the_other_has_decided(
                this: RepairRound, tasks: Sequence[Task]
            ) -> list[Task]:
                nonlocal waited
                if not waited and any(each.finding.is_repairable for each in tasks):
                    waited = True
                    await together(task)
                return await repair_action(this, tasks)

            with patch.object(RepairRound, "_repair_found", after_the_other_has_decided):
                yield from objects(turn)(batches)

        return rows

    objects = repair_round._objects
    monkeypatch.setattr(scan_job, "divided", twice)
    monkeypatch.setattr(repair_round, "_objects", meeting)
    on(places["one"], lambda volume: repair_volume(volume, grace=GRACE, dry_run=False))
    repairs, report = repair(spark, places["spark"], grace=GRACE, tasks=2, dry_run=False)
    assert [each for each in report.repairs if each.outcome == "failed"] == []
    assert report.done >= 20
    assert repairs.where("outcome = 'left'").count() > 0, "one of the two has found it done"
    one, two = (on(places[name], contents) for name in ("one", "spark"))
    copies = Counter(two.pop("bytes"))
    copies.subtract(one.pop("bytes"))
    assert two == one
    assert min(copies.values()) == 0, (
        "what the slower of two has copied stays for garbage collection"
    )
    assert copies.total() <= repairs.where("outcome = 'left' AND action = 'renumber'").count()


async def contents(volume: Volume) -> dict[str, Any]:
    """What a volume holds, without ids and times of the repair itself."""

    def ours(item: Item) -> bool:
        return str(item["path"]).startswith(f"ks://{volume.store.keys.volume}/")

    rows = sorted(
        (entry.path, entry.is_dir, entry.size, entry.committed, entry.checksum, bool(entry.pending))
        for entry in from_items(
            [item for item in await all_items(volume) if ours(item)], volume.store.keys
        )
    )
    assert volume.log_blobs is not None
    truths = latest([record async for record in LogReader(volume.log_blobs).records()])
    states = sorted(
        (
            state.path if state else "",
            truth.committed is None,
            len(truth.pending),
            len(truth.conflict),
        )
        for truth in truths.values()
        for state in [truth.committed.operation.after if truth.committed else None]
    )
    sizes = sorted(
        [blob.size async for blob in list_all(volume.blobs) if not blob.key.startswith("oplog/")]
    )
    return {"entries": rows, "log": states, "bytes": sizes}


@pytest.mark.slow
def test_an_interrupted_run_goes_on_behind_the_last_stage_that_was_finished(
    spark: SparkSession, damaged: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(damaged, tmp_path / "volume", symlinks=True)
    place, directory = embedded(tmp_path / "volume"), str(tmp_path / "checkpoint")
    expected: VerifyReport = on(place, lambda volume: verify_volume(volume, grace=GRACE))

    def interrupted(*_: object) -> Any:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(scan_job, "blob_splits", interrupted)
        with pytest.raises(KeyboardInterrupt):
            verify(spark, place, grace=GRACE, tasks=2, checkpoint=directory)
    with pytest.raises(InvalidArgumentError):
        verify(spark, place, grace=GRACE + 1, tasks=2, checkpoint=directory)
    for resumed in (True, False):  # the second follows a run that has ended
        told: list[Progress] = []
        frame, report = verify(
            spark,
            place,
            grace=GRACE,
            tasks=2,
            checkpoint=f"file://{directory}",
            progress=told.append,
        )
        assert findings_in(frame) == in_order(expected.findings) == in_order(report.findings)
        assert same_counts(report, expected)
        # A slow machine reports more often.
        assert ({each.done for each in told if each.phase in {"table", "log"}} == {0}) == resumed
        assert max(each.done for each in told if each.phase == "data") == expected.blobs
    # What is changed after the end of a run is found by the next one.
    for file in (tmp_path / "volume").glob("**/*.id=*"):
        if "oplog" not in file.parts:
            file.unlink()
    changed: VerifyReport = on(place, lambda volume: verify_volume(volume, grace=GRACE))
    assert len(changed.findings) > len(expected.findings)
    frame, report = verify(spark, place, grace=GRACE, tasks=2, checkpoint=f"file://{directory}")
    assert findings_in(frame) == in_order(changed.findings) == in_order(report.findings)


@pytest.mark.slow
def test_an_interrupted_repair_goes_on(
    spark: SparkSession, damaged: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    places = {}
    for name in ("one", "spark"):
        shutil.copytree(damaged, tmp_path / name, symlinks=True)
        places[name] = embedded(tmp_path / name)

    def interrupted(turn: object, *, later: bool) -> Any:
        raise KeyboardInterrupt

    on(places["one"], lambda volume: repair_volume(volume, grace=GRACE, dry_run=False))
    directory = str(tmp_path / "checkpoint")
    with monkeypatch.context() as patch:
        patch.setattr(repair_round, "_parents", interrupted)
        with pytest.raises(KeyboardInterrupt):
            repair(
                spark,
                places["spark"],
                grace=GRACE,
                tasks=2,
                dry_run=False,
                checkpoint=directory,
            )
    with pytest.raises(InvalidArgumentError):
        repair(spark, places["spark"], grace=GRACE, tasks=2, checkpoint=directory)
    repairs, report = repair(
        spark, places["spark"], grace=GRACE, tasks=2, dry_run=False, checkpoint=directory
    )
    assert repairs.where("outcome = 'done'").count() == report.done >= 20
    assert report.rounds >= 2
    assert on(places["spark"], contents) == on(places["one"], contents)
    again = repair(
        spark, places["spark"], grace=GRACE, tasks=2, dry_run=False, checkpoint=directory
    ).report
    alone = on(places["one"], lambda volume: repair_volume(volume, grace=GRACE, dry_run=False))
    assert (again.rounds, again.done) == (alone.rounds, alone.done)
    assert in_order(again.left.findings) == in_order(alone.left.findings)


def test_of_what_a_part_tells_all_is_counted_however_much_it_is() -> None:
    place = scan_splits.VolumeTarget(embedded(Path("unused")), GRACE, "/")
    turn = repair_round.RepairTask(place, "run", 1, 0)
    report = turn.report()
    finding = Finding("missing_parent", "its parent is not there", "", "/x", action="make_parent")
    told = FindingCounts()
    rows: list[Result] = []
    for _ in range(2):
        report.left.add([finding] * (LISTED + 1))
        report.add([RepairOutcome(finding, "done")] * (LISTED + 1))
        rows += turn.new_rows(report)
    *_, last = told.counted(rows)
    found = FindingCounts()
    found.add(last["line"])
    assert len(rows) == 4 * (LISTED + 1)
    assert found.kinds == {"missing_parent": 2 * (LISTED + 1)}
    assert found.outcomes == {("make_parent", "done"): 2 * (LISTED + 1)}


class Gone(NamedTuple):
    """A split of a checkpoint that was replaced while it was read."""

    async def scan(self, scope: Scope, counts: ScanCounts) -> AsyncIterator[FactPage]:
        raise scan_splits.CheckpointReplacedError("checkpoints/gone")
        yield []


@pytest.mark.slow
def test_a_run_that_goes_on_reads_no_checkpoint_twice(
    spark: SparkSession, damaged: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(damaged, tmp_path / "volume", symlinks=True)
    place, directory = embedded(tmp_path / "volume"), str(tmp_path / "checkpoint")

    async def compact(volume: Volume) -> None:
        assert volume.log_blobs is not None
        await Compactor(volume.log_blobs, volume.store.runtime, grace=GRACE).run(dry_run=False)

    on(place, compact)
    expected: VerifyReport = on(place, lambda volume: verify_volume(volume, grace=GRACE))
    assert expected.log_records > 20
    looks: list[int] = []

    async def superseded(*arguments: Any) -> list[scan_splits.ScanSplit]:
        looks.append(1)
        if len(looks) > 1:
            raise KeyboardInterrupt
        return [*await scan_splits.checkpoint_splits(*arguments), Gone()]

    with monkeypatch.context() as patch:
        patch.setattr(scan_job, "checkpoint_splits", superseded)
        with pytest.raises(KeyboardInterrupt):
            verify(spark, place, grace=GRACE, tasks=2, checkpoint=directory)
    frame, report = verify(spark, place, grace=GRACE, tasks=2, checkpoint=directory)
    assert findings_in(frame) == in_order(expected.findings)
    assert same_counts(report, expected)


@pytest.mark.slow
@volume_backends("dynoxide+seaweedfs", "redis")
async def test_on_services(spark: SparkSession, new_volume: VolumeMaker) -> None:
    place = new_volume()
    await init_volume(place)
    async with S3kClient(config=place) as fs:
        for number in range(12):
            await fs.write(f"/d{number % 3}/{number}", b"x" * number)
        await fs.delete("/d0/0")
    volume = await open_volume(place)
    try:
        keys = volume.store.keys
        for path in ("/d1", "/d2/2"):
            await volume.items.write(Delete(keys.key(path), Condition()))
        entry = await volume.store.get("/d0/3")
        assert entry is not None
        await volume.blobs.delete(str(entry.physical))
        await volume.blobs.put(
            volume.store.runtime.physical_key(volume.store.runtime.uuid()), b"stray"
        )
        await asyncio.sleep(1.1)  # some services tell times in seconds
        frame, report = await asyncio.to_thread(verify, spark, place, grace=0, tasks=3)
        expected = await verify_volume(volume, grace=0)
        assert {
            "missing_parent",
            "entry_missing",
            "data_missing",
            "collectable_data",
        } <= expected.kinds.keys()
        assert findings_in(frame) == in_order(expected.findings)
        assert same_counts(report, expected)
        _, repairs = await asyncio.to_thread(repair, spark, place, grace=0, tasks=3, dry_run=False)
        assert repairs.done == 2
        assert (await verify_volume(volume, grace=0)).kinds == repairs.left.kinds
        async with S3kClient(config=place) as fs:
            assert await fs.read("/d2/2") == b"xx"
    finally:
        await volume.close()


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of a large volume that is damaged in every way, many times."""
    directory = tmp_path_factory.mktemp("large")
    place = embedded(directory)

    async def main() -> None:
        scene = await damage(
            place, list(DAMAGES), copies=COPIES, files=LARGE - COPIES * len(DAMAGES)
        )
        volume = await open_volume(place, runtime=fake_runtime(scene.clock, seed=5))
        try:
            for number in range(0, LARGE - COPIES * len(DAMAGES), 29):
                entry = await volume.store.get(bulk_path(number))
                assert entry is not None
                if number % 2:
                    await volume.blobs.delete(str(entry.physical))
                else:
                    await volume.items.write(Delete(volume.store.keys.key(entry.path), Condition()))
                await volume.blobs.put(volume.store.runtime.physical_key(entry.id), b"another")
            for number in range(0, 100, 7):
                await volume.items.write(Delete(volume.store.keys.key(f"/d{number}"), Condition()))
        finally:
            await volume.close()

    asyncio.run(main())
    made_old(directory / "data")
    return directory


@pytest.mark.slow
def test_a_hundred_thousand_files_that_are_damaged_in_every_way(
    spark: SparkSession, large: Path, tmp_path: Path
) -> None:
    """Findings, outcomes, and what is left of the volume are those of one machine, to the last
    one."""
    places = {}
    for name in ("one", "spark"):
        shutil.copytree(large, tmp_path / name, symlinks=True)
        places[name] = embedded(tmp_path / name)
    with RuleCoverage() as reached:
        expected: VerifyReport = on(
            places["one"], lambda volume: verify_volume(volume, grace=GRACE)
        )
        repaired: RepairReport = on(
            places["one"], lambda volume: repair_volume(volume, grace=GRACE, dry_run=False)
        )
    missing = {
        (table.name, rule.when)
        for table in TABLES
        for rule in table.rules
        if (table.name, rule) not in reached
    }
    assert missing == ONLY["tree"] | {
        ("log", ("not logged",)),
        ("blobs", ()),
        ("ids", ("S3-FileSystem 1.0", "directory", "of several versions")),
        ("reservations", ("S3-FileSystem 1.0",)),
        ("data", ("adopted, etag differs",)),
    }, (
        "all but the rows of layout `tree`, of volumes without a log, of S3-FileSystem 1.0's, and "
        "of adopted objects, which are missing from a copy"
    )
    assert sum(expected.kinds.values()) > LARGE // 20

    frame, report = verify(spark, places["spark"], grace=GRACE)
    assert findings_in(frame) == in_order(expected.findings) == in_order(report.findings)
    assert report.kinds == expected.kinds
    assert same_counts(report, expected)

    _, repairs = repair(spark, places["spark"], grace=GRACE, dry_run=False)
    assert [each for each in repairs.repairs if each.outcome == "failed"] == []
    assert repairs.left.kinds == repaired.left.kinds
    assert on(places["spark"], contents) == on(places["one"], contents)
