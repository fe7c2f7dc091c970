"""Renames, exchanges and deletions, of one path and of lists of paths.

In a list, files are changed first, many in a request, then the directories, one after the other.
Each path has its own result.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TypeAlias

from s3k_async._core.concurrency import run_all
from s3k_async.bulk.publish import ProgressCallback, ProgressTally, is_below
from s3k_async.errors import (
    ArgumentTypeError,
    ConflictError,
    InvalidArgumentError,
    PathNotFoundError,
    PermissionDeniedError,
    RenameIntoSelfError,
    S3kError,
)
from s3k_async.files.file_ranges import need_same
from s3k_async.model import ROOT, ChangeResult, Entry, FileStatus, Progress
from s3k_async.namespace.bulk_changes import BulkOutcome, delete_files
from s3k_async.namespace.conflict_backoff import ConflictBackoff
from s3k_async.namespace.entry_reader import existing, missing
from s3k_async.namespace.multi_path_commit import commit_mutations
from s3k_async.namespace.mutations import ExchangePaths
from s3k_async.namespace.pair_renames import PairRenames, RenamePair
from s3k_async.namespace.store import MetadataStore
from s3k_async.table.codec import in_columns
from s3k_async.volumes.volume import Volume

__all__ = [
    "Normalise",
    "delete",
    "delete_many",
    "exchange",
    "need_apart",
    "rename",
    "rename_many",
]

Normalise: TypeAlias = Callable[[str | os.PathLike[str]], str]
"""Normalises a path of the caller. Raises S3kError for an invalid one."""

CHUNK = 1000
"""Items of a list that are read together and logged in one segment."""
DELETING = 4
"""Chunks of files, or directories, that are deleted concurrently."""


async def rename(
    volume: Volume,
    source: str,
    target: str,
    *,
    overwrite: bool,
    atomic: bool = True,
    progress: ProgressCallback | None = None,
) -> ChangeResult:
    """Move a file or a directory."""
    entry, found = await volume.store.find_rename(source, target)
    if entry is None:
        raise missing(source)
    if entry.is_dir:
        if is_below(target, source):
            raise RenameIntoSelfError("the target is the directory itself or below it", path=target)
        moved = await volume.store.layout.rename_directory(
            entry, target, atomic=atomic, found=found.chain, progress=progress
        )
        return moved.raise_for_failures(path=source)
    if target == source:
        return ChangeResult()
    renamed = await volume.store.rename_file(entry, target, overwrite=overwrite, found=found)
    return _single("rename", renamed, progress)


async def exchange(volume: Volume, first: str, second: str) -> ChangeResult:
    """Let two entries change places."""
    volume.store.require_writable(first)
    need_apart(first, second)
    if first == second:
        await existing(volume.store, first)
        return ChangeResult()
    return await commit_mutations(volume.store, [ExchangePaths(first, second)])


def need_apart(first: str, second: str) -> None:
    """Raise RenameIntoSelfError if one of two paths that change places is below the other."""
    if first != second and (is_below(first, second) or is_below(second, first)):
        raise RenameIntoSelfError(
            "one of the paths is below the other, so they cannot be exchanged",
            path=max(first, second, key=len),
        )


async def delete(
    volume: Volume,
    path: str,
    *,
    recursive: bool,
    missing_ok: bool,
    atomic: bool = True,
    expected: FileStatus | None = None,
    progress: ProgressCallback | None = None,
    wait: bool = False,
) -> ChangeResult:
    """Remove a file or directory; with `expected`, only that version of the file, or that
    directory."""
    if path == ROOT:
        raise PermissionDeniedError("the root cannot be deleted", path=path)
    race = ConflictBackoff(volume.store)
    while True:
        try:
            entry = await existing(volume.store, path)
            if expected is not None:
                need_same(expected, entry)
            try:
                return await _delete(volume, entry, recursive, atomic, progress, wait)
            except ConflictError as error:
                await race.lost(error)
        except PathNotFoundError:
            if missing_ok:
                return ChangeResult()
            raise


async def _delete(
    volume: Volume,
    entry: Entry,
    recursive: bool,
    atomic: bool,
    progress: ProgressCallback | None,
    wait: bool,
) -> ChangeResult:
    store = volume.store
    with volume.freeing_space():
        if entry.is_dir and recursive:
            deleted = await store.layout.delete_directory(
                entry, atomic=atomic, progress=progress, wait=wait
            )
            return deleted.raise_for_failures(path=entry.path)
        await (store.remove_directory(entry) if entry.is_dir else store.delete_file(entry))
    return _single("delete", entry, progress)


def _single(operation: str, entry: Entry, progress: ProgressCallback | None) -> ChangeResult:
    """The result of a change of one file or directory."""
    if progress is not None:
        progress(Progress(operation, 1, bytes=entry.size, path=entry.path))
    return ChangeResult(int(not entry.is_dir), int(entry.is_dir), entry.size)


async def rename_many(
    volume: Volume,
    pairs: Iterable[tuple[str | os.PathLike[str], str | os.PathLike[str]]],
    normalise: Normalise,
    *,
    overwrite: bool,
    missing_ok: bool,
    progress: ProgressCallback | None,
) -> ChangeResult:
    """Rename the files of the list, then each of its directories."""
    store = volume.store
    store.require_writable(ROOT)
    tally = ProgressTally("rename", progress)
    renames = PairRenames(store, overwrite=overwrite, missing_ok=missing_ok)
    fit = _apart(_pairs(store, pairs, normalise, tally), tally)
    for start in range(0, len(fit), CHUNK):
        renames.done = BulkOutcome()
        await renames.rename(fit[start : start + CHUNK])
        _add(tally, renames.done)
    for pair in renames.directories:
        change = rename(volume, pair.source, pair.target, overwrite=overwrite)
        await _watch(tally, change, pair.source)
    return tally.result


async def delete_many(
    volume: Volume,
    paths: Iterable[str | os.PathLike[str]],
    normalise: Normalise,
    *,
    recursive: bool,
    missing_ok: bool,
    progress: ProgressCallback | None,
    wait: bool = False,
) -> ChangeResult:
    """Delete the files of the list, then its directories, the deepest first."""
    store = volume.store
    store.require_writable(ROOT)
    tally = ProgressTally("delete", progress)
    wanted = _paths(store, paths, normalise, tally)
    directories: list[str] = []

    async def delete_chunk(chunk: Sequence[str]) -> None:
        files = []
        gone = []
        since = store.runtime.monotonic()
        try:
            found = await store.get_each(chunk)
        except S3kError as error:
            tally.failures += [(path, error) for path in chunk]
            return
        for path, entry in zip(chunk, found, strict=True):
            if entry is None:
                gone.append(path)
            elif isinstance(entry, S3kError):
                tally.failures.append((path, entry))
            elif entry.is_dir:
                directories.append(path)
            else:
                files.append(entry)
        done = await delete_files(store, in_columns(files, store.keys), since=since, named=True)
        if not missing_ok:
            for path in [*gone, *done.gone]:
                done.failures.append(
                    (path, PathNotFoundError("no such file or directory", path=path))
                )
        _add(tally, done)

    async def delete_directory(path: str) -> None:
        change = delete(volume, path, recursive=recursive, missing_ok=missing_ok, wait=wait)
        await _watch(tally, change, path)

    with volume.freeing_space():
        chunks = (wanted[start : start + CHUNK] for start in range(0, len(wanted), CHUNK))
        await run_all(delete_chunk, chunks, limit=DELETING)
        by_depth: dict[int, list[str]] = {}
        for path in directories:
            by_depth.setdefault(path.count("/"), []).append(path)
        for depth in sorted(by_depth, reverse=True):
            await run_all(delete_directory, by_depth[depth], limit=DELETING)
    return tally.result


def _pairs(
    store: MetadataStore,
    pairs: Iterable[tuple[str | os.PathLike[str], str | os.PathLike[str]]],
    normalise: Normalise,
    tally: ProgressTally,
) -> list[RenamePair]:
    fit: dict[RenamePair, None] = {}
    for pair in pairs:
        if not _is_pair(pair):
            raise ArgumentTypeError(f"a pair is a source and a target, not {pair!r:.100}")
        with tally.noting(pair[0]):
            fit[
                RenamePair(_fitting(store, normalise(pair[0])), _fitting(store, normalise(pair[1])))
            ] = None
    return list(fit)


def _is_pair(value: object) -> bool:
    return isinstance(value, tuple | list) and len(value) == 2


def _apart(pairs: Sequence[RenamePair], tally: ProgressTally) -> list[RenamePair]:
    """The pairs whose paths occur in no other pair; the result of the others would depend on their
    order."""
    uses = Counter(path for pair in pairs for path in {pair.source, pair.target})
    fit = []
    for pair in pairs:
        shared = next((path for path in (pair.source, pair.target) if uses[path] > 1), None)
        if shared is None:
            fit.append(pair)
        else:
            error = InvalidArgumentError(
                "the path occurs in several pairs of the list", path=shared
            )
            tally.failures.append((pair.source, error))
    return fit


def _paths(
    store: MetadataStore,
    paths: Iterable[str | os.PathLike[str]],
    normalise: Normalise,
    tally: ProgressTally,
) -> list[str]:
    if isinstance(paths, str | bytes):
        raise ArgumentTypeError("expected a list of paths, not one path")
    fit: dict[str, None] = {}
    for given in paths:
        with tally.noting(given):
            path = _fitting(store, normalise(given))
            if path == ROOT:
                raise PermissionDeniedError("the root cannot be deleted", path=path)
            fit[path] = None
    return list(fit)


def _fitting(store: MetadataStore, path: str) -> str:
    """The path, if it has a key. Raises InvalidPathError."""
    if path != ROOT:
        store.layout.check_path(path)
    return path


def _add(tally: ProgressTally, done: BulkOutcome) -> None:
    tally.failures += done.failures
    tally.count(ChangeResult(done.files, 0, done.bytes))


async def _watch(tally: ProgressTally, change: Awaitable[ChangeResult], path: str) -> None:
    """Record the outcome for one directory."""
    try:
        done = await change
    except S3kError as error:
        tally.failures.append((path, error))
    else:
        tally.count(done, path)
