"""What is in a volume that Spark has written to, and what nobody names of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from s3k_async import S3kSyncClient
from s3k_async._core.runtime import SYSTEM
from s3k_async.config import LocalDirectory, VolumeConfig
from s3k_async.integrity.gc_rules import Ages
from s3k_async.volumes import open_volume
from tests.integrity.garbage import gc_of, stored_keys


def paths(fs: S3kSyncClient, top: str) -> set[str]:
    """The files below a path."""
    return {status.path for status in fs.list(top, recursive=True) if status.is_file}


def content(fs: S3kSyncClient, top: str) -> dict[str, list[Any]]:
    """The ids in the files of each directory."""
    found: dict[str, list[Any]] = {}
    for path in sorted(paths(fs, top)):
        with fs.open(path) as file:
            found.setdefault(path.rpartition("/")[0], []).extend(
                pq.read_table(file)["id"].to_pylist()
            )
    return {directory: sorted(ids) for directory, ids in found.items()}


async def garbage(config: VolumeConfig) -> set[str]:
    """Keys of bytes that no file names."""
    opened = await open_volume(config)
    try:
        keys = await stored_keys(opened)
    finally:
        await opened.close()
    with S3kSyncClient(config=config) as fs:
        return keys - {str(status.physical) for status in fs.list("/", recursive=True)}


async def collect(config: VolumeConfig) -> int:
    """Delete bytes that nobody names, however young; how many that were."""
    opened = await open_volume(config)
    try:
        collector = gc_of(opened, SYSTEM, Ages(grace=0, lease=0, late=0))
        assert isinstance(opened.config.data, LocalDirectory)
        marks = str(Path(opened.config.data.path) / "marks")
        await collector.mark(marks)
        deleted = (await collector.sweep(marks)).deleted
    finally:
        await opened.close()
    return sum(each.objects for each in deleted.values())
