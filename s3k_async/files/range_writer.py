"""Files that are open to replace bytes from an offset on, streamed and published in one change."""

from __future__ import annotations

from collections.abc import Callable

from s3k_async.files.edits import need_extents, need_range, publish_range, write_ranges
from s3k_async.files.file_ranges import need_readable
from s3k_async.files.open_files import FileWriter, reserve
from s3k_async.model import Entry
from s3k_async.namespace.layout import ConfirmedChain
from s3k_async.storage.extents import Extent, content_of, extents_of, whole_object
from s3k_async.storage.upload import PhysicalWriter
from s3k_async.volumes.volume import Volume

__all__ = ["RangeWriter", "open_range_writer"]


async def open_range_writer(volume: Callable[[], Volume], path: str, offset: int) -> FileWriter:
    """Open a file to replace its bytes from an offset on, as `write_range` does; the path of a
    missing one is reserved, and it is created when the writer is closed.

    Raises IsDirectoryError, NotDirectoryError, UncommittedFileError, BusyError,
    ReadOnlyVolumeError, InvalidArgumentError (the offset), UnsupportedError (a volume without
    extents, or an adopted file).
    """
    need_range(path, offset)
    opened = volume()
    with opened.calls.running("open", path):
        need_extents(opened, path)
        target, entry = await reserve(opened.store, path, exclusive=False)
        if target.current is not None:
            need_readable(entry)
            extents_of(entry.content, entry.id)
        upload = opened.storage.at(path).writer(target.object_id)
        return RangeWriter(
            volume,
            entry,
            upload,
            offset,
            reserved=target.current is None,
            chain=target.chain,
        )


class RangeWriter(FileWriter):
    """A file whose bytes are replaced from an offset on. They become visible together, when it is
    closed.

    Closing raises ConflictError if the file was removed or replaced since it was opened, or another
    client created it.
    """

    def __init__(
        self,
        volume: Callable[[], Volume],
        entry: Entry,
        upload: PhysicalWriter,
        offset: int,
        *,
        reserved: bool,
        chain: ConfirmedChain | None,
    ) -> None:
        super().__init__(volume, entry, upload, reserved=reserved, chain=chain)
        self._offset = offset

    def __repr__(self) -> str:
        return f"<RangeWriter {self.entry.path!r} {self._upload.size} bytes at {self._offset}>"

    @property
    def mode(self) -> str:
        """`r+b`."""
        return "r+b"

    @property
    def position(self) -> int:
        """As `tell`."""
        return self._offset + self._upload.size

    async def _finish(self) -> Entry:
        need_range(self.entry.path, self._offset, self._upload.size)
        if self._reserved:
            return await self._finish_new()
        volume, entry = self._volume(), self.entry
        data = self._upload.take_unsent()
        if data is not None:
            ranges = [(self._offset, data)]
            return await write_ranges(volume, entry.path, ranges, expected=entry.id)
        return await publish_range(
            volume,
            entry.path,
            self._offset,
            await self._upload.finish(),
            expected=entry.id,
            lease_ms=entry.lease_ms,
        )

    async def _finish_new(self) -> Entry:
        content = await self._upload.finish()
        if self._offset and content.size:
            hole = Extent("", 0, self._offset)
            new = whole_object(content)
            content = content_of(self.entry.id, [hole, new])
        return await self._publish(content)
