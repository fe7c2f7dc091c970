"""The blob port on a local directory: one file for each key, written to a private directory,
synced, renamed into place."""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
import stat
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from itertools import accumulate, islice
from pathlib import Path
from typing import NamedTuple, TypeVar

from s3k_async._core.concurrency import to_the_end
from s3k_async._core.os_errors import os_errors
from s3k_async._core.runtime import SYSTEM, Runtime
from s3k_async._core.worker_threads import Threads
from s3k_async.backends.batch_queue import BatchQueue, Steps, rounds_of
from s3k_async.backends.local.durable_files import LocalFiles, write_fully
from s3k_async.backends.local.local_walk import PRIVATE, blob_info, walk
from s3k_async.backends.local.write_batch import FileWrite, WriteBatch
from s3k_async.backends.ports.blob_keys import (
    check_copied_part,
    check_key,
    check_page,
    check_put,
    check_range,
    check_source,
    check_unchanged,
    part_numbers,
)
from s3k_async.backends.ports.blobs import (
    BlobInfo,
    BlobPage,
    BlobStore,
    Buffer,
    DeleteFailure,
    Unfinished,
)
from s3k_async.errors import (
    CorruptDataError,
    InvalidPathError,
    ServiceError,
    UnsupportedError,
    VolumeNotFoundError,
)
from s3k_async.storage_space import StorageSpace

__all__ = ["SMALL", "LocalBlobs"]

T = TypeVar("T")

_PAGE = 10_000
_THREADS = 16
SMALL = 1 << 20
"""Bytes of a file that is written with others."""
_BATCH = 64
"""Small files that are written together, each with an open descriptor and one of its directory."""
_SYNCS = 8
"""Threads that sync files and directories."""
_RANK = 0
"""Rank of the queue of files; that of tables is 1, since calls write to them later."""
_SHORT = 64 * 1024
"""Bytes that are read on the event loop."""
_CHUNK = 1 << 30
_STEP = 1 << 20
_NO_SHORTCUT = (errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP)


