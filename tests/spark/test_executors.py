"""The client in tasks: one for each worker process, made where it is used."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from anyio import to_thread

from s3k_async import S3kSyncClient
from s3k_async.config import LocalDirectory, VolumeConfig
from s3k_async.errors import VolumeNotFoundError
from s3k_async.migrate import reshard_volume
from s3k_async.spark import each_partition, spark_volume, worker_client
from s3k_async.txn import volume_lock
from s3k_async.volumes import destroy_volume, init_volume
from tests.engines.volumes import VolumeMaker, volume_backends

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark
everywhere = volume_backends("dynoxide+seaweedfs", slow=["embedded"])

TASKS = 12
"""More than there are workers, those included that earlier tests have left."""


@everywhere
def test_each_worker_process_has_one_client_for_all_of_its_tasks(
    spark: SparkSession, volume: VolumeConfig
) -> None:
    def write(fs: S3kSyncClient, numbers: Iterator[int]) -> Iterator[tuple[int, int]]:
        for number in numbers:
            fs.write(f"/out/{number}", str(number).encode())
            yield os.getpid(), id(fs)

    seen = (
        spark.sparkContext.parallelize(range(24), TASKS)
        .mapPartitions(each_partition(volume, write))
        .collect()
    )
    assert os.getpid() not in {pid for pid, _ in seen}
    assert len(set(seen)) == len({pid for pid, _ in seen}) < TASKS
    with S3kSyncClient(config=volume) as fs:
        assert {status.path: fs.read(status.path) for status in fs.list("/out")} == {
            f"/out/{number}": str(number).encode() for number in range(24)
        }


@volume_backends("embedded")
def test_what_was_put_off_is_done_when_a_task_ends(
    spark: SparkSession, volume: VolumeConfig
) -> None:
    def delete(fs: S3kSyncClient, paths: Iterator[str]) -> Iterator[int]:
        for path in paths:
            fs.delete(path)
        yield fs.requests.deferred

    with S3kSyncClient(config=volume) as fs:
        for number in range(6):
            fs.write(f"/{number}", b"1")
    paths = spark.sparkContext.parallelize([f"/{number}" for number in range(6)], 3)
    assert paths.mapPartitions(each_partition(volume, delete)).count() == 3
    entries = [name.rpartition(".") for _, _, names in os.walk(_log_of(volume)) for name in names]
    begun = {stem for stem, _, state in entries if state == "pending"}
    assert len(begun) == 12
    assert begun == {stem for stem, _, state in entries if state == "committed"}


def _log_of(volume: VolumeConfig) -> str:
    assert isinstance(volume.data, LocalDirectory)
    return os.path.join(volume.data.path, "oplog")


@volume_backends("embedded")
def test_an_error_in_a_task_is_told_on_the_driver(
    spark: SparkSession, new_volume: VolumeMaker
) -> None:
    missing = new_volume()

    def nothing(fs: S3kSyncClient, rows: Iterator[int]) -> Iterator[int]:
        return rows

    with pytest.raises(Exception, match=VolumeNotFoundError.__name__):
        spark.sparkContext.parallelize([1], 1).mapPartitions(
            each_partition(missing, nothing)
        ).collect()


def test_a_volume_from_the_configuration_of_the_session(spark: SparkSession) -> None:
    for name, value in {
        "fs.s3k.metastore.dynamo.table.analytics": "tree",
        "fs.s3k.metastore.dynamo.suffix.count.analytics": "7",
        "fs.s3k.metastore.dynamo.suffix.count.other": "9",
        "fs.s3k.volume.kind.analytics": "native",
        "fs.s3a.endpoint.region": "eu-west-1",
    }.items():
        spark.conf.set(name, value)
    found = spark_volume(spark, "s3k://analytics", bucket="files")
    assert found.driver == found.executors
    assert getattr(found.driver.table, "name", None) == "tree"
    assert found.driver.suffix_count == 7
    assert spark_volume(spark, found) is found
    assert spark_volume(spark, found.driver).executors is found.driver


@volume_backends("embedded")
def test_threads_that_come_at_the_same_time_open_one_client(
    volume: VolumeConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    together, opened = threading.Barrier(2), set()

    class Client(S3kSyncClient):
        def __init__(self, **options: Any) -> None:
            super().__init__(**options)
            together.wait(10)

        def open_volume(self) -> None:
            opened.add(id(self))
            super().open_volume()

    monkeypatch.setattr(worker_client, "S3kSyncClient", Client)
    monkeypatch.setattr(worker_client, "_clients", {})
    with ThreadPoolExecutor(2) as pool:
        one, other = pool.map(worker_client.client, [volume, volume])
    with one:
        assert one is other
        assert opened == {id(one)}


@volume_backends("embedded")
def test_threads_that_come_at_the_same_time_replace_a_stale_client_once(
    volume: VolumeConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    together = threading.Barrier(2)
    stale: set[int] = set()
    closed: list[int] = []

    class Client(S3kSyncClient):
        def close(self, **options: Any) -> None:
            closed.append(id(self))
            super().close(**options)

    class Clients(dict[tuple[int, VolumeConfig], S3kSyncClient]):
        def get(self, key: Any, default: Any = None) -> Any:
            found = super().get(key, default)
            with suppress(threading.BrokenBarrierError):
                together.wait(1)  # another thread has found the same
            return found

    monkeypatch.setattr(worker_client, "S3kSyncClient", Client)
    monkeypatch.setattr(worker_client, "_clients", {})
    monkeypatch.setattr(worker_client, "_is_current", lambda opened: id(opened) not in stale)
    before = worker_client.client(volume)
    stale.add(id(before))
    monkeypatch.setattr(worker_client, "_clients", Clients(worker_client._clients))
    with ThreadPoolExecutor(2) as pool:
        one, other = pool.map(worker_client.client, [volume, volume])
    with one:
        assert one is other is not before
        assert closed == [id(before)]
        assert before.closed


@volume_backends("embedded")
async def test_a_volume_that_was_resharded_is_opened_anew(
    volume: VolumeConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_client, "_clients", {})
    monkeypatch.setattr(volume_lock, "QUIET_SECONDS", 0.0)
    before = await to_thread.run_sync(worker_client.client, volume)
    before.write("/a/b", b"1")
    assert worker_client.client(volume) is before
    await reshard_volume(volume, 9)
    after = worker_client.client(volume)
    try:
        assert after is not before
        assert after.read("/a/b") == b"1"
    finally:
        after.close()


def wait_for_commit(directory: Path) -> None:
    """Wait for the commit record of a write, which is written after the call has returned."""
    while not any(directory.rglob("*.committed")):
        time.sleep(0.01)


@pytest.mark.parametrize("noticed", [False, True])
@volume_backends("embedded")
async def test_a_volume_that_was_made_anew_is_opened_anew(
    volume: VolumeConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, noticed: bool
) -> None:
    """Whether or not the client of the old one has come to know that it is gone."""
    monkeypatch.setattr(worker_client, "_clients", {})
    before = await to_thread.run_sync(worker_client.client, volume)
    before.write("/a", b"1")
    await to_thread.run_sync(wait_for_commit, tmp_path)
    await destroy_volume(volume, force=True)
    await init_volume(replace(volume, suffix_count=9))
    monkeypatch.setattr(volume_lock, "LOOK_SECONDS", 0.0 if noticed else volume_lock.LOOK_SECONDS)
    after = worker_client.client(volume)
    after.write("/b", b"2")
    with S3kSyncClient(config=volume) as fs, after:
        assert [status.path for status in fs.list("/")] == ["/b"]
        assert fs.read("/b") == b"2"


@volume_backends("embedded")
def test_work_may_close_its_client(volume: VolumeConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    """As `with` does; the next task reopens it."""
    monkeypatch.setattr(worker_client, "_clients", {})

    def write(fs: S3kSyncClient, paths: Iterator[str]) -> Iterator[str]:
        with fs:
            for path in paths:
                fs.write(path, b"1")
                yield path

    for paths in (["/a", "/b"], ["/c"]):
        assert list(each_partition(volume, write)(paths)) == paths
    with S3kSyncClient(config=volume) as fs:
        assert sorted(status.path for status in fs.list("/")) == ["/a", "/b", "/c"]
