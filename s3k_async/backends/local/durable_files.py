"""Durable files below one directory: written to a private directory, synced, linked into place.

Directories are opened one by one by descriptor, without following symbolic links, so that no key
and no file below the root leads out of it.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import stat
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress

from s3k_async._core.file_modes import directory_mode, inherited, make_directories
from s3k_async._core.os_errors import os_errors, sync_directory
from s3k_async._core.runtime import Runtime
from s3k_async.backends.local.local_walk import PRIVATE, blob_info, opened_directory
from s3k_async.backends.ports.blobs import BlobInfo, Buffer
from s3k_async.errors import (
    BlobChangedError,
    BlobExistsError,
    BlobNotFoundError,
    InvalidPathError,
    NotAVolumeError,
    OutcomeUnknownError,
    ResponseLostError,
    S3kError,
    VolumeNotFoundError,
)

__all__ = [
    "STAMP_BYTES",
    "LocalFiles",
    "not_for_long",
    "stamp",
    "sync_file",
    "unsynced",
    "write_fully",
]

_LOCK = "lock"
_UNPUBLISHED = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}(\.[0-9]+){0,2}", re.ASCII)
"""Names of unpublished files. Others in the private directory are those of other programs, which
may have had a directory of this name before."""
_ABANDONED_MS = 24 * 3600 * 1000
_SYNCED_MOST = 10_000
STAMP_BYTES = 4
"""Random bytes of a file's modification time."""
_MISSING = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)


