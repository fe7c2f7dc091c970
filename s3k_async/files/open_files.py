"""Open files of the asynchronous client: a reader pinned to one version, a writer that publishes on
close."""

from __future__ import annotations

import io
import logging
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Generator
from functools import partial
from types import TracebackType
from typing import Any, Generic, Protocol, Self, TypeVar

import anyio

from s3k_async._core.concurrency import to_the_end
from s3k_async._core.error_handling import on_error
from s3k_async._core.object_version import digest_in
from s3k_async._native import Xxh3_128
from s3k_async.backends.ports.blobs import Buffer
from s3k_async.errors import (
    ArgumentTypeError,
    BusyError,
    ClosedClientError,
    ConflictError,
    ForkedClientError,
    InvalidArgumentError,
    IsDirectoryError,
    LeaseExpiredError,
    NotDirectoryError,
    OutcomeUnknownError,
    PathExistsError,
    PathNotFoundError,
    S3kError,
    StreamClosedError,
    UnsupportedError,
)
from s3k_async.files.file_ranges import (
    LONG_RANGE,
    SPAN_REQUESTS,
    SequentialCheck,
    assembled,
    check_empty,
    distrusting,
    fetch_into,
    fetch_range_into,
    fetch_span,
    read_span,
    require_readable,
)
from s3k_async.model import Content, Entry, FileStatus, status_of
from s3k_async.namespace.conflict_backoff import ConflictBackoff
from s3k_async.namespace.layout import ConfirmedChain
from s3k_async.namespace.store import MetadataStore, WriteTarget
from s3k_async.storage.physical import PhysicalStorage
from s3k_async.storage.read_ahead import ReadAhead
from s3k_async.storage.upload import CHECKSUM_PREFIX, CLEANUP_SECONDS, PhysicalWriter
from s3k_async.volumes.volume import Volume

__all__ = [
    "FileReader",
    "FileWriter",
    "Opening",
    "bytes_of",
    "check_mode",
    "checksum",
    "drop_unpublished",
    "need_process",
    "open_reader",
    "open_writer",
    "reserve",
]

_LOG = logging.getLogger(__name__)

T = TypeVar("T")

FIRST_WINDOW = 256 * 1024
"""Bytes fetched at the start of sequential reading; doubles up to `Tuning.read_ahead`."""
BLOCKS_AHEAD = 2
"""Blocks prefetched for a sequential reader, once its window has grown to `Tuning.read_ahead`
bytes. A block has that size, or that of a single read, up to the size of a part."""
BLOCKS_BEFORE_GROWTH = 4
"""Blocks after which those of a reader of long pieces double, up to LONG_RANGE parts."""

LONG = 64 * 1024
"""Bytes of a read from which on it is hashed by itself, not with all that was fetched."""
_NOTHING = memoryview(b"")

NOTHING_APPLIED: tuple[type[S3kError], ...] = (
    BusyError,
    ConflictError,
    IsDirectoryError,
    LeaseExpiredError,
    NotDirectoryError,
    PathExistsError,
)
"""Failures of a publication after which no entry can reference the uploaded data."""


class _File(Protocol):
    async def __aenter__(self) -> Self: ...
    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
        /,
    ) -> None: ...


F = TypeVar("F", bound=_File)


class Opening(Generic[F]):
    """A file that `async with` or `await` opens."""

    def __init__(self, opener: Callable[[], Awaitable[F]]) -> None:
        self._opener = opener
        self._file: F | None = None

    def __await__(self) -> Generator[Any, None, F]:
        return self._opener().__await__()

    async def __aenter__(self) -> F:
        self._file = await self._opener()
        return await self._file.__aenter__()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._file is not None:
            await self._file.__aexit__(kind, error, trace)


