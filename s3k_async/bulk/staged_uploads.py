"""Staged uploads: data uploaded by one process and published by a transaction of another."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from s3k_async.errors import (
    ArgumentTypeError,
    InvalidArgumentError,
    PartialFailureError,
    S3kError,
    UnsupportedError,
)
from s3k_async.files.open_files import FileWriter
from s3k_async.model import ROOT, UNCOMMITTED, Content, Entry, StagedFile
from s3k_async.namespace.store import WriteTarget
from s3k_async.storage.extents import owner_of, physical_keys
from s3k_async.storage.physical import PhysicalStorage
from s3k_async.storage.upload import PhysicalWriter
from s3k_async.volumes.volume import Volume

__all__ = ["StagedWriter", "discard_staged", "drop_bytes", "need_staged", "open_staged"]


async def open_staged(volume: Callable[[], Volume], path: str = ROOT) -> StagedWriter:
    """Begin an upload for a later transaction, stored by the storage rule for a path."""
    opened = volume()
    with opened.calls.running("stage"):
        target = opened.store.target(ROOT, None)
        upload = opened.storage.at(path).writer(target.object_id)
        return StagedWriter(volume, target, upload, opened.record.volume_id)


class StagedWriter(FileWriter):
    """The writer of a staged upload: see `S3kClient.stage`.

    As any writer, except that closing publishes nothing: a transaction publishes `staged`. There is
    no path yet; `name`, and the path in the status that `commit` returns, are the physical key.
    """

    def __init__(
        self,
        volume: Callable[[], Volume],
        target: WriteTarget,
        upload: PhysicalWriter,
        volume_id: str,
    ) -> None:
        now = volume().store.runtime.now_ms()
        entry = Entry(
            upload.physical, False, target.object_id, 1, now // 1000, now, physical=UNCOMMITTED
        )
        super().__init__(volume, entry, upload, reserved=False)
        self._volume_id = volume_id
        self._lease_ms = target.lease_ms
        self._staged: StagedFile | None = None

    def __repr__(self) -> str:
        return f"<StagedWriter {self.name!r} {self.size} bytes>"

    @property
    def staged(self) -> StagedFile:
        """The staged file, after the writer is closed; raises UnsupportedError before, and if it
        was discarded."""
        if self._staged is None:
            raise UnsupportedError(
                "nothing is staged: the file is not closed, or was discarded", path=self.name
            )
        return self._staged

    async def _publish(self, content: Content) -> Entry:
        self._staged = StagedFile(self._volume_id, self.entry.id, content, self._lease_ms)
        will_be = self.entry.with_content(content, mtime_ms=self.entry.mtime_ms, operation="")
        return replace(will_be, committed=False)


async def discard_staged(volume: Volume, staged: Iterable[StagedFile]) -> None:
    """Delete the data of uploads that will not be published. Raises PartialFailureError with the
    remaining keys."""
    volume.store.require_writable(ROOT)
    given = list(staged)
    for each in given:
        need_staged(each, volume.record.volume_id)
    failures = await drop_bytes(volume.storage, [each.content.physical for each in given])
    if failures:
        raise PartialFailureError(
            f"{len(failures)} of {len(given)} staged files could not be dropped",
            failures=failures,
        ) from failures[0][1]


def need_staged(staged: object, volume_id: str) -> StagedFile:
    """Check a staged file. Raises ArgumentTypeError for any other object, InvalidArgumentError if
    it was staged in another volume."""
    if not isinstance(staged, StagedFile):
        raise ArgumentTypeError(f"expected a StagedFile, not {type(staged).__name__}")
    physical = staged.content.physical
    if staged.volume_id != volume_id:
        raise InvalidArgumentError("the file was staged in another volume", path=physical)
    if owner_of(physical) != staged.object_id:
        raise InvalidArgumentError("the key is not that of a staged file", path=physical)
    return staged


async def drop_bytes(storage: PhysicalStorage, keys: Sequence[str]) -> list[tuple[str, Exception]]:
    """Delete physical objects that are certainly unreferenced, a thousand in a request; returns the
    remaining keys with the reasons."""
    own = [key for physical in keys for key in physical_keys(physical)]
    try:
        return (
            [(failure.key, failure.error) for failure in await storage.blobs.delete_many(own)]
            if own
            else []
        )
    except S3kError as error:
        return [(key, error) for key in own]
