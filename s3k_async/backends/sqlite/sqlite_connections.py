"""Connections to a SQLite database: a pool for one process, closed across a fork."""

from __future__ import annotations

import os
import resource
import sqlite3
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from urllib.parse import quote

from s3k_async._core.os_errors import MAKE_ROOM
from s3k_async.backends.ballast import Ballast
from s3k_async.errors import (
    CorruptDataError,
    NoSpaceError,
    NotAVolumeError,
    PermissionDeniedError,
    ResponseLostError,
    S3kError,
    ServiceError,
    ThrottledError,
    VolumeFormatError,
    VolumeNotFoundError,
)

__all__ = [
    "APPLICATION_ID",
    "BALLAST",
    "FORMAT",
    "Connections",
    "NotReadyError",
    "connect",
    "sqlite_errors",
]

APPLICATION_ID = 0x53334B54
"""`S3KT` in the database header: the file is a volume's table."""
FORMAT = 1
"""`user_version` of the database header: the layout of its tables."""
BALLAST = "-ballast"
"""Suffix of the ballast file's name after the database's."""
_PRAGMAS = (
    "synchronous=FULL",
    "fullfsync=ON",
    "checkpoint_fullfsync=ON",
    f"journal_size_limit={16 * 1024 * 1024}",
)
BUSY_TIMEOUT = 5.0
"""Seconds a call waits for another process's write before ThrottledError."""


class _ForkGate:
    """Context manager that delays a fork until no call into SQLite runs and no connection is open.

    In a child SQLite's global mutexes would stay locked, and its list of open files would claim the
    locks that protect the write-ahead log from removal, so that a connection of the child would not
    take them. Then the last other process to close, such as the parent, would remove the log that
    the child still writes to.
    """

    def __init__(self) -> None:
        self._condition = threading.Condition()
        self._inside = 0
        self._forking = False
        self._pools: weakref.WeakSet[Connections] = weakref.WeakSet()
        os.register_at_fork(
            before=self._close, after_in_parent=self._open, after_in_child=self._begin_in_child
        )

    def watch(self, pool: Connections) -> None:
        with self._condition:
            self._pools.add(pool)

    def __enter__(self) -> None:
        """Not reentrant: a fork that waits for the outer call blocks the inner one."""
        with self._condition:
            while self._forking:
                self._condition.wait()
            self._inside += 1

    def __exit__(self, *error: object) -> None:
        with self._condition:
            self._inside -= 1
            if self._forking:
                self._condition.notify_all()

    def _close(self) -> None:
        with self._condition:
            while self._forking:  # another thread is, and would open the gate before this fork
                self._condition.wait()
            self._forking = True
            while self._inside:
                self._condition.wait()
            pools = list(self._pools)
        for pool in pools:
            pool.close_free()

    def _open(self) -> None:
        with self._condition:
            self._forking = False
            self._condition.notify_all()

    def _begin_in_child(self) -> None:
        self._condition = threading.Condition()
        self._forking = False
        self._inside = 0


_gates: dict[str, _ForkGate] = {}


def _gate() -> _ForkGate:
    return _gates.get("all") or _gates.setdefault("all", _ForkGate())


class NotReadyError(Exception):
    """No connection can answer without waiting."""