async def drop_unpublished(storage: PhysicalStorage, physical: str, reason: BaseException) -> None:
    """Remove uploaded data that is certainly unreferenced, because publishing it failed for
    `reason`."""
    if not isinstance(reason, NOTHING_APPLIED) and not (
        isinstance(reason, S3kError) and reason.before_change
    ):
        return

    async def drop() -> None:
        with anyio.move_on_after(CLEANUP_SECONDS):
            try:
                await storage.delete(physical)
            except S3kError as error:
                _LOG.warning(
                    "unpublished bytes at %s are left to garbage collection: %s", physical, error
                )

    await to_the_end(drop)


def check_mode(mode: str, path: str, *, update: str = "write_range") -> None:
    """Raise UnsupportedError unless the mode is `rb`, `wb`, `xb` or `ab`; InvalidArgumentError if
    it is not a valid mode. `update`: what changes a file in place, for the message."""
    if mode in ("rb", "wb", "xb", "ab"):
        return
    if not isinstance(mode, str):
        raise ArgumentTypeError(f"a mode is text, not {type(mode).__name__}", path=path)
    letters = set(mode)
    if (
        len(letters) < len(mode)
        or letters - set("rwaxbt+")
        or len(letters & set("rwax")) != 1
        or {"b", "t"} <= letters
    ):
        raise InvalidArgumentError(f"{mode!r} is no mode of a file", path=path)
    if "+" in mode:
        raise UnsupportedError(
            f"mode {mode!r}: a file is opened to read or to write; {update} changes it in place",
            path=path,
        )
    raise UnsupportedError(
        f"mode {mode!r}: files are opened as bytes; use rb, wb, xb or ab", path=path
    )


def need_process(pid: int, path: str) -> None:
    """Raise ForkedClientError unless this is the process that opened the file."""
    if pid != os.getpid():
        raise ForkedClientError("the file was opened by a parent process: open it again", path=path)


def bytes_of(data: object, path: str) -> memoryview:
    """The data to write, as bytes. Raises ArgumentTypeError unless it is a buffer."""
    try:
        return memoryview(data).cast("B")  # type: ignore[arg-type]
    except TypeError as error:
        raise ArgumentTypeError(
            f"files hold bytes, not {type(data).__name__}", path=path
        ) from error


async def open_reader(
    volume: Callable[[], Volume], path: str, *, cached: bool = True
) -> FileReader:
    """Open the file at a path. `cached`: as of FileReader. Raises PathNotFoundError,
    IsDirectoryError, UncommittedFileError."""
    opened = volume()
    with opened.calls.running("open", path):
        entry = await opened.store.get(path, trusting=True)
        if entry is None:
            raise PathNotFoundError("no such file", path=path)
        return FileReader(volume, entry, cached=cached)


async def checksum(volume: Volume, path: str) -> str:
    """The recorded checksum of a file, or one computed now."""
    entry = await volume.store.lookup(path)
    require_readable(volume.store, entry)
    if recorded := digest_in(entry.checksum):
        return recorded
    digest = Xxh3_128()
    async with FileReader(lambda: volume, entry) as reader:
        async for chunk in reader:
            digest.update(chunk)
    return CHECKSUM_PREFIX + digest.hexdigest()


async def open_writer(volume: Callable[[], Volume], path: str, *, exclusive: bool) -> FileWriter:
    """Reserve a new path, or begin to replace the existing file.

    Raises PathExistsError (`exclusive`), IsDirectoryError, NotDirectoryError, BusyError,
    ReadOnlyVolumeError.
    """
    opened = volume()
    with opened.calls.running("open", path):
        target, entry = await reserve(opened.store, path, exclusive=exclusive)
        upload = opened.storage.at(path).writer(target.object_id)
        return FileWriter(
            volume, entry, upload, reserved=target.current is None, chain=target.chain
        )


