"""Small files that are written as a batch: each file is synced, and each of their directories
once."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from typing import Any, Final, NamedTuple, TypeAlias

from s3k_async._core.os_errors import os_errors
from s3k_async._core.runtime import Runtime
from s3k_async.backends.batch_queue import Steps
from s3k_async.backends.local.durable_files import (
    STAMP_BYTES,
    LocalFiles,
    not_for_long,
    stamp,
    sync_file,
    unsynced,
    write_fully,
)
from s3k_async.backends.local.local_walk import blob_info
from s3k_async.backends.ports.blobs import BlobInfo, Buffer
from s3k_async.errors import BlobExistsError, S3kError

__all__ = ["FileWrite", "WriteBatch"]

_SYNCS: Final = 8
"""Number of concurrent syncs, which the file system can combine."""
_STEP_FILES: Final = 16
"""Number of files that are written or renamed in one step."""

_Calls: TypeAlias = Sequence[Callable[[], Any]]
_Pauses: TypeAlias = Generator[_Calls, list[Any], None]

_SHORT: Final = 64 * 1024
"""Maximum bytes that are written on the event loop; longer files are written in threads."""


class FileWrite(NamedTuple):
    """A file of a batch. `if_absent`: only if the key has none."""

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
    """Its description once its content is durable, unless a later step failed."""

    def close(self) -> None:
        """Close its descriptor."""
        if self.file >= 0:
            file, self.file = self.file, -1
            os.close(file)


@dataclass(slots=True)
class _Parent:
    """A directory in which files of a batch are published."""

    file: int
    drafts: list[_Draft] = field(default_factory=list)
    """The files of the batch in this directory, including those that existed before."""


class WriteBatch:
    """The writes of several small files below the root of `files`."""

    def __init__(self, files: LocalFiles, runtime: Runtime, writes: Sequence[FileWrite]) -> None:
        batch = runtime.uuid()
        self._files = files
        self._runtime = runtime
        self._drafts = [_Draft(write, f"{batch}.{number}") for number, write in enumerate(writes)]

    def steps(self) -> Steps[BlobInfo]:
        """Write the files, as `LocalFiles.write`; the outcome of each."""
        with os_errors(self._files.root), self._files.opened_private() as private:
            try:
                yield from self._write(private)
                yield from self._sync()
                yield from self._publish(private)
            finally:
                self._remove(private)
        return [draft.outcome for draft in self._drafts]

    def _fail(self, draft: _Draft, error: BaseException) -> None:
        """Make an error of the system or of this package the outcome of the draft."""
        try:
            with os_errors(os.path.join(self._files.root, draft.write.key)):
                raise error
        except S3kError as failure:
            draft.outcome = failure

    def _write(self, private: int) -> _Pauses:
        """Write the files to the private directory, long ones in threads."""
        mode = self._files.file_mode(private)
        entropy = self._runtime.entropy(STAMP_BYTES * len(self._drafts))
        long = []
        for number, draft in enumerate(self._drafts):
            stamping = entropy[STAMP_BYTES * number : STAMP_BYTES * (number + 1)]
            draft_file = partial(self._draft, draft, private, mode, stamping)
            if memoryview(draft.write.data).nbytes > _SHORT:
                long.append(draft_file)
                continue
            if number and number % _STEP_FILES == 0:
                yield ()
            draft_file()
        if long:
            yield long

    def _draft(self, draft: _Draft, private: int, mode: int, entropy: bytes) -> None:
        try:
            draft.file = self._files.create(draft.name, private, mode)
            draft.is_there = True
            write_fully(draft.file, draft.write.data)
            stamp(draft.file, self._runtime.file_ms(draft.file), entropy)
        except (OSError, S3kError) as error:
            self._fail(draft, error)

    def _sync(self) -> _Pauses:
        written = [draft for draft in self._drafts if draft.outcome is _UNKNOWN]
        errors = yield from _synced([draft.file for draft in written])
        for draft, error in zip(written, errors, strict=True):
            try:
                if error is not None:
                    raise error
                draft.outcome = blob_info(draft.write.key, os.fstat(draft.file))
            except OSError as failure:
                self._fail(draft, failure)
            draft.close()

    def _publish(self, private: int) -> _Pauses:
        """Rename the synced drafts to their keys, and sync each directory once."""
        drafts = [draft for draft in self._drafts if isinstance(draft.outcome, BlobInfo)]
        with ExitStack() as stack:
            if not all(draft.write.if_absent for draft in drafts):
                yield from self._lock(stack, private)
            touched: list[_Parent] = []
            parents: dict[str, _Parent] = {}
            for number, draft in enumerate(drafts):
                if number and number % _STEP_FILES == 0:
                    yield ()
                directory = draft.write.key.rpartition("/")[0]
                try:
                    if directory not in parents:
                        opened = yield from self._open(draft.write.key, stack)
                        parents[directory] = _Parent(opened)
                        touched.append(parents[directory])
                    self._name(draft, private, parents[directory])
                    if not self._files.is_synced(directory):  # directories have been removed
                        parents.clear()
                except (OSError, S3kError) as error:
                    self._fail(draft, error)
            errors = yield from _synced([parent.file for parent in touched])
        for parent, lost in zip(touched, errors, strict=True):
            if lost is not None:
                for draft in parent.drafts:
                    is_new = isinstance(draft.outcome, BlobInfo)
                    key = draft.write.key
                    draft.outcome = not_for_long(key, lost) if is_new else unsynced(key, lost)

    def _lock(self, stack: ExitStack, private: int) -> _Pauses:
        """Hold the lock of replacements, shared."""
        lock = stack.enter_context(self._files.lock_file(private))
        try:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            yield [partial(fcntl.flock, lock, fcntl.LOCK_SH)]

    def _open(self, key: str, stack: ExitStack) -> Generator[_Calls, list[Any], int]:
        """A descriptor of the directory of a key. A missing directory is created in a thread."""
        if self._files.is_synced(key.rpartition("/")[0]):
            with suppress(FileNotFoundError, NotADirectoryError):
                return stack.enter_context(self._files.opened_parent(key))[0]
        (parent,) = yield [partial(self._made, key)]
        stack.callback(os.close, parent)
        return int(parent)

    def _made(self, key: str) -> int:
        with self._files.made_parent(key) as (parent, _):
            return os.dup(parent)

    def _name(self, draft: _Draft, private: int, parent: _Parent) -> None:
        key = draft.write.key
        name = key.rpartition("/")[2]
        if draft.write.if_absent:
            try:
                self._files.link(private, draft.name, parent.file, name, key)
            except BlobExistsError:
                # An earlier attempt or another writer may have left the directory unsynced.
                parent.drafts.append(draft)
                raise
        else:
            self._files.rename(private, draft.name, parent.file, name, key)
            draft.is_there = False
        parent.drafts.append(draft)

    def _remove(self, private: int) -> None:
        """Remove unpublished drafts from the private directory."""
        for draft in self._drafts:
            draft.close()
            if draft.is_there:
                with suppress(FileNotFoundError):
                    os.unlink(draft.name, dir_fd=private)


def _synced(files: Sequence[int]) -> Generator[_Calls, list[Any], list[OSError | None]]:
    """Sync open files and directories; the error of each."""
    count = min(len(files), _SYNCS)
    ends = [len(files) * part // count for part in range(count + 1)] if count else []
    found = yield [partial(_sync, files[start:end]) for start, end in pairwise(ends)]
    return [error for part in found for error in part]


def _sync(files: Sequence[int]) -> list[OSError | None]:
    return [sync_file(file) for file in files]
