"""The data source `s3k`, writing: tasks upload, one transaction publishes."""

from __future__ import annotations

import datetime as dt
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql.types import StructType

from s3k_async import S3kClient, S3kSyncClient, transaction
from s3k_async._core.runtime import SYSTEM
from s3k_async.config import MemoryTable, S3Bucket, Tuning, VolumeConfig
from s3k_async.errors import (
    ConfigError,
    InvalidArgumentError,
    LeaseExpiredError,
    NotDirectoryError,
    OutcomeUnknownError,
)
from s3k_async.integrity.gc_rules import GRACE_SECONDS
from s3k_async.namespace import commit_planning
from s3k_async.namespace.multi_path_commit import commit_mutations
from s3k_async.namespace.mutations import Remove
from s3k_async.spark import read_parquet, register, source_files, write_parquet
from s3k_async.spark.settings import SparkVolume
from s3k_async.spark.source_commit import publish, volume_to_write
from s3k_async.spark.source_files import WritePlan, WrittenFile, write_plan, written_files
from s3k_async.spark.source_options import SourceOptions
from s3k_async.spark.source_writer import S3kWriter, TaskCommit
from s3k_async.volumes import init_volume
from tests.engines.process import Engine
from tests.engines.volumes import fresh_name, volume_backends
from tests.spark.contents import collect, content, garbage, paths
from tests.storage.test_storage_rules import kept

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark
embedded = volume_backends("embedded")
everywhere = volume_backends("dynoxide+seaweedfs", slow=["embedded"])
both = volume_backends("dynoxide+seaweedfs", slow=["embedded", "redis"], tree=["embedded"])

SCHEMA = "id bigint, day string"


@pytest.fixture
def save(spark: SparkSession, volume: VolumeConfig) -> Callable[..., None]:
    register(spark, volume=volume)

    def saved(frame: DataFrame, path: str, mode: str = "append", **options: Any) -> None:
        frame.write.format("s3k").mode(mode).options(**options).save(path)

    return saved


# With Spark


@both
def test_append_overwrite_and_the_partitions_that_are_written(
    spark: SparkSession, save: Callable[..., None], fs: S3kSyncClient, volume: VolumeConfig
) -> None:
    url = f"s3k://{volume.name}/out"
    first = spark.createDataFrame([(1, "a"), (2, "b"), (3, "x/y")], SCHEMA).coalesce(1)
    save(first, url, partition_columns="day")
    assert content(fs, "/out") == {"/out/day=a": [1], "/out/day=b": [2], "/out/day=x%2Fy": [3]}
    more = spark.createDataFrame([(4, "b"), (5, "c")], SCHEMA)
    save(more, "/out", "overwrite", partition_columns="day", partition_overwrite_mode="dynamic")
    assert content(fs, "/out") == {
        "/out/day=a": [1],
        "/out/day=b": [4],
        "/out/day=c": [5],
        "/out/day=x%2Fy": [3],
    }
    back = spark.read.format("s3k").load("/out")
    assert sorted(map(tuple, back.collect())) == [(1, "a"), (3, "x/y"), (4, "b"), (5, "c")]
    # What is read may be overwritten: its bytes stay for those who read them.
    save(back.where("id > 3"), "/out", "overwrite", partition_columns="day")
    assert content(fs, "/out") == {"/out/day=b": [4], "/out/day=c": [5]}
    save(back.limit(0), "/out", "overwrite")
    assert list(fs.list("/out")) == []


@embedded
def test_all_usual_types_come_back(
    spark: SparkSession, save: Callable[..., None], fs: S3kSyncClient, tmp_path: Path
) -> None:
    frame = spark.createDataFrame(
        [
            (
                1,
                True,
                0.5,
                "ä",
                bytearray(b"\0"),
                Decimal("1.20"),
                dt.date(2026, 1, 1),
                [1, None],
                {"k": 1},
                (1, "x"),
            ),
            (None, None, None, None, None, None, None, None, None, None),
        ],
        "i int, f boolean, d double, s string, b binary, m decimal(10,2), t date, l array<int>, k "
        "map<string,int>,"
        " n struct<a:int,b:string>",
    ).selectExpr(
        "*", "timestamp'2026-03-01 12:00:00.123456' at", "timestamp_ntz'2026-03-01 12:00:00' local"
    )
    save(frame, "/types")
    back = spark.read.format("s3k").load("/types")
    assert back.dtypes == frame.dtypes

    def found(frame: DataFrame) -> list[Any]:
        return sorted(frame.collect(), key=lambda row: row.i is None)

    expected = found(frame)
    assert found(back) == expected
    # Spark's own reader sees the same.
    plain = tmp_path / "plain"
    plain.mkdir()
    for number, path in enumerate(sorted(paths(fs, "/types"))):
        (plain / f"{number}.parquet").write_bytes(fs.read(path))
    assert found(spark.read.parquet(str(plain))) == expected


