"""The data source `s3k`, reading: what is planned, what is asked for, and what comes out."""

from __future__ import annotations

import datetime as dt
import io
import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql.types import StructType

from s3k_async import S3kSyncClient
from s3k_async._core.runtime import SYSTEM
from s3k_async.config import VolumeConfig
from s3k_async.errors import ConfigError, DataMissingError, InvalidArgumentError, PathNotFoundError
from s3k_async.spark import register, spark_volume
from s3k_async.spark.settings import SparkSettings, SparkVolume
from s3k_async.spark.source import PUSHDOWN, S3kDataSource
from s3k_async.spark.source_files import write_plan
from s3k_async.spark.source_filters import ColumnFilter
from s3k_async.spark.source_options import SourceOptions, SourceSettings
from s3k_async.spark.source_reader import ReadPlan, planned, read_splits
from s3k_async.spark.source_schema import inferred_schema
from s3k_async.spark.source_splits import ReadSplit, found_files, inferred_type, joined, splits_of
from s3k_async.spark.source_writer import S3kWriter
from tests.engines.volumes import volume_backends
from tests.spark.conftest import ROOT

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark
embedded = volume_backends("embedded")
everywhere = volume_backends("dynoxide+seaweedfs", slow=["embedded"])
both = volume_backends("dynoxide+seaweedfs", slow=["embedded", "redis"], tree=["embedded"])

NOON = dt.datetime(2026, 3, 1, 12, 0, 0, 123456, tzinfo=dt.UTC)


@pytest.fixture
def load(spark: SparkSession, volume: VolumeConfig) -> Callable[..., DataFrame]:
    register(spark, volume=volume)

    def loaded(*paths: str, schema: str | None = None, **options: Any) -> DataFrame:
        reader = spark.read.format("s3k").options(**options)
        reader = reader if schema is None else reader.schema(schema)
        return reader.load(paths[0] if len(paths) == 1 else list(paths))

    return loaded


def parquet(table: pa.Table | dict[str, Any], **options: Any) -> bytes:
    sink = io.BytesIO()
    pq.write_table(table if isinstance(table, pa.Table) else pa.table(table), sink, **options)
    return sink.getvalue()


def rows(frame: DataFrame) -> list[tuple[Any, ...]]:
    return sorted(map(tuple, frame.collect()), key=repr)


def days(fs: S3kSyncClient, base: str = "/events") -> None:
    """Three days, each with a file of two rows, and what no reader is to see."""
    for number in range(3):
        data = parquet({"id": [number * 10, number * 10 + 1], "name": [f"n{number}", None]})
        fs.write(f"{base}/day=2026-01-0{number + 1}/hour={number}/part-0.parquet", data)
    fs.write(f"{base}/_SUCCESS", b"")
    fs.write(f"{base}/day=2026-01-01/.crc", b"no parquet")
    fs.write(f"{base}/_temporary/0/part-0.parquet", b"no parquet")


@both
def test_partition_columns_come_from_directories(
    load: Callable[..., DataFrame], fs: S3kSyncClient, volume: VolumeConfig
) -> None:
    days(fs)
    frame = load(f"s3k://{volume.name}/events")
    assert frame.dtypes == [("id", "bigint"), ("name", "string"), ("day", "date"), ("hour", "int")]
    assert rows(frame) == [
        (number * 10 + more, None if more else f"n{number}", dt.date(2026, 1, number + 1), number)
        for number in range(3)
        for more in range(2)
    ]
    assert frame.count() == 6
    assert rows(frame.where("day = '2026-01-02' and id > 10")) == [
        (11, None, dt.date(2026, 1, 2), 1)
    ]


@embedded
def test_a_replaced_object_is_not_read_and_a_copy_is(
    load: Callable[..., DataFrame], fs: S3kSyncClient, volume: VolumeConfig
) -> None:
    one, other = (parquet({"id": [each, each]}, compression="none") for each in (10, 20))
    assert len(one) == len(other)
    fs.write("/in/part-0.parquet", one)
    path = Path(unquote(urlsplit(fs.physical_path("/in/part-0.parquet")).path))
    os.utime(path, ns=(1, 1))
    assert rows(load(f"s3k://{volume.name}/in", schema="id bigint")) == [(10,), (10,)]
    path.write_bytes(other)
    with pytest.raises(Exception, match="is not the one that was written"):
        load(f"s3k://{volume.name}/in", schema="id bigint").collect()


