"""Objects that others have stored in the data location become files, through Spark."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote_plus

import anyio
import pytest

from s3k_async import S3kClient, S3kSyncClient
from s3k_async.backends.location import OpenContext
from s3k_async.config import S3Bucket, VolumeConfig
from s3k_async.errors import InvalidArgumentError, UnsupportedError
from s3k_async.model import LayoutName
from s3k_async.spark import import_objects, objects_below, objects_of_inventory
from s3k_async.volumes import init_volume
from tests.engines.volumes import VolumeMaker, fresh_name, volume_backends

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark
everywhere = volume_backends("dynoxide+seaweedfs", slow=["embedded"])
both = volume_backends("dynoxide+seaweedfs", slow=["embedded"], tree=["embedded"])
embedded = volume_backends("embedded")

OBJECTS = {
    **{
        f"legacy/{day}/{number}": f"{day}/{number}".encode()
        for day in ("a", "b é", "b")
        for number in range(5)
    },
    "legacy/top": b"top",
    "legacy/ff/odd": b"1",
    "legacy-2/other": b"2",
}
BELOW = {
    f"/in/{key.removeprefix('legacy/')}": data
    for key, data in OBJECTS.items()
    if key.startswith("legacy/")
}


@pytest.fixture
async def volume(new_volume: VolumeMaker, layout: LayoutName) -> VolumeConfig:
    """A volume with a file of its own, and objects of others beside its bytes."""
    config = new_volume(layout=layout)
    await init_volume(config)
    async with S3kClient(config=config) as fs:
        await fs.write("/own", b"own")
        for key, data in OBJECTS.items():
            await fs._volume().place.put(key, data)
    return config


def place_of(volume: VolumeConfig) -> str:
    """The URI of the data location."""

    async def location(client: S3kClient) -> str:
        return client._volume().place.uri("-").removesuffix("/-")

    with S3kSyncClient(config=volume) as fs:
        return fs._call(location)


def contents(volume: VolumeConfig, path: str) -> dict[str, bytes]:
    with S3kSyncClient(config=volume) as fs:
        paths = [status.path for status in fs.list(path, recursive=True) if status.is_file]
        return dict(zip(paths, fs.read_many(paths), strict=True))


@both
def test_objects_below_a_prefix_become_files(spark: SparkSession, volume: VolumeConfig) -> None:
    source = f"{place_of(volume)}/legacy/"
    objects = objects_below(spark, volume, source, "/in", tasks=3)
    rows = {row.path: (row.uri, row.size) for row in objects.collect()}
    assert {path: size for path, (_, size) in rows.items()} == {
        path: len(data) for path, data in BELOW.items()
    }
    dry = import_objects(spark, volume, objects, tasks=2).report
    assert (dry.planned, dry.files, dry.bytes) == (
        len(BELOW),
        len(BELOW),
        sum(map(len, BELOW.values())),
    )

    # An earlier run was interrupted, and another program's file is in the way of one.
    taken, *others = sorted(rows)
    with S3kSyncClient(config=volume) as fs:
        fs.write(taken, b"taken")
        fs.adopt_many([(path, rows[path][0]) for path in others[:5]])
    done = import_objects(spark, volume, objects, dry_run=False, tasks=2)
    assert {row.path: (row.outcome, row.error) for row in done.frame.collect()} == {
        taken: ("failed", "PathExistsError"),
        **dict.fromkeys(others[:5], ("already", None)),
        **dict.fromkeys(others[5:], ("done", None)),
    }
    assert contents(volume, "/in") == {**BELOW, taken: b"taken"}
    again = import_objects(spark, volume, objects, overwrite=True, dry_run=False, tasks=2).report
    assert (again.done, again.already, again.failed) == (1, len(BELOW) - 1, 0)
    assert contents(volume, "/in") == BELOW
    with S3kSyncClient(config=volume) as fs:
        assert fs.physical_path(taken) == rows[taken][0]


@everywhere
def test_objects_of_another_bucket(spark: SparkSession, volume: VolumeConfig) -> None:
    if not isinstance(volume.data, S3Bucket):
        with pytest.raises(UnsupportedError, match="another bucket"):
            objects_below(spark, volume, "s3://other/legacy", "/in")
        return
    name = fresh_name("other")
    blobs = S3Bucket(name, "", volume.data.aws).open(OpenContext())

    async def fill() -> None:
        await blobs.create()
        for key, data in OBJECTS.items():
            await blobs.put(key, data)
        await blobs.close()

    anyio.run(fill)
    objects = objects_below(spark, volume, f"s3://{name}/legacy", "/in")
    done = import_objects(spark, volume, objects, dry_run=False)
    assert done.report.done == len(BELOW)
    with S3kSyncClient(config=volume) as fs:
        assert dict(zip(BELOW, fs.read_many(list(BELOW)), strict=True)) == BELOW
    again = import_objects(spark, volume, objects, dry_run=False)
    assert (again.report.done, again.report.already) == (0, len(BELOW))


@embedded
def test_what_cannot_be_imported(spark: SparkSession, volume: VolumeConfig) -> None:
    place = place_of(volume)
    with S3kSyncClient(config=volume) as fs:
        own = fs.physical_path("/own")
    rows = [
        (f"file:{place.removeprefix('file://')}/legacy/top", "/a"),
        (f"{place}/missing", "/b"),
        ("s3://else/where", "/c"),
        (own, "/d"),
        (None, "/e"),
    ]
    objects = spark.createDataFrame(
        [*rows, (f"{place}/legacy-2/other", "/..")], "uri string, path string"
    )
    done = import_objects(spark, volume, objects, dry_run=False, tasks=2)
    assert {row.path: (row.outcome, row.error) for row in done.frame.collect()} == {
        "/a": ("done", None),
        "/b": ("failed", "DataMissingError"),
        "/c": ("failed", "UnsupportedError"),
        "/d": ("failed", "UnsupportedError"),
        "/e": ("failed", "UnsupportedError"),
        "/..": ("failed", "InvalidPathError"),
    }
    top = f"{place}/legacy/top"
    for twice in (
        [(top, "/x"), (top, "/y")],
        [(top, "/x"), rows[0]],
        [rows[0], (rows[1][0], "//a")],
    ):
        with pytest.raises(InvalidArgumentError, match="several rows name"):
            import_objects(
                spark,
                volume,
                spark.createDataFrame(twice, "uri string, path string"),
                dry_run=False,
            )
    with pytest.raises(UnsupportedError):
        objects_below(spark, volume, "s3://else/where", "/in")


@pytest.mark.slow
@everywhere
@pytest.mark.parametrize(
    "columns", ["uri string, path string", "uri string, path string, size long"]
)
def test_an_object_that_was_replaced_in_place_is_not_already_imported(
    spark: SparkSession, volume: VolumeConfig, columns: str
) -> None:
    place = place_of(volume)
    rows = [
        (f"{place}/legacy/b/{number}", f"/in/{number}", 3)[: columns.count(",") + 1]
        for number in range(4)
    ]
    objects = spark.createDataFrame(rows, columns)
    assert import_objects(spark, volume, objects, dry_run=False, tasks=2).report.done == 4
    with S3kSyncClient(config=volume) as fs:
        fs._call(lambda client: client._volume().place.put("legacy/b/1", b"B/1"))
        fs._call(lambda client: client._volume().place.delete("legacy/b/2"))
    found = import_objects(spark, volume, objects, dry_run=False, tasks=2)
    wanted = {f"/in/{number}": ("already", None) for number in (0, 3)}
    gone = {"/in/2": ("failed", "DataMissingError")}
    assert {row.path: (row.outcome, row.error) for row in found.frame.collect()} == {
        **wanted,
        **gone,
        "/in/1": ("failed", "PathExistsError"),
    }
    found = import_objects(spark, volume, objects, overwrite=True, dry_run=False, tasks=2)
    assert {row.path: (row.outcome, row.error) for row in found.frame.collect()} == {
        **wanted,
        **gone,
        "/in/1": ("done", None),
    }
    with S3kSyncClient(config=volume) as fs:
        assert fs.read("/in/1") == b"B/1"


@embedded
def test_the_whole_place_by_computed_ranges(spark: SparkSession, volume: VolumeConfig) -> None:
    found = objects_below(spark, volume, place_of(volume), "/", divide="hex", tasks=4).collect()
    assert sorted(row.path for row in found) == sorted(f"/{key}" for key in OBJECTS)


OWN = "old/0d5a.id=5f1c9b62-4a0e-4d0c-8a55-0a6b3c1d2e3f"
KEYS = ["old/a b/ü&+", "old/plain", "old/dir/", "elsewhere", "old/gone", "old/former", OWN]
SIZES = [7, 8, 0, 9, None, 9, 9]
ETAGS = ["e1", "e2", "e3", "e4", None, "e6", "e7"]


@volume_backends("dynoxide+seaweedfs")
@pytest.mark.parametrize("form", ["CSV", pytest.param("Parquet", marks=pytest.mark.slow)])
def test_objects_of_an_inventory(
    spark: SparkSession, volume: VolumeConfig, tmp_path: Path, form: str
) -> None:
    place = volume.data
    assert isinstance(place, S3Bucket)
    keys = [place.prefix + key for key in KEYS]
    if form == "CSV":
        file = "inventory/one.csv.gz"
        (tmp_path / "inventory").mkdir()
        lines = [",".join(f'"{text}"' for text in line) for line in csv_of(place.bucket, keys)]
        (tmp_path / file).write_bytes(gzip.compress("\n".join(lines).encode()))
    else:
        file = "inventory"
        columns = (
            "bucket string, key string, size long, is_latest boolean, is_delete_marker boolean, "
            "e_tag string"
        )
        spark.createDataFrame(
            [
                (place.bucket, key, size, key != keys[5], key == keys[4], etag)
                for key, size, etag in zip(keys, SIZES, ETAGS, strict=True)
            ],
            columns,
        ).coalesce(1).write.parquet(str(tmp_path / file))
    manifest = {
        "sourceBucket": place.bucket,
        "destinationBucket": "arn:aws:s3:::inventories",
        "fileFormat": form,
        "fileSchema": "Bucket, Key, Size, IsLatest, IsDeleteMarker, ETag",
        "files": [{"key": file, "size": 1}],
    }
    (tmp_path / "manifest.json").write_text(json.dumps(manifest))
    found = objects_of_inventory(
        spark,
        volume,
        str(tmp_path / "manifest.json"),
        "/in",
        prefix=f"{place.prefix}old/",
        root=str(tmp_path),
    )
    root = f"s3://{place.bucket}/{place.prefix}"
    assert sorted(map(tuple, found.collect())) == [
        (f"{root}old/a b/ü&+", 7, "/in/a b/ü&+", "e1"),
        (f"{root}old/plain", 8, "/in/plain", "e2"),
    ]


def csv_of(bucket: str, keys: list[str]) -> list[tuple[str, ...]]:
    """The lines of an inventory, as S3 writes them."""
    return [
        (
            bucket,
            quote_plus(key, safe="/"),
            "" if size is None else str(size),
            "false" if key == keys[5] else "true",
            "true" if key == keys[4] else "false",
            etag or "",
        )
        for key, size, etag in zip(keys, SIZES, ETAGS, strict=True)
    ]
