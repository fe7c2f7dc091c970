"""Import of a single object of a bucket as a file of a volume."""

from __future__ import annotations

from s3k_async.bulk.adoption import canonical_uri
from s3k_async.client import S3kClient, volume_of
from s3k_async.errors import PathExistsError, PathNotFoundError
from s3k_async.model import FileStatus
from s3k_async.trees.bucket_tree import BucketTree
from s3k_async.trees.file_tree import TreeEntry
from s3k_async.trees.synchronization import Change, SyncOptions, SyncResult
from s3k_async.trees.volume_tree import VolumeTree

__all__ = ["import_object"]

_NOTHING = SyncResult(0, 0, 0, 0, 0, 0)
_UNCHANGED = SyncResult(0, 0, 0, 1, 0, 0)


async def import_object(
    source: BucketTree,
    entry: TreeEntry,
    target: VolumeTree,
    options: SyncOptions,
    *,
    adopt: bool,
    into: bool = False,
    on_change: Change | None = None,
) -> SyncResult:
    """Copy or adopt an object of the source as the file `target`, or into the directory `target`:
    if there is one, or `into` says so.

    Of `options` only `selection`, `overwrite` and `dry_run` apply. Raises PathExistsError (the file
    exists, and differs), IsDirectoryError, and the errors of `S3kClient.adopt_many`.
    """
    if not options.selection.takes_below(entry.path):
        return _NOTHING
    client, uri = target.client, source.uri(entry.path)
    path = target.root
    present = None if into else await _status(client, path)
    if into or (present is not None and present.is_dir):
        path = target.path_of(entry.path)
        present = await _status(client, path)
    if present is not None and present.is_file:
        if adopt:
            was = (canonical_uri(volume_of(client), uri), entry.size, entry.etag)
            is_same = was == (present.physical, present.size, present.etag)
        else:
            is_newer = (entry.mtime_ms or 0) > present.mtime_ms
            is_same = entry.size == present.size and not is_newer
        if is_same:
            return _UNCHANGED
        if not options.overwrite:
            raise PathExistsError("the file exists, and differs", path=path)
    if on_change is not None:
        on_change("copy", entry)
    if not options.dry_run:
        if adopt:
            adopted = await client.adopt_many([(path, uri)], overwrite=options.overwrite)
            for _, error in adopted.failures:
                raise error
        else:
            file = source.new_file(entry, volume_of(client), path, overwrite=options.overwrite)
            await target.write_file(file, overwrite=options.overwrite)
    return SyncResult(1, 0, entry.size, 0, 0, 0)


async def _status(client: S3kClient, path: str) -> FileStatus | None:
    try:
        return await client.stat(path)
    except PathNotFoundError:
        return None
