"""Import of a tree by adoption: its objects become files of a volume, and stay where they are."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Final

from s3k_async.bulk.adoption import canonical_uri, require_adoptable
from s3k_async.bulk.publish import ProgressCallback
from s3k_async.client import volume_of
from s3k_async.errors import PathExistsError, PathNotFoundError, S3kError
from s3k_async.model import ChangeTally
from s3k_async.trees.bucket_tree import BucketTree
from s3k_async.trees.comparison import Difference, TreeComparison
from s3k_async.trees.file_tree import TreeEntry
from s3k_async.trees.synchronization import Change, SyncOptions, SyncResult, kind_conflict
from s3k_async.trees.volume_tree import VolumeTree

__all__ = ["adopt_tree"]

CHUNK: Final = 10_000
"""Objects of one call."""


async def adopt_tree(
    source: BucketTree,
    target: VolumeTree,
    options: SyncOptions | None = None,
    *,
    on_change: Change | None = None,
    progress: ProgressCallback | None = None,
) -> SyncResult:
    """Import the objects of a bucket into a volume, without copying (`S3kClient.adopt_many`). An
    object whose key ends in `/` becomes a directory.

    Objects that are already adopted at their paths, in their present state, are unchanged. Of
    `options` only `selection`, `overwrite` and `dry_run` apply. The same call continues an
    interrupted one. Raises UnsupportedError (another kind of service), PathNotFoundError (no
    objects), NotDirectoryError (the target is a file).
    """
    chosen = options or SyncOptions()
    volume = volume_of(target.client)
    require_adoptable(volume, source.uri("-"))
    if not await source.exists():
        raise PathNotFoundError("no object has this prefix", path=source.label)

    def is_adopted(left: TreeEntry, right: TreeEntry) -> bool:
        return (
            right.entry is not None
            and (left.size, left.etag) == (right.size, right.etag)
            and right.entry.physical == canonical_uri(volume, source.uri(left.path))
        )

    comparison = TreeComparison(source, target, selection=chosen.selection, equal=is_adopted)
    done = ChangeTally()

    def is_refused(each: Difference) -> bool:
        """Whether it is a dry run, and a run would refuse an object, which is a failure then."""
        if not chosen.dry_run:
            return False
        where = target.path_of(each.path)
        error = _refusal(each, where, overwrite=chosen.overwrite)
        if error is not None:
            done.failures.append((where, error))
        return error is not None

    async with aclosing(_chunks(comparison, on_change, is_refused)) as chunks:
        async for chunk in chunks:
            directories = [entry for entry in chunk if entry.is_dir]
            files = [entry for entry in chunk if not entry.is_dir]
            if chosen.dry_run:
                done.directories += len(directories)
                done.files += len(files)
                done.bytes += sum(entry.size for entry in files)
                continue
            for entry in directories:
                try:
                    await target.make_directory(source, entry)
                except S3kError as error:
                    done.failures.append((target.path_of(entry.path), error))
                else:
                    done.directories += 1
            adopted = await target.client.adopt_many(
                [(target.path_of(entry.path), source.uri(entry.path)) for entry in files],
                overwrite=chosen.overwrite,
                progress=progress,
            )
            done.files += adopted.files
            done.bytes += adopted.bytes
            done.failures += adopted.failures
    failures: dict[str, Exception] = {**comparison.skipped, **dict(done.failures)}
    return SyncResult(
        done.files,
        done.directories,
        done.bytes,
        comparison.same,
        0,
        0,
        failures=tuple(failures.items()),
    )


def _refusal(each: Difference, where: str, *, overwrite: bool) -> S3kError | None:
    """The error of an adoption at the path of an existing file or directory; None without one."""
    if each.left is None or each.right is None:
        return None
    if each.kind == "type":
        return kind_conflict(each.left, where)
    if overwrite or each.left.is_dir:
        return None
    return PathExistsError("the file exists, and differs", path=where)


async def _chunks(
    comparison: TreeComparison, on_change: Change | None, is_refused: Callable[[Difference], bool]
) -> AsyncGenerator[list[TreeEntry], None]:
    """The objects to adopt, and the directories that are objects."""
    chunk: list[TreeEntry] = []
    blocked: str | None = None
    """A directory at whose path the target has a file."""
    async with aclosing(comparison.differences()) as differences:
        async for each in differences:
            if each.left is None or (blocked is not None and each.path.startswith(f"{blocked}/")):
                continue
            if is_refused(each):
                blocked = each.path if each.left.is_dir else blocked
                continue
            if each.left.is_dir and each.right is not None:
                continue
            if on_change is not None:
                on_change("make" if each.left.is_dir else "copy", each.left)
            chunk.append(each.left)
            if len(chunk) == CHUNK:
                yield chunk
                chunk = []
    if chunk:
        yield chunk
