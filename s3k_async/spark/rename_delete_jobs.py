"""Bulk renames and deletions in two stages: the plan by object id, then the change.

A task may run twice, even at the same time as its twin, and a whole job may be run again. So the
first stage writes down which object each row means, once and for all; the second changes only what
is still that object, by writes that are conditional on it (`bulk/expected_objects.py`), and takes
for done what its twin, or an earlier run, has done. With `state`, a directory that Spark can write
to, what is meant is kept there, and the same call after an interruption goes on from it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from s3k_async._sync.sync_client import S3kSyncClient
from s3k_async.bulk.expected_objects import ExpectedObject, delete_expected, rename_expected
from s3k_async.config import VolumeConfig
from s3k_async.errors import InvalidArgumentError, PathNotFoundError, S3kError
from s3k_async.model import FileStatus
from s3k_async.spark.job_report import (
    ALREADY,
    DONE,
    FAILED,
    OUTCOME,
    PLANNED,
    JobResult,
    JobRun,
    error_fields,
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

__all__ = ["delete_files", "rename_files"]


_MEANT = (
    pa.field("id", pa.string()),
    pa.field("version", pa.int64()),
    pa.field("is_dir", pa.bool_()),
    pa.field("size", pa.int64()),
)
"""What is meant: columns of a plan, null where there is nothing."""
_RENAMES = pa.schema(
    [pa.field("source", pa.string()), pa.field("target", pa.string()), *_MEANT, *OUTCOME]
)
_DELETIONS = pa.schema([pa.field("path", pa.string()), *_MEANT, *OUTCOME])


def rename_files(
    spark: SparkSession,
    volume: str | VolumeConfig | SparkVolume,
    pairs: DataFrame,
    *,
    overwrite: bool = False,
    missing_ok: bool = False,
    dry_run: bool = True,
    state: str | None = None,
    tasks: int | None = None,
) -> JobResult:
    """Rename by a DataFrame with the columns `source` and `target`, each pair by itself, as
    `rename_many` does it.

    The result has a row for each pair: `source target id version is_dir size outcome error
    message`, its outcome `done`, `already` (the object that was meant is at the target: an earlier
    attempt or run has moved it), `failed`, or `planned` in a dry run. A path that several pairs
    name, or that lies below a directory that another pair names, is refused with
    InvalidArgumentError before anything is changed. `missing_ok`: a pair without a source, when the
    job began, is `already` if something is at its target; not needed for going on with a `state`.
    Another object that came to a source meanwhile is not moved: ConflictError. The object is moved
    as it is by then, a directory with all that is in it; with `overwrite` it replaces whichever
    file is at its target by then.

    Pairs with the same parent of their targets are done by one task: transactions on one parent
    wait for each other. Raises InvalidArgumentError (columns, or a `state` of something else).
    """
    need_columns(pairs, "source", "target")
    opened = patient(spark_volume(spark, volume))
    run = JobRun(spark, "rename", opened.driver.name, dry_run=dry_run)
    plan = SavedPlan(run, spark, state, _RENAMES, pairs.select("source", "target").distinct())
    work = each_partition(opened.executors, _planned_renames(missing_ok))
    meant = plan.made(lambda rows: rows.mapInArrow(work, plan.schema))
    _refuse_shared(meant)
    _refuse_below(meant)
    if dry_run:
        return run.result(meant, "source")
    rename = each_partition(
        opened.executors, ChangeStage(run.requests, lambda fs, rows: _renamed(fs, rows, overwrite))
    )
    with run.stage("renaming"):
        count = tasks or spark.sparkContext.defaultParallelism * TASKS_PER_CORE
        by_parent = meant.repartition(count, sf.regexp_extract("target", "(?s)^(.*)/", 1))
        return run.result(run.kept(by_parent.mapInArrow(rename, plan.schema)), "source")


def delete_files(
    spark: SparkSession,
    volume: str | VolumeConfig | SparkVolume,
    paths: DataFrame,
    *,
    recursive: bool = False,
    missing_ok: bool = False,
    dry_run: bool = True,
    state: str | None = None,
    tasks: int | None = None,
) -> JobResult:
    """Remove what is at the paths of a DataFrame with the column `path`, each by itself, as
    `delete_many` does it.

    The result has a row for each path: `path id version is_dir size outcome error message`, its
    outcome `done`, `already` (it was there when the job began, and was gone when its turn came;
    with `missing_ok` also what was not there at all), `failed`, or `planned` in a dry run. Another
    object that came to the path meanwhile, or a new version of a file, is not removed:
    ConflictError. A directory goes with all that is in it by then. Files are removed first, then
    directories, the deepest first. Raises as `rename_files`.
    """
    need_columns(paths, "path")
    opened = patient(spark_volume(spark, volume))
    run = JobRun(spark, "delete", opened.driver.name, dry_run=dry_run)
    plan = SavedPlan(run, spark, state, _DELETIONS, paths.select("path").distinct())
    work = each_partition(opened.executors, _planned_deletions(missing_ok))
    meant = plan.made(lambda rows: rows.mapInArrow(work, plan.schema))
    meant = meant.dropDuplicates(["path"])
    if dry_run:
        return run.result(meant, "path")
    count = tasks or spark.sparkContext.defaultParallelism * TASKS_PER_CORE
    delete = each_partition(
        opened.executors, ChangeStage(run.requests, lambda fs, rows: _deleted(fs, rows, recursive))
    )
    with run.stage("deleting"):
        meant = run.kept(meant)  # or each of what follows would look for duplicates anew
        is_dir = sf.expr("coalesce(is_dir, false)")
        depth = sf.length("path") - sf.length(sf.regexp_replace("path", "/", ""))
        depths = (
            meant.filter(is_dir & (sf.col("outcome") == PLANNED))
            .select(depth.alias("depth"))
            .distinct()
        )
        done = run.kept(meant.filter(~is_dir).repartition(count).mapInArrow(delete, plan.schema))
        done = done.unionByName(meant.filter(is_dir & (sf.col("outcome") != PLANNED)))
        for row in sorted(depths.collect(), reverse=True):
            level = meant.filter(is_dir & (sf.col("outcome") == PLANNED) & (depth == row["depth"]))
            done = done.unionByName(
                run.kept(level.repartition(count).mapInArrow(delete, plan.schema))
            )
        return run.result(done, "path")


# On the driver


def _refuse_shared(meant: DataFrame) -> None:
    """Raise if several pairs name a path: what they lead to would depend on their order."""
    named = sf.array_distinct(sf.array("source", "target"))
    shared = (
        meant.select(sf.explode(named).alias("path"))
        .dropna()
        .groupBy("path")
        .count()
        .filter("count > 1")
    )
    found = shared.orderBy("path").limit(1).collect()
    if found:
        raise InvalidArgumentError("several pairs name the path", path=found[0]["path"])


def _refuse_below(meant: DataFrame) -> None:
    """Raise if a pair names a path below a directory that another pair renames, or is to put in
    place."""
    moving = meant.filter(sf.col("is_dir") & (sf.col("outcome") == PLANNED))
    roots = moving.select(sf.explode(sf.array("source", "target")).alias("above"))
    if roots.isEmpty():
        return
    parts = sf.split("path", "/")
    ancestors = sf.transform(
        sf.sequence(sf.lit(2), sf.size(parts)),
        lambda end: sf.array_join(sf.slice(parts, 1, end - 1), "/"),
    )
    paths = meant.select(sf.explode(sf.array("source", "target")).alias("path")).dropna()
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


def _planned_renames(
    missing_ok: bool,
) -> Callable[[S3kSyncClient, Iterable[pa.RecordBatch]], Batches]:
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


def _planned_deletions(
    missing_ok: bool,
) -> Callable[[S3kSyncClient, Iterable[pa.RecordBatch]], Batches]:
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
    """Rename what the plan means, and look for the rest at its target."""
    pairs = [(ExpectedObject(row["source"], row["id"]), row["target"]) for row in rows]
    errors = fs._call(lambda client: rename_expected(client, pairs, overwrite=overwrite))
    unsure = [row for row in rows if row["source"] in errors]
    moved = {
        row["source"]
        for row, found in zip(unsure, look(fs, [row["target"] for row in unsure]), strict=True)
        if isinstance(found, FileStatus) and found.id == row["id"]
    }
    return [_outcome(row["source"] in moved, errors.get(row["source"])) for row in rows]


def _deleted(fs: S3kSyncClient, rows: list[dict[str, Any]], recursive: bool) -> list[Outcome]:
    """Delete what the plan means: files at the version that they were at."""
    meant = [
        ExpectedObject(row["path"], row["id"], None if row["is_dir"] else row["version"])
        for row in rows
    ]
    errors = fs._call(lambda client: delete_expected(client, meant, recursive=recursive))
    # What is gone a twin has deleted, or who deleted a directory above.
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
    meant = [
        [None if each is None else getattr(each, name) for each in found]
        for name in ("id", "version")
    ]
    more = [
        [None if each is None else getattr(each, name) for each in found]
        for name in ("is_dir", "size")
    ]
    columns = [*named, *meant, *more, *zip(*outcomes, strict=True)]
    arrays = [
        pa.array(list(column), field.type) for column, field in zip(columns, schema, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