class LocalFiles:
    """The files below `root`. Blocking; any number of threads and processes may use the same
    directory."""

    def __init__(self, root: str, runtime: Runtime) -> None:
        self.root = root
        self._runtime = runtime
        self._synced: set[str] = set()
        self._cleaned = False

    @contextmanager
    def opened_root(self) -> Iterator[int]:
        """A descriptor of the root. Raises VolumeNotFoundError."""
        try:
            descriptor = os.open(self.root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            if error.errno in _MISSING:
                raise VolumeNotFoundError("no such directory", path=self.root) from error
            raise
        try:
            yield descriptor
        finally:
            os.close(descriptor)

    @contextmanager
    def opened_private(self) -> Iterator[int]:
        """A descriptor of the directory for unpublished files, created if it is missing."""
        with self.opened_root() as root, ExitStack() as stack:
            try:
                private = stack.enter_context(opened_directory(PRIVATE, root))
            except FileNotFoundError:
                with suppress(FileExistsError):
                    self._mkdir(PRIVATE, root, root)
                private = stack.enter_context(opened_directory(PRIVATE, root))
            if not self._cleaned:
                self._cleaned = True
                self._clean(private)
            yield private

    @contextmanager
    def opened_parent(self, key: str) -> Iterator[tuple[int, str]]:
        """A descriptor of the directory of the key's file, and the file's name in it."""
        *directories, name = key.split("/")
        with ExitStack() as stack:
            parent = stack.enter_context(self.opened_root())
            for directory in directories:
                parent = stack.enter_context(opened_directory(directory, parent))
            yield parent, name

    @contextmanager
    def opened(self, key: str) -> Iterator[tuple[int, os.stat_result]]:
        """A descriptor for reading the key's file, and its status. Raises BlobNotFoundError."""
        with ExitStack() as stack:
            try:
                parent, name = stack.enter_context(self.opened_parent(key))
                descriptor = os.open(
                    name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=parent
                )
            except OSError as error:
                if isinstance(error, VolumeNotFoundError) or error.errno not in _MISSING:
                    raise
                raise BlobNotFoundError("no blob has this key", path=key) from error
            stack.callback(os.close, descriptor)
            facts = os.fstat(descriptor)
            if not stat.S_ISREG(facts.st_mode):
                raise BlobNotFoundError("no blob has this key", path=key)
            yield descriptor, facts

    def facts(self, key: str) -> os.stat_result | None:
        """The status of the key's file, or None."""
        try:
            with self.opened_parent(key) as (parent, name):
                facts = os.stat(name, dir_fd=parent, follow_symlinks=False)
        except OSError as error:
            if isinstance(error, VolumeNotFoundError) or error.errno not in _MISSING:
                raise
            return None
        return facts if stat.S_ISREG(facts.st_mode) else None

    def write(
        self,
        key: str,
        fill: Callable[[int], object],
        *,
        if_absent: bool = False,
        if_match: str | None = None,
    ) -> BlobInfo:
        """Let `fill` write a new file through its descriptor, and publish it as the key's."""
        temporary = self._runtime.uuid()
        with self.opened_private() as private:
            descriptor = self.create(temporary, private)
            try:
                try:
                    fill(descriptor)
                    facts = self._sealed(descriptor)
                finally:
                    os.close(descriptor)
                self._publish(private, temporary, key, if_absent=if_absent, if_match=if_match)
            finally:
                with suppress(FileNotFoundError):
                    os.unlink(temporary, dir_fd=private)
        return blob_info(key, facts)

    def file_mode(self, private: int) -> int:
        """The mode of a new file: that of the root, the parent of the private directory."""
        return inherited(os.stat("..", dir_fd=private))[0]

    def create(self, name: str, private: int, mode: int | None = None) -> int:
        """A descriptor for writing a new file in the private directory, with `file_mode`. Raises
        FileExistsError."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(name, flags, 0o600, dir_fd=private)
        mode = self.file_mode(private) if mode is None else mode
        if mode != 0o600:
            os.fchmod(descriptor, mode)
        return descriptor

    def _mkdir(self, name: str, parent: int, root: int) -> None:
        """Make a directory with the mode of the root. Raises FileExistsError."""
        os.mkdir(name, 0o700, dir_fd=parent)
        mode = inherited(os.fstat(root))[1]
        if mode != 0o700:
            os.chmod(name, mode, dir_fd=parent)

    def publish(self, temporary: str, key: str, size: int) -> BlobInfo:
        """Truncate a file of the private directory to its size and publish it as the key's."""
        with self.opened_private() as private:
            descriptor = os.open(
                temporary, os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=private
            )
            try:
                os.ftruncate(descriptor, size)
                facts = self._sealed(descriptor)
            finally:
                os.close(descriptor)
            self._publish(private, temporary, key)
        return blob_info(key, facts)

    def delete(self, keys: Iterable[str]) -> dict[str, S3kError]:
        """Remove the files of the keys durably; returns the failures."""
        failures: dict[str, S3kError] = {}
        touched: set[str] = set()
        with self.opened_private() as private, self.locked(private, fcntl.LOCK_SH):
            for key in keys:
                try:
                    with os_errors(key):
                        self._unlink(key)
                    touched.add(key.rpartition("/")[0])
                except S3kError as error:
                    failures[key] = error
        for directory in touched:
            try:
                with self.opened_parent(f"{directory}/x" if directory else "x") as (parent, _):
                    os.fsync(parent)
            except OSError as error:
                if isinstance(error, VolumeNotFoundError) or error.errno not in _MISSING:
                    raise
        return failures

    def _unlink(self, key: str) -> None:
        try:
            with self.opened_parent(key) as (parent, name):
                os.unlink(name, dir_fd=parent)
        except OSError as error:
            if isinstance(error, VolumeNotFoundError) or error.errno not in (
                *_MISSING,
                errno.EISDIR,
            ):
                raise

    @contextmanager
    def locked(self, private: int, operation: int) -> Iterator[None]:
        """Shared while a file is replaced or removed, exclusive from the check of an etag to the
        replacement."""
        with self.lock_file(private) as lock:
            fcntl.flock(lock, operation)
            yield

    @contextmanager
    def lock_file(self, private: int) -> Iterator[int]:
        """A descriptor of the lock of replacements."""
        flags = os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            lock = os.open(_LOCK, flags, dir_fd=private)
        except FileNotFoundError:
            with suppress(FileExistsError):
                os.close(self.create(_LOCK, private))
            lock = os.open(_LOCK, flags, dir_fd=private)
        try:
            yield lock
        finally:
            os.close(lock)

    def now_ms(self) -> int:
        """The time by the clock of the file system, which sets the files' times; by that of this
        machine where nothing can be written. Epoch milliseconds."""
        try:
            with self.opened_private() as private, self.lock_file(private) as lock:
                return self._runtime.file_ms(lock)
        except OSError as error:
            if error.errno not in (errno.EROFS, errno.ENOSPC, errno.EDQUOT):
                raise
            return self._runtime.now_ms()

    def make_root(self) -> bool:
        """Create the root durably, with its parents; False if it existed. Raises
        NotAVolumeError."""
        missing = self.root
        while not os.path.lexists(os.path.dirname(missing)):
            missing = os.path.dirname(missing)
        try:
            above = os.path.dirname(self.root)
            make_directories(above)
            os.mkdir(self.root, 0o700)
            os.chmod(self.root, directory_mode(above))
        except FileExistsError as error:
            if not os.path.isdir(self.root):
                raise NotAVolumeError("the path is not a directory", path=self.root) from error
            return False
        made = self.root
        while len(made) >= len(missing):
            made = os.path.dirname(made)
            sync_directory(made)
        return True

    def remove_root(self) -> bool:
        """Remove the root if it holds only empty directories and unpublished files; False if it
        holds others. A file created meanwhile is kept, with the directories above it."""
        real = os.path.realpath(self.root)
        if not os.path.isdir(real):
            return True
        private = os.path.join(real, PRIVATE)
        for directory, _, files in os.walk(real):
            if files and directory != private:
                return False
        with suppress(VolumeNotFoundError), self.opened_private() as descriptor:
            for name in (*(name for name, _ in _unpublished(descriptor)), _LOCK):
                with suppress(FileNotFoundError):
                    os.unlink(name, dir_fd=descriptor)
        try:
            for directory, _, _ in os.walk(real, topdown=False):
                os.rmdir(directory)
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOENT):
                raise
            return error.errno == errno.ENOENT
        if os.path.islink(self.root):
            os.unlink(self.root)
        return True

    def _sealed(self, descriptor: int) -> os.stat_result:
        moment = self._runtime.file_ms(descriptor)
        stamp(descriptor, moment, self._runtime.entropy(STAMP_BYTES))
        os.fsync(descriptor)
        return os.fstat(descriptor)

    def _publish(
        self,
        private: int,
        temporary: str,
        key: str,
        *,
        if_absent: bool = False,
        if_match: str | None = None,
    ) -> None:
        with self.made_parent(key) as (parent, name):
            if if_absent:
                try:
                    self.link(private, temporary, parent, name, key)
                except BlobExistsError:
                    # An earlier attempt or another writer may have left the directory unsynced.
                    if error := sync_file(parent):
                        raise unsynced(key, error) from error
                    raise
            else:
                with self.locked(private, fcntl.LOCK_SH if if_match is None else fcntl.LOCK_EX):
                    facts = None if if_match is None else self.facts(key)
                    if if_match is not None and (
                        facts is None or blob_info(key, facts).etag != if_match
                    ):
                        raise BlobChangedError("the blob is not the expected one", path=key)
                    self.rename(private, temporary, parent, name, key)
            if error := sync_file(parent):
                raise not_for_long(key, error)

    def link(self, private: int, temporary: str, parent: int, name: str, key: str) -> None:
        """Publish a file of the private directory under the key. Raises BlobExistsError."""
        try:
            os.link(temporary, name, src_dir_fd=private, dst_dir_fd=parent, follow_symlinks=False)
        except FileExistsError as error:
            if self.facts(key) is not None:
                raise BlobExistsError("a blob has this key already", path=key) from error
            self._prune(parent, name, key)
            os.link(temporary, name, src_dir_fd=private, dst_dir_fd=parent, follow_symlinks=False)

    def rename(self, private: int, temporary: str, parent: int, name: str, key: str) -> None:
        """Publish a file of the private directory under the key, replacing its file."""
        try:
            os.rename(temporary, name, src_dir_fd=private, dst_dir_fd=parent)
        except IsADirectoryError:
            self._prune(parent, name, key)
            os.rename(temporary, name, src_dir_fd=private, dst_dir_fd=parent)

    def _prune(self, parent: int, name: str, key: str) -> None:
        """Remove a directory tree without files at the path of the key's file."""
        try:
            with opened_directory(name, parent) as directory:
                for below in os.listdir(directory):
                    self._prune(directory, below, key)
            os.rmdir(name, dir_fd=parent)
        except OSError as error:
            raise _key_conflict(key) from error
        self._synced.clear()

    @contextmanager
    def made_parent(self, key: str) -> Iterator[tuple[int, str]]:
        """As `opened_parent`, with missing directories created, durable before the first file in
        them."""
        *directories, name = key.split("/")
        path = "/".join(directories)
        with ExitStack() as stack:
            parent = root = stack.enter_context(self.opened_root())
            for directory in directories:
                with suppress(FileExistsError):
                    self._mkdir(directory, parent, root)
                try:
                    child = stack.enter_context(opened_directory(directory, parent))
                except NotADirectoryError as error:
                    raise _key_conflict(key) from error
                if path not in self._synced:
                    os.fsync(parent)
                parent = child
            if len(self._synced) >= _SYNCED_MOST:
                self._synced.clear()
            self._synced.add(path)
            yield parent, name

    def is_synced(self, directory: str) -> bool:
        """Whether a directory below the root is known to be durable, from its last use."""
        return directory in self._synced

    def unpublished(self) -> list[tuple[str, int]]:
        """The unpublished files of running and crashed writers: name and time of the last write,
        ms."""
        with self.opened_private() as private:
            return _unpublished(private)

    def forget(self, name: str) -> None:
        """Remove an unpublished file."""
        if not _UNPUBLISHED.fullmatch(name):
            raise InvalidPathError("no file of the private directory", path=name)
        with self.opened_private() as private, suppress(FileNotFoundError):
            os.unlink(name, dir_fd=private)

    def _clean(self, private: int) -> None:
        """Remove files of crashed writers: those that are old by the clocks of both the machine and
        the file system. If the machine's is ahead, files of running writers look old by it."""
        oldest = self._runtime.now_ms() - _ABANDONED_MS
        found = [each for each in _unpublished(private) if each[1] < oldest]
        if found:
            oldest = min(oldest, self.now_ms() - _ABANDONED_MS)
        for name, written_ms in found:
            if written_ms < oldest:
                try:
                    os.unlink(name, dir_fd=private)
                except OSError as error:
                    if error.errno not in (errno.ENOENT, errno.EROFS):
                        raise


