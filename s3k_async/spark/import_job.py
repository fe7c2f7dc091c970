"""Bulk import over Spark: existing objects become files, without a copy."""

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
from s3k_async.backends.ports.blobs import BlobStore
from s3k_async.backends.ports.pagination import list_all, list_first_level
from s3k_async.bulk.adoption import LOOKS, canonical_uri, is_own, look_at
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
    JobReport,
    JobResult,
)
from s3k_async.spark.path_tasks import (
    ChangeStage,
    Outcome,
    Seen,
    look,
    need_columns,
    normalised,
    text,
)
from s3k_async.spark.runner import AnyVolume, JobRun
from s3k_async.spark.task_rows import Batches, column_batch, error_fields, row_batch, spark_schema
from s3k_async.spark.worker_client import each_value, on_volume
from s3k_async.volumes import Volume

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
_SPLIT: Final = "name string, start string, until string"
ROWS: Final = 10_000
"""Of a batch."""

Found: TypeAlias = tuple[str, int, str, str]
"""URI, size, path and etag of an object."""
_KNOWN: Final = (("size", "long"), ("etag", "string"))
"""Optional columns of a list of objects."""


def import_objects(
    spark: SparkSession,
    volume: AnyVolume,
    objects: DataFrame,
    *,
    overwrite: bool = False,
    dry_run: bool = True,
    tasks: int | None = None,
) -> JobResult[JobReport]:
    """Adopt the objects of a DataFrame with the columns `uri`, `path` and optionally `size` and
    `etag` as files, without a copy.

    The objects must be in the volume's data location or in another bucket of its service. Each
    keeps its key and is never deleted by garbage collection (`S3kClient.adopt_many`). The result
    has a row for each: `uri path is_dir size outcome error message`, its outcome `done`, `already`
    (the entry at the path references this object in its present state), `failed`, or `planned` in a
    dry run. Planning reads the table, and checks existing objects whose size and etag are unknown
    or differ. Missing parents are created. The same call finishes an interrupted import. If a path
    or an object occurs twice, in any spelling, the import is refused before anything is changed.
    Raises InvalidArgumentError.
    """
    need_columns(objects, "uri", "path")
    job = JobRun(spark, volume, "import", tasks=tasks, dry_run=dry_run, patiently=True)
    rows = objects.select(
        "uri", "path", *(_known(objects, *column) for column in _KNOWN)
    ).distinct()
    work = _planned_by(overwrite)
    plan = job.stage("plan", "planning", _IMPORTS, lambda: job.over_rows(rows, work, _IMPORTS))
    for column, what in (("path", "the path"), ("uri", "the object")):
        twice = (
            plan.dropna(subset=[column])
            .groupBy(column)
            .count()
            .filter("count > 1")
            .limit(1)
            .collect()
        )
        if twice:
            raise InvalidArgumentError(f"several rows name {what}", path=twice[0][column])
    if dry_run:
        return job.result(plan, "path")
    adopt = ChangeStage(job.requests, _Adopt(overwrite))
    with job.described("importing"):
        by_parent = plan.repartition(job.tasks, sf.regexp_extract("path", "(?s)^(.*)/", 1))
        done = job.kept(job.over_rows(by_parent, adopt, _IMPORTS))
    return job.result(done, "path")


