"""Bulk import over Spark: existing objects of the data location become files, without a copy."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from functools import partial
from typing import Any, Final, Literal, TypeAlias

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sf

from s3k_async._core.concurrency import run_all
from s3k_async._sync.sync_client import S3kSyncClient
from s3k_async.bulk.adoption import LOOKS, canonical_uri, is_own, look_at
from s3k_async.client import S3kClient
from s3k_async.config import VolumeConfig
from s3k_async.errors import (
    DataMissingError,
    InvalidArgumentError,
    PathExistsError,
    S3kError,
    UnsupportedError,
)
from s3k_async.model import Content, FileStatus
from s3k_async.spark.job_report import (
    ALREADY,
    DONE,
    FAILED,
    OUTCOME,
    PLANNED,
    JobResult,
    JobRun,
    error_fields,
    spark_schema,
)
from s3k_async.spark.path_tasks import (
    TASKS_PER_CORE,
    Batches,
    ChangeStage,
    Outcome,
    Seen,
    look,
    need_columns,
    normalised,
    text,
)
from s3k_async.spark.saved_plan import SavedPlan
from s3k_async.spark.settings import SparkVolume, patient, spark_volume
from s3k_async.spark.worker_client import each_partition
from s3k_async.stores.pagination import list_all, list_first_level
from s3k_async.volumes.volume import Volume

__all__ = ["import_objects", "objects_below", "objects_of_inventory"]

Division = Literal["directories", "hex"]

_IMPORTS: Final = pa.schema(
    [
        pa.field("uri", pa.string()),
        pa.field("path", pa.string()),
        pa.field("is_dir", pa.bool_()),
        pa.field("size", pa.int64()),
        *OUTCOME,
    ]
)
_OBJECTS: Final = pa.schema(
    [("uri", pa.string()), ("size", pa.int64()), ("path", pa.string()), ("etag", pa.string())]
)
_PIECE: Final = "name string, start string, until string"
ROWS: Final = 10_000
"""Of a batch."""

Found: TypeAlias = tuple[str, int, str, str]
"""URI, size, path and etag of an object."""
_KNOWN: Final = (("size", "long"), ("etag", "string"))
"""What a list may tell of objects."""


def import_objects(
    spark: SparkSession,
    volume: str | VolumeConfig | SparkVolume,
    objects: DataFrame,
    *,
    overwrite: bool = False,
    dry_run: bool = True,
    tasks: int | None = None,
) -> JobResult:
    """Make objects files by a DataFrame of `uri`, `path` and, if they are known, `size` and `etag`,
    without a copy.

    The objects lie in the volume's data location; each keeps its key, and is never collected
    (`S3kClient.adopt_many`). The result has a row for each: `uri path is_dir size outcome error
    message`, its outcome `done`, `already` (the entry at the path names this object, as it is),
    `failed`, or `planned` in a dry run. Planning looks at the table, and of what it has already at
    those objects whose size and etag are not known, or are others. Parents are made. The same call
    again, after an interruption too, finishes the work. A path or an object that is named twice,
    however it is spelled, is refused before anything is changed. Raises InvalidArgumentError.
    """
    need_columns(objects, "uri", "path")
    opened = patient(spark_volume(spark, volume))
    run = JobRun(spark, "import", opened.driver.name, dry_run=dry_run)
    rows = objects.select(
        "uri", "path", *(_known(objects, *column) for column in _KNOWN)
    ).distinct()
    plan = SavedPlan(run, spark, None, _IMPORTS, rows)
    work = each_partition(opened.executors, _planned_by(overwrite))
    meant = plan.made(lambda rows: rows.mapInArrow(work, plan.schema))
    for column, what in (("path", "the path"), ("uri", "the object")):
        twice = (
            meant.dropna(subset=[column])
            .groupBy(column)
            .count()
            .filter("count > 1")
            .limit(1)
            .collect()
        )
        if twice:
            raise InvalidArgumentError(f"several rows name {what}", path=twice[0][column])
    if dry_run:
        return run.result(meant, "path")
    adopt = each_partition(opened.executors, ChangeStage(run.requests, _Adopt(overwrite)))
    with run.stage("importing"):
        count = tasks or spark.sparkContext.defaultParallelism * TASKS_PER_CORE
        by_parent = meant.repartition(count, sf.regexp_extract("path", "(?s)^(.*)/", 1))
        return run.result(run.kept(by_parent.mapInArrow(adopt, plan.schema)), "path")


def objects_below(
    spark: SparkSession,
    volume: str | VolumeConfig | SparkVolume,
    source: str,
    target: str,
    *,
    divide: Division = "directories",
    tasks: int | None = None,
) -> DataFrame:
    """Columns `uri`, `size`, `path` and `etag` of the objects below a URI of the volume's data
    location, as if the names behind it were below `target`. The volume's own objects, and markers
    of directories, are left out. Lazy.

    Tasks list the names behind the URI that end with a `/`. The driver looks for those names, with
    a request for each, and lists the objects beside them itself, a thousand in a request. With
    `divide="hex"` tasks list 256 computed ranges instead, for random keys that begin with
    hexadecimal digits. Raises UnsupportedError for a URI elsewhere.
    """
    if divide not in ("directories", "hex"):
        raise InvalidArgumentError(f"divide is 'directories' or 'hex', not {divide!r:.50}")
    opened = spark_volume(spark, volume)
    count = tasks or spark.sparkContext.defaultParallelism * TASKS_PER_CORE
    below = target.rstrip("/")
    with S3kSyncClient(config=opened.driver) as fs:
        prefix = fs._call(lambda client: _key_prefix(client, source))
        first = list(fs._iterate(_first_level(prefix, below))) if divide == "directories" else []
    if divide == "hex":
        bounds = [_before(f"{prefix}{n:02x}") for n in range(256)]
        pieces = list(zip([prefix] * 257, ["", *bounds], [*bounds, None], strict=True))
    else:
        pieces = [
            (name, "", None)
            for name in dict.fromkeys(each for each in first if isinstance(each, str))
        ]
    frame = spark.createDataFrame(pieces, _PIECE).repartition(max(1, min(count, len(pieces))))
    work = _listed_below(prefix, below)
    listed = frame.mapInArrow(each_partition(opened.executors, work), spark_schema(_OBJECTS))
    beside = [each for each in first if not isinstance(each, str)]
    return (
        listed.unionByName(spark.createDataFrame(beside, spark_schema(_OBJECTS)))
        if beside
        else listed
    )


def objects_of_inventory(
    spark: SparkSession,
    volume: str | VolumeConfig | SparkVolume,
    manifest: str,
    target: str,
    *,
    prefix: str = "",
    root: str | None = None,
) -> DataFrame:
    """As `objects_below`, of the objects that an S3 Inventory lists: those whose key begins with
    `prefix`, as if the rest of the key were below `target`. What lies outside of the volume's data
    location is not left out.

    `manifest`: the place of its `manifest.json`, as Spark reads it. Its files are read from `root`,
    without one from the bucket that the manifest names, by S3A. CSV and Parquet; of several
    versions the latest. Raises UnsupportedError.
    """
    opened = spark_volume(spark, volume)
    document = json.loads(spark.read.text(manifest, wholetext=True).collect()[0]["value"])
    form = document["fileFormat"]
    base = root or f"s3a://{document['destinationBucket'].rpartition(':')[2]}"
    places = [f"{base.rstrip('/')}/{file['key']}" for file in document["files"]]
    if form == "CSV":
        names = [_snake(name) for name in document["fileSchema"].split(",")]
        found = spark.read.csv(places, schema=", ".join(f"`{name}` string" for name in names))
        # Keys are encoded as in a form, also their spaces.
        found = found.withColumn("key", sf.url_decode("key"))
    elif form == "Parquet":
        found = spark.read.parquet(*places)
    else:
        raise UnsupportedError(
            f"an inventory in CSV or Parquet can be read, not in {form}", path=manifest
        )
    for name, wanted in (("is_latest", "true"), ("is_delete_marker", "false")):
        if name in found.columns:
            found = found.filter(sf.lower(sf.col(name).cast("string")) == wanted)
    key = sf.col("key")
    etag = next((name for name in ("e_tag", "etag") if name in found.columns), None)
    mine = found.filter(key.startswith(prefix) & ~key.endswith("/"))
    rest = sf.regexp_replace(sf.substring(key, len(prefix) + 1, 2048), "^/", "")
    listed = mine.select(
        sf.concat(sf.lit("s3://"), sf.col("bucket"), sf.lit("/"), key).alias("uri"),
        sf.col("size").cast("long").alias("size"),
        sf.concat(sf.lit(target.rstrip("/") + "/"), rest).alias("path"),
        (sf.lit(None) if etag is None else sf.regexp_replace(etag, '"', ""))
        .cast("string")
        .alias("etag"),
    )
    return listed.mapInArrow(each_partition(opened.executors, _without_own), spark_schema(_OBJECTS))


def _without_own(fs: S3kSyncClient, batches: Iterable[pa.RecordBatch]) -> Batches:
    """The objects but for those of the volume."""

    async def wanted(uris: Sequence[str], client: S3kClient) -> list[bool]:
        volume = client._volume()
        keys = [volume.storage.place_key(uri) for uri in uris]
        return [key is None or not is_own(volume, key) for key in keys]

    for batch in batches:
        yield batch.filter(
            pa.array(fs._call(partial(wanted, batch.column("uri").to_pylist())), pa.bool_())
        )


def _known(objects: DataFrame, name: str, kind: str) -> Column:
    """What the list tells, or null."""
    return (sf.col(name) if name in objects.columns else sf.lit(None)).cast(kind).alias(name)


def _snake(name: str) -> str:
    """`IsLatest` as `is_latest`: as inventories in Parquet name their columns."""
    return "".join(
        f"_{letter.lower()}" if letter.isupper() else letter for letter in name.strip()
    ).lstrip("_")


async def _key_prefix(client: S3kClient, source: str) -> str:
    storage = client._volume().storage
    # A name after the `/`, since a URI of nothing but a place is none of an object.
    key = storage.place_key(f"{source.rstrip('/')}/-") if "://" in source else None
    if key is None:
        raise UnsupportedError(
            "objects are imported from below the volume's data location", path=source
        )
    return key.removesuffix("-")


def _before(name: str) -> str:
    """A key before all that begin with a name of digits and small letters, and behind what comes
    before it: not the name itself, since SeaweedFS leaves out a directory that a listing is to
    begin behind.
    """
    before = chr(ord(name[-1]) - 1)
    return f"{name[:-1]}{'.' if before == '/' else before}~"


def _first_level(
    prefix: str, target: str
) -> Callable[[S3kClient], AsyncIterator[Sequence[str | Found]]]:
    """The names behind a prefix that end with a `/`, and what is beside them."""

    async def pages(client: S3kClient) -> AsyncIterator[Sequence[str | Found]]:
        volume = client._volume()
        async for page in list_first_level(volume.place, prefix):
            found: dict[str | Found, None] = {}
            for blob in page:
                name, slash, _ = blob.key[len(prefix) :].partition("/")
                if slash:
                    found[f"{prefix}{name}/"] = None
                elif not _is_none(volume, blob.key):
                    found[volume.place.uri(blob.key), blob.size, f"{target}/{name}", blob.etag] = (
                        None
                    )
            yield list(found)

    return pages


def _is_none(volume: Volume, key: str) -> bool:
    """Whether an object is not to be imported: the volume's, or the marker of a directory."""
    return key.endswith("/") or is_own(volume, key)


