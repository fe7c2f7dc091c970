"""Whole files: write, copy and touch, published in one transaction and retried after a conflict."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeAlias

from s3k_async.attributes import Attributes
from s3k_async.backends.ports.blobs import Buffer
from s3k_async.bulk.entry_attributes import checked_attributes
from s3k_async.errors import (
    BlobChangedError,
    ConflictError,
    PathExistsError,
    S3kError,
    UncommittedFileError,
)
from s3k_async.files.open_files import bytes_of, drop_unpublished
from s3k_async.model import ROOT, ChangeResult, ChangeTally, Content, Entry, Progress
from s3k_async.namespace.conflict_backoff import ConflictBackoff
from s3k_async.namespace.store import WriteTarget
from s3k_async.storage.planned_upload import PlannedUpload
from s3k_async.volumes.volume import Volume

__all__ = [
    "ProgressCallback",
    "ProgressTally",
    "Upload",
    "is_below",
    "publish_new",
    "touch",
    "write",
]

ProgressCallback: TypeAlias = Callable[[Progress], object]
"""Called as work proceeds. An exception cancels the work and is raised to the caller."""

Upload: TypeAlias = Callable[[WriteTarget], Awaitable[Content]]
"""Uploads the data for a target, under its object id."""
Plan: TypeAlias = Callable[[WriteTarget], PlannedUpload | None]
"""The planned upload of the data for a target; None if its content is not known in advance."""


async def write(
    volume: Volume,
    path: str,
    data: Buffer,
    *,
    overwrite: bool,
    attributes: Attributes | None = None,
) -> Entry:
    """Write a file with the content `data`."""
    view = bytes_of(data, path)
    return await publish_new(
        volume,
        path,
        lambda target: volume.storage.at(path).put(target.object_id, view),
        lambda target: volume.storage.at(path).planned(target.object_id, view),
        overwrite=overwrite,
        attributes=attributes,
    )


async def publish_new(
    volume: Volume,
    path: str,
    upload: Upload,
    plan: Plan | None = None,
    *,
    overwrite: bool,
    attributes: Attributes | None = None,
    mtime_ms: int | None = None,
) -> Entry:
    """Upload and publish a file; the last writer wins. `attributes`: those of the file; None: a
    file that is replaced keeps its own. `mtime_ms`: its modification time; None is now. With
    `plan`, the data is uploaded while the operation is being logged, if its content is known.

    After a conflict it is retried for `Tuning.busy_timeout`; data that was uploaded for the same
    object id is used again, within the lease of the upload. Raises PathExistsError (not
    `overwrite`), IsDirectoryError, NotDirectoryError, BusyError, LeaseExpiredError, and
    ConflictError when every attempt failed.
    """
    store = volume.store
    stored = None
    if attributes is not None:
        stored = checked_attributes(volume, path, attributes).to_json()
    race = ConflictBackoff(store)
    data = _NewData(volume, upload, plan)
    try:
        while True:
            target = await store.prepare(path, overwrite=overwrite)
            if target.current is not None and not overwrite:
                raise PathExistsError("the file exists", path=path)
            publish = partial(
                store.publish, overwrite=overwrite, mtime_ms=mtime_ms, attributes=stored
            )
            try:
                return await data.publish(target, publish)
            except ConflictError as error:
                await race.lost(error)
    except S3kError as error:
        await data.drop(error)
        raise


@dataclass(slots=True)
class _NewData:
    """The data of a file that is being published."""

    volume: Volume
    upload: Upload
    plan: Plan | None
    stored: Content | None = None
    object_id: str = ""
    lease_ms: int = 0

    async def publish(self, target: WriteTarget, publish: Callable[..., Awaitable[Entry]]) -> Entry:
        """Upload the data, unless it was already uploaded for the same object id, and publish
        it."""
        if self.object_id != target.object_id:
            await self.drop(ConflictError("another object", path=target.path))
        planned = None
        if self.stored is None:
            self.object_id, self.lease_ms = target.object_id, target.lease_ms
            planned = None if self.plan is None else self.plan(target)
            if planned is None:
                self.stored = await self.upload(target)
        leased = target
        if target.lease_ms != self.lease_ms:
            leased = replace(target, lease_ms=self.lease_ms)
        if planned is None:
            return await publish(leased, self.stored)
        try:
            return await publish(leased, planned.content, upload=planned.store)
        except BlobChangedError:
            if planned.stored is None:
                raise
            # It has another tag than the one that was logged.
            return await publish(leased, planned.stored)
        finally:
            self.stored = planned.stored

    async def drop(self, reason: BaseException) -> None:
        """Remove the data if it is certainly unreferenced because publishing failed for
        `reason`."""
        stale, self.stored = self.stored, None
        if stale is not None:
            await drop_unpublished(self.volume.storage, stale.physical, reason)


async def touch(volume: Volume, path: str) -> Entry:
    """Create an empty file, or give the file a new version with the same content and the current
    time."""
    store = volume.store
    race = ConflictBackoff(store)
    while True:
        target = await store.prepare(path)
        current = target.current
        try:
            if current is None:
                content = await volume.storage.at(path).put(target.object_id, b"")
                try:
                    return await store.publish(target, content, overwrite=False)
                except S3kError as error:
                    await drop_unpublished(volume.storage, content.physical, error)
                    raise
            if current.is_reservation or current.physical is None:
                raise UncommittedFileError("the file is being written", path=path)
            return await store.publish(target, current.content)
        except (ConflictError, PathExistsError) as error:
            await race.lost(error)


class ProgressTally:
    """Counts changes, collects failures and reports progress."""

    def __init__(self, operation: str, progress: ProgressCallback | None) -> None:
        self._operation = operation
        self._progress = progress
        self._done = ChangeTally()
        self.failures = self._done.failures

    @property
    def result(self) -> ChangeResult:
        """The result so far."""
        return self._done.result()

    def add(self, entry: Entry) -> None:
        """Count one completed file or directory."""
        self.count(ChangeResult(int(not entry.is_dir), int(entry.is_dir), entry.size), entry.path)

    def count(self, more: ChangeResult, path: str | None = None) -> None:
        """Count several completed changes."""
        done = self._done
        done.files += more.files
        done.directories += more.directories
        done.bytes += more.bytes
        if self._progress is not None:
            count = done.files + done.directories
            self._progress(Progress(self._operation, count, bytes=done.bytes, path=path))

    @contextmanager
    def noting(self, path: object) -> Iterator[None]:
        """Record an error of the body as the failure of one path."""
        try:
            yield
        except S3kError as error:
            self.failures.append((str(path), error))


def is_below(path: str, directory: str) -> bool:
    """Whether a path is a directory or lies below it, by components."""
    return path == directory or path.startswith(ROOT if directory == ROOT else directory + "/")
