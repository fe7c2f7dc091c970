"""fsck over Spark in layout `tree` finds and repairs what fsck on one machine does."""

from __future__ import annotations

import asyncio
import shutil
import sys
import time
import tracemalloc
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest.mock import ANY

import pyarrow as pa
import pytest
from pyspark import SparkFiles

from s3k_async import S3kClient
from s3k_async.config import VolumeConfig
from s3k_async.integrity.collector import Collector
from s3k_async.integrity.repair import RepairReport, repair_volume, verify_volume
from s3k_async.integrity.scans import FactRecord
from s3k_async.integrity.shuffle import Shuffle, from_line
from s3k_async.integrity.verify import VerifyReport
from s3k_async.layouts.tree import path_index
from s3k_async.namespace.directory_file import DirectoryFile
from s3k_async.spark import scan_job
from s3k_async.spark.fsck_job import repair, verify
from s3k_async.spark.runner import JobRun
from s3k_async.spark.scan_job import ScanResult, job_on
from s3k_async.spark.shuffle_rows import batch_of, without_children
from s3k_async.table.stored_reader import ROOT_ENTRY
from s3k_async.volumes import Volume, init_volume
from tests.spark.places import all_items, embedded, on
from tests.spark.test_checking import findings_in, in_order, made_old
from tests.support import FakeClock
from tests.torture.damage import DAMAGES, GRACE, Scene
from tests.torture.damage_tree import TREE_DAMAGES, plant

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

DAY = 24 * 3600.0
DAMAGED_TREES = {
    "no_directory": DAMAGES["no_directory"],
    "no_directories_nor_files": DAMAGES["no_directories_nor_files"],
    "no_directory_nor_log": DAMAGES["no_directory_nor_log"],
    "other_directory": DAMAGES["other_directory"],
    "same_directory_id": DAMAGES["same_directory_id"],
    **TREE_DAMAGES,
}
"""Those of directories."""


def place_at(directory: Path) -> VolumeConfig:
    return replace(embedded(directory), layout="tree")


async def damage(place: VolumeConfig) -> None:
    """A volume with a tree for each damage, days ago."""
    clock = FakeClock(time.time() - 10 * DAY)
    scene = await Scene.start(place=place, clock=clock)
    try:
        for name in DAMAGED_TREES:
            await plant(scene, f"/{name}")
        await scene.settled()
        for name, harm in DAMAGED_TREES.items():
            scene.top = f"/{name}"
            await harm(scene, f"/{name}/d0/f0")
        await scene.settled()
    finally:
        await scene.volume.close()
    assert clock.seconds < time.time() - DAY


@pytest.fixture(scope="module")
def damaged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of such a volume; tests that change it take a copy."""
    directory = tmp_path_factory.mktemp("damaged")
    asyncio.run(damage(place_at(directory)))
    made_old(directory / "data")
    return directory


async def files(volume: Volume) -> dict[str, bytes]:
    async with S3kClient(config=volume.config) as fs:
        return {each.path: await fs.read(each.path) async for each in fs.find("/", type="file")}


@pytest.fixture
def few_in_memory(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """The driver has few directories in memory, and gets few of them at once."""
    monkeypatch.setattr(path_index, "HELD_DIRECTORIES", 3)
    monkeypatch.setattr(path_index, "BUFFERED", 2)
    monkeypatch.setattr(scan_job, "DIRECTORIES_AT_ONCE", 4)


@pytest.fixture(params=[False, True], ids=["in memory", "in a file"])
def either(request: pytest.FixtureRequest) -> None:
    """Where the driver has directories."""
    if request.param:
        request.getfixturevalue("few_in_memory")


def files_of_spark() -> dict[str, int]:
    """The sizes of the files of directories that tasks got."""
    place = Path(SparkFiles.getRootDirectory())
    return {each.name: each.stat().st_size for each in place.glob("s3k-directories-*")}


@pytest.mark.slow
def test_the_children_of_known_directories_are_not_shuffled(spark: SparkSession) -> None:
    def child(parent: str, name: str) -> FactRecord:
        return "children", parent, (parent, f"{parent}/{name}", f"id-{name}", 0)

    facts = [child("known", "a"), child("missing", "b"), child("missing", "c")]
    facts.append(("directories", "known", ("known", "root/known")))
    table = pa.Table.from_batches([batch_of(facts, every_child=True)])
    file = Path(SparkFiles.getRootDirectory(), "known-directories")
    DirectoryFile.write(str(file), [("known", "root/known")])
    spark.sparkContext.addFile(str(file))
    rows = without_children(spark.createDataFrame(table.to_pandas()), file.name).collect()
    kept = [from_line(row.tag, bytes(row.line)) for row in rows]
    assert sorted(each[1] for each in kept) == ["missing/b", "missing/c", "root/known"]


@pytest.mark.slow
def test_neither_the_driver_nor_a_broadcast_has_all_directories_in_memory(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of a table are read from it as at any other time; most have two places, of which the
    later row of the table tells the valid one."""
    monkeypatch.setattr(path_index, "HELD_DIRECTORIES", 100)
    monkeypatch.setattr(path_index, "BUFFERED", 100)
    monkeypatch.setattr(scan_job, "DIRECTORIES_AT_ONCE", 500)
    place = place_at(tmp_path)
    asyncio.run(init_volume(place))
    count = 20_000
    ids = [f"{number:036d}" for number in range(count)]
    places = [(each, f"{ROOT_ENTRY.id}/of-{each}") for each in ids]
    moved = [(each, f"{ids[0]}/of-{each}") for each in ids[1:]]
    facts: list[FactRecord] = [("directories", each[0], each) for each in [*places, *moved]]
    rows = pa.Table.from_batches([batch_of(facts, every_child=True)]).to_pandas()
    table = spark.createDataFrame(rows).coalesce(1)
    with job_on(JobRun(spark, place, "fsck", tasks=2), ["test"], grace=GRACE) as scans:
        collector = Collector(scans.scope, Shuffle())
        collector.counts.directories = count
        scans._know_directories(table.limit(10), collector)  # what is imported meanwhile stays
        tracemalloc.start()
        try:
            scans._know_directories(table, collector)
            name = scans._shared(scans.scope.check)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert name is not None
        assert peak < sys.getsizeof(ids[0]) * count  # the ids alone, each once
        with closing(ScanResult(table, collector, name)):
            assert files_of_spark()[name] > 40 * count
            with closing(DirectoryFile(SparkFiles.get(name))) as file:
                assert [file.entry_key(each) for each in ids] == [
                    places[0][1],
                    *(entry_key for _, entry_key in moved),
                ]
            directory = scans.scope.check.directory(ids[7])
            assert directory is not None
            assert directory.path == f"/of-{ids[0]}/of-{ids[7]}"
    assert files_of_spark()[name] == 0


