"""Open files for fsspec: readers with block caches, and writers."""

from __future__ import annotations

import asyncio
import io
import logging
import os
import warnings
from copy import copy
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, cast

from fsspec.asyn import AbstractAsyncStreamedFile
from fsspec.spec import AbstractBufferedFile

from s3k_async.adapters.fsspec_arguments import block_size_of
from s3k_async.adapters.fsspec_listing import Info, info_of
from s3k_async.adapters.sessions import post_on
from s3k_async.adapters.unwind import Unwinding
from s3k_async.errors import CorruptDataError, StreamClosedError, UnsupportedError
from s3k_async.files.file_ranges import SequentialCheck
from s3k_async.files.open_files import FileReader, FileWriter, bytes_of, need_process
from s3k_async.model import Entry, status_of

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer, WriteableBuffer

    from s3k_async.adapters.fsspec_reading import ReadableFileSystem

__all__ = ["CompressedFile", "S3kAsyncFile", "S3kReadFile", "S3kWriteFile"]

_LOG = logging.getLogger(__name__)

LINE_BLOCK = 64 * 1024
"""Bytes searched at once for the end of a line."""
SHORT_CACHES = ("none", "readahead")
"""fsspec's caches that hold at most what follows the last read."""
THREADED_CACHES = ("background",)
"""fsspec's caches that fetch in a thread."""


class S3kReadFile(AbstractBufferedFile):  # type: ignore[misc]  # fsspec is untyped
    """A file open for reading, at the version at the time of opening, even if other clients
    overwrite it.

    `cache_type` and `block_size` have fsspec's meaning. It holds no connection: in a forked child,
    or unpickled in another process, it reads the same version. If the cache fetches the whole file
    in order, its checksum is verified with the last bytes. Every read may raise DataMissingError,
    CorruptDataError, StreamClosedError.
    """

    cache: Any

    def __init__(
        self,
        fs: ReadableFileSystem,
        entry: Entry,
        *,
        block_size: int | str | None = None,
        cache_type: str | None = None,
        cache_options: dict[str, Any] | None = None,
    ) -> None:
        self._entry = entry
        self._check = SequentialCheck(entry)
        self._details: Info = info_of(status_of(entry))
        self._cache_type = cache_type or "readahead"
        self._cache_options = cache_options
        super().__init__(
            fs,
            entry.path,
            "rb",
            block_size=block_size_of(block_size, self._cache_type),
            cache_type=self._cache_type,
            cache_options=dict(cache_options or {}),
            size=entry.size,
        )
        self._pid = os.getpid()

    def read(self, length: int | None = -1) -> bytes:
        """The next bytes, fewer only at the end of the file; all remaining ones for a negative
        length or None."""
        self._need_open()
        return cast(bytes, super().read(-1 if length is None else length))

    def readinto(self, buffer: WriteableBuffer) -> int:
        """Fill the buffer with the next bytes and return how many; fewer than fit only at the end
        of the file. A block or more that is in no cache is read without a copy."""
        self._need_open()
        with memoryview(buffer) as given, given.cast("B") as view:
            size: int = min(len(view), max(0, self.size - self.loc))
            if size < max(1, self.blocksize) or self._is_cached():
                return cast(int, super().readinto(view))
            check = self._check.copy()
            with view[:size] as place:
                self.fs.run_blocking(
                    lambda: self.fs.fetch_into(self._entry, self.loc, place, check.add)
                )
        self._check = check
        self.loc += size
        return size

    def seek(self, loc: int, whence: int = io.SEEK_SET) -> int:
        self._need_open()
        return cast(int, super().seek(loc, whence))

    def tell(self) -> int:
        self._need_open()
        return cast(int, super().tell())

    def readuntil(self, char: bytes = b"\n", blocks: int | None = None) -> bytes:
        return cast(bytes, super().readuntil(char, blocks or LINE_BLOCK))

    def readline(self, size: int | None = -1) -> bytes:
        """The next line with its end; at most `size` bytes of it, unless that is negative or
        None."""
        line = self.readuntil(b"\n")
        if size is not None and 0 <= size < len(line):
            self.seek(size - len(line), io.SEEK_CUR)
            line = line[:size]
        return line

    def readlines(self, hint: int | None = -1) -> list[bytes]:
        """The remaining lines; about `hint` bytes of them, as in `io`, unless it is 0, negative or
        None."""
        return io.IOBase.readlines(self, -1 if hint is None else hint)

    def write(self, _data: ReadableBuffer) -> int:
        """Raises UnsupportedError."""
        raise UnsupportedError("the file is open for reading", path=self.path)

    def __reduce__(self) -> tuple[Any, ...]:
        place = 0 if self.closed else self.loc
        return _reopened, (
            self.fs,
            self._entry,
            self.blocksize,
            self._cache_type,
            self._cache_options,
            place,
        )

    def _fetch_range(self, start: int, end: int) -> bytes:
        check = self._check.copy()
        stop = min(end, self.size)
        try:
            data: bytes = self.fs.run_blocking(
                lambda: self.fs.fetch_span(self._entry, start, stop, check.add)
            )
        except CorruptDataError:
            self._check = check  # for later reads, which raise it again
            raise
        self._check = check
        return data

    def _is_cached(self) -> bool:
        """Whether the cache may hold bytes from the position on."""
        if self._cache_type not in SHORT_CACHES:
            return True
        return self.loc in range(getattr(self.cache, "start", 0), getattr(self.cache, "end", 0))

    def _need_open(self) -> None:
        if self.closed:
            raise StreamClosedError("the file is closed", path=self.path)
        if self._pid != os.getpid():
            self._pid = os.getpid()
            if self._cache_type in THREADED_CACHES:
                # It would wait for a thread of the parent, or for a lock that this may have held;
                # a copy has its own.
                self.cache = copy(self.cache)


