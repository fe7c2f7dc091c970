"""Local files into a volume and back for fsspec: streamed in pieces, with its callbacks."""

from __future__ import annotations

import os
from typing import Any

from anyio import to_thread

from s3k_async import local_tree
from s3k_async._core.active_calls import call
from s3k_async.adapters.fsspec_changes import PendingChanges
from s3k_async.adapters.fsspec_listing import readable
from s3k_async.client import S3kClient, reader_of, volume_of
from s3k_async.files import FileReader
from s3k_async.namespace.entry_reader import existing
from s3k_async.transfer import verified

__all__ = ["download", "download_into", "upload"]

CHUNK = 8 * 1024 * 1024
"""Bytes of a piece; a file of fewer is written in one step."""


async def upload(
    changes: PendingChanges, local: str, target: str, callback: Any, *, exclusive: bool
) -> None:
    """A local file to `target`. `callback` hears the size, and of every piece.

    Raises PathNotFoundError (no such local file), UnsupportedError (no regular file),
    PathExistsError (`exclusive`), and what writing raises.
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
    """A file to a local path, which has the whole file or what it had before; missing local
    directories are made.

    Raises PathNotFoundError, IsDirectoryError (a local directory is in the way), NotDirectoryError,
    UnsupportedError (a device, a pipe or a socket is there), CorruptDataError.
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
    """A file's bytes into an open local file. Raises as `download`, and what writing to the file
    raises."""
    reader = await _opened(client, source)
    callback.set_size(reader.size)
    async for piece in verified(reader):
        await to_thread.run_sync(file.write, piece)
        callback.relative_update(len(piece))


@call
async def _opened(client: S3kClient, source: str) -> FileReader:
    return reader_of(client, readable(await existing(volume_of(client).store, source)))