@pytest.mark.parametrize(
    "path",
    ["/", pytest.param("/no_directory", marks=pytest.mark.slow)],
)
def test_verify_finds_what_one_machine_does(
    spark: SparkSession, damaged: Path, path: str, either: None
) -> None:
    before = files_of_spark()
    place = place_at(damaged)
    frame, report = verify(spark, place, path=path, grace=GRACE, tasks=3)
    expected: VerifyReport = on(place, lambda volume: verify_volume(volume, path=path, grace=GRACE))
    kinds = {finding.kind for finding in expected.problems}
    assert kinds >= (
        {"missing_parent", "entry_missing", "unreachable_entry", "duplicate_id", "directory_cycle"}
        if path == "/"
        else {"entry_missing"}
    )
    assert findings_in(frame) == in_order(expected.findings) == in_order(report.findings)
    assert report.kinds == expected.kinds
    assert list(files_of_spark().items() - before.items()) == [(ANY, 0)]


@pytest.mark.slow
def test_an_interrupted_run_goes_on_with_the_directories_of_its_scan(
    spark: SparkSession,
    damaged: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    few_in_memory: None,
) -> None:
    shutil.copytree(damaged, tmp_path / "volume", symlinks=True)
    place, directory = place_at(tmp_path / "volume"), str(tmp_path / "checkpoint")
    expected: VerifyReport = on(place, lambda volume: verify_volume(volume, grace=GRACE))

    def interrupted(*_: object) -> Any:
        raise KeyboardInterrupt

    for module, name in ((scan_job, "blob_splits"), (scan_job, "without_children")):
        with monkeypatch.context() as patch:
            patch.setattr(module, name, interrupted)
            with pytest.raises(KeyboardInterrupt):
                verify(spark, place, grace=GRACE, tasks=2, checkpoint=directory)
    for _ in range(2):
        frame, report = verify(spark, place, grace=GRACE, tasks=2, checkpoint=directory)
        assert findings_in(frame) == in_order(expected.findings) == in_order(report.findings)
        assert report.kinds == expected.kinds
    assert not any(files_of_spark().values())


@pytest.mark.slow
def test_repair_leaves_what_one_machine_does(
    spark: SparkSession, damaged: Path, tmp_path: Path, either: None
) -> None:
    places = {}
    for name in ("one", "spark"):
        shutil.copytree(damaged, tmp_path / name, symlinks=True)
        places[name] = place_at(tmp_path / name)
    expected: RepairReport = on(
        places["one"], lambda volume: repair_volume(volume, grace=GRACE, dry_run=False)
    )
    repairs, report = repair(spark, places["spark"], grace=GRACE, tasks=2, dry_run=False)
    assert [each for each in report.repairs if each.outcome == "failed"] == []
    assert {row.outcome for row in repairs.collect()} == {each.outcome for each in report.repairs}
    # Tasks leave entries to a later round whose directories other tasks restore.
    done = [
        {action: count for (action, outcome), count in each.outcomes.items() if outcome == "done"}
        for each in (report, expected)
    ]
    assert done[0] == done[1]
    one, two = (on(places[name], files) for name in ("one", "spark"))
    assert two == one
    assert len(one) > 2 * len(DAMAGED_TREES)
    tables = [on(places[name], all_items) for name in ("one", "spark")]
    assert len(tables[0]) == len(tables[1])
    again = on(places["spark"], lambda volume: repair_volume(volume, grace=GRACE, dry_run=False))
    assert again.repairs == []
    assert on(places["spark"], lambda volume: verify_volume(volume, grace=GRACE)).problems == []