@contextmanager
def seen_by_a_reader(config: VolumeConfig, top: str) -> Iterator[list[frozenset[str]]]:
    """Which files a reader saw that listed all the time, each set once in a row."""
    seen: list[frozenset[str]] = []
    over = threading.Event()

    def look() -> None:
        with S3kSyncClient(config=config) as fs:
            while not over.is_set():
                found = frozenset(paths(fs, top))
                if not seen or seen[-1] != found:
                    seen.append(found)

    with ThreadPoolExecutor(1) as pool:
        looking = pool.submit(look)
        try:
            yield seen
        finally:
            over.set()
            looking.result()


@embedded
@pytest.mark.slow
@pytest.mark.layouts("path", "tree")
@pytest.mark.parametrize(("tasks", "days"), [(20, 8), (200, 2)], ids=["20", "200"])
def test_many_tasks_are_seen_wholly_or_not_at_all(
    spark: SparkSession,
    save: Callable[..., None],
    fs: S3kSyncClient,
    volume: VolumeConfig,
    tasks: int,
    days: int,
) -> None:
    fs.makedirs("/big")
    rows = tasks * days
    frame = spark.range(0, rows, 1, tasks).selectExpr("id", f"cast(id % {days} as string) day")
    for mode, options in (
        ("append", {}),
        ("overwrite", {"partition_columns": "day"}),
        ("overwrite", {"partition_columns": "day", "partition_overwrite_mode": "dynamic"}),
    ):
        before = frozenset(paths(fs, "/big"))
        with seen_by_a_reader(volume, "/big") as seen:
            save(frame, "/big", mode, **options)
        after = frozenset(paths(fs, "/big"))
        assert set(seen) <= {before, after}
        assert len(after) == (rows if options else tasks)
        assert not before & after
        assert sorted(each for ids in content(fs, "/big").values() for each in ids) == list(
            range(rows)
        )


@embedded
async def test_a_task_that_fails_leaves_what_was_there_and_bytes_that_are_collected(
    spark: SparkSession, save: Callable[..., None], volume: VolumeConfig
) -> None:
    save(spark.range(2).coalesce(1), "/out")
    with S3kSyncClient(config=volume) as fs:
        before = paths(fs, "/out")
        bad = spark.range(0, 40, 1, 4).selectExpr("if(id = 39, raise_error('a bad row'), id) id")
        with pytest.raises(Exception, match="a bad row"):
            save(bad, "/out", "overwrite")
        assert paths(fs, "/out") == before
    # A task that was still running is killed, or ends when nobody waits for it, perhaps after a
    # collection: its bytes are collected by the next.
    for _ in range(60):
        await collect(volume)
        left = await garbage(volume)
        if not left:
            break
        await anyio.sleep(0.25)
    assert left == set()


@embedded
def test_two_jobs_append_to_one_directory_at_once(
    spark: SparkSession, save: Callable[..., None], fs: S3kSyncClient
) -> None:
    def append(start: int) -> None:
        # createDataFrame makes the session this thread's: without, Spark finds no data source in
        # it.
        save(
            spark.createDataFrame(
                [(start + more,) for more in range(120)], "id bigint"
            ).repartition(8),
            "/out",
        )

    with ThreadPoolExecutor(2) as pool:
        for job in [pool.submit(append, start) for start in (0, 120)]:
            job.result()
    assert content(fs, "/out") == {"/out": list(range(240))}
    assert len(paths(fs, "/out")) == 16


@everywhere
def test_the_functions_for_sparks_without_data_sources(
    spark: SparkSession, fs: S3kSyncClient, volume: VolumeConfig
) -> None:
    frame = spark.createDataFrame([(1, "a"), (2, "b"), (3, "b")], SCHEMA)
    write_parquet(frame, "/out", mode="overwrite", partition_columns=["day"], volume=volume)
    assert content(fs, "/out") == {"/out/day=a": [1], "/out/day=b": [2, 3]}
    read = read_parquet(
        spark, "/out", volume=volume, filters=[("day", "!=", "a"), ("id", "in", [1, 2])]
    )
    assert [tuple(row) for row in read.collect()] == [(2, "b")]
    assert (
        read_parquet(
            spark, "/out", volume=volume, schema="day string", filters=[("day", "=", "c")]
        ).count()
        == 0
    )
    write_parquet(frame.where("id > 2"), "/out", partition_columns=["day"], volume=volume)
    assert read_parquet(spark, f"s3k://{volume.name}/out", volume=volume, columns="id").count() == 4
    with pytest.raises(InvalidArgumentError, match="append or overwrite"):
        write_parquet(frame, "/out", mode="ignore", volume=volume)  # type: ignore[arg-type]
    with pytest.raises(InvalidArgumentError, match="none of the operators"):
        read_parquet(spark, "/out", volume=volume, filters=[("id", "~", 1)])