class LocalBlobs:
    """A BlobStore in the directory at `directory`, which must be on a local disk.

    Acknowledged writes are synced, file and directory; small files that wait to be written at the
    same time are a batch. A directory has stricter keys than a bucket,
    or InvalidPathError: no key may continue another one after a `/`, a component has at most 255
    bytes (a limit of most file systems), and no key begins with `.tmp/`. Files of other programs
    below the directory are blobs, too; symbolic links are not, and are never followed. An etag
    changes with each put.
    """

    min_part = 1
    composes = True

    def __init__(self, directory: str | os.PathLike[str], runtime: Runtime = SYSTEM) -> None:
        self._root = os.path.abspath(directory)
        self._runtime = runtime
        self.files = LocalFiles(self._root, runtime)
        self._threads = Threads(_THREADS, runtime)
        self._writer: _Writer | None = None

    def __repr__(self) -> str:
        return f"LocalBlobs({self._root!r})"

    def uri(self, key: str) -> str:
        return Path(self._root, _checked(key)).as_uri()

    async def put(
        self, key: str, data: Buffer, *, if_absent: bool = False, if_match: str | None = None
    ) -> BlobInfo:
        _checked(key)
        check_put(if_absent, if_match)
        if if_match is None and memoryview(data).nbytes <= SMALL:
            return await self._write_together(FileWrite(key, data, if_absent))
        return await self.run(
            key,
            lambda: self.files.write(
                key, lambda file: write_fully(file, data), if_absent=if_absent, if_match=if_match
            ),
        )

    async def get(
        self,
        key: str,
        start: int = 0,
        end: int | None = None,
        *,
        if_match: str | None = None,
        if_size: int | None = None,
    ) -> bytes:
        _checked(key)
        check_range(start, end)

        def read() -> bytes:
            with self._unchanged(key, if_match, if_size) as (file, present):
                return _read_range(file, start, present if end is None else min(end, present))

        size = if_size if end is None else end
        is_short = size is not None and size - start <= _SHORT
        return await self.run(key, read, is_short=is_short)

    async def get_into(
        self,
        key: str,
        start: int,
        buffer: memoryview,
        *,
        if_match: str | None = None,
        if_size: int | None = None,
    ) -> int:
        _checked(key)
        check_range(start, None)

        def read() -> int:
            with self._unchanged(key, if_match, if_size) as (file, _):
                return _read_into(file, start, buffer)

        # Otherwise the thread would write to the buffer after a cancellation, too.
        return await to_the_end(lambda: self.run(key, read, is_short=len(buffer) <= _SHORT))

    @contextmanager
    def _unchanged(
        self, key: str, if_match: str | None, if_size: int | None
    ) -> Iterator[tuple[int, int]]:
        """A descriptor of the file and its size. Raises BlobNotFoundError; BlobChangedError if it
        is another one before or, by its etag, after the body."""
        with self.files.opened(key) as (file, facts):
            check_unchanged(blob_info(key, facts), if_match, if_size)
            yield file, facts.st_size
            if if_match is not None:  # other programs may write in place
                check_unchanged(blob_info(key, os.fstat(file)), if_match)

    async def head(self, key: str) -> BlobInfo | None:
        _checked(key)
        facts = await self.run(key, lambda: self.files.facts(key), is_short=True)
        return None if facts is None else blob_info(key, facts)

    def can_copy_from(self, source: BlobStore) -> bool:
        return isinstance(source, LocalBlobs)

    async def copy(
        self,
        source: BlobStore,
        source_key: str,
        key: str,
        *,
        found: BlobInfo | None = None,  # noqa: ARG002 - the port's
        if_match: str | None = None,
    ) -> BlobInfo:
        _checked(source_key)
        _checked(key)
        if not isinstance(source, LocalBlobs):
            raise UnsupportedError("a directory cannot copy from another kind of store", path=key)
        files = source.files

        def copy() -> BlobInfo:
            with files.opened(source_key) as (file, facts):
                check_unchanged(blob_info(source_key, facts), if_match)

                def fill(target: int) -> None:
                    _copy_range(file, 0, target, 0, facts.st_size)
                    check_unchanged(blob_info(source_key, os.fstat(file)), if_match)

                return self.files.write(key, fill)

        return await self.run(key, copy)

    async def delete(self, key: str) -> None:
        for failure in await self.delete_many([key]):
            raise failure.error

    async def delete_many(self, keys: Sequence[str]) -> list[DeleteFailure]:
        for key in keys:
            _checked(key)
        failures = await self.run(self._root, lambda: self.files.delete(dict.fromkeys(keys)))
        return [DeleteFailure(key, error) for key, error in failures.items()]

    async def list(
        self,
        prefix: str = "",
        *,
        cursor: str | None = None,
        limit: int | None = None,
        after: str = "",
    ) -> BlobPage:
        check_page(limit)
        size = limit or _PAGE

        def page() -> BlobPage:
            with self.files.opened_root() as root:
                blobs = list(islice(walk(root, prefix, cursor or after, size + 1), size + 1))
            return BlobPage(blobs[:size], blobs[size - 1].key if len(blobs) > size else None)

        return await self.run(self._root, page)

    async def start_upload(self, key: str) -> LocalUpload:
        _checked(key)
        upload = LocalUpload(self, key, self._runtime.uuid())
        await self.run(key, upload.begin)
        return upload

    async def list_uploads(
        self,
        prefix: str = "",  # noqa: ARG002 - unpublished files do not have their keys
    ) -> AsyncIterator[Unfinished]:
        for name, written_ms in await self.run(self._root, self.files.unpublished):
            yield Unfinished("", name, written_ms)

    async def abort_upload(self, upload: Unfinished) -> None:
        await self.run(self._root, lambda: self.files.forget(upload.id))

    async def now_ms(self) -> int:
        return await self.run(self._root, self.files.now_ms)

    async def space(self) -> StorageSpace:
        return await self.run("", lambda: StorageSpace.of_disk(self._root))

    async def create(self) -> bool:
        def create() -> bool:
            made = self.files.make_root()
            with self.files.opened_private():
                return made

        return await self.run(self._root, create)

    async def exists(self) -> bool:
        def is_directory() -> bool:
            try:
                return stat.S_ISDIR(os.stat(self._root).st_mode)
            except (FileNotFoundError, NotADirectoryError):
                return False

        return await self.run(self._root, is_directory)

    async def drop(self, *, if_empty: bool = False) -> bool:
        return await self.run(self._root, self.files.remove_root if if_empty else self._drop)

    async def close(self) -> None:
        writer, self._writer = self._writer, None
        if writer is not None and writer.process == os.getpid():
            await to_the_end(writer.close)

    async def _write_together(self, write: FileWrite) -> BlobInfo:
        """Write a file with others that wait at the same time. It is written to the end even if the
        awaiting task is cancelled."""
        writer = self._writer
        if writer is None or writer.process != os.getpid():
            self._writer = writer = _Writer(self.files, self._threads, self._runtime)
        future = writer.queue().submit(write)
        return await to_the_end(partial(_result_of, future))

    async def run(self, path: str, call: Callable[[], T], *, is_short: bool = False) -> T:
        """The result of a blocking call, in a worker thread, or of a short one, on the event loop
        while these are fast; its errors name `path`."""

        def run() -> T:
            with os_errors(os.path.join(self._root, path)):
                return call()

        return await (self._threads.run_short if is_short else self._threads.run)(run)

    def _drop(self) -> bool:
        if os.path.islink(self._root):
            shutil.rmtree(os.path.realpath(self._root))
            os.unlink(self._root)
        elif os.path.lexists(self._root):
            shutil.rmtree(self._root)
        return True


