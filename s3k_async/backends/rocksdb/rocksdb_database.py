"""A RocksDB database opened by this process: reads, group commit, and recovery from errors.

Writes that wait at the same time are applied in order and committed in one batch, whose
write-ahead log is synced before they are acknowledged. Changes above `_BATCH_BYTES` are split
between whole writes.

rocksdict holds the interpreter's lock during each call, so that no other thread runs meanwhile: a
call is short, and a long operation consists of many.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from s3k_async.backends.rocksdb.rocksdb_errors import rocksdb_errors
from s3k_async.backends.write_queue import WriteQueue
from s3k_async.errors import ConfigError, NoSpaceError, S3kError, ThrottledError, copy_of

if TYPE_CHECKING:
    from rocksdict import Options, Rdict, ReadOptions, WriteBatch, WriteOptions

__all__ = ["Batch", "Database", "DatabaseGoneError", "Rows", "Write"]

T = TypeVar("T")

_WRITES: Final = 64
"""Writes of one commit."""
_BATCH_BYTES: Final = 8 << 20
_BUFFER_BYTES: Final = 32 << 20
"""Bytes of a memtable, and of the write-ahead log that belongs to it."""
_FREED_BYTES: Final = 64 << 20
"""Bytes removed, after which the memtable is flushed."""
_CACHE_BYTES: Final = 32 << 20
_OPEN_FILES: Final = 256
_FILE_BLOB: Final = 16 << 10
"""Bytes of a value that compactions do not rewrite, in a database of blobs."""
_ROOM_BYTES: Final = 8 << 20
"""Free space that RocksDB needs to be opened, besides that of its write-ahead log."""
_GC_CUTOFF: Final = 0.5
"""Share of the blob files, the oldest, whose values compactions move,"""
_GC_THRESHOLD: Final = 0.5
"""and the share of garbage in them that starts a compaction."""
_GC_FLUSHES: Final = 2
"""Flushes after which their files are compacted."""
_STALL_STEP: Final = 0.01
"""Seconds between attempts to write while flushes and compactions catch up,"""
_STALL_STEPS: Final = 1000
"""and their number."""

Rows = list[tuple[bytes, bytes]]


class DatabaseGoneError(Exception):
    """The database was closed or dropped meanwhile: look it up again."""


@dataclass(frozen=True, slots=True)
class Write(Generic[T]):
    """A change of the database. `apply` returns its result, or raises S3kError before it has
    changed the batch. `synced`: durable when it is acknowledged, with all writes before it."""

    apply: Callable[[Batch], T]
    synced: bool = True


class Batch:
    """Changes that are committed together. `get` sees them, but not those of `delete_range`."""

    def __init__(self, stored: Database) -> None:
        self.stored = stored
        """The database as it was committed."""
        self._new: dict[bytes, bytes | None] = {}
        self._changes: list[tuple[bytes, bytes | None, bytes | None]] = []
        self.size = 0
        """Bytes of the changes."""
        self.freed = 0
        """Bytes of the values that they remove, as far as the writes have counted them."""

    def get(self, key: bytes) -> bytes | None:
        """The value of a key, or None."""
        return self._new[key] if key in self._new else self.stored.get(key)

    def put(self, key: bytes, value: bytes) -> None:
        self._new[key] = value
        self._add(key, value, None)

    def delete(self, key: bytes) -> None:
        self._new[key] = None
        self._add(key, None, None)

    def delete_range(self, start: bytes, end: bytes) -> None:
        """Remove the keys from `start` on, before `end`."""
        self._add(start, None, end)

    def _add(self, key: bytes, value: bytes | None, end: bytes | None) -> None:
        self._changes.append((key, value, end))
        self.size += len(key) + len(value or b"") + len(end or b"")

    def changes(self) -> WriteBatch:
        """The changes in order, for one write: RocksDB does not take a batch again."""
        from rocksdict import WriteBatch

        changes = WriteBatch(raw_mode=True)
        for key, value, end in self._changes:
            if value is not None:
                changes.put(key, value)
            elif end is not None:
                changes.delete_range(key, end)
            else:
                changes.delete(key)
        return changes


class Database:
    """The database at `path`, used by `users` stores of this process, until it is closed.

    Blocking. Raises S3kError; DatabaseGoneError after the close.
    """

    def __init__(self, path: str, label: str, *, create: bool, with_blobs: bool) -> None:
        self.path = path
        self.label = label
        self.users = 0
        self.process: Final = os.getpid()
        self._with_blobs = with_blobs
        self._condition = threading.Condition()
        self._inside = 0
        self._closed = False
        self._paused = False
        self._has_failed = False
        self._freed = 0
        self._rdict: Rdict | None = self._open(create=create)
        self._writes = self._new_queue()
        self._synced, self._unsynced = _write_options(sync=True), _write_options(sync=False)

    def __repr__(self) -> str:
        return f"Database({self.path!r})"

    @property
    def is_closed(self) -> bool:
        return self._closed

    def read(self, call: Callable[[Database], T]) -> T:
        """The result of a call that reads; the database is not closed meanwhile."""
        with self._entered():
            return call(self)

    def get(self, key: bytes) -> bytes | None:
        """The value of a key, or None. In `read`."""
        with rocksdb_errors(self.label):
            value: bytes | None = self._rocks.get(key)
            return value

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """The values of keys, at one moment. In `read`."""
        with rocksdb_errors(self.label):
            values: list[bytes | None] = self._rocks.get(list(keys))  # type: ignore[assignment]
            return values

    def rows(
        self,
        start: bytes,
        end: bytes,
        most: int | None = None,
        *,
        accept: Callable[[bytes], bytes | None] = lambda _: None,
        values: bool = True,
    ) -> Rows:
        """The first keys from `start` on, before `end`, and their values, at one moment. In `read`.

        `accept` returns None for a key to return, or for another one the key at which to continue.
        """
        found: Rows = []
        with rocksdb_errors(self.label):
            cursor = self._rocks.iter(_bounded(end))
            try:
                cursor.seek(start)
                while (most is None or len(found) < most) and cursor.valid():
                    key = cursor.key()
                    skipped_to = accept(key)
                    if skipped_to is None:
                        found.append((key, cursor.value() if values else b""))
                        cursor.next()
                    else:
                        cursor.seek(skipped_to)
                cursor.status()
            finally:
                del cursor  # RocksDB stays open while it lives, in a traceback as well
        return found

    def submit(self, write: Write[T]) -> Future[T]:
        """Queue a write: the future is done when it is applied, or refused."""
        with self._condition:
            self._require_open()
            return self._writes.submit(write)

    def close(self, agreed: Callable[[], bool] | None = None) -> bool:
        """Commit what waits, let reads end, and close the database. `agreed` is called when nothing
        else uses it; it stays open, and the result is False, if that returns False."""
        with self._condition:
            self._closed = True
        self._writes.close()
        with self._condition:
            while self._inside:
                self._condition.wait()
            if agreed is not None and not self._agrees(agreed):
                return False
            self._release()
            return True

    def _agrees(self, agreed: Callable[[], bool]) -> bool:
        """The result of `agreed`. Unless it is True, the database can be used again."""
        agrees = False
        try:
            if self._rdict is None:
                self._rdict = self._open(create=False)
            agrees = agreed()
        finally:
            if not agrees:
                self._writes = self._new_queue()
                self._closed = False
        return agrees

    def pause(self) -> None:
        """Let the calls under way end, close RocksDB, and delay other calls until `resume`."""
        with self._condition:
            while self._paused:  # by another thread
                self._condition.wait()
            self._paused = True
            while self._inside:
                self._condition.wait()
            self._release()

    def resume(self) -> None:
        """Open RocksDB again, or let the next call do it and report why it cannot."""
        with self._condition:
            self._paused = False
            with suppress(S3kError):
                self._rdict = self._rdict or self._open(create=False)
            self._condition.notify_all()

    @contextmanager
    def _entered(self, *, writing: bool = False) -> Iterator[None]:
        with self._condition:
            while self._paused:
                self._condition.wait()
            if not writing:  # what was submitted before the close is committed
                self._require_open()
            if self._rdict is None:
                self._rdict = self._open(create=False)
            self._inside += 1
        try:
            yield
        finally:
            with self._condition:
                self._inside -= 1
                self._condition.notify_all()

    def _new_queue(self) -> WriteQueue[Write[Any], Any]:
        return WriteQueue(self._commit, most=_WRITES, name="s3k-rocksdb-writer")

    def _require_open(self) -> None:
        if self._closed:
            raise DatabaseGoneError

    @property
    def _rocks(self) -> Rdict:
        assert self._rdict is not None
        return self._rdict

    def _open(self, *, create: bool) -> Rdict:
        try:
            from rocksdict import Rdict
        except ImportError as error:
            raise ConfigError(
                "rocksdict is not installed: pip install 's3k-async[rocksdb]'", path=self.label
            ) from error
        with rocksdb_errors(self.label):
            return Rdict(self.path, _options(create=create, with_blobs=self._with_blobs))

    def _release(self) -> None:
        """Close RocksDB. A flush that fails loses nothing: the log has what was acknowledged."""
        rdict, self._rdict = self._rdict, None
        if rdict is None:
            return
        try:
            rdict.close()
        except Exception as error:
            if type(error) is not Exception:
                raise

    def _commit(self, writes: Sequence[Write[Any]]) -> list[Any]:
        outcomes: list[Any] = []
        waiting: list[Write[Any]] = []
        batch = None
        for write in writes:
            try:
                if self._has_failed:
                    self._recover()
                with self._entered(writing=True):
                    batch = batch or Batch(self)
                    outcomes.append(_outcome(write, batch))
                    waiting.append(write)
                    if batch.size >= _BATCH_BYTES or len(outcomes) == len(writes):
                        self._write(batch, synced=any(each.synced for each in waiting))
                        batch, waiting = None, []
            except S3kError as error:
                done = len(outcomes) - len(waiting)
                return outcomes[:done] + [copy_of(error) for _ in writes[done:]]
        return outcomes

    def _write(self, batch: Batch, *, synced: bool) -> None:
        if not batch.size:
            return
        options = self._synced if synced else self._unsynced
        for _ in range(_STALL_STEPS):
            try:
                with rocksdb_errors(self.label, committing=True):
                    self._rocks.write(batch.changes(), options)
                self._reclaim(batch.freed)
                return
            except ThrottledError:
                time.sleep(_STALL_STEP)  # RocksDB itself would wait with the interpreter's lock
            except S3kError:
                self._has_failed = True
                raise
        raise ThrottledError("flushes and compactions do not keep up", path=self.label)

    def _reclaim(self, freed: int) -> None:
        """After much was removed, start a flush, and with it the compactions that return space:
        removals alone hardly fill a memtable."""
        self._freed += freed
        if self._freed >= _FREED_BYTES:
            self._freed = 0
            # The write is durable; the next one reports what is wrong.
            with suppress(S3kError), rocksdb_errors(self.label):
                self._rocks.flush(wait=False)

    def _recover(self) -> None:
        """Open RocksDB again, which refuses all writes after an error. Without room for this,
        raises NoSpaceError, and reads go on."""
        needed = _ROOM_BYTES + sum(
            entry.stat().st_size for entry in os.scandir(self.path) if entry.name.endswith(".log")
        )
        disk = os.statvfs(self.path)
        if disk.f_bavail * disk.f_frsize < needed:
            raise NoSpaceError(
                f"the disk is full: free {needed >> 20} MiB there, and repeat the call",
                path=self.label,
            )
        self.pause()
        self._has_failed = False
        self.resume()


def _outcome(write: Write[Any], batch: Batch) -> Any:
    try:
        return write.apply(batch)
    except S3kError as error:
        return error


def _bounded(end: bytes) -> ReadOptions:
    from rocksdict import ReadOptions

    options = ReadOptions()
    options.set_iterate_upper_bound(end)
    return options


def _write_options(*, sync: bool) -> WriteOptions:
    from rocksdict import WriteOptions

    options = WriteOptions()
    options.sync = sync
    options.no_slowdown = True
    return options


def _options(*, create: bool, with_blobs: bool) -> Options:
    from rocksdict import BlockBasedOptions, Cache, DBCompressionType, Options

    blocks = BlockBasedOptions()
    blocks.set_bloom_filter(10, block_based=False)
    blocks.set_block_cache(Cache(_CACHE_BYTES))
    options = Options(raw_mode=True)
    options.create_if_missing(create)
    options.set_block_based_table_factory(blocks)
    options.set_write_buffer_size(_BUFFER_BYTES)
    options.set_max_open_files(_OPEN_FILES)
    options.set_keep_log_file_num(2)
    options.set_is_fd_close_on_exec(True)
    options.set_compression_type(DBCompressionType.lz4())
    if with_blobs:
        options.set_enable_blob_files(True)
        options.set_min_blob_size(_FILE_BLOB)
        options.set_enable_blob_gc(True)
        options.set_blob_gc_age_cutoff(_GC_CUTOFF)
        options.set_blob_gc_force_threshold(_GC_THRESHOLD)
        options.set_level_zero_file_num_compaction_trigger(_GC_FLUSHES)
    return options