async def reserve(store: MetadataStore, path: str, *, exclusive: bool) -> tuple[WriteTarget, Entry]:
    """Reserve a new path, or, unless `exclusive`, return the entry of the file that is there,
    unchanged but for the lease of the writer. Raises as `open_writer`."""
    race = ConflictBackoff(store)
    reserved: list[Entry] = []

    async def attempt(target: WriteTarget) -> None:
        reserved.append(await store.reserve(target, exclusive=exclusive))

    while True:
        target = await store.prepare(path, overwrite=not exclusive)
        try:
            await to_the_end(partial(attempt, target))
        except ConflictError as error:
            await race.lost(error)
        except PathExistsError as error:
            if exclusive:
                raise
            await race.lost(error)
        except BaseException:
            if reserved and target.current is None:
                await _abandon(store, reserved[0])
            raise
        else:
            return target, reserved[0]


async def _abandon(store: MetadataStore, reservation: Entry) -> None:
    """Remove this writer's reservation; bounded in time, and shielded from cancellation."""

    async def abandon() -> None:
        with anyio.move_on_after(CLEANUP_SECONDS):
            try:
                await store.abandon(reservation)
            except S3kError as error:
                # After its lease expires any client may take the path.
                _LOG.warning(
                    "the reservation of %s could not be removed: %s", reservation.path, error
                )

    await to_the_end(abandon)


