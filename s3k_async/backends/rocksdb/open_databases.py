"""The RocksDB databases that this process has open: one for each directory, shared by its stores.

RocksDB lets one process open a database, and once. Before a fork all are closed, and RocksDB's
threads end: they would be missing in the child, which waits for them when it ends. Afterwards the
parent opens them again, and the child refuses them.
"""

from __future__ import annotations

import asyncio
import os
import re
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from typing import Final, TypeVar

from s3k_async._core.concurrency import to_the_end
from s3k_async._core.file_modes import make_directories
from s3k_async._core.os_errors import os_errors, sync_directory
from s3k_async._core.runtime import Runtime
from s3k_async._core.worker_threads import Threads
from s3k_async.backends.rocksdb.rocksdb_database import (
    Batch,
    Database,
    DatabaseGoneError,
    Write,
)
from s3k_async.errors import (
    ClosedClientError,
    ForkedClientError,
    NotAVolumeError,
    VolumeFormatError,
    VolumeNotFoundError,
)
from s3k_async.storage_space import StorageSpace

__all__ = ["FORMAT_KEY", "SharedDatabase"]

T = TypeVar("T")

FORMAT_KEY: Final = b"format"
"""Key of the database's purpose and format."""
_CURRENT: Final = "CURRENT"
_FILES: Final = re.compile(
    r"CURRENT|IDENTITY|LOCK|LOG(\.old\.\d+)?|(MANIFEST|OPTIONS)-\d+(\.dbtmp)?"
    r"|\d+\.(log|sst|blob|dbtmp)|rocksdict-config\.json"
)
"""Names of files of a database."""
_READERS: Final = 4
_THREAD_STEP: Final = 0.001
"""Seconds between looks for RocksDB's threads,"""
_THREAD_STEPS: Final = 1000
"""and their number."""


class _OpenDatabases:
    """The open databases of this process, by the real path of their directories."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.databases: dict[str, Database] = {}
        self.inherited: frozenset[str] = frozenset()
        """Those that the parent had open when it forked this process."""
        os.register_at_fork(
            before=self._pause, after_in_parent=self._resume, after_in_child=self._begin_in_child
        )

    def _pause(self) -> None:
        self.lock.acquire()
        for database in self.databases.values():
            database.pause()
        _end_threads()

    def _resume(self) -> None:
        for database in self.databases.values():
            database.resume()
        self.lock.release()

    def _begin_in_child(self) -> None:
        self.lock = threading.RLock()
        self.inherited |= self.databases.keys()
        self.databases = {}


_all: dict[str, _OpenDatabases] = {}


def _open_databases() -> _OpenDatabases:
    return _all.get("all") or _all.setdefault("all", _OpenDatabases())


def _end_threads() -> None:
    """End RocksDB's threads, which the next opening starts again."""
    if "rocksdict" not in sys.modules:
        return
    from rocksdict import Env

    env = Env()
    env.set_low_priority_background_threads(0)
    env.set_high_priority_background_threads(0)
    env.set_bottom_priority_background_threads(0)
    for _ in range(_THREAD_STEPS):
        if not any(name.startswith("rocksdb:") for name in _thread_names()):
            return
        time.sleep(_THREAD_STEP)


def _thread_names() -> Iterator[str]:
    for task in os.listdir("/proc/self/task"):
        with suppress(OSError), open(f"/proc/self/task/{task}/comm", encoding="utf-8") as file:
            yield file.read()