class Connections:
    """A process's pool of connections to the database at `path`.

    `borrowed` lends a free connection to one thread, or opens one. None is open during a fork.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._free: list[tuple[tuple[int, int], sqlite3.Connection]] = []
        self._prompt: list[tuple[tuple[int, int], sqlite3.Connection]] = []
        """Connections for `ready`, which never wait for a lock."""
        self._wanted = 0
        """Number of further such connections that `ready` has needed."""
        self._closed = False
        self._lock = threading.Lock()
        self._gate = _gate()
        self._gate.watch(self)

    @contextmanager
    def borrowed(self) -> Iterator[sqlite3.Connection]:
        """A connection for the calling thread alone. Errors of SQLite are mapped, and end the
        connection."""
        with self.guarded():
            identity = self._identity()
            connection = self._take(identity)
            try:
                yield connection
            except BaseException:
                self._discard(connection)
                raise
            self._give_back(identity, connection)
            if self._closed:
                self.close_free()

    @contextmanager
    def ready(self) -> Iterator[sqlite3.Connection]:
        """As `borrowed`, but opens no connection and waits for no lock: raises NotReadyError where
        that would be needed, and for errors of SQLite."""
        with self._gate:
            identity = self._identity()
            with self._lock:
                opened, connection = self._prompt.pop() if self._prompt else (identity, None)
                self._wanted += connection is None
            if connection is None:
                raise NotReadyError
            if opened != identity:
                self._discard(connection)
                raise NotReadyError
            try:
                yield connection
            except BaseException as error:
                self._discard(connection)
                if isinstance(error, sqlite3.Error):
                    raise NotReadyError from error
                raise
            with self._lock:
                self._prompt.append((identity, connection))
            if self._closed:
                self.close_free()

    def close(self) -> None:
        """Close the free connections; one in use is closed when it is returned."""
        self._closed = True
        with self.guarded():
            self.close_free()

    @contextmanager
    def guarded(self) -> Iterator[None]:
        """Exclude forks from the body, and map errors of SQLite."""
        with sqlite_errors(self._path), self._gate:
            yield

    def close_free(self) -> None:
        """Close the free connections. The caller is inside the gate, or holds it closed."""
        with self._lock:
            free, self._free, self._prompt = [*self._free, *self._prompt], [], []
        for _, connection in free:
            self._discard(connection)

    def _give_back(self, identity: tuple[int, int], connection: sqlite3.Connection) -> None:
        with self._lock:
            is_wanted = self._wanted > 0
            self._wanted = 0
        if is_wanted:
            connection.execute("PRAGMA busy_timeout=0")
        with self._lock:
            (self._prompt if is_wanted else self._free).append((identity, connection))

    def _identity(self) -> tuple[int, int]:
        """Identity of the file at the path: a connection must not serve a dropped or replaced
        file."""
        try:
            facts = os.stat(self._path)
        except (FileNotFoundError, NotADirectoryError) as error:
            raise VolumeNotFoundError("no such table", path=self._path) from error
        except PermissionError as error:
            raise PermissionDeniedError(
                "the table's directory may not be read", path=self._path
            ) from error
        return facts.st_dev, facts.st_ino

    def _take(self, identity: tuple[int, int]) -> sqlite3.Connection:
        while True:
            with self._lock:
                opened, connection = self._free.pop() if self._free else (identity, None)
            if connection is None:
                return connect(self._path)
            if opened == identity:
                return connection
            self._discard(connection)

    def _discard(self, connection: sqlite3.Connection) -> None:
        with suppress(sqlite3.Error):  # an earlier error is being raised
            connection.close()


def connect(path: str, *, create: bool = False) -> sqlite3.Connection:
    """Open the database and check that it is a volume's table; with `create`, make an empty one
    instead.

    On a full disk the ballast file frees the space for opening. Raises VolumeNotFoundError,
    NotAVolumeError, VolumeFormatError.
    """
    if os.path.isdir(path):
        raise NotAVolumeError("a directory is no SQLite table", path=path)
    try:
        return _connect(path, create=create)
    except sqlite3.Error as error:
        if not (_is_full(error) and Ballast(path + BALLAST).shrink()):
            raise
    return _connect(path, create=create)


def _is_full(error: sqlite3.Error) -> bool:
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR)
    return code & 0xFF == sqlite3.SQLITE_FULL or code == sqlite3.SQLITE_IOERR_SHMSIZE


def _connect(path: str, *, create: bool) -> sqlite3.Connection:
    mode = "rwc" if create else "rw" + _on_read_only_media(path)
    connection = sqlite3.connect(
        f"file:{quote(os.fsencode(path))}?mode={mode}",
        uri=True,
        isolation_level=None,
        timeout=BUSY_TIMEOUT,
        check_same_thread=False,
    )
    try:
        for pragma in _PRAGMAS:
            connection.execute(f"PRAGMA {pragma}")
        if not create:
            _recognise(connection, path)
    except BaseException:
        connection.close()
        raise
    return connection


def _on_read_only_media(path: str) -> str:
    """URI parameters for a table on a read-only file system, where SQLite cannot make its files
    beside it.

    Raises PermissionDeniedError for a table that was not closed: its last changes are still in such
    a file.
    """
    try:
        if not os.statvfs(path).f_flag & os.ST_RDONLY:
            return ""
        pending = os.path.exists(path + "-wal") and os.path.getsize(path + "-wal") > 0
    except OSError:
        return ""  # the open reports it
    if pending and not os.path.exists(path + "-shm"):
        raise PermissionDeniedError(
            "the file system is read-only, and the table was not closed when it was last written: "
            "open the volume once "
            "where it can be written, or copy it with all of its files",
            path=path,
        )
    return "" if pending else "&immutable=1"


def _recognise(connection: sqlite3.Connection, path: str) -> None:
    application, version, tables = (
        connection.execute(query).fetchone()[0]
        for query in (
            "PRAGMA application_id",
            "PRAGMA user_version",
            "SELECT count(*) FROM sqlite_schema",
        )
    )
    if application != APPLICATION_ID:
        raise NotAVolumeError("the SQLite database is not a volume's table", path=path)
    if tables == 0:
        raise VolumeNotFoundError("the table is being dropped", path=path)
    if version != FORMAT:
        raise VolumeFormatError(
            f"the table has format {version}; this version knows {FORMAT}", path=path
        )


@contextmanager
def sqlite_errors(path: str, *, committing: bool = False) -> Iterator[None]:
    """Map errors of SQLite. While `committing`, an I/O error leaves the outcome unknown."""
    try:
        yield
    except sqlite3.Error as error:
        raise _mapped(error, path, committing) from error


def _mapped(error: sqlite3.Error, path: str, committing: bool) -> S3kError:
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR)
    name = getattr(error, "sqlite_errorname", "SQLITE_ERROR")
    match code & 0xFF:
        case sqlite3.SQLITE_FULL:
            return NoSpaceError(f"the disk is full: {MAKE_ROOM}", path=path)
        case sqlite3.SQLITE_BUSY | sqlite3.SQLITE_LOCKED:
            return ThrottledError("the table stayed locked by other writers", path=path)
        case sqlite3.SQLITE_NOTADB:
            return NotAVolumeError("the file is no SQLite database", path=path)
        case sqlite3.SQLITE_CORRUPT:
            return CorruptDataError("the SQLite database is damaged", path=path)
        case (
            sqlite3.SQLITE_READONLY
            | sqlite3.SQLITE_PERM
            | sqlite3.SQLITE_AUTH
            | sqlite3.SQLITE_CANTOPEN
        ):
            if not os.path.exists(path):
                return VolumeNotFoundError("no such table", path=path)
            return PermissionDeniedError(
                f"the table's file or directory may not be used ({error})", path=path
            )
        case sqlite3.SQLITE_IOERR if code == sqlite3.SQLITE_IOERR_WRITE and _at_size_limit(path):
            return NoSpaceError("a file would grow over the size allowed", path=path)
        case sqlite3.SQLITE_IOERR if code == sqlite3.SQLITE_IOERR_SHMSIZE and not committing:
            return NoSpaceError(
                f"there is no room for the index that SQLite keeps beside the table: {MAKE_ROOM}",
                path=path,
            )
        case sqlite3.SQLITE_IOERR if committing and code != sqlite3.SQLITE_IOERR_WRITE:
            return ResponseLostError(f"the commit failed midway ({name})", path=path)
        case sqlite3.SQLITE_ERROR if str(error).startswith("no such table"):
            return VolumeNotFoundError("the table was dropped", path=path)
        case _:
            return ServiceError(f"SQLite failed: {error}", path=path, service_code=name)


def _at_size_limit(path: str) -> bool:
    """Whether the process's limit on file sizes stopped a write: SQLite does not report the
    reason."""
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)[0]
    sizes = [
        os.stat(name).st_size
        for name in (path, path + "-wal", path + "-shm")
        if os.path.exists(name)
    ]
    return limit != resource.RLIM_INFINITY and max(sizes, default=0) + 65536 >= limit