class FileReader:
    """A committed file, open for reading at a fixed version: it returns the old content even if the
    file is overwritten.

    A file that is read sequentially from its start is verified when its last bytes are fetched: if
    the checksum differs from the recorded one, CorruptDataError is raised instead of returning
    them. Random reads are not verified.

    Not for concurrent use by several tasks, except for `read_at`. Every call may raise
    DataMissingError (the physical object is gone), CorruptDataError, StreamClosedError,
    ClosedClientError, WrongLoopError, ForkedClientError.
    """

    mode = "rb"

    def __init__(self, volume: Callable[[], Volume], entry: Entry, *, cached: bool = True) -> None:
        """`cached`: whether the read cache is used; not for bytes that are stored again."""
        require_readable(volume().store, entry)
        self._volume = volume
        self._entry = entry
        self._cached = cached
        self._position = 0
        self._window = _NOTHING
        """Bytes that were fetched, in a `bytes` or a block of `_ahead`. Nothing else has views of
        a block."""
        self._window_start = 0
        self._run = 0
        self._run_start = 0
        self._check = SequentialCheck(entry)
        self._checked = False
        """Of an empty file: whether its object was checked."""
        self._ahead = ReadAhead()
        self._closed = False

    def __repr__(self) -> str:
        return f"<FileReader {self._entry.path!r} version {self._entry.version}>"

    @property
    def status(self) -> FileStatus:
        """The file as it was when it was opened."""
        return status_of(self._entry)

    @property
    def name(self) -> str:
        """Logical path that was opened."""
        return self._entry.path

    @property
    def size(self) -> int:
        """Bytes in the file."""
        return self._entry.size

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self._closed

    async def read(self, n: int | None = -1) -> bytes:
        """The next `n` bytes, fewer only at the end of the file; the rest of the file for a
        negative `n` or None."""
        self._volume()
        taken = self.take(n)
        if taken is not None:
            return taken
        with self._volume().calls.running("file.read", self._entry.path), self._distrusting():
            return await self._fetch(self._length(n))

    async def readinto(self, buffer: bytearray | memoryview) -> int:
        """Fill the buffer with the next bytes and return how many; fewer than fit only at the end
        of the file. Bytes that were not read ahead arrive in the buffer without a copy, if the
        backend can write there.

        After an error the content of the buffer is undefined, and the position has not changed.
        """
        self._volume()
        # Released, because a traceback may keep this frame: the caller can resize its buffer.
        with memoryview(buffer) as given, given.cast("B") as view:
            taken = self.take_into(view)
            if taken is not None:
                return taken
            length = self._length(len(view))
            with (
                self._volume().calls.running("file.read", self._entry.path),
                self._distrusting(),
                view[:length] as place,
            ):
                return await self._fetch_into(place)

    async def read_at(self, offset: int, n: int) -> bytes:
        """`n` bytes from `offset`, cut at the end of the file; the position does not change.

        Several tasks may call it at once. Raises InvalidArgumentError for a negative offset or
        length.
        """
        self.need_open()
        if offset < 0 or n < 0:
            raise InvalidArgumentError(
                "offset and length cannot be negative", path=self._entry.path
            )
        with self._volume().calls.running("file.read", self._entry.path):
            return await read_span(self._storage, self._entry, offset, min(self.size, offset + n))

    async def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Move to an offset from the start, the position (SEEK_CUR) or the end (SEEK_END), past the
        end too; returns the new position. Raises InvalidArgumentError for a position before the
        start; then the position does not change.
        """
        return self.move(offset, whence)

    async def tell(self) -> int:
        """The position, bytes from the start."""
        self.need_open()
        return self._position

    async def close(self) -> None:
        """Release the buffers. Idempotent."""
        self.release()

    def readable(self) -> bool:
        """True."""
        return True

    def writable(self) -> bool:
        """False."""
        return False

    def seekable(self) -> bool:
        """True."""
        return True

    async def __aiter__(self) -> AsyncIterator[bytes]:
        """Chunks of `Tuning.read_ahead` bytes, from the position to the end."""
        while chunk := await self.read(max(1, self._storage.tuning.read_ahead)):
            yield chunk

    async def __aenter__(self) -> Self:
        self.need_open()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    # Without waiting; the blocking file uses these too

    def take(self, n: int | None = -1) -> bytes | None:
        """The next `n` bytes if they are buffered or the file ends here, else None (then `read` has
        to fetch)."""
        self.need_open()
        length = self._length(n)
        if not self.size and not self._checked:
            return None
        start = self._position - self._window_start
        if length and not 0 <= start <= len(self._window) - length:
            return None
        if not length:
            return b""
        data = bytes(self._window[start : start + length])
        self._verify_window(data)
        self._position += length
        return data

    def take_into(self, buffer: memoryview) -> int | None:
        """As `take`, into a buffer; returns the number of bytes, or None."""
        self.need_open()
        length = self._length(len(buffer))
        if not self.size and not self._checked:
            return None
        start = self._position - self._window_start
        if length and not 0 <= start <= len(self._window) - length:
            return None
        if length:
            buffer[:length] = self._window[start : start + length]
            self._verify_window(buffer[:length])
            self._position += length
        return length

    def move(self, offset: int, whence: int) -> int:
        """As `seek`."""
        self.need_open()
        bases = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self.size}
        if whence not in bases:
            raise InvalidArgumentError(f"whence is 0, 1 or 2, not {whence}", path=self._entry.path)
        position = bases[whence] + offset
        if position < 0:
            raise InvalidArgumentError(
                "a position cannot lie before the start of the file", path=self._entry.path
            )
        self._position = position
        return position

    def release(self) -> None:
        """As `close`."""
        self._closed = True
        self._window = _NOTHING
        self._ahead.drop()

    def need_open(self) -> None:
        """Raise StreamClosedError if the file is closed."""
        if self._closed:
            raise StreamClosedError("the file is closed", path=self._entry.path)

    @property
    def _storage(self) -> PhysicalStorage:
        storage = self._volume().storage
        return storage if self._cached else storage.from_source()

    def _distrusting(self) -> on_error:
        return distrusting(self._storage, self._entry)

    async def _block(self, start: int, place: memoryview) -> None:
        await fetch_range_into(self._storage, self._entry, start, place)

    async def _span(self, start: int, end: int) -> bytes:
        return await fetch_span(self._storage, self._entry, start, end)

    def _length(self, n: int | None) -> int:
        left = max(0, self.size - self._position)
        return left if n is None or n < 0 else min(n, left)

    async def _fetch(self, length: int) -> bytes:
        """The next bytes, which are not in the window."""
        if not self.size:
            await self._need_empty()
            return b""
        begin, head = self._from_window()
        wanted = length - len(head)
        if wanted > max(1, self._storage.tuning.part_size):
            return await assembled(length, self._fill)
        data = await self._following(begin, length)
        if not head and isinstance(data, bytes) and len(data) == wanted:
            fetched = data
        else:
            fetched = b"".join((head, memoryview(data)[:wanted]))
        self._verify_window(head)
        if length < LONG:
            self._check.add(begin, data)
        else:
            self._check.add(self._position, fetched)
        self._position = begin + wanted
        if len(data) > wanted or wanted < self._storage.tuning.read_ahead:
            self._keep(data if isinstance(data, memoryview) else memoryview(data), begin)
        else:
            if isinstance(data, memoryview):
                self._ahead.give_back(data)
            self._keep(_NOTHING, begin + wanted)
        return fetched

    async def _fetch_into(self, buffer: memoryview) -> int:
        """As `_fetch`, into a buffer of this length; returns it."""
        tuning = self._storage.tuning
        if not self.size:
            await self._need_empty()
        elif self._is_sequential() and len(buffer) < min(tuning.read_ahead, tuning.part_size):
            buffer[:] = await self._fetch(len(buffer))
        else:
            await self._fill(buffer)
        return len(buffer)

    async def _need_empty(self) -> None:
        await check_empty(self._storage, self._entry)
        self._checked = True

    def _follows(self) -> bool:
        """Whether the position follows the bytes that were read last."""
        return 0 <= self._position - self._window_start <= len(self._window)

    def _is_sequential(self) -> bool:
        """Whether what follows will probably be read, too."""
        return self._follows() or not self._position

    def _verify_window(self, data: Buffer, check: SequentialCheck | None = None) -> None:
        """Add bytes of the window from the position on to the check, by default that of the reader,
        before they are returned; with the rest of the window if they are few, so that not every
        short read does it."""
        check = check or self._check
        if not data or not check.is_due(self._position + len(data)):
            return
        if len(data) < LONG:
            check.add(self._window_start, self._window)
        else:
            check.add(self._position, data)

    def _from_window(self) -> tuple[int, memoryview]:
        """What the window has from the position on, and where that ends."""
        head, start = _NOTHING, self._position - self._window_start
        if 0 <= start < len(self._window):
            head = self._window[start:]
        elif self._follows():
            # The buffer can be used for the next block.
            self._keep(_NOTHING, self._position)
        return self._position + len(head), head

    def _keep(self, window: memoryview, start: int) -> None:
        """Replace the window, whose buffer may be used again."""
        before = self._window
        self._window, self._window_start = window, start
        if before is not _NOTHING:
            self._ahead.give_back(before)

    async def _following(self, begin: int, length: int) -> bytes | memoryview:
        """The bytes from `begin` on that complete the next `length`, and more for a sequential
        reader; a block is to be given back."""
        end = self._look_ahead(begin, length)
        blocks: list[bytes | memoryview] = []
        while begin < end:
            blocks.append(await (self._ahead.take() if self._ahead else self._span(begin, end)))
            begin += len(blocks[-1])
        if len(blocks) == 1:
            return blocks[0]
        joined = b"".join(blocks)
        for block in blocks:
            if isinstance(block, memoryview):
                self._ahead.give_back(block)
        return joined

    async def _fill(self, buffer: memoryview) -> None:
        """Write the next bytes to a buffer: what was read ahead, and the rest from the store."""
        begin, head = self._from_window()
        buffer[: len(head)] = head
        end = self._position + len(buffer)
        self._look_ahead(begin, len(buffer))
        # If the read fails, its bytes were not returned and will be fetched again.
        check = self._check.copy()
        self._verify_window(head, check)
        block = _NOTHING
        while begin < end and self._ahead:
            if block is not _NOTHING:
                self._ahead.give_back(block)
            block = await self._ahead.take()
            taken = min(len(block), end - begin)
            start = begin - self._position
            buffer[start : start + taken] = block[:taken]
            check.add(begin, block if taken < LONG else buffer[start : start + taken])
            begin += len(block)
        if begin < end:
            with buffer[begin - self._position :] as rest:
                await fetch_into(self._storage, self._entry, begin, rest, check=check.add)
            begin = end
        self._check = check
        self._position = end
        if begin > end:
            self._keep(block, begin - len(block))
        else:
            if block is not _NOTHING:
                self._ahead.give_back(block)
            self._keep(_NOTHING, end)

    def _look_ahead(self, begin: int, length: int) -> int:
        """Start fetching what a sequential reader will read after the next `length` bytes from the
        position, of which those before `begin` are there; returns the end of the bytes to fetch
        now."""
        tuning = self._storage.tuning
        most, stop = tuning.read_ahead, self._position + length
        if not self._follows():
            self._run, self._run_start = 0, begin
        was = self._run
        if self._is_sequential():
            self._run = min(most, max(self._run * 2, FIRST_WINDOW, stop - begin))
        end = min(self.size, max(stop, begin + self._run))
        self._ahead.seek(begin)
        # Blocks of the length of the reads are returned as they arrive, without a copy.
        block = max(most, min(length, tuning.part_size))
        if length >= most:
            read, longest = begin - self._run_start, LONG_RANGE * tuning.part_size
            while read >= BLOCKS_BEFORE_GROWTH * block and block * 2 <= longest:
                block *= 2
        if most and was >= most and end - self._ahead.end <= SPAN_REQUESTS * block:
            until = end + BLOCKS_AHEAD * block
            self._ahead.extend(until, block, self._block, size=self.size)
        return end


class FileWriter:
    """A file being written. Nothing is visible before `close` or `commit`. An exception in `async
    with`, or `discard`, publishes nothing and removes the reservation.

    A failure is final: every later call raises it again, and nothing is published.
    """

    def __init__(
        self,
        volume: Callable[[], Volume],
        entry: Entry,
        upload: PhysicalWriter,
        *,
        reserved: bool,
        chain: ConfirmedChain | None = None,
    ) -> None:
        self._volume = volume
        self._chain = chain
        self.entry = entry
        """The file as it is now, or the reservation of its path."""
        self._upload = upload
        self._reserved = reserved
        self._status: FileStatus | None = None
        self._failure: Exception | None = None
        self._discarded = False
        volume().calls.on_close(self, self._client_closed)

    def __repr__(self) -> str:
        return f"<FileWriter {self.entry.path!r} {self._upload.size} bytes>"

    @property
    def mode(self) -> str:
        """`wb`, or `ab`."""
        return "wb"

    @property
    def name(self) -> str:
        """Logical path that was opened."""
        return self.entry.path

    @property
    def size(self) -> int:
        """Bytes accepted so far."""
        return self._upload.size

    @property
    def closed(self) -> bool:
        """Whether the file was published or discarded."""
        return self._discarded or self._status is not None

    async def write(self, data: Buffer) -> int:
        """Accept bytes and upload them in parts; returns the number of bytes accepted.

        Raises StreamClosedError, NoSpaceError, the errors of the service, and those of the client's
        state.
        """
        self.need_open()
        view = bytes_of(data, self.entry.path)
        with self._volume().calls.running("file.write", self.entry.path):
            try:
                await self._upload.write(view)
            except BaseException as error:
                await self._fail(error)
                raise
        return len(view)

    async def tell(self) -> int:
        """The position in the file, at which the next bytes are written."""
        self.need_open()
        return self.position

    async def commit(self) -> FileStatus:
        """Publish the file, durably, and return its status; called again, the same status.

        Raises ConflictError (another client changed the path meanwhile), LeaseExpiredError (writing
        took longer than `Tuning.lease`), OutcomeUnknownError, StreamClosedError (discarded), and
        the errors of the upload.
        """
        if self._status is not None:
            return self._status
        self.need_open()
        with self._volume().calls.running("file.commit", self.entry.path):
            try:
                entry = await self._finish()
            except BaseException as error:
                await self._fail(error)
                raise
            self._status = status_of(entry)
        return self._status

    async def close(self) -> None:
        """Publish the file, unless it was published or discarded already. Raises as `commit`."""
        if not self.closed:
            await self.commit()

    async def discard(self) -> None:
        """Publish nothing: abort the upload and remove the reservation. No effect on a file that
        was published."""
        if self.over:
            return
        self._discarded = True
        try:
            calls = self._volume().calls
        except S3kError:
            await self._drop()
            return
        with calls.running("file.discard", self.entry.path, late=True):
            await self._drop()

    def readable(self) -> bool:
        """False."""
        return False

    def writable(self) -> bool:
        """True."""
        return True

    def seekable(self) -> bool:
        """False."""
        return False

    async def __aenter__(self) -> Self:
        self.need_open()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is None:
            await self.close()
        else:
            await self.discard()

    # Without waiting; the blocking file uses these too

    @property
    def position(self) -> int:
        """As `tell`."""
        return self._upload.size

    @property
    def over(self) -> bool:
        """Whether the file was published or discarded, or has failed."""
        return self.closed or self._failure is not None

    @property
    def part_size(self) -> int:
        """Maximum number of bytes for one `add`."""
        return self._upload.part_size

    def add(self, data: Buffer) -> bool:
        """Accept some bytes without waiting; True if `drain` must be called before the next
        `add`."""
        self.need_open()
        return self._upload.add(data)

    async def drain(self) -> None:
        """Upload the complete parts."""
        self.need_open()
        with self._volume().calls.running("file.write", self.entry.path):
            try:
                await self._upload.drain()
            except BaseException as error:
                await self._fail(error)
                raise

    def need_open(self) -> None:
        """Raise the earlier failure, or StreamClosedError if the file is closed."""
        if self._failure is not None:
            raise self._failure
        if self.closed:
            raise StreamClosedError("the file is closed", path=self.entry.path)

    async def _finish(self) -> Entry:
        return await self._publish(await self._upload.finish())

    async def _publish(self, content: Content) -> Entry:
        """Publish the uploaded data; it is dropped if publication certainly failed."""
        volume = self._volume()
        try:
            return await volume.store.commit(self.entry, content, self._chain)
        except S3kError as error:
            await drop_unpublished(volume.storage, content.physical, error)
            raise

    async def _fail(self, error: BaseException) -> None:
        if self._failure is not None:
            return
        if isinstance(error, Exception):
            self._failure = error
        else:
            self._failure = StreamClosedError("writing was cancelled", path=self.entry.path)
        # After an unknown outcome fsck decides from the log; the reservation is part of the
        # evidence.
        if not isinstance(error, OutcomeUnknownError):
            await self._drop()

    async def _client_closed(self, client: str) -> None:
        """Drop the file, unless it was published, discarded or has failed."""
        if not self.over:
            message = f"the client of {client} was closed before the file was"
            await self._fail(ClosedClientError(message, path=self.name))

    async def _drop(self) -> None:
        """Abort the upload and remove the reservation; bounded in time, and shielded from
        cancellation."""
        await to_the_end(self._drop_at_once)

    async def _drop_at_once(self) -> None:
        with anyio.move_on_after(CLEANUP_SECONDS):
            await self._upload.abort()
            if not self._reserved:
                return
            try:
                store = self._volume().store
            except S3kError as error:
                # The caller must get the original failure.
                _LOG.warning(
                    "the reservation of %s stays until its lease ends: %s", self.entry.path, error
                )
                return
            await _abandon(store, self.entry)
