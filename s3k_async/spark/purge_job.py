"""Removal of a whole tree over Spark: subtrees by tasks, then the directories above them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
from pyspark import Accumulator
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from s3k_async._core.metering import Requests
from s3k_async._sync.sync_client import S3kSyncClient
from s3k_async.errors import (
    ConflictError,
    DirectoryNotEmptyError,
    NotDirectoryError,
    PartialFailureError,
    PathNotFoundError,
    S3kError,
)
from s3k_async.model import ROOT, ChangeResult
from s3k_async.spark.job_report import (
    ALREADY,
    DONE,
    FAILED,
    OUTCOME,
    PLANNED,
    JobReport,
    JobResult,
)
from s3k_async.spark.listing_job import SubtreeWork, in_directory, over_subtrees, subtrees
from s3k_async.spark.runner import AnyVolume, JobRun
from s3k_async.spark.task_rows import Batches, error_fields, row_batch

__all__ = ["purge"]

Row: TypeAlias = tuple[str, int, int, int, str, str | None, str | None]

_SCHEMA: Final = pa.schema(
    [
        pa.field("path", pa.string(), nullable=False),
        pa.field("files", pa.int64(), nullable=False),
        pa.field("directories", pa.int64(), nullable=False),
        pa.field("bytes", pa.int64(), nullable=False),
        *OUTCOME,
    ]
)
_ABOVE: Final = "path string, removed long, above string, because string"


def purge(
    spark: SparkSession,
    volume: AnyVolume,
    path: str,
    *,
    missing_ok: bool = False,
    dry_run: bool = True,
    tasks: int | None = None,
) -> JobResult[JobReport]:
    """Remove a directory and everything below it, entry by entry, by many tasks; for the root, only
    its content.

    Not atomic, as `delete(path, recursive=True, atomic=False)`: a concurrent reader sees a part of
    the tree. The trash, in layout `tree`, keeps nothing of it, but for a subtree whose task died
    after it had moved it there: gc reclaims that after the retention. The data is left to garbage
    collection. The driver divides the tree into subtrees (see
    `listing`); the result has a row for each of them and for each directory above them: `path files
    directories bytes outcome error message`, counting what was removed, or in a dry run what
    exists. After an interruption or a failure, the same call continues. Directories above a failure
    remain (DirectoryNotEmptyError).

    A directory's own files are removed by one task. Raises PathNotFoundError (unless `missing_ok`),
    NotDirectoryError.
    """
    job = JobRun(spark, volume, "purge", tasks=tasks, dry_run=dry_run, patiently=True)
    with S3kSyncClient(config=job.volume.driver) as fs:
        division = _division(fs, path, job.tasks, missing_ok=missing_ok)
        work = _counted if dry_run else _removed_by(job.requests, _ids(fs, division))
        with job.described(f"{path}: {'counting' if dry_run else 'removing'}"):
            done = job.kept(over_subtrees(job, division, work, _SCHEMA))
            opened_directories = [
                directory for directory, whole in division if not whole and directory != ROOT
            ]
            failed = not dry_run and not done.filter(sf.col("outcome") == FAILED).isEmpty()
            above = _above(fs, opened_directories, dry_run=dry_run, failed=failed)
            merged = job.kept(_merged(done, spark.createDataFrame(above, _ABOVE)))
    return job.result(
        merged, "path", {name: sf.col(name) for name in ("files", "directories", "bytes")}
    )


def _division(
    fs: S3kSyncClient, path: str, count: int, *, missing_ok: bool
) -> list[tuple[str, bool]]:
    try:
        top = fs.stat(path)
    except PathNotFoundError:
        if missing_ok:
            return []
        raise
    if not top.is_dir:
        raise NotDirectoryError("only a directory can be purged", path=top.path)
    # The root itself stays: it is always opened.
    return subtrees(fs, top.path, max(count, 2) if top.path == ROOT else count)


def _ids(fs: S3kSyncClient, division: Sequence[tuple[str, bool]]) -> dict[str, str]:
    """The ids of the directories: an attempt of a task that outlives the job must not remove
    directories made after it."""
    directories = [directory for directory, _ in division]
    found = zip(directories, fs.stat_many(directories), strict=True)
    return {directory: status.id for directory, status in found if status is not None}


def _above(
    fs: S3kSyncClient, directories: Sequence[str], *, dry_run: bool, failed: bool
) -> list[tuple[Any, ...]]:
    """Remove the directories above the subtrees, the deepest first, with entries added to them
    meanwhile."""
    rows: list[tuple[Any, ...]] = []
    for directory in sorted(directories, key=lambda path: path.count("/"), reverse=True):
        if dry_run:
            rows.append((directory, 1, None, None))
            continue
        try:
            if failed:
                raise DirectoryNotEmptyError(
                    "not removed: some entries below it could not be removed", path=directory
                )
            done = _deleted(fs, directory)
        except S3kError as error:
            failed = True
            rows.append((directory, 0, *error_fields(error)))
        else:
            rows.append((directory, done.directories, None, None))
    return rows


def _merged(done: DataFrame, above: DataFrame) -> DataFrame:
    """One row for a directory that was emptied by a task and removed by the driver."""
    both = done.join(above, "path", "left")
    return both.select(
        "path",
        "files",
        (sf.col("directories") + sf.coalesce("removed", sf.lit(0))).alias("directories"),
        "bytes",
        sf.when(sf.col("above").isNotNull(), FAILED)
        .when((sf.col("removed") > 0) & (sf.col("outcome") == ALREADY), DONE)
        .otherwise(sf.col("outcome"))
        .alias("outcome"),
        sf.coalesce("error", "above").alias("error"),
        sf.coalesce("message", "because").alias("message"),
    )


# In tasks


def _counted(fs: S3kSyncClient, parts: Iterable[tuple[str, bool]]) -> Batches:
    for directory, whole in parts:
        files, directories, size = 0, int(whole), 0
        for batch in in_directory(fs, directory, directory, recursive=whole):
            inside = pc.sum(batch.column("is_dir")).as_py()
            files += batch.num_rows - inside
            directories += inside if whole else 0
            size += pc.sum(batch.column("size")).as_py()
        yield _batch((directory, files, directories, size, PLANNED, None, None))


def _removed_by(requests: Accumulator[Requests], ids: Mapping[str, str]) -> SubtreeWork:
    def removed(fs: S3kSyncClient, parts: Iterable[tuple[str, bool]]) -> Batches:
        for directory, whole in parts:
            before = fs.requests
            try:
                done = _removed(fs, directory, ids.get(directory), whole=whole)
            except S3kError as error:
                yield _batch((directory, 0, 0, 0, FAILED, *error_fields(error)))
            else:
                outcome = DONE if done.files or done.directories else ALREADY
                yield _batch(
                    (directory, done.files, done.directories, done.bytes, outcome, None, None)
                )
            requests.add(fs.requests - before)

    return removed


def _removed(
    fs: S3kSyncClient, directory: str, identity: str | None, *, whole: bool
) -> ChangeResult:
    """Remove a subtree, or the files in a directory, if the directory still has this id."""
    (found,) = fs.stat_many([directory])
    if found is None:
        return ChangeResult(0, 0, 0)
    if found.id != identity:
        raise ConflictError(
            "the directory was replaced by another one since the job began", path=directory
        )
    if whole:
        return _deleted(fs, directory, expected=found)
    return _files(fs, directory)


def _deleted(fs: S3kSyncClient, directory: str, **options: Any) -> ChangeResult:
    """Delete a subtree for good: in layout `tree` the trash does not keep its files."""
    return fs.delete(directory, recursive=True, missing_ok=True, atomic=False, wait=True, **options)


def _files(fs: S3kSyncClient, directory: str) -> ChangeResult:
    """Remove the files in a directory, but not its subdirectories."""
    files = size = 0
    for batch in in_directory(fs, directory, ROOT, recursive=False):
        paths = batch.filter(pc.invert(batch.column("is_dir"))).column("path").to_pylist()
        done = fs.delete_many(paths, missing_ok=True)
        if done.failures:
            text = f"{len(done.failures)} files could not be removed; repeat the job to finish"
            raise PartialFailureError(text, path=directory, failures=done.failures)
        files += done.files
        size += done.bytes
    return ChangeResult(files, 0, size)


def _batch(row: Row) -> pa.RecordBatch:
    return row_batch(_SCHEMA, [row])
