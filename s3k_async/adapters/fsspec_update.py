"""A file that fsspec opens to read it and to change it in place (`r+b`)."""

from __future__ import annotations

import io
import logging
import os
import warnings
from bisect import bisect_right
from collections.abc import Sequence
from operator import itemgetter
from types import TracebackType
from typing import TYPE_CHECKING, Final

from s3k_async.adapters.fsspec_attributes import AttributedFileSystem
from s3k_async.adapters.unwind import Unwinding
from s3k_async.client import volume_of
from s3k_async.errors import InvalidArgumentError, StreamClosedError
from s3k_async.files.edits import truncate, write_ranges
from s3k_async.files.open_files import bytes_of, need_process

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer, WriteableBuffer

    from s3k_async.backends.ports.blobs import Buffer
    from s3k_async.model import Entry

__all__ = ["HELD_BYTES", "HELD_RANGES", "S3kUpdateFile", "UpdatableFileSystem"]

_LOG = logging.getLogger(__name__)

HELD_BYTES: Final = 32 * 1024 * 1024
"""Written bytes that a file holds before it applies them by itself."""
HELD_RANGES: Final = 4096
"""Separate ranges of written bytes that it holds: each takes memory, however short it is, and time
when it is applied."""


class UpdatableFileSystem(AttributedFileSystem):
    """Lookups, reads, attributes, and changes of files in place."""

    async def change(self, entry: Entry, ranges: Sequence[tuple[int, Buffer]]) -> Entry:
        """Write ranges of the file in the entry, in one change. Raises ConflictError if another
        file, or none, is at its path."""
        volume = volume_of(await self._client())
        with volume.calls.running("write_range", entry.path):
            return await write_ranges(volume, entry.path, ranges, expected=entry.id)

    async def resize(self, entry: Entry, size: int) -> Entry:
        """Give the file in the entry a size. Raises as `change`."""
        volume = volume_of(await self._client())
        with volume.calls.running("truncate", entry.path):
            return await truncate(volume, entry.path, size, expected=entry.id)


