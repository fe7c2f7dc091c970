"""Open files of the blocking client: `io` objects over the asynchronous ones."""

from __future__ import annotations

import io
import os
import warnings
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from s3k_async._sync.loop_thread import Bridge
from s3k_async.bulk.staged_uploads import StagedWriter
from s3k_async.errors import StreamClosedError, UnsupportedError
from s3k_async.files.open_files import FileReader, FileWriter, bytes_of, need_process
from s3k_async.model import FileStatus, StagedFile

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer, WriteableBuffer

__all__ = ["SyncFileReader", "SyncFileWriter", "SyncStagedWriter", "sync_file"]

T = TypeVar("T")


class _SyncFile(io.RawIOBase):
    """What both kinds share: calls over the bridge, only in the process that opened the file."""

    def __init__(self, bridge: Bridge, path: str, owner: object) -> None:
        super().__init__()
        # The client closes its volume when it is no longer referenced; an open file keeps a
        # reference.
        self._owner = owner
        self._bridge = bridge
        self._path = path

    @property
    def name(self) -> str:
        """Logical path that was opened."""
        return self._path

    def _run(self, call: Callable[[], Awaitable[T]]) -> T:
        return self._bridge.run(call)

    def _need_open(self) -> None:
        need_process(self._bridge.pid, self._path)
        if self.closed:
            raise StreamClosedError("the file is closed", path=self._path)


class SyncFileReader(_SyncFile):
    """A committed file, open for reading at a fixed version: it returns the old content even if the
    file is overwritten.

    A file that is read sequentially from its start is verified when its last bytes are fetched, as
    by `FileReader`.

    It reads ahead by itself, so no `io.BufferedReader` is needed; `io.TextIOWrapper(reader)` gives
    text. Not for several threads at once, apart from `read_at`. Every call may raise
    DataMissingError, CorruptDataError, StreamClosedError, ClosedClientError, ForkedClientError.
    """

    mode = "rb"

    def __init__(self, bridge: Bridge, reader: FileReader, owner: object) -> None:
        super().__init__(bridge, reader.name, owner)
        self._reader = reader

    def __repr__(self) -> str:
        return f"<SyncFileReader {self._path!r} version {self._reader.status.version}>"

    @property
    def status(self) -> FileStatus:
        """The file as it was when it was opened."""
        return self._reader.status

    @property
    def size(self) -> int:
        """Bytes in the file."""
        return self._reader.size

    def read(self, n: int | None = -1, /) -> bytes:
        """The next `n` bytes, fewer only at the end of the file; the rest of the file for a
        negative `n` or None."""
        self._need_open()
        taken = self._reader.take(n)
        return taken if taken is not None else self._run(lambda: self._reader.read(n))

    def readall(self) -> bytes:
        """All bytes from the position to the end."""
        return self.read()

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        """Fill the buffer with the next bytes and return how many; fewer than fit only at the end
        of the file. Bytes that were not read ahead arrive in the buffer without a copy, if the
        backend can write there.

        After an error the content of the buffer is undefined, and the position has not changed.
        """
        self._need_open()
        view = memoryview(buffer).cast("B")
        taken = self._reader.take_into(view)
        return taken if taken is not None else self._run(lambda: self._reader.readinto(view))

    def read_at(self, offset: int, n: int) -> bytes:
        """`n` bytes from `offset`, cut at the end of the file; the position does not change.

        Several threads may call it at once. Raises InvalidArgumentError for a negative offset or
        length.
        """
        self._need_open()
        return self._run(lambda: self._reader.read_at(offset, n))

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        """Move to an offset from the start, the position (SEEK_CUR) or the end (SEEK_END), past the
        end too; returns the new position. Raises InvalidArgumentError for a position before the
        start; then the position does not change.
        """
        self._need_open()
        return self._reader.move(offset, whence)

    def tell(self) -> int:
        """The position, bytes from the start."""
        return self.seek(0, io.SEEK_CUR)

    def write(self, _data: ReadableBuffer, /) -> NoReturn:
        """Raises UnsupportedError."""
        raise UnsupportedError("the file is open for reading", path=self._path)

    def close(self) -> None:
        """Release the buffers. Idempotent."""
        if not self.closed:
            self._reader.release()
            super().close()

    def readable(self) -> bool:
        """True."""
        return True

    def seekable(self) -> bool:
        """True."""
        return True