@embedded
def test_all_usual_types_come_back(load: Callable[..., DataFrame], fs: S3kSyncClient) -> None:
    table = pa.table(
        {
            "flag": [True, None],
            "byte": pa.array([1, None], pa.int8()),
            "short": pa.array([2, None], pa.int16()),
            "whole": pa.array([3, None], pa.int32()),
            "long": pa.array([2**62, None], pa.int64()),
            "unsigned": pa.array([2**32 - 1, None], pa.uint32()),
            "single": pa.array([0.5, None], pa.float32()),
            "double": [0.1, None],
            "text": ["ä€", None],
            "label": pa.array(["x", None]).dictionary_encode(),
            "data": [b"\0\xff", None],
            "money": pa.array([Decimal("12.34"), None], pa.decimal128(10, 2)),
            "day": [dt.date(1969, 12, 31), None],
            "moment": pa.array([NOON, None], pa.timestamp("us", "UTC")),
            "nanos": pa.array([NOON, None], pa.timestamp("ns", "UTC")),
            "local": pa.array([NOON.replace(tzinfo=None), None], pa.timestamp("us")),
            "many": [[1, None], None],
            "pairs": pa.array([[("a", 1)], None], pa.map_(pa.string(), pa.int64())),
            "nested": [{"a": 1, "b": {"c": ["x"]}}, None],
        }
    )
    fs.write("/types/one.parquet", parquet(table))
    frame = load("/types")
    first, second = sorted(frame.collect(), key=lambda row: row.long is None)
    assert tuple(second) == (None,) * 19
    found = first.asDict(recursive=True)
    zone = found.pop("moment").astimezone(dt.UTC), found.pop("nanos").astimezone(dt.UTC)
    assert zone == (NOON, NOON)
    expected = {
        name: table.column(name)[0].as_py()
        for name in table.column_names
        if name not in ("moment", "nanos")
    }
    assert found == expected | {"pairs": {"a": 1}, "data": bytearray(b"\0\xff")}
    types = dict(frame.dtypes)
    assert types["unsigned"] == "bigint"
    assert types["local"] == "timestamp_ntz"
    assert types["nested"] == "struct<a:bigint,b:struct<c:array<string>>>"


@embedded
def test_files_that_spark_itself_has_written(
    spark: SparkSession, load: Callable[..., DataFrame], fs: S3kSyncClient, tmp_path: Any
) -> None:
    spark.sql("select id, timestamp'2026-03-01 12:00:00' at from range(3)").coalesce(
        1
    ).write.option("compression", "gzip").parquet(str(tmp_path / "out"))
    (file,) = (tmp_path / "out").glob("*.parquet")
    fs.write("/theirs/part.parquet", file.read_bytes())
    assert load("/theirs").dtypes == [("id", "bigint"), ("at", "timestamp")]
    assert rows(load("/theirs")) == rows(spark.read.parquet(str(tmp_path / "out")))


@embedded
def test_only_the_columns_that_are_wanted(
    load: Callable[..., DataFrame], fs: S3kSyncClient
) -> None:
    days(fs)
    chosen = load("/events", columns="hour, name")
    assert chosen.columns == ["hour", "name"]
    assert rows(chosen.where("hour < 2")) == [(0, "n0"), (0, None), (1, "n1"), (1, None)]
    fs.write("/events/day=2026-01-04/hour=3/part-1.parquet", parquet({"ID": [40], "more": ["x"]}))
    given = load("/events", schema="id int, missing string, hour string")
    assert rows(given)[:2] == [(0, None, "0"), (1, None, "0")]
    assert (40, None, "3") in rows(given)
    assert load("/events").columns == ["ID", "more", "day", "hour"]
    with pytest.raises(Exception, match=f"{InvalidArgumentError.__name__}.*no column 'absent'"):
        load("/events", columns="absent").collect()


@embedded
def test_the_schema_of_all_files(load: Callable[..., DataFrame], fs: S3kSyncClient) -> None:
    fs.write("/evolved/1", parquet({"id": pa.array([1], pa.int32()), "name": ["a"]}))
    fs.write("/evolved/2", parquet({"id": pa.array([2**40], pa.int64()), "more": [True]}))
    frame = load("/evolved", merge_schema=True)
    assert frame.dtypes == [("id", "bigint"), ("name", "string"), ("more", "boolean")]
    assert rows(frame) == [(1, "a", None), (2**40, None, True)]
    fs.write("/evolved/3", parquet({"id": ["x"]}))
    with pytest.raises(Exception, match="contradict each other"):
        load("/evolved", merge_schema=True)