# Without: the calls that Spark makes


def plan_of(path: str = "/out", *, overwrite: bool = False, **options: object) -> WritePlan:
    schema = StructType().add("id", "long").add("day", "string")
    return write_plan(
        SourceOptions.of({"path": path, **options}), schema, SYSTEM.uuid(), overwrite=overwrite
    )


def batch(*rows: tuple[int, str | None]) -> pa.RecordBatch:
    return pa.record_batch(
        {"id": pa.array([row[0] for row in rows], pa.int64()), "day": [row[1] for row in rows]}
    )


def written(
    fs: S3kSyncClient, plan: WritePlan, *rows: tuple[int, str | None], task: int = 0
) -> list[WrittenFile]:
    return written_files(fs, plan, task, [batch(*rows)])


async def test_the_storage_rule_for_the_target_applies(moto_s3: Engine) -> None:
    name = fresh_name("rules")
    rules = "/:GLACIER_IR /out:STANDARD_IA,kind=table /out/day=b:ONEZONE_IA"
    bucket = S3Bucket(name, "", moto_s3.aws())
    config = VolumeConfig(name, MemoryTable(name), bucket, tuning=Tuning(storage_rules=rules))
    await init_volume(config)
    plan = plan_of(f"s3k://{name}/out", partition_columns="day")
    with S3kSyncClient(config=config) as sync_fs:
        publish(sync_fs, plan, written(sync_fs, plan, (1, "a"), (2, "b")))
        of_a, of_b = sorted(paths(sync_fs, "/out"))
    async with S3kClient(config=config) as fs:
        assert await kept(fs, moto_s3, of_a) == [("STANDARD_IA", {"kind": "table"})]
        assert await kept(fs, moto_s3, of_b) == [("ONEZONE_IA", {})]


@embedded
async def test_attempts_that_are_not_committed_are_collected(volume: VolumeConfig) -> None:
    writer = S3kWriter(SparkVolume(volume, volume), plan_of())
    first, second = (writer.write(iter([batch((1, "a"))])) for _ in range(2))
    writer.commit([second])
    with S3kSyncClient(config=volume) as fs:
        assert content(fs, "/out") == {"/out": [1]}
    left = {file.staged.content.physical for file in first.files}
    assert await garbage(volume) == left
    assert await collect(volume) == 1
    assert await garbage(volume) == set()


@embedded
async def test_what_is_aborted_is_dropped_unless_it_may_be_published(volume: VolumeConfig) -> None:
    writer = S3kWriter(SparkVolume(volume, volume), plan_of())
    message = writer.write(iter([batch((1, "a"))]))
    writer.abort(
        [message]
    )  # all tasks have written: it is the commit that failed, perhaps with an unknown outcome
    assert len(await garbage(volume)) == 1
    writer.abort([message, None])
    assert await garbage(volume) == set()


@embedded
async def test_a_commit_that_fails_changes_nothing_and_drops_the_bytes(
    volume: VolumeConfig,
) -> None:
    with S3kSyncClient(config=volume) as fs:
        fs.write("/out", b"a file")
        plan = plan_of()
        with pytest.raises(NotDirectoryError):
            publish(fs, plan, written(fs, plan, (1, "a")))
        assert fs.read("/out") == b"a file"
    assert await garbage(volume) == set()
    late = volume_to_write(SparkVolume(volume, volume), 0.001)
    with S3kSyncClient(config=late.executors) as fs:
        plan = plan_of("/other")
        files = written(fs, plan, (1, "a"))
        await anyio.sleep(0.05)  # the lease of a millisecond is over
        with pytest.raises(LeaseExpiredError):
            publish(fs, plan, files)
    assert await garbage(volume) == set()


@embedded
@pytest.mark.parametrize("path", ["/out", "/out/day=a"])
@pytest.mark.parametrize("mode", ["static", "dynamic"])
async def test_a_file_where_a_directory_is_written_is_told_by_its_path(
    volume: VolumeConfig, path: str, mode: str
) -> None:
    plan = plan_of(overwrite=True, partition_columns="day", partition_overwrite_mode=mode)
    with S3kSyncClient(config=volume) as fs:
        fs.write(path, b"a file")
        with pytest.raises(NotDirectoryError) as caught:
            publish(fs, plan, written(fs, plan, (1, "a")))
        assert caught.value.path == path
        assert fs.read(path) == b"a file"
    assert await garbage(volume) == set()


