"""Listings and sums through Spark are those of one machine."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import pyarrow as pa
import pytest

from s3k_async import S3kSyncClient
from s3k_async.config import VolumeConfig
from s3k_async.errors import InvalidArgumentError, PathNotFoundError, PermissionDeniedError
from s3k_async.spark import delete_files, du, listing, listing_job
from s3k_async.spark.runner import JobRun
from s3k_async.table.stored_reader import ROOT_ENTRY
from s3k_async.volumes import init_volume
from tests.engines.volumes import VolumeMaker, volume_backends
from tests.spark.places import embedded as embedded_place
from tests.spark.places import five_levels

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark
everywhere = volume_backends("dynoxide+seaweedfs", slow=["embedded"])
embedded = volume_backends("embedded")


@pytest.fixture
async def volume(new_volume: VolumeMaker) -> VolumeConfig:
    """A tree of five levels, with odd names, an empty directory and a reservation."""
    return await five_levels(new_volume)


def rows_of(fs: S3kSyncClient, path: str) -> list[dict[str, object]]:
    table = pa.Table.from_batches(fs.list_batches(path, recursive=True))
    return sorted(table.to_pylist(), key=lambda row: str(row["path"]))


@everywhere
def test_a_listing_by_directories_is_that_of_one_machine(
    spark: SparkSession, volume: VolumeConfig
) -> None:
    with S3kSyncClient(config=volume) as fs:
        for path, tasks in (("/", 1), ("/", 16), ("/a", 4), ("/top", 4)):
            found = listing(spark, volume, path, tasks=tasks).toArrow().to_pylist()
            assert sorted(found, key=lambda row: str(row["path"])) == rows_of(fs, path)


@embedded
@pytest.mark.parametrize("path", ["/", "/a"])
def test_a_listing_by_segments_is_that_of_one_machine(
    spark: SparkSession, volume: VolumeConfig, path: str
) -> None:
    found = listing(spark, volume, path, by="segments", tasks=3).toArrow().to_pylist()
    with S3kSyncClient(config=volume) as fs:
        assert sorted(found, key=lambda row: str(row["path"])) == rows_of(fs, path)


@embedded
@pytest.mark.parametrize(
    ("path", "in_memory"),
    [("/", 99), ("/a", 99), ("/ab", 99), ("/ab", 1), pytest.param("/", 1, marks=pytest.mark.slow)],
)
async def test_a_listing_of_layout_tree_by_segments(
    spark: SparkSession,
    new_volume: VolumeMaker,
    monkeypatch: pytest.MonkeyPatch,
    path: str,
    in_memory: int,
) -> None:
    """The paths of a few directories are sent to the tasks, those of many are joined by Spark."""
    monkeypatch.setattr(listing_job, "_IN_MEMORY", in_memory)
    volume = await five_levels(new_volume, "tree")
    with S3kSyncClient(config=volume) as fs:
        fs.rename("/a/1", "/ab/moved")
        fs.delete("/a/2", recursive=True)
        fs.makedirs("/ab/gone")
        fs.delete("/ab/gone")
        found = listing(spark, volume, path, by="segments", tasks=3).toArrow().to_pylist()
        assert sorted(found, key=lambda row: str(row["path"])) == rows_of(fs, path)
        assert found


@pytest.mark.parametrize("in_memory", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_directories_that_a_scan_has_missed_are_found_by_the_next(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, in_memory: bool
) -> None:
    """Of a directory that was moved between two scans, the later place counts. A damaged directory
    with the id of the root would be below itself without end."""
    root = ROOT_ENTRY.id
    everything = [
        ("a", f"{root}/a"),
        ("b", "a/b"),
        ("lost", "missing/lost"),
        *((f"moved-{number}", f"{root}/moved-{number}") for number in range(9)),
    ]
    earlier = [(each, f"gone/{each}") for each, _ in everything[3:]]
    damaged = (root, "b/root")
    scans = [[*everything[1:3], *earlier, damaged], [everything[0], *everything[3:]], []]

    def scanned(_: object) -> DataFrame:
        return spark.createDataFrame(scans.pop(0), "id string, entry_key string")

    monkeypatch.setattr(listing_job, "_directories_of", scanned)
    job = JobRun(spark, embedded_place(tmp_path), "listing", tasks=2)
    if in_memory:
        found = list(listing_job._collected(job, scanned(job), [root]))
    else:
        rows = listing_job._all_directories(job, scanned(job), [root]).collect()
        found = [(row.id, row.entry_key) for row in rows]
    wanted = [*everything, damaged] if in_memory else everything
    assert sorted(found) == sorted(wanted)
    assert scans == []


@embedded
@pytest.mark.parametrize(
    ("path", "depth", "by"),
    [
        ("/", 0, "directories"),
        ("/", 2, "directories"),
        ("/a", 1, "directories"),
        ("/a/ä\n𝄞", 9, "directories"),
        ("/top", 1, "directories"),
        ("/", 2, "segments"),
        ("/a", 9, "segments"),
        ("/top", 1, "segments"),
    ],
)
def test_sums_are_content_summaries(
    spark: SparkSession,
    volume: VolumeConfig,
    path: str,
    depth: int,
    by: Literal["directories", "segments"],
) -> None:
    found = du(spark, volume, path, depth=depth, by=by, tasks=3)
    with S3kSyncClient(config=volume) as fs:
        assert sums_in(found) == summaries(fs, path, depth)


@embedded
@pytest.mark.parametrize(
    ("path", "in_memory"),
    [("/", 99), pytest.param("/ab", 99, marks=pytest.mark.slow), ("/ab", 1)],
)
async def test_sums_of_layout_tree_by_segments(
    spark: SparkSession,
    new_volume: VolumeMaker,
    monkeypatch: pytest.MonkeyPatch,
    path: str,
    in_memory: int,
) -> None:
    """Files of renamed directories count at their new place, and what is in the trash nowhere."""
    monkeypatch.setattr(listing_job, "_IN_MEMORY", in_memory)
    volume = await five_levels(new_volume, "tree")
    with S3kSyncClient(config=volume) as fs:
        fs.rename("/a/1", "/ab/moved")
        fs.delete("/a/2", recursive=True)
        found = du(spark, volume, path, depth=2, by="segments", tasks=3)
        assert sums_in(found) == summaries(fs, path, 2)


def sums_in(frame: DataFrame) -> dict[str, tuple[int, ...]]:
    return {row.path: tuple(row[1:]) for row in frame.collect()}


def summaries(fs: S3kSyncClient, path: str, depth: int) -> dict[str, tuple[int, ...]]:
    """Those of each directory down to a depth, by the client."""
    level = path.rstrip("/").count("/")
    below = [each.path for each in fs.list(path, recursive=True) if each.is_dir]
    wanted = [path, *(each for each in below if each.count("/") - level <= depth)]
    found = {each: fs.content_summary(each) for each in wanted}
    return {
        each: (summary.length, summary.file_count, summary.directory_count)
        for each, summary in found.items()
    }


@embedded
def test_what_cannot_be_listed(spark: SparkSession, volume: VolumeConfig) -> None:
    with pytest.raises(PathNotFoundError):
        listing(spark, volume, "/missing")
    with pytest.raises(InvalidArgumentError):
        listing(spark, volume, by="names")  # type: ignore[arg-type]
    with pytest.raises(InvalidArgumentError):
        du(spark, volume, by="names")  # type: ignore[arg-type]
    with pytest.raises(InvalidArgumentError):
        du(spark, volume, depth=-1)


@embedded
def test_a_listing_is_that_of_the_identity(spark: SparkSession, new_volume: VolumeMaker) -> None:
    """The tasks act for the identity of the configuration, which is shipped to them."""
    config = new_volume()

    def of(uid: int) -> VolumeConfig:
        return replace(config, tuning=replace(config.tuning, uid=uid, gids=(uid,)))

    asyncio.run(init_volume(of(1000), enable=["permissions"]))
    with S3kSyncClient(config=of(1000)) as fs:
        fs.write("/open/f", b"1")
        fs.write("/closed/f", b"1")
    shown = {"/open", "/open/f", "/closed", "/closed/f"}
    found = listing(spark, of(1001), tasks=2).toArrow().column("path").to_pylist()
    assert set(found) == shown
    assert listing(spark, of(0), by="segments", tasks=2).count() == len(shown)
    for by_segments in (listing, du):
        with pytest.raises(PermissionDeniedError, match="only the superuser"):
            by_segments(spark, of(1001), by="segments")
    planned = listing(spark, of(1001), tasks=2)
    with S3kSyncClient(config=of(1000)) as fs:
        fs.set_attributes("/closed", mode=0o700)
    with pytest.raises(Exception, match="user 1001 has no permission to read and search /closed"):
        planned.count()
    pairs = spark.createDataFrame([("/open/f",)], "path string")
    done = delete_files(spark, of(1001), pairs, dry_run=False)
    [row] = done.frame.collect()
    assert (row["outcome"], row["error"]) == ("failed", "PermissionDeniedError")
