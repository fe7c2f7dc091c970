"""Local files into a volume and back for fsspec: streamed in pieces, with its callbacks."""

from __future__ import annotations

import os
from typing import Any

from anyio import to_thread

from s3k_async._core.active_calls import call
from s3k_async.adapters.fsspec_changes import PendingChanges
from s3k_async.adapters.fsspec_listing import readable
from s3k_async.bulk import local_tree
from s3k_async.bulk.transfer import verified
from s3k_async.client import S3kClient, reader_of, volume_of
from s3k_async.files.open_files import FileReader

__all__ = ["download", "download_into", "upload"]

CHUNK = 8 * 1024 * 1024
"""Bytes of a piece; a smaller file is written in one step."""


async def upload(
    changes: PendingChanges, local: str, target: str, callback: Any, *, exclusive: bool
) -> None:
    """Upload a local file to `target`. `callback` receives the size and the progress.

    Raises PathNotFoundError (no such local file), UnsupportedError (no regular file),
    PathExistsError (`exclusive`), and the errors of the write.
    """
    descriptor, size = await to_thread.run_sync(local_tree.open_regular, local)
    try:
        callback.set_size(size)
        piece = await to_thread.run_sync(local_tree.read, descriptor, local, 0, CHUNK)
        if len(piece) < CHUNK:
            await changes.write(target, piece, overwrite=not exclusive)
            callback.relative_update(len(piece))
            return
        sent = 0
        async with changes.open(target, "xb" if exclusive else "wb") as writer:
            while piece:
                await writer.write(piece)
                callback.relative_update(len(piece))
                sent += len(piece)
                piece = await to_thread.run_sync(local_tree.read, descriptor, local, sent, CHUNK)
    finally:
        os.close(descriptor)


async def download(client: S3kClient, source: str, local: str, callback: Any) -> None:
    """Download a file to a local path atomically; missing local directories are made.

    Raises PathNotFoundError, IsDirectoryError (the local path is a directory), NotDirectoryError,
    UnsupportedError (it is a device, a pipe or a socket), CorruptDataError.
    """
    reader = await _opened(client, source)
    if not await to_thread.run_sync(os.path.isdir, local):
        await to_thread.run_sync(local_tree.make_directory, os.path.dirname(local) or ".")
    async with local_tree.appearing(local) as descriptor:
        callback.set_size(reader.size)
        async for piece in verified(reader):
            await to_thread.run_sync(local_tree.write, descriptor, local, piece)
            callback.relative_update(len(piece))


async def download_into(client: S3kClient, source: str, file: Any, callback: Any) -> None:
    """Copy a file's bytes into an open local file. Raises as `download`, and the errors of that
    file."""
    reader = await _opened(client, source)
    callback.set_size(reader.size)
    async for piece in verified(reader):
        await to_thread.run_sync(file.write, piece)
        callback.relative_update(len(piece))


@call
async def _opened(client: S3kClient, source: str) -> FileReader:
    return reader_of(client, readable(await volume_of(client).store.lookup(source)))