def objects_below(
    spark: SparkSession,
    volume: AnyVolume,
    source: str,
    target: str,
    *,
    divide: Division = "directories",
    tasks: int | None = None,
) -> DataFrame:
    """Columns `uri`, `size`, `path` and `etag` of the objects below a URI of the volume's data
    location, or of another bucket of its service, with the rest of each key as the path below
    `target`. Objects of volumes and directory markers are excluded. Lazy.

    The driver finds the first-level prefixes below the URI (names that end with `/`), with one
    request for each, and lists the objects beside them itself, a thousand in a request; tasks list
    the prefixes. With `divide="hex"` tasks list 256 computed ranges instead, for random keys that
    begin with hexadecimal digits. Raises UnsupportedError for a URI elsewhere.
    """
    if divide not in ("directories", "hex"):
        raise InvalidArgumentError(f"divide is 'directories' or 'hex', not {divide!r:.50}")
    job = JobRun(spark, volume, "import", tasks=tasks)
    below = target.rstrip("/")
    with S3kSyncClient(config=job.volume.driver) as fs:
        prefix = on_volume(fs, lambda volume: _key_prefix(volume, source))
        by_name = divide == "directories"
        first = list(each_value(fs, _first_level(source, below))) if by_name else []
    if divide == "hex":
        bounds = [_before(f"{prefix}{n:02x}") for n in range(256)]
        splits = list(zip([prefix] * 257, ["", *bounds], [*bounds, None], strict=True))
    else:
        splits = [
            (name, "", None)
            for name in dict.fromkeys(each for each in first if isinstance(each, str))
        ]
    frame = spark.createDataFrame(splits, _SPLIT).repartition(max(1, min(job.tasks, len(splits))))
    listed = job.over_rows(frame, _listed_below(source, len(prefix), below), _OBJECTS)
    beside = [each for each in first if not isinstance(each, str)]
    return (
        listed.unionByName(spark.createDataFrame(beside, spark_schema(_OBJECTS)))
        if beside
        else listed
    )


def objects_of_inventory(
    spark: SparkSession,
    volume: AnyVolume,
    manifest: str,
    target: str,
    *,
    prefix: str = "",
    root: str | None = None,
) -> DataFrame:
    """As `objects_below`, for the objects in an S3 Inventory whose keys begin with `prefix`; the
    rest of the key is the path below `target`. Objects that cannot be adopted are not excluded.

    `manifest`: the URI of its `manifest.json`, as Spark reads it. Its files are read from `root`,
    by default from the bucket given in the manifest, by S3A. CSV and Parquet; of several versions
    the latest. Raises UnsupportedError.
    """
    job = JobRun(spark, volume, "import")
    document = json.loads(spark.read.text(manifest, wholetext=True).collect()[0]["value"])
    form = document["fileFormat"]
    base = root or f"s3a://{document['destinationBucket'].rpartition(':')[2]}"
    places = [f"{base.rstrip('/')}/{file['key']}" for file in document["files"]]
    if form == "CSV":
        names = [_snake(name) for name in document["fileSchema"].split(",")]
        found = spark.read.csv(places, schema=", ".join(f"`{name}` string" for name in names))
        # Keys are form-encoded, including spaces.
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
    return job.over_rows(listed, _without_own, _OBJECTS)


def _without_own(fs: S3kSyncClient, batches: Iterable[pa.RecordBatch]) -> Batches:
    """The objects without those of the volume."""

    async def wanted(uris: Sequence[str], volume: Volume) -> list[bool]:
        found = [volume.storage.find(uri) for uri in uris]
        return [each is None or not is_own(volume, *each) for each in found]

    for batch in batches:
        of_batch = partial(wanted, batch.column("uri").to_pylist())
        yield batch.filter(pa.array(on_volume(fs, of_batch), pa.bool_()))


def _known(objects: DataFrame, name: str, kind: str) -> Column:
    """An optional column, or nulls."""
    return (sf.col(name) if name in objects.columns else sf.lit(None)).cast(kind).alias(name)


def _snake(name: str) -> str:
    """`IsLatest` as `is_latest`: as inventories in Parquet name their columns."""
    return "".join(
        f"_{letter.lower()}" if letter.isupper() else letter for letter in name.strip()
    ).lstrip("_")


async def _key_prefix(volume: Volume, source: str) -> str:
    return _place(volume, source)[1]


def _place(volume: Volume, source: str) -> tuple[BlobStore, str]:
    """Store and key prefix of a URI. Raises UnsupportedError."""
    # A name after the `/`, since a URI of nothing but a place is none of an object.
    found = volume.storage.find(f"{source.rstrip('/')}/-")
    if found is None:
        raise UnsupportedError(
            "objects are imported from below the volume's data location, or from another bucket of "
            "its service",
            path=source,
        )
    return found[0], found[1].removesuffix("-")


