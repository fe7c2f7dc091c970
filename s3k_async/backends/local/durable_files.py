"""Durable files below one directory: written to a private directory, synced, linked into place.

Directories are opened one by one by descriptor, without following symbolic links, so that no key
and no file below the root leads out of it.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from typing import Final, NamedTuple

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
    ResponseLostError,
    S3kError,
    VolumeNotFoundError,
)

__all__ = ["FileWrite", "LocalFiles", "sync_file", "write_fully"]

_LOCK = "lock"
_ABANDONED_MS = 24 * 3600 * 1000
_SYNCED_MOST = 10_000
_STAMP_BYTES = 4
_MISSING = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)


class FileWrite(NamedTuple):
    """A file of `LocalFiles.write_many`. `if_absent`: only if the key has none."""

    key: str
    data: Buffer
    if_absent: bool


_UNKNOWN: Final = S3kError("not published")


@dataclass(slots=True)
class _Draft:
    """A file of a batch in the private directory."""

    write: FileWrite
    name: str
    file: int = -1
    is_there: bool = False
    outcome: BlobInfo | S3kError = _UNKNOWN
    """Its description once its content is durable, unless something failed after that."""

    def close(self) -> None:
        """Close its descriptor."""
        if self.file >= 0:
            file, self.file = self.file, -1
            os.close(file)


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
        with self.opened_root() as root:
            with suppress(FileExistsError):
                self._mkdir(PRIVATE, root, root)
            with opened_directory(PRIVATE, root) as private:
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

    def write_many(
        self,
        writes: Sequence[FileWrite],
        sync_each: Callable[[Sequence[int]], Sequence[OSError | None]],
    ) -> list[BlobInfo | S3kError]:
        """As `write`, for several small files, whose directories are synced once. Returns the
        outcome of each. `sync_each` syncs open files, and returns their errors."""
        batch = self._runtime.uuid()
        drafts = [_Draft(write, f"{batch}.{number}") for number, write in enumerate(writes)]
        entropy = self._runtime.entropy(_STAMP_BYTES * len(drafts))
        with self.opened_private() as private:
            try:
                for number, draft in enumerate(drafts):
                    with self._noting(draft):
                        draft.file = self.create(draft.name, private)
                        draft.is_there = True
                        write_fully(draft.file, draft.write.data)
                        self._stamp(draft.file, entropy[_STAMP_BYTES * number :])
                self._sync_drafts(drafts, sync_each)
                self._publish_drafts(drafts, private)
            finally:
                for draft in drafts:
                    draft.close()
                    if draft.is_there:
                        with suppress(FileNotFoundError):
                            os.unlink(draft.name, dir_fd=private)
        return [draft.outcome for draft in drafts]

    @contextmanager
    def _noting(self, draft: _Draft) -> Iterator[None]:
        """Context whose error is the outcome of the draft."""
        try:
            with os_errors(os.path.join(self.root, draft.write.key)):
                yield
        except S3kError as error:
            draft.outcome = error

    def _sync_drafts(
        self,
        drafts: Iterable[_Draft],
        sync_each: Callable[[Sequence[int]], Sequence[OSError | None]],
    ) -> None:
        written = [draft for draft in drafts if draft.outcome is _UNKNOWN]
        errors = sync_each([draft.file for draft in written])
        for draft, error in zip(written, errors, strict=True):
            with self._noting(draft):
                if error is not None:
                    raise error
                draft.outcome = blob_info(draft.write.key, os.fstat(draft.file))
            draft.close()

    def _publish_drafts(self, drafts: Sequence[_Draft], private: int) -> None:
        """Give the synced drafts their names, and sync each directory once."""
        parents: dict[str, tuple[int, list[_Draft]]] = {}
        touched = []
        with ExitStack() as stack:
            if not all(draft.write.if_absent for draft in drafts):
                stack.enter_context(self._locked(private, fcntl.LOCK_SH))
            for draft in drafts:
                if not isinstance(draft.outcome, BlobInfo):
                    continue
                key = draft.write.key
                directory, _, name = key.rpartition("/")
                with self._noting(draft):
                    if directory not in parents:
                        with self._made_parent(key) as (opened, _):
                            parent = os.dup(opened)
                        stack.callback(os.close, parent)
                        parents[directory] = parent, []
                        touched.append(parents[directory])
                    parent, files = parents[directory]
                    if draft.write.if_absent:
                        self._link(private, draft.name, parent, name, key)
                    else:
                        self._rename(private, draft.name, parent, name, key)
                        draft.is_there = False
                    files.append(draft)
                    if directory not in self._synced:  # directories have been removed
                        parents.clear()
            for parent, files in touched:
                if error := sync_file(parent):
                    for draft in files:
                        draft.outcome = _not_for_long(draft.write.key, error)

    def create(self, name: str, private: int) -> int:
        """A descriptor for writing a new file of the private directory. Raises FileExistsError."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(name, flags, 0o600, dir_fd=private)
        mode = inherited(os.stat("..", dir_fd=private))[0]  # of the root
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
        with self.opened_private() as private, self._locked(private, fcntl.LOCK_SH):
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
    def _locked(self, private: int, operation: int) -> Iterator[None]:
        """Shared while a file is replaced or removed, exclusive from the check of an etag to the
        replacement."""
        with self._lock_file(private) as lock:
            fcntl.flock(lock, operation)
            yield

    @contextmanager
    def _lock_file(self, private: int) -> Iterator[int]:
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
            with self.opened_private() as private, self._lock_file(private) as lock:
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
            for name in os.listdir(descriptor):
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
        self._stamp(descriptor, self._runtime.entropy(_STAMP_BYTES))
        os.fsync(descriptor)
        return os.fstat(descriptor)

    def _stamp(self, descriptor: int, entropy: bytes) -> None:
        # A random part below the clock's resolution distinguishes two files of one size and one
        # moment.
        moment = (
            self._runtime.file_ms(descriptor) * 1_000_000
            + int.from_bytes(entropy[:_STAMP_BYTES], "big") % 1_000_000
        )
        os.utime(descriptor, ns=(moment, moment))

    def _publish(
        self,
        private: int,
        temporary: str,
        key: str,
        *,
        if_absent: bool = False,
        if_match: str | None = None,
    ) -> None:
        with self._made_parent(key) as (parent, name):
            if if_absent:
                self._link(private, temporary, parent, name, key)
            else:
                with self._locked(private, fcntl.LOCK_SH if if_match is None else fcntl.LOCK_EX):
                    facts = None if if_match is None else self.facts(key)
                    if if_match is not None and (
                        facts is None or blob_info(key, facts).etag != if_match
                    ):
                        raise BlobChangedError("the blob is not the expected one", path=key)
                    self._rename(private, temporary, parent, name, key)
            if error := sync_file(parent):
                raise _not_for_long(key, error)

    def _link(self, private: int, temporary: str, parent: int, name: str, key: str) -> None:
        try:
            os.link(temporary, name, src_dir_fd=private, dst_dir_fd=parent, follow_symlinks=False)
        except FileExistsError as error:
            if self.facts(key) is not None:
                raise BlobExistsError("a blob has this key already", path=key) from error
            self._prune(parent, name, key)
            os.link(temporary, name, src_dir_fd=private, dst_dir_fd=parent, follow_symlinks=False)

    def _rename(self, private: int, temporary: str, parent: int, name: str, key: str) -> None:
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
    def _made_parent(self, key: str) -> Iterator[tuple[int, str]]:
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

    def unpublished(self) -> list[tuple[str, int]]:
        """The unpublished files of running and crashed writers: name and time of the last write,
        ms."""
        with self.opened_private() as private:
            return _unpublished(private)

    def forget(self, name: str) -> None:
        """Remove an unpublished file."""
        if name == _LOCK or "/" in name:
            raise InvalidPathError("no file of the private directory", path=name)
        with self.opened_private() as private, suppress(FileNotFoundError):
            os.unlink(name, dir_fd=private)

    def _clean(self, private: int) -> None:
        """Remove files of crashed writers."""
        oldest = self._runtime.now_ms() - _ABANDONED_MS
        for name, written_ms in _unpublished(private):
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
                if entry.name != _LOCK:
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


def sync_file(descriptor: int) -> OSError | None:
    """Sync an open file or directory; returns the error instead of raising it."""
    try:
        os.fsync(descriptor)
    except OSError as error:
        return error
    return None


def _not_for_long(key: str, error: OSError) -> ResponseLostError:
    lost = ResponseLostError("the blob is in place, perhaps not for long", path=key)
    lost.__cause__ = error
    return lost


def _key_conflict(key: str) -> InvalidPathError:
    return InvalidPathError(
        "a directory cannot hold this key: it is the beginning of another key, or another key is "
        "its beginning",
        path=key,
    )