@embedded
def test_several_paths_a_file_and_nothing(
    load: Callable[..., DataFrame], fs: S3kSyncClient
) -> None:
    days(fs)
    path = "/events/day=2026-01-03/hour=2/part-0.parquet"
    assert load(path).columns == ["id", "name"]
    assert load(path, "/events/day=2026-01-01/hour=0").count() == 4
    fs.makedirs("/empty")
    with pytest.raises(Exception, match="give a schema"):
        load("/empty")
    assert rows(load("/empty", schema="a int")) == []
    with pytest.raises(Exception, match=PathNotFoundError.__name__):
        load("/absent")
    with pytest.raises(
        Exception,
        match=f"{ConfigError.__name__}.*unknown option 'merge_schem'; did you mean merge_s",
    ):
        load("/events", merge_schem="true")


@embedded
def test_other_formats(load: Callable[..., DataFrame], fs: S3kSyncClient) -> None:
    fs.write("/csv/day=1/a.csv", b"code,n\n007,1\n008,2\n")
    assert rows(load("/csv", format="csv")) == [(7, 1, 1), (8, 2, 1)]
    assert rows(load("/csv", format="csv", schema="code string, day int")) == [
        ("007", 1),
        ("008", 1),
    ]
    fs.write("/json/a.json", b'{"a": 1, "b": {"c": "x"}}\n{"a": 2}\n')
    assert [row.asDict(True) for row in load("/json", format="json").orderBy("a").collect()] == [
        {"a": 1, "b": {"c": "x"}},
        {"a": 2, "b": None},
    ]
    sink = io.BytesIO()
    with pa.ipc.new_file(sink, pa.schema([("a", pa.int64())])) as writer:
        writer.write_table(pa.table({"a": [5, 6]}))
    fs.write("/arrow/a.arrow", sink.getvalue())
    assert rows(load("/arrow", format="arrow")) == [(5,), (6,)]


@embedded
def test_filters_are_pushed_where_spark_is_set_so(
    spark: SparkSession, load: Callable[..., DataFrame], fs: S3kSyncClient, volume: VolumeConfig
) -> None:
    days(fs)
    # Whoever reads more than the second day fails.
    for day in (1, 3):
        fs.write(f"/events/day=2026-01-0{day}/hour=7/part-1.parquet", b"no parquet at all")
    frame = "id long, name string, day date, hour int"
    with pytest.raises(Exception, match="Parquet magic bytes"):
        load("/events", schema=frame).where("day = '2026-01-02'").collect()
    spark.conf.set(PUSHDOWN, "true")
    try:
        register(spark, volume=volume)
        second = load("/events", schema=frame).where("day = '2026-01-02'")
        assert rows(second) == [
            (10, "n1", dt.date(2026, 1, 2), 1),
            (11, None, dt.date(2026, 1, 2), 1),
        ]
        assert rows(second.where("name is not null and id >= 10").select("id")) == [(10,)]
        assert rows(second.where("name like 'x%'")) == []
        assert rows(second.where("hour in (1, 2) and id <> 10").select("id")) == [(11,)]
    finally:
        spark.conf.set(PUSHDOWN, "false")


# Without Spark


@everywhere
def test_tasks_ask_the_table_nothing(fs: S3kSyncClient, volume: VolumeConfig) -> None:
    days(fs)
    files = found_files(fs, ["/events"])
    plan = ReadPlan(inferred_schema(fs, files, "parquet", merged=False), "parquet")
    (splits,) = planned(fs, plan, files, limit=2**20 * 128, parallelism=1)
    with S3kSyncClient(config=volume) as task:
        opening = task.requests
        assert sum(batch.num_rows for batch in read_splits(task, plan, splits)) == 6
        asked = task.requests - opening
    assert (asked.of("table"), asked.of("log"), asked.of("data")) == (0, 0, 3)


@embedded
def test_large_files_are_cut_by_row_groups_and_small_ones_joined(
    load: Callable[..., DataFrame], fs: S3kSyncClient
) -> None:
    big = parquet(
        {"id": range(10_000)}, row_group_size=1000, compression="none", use_dictionary=False
    )
    for number in range(3):
        fs.write(f"/mixed/{number}", parquet({"id": [-number]}))
    fs.write("/mixed/big", big)
    files = found_files(fs, ["/mixed"])
    splits = splits_of(fs, files, 20_000, parquet=True)
    cut = [split.row_groups for split in splits if split.file.path == "/mixed/big"]
    assert cut == [(0, 1), (2, 3), (4, 5), (6, 7), (8, 9)]
    assert [split.row_groups for split in splits_of(fs, files, 10**6, parquet=True)] == [None] * 4
    frame = load("/mixed", max_partition_bytes=20_000)
    assert frame.rdd.getNumPartitions() == 8
    assert frame.count() == 10_003
    assert frame.agg({"id": "sum"}).collect()[0][0] == sum(range(10_000)) - 3


