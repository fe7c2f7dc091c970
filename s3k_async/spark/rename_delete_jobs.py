"""Bulk renames and deletions in two stages: the plan by object id, then the change.

A task may run twice, even at the same time, and a whole job may be repeated. The
first stage records the object that each row means. The second changes only that object, by
conditional writes (`bulk/expected_objects.py`), and counts as done what another attempt, or an
earlier run, has done. With `state`, a directory that Spark can write, the plan is saved there, and
the same call resumes after an interruption.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeAlias

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from s3k_async._sync.sync_client import S3kSyncClient
from s3k_async._sync.sync_session import on_client
from s3k_async.bulk.expected_objects import ExpectedObject, delete_expected, rename_expected
from s3k_async.errors import InvalidArgumentError, PathNotFoundError, S3kError
from s3k_async.model import FileStatus
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
from s3k_async.spark.task_rows import Batches, column_batch, error_fields

__all__ = ["delete_files", "rename_files"]

Work: TypeAlias = Callable[[S3kSyncClient, Iterable[pa.RecordBatch]], Batches]
_OBJECT = (
    pa.field("id", pa.string()),
    pa.field("version", pa.int64()),
    pa.field("is_dir", pa.bool_()),
    pa.field("size", pa.int64()),
)
"""The object at the path when the job began, null if there was none."""
_RENAMES = pa.schema(
    [pa.field("source", pa.string()), pa.field("target", pa.string()), *_OBJECT, *OUTCOME]
)
_DELETIONS = pa.schema([pa.field("path", pa.string()), *_OBJECT, *OUTCOME])


def rename_files(
    spark: SparkSession,
    volume: AnyVolume,
    pairs: DataFrame,
    *,
    overwrite: bool = False,
    missing_ok: bool = False,
    dry_run: bool = True,
    state: str | None = None,
    tasks: int | None = None,
) -> JobResult[JobReport]:
    """Rename by a DataFrame with the columns `source` and `target`, each pair independently, as by
    `rename_many`.

    The result has a row for each pair: `source target id version is_dir size outcome error
    message`, its outcome `done`, `already` (the object is at the target: an earlier attempt or run
    has moved it), `failed`, or `planned` in a dry run. If a path occurs in several pairs, or is
    below a directory of another pair, the job raises InvalidArgumentError before anything is
    changed. `missing_ok`: a pair whose source was missing when the job began is `already` if its
    target exists; not needed to resume with a `state`. If the source was replaced by another object
    meanwhile, the pair fails with ConflictError. The object is moved in its current state, a
    directory with everything in it; with `overwrite` it replaces a file at its target.

    Pairs whose targets have the same parent are processed by one task: transactions on one parent
    are serialised. Raises InvalidArgumentError (columns, or a `state` of another job).
    """
    need_columns(pairs, "source", "target")
    job = JobRun(spark, volume, "rename", tasks=tasks, dry_run=dry_run, patiently=True)
    rows = pairs.select("source", "target").distinct()
    plan = _planned(job, state, rows, _planned_renames(missing_ok), _RENAMES)
    _refuse_shared(plan)
    _refuse_below(plan)
    if dry_run:
        return job.result(plan, "source")
    change = ChangeStage(job.requests, lambda fs, rows: _renamed(fs, rows, overwrite))
    with job.described("renaming"):
        by_parent = plan.repartition(job.tasks, sf.regexp_extract("target", "(?s)^(.*)/", 1))
        done = job.kept(job.over_rows(by_parent, change, _RENAMES))
    return job.result(done, "source")


def delete_files(
    spark: SparkSession,
    volume: AnyVolume,
    paths: DataFrame,
    *,
    recursive: bool = False,
    missing_ok: bool = False,
    dry_run: bool = True,
    state: str | None = None,
    tasks: int | None = None,
) -> JobResult[JobReport]:
    """Remove the files and directories at the paths of a DataFrame with the column `path`, each
    independently, as by `delete_many`.

    The result has a row for each path: `path id version is_dir size outcome error message`, its
    outcome `done`, `already` (it existed when the job began, and no longer when it was to be
    removed; with `missing_ok` also a path that did not exist), `failed`, or `planned` in a dry run.
    If the path was taken by another object meanwhile, or the file has a new version, the row fails
    with ConflictError. A directory is removed with everything that it contains by then. Files are
    removed first, then directories, the deepest first. Raises as `rename_files`.
    """
    need_columns(paths, "path")
    job = JobRun(spark, volume, "delete", tasks=tasks, dry_run=dry_run, patiently=True)
    rows = paths.select("path").distinct()
    plan = _planned(job, state, rows, _planned_deletions(missing_ok), _DELETIONS)
    plan = plan.dropDuplicates(["path"])
    if dry_run:
        return job.result(plan, "path")
    change = ChangeStage(job.requests, lambda fs, rows: _deleted(fs, rows, recursive))

    def deleted(frame: DataFrame) -> DataFrame:
        return job.kept(job.over_rows(frame.repartition(job.tasks), change, _DELETIONS))

    with job.described("deleting"):
        plan = job.kept(plan)  # otherwise each later stage would search for duplicates again
        is_dir = sf.expr("coalesce(is_dir, false)")
        depth = sf.length("path") - sf.length(sf.regexp_replace("path", "/", ""))
        directories = plan.filter(is_dir & (sf.col("outcome") == PLANNED))
        depths = directories.select(depth.alias("depth")).distinct()
        done = deleted(plan.filter(~is_dir))
        done = done.unionByName(plan.filter(is_dir & (sf.col("outcome") != PLANNED)))
        for row in sorted(depths.collect(), reverse=True):
            done = done.unionByName(deleted(directories.filter(depth == row["depth"])))
    return job.result(done, "path")


# On the driver


def _planned(
    job: JobRun, state: str | None, rows: DataFrame, work: Work, schema: pa.Schema
) -> DataFrame:
    """The rows with the objects at their paths, saved in the directory `state` if one is given."""
    if state is not None:
        digest = sf.xxhash64(*rows.columns).cast("decimal(38,0)")
        total = rows.agg(sf.count("*"), sf.coalesce(sf.sum(digest), sf.lit(0)).cast("string"))
        job.resume(state, [job.name, *total.collect()[0]])
    return job.stage("plan", "planning", schema, lambda: job.over_rows(rows, work, schema))


def _refuse_shared(plan: DataFrame) -> None:
    """Raise if a path occurs in several pairs: the result would depend on their order."""
    named = sf.array_distinct(sf.array("source", "target"))
    shared = (
        plan.select(sf.explode(named).alias("path"))
        .dropna()
        .groupBy("path")
        .count()
        .filter("count > 1")
    )
    found = shared.orderBy("path").limit(1).collect()
    if found:
        raise InvalidArgumentError("the path occurs in several pairs", path=found[0]["path"])


def _refuse_below(plan: DataFrame) -> None:
    """Raise if a path of a pair is below the source or target directory of another pair."""
    moving = plan.filter(sf.col("is_dir") & (sf.col("outcome") == PLANNED))
    roots = moving.select(sf.explode(sf.array("source", "target")).alias("above"))
    if roots.isEmpty():
        return
    parts = sf.split("path", "/")
    ancestors = sf.transform(
        sf.sequence(sf.lit(2), sf.size(parts)),
        lambda end: sf.array_join(sf.slice(parts, 1, end - 1), "/"),
    )
    paths = plan.select(sf.explode(sf.array("source", "target")).alias("path")).dropna()
    below = (
        paths.withColumn("above", sf.explode(ancestors))
        .join(roots, "above")
        .orderBy("path")
        .limit(1)
        .collect()
    )
    if below:
        raise InvalidArgumentError(
            f"another pair names {below[0]['above']}, which is above", path=below[0]["path"]
        )


# In tasks


def _planned_renames(missing_ok: bool) -> Work:
    def plan(fs: S3kSyncClient, batches: Iterable[pa.RecordBatch]) -> Batches:
        for batch in batches:
            given = [batch.column(name).to_pylist() for name in ("source", "target")]
            (sources, targets) = ([normalised(fs, path) for path in column] for column in given)
            seen = look(fs, [*sources, *targets])
            there, here = seen[: len(sources)], seen[len(sources) :]
            outcomes = [
                _rename_outcome(*row, missing_ok=missing_ok)
                for row in zip(sources, there, here, strict=True)
            ]
            named = [text(given[0], sources), text(given[1], targets)]
            yield _plan_batch(_RENAMES, named, there, outcomes)

    return plan


def _rename_outcome(
    source: str | S3kError, there: Seen, here: Seen, *, missing_ok: bool
) -> Outcome:
    for found in (there, here):
        if isinstance(found, S3kError):
            return (FAILED, *error_fields(found))
    if there is None:
        if missing_ok and here is not None:
            return (ALREADY, None, None)
        return (FAILED, *error_fields(PathNotFoundError("no such file", path=str(source))))
    return (PLANNED, None, None)


def _planned_deletions(missing_ok: bool) -> Work:
    def plan(fs: S3kSyncClient, batches: Iterable[pa.RecordBatch]) -> Batches:
        for batch in batches:
            given = batch.column("path").to_pylist()
            paths = [normalised(fs, path) for path in given]
            seen = look(fs, paths)
            outcomes: list[Outcome] = []
            for path, found in zip(paths, seen, strict=True):
                if isinstance(found, FileStatus):
                    outcomes.append((PLANNED, None, None))
                elif found is None and missing_ok:
                    outcomes.append((ALREADY, None, None))
                else:
                    error = found or PathNotFoundError("no such file or directory", path=str(path))
                    outcomes.append((FAILED, *error_fields(error)))
            yield _plan_batch(_DELETIONS, [text(given, paths)], seen, outcomes)

    return plan


def _renamed(fs: S3kSyncClient, rows: list[dict[str, Any]], overwrite: bool) -> list[Outcome]:
    """Rename the planned objects, and look for those that failed at their targets."""
    pairs = [(ExpectedObject(row["source"], row["id"]), row["target"]) for row in rows]
    errors = on_client(fs, lambda client: rename_expected(client, pairs, overwrite=overwrite))
    unsure = [row for row in rows if row["source"] in errors]
    moved = {
        row["source"]
        for row, found in zip(unsure, look(fs, [row["target"] for row in unsure]), strict=True)
        if isinstance(found, FileStatus) and found.id == row["id"]
    }
    return [_outcome(row["source"] in moved, errors.get(row["source"])) for row in rows]


def _deleted(fs: S3kSyncClient, rows: list[dict[str, Any]], recursive: bool) -> list[Outcome]:
    """Delete the planned objects, files only at the planned version."""
    wanted = [
        ExpectedObject(row["path"], row["id"], None if row["is_dir"] else row["version"])
        for row in rows
    ]
    errors = on_client(fs, lambda client: delete_expected(client, wanted, recursive=recursive))
    # Missing objects were deleted by another attempt, or with a directory above.
    return [
        _outcome(isinstance(errors.get(row["path"]), PathNotFoundError), errors.get(row["path"]))
        for row in rows
    ]


def _outcome(already: bool, error: Exception | None) -> Outcome:
    if already:
        return (ALREADY, None, None)
    return (DONE, None, None) if error is None else (FAILED, *error_fields(error))


def _plan_batch(
    schema: pa.Schema,
    named: list[list[str | None]],
    seen: Sequence[Seen],
    outcomes: Sequence[Outcome],
) -> pa.RecordBatch:
    found = [each if isinstance(each, FileStatus) else None for each in seen]
    objects = [
        [None if each is None else getattr(each, field.name) for each in found] for field in _OBJECT
    ]
    return column_batch(schema, [*named, *objects, *zip(*outcomes, strict=True)])
