"""Bulk renames, deletions and purges: what a job does, twice or interrupted, is what one machine
would do once."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import pytest

from s3k_async import S3kSyncClient
from s3k_async.config import VolumeConfig
from s3k_async.errors import (
    InvalidArgumentError,
    NotDirectoryError,
    PartialFailureError,
    PathNotFoundError,
)
from s3k_async.layouts.path import atomic_changes
from s3k_async.model import LayoutName
from s3k_async.spark import (
    delete_files,
    du,
    listing,
    purge,
    purge_job,
    rename_delete_jobs,
    rename_files,
)
from s3k_async.txn import txn_record
from s3k_async.volumes import init_volume
from tests.engines.volumes import VolumeMaker, volume_backends
from tests.support import fork_and_run

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark
everywhere = volume_backends("dynoxide+seaweedfs", slow=["embedded"])
both = volume_backends("dynoxide+seaweedfs", slow=["embedded"], tree=["embedded"])
embedded = volume_backends("embedded")

COUNT = 60
SOURCES = [f"/in/{number % 4}/{number}" for number in range(COUNT)]


@pytest.fixture
async def volume(new_volume: VolumeMaker, layout: LayoutName) -> VolumeConfig:
    return await made(new_volume(layout=layout))


async def made(config: VolumeConfig) -> VolumeConfig:
    await init_volume(config)
    with S3kSyncClient(config=config) as fs:
        fs.write_many([(path, path.encode()) for path in SOURCES])
        for number in range(3):
            fs.makedirs(f"/out/{number}")
    return config


def target_of(source: str) -> str:
    number = int(source.rpartition("/")[2])
    return f"/out/{number % 3}/{number}"


def pairs_of(spark: SparkSession, sources: list[str]) -> DataFrame:
    return spark.createDataFrame(
        [(source, target_of(source)) for source in sources], "source string, target string"
    )


def paths_of(spark: SparkSession, paths: list[str | None]) -> DataFrame:
    return spark.createDataFrame([(path,) for path in paths], "path string")


def files(volume: VolumeConfig) -> dict[str, str]:
    """Path and id of every file."""
    with S3kSyncClient(config=volume) as fs:
        return {status.path: status.id for status in fs.list("/", recursive=True) if status.is_file}


def outcomes(frame: DataFrame, column: str) -> dict[str, tuple[str, str | None]]:
    return {row[column]: (row["outcome"], row["error"]) for row in frame.collect()}


@both
def test_a_bulk_rename_moves_each_file_once(spark: SparkSession, volume: VolumeConfig) -> None:
    before = files(volume)
    pairs = pairs_of(spark, [*SOURCES, "/in/0/1000"])
    planned = rename_files(spark, volume, pairs).report
    assert (planned.dry_run, planned.planned, planned.failed, planned.files) == (
        True,
        COUNT,
        1,
        COUNT,
    )
    assert files(volume) == before

    result = rename_files(spark, volume, pairs, dry_run=False, tasks=2)
    assert files(volume) == {target_of(path): identity for path, identity in before.items()}
    assert outcomes(result.frame, "source") == {
        **dict.fromkeys(SOURCES, ("done", None)),
        "/in/0/1000": ("failed", "PathNotFoundError"),
    }
    report = result.report
    assert (report.rows, report.done, report.failed, report.files) == (COUNT + 1, COUNT, 1, COUNT)
    assert report.bytes == sum(map(len, SOURCES))
    assert not report.complete
    with pytest.raises(PartialFailureError, match=f"1 of {COUNT + 1} rows") as raised:
        result.raise_for_failures()
    assert raised.value.failures == report.failures
    assert [(path, type(error)) for path, error in report.failures] == [
        ("/in/0/1000", PathNotFoundError)
    ]
    assert report.requests.of("table", "TransactWriteItems") > 0

    again = rename_files(spark, volume, pairs, missing_ok=True, dry_run=False, tasks=2).report
    assert (again.already, again.failed, again.done) == (COUNT, 1, 0)


def _fail_once_in_the_middle(spark: SparkSession, flag: str) -> None:
    """Patch the job in the workers: the third batch that any of them renames fails after it was
    renamed, once."""

    def patch(batches: Iterator[Any]) -> Iterator[Any]:
        original = rename_delete_jobs._renamed
        calls: list[int] = []

        def renamed(*arguments: Any) -> Any:
            done = original(*arguments)
            calls.append(1)
            # The worker may outlive the test, whose directory is removed at its end.
            if len(calls) == 3 and Path(flag).parent.is_dir() and not os.path.exists(flag):
                Path(flag).touch()
                raise RuntimeError("the worker fails after a batch was renamed")
            return done

        rename_delete_jobs._renamed = renamed  # type: ignore[assignment]
        yield from batches

    # Not by an RDD: Spark has workers of their own for what works on DataFrames.
    spark.range(0, 4, 1, 4).mapInArrow(patch, "id long").collect()


@embedded
def test_a_job_that_failed_in_the_middle_goes_on_from_its_state(
    spark: SparkSession, volume: VolumeConfig, tmp_path: Path
) -> None:
    before = files(volume)
    state, flag = str(tmp_path / "state"), str(tmp_path / "failed")
    pairs = pairs_of(spark, SOURCES)
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", 5)
    try:
        _fail_once_in_the_middle(spark, flag)
        with pytest.raises(Exception, match="the worker fails after a batch was renamed"):
            rename_files(spark, volume, pairs, dry_run=False, state=state, tasks=2)
        assert os.path.exists(flag)
        between = files(volume)
        moved = set(before) - set(between)
        assert 15 <= len(moved) < COUNT
        assert sorted(between.values()) == sorted(before.values())

        # Somebody puts another file where one was that has been moved: that is not what the job
        # means.
        again = min(moved)
        with S3kSyncClient(config=volume) as fs:
            fs.write(again, b"another")
        result = rename_files(spark, volume, pairs, dry_run=False, state=state, tasks=2)
    finally:
        spark.conf.unset("spark.sql.execution.arrow.maxRecordsPerBatch")
    after = files(volume)
    assert after.pop(again) not in before.values()
    assert after == {target_of(path): identity for path, identity in before.items()}
    assert result.report.complete
    assert result.report.already == len(moved)
    assert result.report.done == COUNT - len(moved)


@pytest.mark.slow
@embedded
def test_a_state_belongs_to_its_rows(
    spark: SparkSession, volume: VolumeConfig, tmp_path: Path
) -> None:
    state = str(tmp_path / "state")
    assert (
        rename_files(spark, volume, pairs_of(spark, SOURCES), state=state).report.planned == COUNT
    )
    with pytest.raises(InvalidArgumentError, match="other rows"):
        rename_files(spark, volume, pairs_of(spark, SOURCES[1:]), state=state)
    with pytest.raises(InvalidArgumentError, match="other rows"):
        delete_files(spark, volume, paths_of(spark, [*SOURCES]), state=state)


@embedded
@pytest.mark.parametrize(
    ("pairs", "path"),
    [
        ([("/in/0/0", "/out/x"), ("/in/0/4", "/out/x")], "/out/x"),
        ([("/in/0/0", "/in/0/4"), ("/in//0/4/", "/x")], "/in/0/4"),
        ([("/in/0", "/x"), ("/in/0/4", "/y")], "/in/0/4"),
        ([("/in/0", "/out/x"), ("/in/1/1", "/out/x/1")], "/out/x/1"),
    ],
)
def test_pairs_that_depend_on_their_order_are_refused(
    spark: SparkSession, volume: VolumeConfig, pairs: list[tuple[str, str]], path: str
) -> None:
    before = files(volume)
    with pytest.raises(InvalidArgumentError) as caught:
        rename_files(
            spark,
            volume,
            spark.createDataFrame(pairs, "source string, target string"),
            dry_run=False,
        )
    assert caught.value.path == path
    assert files(volume) == before


@pytest.mark.slow
@embedded
def test_rows_that_cannot_be_meant_fail_by_themselves(
    spark: SparkSession, volume: VolumeConfig
) -> None:
    rows = [
        (None, "/a"),
        ("/in/0/0", None),
        ("/..", "/b"),
        ("s3k://else/in", "/c"),
        ("/in/0/4", "/out/0/" + "x" * 1025),
    ]
    found = rename_files(
        spark,
        volume,
        spark.createDataFrame([*rows, ("/in/2", "/out/2/d")], "source string, target string"),
        dry_run=False,
    )
    assert {
        tuple(row[:2]): (row["outcome"], row["error"])
        for row in found.frame.select("source", "target", "outcome", "error").collect()
    } == {
        (None, "/a"): ("failed", "ArgumentTypeError"),
        ("/in/0/0", None): ("failed", "ArgumentTypeError"),
        ("/..", "/b"): ("failed", "InvalidPathError"),
        ("s3k://else/in", "/c"): ("failed", "CrossVolumeError"),
        rows[4]: ("failed", "InvalidPathError"),
        ("/in/2", "/out/2/d"): ("done", None),
    }
    assert "/out/2/d/2" in files(volume)
    with pytest.raises(InvalidArgumentError, match="column 'target'"):
        rename_files(spark, volume, paths_of(spark, ["/a"]).withColumnRenamed("path", "source"))


@volume_backends("embedded", tree=["embedded"])
def test_a_bulk_deletion(spark: SparkSession, volume: VolumeConfig, tmp_path: Path) -> None:
    paths: list[str | None] = [*SOURCES[:20], "/in/3", "/out", "/out/1", "/in//0/0", "/missing"]
    assert delete_files(spark, volume, paths_of(spark, paths)).report.planned == 23
    state = str(tmp_path / "state")
    first = delete_files(spark, volume, paths_of(spark, paths), dry_run=False, state=state, tasks=2)
    wanted: dict[str, tuple[str, str | None]] = dict.fromkeys(SOURCES[:20], ("done", None))
    wanted |= {
        "/in/3": ("failed", "DirectoryNotEmptyError"),
        "/out/1": ("done", None),
        "/out": ("failed", "DirectoryNotEmptyError"),
        "/missing": ("failed", "PathNotFoundError"),
    }
    assert outcomes(first.frame, "path") == wanted
    assert sorted(files(volume)) == sorted(SOURCES[20:])

    with S3kSyncClient(config=volume) as fs:
        fs.write("/in/0/0", b"another")
        fs.write("/in/3/new", b"not what was meant, but the directory was")
    second = delete_files(
        spark, volume, paths_of(spark, paths), dry_run=False, state=state, recursive=True, tasks=2
    )
    wanted |= dict.fromkeys([*SOURCES[1:20], "/out/1"], ("already", None))
    wanted |= {
        "/in/0/0": ("failed", "ConflictError"),
        "/in/3": ("done", None),
        "/out": ("done", None),
    }
    assert outcomes(second.frame, "path") == wanted
    left = [path for path in SOURCES[20:] if not path.startswith("/in/3/")]
    assert sorted(files(volume)) == sorted([*left, "/in/0/0"])


@everywhere
def test_a_purge_removes_a_tree_and_goes_on(spark: SparkSession, volume: VolumeConfig) -> None:
    with S3kSyncClient(config=volume) as fs:
        fs.write("/in/here", b"123")
        summary = fs.content_summary("/in")
    dry = purge(spark, volume, "/in", tasks=3).report
    assert (dry.files, dry.directories, dry.bytes) == (
        summary.file_count,
        summary.directory_count,
        summary.length,
    )
    assert dry.planned == dry.rows == 5
    assert len(files(volume)) == COUNT + 1

    with S3kSyncClient(config=volume) as fs:
        fs.delete("/in/2", recursive=True, atomic=False)  # an earlier run was interrupted
        left = fs.content_summary("/in")
    done = purge(spark, volume, "/in", dry_run=False, tasks=3)
    assert (done.report.files, done.report.directories, done.report.bytes) == (
        left.file_count,
        left.directory_count,
        left.length,
    )
    assert done.report.done == done.report.rows == 4
    with S3kSyncClient(config=volume) as fs:
        assert not fs.exists("/in")
        assert fs.exists("/out/1")
    with pytest.raises(PathNotFoundError):
        purge(spark, volume, "/in", dry_run=False)
    assert purge(spark, volume, "/in", dry_run=False, missing_ok=True).report.rows == 0


@embedded
async def test_a_purge_in_layout_tree_keeps_no_file_in_the_trash(
    spark: SparkSession, new_volume: VolumeMaker
) -> None:
    volume = await made(replace(new_volume(), layout="tree"))
    with S3kSyncClient(config=volume) as fs:
        fs.write("/in/here", b"123")
        summary = fs.content_summary("/in")
        done = purge(spark, volume, "/in", dry_run=False, tasks=3).report
        assert (done.files, done.directories, done.bytes) == (
            summary.file_count,
            summary.directory_count,
            summary.length,
        )
        assert not fs.exists("/in")
        items = fs.trash().list()
        assert {item.state for item in items} == {"reclaiming"}
        assert [item.was for item in items if fs.trash().summary(item).file_count] == []
        assert sorted(item.was for item in items) == ["/in", *(f"/in/{each}" for each in range(4))]


@embedded
def test_a_purge_leaves_what_came_in_the_place_of_a_directory_that_it_means(
    spark: SparkSession, volume: VolumeConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = purge_job._ids

    def replaced_after(fs: S3kSyncClient, division: Sequence[tuple[str, bool]]) -> dict[str, str]:
        meant = ids(fs, division)
        fs.delete("/in/1", recursive=True)
        fs.write("/in/1/new", b"of somebody else")
        return meant

    monkeypatch.setattr(purge_job, "_ids", replaced_after)
    done = purge(spark, volume, "/in", dry_run=False, tasks=3).frame
    told = outcomes(done, "path")
    assert told["/in/1"] == ("failed", "ConflictError")
    assert told["/in/0"] == ("done", None)
    with S3kSyncClient(config=volume) as fs:
        assert [each.path for each in fs.list("/in", recursive=True)] == ["/in/1", "/in/1/new"]


@embedded
@pytest.mark.parametrize(
    "job",
    [pytest.param(job, marks=pytest.mark.slow) for job in ("rename", "delete")] + ["purge"],
)
def test_what_an_attempt_held_that_died_is_waited_for(
    spark: SparkSession, volume: VolumeConfig, job: str
) -> None:
    hasty = replace(volume, tuning=replace(volume.tuning, busy_timeout=0.1))

    def die_in_the_middle() -> None:
        async def die(*_: object) -> None:
            os._exit(9)

        with (
            patch.object(atomic_changes.AtomicChange, "below", die),
            patch.object(txn_record, "LEASE_SECONDS", 4.0),
            S3kSyncClient(config=hasty) as fs,
        ):
            fs.rename("/in/0", "/out/0/moved")

    assert fork_and_run(die_in_the_middle) == 9
    if job == "rename":
        pairs = spark.createDataFrame([("/in/0", "/out/0/moved")], "source string, target string")
        result = rename_files(spark, hasty, pairs, dry_run=False)
    elif job == "delete":
        result = delete_files(
            spark, hasty, paths_of(spark, ["/in/0"]), recursive=True, dry_run=False
        )
    else:
        result = purge(spark, hasty, "/in/0", dry_run=False)
    assert [row["outcome"] for row in result.frame.collect()] == ["done"]
    with S3kSyncClient(config=volume) as fs:
        assert fs.exists("/in/0") is False
        assert fs.exists("/out/0/moved/0") is (job == "rename")


@embedded
@pytest.mark.parametrize("tasks", [1, pytest.param(5, marks=pytest.mark.slow)])
def test_a_purge_of_the_root_leaves_the_root(
    spark: SparkSession, volume: VolumeConfig, tasks: int
) -> None:
    with S3kSyncClient(config=volume) as fs:
        fs.write("/top", b"1")
        with pytest.raises(NotDirectoryError):
            purge(spark, volume, "/top")
    purge(spark, volume, "/", dry_run=False, tasks=tasks)
    with S3kSyncClient(config=volume) as fs:
        assert list(fs.list("/", include_uncommitted=True)) == []


@embedded
@pytest.mark.slow
def test_twenty_thousand_files(spark: SparkSession, volume: VolumeConfig) -> None:
    count = 20_000
    sources = [f"/many/{number % 50}/{number}" for number in range(count)]
    with S3kSyncClient(config=volume) as fs:
        for start in range(0, count, 1000):
            fs.write_many([(path, b"1") for path in sources[start : start + 1000]])
        fs.makedirs("/moved")
        for number in range(20):
            fs.makedirs(f"/moved/{number}")
    pairs = [(path, f"/moved/{number % 20}/{number}") for number, path in enumerate(sources)]
    moved = rename_files(
        spark,
        volume,
        spark.createDataFrame(pairs, "source string, target string"),
        dry_run=False,
        tasks=4,
    ).report
    assert (moved.done, moved.failed, moved.already) == (count, 0, 0)
    sums = {row.path: row.files for row in du(spark, volume, "/moved").collect()}
    assert sums == {"/moved": count} | {f"/moved/{number}": count // 20 for number in range(20)}
    assert (
        listing(spark, volume, by="segments").filter("path like '/moved/%' and not is_dir").count()
        == count
    )
    gone = purge(spark, volume, "/", dry_run=False).report
    assert gone.files == count + COUNT
    with S3kSyncClient(config=volume) as fs:
        assert list(fs.list("/")) == []
