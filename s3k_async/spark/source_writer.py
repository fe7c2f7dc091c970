"""The writer of the data source: tasks upload, the commit publishes everything in one
transaction."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from s3k_async._sync.sync_client import S3kSyncClient
from s3k_async.settings import with_local_secrets
from s3k_async.spark.settings import SparkVolume
from s3k_async.spark.source_commit import publish
from s3k_async.spark.source_files import WritePlan, WrittenFile, discard, task_number, written_files
from s3k_async.spark.worker_client import client

__all__ = ["S3kWriter", "TaskCommit"]


@dataclass(frozen=True)
class TaskCommit(WriterCommitMessage):
    """The uploads of one task."""

    files: tuple[WrittenFile, ...]


class S3kWriter(DataSourceArrowWriter):
    """Writes in tasks, and commits where the driver runs."""

    def __init__(self, volume: SparkVolume, plan: WritePlan) -> None:
        self._volume = volume
        self._plan = plan

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskCommit:
        """Upload the rows of a task; a failed task drops its uploads."""
        fs = client(self._volume.executors)
        return TaskCommit(tuple(written_files(fs, self._plan, task_number(), iterator)))

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Publish the files. If it raises an error other than OutcomeUnknownError, nothing was
        changed."""
        with self._opened() as fs:
            publish(fs, self._plan, _files(messages))

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Drop the uploads of the tasks.

        If no task has failed, the commit has, and its transaction has dropped the files that are
        certainly unreferenced: none after OutcomeUnknownError, since they may be published.
        """
        if None in messages:
            with self._opened() as fs:
                discard(fs, _files(messages))

    def _opened(self) -> S3kSyncClient:
        return S3kSyncClient(config=with_local_secrets(self._volume.driver))


def _files(messages: list[WriterCommitMessage | None]) -> list[WrittenFile]:
    return [
        file for message in messages if isinstance(message, TaskCommit) for file in message.files
    ]