class S3kUpdateFile(io.RawIOBase):
    """A file open for reading and for writing at any position.

    What is written is held in memory, where reads of this file see it, and applied to the file in
    one change by `flush`, by `close`, or when HELD_BYTES or HELD_RANGES are held. A file that is
    left by an exception, or forgotten, drops what was not applied: during an exception that was
    raised after it was opened, `flush` has no effect, because wrappers call it before `close`, and
    `close` logs a warning. Applying raises ConflictError if
    the file was removed or replaced since it was opened; changes of other clients to the same file
    are kept, except where this file has written. Not for several threads at once.
    """

    mode = "r+b"

    def __init__(self, fs: UpdatableFileSystem, entry: Entry) -> None:
        super().__init__()
        self.fs = fs
        self.path = entry.path
        self._entry = entry
        self._position = 0
        self._written: list[tuple[int, bytearray]] = []
        """Offset and bytes that are not applied yet, in the order of the offsets; none overlap."""
        self._held = 0
        self._pid = os.getpid()
        self._unwinding: Unwinding | None = Unwinding()
        self._forgotten = False
        """Whether a finaliser closes a wrapper of the file, which flushes its buffer."""

    def __repr__(self) -> str:
        return f"<S3kUpdateFile {self.path!r} version {self._entry.version}>"

    @property
    def size(self) -> int:
        """Bytes in the file, with what is not applied yet."""
        return max(self._entry.size, _end(self._written[-1]) if self._written else 0)

    def readable(self) -> bool:
        """True."""
        return True

    def writable(self) -> bool:
        """True."""
        return True

    def seekable(self) -> bool:
        """True."""
        return True

    def tell(self) -> int:
        """The position, bytes from the start."""
        self._need_open()
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        """Move to an offset from the start, the position or the end, past the end too; returns the
        new position. Raises InvalidArgumentError for a position before the start."""
        self._need_open()
        bases = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self.size}
        if whence not in bases:
            raise InvalidArgumentError(f"whence is 0, 1 or 2, not {whence}", path=self.path)
        if bases[whence] + offset < 0:
            raise InvalidArgumentError("a position before the start of the file", path=self.path)
        self._position = bases[whence] + offset
        return self._position

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        """Fill the buffer with the next bytes; returns their number, fewer only at the end of the
        file. Raises DataMissingError, CorruptDataError."""
        self._need_open()
        with memoryview(buffer) as given, given.cast("B") as view:
            start = self._position
            length = max(0, min(len(view), self.size - start))
            stored = max(0, min(length, self._entry.size - start))
            if stored:
                # io.BufferedRandom writes what it has read between two changes.
                view[:stored] = self.fs.run_blocking(
                    lambda: self.fs.fetch_span(self._entry, start, start + stored, cached=False)
                )
            view[stored:length] = bytes(length - stored)
            for offset, data in self._written:
                first, last = max(offset, start), min(offset + len(data), start + length)
                if first < last:
                    view[first - start : last - start] = data[first - offset : last - offset]
            self._position += length
            return length

    def write(self, data: ReadableBuffer, /) -> int:
        """Replace the bytes at the position, or extend the file; returns their number."""
        self._need_open()
        view = bytes_of(data, self.path)
        if self._forgotten:
            self._warn_forgotten(self)
        elif len(view):
            self._hold(self._position, view)
            self._position += len(view)
            if self._held >= HELD_BYTES or len(self._written) >= HELD_RANGES:
                self._apply()
        return len(view)

    def truncate(self, size: int | None = None, /) -> int:
        """Apply what was written, and give the file a size, by default the position; returns it."""
        self._need_open()
        self._apply()
        wanted = self._position if size is None else size
        self._entry = self.fs.run_blocking(lambda: self.fs.resize(self._entry, wanted))
        self.fs.invalidate_cache(self.path)
        return wanted

    def flush(self) -> None:
        """Apply what was written, durably. Raises ConflictError (the file was removed or replaced),
        OutcomeUnknownError, and the errors of the service; then it is not applied, and stays
        held."""
        self._need_open()
        if not self._is_abandoned:
            self._apply()

    def _apply(self) -> None:
        if not self._written:
            return
        written = list(self._written)
        self._entry = self.fs.run_blocking(lambda: self.fs.change(self._entry, written))
        self._written, self._held = [], 0
        self.fs.invalidate_cache(self.path)

    def close(self) -> None:
        """Apply what was written. Raises as `flush`. Idempotent."""
        if self.closed:
            return
        try:
            self._need_open()
            if not self._is_abandoned:
                self._apply()
            elif self._written:
                _LOG.warning("changes of %s are not applied: an exception closes it", self.path)
        finally:
            self.discard()

    def discard(self) -> None:
        """Close the file without applying what was written since the last `flush`."""
        self._written, self._held = [], 0
        self._unwinding = None
        super().close()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is None:
            self.close()
        else:
            self.discard()

    def __del__(self) -> None:
        # Not the base's, which closes: a forgotten file must not change anything.
        if getattr(self, "_written", None) and not self.closed:
            self._warn_forgotten(self)

    def _dealloc_warn(self, source: object) -> None:
        """Called by `io` on the file below a finalised wrapper, before closing it."""
        self._forgotten = True
        if self._written:
            self._warn_forgotten(source)

    def _warn_forgotten(self, source: object) -> None:
        self._written = []
        warnings.warn(
            f"discarding changes of a file that was not closed: {self.path}",
            ResourceWarning,
            stacklevel=3,
            source=source,
        )

    def _hold(self, offset: int, data: memoryview) -> None:
        """Note written bytes, over those that were written before."""
        end = offset + len(data)
        first = bisect_right(self._written, offset, key=itemgetter(0))
        if first and _end(self._written[first - 1]) >= offset:
            first -= 1
        last = bisect_right(self._written, end, key=itemgetter(0))
        touched = self._written[first:last]
        before = sum(len(each) for _, each in touched)
        start, joined = touched[0] if touched and touched[0][0] <= offset else (offset, bytearray())
        rest = (
            touched[-1][1][end - touched[-1][0] :] if touched and _end(touched[-1]) > end else b""
        )
        joined[offset - start :] = data
        joined += rest
        self._held += len(joined) - before
        self._written[first:last] = [(start, joined)]

    @property
    def _is_abandoned(self) -> bool:
        """Whether an exception or a finaliser is closing the file."""
        return self._forgotten or (self._unwinding is not None and self._unwinding.by_exception)

    def _need_open(self) -> None:
        need_process(self._pid, self.path)
        if self.closed:
            raise StreamClosedError("the file is closed", path=self.path)


def _end(written: tuple[int, bytearray]) -> int:
    return written[0] + len(written[1])
