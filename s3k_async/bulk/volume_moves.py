"""Moves of files and directories to another volume."""

from __future__ import annotations

from s3k_async.bulk.expected_objects import delete_seen
from s3k_async.bulk.transfer import ProgressCallback, TransferTally
from s3k_async.client import S3kClient, volume_of
from s3k_async.errors import UnsupportedError
from s3k_async.model import ROOT, ChangeResult
from s3k_async.namespace.addresses import inside

__all__ = ["move_to"]


async def move_to(
    client: S3kClient,
    other: S3kClient,
    source: str,
    target: str,
    *,
    overwrite: bool = False,
    progress: ProgressCallback | None = None,
) -> ChangeResult:
    """Move a file or a directory into another volume: copied completely, and only then deleted.

    Files are deleted by conditional writes at the id and version that they had before the copy.
    Entries that are created or changed in the source meanwhile are kept, with their parent
    directories, and are listed as failures. Raises the errors of `S3kClient.copy`; the source is
    then unchanged. If both clients have the same volume, by two addresses, this is its rename.
    """
    if volume_of(client).is_same(volume_of(other)):
        target = inside(target, other.name)
        return await client.rename(source, target, overwrite=overwrite, progress=progress)
    top = await client.stat(source)
    if top.path == ROOT:
        raise UnsupportedError("the root cannot be moved", path=top.path)
    entries = [top]
    if top.is_dir:
        entries += [found async for found in client.list(top.path, recursive=True)]
    await client.copy_to(
        other, top.path, target, overwrite=overwrite, recursive=True, progress=progress
    )
    transfer = TransferTally("move", sum(1 for entry in entries if entry.is_file), None)

    errors = await delete_seen(client, entries)
    for entry in entries:
        if error := errors.get(entry.path):
            transfer.failed(entry.path, error)
        elif entry.is_dir:
            transfer.tally.directories += 1
        else:
            transfer.done(entry.path, entry.size)
    return transfer.tally.result()
