"""Tasks of a reshard that do not end.

Those of the second pass, which copies entries, leave a file in the directory `S3K_TEST_WAITING` and
wait to be killed.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from s3k_async.spark import reshard_job
from s3k_async.spark.task_rows import Batches
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