class _Writer:
    """What writes small files in one process: those that wait at the same time are a batch."""

    def __init__(self, files: LocalFiles, threads: Threads, runtime: Runtime) -> None:
        self.process = os.getpid()
        self._files = files
        self._threads = threads
        self._runtime = runtime
        self._executor = ThreadPoolExecutor(_SYNCS, "s3k-file-sync")
        self._queues: dict[asyncio.AbstractEventLoop, BatchQueue[FileWrite, BlobInfo]] = {}

    def queue(self) -> BatchQueue[FileWrite, BlobInfo]:
        """The queue of the running event loop."""
        loop = asyncio.get_running_loop()
        queue = self._queues.get(loop)
        if queue is None:
            queue = self._queues[loop] = BatchQueue(
                self._steps,
                self._threads,
                self._executor,
                rounds_of(self._files.root),
                rank=_RANK,
                most=_BATCH,
            )
        return queue

    async def close(self) -> None:
        """Write what waits, and end the threads."""
        loop = asyncio.get_running_loop()
        queue = self._queues.get(loop)
        if queue is not None:
            await queue.drained()
            self._queues.pop(loop, None)
        await self._threads.run(self._executor.shutdown)

    def _steps(self, batch: Sequence[FileWrite]) -> Steps[BlobInfo]:
        return WriteBatch(self._files, self._runtime, batch).steps()


async def _result_of(future: asyncio.Future[T]) -> T:
    return await future


class _Piece(NamedTuple):
    """Location of a part's bytes in the private directory."""

    file: str
    offset: int
    size: int


