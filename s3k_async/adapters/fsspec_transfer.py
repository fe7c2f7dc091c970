"""Local files into a volume and back for fsspec: streamed in pieces, with its callbacks."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import (
    AbstractAsyncContextManager,
    AsyncExitStack,
    asynccontextmanager,
    contextmanager,
    nullcontext,
)
from functools import partial
from typing import Any, Self

import anyio

from s3k_async._core.active_calls import call
from s3k_async._core.concurrency import ByteBudget, raise_first, to_the_end
from s3k_async._core.worker_threads import in_thread
from s3k_async.adapters.fsspec_changes import PendingChanges
from s3k_async.adapters.fsspec_listing import readable
from s3k_async.bulk import local_tree
from s3k_async.bulk.transfer import verified
from s3k_async.client import S3kClient, reader_of, volume_of
from s3k_async.files.open_files import FileReader

__all__ = [
    "FileTasks",
    "GatheredWrites",
    "download",
    "download_into",
    "gathered_writes",
    "upload",
]

CHUNK = 8 * 1024 * 1024
"""Bytes of a piece; a smaller file is written in one step."""
GATHERED_BYTES = 64 * 1024 * 1024
"""Bytes of small files that wait to be written or are being written by one `put`."""
LARGE_FILES = 16
"""Large files of one `put` in flight."""


class FileTasks:
    """The tasks that fsspec creates for the files of a call. fsspec leaves them running if the call
    is cancelled, so that they would outlive it: for `async with`, whose end cancels those that
    remain, and any that begin later, and waits for them."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()
        self._over = False

    @contextmanager
    def task(self) -> Iterator[None]:
        """Context of the task of a file."""
        if self._over:
            raise asyncio.CancelledError
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            yield
        finally:
            self._tasks.discard(task)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self._over = True
        left = list(self._tasks)
        for task in left:
            task.cancel()
        if left:
            await to_the_end(partial(asyncio.wait, left))


class GatheredWrites(FileTasks):
    """Writes of small files by one call, for each of which fsspec creates a task: those that wait
    while others are written form the next batch."""

    def __init__(self, client: S3kClient, *, overwrite: bool) -> None:
        super().__init__()
        self._bytes = ByteBudget(GATHERED_BYTES)
        self._large = anyio.Semaphore(LARGE_FILES)
        self._client = client
        self._overwrite = overwrite
        self._waiting: dict[str, tuple[bytes, asyncio.Future[None]]] = {}
        self._arrived = anyio.Event()

    def room(self, size: int) -> AbstractAsyncContextManager[object]:
        """Context in which a file of this size may be held in memory or sent."""
        return self._bytes.hold(size) if size < CHUNK else self._large

    async def write(self, path: str, data: bytes) -> None:
        """Write one file, with others that wait. Raises as `S3kClient.write`."""
        if path in self._waiting:  # another local file with the same target
            await self._client.write(path, data, overwrite=self._overwrite)
            return
        answer: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting[path] = data, answer
        self._arrived.set()
        await answer

    async def run(self) -> None:
        """Write what waits, until cancelled."""
        while True:
            await self._arrived.wait()
            self._arrived = anyio.Event()
            files, self._waiting = self._waiting, {}
            contents = [(path, data) for path, (data, _) in files.items()]
            result = await self._client.write_many(contents, overwrite=self._overwrite)
            failed = dict(result.failures)
            for path, (_, answer) in files.items():
                if answer.done():  # its task was cancelled
                    continue
                if error := failed.get(path):
                    answer.set_exception(error)
                else:
                    answer.set_result(None)


@asynccontextmanager
async def gathered_writes(client: S3kClient, *, overwrite: bool) -> AsyncIterator[GatheredWrites]:
    """GatheredWrites whose task runs during the body; all tasks have ended at its end."""
    writes = GatheredWrites(client, overwrite=overwrite)
    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(writes.run)
            async with writes:
                yield writes
            tasks.cancel_scope.cancel()
    except BaseExceptionGroup as group:
        raise_first(group)


async def upload(
    changes: PendingChanges,
    local: str,
    target: str,
    callback: Any,
    *,
    exclusive: bool,
    gathered: GatheredWrites | None = None,
) -> None:
    """Upload a local file to `target`, a small one with others of `gathered`. `callback` receives
    the size and the progress.

    Raises PathNotFoundError (no such local file), UnsupportedError (no regular file),
    PathExistsError (`exclusive`), and the errors of the write.
    """
    async with AsyncExitStack() as stack:
        descriptor, size = await stack.enter_async_context(local_tree.opened(local))
        callback.set_size(size)
        async with gathered.room(size) if gathered else nullcontext():
            piece = await local_tree.read_piece(descriptor, local, 0, CHUNK)
            if len(piece) < CHUNK:
                if gathered is not None:
                    await gathered.write(target, piece)
                else:
                    await changes.write(target, piece, overwrite=not exclusive)
                callback.relative_update(len(piece))
                return
            sent = 0
            async with changes.open(target, "xb" if exclusive else "wb") as writer:
                while piece:
                    await writer.write(piece)
                    callback.relative_update(len(piece))
                    sent += len(piece)
                    piece = await local_tree.read_piece(descriptor, local, sent, CHUNK)


async def download(client: S3kClient, source: str, local: str, callback: Any) -> None:
    """Download a file to a local path atomically; missing local directories are made.

    Raises PathNotFoundError, IsDirectoryError (the local path is a directory), NotDirectoryError,
    UnsupportedError (it is a device, a pipe or a socket), CorruptDataError.
    """
    reader = await _open(client, source)
    if not await in_thread(os.path.isdir, local):
        await in_thread(local_tree.make_directory, os.path.dirname(local) or ".")
    async with local_tree.appearing(local) as descriptor:
        callback.set_size(reader.size)
        async for piece in verified(reader):
            await local_tree.write_piece(descriptor, local, piece)
            callback.relative_update(len(piece))


async def download_into(client: S3kClient, source: str, file: Any, callback: Any) -> None:
    """Copy a file's bytes into an open local file. Raises as `download`, and the errors of that
    file."""
    reader = await _open(client, source)
    callback.set_size(reader.size)
    async for piece in verified(reader):
        await in_thread(file.write, piece)
        callback.relative_update(len(piece))


@call
async def _open(client: S3kClient, source: str) -> FileReader:
    store = volume_of(client).store
    return reader_of(client, readable(store, await store.lookup(source)))