def _reopened(
    fs: ReadableFileSystem,
    entry: Entry,
    block_size: int,
    cache_type: str,
    cache_options: dict[str, Any] | None,
    place: int,
) -> S3kReadFile:
    file = S3kReadFile(
        fs, entry, block_size=block_size, cache_type=cache_type, cache_options=cache_options
    )
    file.seek(place)
    return file


class S3kWriteFile(AbstractBufferedFile):  # type: ignore[misc]  # fsspec is untyped
    """A file open for writing. Nothing is visible before `close`, and nothing ever if the writer
    raises.

    A file closed during an exception that was raised after it was opened is discarded, also in an
    `except` clause; a warning is logged, because `close` itself does not raise. The finaliser
    discards a forgotten file with a ResourceWarning. With `autocommit=False` `commit` publishes it,
    not `close`. A failure is final: every later call raises it again.
    """

    def __init__(
        self,
        fs: ReadableFileSystem,
        writer: FileWriter,
        mode: str,
        *,
        block_size: int | None,
        autocommit: bool,
    ) -> None:
        super().__init__(fs, writer.name, mode, block_size=block_size, autocommit=autocommit)
        self.loc = writer.position
        self._writer = writer
        self._loop = cast(asyncio.AbstractEventLoop, fs.loop)
        self._pid = os.getpid()
        self._unwinding: Unwinding | None = Unwinding()
        self.forgotten = False
        """Whether a finaliser discards the file: writes and `close` then have no effect."""

    def write(self, data: ReadableBuffer) -> int:
        """Accept bytes, which are sent in parts; returns their number.

        Raises StreamClosedError, ArgumentTypeError (no bytes), NoSpaceError, the errors of the
        service.
        """
        view = bytes_of(data, self.path)
        if self.forgotten:
            return len(view)  # the finaliser of a wrapper flushes its buffer
        self._need_open()
        self._writer.need_open()
        step = self._writer.part_size
        for start in range(0, len(view), step):
            if self._writer.add(view[start : start + step]):
                self.fs.run_blocking(self._writer.drain)
        self.loc += len(view)
        return len(view)

    def flush(self, force: bool = False) -> None:
        """No effect: parts are sent when complete, and `close` publishes the file."""
        del force
        if self.closed and not self.forgotten:
            raise StreamClosedError("the file is closed", path=self.path)

    def tell(self) -> int:
        """Bytes in the file so far."""
        self._need_open()
        return self.loc

    def commit(self) -> None:
        """Publish the file, durably. Idempotent.

        Raises ConflictError (another client changed the path meanwhile), LeaseExpiredError,
        OutcomeUnknownError, StreamClosedError (discarded), and the error of the upload.
        """
        self._need_process()
        try:
            self.fs.run_blocking(self._writer.commit)
        finally:
            self._end()
            self.fs.invalidate_cache(self.path)

    def close(self) -> None:
        """Publish the file; if an exception closes it, discard it. Harmless when called again.
        Raises as `commit`."""
        if self.closed:
            return
        if self.forgotten:
            self._end()
            self._post_discard()
        elif self._unwinding is not None and self._unwinding.by_exception:
            _LOG.warning("%s is not published: an exception closes it", self.path)
            self.discard()
        elif self.autocommit:
            self.commit()
        else:
            self._end()

    def discard(self) -> None:
        """Discard the file and its upload. No effect on a published file."""
        self._end()
        if self._pid == os.getpid() and not self._writer.over:
            self.fs.run_blocking(self._writer.discard)

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

    def _dealloc_warn(self, source: object) -> None:
        """Called by `io` on the file below a finalised wrapper, before closing it."""
        if not self.closed:
            self.forget(source)

    def forget(self, source: object) -> None:
        """Note that a finaliser discards the file, with a ResourceWarning about `source`."""
        if not self.forgotten:
            self.forgotten = True
            warnings.warn(
                f"discarding a file that was not closed: {self.path}",
                ResourceWarning,
                stacklevel=3,
                source=source,
            )

    def __del__(self) -> None:
        if getattr(self, "_writer", None) is None or self._writer.over or self._pid != os.getpid():
            return
        self._end()
        self._post_discard()
        self.forget(self)

    def _post_discard(self) -> None:
        if self._pid == os.getpid() and not self._writer.over:
            post_on(self._loop, self._writer.discard)

    def _end(self) -> None:
        self.closed = True
        self._unwinding = None

    def _need_open(self) -> None:
        self._need_process()
        if self.closed:
            raise StreamClosedError("the file is closed", path=self.path)

    def _need_process(self) -> None:
        need_process(self._pid, self.path)


