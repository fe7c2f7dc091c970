"""Conditional changes of exactly the objects that a caller has seen. The verbs for paths change any
entry at a path; here every write is conditional on the object id, and on the version if one is
given."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from s3k_async._core.active_calls import call
from s3k_async._core.concurrency import run_all
from s3k_async.client import S3kClient, volume_of
from s3k_async.errors import (
    BusyError,
    ConflictError,
    LogFormatError,
    PathNotFoundError,
    PermissionDeniedError,
    S3kError,
)
from s3k_async.model import Entry, FileStatus
from s3k_async.namespace.conflict_backoff import ConflictBackoff
from s3k_async.namespace.pair_renames import PairRenames, RenamePair
from s3k_async.table.codec import in_columns
from s3k_async.transaction import Transaction
from s3k_async.txn.column_plan import plan_deletes
from s3k_async.txn.executor import execute

__all__ = ["Errors", "ExpectedObject", "delete_expected", "delete_seen", "rename_expected"]

ALONE = 8
"""Concurrent individual changes."""
CHUNK = 1000
"""Files of a tree that are checked and deleted together."""
CHUNKS = 4
"""Concurrent chunks."""

Errors: TypeAlias = dict[str, S3kError]
"""Failures by path: PathNotFoundError for a missing entry, ConflictError for another object or
version."""


@dataclass(frozen=True, slots=True)
class ExpectedObject:
    """An object at a path."""

    path: str
    id: str
    version: int | None = None
    """None: any version."""

    def need(self, found: Entry | FileStatus | S3kError | None) -> None:
        """Raise PathNotFoundError or ConflictError unless the entry is this object."""
        if isinstance(found, S3kError):
            raise found
        if found is None:
            raise PathNotFoundError("the entry was removed since it was read", path=self.path)
        if found.id != self.id:
            raise ConflictError(
                "another object is at this path; no changes were applied", path=self.path
            )
        if self.version is not None and found.version != self.version:
            raise ConflictError(
                "the file was changed since it was read; no changes were applied", path=self.path
            )


@call
async def rename_expected(
    client: S3kClient, pairs: Sequence[tuple[ExpectedObject, str]], *, overwrite: bool
) -> Errors:
    """Move each expected object to its target path, each independently. No path may occur in two
    pairs, or be above a path of another pair. With `overwrite` a file replaces any file at its
    target.
    """
    means = {meant.path: meant for meant, _ in pairs}

    async def by_itself(source: Entry, target: str) -> Entry:
        await move(source.path, target)
        return source

    async def move(source: str, target: str) -> None:
        await _alone(
            client, means[source], lambda change: change.rename(source, target, overwrite=overwrite)
        )

    renames = PairRenames(
        volume_of(client).store,
        overwrite=overwrite,
        missing_ok=False,
        need=lambda path, found: means[path].need(found),
        by_itself=by_itself,
    )
    await renames.rename([RenamePair(meant.path, target) for meant, target in pairs])
    errors = {path: error for path, error in renames.done.failures if isinstance(error, S3kError)}
    for pair in renames.directories:
        try:
            await move(pair.source, pair.target)
        except S3kError as error:
            errors[pair.source] = error
    return errors


@call
async def delete_expected(
    client: S3kClient, wanted: Sequence[ExpectedObject], *, recursive: bool
) -> Errors:
    """Remove the expected objects, each independently; none may be above another one. A directory
    that is not empty requires `recursive`, and is removed with its current content.
    """
    store = volume_of(client).store
    errors: Errors = {}
    files: list[Entry] = []
    alone: list[ExpectedObject] = []
    for meant, found in zip(
        wanted, await store.get_each([meant.path for meant in wanted]), strict=True
    ):
        try:
            meant.need(found)
        except S3kError as error:
            errors[meant.path] = error
            continue
        assert isinstance(found, Entry)
        if found.is_dir or found.pending:
            alone.append(meant)
        else:
            files.append(found)
    left = await _delete_files(client, files, errors)
    alone += [meant for meant in wanted if meant.path in left]

    async def delete(meant: ExpectedObject) -> None:
        try:
            await _alone(
                client, meant, lambda change: change.delete(meant.path, recursive=recursive)
            )
        except S3kError as error:
            errors[meant.path] = error

    await run_all(delete, alone, limit=ALONE)
    return errors


@call
async def delete_seen(client: S3kClient, entries: Iterable[FileStatus]) -> Errors:
    """Remove the versions of files, and the directories, that a listing showed; directories only if
    they are empty by then.
    """
    errors: Errors = {}

    async def delete(wanted: Sequence[ExpectedObject]) -> None:
        errors.update(await delete_expected(client, wanted, recursive=False))

    async def remove(directory: FileStatus) -> None:
        try:
            await client.delete(directory.path, expected=directory)
        except S3kError as error:
            errors[directory.path] = error

    files: list[ExpectedObject] = []
    directories: dict[int, list[FileStatus]] = {}
    for entry in entries:
        if entry.is_dir:
            directories.setdefault(entry.path.count("/"), []).append(entry)
        else:
            files.append(ExpectedObject(entry.path, entry.id, entry.version))
    await run_all(
        delete, (files[at : at + CHUNK] for at in range(0, len(files), CHUNK)), limit=CHUNKS
    )
    for depth in sorted(directories, reverse=True):
        await run_all(remove, directories[depth], limit=ALONE)
    return errors


async def _delete_files(client: S3kClient, files: Sequence[Entry], errors: Errors) -> set[str]:
    """Remove files at the versions that were read, many in a transaction; returns those to check
    again."""
    store = volume_of(client).store
    protected = {entry.path for entry in files if entry.read_only}
    files = [entry for entry in files if not entry.read_only]
    files = [entry for entry in files if await _is_permitted(client, entry, errors)]
    if not files:
        return protected
    plan = plan_deletes(in_columns(files, store.keys), store.runtime)
    try:
        report = await execute(
            store.items, store.changes.run_parts, plan, plan.lanes(), store.runtime.uuid
        )
    except LogFormatError:
        # The log cannot hold one of them, and nothing was changed.
        return protected | {entry.path for entry in files}
    left = protected | {plan.path(row) for row in report.refused}
    for row, error in report.failed.items():
        if isinstance(error, BusyError):
            left.add(plan.path(row))
        else:
            errors[plan.path(row)] = error
    return left


async def _is_permitted(client: S3kClient, file: Entry, errors: Errors) -> bool:
    """Whether the identity may remove a file; else the error is added."""
    try:
        await volume_of(client).store.access.permit_removal(file)
    except PermissionDeniedError as error:
        errors[file.path] = error
        return False
    return True


async def _alone(
    client: S3kClient, meant: ExpectedObject, change: Callable[[Transaction], Awaitable[None]]
) -> None:
    """Make a change in its own transaction, conditional on the version that its verb has seen."""
    race = ConflictBackoff(volume_of(client).store)
    while True:
        async with client.transaction() as transaction:
            await change(transaction)
            # Checked after the call of the verb: if the verb has seen another object, this check
            # fails too.
            meant.need(await client.stat(meant.path))
            try:
                await transaction.commit()
            except ConflictError as error:
                await race.lost(error)
            else:
                return
