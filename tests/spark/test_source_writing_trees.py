"""The data source `s3k`, writing into volumes of layout `tree`: new directories are filled before
one transaction publishes them, and an overwritten directory goes into the trash as a whole."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from s3k_async import S3kSyncClient
from s3k_async.config import VolumeConfig
from s3k_async.errors import NotDirectoryError, ServiceError
from s3k_async.integrity.repair import repair_volume
from s3k_async.layouts.tree import staged_commit, tree_layout
from s3k_async.layouts.tree.staged_commit import Staging
from s3k_async.namespace.mutations import CommitPlan
from s3k_async.namespace.store import MetadataStore
from s3k_async.spark import register
from s3k_async.spark.source_commit import publish
from s3k_async.spark.source_files import WrittenFile
from s3k_async.testing import Call, FaultPlan
from s3k_async.txn.txn_record import OwnedTransaction, TransactionRecords
from s3k_async.volumes import init_volume, open_volume
from tests.spark.contents import content, garbage, paths
from tests.spark.test_collecting_trees import place_at
from tests.spark.test_source_writing import plan_of, seen_by_a_reader, written

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


@pytest.fixture
async def volume(tmp_path: Path) -> VolumeConfig:
    config = place_at(tmp_path / "volume")
    await init_volume(config)
    return config


@pytest.fixture
def staged_commits(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The numbers of entries of the commits by staged directories."""
    made: list[int] = []
    commit_staged = staged_commit.commit_staged

    async def counted(
        store: MetadataStore, plan: CommitPlan, staging: Staging, keep_data: Callable[[], None]
    ) -> None:
        made.append(len(staging.content))
        await commit_staged(store, plan, staging, keep_data)

    monkeypatch.setattr(tree_layout, "commit_staged", counted)
    return made


def staged_files(fs: S3kSyncClient, number: int, directory: str = "") -> list[WrittenFile]:
    found = []
    for each in range(number):
        with fs.stage() as file:
            file.write(b"rows")
        found.append(WrittenFile(directory, f"part-{each:05d}.parquet", file.staged))
    return found


def test_many_files_of_a_new_directory_are_staged(
    fs: S3kSyncClient, staged_commits: list[int]
) -> None:
    files = [*staged_files(fs, 60, "day=1"), *staged_files(fs, 60, "day=2")]
    publish(fs, plan_of("/new/out"), files)
    assert staged_commits == [123], "with both partitions, and the directory itself"
    assert len(paths(fs, "/new/out")) == 120
    assert fs.transactions() == []
    more = staged_files(fs, 120, "day=3")
    publish(fs, plan_of("/new/out"), more)
    assert staged_commits == [123, 120], "a new partition of an existing directory"
    assert len(paths(fs, "/new/out")) == 240


def test_an_overwritten_directory_is_in_the_trash_as_a_whole(
    fs: S3kSyncClient, staged_commits: list[int]
) -> None:
    plan = plan_of(partition_columns="day")
    publish(fs, plan, written(fs, plan, (1, "a"), (2, "b")))
    before = fs.stat("/out")
    files = staged_files(fs, 120, "day=c")
    publish(fs, plan_of(overwrite=True), files)
    assert staged_commits == [121]
    assert paths(fs, "/out") == {f"/out/day=c/{each.name}" for each in files}
    (item,) = fs.trash().list()
    assert (item.was, item.id) == ("/out", before.id)
    fs.trash().restore(item, "/old")
    assert content(fs, "/old") == {"/old/day=a": [1], "/old/day=b": [2]}
    publish(fs, plan_of(overwrite=True), [])
    assert list(fs.list("/out")) == []


def test_an_overwrite_that_is_repeated_after_an_unknown_outcome_changes_nothing(
    fs: S3kSyncClient,
) -> None:
    """The files that it has published are not replaced by themselves."""
    publish(fs, plan_of(), written(fs, plan_of(), (0, "a")))
    plan = plan_of(overwrite=True)
    files = written(fs, plan, (1, "a"), (2, "a"))
    publish(fs, plan, files)
    before = fs.stat("/out")
    publish(fs, plan, files)
    assert fs.stat("/out") == before
    assert content(fs, "/out") == {"/out": [1, 2]}
    assert len(fs.trash().list()) == 1
    # Another run of the job.
    again = plan_of(overwrite=True)
    publish(fs, again, written(fs, again, (3, "a")))
    assert content(fs, "/out") == {"/out": [3]}
    assert len(fs.trash().list()) == 2


def test_two_overwrites_of_an_absent_path_leave_the_files_of_the_later_one(
    fs: S3kSyncClient,
) -> None:
    for number in (1, 2):
        plan = plan_of(overwrite=True)
        publish(fs, plan, written(fs, plan, (number, "a")))
    assert content(fs, "/out") == {"/out": [2]}


def test_nothing_is_written_over_a_file(fs: S3kSyncClient) -> None:
    fs.write("/out", b"a file")
    for overwrite in (False, True):
        plan = plan_of(overwrite=overwrite)
        with pytest.raises(NotDirectoryError) as caught:
            publish(fs, plan, written(fs, plan, (1, "a")))
        assert caught.value.path == "/out"
    assert fs.read("/out") == b"a file"


async def test_data_is_kept_while_entries_of_a_failed_commit_have_it(
    volume: VolumeConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The table fails when the commit has stored the entries of a new directory, and lets it abort
    the transaction, but not remove the entries."""
    faults, refused = FaultPlan(), ServiceError("no")

    async def fails(_: TransactionRecords, txn: OwnedTransaction, *__: object) -> None:
        aborting = len(faults.calls) + 1

        def is_later(call: Call) -> bool:
            return call.store == "items" and call.number > aborting

        faults.fail_when(is_later, ServiceError("fails"), times=10**9)
        raise refused

    monkeypatch.setattr(TransactionRecords, "publish", fails)
    with faults.injected(), S3kSyncClient(config=volume) as fs:
        files = staged_files(fs, 120)
        with pytest.raises(ServiceError) as caught:
            publish(fs, plan_of("/new"), files)
    assert caught.value is refused
    opened = await open_volume(volume)
    try:
        found = await repair_volume(opened, grace=0.0, dry_run=True)
    finally:
        await opened.close()
    assert not found.left.kinds
    assert await garbage(volume) == {each.staged.content.physical for each in files}


def test_a_job_is_seen_wholly_or_not_at_all(
    spark: SparkSession, fs: S3kSyncClient, volume: VolumeConfig
) -> None:
    register(spark, volume=volume)
    fs.makedirs("/top")
    rows = spark.range(0, 80, 1, 2).selectExpr("id", "cast(id % 40 as string) day")
    for mode in ("append", "overwrite"):
        before = frozenset(paths(fs, "/top"))
        with seen_by_a_reader(volume, "/top") as seen:
            rows.write.format("s3k").mode(mode).option("partition_columns", "day").save("/top/out")
        after = frozenset(paths(fs, "/top"))
        assert set(seen) <= {before, after}
        assert len(after) == 80
        assert not before & after
    assert sum(len(each) for each in content(fs, "/top/out").values()) == 80
    assert [item.was for item in fs.trash().list()] == ["/top/out"]