def _unpublished(private: int) -> list[tuple[str, int]]:
    found = []
    with os.scandir(private) as entries:
        for entry in entries:
            with suppress(FileNotFoundError):
                if _UNPUBLISHED.fullmatch(entry.name) and entry.is_file(follow_symlinks=False):
                    found.append(
                        (entry.name, entry.stat(follow_symlinks=False).st_mtime_ns // 1_000_000)
                    )
    return found


def write_fully(descriptor: int, data: Buffer, offset: int = 0) -> None:
    """Write all of `data` at `offset`."""
    left = memoryview(data).cast("B")
    while left:
        written = os.pwrite(descriptor, left, offset)
        left = left[written:]
        offset += written


def stamp(descriptor: int, moment_ms: int, entropy: bytes) -> None:
    """Set the times of a file to a moment, and their part below a millisecond to STAMP_BYTES random
    bytes: below the clock's resolution, this distinguishes two files of one size."""
    moment = moment_ms * 1_000_000 + int.from_bytes(entropy[:STAMP_BYTES], "big") % 1_000_000
    os.utime(descriptor, ns=(moment, moment))


def sync_file(descriptor: int) -> OSError | None:
    """Sync an open file or directory; returns the error instead of raising it."""
    try:
        os.fsync(descriptor)
    except OSError as error:
        return error
    return None


def not_for_long(key: str, error: OSError) -> ResponseLostError:
    """The outcome of a file whose directory could not be synced."""
    lost = ResponseLostError("the blob is in place, perhaps not for long", path=key)
    lost.__cause__ = error
    return lost


def unsynced(key: str, error: OSError) -> OutcomeUnknownError:
    """The error for an existing file, perhaps of an earlier attempt, whose directory could not be
    synced."""
    unknown = OutcomeUnknownError(
        "the file exists, but its directory cannot be synced, so that it may be lost: check the "
        "disk",
        path=key,
    )
    unknown.__cause__ = error
    return unknown


def _key_conflict(key: str) -> InvalidPathError:
    return InvalidPathError(
        "a directory cannot hold this key: it is the beginning of another key, or another key is "
        "its beginning",
        path=key,
    )
