"""What `mv` of fsspec means in renames."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from glob import has_magic
from typing import TYPE_CHECKING

from fsspec.utils import other_paths

from s3k_async._native import ancestors
from s3k_async.adapters.fsspec_listing import status_of
from s3k_async.bulk.expected_objects import delete_seen
from s3k_async.client import S3kClient
from s3k_async.errors import ConflictError, DirectoryNotEmptyError, PathNotFoundError
from s3k_async.model import ROOT, FileStatus

if TYPE_CHECKING:
    from s3k_async.adapters.fsspec import S3kFileSystem

__all__ = ["Pairs", "merge", "merges", "pairs_of", "remove_seen", "rename", "seen_at"]

Pairs = list[tuple[str, str]]


async def merges(fs: S3kFileSystem, source: object, target: object) -> bool:
    """Whether fsspec would put what is in the source directory among what is in the target:
    `mv("a/", "b")`."""
    if (
        not isinstance(source, str)
        or not isinstance(target, str)
        or not source.endswith("/")
        or has_magic(source)
    ):
        return False
    return (
        fs._strip_protocol(source) != ROOT and await fs._isdir(source) and await fs._isdir(target)
    )


async def merge(
    fs: S3kFileSystem, source: str | list[str], target: str | list[str], maxdepth: int | None
) -> None:
    """Rename each file to where fsspec's `copy` would put it, and remove the directories that are
    empty then. What others put into them meanwhile stays where it is, and so does what lies deeper
    than `maxdepth`.

    Raises what the first that failed failed with; the other files were moved.
    """
    client = await fs._client()
    paths = await fs._expand_path(source, recursive=True, maxdepth=maxdepth)
    into = fs._strip_protocol(target)
    if isinstance(source, str) and has_magic(source):
        beneath = len(paths) == 1
    else:
        beneath = (
            isinstance(source, str) and not source.endswith("/") and await _is_directory(fs, target)
        )
    targets = other_paths(paths, into, exists=beneath, flatten=isinstance(source, list))
    files: Pairs = []
    directories: dict[str, tuple[FileStatus, str]] = {}
    for path, place, status in zip(paths, targets, await client.stat_many(paths), strict=True):
        if status is not None and status.is_dir:
            directories[path] = status, place or ROOT
        else:
            files.append((path, place or ROOT))
    made = {place for _, place in directories.values()}
    for place in made:
        await client.makedirs(place)
    await rename(client, files)
    for emptied in sorted(directories.keys() - {ROOT, *made}, reverse=True):
        with suppress(ConflictError, DirectoryNotEmptyError, PathNotFoundError):
            await client.delete(emptied, expected=directories[emptied][0])


async def _is_directory(fs: S3kFileSystem, target: str | list[str]) -> bool:
    """Whether the target is a directory, or is meant to be one."""
    return isinstance(target, str) and (target.endswith("/") or bool(await fs._isdir(target)))


async def pairs_of(
    fs: S3kFileSystem, source: str | list[str], target: str | list[str], *, recursive: bool
) -> Pairs:
    """What is to be renamed to what. Patterns and lists mean what they mean to fsspec's `copy`.

    Raises PathNotFoundError, before anything was changed.
    """
    client = await fs._client()
    if isinstance(source, list) and isinstance(target, list):
        return list(
            zip(map(fs._strip_protocol, source), map(fs._strip_protocol, target), strict=True)
        )
    if isinstance(source, str) and isinstance(target, str) and not has_magic(source):
        old, new = fs._strip_protocol(source), fs._strip_protocol(target)
        await status_of(client, old)
        beneath = old != new and await _is_directory(fs, target)
        return [(old, f"{new.rstrip('/')}/{old.rpartition('/')[2]}" if beneath else new)]
    return await _expanded(fs, source, target, recursive=recursive)


async def _expanded(
    fs: S3kFileSystem, source: str | list[str], target: str | list[str], *, recursive: bool
) -> Pairs:
    """As fsspec expands them for `copy`, but without what moves along with a directory above it."""
    paths = await fs._expand_path(source, recursive=recursive)
    if isinstance(source, str) and not recursive:
        paths = [path for path in paths if not await fs._isdir(path)]
    into = fs._strip_protocol(target)
    targets = other_paths(
        paths,
        into,
        exists=isinstance(source, str) and len(paths) == 1,
        flatten=isinstance(source, list),
    )
    known = set(paths)
    return [
        pair for pair in zip(paths, targets, strict=True) if known.isdisjoint(ancestors(pair[0]))
    ]


async def rename(client: S3kClient, pairs: Pairs) -> None:
    """Rename each pair, files over files; missing parents of the targets are made. Several are not
    one change.

    Raises what the first that failed failed with.
    """
    pairs = [pair for pair in pairs if pair[0] != pair[1]]
    if len(pairs) == 1:
        try:
            await client.rename(*pairs[0], overwrite=True)
        except PathNotFoundError:
            await status_of(client, pairs[0][0])
        else:
            return
    parents = {target.rpartition("/")[0] or ROOT for _, target in pairs}
    for (source, _), status in zip(
        pairs, await client.stat_many(source for source, _ in pairs), strict=True
    ):
        if status is None:
            raise PathNotFoundError("no such file or directory", path=source)
    for parent in sorted(parents - {ROOT}):
        await client.makedirs(parent)
    if pairs:
        for _, error in (await client.rename_many(pairs, overwrite=True)).failures:
            raise error


async def seen_at(fs: S3kFileSystem, path: str) -> list[FileStatus]:
    """What is at a path, and all that is below it, the topmost first. Raises PathNotFoundError."""
    client = await fs._client()
    top = await status_of(client, fs._strip_protocol(path))
    below = [status async for status in client.list(top.path, recursive=True)] if top.is_dir else []
    return [top, *below]


async def remove_seen(fs: S3kFileSystem, seen: Sequence[FileStatus]) -> None:
    """Remove what `seen_at` found, as far as it is the same; in a transaction, all of it at its
    end.

    Raises what the first that could not be removed failed with: ConflictError,
    DirectoryNotEmptyError.
    """
    try:
        if fs._together is not None:
            await (await fs._changes()).remove(seen)
            return
        for error in (await delete_seen(await fs._client(), seen)).values():
            raise error
    finally:
        for status in seen:
            fs.invalidate_cache(status.path)
