"""Hadoop's streams over the client's open files.

Hadoop's EOFException is EndOfFileError, and a read past the end returns -1 like Hadoop's. Source of
the rules: Hadoop's file system specification, `fsdatainputstream` and `outputstream`.
"""

from __future__ import annotations

from types import TracebackType
from typing import NoReturn, Self

from s3k_async.backends.ports.blobs import Buffer
from s3k_async.errors import EndOfFileError, InvalidArgumentError, UnsupportedError
from s3k_async.files.open_files import FileReader, FileWriter

__all__ = ["END", "HadoopInputStream", "HadoopOutputStream"]

END = -1
"""Result of a read at the end of the file."""


class HadoopInputStream:
    """A file open for reading, at the version at the time of opening.

    Every method but `close` raises StreamClosedError once the stream is closed. Not for concurrent
    tasks, except positioned reads, which do not move the position.
    """

    def __init__(self, reader: FileReader) -> None:
        self._reader = reader

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self._reader.closed

    async def seek(self, position: int) -> None:
        """Move to `position`, at most the file's end. Raises EndOfFileError without moving."""
        self._reader.need_open()
        if position < 0:
            self._end_of_file(f"position {position} lies before the start of the file")
        if position > self._reader.size:
            self._end_of_file(
                f"position {position} lies past the end of the file, {self._reader.size}"
            )
        await self._reader.seek(position)

    async def get_pos(self) -> int:
        """The position, bytes from the start."""
        return await self._reader.tell()

    async def available(self) -> int:
        """Bytes from the position to the end."""
        return self._reader.size - await self._reader.tell()

    async def read(self) -> int:
        """The next byte, 0 to 255, or END."""
        data = await self._reader.read(1)
        return data[0] if data else END

    async def read_into(
        self, buffer: bytearray | memoryview, offset: int = 0, length: int | None = None
    ) -> int:
        """Fill `length` bytes of the buffer from `offset` on (None: to its end) with the next
        bytes; returns their number, fewer only at the end of the file, or END. Raises
        InvalidArgumentError, IndexError (outside of the buffer)."""
        view = self._span(buffer, offset, length)
        count = await self._reader.readinto(view)
        return END if len(view) and not count else count

    async def read_at(
        self,
        position: int,
        buffer: bytearray | memoryview,
        offset: int = 0,
        length: int | None = None,
    ) -> int:
        """As `read_into`, from `position`, which may lie past the end. Raises EndOfFileError for a
        negative one."""
        view = self._span(buffer, offset, length)
        self._need_position(position)
        data = await self._reader.read_at(position, len(view))
        view[: len(data)] = data
        return END if len(view) and not data else len(data)

    async def read_fully(
        self,
        position: int,
        buffer: bytearray | memoryview,
        offset: int = 0,
        length: int | None = None,
    ) -> None:
        """As `read_at`, but always the whole length. Raises EndOfFileError if the file ends
        before."""
        view = self._span(buffer, offset, length)
        self._need_position(position)
        data = await self._reader.read_at(position, len(view))
        if len(data) < len(view):
            self._end_of_file(
                f"the file ends {len(view) - len(data)} bytes before the end of the requested range"
            )
        view[:] = data

    async def seek_to_new_source(self, position: int) -> bool:
        """False: there are no other replicas."""
        self._need_position(position)
        return False

    async def close(self) -> None:
        """Close the stream. Idempotent."""
        await self._reader.close()

    async def __aenter__(self) -> Self:
        self._reader.need_open()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    def _span(self, buffer: bytearray | memoryview, offset: int, length: int | None) -> memoryview:
        self._reader.need_open()
        if buffer is None:
            raise InvalidArgumentError("a read needs a buffer", path=self._reader.name)
        view = memoryview(buffer).cast("B")
        wanted = len(view) - offset if length is None else length
        if length is not None and length < 0:
            raise InvalidArgumentError("a length cannot be negative", path=self._reader.name)
        if offset < 0 or wanted < 0 or offset + wanted > len(view):
            raise IndexError(f"{wanted} bytes from {offset} on are not in a buffer of {len(view)}")
        return view[offset : offset + wanted]

    def _need_position(self, position: int) -> None:
        self._reader.need_open()
        if position < 0:
            self._end_of_file(f"position {position} lies before the start of the file")

    def _end_of_file(self, message: str) -> NoReturn:
        raise EndOfFileError(message, path=self._reader.name)


class HadoopOutputStream:
    """A file open for writing; `close` publishes it. An exception in `async with` discards it.

    Raises as `FileWriter`: a failure is final, so closing again after a failed close fails again.
    """

    def __init__(self, writer: FileWriter) -> None:
        self._writer = writer

    async def write(self, data: Buffer) -> None:
        """Accept bytes."""
        await self._writer.write(data)

    async def get_pos(self) -> int:
        """Bytes accepted so far."""
        return await self._writer.tell()

    async def flush(self) -> None:
        """No effect: nothing is visible or durable before `close`."""
        self._writer.need_open()

    async def hflush(self) -> NoReturn:
        """Not supported. Raises UnsupportedError."""
        self._unsupported("hflush")

    async def hsync(self) -> NoReturn:
        """Not supported. Raises UnsupportedError."""
        self._unsupported("hsync")

    def has_capability(self, name: str) -> bool:
        """False: `hflush`, `hsync` and similar capabilities do not exist."""
        return False

    async def abort(self) -> None:
        """Discard the file and its reservation; no effect after `close`."""
        await self._writer.discard()

    async def close(self) -> None:
        """Publish the file, durably. Idempotent after success."""
        await self._writer.close()

    async def __aenter__(self) -> Self:
        self._writer.need_open()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._writer.__aexit__(kind, error, trace)

    def _unsupported(self, what: str) -> NoReturn:
        raise UnsupportedError(f"{what}: not supported by this file system", path=self._writer.name)