class LocalUpload:
    """A multipart upload: parts are written to their offsets in one file, which becomes the blob.

    The offset is known if all parts but the last have the size of the first to arrive. Larger parts
    get files of their own; if the parts are not contiguous, the blob is assembled by copying.
    """

    def __init__(self, store: LocalBlobs, key: str, name: str) -> None:
        self._store = store
        self._files = store.files
        self._key = key
        self._name = name
        self._names = {name}
        self._slot: int | None = None
        self._pieces: dict[int, _Piece] = {}
        self._published: BlobInfo | None = None
        self._ended = False
        self._lock = threading.Lock()

    def begin(self) -> None:
        """Make the file. Blocking."""
        with self._files.opened_private() as private:
            os.close(self._files.create(self._name, private))

    async def put_part(self, number: int, data: Buffer) -> None:
        if number < 1:
            raise ValueError("parts are numbered from 1")

        def fill(target: int, offset: int) -> None:
            write_fully(target, data, offset)

        await self._store_part(number, memoryview(data).nbytes, fill)

    async def copy_part(
        self,
        number: int,
        source: BlobStore,
        source_key: str,
        start: int,
        end: int,
        *,
        if_match: str | None = None,
    ) -> None:
        check_copied_part(number, start, end)
        _checked(source_key)
        if not isinstance(source, LocalBlobs):
            raise UnsupportedError(
                "a directory cannot copy from another kind of store", path=self._key
            )
        files = source.files

        def fill(target: int, offset: int) -> None:
            with files.opened(source_key) as (file, facts):
                check_source(blob_info(source_key, facts), if_match, end)
                _copy_range(file, start, target, offset, end - start)
                if if_match is not None:  # other programs may write in place
                    check_unchanged(blob_info(source_key, os.fstat(file)), if_match)

        await self._store_part(number, end - start, fill)

    async def _store_part(self, number: int, size: int, fill: Callable[[int, int], None]) -> None:
        """Store a part of a size in bytes, which `fill` writes to a descriptor at an offset."""
        self._require_open()
        if self._slot is None:
            self._slot = size
        if size <= self._slot:
            piece = _Piece(self._name, (number - 1) * self._slot, size)
        else:
            piece = _Piece(f"{self._name}.{number}.{size}", 0, size)
            self._names.add(piece.file)

        def write() -> None:
            with self._files.opened_private() as private:
                if piece.file != self._name:
                    with suppress(FileExistsError):
                        os.close(self._files.create(piece.file, private))
                with _opened(
                    private, piece.file, os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC
                ) as file:
                    fill(file, piece.offset)

        await self._store.run(self._key, write)
        self._pieces[number] = piece

    async def complete(self) -> BlobInfo:
        return await self._store.run(self._key, self._complete)

    async def abort(self) -> None:
        self._ended = True
        await self._store.run(self._key, self._remove)

    def _require_open(self) -> None:
        if self._ended:
            raise ServiceError("no such upload", path=self._key, service_code="NoSuchUpload")

    def _complete(self) -> BlobInfo:
        with self._lock:
            if self._published is not None:
                return self._published
            self._require_open()
            numbers = part_numbers(
                {number: piece.size for number, piece in self._pieces.items()}, 1
            )
            pieces = [self._pieces[number] for number in numbers]
            size = sum(piece.size for piece in pieces)
            starts = accumulate((piece.size for piece in pieces), initial=0)
            if all(
                piece == (self._name, start, piece.size)
                for piece, start in zip(pieces, starts, strict=False)
            ):
                self._published = self._files.publish(self._name, self._key, size)
            else:
                self._published = self._files.write(
                    self._key, lambda target: self._join(pieces, target)
                )
            self._ended = True
            self._remove()
            return self._published

    def _join(self, pieces: Sequence[_Piece], target: int) -> None:
        position = 0
        with self._files.opened_private() as private:
            for piece in pieces:
                with _opened(
                    private, piece.file, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC
                ) as file:
                    _copy_range(file, piece.offset, target, position, piece.size)
                position += piece.size

    def _remove(self) -> None:
        with suppress(VolumeNotFoundError), self._files.opened_private() as private:
            for name in self._names:
                with suppress(FileNotFoundError):
                    os.unlink(name, dir_fd=private)


@contextmanager
def _opened(directory: int, name: str, flags: int) -> Iterator[int]:
    try:
        descriptor = os.open(name, flags, dir_fd=directory)
    except FileNotFoundError as error:
        raise ServiceError("no such upload", path=name, service_code="NoSuchUpload") from error
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _checked(key: str) -> str:
    check_key(key)
    if key == PRIVATE or key.startswith(PRIVATE + "/"):
        raise InvalidPathError(f"a local directory keeps `{PRIVATE}` for itself", path=key)
    return key


def _read_range(file: int, start: int, end: int) -> bytes:
    pieces = []
    while start < end:
        piece = os.pread(file, min(end - start, _CHUNK), start)
        if not piece:
            break
        pieces.append(piece)
        start += len(piece)
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def _read_into(file: int, start: int, buffer: memoryview) -> int:
    """Read into a buffer until it is full or the file ends; returns the number of bytes."""
    filled = 0
    while filled < len(buffer):
        piece = os.preadv(file, [buffer[filled : filled + _CHUNK]], start + filled)
        if not piece:
            break
        filled += piece
    return filled


def _copy_range(source: int, start: int, target: int, position: int, size: int) -> None:
    """Copy inside the kernel (by reference if the file system shares blocks), or through this
    process."""
    while size:
        try:
            copied = os.copy_file_range(source, target, min(size, _CHUNK), start, position)
        except OSError as error:
            if error.errno not in _NO_SHORTCUT:
                raise
            piece = os.pread(source, min(size, _STEP), start)
            write_fully(target, piece, position)
            copied = len(piece)
        if not copied:
            raise CorruptDataError("a file became shorter while it was copied")
        start, position, size = start + copied, position + copied, size - copied
