"""The RocksDB databases that this process has open: one for each directory, shared by its stores.

RocksDB lets one process open a database, once, and has threads that a fork does not copy: a forked
child cannot use RocksDB if its parent did.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import re
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Final, TypeVar

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


class _Process:
    """The open databases of one process, by the real path of their directories."""

    def __init__(self) -> None:
        self.id = os.getpid()
        self.lock = threading.RLock()
        self.databases: dict[str, Database] = {}
        os.register_at_fork(after_in_child=self._keep)

    def _keep(self) -> None:
        # Their destructors would wait for threads that the child does not have.
        for database in self.databases.values():
            if database.handle is not None:
                ctypes.pythonapi.Py_IncRef(ctypes.py_object(database.handle))


_processes: dict[str, _Process] = {}


def _process(label: str) -> _Process:
    found = _processes.get("this") or _processes.setdefault("this", _Process())
    if found.id != os.getpid():
        raise ForkedClientError(
            "RocksDB was used before this process was forked, and cannot be used in it: start the "
            "process in another way (spawn or forkserver of multiprocessing)",
            path=label,
        )
    return found


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
        process = _processes.get("this")
        if database is not None and process is not None and process.id == os.getpid():
            await self._threads.run(lambda: _release(process, database))

    def _current(self) -> Database | None:
        """The database if this store has it open."""
        _process(self.label)
        database = self._database
        return None if database is None or database.is_closed else database

    def _opened(self) -> Database:
        if database := self._current():
            return database
        process = _process(self.label)
        with process.lock:
            if self._closed:
                raise ClosedClientError("the store is closed", path=self.label)
            if database := self._current():  # another thread has opened it
                return database
            database = self._shared(process, create=False)
            if database.read(lambda found: found.get(FORMAT_KEY)) is None:
                _release(process, database)
                raise VolumeNotFoundError("no such database", path=self.label)
            self._database = database
            return database

    def _shared(self, process: _Process, *, create: bool) -> Database:
        """The open database, with one more user."""
        place = os.path.realpath(self.path)
        database = process.databases.get(place)
        if database is None:
            if not create and not os.path.exists(os.path.join(self.path, _CURRENT)):
                raise VolumeNotFoundError("no such database", path=self.label)
            database = Database(self.path, self.label, create=create, with_blobs=self._with_blobs)
            process.databases[place] = database
        database.users += 1
        try:
            database.read(self._check)
        except BaseException:
            _release(process, database)
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
        process = _process(self.label)
        with process.lock, os_errors(self.path):
            make_directories(self.path)
            foreign = [name for name in os.listdir(self.path) if not _FILES.fullmatch(name)]
            if foreign and not os.path.exists(os.path.join(self.path, _CURRENT)):
                raise NotAVolumeError(
                    f"the directory has other files, such as {min(foreign)!r}", path=self.path
                )
            database = self._shared(process, create=True)
            try:
                made = database.read(lambda found: found.get(FORMAT_KEY)) is None
                if made:
                    mark = Write(lambda batch: batch.put(FORMAT_KEY, self._kind))
                    database.submit(mark).result()
                    sync_directory(self.path)
                    sync_directory(os.path.dirname(self.path))
            except BaseException:
                _release(process, database)
                raise
            if self._current():
                _release(process, database)
            else:
                self._database = database
            return made

    def _drop(self, unless: Callable[[Database], bool] | None) -> bool:
        process = _process(self.label)
        with process.lock, os_errors(self.path):
            try:
                database = self._shared(process, create=False)
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
                    _release(process, database)
                process.databases.pop(os.path.realpath(self.path), None)
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


def _release(process: _Process, database: Database) -> None:
    """End one use of the database, and close it after the last one."""
    with process.lock:
        database.users -= 1
        if database.users == 0 and not database.is_closed:
            process.databases = {
                place: each for place, each in process.databases.items() if each is not database
            }
            database.close()