def test_neighbours_are_joined_up_to_the_limit_and_for_all_tasks(
    fs_free_splits: list[ReadSplit],
) -> None:
    mib = 2**20
    assert [len(group) for group in joined(fs_free_splits, 4 * mib)] == [4, 4, 2]
    assert [len(group) for group in joined(fs_free_splits, 128 * mib)] == [10]
    assert [len(group) for group in joined(fs_free_splits, 128 * mib, parallelism=5)] == [2] * 5
    assert joined([], 128 * mib) == []


@pytest.fixture
def fs_free_splits() -> list[ReadSplit]:
    from s3k_async.spark.source_splits import SourceFile

    return [ReadSplit(SourceFile(f"/{number}", "key", 10, "", 0), 10) for number in range(10)]


@embedded
def test_bytes_that_were_collected_meanwhile_are_told_with_the_path(fs: S3kSyncClient) -> None:
    fs.write("/x/a.parquet", parquet({"id": [1]}))
    files = found_files(fs, ["/x"])
    plan = ReadPlan(inferred_schema(fs, files, "parquet", merged=False), "parquet")
    fs._call(lambda client: client._volume().storage.delete(files[0].physical))
    with pytest.raises(DataMissingError, match=r"/x/a\.parquet"):
        list(read_splits(fs, plan, [ReadSplit(files[0], files[0].size)]))


@embedded
@pytest.mark.parametrize("format", ["parquet", "orc", "json", "arrow"])
def test_a_file_that_has_another_format_is_told_with_the_path(
    fs: S3kSyncClient, format: str
) -> None:
    fs.write("/x/notes.txt", b"no such thing")
    files = found_files(fs, ["/x"])
    plan = ReadPlan(StructType().add("id", "long"), format)
    attempts: list[Callable[[], object]] = [
        lambda: inferred_schema(fs, files, format, merged=False),
        lambda: list(read_splits(fs, plan, [ReadSplit(files[0], files[0].size)])),
    ]
    if format == "parquet":
        attempts.append(lambda: splits_of(fs, files, 1, parquet=True))
    for attempt in attempts:
        with pytest.raises(InvalidArgumentError, match="option format") as caught:
            attempt()
        assert caught.value.path == "/x/notes.txt"


@embedded
def test_values_that_do_not_fit_are_told_with_the_path(fs: S3kSyncClient) -> None:
    for path, data in {"/x/a.parquet": {"id": ["one"]}, "/y/id=one/a.parquet": {"n": [1]}}.items():
        fs.write(path, parquet(data))
        files = found_files(fs, [path[:2]])
        plan = ReadPlan(StructType().add("id", "long"), "parquet")
        with pytest.raises(InvalidArgumentError, match="one") as caught:
            list(read_splits(fs, plan, [ReadSplit(files[0], files[0].size)]))
        assert caught.value.path == path


@embedded
def test_files_are_pruned_by_the_conditions_that_are_decided(fs: S3kSyncClient) -> None:
    days(fs)
    fs.write(
        "/events/day=__HIVE_DEFAULT_PARTITION__/hour=9/part-0.parquet",
        parquet({"id": [90], "name": ["z"]}),
    )
    files = found_files(fs, ["/events"])
    schema = inferred_schema(fs, files, "parquet", merged=False)

    def left(*conditions: ColumnFilter) -> list[str]:
        groups = planned(
            fs, ReadPlan(schema, "parquet", conditions), files, limit=2**27, parallelism=1
        )
        return [split.file.path.split("/")[2][4:] for group in groups for split in group]

    first, second, third = (f"2026-01-0{day}" for day in (1, 2, 3))
    assert left(ColumnFilter("day", ">", dt.date(2026, 1, 1))) == [second, third]
    assert left(ColumnFilter("day", "null")) == ["__HIVE_DEFAULT_PARTITION__"]
    assert left(ColumnFilter("day", "=", dt.date(2026, 1, 2), negated=True)) == [first, third]
    assert left(ColumnFilter("hour", "in", (0, 9)), ColumnFilter("day", "null", negated=True)) == [
        first
    ]
    assert len(left(ColumnFilter("id", "=", 0), ColumnFilter("day", "=", "2026-01-01"))) == 4


