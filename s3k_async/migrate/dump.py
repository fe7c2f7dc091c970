"""Dumps of a volume's visible table."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import BinaryIO

from s3k_async._core.file_modes import open_private
from s3k_async._core.file_replacement import replaceable
from s3k_async._core.metering import Requests, counted
from s3k_async._core.os_errors import os_errors
from s3k_async._core.paths import split
from s3k_async._core.runtime import SYSTEM, Runtime
from s3k_async._core.worker_threads import in_thread
from s3k_async._native import Entries
from s3k_async.errors import InvalidPathError, PathNotFoundError
from s3k_async.listing.listings import Listing
from s3k_async.migrate.atomic_file import flush, place
from s3k_async.migrate.dump_format import CHUNK, DumpEnd, DumpForm, DumpHeader, DumpWriter
from s3k_async.model import ROOT, Entry, Progress
from s3k_async.table.codec import in_columns
from s3k_async.volumes import Volume

__all__ = ["DumpResult", "count_unreachable", "dump_top", "dump_volume", "require_valid"]


@dataclass(frozen=True, slots=True)
class DumpResult:
    """Result of a dump. `bytes`: of the files, whose contents are not in the dump."""

    entries: int
    files: int
    directories: int
    bytes: int
    requests: Requests = field(default_factory=Requests, compare=False)
    unreachable: int = 0
    """Entries of a volume of S3-FileSystem 1.0 that are not in the dump, since their parents are no
    directories."""


@counted
async def dump_volume(
    volume: Volume,
    target: str,
    *,
    form: DumpForm = "jsonl",
    path: str = ROOT,
    include_uncommitted: bool = False,
    progress: Callable[[Progress], object] | None = None,
    runtime: Runtime = SYSTEM,
) -> DumpResult:
    """Write the entries at and below `path` to the file `target`, which is replaced atomically.
    Memory is bounded.

    The dump has the entries of a recursive listing: a path that existed for the whole call is in it
    once, and entries changed meanwhile have the state of some moment of the call. A dump of one
    moment requires that no client writes. Directories in the trash are not in it.

    Raises PathNotFoundError, InvalidPathError (also for a path below it that has become too long),
    IsDirectoryError, UnsupportedError (`target` is a device, a pipe or a socket),
    PermissionDeniedError, NoSpaceError, and the services' errors.
    """
    target = await in_thread(replaceable, target)
    top, header = await dump_top(
        volume, path, include_uncommitted=include_uncommitted, runtime=runtime
    )
    end = DumpEnd()
    async with _appearing(target, runtime) as file:
        writer = _writer(form, file, header)

        async def add(page: Entries) -> None:
            nonlocal end
            require_valid(page, volume)
            for start in range(0, len(page), CHUNK):
                more = await in_thread(writer.write, page[start : start + CHUNK])
                end = end.plus(more.files, more.directories, more.bytes)
            if progress is not None:
                progress(Progress("dump", end.entries, bytes=end.bytes))

        async with aclosing(_found(volume, top, include_uncommitted)) as pages:
            async for page in pages:
                await add(page)
        await in_thread(writer.finish, end)
    unreachable = await count_unreachable(volume, path, include_uncommitted=include_uncommitted)
    return DumpResult(end.entries, end.files, end.directories, end.bytes, unreachable=unreachable)


def require_valid(page: Entries, volume: Volume) -> None:
    """Raise InvalidPathError for a path that no volume can load. In layout `tree`, the rename of a
    directory can make the paths below it too long."""
    for path in page.paths():
        try:
            volume.store.layout.check_path(path)
        except InvalidPathError as error:
            raise InvalidPathError(
                f"the path cannot be dumped: {error.message}; rename a directory above it",
                path=path,
            ) from error


async def dump_top(
    volume: Volume, path: str, *, include_uncommitted: bool, runtime: Runtime = SYSTEM
) -> tuple[Entry, DumpHeader]:
    """The status of the path, and the header of its dump. Raises PathNotFoundError,
    InvalidPathError."""
    top = await volume.store.get(path)
    if top is None:
        raise PathNotFoundError("no such file or directory", path=path)
    record = volume.record
    header = DumpHeader(
        volume=record.name,
        volume_id=record.volume_id,
        suffix_count=record.suffix_count,
        hash=record.hash,
        data=record.data,
        path=path,
        uncommitted=include_uncommitted,
        time_ms=runtime.now_ms(),
    )
    return top, header


async def count_unreachable(volume: Volume, path: str, *, include_uncommitted: bool) -> int:
    """The number of entries below `path` whose parents are no directories. Only a volume of
    S3-FileSystem 1.0, which changes its table without conditions, is scanned for them."""
    if volume.record.kind != "s3k-1.0":
        return 0
    count = 0
    async with aclosing(volume.store.scan(path)) as pages:
        async for page in pages:
            below = [
                split(entry.path)[0]
                for entry in page
                if entry.is_dir or entry.committed or include_uncommitted
            ]
            parents = list(set(below))
            found = await volume.store.stored_many(parents)
            directories = {
                parent
                for parent, entry in zip(parents, found, strict=True)
                if entry is not None and entry.is_dir
            }
            count += sum(parent not in directories for parent in below)
    return count


async def _found(
    volume: Volume, top: Entry, include_uncommitted: bool
) -> AsyncGenerator[Entries, None]:
    if top.is_dir and top.path != ROOT:
        yield in_columns([top], volume.store.keys)
    listing = Listing(recursive=True, include_uncommitted=include_uncommitted)
    async with aclosing(listing.pages(volume.store, top.path)) as pages:
        async for page in pages:
            yield page


def _writer(form: DumpForm, file: BinaryIO, header: DumpHeader) -> DumpWriter:
    if form == "parquet":
        from s3k_async.migrate.dump_parquet import ParquetWriter

        return ParquetWriter(file, header)
    from s3k_async.migrate.dump_jsonl import JsonLinesWriter

    return JsonLinesWriter(file, header)


def _create(path: str) -> BinaryIO:
    return open(path, "xb", opener=open_private)


@asynccontextmanager
async def _appearing(path: str, runtime: Runtime) -> AsyncIterator[BinaryIO]:
    """A temporary file, renamed into place at the end of the body."""
    building = f"{path}.{runtime.uuid()}.part"
    made: list[BinaryIO] = []
    with os_errors(path):
        try:
            try:
                # A cancellation is raised once the file is created.
                await in_thread(lambda: made.append(_create(building)))
                yield made[0]
                await in_thread(flush, made[0])
            finally:
                for file in made:
                    file.close()
            await in_thread(place, building, path)
        except BaseException:
            with suppress(OSError):
                os.unlink(building)
            raise