@embedded
def test_nothing_is_written_over_a_file(fs: S3kSyncClient) -> None:
    fs.write("/out", b"a file")
    with pytest.raises(NotDirectoryError) as caught:
        publish(fs, plan_of(overwrite=True), [])
    assert caught.value.path == "/out"


@embedded
@pytest.mark.parametrize("happened", [False, True])
@pytest.mark.parametrize("overwrite", [False, True])
async def test_after_an_unknown_outcome_the_bytes_stay_and_the_same_write_is_right(
    volume: VolumeConfig, monkeypatch: pytest.MonkeyPatch, happened: bool, overwrite: bool
) -> None:
    async def lost(*arguments: Any) -> None:
        if happened:
            await commit_mutations(*arguments)
        raise OutcomeUnknownError("the answer was lost")

    with S3kSyncClient(config=volume) as fs:
        publish(fs, plan_of(), written(fs, plan_of(), (0, "a")))
        plan = plan_of(overwrite=overwrite)
        writer = S3kWriter(SparkVolume(volume, volume), plan)
        messages = [TaskCommit(tuple(written(fs, plan, (task, "a"), task=task))) for task in (1, 2)]
        with monkeypatch.context() as patch:
            patch.setattr(transaction, "commit_mutations", lost)
            with pytest.raises(OutcomeUnknownError):
                writer.commit(list(messages))
        writer.abort(list(messages))
        keys = {file.staged.content.physical for message in messages for file in message.files}
        old, new = ([0], [1, 2]) if overwrite else ([0], [0, 1, 2])
        assert content(fs, "/out") == {"/out": new if happened else old}
        assert keys & await garbage(volume) == (set() if happened else keys)
        writer.commit(list(messages))
        assert content(fs, "/out") == {"/out": new}
        # Another run of the whole job, which knows nothing of this one.
        again = plan_of(overwrite=overwrite)
        publish(fs, again, written(fs, again, (1, "a"), (2, "a")))
        assert content(fs, "/out") == {"/out": new if overwrite else [0, 1, 1, 2, 2]}