@embedded
def test_partition_columns_have_to_be_the_same(fs: S3kSyncClient) -> None:
    days(fs)
    fs.write("/events/other=1/part-0.parquet", parquet({"id": [1]}))
    with pytest.raises(InvalidArgumentError, match="cannot be read together"):
        inferred_schema(fs, found_files(fs, ["/events"]), "parquet", merged=False)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (["1", "-2", None], pa.int32()),
        (["1", str(2**40)], pa.int64()),
        (["1", str(2**63)], pa.string()),
        ([str(-(2**31))], pa.int32()),
        (["2026-01-31", None], pa.date32()),
        (["2026-02-31"], pa.string()),
        (["1", "2026-01-31"], pa.string()),
        ([None], pa.string()),
    ],
)
def test_types_of_partition_columns(values: list[str | None], expected: pa.DataType) -> None:
    assert inferred_type(values) == expected


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"no_such": "1"}, "unknown option 'no_such'"),
        ({"format": "xml"}, "option format: 'xml' is not one of"),
        ({"max_partition_bytes": "many"}, "not a size"),
        ({"columns": "a,,b"}, "no list of different columns"),
        ({"partition_columns": "a,a"}, "no list of different columns"),
        ({"paths": "no json"}, "a JSON list of paths"),
        ({"secret_access_key": "hush"}, "secrets are not shipped"),
    ],
)
def test_options_that_are_none(options: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message) as raised:
        SourceOptions.of(options)
    assert "hush" not in str(raised.value)


def test_options_of_the_volume_are_passed_on_and_secrets_of_the_session_stay(
    spark: SparkSession,
) -> None:
    from s3k_async.spark.settings import spark_settings
    from s3k_async.spark.source_options import SourceSettings

    for name, value in {
        "fs.s3k.metastore.dynamo.table.events": "tree",
        "fs.s3k.metastore.dynamo.access.events": "key",
        "fs.s3k.metastore.dynamo.secret.events": "hush",
        "fs.s3k.volume.kind.events": "native",
        "fs.s3a.secret.key": "hush",
        "fs.s3a.bucket.events.access.key": "key",
        "fs.s3a.bucket.events.secret.key": "hush",
        "fs.s3a.bucket.events.session.token": "hush",
    }.items():
        spark.conf.set(name, value)
    session = spark_settings(spark)
    assert "hush" in session.hadoop.values()
    assert not {"hush", "key"} & set(session.without_secrets().hadoop.values())
    asked = SourceOptions.of({"path": "s3k://events/a", "MAX_CONCURRENCY": "3", "Format": "csv"})
    found = SourceSettings(session.without_secrets()).volume_of(asked)
    assert (found.driver.name, found.driver.tuning.max_concurrency, asked.format) == (
        "events",
        3,
        "csv",
    )
    assert getattr(found.executors.table, "name", None) == "tree"
    given = SourceSettings(session, volume=spark_volume(spark, "s3k://events"))
    assert given.volume_of(SourceOptions.of({"path": "s3k://events/a"})) is given.volume
    with pytest.raises(ConfigError, match="several volumes"):
        given.volume_of(SourceOptions.of({"paths": '["s3k://events/a", "s3k://others/a"]'}))


PLANNING = """
import pickle, sys
from pyspark.sql.types import StructType
with open(sys.argv[1], "rb") as file:
    source, writer = pickle.load(file)
schema = source.schema()
assert schema.names == ["id", "name", "day", "hour"]
assert len(source.reader(schema).partitions()) > 0
writer.commit([])
print(sorted({"pandas", "pyarrow.dataset"} & set(sys.modules)))
"""


@embedded
def test_planning_and_commit_load_no_pandas(
    fs: S3kSyncClient, volume: VolumeConfig, tmp_path: Path
) -> None:
    """Spark does each in a process of its own, and loading pandas takes longer than all the
    rest."""
    days(fs)
    source = S3kDataSource({"path": "/events"})
    source.session = SourceSettings(SparkSettings({}, None, None), SparkVolume(volume, volume))
    schema = StructType().add("id", "long")
    (tmp_path / "pickled").write_bytes(pickle.dumps((source, source_writer(volume, schema))))
    command = [sys.executable, "-c", PLANNING, str(tmp_path / "pickled")]
    found = subprocess.run(
        command, env=os.environ | {"PYTHONPATH": str(ROOT)}, capture_output=True, check=False
    )
    assert found.stderr.decode() == ""
    assert found.stdout.decode() == "[]\n"


def source_writer(volume: VolumeConfig, schema: StructType) -> S3kWriter:
    plan = write_plan(SourceOptions.of({"path": "/out"}), schema, SYSTEM.uuid(), overwrite=False)
    return S3kWriter(SparkVolume(volume, volume), plan)