class SyncFileWriter(_SyncFile):
    """A file being written. Nothing is visible before `close` or `commit`; leaving `with` by an
    exception, `discard`, and forgetting to close it publish nothing and remove the reservation.

    A failure is final: every later call raises it again, and nothing is published. Under an
    `io.TextIOWrapper` or `io.BufferedWriter` keep this object in the `with`: those wrappers close
    what they wrap even when they are left by an exception, and closing publishes.
    """

    def __init__(self, bridge: Bridge, writer: FileWriter, owner: object) -> None:
        super().__init__(bridge, writer.name, owner)
        self._writer = writer

    def __repr__(self) -> str:
        return f"<SyncFileWriter {self._path!r}>"

    @property
    def mode(self) -> str:
        """`wb`, or `ab`."""
        return self._writer.mode

    def write(self, data: ReadableBuffer, /) -> int:
        """Accept bytes and upload them in parts; returns the number of bytes accepted.

        Raises StreamClosedError, NoSpaceError, the errors of the service, and those of the client's
        state.
        """
        self._need_open()
        self._writer.need_open()
        view = bytes_of(data, self._path)
        step = self._writer.part_size
        for start in range(0, len(view), step):
            if self._writer.add(view[start : start + step]):
                self._run(self._writer.drain)
        return len(view)

    def tell(self) -> int:
        """The position in the file, at which the next bytes are written."""
        self._need_open()
        return self._writer.position

    def read(self, _n: int | None = -1, /) -> NoReturn:
        """Raises UnsupportedError."""
        raise UnsupportedError("the file is open for writing", path=self._path)

    def readall(self) -> NoReturn:
        """Raises UnsupportedError."""
        self.read()

    def readinto(self, _buffer: WriteableBuffer, /) -> NoReturn:
        """Raises UnsupportedError."""
        self.read()

    def commit(self) -> FileStatus:
        """Publish the file, durably, and return its status; called again, the same status.

        Raises ConflictError (another client changed the path meanwhile), LeaseExpiredError (writing
        took longer than `Tuning.lease`), OutcomeUnknownError, StreamClosedError (discarded), and
        the errors of the upload.
        """
        status = self._run(self._writer.commit)
        super().close()
        return status

    def close(self) -> None:
        """Publish the file, unless it was published or discarded already. Raises as `commit`."""
        if not self.closed:
            self.commit()

    def discard(self) -> None:
        """Publish nothing: abort the upload and remove the reservation. No effect on a file that
        was published."""
        if not self.closed:
            self._run(self._writer.discard)
            super().close()

    def writable(self) -> bool:
        """True."""
        return True

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

    def __del__(self, _warn: Any = warnings.warn) -> None:
        # Not the base's, which closes: a writer that an exception left behind must not publish half
        # a file.
        writer: FileWriter | None = getattr(self, "_writer", None)
        if writer is None or writer.over or self._bridge.pid != os.getpid():
            return
        # The warning last: it raises where warnings are errors.
        self._bridge.post(writer.discard)
        _warn(f"discarding a file that was not closed: {self._path}", ResourceWarning, source=self)


class SyncStagedWriter(SyncFileWriter):
    """The writer of a staged upload: see `S3kClient.stage`.

    As any writer, except that closing publishes nothing: a transaction publishes `staged`. There is
    no path yet; `name`, and the path in the status that `commit` returns, are the physical key.
    """

    _writer: StagedWriter

    def __init__(self, bridge: Bridge, writer: StagedWriter, owner: object) -> None:
        super().__init__(bridge, writer, owner)

    def __repr__(self) -> str:
        return f"<SyncStagedWriter {self._path!r}>"

    @property
    def staged(self) -> StagedFile:
        """The staged file, after the writer is closed; raises UnsupportedError before, and if it
        was discarded."""
        return self._writer.staged


def sync_file(
    bridge: Bridge, file: FileReader | FileWriter, owner: object
) -> SyncFileReader | SyncFileWriter:
    """A file of either kind, blocking."""
    if isinstance(file, FileReader):
        return SyncFileReader(bridge, file, owner)
    return SyncFileWriter(bridge, file, owner)
