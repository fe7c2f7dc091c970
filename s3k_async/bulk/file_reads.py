"""Reads of many paths: batched metadata requests, parallel reads under one memory budget.

The result is no snapshot: each path is looked up independently. Entries are read 100 in a request.
"""

from __future__ import annotations

from typing import TypeAlias

from s3k_async._core.concurrency import ByteBudget, run_all
from s3k_async.errors import PartialFailureError, PathNotFoundError, S3kError
from s3k_async.files.file_ranges import read_file, read_version
from s3k_async.model import Entry, FileStatus, status_of
from s3k_async.volumes.volume import Volume

__all__ = ["exists_many", "read_each", "read_many", "stat_many"]

Found: TypeAlias = Entry | S3kError | None

FILES = 64
"""Concurrent reads of one call."""
IN_FLIGHT = 64 * 1024 * 1024
"""Bytes requested at the same time by one call; a longer file is read alone."""


async def stat_many(volume: Volume, paths: list[str]) -> list[FileStatus | None]:
    """The status of each path; None for a missing one."""
    entries = await volume.store.get_many(paths, trusting=True)
    return [None if entry is None else status_of(entry) for entry in entries]


async def exists_many(volume: Volume, paths: list[str]) -> list[bool]:
    """Whether each path exists."""
    return [entry is not None for entry in await volume.store.get_many(paths, trusting=True)]


async def read_many(volume: Volume, paths: list[str]) -> list[bytes]:
    """Whole files. Every file is tried; then PartialFailureError is raised if some failed."""
    read = await _read_all(volume, list(dict.fromkeys(paths)))
    failures = [(path, data) for path, data in read.items() if isinstance(data, S3kError)]
    if failures:
        raise PartialFailureError(
            f"{len(failures)} of {len(read)} files could not be read", failures=failures
        ) from failures[0][1]
    return [data for path in paths if isinstance(data := read[path], bytes)]


async def read_each(volume: Volume, paths: list[str]) -> list[bytes | S3kError]:
    """Whole files, with the error of a file that could not be read in its place."""
    read = await _read_all(volume, list(dict.fromkeys(paths)))
    return [read[path] for path in paths]


async def _read_all(volume: Volume, paths: list[str]) -> dict[str, bytes | S3kError]:
    """The bytes or the error of each path."""
    budget = ByteBudget(IN_FLIGHT)
    read: dict[str, bytes | S3kError] = dict.fromkeys(paths, b"")

    async def one(found: tuple[str, Found]) -> None:
        path, entry = found
        try:
            read[path] = await _read_one(volume, path, entry, budget)
        except S3kError as error:
            read[path] = error

    found = await volume.store.get_each(paths, trusting=True)
    await run_all(one, zip(paths, found, strict=True), limit=FILES)
    return read


async def _read_one(volume: Volume, path: str, entry: Found, budget: ByteBudget) -> bytes:
    if isinstance(entry, S3kError):
        raise entry
    if entry is None:
        raise PathNotFoundError("no such file or directory", path=path)
    async with budget.hold(entry.size):
        found = await read_version(volume, entry)
        # Replaced, and its data collected, since the entries were read.
        return await read_file(volume, path) if found is None else found
