"""The command line in a process whose tasks of a reshard do not end: `python -m
tests.spark.waiting_tasks`.

Tasks of the second pass, which copies entries, leave a file in the directory `S3K_TEST_WAITING` and
wait to be killed.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from s3k_async.cli import main
from s3k_async.spark import reshard_job
from s3k_async.spark.task_rows import Batches
from s3k_async.txn import volume_lock
from tests.spark.places import HANGS

__all__ = ["PLACE", "WaitingSegments"]

PLACE: Final = "S3K_TEST_WAITING"


class WaitingSegments(reshard_job._Segments):
    """The work of a task, which waits instead of copying."""

    def __call__(self, segments: Iterator[int]) -> Batches:
        if self.work.name == "copy":
            Path(os.environ[PLACE], str(os.getpid())).touch()
            time.sleep(HANGS)
        yield from super().__call__(segments)


if __name__ == "__main__":
    # By their usual name, which workers import.
    from tests.spark import waiting_tasks

    volume_lock.QUIET_SECONDS = 0.0
    reshard_job._Segments = waiting_tasks.WaitingSegments  # type: ignore[misc]
    sys.exit(main())
