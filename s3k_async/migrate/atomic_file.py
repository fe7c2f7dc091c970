"""Atomic local files: durable, and visible only when complete."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import BinaryIO

from s3k_async._core.file_modes import open_private
from s3k_async._core.file_replacement import replaceable
from s3k_async._core.os_errors import os_errors, sync_directory
from s3k_async._core.runtime import SYSTEM, Runtime

__all__ = ["appearing", "flush", "place"]


def flush(file: BinaryIO) -> None:
    """Sync an open file."""
    file.flush()
    os.fsync(file.fileno())


def place(building: str, path: str) -> None:
    """Rename a file into place, durably."""
    os.replace(building, path)
    sync_directory(os.path.dirname(os.path.abspath(path)))


@contextmanager
def appearing(path: str, runtime: Runtime = SYSTEM) -> Iterator[BinaryIO]:
    """A temporary file, renamed into place at the end of the body."""
    path = replaceable(path)
    building = f"{path}.{runtime.uuid()}.part"
    with os_errors(path):
        try:
            with open(building, "xb", opener=open_private) as file:
                yield file
                flush(file)
            place(building, path)
        except BaseException:
            with suppress(OSError):
                os.unlink(building)
            raise