class CompressedFile(io.BufferedIOBase):
    """A compressor and its target file, closed and discarded together.

    The compressors of the standard library do not close the file below them, which then would never
    be published.
    """

    def __init__(self, compressor: Any, file: S3kWriteFile) -> None:
        super().__init__()
        self._compressor = compressor
        self._file = file

    def writable(self) -> bool:
        return True

    def write(self, data: ReadableBuffer, /) -> int:
        return cast(int, self._compressor.write(data))

    def tell(self) -> int:
        return cast(int, self._compressor.tell())

    def flush(self) -> None:
        if not self._compressor.closed:
            self._compressor.flush()

    def close(self) -> None:
        if self.closed:
            return
        try:
            self._compressor.close()
        except BaseException:
            self._file.discard()
            raise
        finally:
            super().close()
        self._file.close()

    def commit(self) -> None:
        """Publish the file."""
        self._file.commit()

    def discard(self) -> None:
        """Publish nothing."""
        self._file.discard()
        self._file.forgotten = True
        self.close()

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

    def _dealloc_warn(self, source: object) -> None:
        if not self._file.closed:
            self._file.forget(source)

    def __del__(self) -> None:
        if not self.closed:
            self._dealloc_warn(self)
            self.close()


class S3kAsyncFile(AbstractAsyncStreamedFile):  # type: ignore[misc]  # fsspec is untyped
    """A file for coroutines: the client's reader or writer. An exception in `async with` discards
    it."""

    def __init__(self, fs: ReadableFileSystem, file: FileReader | FileWriter, mode: str) -> None:
        # Not the base's `__init__`, which makes the cache of a blocking file.
        self.fs = fs
        self.path = file.name
        self.mode = mode
        self.kwargs: dict[str, Any] = {}
        self.blocksize = self.DEFAULT_BLOCK_SIZE
        self.autocommit = True
        self.closed = False
        self._file = file
        self._unwinding = Unwinding()
        self._loop = asyncio.get_running_loop()
        self._pid = os.getpid()
        if isinstance(file, FileReader):
            self._details = info_of(file.status)
        self.loc = 0 if isinstance(file, FileReader) else file.size

    @property
    def size(self) -> int:
        """Bytes in the file, or accepted so far."""
        return self._file.size

    async def read(self, length: int | None = -1) -> bytes:
        if not isinstance(self._file, FileReader):
            raise UnsupportedError("the file is open for writing", path=self.path)
        data = await self._file.read(length)
        self.loc += len(data)
        return data

    def seek(self, loc: int, whence: int = io.SEEK_SET) -> int:
        """Raises UnsupportedError (open for writing), InvalidArgumentError (before the start)."""
        if not isinstance(self._file, FileReader):
            raise UnsupportedError("a file open for writing cannot seek", path=self.path)
        self.loc = self._file.move(loc, whence)
        return self.loc

    async def write(self, data: ReadableBuffer) -> int:
        if not isinstance(self._file, FileWriter):
            raise UnsupportedError("the file is open for reading", path=self.path)
        taken = await self._file.write(cast(bytes, data))
        self.loc += taken
        return taken

    async def flush(self, force: bool = False) -> None:
        """No effect: parts are sent when complete, and `close` publishes the file."""
        del force

    async def close(self) -> None:
        """Publish a written file, unless an exception closes it."""
        if self.closed:
            return
        if self._unwinding.by_exception:
            if isinstance(self._file, FileWriter):
                _LOG.warning("%s is not published: an exception closes it", self.path)
            await self.discard()
            return
        self.closed = True
        try:
            await self._file.close()
        finally:
            if isinstance(self._file, FileWriter):
                self.fs.invalidate_cache(self.path)

    async def discard(self) -> None:
        """Publish nothing."""
        self.closed = True
        if isinstance(self._file, FileWriter):
            await self._file.discard()
        else:
            await self._file.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await (self.close() if error is None else self.discard())

    def __reduce__(self) -> tuple[Any, ...]:
        raise UnsupportedError("a file of a running loop cannot be pickled", path=self.path)

    def __del__(self) -> None:
        file = getattr(self, "_file", None)
        if not isinstance(file, FileWriter) or file.over or self._pid != os.getpid():
            return
        post_on(self._loop, file.discard)
        warnings.warn(
            f"discarding a file that was not closed: {self.path}",
            ResourceWarning,
            stacklevel=2,
            source=self,
        )
