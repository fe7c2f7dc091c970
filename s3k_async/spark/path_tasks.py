"""Tasks on rows of paths: read entries in batches, apply the planned change, report the outcome."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import pyarrow as pa
from pyspark import Accumulator
from pyspark.sql import DataFrame

from s3k_async._core.metering import Requests
from s3k_async._core.paths import normalize
from s3k_async._sync.sync_client import S3kSyncClient
from s3k_async.errors import (
    ArgumentTypeError,
    CrossVolumeError,
    InvalidArgumentError,
    InvalidPathError,
    ItemFormatError,
    S3kError,
)
from s3k_async.model import FileStatus
from s3k_async.namespace.addresses import inside
from s3k_async.spark.job_report import OUTCOME, PLANNED
from s3k_async.spark.task_rows import Batches, row_batch

__all__ = [
    "ChangeStage",
    "Outcome",
    "Seen",
    "look",
    "need_columns",
    "normalised",
    "text",
]

BATCH: Final = 1000
"""Rows of one call of a verb."""

Outcome: TypeAlias = tuple[str, str | None, str | None]
"""One row with the columns of OUTCOME."""
Seen: TypeAlias = FileStatus | S3kError | None


@dataclass(frozen=True, slots=True)
class ChangeStage:
    """A stage of changes: planned rows get their outcome, others pass unchanged."""

    requests: Accumulator[Requests]
    change: Callable[[S3kSyncClient, list[dict[str, Any]]], list[Outcome]]

    def __call__(self, fs: S3kSyncClient, batches: Iterable[pa.RecordBatch]) -> Batches:
        for batch in batches:
            for start in range(0, batch.num_rows, BATCH):
                yield self._acted(fs, batch.slice(start, BATCH))

    def _acted(self, fs: S3kSyncClient, batch: pa.RecordBatch) -> pa.RecordBatch:
        rows = batch.to_pylist()
        places = [place for place, row in enumerate(rows) if row["outcome"] == PLANNED]
        outcomes: list[Outcome] = [(row["outcome"], row["error"], row["message"]) for row in rows]
        before = fs.requests
        for place, outcome in zip(
            places, self.change(fs, [rows[place] for place in places]), strict=True
        ):
            outcomes[place] = outcome
        self.requests.add(fs.requests - before)
        return _with_outcomes(batch, outcomes)


def need_columns(frame: DataFrame, *names: str) -> None:
    """Raise InvalidArgumentError unless the frame has these columns, all of type string."""
    types = dict(frame.dtypes)
    for name in names:
        if types.get(name) != "string":
            raise InvalidArgumentError(
                f"the DataFrame needs a column {name!r} of text, it has {frame.columns}"
            )


def normalised(fs: S3kSyncClient, path: str | None) -> str | S3kError:
    """The normalised path, or the error of an invalid one."""
    if path is None:
        return ArgumentTypeError("a path is text, not null")
    try:
        return normalize(inside(path, fs.name))
    except S3kError as error:
        return error


def text(given: Sequence[str | None], paths: Sequence[str | S3kError]) -> list[str | None]:
    """The paths; invalid ones as they were given."""
    return [
        path if isinstance(path, str) else text for text, path in zip(given, paths, strict=True)
    ]


def look(fs: S3kSyncClient, paths: Sequence[str | S3kError]) -> list[Seen]:
    """The status of each path, None for a missing one, or the error of a damaged or invalid
    one."""
    seen: dict[str, Seen] = {}
    wanted = list(dict.fromkeys(path for path in paths if isinstance(path, str)))
    try:
        seen.update(zip(wanted, fs.stat_many(wanted), strict=True))
    except (CrossVolumeError, InvalidPathError, ItemFormatError):
        seen.update((path, _look_at(fs, path)) for path in wanted)
    return [seen[path] if isinstance(path, str) else path for path in paths]


def _look_at(fs: S3kSyncClient, path: str) -> Seen:
    try:
        return fs.stat_many([path])[0]
    except (CrossVolumeError, InvalidPathError, ItemFormatError) as error:
        return error


def _with_outcomes(batch: pa.RecordBatch, outcomes: Sequence[Outcome]) -> pa.RecordBatch:
    columns = batch.columns[: -len(OUTCOME)]
    own = row_batch(pa.schema(OUTCOME), outcomes)
    return pa.RecordBatch.from_arrays([*columns, *own.columns], names=batch.schema.names)