@embedded
async def test_of_two_overwrites_the_later_one_stays(
    volume: VolumeConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One is published between the moment at which the other looks at what it replaces, and its
    commit."""
    look, meanwhile = commit_planning._removals, True

    def overwrite() -> None:
        with S3kSyncClient(config=volume) as fs:
            publish(fs, plan_of(overwrite=True), written(fs, plan_of(), (1, "a")))

    async def looked(*arguments: Any) -> list[Remove]:
        nonlocal meanwhile
        found = await look(*arguments)
        if meanwhile:
            meanwhile = False
            await anyio.to_thread.run_sync(overwrite)
        return found

    with S3kSyncClient(config=volume) as fs:
        publish(fs, plan_of(), written(fs, plan_of(), (0, "a")))
        last = written(fs, plan_of(), (2, "a"))
        monkeypatch.setattr(commit_planning, "_removals", looked)
        publish(fs, plan_of(overwrite=True), last)
        assert not meanwhile
        assert paths(fs, "/out") == {f"/out/{file.name}" for file in last}


@embedded
async def test_rows_that_cannot_be_read_leave_no_bytes(
    volume: VolumeConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source_files, "ROW_GROUP", 1)

    def rows() -> Iterator[pa.RecordBatch]:
        yield batch((1, "a"), (2, "b"))
        raise InvalidArgumentError("a bad row")

    with S3kSyncClient(config=volume) as fs, pytest.raises(InvalidArgumentError, match="a bad row"):
        written_files(fs, plan_of(partition_columns="day"), 0, rows())
    assert await garbage(volume) == set()


@embedded
def test_an_overwrite_keeps_what_it_writes_beside(fs: S3kSyncClient) -> None:
    for path in (
        "/out/old",
        "/out/_SUCCESS",
        "/out/day=a/old",
        "/out/day=b/deep/old",
        "/out/day=c/old",
        "/beside/old",
    ):
        fs.write(path, b"1")
    plan = plan_of(overwrite=True, partition_columns="day", partition_overwrite_mode="dynamic")
    publish(fs, plan, written(fs, plan, (1, "b"), (2, "d")))
    assert {path for path in paths(fs, "/") if "old" in path} == {
        "/out/old",
        "/out/day=a/old",
        "/out/day=c/old",
        "/beside/old",
    }
    plan = plan_of(overwrite=True, partition_columns="day")
    publish(fs, plan, written(fs, plan, (1, "a"), (2, None)))
    assert content(fs, "/out") == {"/out/day=a": [1], "/out/day=__HIVE_DEFAULT_PARTITION__": [2]}
    assert {status.path for status in fs.list("/out")} == set(content(fs, "/out"))
    plan = plan_of(overwrite=True)
    publish(fs, plan, written(fs, plan, (1, "a")))
    assert content(fs, "/out") == {"/out": [1]}
    publish(
        fs, plan_of(overwrite=True, partition_columns="day", partition_overwrite_mode="dynamic"), []
    )
    assert content(fs, "/out") == {"/out": [1]}
    publish(fs, plan_of("/new", overwrite=True), [])
    assert list(fs.list("/new")) == []


@embedded
def test_each_partition_has_one_file_where_it_fits(
    fs: S3kSyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    batches = [
        batch(*((number * 50 + more, str(more)) for more in range(50))) for number in range(10)
    ]
    plan = plan_of(partition_columns="day")
    files = written_files(fs, plan, 7, batches)
    assert len(files) == 50
    assert all(file.name.startswith(f"part-00007-{plan.job}-") for file in files)
    assert len({file.name for file in files}) == 50
    monkeypatch.setattr(source_files, "HELD", 1_000)
    more = plan_of(partition_columns="day")
    rolled = written_files(fs, more, 8, batches)
    assert len(rolled) > 50
    assert len({file.name for file in rolled}) == len(rolled)
    publish(fs, plan, [*files, *rolled])
    assert content(fs, "/out") == {
        f"/out/day={more}": sorted([number * 50 + more for number in range(10)] * 2)
        for more in range(50)
    }


@embedded
def test_files_have_so_many_rows_at_most(fs: S3kSyncClient) -> None:
    plan = plan_of(max_records_per_file=4, compression="zstd")
    publish(fs, plan, written(fs, plan, *((number, None) for number in range(10))))
    found = sorted(paths(fs, "/out"))
    assert [path.rpartition("-")[2] for path in found] == [
        "000.zstd.parquet",
        "001.zstd.parquet",
        "002.zstd.parquet",
    ]
    sizes = []
    for path in found:
        with fs.open(path) as file:
            sizes.append(pq.read_metadata(file).num_rows)
    assert sizes == [4, 4, 2]


@pytest.mark.parametrize(
    ("options", "overwrite", "message"),
    [
        ({"partition_overwrite_mode": "dynamic"}, False, "for the mode overwrite"),
        ({"format": "csv"}, False, "csv is read, but not written"),
        ({"partition_columns": "month"}, False, "no column 'month'"),
        ({"partition_columns": "id,day"}, False, "a column that is no partition column"),
    ],
)
def test_what_cannot_be_written(options: dict[str, str], overwrite: bool, message: str) -> None:
    with pytest.raises((ConfigError, InvalidArgumentError), match=message):
        plan_of(overwrite=overwrite, **options)


@embedded
def test_the_lease_stays_below_the_grace_period(volume: VolumeConfig) -> None:
    found = volume_to_write(SparkVolume(volume, volume), 100_000.0)
    assert found.executors.tuning.lease == 100_000
    with pytest.raises(ConfigError, match="shorter than the grace period"):
        volume_to_write(SparkVolume(volume, volume), GRACE_SECONDS)


def test_messages_travel(tmp_path: Path) -> None:
    import pickle

    from s3k_async.model import Content, StagedFile

    files: Sequence[WrittenFile] = [
        WrittenFile("day=a", "part", StagedFile("v", "o", Content("k", 1, "e", "c"), 5))
    ]
    assert pickle.loads(pickle.dumps(TaskCommit(tuple(files)))) == TaskCommit(tuple(files))


@embedded
def test_appends_at_once_are_jobs_that_wait_for_each_other(volume: VolumeConfig) -> None:
    def append(task: int) -> None:
        with S3kSyncClient(config=volume_to_write(SparkVolume(volume, volume), 100.0).driver) as fs:
            plan = plan_of(max_records_per_file=1)
            publish(
                fs, plan, written(fs, plan, *((task * 120 + more, None) for more in range(120)))
            )

    with ThreadPoolExecutor(3) as pool:
        for job in [pool.submit(append, task) for task in range(3)]:
            job.result()
    with S3kSyncClient(config=volume) as fs:
        assert content(fs, "/out") == {"/out": list(range(360))}