def _before(name: str) -> str:
    """A key that sorts before all keys with this prefix of digits and lower-case letters, and after
    those that precede them. Not the prefix itself: SeaweedFS omits a directory that a listing
    starts after.
    """
    before = chr(ord(name[-1]) - 1)
    return f"{name[:-1]}{'.' if before == '/' else before}~"


def _first_level(
    source: str, target: str
) -> Callable[[Volume], AsyncIterator[Sequence[str | Found]]]:
    """The names below a URI that end with `/`, and the objects beside them."""

    async def pages(volume: Volume) -> AsyncIterator[Sequence[str | Found]]:
        place, prefix = _place(volume, source)
        async for page in list_first_level(place, prefix):
            found: dict[str | Found, None] = {}
            for blob in page:
                name, slash, _ = blob.key[len(prefix) :].partition("/")
                if slash:
                    found[f"{prefix}{name}/"] = None
                elif not _is_none(volume, place, blob.key):
                    found[place.uri(blob.key), blob.size, f"{target}/{name}", blob.etag] = None
            yield list(found)

    return pages


def _is_none(volume: Volume, place: BlobStore, key: str) -> bool:
    """Whether to skip an object: one of a volume, or a directory marker."""
    return key.endswith("/") or is_own(volume, place, key)


def _listed_below(
    source: str, strip: int, target: str
) -> Callable[[S3kSyncClient, Iterable[pa.RecordBatch]], Batches]:
    def listed(fs: S3kSyncClient, batches: Iterable[pa.RecordBatch]) -> Batches:
        for batch in batches:
            for split in zip(*(column.to_pylist() for column in batch.columns), strict=True):
                yield from each_value(fs, _objects(split, source, strip, target))

    return listed


def _objects(
    split: tuple[str, str, str | None], source: str, strip: int, target: str
) -> Callable[[Volume], AsyncIterator[Sequence[pa.RecordBatch]]]:
    name, start, until = split

    async def pages(volume: Volume) -> AsyncIterator[Sequence[pa.RecordBatch]]:
        rows: list[Found] = []
        place, _ = _place(volume, source)
        async for blob in list_all(place, name, after=start):
            if until is not None and blob.key > until:
                break
            if _is_none(volume, place, blob.key):
                continue
            rows.append((place.uri(blob.key), blob.size, f"{target}/{blob.key[strip:]}", blob.etag))
            if len(rows) == ROWS:
                yield [row_batch(_OBJECTS, rows)]
                rows = []
        if rows:
            yield [row_batch(_OBJECTS, rows)]

    return pages


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
                    uri if isinstance(uri, str) else original
                    for uri, original in zip(uris, given["uri"], strict=True)
                ],
                text(given["path"], paths),
                [False] * len(paths),
                given["size"],
                *zip(*outcomes, strict=True),
            ]
            yield column_batch(_IMPORTS, columns)

    return plan


def _canonical(fs: S3kSyncClient, uris: Sequence[str | None]) -> list[str | S3kError]:
    """The canonical URI of each, or its error."""

    async def canonical(volume: Volume) -> list[str | S3kError]:
        found: list[str | S3kError] = []
        for uri in uris:
            try:
                found.append(canonical_uri(volume, uri or ""))
            except S3kError as error:
                found.append(error)
        return found

    return on_volume(fs, canonical)


def _same(
    fs: S3kSyncClient,
    uris: Sequence[str | S3kError],
    seen: Sequence[Seen],
    listed: Iterable[tuple[int | None, str | None]],
) -> list[bool | S3kError]:
    """Whether the entry at the path references the object in its present state, by size and etag
    of the list, else by a request; or the error of a missing object.
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
    now = on_volume(fs, lambda volume: _looked_at(volume, unsure))
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


async def _looked_at(volume: Volume, uris: Sequence[str]) -> dict[str, Content | S3kError]:
    looked: dict[str, Content | S3kError] = {}

    async def look_once(uri: str) -> None:
        try:
            looked[uri] = await look_at(volume, uri)
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