def _listed_below(
    prefix: str, target: str
) -> Callable[[S3kSyncClient, Iterable[pa.RecordBatch]], Batches]:
    def listed(fs: S3kSyncClient, batches: Iterable[pa.RecordBatch]) -> Batches:
        for batch in batches:
            for piece in zip(*(column.to_pylist() for column in batch.columns), strict=True):
                yield from fs._iterate(_objects(piece, len(prefix), target))

    return listed


def _objects(
    piece: tuple[str, str, str | None], strip: int, target: str
) -> Callable[[S3kClient], AsyncIterator[Sequence[pa.RecordBatch]]]:
    name, start, until = piece

    async def pages(client: S3kClient) -> AsyncIterator[Sequence[pa.RecordBatch]]:
        volume = client._volume()
        rows: list[Found] = []
        async for blob in list_all(volume.place, name, after=start):
            if until is not None and blob.key > until:
                break
            if _is_none(volume, blob.key):
                continue
            rows.append(
                (volume.place.uri(blob.key), blob.size, f"{target}/{blob.key[strip:]}", blob.etag)
            )
            if len(rows) == ROWS:
                yield [_columns(rows)]
                rows = []
        if rows:
            yield [_columns(rows)]

    return pages


def _columns(rows: list[Found]) -> pa.RecordBatch:
    columns = [
        pa.array(list(column), field.type)
        for column, field in zip(zip(*rows, strict=True), _OBJECTS, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=_OBJECTS)


# In tasks


def _planned_by(overwrite: bool) -> Callable[[S3kSyncClient, Iterable[pa.RecordBatch]], Batches]:
    def plan(fs: S3kSyncClient, batches: Iterable[pa.RecordBatch]) -> Batches:
        for batch in batches:
            given = {name: batch.column(name).to_pylist() for name in batch.schema.names}
            uris = _canonical(fs, given["uri"])
            paths = [normalised(fs, path) for path in given["path"]]
            seen = look(fs, paths)
            same = _same(fs, uris, seen, zip(given["size"], given["etag"], strict=True))
            outcomes = [
                _import_outcome(*row, overwrite=overwrite)
                for row in zip(uris, paths, seen, same, strict=True)
            ]
            columns = [
                [
                    uri if isinstance(uri, str) else said
                    for uri, said in zip(uris, given["uri"], strict=True)
                ],
                text(given["path"], paths),
                [False] * len(paths),
                given["size"],
                *zip(*outcomes, strict=True),
            ]
            arrays = [
                pa.array(list(column), field.type)
                for column, field in zip(columns, _IMPORTS, strict=True)
            ]
            yield pa.RecordBatch.from_arrays(arrays, schema=_IMPORTS)

    return plan


def _canonical(fs: S3kSyncClient, uris: Sequence[str | None]) -> list[str | S3kError]:
    """The URIs as entries name objects, or why there is none."""

    async def canonical(client: S3kClient) -> list[str | S3kError]:
        found: list[str | S3kError] = []
        for uri in uris:
            try:
                found.append(canonical_uri(client._volume(), uri or ""))
            except S3kError as error:
                found.append(error)
        return found

    return fs._call(canonical)


def _same(
    fs: S3kSyncClient,
    uris: Sequence[str | S3kError],
    seen: Sequence[Seen],
    listed: Iterable[tuple[int | None, str | None]],
) -> list[bool | S3kError]:
    """Whether the entry at the path names the object, as it is. Where the list does not tell, the
    object is looked at; the error of one that is not there any more is in its place.
    """
    named = [
        found if isinstance(found, FileStatus) and found.physical == uri else None
        for uri, found in zip(uris, seen, strict=True)
    ]
    unsure = [
        found.physical or ""
        for found, facts in zip(named, listed, strict=True)
        if found is not None and (found.size, found.etag) != facts
    ]
    now = fs._call(lambda client: _looked_at(client, unsure))
    answers: list[bool | S3kError] = []
    for found in named:
        content = now.get(found.physical or "") if found is not None else None
        if found is None or isinstance(content, S3kError):
            answers.append(content if isinstance(content, S3kError) else False)
        else:
            answers.append(
                content is None or (content.size, content.etag) == (found.size, found.etag)
            )
    return answers


async def _looked_at(client: S3kClient, uris: Sequence[str]) -> dict[str, Content | S3kError]:
    looked: dict[str, Content | S3kError] = {}

    async def look_once(uri: str) -> None:
        try:
            looked[uri] = await look_at(client._volume(), uri)
        except DataMissingError as error:
            looked[uri] = error

    await run_all(look_once, dict.fromkeys(uris), limit=LOOKS)
    return looked


def _import_outcome(
    uri: str | S3kError, path: str | S3kError, seen: Seen, same: bool | S3kError, *, overwrite: bool
) -> Outcome:
    for error in (uri, seen, same):
        if isinstance(error, S3kError):
            return (FAILED, *error_fields(error))
    if same:
        return (ALREADY, None, None)
    if isinstance(seen, FileStatus) and (seen.is_dir or not overwrite):
        return (
            FAILED,
            *error_fields(PathExistsError("something is at the path already", path=str(path))),
        )
    return (PLANNED, None, None)


class _Adopt:
    def __init__(self, overwrite: bool) -> None:
        self._overwrite = overwrite

    def __call__(self, fs: S3kSyncClient, rows: list[dict[str, Any]]) -> list[Outcome]:
        done = fs.adopt_many([(row["path"], row["uri"]) for row in rows], overwrite=self._overwrite)
        errors = dict(done.failures)
        return [
            (FAILED, *error_fields(errors[row["path"]]))
            if row["path"] in errors
            else (DONE, None, None)
            for row in rows
        ]
