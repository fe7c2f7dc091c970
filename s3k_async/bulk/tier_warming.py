"""Copies of files to the hot location of a volume with tiers, in advance of their use.

The cold objects stay, so readers, moves and garbage collection see the same state as during a move
(`storage.tiered_blobs`). A copy is read back and compared; one that differs is deleted, since the
cold object still exists. If a file is deleted during the copy, the copy may remain as an
unreferenced object, which the next garbage collection deletes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Final

from s3k_async._core.concurrency import run_all
from s3k_async._core.pace import Pace
from s3k_async.errors import (
    BlobChangedError,
    BlobNotFoundError,
    CorruptDataError,
    IsDirectoryError,
    UncommittedFileError,
)
from s3k_async.listing.listings import Listing
from s3k_async.model import Entry, Progress
from s3k_async.namespace.entry_reader import existing
from s3k_async.permissions import READ
from s3k_async.storage.extents import has_extents, parse_extents
from s3k_async.storage.object_copies import copy_to_hot
from s3k_async.storage.physical import is_uri
from s3k_async.storage.tiered_blobs import TieredBlobs, need_tiers
from s3k_async.volumes.volume import Volume

__all__ = ["TierWarming", "WarmResult"]

_COPIES_AT_ONCE: Final = 8
"""Objects that are copied at the same time."""


@dataclass(slots=True)
class WarmResult:
    """What was copied. Bytes are those of the copied objects."""

    files: int = 0
    """Files that were looked at; without adopted ones, whose data stays where it is."""
    copied: int = 0
    bytes: int = 0
    hot: int = 0
    """Objects that were in the hot location already."""
    vanished: int = 0
    """Objects that were deleted meanwhile."""
    damaged: list[str] = field(default_factory=list)
    """Keys of cold objects without their recorded checksum, and of those whose copy differed: they
    have no copy."""


class TierWarming:
    """Copies of files of a volume to its hot location. `rate`: bytes per second, at most. Raises
    UnsupportedError for a volume without tiers."""

    def __init__(
        self,
        volume: Volume,
        *,
        rate: float | None = None,
        dry_run: bool = False,
        progress: Callable[[Progress], object] | None = None,
    ) -> None:
        """`dry_run`: copy nothing, and count what would be copied."""
        self.result = WarmResult()
        self._volume = volume
        self._blobs: TieredBlobs = need_tiers(volume.blobs, volume.record.name)
        self._pace = Pace(rate, volume.store.runtime)
        self._dry_run = dry_run
        self._progress = progress

    async def add(self, path: str, *, recursive: bool = False) -> None:
        """Copy a file, or with `recursive` everything below a directory.

        Raises PathNotFoundError, IsDirectoryError (not `recursive`), UncommittedFileError,
        PermissionDeniedError (a file that the user may not read), NoSpaceError, and the stores'
        errors; what was copied before stays.
        """
        top = await existing(self._volume.store, path)
        if top.is_dir and not recursive:
            raise IsDirectoryError("a directory; -r copies everything below it", path=path)
        if top.is_reservation:
            raise UncommittedFileError("the file is being written", path=path)
        async with aclosing(Listing(recursive=True).pages(self._volume.store, path)) as pages:
            async for page in pages:
                for entry in page.files():
                    self._volume.store.access.require(entry, READ)
                await run_all(self._copy, self._objects(page.files()), limit=_COPIES_AT_ONCE)

    def _objects(self, files: Iterable[Entry]) -> list[tuple[str, str]]:
        """The objects of some files, each with its checksum if that is recorded."""
        found: list[tuple[str, str]] = []
        for entry in files:
            objects = _objects_of(entry)
            if objects is not None:
                self.result.files += 1
                found += objects.items()
        return found

    async def _copy(self, wanted: tuple[str, str]) -> None:
        key, checksum = wanted
        hot, cold = self._blobs.hot, self._blobs.cold
        if await hot.head(key) is not None:
            self.result.hot += 1
            return
        there = await cold.head(key)
        if there is None:
            self.result.vanished += 1
            return
        await self._pace.turn(0 if self._dry_run else there.size)
        try:
            if not self._dry_run:
                await copy_to_hot(cold, hot, key, there.size, self._part_size, checksum)
        except (BlobNotFoundError, BlobChangedError):
            self.result.vanished += 1
        except CorruptDataError:
            self.result.damaged.append(key)
        else:
            self.result.copied += 1
            self.result.bytes += there.size
        self._tell()

    @property
    def _part_size(self) -> int:
        return self._volume.config.tuning.part_size

    def _tell(self) -> None:
        if self._progress is not None:
            done = self.result
            self._progress(
                Progress("tier", done.copied, bytes=done.bytes, phase="copies", unit="objects")
            )


def _objects_of(entry: Entry) -> Mapping[str, str] | None:
    """The keys of a file's objects, with their checksums, empty where they are not known; None for
    an adopted file."""
    physical = str(entry.physical)
    if is_uri(physical):
        return None
    if not has_extents(physical):
        return {physical: entry.checksum}
    found: dict[str, str] = {}
    for extent in parse_extents(physical):
        if extent.key:
            found[extent.key] = extent.digest
    return found