class SharedDatabase:
    """A store's access to the database in the directory `path`, opened on first use.

    `kind`: its purpose and format, kept under FORMAT_KEY. Every method may raise
    VolumeNotFoundError, NotAVolumeError, VolumeFormatError, ForkedClientError, and BusyError if
    another process has the database open.
    """

    def __init__(
        self, path: str, label: str, kind: bytes, runtime: Runtime, *, with_blobs: bool = False
    ) -> None:
        self.path = os.path.abspath(path)
        self.label = label
        self._kind = kind
        self._with_blobs = with_blobs
        self._threads = Threads(_READERS, runtime)
        self._database: Database | None = None
        self._closed = False

    async def read(self, call: Callable[[Database], T], *, is_short: bool = False) -> T:
        """The result of a call that reads: in a worker thread, or if it is short, on the event loop
        while these are fast."""

        def read() -> T:
            while True:
                with suppress(DatabaseGoneError):
                    return self._opened().read(call)

        on_loop = is_short and self._current() is not None
        return await (self._threads.run_short if on_loop else self._threads.run)(read)

    async def write(self, apply: Callable[[Batch], T], *, synced: bool = True) -> T:
        """The result of a change (see `Write`), committed with others that wait meanwhile."""
        write = Write(apply, synced)
        while True:
            database = self._current()
            if database is None:
                database = await self._threads.run(self._opened)
            with suppress(DatabaseGoneError):
                return await asyncio.wrap_future(database.submit(write))

    async def space(self) -> StorageSpace:
        """The file system of the directory."""

        def space(_: Database) -> StorageSpace:
            with os_errors(self.path):
                return StorageSpace.of_disk(self.path)

        return await self.read(space)

    async def create(self) -> bool:
        """Make the database; False if it existed."""
        return await self._threads.run(self._create)

    async def exists(self) -> bool:
        try:
            await self.read(lambda _: None)
        except VolumeNotFoundError:
            return False
        return True

    async def drop(self, unless: Callable[[Database], bool] | None = None) -> bool:
        """Remove the database; absent is fine. False, and nothing is removed, if `unless` is
        true of it."""
        return await self._threads.run(lambda: self._drop(unless))

    async def close(self) -> None:
        """Close the database if no other store of the process uses it. Idempotent."""
        self._closed = True
        database, self._database = self._database, None
        if database is not None and database.process == os.getpid():
            release = partial(_release, _open_databases(), database)
            await to_the_end(partial(self._threads.run, release))

    def _current(self) -> Database | None:
        """The database if this store has it open."""
        database = self._database
        if database is None or database.is_closed or database.process != os.getpid():
            return None
        return database

    def _opened(self) -> Database:
        if database := self._current():
            return database
        opened = _open_databases()
        with opened.lock:
            if self._closed:
                raise ClosedClientError("the store is closed", path=self.label)
            if database := self._current():  # another thread has opened it
                return database
            database = self._shared(opened, create=False)
            if database.read(lambda found: found.get(FORMAT_KEY)) is None:
                _release(opened, database)
                raise VolumeNotFoundError("no such database", path=self.label)
            self._database = database
            return database

    def _shared(self, opened: _OpenDatabases, *, create: bool) -> Database:
        """The open database, with one more user."""
        place = os.path.realpath(self.path)
        if place in opened.inherited:
            raise ForkedClientError(
                "the RocksDB database was open when this process was forked, and stays with the "
                "parent: close it before the fork",
                path=self.label,
            )
        database = opened.databases.get(place)
        if database is None:
            if not create and not os.path.exists(os.path.join(self.path, _CURRENT)):
                raise VolumeNotFoundError("no such database", path=self.label)
            database = Database(self.path, self.label, create=create, with_blobs=self._with_blobs)
            opened.databases[place] = database
        database.users += 1
        try:
            database.read(self._check)
        except BaseException:
            _release(opened, database)
            raise
        return database

    def _check(self, database: Database) -> None:
        found = database.get(FORMAT_KEY)
        if found == self._kind:
            return
        if found is not None and found.split(b" ")[:-1] == self._kind.split(b" ")[:-1]:
            raise VolumeFormatError(
                f"the database has the format {found.decode()!r}; this version knows "
                f"{self._kind.decode()!r}",
                path=self.label,
            )
        if found is not None or database.rows(b"", b"\xff", 1, values=False):
            raise NotAVolumeError(
                f"the RocksDB database is not one of {self._kind.decode()!r}", path=self.label
            )

    def _create(self) -> bool:
        opened = _open_databases()
        with opened.lock, os_errors(self.path):
            make_directories(self.path)
            foreign = [name for name in os.listdir(self.path) if not _FILES.fullmatch(name)]
            if foreign and not os.path.exists(os.path.join(self.path, _CURRENT)):
                raise NotAVolumeError(
                    f"the directory has other files, such as {min(foreign)!r}", path=self.path
                )
            database = self._shared(opened, create=True)
            try:
                made = database.read(lambda found: found.get(FORMAT_KEY)) is None
                if made:
                    mark = Write(lambda batch: batch.put(FORMAT_KEY, self._kind))
                    database.submit(mark).result()
                    sync_directory(self.path)
                    sync_directory(os.path.dirname(self.path))
            except BaseException:
                _release(opened, database)
                raise
            if self._current():
                _release(opened, database)
            else:
                self._database = database
            return made

    def _drop(self, unless: Callable[[Database], bool] | None) -> bool:
        opened = _open_databases()
        with opened.lock, os_errors(self.path):
            try:
                database = self._shared(opened, create=False)
            except VolumeNotFoundError:
                pass
            else:

                def agreed() -> bool:
                    if unless is not None and unless(database):
                        return False
                    # Without this file there is no database, whatever else is left of it.
                    os.unlink(os.path.join(self.path, _CURRENT))
                    return True

                try:
                    if not database.close(agreed):
                        return False
                finally:
                    _release(opened, database)
                opened.databases.pop(os.path.realpath(self.path), None)
            self._database = None
            self._unlink_files()
            return True

    def _unlink_files(self) -> None:
        if not os.path.isdir(self.path):
            return
        for name in os.listdir(self.path):
            if _FILES.fullmatch(name):
                os.unlink(os.path.join(self.path, name))
        above = os.path.dirname(self.path)
        with suppress(OSError):  # other files are in them
            os.rmdir(self.path)
            sync_directory(above)
            os.rmdir(above)


def _release(opened: _OpenDatabases, database: Database) -> None:
    """End one use of the database, and close it after the last one."""
    with opened.lock:
        database.users -= 1
        if database.users == 0 and not database.is_closed:
            opened.databases = {
                place: each for place, each in opened.databases.items() if each is not database
            }
            database.close()
